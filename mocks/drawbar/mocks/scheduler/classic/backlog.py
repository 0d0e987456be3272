"""The pods that want a node: ready, under way, in back-off, or asleep until there is news.

Guarantees: news that come while a pod is under way are not lost, it is tried again right afterwards; a pod is handed out to
one attempt at a time. A pod that waits for a driver sleeps without back-off, one that fits nowhere at least as long as its
back-off, as in the real scheduler's queue.
"""

import asyncio

from drawbar.driver.kube import workers
from drawbar.mocks.claims import documents
from drawbar.mocks.scheduler import settings

Key = documents.Key


class Backlog:
    """All pods without a node that a scheduler has received."""

    def __init__(self, times: settings.Settings) -> None:
        self._times = times
        self._queue: workers.WorkQueue[Key] = workers.WorkQueue()
        self._attempts: dict[Key, int] = {}
        # With the loop time before which they are not tried again.
        self._asleep: dict[Key, float] = {}
        # Under way, and whether there were news meanwhile.
        self._under_way: dict[Key, bool] = {}

    def add(self, key: Key) -> None:
        """A new pod, or one that its owner changed: to be tried now."""
        if key in self._under_way:
            self._under_way[key] = True
            return
        self._asleep.pop(key, None)
        self._queue.add(key)

    def wake(self, key: Key) -> None:
        """There is news for this pod."""
        if key in self._under_way:
            self._under_way[key] = True
        elif (earliest := self._asleep.pop(key, None)) is not None:
            self._queue.add_after(key, earliest - asyncio.get_running_loop().time())

    def wake_all(self) -> None:
        """There is news for everybody."""
        for key in (*self._asleep, *self._under_way):
            self.wake(key)

    async def take(self) -> Key:
        """The next pod to try. It is under way until one of the functions below is called."""
        while True:
            key = await self._queue.take()
            self._queue.done(key)
            if key not in self._under_way:
                self._under_way[key] = False
                return key
            self._under_way[key] = True

    def sleep(self, key: Key, *, backoff: bool) -> None:
        """The attempt found no node; the pod sleeps until there is news."""
        news = self._under_way.pop(key, False)
        now = asyncio.get_running_loop().time()
        self._asleep[key] = now + (self._pause(key) if backoff else 0.0)
        if news:
            self.wake(key)

    def retry(self, key: Key) -> None:
        """The attempt broke off; the pod is tried again after its back-off."""
        self._under_way.pop(key, None)
        self._queue.add_after(key, self._pause(key))

    def end(self, key: Key) -> None:
        """The pod has its node, or is none of ours any more."""
        if self._under_way.pop(key, False):
            # Perhaps another one of its name came.
            self._queue.add(key)
        self._asleep.pop(key, None)
        self._attempts.pop(key, None)

    def drop(self, key: Key) -> None:
        """The pod is gone. One that is under way is looked at once more afterwards, to be ended then."""
        self._asleep.pop(key, None)
        self._attempts.pop(key, None)
        if key in self._under_way:
            self._under_way[key] = True

    def close(self) -> None:
        """Drops all timers."""
        self._queue.close()

    def _pause(self, key: Key) -> float:
        attempts = self._attempts.get(key, 0) + 1
        self._attempts[key] = attempts
        return self._times.backoff_seconds(attempts)
