"""Devices that the fabric manager refuses at a host."""

import datetime

from hypothesis import given
from hypothesis import strategies as st

from drawbar.driver.api import fabrics
from drawbar.driver.controller import faults, pairs

NOW = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
DATE = datetime.datetime(2027, 3, 4, 5, 6, 7, tzinfo=datetime.UTC)
MINUTE = datetime.timedelta(minutes=1)
SOURCE = faults.Source(namespace="x", uid="x-0")


def claim(namespace, number=0):
    return faults.Source(namespace=namespace, uid=f"{namespace}-{number}")


def refuse_pairs(*pairs_, source=SOURCE, now=NOW, remembered=None):
    remembered = remembered or pairs.Pairs()
    for pair in pairs_:
        remembered.note_refusal(pair, source, "not in one fabric", now=now, date=DATE)
    return remembered


def test_a_refused_pair_is_not_tried_for_the_probation_and_its_device_and_host_go_with_others():
    remembered = refuse_pairs(("a", "h"))
    refusal = remembered.refusal("a", "h", MINUTE, NOW)
    assert refusal.message == "not in one fabric"
    assert refusal.ends_at(MINUTE) == NOW + MINUTE
    assert remembered.refusal("a", "h", MINUTE, NOW + MINUTE) is None
    assert remembered.refusal("a", "g", MINUTE, NOW) is None
    assert remembered.refusal("b", "h", MINUTE, NOW) is None


def test_without_a_probation_nothing_is_remembered():
    assert refuse_pairs(("a", "h")).refusal("a", "h", 0 * MINUTE, NOW) is None


def test_claims_of_one_namespace_do_not_prolong_it_and_a_second_namespace_does():
    remembered = refuse_pairs(("a", "h"))
    for number in range(5):
        refuse_pairs(("a", "h"), source=claim("x", number), remembered=remembered)
        assert remembered.refusal("a", "h", MINUTE, NOW).ends_at(MINUTE) == NOW + MINUTE
    refuse_pairs(("a", "h"), source=claim("y"), remembered=remembered)
    assert remembered.refusal("a", "h", MINUTE, NOW).ends_at(MINUTE) == NOW + 2 * MINUTE


def test_a_device_that_works_there_after_all_is_forgotten():
    remembered = refuse_pairs(("a", "h"), ("b", "h"))
    remembered.note_success("a", "h")
    assert remembered.find_lasting(MINUTE, NOW).keys() == {("b", "h")}


def test_the_next_controller_takes_the_pairs_from_the_status_and_counts_from_its_start():
    before = refuse_pairs(("b", "h"), ("a", "h"))
    reported = before.build_report(MINUTE, NOW)
    assert reported == tuple(
        fabrics.IncompatiblePair(
            device=device, host="h", message="not in one fabric", refused_at="2027-03-04T05:06:07Z"
        )
        for device in ("a", "b")
    )
    later = NOW + 10 * MINUTE
    after = pairs.Pairs()
    after.restore(reported, later)
    assert after.refusal("a", "h", MINUTE, later).ends_at(MINUTE) == later + MINUTE
    assert after.build_report(MINUTE, later) == reported


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 200)), max_size=400))
def test_the_status_has_a_bounded_number_of_latest_pairs(history):
    remembered = refuse_pairs(*((f"d{device}", f"h{host}") for device, host in history))
    reported = remembered.build_report(MINUTE, NOW)
    assert len(reported) == min(pairs.SHOWN_MAX, len(set(history)))
    if history:
        device, host = history[-1]
        assert (f"d{device}", f"h{host}") in {(pair.device, pair.host) for pair in reported}


def test_of_too_many_the_oldest_go_and_those_of_yesterday():
    remembered = refuse_pairs(*((f"d{number}", "h") for number in range(pairs.LIMIT + 1)))
    lasting = remembered.find_lasting(MINUTE, NOW)
    assert len(lasting) == pairs.LIMIT
    assert ("d0", "h") not in lasting
    refuse_pairs(("new", "h"), now=NOW + faults.FORGET_AFTER + MINUTE, remembered=remembered)
    assert remembered.find_lasting(faults.FORGET_AFTER * 3, NOW).keys() == {("new", "h")}
