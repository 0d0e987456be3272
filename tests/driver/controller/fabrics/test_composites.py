"""Which devices of a fabric are one DRA device together."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drawbar.driver.api import attachments, fabrics
from drawbar.driver.controller import names
from drawbar.driver.controller.fabrics import composites
from drawbar.fabric import contract


def device(name, enclosure="e1", model="A", **fields):
    return contract.Device(
        id=name, device_class=contract.DeviceClass.GPU, enclosure=enclosure, model=model, **fields
    )


def named(name, *ids):
    return fabrics.Composite(name=name, devices=ids)


DEVICES = [device("a"), device("b"), device("c"), device("far", enclosure="e2")]


def test_named_devices_are_one_and_are_not_offered_alone():
    arranged = composites.arrange([named("duo", "a", "b")], DEVICES)
    assert arranged == composites.Arrangement(members={"duo": ("a", "b")}, withheld=frozenset({"a", "b"}))


@pytest.mark.parametrize(
    ("wanted", "sentence"),
    [
        ([named("duo", "a")], "duo is not offered: name at least 2 devices, each once"),
        ([named("duo", "a", "a")], "duo is not offered: name at least 2 devices, each once"),
        ([named("duo", "a", "z")], "duo is not offered: the fabric has no device z"),
        ([named("duo", "a", "far")], "duo is not offered: device far is in enclosure e2, and a in e1"),
        ([named("duo", "a", "b"), named("two", "b", "c")], "two is not offered: device b is a member of duo"),
        ([named("c", "a", "b")], "c is not offered: a device of the fabric has this name; choose another"),
    ],
)
def test_what_cannot_be_attached_together_is_not_offered_and_reported_in_a_sentence(wanted, sentence):
    arranged = composites.arrange(wanted, DEVICES)
    assert arranged.problems == (f"composite {sentence}",)
    assert wanted[-1].name not in arranged.members
    listed = {"a", "b", "c", "far"}
    assert set(wanted[-1].devices) & listed <= arranged.withheld


def test_a_device_with_slices_is_no_member():
    origin = contract.Slice(origin_id="a")
    arranged = composites.arrange([named("duo", "a", "b")], [*DEVICES, device("s", slice_of=origin)])
    assert arranged.problems == (
        "composite duo is not offered: device a is not attached as a whole, since it has slices",
    )


def test_a_device_that_was_given_alone_becomes_a_member_when_its_claim_ended():
    arranged = composites.arrange([named("duo", "a", "b")], DEVICES, given={"a"})
    assert arranged.problems == (
        "composite duo is not offered: device a was given to a claim by itself, which has to end first",
    )
    assert arranged.withheld == {"b"}


def test_a_held_composite_keeps_its_members_when_the_fabric_names_others():
    held = {"duo": ("a", "b")}
    arranged = composites.arrange([named("duo", "c", "d")], [*DEVICES, device("d")], held, {"a", "b", "duo"})
    assert arranged.members == held
    assert arranged.withheld == {"a", "b", "c", "d"}
    assert composites.arrange([], DEVICES, held).withheld == {"a", "b"}


def test_ids_are_members_by_their_dra_names():
    arranged = composites.arrange([named("duo", "GPU:1", "GPU:2")], [device("GPU:1"), device("GPU:2")])
    (members,) = arranged.members.values()
    assert members == tuple(map(names.label, ("GPU:1", "GPU:2")))
    assert arranged.composite_of(members[0]) == attachments.Composite(name="duo", devices=members)
    assert arranged.composite_of("GPU:1") is None


def test_a_composite_has_what_its_members_agree_in_and_their_summed_memory():
    whole = composites.composed(
        "duo",
        [
            device("a", memory_bytes=3, serial="1", vendor="V", health=contract.Health.OK),
            device("b", memory_bytes=4, serial="2", vendor="W", health=contract.Health.WARNING),
        ],
    )
    assert whole == device("duo", memory_bytes=7, health=contract.Health.WARNING)


@given(
    st.lists(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=3), max_size=4),
    st.sets(st.sampled_from("abcdef")),
    st.sets(st.sampled_from("abcdef")),
)
def test_no_device_is_in_two_composites_and_every_one_that_is_offered_is_whole(wanted, listed, given_alone):
    wanted = [named(f"duo-{number}", *ids) for number, ids in enumerate(wanted)]
    devices = [device(name, enclosure="e1" if name < "d" else "e2") for name in sorted(listed)]
    arranged = composites.arrange(wanted, devices, given=given_alone)
    members = [member for ids in arranged.members.values() for member in ids]
    assert len(members) == len(set(members))
    assert set(members) <= listed & arranged.withheld
    assert not set(members) & given_alone
    assert all(len({member < "d" for member in ids}) == 1 for ids in arranged.members.values())
    assert len(arranged.members) + len(arranged.problems) == len(wanted)


def memory(gibibytes=1):
    device_class = contract.DeviceClass.CXL_MEMORY
    return contract.Device(id="m", device_class=device_class, memory_bytes=gibibytes << 30)


ONE_SIZE = {f"m{number}": memory() for number in range(5)}


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"a": memory(), "b": memory()}, None),
        ({"a": memory(), "b": None}, None),
        ({"a": memory(), "b": memory(0)}, None),
        ({"a": device("a")}, None),
        ({"a": device("a"), "b": device("b")}, None),
        ({"a": memory()}, "is for a composite of CXL memory devices, and duo is a device by itself"),
        ({"a": None}, "and duo is a device by itself"),
        ({"a": memory(), "b": device("b")}, "is for CXL memory, and b, a member of composite duo, is none"),
        (ONE_SIZE, "takes 2, 3, 4, 6, 8, 12 or 16 devices, and composite duo has 5"),
        (
            {"a": memory(), "b": memory(0), "c": memory(2), "d": memory()},
            "wants members of one size, and of composite duo a has 1073741824 bytes and c 2147483648",
        ),
    ],
    ids=[
        *(
            "memory",
            "one is not listed",
            "one of unknown size",
            "a GPU",
            "GPUs",
            "alone",
            "alone and not listed",
        ),
        *("a GPU among them", "five", "two sizes"),
    ],
)
def test_what_cannot_be_interleaved_is_said_with_the_remedy(members, words):
    problem = composites.interleaving_problem("duo", members)
    assert (problem is None) is (words is None)
    assert problem is None or (words in problem and "leave it out" in problem)
