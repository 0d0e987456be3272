"""Events between the socket they arrive on and the one task that takes them.

Bounded: when it is full, everything in it gives way to one `Overflow`. Nothing is lost by that, because a
reader who takes an Overflow reads all devices again, and events that come later are kept behind it.
"""

import asyncio
import collections
from collections.abc import AsyncIterator

from drawbar.driver.node.uevents import event


class Backlog:
    """A queue for one consumer; implements `UeventSource`."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._events: collections.deque[event.Uevent | event.Overflow] = collections.deque()
        self._arrived = asyncio.Event()
        self._closed = False
        self._error: Exception | None = None

    def put(self, item: event.Uevent) -> None:
        """Adds an event; when there is no room, everything becomes one Overflow."""
        if len(self._events) >= self._capacity:
            self.overflow()
            return
        self._events.append(item)
        self._arrived.set()

    def overflow(self) -> None:
        """Says that events were lost; what still waits is dropped, for it is covered by reading again."""
        self._events.clear()
        self._events.append(event.Overflow())
        self._arrived.set()

    def close(self, error: Exception | None = None) -> None:
        """Ends `events` once it is empty, with this error if there is one."""
        self._closed = True
        self._error = error
        self._arrived.set()

    async def events(self) -> AsyncIterator[event.Uevent | event.Overflow]:
        """Events in the order in which they arrived, until the source is closed."""
        while True:
            while self._events:
                yield self._events.popleft()
            if self._closed:
                break
            self._arrived.clear()
            await self._arrived.wait()
        if self._error is not None:
            raise self._error
