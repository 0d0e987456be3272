"""Events that a session gets while it lists its fabric: the listing may be older, and must not undo it."""

import asyncio
import contextlib
import dataclasses
import inspect

import pytest
from tests.scenes import sessions

from drawbar.driver.controller.fabrics import news
from drawbar.fabric import contract
from drawbar.mocks.testing import virtualtime

OLD = contract.Device(id="d", device_class=contract.DeviceClass.GPU, health=contract.Health.OK)
NEW = dataclasses.replace(OLD, health=contract.Health.CRITICAL)
OTHER = dataclasses.replace(OLD, id="other")
OLD_HOST = contract.Host(id="h", name="old")
NEW_HOST = contract.Host(id="h", name="new")


class Manager(sessions.Manager):
    """A manager whose listings can be held up.

    Attributes:
        may_end: listings end while it is set.
    """

    def __init__(self):
        super().__init__()
        self.devices_now, self.hosts_now = (OLD,), (OLD_HOST,)
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.listing = self.most_at_once = 0
        self.watched_from = []

    async def devices(self):
        self.listing += 1
        self.most_at_once = max(self.most_at_once, self.listing)
        return await super().devices()

    async def hosts(self):
        hosts = self.hosts_now
        try:
            await self.may_end.wait()
        finally:
            self.listing -= 1
        return hosts

    def watch(self, version):
        self.watched_from.append(version)
        return super().watch(version)


@contextlib.asynccontextmanager
async def connecting(manager):
    """Yield the session with the manager, once it watches."""
    async with sessions.running(manager) as opened:
        assert manager.watched_from == ["1"]
        yield opened


@contextlib.asynccontextmanager
async def reading(manager, opened):
    """Keep a listing of the session under way inside the block."""
    manager.may_end.clear()
    task = asyncio.Task(opened.read())
    await asyncio.sleep(1)
    assert manager.listing == 1
    yield
    await asyncio.sleep(1)
    manager.may_end.set()
    await task


@virtualtime.in_virtual_time
async def test_a_device_event_during_a_listing_survives_it():
    manager = Manager()
    async with connecting(manager) as opened:
        async with reading(manager, opened):
            manager.events.put_nowait(contract.DeviceChanged(version="9", device=NEW))
            manager.events.put_nowait(contract.DeviceChanged(version="9", device=OTHER))
        assert opened.devices == (NEW, OTHER)


@virtualtime.in_virtual_time
async def test_a_device_that_the_watch_told_of_as_gone_does_not_come_back_with_the_listing():
    manager = Manager()
    async with connecting(manager) as opened:
        async with reading(manager, opened):
            manager.events.put_nowait(contract.DeviceGone(version="9", device_id="d"))
        assert opened.devices == ()


@virtualtime.in_virtual_time
async def test_a_host_event_during_a_listing_survives_it():
    manager = Manager()
    async with connecting(manager) as opened:
        async with reading(manager, opened):
            manager.events.put_nowait(contract.HostChanged(version="9", host=NEW_HOST))
        assert opened.hosts == (NEW_HOST,)


@virtualtime.in_virtual_time
async def test_an_operations_answer_during_a_listing_stands_after_it():
    manager = Manager()
    async with connecting(manager) as opened:
        async with reading(manager, opened):
            opened.inventory.learn(NEW)
        assert opened.devices == (NEW,)


@virtualtime.in_virtual_time
async def test_an_event_during_one_listing_does_not_override_the_next():
    manager = Manager()
    async with connecting(manager) as opened:
        async with reading(manager, opened):
            opened.inventory.learn(NEW)
        manager.hosts_now = (NEW_HOST,)
        await opened.read()
        assert opened.devices == (OLD,)
        assert opened.hosts == (NEW_HOST,)


@virtualtime.in_virtual_time
async def test_an_event_before_a_listing_does_not_override_it():
    manager = Manager()
    async with connecting(manager) as opened:
        opened.inventory.learn(NEW)
        manager.events.put_nowait(contract.DeviceChanged(version="9", device=OTHER))
        await asyncio.sleep(1)
        await opened.read()
        assert opened.devices == (OLD, OTHER)
        assert opened.missing == {"other"}


@virtualtime.in_virtual_time
async def test_the_listing_after_a_resync_and_the_reading_of_a_caller_go_one_after_the_other():
    manager = Manager()
    async with connecting(manager) as opened:
        async with reading(manager, opened):
            manager.events.put_nowait(contract.Resync())
            await asyncio.sleep(60)
            manager.devices_now = (NEW,)
        await asyncio.sleep(60)
        assert manager.most_at_once == 1
        assert opened.devices == (NEW,)
        # The watch goes on from the listing that was learned last.
        assert manager.watched_from == ["1", str(len(manager.listed))]


@pytest.mark.parametrize("fails", [False, True])
@virtualtime.in_virtual_time
async def test_nothing_is_kept_of_a_listing_that_is_over(fails):
    manager = Manager()
    async with connecting(manager) as opened:
        manager.may_end.clear()
        task = asyncio.Task(opened.read())
        await asyncio.sleep(1)
        opened.inventory.learn(NEW)
        if fails:
            task.cancel()
        manager.may_end.set()
        await asyncio.wait({task})
        await opened.read()
        assert opened.devices == (OLD,)


def test_a_session_asks_its_listener_for_nothing():
    methods = inspect.getmembers(news.Listener, inspect.isfunction)
    answers = {
        name: inspect.signature(method).return_annotation
        for name, method in methods
        if not name.startswith("_")
    }
    assert len(answers) == 6
    assert set(answers.values()) == {None}
