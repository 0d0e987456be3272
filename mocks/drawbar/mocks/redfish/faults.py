"""Faults of a Redfish service, each for a number of requests."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class FaultKind(StrEnum):
    """The kind of a fault."""

    LOST_REPLY = "lost-reply"
    """The request is executed, and the connection ends before the answer."""
    STALE_ETAG = "stale-etag"
    """Another client has changed the resource: 412."""
    BUSY = "busy"
    """503, with Retry-After."""
    SLOW_TASK = "slow-task"
    """The change becomes a task that runs until `Service.end_slow_tasks`."""
    LOST_TASK = "lost-task"
    """A slow task, and the connection ends before the answer that names it."""
    FAILED_TASK = "failed-task"
    """The change becomes a task that fails, without effect."""
    HALF_BODY = "half-body"
    """The connection ends after half of the answer."""
    HTML = "html"
    """A page of a proxy instead of the answer."""
    HUGE = "huge"
    """An answer of 100 MB."""
    DEEP = "deep"
    """An answer of arrays in arrays."""
    EXPIRED_SESSION = "expired-session"
    """All sessions have ended."""
    REDIRECT = "redirect"
    """A redirect to another host."""
    STALL = "stall"
    """No answer."""
    FORBIDDEN = "forbidden"
    """The account lacks the privilege: 403, with the client's token in the text."""
    PASSWORD_CHANGE = "password-change"  # noqa: S105 - the name of an accident
    """The account's password has expired: 403."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault.

    Attributes:
        kind: the kind of fault.
        methods: the methods of the affected requests.
        path: a part of their path.
        times: the number of affected requests; None for all.
        after: the number of such requests that pass before.
    """

    kind: FaultKind
    methods: tuple[str, ...] = ("POST", "PATCH", "DELETE")
    path: str = "/Zones"
    times: int | None = 1
    after: int = 0


@dataclass(slots=True, kw_only=True)
class _Coming:
    fault: Fault
    times: int | None
    after: int


class Faults:
    """The faults that are still to come.

    Attributes:
        met: the number of faults so far, by kind.
    """

    def __init__(self, faults: Iterable[Fault] = ()) -> None:
        self.met: Counter[FaultKind] = Counter()
        self._coming: list[_Coming] = []
        for fault in faults:
            self.add(fault)

    def add(self, fault: Fault) -> None:
        """Let it happen from now on."""
        self._coming.append(_Coming(fault=fault, times=fault.times, after=fault.after))

    def clear(self) -> None:
        """Let nothing happen any more."""
        self._coming.clear()

    def next(self, method: str, path: str) -> FaultKind | None:
        """Return the fault of this request."""
        for coming in self._coming:
            if method not in coming.fault.methods or coming.fault.path not in path or coming.times == 0:
                continue
            if coming.after > 0:
                coming.after -= 1
                continue
            if coming.times is not None:
                coming.times -= 1
            self.met[coming.fault.kind] += 1
            return coming.fault.kind
        return None
