"""The recent rate of an act, and the time of its next permitted repetition; pure.

The acts are kept in memory only: a new leader counts from zero. They are bounded: a key without an act within the
window is dropped, and of more than `KEYS_MAX` keys the one with the oldest last act goes. The waiters are bounded by
their objects.
"""

import datetime
from collections import OrderedDict, deque
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
W = TypeVar("W", bound=Hashable)

KEYS_MAX = 8192
ACTS_MAX = 1000
"""The most acts of one key that are kept: the largest limit of a policy."""
LATE = datetime.timedelta(seconds=5)


class Rate(Generic[K]):
    """The acts of each key within a sliding window, on the caller's steady clock."""

    def __init__(self, window: datetime.timedelta) -> None:
        self._window = window
        # The key with the latest act is the last.
        self._acts: OrderedDict[K, deque[datetime.datetime]] = OrderedDict()

    def add(self, key: K, now: datetime.datetime) -> None:
        """Count one act."""
        self._acts.setdefault(key, deque(maxlen=ACTS_MAX)).append(now)
        self._acts.move_to_end(key)
        while self._acts:
            oldest, acts = next(iter(self._acts.items()))
            if acts[-1] > now - self._window and len(self._acts) <= KEYS_MAX:
                break
            del self._acts[oldest]

    def free_at(
        self, key: K, limit: int, now: datetime.datetime, *, ahead: int = 0
    ) -> datetime.datetime | None:
        """Return when one more act is within the limit again, or None if it is now.

        Args:
            key: the key of the acts.
            limit: the most acts in a window, at most `ACTS_MAX`.
            now: as for `add`.
            ahead: the number of other acts that come first, each as early as it may.
        """
        acts = self._acts.get(key, ())
        windows, place = divmod(ahead, limit)
        # Each of those ahead is due one window after an act, or at once.
        number = len(acts) - limit + place
        moment = (acts[number] if number >= 0 else now - self._window) + self._window
        moment = max(moment, now) + windows * self._window
        return moment if moment > now else None

    def find_exhausted(self, limit: int, now: datetime.datetime) -> dict[K, datetime.datetime]:
        """Return the keys without room for one more act, each with the time when there is room."""
        moments = {key: self.free_at(key, limit, now) for key in self._acts}
        return {key: moment for key, moment in moments.items() if moment is not None}


class Line(Generic[K, W]):
    """A limited rate with waiters. Those of a key come one after another, in the order in which they asked.

    Each waiter has a moment of its own, so that they do not all come when there is room for one.

    Attributes:
        acts: the acts of each key.
    """

    def __init__(self, window: datetime.timedelta) -> None:
        self.acts: Rate[K] = Rate(window)
        # By key, in the order of their first questions: the waiters and their moments.
        self._waiting: dict[K, OrderedDict[W, datetime.datetime]] = {}

    def find_turn(self, key: K, waiter: W, limit: int, now: datetime.datetime) -> datetime.datetime | None:
        """Return when the waiter's act is within the limit, or None if it is now.

        A waiter that does not come within `LATE` of its moment loses its place.

        Args:
            key: as for `Rate.free_at`.
            waiter: one waiter at a time of all keys.
            limit: as for `Rate.free_at`.
            now: as for `Rate.free_at`.
        """
        waiting = self._waiting.get(key, OrderedDict())
        while waiting:
            first, moment_of_first = next(iter(waiting.items()))
            if first == waiter or moment_of_first + LATE > now:
                break
            del waiting[first]
        ahead = next((place for place, each in enumerate(waiting) if each == waiter), len(waiting))
        moment = self.acts.free_at(key, limit, now, ahead=ahead)
        if moment is not None:
            waiting[waiter] = moment
            self._waiting[key] = waiting
        elif not waiting:
            self._waiting.pop(key, None)
        return moment

    def act(self, key: K, waiter: W, now: datetime.datetime) -> None:
        """Count an act of the waiter, which waits no longer."""
        self.leave(waiter)
        self.acts.add(key, now)

    def leave(self, waiter: W) -> None:
        """Give the waiter's place up."""
        for key in [key for key, waiting in self._waiting.items() if waiter in waiting]:
            del self._waiting[key][waiter]
            if not self._waiting[key]:
                del self._waiting[key]
