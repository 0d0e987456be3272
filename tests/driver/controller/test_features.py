"""An API server whose feature gates change while the controller runs."""

import asyncio
import contextlib
import datetime

import pytest
from tests.scenes import clusters

from drawbar.driver.controller import daemon, settings
from drawbar.driver.kube import client, config, kinds
from drawbar.fabric.contract import DeviceClass
from drawbar.fabric.grpc import server as fabric_server
from drawbar.mocks import apiserver
from drawbar.mocks.cluster import deployment
from drawbar.mocks.fabric import configuration
from drawbar.mocks.fabric.simulation import SimulatedFabric

GATES = {"DRADeviceBindingConditions": True, "DRADeviceTaints": True}
DISK = configuration.DeviceSpec(id="disk-0", device_class=DeviceClass.NVME, serial="SN0")
DESCRIBED = configuration.Configuration(
    hosts=(configuration.HostSpec(id="h", name="node-1"),),
    enclosures=(configuration.EnclosureSpec(id="enc", devices=(DISK,)),),
)


class RestartedCluster(clusters.Cluster):
    """An API server that is restarted with other gates; its objects stay."""

    def __init__(self, path, until):
        super().__init__(None)
        self.path, self._until = path, until
        self.ahead = datetime.timedelta()

    def now(self):
        return datetime.datetime.now(datetime.UTC) + self.ahead

    @contextlib.asynccontextmanager
    async def connecting(self, server):
        """Connect until the block ends: a restart breaks each connection."""
        admin = config.from_kubeconfig(server.kubeconfig(self.path / "admin", "admin"))
        async with client.connecting(admin) as self.api:
            yield

    def start_controller(self):
        options = settings.Settings(
            kubeconfig=str(self.path / "controller"),
            leader_election=False,
            http=settings.Http(address="off"),
        )
        return asyncio.Task(daemon.run(options, daemon.Surroundings(clock=self.now)))

    async def prepare(self):
        await deployment.apply(self.api)
        await self.node("node-1")
        spec = {"adapter": "grpc", "endpoint": f"unix:{self.path / 'f.sock'}"}
        await self.create(kinds.FABRIC, "fab", spec=spec)

    async def time_passes(self):
        """Set the clock an hour ahead, and change the Fabric: with any change, everything is looked at."""
        self.ahead += datetime.timedelta(hours=1)
        await self.patch(kinds.FABRIC, "fab", {"spec": {"timeoutSeconds": 31}})

    async def wait_for(self, status, slices):
        """Wait until the Fabric has this status of `FeaturesDropped`, and so many slices are published."""

        async def read():
            fabric = await self.api.read(kinds.FABRIC, "fab", into=dict)
            conditions = fabric.get("status", {}).get("conditions", ())
            dropped = {condition["type"]: condition["status"] for condition in conditions}
            return dropped.get("FeaturesDropped", ""), len(await self.list(kinds.SLICE))

        await self._until(read, lambda value: value == (status, slices))


@pytest.mark.parametrize(
    ("gates", "before", "after"),
    [
        pytest.param(({}, GATES), ("True", 0), ("False", 1), id="on"),
        pytest.param((GATES, {}), ("False", 1), ("True", 0), id="off"),
    ],
)
async def test_gates_that_are_turned_on_or_off_are_noticed_and_the_pool_follows(
    tmp_path, until, gates, before, after
):
    world = RestartedCluster(tmp_path, until)
    async with (
        apiserver.serving(profile="1.34", gates=gates[0]) as server,
        SimulatedFabric.running(DESCRIBED) as fabric,
        fabric_server.serving(fabric, f"unix:{tmp_path / 'f.sock'}", name="sim", version="1"),
    ):
        server.kubeconfig(tmp_path / "controller", "drawbar:drawbar-controller")
        async with world.connecting(server):
            await world.prepare()
            controller = world.start_controller()
            await world.wait_for(*before)
        await server.restart(gates=gates[1])
        async with world.connecting(server):
            await world.time_passes()
            await world.wait_for(*after)
            controller.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await controller
