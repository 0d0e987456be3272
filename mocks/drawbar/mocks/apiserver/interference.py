"""The effects of faults on one open watch: cut it off, end it, repeat its events, or delay them.

``gate`` makes a ``Stream`` for every watch request and puts it into ``CURRENT``, where ``streams`` finds it. This
works because each request is a task with a context of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

import msgspec

from drawbar.mocks.apiserver import errors, faults
from drawbar.mocks.apiserver.faults import Asked, Faults, Handle

Json = dict[str, Any]


class Sink(Protocol):
    """The receiver of a watch's bytes: an HTTP response."""

    async def write(self, data: bytes, /) -> None:
        """Send some bytes."""


class Stream:
    """One open watch. Without active faults, ``deliver`` only writes its argument."""

    def __init__(self, active: Faults, asked: Asked, abort: Callable[[], None]) -> None:
        """Start for a request; ``abort`` breaks its connection."""
        self._faults = active
        self._asked = asked
        self._abort = abort
        self._close: Callable[[], None] = abort
        self._left: dict[Handle, int] = {}  # events until a fault ends the watch
        self._expired = False

    @contextmanager
    def opening(self, close: Callable[[], None]) -> Iterator[None]:
        """Apply faults to the watch until the block ends; ``close`` ends the watch after the sent events."""
        self._close = close
        self._faults.listen(self._meet)
        try:
            for handle in self._faults:
                self._meet(handle)
            yield
        finally:
            self._faults.unlisten(self._meet)

    async def deliver(self, response: Sink, events: Iterable[tuple[Json, bytes]]) -> None:
        """Send events (objects and their lines) in order.

        Raises:
            ConnectionError: a fault or the client ended the connection.
        """
        if not self._faults and not self._left:
            await response.write(b"".join([line for _, line in events]))
            return
        for item, line in events:
            asked = self._asked.replace_object(item)
            for handle in self._faults:
                if isinstance(handle.fault.effect, faults.DelayedEvents) and handle.strikes(asked):
                    await pause(handle, handle.fault.effect.seconds)
            await self.clearance()
            await response.write(line * self._copies(asked))
            if self._end_if_due():
                return

    async def clearance(self) -> None:
        """Wait while a partition cuts this watch off.

        Raises:
            ConnectionError: the server stops meanwhile.
        """
        while True:
            cut = next((h for h in self._faults if self._is_cut_by(h)), None)
            if cut is None:
                return
            await cut.lifted.wait()
            if self._faults.closed:
                self._abort()
                raise ConnectionAbortedError("the server stopped during a partition")

    async def finish(self, response: Sink) -> None:
        """Send the final event of the stream, if there is one."""
        await self.clearance()
        if self._expired:
            body = errors.expired_error("the watch was ended by a fault: too old resource version").body()
            await response.write(msgspec.json.encode({"type": "ERROR", "object": body}) + b"\n")

    def _is_cut_by(self, handle: Handle) -> bool:
        return isinstance(handle.fault.effect, faults.Partition) and handle.covers(self._asked)

    def _meet(self, handle: Handle) -> None:
        effect = handle.fault.effect
        if isinstance(effect, faults.DroppedWatch) and handle.strikes(self._asked):
            self._left[handle] = effect.events
            if not effect.events:
                self._end(effect)

    def _copies(self, asked: Asked) -> int:
        copies = 1
        for handle in self._faults:
            if isinstance(handle.fault.effect, faults.DuplicatedEvents) and handle.strikes(asked):
                copies += handle.fault.effect.copies
        return copies

    def _end_if_due(self) -> bool:
        """Count one sent event; return true if the watch ends with it."""
        for handle in self._left:
            self._left[handle] -= 1
            effect = handle.fault.effect
            if self._left[handle] <= 0 and isinstance(effect, faults.DroppedWatch):
                self._end(effect)
                return True
        return False

    def _end(self, effect: faults.DroppedWatch) -> None:
        if effect.ending == "abort":
            self._abort()
        else:
            self._expired = effect.ending == "expired"
            self._close()


async def pause(handle: Handle, seconds: float) -> None:
    """Wait this many seconds, or until the fault is lifted."""
    try:
        async with asyncio.timeout(seconds):
            await handle.lifted.wait()
    except TimeoutError:
        return


CURRENT: ContextVar[Stream] = ContextVar("CURRENT")
