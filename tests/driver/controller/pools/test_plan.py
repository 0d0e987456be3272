"""What is published of a fabric, and by which writes."""

import datetime

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.scenes.pools import NOW, device, observed, published, stored

from drawbar.driver.api import meta, slices
from drawbar.driver.controller import names
from drawbar.driver.controller.pools import devices, plan
from drawbar.driver.slices import plan as slice_plan
from drawbar.fabric import contract

DRIVER = "drawbar.dev"
FAILED = f"{DRIVER}/attach-failed"


def kinds(actions):
    return [type(action) for action in actions]


def taints(action, name):
    found = next(one for one in action.slice.spec.devices if one.name == name)
    return {taint.key: taint for taint in found.taints}


def test_one_slice_per_enclosure_selects_the_nodes_of_the_fabric():
    first, second = plan.plan(observed(device("a"), device("b"), device("c", "other")), NOW)
    assert [one.name for one in first.slice.spec.devices] == ["a", "b"]
    assert (first.slice.spec.pool.name, second.slice.spec.pool.name) == ("f/e", "f/other")
    (term,) = first.slice.spec.node_selector.node_selector_terms
    assert term.match_expressions[0].key == "fabric.drawbar.dev/f"
    assert first.slice.metadata.owner_references == ()


def test_what_is_published_already_is_not_written_again():
    found = (device("a"), device("b", memory_bytes=80 * 1024**3))
    assert plan.plan(observed(*found, published=published(*found)), NOW) == ()


def test_nothing_changes_while_the_fabric_never_told():
    assert plan.plan(observed(devices=None, published=published(device("a"))), NOW) == ()


def test_what_one_doubtful_listing_lacks_stays_published_as_it_is():
    known = published(device("a"), device("b"))
    assert plan.plan(observed(device("a"), published=known, missing=frozenset({"b"})), NOW) == ()
    (action,) = plan.plan(observed(device("a"), published=known), NOW)
    assert [one.name for one in action.slice.spec.devices] == ["a"]


def test_what_is_missing_keeps_its_room_and_others_go_to_another_pool():
    known = published(*(device(f"a{number}") for number in range(64)))
    missing = frozenset(one.name for one in known[0].spec.devices)
    (action,) = plan.plan(observed(device("b"), published=known, missing=missing), NOW)
    assert isinstance(action, slice_plan.Create)
    assert (action.slice.spec.pool.name, len(action.slice.spec.devices)) == ("f/e/1", 1)


def test_what_is_reserved_is_withdrawn_though_it_is_missing():
    known = published(device("a"), device("b"))
    gone = {"missing": frozenset({"b"}), "reserved": frozenset({"b"})}
    (action,) = plan.plan(observed(device("a"), device("b"), published=known, **gone), NOW)
    assert [one.name for one in action.slice.spec.devices] == ["a"]


def test_everything_is_withdrawn_where_binding_conditions_are_dropped():
    known = published(device("a"))
    assert kinds(plan.plan(observed(device("a"), published=known, keeps_conditions=False), NOW)) == [
        slice_plan.Delete
    ]


def test_a_device_comes_and_goes_in_place():
    known = published(device("a"))
    (action,) = plan.plan(observed(device("a"), device("b"), published=known), NOW)
    assert isinstance(action, slice_plan.Replace)
    assert action.slice.metadata == known[0].metadata
    assert action.slice.spec.pool.generation == 1


def test_an_empty_enclosure_loses_its_pool_before_the_other_gains_its_device():
    known = published(device("a"), device("b", "other"))
    actions = plan.plan(observed(device("a"), device("b"), published=known), NOW)
    assert kinds(actions) == [slice_plan.Delete, slice_plan.Replace]


def test_a_device_that_moves_between_enclosures_leaves_before_it_arrives():
    known = published(device("a", "z"), device("b", "z"), device("c", "e"))
    first, second = plan.plan(
        observed(device("a", "e"), device("b", "z"), device("c", "e"), published=known), NOW
    )
    assert [one.name for one in first.slice.spec.devices] == ["b"]
    assert [one.name for one in second.slice.spec.devices] == ["a", "c"]


def test_a_device_that_a_claim_was_given_leaves_its_pool_only_once_the_claim_lets_go_of_it():
    known = published(device("a", "z"), device("b", "e"))
    moved = observed(device("a", "e"), device("b", "e"), published=known, claimed={"a": "f/z"})
    (change,) = plan.plan(moved, NOW)
    assert (change.slice.spec.pool.name, [one.name for one in change.slice.spec.devices]) == ("f/z", ["a"])
    later = observed(device("a", "e"), device("b", "e"), published=known)
    assert kinds(plan.plan(later, NOW)) == [slice_plan.Delete, slice_plan.Replace]


def test_a_device_that_moved_before_its_claim_was_seen_goes_back_with_its_taints_and_is_offered_once():
    known = published(device("a", "e"), device("b", "e"))
    facts = {"claimed": {"a": "f/z"}, "failing": {"a": "LinkDown"}}
    first, second = plan.plan(observed(device("a", "e"), device("b", "e"), published=known, **facts), NOW)
    assert [
        (one.slice.spec.pool.name, [held.name for held in one.slice.spec.devices]) for one in (first, second)
    ] == [
        ("f/e", ["b"]),
        ("f/z", ["a"]),
    ]
    assert FAILED in taints(second, "a")


def test_no_device_goes_back_into_a_pool_that_is_full():
    others = [device(f"o{number:02}", "z") for number in range(64)]
    known = published(device("a", "e"), *others)
    assert plan.plan(observed(device("a", "e"), *others, published=known, claimed={"a": "f/z"}), NOW) == ()


def test_a_second_slice_of_one_pool_goes():
    known = published(device("a"))
    twin = slices.ResourceSlice(metadata=meta.ObjectMeta(name="twin", uid="t"), spec=known[0].spec)
    (action,) = plan.plan(observed(device("a"), published=(twin, *known)), NOW)
    assert isinstance(action, slice_plan.Delete)


def test_a_foreign_attachment_is_tainted_and_ours_is_not():
    hanging = contract.Connection(host_id="h")
    found = (device("a", connection=hanging), device("b", connection=hanging))
    (action,) = plan.plan(observed(*found, ours=frozenset({"b"})), NOW)
    assert taints(action, "a").keys() == {f"{DRIVER}/in-use"}
    assert taints(action, "b") == {}


def test_a_failing_device_is_tainted_since_the_failure_until_probation_ends():
    known = published(device("a"))
    (action,) = plan.plan(observed(device("a"), failing={"a": "LinkDown"}, published=known), NOW)
    taint = taints(action, "a")[FAILED]
    assert (taint.value, taint.effect, taint.time_added) == ("LinkDown", "NoSchedule", "2026-01-02T00:00:00Z")

    tainted = (stored(action),)
    later = NOW + datetime.timedelta(seconds=3599)
    assert plan.plan(observed(device("a"), failing={"a": "LinkDown"}, published=tainted), later) == ()
    (again,) = plan.plan(observed(device("a"), published=tainted), later)
    assert again == plan.LookAgain(at=NOW + datetime.timedelta(seconds=3600))
    (lifted,) = plan.plan(observed(device("a"), published=tainted), again.at)
    assert taints(lifted, "a") == {}


def test_a_failure_outlasts_probation_while_it_is_not_over():
    known = published(device("a"), failing={"a": "LinkDown"})
    much_later = NOW + datetime.timedelta(days=1)
    assert plan.plan(observed(device("a"), failing={"a": "LinkDown"}, published=known), much_later) == ()


def test_attributes_that_do_not_fit_are_left_out_whole():
    found = devices.published(DRIVER, "f", device("a", model="x" * 65, vendor="y" * 64), ())
    assert "model" not in found.attributes
    assert found.attributes["vendor"].string == "y" * 64


@given(
    first=st.sets(st.integers(0, 200), max_size=150),
    second=st.sets(st.integers(0, 200), max_size=150),
    foreign=st.sets(st.integers(0, 200), max_size=20),
)
@settings(deadline=None, max_examples=60)
def test_no_slice_is_too_large_and_no_published_device_moves(first, second, foreign):
    before = published(*(device(f"d{number}") for number in sorted(first)))
    homes = {one.name: found.spec.pool.name for found in before for one in found.spec.devices}
    hanging = contract.Connection(host_id="h")
    found = [
        device(f"d{number}", connection=hanging if number in foreign else None) for number in sorted(second)
    ]
    world = {one.spec.pool.name: one for one in before}
    for action in plan.plan(observed(*found, published=before), NOW):
        if isinstance(action, slice_plan.Delete):
            del world[action.slice.spec.pool.name]
        else:
            world[action.slice.spec.pool.name] = stored(action)
        seen = [one.name for known in world.values() for one in known.spec.devices]
        assert len(seen) == len(set(seen)), "a device stands in two pools"
    for pool, known in world.items():
        assert 0 < len(known.spec.devices) <= slice_plan.DEVICES_MAX
        for one in known.spec.devices:
            assert homes.get(one.name, pool) == pool
            assert bool(one.taints) == (int(one.name[1:]) in foreign)
    assert {one.name for known in world.values() for one in known.spec.devices} == {
        f"d{number}" for number in second
    }
    assert plan.plan(observed(*found, published=tuple(world.values())), NOW) == ()


@given(st.text(max_size=100))
def test_any_id_becomes_a_dns_label(text):
    label = names.label(text)
    assert names.label(label) == label
    assert 0 < len(label) <= 63
    assert msgspec.json.decode(msgspec.json.encode(label)) == label


@given(st.text(max_size=20), st.text(max_size=20))
def test_two_ids_never_share_a_name(one, other):
    assert (names.label(one) == names.label(other)) == (one == other) or names.label(one) in (one, other)
