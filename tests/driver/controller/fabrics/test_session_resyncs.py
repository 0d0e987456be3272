"""A manager that keeps asking to be listed again: it is, after pauses that grow, until a watch lives for a while."""

import asyncio
import contextlib
import itertools

import pytest
from tests.scenes import sessions

from drawbar.driver import backoff
from drawbar.fabric import contract
from drawbar.mocks.testing import virtualtime

LISTINGS_MAX = 1000


class Manager(sessions.Manager):
    """An empty fabric that ends each watch after `watch_seconds`, with a Resync or, if not `asks`, without a word."""

    def __init__(self, watch_seconds, *, asks=True):
        super().__init__()
        self.watch_seconds, self.asks = watch_seconds, asks
        self.ended = []

    @contextlib.asynccontextmanager
    async def watch(self, version):
        async with super().watch(version) as events:
            yield events
        self.ended.append(asyncio.get_running_loop().time())

    async def _yield_events(self):
        # A session that makes no pauses must fail its test, and not take it hours.
        await asyncio.sleep(self.watch_seconds if len(self.listed) < LISTINGS_MAX else 3600)
        if self.asks:
            yield contract.Resync()

    @property
    def pauses(self):
        """How long each time from the end of a watch to the next listing."""
        return [listed - ended for ended, listed in zip(self.ended, self.listed[1:], strict=False)]


@pytest.mark.parametrize("asks", [True, False], ids=["resync", "no-word"])
@virtualtime.in_virtual_time
async def test_a_manager_that_ends_each_watch_at_once_is_listed_after_pauses_that_grow_and_are_bounded(asks):
    manager = Manager(0.001, asks=asks)
    async with sessions.running(manager, seconds=0) as opened:
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
    async with sessions.running(manager, seconds=0):
        await asyncio.sleep(600)
        manager.watch_seconds = backoff.HEALTHY_SECONDS + 1
        await asyncio.sleep(600)
        assert manager.pauses[-3:] == [0.0, 0.0, 0.0]
        manager.watch_seconds = 0.001
        before = len(manager.pauses)
        await asyncio.sleep(10)
        short = list(itertools.dropwhile(lambda pause: pause == 0.0, manager.pauses[before:]))
        assert 0 < short[0] <= backoff.FIRST_SECONDS
