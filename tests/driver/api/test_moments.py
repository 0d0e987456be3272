"""Times as others write them."""

import datetime

import hypothesis
import pytest
from hypothesis import strategies

from drawbar.driver.api import meta

UTC = datetime.UTC


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-26T12:00:00Z", datetime.datetime(2026, 11, 26, 12, tzinfo=UTC)),
        ("2026-11-26T12:00:00.123456Z", datetime.datetime(2026, 11, 26, 12, 0, 0, 123456, tzinfo=UTC)),
        ("2026-11-26T12:00:00.1Z", datetime.datetime(2026, 11, 26, 12, 0, 0, 100000, tzinfo=UTC)),
        ("2026-11-26T12:00:00.123456789Z", datetime.datetime(2026, 11, 26, 12, 0, 0, 123456, tzinfo=UTC)),
        ("2026-11-26t12:00:00z", datetime.datetime(2026, 11, 26, 12, tzinfo=UTC)),
        ("2026-11-26T14:00:00+02:00", datetime.datetime(2026, 11, 26, 12, tzinfo=UTC)),
        ("2026-11-26T00:00:00-23:59", datetime.datetime(2026, 11, 26, 23, 59, tzinfo=UTC)),
        # A leap second is the second before it.
        ("2016-12-31T23:59:60Z", datetime.datetime(2016, 12, 31, 23, 59, 59, tzinfo=UTC)),
        # A year that leaves no room.
        ("0000-01-01T00:00:00Z", datetime.datetime(1970, 1, 1, tzinfo=UTC)),
        ("0001-02-29T00:00:00Z", datetime.datetime(1970, 1, 1, tzinfo=UTC)),
        ("9999-12-31T23:59:59-01:00", datetime.datetime(8999, 12, 31, tzinfo=UTC)),
        ("9999-13-31T23:59:59Z", None),
        # What a schema takes and no calendar has.
        ("2026-02-30T00:00:00Z", None),
        ("2026-11-26T24:00:00Z", None),
        ("2026-11-26T12:00:61Z", None),
        ("10000-01-01T00:00:00Z", None),
        ("99999999999999999999-01-01T00:00:00Z", None),
        ("-001-12-31T23:00:00Z", None),
        ("2026-11-26T12:00:00+99:99", None),
        # Without a zone, and in other forms that Python takes.
        ("2026-11-26T12:00:00", None),
        ("2026-11-26", None),
        ("20261126T120000Z", None),
        ("2026-W48-4T12:00:00Z", None),
        ("2026-11-26 12:00:00Z", None),
        ("\uff12\uff10\uff12\uff16-11-26T12:00:00Z", None),
        ("2026-11-26T12:00:00Z\n", None),
        ("\ud800", None),
        ("", None),
        (None, None),
    ],
)
def test_a_time_is_a_moment_or_none(text, expected):
    assert meta.moment(text) == expected


@hypothesis.given(
    strategies.one_of(
        strategies.text(),
        strategies.from_regex(
            r"[0-9]{1,6}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})"
        ),
    )
)
def test_any_time_can_be_reckoned_with(text):
    moment = meta.moment(text)
    if moment is not None:
        assert (datetime.datetime.now(UTC) - moment).total_seconds()
        assert moment + datetime.timedelta(days=36_500) > moment - datetime.timedelta(days=36_500)
