"""The pauses for retries against the API server, by the policy of `drawbar.fabric.backoff`.

A call that is repeated until it succeeds is a loop of `repeating`. `Backoff` gives all other pauses: for keys of a
queue, for watches that end, and for plans with a time.
"""

import logging
import random
from collections.abc import Callable

import tenacity

from drawbar.fabric import backoff

FIRST_SECONDS = 0.2
MAX_SECONDS = 30.0
# A watch that lived this long counts as a success.
HEALTHY_SECONDS = 5.0

longest = backoff.longest


class Backoff(backoff.Backoff):
    """The pauses of a repeated attempt, or of one watch."""

    def __init__(
        self,
        first_seconds: float = FIRST_SECONDS,
        max_seconds: float = MAX_SECONDS,
        *,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        super().__init__(first_seconds, max_seconds, uniform=uniform)

    def compute_pause(self, lived_seconds: float, asked_seconds: float = 0.0) -> float:
        """Return the pause in seconds after a watch that lived so long; the server may have asked for a pause."""
        if lived_seconds >= HEALTHY_SECONDS:
            self.reset()
            return self._spread(asked_seconds)
        return self.count_failure(asked_seconds)


def build_retrying(
    *retried: type[Exception],
    unless: tuple[type[Exception], ...] = (),
    first_seconds: float = FIRST_SECONDS,
    max_seconds: float = MAX_SECONDS,
    tries: int | None = None,
    noted: Callable[[Exception], None] = lambda _: None,
) -> tenacity.AsyncRetrying:
    """Return the loop of a call that is made again after one of these failures; see `drawbar.fabric.backoff.build_retrying`.

    Args:
        retried: the failures after which the call is made again.
        unless: of these failures, those that are raised.
        first_seconds: the longest pause after one failure.
        max_seconds: the longest pause of all.
        tries: the most calls; None for a loop that ends with its task.
        noted: called with each failure before its pause.
    """
    return backoff.build_retrying(
        lambda error: isinstance(error, retried) and not isinstance(error, unless),
        Backoff(first_seconds, max_seconds),
        tries=tries,
        noted=noted,
    )


def warning_once(log: logging.Logger, text: str) -> Callable[[Exception], None]:
    """Return a function that logs a failure as a warning unless it equals the last one. `text` has one `%s` for it."""
    last = ""

    def note(error: Exception) -> None:
        nonlocal last
        if str(error) != last:
            last = str(error)
            log.warning(text, error)

    return note
