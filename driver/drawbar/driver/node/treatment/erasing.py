"""The erasing of one device's data, in a thread of its own, because it may take hours.

If the daemon is killed meanwhile, the progress is lost and the device is erased again. To erase it twice does no harm.
"""

import threading
import time
from collections.abc import Callable

import msgspec

from drawbar.driver import backoff
from drawbar.driver.node import errors
from drawbar.driver.node.classes.generic import Eraser

AGAIN_SECONDS = 5.0
AGAIN_MAX_SECONDS = 300.0
"""The first pause before a failed erase is retried, and the limit of the pause, which doubles with each failure."""


class NotStarted(msgspec.Struct, frozen=True, kw_only=True):
    """An erasing that has not started, or may be retried."""


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """An erasing in progress.

    Attributes:
        progress: the progress, in a clause.
        seconds: the time since the start, in seconds.
    """

    progress: str
    seconds: float


class Failed(msgspec.Struct, frozen=True, kw_only=True):
    """A failed erasing, before its next attempt.

    Attributes:
        why: the failure and the remedy, in one sentence.
    """

    why: str


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """A completed erasing: the device has no data of its user."""


State = NotStarted | Running | Failed | Done


class Erasure:
    """The erasing of one device after one use; safe to use from any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._progress: str | None = None
        self._done = False
        self._why = ""
        self._failures = 0
        self._since = 0.0

    def state(self) -> State:
        """Return the current state."""
        with self._lock:
            passed = self._clock() - self._since
            if self._progress is not None:
                return Running(progress=self._progress, seconds=passed)
            if self._done:
                return Done()
            if self._why and passed < backoff.longest(self._failures, AGAIN_SECONDS, AGAIN_MAX_SECONDS):
                return Failed(why=self._why)
            return NotStarted()

    def skip(self) -> None:
        """Note that there is nothing to erase; without its driver, the device can no longer show that."""
        with self._lock:
            self._done = self._progress is None

    def begin(self, name: str, eraser: Eraser) -> None:
        """Begin to erase, unless the erasing is in progress or complete."""
        with self._lock:
            if self._progress is not None or self._done:
                return
            self._progress, self._since = f"erasing {name}", self._clock()
        # No thread of a pool: a pool waits for all its threads when the daemon stops.
        threading.Thread(target=self._run, args=(eraser,), name=f"erase: {name}", daemon=True).start()

    def _run(self, eraser: Eraser) -> None:
        why = ""
        try:
            eraser(self._report)
        except errors.NotCleaned as unclean:
            why = str(unclean)
        except Exception as error:  # noqa: BLE001 - not swallowed: the condition reports it, and the device stays
            why = (
                f"erasing failed in a way that was not foreseen: {error!r}; report this with the daemon's log"
            )
        with self._lock:
            self._progress, self._since, self._why, self._done = None, self._clock(), why, not why
            self._failures += bool(why)

    def _report(self, progress: str) -> None:
        with self._lock:
            self._progress = progress
