"""Writes to the store, and the journal of writes with possible consequences."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

from drawbar.mocks.apiserver import garbage
from drawbar.mocks.apiserver.resources import ResourceType
from drawbar.mocks.apiserver.storage import Store, key_of

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A write with possible consequences.

    It is a removal (``new`` is None), or a write of an object with owners or a deletion time stamp.
    """

    resource: ResourceType
    old: Json | None
    new: Json | None


class Ledger:
    """The only way to write to the store.

    Attributes:
        graph: the dependents of each owner.
        journal: the writes not yet handled by ``collector.settle``. It runs at the end of each request, so the journal
            stays short.
    """

    def __init__(self, store: Store) -> None:
        """Write to ``store``."""
        self.graph = garbage.Graph()
        self.journal: deque[Entry] = deque()
        self._store = store

    def adopt(self) -> None:
        """Record the owners in a store that was filled without this ledger."""
        for where, collection in self._store.collections().items():
            for item in collection.items.values():
                self.graph.follow(where, None, item)

    def put(self, resource: ResourceType, item: Json) -> Json:
        """Store an object under a new resourceVersion and return the stored object."""
        old = self._store.collection(resource.where).items.get(key_of(item))
        stored = self._store.put(resource.where, item)
        owned = garbage.references(old) or garbage.references(stored)
        if owned:
            self.graph.follow(resource.where, old, stored)
        if owned or stored["metadata"].get("deletionTimestamp"):
            self.journal.append(Entry(resource=resource, old=old, new=stored))
        return stored

    def remove(self, resource: ResourceType, item: Json) -> Json:
        """Remove an object and return its last state under the version of the deletion."""
        old = self._store.collection(resource.where).items[key_of(item)]
        last = self._store.remove(resource.where, item)
        self.graph.follow(resource.where, old, None)
        self.journal.append(Entry(resource=resource, old=old, new=None))
        return last
