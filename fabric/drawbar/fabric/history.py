"""The changes between two readings of the fabric, for any number of watchers.

Events are numbered without gaps. The version of an event names the life of the adapter and the number, so that a
version of an earlier life is recognised and answered with a resync. A watcher is only a position. A slow watcher
falls behind the remembered events and gets a resync, so memory stays bounded.
"""

import asyncio
import re
import secrets
from collections.abc import AsyncGenerator, Mapping, Set
from dataclasses import replace

from drawbar.fabric import contract, errors

_NUMBER = re.compile("[0-9]{1,18}")

REMEMBERED_EVENTS = 4096


class History:
    """The last reading of the fabric, and the recent changes.

    Attributes:
        watchers: the current number of watchers.
    """

    def __init__(self, remembered: int = REMEMBERED_EVENTS) -> None:
        self.watchers = 0
        self._remembered = remembered
        self._life = secrets.token_hex(4)
        self._last = 0
        self._events: dict[int, contract.WatchEvent] = {}
        self._devices: dict[str, contract.Device] = {}
        self._hosts: dict[str, contract.Host] = {}
        # Parts that could not be read.
        self._unread: Set[str] = frozenset()
        self._news = asyncio.Event()
        self._trouble: errors.FabricError | None = None
        # A sentence by its subject.
        self._exceeded: dict[str, str] = {}

    @property
    def version(self) -> str:
        """Return the version of the newest event."""
        return self._version(self._last)

    @property
    def devices(self) -> Mapping[str, contract.Device]:
        """Return the devices as last published, each with its etag."""
        return self._devices

    @property
    def is_whole(self) -> bool:
        """Return whether all parts of the fabric could be read; only then is a missing device gone."""
        return not self._unread

    @property
    def hosts(self) -> tuple[contract.Host, ...]:
        """Return the hosts as last published."""
        return tuple(self._hosts.values())

    def publish(
        self,
        devices: tuple[contract.Device, ...],
        hosts: tuple[contract.Host, ...],
        *,
        unread: Set[str] = frozenset(),
    ) -> None:
        """Publish a reading. Devices come without etags, and an unchanged one keeps its etag.

        While a part cannot be read, a missing device is in doubt. Watchers then list again, and get no event that it
        is gone.
        """
        self._trouble = None
        listed_hosts = {host.id: host for host in hosts}
        is_in_doubt = bool(unread) and bool(self._devices.keys() - {device.id for device in devices})
        if self._hosts.keys() - listed_hosts.keys() or unread != self._unread or is_in_doubt:
            self._resync()
        self._unread = frozenset(unread)
        for host in hosts:
            if self._hosts.get(host.id) != host:
                self._append(contract.HostChanged(version=self._next(), host=host))
        self._hosts = listed_hosts
        listed = set()
        for device in devices:
            listed.add(device.id)
            current = self._devices.get(device.id)
            if current is None or replace(current, etag=None) != device:
                changed = replace(device, etag=self._next())
                self._devices[device.id] = changed
                self._append(contract.DeviceChanged(version=self._next(), device=changed))
        for device_id in self._devices.keys() - listed:
            del self._devices[device_id]
            if unread:
                continue
            self._append(contract.DeviceGone(version=self._next(), device_id=device_id))

    def operation_changed(self, operation: contract.Operation) -> None:
        """Publish that an operation began or finished."""
        self._append(contract.OperationChanged(version=self._next(), operation=operation))

    def exceed(self, subject: str, sentence: str) -> None:
        """Tell all watchers, including future ones, that the manager exceeds a limit; an empty sentence ends that."""
        if self._exceeded.get(subject, "") != sentence:
            self._exceeded[subject] = sentence
            self._append(self._bookmark(self._last + 1))

    def interrupt(self, trouble: errors.FabricError) -> None:
        """End all watches because the fabric cannot be read; the next publish ends the trouble."""
        self._trouble = trouble
        self._wake()

    async def follow(
        self, from_version: str, *, bookmark_seconds: float = contract.BOOKMARK_SECONDS
    ) -> AsyncGenerator[contract.WatchEvent, None]:
        """Yield the events after a version, with the guarantees of `FabricAdapter.watch`."""
        position = self._position(from_version)
        if position is None:
            yield contract.Resync()
            return
        self.watchers += 1
        try:
            yield self._bookmark(position)
            while True:
                while position < self._last:
                    event = self._events.get(position + 1)
                    if event is None:
                        yield contract.Resync()
                        return
                    position += 1
                    yield event
                if self._trouble is not None:
                    raise errors.Unavailable(
                        self._trouble.message, reason=self._trouble.reason
                    ) from self._trouble
                news = self._news
                try:
                    async with asyncio.timeout(bookmark_seconds):
                        await news.wait()
                except TimeoutError:
                    yield self._bookmark(position)
        finally:
            self.watchers -= 1

    def _append(self, event: contract.WatchEvent) -> None:
        self._last += 1
        self._events[self._last] = event
        self._events.pop(self._last - self._remembered, None)
        self._wake()

    def _resync(self) -> None:
        """Leave a gap in the numbers, so that every watcher gets a resync."""
        self._events.clear()
        self._last += 1
        self._wake()

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    def _bookmark(self, position: int) -> contract.Bookmark:
        sentences = (sentence for sentence in self._exceeded.values() if sentence)
        return contract.Bookmark(version=self._version(position), exceeded="; ".join(sentences))

    def _next(self) -> str:
        return self._version(self._last + 1)

    def _version(self, number: int) -> str:
        return f"{self._life}-{number}"

    def _position(self, version: str) -> int | None:
        """Return the number in a version of this life if all later events are known; else None."""
        life, _, number = version.partition("-")
        if life != self._life or _NUMBER.fullmatch(number) is None:
            return None
        position = int(number)
        oldest = min(self._events, default=self._last + 1)
        return position if oldest - 1 <= position <= self._last else None
