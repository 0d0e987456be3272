"""A node daemon that is killed at any moment of an arrival or a release: the next one finishes, and nothing is lost.

A round is a coroutine. It is driven until its n-th suspension and then abandoned, as a SIGKILL would: nothing of it goes
on but what was already given to the kernel or the API server. A fresh daemon, which remembers nothing, finds the same
API server, tree and files.
"""

import asyncio
import contextlib
import datetime
import types

import pytest
from tests.scenes import attachments as scenes
from tests.scenes import nodes

from drawbar.driver import clocks
from drawbar.driver.api import attachments, meta
from drawbar.driver.kube import events, kinds
from drawbar.driver.node import kernel, treatment
from drawbar.driver.node.attachments import executor, reporting
from drawbar.driver.node.attachments.context import Context
from drawbar.driver.node.discovery import devices
from drawbar.driver.node.treatment import hooks
from drawbar.mocks import sysfs

DRIVER = nodes.DRIVER
MOST_SUSPENSIONS = 60
ROUNDS_MAX = 400


@types.coroutine
def drive_coroutine(coroutine, most):
    """Run a coroutine until it ends, or to its suspension number `most`; return whether it ended."""
    value = None
    for _ in range(most):
        try:
            awaited = coroutine.send(value)
        except StopIteration:
            return True
        value = yield awaited
    return False


class Cluster(nodes.Node):
    """An API server, a tree that reacts, and daemons that come and go."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.abandoned = []

    @contextlib.asynccontextmanager
    async def daemon(self):
        """Yield the state in memory of a daemon that has just started."""
        arrivals = devices.Devices(self.tree.root)
        await arrivals.read()
        asked = kernel.Kernel(self.tree.root)
        recorder = events.Recorder(self.api, controller=DRIVER, instance="n")
        yield Context(
            hooks=hooks.Runner(hooks.Settings(), asked),
            reporter=reporting.Reporter(
                api=self.api,
                recorder=recorder,
                boot_id="boot-1",
                learn=lambda _: None,
                tells_claims=lambda: True,
            ),
            arrivals=arrivals,
            kernel=asked,
            treatment=treatment.Executor(asked),
            boot_id="boot-1",
            since=clocks.steady(),
            patience=datetime.timedelta(seconds=60),
            clock=clocks.steady,
            time_of_day=clocks.time_of_day,
            holder=lambda _pool, _device: None,
        )

    async def attachment(self):
        return await self.api.read(kinds.ATTACHMENT, nodes.NAME, into=attachments.DeviceAttachment)

    async def round(self, context, most):
        """Run one round, cut short at a suspension; return whether it came to its end."""
        await context.arrivals.read()
        attachment = await self.attachment()
        coroutine = executor.reconcile(context, attachment)

        async def drive():
            return await drive_coroutine(coroutine, most)

        ended = await asyncio.Task(drive())
        if not ended:
            self.abandoned.append(coroutine)  # what is garbage is closed, and its clean-up would run
        return ended

    async def killed_in_each_round(self, holds, at):
        """Run three rounds with new daemons, each killed at its suspension `at`; then let one daemon live."""
        for _ in range(3):
            async with self.daemon() as context:
                await self.round(context, at)
        async with self.daemon() as context, asyncio.timeout(120):
            while not holds(await self.attachment()):
                await self.round(context, MOST_SUSPENSIONS**2)
                await asyncio.sleep(0.005)

    def finish(self):
        for coroutine in self.abandoned:
            with contextlib.suppress(RuntimeError):
                coroutine.close()


@contextlib.asynccontextmanager
async def cluster(tmp_path):
    async with nodes.cluster(tmp_path, Cluster) as node:
        yield node
        node.finish()


async def attach(cluster):
    await cluster.attach(await cluster.allocate_claim(node="n"), node="n")
    now = meta.timestamp(datetime.datetime.now(datetime.UTC))
    await cluster.controller_says(conditions=[scenes.condition("Attached", at=now)], connection={"slot": "1"})


def is_visible(attachment):
    return attachment.holds(attachments.VISIBLE)


def is_released(attachment):
    return attachment.holds(attachments.RELEASED)


async def suspensions(tmp_path, arrival, work):
    """Return how many suspensions the longest round of some work has."""
    async with cluster(tmp_path) as node:
        await set_up_work(node, arrival, work)
        most = 0
        async with node.daemon() as context:
            for _ in range(ROUNDS_MAX):
                if work(await node.attachment()):
                    return most
                await context.arrivals.read()
                counted = Counted(executor.reconcile(context, await node.attachment()))
                await counted
                most = max(most, counted.suspensions)
                await asyncio.sleep(0.005)
    raise AssertionError("it does not end")


class Counted:
    """A coroutine and how often it was suspended."""

    def __init__(self, coroutine):
        self._coroutine, self.suspensions = coroutine, 0

    def __await__(self):
        value = None
        while True:
            try:
                awaited = self._coroutine.send(value)
            except StopIteration as stop:
                return stop.value
            self.suspensions += 1
            value = yield awaited


async def set_up_work(node, arrival, work):
    await node.plug(arrival=arrival)
    await attach(node)
    if work is is_released:
        async with node.daemon() as context:
            while not is_visible(await node.attachment()):
                await node.round(context, MOST_SUSPENSIONS**2)
                await asyncio.sleep(0.005)
        await node.detach()


async def test_an_arrival_and_a_release_cost_as_many_writes_as_there_is_to_say(tmp_path):
    async with cluster(tmp_path) as node, node.daemon() as context:
        await node.plug()
        await attach(node)
        for work, expected in (
            (is_visible, ["resourceclaims/status", "deviceattachments/status"]),
            (is_released, ["deviceattachments/status"]),
        ):
            if work is is_released:
                await node.detach()
            node.server.writes.clear()
            while not work(await node.attachment()):
                await node.round(context, MOST_SUSPENSIONS**2)
                await asyncio.sleep(0.005)
            await node.round(context, MOST_SUSPENSIONS**2)
            assert [f"{write.resource}/{write.subresource}" for write in node.server.writes] == expected


@pytest.mark.parametrize(
    ("arrival", "work"),
    [
        (sysfs.Arrival.COMPLETE, is_visible),
        (sysfs.Arrival.UNPOWERED, is_visible),
        (sysfs.Arrival.COMPLETE, is_released),
    ],
    ids=["arrival", "arrival-without-power", "release"],
)
async def test_a_daemon_that_is_killed_at_any_moment_loses_nothing(tmp_path, arrival, work):
    (tmp_path / "counted").mkdir()
    most = await suspensions(tmp_path / "counted", arrival, work)
    assert 2 <= most < MOST_SUSPENSIONS
    for moment in range(1, most + 1):
        folder = tmp_path / str(moment)
        folder.mkdir()
        async with cluster(folder) as node:
            await set_up_work(node, arrival, work)
            await node.killed_in_each_round(work, moment)
            attachment = await node.attachment()
            shown = (node.tree.root / "bus/pci/devices" / node.tree.address(1)).exists()
            power = (node.tree.root / "bus/pci/slots/1/power").read_text().strip()
            assert 1 in node.tree.list_attached_cards(), "the card was lost"
            if work is is_visible:
                assert shown
                assert attachment.status.node.slot == "1"
                claim = await node.api.read(kinds.CLAIM, "c1", namespace="default", into=dict)
                (device,) = claim["status"]["devices"]
                assert [condition["type"] for condition in device["conditions"]] == [f"{DRIVER}/visible"]
            else:
                assert not shown
                assert power == "0"
                assert is_visible(attachment), "the reported conditions are kept"


async def test_a_device_that_has_just_gone_is_not_taken_for_the_one_that_was_attached(tmp_path):
    """It was given back and is attached again, and this daemon has received no event of either."""
    async with cluster(tmp_path) as node:
        await node.plug()
        async with node.daemon() as context:
            await asyncio.to_thread(node.tree.detach, 1)
            await attach(node)
            await executor.reconcile(context, await node.attachment())
            assert not is_visible(await node.attachment())
            await node.plug()
            await context.arrivals.refresh(node.tree.address(1))
            await executor.reconcile(context, await node.attachment())
            assert is_visible(await node.attachment())
