"""The pauses between attempts, for the whole program.

The pause doubles with each failure in a row up to a bound, and is jittered: between half of it and the whole. Whoever was
refused together does not come back together, and no attempt follows at once.

tenacity has the same formula for a call that is repeated until it succeeds. Nearly everything here is something else: keys
of a queue, watches that end, plans that name a time.
"""

import random
from collections.abc import Callable

# Of what follows the API server, unless the caller says otherwise.
FIRST_SECONDS = 0.2
MAX_SECONDS = 30.0
# A watch that lived this long did its work, however it ended.
HEALTHY_SECONDS = 5.0
# Beyond this many doublings every pause has long reached its bound.
DOUBLINGS_MAX = 16


def longest(failures: int, first_seconds: float, max_seconds: float) -> float:
    """Return the pause in seconds after so many failures in a row, 1 or more, without jitter."""
    return min(max_seconds, first_seconds * 2.0 ** min(max(failures - 1, 0), DOUBLINGS_MAX))


class Backoff:
    """The pauses of one thing that is tried again and again.

    Args:
        first_seconds: the longest pause after one failure.
        max_seconds: the longest of all.
        uniform: gives a random number between two bounds.
    """

    def __init__(
        self,
        first_seconds: float = FIRST_SECONDS,
        max_seconds: float = MAX_SECONDS,
        *,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._first_seconds = first_seconds
        self._max_seconds = max_seconds
        self._uniform = uniform
        self._failures = 0

    def reset(self) -> None:
        """Start anew, after a success."""
        self._failures = 0

    def failed(self) -> float:
        """Count a failure; return the pause in seconds."""
        self._failures = min(self._failures + 1, DOUBLINGS_MAX + 1)
        return longest(self._failures, self._first_seconds, self._max_seconds) * self._uniform(0.5, 1.0)

    def ended(self, lived_seconds: float, asked_seconds: float = 0.0) -> float:
        """Return the pause in seconds after a watch that lived so long; the server may have asked for a pause."""
        asked = min(asked_seconds, self._max_seconds)
        if lived_seconds >= HEALTHY_SECONDS:
            self.reset()
            return asked
        return max(self.failed(), asked)
