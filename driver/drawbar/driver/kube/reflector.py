"""A local copy of a collection, kept current by list and watch.

Guarantees: `synced` is set once the first list is in; `changed(old, new)` is called once for every difference, in the
order the API server tells them, whether it came by watch or was found by a new list; nothing is polled. A denied or
unreachable API server is tried again with growing, jittered pauses and said once per change of the reason.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

import tenacity

from drawbar.driver.api import meta
from drawbar.driver.kube import client, errors, kinds

log = logging.getLogger(__name__)

PAUSE_FIRST_SECONDS = 0.2
PAUSE_MAX_SECONDS = 30.0


class Item(Protocol):
    """What a reflected object must have."""

    @property
    def metadata(self) -> meta.ObjectMeta:
        """Name, uid and version."""
        ...


T = TypeVar("T", bound=Item)
Key = tuple[str, str]


class Reflector(Generic[T]):
    """The local copy. Run `run()` as a task; read with `get`, `items`."""

    def __init__(
        self,
        api: client.Client,
        kind: kinds.Kind,
        *,
        into: type[T],
        changed: Callable[[T | None, T | None], None],
        namespace: str | None = None,
        labels: str = "",
        fields: str = "",
    ) -> None:
        self._api = api
        self._kind = kind
        self._into = into
        self._changed = changed
        self._namespace = namespace
        self._labels = labels
        self._fields = fields
        self._items: dict[Key, T] = {}
        self._said = ""
        self.synced = asyncio.Event()

    def get(self, name: str, namespace: str = "") -> T | None:
        """The object as last seen, or None."""
        return self._items.get((namespace, name))

    def __iter__(self) -> Iterator[T]:
        return iter(tuple(self._items.values()))

    def __len__(self) -> int:
        return len(self._items)

    def learn(self, item: T) -> None:
        """Takes over what a write of ours returned, so that the next decision sees it before the watch tells."""
        self._put(item)

    async def run(self) -> None:
        """Lists and watches until cancelled."""
        while True:
            async for attempt in tenacity.AsyncRetrying(
                retry=tenacity.retry_if_exception_type(errors.KubeError),
                wait=tenacity.wait_exponential_jitter(multiplier=PAUSE_FIRST_SECONDS, max=PAUSE_MAX_SECONDS),
                before_sleep=self._say,
            ):
                with attempt:
                    version = await self._list()
            self._said = ""
            try:
                await self._watch(version)
            except errors.KubeError as error:
                log.info(
                    "watch ended, listing again", extra={"kind": self._kind.plural, "reason": str(error)}
                )

    async def _list(self) -> str:
        listing = await self._api.list_all(
            self._kind, into=self._into, namespace=self._namespace, labels=self._labels, fields=self._fields
        )
        fresh = {_key(item): item for item in listing.items}
        for key in self._items.keys() - fresh.keys():
            self._drop(key)
        for item in listing.items:
            self._put(item)
        self.synced.set()
        return listing.resource_version

    async def _watch(self, version: str) -> None:
        while True:
            async for event in self._api.watch(
                self._kind,
                into=self._into,
                resource_version=version,
                namespace=self._namespace,
                labels=self._labels,
                fields=self._fields,
            ):
                version = event.resource_version or version
                if event.item is None:
                    continue
                if event.type == "DELETED":
                    self._drop(_key(event.item))
                else:
                    self._put(event.item)

    def _put(self, item: T) -> None:
        key = _key(item)
        old = self._items.get(key)
        if old is not None and not _newer(item, old):
            return
        self._items[key] = item
        self._changed(old, item)

    def _drop(self, key: Key) -> None:
        old = self._items.pop(key, None)
        if old is not None:
            self._changed(old, None)

    def _say(self, state: tenacity.RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        if str(error) != self._said:
            self._said = str(error)
            log.warning(
                "cannot read %s: %s", self._kind.plural, error, extra={"attempt": state.attempt_number}
            )


def _key(item: Item) -> Key:
    return item.metadata.namespace, item.metadata.name


def _newer(item: Item, known: Item) -> bool:
    """Whether `item` replaces `known`. Versions are compared as numbers, as KEP-5504 allows since 1.35.

    An object of another uid always does: it was deleted and made again.
    """
    if item.metadata.uid != known.metadata.uid:
        return True
    new, old = item.metadata.resource_version, known.metadata.resource_version
    if new.isdigit() and old.isdigit():
        return int(new) > int(old)
    return new != old
