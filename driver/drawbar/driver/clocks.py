"""The two clocks of a daemon.

Spans (deadlines, probations, graces) are measured on the *steady* clock, which no step of the system time moves.
Dates for people or other programs (conditions, taints, Events) come from the *time of day*. A steady moment is a
datetime of the year 1970 or shortly after, so a steady moment that is written by mistake is noticed at once.
"""

import asyncio
import datetime
import time
from collections.abc import Callable

Clock = Callable[[], datetime.datetime]


def steady() -> datetime.datetime:
    """Return the moment on the machine's monotonic clock; only differences between two of them mean something."""
    return datetime.datetime.fromtimestamp(time.monotonic(), datetime.UTC)


def time_of_day() -> datetime.datetime:
    """Return the date and time in UTC, as the system clock gives it."""
    return datetime.datetime.now(datetime.UTC)


def loop_seconds() -> float:
    """Return the seconds on the running event loop's clock."""
    return asyncio.get_running_loop().time()


class Step:
    """The steps of the system time, as one process sees them."""

    # The clocks' drift between two readings is smaller.
    TOLERANCE = datetime.timedelta(seconds=1)

    def __init__(self) -> None:
        self._difference: datetime.timedelta | None = None

    def measure(self, date: datetime.datetime, now: datetime.datetime) -> datetime.timedelta:
        """Return by how much the time of day was set since the last call; zero where it only drifted.

        Args:
            date: the time of day.
            now: the same moment on the steady clock.
        """
        difference = date - now
        before, self._difference = self._difference, difference
        step = difference - before if before is not None else datetime.timedelta()
        return step if abs(step) > self.TOLERANCE else datetime.timedelta()
