"""How long to wait before the local pool is written again.

A failed round comes back after a pause that grows with the failures in a row. A change by somebody else, such as the
wipe of a kubelet that starts, is answered at once; if it happens again soon after, then after a growing pause: two
writers who disagree must not chase each other.
"""

import random

from drawbar.driver import backoff

FAILED_FIRST_SECONDS = 0.2
FAILED_MAX_SECONDS = 60.0
DISTURBED_FIRST_SECONDS = 0.5
DISTURBED_MAX_SECONDS = 30.0
# A kubelet wipes once per start; more often than this is somebody who disagrees.
CALM_SECONDS = 60.0


class Pace:
    """The pauses of one publisher; times are seconds of a clock that only goes forward."""

    def __init__(self, *, jitter: random.Random) -> None:
        self._failures = backoff.Backoff(FAILED_FIRST_SECONDS, FAILED_MAX_SECONDS, uniform=jitter.uniform)
        self._disturbances = backoff.Backoff(
            DISTURBED_FIRST_SECONDS, DISTURBED_MAX_SECONDS, uniform=jitter.uniform
        )
        self._pause = 0.0
        self._disturbed_at = float("-inf")
        self._counted_at = float("-inf")

    def succeeded(self) -> None:
        """A round went through."""
        self._failures.reset()

    def failed(self) -> float:
        """A round failed; gives the pause in seconds."""
        return self._failures.failed()

    def disturbed(self, now: float) -> None:
        """Somebody else deleted or changed a slice of ours. What happens together counts once; what goes on, again."""
        if now - self._disturbed_at > CALM_SECONDS:
            self._disturbances.reset()
            self._pause, self._counted_at = 0.0, now
        elif now - self._counted_at > DISTURBED_FIRST_SECONDS:
            self._pause, self._counted_at = self._disturbances.failed(), now
        self._disturbed_at = now

    def disturbed_pause(self, now: float) -> float:
        """Seconds to wait before it is written again; none after the first time in a long while."""
        return self._pause if now - self._disturbed_at <= CALM_SECONDS else 0.0
