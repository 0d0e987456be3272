"""A client of the QEMU Machine Protocol on a UNIX socket: greeting, commands with ids, events, deadlines, and errors.

QEMU serves one client per socket and lets others wait for a greeting, so a connected client has no competitors. A
reply after its deadline is dropped, and the connection stays usable. QEMU's errors are sentences for people, most of
the class GenericError; their meanings were measured on 7.2. An error does not prove that nothing happened: read the
machine again before any other step.

Source: QEMU, docs/interop/qmp-spec.txt.
"""

import asyncio
import itertools
import json
import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Self

from drawbar.fabric import budget, errors

LINE_BYTES = 4 * 1024 * 1024
"""Longer than any answer of a machine with hundreds of devices; a peer that sends more is not QEMU."""
TEXT_CHARS = 300
"""Foreign text in messages is cut."""

# Any: QEMU's answers are decoded JSON; `sights` turns them into values at once.
Answer = Any
OnEvent = Callable[[str, Mapping[str, Answer]], None]


class Rejected(Exception):
    """An error from QEMU; the command may still have had an effect.

    Attributes:
        kind: QEMU's class of error, mostly GenericError.
        description: QEMU's own sentence, cut.
    """

    def __init__(self, kind: str, description: str) -> None:
        super().__init__(f"{kind}: {description}")
        self.kind = kind
        self.description = description


class Lost(Exception):
    """The connection ended."""


class Client(asyncio.Protocol):
    """One connection, made by `connect`; every method belongs to the loop that made it."""

    def __init__(self, on_event: OnEvent, on_lost: Callable[[], None], flow: budget.Flow) -> None:
        self._on_event = on_event
        self._flow = flow
        self._on_lost = on_lost
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        self._greeting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._ready = False
        self._closed = False

    @classmethod
    async def connect(
        cls, path: str, *, on_event: OnEvent, on_lost: Callable[[], None], flow: budget.Flow
    ) -> Self:
        """Connect, negotiate and return the client; the caller bounds the time.

        Args:
            path: of the socket.
            on_event: called with each event.
            on_lost: called when the connection ends by itself.
            flow: the balance of events; a flood of them ends the connection.

        Raises:
            OSError: no process listens there, or the socket may not be used.
            Lost: the peer hung up, or does not speak QMP.
            Rejected: QEMU refuses the negotiation.
        """
        loop = asyncio.get_running_loop()
        _, client = await loop.create_unix_connection(lambda: cls(on_event, on_lost, flow), path)
        try:
            await client._greeting  # noqa: SLF001 -- an instance of this very class
            await client.execute("qmp_capabilities")
        except BaseException:
            client.close()
            raise
        client._ready = True  # noqa: SLF001 -- as above
        return client

    @property
    def closed(self) -> bool:
        """Return whether the connection has ended."""
        return self._closed

    async def execute(self, command: str, arguments: Mapping[str, Answer] | None = None) -> Answer:
        """Send one command and return its answer; the caller bounds the time.

        Raises:
            Rejected: QEMU refuses the command.
            Lost: the connection ended before the answer; the command's effect is unknown.
        """
        if self._closed or self._transport is None:
            raise Lost("the connection is closed")
        number = next(self._numbers)
        answer = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        message: dict[str, Answer] = {"execute": command, "id": number}
        if arguments:
            message["arguments"] = dict(arguments)
        self._transport.write(json.dumps(message).encode() + b"\n")
        try:
            return await answer
        finally:
            self._waiting.pop(number, None)

    def close(self) -> None:
        """End the connection at once; idempotent."""
        self._end("the connection is closed")
        if self._transport is not None:
            self._transport.abort()

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport; called by the loop."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Handle the complete lines of the received data; called by the loop."""
        self._buffer += data
        while not self._closed and (end := self._buffer.find(b"\n")) >= 0:
            line = bytes(self._buffer[:end])
            del self._buffer[: end + 1]
            if line.strip():
                self._line(line)
        if len(self._buffer) > LINE_BYTES:
            self._hang_up(f"a line of more than {LINE_BYTES} bytes came")

    def connection_lost(self, exc: Exception | None) -> None:
        """End all waiting calls; called by the loop."""
        self._lose("QEMU closed the connection" if exc is None else f"the connection broke: {exc}")

    def _line(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            self._hang_up("the answer is not JSON")
            return
        match message:
            case {"id": int(number)} if (answer := self._waiting.get(number)) is not None:
                _settle(answer, message)
            case {"QMP": _} if not self._greeting.done():
                self._greeting.set_result(None)
            case _:
                self._handle_event(message, len(line))

    def _handle_event(self, message: Answer, size_bytes: int) -> None:
        """Handle an event; hang up if there are too many."""
        try:
            self._flow.take(size_bytes)
        except errors.FabricError as error:
            self._hang_up(error.message)
            return
        match message:
            case {"event": str(name)}:
                data = message.get("data")
                self._on_event(name, data if isinstance(data, dict) else {})

    def _hang_up(self, why: str) -> None:
        self._lose(why)
        assert self._transport is not None
        self._transport.abort()

    def _lose(self, why: str) -> None:
        """End the connection and report it once; a connection attempt in progress gets an exception instead."""
        is_expected = self._closed or not self._ready
        self._end(why)
        if not is_expected:
            self._on_lost()

    def _end(self, why: str) -> None:
        if self._closed:
            return
        self._closed = True
        for waiting in (self._greeting, *self._waiting.values()):
            if not waiting.done():
                waiting.set_exception(Lost(why))
        # Perhaps no task waits for the greeting any more, and an exception that nobody fetches would be
        # logged.
        if not self._greeting.cancelled():
            self._greeting.exception()


def _settle(answer: asyncio.Future[Answer], message: Mapping[str, Answer]) -> None:
    if answer.done():
        return
    match message.get("error"):
        case {"class": kind, "desc": text}:
            answer.set_exception(Rejected(str(kind), str(text)[:TEXT_CHARS]))
        case None if "return" in message:
            answer.set_result(message["return"])
        case _:
            answer.set_exception(Rejected("GenericError", "the answer is neither a return nor an error"))


class Meaning(StrEnum):
    """The meaning of an error for the caller."""

    GONE = "gone"
    """No such device, object or node; success for a removal."""
    DUPLICATE = "duplicate"
    """The id exists already: compare."""
    NO_PORT = "no-port"
    """No such bus."""
    BUSY = "busy"
    """The guest is still handling the port's previous event; try again soon."""
    PENDING = "pending"
    """The same request is already in progress."""
    HELD = "held"
    """QEMU still uses the object."""
    LOCKED = "locked"
    """Another process has opened the file for writing."""
    UNSUPPORTED = "unsupported"
    """This QEMU does not know the model or a property."""
    REFUSED = "refused"
    """Anything else."""


_SENTENCES = tuple(
    (re.compile(pattern), meaning)
    for pattern, meaning in (
        (r"guest is busy", Meaning.BUSY),
        (r"already in the process of unplug", Meaning.PENDING),
        (r"^Duplicate device ID|^Duplicate nodes|attempt to add duplicate property", Meaning.DUPLICATE),
        (r"^Bus '.*' not found", Meaning.NO_PORT),
        (r"^Failed to get \".*\" lock|^Permission conflict on node", Meaning.LOCKED),
        (
            r"is not a valid device model name|^Property '.*' not found|expects a pluggable",
            Meaning.UNSUPPORTED,
        ),
        (r"is in use", Meaning.HELD),
        (r"^(object|Device|Node) '.*' not found|^Failed to find node", Meaning.GONE),
    )
)


def find_meaning(error: Rejected) -> Meaning:
    """Return the meaning of an error."""
    if error.kind == "DeviceNotFound":
        return Meaning.GONE
    meanings = (meaning for pattern, meaning in _SENTENCES if pattern.search(error.description))
    return next(meanings, Meaning.REFUSED)
