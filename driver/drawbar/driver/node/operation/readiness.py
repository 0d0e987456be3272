"""Whether the daemon is alive, and whether it is of use.

Alive: its event loop turns (or it could not answer) and no piece of work hangs far beyond what it may take; if not,
only a new start helps. Ready: the kubelet can have devices prepared; what is still missing stands in the answer.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping

# A round waits for API requests of 30 s each and for resets and drivers of some seconds; never for minutes.
ROUND_LIMIT_SECONDS = 600.0


class Watchdog:
    """The pieces of work that are being done, and since when."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due: dict[object, tuple[str, float]] = {}

    @contextlib.contextmanager
    def watching(self, what: str, *, limit_seconds: float = ROUND_LIMIT_SECONDS) -> Iterator[None]:
        """A piece of work that should end within the limit; it counts while the context lasts."""
        mark = object()
        self._due[mark] = (what, self._clock() + limit_seconds)
        try:
            yield
        finally:
            del self._due[mark]

    def overdue(self) -> list[str]:
        """What hangs, as clauses."""
        now = self._clock()
        return [f"{what} is {now - due:.0f} s overdue" for what, due in self._due.values() if now > due]


class Readiness:
    """What must hold before the daemon is of use.

    Args:
        missing: by name a function that gives what is missing as a clause, and None when all is well.
    """

    def __init__(self, missing: Mapping[str, Callable[[], str | None]]) -> None:
        self._missing = missing

    def missing(self) -> dict[str, str]:
        """By name what is missing; empty when the daemon is ready."""
        found = {name: ask() for name, ask in self._missing.items()}
        return {name: clause for name, clause in found.items() if clause is not None}


class Milestone:
    """Something that is reached once, or is lost again."""

    def __init__(self, until: str) -> None:
        self._until = until
        self.reached = False

    def reach(self, reached: bool) -> None:
        """Reaches it, or loses it."""
        self.reached = reached

    def missing(self) -> str | None:
        """What is missing as long as it is not reached."""
        return None if self.reached else self._until
