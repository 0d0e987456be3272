"""The pods without a node: ready, in progress, in back-off, or asleep until a relevant change.

Guarantees: changes during an attempt are not lost, because the pod is tried again right after it. A pod has only one
attempt at a time. A pod that waits for a driver sleeps without back-off. A pod that fits nowhere sleeps at least for
its back-off, as in the real scheduler's queue.
"""

import asyncio

from drawbar.mocks.claims import documents
from drawbar.mocks.kube import workqueue
from drawbar.mocks.scheduler import settings

Key = documents.Key


class Backlog:
    """All pods without a node received by a scheduler."""

    def __init__(self, times: settings.Settings) -> None:
        self._times = times
        self._queue: workqueue.WorkQueue[Key] = workqueue.WorkQueue()
        self._attempts: dict[Key, int] = {}
        # The sleeping pods, with the earliest time of the next attempt in the loop's time.
        self._asleep: dict[Key, float] = {}
        # The pods in progress; true after a relevant change meanwhile.
        self._under_way: dict[Key, bool] = {}

    def add(self, key: Key) -> None:
        """Queue a new or changed pod for an attempt now."""
        if key in self._under_way:
            self._under_way[key] = True
            return
        self._asleep.pop(key, None)
        self._queue.add(key)

    def wake(self, key: Key) -> None:
        """Wake a pod after a relevant change."""
        if key in self._under_way:
            self._under_way[key] = True
        elif (earliest := self._asleep.pop(key, None)) is not None:
            self._queue.add_after(key, earliest - asyncio.get_running_loop().time())

    def wake_all(self) -> None:
        """Wake all pods."""
        for key in (*self._asleep, *self._under_way):
            self.wake(key)

    async def take(self) -> Key:
        """Return the next pod to try. It is in progress until one of the functions below is called."""
        while True:
            key = await self._queue.take()
            self._queue.mark_done(key)
            if key not in self._under_way:
                self._under_way[key] = False
                return key
            self._under_way[key] = True

    def sleep(self, key: Key, *, backoff: bool) -> None:
        """End an attempt without a node; the pod sleeps until a relevant change."""
        news = self._under_way.pop(key, False)
        now = asyncio.get_running_loop().time()
        self._asleep[key] = now + (self._pause(key) if backoff else 0.0)
        if news:
            self.wake(key)

    def retry(self, key: Key) -> None:
        """End a failed attempt; the pod is tried again after its back-off."""
        self._under_way.pop(key, None)
        self._queue.add_after(key, self._pause(key))

    def end(self, key: Key) -> None:
        """End the work on a pod that has its node, or is not ours any more."""
        if self._under_way.pop(key, False):
            # Another pod of its name may exist now.
            self._queue.add(key)
        self._asleep.pop(key, None)
        self._attempts.pop(key, None)

    def drop(self, key: Key) -> None:
        """Remove a missing pod; one in progress is taken once more, to end it."""
        self._asleep.pop(key, None)
        self._attempts.pop(key, None)
        if key in self._under_way:
            self._under_way[key] = True

    def close(self) -> None:
        """Drop all timers."""
        self._queue.close()

    def _pause(self, key: Key) -> float:
        attempts = self._attempts.get(key, 0) + 1
        self._attempts[key] = attempts
        return self._times.backoff_seconds(attempts)
