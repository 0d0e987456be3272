"""Reads of objects in threads, so that one whose reading hangs delays the others once, and for a bounded time.

The kernel lets the reader of some files wait for the device: of its configuration space during a reset, of a driver's file
until the firmware answers. Such a read cannot be interrupted. Its thread is left to it, another one reads the other
objects, and the result is delivered when it comes.

An object whose reading hung is then read in a thread of its own, for which nobody waits, until a reading is quick. The
kernel removes no object while one of its files is being read, so nothing else takes its place meanwhile.

Source: drivers/pci/access.c, pci_wait_cfg; fs/kernfs/dir.c, kernfs_drain.
"""

import asyncio
import contextlib
import logging
import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping

from drawbar.driver.node.discovery import functions, reader, slowreads
from drawbar.driver.node.discovery.subjects import Subject

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 2.0
"""A reading without a result for this time hangs; that is noticed after at most twice this time."""
FURTHER_SHARE = 8
"""The divisor of the patience with further objects that hang in the same reading: a whole enclosure may be in a reset."""
HANGING_MAX = 64
"""The maximum number of objects whose reading hangs. Others wait for a further one."""


class Pass:
    """A reading of objects, one after the other, in a thread.

    Attributes:
        slots: the names of slots by location that it uses.
        is_left: nobody waits for it: the object that is being read is its last.
        results: the results so far, in the order of the objects.
        late: the result of the last object, if nobody waited for it.
        seconds: the duration of that object's reading.
        error: an unexpected error; no further object is read.
        ended: set in the event loop after the last object, or an error.
    """

    def __init__(
        self, subjects: Iterable[Subject], slots: Mapping[str, str], *, is_left: bool = False
    ) -> None:
        self.slots = slots
        self.is_left = is_left
        self.results: list[reader.Observation] = []
        self.late = reader.Observation()
        self.seconds = 0.0
        self.error: Exception | None = None
        self.ended = asyncio.Event()
        self._subjects = tuple(subjects)
        self._lock = threading.Lock()

    @property
    def current(self) -> Subject | None:
        """Return the object that is being read, or None after the last."""
        done = len(self.results)
        return self._subjects[done] if done < len(self._subjects) else None

    @property
    def rest(self) -> tuple[Subject, ...]:
        """Return the objects after the current one."""
        return self._subjects[len(self.results) + 1 :]

    def leave(self) -> Subject | None:
        """Wait no longer: return the object that is being read, or None if there is none."""
        with self._lock:
            self.is_left = self.error is None and self.current is not None
            return self.current if self.is_left else None

    def run(self, root: str, slow: slowreads.SlowReads | None) -> None:
        """Read the objects, in the thread."""
        try:
            self._read(functions.surroundings(root, self.slots, slow), root)
        except Exception as error:  # noqa: BLE001 - raised again in the event loop
            with self._lock:
                self.error = error

    def _read(self, around: functions.Surroundings, root: str) -> None:
        for subject in self._subjects:
            started = time.monotonic()
            observed = reader.read_subject(root, subject, around)
            with self._lock:
                if self.is_left:
                    self.late, self.seconds = observed, time.monotonic() - started
                    return
                self.results.append(observed)


class Worker:
    """A thread that does one piece of work after another, until this object is collected."""

    def __init__(self) -> None:
        waiting: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self.begin = waiting.put
        # The end of the process does not wait for a daemon thread.
        threading.Thread(target=_work, args=(waiting,), name="drawbar-discovery", daemon=True).start()
        weakref.finalize(self, waiting.put, None)


def _work(waiting: "queue.SimpleQueue[Callable[[], None] | None]") -> None:
    while (work := waiting.get()) is not None:
        work()
        del work  # or it would keep the owner of the thread from being collected


class HangingReads:
    """The readings of a node's objects. It belongs to one event loop."""

    def __init__(
        self,
        root: str,
        slow: slowreads.SlowReads | None,
        deliver: Callable[[Subject, Pass, bool], None],
        *,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        """Read nothing yet.

        Args:
            root: the root of the sysfs tree.
            slow: the reader of Vital Product Data; None to skip it.
            deliver: called with an object, the pass with its late result, and whether a further reading was wanted meanwhile.
            patience_seconds: see `PATIENCE_SECONDS`.
        """
        self._root = root
        self._slow = slow
        self._deliver = deliver
        self._patience_seconds = patience_seconds
        # The thread without work; a new one costs as much as the reading of a function.
        self._idle: Worker | None = None
        # By object that hung, whether another reading was wanted during the current one; None without a current one.
        self._hung: dict[Subject, bool | None] = {}

    @property
    def hanging(self) -> tuple[Subject, ...]:
        """Return the objects whose reading hangs now."""
        return tuple(subject for subject, is_wanted in self._hung.items() if is_wanted is not None)

    async def read(self, subjects: Iterable[Subject], slots: Mapping[str, str]) -> reader.Observation:
        """Return the current state of these objects, without those that hang; their results are delivered later.

        Args:
            subjects: the objects.
            slots: names of slots by location.
        """
        results: list[reader.Observation] = []
        patience = self._patience_seconds
        todo = tuple(subject for subject in subjects if not self._read_alone(subject, slots))
        while todo:
            current = self._start(Pass(todo, slots))
            todo = ()
            if not await self._is_over(current, patience):
                todo, patience = current.rest, self._patience_seconds / FURTHER_SHARE
            elif current.error is not None:
                raise current.error
            results += current.results
        return reader.combine(results)

    def _read_alone(self, subject: Subject, slots: Mapping[str, str]) -> bool:
        """Begin a reading for which nobody waits, if this object hung before; return whether it did."""
        if subject not in self._hung:
            return False
        if self._hung[subject] is None:
            self._start(Pass((subject,), slots, is_left=True))
        self._hung[subject] = self._hung[subject] is not None
        return True

    def _start(self, started: Pass) -> Pass:
        loop = asyncio.get_running_loop()
        worker, self._idle = self._idle or Worker(), None

        def run() -> None:
            started.run(self._root, self._slow)
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._end, started, worker)

        worker.begin(run)
        return started

    async def _is_over(self, current: Pass, patience_seconds: float) -> bool:
        """Wait for a pass; return False if its current object hangs, and leave it."""
        while not current.ended.is_set():
            done = len(current.results)
            try:
                async with asyncio.timeout(patience_seconds):
                    await current.ended.wait()
            except TimeoutError:
                if len(current.results) > done or len(self._hung) >= HANGING_MAX:
                    continue
                subject = current.leave()
                if subject is not None:
                    self._hung[subject] = False
                    log.warning(
                        "the kernel does not finish reading %s %s; look at its log (dmesg)",
                        subject.kind.value,
                        subject.name,
                    )
                    return False
        return True

    def _end(self, over: Pass, worker: Worker) -> None:
        """End a pass, in the event loop."""
        self._idle = worker
        subject = over.current
        if subject is None or not over.is_left:
            over.ended.set()
            return
        is_wanted = bool(self._hung[subject])
        if over.seconds < self._patience_seconds:
            del self._hung[subject]
            log.info("the kernel reads %s %s again", subject.kind.value, subject.name)
        else:
            self._hung[subject] = None
        if over.error is not None:
            raise over.error
        self._deliver(subject, over, is_wanted)
