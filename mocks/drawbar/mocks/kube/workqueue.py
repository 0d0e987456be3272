"""A queue of keys to reconcile: one worker per key, and growing pauses per key after failures.

Guarantees: a key that is added while it waits is handled once. A key that is added while it is handled is handled again
afterwards. Each key is in the queue at most once, so the number of objects bounds it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from drawbar.mocks.kube import backoff, errors

log = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)
Reconcile = Callable[[K], Awaitable[float | None]]
"""Handle one key; return the seconds after which to do so again, or None."""
FIRST_SECONDS, MAX_SECONDS = 0.05, 60.0


class WorkQueue(Generic[K]):
    """The queue. It belongs to one event loop."""

    def __init__(self) -> None:
        # In the order of arrival.
        self._ready: dict[K, None] = {}
        # Keys in work; true if they were added meanwhile.
        self._busy: dict[K, bool] = {}
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._pauses: dict[K, backoff.Backoff] = {}
        self._wake = asyncio.Event()

    def add(self, key: K) -> None:
        """Have the key handled now."""
        if (timer := self._timers.pop(key, None)) is not None:
            timer.cancel()
        if key in self._busy:
            self._busy[key] = True
        else:
            self._ready[key] = None
            self._wake.set()

    def add_after(self, key: K, seconds: float) -> None:
        """Have the key handled later, unless it is due earlier."""
        loop = asyncio.get_running_loop()
        when, timer = loop.time() + max(0.0, seconds), self._timers.get(key)
        if timer is not None:
            if timer.when() <= when:
                return
            timer.cancel()
        self._timers[key] = loop.call_at(when, self.add, key)

    async def take(self) -> K:
        """Wait for the next key and return it; call `mark_done` with it afterwards in any case."""
        while not self._ready:
            self._wake.clear()
            await self._wake.wait()
        key = next(iter(self._ready))
        del self._ready[key]
        self._busy[key] = False
        return key

    def mark_done(self, key: K) -> None:
        """End the work on a key."""
        if self._busy.pop(key):
            self.add(key)

    async def run(self, reconcile: Reconcile[K]) -> None:
        """Handle keys until cancelled; each task that runs this is one worker."""
        while True:
            key = await self.take()
            try:
                again = await reconcile(key)
            except errors.KubeError as error:
                pauses = self._pauses.setdefault(key, backoff.Backoff(FIRST_SECONDS, MAX_SECONDS))
                self.add_after(key, pauses.count_failure(error.retry_after_seconds))
                log.info("will try again: %s", error, extra={"key": key})
            else:
                self._pauses.pop(key, None)
                if again is not None:
                    self.add_after(key, again)
            finally:
                self.mark_done(key)
            # Work without a wait does not yield, and other tasks would wait for all ready keys.
            await asyncio.sleep(0)

    def close(self) -> None:
        """Cancel all timers."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
