"""What is published of a fabric, and by which writes."""

import datetime

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.scenes.pools import NOW, carried_out, device, make_fabric_state, make_stored_slice, publish_slices

from drawbar.driver.api import fabrics, meta, slices
from drawbar.driver.controller import names
from drawbar.driver.controller.offers import group
from drawbar.driver.controller.pools import desired, devices
from drawbar.driver.slices import pool_writes
from drawbar.fabric import contract

DRIVER = "drawbar.dev"
FAILED = f"{DRIVER}/attach-failed"


def kinds(actions):
    return [type(action) for action in actions]


def taints(action, name):
    entry = next(device for device in action.slice.spec.devices if device.name == name)
    return {taint.key: taint for taint in entry.taints}


def test_one_slice_per_enclosure_selects_the_nodes_of_the_fabric():
    first, second = desired.plan(make_fabric_state(device("a"), device("b"), device("c", "other")), NOW)
    assert [device.name for device in first.slice.spec.devices] == ["a", "b"]
    assert (first.slice.spec.pool.name, second.slice.spec.pool.name) == ("f/e", "f/other")
    (term,) = first.slice.spec.node_selector.node_selector_terms
    assert term.match_expressions[0].key == "fabric.drawbar.dev/f"
    assert first.slice.metadata.owner_references == ()


def test_of_a_device_with_slices_the_slices_are_published_and_not_the_device():
    part = device("a-slice-1", slice_of=contract.Slice(origin_id="a"))
    (action,) = desired.plan(make_fabric_state(device("a"), part, device("b")), NOW)
    assert [device.name for device in action.slice.spec.devices] == ["a-slice-1", "b"]


def test_published_devices_are_not_written_again():
    listed = (device("a"), device("b", memory_bytes=80 * 1024**3))
    assert desired.plan(make_fabric_state(*listed, published=publish_slices(*listed)), NOW) == ()


def test_nothing_changes_while_the_fabric_never_told():
    assert desired.plan(make_fabric_state(devices=None, published=publish_slices(device("a"))), NOW) == ()


def test_a_device_missing_in_one_doubtful_listing_stays_published():
    before = publish_slices(device("a"), device("b"))
    assert desired.plan(make_fabric_state(device("a"), published=before, missing=frozenset({"b"})), NOW) == ()
    (action,) = desired.plan(make_fabric_state(device("a"), published=before), NOW)
    assert [device.name for device in action.slice.spec.devices] == ["a"]


def test_missing_devices_keep_their_room_in_the_pool():
    before = publish_slices(*(device(f"a{number}") for number in range(64)))
    missing = frozenset(device.name for device in before[0].spec.devices)
    (action,) = desired.plan(make_fabric_state(device("b"), published=before, missing=missing), NOW)
    assert isinstance(action, pool_writes.Create)
    assert (action.slice.spec.pool.name, len(action.slice.spec.devices)) == ("f/e/1", 1)


def test_a_missing_device_is_withdrawn_once_reserved():
    before = publish_slices(device("a"), device("b"))
    gone = {"missing": frozenset({"b"}), "reserved": frozenset({"b"})}
    (action,) = desired.plan(make_fabric_state(device("a"), device("b"), published=before, **gone), NOW)
    assert [device.name for device in action.slice.spec.devices] == ["a"]


def test_everything_is_withdrawn_where_binding_conditions_are_dropped():
    before = publish_slices(device("a"))
    assert kinds(
        desired.plan(make_fabric_state(device("a"), published=before, keeps_conditions=False), NOW)
    ) == [pool_writes.Delete]


def test_a_device_comes_and_goes_in_place():
    before = publish_slices(device("a"))
    (action,) = desired.plan(make_fabric_state(device("a"), device("b"), published=before), NOW)
    assert isinstance(action, pool_writes.Replace)
    assert action.slice.metadata == before[0].metadata
    assert action.slice.spec.pool.generation == 1


def test_an_empty_enclosure_loses_its_pool_before_the_other_gains_its_device():
    before = publish_slices(device("a"), device("b", "other"))
    actions = desired.plan(make_fabric_state(device("a"), device("b"), published=before), NOW)
    assert kinds(actions) == [pool_writes.Delete, pool_writes.Replace]


def test_a_device_that_moves_between_enclosures_leaves_before_it_arrives():
    before = publish_slices(device("a", "z"), device("b", "z"), device("c", "e"))
    first, second = desired.plan(
        make_fabric_state(device("a", "e"), device("b", "z"), device("c", "e"), published=before), NOW
    )
    assert [device.name for device in first.slice.spec.devices] == ["b"]
    assert [device.name for device in second.slice.spec.devices] == ["a", "c"]


def test_pools_that_exchange_their_devices_never_have_one_twice():
    stored = publish_slices(device("a", "y"), device("b", "z"))
    for _ in range(3):
        actions = desired.plan(make_fabric_state(device("a", "z"), device("b", "y"), published=stored), NOW)
        for state in carried_out(stored, actions):
            names_ = [entry.name for each in state for entry in each.spec.devices]
            assert len(names_) == len(set(names_))
            stored = state
    homes = {entry.name: each.spec.pool.name for each in stored for entry in each.spec.devices}
    assert homes == {"a": "f/z", "b": "f/y"}


def test_an_allocated_device_leaves_its_pool_only_after_its_claim_ends():
    before = publish_slices(device("a", "z"), device("b", "e"))
    moved = make_fabric_state(
        device("a", "e"), device("b", "e"), published=before, allocated_pools={"a": "f/z"}
    )
    (change,) = desired.plan(moved, NOW)
    spec = change.slice.spec
    assert (spec.pool.name, [device.name for device in spec.devices]) == ("f/z", ["a"])
    later = make_fabric_state(device("a", "e"), device("b", "e"), published=before)
    assert kinds(desired.plan(later, NOW)) == [pool_writes.Delete, pool_writes.Replace]


def test_a_device_that_moved_before_its_claim_was_seen_goes_back_with_its_taints_and_is_offered_once():
    before = publish_slices(device("a", "e"), device("b", "e"))
    facts = {"allocated_pools": {"a": "f/z"}, "failing": {"a": "LinkDown"}}
    first, second = desired.plan(
        make_fabric_state(device("a", "e"), device("b", "e"), published=before, **facts), NOW
    )
    assert [
        (action.slice.spec.pool.name, [held.name for held in action.slice.spec.devices])
        for action in (first, second)
    ] == [
        ("f/e", ["b"]),
        ("f/z", ["a"]),
    ]
    assert FAILED in taints(second, "a")


def test_no_device_goes_back_into_a_pool_that_is_full():
    rest = [device(f"o{number:02}", "z") for number in range(64)]
    before = publish_slices(device("a", "e"), *rest)
    assert (
        desired.plan(
            make_fabric_state(device("a", "e"), *rest, published=before, allocated_pools={"a": "f/z"}), NOW
        )
        == ()
    )


def test_a_second_slice_of_one_pool_goes():
    before = publish_slices(device("a"))
    twin = slices.ResourceSlice(metadata=meta.ObjectMeta(name="twin", uid="t"), spec=before[0].spec)
    (action,) = desired.plan(make_fabric_state(device("a"), published=(twin, *before)), NOW)
    assert isinstance(action, pool_writes.Delete)


def test_a_foreign_attachment_is_tainted_and_ours_is_not():
    hanging = contract.Connection(host_id="h")
    listed = (device("a", connection=hanging), device("b", connection=hanging))
    (action,) = desired.plan(make_fabric_state(*listed, ours=frozenset({"b"})), NOW)
    assert taints(action, "a").keys() == {f"{DRIVER}/in-use"}
    assert taints(action, "b") == {}


def test_a_failing_device_is_tainted_since_the_failure_until_probation_ends():
    before = publish_slices(device("a"))
    (action,) = desired.plan(make_fabric_state(device("a"), failing={"a": "LinkDown"}, published=before), NOW)
    taint = taints(action, "a")[FAILED]
    assert (taint.value, taint.effect, taint.time_added) == ("LinkDown", "NoSchedule", "2026-01-02T00:00:00Z")

    tainted = (make_stored_slice(action),)
    later = NOW + datetime.timedelta(seconds=3599)
    assert (
        desired.plan(make_fabric_state(device("a"), failing={"a": "LinkDown"}, published=tainted), later)
        == ()
    )
    (again,) = desired.plan(make_fabric_state(device("a"), published=tainted), later)
    assert again == desired.LookAgain(at=NOW + datetime.timedelta(seconds=3600))
    (lifted,) = desired.plan(make_fabric_state(device("a"), published=tainted), again.at)
    assert taints(lifted, "a") == {}


def test_a_failure_outlasts_probation_while_it_is_not_over():
    before = publish_slices(device("a"), failing={"a": "LinkDown"})
    much_later = NOW + datetime.timedelta(days=1)
    assert (
        desired.plan(make_fabric_state(device("a"), failing={"a": "LinkDown"}, published=before), much_later)
        == ()
    )


def test_attributes_that_do_not_fit_are_left_out_whole():
    shown = devices.build_device(DRIVER, "f", device("a", model="x" * 65, vendor="y" * 64), ())
    assert "model" not in shown.attributes
    assert shown.attributes["vendor"].string == "y" * 64


@given(
    first=st.sets(st.integers(0, 200), max_size=150),
    second=st.sets(st.integers(0, 200), max_size=150),
    foreign=st.sets(st.integers(0, 200), max_size=20),
)
@settings(deadline=None, max_examples=60)
def test_no_slice_is_too_large_and_no_published_device_moves(first, second, foreign):
    before = publish_slices(*(device(f"d{number}") for number in sorted(first)))
    homes = {device.name: slice_.spec.pool.name for slice_ in before for device in slice_.spec.devices}
    hanging = contract.Connection(host_id="h")
    listed = [
        device(f"d{number}", connection=hanging if number in foreign else None) for number in sorted(second)
    ]
    world = {slice_.spec.pool.name: slice_ for slice_ in before}
    for action in desired.plan(make_fabric_state(*listed, published=before), NOW):
        if isinstance(action, pool_writes.Delete):
            del world[action.slice.spec.pool.name]
        else:
            world[action.slice.spec.pool.name] = make_stored_slice(action)
        seen = [device.name for slice_ in world.values() for device in slice_.spec.devices]
        assert len(seen) == len(set(seen)), "a device stands in two pools"
    for pool, slice_ in world.items():
        assert 0 < len(slice_.spec.devices) <= pool_writes.DEVICES_MAX
        for entry in slice_.spec.devices:
            assert homes.get(entry.name, pool) == pool
            assert bool(entry.taints) == (int(entry.name[1:]) in foreign)
    assert {device.name for slice_ in world.values() for device in slice_.spec.devices} == {
        f"d{number}" for number in second
    }
    assert desired.plan(make_fabric_state(*listed, published=tuple(world.values())), NOW) == ()


@given(st.text(max_size=100))
def test_any_id_becomes_a_dns_label(text):
    label = names.label(text)
    assert 0 < len(label) <= 63
    assert msgspec.json.decode(msgspec.json.encode(label)) == label


DUO = {"wanted": (fabrics.Composite(name="duo", devices=("a", "b")),)}


def list_offered(actions):
    return [device.name for action in actions for device in action.slice.spec.devices]


def test_a_composite_is_published_as_one_device_in_place_of_its_members():
    (action,) = desired.plan(make_fabric_state(device("a"), device("b"), device("c"), **DUO), NOW)
    assert list_offered([action]) == ["c", "duo"]


def test_a_composite_has_the_taints_of_its_members():
    (action,) = desired.plan(make_fabric_state(device("a"), device("b"), maintenance=["b"], **DUO), NOW)
    assert set(taints(action, "duo")) == {f"{DRIVER}/maintenance"}
    (action,) = desired.plan(
        make_fabric_state(device("a"), device("b", connection=contract.Connection(host_id="h")), **DUO), NOW
    )
    assert set(taints(action, "duo")) == {f"{DRIVER}/in-use"}


def test_a_member_claimed_alone_stays_and_its_composite_is_not_offered():
    before = publish_slices(device("a"), device("b"), device("c"))
    changed = desired.plan(
        make_fabric_state(device("a"), device("b"), device("c"), ours=["a"], published=before, **DUO), NOW
    )
    assert list_offered(changed) == ["a", "c"]
    changed = desired.plan(
        make_fabric_state(
            device("a"), device("b"), device("c"), allocated_pools={"a": "f/e"}, published=before, **DUO
        ),
        NOW,
    )
    assert list_offered(changed) == ["a", "c"]


def test_a_composite_in_use_with_a_missing_member_is_published_as_lost():
    before = publish_slices(device("duo"))
    held = {"ours": ["duo", "a", "b"], "composites": {"duo": ("a", "b")}}
    (action,) = desired.plan(make_fabric_state(device("a"), published=before, **held, **DUO), NOW)
    assert set(taints(action, "duo")) == {f"{DRIVER}/device-lost"}


def test_a_member_that_was_offered_alone_is_withdrawn_while_its_composite_is_attached():
    before = publish_slices(device("a"), device("c"), device("duo"))
    held = {"ours": ["duo", "a", "b"], "composites": {"duo": ("a", "b")}}
    (action,) = desired.plan(
        make_fabric_state(device("a"), device("b"), device("c"), published=before, **held, **DUO), NOW
    )
    assert list_offered([action]) == ["c", "duo"]


def test_a_composite_whose_member_is_not_listed_is_withdrawn_and_the_rest_is_not_offered_alone():
    before = publish_slices(device("duo"))
    assert kinds(desired.plan(make_fabric_state(device("a"), published=before, **DUO), NOW)) == [
        pool_writes.Delete
    ]


def test_a_composite_stays_published_over_a_doubtful_listing():
    before = publish_slices(device("duo"))
    assert (
        desired.plan(make_fabric_state(device("a"), published=before, missing=frozenset({"b"}), **DUO), NOW)
        == ()
    )


PAIRS = {
    "rules": (
        fabrics.CompositeRule(
            name="pair",
            within=fabrics.Within.ENCLOSURE,
            devices=(fabrics.CompositePart(device_class="gpu", count=2),),
        ),
    )
}
BC = names.composite("pair", ("b", "c"))


def members_of(action):
    """Return by the name of each composite the members that its slice names."""
    return group.find_published_members([action.slice])


def test_a_rule_is_published_as_composites_that_name_their_members():
    (action,) = desired.plan(make_fabric_state(device("a"), device("b"), device("c"), **PAIRS), NOW)
    name = names.composite("pair", ("a", "b"))
    assert members_of(action) == {name: ("a", "b")}
    assert list_offered([action]) == [name]


def test_a_new_controller_reads_composites_from_published_slices():
    before = publish_slices(device("b"), device("c"), **PAIRS)
    came = (device("a"), device("b"), device("c"))
    assert desired.plan(make_fabric_state(*came, published=before, **PAIRS), NOW) == ()
    (action,) = desired.plan(make_fabric_state(*came, device("d"), published=before, **PAIRS), NOW)
    assert members_of(action) == {BC: ("b", "c"), names.composite("pair", ("a", "d")): ("a", "d")}
    (action,) = desired.plan(make_fabric_state(*came[:2], published=before, **PAIRS), NOW)
    assert list(members_of(action).values()) == [("a", "b")]


def test_an_allocated_rule_composite_is_tainted_when_a_member_is_gone():
    before = publish_slices(device("b"), device("c"), **PAIRS)
    claimed = {"allocated_pools": {BC: "f/e"}}
    (action,) = desired.plan(
        make_fabric_state(device("a"), device("b"), published=before, **claimed, **PAIRS), NOW
    )
    assert members_of(action) == {BC: ("b", "c")}
    assert set(taints(action, BC)) == {f"{DRIVER}/device-lost"}


def test_a_composite_in_use_stays_published_after_its_rule_is_removed():
    before = publish_slices(device("b"), device("c"), **PAIRS)
    held = {"ours": [BC, "b", "c"], "composites": {BC: ("b", "c")}}
    (action,) = desired.plan(
        make_fabric_state(device("a"), device("b"), device("c"), published=before, **held), NOW
    )
    assert members_of(action) == {BC: ("b", "c")}
    assert list_offered([action]) == ["a", BC]


def test_a_rule_composite_stays_published_over_a_doubtful_listing():
    before = publish_slices(device("b"), device("c"), **PAIRS)
    doubtful = {"missing": frozenset({"c"}), "published": before}
    assert desired.plan(make_fabric_state(device("b"), **doubtful, **PAIRS), NOW) == ()
    (action,) = desired.plan(
        make_fabric_state(device("a"), device("b"), device("d"), **doubtful, **PAIRS), NOW
    )
    assert members_of(action) == {BC: ("b", "c"), names.composite("pair", ("a", "d")): ("a", "d")}


def test_a_fabric_that_goes_makes_no_composites():
    before = publish_slices(device("b"), device("c"), **PAIRS)
    gone = desired.plan(
        make_fabric_state(device("b"), device("c"), going=True, published=before, **PAIRS), NOW
    )
    assert kinds(gone) == [pool_writes.Delete]


def test_a_choosing_fabric_offers_devices_alone_despite_rules():
    (action,) = desired.plan(make_fabric_state(device("a"), device("b"), chooses=True, **PAIRS), NOW)
    assert list_offered([action]) == ["a", "b"]


def plan_limited(slices_max, *enclosures, before=()):
    listed = [device(f"d-{name}", name) for name in enclosures]
    stored = publish_slices(*(device(f"d-{name}", name) for name in before))
    limits = fabrics.Limits(slices=slices_max)
    return desired.plan(make_fabric_state(*listed, published=stored, limits=limits), NOW)


def test_pools_beyond_the_limit_of_slices_are_withheld_and_reported():
    *writes, beyond = plan_limited(2, "a", "b", "c", "d")
    assert [action.slice.spec.pool.name for action in writes] == ["f/a", "f/b"]
    assert beyond == desired.Withheld(pools=("f/c", "f/d"), devices=2)


def test_published_devices_precede_new_ones_under_a_limit():
    (beyond,) = plan_limited(1, "a", "z", before=("z",))
    assert beyond == desired.Withheld(pools=("f/a",), devices=1)


def test_a_device_that_moves_beyond_the_limit_stays_where_it_is_published():
    before = publish_slices(device("x", "old"), device("y", "old"))
    limits = fabrics.Limits(slices=1)
    (action,) = desired.plan(
        make_fabric_state(device("x", "new"), device("y", "old"), published=before, limits=limits), NOW
    )
    assert action.slice.spec.pool.name == "f/old"
    assert {entry.name for entry in action.slice.spec.devices} == {"x", "y"}


def test_a_limit_that_is_lowered_withdraws_nothing():
    assert plan_limited(1, "a", "b", before=("a", "b")) == ()


@given(
    st.lists(st.sampled_from("abcdefgh"), unique=True),
    st.lists(st.sampled_from("abcdefgh"), unique=True),
    st.integers(1, 8),
)
def test_there_are_never_more_slices_than_the_limit_after_any_write(first, second, most):
    stored = {}
    for enclosures in (first, second, second):
        for action in plan_limited(most, *enclosures, before=[name.removeprefix("f/") for name in stored]):
            match action:
                case pool_writes.Create():
                    stored[action.slice.spec.pool.name] = action
                case pool_writes.Delete():
                    del stored[action.slice.spec.pool.name]
            assert len(stored) <= most
    assert len(stored) == min(len(second), most)
