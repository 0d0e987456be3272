"""A session with a fabric manager over hours, in virtual time: lists, watches, and pauses between two tries."""

import asyncio
import contextlib
import dataclasses
import datetime
import itertools
import json
import types

import msgspec
import pytest
from tests.scenes import sessions
from tests.scenes.sessions import FABRIC

from drawbar.driver import containment
from drawbar.driver.api import fabrics, meta
from drawbar.driver.controller import fabric_reconciler, jobs, names, refusals
from drawbar.driver.controller.fabrics import connection, session
from drawbar.driver.operation import readiness
from drawbar.fabric import contract, errors
from drawbar.mocks.fabric import configuration
from drawbar.mocks.fabric.simulation import SimulatedFabric
from drawbar.mocks.testing import virtualtime


class Listener(sessions.Listener):
    """Keeps the changes of devices that it gets."""

    def __init__(self):
        self.devices = []

    def device_changed(self, fabric, old, new):
        self.devices.append((old, new))


class Way:
    """The way to one fabric, which outlives its connections; stands in for the adapter's class."""

    def __init__(self, fabric, loop, **can):
        self.fabric, self.loop, self.can = fabric, loop, can
        self.down, self.refusal = False, errors.Unavailable("no answer")
        self.connected, self.listed = [], []

    def validate(self, config):
        """Accept any configuration."""

    async def connect(self, config):
        self.connected.append(self.loop.time())
        if self.down:
            raise self.refusal
        return self

    async def capabilities(self):
        return dataclasses.replace(await self.fabric.capabilities(), **self.can)

    async def hosts(self):
        return await self.fabric.hosts()

    async def devices(self):
        self.listed.append(self.loop.time())
        return await self.fabric.devices()

    def watch(self, version):
        return self.fabric.watch(version)

    async def close(self):
        """Leave the fabric open: it outlives its connections."""


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
    """Return a function; `with_session(work, **can)` runs `work(session, way, fabric)` in virtual time."""

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
        assert gaps(way.listed) == pytest.approx([connection.LIST_EVERY_SECONDS] * (len(way.listed) - 1))
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
        assert pauses[0] < pauses[2] < pauses[4]
        assert max(pauses) <= connection.PAUSE_MAX_SECONDS
        assert min(pauses[4:]) >= connection.PAUSE_MAX_SECONDS / 2
        way.down, way.fabric = False, fabric
        await asyncio.sleep(5)
        assert opened.connection.connected, "one that comes back is found within 5 s"
        assert opened.silent_seconds == 0.0

    with_session(work)


def test_a_manager_that_refuses_the_credentials_is_not_asked_often(with_session):
    async def work(opened, way, fabric):
        way.down, way.refusal = True, errors.Unauthenticated("wrong password")
        await asyncio.sleep(1)
        fabric.console.resync()
        way.fabric = Broken(fabric)
        fabric.console.resync()
        await asyncio.sleep(3600)
        assert opened.connection.reason == "Unauthenticated"
        pauses = gaps(way.connected)
        assert max(pauses) > connection.REFUSED_PAUSE_MAX_SECONDS / 2
        assert len(way.connected) < 7200 / connection.REFUSED_PAUSE_MAX_SECONDS + 20

    with_session(work)


class Broken:
    """A fabric whose manager went away."""

    def __init__(self, fabric):
        self._fabric = fabric

    async def capabilities(self):
        return await self._fabric.capabilities()

    async def hosts(self):
        raise errors.Unavailable("no answer")

    async def devices(self):
        raise errors.Unavailable("no answer")

    def watch(self, version):
        return self._fabric.watch(version)


class Counting(fabrics.Reservation, frozen=True):
    """A reservation that keeps which devices it was asked about."""

    asked: list[str] = msgspec.field(default_factory=list)

    def holds(self, device_id, model):
        self.asked.append(device_id)
        return False


def jobs_of(done=lambda change: None, **sessions):
    """Return the queue of the jobs of these Fabrics' sessions, and its reconciler, in an empty cluster."""
    cluster = types.SimpleNamespace(
        driver="drawbar.dev",
        fabrics={},
        nodes={},
        sessions=sessions,
        refusals=refusals.Refusals(None),
        contained=containment.Uncontained(),
    )
    queue = jobs.Jobs(cluster.nodes, sessions)
    return queue, fabric_reconciler.FabricReconciler(cluster, queue, readiness.Watchdog(), done)


async def test_a_request_to_publish_does_not_look_at_every_device():
    reservation = Counting()
    spec = fabrics.FabricSpec(adapter="here", endpoint="e", policy=fabrics.Policy(immediate=reservation))
    fabric = fabrics.Fabric(metadata=meta.ObjectMeta(name="f"), spec=spec)
    opened = session.Session(fabric, Listener(), None)
    for number in range(5):
        gpu = contract.Device(id=f"d{number}", device_class=contract.DeviceClass.GPU, enclosure="e")
        opened.inventory.learn(gpu)
    queue, _ = jobs_of(f=opened)
    queue.add(jobs.Job.PUBLISH, "f", after=1.0)
    assert reservation.asked == []
    assert opened.view.reserved == 0
    assert len(reservation.asked) == 5


async def test_an_attach_waits_behind_other_devices_and_for_the_minute_of_its_namespace():
    policy = fabrics.Policy(attaches_per_namespace_per_minute=1)
    spec = fabrics.FabricSpec(adapter="here", endpoint="e", policy=policy)
    opened = session.Session(fabrics.Fabric(metadata=meta.ObjectMeta(name="f"), spec=spec), Listener(), None)
    first, second = (names.DeviceKey(fabric="f", device=device) for device in ("d0", "d1"))
    now = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
    assert opened.describe_queue(second, "ns", now) == ""
    opened.attaches.act("ns", first, now)
    assert "policy.attachesPerNamespacePerMinute of Fabric f" in opened.describe_queue(second, "ns", now)
    assert opened.describe_queue(second, "other", now) == ""
    assert opened.describe_queue(second, "ns", now + datetime.timedelta(minutes=1)) == ""
    opened.manager.queue.allow(contract.Capabilities(max_concurrent_operations=1))
    assert [opened.manager.queue.take(key, "h", "ns") for key in (first, second)] == [True, False]
    assert "busy with other devices" in opened.describe_queue(second, "other", now)


async def test_each_job_is_reported_once_it_is_done(until):
    done = []
    queue, reconciler = jobs_of(lambda change: done.append(change.job))
    for what in (
        jobs.Job.FINALIZER,
        jobs.Job.STATUS,
        jobs.Job.LABELS,
    ):
        queue.add(what, "gone")
    task = asyncio.Task(reconciler.work(), name="jobs")

    async def count():
        return len(done)

    await until(count, lambda value: value == 3)
    task.cancel()
    await asyncio.wait({task})
    assert done == [jobs.Job.FINALIZER, jobs.Job.STATUS, jobs.Job.LABELS]
