"""A fabric manager whose hosts and devices keep changing costs few writes, in virtual time.

The real controller, the doubles of API server and node daemons, and the simulated fabric.
"""

import asyncio
import contextlib

from tests.driver.controller import test_daemon_clocks as clocks
from tests.driver.controller import test_outage as outage
from tests.scenes import attachments as scenes

from drawbar.driver.api import attachments
from drawbar.driver.controller import daemon, damping, fabric_status, settings
from drawbar.driver.kube import client, config, kinds
from drawbar.fabric import contract
from drawbar.mocks import apiserver
from drawbar.mocks.fabric import configuration
from drawbar.mocks.fabric.simulation import SimulatedFabric
from drawbar.mocks.testing import virtualtime

LABEL = "fabric.drawbar.dev/f"
# A label or a taint comes and goes: two writes each time.
WRITES_MAX = 2 * (damping.FREE_DROPS + 1)
FLAPS, FLAP_SECONDS = 200, 0.2
SOON_SECONDS = 1.0
FABRIC = configuration.Configuration(
    hosts=tuple(configuration.HostSpec(id=f"h-n{number}", name=f"n{number}", ports=1) for number in range(2)),
    enclosures=(
        configuration.EnclosureSpec(
            id="e",
            devices=tuple(
                configuration.DeviceSpec(id=f"d{number}", device_class=contract.DeviceClass.GPU)
                for number in range(4)
            ),
        ),
    ),
)


class Cluster(clocks.Cluster):
    """The doubles and the controller, as a test acts on them."""

    def __init__(self, loop, api, admin, fabric, manager, writes):
        super().__init__(loop, api, admin, fabric, {})
        self.manager, self._writes = manager, writes

    def count_writes(self, resource):
        name, _, subresource = resource.partition("/")
        return self._writes.count(user=outage.CONTROLLER, resource=name, subresource=subresource)

    async def is_offered(self, node):
        return LABEL in (await self.api.read(kinds.NODE, node, into=dict))["metadata"].get("labels", {})

    async def is_tainted(self):
        return any(
            device.get("taints")
            for published in await self.list(kinds.SLICE)
            for device in published["spec"].get("devices", ())
        )

    async def flap(self, change):
        for number in range(FLAPS):
            change(number % 2 == 0)
            await asyncio.sleep(FLAP_SECONDS)

    async def seconds_until(self, holds, seconds):
        began = self.loop.time()
        while not await holds():
            assert self.loop.time() < began + seconds
            await asyncio.sleep(0.05)
        return self.loop.time() - began


def run(path, scene):
    async def play(loop):
        async with (
            apiserver.serving() as server,
            SimulatedFabric.running(FABRIC) as fabric,
            asyncio.TaskGroup() as tasks,
        ):
            server.kubeconfig(path / "admin", "admin")
            server.kubeconfig(path / "controller", "drawbar:drawbar-controller")
            admin, manager = config.from_kubeconfig(path / "admin"), outage.Manager(fabric)
            async with client.connecting(admin) as api:
                await outage.make_cluster(api, None)
                spec = {"spec": {"policy": {"unreachableGraceSeconds": 1}, "nodeAnnotation": "rack/host"}}
                await api.patch(kinds.FABRIC, "f", spec, content=client.Patch.MERGE, into=dict)
                cluster = Cluster(loop, api, admin, fabric, manager, server.writes)
                options = settings.Settings(
                    kubeconfig=str(path / "controller"),
                    http=settings.Http(address="off"),
                    leader_election=False,
                )
                around = daemon.Surroundings(clock=loop.now, adapters=lambda _: manager.adapter())
                running = tasks.create_task(daemon.run(options, around))
                await asyncio.sleep(10)
                try:
                    await scene(cluster)
                finally:
                    running.cancel()

    with contextlib.closing(virtualtime.VirtualTimeLoop()) as loop:
        loop.run_until_complete(play(loop))


def test_a_host_that_flaps_costs_its_node_few_writes_and_is_offered_once_it_stays_well(tmp_path):
    async def scene(cluster):
        def port(faulty):
            cluster.fabric.console.set_port("h-n0", "1", faulty=faulty)

        before = cluster.count_writes("nodes")
        await cluster.flap(port)
        assert 0 < cluster.count_writes("nodes") - before <= WRITES_MAX
        assert not await cluster.is_offered("n0")
        await asyncio.sleep(fabric_status.SECONDS)
        assert await cluster.is_offered("n1")
        conditions = (await cluster.api.read(kinds.FABRIC, "f", into=dict))["status"]["conditions"]
        degraded = next(condition for condition in conditions if condition["type"] == "Degraded")
        assert "n0 came and went too often lately" in degraded["message"]
        for hold_down in (10.0, 20.0):
            waited = await cluster.seconds_until(lambda: cluster.is_offered("n0"), hold_down + SOON_SECONDS)
            assert waited > hold_down - fabric_status.SECONDS - SOON_SECONDS
            port(True)
            await cluster.seconds_until(lambda: is_not(cluster.is_offered("n0")), SOON_SECONDS)
            port(False)

    run(tmp_path, scene)


async def is_not(awaitable):
    return not await awaitable


def test_a_device_whose_health_flaps_costs_few_writes_and_is_free_once_it_stays_well(tmp_path):
    async def scene(cluster):
        healths = {True: contract.Health.CRITICAL, False: contract.Health.OK}
        before = cluster.count_writes("resourceslices")
        await cluster.flap(lambda sick: cluster.fabric.console.set_health("d0", healths[sick]))
        assert 0 < cluster.count_writes("resourceslices") - before <= WRITES_MAX
        assert await cluster.is_tainted()
        await cluster.seconds_until(lambda: is_not(cluster.is_tainted()), 10.0 + SOON_SECONDS)
        # What does not flap is not held back.
        cluster.fabric.console.set_health("d1", contract.Health.CRITICAL)
        await cluster.seconds_until(cluster.is_tainted, SOON_SECONDS)
        cluster.fabric.console.set_health("d1", contract.Health.OK)
        await cluster.seconds_until(lambda: is_not(cluster.is_tainted()), SOON_SECONDS)

    run(tmp_path, scene)


def test_a_manager_that_is_silent_by_turns_costs_few_writes_and_its_devices_are_free_once_it_stays(tmp_path):
    async def scene(cluster):
        before = cluster.count_writes("resourceslices")
        for number in range(40):
            if number % 2:
                cluster.manager.up.set()
            else:
                cluster.manager.up.clear()
                cluster.fabric.console.set_health("d3", contract.Health.OK)
            await asyncio.sleep(8)
        assert 0 < cluster.count_writes("resourceslices") - before <= WRITES_MAX + 2
        await cluster.seconds_until(lambda: is_not(cluster.is_tainted()), 320.0)

    run(tmp_path, scene)


def test_a_node_that_claims_another_host_by_turns_is_shown_each_time_but_less_and_less_often(
    tmp_path,
):
    async def scene(cluster):
        async def claim(host):
            body = {"metadata": {"annotations": {"rack/host": host}}}
            await cluster.api.patch(kinds.NODE, "n1", body, content=client.Patch.MERGE, into=dict)

        async def is_reported():
            conditions = (await cluster.api.read(kinds.FABRIC, "f", into=dict))["status"]["conditions"]
            mapped = next(condition for condition in conditions if condition["type"] == "HostsMapped")
            return "host h-n0 and node n1 have the annotation in common" in mapped["message"]

        changes, began = 3 * fabric_status.BURST, cluster.loop.time()
        for number in range(changes):
            await claim("" if number % 2 else "h-n0")
            holds = is_reported if number % 2 == 0 else lambda: is_not(is_reported())
            await cluster.seconds_until(holds, fabric_status.SECONDS + SOON_SECONDS)
        least = (changes - fabric_status.BURST - 1) * fabric_status.SECONDS
        assert cluster.loop.time() - began >= least

    run(tmp_path, scene)


def test_a_host_whose_only_port_this_cluster_fills_and_frees_is_offered_at_once_every_time(tmp_path):
    async def scene(cluster):
        nodes = outage.Nodes(cluster.api, cluster.loop)

        async def is_gone():
            return not await cluster.list(kinds.ATTACHMENT)

        for _ in range(3 * damping.FREE_DROPS):
            body = scenes.document("f.d0", "n0", pool="f/e", fabric="f", hostID="h-n0")
            await cluster.api.create(kinds.ATTACHMENT, body, into=dict)
            await cluster.seconds_until(lambda: is_not(cluster.is_offered("n0")), 10.0)
            await cluster.api.delete(kinds.ATTACHMENT, "f.d0")
            stored = await cluster.api.read(kinds.ATTACHMENT, "f.d0", into=attachments.DeviceAttachment)
            await nodes._say(stored, attachments.RELEASED)
            await cluster.seconds_until(is_gone, 10.0)
            await cluster.seconds_until(lambda: cluster.is_offered("n0"), SOON_SECONDS)

    run(tmp_path, scene)
