"""A defect that one device, claim or Fabric meets costs the others nothing, is reported on the object, and is tried again."""

import asyncio
import dataclasses
import types

import pytest
from tests.scenes import sessions as scenes
from tests.scenes import waiting

from drawbar.driver import containment
from drawbar.driver.api import fabrics, meta
from drawbar.driver.controller import daemon, fabric_reconciler, hosts, jobs, node_labels, refusals
from drawbar.driver.controller.fabrics import session
from drawbar.driver.kube import workers
from drawbar.driver.operation import readiness
from drawbar.fabric import contract, registry, wrapping
from drawbar.mocks.testing import virtualtime

pytestmark = pytest.mark.defects


def adapter_over(fabric, broken):
    """Return an adapter's class over a simulated fabric; calls in `broken` answer against the contract."""

    class Adapter(wrapping.WrappingAdapter):
        @classmethod
        def validate(cls, config):
            """Accept any configuration."""

        @classmethod
        async def connect(cls, config):
            return cls(fabric)

        async def attach(self, request):
            if request.device_id in broken:
                return contract.Operation(
                    id="o",
                    request_id=request.request_id,
                    kind=contract.OperationKind.ATTACH,
                    done=False,
                    retry_after_seconds="soon",
                )
            return await super().attach(request)

        async def devices(self):
            inventory = await super().devices()
            if "devices" in broken:
                nameless = tuple(dataclasses.replace(device, id=None) for device in inventory.devices)
                return dataclasses.replace(inventory, devices=nameless)
            return inventory

        async def close(self):
            """Leave the fabric open: it outlives its callers."""

    return Adapter


async def instruments(cluster, adapter):
    """Start a controller that finds this adapter as `acme`; return its instruments."""
    around = daemon.Surroundings(
        adapters=lambda name: adapter if name == "acme" else registry.adapter_class(name)
    )
    controller = await cluster.controller(around=around)
    return controller._measured


async def wait_for_error(cluster, kind, name):
    """Wait for the Event about an unexpected error; return its note."""

    async def notes():
        return [note for _, reason, note in await cluster.events(kind, name) if reason == "UnexpectedError"]

    (note,) = await waiting.until(notes, bool)
    return note


async def test_a_defect_over_one_device_leaves_the_others_attached_and_is_tried_until_it_is_gone(
    controller_world, monkeypatch
):
    monkeypatch.setattr(workers, "PAUSE_MAX_SECONDS", 0.5)
    async with controller_world() as cluster:
        broken = {"gpu-0"}
        measured = await instruments(cluster, adapter_over(cluster.fabric, broken))
        await cluster.make_fabric(adapter="acme", endpoint="here")
        await cluster.wait_for_slices()
        await cluster.allocate("gpu-0")
        note = await wait_for_error(cluster, "DeviceAttachment", "fab.gpu-0")
        assert "TypeError" in note
        assert "Traceback" not in note
        assert await wait_for_error(cluster, "ResourceClaim", "c1") == note
        await cluster.allocate("disk-0", name="c2")
        await cluster.wait_until_attached("disk-0", "c2")
        counts = measured.contained.counts
        before = counts()["devices"]
        await waiting.eventually(lambda: counts()["devices"] > before)
        assert measured.contained.count_failing()["devices"] == 1.0
        # One device's defect keeps no update of the controller from going on.
        assert measured.readiness.find_missing() == {}
        broken.clear()
        await cluster.wait_until_attached("gpu-0")
        await waiting.eventually(lambda: not measured.contained.count_failing()["devices"])


async def test_a_fabric_whose_session_meets_a_defect_has_it_in_a_condition_and_the_other_goes_on(
    controller_world,
):
    async with controller_world() as cluster:
        broken = {"devices"}
        measured = await instruments(cluster, adapter_over(cluster.fabric, broken))
        await cluster.make_fabric("bad", adapter="acme", endpoint="here")
        condition = await cluster.condition("Connected", "bad", status="False", reason="UnexpectedError")
        assert "Traceback" not in condition["message"]
        assert await wait_for_error(cluster, "Fabric", "bad") == condition["message"]
        await cluster.make_fabric()
        await cluster.wait_for_slices()
        await cluster.allocate("gpu-0")
        await cluster.wait_until_attached("gpu-0")
        assert measured.contained.count_failing()["fabric"] == 1.0
        broken.clear()
        await cluster.condition("Connected", "bad", status="True")


class Listener(scenes.Listener):
    """Raises for one device while `broken`; keeps the changes of the others, and in which state they were reported."""

    def __init__(self):
        self.broken, self.devices = {"d1"}, []

    def device_changed(self, fabric, old, new):
        if (new or old).id in self.broken:
            raise ZeroDivisionError
        self.devices.append((old and old.model, (new or old).id, new and new.model))


def device(name, model=""):
    return contract.Device(id=name, device_class=contract.DeviceClass.GPU, model=model, enclosure="e")


def test_a_change_that_the_listener_fails_over_is_reported_again_and_the_session_goes_on():
    async def steps():
        contained, listener, manager = containment.Containment(), Listener(), scenes.Manager()
        manager.devices_now = (device("d1"), device("d2"))
        opened = session.Session(
            scenes.FABRIC, listener, lambda name: manager, contained=contained, report=lambda failure: None
        )
        task = asyncio.Task(opened.run())
        await asyncio.sleep(1)
        assert opened.connection.connected
        assert listener.devices == [(None, "d2", "")]
        manager.events.put_nowait(contract.DeviceChanged(version="2", device=device("d1", "m")))
        await asyncio.sleep(5)
        listener.broken.clear()
        await asyncio.sleep(containment.PAUSE_MAX_SECONDS)
        assert listener.devices == [(None, "d2", ""), (None, "d1", "m")]
        assert opened.connection.connected
        assert len(manager.listed) == 1
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
        assert not any(contained.count_failing().values())

    virtualtime.in_virtual_time(steps)()


def test_a_failing_event_makes_the_session_list_the_fabric_again():
    async def steps():
        contained, manager = containment.Containment(), scenes.Manager()
        manager.devices_now = (device("d1"),)
        opened = session.Session(scenes.FABRIC, scenes.Listener(), lambda name: manager, contained=contained)
        task = asyncio.Task(opened.run())
        await asyncio.sleep(1)
        manager.events.put_nowait(contract.DeviceChanged(version="2", device=device(None)))
        await asyncio.sleep(5)
        assert opened.connection.reason == "Connected"
        assert len(manager.listed) == 2
        assert contained.counts()["fabric-events"] == 1.0
        task.cancel()
        await asyncio.wait({task})

    virtualtime.in_virtual_time(steps)()


def test_a_session_whose_adapter_cancels_its_task_connects_again():
    """Task groups within an adapter cancel the session's task when one of their own tasks fails."""

    class Cancelling(scenes.Manager):
        connections = 0

        async def connect(self, config):
            self.connections += 1
            if self.connections == 1:
                task = asyncio.current_task()
                asyncio.get_running_loop().call_later(2, task.cancel)
            return self

    async def steps():
        contained, manager = containment.Containment(), Cancelling()
        opened = session.Session(scenes.FABRIC, scenes.Listener(), lambda name: manager, contained=contained)
        task = asyncio.Task(opened.run())
        await asyncio.sleep(1)
        assert opened.connection.connected
        await asyncio.sleep(9)
        assert (manager.connections, opened.connection.connected) == (2, True)
        assert contained.counts()["fabric"] == 1.0
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()

    virtualtime.in_virtual_time(steps)()


class View:
    """A Fabric's session as the labels see it; one that is broken has no hosts."""

    def __init__(self, name, *, broken=False):
        self.name, self.broken, self.reports, self.has_listing = name, broken, [], False
        self.spec = fabrics.FabricSpec(adapter="a", endpoint="e")

    @property
    def nodes(self):
        if self.broken:
            raise KeyError(self.name)
        return hosts.NodeMap()

    def report(self, subject, trouble=""):
        self.reports.append(subject)


class Views(dict):
    """The sessions by name; an iteration gives the sessions."""

    def __iter__(self):
        return iter(self.values())


def test_a_fabric_whose_labels_cannot_be_judged_leaves_the_labels_of_the_others_alone():
    async def steps():
        bad, good, events, done = View("bad", broken=True), View("good"), [], []
        fabric = fabrics.Fabric(metadata=meta.ObjectMeta(name="bad"), spec=bad.spec)
        cluster = types.SimpleNamespace(
            driver="drawbar.dev",
            fabrics=Views(bad=fabric),
            nodes={},
            sessions=Views(bad=bad, good=good),
            placed=types.SimpleNamespace(in_fabric=lambda name: ()),
            refusals=refusals.Refusals(lambda name: None),
            recorder=types.SimpleNamespace(
                record_unexpected=lambda kind, metadata, failure: events.append((kind.kind, metadata.name))
            ),
            contained=containment.Containment(),
        )
        queue = jobs.Jobs(cluster.nodes, cluster.sessions)
        reconciler = fabric_reconciler.FabricReconciler(
            cluster, queue, readiness.Watchdog(), lambda change: done.append(change.job)
        )
        queue.add(jobs.Job.LABELS)
        task = asyncio.Task(reconciler.work())
        await asyncio.sleep(1)
        assert (good.reports, bad.reports) == (["node labels", "its name"], [])
        assert done == [jobs.Job.LABELS]
        assert events == [("Fabric", "bad")]
        bad.broken = False
        await asyncio.sleep(node_labels.FAILED_SECONDS)
        assert bad.reports == ["node labels", "its name"]
        task.cancel()
        await asyncio.wait({task})

    virtualtime.in_virtual_time(steps)()
