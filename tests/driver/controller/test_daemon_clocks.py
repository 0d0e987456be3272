"""Machines whose clocks are ten minutes apart, in virtual time: no deadline compares two of them.

The real controller, the doubles of API server, scheduler, claim controller and node daemons, each with a clock of its
own, and the simulated fabric.
"""

import asyncio
import contextlib
import datetime
from dataclasses import dataclass

import pytest
from tests.driver.controller import test_outage as outage

from drawbar.driver.catalogue import reasons
from drawbar.driver.controller import daemon, settings
from drawbar.driver.kube import client, config, kinds
from drawbar.mocks import apiserver, claims, scheduler
from drawbar.mocks.fabric.simulation import SimulatedFabric
from drawbar.mocks.testing import virtualtime

PODS = 4
SKEW = 600.0
# The controller gives up 30 s before the scheduler does.
PATIENCE, BINDING_TIMEOUT = 570.0, 600.0


@dataclass
class Clock:
    """The time of day of a process."""

    loop: virtualtime.VirtualTimeLoop
    skew_seconds: float = 0.0

    def now(self):
        return self.loop.now() + datetime.timedelta(seconds=self.skew_seconds)


class Cluster:
    """The doubles and the controller, as a test acts on them."""

    def __init__(self, loop, api, admin, fabric, skews):
        self.loop, self.api, self.admin, self.fabric = loop, api, admin, fabric
        self.clocks = {
            name: Clock(loop, skews.get(name, 0.0)) for name in ("controller", "scheduler", "node")
        }

    async def list(self, kind):
        return (await self.api.list_all(kind, into=dict)).items

    async def until(self, kind, holds, seconds):
        """Wait until all objects of the kind together are as asked; return the virtual seconds it took."""
        began = self.loop.time()
        while not holds(await self.list(kind)):
            assert self.loop.time() < began + seconds
            await asyncio.sleep(0.5 if seconds <= 60 else 3)
        return self.loop.time() - began

    @contextlib.asynccontextmanager
    async def daemons(self):
        """Run the node daemons inside the block; they are silent otherwise."""
        async with client.connecting(self.admin) as api, asyncio.TaskGroup() as tasks:
            running = tasks.create_task(outage.Nodes(api, self.clocks["node"]).run())
            try:
                yield
            finally:
                running.cancel()

    def run_scheduler(self):
        return scheduler.serving(self.admin, clock=self.clocks["scheduler"].now)


@contextlib.asynccontextmanager
async def serving(loop, path, skews):
    """Yield a cluster with a published fabric."""
    async with (
        apiserver.serving() as server,
        SimulatedFabric.running(outage.fabric_file(path / "fabric.json", PODS)) as fabric,
        asyncio.TaskGroup() as tasks,
    ):
        server.kubeconfig(path / "admin", "admin")
        server.kubeconfig(path / "controller", "drawbar:drawbar-controller")
        admin, manager = config.from_kubeconfig(path / "admin"), outage.Manager(fabric)
        async with client.connecting(admin) as api, claims.serving(admin):
            await outage.make_cluster(api, None)
            cluster = Cluster(loop, api, admin, fabric, skews)
            options = settings.Settings(
                kubeconfig=str(path / "controller"), http=settings.Http(address="off"), leader_election=False
            )
            around = daemon.Surroundings(
                clock=loop.now,
                time_of_day=cluster.clocks["controller"].now,
                adapters=lambda _: manager.adapter(),
            )
            running = tasks.create_task(daemon.run(options, around))
            await asyncio.sleep(10)
            try:
                yield cluster
            finally:
                running.cancel()


def run(path, scene, **skews):
    with contextlib.closing(virtualtime.VirtualTimeLoop()) as loop:

        async def play():
            async with serving(loop, path, skews) as cluster:
                await scene(cluster)

        loop.run_until_complete(play())


def conditions(claim):
    """Return the True conditions of all devices of a claim, with their reasons."""
    return {
        condition["type"].rpartition("/")[2]: condition["reason"]
        for device in claim.get("status", {}).get("devices", ())
        for condition in device["conditions"]
        if condition["status"] == "True"
    }


def has_failed(listed):
    return bool(listed) and all("attach-failed" in conditions(claim) for claim in listed)


def is_deleting(listed):
    return bool(listed) and all("deletionTimestamp" in attachment["metadata"] for attachment in listed)


SKEWS = [
    pytest.param({"controller": SKEW}, id="the-controller-is-ahead"),
    pytest.param({"controller": -SKEW}, id="the-controller-is-behind"),
    pytest.param({"scheduler": SKEW, "node": -SKEW}, id="the-scheduler-is-ahead-and-the-node-behind"),
    pytest.param({"scheduler": -SKEW, "node": SKEW}, id="the-scheduler-is-behind-and-the-node-ahead"),
]


@pytest.mark.parametrize("skews", SKEWS)
def test_pods_get_their_devices_despite_skewed_clocks(tmp_path, skews):
    async def scene(cluster):
        async with cluster.daemons(), cluster.run_scheduler():
            await outage.make_pods(cluster.api, PODS)
            await cluster.until(kinds.POD, lambda pods: all(pod["spec"].get("nodeName") for pod in pods), 60)
            reported = {
                event["reason"] for event in await cluster.list(kinds.EVENT) if event["type"] == "Warning"
            }
            assert not reported & {
                reasons.ATTACH_DEADLINE_EXCEEDED,
                reasons.FABRIC_UNREACHABLE,
                reasons.NODE_NOT_RESPONDING,
            }

    run(tmp_path, scene, **skews)


@pytest.mark.parametrize("skews", SKEWS)
def test_a_silent_node_fails_its_claim_before_the_scheduler_times_out(tmp_path, skews):
    async def scene(cluster):
        async with cluster.run_scheduler():
            await outage.make_pods(cluster.api, 1)
            seconds = await cluster.until(kinds.CLAIM, has_failed, BINDING_TIMEOUT + 60)
            assert PATIENCE - 5 <= seconds <= PATIENCE + 10
            (claim,) = await cluster.list(kinds.CLAIM)
            assert conditions(claim)["attach-failed"] == reasons.NODE_NOT_RESPONDING
            # The scheduler takes the allocation back, and the silent node's device is not given out again.
            await cluster.until(kinds.CLAIM, lambda listed: not has_failed(listed), 60)
            (first, *_) = await cluster.list(kinds.ATTACHMENT)
            assert first["metadata"]["deletionTimestamp"]
            taints = [
                (taint["key"], taint.get("value"))
                for slice_ in await cluster.list(kinds.SLICE)
                for device in slice_["spec"]["devices"]
                for taint in device.get("taints", ())
            ]
            assert (f"{outage.DRIVER}/attach-failed", reasons.NODE_NOT_RESPONDING) in taints

    run(tmp_path, scene, **skews)


@pytest.mark.parametrize("skews", [SKEWS[0], SKEWS[1]])
def test_the_attach_of_a_failed_claim_that_is_not_deallocated_is_rolled_back(tmp_path, skews):
    async def scene(cluster):
        async with cluster.run_scheduler():
            await outage.make_pods(cluster.api, 1)
            await cluster.until(kinds.ATTACHMENT, bool, 30)
        # The scheduler is gone, so no process reads the failure.
        await cluster.until(kinds.CLAIM, has_failed, BINDING_TIMEOUT + 60)
        (attachment,) = await cluster.list(kinds.ATTACHMENT)
        assert "deletionTimestamp" not in attachment["metadata"]
        seconds = await cluster.until(kinds.ATTACHMENT, is_deleting, BINDING_TIMEOUT + 60)
        assert BINDING_TIMEOUT - 5 <= seconds <= BINDING_TIMEOUT + 10
        async with cluster.daemons():
            await cluster.until(kinds.ATTACHMENT, lambda listed: not listed, 60)
        assert not any(device.connection for device in (await cluster.fabric.devices()).devices)
        events = [
            event
            for event in await cluster.list(kinds.EVENT)
            if event["reason"] == reasons.ATTACH_ROLLED_BACK
        ]
        assert {event["regarding"]["kind"] for event in events} == {
            *("ResourceClaim", "Pod", "DeviceAttachment")
        }

    run(tmp_path, scene, **skews)


@pytest.mark.parametrize("step", [SKEW, -SKEW], ids=["forward", "back"])
def test_a_step_of_the_controllers_clock_moves_no_deadline(tmp_path, step):
    async def scene(cluster):
        async with cluster.run_scheduler():
            await outage.make_pods(cluster.api, 1)
            waited = await cluster.until(kinds.ATTACHMENT, bool, 60)
            cluster.clocks["controller"].skew_seconds = step
            waited += await cluster.until(kinds.CLAIM, has_failed, BINDING_TIMEOUT + 60)
            assert PATIENCE - 5 <= waited <= PATIENCE + 10
            dates = [
                condition["lastTransitionTime"]
                for attachment in await cluster.list(kinds.ATTACHMENT)
                for condition in attachment["status"]["conditions"]
            ]
            assert dates
            assert not [date for date in dates if date < "2000"], "written dates are dates of the day"

    run(tmp_path, scene)


def test_a_hanging_release_shows_in_the_pool_after_30_seconds(tmp_path):
    def is_releasing(listed):
        return any(
            (taint["key"], taint.get("value")) == (f"{outage.DRIVER}/in-use", "releasing")
            for slice_ in listed
            for device in slice_["spec"]["devices"]
            for taint in device.get("taints", ())
        )

    async def scene(cluster):
        async with cluster.daemons(), cluster.run_scheduler():
            await outage.make_pods(cluster.api, 1)
            await cluster.until(kinds.POD, lambda pods: pods[0]["spec"].get("nodeName"), 60)
        (claim,) = await cluster.list(kinds.CLAIM)
        freed = claim | {"status": {}}
        name = claim["metadata"]["name"]
        await cluster.api.replace(
            kinds.CLAIM, name, freed, namespace="default", subresource="status", into=dict
        )
        await cluster.until(kinds.ATTACHMENT, is_deleting, 60)
        seconds = await cluster.until(kinds.SLICE, is_releasing, 60)
        assert 25 <= seconds <= 35
        # And no longer once it is over.
        async with cluster.daemons():
            await cluster.until(kinds.ATTACHMENT, lambda listed: not listed, 60)
            await cluster.until(kinds.SLICE, lambda listed: not is_releasing(listed), 5)

    run(tmp_path, scene)
