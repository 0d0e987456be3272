"""A session with a fabric manager over hours, in virtual time: lists, watches, and pauses between two tries."""

import asyncio
import contextlib
import dataclasses
import itertools
import json

import pytest

from drawbar.driver.api import fabrics, meta
from drawbar.driver.controller.fabrics import session
from drawbar.fabric import contract, errors
from drawbar.mocks.fabric import configuration
from drawbar.mocks.fabric.simulation import SimulatedFabric
from drawbar.mocks.testing import virtualtime

FABRIC = fabrics.Fabric(
    metadata=meta.ObjectMeta(name="f"), spec=fabrics.FabricSpec(adapter="here", endpoint="e")
)


class Listener:
    """Keeps what it is told of devices."""

    def __init__(self):
        self.devices = []

    def device_changed(self, fabric, old, new):
        self.devices.append((old, new))

    def hosts_changed(self, fabric):
        """Not asked for here."""

    def operation_changed(self, fabric, operation):
        """Not asked for here."""

    def turn_came(self, key):
        """Not asked for here."""

    def connection_changed(self, fabric):
        """Not asked for here."""


class Way:
    """The way to one fabric, which outlives its connections; stands in for the adapter's class."""

    def __init__(self, fabric, loop, **can):
        self.fabric, self.loop, self.can = fabric, loop, can
        self.down = False
        self.connected, self.listed = [], []

    def validate(self, config):
        """Any configuration will do."""

    async def connect(self, config):
        self.connected.append(self.loop.time())
        if self.down:
            raise errors.Unavailable("nobody answers")
        return contextlib.nullcontext(self)

    async def capabilities(self):
        return dataclasses.replace(await self.fabric.capabilities(), **self.can)

    async def hosts(self):
        return await self.fabric.hosts()

    async def devices(self):
        self.listed.append(self.loop.time())
        return await self.fabric.devices()

    def watch(self, version):
        return self.fabric.watch(version)


@pytest.fixture
def fabric_file(tmp_path):
    described = {
        "hosts": [{"id": "h"}],
        "enclosures": [{"id": "e", "devices": [{"id": "d", "class": "gpu"}]}],
    }
    (tmp_path / "fabric.json").write_text(json.dumps(described))
    return configuration.load(tmp_path / "fabric.json")


@pytest.fixture
def with_session(fabric_file):
    """`with_session(work, **can)`: runs `work(session, way, fabric)` in virtual time."""

    def run(work, **can):
        loop = virtualtime.VirtualTimeLoop()

        async def all_of_it():
            async with SimulatedFabric.running(fabric_file) as fabric:
                way = Way(fabric, loop, **can)
                opened = session.Session(FABRIC, Listener(), lambda name: way)
                task = asyncio.Task(opened.run())
                try:
                    await work(opened, way, fabric)
                finally:
                    task.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await task

        try:
            loop.run_until_complete(all_of_it())
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()

    return run


def gaps(times):
    return [later - earlier for earlier, later in itertools.pairwise(times)]


def test_a_fabric_that_cannot_be_watched_is_listed_every_ten_seconds(with_session):
    async def work(opened, way, fabric):
        await asyncio.sleep(5)
        fabric.console.set_health("d", contract.Health.CRITICAL)
        await asyncio.sleep(3600)
        assert opened.device("d").health is contract.Health.CRITICAL
        assert len(way.connected) == 1
        assert gaps(way.listed) == pytest.approx([session.LIST_EVERY_SECONDS] * (len(way.listed) - 1))
        assert len(way.listed) >= 360

    with_session(work, watch=False)


def test_a_watched_fabric_is_listed_once_and_again_when_it_asks_for_it(with_session):
    async def work(opened, way, fabric):
        await asyncio.sleep(3600)
        fabric.console.set_health("d", contract.Health.WARNING)
        await asyncio.sleep(1)
        assert opened.device("d").health is contract.Health.WARNING
        assert len(way.listed) == 1
        fabric.console.resync()
        await asyncio.sleep(1)
        assert len(way.listed) == 2
        fabric.console.set_health("d", contract.Health.OK)
        await asyncio.sleep(1)
        assert opened.device("d").health is contract.Health.OK

    with_session(work)


def test_a_manager_that_is_down_is_tried_with_pauses_that_grow_and_are_bounded(with_session):
    async def work(opened, way, fabric):
        way.down = True
        await asyncio.sleep(1)
        fabric.console.resync()
        # The connection that stands ends, as it would with its manager.
        way.fabric = Broken(fabric)
        fabric.console.resync()
        await asyncio.sleep(3600)
        assert not opened.connection.connected
        assert opened.silent_seconds > 3000
        pauses = gaps(way.connected)
        assert pauses[2] < pauses[5] < pauses[8]
        assert max(pauses) <= session.PAUSE_MAX_SECONDS + session.PAUSE_FIRST_SECONDS
        assert len(way.connected) < 3600 / session.PAUSE_MAX_SECONDS + 20
        way.down, way.fabric = False, fabric
        await asyncio.sleep(session.PAUSE_MAX_SECONDS * 2)
        assert opened.connection.connected
        assert opened.silent_seconds == 0.0

    with_session(work)


class Broken:
    """A fabric whose manager went away."""

    def __init__(self, fabric):
        self._fabric = fabric

    async def capabilities(self):
        return await self._fabric.capabilities()

    async def hosts(self):
        raise errors.Unavailable("nobody answers")

    async def devices(self):
        raise errors.Unavailable("nobody answers")

    def watch(self, version):
        return self._fabric.watch(version)
