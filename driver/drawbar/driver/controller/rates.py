"""The recent rate of an act, and the time of its next permitted repetition; pure.

The acts are kept in memory only: a new leader counts from zero. They are bounded: a key without an act within the
window is dropped, and of more than `KEYS_MAX` keys the one with the oldest last act goes.
"""

import datetime
from collections import OrderedDict, deque
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

KEYS_MAX = 8192
ACTS_MAX = 1000
"""The most acts of one key that are kept: the largest limit of a policy."""


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

    def free_at(self, key: K, limit: int, now: datetime.datetime) -> datetime.datetime | None:
        """Return when one more act is within the limit again, or None if it is now.

        Args:
            key: the key of the acts.
            limit: the most acts in a window, at most `ACTS_MAX`.
            now: as for `add`.
        """
        acts = self._acts.get(key)
        if acts is None or len(acts) < limit:
            return None
        moment = acts[-limit] + self._window
        return moment if moment > now else None

    def find_exhausted(self, limit: int, now: datetime.datetime) -> dict[K, datetime.datetime]:
        """Return the keys without room for one more act, each with the time when there is room."""
        moments = {key: self.free_at(key, limit, now) for key in self._acts}
        return {key: moment for key, moment in moments.items() if moment is not None}
