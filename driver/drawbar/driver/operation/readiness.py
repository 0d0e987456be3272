"""The liveness and readiness of a daemon.

Alive: its event loop runs (or it could not answer) and no piece of work far exceeds its limit; otherwise only a
restart helps. Ready: it can do its work; otherwise the answer names the missing condition.
"""

import contextlib
import time
from collections.abc import Callable, Mapping

# A round waits for API requests of 30 s each and for resets and drivers of some seconds; never for minutes.
ROUND_LIMIT_SECONDS = 600.0


class _Piece:
    """One running piece of work; a class of its own, since there is one for every round of work."""

    __slots__ = ("_due", "_pieces", "_what")

    def __init__(self, pieces: dict["_Piece", tuple[object, float]], what: object, due: float) -> None:
        self._pieces = pieces
        self._what = what
        self._due = due

    def __enter__(self) -> None:
        self._pieces[self] = (self._what, self._due)

    def __exit__(self, *_: object) -> None:
        del self._pieces[self]


class Watchdog:
    """The running pieces of work, with their deadlines."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._pieces: dict[_Piece, tuple[object, float]] = {}

    def watching(
        self, what: object, *, limit_seconds: float = ROUND_LIMIT_SECONDS
    ) -> contextlib.AbstractContextManager[None]:
        """Watch a piece of work that should end within the limit; it counts while the context lasts."""
        return _Piece(self._pieces, what, self._clock() + limit_seconds)

    def overdue(self) -> list[str]:
        """Return the pieces of work beyond their limit, as clauses."""
        now = self._clock()
        return [f"{what} is {now - due:.0f} s overdue" for what, due in self._pieces.values() if now > due]


class Readiness:
    """The conditions for a daemon's work.

    Args:
        missing: by name, a function that returns the missing condition as a clause, or None.
    """

    def __init__(self, missing: Mapping[str, Callable[[], str | None]]) -> None:
        self._missing = missing

    def find_missing(self) -> dict[str, str]:
        """Return the missing requirements by name; empty when the daemon is ready."""
        clauses = {name: missing() for name, missing in self._missing.items()}
        return {name: clause for name, clause in clauses.items() if clause is not None}


class Milestone:
    """A condition that is reached once, or lost again."""

    def __init__(self, until: str) -> None:
        self._until = until
        self.reached = False

    def reach(self, reached: bool) -> None:
        """Set whether the milestone is reached."""
        self.reached = reached

    def find_missing(self) -> str | None:
        """Return the missing condition, or None once the milestone is reached."""
        return None if self.reached else self._until
