"""Which ResourceSlices the kubelet deletes, and when."""

from contextlib import AsyncExitStack

from drawbar.driver.kube import kinds
from drawbar.mocks.kube import errors as kube_errors
from drawbar.mocks.kubelet import slices


async def publish(world, name, *, driver="drawbar.dev", **where):
    spec = {
        "driver": driver,
        "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "slot-1"}],
    }
    await world.create(kinds.SLICE, name, spec=spec | where)


async def names(world):
    return sorted(listed["metadata"]["name"] for listed in await world.list(kinds.SLICE))


async def until_only(world, *expected):
    def holds(items):
        return sorted(listed["metadata"]["name"] for listed in items) == sorted(expected)

    await world.until(kinds.SLICE, holds)


FABRIC = {
    "nodeSelector": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "rack", "operator": "In", "values": ["1"]}]}]
    }
}


async def test_a_kubelet_that_starts_wipes_all_slices_of_its_node_and_no_others(world):
    await publish(world, "own", nodeName="node-a")
    await publish(world, "own-of-another-driver", driver="other.dev", nodeName="node-a")
    await publish(world, "of-another-node", nodeName="node-b")
    await publish(world, "of-the-fabric", **FABRIC)
    await publish(world, "of-all-nodes", allNodes=True)
    async with world.kubelet():
        assert await names(world) == ["of-all-nodes", "of-another-node", "of-the-fabric"]


async def test_a_restart_wipes_again_although_the_plugin_lives(world):
    async with world.kubelets() as kubelets, world.plugin() as plugin:
        await plugin.wait_for_registration()
        await publish(world, "own", nodeName="node-a")
        await publish(world, "of-the-fabric", **FABRIC)
        await kubelets.restart("node-a")
        assert await names(world) == ["of-the-fabric"]


async def test_slices_of_a_driver_go_when_its_last_plugin_was_away_for_long(world):
    async with world.kubelet(wiping_seconds=0.1) as node, world.plugin() as plugin:
        await plugin.wait_for_registration()
        await world.wait_until_connected(node, plugin.endpoint)
        await publish(world, "own", nodeName="node-a")
        await publish(world, "own-of-another-driver", driver="other.dev", nodeName="node-a")
        await publish(world, "of-another-node", nodeName="node-b")
        await publish(world, "of-the-fabric", **FABRIC)
        plugin.registration.unlink()
        await until_only(world, "of-another-node", "of-the-fabric", "own-of-another-driver")


async def test_slices_go_too_when_only_the_connection_is_lost(world):
    async with world.kubelet(wiping_seconds=0.1) as node, world.plugin() as plugin:
        await plugin.wait_for_registration()
        await world.wait_until_connected(node, plugin.endpoint)
        await publish(world, "own", nodeName="node-a")
        await plugin.service.stop(None)
        await until_only(world)
        assert node.plugins.drivers() == [world.DRIVER]


async def test_a_plugin_that_comes_back_in_time_keeps_its_slices(world):
    async with world.kubelet(wiping_seconds=2) as node:
        async with world.plugin() as plugin:
            await plugin.wait_for_registration()
            await world.wait_until_connected(node, plugin.endpoint)
            await publish(world, "own", nodeName="node-a")
        await world.wait_until_connected(node)
        async with world.plugin() as again:
            await world.wait_until_connected(node, again.endpoint)
            # The wipe of a driver that never comes back begins after the one that must not happen.
            async with world.plugin(name="x", driver="other.dev") as other:
                await other.wait_for_registration()
                await publish(world, "marker", driver="other.dev", nodeName="node-a")
            await until_only(world, "own")


async def test_a_rolling_update_keeps_the_slices(world):
    async with world.kubelet(wiping_seconds=0.3) as node, AsyncExitStack() as stack:
        async with world.plugin(name="uid-1") as old:
            await old.wait_for_registration()
            await world.wait_until_connected(node, old.endpoint)
            await publish(world, "own", nodeName="node-a")
            new = await stack.enter_async_context(world.plugin(name="uid-2"))
            await new.wait_for_registration()
            await world.wait_until_connected(node, old.endpoint, new.endpoint)
        await world.wait_until_connected(node, new.endpoint)
        await world.pod("p1", "c1")
        await world.runs()
        # The wipe of a driver that never comes back begins after the one that must not happen.
        async with world.plugin(name="x", driver="other.dev") as other:
            await other.wait_for_registration()
            await publish(world, "marker", driver="other.dev", nodeName="node-a")
        await until_only(world, "own")
    assert (old.calls, new.prepares) == ([], [["c1"]])


async def test_a_wipe_that_fails_is_tried_again(world):
    await publish(world, "own", nodeName="node-a")

    class Refusing:
        """The API with two refusals first."""

        refusals = 2

        async def request(self, *arguments):
            if self.refusals:
                self.refusals -= 1
                raise kube_errors.Unreachable("not now")
            await world.api.request(*arguments)

    times = world.times(wipe_retry_first_seconds=0.01)
    async with slices.wiping(Refusing(), "node-a", times) as wiper:
        await wiper.wipe()
    assert await names(world) == []
