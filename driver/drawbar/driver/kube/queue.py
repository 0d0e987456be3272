"""A work queue keyed by object: one worker per key, back-off per key.

Guarantees: a key that is added while it waits is handled once; one that is added while it is being handled is handled
again afterwards; a key is never handled by two workers at once; a key that failed comes back after a pause that grows
with its failures and is jittered. The queue holds each key at most once, so the number of objects bounds it.
"""

import asyncio
from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

from drawbar.driver import backoff

K = TypeVar("K", bound=Hashable)

PAUSE_FIRST_SECONDS = 0.05
PAUSE_MAX_SECONDS = 60.0


class WorkQueue(Generic[K]):
    """Keys that want attention. Not for several event loops."""

    def __init__(self) -> None:
        self._ready: deque[K] = deque()
        self._waiting: set[K] = set()
        self._busy: set[K] = set()
        self._again: set[K] = set()
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._failures: dict[K, backoff.Backoff] = {}
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        return len(self._ready)

    @property
    def failing(self) -> int:
        """How many keys failed the last time that they were handled."""
        return len(self._failures)

    def add(self, key: K) -> None:
        """Asks for attention now."""
        self._cancel_timer(key)
        if key in self._busy:
            self._again.add(key)
        elif key not in self._waiting:
            self._waiting.add(key)
            self._ready.append(key)
            self._wake.set()

    def add_after(self, key: K, seconds: float) -> None:
        """Asks for attention later; an earlier wish wins."""
        loop = asyncio.get_running_loop()
        known = self._timers.get(key)
        if known is not None and known.when() <= loop.time() + seconds:
            return
        self._cancel_timer(key)
        self._timers[key] = loop.call_later(max(0.0, seconds), self.add, key)

    def retry(self, key: K) -> float:
        """Asks for attention after this key's back-off; gives the pause in seconds."""
        if key not in self._failures:
            self._failures[key] = backoff.Backoff(PAUSE_FIRST_SECONDS, PAUSE_MAX_SECONDS)
        pause = self._failures[key].failed()
        self.add_after(key, pause)
        return pause

    def forget(self, key: K) -> None:
        """Starts the key's back-off from the beginning again."""
        self._failures.pop(key, None)

    async def take(self) -> K:
        """The next key; call `done` with it afterwards, whatever happened."""
        while not self._ready:
            self._wake.clear()
            await self._wake.wait()
        key = self._ready.popleft()
        self._waiting.discard(key)
        self._busy.add(key)
        return key

    def done(self, key: K) -> None:
        """Says that the key is no longer being handled."""
        self._busy.discard(key)
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    def close(self) -> None:
        """Drops all timers."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _cancel_timer(self, key: K) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
