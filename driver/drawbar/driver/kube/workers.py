"""Work queues keyed by object, and the workers that reconcile their keys: one worker per key, back-off per key.

Guarantees: a key that is added while it waits is handled once; one that is added while it is being handled is handled
again afterwards; a key is never handled by two workers at once; a key that failed, however unexpectedly, comes back after a pause that grows
with its failures and is jittered; so does a key that asks for another round at once too often. The queue holds each key at most
once, so the number of objects bounds it.
"""

import asyncio
import functools
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable, Mapping
from typing import Generic, TypeVar

from drawbar.driver import backoff, containment
from drawbar.driver.kube import errors

log = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)
Reconcile = Callable[[K], Awaitable[float | None]]
"""Reconcile one object; return the seconds after which to do so again (0.0: at once), or None."""
Describe = Callable[[K], Mapping[str, object]]
"""Return the extras of a key in the log."""

IN_A_ROW_MAX = 16
"""The most rounds of a key at once; the next one has the pause of a failure, so that no key occupies the process.

The longest row in the storms of the controller was 3. Five times as many are no progress.
"""
PAUSE_FIRST_SECONDS = 0.05
PAUSE_MAX_SECONDS = 60.0


class WorkQueue(Generic[K]):
    """A queue of keys to reconcile. It belongs to one event loop."""

    def __init__(self) -> None:
        self._ready: deque[K] = deque()
        self._waiting: set[K] = set()
        self._busy: set[K] = set()
        self._again: set[K] = set()
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._failures: dict[K, backoff.Backoff] = {}
        self._in_a_row: dict[K, int] = {}
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        return len(self._ready)

    @property
    def failing(self) -> int:
        """Return the number of keys whose last handling failed."""
        return len(self._failures)

    def add(self, key: K) -> None:
        """Have the key reconciled now."""
        self._cancel_timer(key)
        if key in self._busy:
            self._again.add(key)
        elif key not in self._waiting:
            self._waiting.add(key)
            self._ready.append(key)
            self._wake.set()

    def add_after(self, key: K, seconds: float) -> None:
        """Have the key reconciled later, unless it is due earlier."""
        loop = asyncio.get_running_loop()
        timer = self._timers.get(key)
        if timer is not None and timer.when() <= loop.time() + seconds:
            return
        self._cancel_timer(key)
        self._timers[key] = loop.call_later(max(0.0, seconds), self.add, key)

    def retry(self, key: K, asked_seconds: float = 0.0) -> float:
        """Have the key reconciled after its back-off, or after the pause that the API server asked for; return the pause in seconds."""
        if key not in self._failures:
            self._failures[key] = backoff.Backoff(PAUSE_FIRST_SECONDS, PAUSE_MAX_SECONDS)
        pause = self._failures[key].compute_pause(0.0, asked_seconds)
        self.add_after(key, pause)
        return pause

    def forget(self, key: K) -> None:
        """Reset the key's back-off."""
        self._failures.pop(key, None)

    async def run(
        self,
        reconcile: Reconcile[K],
        describe: Describe[K],
        *,
        retried: type[Exception] | tuple[type[Exception], ...] = errors.KubeError,
        level: Callable[[Exception], int] = errors.level,
        worker: str = "",
        contained: containment.Containment | None = None,
        report: Callable[[K, str], None] | None = None,
    ) -> None:
        """Reconcile keys until cancelled; each task that runs this is one worker.

        Args:
            reconcile: called with one key at a time.
            describe: the extras of a key in the log.
            retried: exceptions after which the key is reconciled again, after its back-off.
            level: at which such an exception is logged.
            worker: names the work for `contained`.
            contained: after any other exception the key is reconciled again, too; without it, that is raised.
            report: shows such an exception on the object of a key.
        """
        contained = contained or containment.Uncontained()

        async def once(key: K) -> None:
            try:
                again = await reconcile(key)
            except retried as error:
                pause = self.retry(key, getattr(error, "retry_after_seconds", 0.0))
                extra = {**describe(key), "seconds": round(pause, 2)}
                log.log(level(error), "will try again: %s", error, extra=extra)
            else:
                if again == 0.0:
                    self._add_at_once(key, describe)
                    return
                self.forget(key)
                self._in_a_row.pop(key, None)
                if again is not None:
                    self.add_after(key, again)

        while True:
            key = await self.take()
            attempt = contained.attempt(
                worker,
                key,
                extra=functools.partial(describe, key),
                report=functools.partial(report, key) if report is not None else None,
            )
            try:
                with attempt:
                    await once(key)
                if attempt.failure:
                    self.retry(key)
            finally:
                self.mark_done(key)
            if self._ready:
                # A reconcile without a wait does not yield, and other tasks would wait for all ready keys.
                await asyncio.sleep(0)

    async def take(self) -> K:
        """Wait for the next key and return it; call `mark_done` with it afterwards in any case."""
        while not self._ready:
            self._wake.clear()
            await self._wake.wait()
        key = self._ready.popleft()
        self._waiting.discard(key)
        self._busy.add(key)
        return key

    def mark_done(self, key: K) -> None:
        """Note that the key is no longer being handled."""
        self._busy.discard(key)
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    def _add_at_once(self, key: K, describe: Describe[K]) -> None:
        """Have the key reconciled at once, or after its back-off if it was so too often in a row."""
        rounds = self._in_a_row[key] = self._in_a_row.get(key, 0) + 1
        if rounds <= IN_A_ROW_MAX:
            self.forget(key)
            self.add(key)
            return
        pause = self.retry(key)
        if rounds == IN_A_ROW_MAX + 1:
            extra = {**describe(key), "rounds": IN_A_ROW_MAX, "seconds": round(pause, 2)}
            log.warning("its reconciliation changes nothing; will try again", extra=extra)

    def close(self) -> None:
        """Cancel all timers."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _cancel_timer(self, key: K) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()


Work = Callable[[WorkQueue[K]], Coroutine[None, None, None]]


class PartitionedQueue(Generic[K]):
    """A work queue with separate workers for each partition, so that a slow partition never delays another.

    Keys may be added before `start`, and are kept from one start to the next.

    Args:
        partition: returns the partition of a key.
        workers: the number of workers of each partition.
        contained: restarts a worker that ends unexpectedly; without it, the error is raised.
    """

    def __init__(
        self,
        partition: Callable[[K], str],
        *,
        workers: int,
        contained: containment.Containment | None = None,
    ) -> None:
        self._contained = contained or containment.Uncontained()
        self._partition = partition
        self._workers = workers
        self._queues: dict[str, WorkQueue[K]] = {}
        # A function that starts the workers of a partition; None while the queue does not run.
        self._begin: Callable[[str], None] | None = None

    def add(self, key: K) -> None:
        """Have the key reconciled now."""
        name = self._partition(key)
        if name not in self._queues:
            self._queues[name] = WorkQueue()
            if self._begin is not None:
                self._begin(name)
        self._queues[name].add(key)

    def add_all(self, keys: Iterable[K]) -> None:
        """Have the keys reconciled now."""
        for key in keys:
            self.add(key)

    def count_waiting(self, name: str) -> int:
        """Return how many keys of the partition wait."""
        return len(self._queues[name]) if name in self._queues else 0

    def count_failing(self, name: str) -> int:
        """Return how many keys of the partition failed the last time, and come back after a pause."""
        return self._queues[name].failing if name in self._queues else 0

    def start(self, tasks: asyncio.TaskGroup, work: Work[K]) -> None:
        """Start the workers; they run until the group is cancelled.

        Args:
            tasks: the group.
            work: reconciles the keys of the queue of one partition until cancelled; the task of one worker.
        """

        def begin(name: str) -> None:
            for number in range(self._workers):
                run = functools.partial(work, self._queues[name])
                self._contained.start(tasks, "devices", run, subject=f"worker {number} of {name}")

        self._begin = begin
        for name in self._queues:
            begin(name)

    def stop(self) -> None:
        """Note that the workers have ended with their group."""
        self._begin = None
