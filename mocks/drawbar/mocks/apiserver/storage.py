"""The stored objects: one collection per resource, indexes, and one counter of versions.

Stored objects are never changed in place. A write stores a new value, so a reader may keep the old one. They have no
``apiVersion`` and ``kind``, which belong to the served version.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from typing import Any

from drawbar.mocks.apiserver import watch
from drawbar.mocks.apiserver.selectors import Selector

Json = dict[str, Any]
Key = watch.Key
StorageKey = tuple[str, str]  # (group, plural)

INDEX_LIMIT = 16  # indexes per collection; a selector beyond that is answered by a scan


class Collection:
    """All objects of one resource."""

    def __init__(self, *, history: int, start: int) -> None:
        """Start empty; ``history`` bounds the log of changes."""
        self.items: dict[Key, Json] = {}
        self.hub = watch.Hub(history=history, start=start)
        self.changed = start  # the version of the last change
        self._order: list[Key] = []
        self._indexes: dict[tuple[str, str], dict[str, set[Key]]] = {}

    def select(self, namespace: str, selector: Selector, *, after: Key | None = None) -> Iterator[Json]:
        """Yield the matching objects in key order, from one namespace (empty: all), after a key.

        Each object is examined on demand, so that the cost of a page depends on its size, not on the rest.
        """
        ahead = (self.items[key] for key in self._keys(namespace, selector, after))
        return filter(selector.matches, ahead) if selector.labels or selector.fields else ahead

    def select_at(
        self, version: int, namespace: str, selector: Selector, *, after: Key | None = None
    ) -> Iterator[Json]:
        """Return the same at an earlier version, reconstructed from the history.

        Raises:
            watch.CompactedError: the history no longer reaches back to that version.
        """
        past: dict[Key, Json | None] = {}
        for change in reversed(self.hub.list_changes_since(version)):
            past[change.key] = change.old
        if not past:
            return self.select(namespace, selector, after=after)
        merged = {**self.items, **past}
        return (
            item
            for key, item in sorted(merged.items(), key=lambda pair: pair[0])
            if item is not None
            and (not namespace or key[0] == namespace)
            and (after is None or key > after)
            and selector.matches(item)
        )

    def put(self, key: Key, item: Json, version: int) -> watch.Change:
        """Store an object and publish the change."""
        old = self.items.get(key)
        if old is None:
            bisect.insort(self._order, key)
        self.items[key] = item
        return self._publish(watch.Change(version=version, key=key, old=old, new=item))

    def remove(self, key: Key, item: Json, version: int) -> watch.Change:
        """Remove an object; ``item`` is its last state, with the version of the deletion."""
        current = self.items.pop(key)
        del self._order[bisect.bisect_left(self._order, key)]
        for pin, values in self._indexes.items():
            self._unindex(values, watch.pin_value(pin, current), key)
        return self._publish(watch.Change(version=version, key=key, old=item, new=None))

    def _publish(self, change: watch.Change) -> watch.Change:
        self.changed = change.version
        for pin, values in self._indexes.items():
            if change.new is not None:
                if change.old is not None:
                    self._unindex(values, watch.pin_value(pin, change.old), change.key)
                value = watch.pin_value(pin, change.new)
                if value is not None:
                    values.setdefault(value, set()).add(change.key)
        self.hub.publish(change)
        return change

    def _keys(self, namespace: str, selector: Selector, after: Key | None) -> list[Key]:
        name = selector.exact_name()
        if name is not None and namespace:
            key = (namespace, name)
            return [key] if key in self.items and (after is None or key > after) else []
        pin = selector.pin
        indexed = self._find_pinned_keys(pin) if pin is not None else None
        if indexed is not None:
            return sorted(
                key
                for key in indexed
                if (not namespace or key[0] == namespace) and (after is None or key > after)
            )
        low = bisect.bisect_left(self._order, (namespace, "")) if namespace else 0
        high = bisect.bisect_left(self._order, (namespace + "\0", "")) if namespace else len(self._order)
        if after is not None:
            low = max(low, bisect.bisect_right(self._order, after))
        return self._order[low:high]

    def _find_pinned_keys(self, pin: tuple[str, str, str]) -> set[Key] | None:
        kind, name, value = pin
        index = self._indexes.get((kind, name))
        if index is None:
            if len(self._indexes) >= INDEX_LIMIT:
                return None
            index = self._indexes[kind, name] = {}
            for key, item in self.items.items():
                held = watch.pin_value((kind, name), item)
                if held is not None:
                    index.setdefault(held, set()).add(key)
        return index.get(value, set())

    @staticmethod
    def _unindex(values: dict[str, set[Key]], value: str | None, key: Key) -> None:
        if value is not None and value in values:
            values[value].discard(key)
            if not values[value]:
                del values[value]


class Store:
    """All collections and the version counter, which every write increases by one."""

    def __init__(self, *, history: int = 10_000) -> None:
        """Start empty; each collection remembers at most ``history`` changes."""
        self.version = 1
        self._history = history
        self._collections: dict[StorageKey, Collection] = {}

    def collection(self, key: StorageKey) -> Collection:
        """Return the collection of a resource; make it on first use."""
        collection = self._collections.get(key)
        if collection is None:
            collection = self._collections[key] = Collection(history=self._history, start=self.version)
        return collection

    def collections(self) -> dict[StorageKey, Collection]:
        """Return all existing collections."""
        return dict(self._collections)

    def put(self, where: StorageKey, item: Json) -> Json:
        """Store an object under a new resourceVersion; return the stored object."""
        self.version += 1
        stored = with_version(item, self.version)
        self.collection(where).put(key_of(stored), stored, self.version)
        return stored

    def remove(self, where: StorageKey, item: Json) -> Json:
        """Remove an object and return its last state under the version of the deletion."""
        self.version += 1
        last = with_version(item, self.version)
        self.collection(where).remove(key_of(last), last, self.version)
        return last

    def compact(self) -> None:
        """Forget the history of every collection: older watches and lists get 410."""
        for collection in self._collections.values():
            collection.hub.compact()

    def restart(self) -> None:
        """Forget every history, like the watch cache of a new server; anything before now gets 410."""
        for collection in self._collections.values():
            collection.hub.compact(self.version)

    def close(self) -> None:
        """End every watch."""
        for collection in self._collections.values():
            collection.hub.close_all()


def key_of(item: Json) -> Key:
    """Return the key of an object."""
    metadata = item["metadata"]
    return (metadata.get("namespace", ""), metadata["name"])


def with_version(item: Json, version: int) -> Json:
    """Return the object under another resourceVersion."""
    return {**item, "metadata": {**item["metadata"], "resourceVersion": str(version)}}
