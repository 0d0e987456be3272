"""How long to wait before the local pool is written again.

A failed round comes back after a pause that grows with the failures in a row. A change by somebody else, such as the
wipe of a kubelet that starts, is answered at once; if it happens again soon after, then after a growing pause: two
writers who disagree must not chase each other.
"""

import random

FAILED_FIRST_SECONDS = 0.2
FAILED_MAX_SECONDS = 60.0
DISTURBED_FIRST_SECONDS = 0.5
DISTURBED_MAX_SECONDS = 30.0
# A kubelet wipes once per start; more often than this is somebody who disagrees.
CALM_SECONDS = 60.0
DOUBLINGS_MAX = 16


class Pace:
    """The pauses of one publisher; times are seconds of a clock that only goes forward."""

    def __init__(self, *, jitter: random.Random) -> None:
        self._jitter = jitter
        self._failures = 0
        self._disturbances = 0
        self._disturbed_at = float("-inf")
        self._counted_at = float("-inf")

    def succeeded(self) -> None:
        """A round went through."""
        self._failures = 0

    def failed(self) -> float:
        """A round failed; gives the pause in seconds."""
        ceiling = min(FAILED_MAX_SECONDS, FAILED_FIRST_SECONDS * float(2**self._failures))
        self._failures = min(self._failures + 1, DOUBLINGS_MAX)
        return ceiling * self._jitter.uniform(0.5, 1.0)

    def disturbed(self, now: float) -> None:
        """Somebody else deleted or changed a slice of ours. What happens together counts once; what goes on, again."""
        if now - self._disturbed_at > CALM_SECONDS:
            self._disturbances = 0
        if now - self._counted_at > DISTURBED_FIRST_SECONDS:
            self._disturbances = min(self._disturbances + 1, DOUBLINGS_MAX)
            self._counted_at = now
        self._disturbed_at = now

    def disturbed_pause(self, now: float) -> float:
        """Seconds to wait before it is written again; none after the first time in a long while."""
        if self._disturbances <= 1 or now - self._disturbed_at > CALM_SECONDS:
            return 0.0
        pause = min(DISTURBED_MAX_SECONDS, DISTURBED_FIRST_SECONDS * float(2 ** (self._disturbances - 2)))
        return pause * self._jitter.uniform(0.5, 1.0)
