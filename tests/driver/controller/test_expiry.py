"""Rules of `drawbar taint` end when their time is over, and no other rule does."""

import datetime

import pytest

from drawbar.driver.api import meta, slices, taintrules
from drawbar.driver.controller import expiry

NOW = datetime.datetime(2026, 5, 1, 12, tzinfo=datetime.UTC)
PAST, FUTURE = "2026-05-01T11:59:59Z", "2026-05-01T12:00:01Z"


def rule(name="swap", *, ends=PAST, owner="swap"):
    return taintrules.DeviceTaintRule(
        metadata=meta.ObjectMeta(
            name=name,
            uid=f"uid-{name}",
            labels={taintrules.RULE_LABEL: owner} if owner else {},
            annotations={taintrules.EXPIRES_ANNOTATION: ends} if ends else {},
        ),
        spec=taintrules.RuleSpec(taint=slices.Taint(key="a.dev/b", effect="NoExecute")),
    )


STEADY = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def find_expired(rules):
    """Return the rules that are over now."""
    return expiry.find_expired(rules, expiry.ends(rules, {}, STEADY, NOW), STEADY)


@pytest.mark.parametrize(
    ("item", "ends"),
    [
        pytest.param(rule(), True, id="past"),
        pytest.param(rule(ends="2026-05-01T14:00:00+02:00"), True, id="now, in another zone"),
        pytest.param(rule(ends="0001-01-01T00:00:00Z"), True, id="the first moment there is"),
        pytest.param(rule(ends=FUTURE), False, id="future"),
        pytest.param(rule(ends="9999-12-31T23:59:59Z"), False, id="the last moment there is"),
        pytest.param(rule(ends=None), False, id="no end"),
        pytest.param(rule(ends="soon"), False, id="no time"),
        pytest.param(rule(ends="2026-05-01T11:00:00"), False, id="no zone"),
        pytest.param(rule(owner=None), False, id="not ours"),
    ],
)
def test_a_rule_ends_when_its_time_is_over(item, ends):
    assert find_expired([item]) == ((item,) if ends else ())


def test_a_rule_ends_before_its_batches_and_so_many_end_at_a_time():
    batch, main = rule("a-batch"), rule()
    assert find_expired([batch, main]) == (main, batch)
    assert len(find_expired([rule(f"r-{number}") for number in range(100)])) == expiry.RULES_MAX


@pytest.mark.parametrize("step", [-600, 600], ids=["back", "forward"])
def test_a_step_of_the_system_time_neither_ends_a_rule_early_nor_keeps_it(step):
    item, second = rule(ends="2026-05-01T12:05:00Z"), datetime.timedelta(seconds=1)
    first = expiry.ends([item], {}, STEADY, NOW)
    later = STEADY + 299 * second
    second_look = expiry.ends([item], first, later, NOW + (299 + step) * second)
    assert expiry.find_expired([item], second_look, later) == ()
    assert expiry.find_expired([item], second_look, later + second) == (item,)
