"""What is published of a node's own devices, as pure decisions."""

import datetime

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drawbar.driver.api import meta, nodepools, slices
from drawbar.driver.node.health import verdicts
from drawbar.driver.node.local import plan
from drawbar.driver.slices import encoding, pool_writes

NODE, DRIVER = "node-1", "drawbar.dev"
NOW = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
LATER = NOW + datetime.timedelta(hours=1)
OWNER = meta.OwnerReference(api_version="v1", kind="Node", name=NODE, uid="u-1", controller=True)
LINK = verdicts.Taint(key="link-degraded", value="x4", effect=verdicts.Effect.NO_SCHEDULE)
NOTE = verdicts.Taint(key="noted", value="", effect=verdicts.Effect.NONE)


def offer(name, taints=(), pool=""):
    return plan.Offer(device=slices.Device(name=name), taints=taints, pool=pool)


def make_observation(*offers, **changes):
    values = {"driver": DRIVER, "node_name": NODE, "owner": OWNER}
    return plan.Observed(offers=offers, **values | changes)


def carried_out(published, actions):
    """Return the published slices after the actions, as an API server would have them."""
    stored = {slice_.metadata.name: slice_ for slice_ in published}
    for action in actions:
        if isinstance(action, pool_writes.Delete):
            del stored[action.slice.metadata.name]
        else:
            metadata = msgspec.structs.replace(action.slice.metadata, uid="u", resource_version="7")
            stored[metadata.name] = slices.ResourceSlice(metadata=metadata, spec=action.slice.spec)
    return tuple(stored.values())


def publish(*offers, published=(), now=NOW, **changes):
    """Return the slices after one round."""
    return carried_out(published, plan.plan(make_observation(*offers, published=published, **changes), now))


def devices(published):
    return {device.name: slice_.spec.pool.name for slice_ in published for device in slice_.spec.devices}


def taints(published):
    return {
        device.name: [(taint.key, taint.effect, taint.time_added) for taint in device.taints]
        for slice_ in published
        for device in slice_.spec.devices
    }


def test_the_first_slice_is_named_for_the_node_and_goes_with_it():
    (action,) = plan.plan(make_observation(offer("gpu-a")), NOW)
    assert isinstance(action, pool_writes.Create)
    spec = action.slice.spec
    assert (spec.driver, spec.node_name, spec.node_selector) == (DRIVER, NODE, None)
    assert (spec.pool.name, spec.pool.generation, spec.pool.resource_slice_count) == (NODE, 1, 1)
    assert action.slice.metadata.owner_references == (OWNER,)
    assert slices.document(action.slice)["metadata"]["ownerReferences"][0]["controller"] is True


def test_published_devices_are_not_written_again():
    published = publish(offer("gpu-b", (LINK,)), offer("gpu-a"))
    again = make_observation(offer("gpu-a"), offer("gpu-b", (LINK,)), published=published)
    assert plan.plan(again, LATER) == ()


def test_a_taint_is_one_write_in_place_that_keeps_the_generation_and_the_time_of_others():
    published = publish(offer("gpu-a", (LINK,)))
    (action,) = plan.plan(make_observation(offer("gpu-a", (LINK, NOTE)), published=published), LATER)
    assert isinstance(action, pool_writes.Replace)
    assert action.slice.metadata.resource_version == "7"
    assert action.slice.spec.pool.generation == 1
    assert taints([action.slice]) == {
        "gpu-a": [
            (f"{DRIVER}/link-degraded", "NoSchedule", "2026-01-02T03:04:05Z"),
            (f"{DRIVER}/noted", "None", "2026-01-02T04:04:05Z"),
        ]
    }


def test_a_taint_of_another_value_is_another_taint():
    published = publish(offer("gpu-a", (LINK,)))
    worse = verdicts.Taint(key=LINK.key, value="x1", effect=LINK.effect)
    after = publish(offer("gpu-a", (worse,)), published=published, now=LATER)
    assert taints(after)["gpu-a"][0][2] == "2026-01-02T04:04:05Z"


def test_a_wipe_loses_neither_the_time_of_a_taint_nor_the_pool_of_a_device():
    before = publish(offer("gpu-a", (LINK,), pool=f"{NODE}/1"))
    after = publish(offer("gpu-a", (LINK,)), remembered=before, now=LATER)
    assert after[0].spec == before[0].spec


def test_while_the_health_of_a_device_is_not_known_its_taints_stand():
    published = publish(offer("gpu-a", (LINK,)))
    assert plan.plan(make_observation(offer("gpu-a", None), published=published), LATER) == ()
    assert taints(publish(offer("gpu-a", None)))["gpu-a"] == []
    lifted = publish(offer("gpu-a", ()), published=published)
    assert taints(lifted)["gpu-a"] == []


def test_where_taints_are_dropped_a_device_to_be_kept_from_is_not_published_at_all():
    offers = (offer("gpu-a", (LINK,)), offer("gpu-b", (NOTE,)), offer("gpu-c"))
    assert taints(publish(*offers, keeps_taints=False)) == {"gpu-b": [], "gpu-c": []}
    published = publish(offer("gpu-a"))
    (action,) = plan.plan(make_observation(offers[0], published=published, keeps_taints=False), NOW)
    assert action == pool_writes.Delete(slice=published[0])
    # It is looked after all the same, or it would never come back.
    keys = plan.keys(make_observation(*offers, keeps_taints=False))
    assert keys == {verdicts.Key(pool=NODE, device=name) for name in ("gpu-a", "gpu-b", "gpu-c")}


def test_the_last_device_takes_the_pool_with_it():
    published = publish(offer("gpu-a"))
    assert plan.plan(make_observation(published=published), NOW) == (pool_writes.Delete(slice=published[0]),)


def test_a_pool_of_another_name_is_left_alone():
    (theirs,) = publish(offer("gpu-a"))
    spec = msgspec.structs.replace(
        theirs.spec, pool=slices.Pool(name="theirs", generation=1, resource_slice_count=1)
    )
    theirs = slices.ResourceSlice(metadata=theirs.metadata, spec=spec)
    assert plan.plan(make_observation(published=(theirs,)), NOW) == ()


@pytest.mark.parametrize("name", ["a-twin", "z-twin"])
def test_a_second_slice_of_the_pool_is_removed_first_and_ours_is_kept(name):
    (ours,) = publish(offer("gpu-a"))
    twin = slices.ResourceSlice(metadata=meta.ObjectMeta(name=name), spec=ours.spec)
    actions = plan.plan(make_observation(offer("gpu-a"), offer("gpu-b"), published=(ours, twin)), NOW)
    assert actions[0] == pool_writes.Delete(slice=twin)
    assert [type(action) for action in actions[1:]] == [pool_writes.Replace]


def test_another_node_object_of_the_name_becomes_the_owner():
    published = publish(offer("gpu-a"))
    fresh = meta.OwnerReference(api_version="v1", kind="Node", name=NODE, uid="u-2", controller=True)
    (action,) = plan.plan(make_observation(offer("gpu-a"), published=published, owner=fresh), NOW)
    assert action.slice.metadata.owner_references == (fresh,)


def test_the_sixty_fifth_device_is_in_a_second_pool_and_stays_there():
    many = [offer(f"gpu-{number:03}") for number in range(65)]
    published = publish(*many)
    assert devices(published)["gpu-064"] == f"{NODE}/1"
    assert len({slice_.metadata.name for slice_ in published}) == 2
    fewer = publish(*many[1:], published=published)
    assert devices(fewer)["gpu-064"] == f"{NODE}/1"
    # One that comes takes the place that is free.
    assert devices(publish(*many[1:], offer("gpu-a"), published=fewer))["gpu-a"] == NODE


def test_a_device_is_where_its_claim_has_it_though_nothing_is_published_any_more():
    assert devices(publish(offer("gpu-a", pool=f"{NODE}/1"), offer("gpu-b"))) == {
        "gpu-a": f"{NODE}/1",
        "gpu-b": NODE,
    }


def test_a_device_that_goes_from_one_pool_leaves_it_before_it_is_in_another():
    published = publish(offer("gpu-a"), offer("gpu-b"))
    actions = plan.plan(
        make_observation(offer("gpu-a", pool=f"{NODE}/1"), offer("gpu-b"), published=published), NOW
    )
    assert [type(action) for action in actions] == [pool_writes.Replace, pool_writes.Create]
    # Also where the names of the pools are in the other order.
    offers = (offer("gpu-a", pool=f"{NODE}/1"), offer("gpu-b", pool=f"{NODE}/1"), offer("gpu-c"))
    published = publish(*offers)
    back = make_observation(offer("gpu-a", pool=NODE), *offers[1:], published=published)
    assert [action.slice.spec.pool.name for action in plan.plan(back, NOW)] == [f"{NODE}/1", NODE]


NAMES = st.sampled_from([f"gpu-{number:03}" for number in range(150)])
TAINTS = st.sampled_from([(), (LINK,), (NOTE,), (LINK, NOTE), None])
ROUNDS = st.lists(st.dictionaries(NAMES, TAINTS, max_size=130), min_size=1, max_size=4)


@settings(max_examples=40, deadline=None)
@given(ROUNDS, st.booleans())
def test_however_devices_come_and_go_every_round_settles_and_moves_no_device(rounds, wiped):
    published, now = (), NOW
    for wanted in rounds:
        offers = [offer(name, taints) for name, taints in wanted.items()]
        remembered = published
        before = devices(published)
        published = publish(*offers, published=() if wiped else published, remembered=remembered, now=now)
        now += datetime.timedelta(minutes=1)

        assert plan.plan(make_observation(*offers, published=published, remembered=remembered), now) == ()
        after = devices(published)
        assert after.keys() == wanted.keys()
        assert all(after[name] == before[name] for name in after.keys() & before.keys())
        for slice_ in published:
            assert 0 < len(slice_.spec.devices) <= pool_writes.DEVICES_MAX
            assert nodepools.is_pool(slice_.spec.pool.name, NODE)
        assert len({slice_.spec.pool.name for slice_ in published}) == len(published)


@settings(max_examples=30, deadline=None)
@given(ROUNDS)
def test_after_every_prefix_of_a_round_no_device_is_in_two_pools(rounds):
    published = ()
    for wanted in rounds:
        offers = [offer(name, taints) for name, taints in wanted.items()]
        actions = plan.plan(make_observation(*offers, published=published), NOW)
        for length in range(len(actions) + 1):
            held = [
                device.name
                for slice_ in carried_out(published, actions[:length])
                for device in slice_.spec.devices
            ]
            assert len(held) == len(set(held))
        published = carried_out(published, actions)


def test_dropped_fields_are_found():
    attribute = {"class": slices.Attribute(string="gpu")}
    memory = {"memory": slices.Capacity(value="1Gi")}
    (wanted,) = publish(offer("gpu-a", (LINK,)), offer("gpu-b"))
    full = msgspec.structs.replace(wanted.spec.devices[0], attributes=attribute, capacity=memory)
    wanted = msgspec.structs.replace(wanted, spec=msgspec.structs.replace(wanted.spec, devices=(full,)))
    bare = msgspec.structs.replace(
        wanted, spec=msgspec.structs.replace(wanted.spec, devices=(slices.Device(name="gpu-a"),))
    )
    none = msgspec.structs.replace(wanted, spec=msgspec.structs.replace(wanted.spec, devices=()))
    assert encoding.find_lost_fields(wanted.spec, wanted.spec) == frozenset()
    assert encoding.find_lost_fields(wanted.spec, bare.spec) == {"attributes", "capacity", "taints"}
    assert encoding.find_lost_fields(wanted.spec, none.spec) == {"devices"}


def test_binding_conditions_are_left_out_where_the_api_server_drops_them():
    device = slices.Device(
        name="fpga-a",
        binds_to_node=True,
        binding_conditions=(f"{DRIVER}/visible",),
        binding_failure_conditions=(f"{DRIVER}/node-failed",),
    )
    (stored,) = publish(plan.Offer(device=device))[0].spec.devices
    assert stored == device
    (stored,) = publish(plan.Offer(device=device), keeps_conditions=False)[0].spec.devices
    assert stored == slices.Device(name="fpga-a")
