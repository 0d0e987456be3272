"""A local copy of a collection, kept current by list and watch.

Guarantees: `synced` is set once the first list is in. `changed(old, new)` is called once for each difference, in the API
server's order. `learn` takes over the answer of a write before the watch reports it. The newest state of an object stays in
any order of answer, watch and list, and a deleted object does not come back. After an error the copy lists again, after
growing pauses.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

from drawbar.mocks.kube import backoff, client, errors, kinds, meta

log = logging.getLogger(__name__)

HEALTHY_SECONDS = 5.0
"""A watch that lived so long was a success."""
GONE_LIMIT = 1000
"""The number of deleted objects to remember. The answer of a write is late by seconds at most."""


class Item(Protocol):
    """An object with metadata."""

    @property
    def metadata(self) -> meta.ObjectMeta:
        """Return its name, uid and version."""


T = TypeVar("T", bound=Item)
Changed = Callable[[T | None, T | None], None]
Key = tuple[str, str]


class Mirror(Generic[T]):
    """The local copy. Run `run()` as a task; read with `get` and by iteration.

    Attributes:
        synced: set once the first list is in.
    """

    def __init__(
        self,
        api: client.Client,
        kind: kinds.Kind,
        *,
        into: type[T],
        changed: Changed[T] = lambda _old, _new: None,
        namespace: str | None = None,
        labels: str = "",
        fields: str = "",
    ) -> None:
        self.synced = asyncio.Event()
        self._api = api
        self._kind = kind
        self._into = into
        self._changed = changed
        self._namespace, self._labels, self._fields = namespace, labels, fields
        self._items: dict[Key, T] = {}
        # Uids.
        self._gone: OrderedDict[str, None] = OrderedDict()
        self._listed = 0

    def __iter__(self) -> Iterator[T]:
        return iter(tuple(self._items.values()))

    def __len__(self) -> int:
        return len(self._items)

    def get(self, name: str, namespace: str = "") -> T | None:
        """Return the object in its newest known state, or None."""
        return self._items.get((namespace, name))

    def follow(self, changed: Changed[T]) -> None:
        """Have `changed` called from now on."""
        self._changed = changed

    def learn(self, item: T) -> None:
        """Take over the answer of a write."""
        self._put(item)

    async def merge(self, item: T, body: object, *, manager: str) -> T:
        """Change an object by a merge patch; return it as stored. Its last finalizer may be removed."""
        stored = await self._api.patch(
            self._kind,
            item.metadata.name,
            body,
            content=client.Patch.MERGE,
            into=self._into,
            namespace=item.metadata.namespace or None,
            manager=manager,
        )
        if stored.metadata.deletion_timestamp is not None and not stored.metadata.finalizers:
            self._remove(stored)
        else:
            self._put(stored)
        return stored

    async def run(self) -> None:
        """List and watch until cancelled."""
        loop = asyncio.get_running_loop()
        pauses, logged, version = backoff.Backoff(), "", ""
        while True:
            began, asked = loop.time(), 0.0
            try:
                version = version or await self._list()
                began = loop.time()
                async for event in self._api.watch(
                    self._kind,
                    into=self._into,
                    resource_version=version,
                    namespace=self._namespace,
                    labels=self._labels,
                    fields=self._fields,
                ):
                    version = event.resource_version or version
                    self._take(event)
            except errors.KubeError as error:
                version, asked = "", error.retry_after_seconds
                if str(error) != logged and not isinstance(error, errors.Expired):
                    log.warning("cannot follow %s, trying again: %s", self._kind.plural, error)
                    logged = str(error)
            if loop.time() - began >= HEALTHY_SECONDS:
                pauses.reset()
                logged = ""
            await asyncio.sleep(pauses.count_failure(asked))

    async def _list(self) -> str:
        listing = await self._api.list_all(
            self._kind,
            into=self._into,
            namespace=self._namespace,
            labels=self._labels,
            fields=self._fields,
        )
        listed = _number(listing.resource_version)
        # A server restored from a backup counts again from an older version.
        restored, self._listed = listed < self._listed, listed
        present = {_key(item) for item in listing.items}
        for key, old in tuple(self._items.items()):
            # A younger object was learnt after the list was made.
            if key not in present and (restored or _version(old) <= listed):
                self._remove(old)
        for item in listing.items:
            self._put(item, anyway=restored)
        self.synced.set()
        return listing.resource_version

    def _take(self, event: client.WatchEvent[T]) -> None:
        if event.item is None:
            return
        if event.type == "DELETED":
            self._remove(event.item)
        else:
            self._put(event.item)

    def _put(self, item: T, *, anyway: bool = False) -> None:
        """Store an object that is newer than the known state."""
        old = self._items.get(_key(item))
        if item.metadata.uid in self._gone and not anyway:
            return
        if old is not None and not anyway and _version(item) <= _version(old):
            return
        self._items[_key(item)] = item
        self._changed(old, item)

    def _remove(self, item: T) -> None:
        """Remove the object of this uid; another object of its name stays."""
        self._gone[item.metadata.uid] = None
        if len(self._gone) > GONE_LIMIT:
            self._gone.popitem(last=False)
        old = self._items.get(_key(item))
        if old is not None and old.metadata.uid == item.metadata.uid:
            del self._items[_key(item)]
            self._changed(old, None)


def _key(item: Item) -> Key:
    return item.metadata.namespace, item.metadata.name


def _version(item: Item) -> int:
    return _number(item.metadata.resource_version)


def _number(version: str) -> int:
    """Return a resourceVersion as a number; they may be compared as such (KEP-5504)."""
    return int(version) if version.isdecimal() else 0
