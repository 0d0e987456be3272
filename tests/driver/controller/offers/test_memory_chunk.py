"""Shares of a pool of memory: which slice is whose, and what each is shown as."""

import dataclasses

import pytest

from drawbar.driver.api import attachments, claims
from drawbar.driver.controller import names
from drawbar.driver.controller.offers import holdings, memory_chunk
from drawbar.fabric import contract

GIB = 1 << 30
MARK = "drawbar/c/fab"
ONE, TWO = (f"0000000{number}-0000-4000-8000-000000000000" for number in (1, 2))
POOL = contract.Device(
    id="pool-0",
    device_class=contract.DeviceClass.CXL_MEMORY,
    model="M",
    serial="0x1000",
    memory_bytes=4 * GIB,
    carving=contract.Carving(free_bytes=4 * GIB, step_bytes=GIB, is_pool=True),
)


def make_holding(share_id=ONE, *, slice_id=""):
    share = attachments.Share(device="pool-0", device_id="pool-0", share_id=share_id, memory_bytes=GIB)
    return holdings.Holding(name=names.share(share_id), uid="u", share=share, host_id="h", device_id=slice_id)


def make_slice(share_id=ONE, *, slice_id="slice-1", host=None, mark=MARK, request=None):
    return dataclasses.replace(
        POOL,
        id=slice_id,
        serial="0x1001",
        memory_bytes=GIB,
        carving=None,
        slice_of=contract.Slice(origin_id="pool-0", request_id=request or f"{share_id}-s1", mark=mark),
        connection=contract.Connection(host_id=host) if host is not None else None,
    )


def arrange(holds, slices, carved=()):
    return memory_chunk.arrange(holds, slices, {"pool-0": POOL}, carved)


def test_a_share_is_free_memory_of_its_pool_until_its_slice_is_made():
    arranged = arrange([make_holding()], [])
    (share,) = arranged.shown.values()
    assert (share.id, share.memory_bytes, share.connection) == (f"share-{ONE}", GIB, None)
    assert (share.device_class, share.model, share.serial) == (POOL.device_class, "M", None)
    assert (share.carving, arranged.contents) == (None, {})


def test_a_share_is_where_its_slice_is_and_is_known_by_that_serial():
    arranged = arrange([make_holding(), make_holding(TWO)], [make_slice(host="h")])
    assert arranged.shown[f"share-{ONE}"].connection.host_id == "h"
    assert arranged.shown[f"share-{ONE}"].serial == "0x1001"
    assert arranged.shown[f"share-{TWO}"].connection is None
    assert {name: device.id for name, device in arranged.contents.items()} == {f"share-{ONE}": "slice-1"}


def test_a_share_whose_slice_is_not_listed_any_more_is_lost_and_never_carved_again():
    arranged = arrange([make_holding()], [make_slice()])
    assert arrange([make_holding()], [], arranged.carved).shown == {}
    assert arrange([make_holding(slice_id="slice-1")], []).shown == {}, "by its record, after a restart"
    assert arrange([make_holding(TWO)], [], arranged.carved).shown.keys() == {f"share-{TWO}"}


def test_where_a_fabric_keeps_no_requests_the_record_names_the_slice():
    bare = dataclasses.replace(make_slice(host="h"), slice_of=contract.Slice(origin_id="pool-0"))
    assert arrange([make_holding()], [bare]).contents == {}
    assert arrange([make_holding(slice_id="slice-1")], [bare]).contents.keys() == {f"share-{ONE}"}


def test_a_pool_that_is_not_listed_has_no_share_that_could_be_made():
    assert memory_chunk.arrange([make_holding()], [], {}).shown == {}


@pytest.mark.parametrize(
    ("slice_", "mark", "ours"),
    [
        (make_slice(), MARK, True),
        (make_slice(mark="drawbar/other/fab"), MARK, False),
        (make_slice(mark=None), MARK, False),
        (make_slice(), None, False),
        (make_slice(request="by-hand"), MARK, False),
        (make_slice(request="2f8a1c46-a1"), MARK, False),
        (POOL, MARK, False),
    ],
    ids=["ours", "of another cluster", "unmarked", "no mark of ours", "by hand", "an attach", "no slice"],
)
def test_a_slice_is_ours_by_its_mark_and_the_share_that_it_was_asked_for(slice_, mark, ours):
    assert memory_chunk.is_ours(slice_, mark) is ours


def test_the_slice_of_each_attempt_has_a_request_of_its_own_that_names_the_share():
    requests = [memory_chunk.slice_request(f"share-{ONE}", f"uid-a{attempt}") for attempt in (1, 2)]
    assert requests == [f"{ONE}-s1", f"{ONE}-s2"]
    assert {memory_chunk.parse_requested_share(request) for request in requests} == {f"share-{ONE}"}
    assert memory_chunk.parse_requested_share("uid-a1") is None
    assert memory_chunk.parse_requested_share("gpu-0-s1") is None
    assert memory_chunk.parse_requested_share(f"{requests[0]}-x1") is None
    assert memory_chunk.parse_deleted_share(f"{requests[0]}-x1") == f"share-{ONE}"
    assert {memory_chunk.parse_deleted_share(request) for request in (*requests, "uid-x1")} == {None}


def test_any_share_id_makes_a_name_that_no_other_has():
    assert names.share(ONE) == f"share-{ONE}"
    odd = [names.share(text) for text in ("", "../x", "A" * 300, ONE.upper() + "x")]
    assert all(map(names.is_share, odd))
    assert len({*odd, names.share(ONE)}) == 5
    assert not names.is_share("share-1")


def result(**changes):
    fields = {"request": "r", "driver": "d", "pool": "f", "device": "pool-0", "share_id": ONE}
    return claims.AllocationResult(**(fields | {"consumed_capacity": {"memory": "2Gi"}} | changes))


def test_the_share_of_a_claim_is_its_consumed_capacity():
    share = memory_chunk.read_share(result(), ONE, POOL)
    assert (share.device, share.device_id, share.memory_bytes) == ("pool-0", "pool-0", 2 * GIB)
    assert memory_chunk.read_share(result(), ONE, None).device_id == "", "the pool may be listed later"


@pytest.mark.parametrize(
    ("consumed", "words"),
    [
        ({}, "names no memory in consumedCapacity"),
        ({"memory": "many"}, "is not a quantity"),
        ({"memory": "1.5Gi"}, "steps of 1Gi"),
        ({"memory": "0"}, "steps of 1Gi"),
        ({"memory": "-1Gi"}, "steps of 1Gi"),
        ({"memory": "100m"}, "steps of 1Gi"),
    ],
)
def test_an_impossible_share_is_refused_with_a_sentence(consumed, words):
    with pytest.raises(memory_chunk.CannotCarve, match=words):
        memory_chunk.read_share(result(consumed_capacity=consumed), ONE, POOL)
