"""Resources of a service that seldom change, remembered between listings.

They are parts of devices, their cards, functions and numbers. A listing takes them from memory, so that it requests
only the changing resources. A remembered resource is read again by turns, the oldest first, and at once if a resource
that links to it has changed. The memory is bounded in resources and bytes.
"""

from collections import OrderedDict
from collections.abc import Callable, Set
from dataclasses import dataclass

import msgspec

from drawbar.fabric.redfish import documents
from drawbar.fabric.redfish.documents import Document

RESOURCES_MAX = 16_384
BYTES_MAX = 16 * 1024 * 1024
RESOURCE_BYTES_MAX = 64 * 1024
# The highest age of a resource in a requested listing.
SECONDS_MAX = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    document: Document
    size: int
    read_at: float


class Remembered:
    """Resources by URI, in the order of their readings."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, uri: str) -> bool:
        return uri in self._entries

    def find(self, uri: str) -> Document:
        """Return the last reading of the resource."""
        return self._entries[uri].document

    def age(self, uri: str) -> float:
        """Return the seconds since the last reading of the resource."""
        return self._clock() - self._entries[uri].read_at

    def oldest(self, number: int) -> frozenset[str]:
        """Return the URIs of the resources with the oldest readings, up to `number`."""
        return frozenset(uri for uri, _ in zip(self._entries, range(max(number, 0)), strict=False))

    def note(self, uri: str, document: Document) -> None:
        """Remember a resource that was read now; forget those that it links to if it has changed."""
        former = self._entries.get(uri)
        self.forget(uri)
        if former is not None and former.document.body != document.body:
            for linked in {*documents.links_in(former.document.body), *documents.links_in(document.body)}:
                self.forget(linked)
        size = len(uri) + len(msgspec.json.encode(document.body))
        if size > RESOURCE_BYTES_MAX:
            return
        self._entries[uri] = _Entry(document=document, size=size, read_at=self._clock())
        self._bytes += size
        while len(self._entries) > RESOURCES_MAX or self._bytes > BYTES_MAX:
            self.forget(next(iter(self._entries)))

    def keep_only(self, uris: Set[str]) -> None:
        """Forget all other resources."""
        for uri in self._entries.keys() - uris:
            self.forget(uri)

    def forget(self, uri: str) -> None:
        """Forget a resource, if it is remembered."""
        entry = self._entries.pop(uri, None)
        if entry is not None:
            self._bytes -= entry.size
