"""A manager that keeps asking to be listed anew: it is, after pauses that grow, until a watch lives for a while."""

import asyncio
import contextlib
import itertools

import pytest
from tests.scenes.sessions import FABRIC, Listener

from drawbar.driver import backoff
from drawbar.driver.controller.fabrics import session
from drawbar.fabric import contract
from drawbar.mocks.testing import virtualtime

LISTINGS_MAX = 1000


class Manager:
    """An empty fabric that ends each watch after `watch_seconds`, with a Resync or, if not `asks`, without a word."""

    def __init__(self, watch_seconds, *, asks=True):
        self.watch_seconds, self.asks = watch_seconds, asks
        self.listed, self.ended = [], []

    def validate(self, config):
        """Any configuration will do."""

    async def connect(self, config):
        return self

    async def capabilities(self):
        return contract.Capabilities(watch=True)

    async def devices(self):
        self.listed.append(asyncio.get_running_loop().time())
        return contract.Inventory(version="1", devices=())

    async def hosts(self):
        return ()

    @contextlib.asynccontextmanager
    async def watch(self, version):
        yield self._events()
        self.ended.append(asyncio.get_running_loop().time())

    async def _events(self):
        # A session that makes no pauses must fail its test, and not take it hours.
        await asyncio.sleep(self.watch_seconds if len(self.listed) < LISTINGS_MAX else 3600)
        if self.asks:
            yield contract.Resync()

    async def close(self):
        """Nothing to let go of."""

    @property
    def pauses(self):
        """How long each time from the end of a watch to the next listing."""
        return [listed - ended for ended, listed in zip(self.ended, self.listed[1:], strict=False)]


@contextlib.asynccontextmanager
async def session_with(manager):
    opened = session.Session(FABRIC, Listener(), lambda name: manager)
    task = asyncio.Task(opened.run())
    try:
        yield opened
    finally:
        task.cancel()
        await asyncio.wait({task})


@pytest.mark.parametrize("asks", [True, False], ids=["resync", "no-word"])
@virtualtime.in_virtual_time
async def test_a_manager_that_ends_each_watch_at_once_is_listed_after_pauses_that_grow_and_are_bounded(asks):
    manager = Manager(0.001, asks=asks)
    async with session_with(manager) as opened:
        await asyncio.sleep(3600)
        assert opened.connection.connected
        early, late = manager.pauses[:3], manager.pauses[8:]
        assert 0 < manager.pauses[0] <= backoff.FIRST_SECONDS
        assert max(early) < min(late)
        assert max(late) <= backoff.MAX_SECONDS
        # With jitter.
        assert len(set(late)) > 1
        assert 3600 / backoff.MAX_SECONDS < len(manager.listed) < 7200 / backoff.MAX_SECONDS + 20


@virtualtime.in_virtual_time
async def test_a_watch_that_lived_is_followed_by_a_listing_at_once_and_forgives_the_short_ones():
    manager = Manager(0.001)
    async with session_with(manager):
        await asyncio.sleep(600)
        manager.watch_seconds = backoff.HEALTHY_SECONDS + 1
        await asyncio.sleep(600)
        assert manager.pauses[-3:] == [0.0, 0.0, 0.0]
        manager.watch_seconds = 0.001
        before = len(manager.pauses)
        await asyncio.sleep(10)
        short = list(itertools.dropwhile(lambda pause: pause == 0.0, manager.pauses[before:]))
        assert 0 < short[0] <= backoff.FIRST_SECONDS
