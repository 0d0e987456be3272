"""Unexpected errors of a daemon: logged, counted, shown, and retried after a growing pause.

An error is expected if the code around it names it. Any other error is a defect of Drawbar. It ends the piece of work
around it (one object of a queue, one callback, one loop, one Fabric), and nothing else: the daemon goes on.

MemoryError is not contained, nor are exceptions that are no Exception: a cancellation, KeyboardInterrupt and
SystemExit end the process. One cancellation is an unexpected error: that of a task that was not cancelled itself, but
by a library.

This is the only place where a daemon catches all errors; `tests/driver/test_containment.py` looks for others.
"""

import asyncio
import contextlib
import logging
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from drawbar.driver import backoff, errors

log = logging.getLogger(__name__)

MESSAGE = errors.UNEXPECTED_LOGGED
# The same error at the same place is logged once in this time, with the number of its repetitions.
LOG_EVERY_SECONDS = 600.0
ERRORS_MAX = 256
SUBJECTS_MAX = 4096
PAUSE_FIRST_SECONDS = 1.0
PAUSE_MAX_SECONDS = 60.0
# A loop that has run for this long counts as recovered.
STEADY_SECONDS = 30.0
# A loop that fails for longer makes the daemon not ready.
PATIENCE_SECONDS = 60.0

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
Extra = Callable[[], Mapping[str, object]]
"""Return the extras of a piece of work in the log."""
Expected = type[Exception] | tuple[type[Exception], ...]
Report = Callable[[str], None]
"""Show a sentence on an object."""


def sentence(error: BaseException) -> str:
    """Return an unexpected error as a sentence for the user of an object, without the error's own words."""
    kind = type(_first(error)).__name__
    return (
        f"Drawbar failed unexpectedly ({kind}) and keeps retrying; look for '{MESSAGE}' in the log of the pod that reports "
        "this, and send it to Drawbar's maintainers"
    )


class Attempt:
    """One piece of work, used as a context: an unexpected error ends the work and does not reach the caller.

    Attributes:
        failure: the error as a sentence for people; empty without one.
    """

    __slots__ = ("_contained", "_ends", "_expected", "_extra", "_report", "_subject", "_worker", "failure")

    def __init__(
        self,
        contained: "Containment",
        worker: str,
        subject: Hashable = "",
        extra: Extra | None = None,
        report: Report | None = None,
        *,
        expected: Expected = (),
        ends: bool = False,
    ) -> None:
        self._contained = contained
        self._worker = worker
        self._subject = subject
        self._extra = extra
        self._report = report
        # Whether an error that ends the daemon passes.
        self._ends = ends
        self._expected = expected
        self.failure = ""

    def __enter__(self) -> Self:
        self.failure = ""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if error is None or isinstance(error, self._expected):
            self._contained.settle(self._worker, self._subject)
            return False
        if not self._contained.contains(error) or (self._ends and _ends_daemon(error)):
            return False
        self.failure = sentence(error)
        extra: Mapping[str, object] = {}
        # The code that describes and shows the error may have the same defect.
        with Attempt(self._contained, f"{self._worker}-report", self._subject):
            extra = self._extra() if self._extra is not None else {}
        is_first = self._contained.note(self._worker, self._subject, error, extra)
        if is_first and self._report is not None:
            with Attempt(self._contained, f"{self._worker}-report", self._subject):
                self._report(self.failure)
        return True


@dataclass(slots=True)
class _LastLog:
    """The time of the last log of an error, and the number of its repetitions since."""

    logged_at: float
    repeated: int = 0


class Containment:
    """The unexpected errors of one daemon.

    A worker is a kind of work and a label of metrics, so there are few of them. A subject is the object of one piece
    of work: the key of an object; empty for the worker as a whole.

    Args:
        clock: returns steady seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._counts: dict[str, int] = {}
        # The time of the first failure, the oldest first.
        self._failing: OrderedDict[tuple[str, Hashable], float] = OrderedDict()
        self._last_logs: OrderedDict[tuple[str, str, str], _LastLog] = OrderedDict()

    # Metrics and probes.

    def counts(self) -> dict[str, float]:
        """Return by worker how many unexpected errors there were."""
        return {worker: float(count) for worker, count in self._counts.items()}

    def count_failing(self) -> dict[str, float]:
        """Return by worker how many pieces of work ended in an unexpected error the last time that they were tried."""
        failing = dict.fromkeys(self._counts, 0.0)
        for worker, _ in self._failing:
            failing[worker] += 1.0
        return failing

    def details(self) -> dict[str, object]:
        """Return for the probes which workers fail, and for how many objects."""
        failing = {worker: int(number) for worker, number in self.count_failing().items() if number}
        return {"failing": failing} if failing else {}

    def find_missing(self) -> str | None:
        """Return a clause if a whole worker has failed for `PATIENCE_SECONDS`; None if all work, if not on every object."""
        now = self._clock()
        broken = sorted(
            worker
            for (worker, subject), since in self._failing.items()
            if subject == "" and now - since >= PATIENCE_SECONDS
        )
        return f"{', '.join(broken)} failed unexpectedly: look for '{MESSAGE}' in the log" if broken else None

    # Work.

    def attempt(
        self,
        worker: str,
        subject: Hashable = "",
        *,
        extra: Extra | None = None,
        report: Report | None = None,
        expected: Expected = (),
    ) -> Attempt:
        """Return the context of one piece of work.

        Args:
            worker: see the class.
            subject: see the class.
            extra: describes it in the log.
            report: shows the error; called for the first of several in a row.
            expected: errors that reach the caller.
        """
        self._counts.setdefault(worker, 0)
        return Attempt(self, worker, subject, extra, report, expected=expected)

    def start(
        self,
        tasks: asyncio.TaskGroup,
        worker: str,
        run: Callable[[], Coroutine[Any, Any, None]],
        *,
        subject: str = "",
    ) -> asyncio.Task[None]:
        """Start `keep` as a task of the group."""
        kept = self.keep(worker, run, subject=subject)
        return tasks.create_task(kept, name=f"{worker}-{subject}" if subject else worker)

    async def keep(
        self,
        worker: str,
        run: Callable[[], Coroutine[Any, Any, None]],
        *,
        subject: str = "",
        failed: Report | None = None,
        report: Report | None = None,
    ) -> None:
        """Run a loop until it returns, and begin it again after an unexpected error.

        Args:
            worker: see the class.
            run: makes the loop; called for each run.
            subject: see the class.
            failed: called with each error.
            report: shows the error; called for the first of several in a row.

        Raises:
            errors.DrawbarError: the loop ended with one that is to end the daemon.
        """
        pauses, loop = backoff.Backoff(PAUSE_FIRST_SECONDS, PAUSE_MAX_SECONDS), asyncio.get_running_loop()
        try:
            while True:
                began = loop.time()
                steady = loop.call_later(STEADY_SECONDS, self.settle, worker, subject)
                self._counts.setdefault(worker, 0)
                attempt = Attempt(
                    self, worker, subject, lambda: {"object": subject} if subject else {}, report, ends=True
                )
                with attempt:
                    try:
                        await _run_in_own_task(run, f"{worker}-run")
                    finally:
                        steady.cancel()
                _raise_if_cancelled()
                if not attempt.failure:
                    return
                if failed is not None:
                    with Attempt(self, f"{worker}-report", subject):
                        failed(attempt.failure)
                if loop.time() - began >= STEADY_SECONDS:
                    pauses.reset()
                await asyncio.sleep(pauses.count_failure())
        finally:
            self.settle(worker, subject)

    @contextlib.contextmanager
    def callbacks(self) -> Iterator[None]:
        """Count and log, while the context lasts, the errors of the event loop's callbacks and of tasks without an owner."""
        loop = asyncio.get_running_loop()
        before = loop.get_exception_handler()
        loop.set_exception_handler(self._note_callback)
        try:
            yield
        finally:
            loop.set_exception_handler(before)

    def _note_callback(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, Exception) or not self.contains(error):
            loop.default_exception_handler(context)
            return
        self._count("callbacks", error, {"about": context["message"]})

    # How an attempt ended.

    def contains(self, error: BaseException) -> bool:
        """Return whether an error is kept from the caller of the work: unexpected, and no reason to end the process."""
        if isinstance(error, asyncio.CancelledError):
            task = asyncio.current_task()
            return task is not None and not task.cancelling()
        return isinstance(error, Exception) and not any(
            isinstance(leaf, MemoryError) for leaf in errors.find_leaves(error)
        )

    def settle(self, worker: str, subject: Hashable = "") -> None:
        """Note that a piece of work does not fail, or is no more."""
        if self._failing:
            self._failing.pop((worker, subject), None)

    def note(self, worker: str, subject: Hashable, error: BaseException, extra: Mapping[str, object]) -> bool:
        """Count and log an unexpected error; return whether it is the first in a row of this piece of work."""
        now = self._clock()
        self._count(worker, error, extra)
        if (worker, subject) in self._failing:
            return False
        self._failing[worker, subject] = now
        if len(self._failing) > SUBJECTS_MAX:
            self._failing.popitem(last=False)
        return True

    def _count(self, worker: str, error: BaseException, extra: Mapping[str, object]) -> None:
        self._counts[worker] = self._counts.get(worker, 0) + 1
        self._log(worker, _first(error), extra, self._clock())

    def _log(self, worker: str, error: BaseException, extra: Mapping[str, object], now: float) -> None:
        frames = traceback.extract_tb(error.__traceback__, limit=-1)
        where = f"{frames[0].filename}:{frames[0].lineno}" if frames else ""
        key = (worker, type(error).__name__, where)
        earlier = self._last_logs.get(key)
        if earlier is not None and now - earlier.logged_at < LOG_EVERY_SECONDS:
            earlier.repeated += 1
            return
        repeated = {"repeated": earlier.repeated} if earlier is not None else {}
        self._last_logs[key] = _LastLog(now)
        self._last_logs.move_to_end(key)
        if len(self._last_logs) > ERRORS_MAX:
            self._last_logs.popitem(last=False)
        log.error(MESSAGE, exc_info=error, extra={"worker": worker, **extra, **repeated})


class Uncontained(Containment):
    """A containment for code outside a daemon: every error reaches the caller."""

    def contains(self, error: BaseException) -> bool:
        """Return False."""
        del error
        return False


@dataclass(slots=True)
class _Callback:
    """A callback that failed, until it is called again."""

    pauses: backoff.Backoff
    timer: asyncio.TimerHandle | None = None


@dataclass(slots=True, eq=False)
class Callbacks(Generic[K]):
    """Calls that report changes to others. A failed call is repeated after a back-off; the others go on.

    A later call with the same key replaces a failed one.
    """

    contained: Containment
    worker: str
    _failed: dict[K, _Callback] = field(default_factory=dict)
    # The last reported state by key, until a later one is reported.
    _delivered: dict[K, object] = field(default_factory=dict)

    def call(
        self,
        key: K,
        callback: Callable[[], None],
        *,
        extra: Extra | None = None,
        report: Report | None = None,
    ) -> bool:
        """Call now, and again until it succeeds; return whether it did now."""

        def again() -> None:
            self.call(key, callback, extra=extra, report=report)

        return self._attempt(key, callback, again, extra, report)

    def tell(
        self,
        key: K,
        changed: Callable[[T | None, T | None], None],
        old: T | None,
        new: T | None,
        *,
        extra: Extra | None = None,
        report: Report | None = None,
    ) -> None:
        """Call `changed` with the state that was reported last, and the new one; None where there is none."""
        delivered: Any = self._delivered.pop(key, old)

        def callback() -> None:
            if delivered is not None or new is not None:
                changed(delivered, new)

        def again() -> None:
            self.tell(key, changed, delivered, new, extra=extra, report=report)

        if not self._attempt(key, callback, again, extra, report):
            self._delivered[key] = delivered

    def _attempt(
        self,
        key: K,
        callback: Callable[[], None],
        again: Callable[[], None],
        extra: Extra | None,
        report: Report | None,
    ) -> bool:
        before = self._failed.pop(key, None)
        if before is not None and before.timer is not None:
            before.timer.cancel()
        with self.contained.attempt(self.worker, key, extra=extra, report=report) as attempt:
            callback()
        if not attempt.failure:
            return True
        failed = before or _Callback(backoff.Backoff(PAUSE_FIRST_SECONDS, PAUSE_MAX_SECONDS))
        failed.timer = asyncio.get_running_loop().call_later(failed.pauses.count_failure(), again)
        self._failed[key] = failed
        return False

    def close(self) -> None:
        """Forget the failed calls."""
        for key, failed in self._failed.items():
            if failed.timer is not None:
                failed.timer.cancel()
            self.contained.settle(self.worker, key)
        self._failed.clear()
        self._delivered.clear()


class _StrayCancellation(Exception):
    """A task ended as cancelled, though it was not cancelled itself."""


async def _run_in_own_task(run: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
    """Run in a task of its own: task groups of foreign code may cancel the task that they were entered in.

    Raises:
        _StrayCancellation: that task ended as cancelled, and this one is not.
    """
    running = asyncio.get_running_loop().create_task(run(), name=name)
    try:
        await asyncio.wait({running})
    finally:
        if not running.done():
            running.cancel()
            await asyncio.wait({running})
        if not running.cancelled():
            # Including an error after a cancellation.
            running.result()
    if running.cancelled():
        raise _StrayCancellation(name)


def _raise_if_cancelled() -> None:
    """Raise the cancellation that an error at the end of a loop took the place of."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def _ends_daemon(error: BaseException) -> bool:
    return all(
        isinstance(leaf, errors.DrawbarError) and leaf.ends_daemon for leaf in errors.find_leaves(error)
    )


def _first(error: BaseException) -> BaseException:
    """Return the first unexpected error in a group."""
    leaves = tuple(errors.find_leaves(error))
    return next((leaf for leaf in leaves if not isinstance(leaf, errors.DrawbarError)), leaves[0])
