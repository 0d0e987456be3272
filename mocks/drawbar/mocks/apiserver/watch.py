"""The history of changes of one collection, and its watchers.

The history is a bounded log ordered by resourceVersion. A watcher starts at a version. It first receives the later
changes of the log, then every new change as it is committed. A change reaches only possibly interested watchers: those
with an exact requirement are found by it (``Selector.pin``). So five thousand watchers of one node each cost nothing
when another node's object changes.

Everything runs in one event loop; ``Hub.publish`` never waits. A watcher that does not keep up is marked
``overflowed`` and its stream ends, as in the real server; the client resumes from the last version seen.
"""

from __future__ import annotations

import asyncio
import bisect
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from drawbar.mocks.apiserver.selectors import Selector, field_value

Json = dict[str, Any]
Key = tuple[str, str]  # (namespace, name); the namespace is empty for cluster-scoped objects

PENDING_LIMIT = 10_000  # the maximum backlog of one watcher, in changes


@dataclass(slots=True, kw_only=True, eq=False)
class Change:
    """One committed write.

    ``old`` is None for a creation; ``new`` is None for a deletion, and ``old`` then has the deletion's own
    resourceVersion. ``wire`` caches encoded lines, so that many watchers share them.
    """

    version: int
    key: Key
    old: Json | None
    new: Json | None
    wire: dict[tuple[str, str], bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One watcher's view of a change: ``ADDED``, ``MODIFIED`` or ``DELETED``, and the object."""

    kind: str
    item: Json
    change: Change


class CompactedError(Exception):
    """The requested version is older than the kept history; ``oldest`` is the first usable one."""

    def __init__(self, oldest: int) -> None:
        """Keep the oldest version with a complete later history."""
        super().__init__(f"history starts at {oldest}")
        self.oldest = oldest


def make_event(change: Change, selector: Selector, namespace: str) -> Event | None:
    """Return a watcher's event for a change, or None.

    Entering and leaving the selection look like creation and deletion.
    """
    if namespace and change.key[0] != namespace:
        return None
    before = change.old is not None and selector.matches(change.old)
    after = change.new is not None and selector.matches(change.new)
    if after and change.new is not None:
        return Event(kind="MODIFIED" if before else "ADDED", item=change.new, change=change)
    if before and change.old is not None:
        item = change.old
        if change.new is not None:  # left the selection: the last matching state at this version
            item = {**item, "metadata": {**item["metadata"], "resourceVersion": str(change.version)}}
        return Event(kind="DELETED", item=item, change=change)
    return None


class Watcher:
    """One open watch; take its events with ``batch``."""

    def __init__(self, selector: Selector, namespace: str) -> None:
        """Watch one namespace (empty: all of them)."""
        self.selector = selector
        self.namespace = namespace
        self.overflowed = False
        self.closed = False
        self._pending: deque[Event] = deque()
        self._wake = asyncio.Event()

    @property
    def behind(self) -> bool:
        """Return true if events wait."""
        return bool(self._pending)

    def offer(self, event: Event) -> None:
        """Queue an event."""
        if len(self._pending) >= PENDING_LIMIT:
            self.overflowed = True
        else:
            self._pending.append(event)
        self._wake.set()

    def close(self) -> None:
        """End the watch from the server's side."""
        self.closed = True
        self._wake.set()

    def nudge(self) -> None:
        """Make ``batch`` return even without events, so that its caller checks the clock."""
        self._wake.set()

    async def batch(self) -> list[Event]:
        """Wait for events and take all; empty after a nudge and after the end of the watch."""
        if not self._pending and not self.closed and not self.overflowed:
            await self._wake.wait()
        events = list(self._pending)
        self._pending.clear()
        self._wake.clear()
        return events


@dataclass(slots=True, kw_only=True, eq=False)
class _Audience:
    """The watchers with the same selection; their event for a change is computed once."""

    selector: Selector
    namespace: str
    watchers: dict[Watcher, None] = field(default_factory=dict)


class Hub:
    """The history and the watchers of one collection."""

    def __init__(self, *, history: int, start: int) -> None:
        """Keep at most ``history`` changes; versions up to ``start`` are before the first change."""
        self._log: deque[Change] = deque()
        self._history = history
        self._complete_after = start  # every change with a greater version is in the log
        self._audiences: dict[tuple[Selector, str], _Audience] = {}
        self._unpinned: dict[tuple[Selector, str], _Audience] = {}
        self._pinned: dict[tuple[str, str], dict[str, dict[tuple[Selector, str], _Audience]]] = {}

    @property
    def oldest(self) -> int:
        """Return the oldest version from which a watch can start."""
        return self._complete_after

    def list_changes_since(self, version: int) -> list[Change]:
        """Return the changes after a version, oldest first.

        Raises:
            CompactedError: some of them are no longer in the history.
        """
        if version < self._complete_after:
            raise CompactedError(self._complete_after)
        start = bisect.bisect_right(self._log, version, key=lambda change: change.version)
        return [self._log[index] for index in range(start, len(self._log))]

    def publish(self, change: Change) -> None:
        """Record a change and offer it to the interested watchers."""
        self._log.append(change)
        if len(self._log) > self._history:
            self._complete_after = self._log.popleft().version
        for audience in self._find_audiences(change):
            event = make_event(change, audience.selector, audience.namespace)
            if event is not None:
                for watcher in audience.watchers:
                    watcher.offer(event)

    def compact(self, version: int = 0) -> None:
        """Forget the history, as a compaction of the real store does; versions before ``version`` become unusable."""
        if self._log:
            self._complete_after = self._log[-1].version
            self._log.clear()
        self._complete_after = max(self._complete_after, version)

    def open(self, watcher: Watcher, version: int) -> None:
        """Start a watch after ``version``.

        Raises:
            CompactedError: the version is too old.
        """
        for change in self.list_changes_since(version):
            event = make_event(change, watcher.selector, watcher.namespace)
            if event is not None:
                watcher.offer(event)
        key = (watcher.selector, watcher.namespace)
        audience = self._audiences.get(key)
        if audience is None:
            audience = self._audiences[key] = _Audience(
                selector=watcher.selector, namespace=watcher.namespace
            )
            self._row(watcher.selector)[key] = audience
        audience.watchers[watcher] = None

    def close(self, watcher: Watcher) -> None:
        """Forget a watcher; closing twice is harmless."""
        key = (watcher.selector, watcher.namespace)
        audience = self._audiences.get(key)
        if audience is None:
            return
        audience.watchers.pop(watcher, None)
        if audience.watchers:
            return
        del self._audiences[key]
        del self._row(watcher.selector)[key]
        if (pin := watcher.selector.pin) is not None and not self._pinned[pin[:2]][pin[2]]:
            del self._pinned[pin[:2]][pin[2]]
            if not self._pinned[pin[:2]]:
                del self._pinned[pin[:2]]

    def close_all(self) -> None:
        """End every watch."""
        for audience in self._audiences.values():
            for watcher in audience.watchers:
                watcher.close()

    def _row(self, selector: Selector) -> dict[tuple[Selector, str], _Audience]:
        pin = selector.pin
        if pin is None:
            return self._unpinned
        kind, key, value = pin
        return self._pinned.setdefault((kind, key), {}).setdefault(value, {})

    def _find_audiences(self, change: Change) -> Iterator[_Audience]:
        yield from self._unpinned.values()
        for (kind, key), values in self._pinned.items():
            wanted = {pin_value((kind, key), item) for item in (change.old, change.new) if item is not None}
            for value in wanted:
                if value is not None:
                    yield from values.get(value, {}).values()


def pin_value(pin: tuple[str, str], item: Json) -> str | None:
    """Return an object's value under a pin: of a label, or of a selectable field."""
    kind, key = pin
    if kind == "label":
        value = (item["metadata"].get("labels") or {}).get(key)
        return value if isinstance(value, str) else None
    return field_value(item, key)
