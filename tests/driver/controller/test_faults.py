"""Who is to blame when attaches fail."""

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.scenes import attachments as scenes

from drawbar.driver.api import attachments
from drawbar.driver.controller import faults

NOW = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
MINUTE = datetime.timedelta(minutes=1)
BY_HAND = faults.Source(namespace="", uid="attachment-1")


def claim(namespace, number=0):
    return faults.Source(namespace=namespace, uid=f"{namespace}-{number}")


def ledger_of(*failures):
    """Return a ledger of failures, each given as device, host, source and, unless it is now, a time."""
    ledger = faults.Ledger()
    for device, host, source, *moment in failures:
        ledger.count_failure(device, host, source, *(moment or [NOW]))
    return ledger


def test_a_device_that_fails_for_another_namespace_each_time_is_kept_from_use_twice_as_long():
    ledger = faults.Ledger()
    for number, expected in enumerate((1, 2, 4, 8)):
        ledger.count_failure("a", f"host-{number}", claim(f"ns-{number}"), NOW)
        assert ledger.probations(MINUTE, NOW) == {"a": expected * MINUTE}
    assert ledger.failures() == {"a": 4}
    ledger.note_success("a", "host-3")
    assert ledger.probations(MINUTE, NOW) == {}


@pytest.mark.parametrize(
    ("sources", "confirmed"),
    [
        pytest.param([claim("x")] * 5, 1, id="one claim"),
        pytest.param([claim("x", number) for number in range(5)], 1, id="claims of one namespace"),
        pytest.param(
            [claim("x", number) for number in range(9)] + [claim("y")], 2, id="a second namespace once"
        ),
        pytest.param([claim("y")] + [claim("x", number) for number in range(9)], 2, id="in another order"),
        pytest.param([claim("x", 0), claim("x", 1), claim("y", 0), claim("y", 1)], 3, id="both twice"),
        pytest.param([claim("x"), claim("y"), claim("z")], 3, id="three namespaces"),
        pytest.param([BY_HAND], 1, id="an operator"),
        pytest.param([BY_HAND, BY_HAND], 1, id="an operator's attachment twice"),
        pytest.param([BY_HAND, *(claim("x", number) for number in range(9))], 2, id="operator and tenant"),
    ],
)
def test_the_failures_of_the_namespace_with_the_most_count_as_one(sources, confirmed):
    ledger = ledger_of(*(("a", f"h{number}", source) for number, source in enumerate(sources)))
    assert ledger.failures() == {"a": confirmed}
    assert ledger.probations(MINUTE, NOW) == {"a": (1 << confirmed - 1) * MINUTE}


def test_a_failure_is_of_the_claim_or_of_the_operator_who_made_the_attachment():
    held = attachments.ClaimReference(namespace="ns", name="c", uid="u")
    assert faults.Source.from_attachment(scenes.attachment(claim=held)) == faults.Source(
        namespace="ns", uid="u"
    )
    by_hand = faults.Source.from_attachment(scenes.attachment(claim=None, uid="a1"))
    assert by_hand == faults.Source(namespace="", uid="a1")


def test_probation_never_grows_beyond_a_day_unless_one_failure_asks_for_more():
    ledger = ledger_of(*(("a", f"h{number}", claim(f"ns-{number}")) for number in range(20)))
    assert ledger.probations(datetime.timedelta(hours=1), NOW)["a"] == faults.FORGET_AFTER
    assert ledger.probations(datetime.timedelta(days=3), NOW)["a"] == datetime.timedelta(days=3)


def test_one_device_that_fails_for_two_namespaces_blames_no_host():
    ledger = ledger_of(("a", "h", claim("x")), ("a", "h", claim("y")))
    assert ledger.find_faulty_hosts(MINUTE, NOW) == {}
    assert ledger.suspects(MINUTE, NOW) == frozenset()


def test_two_devices_that_fail_on_one_host_for_one_namespace_are_free_and_the_host_is_offered():
    ledger = ledger_of(("a", "h", claim("x", 1)), ("b", "h", claim("x", 2)))
    assert ledger.suspects(MINUTE, NOW) == {"h"}
    assert ledger.find_faulty_hosts(MINUTE, NOW) == {}
    assert ledger.probations(MINUTE, NOW) == {"a": 0 * MINUTE, "b": 0 * MINUTE}
    assert ledger.find_resting(MINUTE, NOW) == frozenset()
    assert ledger.suspects(MINUTE, NOW + MINUTE) == frozenset()


def test_two_devices_that_fail_on_one_host_for_two_namespaces_blame_it_and_are_free_themselves():
    ledger = ledger_of(("a", "h", claim("x")), ("b", "h", claim("y")))
    assert ledger.find_faulty_hosts(MINUTE, NOW) == {"h": NOW + MINUTE}
    assert ledger.devices_on("h") == ("a", "b")
    assert ledger.probations(MINUTE, NOW) == {"a": 0 * MINUTE, "b": 0 * MINUTE}
    assert ledger.find_faulty_hosts(MINUTE, NOW + MINUTE) == {}
    ledger.count_failure("c", "h", claim("z"), NOW + MINUTE)
    assert ledger.find_faulty_hosts(MINUTE, NOW + MINUTE) == {"h": NOW + 2 * MINUTE}


def test_one_namespace_does_not_prolong_the_time_that_two_have_closed_a_host_for():
    ledger = ledger_of(("a", "h", claim("x")), ("b", "h", claim("y")))
    for number in range(10):
        ledger.count_failure("a", "h", claim("x", number), NOW + MINUTE / 2)
    assert ledger.find_faulty_hosts(MINUTE, NOW + MINUTE / 2) == {"h": NOW + MINUTE}
    assert ledger.find_faulty_hosts(MINUTE, NOW + MINUTE) == {}


def test_an_operator_needs_no_second_namespace_to_blame_a_host():
    other = faults.Source(namespace="", uid="attachment-2")
    assert ledger_of(("a", "h", BY_HAND), ("b", "h", other)).find_faulty_hosts(MINUTE, NOW) == {
        "h": NOW + MINUTE
    }
    assert ledger_of(("a", "h", BY_HAND), ("b", "h", claim("x"))).find_faulty_hosts(MINUTE, NOW) == {
        "h": NOW + MINUTE
    }


def test_a_success_in_between_clears_the_host():
    ledger = ledger_of(("a", "h", claim("x")))
    ledger.note_success("b", "h")
    ledger.count_failure("c", "h", claim("y"), NOW)
    assert ledger.find_faulty_hosts(MINUTE, NOW) == {}


def test_a_device_rests_for_its_probation_from_its_last_failure():
    ledger = ledger_of(("a", "h", claim("x")))
    assert ledger.find_resting(MINUTE, NOW) == {"a"}
    assert ledger.find_resting(MINUTE, NOW + MINUTE) == frozenset()


def test_failures_are_forgotten_after_a_day():
    late = NOW + faults.FORGET_AFTER + MINUTE
    ledger = ledger_of(("a", "h", claim("x")), ("b", "g", claim("x"), late))
    assert ledger.probations(MINUTE, late).keys() == {"b"}
    ledger.count_failure("b", "g", claim("y"), late + faults.FORGET_AFTER)
    assert ledger.failures() == {"b": 1}


SOURCES = st.builds(
    faults.Source, namespace=st.sampled_from(["", "x", "y", "z"]), uid=st.sampled_from(["1", "2", "3"])
)


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 6_000), st.integers(0, 5_000), SOURCES), max_size=300),
    st.timedeltas(min_value=datetime.timedelta(), max_value=datetime.timedelta(days=2)),
)
def test_the_ledger_is_bounded_and_never_shortens_a_probation(history, probation):
    ledger = faults.Ledger()
    for failed, device, host, source in history:
        if failed:
            ledger.count_failure(f"d{device}", f"h{host}", source, NOW)
        else:
            ledger.note_success(f"d{device}", f"h{host}")
    blamed, suspects = ledger.find_faulty_hosts(probation, NOW), ledger.suspects(probation, NOW)
    for length in ledger.probations(probation, NOW).values():
        assert not length or probation <= length <= max(probation, faults.FORGET_AFTER)
    assert blamed.keys() <= suspects
    assert all(len(ledger.devices_on(host)) > 1 for host in suspects)


def test_of_too_many_the_oldest_go():
    ledger = ledger_of(*((f"d{number}", "h", claim("x", number)) for number in range(faults.LIMIT + 10)))
    probations = ledger.probations(MINUTE, NOW)
    assert len(probations) <= faults.LIMIT
    assert f"d{faults.LIMIT + 9}" in probations
    assert len(ledger.devices_on("h")) <= faults.DEVICES_MAX


def test_a_tally_is_bounded():
    tally = faults.Tally()
    for number in range(200):
        tally = tally.add(claim(f"ns-{number % 40}", number), NOW)
    assert len(tally.namespaces) <= faults.NAMESPACES_MAX
    assert all(len(entry.claims) <= faults.CLAIMS_MAX for entry in tally.namespaces.values())


TENANTS = st.lists(
    st.tuples(
        st.sampled_from(["fails", "fails", "fails", "works elsewhere"]),
        st.integers(0, 4),
        st.integers(0, 2),
        st.integers(0, 30),
        st.timedeltas(min_value=datetime.timedelta(), max_value=datetime.timedelta(hours=3)),
    ),
    max_size=120,
)


@given(TENANTS, st.timedeltas(min_value=datetime.timedelta(seconds=1), max_value=datetime.timedelta(hours=2)))
def test_failures_of_one_namespace_neither_grow_probations_nor_close_hosts(history, probation):
    ledger, now = faults.Ledger(), NOW
    for what, device, host, number, later in history:
        now += later
        if what == "fails":
            ledger.count_failure(f"d{device}", f"h{host}", claim("tenant", number), now)
        else:
            ledger.note_success(f"d{device}", f"h{host}")
        assert all(length <= probation for length in ledger.probations(probation, now).values())
        assert ledger.find_faulty_hosts(probation, now) == {}


@given(TENANTS, st.sampled_from(["d0", "d7"]), st.sampled_from(["h0", "h7"]))
def test_a_failure_of_another_namespace_doubles_a_probation_only_once(history, device, host):
    ledger, now = faults.Ledger(), NOW
    ledger.count_failure(device, host, claim("neighbour"), now)
    for _, other, other_host, number, _ in history:
        ledger.count_failure(f"d{other}", f"h{other_host}", claim("tenant", number), now)
        assert all(length <= 2 * MINUTE for length in ledger.probations(MINUTE, now).values())
