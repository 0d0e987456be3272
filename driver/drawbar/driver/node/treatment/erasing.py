"""Erases the user's data of one device, in a thread of its own, for that may take hours.

A daemon that is killed meanwhile forgets its progress, and the device is erased again: twice is the same as once.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from drawbar.driver import backoff
from drawbar.driver.node import errors
from drawbar.driver.node.classes.generic import Eraser

AGAIN_SECONDS = 5.0
AGAIN_MAX_SECONDS = 300.0
"""An erase that failed is begun again after the first of these, and after twice as long each further time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotStarted:
    """Not started, or ready to be retried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """Under way.

    Attributes:
        progress: in a clause.
        seconds: the time since its start.
    """

    progress: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """Ended early, and too soon to be retried.

    Attributes:
        why: one sentence with the remedy.
    """

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """Nothing is left of the user's data."""


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
        """Note that nothing is to be erased: the device showed that while it had its driver, and shows nothing without it."""
        with self._lock:
            self._done = self._progress is None

    def begin(self, name: str, eraser: Eraser) -> None:
        """Begin to erase, unless that is under way or done."""
        with self._lock:
            if self._progress is not None or self._done:
                return
            self._progress, self._since = f"erasing {name}", self._clock()
        # No pool's thread: a pool waits for all of them when the daemon stops.
        threading.Thread(target=self._run, args=(eraser,), name=f"erase: {name}", daemon=True).start()

    def _run(self, eraser: Eraser) -> None:
        why = ""
        try:
            eraser(self._report)
        except errors.NotCleaned as unclean:
            why = str(unclean)
        except Exception as error:  # noqa: BLE001 - not swallowed: it is what the condition reports, and the device stays
            why = (
                f"erasing failed in a way that was not foreseen: {error!r}; report this with the daemon's log"
            )
        with self._lock:
            self._progress, self._since, self._why, self._done = None, self._clock(), why, not why
            self._failures += bool(why)

    def _report(self, progress: str) -> None:
        with self._lock:
            self._progress = progress
