"""The writes between the slices that are published and those that should be, whoever publishes them."""

import msgspec
import pytest

from drawbar.driver.api import meta, slices
from drawbar.driver.slices import encoding, pool_writes

TAINT = slices.Taint(key="drawbar.dev/maintenance", effect="NoSchedule", time_added="2026-01-01T00:00:00Z")
OWNER = meta.OwnerReference(api_version="v1", kind="Node", name="n", uid="u-1", controller=True)


def pool(name, *devices, taints=None, **changes):
    content = encoding.Content(
        devices=tuple(slices.Device(name=device) for device in devices),
        taints=None
        if taints is None
        else tuple(slices.SliceTaint(device=device, taint=TAINT) for device in taints),
    )
    return pool_writes.Pool(
        name=name, slice_name=f"slice-{name}", driver="drawbar.dev", content=content, **changes
    )


def carry_out(published, actions):
    """Yield the slices by name after each of the writes."""
    state = {resource_slice.metadata.name: resource_slice for resource_slice in published}
    for number, action in enumerate(actions):
        fresh = action.slice
        if isinstance(action, pool_writes.Delete):
            del state[fresh.metadata.name]
        else:
            metadata = msgspec.structs.replace(fresh.metadata, uid="u", resource_version=str(number))
            state[fresh.metadata.name] = slices.ResourceSlice(metadata=metadata, spec=fresh.spec)
        yield dict(state)


def publish_pools(*pools):
    *_, state = carry_out((), pool_writes.writes(pools, ()))
    return tuple(state.values())


def summarise_actions(actions):
    return [(type(action).__name__, action.slice.metadata.name) for action in actions]


def test_a_new_pool_is_complete_with_its_last_write():
    states = list(carry_out((), pool_writes.writes([pool("p", "a", taints=())], ())))
    assert [len(state) for state in states] == [1, 2]
    assert {resource_slice.spec.pool.resource_slice_count for resource_slice in states[-1].values()} == {2}
    assert {resource_slice.spec.pool.generation for resource_slice in states[-1].values()} == {1}


def test_published_pools_are_not_written_again():
    pools = [pool("p", "a", taints=["a"]), pool("q", "b", owners=(OWNER,))]
    assert pool_writes.writes(pools, publish_pools(*pools)) == ()


@pytest.mark.parametrize(
    ("before", "after", "writes", "generation"),
    [
        pytest.param(pool("p", "a"), pool("p", "a", "b"), 1, 1, id="one slice in place"),
        pytest.param(
            pool("p", "a", taints=()), pool("p", "a", taints=["a"]), 1, 1, id="the taints alone, in place"
        ),
        pytest.param(
            pool("p", "a", taints=()), pool("p", "a", "b", taints=["a"]), 2, 2, id="devices and taints"
        ),
        pytest.param(pool("p", "a"), pool("p", "a", taints=[]), 2, 2, id="a slice more"),
        pytest.param(pool("p", "a", taints=[]), pool("p", "a"), 2, 1, id="a slice less"),
    ],
)
def test_the_generation_is_new_only_where_more_than_one_slice_changes(before, after, writes, generation):
    stored = publish_pools(before)
    actions = pool_writes.writes([after], stored)
    *_, state = carry_out(stored, actions)
    assert len(actions) == writes
    assert {resource_slice.spec.pool.generation for resource_slice in state.values()} == {generation}
    assert {resource_slice.spec.pool.resource_slice_count for resource_slice in state.values()} == {
        len(state)
    }
    assert pool_writes.writes([after], tuple(state.values())) == ()


def test_a_device_leaves_its_pool_before_it_is_in_another():
    stored = publish_pools(pool("a", "y"), pool("b", "x", "z"), pool("c", "v"))
    actions = pool_writes.writes([pool("a", "y", "x", "v"), pool("b", "z")], stored)
    assert summarise_actions(actions)[0] == ("Delete", "slice-c")
    for state in carry_out(stored, actions):
        names = [device.name for resource_slice in state.values() for device in resource_slice.spec.devices]
        assert len(names) == len(set(names))


def test_owners_are_written_only_where_they_are_specified():
    stored = publish_pools(pool("p", "a", owners=(OWNER,)))
    assert pool_writes.writes([pool("p", "a")], stored) == ()
    other = msgspec.structs.replace(OWNER, uid="u-2")
    (action,) = pool_writes.writes([pool("p", "a", owners=(other,))], stored)
    assert summarise_actions([action]) == [("Replace", "slice-p")]
    assert action.slice.metadata.owner_references == (other,)
    assert action.slice.metadata.resource_version == "0", "only if it is still what was seen"


def test_devices_without_a_pool_fill_the_first_with_room():
    first = {f"d{number:03}": "p" for number in range(70)} | {"e": "q"}
    homes = pool_writes.assign_pools({"d000": "elsewhere"}, first, {"p": 2, "p/1": 62})
    assert homes["d000"] == "elsewhere"
    counts = {pool: sum(home == pool for home in homes.values()) for pool in set(homes.values())}
    assert counts == {"elsewhere": 1, "p": 62, "p/1": 2, "p/2": 5, "q": 1}
