"""Which devices of a fabric are one DRA device together."""

import dataclasses
from collections import defaultdict

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drawbar.driver.api import attachments, fabrics, maintenances, meta, slices
from drawbar.driver.controller import names
from drawbar.driver.controller.offers import group
from drawbar.driver.controller.offers.offer import Stock
from drawbar.driver.controller.pools import devices as pool_devices
from drawbar.fabric import contract


def arrange(fabric, devices, held=None, in_use=(), **changes):
    """Return the composites of a Fabric with these devices."""
    stock = Stock(spec=fabric, devices=tuple(devices), held=held or {}, in_use=in_use, **changes)
    return group.arrange(stock)


def device(name, enclosure="e1", model="A", **fields):
    return contract.Device(
        id=name, device_class=contract.DeviceClass.GPU, enclosure=enclosure, model=model, **fields
    )


def make_composite(name, *ids):
    return fabrics.Composite(name=name, devices=ids)


def spec(*named, **fields):
    return fabrics.FabricSpec(adapter="a", endpoint="e", composites=named, **fields)


DEVICES = [device("a"), device("b"), device("c"), device("far", enclosure="e2")]


def test_named_devices_are_one_and_are_not_offered_alone():
    arranged = arrange(spec(make_composite("duo", "a", "b")), DEVICES)
    assert arranged == group.Arrangement(members={"duo": ("a", "b")}, withheld=frozenset({"a", "b"}))


@pytest.mark.parametrize(
    ("wanted", "sentence"),
    [
        ([make_composite("duo", "a")], "duo is not offered: name at least 2 devices, each once"),
        ([make_composite("duo", "a", "a")], "duo is not offered: name at least 2 devices, each once"),
        ([make_composite("duo", "a", "z")], "duo is not offered: the fabric has no device z"),
        (
            [make_composite("duo", "a", "far")],
            "duo is not offered: device far is in enclosure e2, and a in e1",
        ),
        (
            [make_composite("duo", "a", "b"), make_composite("two", "b", "c")],
            "two is not offered: device b is a member of duo",
        ),
        (
            [make_composite("c", "a", "b")],
            "c is not offered: a device of the fabric has this name; choose another",
        ),
    ],
)
def test_an_impossible_composite_is_reported_and_not_offered(wanted, sentence):
    arranged = arrange(spec(*wanted), DEVICES)
    assert arranged.problems == (f"composite {sentence}",)
    assert wanted[-1].name not in arranged.members
    listed = {"a", "b", "c", "far"}
    assert set(wanted[-1].devices) & listed <= arranged.withheld


def test_a_device_with_slices_is_no_member():
    origin = contract.Slice(origin_id="a")
    arranged = arrange(spec(make_composite("duo", "a", "b")), [*DEVICES, device("s", slice_of=origin)])
    assert arranged.problems == (
        "composite duo is not offered: device a is not attached as a whole, since it has slices",
    )


def test_a_device_claimed_alone_keeps_its_composite_from_being_offered():
    arranged = arrange(spec(make_composite("duo", "a", "b")), DEVICES, in_use={"a"})
    assert arranged.problems == (
        "composite duo is not offered: device a was given to a claim by itself, which has to end first",
    )
    assert arranged.withheld == {"b"}


def test_a_held_composite_keeps_its_members_when_the_fabric_names_others():
    held = {"duo": ("a", "b")}
    arranged = arrange(
        spec(make_composite("duo", "c", "d")), [*DEVICES, device("d")], held, {"a", "b", "duo"}
    )
    assert arranged.members == held
    assert arranged.withheld == {"a", "b", "c", "d"}
    assert arrange(spec(), DEVICES, held).withheld == {"a", "b"}


def test_ids_are_members_by_their_dra_names():
    arranged = arrange(spec(make_composite("duo", "GPU:1", "GPU:2")), [device("GPU:1"), device("GPU:2")])
    (members,) = arranged.members.values()
    assert members == tuple(map(names.label, ("GPU:1", "GPU:2")))
    assert arranged.composite_of(members[0]) == attachments.Composite(name="duo", devices=members)
    assert arranged.composite_of("GPU:1") is None


def test_a_composite_has_common_values_and_the_sum_of_memory():
    whole = group.compose(
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
def test_no_device_is_in_two_composites_and_every_one_that_is_offered_is_whole(wanted, listed, claimed_alone):
    wanted = [make_composite(f"duo-{number}", *ids) for number, ids in enumerate(wanted)]
    devices = [device(name, enclosure="e1" if name < "d" else "e2") for name in sorted(listed)]
    arranged = arrange(spec(*wanted), devices, in_use=claimed_alone)
    members = [member for ids in arranged.members.values() for member in ids]
    assert len(members) == len(set(members))
    assert set(members) <= listed & arranged.withheld
    assert not set(members) & claimed_alone
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
            "needs members of one size, and of composite duo a has 1073741824 bytes and c 2147483648",
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
def test_members_that_cannot_interleave_are_reported_with_a_remedy(members, words):
    problem = group.find_problem("duo", members)
    assert (problem is None) is (words is None)
    assert problem is None or (words in problem and "leave it out" in problem)


def part(count=1, **fields):
    return fabrics.CompositePart(count=count, **({"device_class": "gpu"} | fields))


def rule(*parts, name="pair", within="enclosure", leftover="withheld"):
    return fabrics.CompositeRule(
        name=name,
        within=fabrics.Within(within),
        devices=parts or (part(2),),
        leftover=fabrics.Leftover(leftover),
    )


def nic(name, **fields):
    return dataclasses.replace(device(name, **fields), device_class=contract.DeviceClass.NIC)


def groups(arranged):
    return sorted("+".join(members) for members in arranged.members.values())


def by_rule(devices, *rules, maintenance=(), reserved=(), **circumstances):
    policy = fabrics.Policy(immediate=fabrics.Reservation(devices=reserved))
    fabric = spec(composite_rules=rules or (rule(),), policy=policy)
    scope = maintenances.Scope(devices=frozenset(maintenance))
    return arrange(fabric, devices, maintenance=scope, **circumstances)


def members_by_name(*members, name="pair"):
    return {names.composite(name, members): members}


GPUS = [device(f"g{number}") for number in (1, 2, 10, 11)]
AT_SWITCHES = [device(f"g{number}", switch=f"sw-{number // 3}") for number in range(6)]


@pytest.mark.parametrize(
    ("devices", "rules", "made"),
    [
        pytest.param(GPUS, [rule()], ["g1+g2", "g10+g11"], id="in the order of their numbers"),
        pytest.param(GPUS[:3], [rule()], ["g1+g2"], id="complete ones alone"),
        pytest.param(GPUS[:1], [rule()], [], id="too few"),
        pytest.param(GPUS, [rule(part(4))], ["g1+g2+g10+g11"], id="four"),
        pytest.param(
            [device("a"), device("b", enclosure="e2"), device("c")], [rule()], ["a+c"], id="in one enclosure"
        ),
        pytest.param(
            [device("a", model="B"), device("b"), device("c", model="B")],
            [rule()],
            ["a+c"],
            id="of one model",
        ),
        pytest.param(
            [device("a", model="B"), device("b"), device("c"), device("d", model="B")],
            [rule(part(2, model="B", device_class=""))],
            ["a+d"],
            id="of the model that is asked for",
        ),
        pytest.param(AT_SWITCHES, [rule(within="switch")], ["g0+g1", "g3+g4"], id="at one switch"),
        pytest.param(
            [device("a", switch="s"), device("b", switch="s", enclosure="e2")],
            [rule(within="switch")],
            [],
            id="at two switches of one name",
        ),
        pytest.param([device("a"), device("b")], [rule(within="switch")], [], id="at no known switch"),
        pytest.param(
            [*AT_SWITCHES, nic("n0", switch="sw-0"), nic("n1", switch="sw-1"), nic("n2", switch="sw-1")],
            [rule(part(2), part(device_class="nic"), within="switch")],
            ["g0+g1+n0", "g3+g4+n1"],
            id="of two classes",
        ),
        pytest.param(
            [device("a"), device("b"), device("c", model="B"), device("d", model="B"), nic("n")],
            [rule(part(2), part(device_class="nic"))],
            ["a+b+n"],
            id="as many as the rarer part",
        ),
        pytest.param(
            GPUS,
            [rule(part(3), name="trio"), rule()],
            ["g1+g2+g10"],
            id="the first rule that takes a device has it",
        ),
        pytest.param(
            [device("a"), device("s1", slice_of=contract.Slice(origin_id="a")), device("b"), device("c")],
            [rule()],
            ["b+c"],
            id="without slices and what has them",
        ),
    ],
)
def test_a_rule_makes_as_many_composites_as_there_are_complete_groups(devices, rules, made):
    assert groups(by_rule(devices, *rules)) == made


def test_the_name_of_a_composite_of_a_rule_is_derived_from_its_devices():
    (first, second) = sorted(by_rule(GPUS).members)
    assert {first, second} == {*members_by_name("g1", "g2"), *members_by_name("g10", "g11")}
    assert first.startswith("pair-")
    assert len(first) == len("pair-") + 8


@pytest.mark.parametrize(
    ("devices", "changes"),
    [
        (dataclasses.replace(GPUS[0], health=contract.Health.CRITICAL), {}),
        (dataclasses.replace(GPUS[0], connection=contract.Connection(host_id="h")), {}),
        (GPUS[0], {"maintenance": ("g1",)}),
    ],
    ids=["sick", "in use by another owner", "in maintenance"],
)
def test_an_unattachable_device_is_left_over_first_and_keeps_its_composite(devices, changes):
    listed = [devices, *GPUS[1:3]]
    assert groups(by_rule(listed, **changes)) == ["g2+g10"]
    assert groups(by_rule(listed, published=members_by_name("g1", "g2"), **changes)) == ["g1+g2"]


def test_reserved_and_named_devices_are_in_no_rule_composite():
    assert groups(by_rule(GPUS, reserved=("g1",))) == ["g2+g10"]
    fabric = spec(make_composite("duo", "g1", "gone"), composite_rules=(rule(),))
    assert groups(arrange(fabric, GPUS)) == ["g2+g10"]


@pytest.mark.parametrize(
    ("devices", "rules", "sentence"),
    [
        pytest.param(
            GPUS[:3],
            [rule()],
            "pair leaves g10 over: a composite takes 2 gpu of one enclosure",
            id="incomplete",
        ),
        pytest.param(
            [device("a"), device("b", switch="s")],
            [rule(within="switch")],
            "pair leaves a and b over: a composite takes 2 gpu of one switch, and the fabric names no switch of a",
            id="unknown switch",
        ),
        pytest.param(
            [device("a"), *(device(name, switch="s") for name in "bc")],
            [rule(within="switch", leftover="alone")],
            "pair makes less than it could: a composite takes 2 gpu of one switch, and the fabric names no switch of a",
            id="unknown switch of a device that is offered alone",
        ),
        pytest.param(
            GPUS[:2],
            [rule(part(2), part(device_class="nic", model="CX7"))],
            "pair leaves g1 and g2 over: the fabric has no nic CX7",
            id="a part is lacking",
        ),
        pytest.param(
            [], [rule()], "pair makes less than it could: the fabric has no gpu", id="no such device"
        ),
        pytest.param(
            [device(f"g{number}") for number in range(7)],
            [rule(part(8), part(device_class="gpu", model="B"))],
            "pair leaves g0, g1, g2, g3, g4 and 2 more over: the fabric has no gpu B",
            id="many",
        ),
    ],
)
def test_devices_left_over_by_a_rule_are_reported_in_one_sentence(devices, rules, sentence):
    arranged = by_rule(devices, *rules)
    assert arranged.problems == (f"composite rule {sentence}",)
    over = {item.id for item in devices} - {member for own in arranged.members.values() for member in own}
    assert (over <= arranged.withheld) == (rules[0].leftover is fabrics.Leftover.WITHHELD)


def test_devices_left_over_are_offered_alone_if_the_rule_allows_it():
    arranged = by_rule(GPUS[:3], rule(leftover="alone"))
    assert (arranged.withheld, arranged.problems) == ({"g1", "g2"}, ())
    assert groups(by_rule(GPUS, rule(leftover="alone"), published=arranged.members)) == ["g1+g2", "g10+g11"]


def test_where_the_fabric_chooses_the_device_a_rule_makes_nothing():
    assert by_rule(GPUS, chooses=True) == group.Arrangement(
        problems=("composite rule pair makes none: the fabric chooses its devices itself; remove the rule",)
    )


PUBLISHED = members_by_name("g2", "g10")


@pytest.mark.parametrize(
    ("devices", "circumstances", "made"),
    [
        pytest.param(GPUS, {}, ["g1+g11", "g2+g10"], id="others came"),
        pytest.param(GPUS[:2], {}, ["g1+g2"], id="a member is gone"),
        pytest.param(GPUS[1:3], {}, ["g2+g10"], id="others went"),
        pytest.param(
            [dataclasses.replace(GPUS[1], enclosure="e2"), *GPUS[2:]],
            {},
            ["g10+g11"],
            id="a member moved to another enclosure",
        ),
        pytest.param(
            [dataclasses.replace(GPUS[1], model="B"), *GPUS[2:]],
            {},
            ["g10+g11"],
            id="a member is of another model now",
        ),
        pytest.param(GPUS, {"in_use": {"g2"}}, ["g1+g10"], id="a member was given alone"),
        pytest.param(
            GPUS[:2], {"in_use": set(PUBLISHED)}, ["g2+g10"], id="a claim has it and a member is gone"
        ),
        pytest.param(
            GPUS,
            {"in_use": {*PUBLISHED, "g2"}},
            ["g1+g10"],
            id="a claim has it and another one a member alone",
        ),
        pytest.param(
            GPUS,
            {"held": members_by_name("g1", "g2"), "in_use": {"g1", "g2", *members_by_name("g1", "g2")}},
            ["g1+g2", "g10+g11"],
            id="a member is held by another one",
        ),
    ],
)
def test_a_published_composite_keeps_its_devices_while_all_may_stay(devices, circumstances, made):
    assert groups(by_rule(devices, published=PUBLISHED, **circumstances)) == made


@pytest.mark.parametrize(
    "rules",
    [
        [rule(part(3))],
        [rule(part(2, device_class="nic"))],
        [rule(part(2, model="B"))],
        [rule(within="switch")],
        [rule(name="two")],
        [rule(part(4), name="quad"), rule()],
    ],
    ids=["count", "class", "model", "switch", "name", "another rule takes its devices"],
)
def test_a_published_composite_goes_with_its_rule_unless_a_claim_has_it(rules):
    (name,) = PUBLISHED
    assert name not in by_rule(GPUS[1:], *rules, published=PUBLISHED).members
    assert by_rule(GPUS, *rules, published=PUBLISHED, in_use={name}).members[name] == ("g2", "g10")
    assert arrange(spec(), GPUS, published=PUBLISHED, in_use={name}).members == PUBLISHED


def test_a_published_name_not_derived_from_members_is_no_composite():
    assert groups(by_rule(GPUS, published={"pair-00000000": ("g2", "g10")})) == ["g1+g2", "g10+g11"]


def test_a_published_composite_survives_a_doubtful_listing():
    arranged = by_rule(GPUS[1:2], rule(leftover="alone"), published=PUBLISHED, missing={"g10"})
    assert arranged.members == {}
    assert arranged.unlisted == PUBLISHED
    assert arranged.withheld == {"g2", "g10"}


def test_a_device_that_takes_the_name_of_a_composite_as_its_id_has_another_name():
    (name,) = members_by_name("g1", "g2")
    arranged = by_rule([*GPUS[:2], nic(name)])
    assert arranged.members == {name: ("g1", "g2")}
    assert arranged.problems == ()


def test_the_members_of_composites_are_read_from_their_slices_but_not_from_those_of_nodes():
    members = tuple(f"g{number}" for number in range(group.MOST_MEMBERS))
    duo = pool_devices.build_device("drawbar.dev", "f", device("duo"), members=members)
    plain = pool_devices.build_device("drawbar.dev", "f", device("a"))
    pool = slices.Pool(name="f", generation=1, resource_slice_count=1)
    content = slices.SliceSpec(driver="drawbar.dev", pool=pool, devices=(plain, duo))
    of_fabric = slices.ResourceSlice(metadata=meta.ObjectMeta(name="f"), spec=content)
    of_node = slices.ResourceSlice(
        metadata=of_fabric.metadata, spec=msgspec.structs.replace(content, node_name="node-1")
    )
    assert group.find_published_members([of_fabric]) == {"duo": members}
    assert group.find_published_members([of_node]) == {}


def test_a_composite_with_all_that_can_be_published_is_within_the_limit_of_the_api():
    every = contract.Device(
        id="d",
        device_class=contract.DeviceClass.GPU,
        model="M",
        vendor="V",
        pci_vendor_id=1,
        pci_device_id=1,
        serial="S",
        enclosure="e",
        switch="s",
        memory_bytes=1,
        compute_capability="9.0",
        max_link_speed_mts=1,
        max_link_width=1,
    )
    members = tuple(map(str, range(group.MOST_MEMBERS)))
    made = pool_devices.build_device("drawbar.dev", "f", every, members=members)
    assert len(made.attributes) + len(made.capacity) <= 32


POOL = [
    device(f"g{number}", enclosure=f"e{number % 2}", switch=f"s{number % 4}", model="AB"[number % 3 == 0])
    for number in range(12)
] + [nic(f"n{number}", enclosure=f"e{number % 2}", switch=f"s{number % 4}") for number in range(4)]
RULES = [
    (rule(part(2)),),
    (rule(part(3), within="switch", leftover="alone"),),
    (rule(part(2), part(device_class="nic"), within="switch"),),
    (rule(part(2, model="A"), name="first"), rule(part(2, device_class=""), name="second")),
]


@given(
    st.sampled_from(RULES),
    st.lists(
        st.tuples(
            st.sets(st.sampled_from(range(len(POOL)))),
            st.sets(st.integers(0, 5)),
            st.sets(st.sampled_from([item.id for item in POOL]), max_size=2),
        ),
        min_size=2,
        max_size=8,
    ),
)
def test_composites_stay_the_same_whichever_devices_come_and_go(rules, steps):
    ever, before, held = {}, {}, {}
    for listed, taken, free in steps:
        devices = [POOL[number] for number in sorted(listed)]
        ids = {item.id for item in devices}
        # Claims end, and others are given some of what is offered; a device that is free may be given alone.
        held = {name: before[name] for number, name in enumerate(sorted(before)) if number in taken}
        in_held = {member for members in held.values() for member in members}
        alone = free - in_held
        circumstances = {"held": held, "published": before, "in_use": {*held, *in_held, *alone}}
        arranged = by_rule(devices, *rules, **circumstances)

        members = [member for own in arranged.members.values() for member in own]
        assert len(members) == len(set(members)), "a device is in two composites"
        assert not set(members) & alone
        assert set(members) <= arranged.withheld
        assert held.items() <= arranged.members.items(), "what is held is unchanged"
        for name, own in before.items():
            if set(own) <= ids - alone - in_held:
                assert arranged.members[name] == own, "what is offered is unchanged"
        for name, own in arranged.members.items():
            assert ever.setdefault(name, own) == own, "a name is of the same devices forever"
        again = by_rule(devices, *rules, **circumstances | {"published": arranged.members})
        assert again == arranged, "a controller that begins makes the same"
        if len(rules) == len(rules[0].devices) == 1:
            (only,) = rules
            rest = defaultdict(list)
            for item in devices:
                if item.id not in members and item.id not in alone and item.device_class.value == "gpu":
                    at = item.switch if only.within is fabrics.Within.SWITCH else ""
                    rest[item.enclosure, at, item.model].append(item.id)
            assert all(len(left) < only.devices[0].count for left in rest.values()), "a group is left over"
        before = dict(arranged.members)
