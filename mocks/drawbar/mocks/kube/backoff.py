"""The growing pauses between two attempts."""

import random
from collections.abc import Callable

DOUBLINGS_MAX = 16


def longest(failures: int, first_seconds: float, max_seconds: float) -> float:
    """Return the pause in seconds after so many failures in a row, at least one, without jitter."""
    return min(max_seconds, first_seconds * 2.0 ** min(max(failures, 1) - 1, DOUBLINGS_MAX))


class Backoff:
    """The pauses of a repeated attempt, jittered between half and the whole.

    Args:
        first_seconds: the longest pause after one failure.
        max_seconds: the longest pause of all.
        uniform: returns a random number between two bounds.
    """

    def __init__(
        self,
        first_seconds: float = 0.2,
        max_seconds: float = 30.0,
        *,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._first_seconds, self._max_seconds, self._uniform = first_seconds, max_seconds, uniform
        self._failures = 0

    def reset(self) -> None:
        """Begin again with the first pause."""
        self._failures = 0

    def count_failure(self, asked_seconds: float = 0.0) -> float:
        """Count a failure; return the pause in seconds, at least `asked_seconds` within the bound."""
        self._failures += 1
        own = longest(self._failures, self._first_seconds, self._max_seconds) * self._uniform(0.5, 1.0)
        return max(own, min(asked_seconds, self._max_seconds))
