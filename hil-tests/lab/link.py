"""Many streams of messages over one byte channel, between the host and the agent of a guest.

The channel is a virtio serial port: a UNIX socket here, a character device there. Both sides are the same code. A frame
is a header (kind, stream, length) and a payload; a message is the payload of one DATA frame, so its bounds are kept.
Each side grants the other credit per stream, so a reader who is slow holds up its own stream and no other.

Bounds: STREAMS_MAX streams at once, MESSAGE_BYTES per message, WINDOW_BYTES in flight per stream.
"""

import asyncio
import contextlib
import enum
import json
import struct
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from lab import errors, waiting

STREAMS_MAX = 256
MESSAGE_BYTES = 32 * 1024
WINDOW_BYTES = 256 * 1024
_HEADER = struct.Struct("!BII")


class Kind(enum.IntEnum):
    """What a frame is."""

    OPEN = 1
    DATA = 2
    END = 3
    RESET = 4
    CREDIT = 5


Handler = Callable[[dict[str, Any], "Stream"], Awaitable[None]]


class Stream:
    """One stream: messages both ways, each direction ended by itself."""

    def __init__(self, link: "Link", number: int) -> None:
        self._link, self.number = link, number
        self._messages: deque[bytes] = deque()
        self._ended = False
        self._reset: str | None = None
        self._credit = WINDOW_BYTES
        self._changed = asyncio.Condition()
        self._sent_end = False

    async def receive(self) -> bytes | None:
        """Return the next message; None after the last.

        Raises:
            errors.GuestFailure: the other side gave up, and told why.
        """
        async with self._changed:
            await self._changed.wait_for(lambda: self._messages or self._ended or self._reset is not None)
            if self._messages:
                message = self._messages.popleft()
            elif self._reset is not None:
                raise errors.GuestFailure(self._reset)
            else:
                return None
        if not self._ended and self._reset is None:
            with contextlib.suppress(errors.GuestSilent):  # what came before the channel closed is still good
                await self._link.send(Kind.CREDIT, self.number, struct.pack("!I", len(message)))
        return message

    async def all(self) -> bytes:
        """Return all messages until the end, in one piece."""
        parts = []
        while (message := await self.receive()) is not None:
            parts.append(message)
        return b"".join(parts)

    async def send(self, message: bytes) -> None:
        """Send a message, waiting while the other side has not taken what it has.

        Raises:
            errors.GuestFailure: the other side gave up.
        """
        async with self._changed:
            await self._changed.wait_for(lambda: self._credit > 0 or self._reset is not None)
            if self._reset is not None:
                raise errors.GuestFailure(self._reset)
            self._credit -= len(message)
        await self._link.send(Kind.DATA, self.number, message)

    async def send_all(self, data: bytes) -> None:
        """Send bytes in as many messages as they need."""
        for start in range(0, len(data), MESSAGE_BYTES):
            await self.send(data[start : start + MESSAGE_BYTES])

    async def end(self) -> None:
        """Tell the other side that nothing more is sent."""
        if not self._sent_end and self._reset is None:
            self._sent_end = True
            await self._link.send(Kind.END, self.number)
            self._link.release(self)

    async def reset(self, reason: str) -> None:
        """Give up in both directions."""
        if self._reset is None and not (self._ended and self._sent_end):
            self._reset = reason
            await self._link.send(Kind.RESET, self.number, reason.encode()[:MESSAGE_BYTES])
        self._link.release(self)

    @property
    def finished(self) -> bool:
        """Return whether nothing more goes either way."""
        return self._reset is not None or (self._ended and self._sent_end)

    async def take(self, kind: Kind, payload: bytes) -> None:
        """Take a frame from the other side."""
        async with self._changed:
            match kind:
                case Kind.DATA:
                    self._messages.append(payload)
                case Kind.END:
                    self._ended = True
                case Kind.RESET:
                    self._reset = payload.decode(errors="replace")
                case Kind.CREDIT:
                    self._credit += struct.unpack("!I", payload)[0]
            self._changed.notify_all()


class Link:
    """One side of a channel. Make it with `linked`."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, first: int, handler: Handler
    ) -> None:
        self._reader, self._writer, self._handler = reader, writer, handler
        self._streams: dict[int, Stream] = {}
        self._next = first
        self._writing = asyncio.Lock()
        self._broken: str | None = None
        self.ended = asyncio.Event()

    async def open(self, request: dict[str, Any]) -> Stream:
        """Open a new stream, and ask the other side for what `request` names.

        Raises:
            errors.GuestSilent: the channel is closed.
        """
        if len(self._streams) >= STREAMS_MAX:
            raise errors.GuestFailure(f"there are {STREAMS_MAX} streams already: end some")
        number, self._next = self._next, self._next + 2
        stream = self._streams[number] = Stream(self, number)
        await self.send(Kind.OPEN, number, json.dumps(request).encode())
        return stream

    async def send(self, kind: Kind, number: int, payload: bytes = b"") -> None:
        """Put a frame on the channel."""
        if self._broken is not None:
            raise errors.GuestSilent(self._broken)
        async with self._writing:
            try:
                self._writer.write(_HEADER.pack(kind, number, len(payload)) + payload)
                await self._writer.drain()
            except ConnectionError as error:
                raise errors.GuestSilent("the channel to the guest is closed") from error

    def release(self, stream: Stream) -> None:
        """Forget a stream on which nothing more can come."""
        if stream.finished:
            self._streams.pop(stream.number, None)

    async def run(self) -> None:
        """Take frames until the channel closes; everything that is open then is reset."""
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    kind, number, length = _HEADER.unpack(await self._reader.readexactly(_HEADER.size))
                    payload = await self._reader.readexactly(length)
                    await self._take(tasks, Kind(kind), number, payload)
        except* (asyncio.IncompleteReadError, ConnectionError):
            pass  # closed: all waiting requests are told below
        finally:
            await self._break("the channel to the guest is closed")

    async def _take(self, tasks: asyncio.TaskGroup, kind: Kind, number: int, payload: bytes) -> None:
        if kind is Kind.OPEN:
            stream = self._streams[number] = Stream(self, number)
            tasks.create_task(self._handle(json.loads(payload), stream), name=f"stream-{number}")
            return
        open_stream = self._streams.get(number)
        if open_stream is not None:  # else: it was given up here, of which the other side has yet to learn
            await open_stream.take(kind, payload)
            self.release(open_stream)

    async def _handle(self, request: dict[str, Any], stream: Stream) -> None:
        try:
            await self._handler(request, stream)
            await stream.end()
        except (OSError, errors.LabError, ValueError, KeyError) as error:
            with contextlib.suppress(errors.LabError):
                await stream.reset(f"{request.get('do')}: {error}")

    async def _break(self, reason: str) -> None:
        self._broken = reason
        for stream in tuple(self._streams.values()):
            await stream.take(Kind.RESET, reason.encode())
        self._streams.clear()
        self.ended.set()


@contextlib.asynccontextmanager
async def linking(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, first: int, handler: Handler
) -> AsyncIterator[Link]:
    """Yield a link that takes frames while the context lasts. `first` is 1 on one side and 2 on the other."""
    link = Link(reader, writer, first=first, handler=handler)
    async with waiting.tasks() as tasks:
        running = tasks.create_task(link.run(), name="link")
        try:
            yield link
        finally:
            running.cancel()


async def relay(stream: Stream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Carry bytes between a stream and a socket until both directions have ended."""

    async def inwards() -> None:
        while (message := await stream.receive()) is not None:
            writer.write(message)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()

    async def outwards() -> None:
        while data := await reader.read(MESSAGE_BYTES):
            await stream.send(data)
        await stream.end()

    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(inwards(), name="relay-in")
            tasks.create_task(outwards(), name="relay-out")
    except* (OSError, errors.LabError) as group:
        with contextlib.suppress(errors.LabError):
            await stream.reset(f"the connection broke: {group.exceptions[0]}")
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
