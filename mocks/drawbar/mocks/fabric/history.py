"""The recent events of a simulated fabric, for any number of watchers.

Events are numbered without gaps. An event's version contains the number and an id of the process. So a version of an
earlier process is recognised and answered with a resync. A watcher is only a position in the history. A watcher that
falls behind must list again, so nothing grows.

Events can be lost on purpose. A watcher then misses them without notice until `resync` makes all list again.
"""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Callable

from drawbar.fabric import contract, errors

REMEMBERED_EVENTS = 4096


class History:
    """The recent events, newest last.

    Attributes:
        loses: returns true for an event to lose; None to lose none.
    """

    def __init__(self, remembered: int = REMEMBERED_EVENTS) -> None:
        self.loses: Callable[[contract.WatchEvent], bool] | None = None
        self._remembered = remembered
        self._life = secrets.token_hex(4)
        self._last = 0
        self._events: dict[int, contract.WatchEvent] = {}
        self._news = asyncio.Event()
        self._closed = False

    @property
    def version(self) -> str:
        """Return the version of the newest event."""
        return self._version(self._last)

    def device_changed(self, device: contract.Device) -> None:
        """Record the change of a device."""
        self._append(contract.DeviceChanged(version=self._version(self._last + 1), device=device))

    def device_gone(self, device_id: str) -> None:
        """Record the removal of a device."""
        self._append(contract.DeviceGone(version=self._version(self._last + 1), device_id=device_id))

    def resync(self) -> None:
        """Make every watcher list again: skip a number and forget all events."""
        self._last += 1
        self._events.clear()
        self._wake()

    def host_changed(self, host: contract.Host) -> None:
        """Record the change of a host's port."""
        self._append(contract.HostChanged(version=self._version(self._last + 1), host=host))

    def operation_changed(self, operation: contract.Operation) -> None:
        """Record the start or end of an operation."""
        self._append(contract.OperationChanged(version=self._version(self._last + 1), operation=operation))

    def close(self) -> None:
        """End all watches with Unavailable."""
        self._closed = True
        self._news.set()

    async def follow(
        self, from_version: str, *, bookmark_seconds: float = contract.BOOKMARK_SECONDS
    ) -> AsyncGenerator[contract.WatchEvent, None]:
        """Yield the events after a version, as promised by `FabricAdapter.watch`."""
        position = self._position(from_version)
        if position is None:
            yield contract.Resync()
            return
        yield contract.Bookmark(version=from_version)
        while True:
            while position < self._last:
                event = self._events.get(position + 1)
                if event is None:
                    yield contract.Resync()
                    return
                position += 1
                yield event
            if self._closed:
                raise errors.Unavailable("the simulated fabric is closed")
            news = self._news
            try:
                async with asyncio.timeout(bookmark_seconds):
                    await news.wait()
            except TimeoutError:
                yield contract.Bookmark(version=self._version(position))

    def _append(self, event: contract.WatchEvent) -> None:
        if self.loses is not None and self.loses(event):
            return
        self._last += 1
        self._events[self._last] = event
        self._events.pop(self._last - self._remembered, None)
        self._wake()

    def _wake(self) -> None:
        if not self._closed:
            self._news.set()
            self._news = asyncio.Event()

    def _version(self, number: int) -> str:
        return f"{self._life}-{number}"

    def _position(self, version: str) -> int | None:
        """Return the number of a version if all its later events are known, or None."""
        life, _, number = version.partition("-")
        if life != self._life or not (number.isascii() and number.isdigit()):
            return None
        position = int(number)
        oldest = max(0, self._last - self._remembered)
        return position if oldest <= position <= self._last else None
