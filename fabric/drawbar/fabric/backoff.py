"""The policy of pauses and retries of every component, built on tenacity.

The pause doubles with each failure in a row up to a bound. It is jittered between half of it and the whole, so that
clients with a common failure do not return together. `drawbar.driver.backoff` adds the bounds for the API server.
"""

import asyncio
import random
from collections.abc import Callable

import tenacity

# With this many doublings every pause has reached its bound.
DOUBLINGS_MAX = 16

_NOTHING = tenacity.Retrying()


def longest(failures: int, first_seconds: float, max_seconds: float) -> float:
    """Return the pause in seconds after so many failures in a row, 1 or more, without jitter."""
    state = tenacity.RetryCallState(_NOTHING, None, (), {})
    state.attempt_number = min(max(failures, 1), DOUBLINGS_MAX + 1)
    return tenacity.wait_exponential(multiplier=first_seconds, max=max_seconds)(state)


class Backoff:
    """The pauses of a repeated attempt.

    Args:
        first_seconds: the longest pause after one failure.
        max_seconds: the longest pause of all.
        uniform: returns a random number between two bounds.
    """

    def __init__(
        self,
        first_seconds: float,
        max_seconds: float,
        *,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._first_seconds = first_seconds
        self._max_seconds = max_seconds
        self._uniform = uniform
        self._failures = 0

    def reset(self) -> None:
        """Begin again with the first pause, after a success."""
        self._failures = 0

    def count_failure(self, asked_seconds: float = 0.0) -> float:
        """Count a failure; return the pause in seconds, which is at least `asked_seconds` within the bound."""
        self._failures = min(self._failures + 1, DOUBLINGS_MAX + 1)
        own = longest(self._failures, self._first_seconds, self._max_seconds) * self._uniform(0.5, 1.0)
        return max(own, self._spread(asked_seconds))

    def _spread(self, asked_seconds: float) -> float:
        # Many clients are asked for the same pause, so it is lengthened by up to a half.
        return min(asked_seconds, self._max_seconds) * self._uniform(1.0, 1.5)


def build_retrying(
    is_retried: Callable[[BaseException], bool],
    pauses: Backoff | None,
    *,
    tries: int | None = None,
    noted: Callable[[Exception], None] = lambda _: None,
) -> tenacity.AsyncRetrying:
    """Return the loop of a call that is repeated after a failure.

    Call it, or write `async for attempt` and `with attempt`.

    Args:
        is_retried: returns whether the call is repeated after this failure; if not, the failure is raised.
        pauses: the pauses between two calls, each at least the `retry_after_seconds` of the failure; None for no
            pause.
        tries: the most calls before the failure is raised; None for no limit.
        noted: called with each failure before its pause.
    """

    def wait(state: tenacity.RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome is not None else None
        return (
            pauses.count_failure(float(getattr(error, "retry_after_seconds", 0.0)))
            if pauses is not None
            else 0.0
        )

    def before_sleep(state: tenacity.RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome is not None else None
        if isinstance(error, Exception):
            noted(error)

    return tenacity.AsyncRetrying(
        sleep=asyncio.sleep,
        retry=tenacity.retry_if_exception(is_retried),
        wait=wait,
        stop=tenacity.stop_after_attempt(tries) if tries is not None else tenacity.stop_never,
        before_sleep=before_sleep,
        reraise=True,
    )
