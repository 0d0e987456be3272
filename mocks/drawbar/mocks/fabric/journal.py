"""The journal of a simulated fabric: one JSON line when an operation starts and one when it finishes.

Checks read it to find leaks and double attaches. Benchmarks read it to subtract the fabric's own time. It omits
operations without work, such as an attach of an attached pair or a detach of an absent one.
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
        event: the operation's event.
        kind: the operation's kind.
        operation: the operation's id; None for an operator's change.
        request_id: the caller's request id; None for an operator's change.
        device: the device's id.
        host: the host's id.
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
    """A writer to a file, or to nothing. When `write` returns, the line is in the file."""

    def __init__(self, path: Path | None) -> None:
        # Unbuffered append makes one write a line, so that readers never see a partial line.
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
        """Write one line; `at` is in seconds since 1970, and the default is now."""
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
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read(path: Path) -> tuple[Entry, ...]:
    """Return all entries of a journal, in the order of writing."""
    return tuple(msgspec.json.decode(line, type=Entry) for line in path.read_bytes().splitlines())
