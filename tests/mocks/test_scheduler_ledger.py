"""The scheduler's account is what adding everything up again would give."""

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from drawbar.mocks.claims import documents
from drawbar.mocks.kube import meta
from drawbar.mocks.scheduler import ledger, objects, plan, usage

DEVICES = [("d", "p", name) for name in "abc"]
USES = st.builds(
    usage.Use,
    device=st.sampled_from(DEVICES),
    amounts=st.none() | st.fixed_dictionaries({"memory": st.integers(1, 3).map(Decimal)}),
)
PUTS = st.lists(st.tuples(st.sampled_from("xyz"), st.lists(USES, max_size=3).map(tuple)), max_size=12)


@given(PUTS)
def test_a_tally_is_the_sum_of_each_owners_last_uses(puts):
    tally, by_owner = usage.Tally(), {}
    for owner, uses in puts:
        tally.put(owner, uses)
        by_owner[owner] = uses
        assert tally.total() == usage.total(use for uses in by_owner.values() for use in uses)


def allocation(device):
    result = objects.Result(request="r", driver="d", pool="p", device=device)
    return objects.Allocation(devices=objects.AllocatedDevices(results=(result,)))


def claim(uid="u", device=None):
    result = {"request": "r", "driver": "d", "pool": "p", "device": device}
    status = {"allocation": {"devices": {"results": [result]}}} if device else {}
    return documents.Document(metadata=meta.ObjectMeta(name="c", namespace="n", uid=uid), status=status)


def pod(node="", **status):
    metadata = meta.ObjectMeta(name="p", namespace="n", uid="pod")
    return documents.Document(metadata=metadata, spec={"nodeName": node} if node else {}, status=status)


def list_taken_devices(book):
    return {device for _, _, device in book.used.whole}


def test_an_allocation_counts_from_the_decision_on_until_the_claim_is_free():
    book, placement = ledger.Ledger(), plan.Placement(node="n1", allocations={"u": allocation("a")})
    book.begin(placement)
    assert (list_taken_devices(book), book.is_under_way("u")) == ({"a"}, True)
    book.claim_changed(None, claim(device="a"))
    book.end(placement)
    assert (list_taken_devices(book), book.is_under_way("u")) == ({"a"}, False)
    book.claim_changed(claim(device="a"), claim())
    assert list_taken_devices(book) == set()


def test_an_allocation_that_came_to_nothing_counts_no_more():
    book, placement = ledger.Ledger(), plan.Placement(node="n1", allocations={"u": allocation("a")})
    book.begin(placement)
    book.end(placement)
    assert list_taken_devices(book) == set()


def test_a_claim_that_goes_or_is_replaced_by_another_gives_its_device_back():
    book = ledger.Ledger()
    book.claim_changed(None, claim(device="a"))
    book.claim_changed(claim(device="a"), claim(uid="other"))
    assert list_taken_devices(book) == set()
    book.claim_changed(claim(uid="other"), claim(uid="other", device="b"))
    book.claim_changed(claim(uid="other", device="b"), None)
    assert list_taken_devices(book) == set()


def test_a_node_has_the_pods_that_are_bound_to_it_and_those_on_their_way():
    book, placement = ledger.Ledger(), plan.Placement(node="n1")
    book.begin(placement)
    assert book.pods_on("n1") == 1
    book.pod_changed(None, pod())
    book.pod_changed(pod(), pod("n1"))
    book.end(placement)
    assert book.pods_on("n1") == 1
    book.pod_changed(pod("n1"), pod("n1", phase="Succeeded"))
    assert book.pods_on("n1") == 0
