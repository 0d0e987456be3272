"""The offers of a fabric that chooses the device itself: which there are, and which device is in each."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drawbar.driver.controller.offers import any_of_model, holdings
from drawbar.fabric import contract

MARK = "drawbar/c/f"


def device(name, host=None, *, model="m", request=None, mark=MARK, **changes):
    connection = (
        contract.Connection(host_id=host, request_id=request, mark=mark) if host is not None else None
    )
    fields = {"device_class": contract.DeviceClass.GPU, "serial": f"S-{name}", "model": model}
    return contract.Device(id=name, connection=connection, **fields | changes)


def make_holding(offer, *, uid="u1", host="h1", recorded="", model="m"):
    return holdings.Holding(name=offer, uid=uid, model=model, host_id=host, device_id=recorded)


def arrange(devices, *holds, claimed=(), memory=None, mark=MARK):
    held = holdings.Holdings.from_parts(holds, claimed=claimed)
    return any_of_model.arrange(
        {each.id: each for each in devices}, held, memory or any_of_model.Memory(), mark
    )


FREE = [device("a"), device("b"), device("c")]
OTHERS = "drawbar/other/f"
CRITICAL = contract.Health.CRITICAL
# By what is tested: devices, holds, names given to claims, and the offers with the device that is in each.
TABLE = {
    "one offer for each free device": (FREE, (), (), {"m-1": None, "m-2": None, "m-3": None}),
    "models count for themselves": (
        [device("a"), device("b", model="n")],
        (),
        (),
        {"m-1": None, "n-1": None},
    ),
    "a device without a model cannot be asked for": ([device("a", model="")], (), (), {}),
    "a slice and a device with slices is in no offer": (
        [
            *FREE,
            device("d", memory_bytes=9, slice_of=contract.Slice(origin_id="c")),
            device("e", carving=contract.Carving(free_bytes=9, is_pool=True)),
        ],
        (),
        (),
        {"m-1": None, "m-2": None},
    ),
    "an offer that waits for its device takes one of the free ones": (
        FREE,
        (make_holding("m-2"),),
        (),
        {"m-1": None, "m-2": None, "m-3": None},
    ),
    "the connection names the request of the attachment": (
        [device("a"), device("c", "h1", request="u1-a1")],
        (make_holding("m-2"),),
        (),
        {"m-1": None, "m-2": "c"},
    ),
    "the recorded device stays, though it is not attached": (
        [device("a"), device("b")],
        (make_holding("m-1", recorded="b"),),
        (),
        {"m-1": "b", "m-2": None},
    ),
    "a recorded device that came to another attachment belongs to that one": (
        [device("a", "h1", request="u2-a1"), device("b")],
        (make_holding("m-1", recorded="a"), make_holding("m-2", uid="u2")),
        (),
        {"m-1": None, "m-2": "a", "m-3": None},
    ),
    "a recorded device that is not listed leaves no offer": (
        [device("b")],
        (make_holding("m-1", recorded="a"),),
        (),
        {"m-2": None},
    ),
    "another owner takes one offer away": (
        [device("a", "h9", mark=OTHERS), device("b"), device("c")],
        (),
        (),
        {"m-1": None, "m-2": None},
    ),
    "free offers have the lowest numbers beside the one that is held": (
        [device("a", "h9", mark=OTHERS), device("b", "h1", request="u1-a1"), device("c")],
        (make_holding("m-3"),),
        (),
        {"m-1": None, "m-3": "b"},
    ),
    "an allocated offer is the last to go": (
        [device("a"), device("b", "h9", mark=OTHERS)],
        (),
        ("m-2",),
        {"m-2": None},
    ),
    "no claim makes offers": ([device("a")], (), ("m-7", "m-8", "n-1", "m-x"), {"m-7": None}),
    "ours without an attachment has an offer of its own": (
        [device("a", "h1", request="gone-a1"), device("b")],
        (),
        (),
        {"m-1": "a", "m-2": None},
    ),
    "ours that an attachment may have made waits for it": (
        [device("a", "h1"), device("b")],
        (make_holding("m-1"),),
        (),
        {"m-1": None},
    ),
    "a device that is critically ill is in no offer while it is free": (
        [device("a", health=CRITICAL), device("b")],
        (),
        (),
        {"m-1": None},
    ),
    "a device that fell ill stays in its offer": (
        [device("a", "h1", request="u1-a1", health=CRITICAL)],
        (make_holding("m-1"),),
        (),
        {"m-1": "a"},
    ),
}


@pytest.mark.parametrize(("devices", "holds", "claimed", "expected"), TABLE.values(), ids=TABLE)
def test_the_places_of_a_fabric(devices, holds, claimed, expected):
    arranged = arrange(devices, *holds, claimed=claimed)
    assert {name: arranged.contents.get(name) for name in arranged.parts} == expected
    by_id = {each.id: each for each in devices}
    for name, offer in arranged.parts.items():
        chosen_device = by_id.get(arranged.contents.get(name, ""))
        assert offer.connection == (chosen_device.connection if chosen_device else None)
        assert (offer.id, offer.serial, offer.identifiers, offer.etag) == (name, None, (), None)


def test_a_place_shows_the_common_values_of_its_models_devices():
    alike = [
        device("a", vendor="V", enclosure="e1", memory_bytes=8),
        device("b", vendor="V", enclosure="e2", memory_bytes=8),
    ]
    offer = arrange(alike).parts["m-1"]
    assert (offer.vendor, offer.memory_bytes, offer.enclosure) == ("V", 8, "")
    ill = dataclasses.replace(alike[0], health=contract.Health.WARNING)
    assert arrange([ill, alike[1]]).parts["m-1"].health is contract.Health.UNKNOWN


@pytest.mark.parametrize("model", ["m" * 60, "NVIDIA H100 80GB " + "x" * 60, "M1"])
def test_names_of_places_are_dns_labels_that_tell_models_apart(model):
    names = arrange([device("a", model=model), device("b", model=model + "x")]).parts
    assert len(names) == 2
    assert all(len(name) <= 63 and name == name.lower() and name.endswith("-1") for name in names)


def test_the_device_that_an_answer_named_goes_before_the_recorded_one():
    devices = [device("a"), device("b")]
    memory = any_of_model.remember_device(any_of_model.Memory(), make_holding("m-1"), "a")
    assert arrange(devices, make_holding("m-1"), memory=memory).contents == {"m-1": "a"}
    memory = any_of_model.remember_device(memory, make_holding("m-2", uid="u2"), "a")
    arranged = arrange(devices, make_holding("m-1"), make_holding("m-2", uid="u2"), memory=memory)
    assert arranged.contents == {"m-2": "a"}
    memory = any_of_model.forget_device(memory, make_holding("m-2", uid="u2"))
    assert arrange(devices, make_holding("m-2", uid="u2"), memory=memory).contents == {}
    assert arrange(devices, memory=arranged.memory).memory.named == {}


def test_an_orphan_keeps_its_place_for_the_attachment_that_restores_it():
    devices = [device("a"), device("z", "h1", request="gone-a1")]
    first = arrange(devices, make_holding("m-1", uid="u9"))
    assert first.contents == {"m-2": "z"}
    restored = arrange(devices, make_holding("m-2", uid="u2"), memory=first.memory)
    assert restored.contents == {"m-2": "z"}
    assert restored.memory.named == {"u2": "z"}


ADOPTIONS = {
    "marked as ours, on the host, of the model": ([device("a", "h1")], MARK, (), "a"),
    "on another host": ([device("a", "h2")], MARK, (), None),
    "of another model": ([device("a", "h1", model="n")], MARK, (), None),
    "of another owner": ([device("a", "h1", mark=OTHERS)], MARK, (), None),
    "without a mark where marks are kept": ([device("a", "h1", mark=None)], MARK, (), None),
    "of another request": ([device("a", "h1", request="u7-a1")], MARK, (), None),
    "named by the operation of another request": ([device("a", "h1")], MARK, ("a",), None),
    "where no marks are kept": ([device("a", "h1", mark=None)], None, (), "a"),
}


@pytest.mark.parametrize(("devices", "mark", "spoken_for", "expected"), ADOPTIONS.values(), ids=ADOPTIONS)
def test_an_attach_adopts_only_its_own_device(devices, mark, spoken_for, expected):
    by_id = {each.id: each for each in devices}
    arranged = arrange(devices, make_holding("m-1"), mark=mark)
    adopted = any_of_model.adoptable(by_id, make_holding("m-1"), arranged, mark, spoken_for=spoken_for)
    assert adopted == expected
    recorded = make_holding("m-1", recorded="b")
    assert any_of_model.adoptable(by_id, recorded, arranged, mark) is None


def test_an_older_connection_is_never_adopted():
    devices = {"a": device("a", "h1", mark=None)}
    before = arrange(devices.values(), mark=None)
    arranged = arrange(devices.values(), make_holding("m-1"), mark=None, memory=before.memory)
    assert any_of_model.adoptable(devices, make_holding("m-1"), arranged, None) is None


def test_places_are_withdrawn_when_other_owners_have_the_devices_and_not_when_devices_are_missing():
    devices = [device("a"), device("b", "h9", mark=OTHERS)]
    assert any_of_model.withdrawn(("m-1", "m-2"), devices, arrange(devices)) == {"m-2"}
    assert any_of_model.withdrawn(("m-1", "m-2"), devices[:1], arrange(devices[:1])) == frozenset()


hosts = st.sampled_from([None, "h1", "h2"])
requests = st.sampled_from([None, "u1-a1", "u2-a1", "u9-a1"])
owners = st.sampled_from([MARK, OTHERS, None])


@given(
    shown=st.lists(st.tuples(hosts, requests, owners, st.sampled_from("mn")), max_size=6),
    held=st.lists(
        st.tuples(st.sampled_from(["m-1", "m-2", "m-4", "n-1"]), st.sampled_from(["", "d0", "d1", "gone"])),
        max_size=4,
        unique_by=lambda entry: entry[0],
    ),
    claimed=st.frozensets(st.sampled_from(["m-1", "m-3", "m-9", "n-2"])),
    marks_kept=st.booleans(),
)
def test_no_device_is_in_two_places_and_no_place_is_more_than_a_device(shown, held, claimed, marks_kept):
    devices = [
        device(f"d{number}", host, request=request, mark=mark, model=model)
        for number, (host, request, mark, model) in enumerate(shown)
    ]
    holds = [
        make_holding(offer, uid=f"u{number}", recorded=recorded, model=offer[0])
        for number, (offer, recorded) in enumerate(held)
    ]
    mark = MARK if marks_kept else None
    arranged = arrange(devices, *holds, claimed=claimed, mark=mark)
    assert len(set(arranged.contents.values())) == len(arranged.contents)
    empty = [name for name in arranged.parts if name not in arranged.contents]
    free = sum(each.connection is None for each in devices)
    assert len(empty) <= free + len(holds)
    again = arrange(devices, *holds, claimed=claimed, mark=mark, memory=arranged.memory)
    assert again.parts == arranged.parts


def test_a_memory_chunk_is_neither_adopted_nor_counted_among_a_models_devices():
    part = device("d", "h1", memory_bytes=9, slice_of=contract.Slice(origin_id="c"))
    waiting = make_holding("m-1")
    arrangement = arrange([*FREE, part], waiting)
    devices = {each.id: each for each in (*FREE, part)}
    assert any_of_model.adoptable(devices, waiting, arrangement, MARK) is None
    assert arrangement.parts["m-2"].memory_bytes == 0
    whole = [dataclasses.replace(each, memory_bytes=18) for each in FREE]
    assert arrange([*whole, part], waiting).parts["m-2"].memory_bytes == 18
