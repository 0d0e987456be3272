"""Faults that a test or an operator switches on: which requests they strike, how often, and what they do.

A ``Fault`` is a value with three parts: ``select`` says whom it strikes, ``when`` how often, ``effect`` what
happens.  ``Faults`` holds those in force; ``add`` returns a ``Handle`` that counts and can be lifted again.  The
same values are read from files and over HTTP (``faultcontrol``), with camelCase keys.

    handle = server.faults.add(
        Fault(
            select=Selection(user="system:serviceaccount:drawbar:*", verb="patch", resource="resourceclaims"),
            when=Occasions(times=3),
            effect=Refusal(code=500, after=True),  # the write is done, the reply is lost
        )
    )

What strikes is deterministic: occasions are counted in the order in which requests arrive, and a probability is
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request as a selection sees it; what a request does not have is empty.

    For a path that is no resource's, ``verb`` is the method in lower case and the rest is empty.
    """

    user: str
    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    manager: str = ""

    def about(self, item: Json) -> Asked:
        """The same request, about one of the objects that a watch reports."""
        metadata = item.get("metadata") or {}
        return replace(self, namespace=metadata.get("namespace") or "", name=metadata.get("name") or "")


class Selection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Which requests: every field is one or more globs, separated by commas; ``*`` is everything and nothing.

    Attributes:
        user: the user name (the administrator's is ``kubernetes-admin``).
        verb: ``get``, ``list``, ``watch``, ``create``, ``update``, ``patch``, ``delete``, ``deletecollection``.
        group: the API group; the empty string is the core group.
        resource: the plural name.
        subresource: ``status``, say; the empty string selects the requests to the object itself.
        namespace: of the object.
        name: of the object; of a creation, the name in its body.  For effects on events, the event's object.
        manager: the field manager, or what the server makes of the User-Agent.
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
        """Whether a request is among them."""
        return all(
            pattern == "*" or any(fnmatchcase(value, glob.strip()) for glob in pattern.split(","))
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
    """Which of the selected requests (or watches, or events) are struck.

    Attributes:
        skip: so many pass first.
        every: then every so-manieth is a candidate, beginning with the first.
        probability: with which a candidate is struck.
        seed: of the generator that draws the probability.
        times: strikes at most; None is no limit.
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
    """The request is carried out, or with ``after`` answered, so many seconds later."""

    seconds: float
    after: bool = False

    def __post_init__(self) -> None:
        _check_seconds(self.seconds)


class Refusal(_Effect, frozen=True, kw_only=True, tag="refusal"):
    """The request is answered with an error; with ``after`` it was carried out all the same.

    A 429 carries ``Retry-After`` and is plain text and no Status, as that of the real server's flow control.

    Attributes:
        code: the HTTP status, 400 to 599.
        message: instead of the real server's words.
        retry_after: seconds for the header ``Retry-After``; a 429 has 1 without it.
        after: refuse once the request has been carried out; of a watch, this is the same as before.
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
    """The connection breaks without an answer; with ``after`` the request was carried out all the same."""

    after: bool = False


class Partition(_Effect, frozen=True, kw_only=True, tag="partition"):
    """Requests hang until the fault is lifted, and are then carried out; watches fall silent without closing.

    A request hangs no longer than the server's own limit for requests; then its connection breaks.  Watches that
    are open already are cut off too, whatever ``when`` says, and receive what they missed once it is lifted.
    """


class DroppedWatch(_Effect, frozen=True, kw_only=True, tag="dropped-watch"):
    """A watch ends after so many events; ``when`` counts watches, those already open included.

    ``abort`` breaks the connection, ``close`` ends the stream as a timeout does, ``expired`` sends an ERROR event
    with a 410 first.
    """

    events: int = 0
    ending: Literal["abort", "close", "expired"] = "abort"

    def __post_init__(self) -> None:
        if self.events < 0:
            raise ValueError("events must be 0 or more")


class DuplicatedEvents(_Effect, frozen=True, kw_only=True, tag="duplicated-events"):
    """A watch event is sent several times over; ``when`` counts events."""

    copies: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.copies <= 100:
            raise ValueError("copies must be between 1 and 100")


class DelayedEvents(_Effect, frozen=True, kw_only=True, tag="delayed-events"):
    """A watch event is sent so many seconds later, and with it all that follow; ``when`` counts events."""

    seconds: float

    def __post_init__(self) -> None:
        _check_seconds(self.seconds)


Effect: TypeAlias = (
    Latency | Refusal | Disconnect | Partition | DroppedWatch | DuplicatedEvents | DelayedEvents
)


class Fault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Something that goes wrong on purpose; ``name`` is for people."""

    effect: Effect
    select: Selection = Selection()
    when: Occasions = Occasions()
    name: str = ""


class Handle:
    """A fault in force.

    Attributes:
        id: unique on this server.
        fault: what it is.
        met: how many requests, watches or events it selected so far.
        struck: how many of them it struck.
        lifted: set once it is no longer in force.
    """

    def __init__(self, identity: str, fault: Fault, forget: Callable[[Handle], None]) -> None:
        """Come into force."""
        self.id = identity
        self.fault = fault
        self.met = 0
        self.struck = 0
        self.lifted = asyncio.Event()
        self._forget = forget
        self._chance = random.Random(fault.when.seed)  # noqa: S311 - repeatable on purpose

    def lift(self) -> None:
        """Take it out of force; what waits because of it goes on.  Lifting twice is harmless."""
        self.lifted.set()
        self._forget(self)

    def covers(self, asked: Asked) -> bool:
        """Whether it selects a request; nothing is counted."""
        return not self.lifted.is_set() and self.fault.select.covers(asked)

    def strikes(self, asked: Asked) -> bool:
        """Count a request, watch or event if it is selected, and say whether it is struck."""
        if not self.covers(asked):
            return False
        when = self.fault.when
        self.met += 1
        place = self.met - 1 - when.skip
        if place < 0 or place % when.every or (when.times is not None and self.struck >= when.times):
            return False
        if when.probability < 1 and self._chance.random() >= when.probability:
            return False
        self.struck += 1
        return True


class Faults:
    """All faults in force on a server."""

    def __init__(self) -> None:
        """Start without any."""
        self._handles: dict[str, Handle] = {}
        self._listeners: dict[Callable[[Handle], None], None] = {}
        self._count = 0
        self.closed = False

    def add(self, fault: Fault) -> Handle:
        """Bring a fault into force, for open watches too.

        Raises:
            ValueError: too many are in force.
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
        """The fault of that id, while it is in force."""
        return self._handles.get(identity)

    def clear(self) -> None:
        """Lift every fault."""
        for handle in self:
            handle.lift()

    def close(self) -> None:
        """Lift every fault because the server stops: what hangs is dropped instead of carried out."""
        self.closed = True
        self.clear()

    def striking(self, asked: Asked) -> list[Handle]:
        """The faults that strike an arriving request; every one that selects it is counted."""
        watching = (DroppedWatch, DuplicatedEvents, DelayedEvents)
        return [
            handle
            for handle in self
            if not isinstance(handle.fault.effect, watching) and handle.strikes(asked)
        ]

    def listen(self, listener: Callable[[Handle], None]) -> None:
        """Tell an open watch of every fault that comes into force."""
        self._listeners[listener] = None

    def unlisten(self, listener: Callable[[Handle], None]) -> None:
        """The watch has ended."""
        self._listeners.pop(listener, None)

    def __iter__(self) -> Iterator[Handle]:
        return iter(list(self._handles.values()))

    def __len__(self) -> int:
        return len(self._handles)

    def _forget(self, handle: Handle) -> None:
        self._handles.pop(handle.id, None)


def _check_seconds(seconds: float) -> None:
    if not 0 <= seconds <= _LONGEST_SECONDS:
        raise ValueError(f"seconds must be between 0 and {_LONGEST_SECONDS}")
