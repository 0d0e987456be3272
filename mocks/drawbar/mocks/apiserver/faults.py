"""Faults for tests and operators: the requests that they strike, the number of strikes, and the effect.

A ``Fault`` is a value with three parts: ``select`` says which requests it strikes, ``when`` how often, ``effect`` what
happens.  ``Faults`` holds those in force; ``add`` returns a ``Handle`` that counts and can be lifted again.  The
same values are read from files and over HTTP (``faultcontrol``), with camelCase keys.

    handle = server.faults.add(
        Fault(
            select=Selection(user="system:serviceaccount:drawbar:*", verb="patch", resource="resourceclaims"),
            when=Occasions(times=3),
            effect=Refusal(code=500, after=True),  # the write is done, the reply is lost
        )
    )

The strikes are deterministic: occasions are counted in the order in which requests arrive, and a probability is
drawn from a generator of the fault's own with the fault's seed.  Faults are forgotten when the server stops, and
kept over ``ApiServer.restart``.  Requests to the faults' own endpoint are never struck.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeAlias

import msgspec

Json = dict[str, Any]
FAULT_LIMIT = 1_000  # faults in force at a time
_LONGEST_SECONDS = 3_600
_READS, _WRITES = ("get", "list", "watch"), ("create", "update", "patch", "delete", "deletecollection")
_VERBS_BY_CODE = {409: _WRITES, 410: ("list", "watch")}
"""The only verbs that a real server answers with these codes; any other code can answer any verb."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request in a selection; absent parts are empty.

    For a path without a resource, ``verb`` is the method in lower case and the rest is empty.
    """

    user: str
    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    manager: str = ""

    def replace_object(self, item: Json) -> Asked:
        """Return the same request about an object in a watch event."""
        metadata = item.get("metadata") or {}
        return replace(self, namespace=metadata.get("namespace") or "", name=metadata.get("name") or "")


class Selection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A selection of requests.

    Every field is one or more globs, separated by commas; ``*`` also matches the empty string.

    Attributes:
        user: the user name; the administrator's is ``kubernetes-admin``.
        verb: ``get``, ``list``, ``watch``, ``create``, ``update``, ``patch``, ``delete``, ``deletecollection``.
        group: the API group; the empty string is the core group.
        resource: the plural name.
        subresource: for example ``status``; the empty string selects the requests to the object itself.
        namespace: the object's namespace.
        name: the object's name; for a creation, the name in its body; for effects on events, the event's object.
        manager: the field manager; without one, the name in the User-Agent.
    """

    user: str = "*"
    verb: str = "*"
    group: str = "*"
    resource: str = "*"
    subresource: str = "*"
    namespace: str = "*"
    name: str = "*"
    manager: str = "*"

    def covers(self, asked: Asked) -> bool:
        """Return true if the selection contains the request."""
        return all(
            _matches(pattern, value)
            for pattern, value in (
                (self.user, asked.user),
                (self.verb, asked.verb),
                (self.group, asked.group),
                (self.resource, asked.resource),
                (self.subresource, asked.subresource),
                (self.namespace, asked.namespace),
                (self.name, asked.name),
                (self.manager, asked.manager),
            )
        )


class Occasions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """The occasions for strikes among the selected requests, watches or events.

    Attributes:
        skip: the number of matches that pass first.
        every: the interval of candidates among the later matches, beginning with the first.
        probability: the probability of a strike for a candidate.
        seed: the seed of the random generator.
        times: the maximum number of strikes; None for no limit.
    """

    skip: int = 0
    every: int = 1
    probability: float = 1.0
    seed: int = 0
    times: int | None = None

    def __post_init__(self) -> None:
        if self.skip < 0 or self.every < 1 or (self.times is not None and self.times < 1):
            raise ValueError("skip must be 0 or more, every and times 1 or more")
        if not 0 <= self.probability <= 1:
            raise ValueError("probability must be between 0 and 1")


class _Effect(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel", tag_field="kind"
):
    pass


class Latency(_Effect, frozen=True, kw_only=True, tag="latency"):
    """The request is carried out, or with ``after`` answered, this many seconds later."""

    seconds: float
    after: bool = False

    def __post_init__(self) -> None:
        _check_seconds(self.seconds)


class Refusal(_Effect, frozen=True, kw_only=True, tag="refusal"):
    """The request is answered with an error; with ``after`` it was carried out nevertheless.

    A 429 carries ``Retry-After`` and is plain text instead of a Status, as from the real server's flow control.

    Attributes:
        code: the HTTP status, 400 to 599; 409 is for writes only, and 410 for `list` and `watch`.
        message: a message instead of the real server's.
        retry_after: the seconds of the header ``Retry-After``; the default for a 429 is 1.
        after: true to refuse after carrying out the request; for a watch it makes no difference.
    """

    code: int
    message: str = ""
    retry_after: int | None = None
    after: bool = False

    def __post_init__(self) -> None:
        if not 400 <= self.code <= 599:
            raise ValueError("code must be between 400 and 599")
        if self.retry_after is not None and self.retry_after < 0:
            raise ValueError("retryAfter must be 0 or more seconds")


class Disconnect(_Effect, frozen=True, kw_only=True, tag="disconnect"):
    """The connection breaks without an answer; with ``after`` the request was carried out nevertheless."""

    after: bool = False


class Partition(_Effect, frozen=True, kw_only=True, tag="partition"):
    """Requests hang until the fault is lifted, and are then carried out; watches fall silent without closing.

    A request hangs no longer than the server's own limit for requests; then its connection breaks. Open watches are
    cut off too, for any ``when``. They receive the missed events once the fault is lifted.
    """


class DroppedWatch(_Effect, frozen=True, kw_only=True, tag="dropped-watch"):
    """A watch ends after this many events; ``when`` counts watches, including those already open.

    ``abort`` breaks the connection, ``close`` ends the stream as a timeout does, ``expired`` first sends an ERROR
    event with a 410.
    """

    events: int = 0
    ending: Literal["abort", "close", "expired"] = "abort"

    def __post_init__(self) -> None:
        if self.events < 0:
            raise ValueError("events must be 0 or more")


class DuplicatedEvents(_Effect, frozen=True, kw_only=True, tag="duplicated-events"):
    """A watch event is sent several times; ``when`` counts events."""

    copies: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.copies <= 100:
            raise ValueError("copies must be between 1 and 100")


class DelayedEvents(_Effect, frozen=True, kw_only=True, tag="delayed-events"):
    """A watch event, and all later ones, are delayed by this many seconds; ``when`` counts events."""

    seconds: float

    def __post_init__(self) -> None:
        _check_seconds(self.seconds)


Effect: TypeAlias = (
    Latency | Refusal | Disconnect | Partition | DroppedWatch | DuplicatedEvents | DelayedEvents
)


class Fault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A deliberate fault; ``name`` is for people."""

    effect: Effect
    select: Selection = Selection()
    when: Occasions = Occasions()
    name: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.effect, Refusal) or self.effect.code not in _VERBS_BY_CODE:
            return
        possible = _VERBS_BY_CODE[self.effect.code]
        wrong = [v for v in (*_READS, *_WRITES) if v not in possible and _matches(self.select.verb, v)]
        if wrong:
            raise ValueError(
                f"no API server answers {', '.join(wrong)} with {self.effect.code}: "
                f"select only {', '.join(possible)}"
            )


class Handle:
    """An active fault.

    Attributes:
        id: its unique id on this server.
        fault: the fault.
        met: the number of selected requests, watches or events so far.
        struck: the number of strikes so far.
        lifted: set once it is no longer active.
    """

    def __init__(self, identity: str, fault: Fault, forget: Callable[[Handle], None]) -> None:
        """Start the fault."""
        self.id = identity
        self.fault = fault
        self.met = 0
        self.struck = 0
        self.lifted = asyncio.Event()
        self._forget = forget
        self._chance = random.Random(fault.when.seed)  # noqa: S311 - repeatable on purpose

    def lift(self) -> None:
        """Lift the fault; waiting requests continue. Lifting twice is harmless."""
        self.lifted.set()
        self._forget(self)

    def covers(self, asked: Asked) -> bool:
        """Return true if it selects a request, without counting it."""
        return not self.lifted.is_set() and self.fault.select.covers(asked)

    def strikes(self, asked: Asked) -> bool:
        """Count a selected request, watch or event; return true if it is struck."""
        if not self.covers(asked):
            return False
        when = self.fault.when
        self.met += 1
        position = self.met - 1 - when.skip
        if position < 0 or position % when.every or (when.times is not None and self.struck >= when.times):
            return False
        if when.probability < 1 and self._chance.random() >= when.probability:
            return False
        self.struck += 1
        return True


class Faults:
    """All active faults of a server."""

    def __init__(self) -> None:
        """Start without faults."""
        self._handles: dict[str, Handle] = {}
        self._listeners: dict[Callable[[Handle], None], None] = {}
        self._count = 0
        self.closed = False

    def add(self, fault: Fault) -> Handle:
        """Add a fault, for open watches too; return its handle.

        Raises:
            ValueError: too many faults are active.
        """
        if len(self._handles) >= FAULT_LIMIT:
            raise ValueError(f"{FAULT_LIMIT} faults are in force already; lift some first")
        self._count += 1
        handle = Handle(f"fault-{self._count}", fault, self._forget)
        self._handles[handle.id] = handle
        for listener in list(self._listeners):
            listener(handle)
        return handle

    def get(self, identity: str) -> Handle | None:
        """Return the active fault of that id, or None."""
        return self._handles.get(identity)

    def clear(self) -> None:
        """Lift every fault."""
        for handle in self:
            handle.lift()

    def close(self) -> None:
        """Lift every fault at the server's stop: hanging requests are dropped instead of carried out."""
        self.closed = True
        self.clear()

    def find_striking_faults(self, asked: Asked) -> list[Handle]:
        """Return the faults that strike an arriving request; count it for every fault that selects it."""
        watching = (DroppedWatch, DuplicatedEvents, DelayedEvents)
        return [
            handle
            for handle in self
            if not isinstance(handle.fault.effect, watching) and handle.strikes(asked)
        ]

    def listen(self, listener: Callable[[Handle], None]) -> None:
        """Notify an open watch of every new fault."""
        self._listeners[listener] = None

    def unlisten(self, listener: Callable[[Handle], None]) -> None:
        """Stop the notifications of an ended watch."""
        self._listeners.pop(listener, None)

    def __iter__(self) -> Iterator[Handle]:
        return iter(list(self._handles.values()))

    def __len__(self) -> int:
        return len(self._handles)

    def _forget(self, handle: Handle) -> None:
        self._handles.pop(handle.id, None)


def _matches(pattern: str, value: str) -> bool:
    return pattern == "*" or any(fnmatchcase(value, glob.strip()) for glob in pattern.split(","))


def _check_seconds(seconds: float) -> None:
    if not 0 <= seconds <= _LONGEST_SECONDS:
        raise ValueError(f"seconds must be between 0 and {_LONGEST_SECONDS}")
