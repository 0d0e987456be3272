"""The devices of this node, kept current by uevents.

The inventory is read once from sysfs and then updated object by object. An event causes a read of its own objects only.
Events in quick succession are coalesced for each object. Lost events cause a read of everything. A slow audit finds
changes without an event.

Some effects of an event come later, without an event of their own. A slot loses its power after its functions have been
removed (pciehp_ctrl.c, `remove_board`). The decoders of a region are freed after the region is gone. Every object with an
event is therefore read again after a settling time.

A reading that hangs delays the others once (`hangingreads`): its object keeps the state of before.

Some identifiers appear after their card. Vital Product Data is read in separate threads (`slowreads`), and its function
is read again when the data has arrived. A driver that initialises its card later sends no event. To wait for such a card,
call `refresh_lagging`.
"""

import asyncio
import contextlib
import dataclasses
import functools
import itertools
import logging
import math
import os
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from drawbar.driver import clocks, containment
from drawbar.driver.node import errors, uevents
from drawbar.driver.node.discovery import hangingreads, live, reader, slowreads
from drawbar.driver.node.discovery.subjects import Kind, Subject
from drawbar.driver.node.inventory import index, model

_DAY_SECONDS = 86_400.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Tracking:
    """The settings of the tracking.

    Attributes:
        coalesce_seconds: the shortest time between two readings for events; the first event after a pause is
            read at once.
        audit_seconds: the time between audits for changes without an event, give or take a fifth; 0: never.
        audit_share: the audit's share of one processor core, from above 0 to 1.
    """

    coalesce_seconds: float = 0.01
    audit_seconds: float = 600.0
    audit_share: float = 0.1


def problems(tracking: Tracking) -> list[str]:
    """Return one sentence for each invalid value."""
    wrong = []
    # NaN fails each of these comparisons.
    if not 0 <= tracking.coalesce_seconds <= 1:
        wrong.append(f"coalesce_seconds is {tracking.coalesce_seconds}: give 0 to 1 second")
    if not (tracking.audit_seconds == 0 or 1 <= tracking.audit_seconds <= _DAY_SECONDS):
        wrong.append(f"audit_seconds is {tracking.audit_seconds}: give 0, or 1 to {_DAY_SECONDS:.0f} seconds")
    if not 0 < tracking.audit_share <= 1:
        wrong.append(f"audit_share is {tracking.audit_share}: give more than 0, and at most 1")
    return wrong


PAUSES_SECONDS = (0.5,)
"""The settling times after an event. A hot-plug driver finishes with a slot in 0.1 s; the audit covers slower ones."""
_MOST = 4096  # further items are ignored; the audit finds their changes

_Item = TypeVar("_Item")


class Settling(Generic[_Item]):
    """Items that come due some time after their last touch, without a clock of its own."""

    def __init__(self, pauses_seconds: Iterable[float] = PAUSES_SECONDS) -> None:
        self._queues: list[tuple[float, dict[_Item, float]]] = [(pause, {}) for pause in pauses_seconds]

    def touch(self, items: Iterable[_Item], now: float) -> None:
        """Schedule items with an event; each comes due once for every pause, counted from its last event."""
        for item in items:
            for pause, queue in self._queues:
                if queue.pop(item, None) is not None or len(queue) < _MOST:
                    queue[item] = now + pause  # at the end, so that the queue stays ordered by time

    def due(self, now: float) -> frozenset[_Item]:
        """Remove and return the items that are due."""
        due_now = set()
        for _, queue in self._queues:
            for item, moment in tuple(queue.items()):
                if moment > now:
                    break
                del queue[item]
                due_now.add(item)
        return frozenset(due_now)

    def next(self) -> float | None:
        """Return the time of the next due item, or None."""
        return min((next(iter(queue.values())) for _, queue in self._queues if queue), default=None)


log = logging.getLogger(__name__)

_AT_ONCE = 128  # objects in one read, before other tasks can use the thread and the model
_ROUNDS = 8  # rounds of consequences of an event; this bounds the work on an inconsistent tree
_NAMED_IN_LOG = 8


class Devices:
    """The node's devices: read once, then kept current by `follow`.

    All queries are answered from memory. Subscribers are called in the event loop after each change.
    """

    def __init__(
        self,
        sysfs: Path,
        changed: Callable[[], None] | None = None,
        settings: Tracking | None = None,
        *,
        pauses_seconds: Sequence[float] = PAUSES_SECONDS,
        patience_seconds: float = hangingreads.PATIENCE_SECONDS,
        contained: containment.Containment | None = None,
    ) -> None:
        """Start empty; call `read` to fill the inventory.

        Args:
            sysfs: the tree.
            changed: called after each change, without the details that `subscribe` gives.
            settings: the settings of the tracking.
            pauses_seconds: the times to read a device again after its event.
            patience_seconds: the time after which a reading without a result hangs.
            contained: isolates the other subscribers from an error in one; without it, the error is raised.
        """
        self._callbacks: containment.Callbacks[Callable[[live.Changes], None]] = containment.Callbacks(
            contained or containment.Uncontained(), "hardware-changes"
        )
        # By subscriber, the changes of its failed calls.
        self._pending: dict[Callable[[live.Changes], None], live.Changes] = {}
        self._is_followed = False
        self._root = os.fspath(sysfs)
        self._settings = settings or Tracking()
        self._live = live.Live()
        self._slow = slowreads.SlowReads(self._slow_read_finished)
        self._reads = hangingreads.HangingReads(
            self._root, self._slow, self._take_late, patience_seconds=patience_seconds
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = asyncio.Lock()
        self._due: dict[Subject, None] = {}
        self._everything = False
        self._heard = asyncio.Event()
        self._settling: Settling[Subject] = Settling(pauses_seconds)
        self._subscribers: list[Callable[[live.Changes], None]] = []
        if changed is not None:
            self.subscribe(lambda _: changed())
        self.readings = 0
        """The number of objects read."""
        self.audits = 0
        """The number of comparisons of everything with the kernel."""
        self.missed = 0
        """The number of changes without an event that these comparisons found."""
        self.losses = 0
        """The number of times that arrivals may have been missed: events were lost, or the reading of an object hung."""

    # --- queries ---

    @property
    def inventory(self) -> index.Inventory:
        """Return the current inventory, an immutable value."""
        return self._live.snapshot()

    @property
    def cards(self) -> tuple[model.Card, ...]:
        """Return every card, in order of address."""
        return self.inventory.cards

    def card_at(self, address: str) -> model.Card | None:
        """Return the card of the function at this address, or None."""
        return self._live.card_of(address)

    def subscribe(self, changed: Callable[[live.Changes], None]) -> Callable[[], None]:
        """Call `changed` in the event loop after each change; return a function to unsubscribe."""
        self._subscribers.append(changed)
        return lambda: self._subscribers.remove(changed)

    # --- updates ---

    async def read(self) -> None:
        """Read everything again.

        Raises:
            errors.SysfsError: there is no sysfs tree.
        """
        listed = await asyncio.to_thread(reader.list_subjects, self._root)
        subjects = listed | self._live.subjects()
        # Functions are read once if the names of all slots are known.
        slots = frozenset(subject for subject in subjects if subject.kind is Kind.SLOT)
        changes = live.Changes()
        async with self._lock:
            for first in (slots, subjects - slots):
                taken, _ = await self._read_objects(first)
                changes |= taken
        self._notify(changes)

    async def refresh_slot(self, name: str) -> model.Slot | None:
        """Read one slot again and return it, or None if there is none of that name; slots have no events of their own."""
        await self._refresh([Subject(Kind.SLOT, name)])
        return next((slot for slot in self.inventory.slots if slot.name == name), None)

    async def refresh(self, address: str) -> model.Card | None:
        """Read the function at this address again and return its card, or None if it is gone."""
        await self._refresh([Subject(Kind.FUNCTION, address)])
        return self.card_at(address)

    @property
    def hanging(self) -> tuple[str, ...]:
        """Return the kinds and names of the objects whose reading hangs."""
        return tuple(f"{subject.kind.value} {subject.name}" for subject in self._reads.hanging)

    @property
    def is_lagging(self) -> bool:
        """Return whether some functions' drivers will show identifiers later, without an event."""
        return bool(self._live.lagging)

    async def refresh_lagging(self) -> None:
        """Read the functions again whose drivers show identifiers later; at most `_AT_ONCE`."""
        lagging = sorted(self._live.lagging)[:_AT_ONCE]
        if lagging:
            await self._refresh(Subject(Kind.FUNCTION, address) for address in lagging)

    async def complete(self, seconds: float) -> None:
        """Wait for Vital Product Data, at most `seconds`, and read its functions again."""
        await asyncio.to_thread(self._slow.wait, seconds)
        await self._refresh(
            Subject(Kind.FUNCTION, function.address)
            for function in self.inventory.functions
            if model.Silence.VPD_SLOW in dict(function.unread).values()
        )

    def _slow_read_finished(self, address: str) -> None:
        """Schedule a read of the function; called in another thread."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._schedule, Subject(Kind.FUNCTION, address))

    def _schedule(self, subject: Subject) -> None:
        self._due[subject] = None
        self._heard.set()

    async def follow(self, source: uevents.UeventSource) -> None:
        """Apply events until cancelled, or until the source has ended and all its events are applied.

        Raises:
            errors.UeventError: the source failed; inside an ExceptionGroup.
            errors.SysfsError: the tree is gone; inside an ExceptionGroup.
        """
        ended = asyncio.Event()
        if self._is_followed:
            # An earlier run ended unexpectedly and may have left events unread.
            self._everything = True
            self.losses += 1
        self._is_followed = True
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._work(ended), name="inventory-refresh")
            audit = tasks.create_task(
                _audit_periodically(self, self._settings.audit_seconds), name="inventory-audit"
            )
            async for event in source.events():
                self._hear(event)
            # Let the current read finish, or its consequences would be lost.
            ended.set()
            self._heard.set()
            async with self._lock:
                audit.cancel()
        await self._work_off()
        await self._refresh(self._settling.due(math.inf))

    def _hear(self, event: uevents.Uevent | uevents.Overflow) -> None:
        if isinstance(event, uevents.Overflow):
            log.warning("uevents were lost, reading everything again")
            self._due.clear()
            self._everything = True
            self.losses += 1
        else:
            concerned = self._live.find_concerned(event.devpath)
            if not concerned:
                return
            if event.action == "add" and event.subsystem == "pci":
                self._slow.forget((event.devpath.rpartition("/")[2],))
            self._due.update(dict.fromkeys(concerned))
            self._settling.touch(concerned, clocks.loop_seconds())
        self._heard.set()

    async def _work(self, ended: asyncio.Event) -> None:
        while True:
            await self._work_off()
            settled = self._settling.due(clocks.loop_seconds())
            for batch in _batches(settled):
                await self._refresh(batch)
            if ended.is_set():
                return
            await asyncio.sleep(self._settings.coalesce_seconds)
            await self._wait()

    async def _wait(self) -> None:
        """Wait until an event arrives or an item has settled."""
        moment = self._settling.next()
        try:
            async with asyncio.timeout(None if moment is None else max(0.0, moment - clocks.loop_seconds())):
                await self._heard.wait()
        except TimeoutError:
            return

    async def _work_off(self) -> None:
        """Apply all received events, including new ones that arrive meanwhile."""
        self._heard.clear()
        while self._everything or self._due:
            if self._everything:
                self._everything = False
                await self.read()
            batch = list(itertools.islice(self._due, _AT_ONCE))
            for subject in batch:
                del self._due[subject]
            _, further = await self._refresh(batch)
            self._settling.touch(further, clocks.loop_seconds())

    async def _refresh(self, subjects: Iterable[Subject]) -> tuple[live.Changes, frozenset[Subject]]:
        """Read these objects and their consequences; return the changes, and the consequences."""
        async with self._lock:
            changes, consequences = await self._read_objects(frozenset(subjects))
        self._notify(changes)
        return changes, consequences

    async def _read_objects(self, subjects: frozenset[Subject]) -> tuple[live.Changes, frozenset[Subject]]:
        """Do the work of `_refresh` under the lock."""
        self._loop = asyncio.get_running_loop()
        changes, todo = live.Changes(), subjects
        done: frozenset[Subject] = frozenset()
        for _ in range(_ROUNDS):
            if not todo:
                break
            self.readings += len(todo)
            names = self._live.slot_names
            observed = await self._reads.read(todo, names)
            self._note_unread(todo, observed)
            self._slow.forget(address for address, each in observed.functions.items() if each is None)
            changed, further = self._live.take(observed)
            changes |= changed
            # If the slots changed, the functions must be read again to find theirs.
            done = done | todo if self._live.slot_names is names else frozenset()
            todo = further - done
        return changes, done - subjects

    def _note_unread(self, subjects: Iterable[Subject], observed: reader.Observation) -> None:
        """Count a function that is not known as a missed arrival if its reading hangs."""
        wanted = {subject.name for subject in subjects if subject.kind is Kind.FUNCTION}
        if any(self.card_at(address) is None for address in wanted - observed.functions.keys()):
            self.losses += 1

    def _take_late(self, subject: Subject, read: hangingreads.Pass, is_wanted: bool) -> None:
        """Apply the result of a reading that hung."""
        # A function that was read with the names of other slots may have another slot.
        if is_wanted or read.slots is not self._live.slot_names:
            self._schedule(subject)
        changes, further = self._live.take(read.late)
        for each in further:
            self._schedule(each)
        self._notify(changes)

    def _notify(self, changes: live.Changes) -> None:
        if changes:
            for subscriber in tuple(self._subscribers):
                # A change may be reported twice: the next call includes the changes of a failed one.
                pending = self._pending.pop(subscriber, live.Changes()) | changes
                if not self._callbacks.call(subscriber, functools.partial(subscriber, pending)):
                    self._pending[subscriber] = pending

    # --- audit ---

    async def audit(self) -> live.Changes:
        """Compare everything with the kernel, in small steps; count and return the changes that had no event.

        A change with an event still in transit counts, too.

        Raises:
            errors.SysfsError: the tree is gone.
        """
        listed = await asyncio.to_thread(reader.list_subjects, self._root)
        missed = live.Changes()
        for batch in _batches(listed | self._live.subjects()):
            started = clocks.loop_seconds()
            changes, _ = await self._refresh(subject for subject in batch if subject not in self._due)
            missed |= changes
            await asyncio.sleep((clocks.loop_seconds() - started) * (1 / self._settings.audit_share - 1))
        self.audits += 1
        self.missed += len(missed.functions) + len(missed.slots) + len(missed.objects)
        if missed:
            log.info("changes that no event told of", extra=_summary(missed))
        return missed


async def _audit_periodically(devices: Devices, pause_seconds: float) -> None:
    while pause_seconds:
        await asyncio.sleep(pause_seconds * random.uniform(0.8, 1.2))  # noqa: S311 - no secret
        try:
            await devices.audit()
        except errors.SysfsError as error:
            log.warning("the inventory could not be compared with the kernel: %s", error)


def _batches(subjects: Iterable[Subject]) -> Iterator[tuple[Subject, ...]]:
    remaining = iter(subjects)
    while batch := tuple(itertools.islice(remaining, _AT_ONCE)):
        yield batch


def _summary(changes: live.Changes) -> dict[str, object]:
    return {
        "functions": sorted(changes.functions)[:_NAMED_IN_LOG],
        "slots": sorted(changes.slots)[:_NAMED_IN_LOG],
        "objects": sorted(changes.objects)[:_NAMED_IN_LOG],
    }
