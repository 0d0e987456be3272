"""What a session is told while it lists its fabric: the listing may be older, and must not undo it."""

import asyncio
import contextlib
import dataclasses

import pytest
from tests.scenes.sessions import FABRIC, Listener

from drawbar.driver.controller.fabrics import session
from drawbar.fabric import contract
from drawbar.mocks.testing import virtualtime

OLD = contract.Device(id="d", device_class=contract.DeviceClass.GPU, health=contract.Health.OK)
NEW = dataclasses.replace(OLD, health=contract.Health.CRITICAL)
OTHER = dataclasses.replace(OLD, id="other")
OLD_HOST = contract.Host(id="h", name="old")
NEW_HOST = contract.Host(id="h", name="new")


class Manager:
    """A fabric manager whose listings can be held up, and whose watch tells what the test puts into it.

    Attributes:
        devices_of, hosts_of: what a listing shows that begins, or that is let go, now.
        may_end: listings end while it is set.
        events: what the watch tells.
    """

    def __init__(self):
        self.devices_of, self.hosts_of = (OLD,), (OLD_HOST,)
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.events = asyncio.Queue()
        self.listing = self.most_at_once = self.listed = 0
        self.watched_from = []

    def validate(self, config):
        """Any configuration will do."""

    async def connect(self, config):
        return self

    async def close(self):
        """Nothing to let go of."""

    async def capabilities(self):
        return contract.Capabilities(watch=True)

    async def devices(self):
        self.listed += 1
        self.listing += 1
        self.most_at_once = max(self.most_at_once, self.listing)
        return contract.Inventory(version=str(self.listed), devices=self.devices_of)

    async def hosts(self):
        hosts = self.hosts_of
        try:
            await self.may_end.wait()
        finally:
            self.listing -= 1
        return hosts

    @contextlib.asynccontextmanager
    async def watch(self, version):
        self.watched_from.append(version)
        yield self._told()

    async def _told(self):
        while True:
            yield await self.events.get()


@contextlib.asynccontextmanager
async def connected(manager):
    """The session with the manager, once it watches."""
    opened = session.Session(FABRIC, Listener(), lambda name: manager)
    task = asyncio.Task(opened.run())
    await asyncio.sleep(1)
    assert manager.watched_from == ["1"]
    try:
        yield opened
    finally:
        task.cancel()
        await asyncio.wait({task})


@contextlib.asynccontextmanager
async def reading(manager, opened):
    """While the session's listing is under way."""
    manager.may_end.clear()
    task = asyncio.Task(opened.read())
    await asyncio.sleep(1)
    assert manager.listing == 1
    yield
    await asyncio.sleep(1)
    manager.may_end.set()
    await task


@virtualtime.in_virtual_time
async def test_what_the_watch_told_of_a_device_during_a_listing_stands_after_it():
    manager = Manager()
    async with connected(manager) as opened:
        async with reading(manager, opened):
            manager.events.put_nowait(contract.DeviceChanged(version="9", device=NEW))
            manager.events.put_nowait(contract.DeviceChanged(version="9", device=OTHER))
        assert opened.devices == (NEW, OTHER)


@virtualtime.in_virtual_time
async def test_a_device_that_the_watch_told_of_as_gone_does_not_come_back_with_the_listing():
    manager = Manager()
    async with connected(manager) as opened:
        async with reading(manager, opened):
            manager.events.put_nowait(contract.DeviceGone(version="9", device_id="d"))
        assert opened.devices == ()


@virtualtime.in_virtual_time
async def test_what_the_watch_told_of_a_host_during_a_listing_stands_after_it():
    manager = Manager()
    async with connected(manager) as opened:
        async with reading(manager, opened):
            manager.events.put_nowait(contract.HostChanged(version="9", host=NEW_HOST))
        assert opened.hosts == (NEW_HOST,)


@virtualtime.in_virtual_time
async def test_an_operations_answer_during_a_listing_stands_after_it():
    manager = Manager()
    async with connected(manager) as opened:
        async with reading(manager, opened):
            opened.learn(NEW)
        assert opened.devices == (NEW,)


@virtualtime.in_virtual_time
async def test_what_was_told_during_one_listing_does_not_stand_against_the_next():
    manager = Manager()
    async with connected(manager) as opened:
        async with reading(manager, opened):
            opened.learn(NEW)
        manager.hosts_of = (NEW_HOST,)
        await opened.read()
        assert opened.devices == (OLD,)
        assert opened.hosts == (NEW_HOST,)


@virtualtime.in_virtual_time
async def test_what_was_told_before_a_listing_does_not_stand_against_it():
    manager = Manager()
    async with connected(manager) as opened:
        opened.learn(NEW)
        manager.events.put_nowait(contract.DeviceChanged(version="9", device=OTHER))
        await asyncio.sleep(1)
        await opened.read()
        assert opened.devices == (OLD, OTHER)
        assert opened.missing == {"other"}


@virtualtime.in_virtual_time
async def test_the_listing_after_a_resync_and_somebodys_reading_go_one_after_the_other():
    manager = Manager()
    async with connected(manager) as opened:
        async with reading(manager, opened):
            manager.events.put_nowait(contract.Resync())
            await asyncio.sleep(60)
            manager.devices_of = (NEW,)
        await asyncio.sleep(60)
        assert manager.most_at_once == 1
        assert opened.devices == (NEW,)
        # The watch goes on from the listing that was learned last.
        assert manager.watched_from == ["1", str(manager.listed)]


@pytest.mark.parametrize("fails", [False, True])
@virtualtime.in_virtual_time
async def test_nothing_is_kept_of_a_listing_that_is_over(fails):
    manager = Manager()
    async with connected(manager) as opened:
        manager.may_end.clear()
        task = asyncio.Task(opened.read())
        await asyncio.sleep(1)
        opened.learn(NEW)
        if fails:
            task.cancel()
        manager.may_end.set()
        await asyncio.wait({task})
        await opened.read()
        assert opened.devices == (OLD,)
