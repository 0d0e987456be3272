"""Who is to blame when attaches fail."""

import datetime

from hypothesis import given
from hypothesis import strategies as st

from drawbar.driver.controller import faults

NOW = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
MINUTE = datetime.timedelta(minutes=1)


def test_a_device_that_fails_again_is_kept_from_use_twice_as_long():
    ledger = faults.Ledger()
    for expected in (1, 2, 4, 8):
        ledger.failed("a", f"host-{expected}", NOW)
        assert ledger.probations(MINUTE, ()) == {"a": expected * MINUTE}
    ledger.succeeded("a", "host-8")
    assert ledger.probations(MINUTE, ()) == {}


def test_probation_never_grows_beyond_a_day_unless_one_failure_asks_for_more():
    ledger = faults.Ledger()
    for _ in range(20):
        ledger.failed("a", "h", NOW)
    assert ledger.probations(datetime.timedelta(hours=1), ())["a"] == faults.FORGET_AFTER
    assert ledger.probations(datetime.timedelta(days=3), ())["a"] == datetime.timedelta(days=3)


def test_one_device_that_fails_twice_blames_no_host():
    ledger = faults.Ledger()
    ledger.failed("a", "h", NOW)
    ledger.failed("a", "h", NOW)
    assert ledger.blamed(MINUTE, NOW) == {}


def test_two_devices_that_fail_on_one_host_blame_it_and_are_free_themselves():
    ledger = faults.Ledger()
    ledger.failed("a", "h", NOW)
    ledger.failed("b", "h", NOW)
    assert ledger.blamed(MINUTE, NOW) == {"h": NOW + MINUTE}
    assert ledger.devices_on("h") == ("a", "b")
    assert ledger.probations(MINUTE, ["h"]) == {"a": 0 * MINUTE, "b": 0 * MINUTE}
    assert ledger.blamed(MINUTE, NOW + MINUTE) == {}
    ledger.failed("c", "h", NOW + MINUTE)
    assert ledger.blamed(MINUTE, NOW + MINUTE) == {"h": NOW + 3 * MINUTE}


def test_a_success_in_between_clears_the_host():
    ledger = faults.Ledger()
    ledger.failed("a", "h", NOW)
    ledger.succeeded("b", "h")
    ledger.failed("c", "h", NOW)
    assert ledger.blamed(MINUTE, NOW) == {}


def test_what_did_not_fail_for_a_day_is_forgotten():
    ledger = faults.Ledger()
    ledger.failed("a", "h", NOW)
    ledger.failed("b", "g", NOW + faults.FORGET_AFTER + MINUTE)
    assert ledger.probations(MINUTE, ()).keys() == {"b"}


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 6_000), st.integers(0, 5_000)), max_size=300),
    st.timedeltas(min_value=datetime.timedelta(), max_value=datetime.timedelta(days=2)),
)
def test_the_ledger_is_bounded_and_never_shortens_a_probation(history, probation):
    ledger = faults.Ledger()
    for failed, device, host in history:
        if failed:
            ledger.failed(f"d{device}", f"h{host}", NOW)
        else:
            ledger.succeeded(f"d{device}", f"h{host}")
    blamed = ledger.blamed(probation, NOW)
    for length in ledger.probations(probation, ()).values():
        assert probation <= length <= max(probation, faults.FORGET_AFTER)
    assert all(len(ledger.devices_on(host)) > 1 for host in blamed)


def test_of_too_many_the_oldest_go():
    ledger = faults.Ledger()
    for number in range(faults.LIMIT + 10):
        ledger.failed(f"d{number}", "h", NOW)
    probations = ledger.probations(MINUTE, ())
    assert len(probations) <= faults.LIMIT
    assert f"d{faults.LIMIT + 9}" in probations
