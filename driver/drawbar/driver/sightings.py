"""The time at which this process first saw a state of an object.

Deadlines count from there. The timestamps in objects come from other machines, whose clocks may differ by minutes. A
state from before the start of this process counts from its start. The memory is bounded by the objects, for `see(key,
None)` forgets one, or by a limit.
"""

import datetime
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Sightings(Generic[K]):
    """The current state of each object and the time of its first sighting, on the caller's steady clock.

    Args:
        limit: the most objects; beyond it, the oldest sighting is forgotten.
    """

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit
        self._seen: dict[K, tuple[Hashable, datetime.datetime]] = {}

    def see(self, key: K, state: Hashable | None, now: datetime.datetime) -> None:
        """Note the state of an object; a state other than the last one counts from now, None is forgotten."""
        if state is None:
            self.forget(key)
        elif key not in self._seen or self._seen[key][0] != state:
            self._seen[key] = (state, now)
            if self._limit is not None and len(self._seen) > self._limit:
                del self._seen[next(iter(self._seen))]

    def forget(self, key: K) -> None:
        """Forget the object."""
        self._seen.pop(key, None)

    def has(self, key: K, state: Hashable) -> bool:
        """Return whether the object was last seen in this state."""
        return key in self._seen and self._seen[key][0] == state

    def since(self, key: K) -> datetime.datetime | None:
        """Return when the object's state was first seen; None for an object without one."""
        seen = self._seen.get(key)
        return seen[1] if seen is not None else None
