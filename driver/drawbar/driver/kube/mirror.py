"""A local copy of a collection, kept current by list and watch.

Guarantees: `synced` is set once the first list is in; `changed(old, new)` is called once for every difference, in the
API server's order, whether by watch or by a new list; nothing is polled. After an error, or a watch that ends at once, it
lists and watches again after growing, jittered pauses; each new reason is logged once.

What is written through the copy (`create`, `apply`, `merge`, `delete`) is in it once the write is done, before the watch
reports it. In whatever order the answer, the watch and a list arrive, the newest state stays, and an object that was
deleted does not come back.

An object that cannot be read (see `exclusions.Unreadable`) is left out alone: its last state stays until it is gone or can be
read. The callback of `report_unreadable` is called with None and the object when it is left out, and with the object and None when
it is gone or read again. All other objects are followed. It is not in the copy if it was never read: ask
`is_unreadable` before you act on its absence.

If `changed` fails unexpectedly for one object, it is called again for that object after growing pauses, with the state that it took
over last and the state of then. The changes of other objects are reported meanwhile.
"""

import asyncio
import functools
import logging
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Iterator
from typing import Any, Generic, Protocol, TypeVar

from drawbar.driver import backoff, containment
from drawbar.driver.api import meta
from drawbar.driver.kube import client, errors, events, exclusions, kinds

log = logging.getLogger(__name__)

# The answer of a write is late by seconds at most; fewer objects are deleted in that time.
DELETED_LIMIT = 1000
FRESH_SECONDS = 10.0
"""For this long a list is regarded as current."""


class Item(Protocol):
    """What a reflected object must have."""

    @property
    def metadata(self) -> meta.ObjectMeta:
        """Name, uid and version."""
        ...


T = TypeVar("T", bound=Item)
Key = tuple[str, str]
Unread = Callable[[exclusions.Unreadable | None, exclusions.Unreadable | None], None]
"""Called with an object that cannot be read, as it was and as it is."""


class Mirror(Generic[T]):
    """The local copy. Run `run()` as a task; read with `get` and by iteration.

    Attributes:
        synced: the first list is in.
        answered: the API server has answered, be it with an error.
        problem: why the collection cannot be followed now; None while it can.
        kind: of its objects.
        unreadable: by namespace and name, the objects that are there and cannot be read.
    """

    def __init__(
        self,
        api: client.Client,
        kind: kinds.Kind,
        *,
        into: type[T],
        changed: Callable[[T | None, T | None], None] | None = None,
        namespace: str | None = None,
        labels: str = "",
        fields: str = "",
        keep: Callable[[T], bool] | None = None,
        contained: containment.Containment | None = None,
        recorder: events.Recorder | None = None,
    ) -> None:
        # An unexpected error of `changed` becomes an Event on the object; without `contained` it is raised.
        self._api = api
        self.kind = kind
        self._into = into
        self._changed = changed or _ignore
        self._namespace = namespace
        self._labels = labels
        self._fields = fields
        # For what this API server cannot select itself.
        self._keep = keep
        self._unreadable_changed: Unread = _ignore
        self.unreadable: dict[Key, exclusions.Unreadable] = {}
        self._recorder = recorder
        self._callbacks: containment.Callbacks[Hashable] = containment.Callbacks(
            contained or containment.Uncontained(), f"watch-{kind.plural}"
        )
        self._items: dict[Key, T] = {}
        # Keys that `learn` stored and neither watch nor list has confirmed yet.
        self._ahead: set[Key] = set()
        self._deleted: OrderedDict[str, None] = OrderedDict()
        self._backoff = backoff.Backoff()
        self._logged = ""
        self._listed_at = -FRESH_SECONDS
        self._stale = asyncio.Event()
        self.synced = asyncio.Event()
        self.answered = asyncio.Event()
        self.problem: errors.KubeError | None = None

    def follow(self, changed: Callable[[T | None, T | None], None]) -> None:
        """Have `changed` called from now on, in place of whatever was called before."""
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

    async def create(self, body: object, *, namespace: str | None = None) -> T:
        """Create an object; return it as stored.

        Raises:
            errors.AlreadyExists: there is one of that name.
        """
        stored = await self._api.create(self.kind, body, into=self._into, namespace=namespace)
        self.learn(stored)
        return stored

    async def apply(self, item: T, body: object, *, manager: str, subresource: str | None = None) -> T:
        """Apply to an object, server-side and with force; return it as stored.

        Raises:
            errors.KubeError: `body` names the uid, and perhaps the resourceVersion, that the object no longer has, or another
                failure of a write.
        """
        return await self._patch(item, body, client.Patch.APPLY, manager, subresource)

    async def merge(self, item: T, body: object, *, manager: str, subresource: str | None = None) -> T:
        """Change an object by a JSON merge patch; return it as stored.

        Raises:
            errors.KubeError: as for `apply`.
        """
        return await self._patch(item, body, client.Patch.MERGE, manager, subresource)

    async def delete(self, item: T) -> None:
        """Delete the object of this uid; its finalizers may keep it for a while. One that is gone already is success.

        Raises:
            errors.Conflict: another object has the name now.
        """
        metadata = item.metadata
        left = await self._api.begin_delete(
            self.kind,
            metadata.name,
            namespace=metadata.namespace or None,
            uid=metadata.uid,
            into=self._into,
        )
        if left is None:
            self.unlearn(item)
        else:
            self.learn(left)

    async def _patch(
        self, item: T, body: object, content: client.Patch, manager: str, subresource: str | None
    ) -> T:
        metadata = item.metadata
        try:
            stored = await self._api.patch(
                self.kind,
                metadata.name,
                body,
                content=content,
                into=self._into,
                namespace=metadata.namespace or None,
                subresource=subresource,
                manager=manager,
            )
        except errors.NotFound:
            self.unlearn(item)
            raise
        if stored.metadata.deletion_timestamp is not None and not stored.metadata.finalizers:
            # The write removed the last finalizer, and with it the object.
            self.unlearn(stored)
        else:
            self.learn(stored)
        return stored

    def learn(self, item: T) -> None:
        """Take over the answer of a write that another client made for this process."""
        if item.metadata.uid not in self._deleted and self._put(item):
            self._ahead.add(_key(item.metadata))

    def unlearn(self, item: T) -> None:
        """Forget an object that a write has ended, before the watch reports it."""
        self._drop(_key(item.metadata), item.metadata.uid)

    async def renew(self) -> None:
        """List again, unless that was done within `FRESH_SECONDS`; return once the list is in.

        For callers that act on the absence of an object: a watch whose peer vanished is silent until the connection
        fails.
        """
        if self.synced.is_set() and asyncio.get_running_loop().time() - self._listed_at < FRESH_SECONDS:
            return
        self.synced.clear()
        self._stale.set()
        await self.synced.wait()

    async def run(self) -> None:
        """List and watch until cancelled."""
        while True:
            self._stale.clear()
            async with asyncio.TaskGroup() as tasks:
                following = tasks.create_task(self._follow(), name=f"{self.kind.plural}-watch")
                await self._stale.wait()
                following.cancel()

    @property
    def worker(self) -> str:
        """The name of this watch among the workers of a daemon."""
        return self._callbacks.worker

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
            self._recorder.unexpected(self.kind, metadata, failure)

    async def _follow(self) -> None:
        loop = asyncio.get_running_loop()
        version = ""
        while True:
            watching_since: float | None = None
            asked = 0.0
            try:
                version = version or await self._list()
                watching_since = loop.time()
                async for seen in self._watch(version):
                    version = seen
            except errors.KubeError as error:
                version = ""
                asked = error.retry_after_seconds if isinstance(error, errors.Throttled) else 0.0
                self._log(error)
            lived = loop.time() - watching_since if watching_since is not None else 0.0
            if lived >= backoff.HEALTHY_SECONDS:
                self._logged = ""
            await asyncio.sleep(self._backoff.ended(lived, asked))

    async def _list(self) -> str:
        asked_at = asyncio.get_running_loop().time()
        listing = await self._api.list_all(
            self.kind, into=self._into, namespace=self._namespace, labels=self._labels, fields=self._fields
        )
        fresh = {
            _key(item.metadata): item for item in listing.items if self._keep is None or self._keep(item)
        }
        left_out = {left.metadata.uid for left in listing.unreadable}
        for key, item in tuple(self._items.items()):
            if item.metadata.uid in left_out:
                continue
            # The list may have been made before a write whose answer is stored already.
            if key in self._ahead and _later(item.metadata.resource_version, listing.resource_version):
                fresh.pop(key, None)
            elif key not in fresh:
                self._drop(key, item.metadata.uid)
        for item in fresh.values():
            self._put(item, by_list=True)
            self._confirm(item)
        self._leave_out_only(listing.unreadable)
        self._listed_at = asked_at
        self.problem = None
        self.synced.set()
        self.answered.set()
        return listing.resource_version

    def _leave_out_only(self, listed: tuple[exclusions.Unreadable, ...]) -> None:
        for key in self.unreadable.keys() - {_key(left.metadata) for left in listed}:
            self._take_in(key)
        for left in listed:
            self._leave_out(left)

    def _leave_out(self, left: exclusions.Unreadable) -> None:
        """Note that the object cannot be read; its last state stays, that of another object of its name does not."""
        key, uid = _key(left.metadata), left.metadata.uid
        stored, before = self._items.get(key), self.unreadable.get(key)
        if stored is not None and stored.metadata.uid != uid:
            self._drop(key, stored.metadata.uid)
        self.unreadable[key] = left
        if before is None or before.metadata.uid != uid:
            log.warning("%s", left)
            self._tell_unreadable(key, before, left)

    def _take_in(self, key: Key) -> None:
        """Note that the object is gone or was read."""
        left = self.unreadable.pop(key, None)
        if left is not None:
            self._tell_unreadable(key, left, None)

    def _tell_unreadable(
        self, key: Key, old: exclusions.Unreadable | None, new: exclusions.Unreadable | None
    ) -> None:
        self._callbacks.call(
            ("unreadable", key),
            functools.partial(self._unreadable_changed, old, new),
            extra=lambda: {"namespace": key[0], "object": key[1]},
        )

    async def _watch(self, version: str) -> AsyncIterator[str]:
        """Apply one watch to its end; yield the version to continue from after each event."""
        async for event in self._api.watch(
            self.kind,
            into=self._into,
            resource_version=version,
            namespace=self._namespace,
            labels=self._labels,
            fields=self._fields,
        ):
            seen = event.item or event.unreadable
            if seen is not None and event.type == "DELETED":
                self._drop(_key(seen.metadata), seen.metadata.uid)
            elif event.item is not None and (self._keep is None or self._keep(event.item)):
                self._put(event.item)
                self._confirm(event.item)
            elif event.item is not None and _key(event.item.metadata) in self._items:
                # It was to be kept, and is not any more.
                self._drop(_key(event.item.metadata), event.item.metadata.uid)
            if event.unreadable is not None and event.type != "DELETED":
                self._leave_out(event.unreadable)
            elif seen is not None:
                self._take_in(_key(seen.metadata))
            yield event.resource_version or version

    def _put(self, item: T, *, by_list: bool = False) -> bool:
        """Store an object if it is newer; return whether it was.

        From a list it is stored even if it is older: the API server may have been restored from a backup.
        """
        key = _key(item.metadata)
        old = self._items.get(key)
        if old is not None:
            version, stored = item.metadata.resource_version, old.metadata.resource_version
            if version == stored or not (by_list or _later(version, stored)):
                return False
        self._items[key] = item
        self._tell(key, old, item)
        return True

    def _confirm(self, item: T) -> None:
        """Note that watch or list has reported an object: it exists, and our copy is not ahead unless it is newer."""
        self._deleted.pop(item.metadata.uid, None)
        stored = self._items[_key(item.metadata)]
        if not _later(stored.metadata.resource_version, item.metadata.resource_version):
            self._ahead.discard(_key(item.metadata))

    def _drop(self, key: Key, uid: str) -> None:
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

    def _log(self, error: errors.KubeError) -> None:
        if isinstance(error, errors.Expired):
            log.info("watch is too old, listing again", extra={"kind": self.kind.plural})
            return
        self.problem = error
        self.answered.set()
        if str(error) != self._logged:
            self._logged = str(error)
            log.warning("cannot follow %s, trying again: %s", self.kind.plural, error)


def count_unreadable(mirrors: Iterable[Mirror[Any]]) -> dict[str, float]:
    """Return the number of objects that cannot be read, by the plural of their kind."""
    counted: Counter[str] = Counter()
    for followed in mirrors:
        counted[followed.kind.plural] += len(followed.unreadable)
    return {plural: float(number) for plural, number in counted.items()}


def _ignore(_old: object, _new: object) -> None:
    """Take no notice of a change."""


def _key(metadata: meta.ObjectMeta) -> Key:
    return metadata.namespace, metadata.name


def _later(version: str, than: str) -> bool:
    """Whether one resourceVersion is newer than the other, of any two objects of one collection.

    They are compared as numbers, as KEP-5504 allows since 1.35; where they are not numbers, the one received last is newer.
    """
    if version.isdecimal() and than.isdecimal():
        return int(version) > int(than)
    return version != than
