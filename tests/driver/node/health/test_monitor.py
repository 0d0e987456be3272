"""The monitor on a mocked tree: when it looks, whom it notifies, and what a read that hangs costs."""

import asyncio
import contextlib
import dataclasses
import functools
import threading

import pytest
from tests.scenes import attachments as scenes
from tests.scenes import waiting

from drawbar.driver import containment
from drawbar.driver.api import attachments, meta
from drawbar.driver.catalogue import reasons
from drawbar.driver.node.discovery import reader
from drawbar.driver.node.health import attached, monitor, readings
from drawbar.driver.node.health.policy import Policy, Rule, Rules
from drawbar.driver.node.health.verdicts import UNKNOWN, Effect, Key, Status
from drawbar.fabric.contract import DeviceClass
from drawbar.mocks import sysfs

KEY = Key(pool="fab/enc", device="disk-0")
OTHER = Key(pool="fab/enc", device="disk-1")
DISK = sysfs.MockDevice(device_class=DeviceClass.NVME, vendor=0x1B36, device=0x0010, serial="SN0001")


class MonitoredHost:
    """A host with two slots, the monitor of its cards, and what its subscriber received."""

    def __init__(self, tmp_path, read=None, *, contained=None, **changes):
        self.tree = sysfs.SysfsTree.create(tmp_path / "sys", slots=2)
        self.clock, self.notifications = waiting.Clock(), []
        soon = Rules(
            not_answering=Rule(effect=Effect.NO_SCHEDULE, hold_down_seconds=0.05),
            link_narrow=Rule(unhealthy=False, hold_down_seconds=0.05),
            driver_unbound=Rule(effect=Effect.NO_SCHEDULE, hold_down_seconds=0.05),
        )
        self.policy = Policy(**({"interval_seconds": 0.02, "recovery_seconds": 0.0, "rules": soon} | changes))
        read = read or functools.partial(readings.read, self.tree.root)
        self.monitor = monitor.Monitor(read, self.policy, clock=self.clock, contained=contained)
        self.monitor.subscribe(lambda key: self.notifications.append((key, self.monitor.verdict(key))))

    def card(self, slot=1):
        return reader.read(self.tree.root).card_of(self.tree.address(slot))

    def watch(self, key=KEY, slot=1):
        self.monitor.watch(key, lambda: self.card(slot))

    async def looked_at(self):
        return self.monitor._watched[KEY].looked_at

    async def addresses(self):
        return self.monitor._watched[KEY].addresses

    async def verdict(self, holds, key=KEY):
        async with asyncio.timeout(120):
            while not holds(self.monitor.verdict(key)):
                self.clock.now += 1.0
                await asyncio.sleep(0.01)
        return self.monitor.verdict(key)


@contextlib.asynccontextmanager
async def running(tmp_path, **changes):
    world = MonitoredHost(tmp_path, **changes)
    task = asyncio.Task(world.monitor.run())
    try:
        yield world
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def is_healthy(verdict):
    return verdict.status is Status.HEALTHY and not verdict.taints


def has(*keys):
    return lambda verdict: [taint.key for taint in verdict.taints] == list(keys)


async def test_a_device_is_unknown_until_it_is_read_and_then_each_subscriber_is_notified_once(
    tmp_path, until
):
    async with running(tmp_path) as world:
        world.tree.attach(1, DISK)
        assert world.monitor.verdict(KEY) == UNKNOWN
        world.watch()
        assert world.monitor.all() == {KEY: UNKNOWN}
        await world.verdict(is_healthy)
        looks = world.monitor._watched[KEY].looked_at
        await until(world.looked_at, lambda value: value > looks + 0.1)
        assert [key for key, _ in world.notifications] == [KEY]


async def test_errors_of_the_card_become_a_taint_and_expire(tmp_path):
    async with running(tmp_path) as world:
        world.tree.attach(1, DISK)
        world.watch()
        await world.verdict(is_healthy)
        world.tree.add_errors(1, sysfs.Severity.FATAL, {"DLP": 1}, at_port=True)
        verdict = await world.verdict(has("aer-fatal"))
        assert (verdict.status, verdict.taints[0].effect) == (Status.UNHEALTHY, Effect.NO_SCHEDULE)
        await world.verdict(is_healthy)


async def test_a_link_that_got_narrow_is_reported_when_it_lasts(tmp_path):
    async with running(tmp_path) as world:
        world.tree.attach(
            1, sysfs.MockDevice(device_class=DeviceClass.GPU, vendor=1, device=2, link_width=16)
        )
        world.watch()
        await world.verdict(is_healthy)
        world.tree.set_link(1, width=8)
        assert (await world.verdict(has("link-narrow"))).status is Status.HEALTHY
        world.tree.set_link(1)
        await world.verdict(is_healthy)


async def test_a_pulled_card_is_lost_and_its_neighbour_is_not(tmp_path):
    async with running(tmp_path) as world:
        world.tree.attach(1, DISK)
        world.tree.attach(2, DISK)
        world.watch()
        world.watch(OTHER, slot=2)
        await world.verdict(is_healthy)
        await world.verdict(is_healthy, OTHER)
        world.tree.surprise_remove(1)
        verdict = await world.verdict(has("device-lost"))
        assert verdict.taints[0].effect is Effect.NO_EXECUTE
        assert is_healthy(world.monitor.verdict(OTHER))
        world.tree.attach(1, DISK)
        await world.verdict(is_healthy)


async def test_an_event_makes_a_device_be_looked_at_before_its_time(tmp_path, until):
    async with running(tmp_path, interval_seconds=3600.0) as world:
        world.tree.attach(1, DISK)
        world.watch()
        await world.verdict(is_healthy)
        world.tree.surprise_remove(1)
        world.monitor.request_reading({"0000:7f:00.0"})
        assert not world.monitor._queue._timers[KEY].when() < asyncio.get_running_loop().time() + 60
        world.monitor.request_reading({"0000:01:00.0"})
        await world.verdict(has("device-lost"))
        world.tree.attach(1, DISK)
        world.monitor.request_reading({"0000:7f:00.0"})
        await until(world.addresses, bool)


async def test_a_device_that_is_no_longer_watched_is_unknown(tmp_path):
    async with running(tmp_path) as world:
        world.tree.attach(1, DISK)
        world.watch()
        await world.verdict(is_healthy)
        world.monitor.unwatch(KEY)
        world.monitor.unwatch(KEY)
        assert world.monitor.verdict(KEY) == UNKNOWN
        assert world.monitor.all() == {}
        assert world.notifications[-1] == (KEY, UNKNOWN)
        assert len(world.notifications) == 2


async def test_an_ended_subscription_receives_nothing(tmp_path):
    async with running(tmp_path) as world:
        notifications = []
        end = world.monitor.subscribe(notifications.append)
        end()
        end()
        world.tree.attach(1, DISK)
        world.watch()
        await world.verdict(is_healthy)
        assert notifications == []


async def test_watching_again_keeps_the_verdict(tmp_path):
    async with running(tmp_path) as world:
        world.tree.attach(1, DISK)
        world.watch()
        await world.verdict(is_healthy)
        world.watch()
        assert is_healthy(world.monitor.verdict(KEY))


async def test_there_is_a_limit_to_how_many_are_watched(tmp_path):
    world = MonitoredHost(tmp_path)
    for number in range(monitor.WATCHED_MAX + 1):
        world.watch(Key(pool="p", device=f"d{number}"))
    assert len(world.monitor.all()) == monitor.WATCHED_MAX


async def test_a_read_that_hangs_is_reported_and_stops_no_other(tmp_path):
    release, stuck = threading.Event(), "0000:01:00.0"
    started = []

    def read(card):
        if card.address == stuck:
            started.append(card.address)
            release.wait(120)
        return readings.read(tmp_path / "sys", card)

    async with running(tmp_path, read=read, read_timeout_seconds=0.1) as world:
        try:
            world.tree.attach(1, DISK)
            world.tree.attach(2, DISK)
            world.watch()
            world.watch(OTHER, slot=2)
            await world.verdict(is_healthy, OTHER)
            verdict = await world.verdict(has("not-answering"))
            assert "did not end" in verdict.message
            assert len(started) == 1
        finally:
            release.set()
        await world.verdict(is_healthy)


async def test_a_device_that_is_forgotten_while_it_is_read_is_not_judged(tmp_path, until):
    reading, release = threading.Event(), threading.Event()

    def read(card):
        reading.set()
        release.wait(120)
        return readings.read(tmp_path / "sys", card)

    async def has_begun():
        return reading.is_set()

    async def has_ended():
        return not any(thread.name.startswith("health ") for thread in threading.enumerate())

    async with running(tmp_path, read=read) as world:
        world.tree.attach(1, DISK)
        world.watch(OTHER)
        world.monitor.unwatch(OTHER)
        world.watch()
        await until(has_begun, bool)
        world.monitor.unwatch(KEY)
        release.set()
        await until(has_ended, bool)
        await asyncio.sleep(0)
        assert (world.monitor.all(), world.notifications) == ({}, [])


# The devices of attachments.


class Recorder:
    """Keeps what would be sent."""

    def __init__(self):
        self.events = []

    def record_normal(self, claim, *, reason, message):
        self.events.append((claim.name, "Normal", reason, message))

    def record_warning(self, claim, *, reason, message):
        self.events.append((claim.name, "Warning", reason, message))

    def attachment_normal(self, _, *, reason, message):
        assert self.events[-1][1:] == ("Normal", reason, message)

    def attachment_warning(self, _, *, reason, message):
        assert self.events[-1][1:] == ("Warning", reason, message)


def attachment(*, visible=True, uid="u1", deleting=False):
    claim = attachments.ClaimReference(namespace="default", name="c1", uid="cu")
    condition = meta.Condition(type=attachments.VISIBLE, status="True" if visible else "False")
    spec = {"device": "disk-0", "pool": KEY.pool, "claim": claim} | {
        "serial": "SN0001",
        "device_class": "nvme",
    }
    return scenes.attachment(condition, uid=uid, deleting=deleting, **spec)


def attached_devices(world, acting=lambda: True):
    recorder = Recorder()
    return recorder, attached.AttachedDevices(
        world.monitor,
        recorder,
        lambda attachment: world.card() if attachment.spec.identity.serial else None,
        acting,
    )


def test_a_device_is_watched_from_visible_until_released(tmp_path):
    world = MonitoredHost(tmp_path)
    _, devices = attached_devices(world)
    waiting, seen = attachment(visible=False), attachment()
    devices.note_change(None, waiting)
    assert world.monitor.all() == {}
    devices.note_change(waiting, seen)
    assert KEY in world.monitor.all()
    devices.note_change(seen, waiting)
    assert KEY in world.monitor.all(), "one that vanished is not forgotten"
    devices.note_change(waiting, attachment(visible=False, deleting=True))
    assert world.monitor.all() == {}
    devices.note_change(attachment(visible=False, deleting=True), None)
    devices.note_change(None, seen)
    devices.note_change(seen, None)
    assert world.monitor.all() == {}


def test_another_attachment_of_the_same_name_is_watched_afresh(tmp_path):
    world = MonitoredHost(tmp_path)
    _, devices = attached_devices(world)
    devices.note_change(None, attachment())
    before = world.monitor._watched[KEY]
    devices.note_change(attachment(), attachment(uid="u2"))
    assert world.monitor._watched[KEY] is not before


async def test_a_change_of_health_is_an_event_on_the_claim_once(tmp_path):
    async with running(tmp_path) as world:
        recorder, devices = attached_devices(world)
        world.tree.attach(1, DISK)
        devices.note_change(None, attachment())
        await world.verdict(is_healthy)
        assert recorder.events == []
        world.tree.surprise_remove(1)
        await world.verdict(has("device-lost"))
        world.tree.attach(1, DISK)
        await world.verdict(is_healthy)
        (claim, kind, reason, message), last = recorder.events
        assert (claim, kind, reason) == ("c1", "Warning", reasons.DEVICE_UNHEALTHY)
        assert "disappeared" in message
        assert last[1:3] == ("Normal", reasons.DEVICE_HEALTHY)
        world.tree.surprise_remove(1)
        await world.verdict(has("device-lost"))
        devices.note_change(attachment(), None)
        assert len(recorder.events) == 3


async def test_of_two_instances_the_one_that_acts_sends_the_events(tmp_path):
    async with running(tmp_path) as world:
        acting = False
        recorder, devices = attached_devices(world, lambda: acting)
        world.tree.attach(1, DISK)
        devices.note_change(None, attachment())
        await world.verdict(is_healthy)
        world.tree.surprise_remove(1)
        await world.verdict(has("device-lost"))
        assert recorder.events == []
        acting = True
        world.tree.attach(1, DISK)
        await world.verdict(is_healthy)
        assert [event[1:3] for event in recorder.events] == [("Normal", reasons.DEVICE_HEALTHY)]


@pytest.mark.defects
async def test_a_read_that_raises_costs_its_device_alone_and_is_made_again(tmp_path):
    contained, broken = containment.Containment(), True
    root = tmp_path / "sys"

    def read(card):
        if broken and card.first.serial == DISK.serial:
            raise ZeroDivisionError
        return readings.read(root, card)

    async with running(tmp_path, read=read, contained=contained) as world:
        other = dataclasses.replace(DISK, serial="SN0002")
        for slot, key, disk in ((1, KEY, DISK), (2, OTHER, other)):
            await asyncio.to_thread(world.tree.attach, slot, disk)
            world.watch(key, slot)
        await world.verdict(is_healthy, OTHER)
        await waiting.eventually(lambda: contained.counts()["health-devices"] > 1)
        assert world.monitor.verdict(KEY) == UNKNOWN
        broken = False
        await world.verdict(is_healthy)
        await waiting.eventually(lambda: contained.count_failing()["health-devices"] == 0)


@pytest.mark.defects
async def test_a_subscriber_that_raises_keeps_no_verdict_from_the_others(tmp_path):
    contained, broken, late = containment.Containment(), True, []

    def subscriber(key):
        if broken:
            raise KeyError
        late.append(key)

    async with running(tmp_path, contained=contained) as world:
        world.monitor._subscribers.insert(0, subscriber)
        await asyncio.to_thread(world.tree.attach, 1, DISK)
        world.watch()
        await world.verdict(is_healthy)
        await waiting.eventually(lambda: world.notifications)
        broken = False
        await waiting.eventually(lambda: late == [KEY])
