"""A local copy of a collection, kept current by list and watch.

Guarantees: `synced` is set once the first list is in; `changed(old, new)` is called once for every difference, in the
API server's order, whether by watch or by a new list; nothing is polled. After an error, or a watch that ends at once, it
lists and watches again after growing, jittered pauses; each new reason is logged once.

A write through the copy (`create`, `apply`, `merge`, `delete`) is in it once the write is done, before the watch
reports it. In any order of the answer, the watch and a list, the newest state stays, and an object that was
deleted does not come back.

An object that cannot be read (see `exclusions.Unreadable`) is left out alone: its last state stays until it is gone or can be
read. The callback of `report_unreadable` is called with None and the object when it is left out, and with the object and None when
it is gone or read again. All other objects are followed. It is not in the copy if it was never read: ask
`is_unreadable` before you act on its absence.

If `changed` fails unexpectedly for one object, it is called again for that object after growing pauses, with the state that it took
over last and the state of then. The changes of other objects are reported meanwhile.
"""

import asyncio
import datetime
import errno
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, Generic

from drawbar.driver import backoff, clocks, containment
from drawbar.driver.kube import client, errors, events, kinds, localcopy
from drawbar.driver.kube.localcopy import T

log = logging.getLogger(__name__)

Item = localcopy.Item

_ABSENCE = frozenset({errno.ECONNREFUSED, errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH})
FRESH_SECONDS = 10.0
"""For this long a list is regarded as current."""


class Mirror(localcopy.LocalCopy[T], Generic[T]):
    """The local copy. Run `run()` as a task; read with `get` and by iteration.

    Attributes:
        synced: whether the first list has arrived.
        answered: whether the API server has answered, even with an error.
        problem: the reason why the collection cannot be followed now; None without one.
        current_until: the last moment at which the copy was known to be current; None without a problem or a clock, or
            if the collection was never listed.
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
        clock: clocks.Clock | None = None,
    ) -> None:
        super().__init__(kind, changed, contained, recorder)
        self._api = api
        self._into = into
        self._namespace = namespace
        self._labels = labels
        self._fields = fields
        # For a selection that this API server does not support.
        self._keep = keep
        # The time of day for `current_until`; only views need it.
        self._clock = clock
        self._backoff = backoff.Backoff()
        self._logged = ""
        self._listed_at = -FRESH_SECONDS
        self._heard_at: datetime.datetime | None = None
        self._stale = asyncio.Event()
        self.synced = asyncio.Event()
        self.answered = asyncio.Event()
        self.problem: errors.KubeError | None = None
        self.current_until: datetime.datetime | None = None

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
                    self._date_answer()
                self._date_answer()
            except errors.KubeError as error:
                version = ""
                asked = error.retry_after_seconds if isinstance(error, errors.Throttled) else 0.0
                self._log(error)
            lived = loop.time() - watching_since if watching_since is not None else 0.0
            if lived >= backoff.HEALTHY_SECONDS:
                self._logged = ""
            await asyncio.sleep(self._backoff.compute_pause(lived, asked))

    async def _list(self) -> str:
        asked_at = asyncio.get_running_loop().time()
        listing = await self._api.list_all(
            self.kind, into=self._into, namespace=self._namespace, labels=self._labels, fields=self._fields
        )
        fresh = {
            localcopy.key_of(item.metadata): item
            for item in listing.items
            if self._keep is None or self._keep(item)
        }
        left_out = {left.metadata.uid for left in listing.unreadable}
        self.keep_only(fresh, listing.resource_version, left_out)
        self.leave_out_only(listing.unreadable)
        self._listed_at = asked_at
        self.problem = self.current_until = None
        self._date_answer()
        self.synced.set()
        self.answered.set()
        return listing.resource_version

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
                self.drop(localcopy.key_of(seen.metadata), seen.metadata.uid)
            elif event.item is not None and (self._keep is None or self._keep(event.item)):
                self.put(event.item)
                self.confirm(event.item)
            elif event.item is not None and localcopy.key_of(event.item.metadata) in self._items:
                # The selection no longer includes it.
                self.drop(localcopy.key_of(event.item.metadata), event.item.metadata.uid)
            if event.unreadable is not None and event.type != "DELETED":
                self.leave_out(event.unreadable)
            elif seen is not None:
                self.take_in(localcopy.key_of(seen.metadata))
            yield event.resource_version or version

    def _date_answer(self) -> None:
        if self._clock is not None:
            self._heard_at = self._clock()

    def _log(self, error: errors.KubeError) -> None:
        if isinstance(error, errors.Expired):
            log.info("watch is too old, listing again", extra={"kind": self.kind.plural})
            return
        if self.problem is None and self._heard_at is not None:
            # The break of an open connection is noticed at once, but a silent or absent peer may have been gone for long.
            if not _is_absence(error):
                self._date_answer()
            self.current_until = self._heard_at
        self.problem = error
        self.answered.set()
        if str(error) != self._logged:
            self._logged = str(error)
            log.warning("cannot follow %s, trying again: %s", self.kind.plural, error)


def _is_absence(error: BaseException | None) -> bool:
    """Return whether the cause of the error is a peer that cannot be reached or did not answer in time."""
    while error is not None:
        if isinstance(error, TimeoutError) or getattr(error, "errno", None) in _ABSENCE:
            return True
        error = error.__cause__ or error.__context__
    return False


def count_unreadable(mirrors: Iterable[Mirror[Any]]) -> dict[str, float]:
    """Return the number of objects that cannot be read, by the plural of their kind."""
    counted: Counter[str] = Counter()
    for followed in mirrors:
        counted[followed.kind.plural] += len(followed.unreadable)
    return {plural: float(number) for plural, number in counted.items()}
