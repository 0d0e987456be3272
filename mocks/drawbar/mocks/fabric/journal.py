"""The journal of a simulated fabric: one JSON line when an operation starts and one when it finishes.

Checks read it to find leaks and double attaches, benchmarks to take the fabric's own time out. An operation
that had nothing to do (an attach of an attached pair, a detach of an absent one) is not in it.
"""

import time
from pathlib import Path
from typing import Literal, Self, TypeAlias

import msgspec

from drawbar.fabric import contract

Event: TypeAlias = Literal["started", "finished"]


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One line.

    Attributes:
        time: seconds since 1970.
        event: what happened to the operation.
        kind: what it does.
        operation: its id; None for what an operator did beside us.
        request_id: the caller's; None likewise.
        device: id.
        host: id.
        error: the reason of the failure; None on success and at the start.
    """

    time: float
    event: Event
    kind: contract.OperationKind
    operation: str | None
    request_id: str | None = msgspec.field(name="requestID")
    device: str
    host: str
    error: str | None = None


class Journal:
    """Appends to a file, or to nothing; every line is in the file when `write` returns."""

    def __init__(self, path: Path | None) -> None:
        # Unbuffered append: one write a line, so that readers never see half of one.
        self._file = None if path is None else path.open("ab", buffering=0)

    def write(
        self,
        event: Event,
        kind: contract.OperationKind,
        *,
        operation: str | None,
        request_id: str | None,
        device: str,
        host: str,
        error: str | None = None,
        at: float | None = None,
    ) -> None:
        """Writes one line; without `at`, in seconds since 1970, the time is now."""
        if self._file is None:
            return
        entry = Entry(
            time=time.time() if at is None else at,
            event=event,
            kind=kind,
            operation=operation,
            request_id=request_id,
            device=device,
            host=host,
            error=error,
        )
        self._file.write(msgspec.json.encode(entry) + b"\n")

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read(path: Path) -> tuple[Entry, ...]:
    """All entries of a journal, in the order in which they were written."""
    return tuple(msgspec.json.decode(line, type=Entry) for line in path.read_bytes().splitlines())
