"""The policy of pauses and repetitions, for the whole program; the strategies and loops are tenacity's.

The pause doubles with each failure in a row up to a bound, and is jittered: between half of it and the whole. Whoever was
refused together does not come back together, and no attempt follows at once.

A call that is made again until it succeeds is a loop of `repeating`. `Backoff` gives the pauses of everything else: keys of a
queue, watches that end, plans that name a time.
"""

import asyncio
import logging
import random
from collections.abc import Callable

import tenacity

# Of what follows the API server, unless the caller says otherwise.
FIRST_SECONDS = 0.2
MAX_SECONDS = 30.0
# A watch that lived this long did its work, however it ended.
HEALTHY_SECONDS = 5.0
# Beyond this many doublings every pause has long reached its bound.
DOUBLINGS_MAX = 16

_NOTHING = tenacity.Retrying()


def longest(failures: int, first_seconds: float, max_seconds: float) -> float:
    """Return the pause in seconds after so many failures in a row, 1 or more, without jitter."""
    state = tenacity.RetryCallState(_NOTHING, None, (), {})
    state.attempt_number = min(max(failures, 1), DOUBLINGS_MAX + 1)
    return tenacity.wait_exponential(multiplier=first_seconds, max=max_seconds)(state)


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
        """Return the pause in seconds after a watch that lived so long; the server may have asked for a pause.

        Many clients are asked for the same one, so it is lengthened by up to a half.
        """
        asked = min(asked_seconds, self._max_seconds) * self._uniform(1.0, 1.5)
        if lived_seconds >= HEALTHY_SECONDS:
            self.reset()
            return asked
        return max(self.failed(), asked)


def repeating(
    *retried: type[Exception],
    unless: tuple[type[Exception], ...] = (),
    first_seconds: float = FIRST_SECONDS,
    max_seconds: float = MAX_SECONDS,
    tries: int | None = None,
    noted: Callable[[Exception], None] = lambda _: None,
) -> tenacity.AsyncRetrying:
    """Return the loop of a call that is made again after a failure; call it, or write `async for attempt` and `with attempt`.

    The pause is at least the `retry_after_seconds` of the failure, within the bound.

    Args:
        retried: the failures after which the call is made again; any other one is raised.
        unless: of these failures, those that are raised.
        first_seconds: the longest pause after one failure.
        max_seconds: the longest of all.
        tries: how many calls there are at most, after which the failure is raised; None: without a bound, for a loop that ends
            with its task.
        noted: called with each failure before its pause.
    """
    pauses = Backoff(first_seconds, max_seconds)

    def wait(state: tenacity.RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome is not None else None
        return pauses.ended(0.0, float(getattr(error, "retry_after_seconds", 0.0)))

    def before_sleep(state: tenacity.RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome is not None else None
        if isinstance(error, Exception):
            noted(error)

    return tenacity.AsyncRetrying(
        sleep=asyncio.sleep,
        retry=tenacity.retry_if_exception(
            lambda error: isinstance(error, retried) and not isinstance(error, unless)
        ),
        wait=wait,
        stop=tenacity.stop_after_attempt(tries) if tries is not None else tenacity.stop_never,
        before_sleep=before_sleep,
        reraise=True,
    )


def warning_once(log: logging.Logger, text: str) -> Callable[[Exception], None]:
    """Return what logs each new failure in a row once, as a warning: `text` has one `%s` for it."""
    last = ""

    def note(error: Exception) -> None:
        nonlocal last
        if str(error) != last:
            last = str(error)
            log.warning(text, error)

    return note
