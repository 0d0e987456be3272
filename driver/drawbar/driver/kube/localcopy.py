"""The objects of a collection in memory, each in its newest state, and reports of their changes."""

import functools
import logging
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, Protocol, TypeVar

from drawbar.driver import containment, naturalorder
from drawbar.driver.api import meta
from drawbar.driver.kube import events, exclusions, kinds

log = logging.getLogger(__name__)

# A write's answer is late by seconds at most; fewer objects than this are deleted in that time.
DELETED_LIMIT = 1000


class Item(Protocol):
    """An object with metadata."""

    @property
    def metadata(self) -> meta.ObjectMeta:
        """Name, uid and version."""
        ...


T = TypeVar("T", bound=Item)
Key = tuple[str, str]
Unread = Callable[[exclusions.Unreadable | None, exclusions.Unreadable | None], None]
"""Called with an object that cannot be read, as it was and as it is."""


class LocalCopy(Generic[T]):
    """The copy. The newest state stays, in any order of a write's answer, the watch and a list.

    Attributes:
        kind: of its objects.
        unreadable: by namespace and name, the existing objects that cannot be read.
    """

    def __init__(
        self,
        kind: kinds.Kind,
        changed: Callable[[T | None, T | None], None] | None,
        contained: containment.Containment | None,
        recorder: events.Recorder | None,
    ) -> None:
        # An unexpected error of `changed` becomes an Event on the object; without `contained` it is raised.
        self.kind = kind
        self.unreadable: dict[Key, exclusions.Unreadable] = {}
        self._changed = changed or _ignore
        self._unreadable_changed: Unread = _ignore
        self._recorder = recorder
        self._callbacks: containment.Callbacks[Hashable] = containment.Callbacks(
            contained or containment.Uncontained(), f"watch-{kind.plural}"
        )
        self._items: dict[Key, T] = {}
        # Keys that `learn` stored and neither watch nor list has confirmed yet.
        self._ahead: set[Key] = set()
        self._deleted: OrderedDict[str, None] = OrderedDict()

    def follow(self, changed: Callable[[T | None, T | None], None]) -> None:
        """Have `changed` called from now on, in place of the former callback."""
        self._changed = changed

    def report_unreadable(self, changed: Unread) -> None:
        """Have `changed` called with the objects that cannot be read from now on."""
        self._unreadable_changed = changed

    def get(self, name: str, namespace: str = "") -> T | None:
        """Return the object as last seen, or None."""
        return self._items.get((namespace, name))

    def is_unreadable(self, name: str, namespace: str = "") -> bool:
        """Return whether there is an object of that name that cannot be read."""
        return (namespace, name) in self.unreadable

    def __iter__(self) -> Iterator[T]:
        return iter(tuple(self._items.values()))

    def __len__(self) -> int:
        return len(self._items)

    def learn(self, item: T) -> None:
        """Take over the answer of a write that another client made for this process."""
        if item.metadata.uid not in self._deleted and self.put(item):
            self._ahead.add(key_of(item.metadata))

    def unlearn(self, item: T) -> None:
        """Forget an object that a write has ended, before the watch reports it."""
        self.drop(key_of(item.metadata), item.metadata.uid)

    @property
    def worker(self) -> str:
        """Return the name of this watch among the workers of a daemon."""
        return self._callbacks.worker

    def put(self, item: T, *, by_list: bool = False) -> bool:
        """Store an object if it is newer; return whether it was.

        From a list it is stored even if it is older: the API server may have been restored from a backup.
        """
        key = key_of(item.metadata)
        old = self._items.get(key)
        if old is not None:
            version, stored = item.metadata.resource_version, old.metadata.resource_version
            if version == stored or not (by_list or is_later(version, stored)):
                return False
        self._items[key] = item
        self._tell(key, old, item)
        return True

    def confirm(self, item: T) -> None:
        """Note that watch or list has reported an object: it exists, and our copy is not ahead unless it is newer."""
        self._deleted.pop(item.metadata.uid, None)
        stored = self._items[key_of(item.metadata)]
        if not is_later(stored.metadata.resource_version, item.metadata.resource_version):
            self._ahead.discard(key_of(item.metadata))

    def drop(self, key: Key, uid: str) -> None:
        """Remove the object of that uid, and remember that it is gone. Another object of its name stays."""
        self._deleted[uid] = None
        if len(self._deleted) > DELETED_LIMIT:
            self._deleted.popitem(last=False)
        old = self._items.get(key)
        if old is None or old.metadata.uid != uid:
            return
        del self._items[key]
        self._ahead.discard(key)
        self._tell(key, old, None)

    def leave_out_only(self, listed: tuple[exclusions.Unreadable, ...]) -> None:
        """Note that these objects, and no others, cannot be read."""
        for key in self.unreadable.keys() - {key_of(left.metadata) for left in listed}:
            self.take_in(key)
        for left in listed:
            self.leave_out(left)

    def leave_out(self, left: exclusions.Unreadable) -> None:
        """Note that the object cannot be read; its last state stays, that of another object of its name does not."""
        key, uid = key_of(left.metadata), left.metadata.uid
        stored, before = self._items.get(key), self.unreadable.get(key)
        if stored is not None and stored.metadata.uid != uid:
            self.drop(key, stored.metadata.uid)
        self.unreadable[key] = left
        if before is None or before.metadata.uid != uid:
            log.warning("%s", left)
            self._tell_unreadable(key, before, left)

    def take_in(self, key: Key) -> None:
        """Note that the object is gone or was read."""
        left = self.unreadable.pop(key, None)
        if left is not None:
            self._tell_unreadable(key, left, None)

    def _tell(self, key: Key, old: T | None, new: T | None) -> None:
        item = new or old
        assert item is not None
        self._callbacks.tell(
            key,
            self._changed,
            old,
            new,
            extra=lambda: {"namespace": key[0], "object": key[1]},
            report=functools.partial(self._report, item.metadata),
        )

    def _report(self, metadata: meta.ObjectMeta, failure: str) -> None:
        if self._recorder is not None:
            self._recorder.record_unexpected(self.kind, metadata, failure)

    def _tell_unreadable(
        self, key: Key, old: exclusions.Unreadable | None, new: exclusions.Unreadable | None
    ) -> None:
        self._callbacks.call(
            ("unreadable", key),
            functools.partial(self._unreadable_changed, old, new),
            extra=lambda: {"namespace": key[0], "object": key[1]},
        )

    def keep_only(self, fresh: dict[Key, T], version: str, left_out: set[str]) -> None:
        """Take over a list: drop the objects that are not in it, and store those that are.

        Args:
            fresh: the listed objects.
            version: the resourceVersion of the list.
            left_out: the uids of the objects that cannot be read; their last states stay.
        """
        for key, item in tuple(self._items.items()):
            if item.metadata.uid in left_out:
                continue
            # The list may have been made before a write whose answer is stored already.
            if key in self._ahead and is_later(item.metadata.resource_version, version):
                fresh.pop(key, None)
            elif key not in fresh:
                self.drop(key, item.metadata.uid)
        for item in fresh.values():
            self.put(item, by_list=True)
            self.confirm(item)


def _ignore(_old: object, _new: object) -> None:
    """Take no notice of a change."""


def key_of(metadata: meta.ObjectMeta) -> Key:
    """Return the namespace and the name of an object."""
    return metadata.namespace, metadata.name


def is_later(version: str, than: str) -> bool:
    """Return whether one resourceVersion is newer than the other, of any two objects of one collection.

    They are compared as numbers, as KEP-5504 allows since 1.35; where they are not numbers, the one received last is newer.
    """
    numbers = naturalorder.number_key(version), naturalorder.number_key(than)
    if numbers[0] is not None and numbers[1] is not None:
        return numbers[0] > numbers[1]
    return version != than
