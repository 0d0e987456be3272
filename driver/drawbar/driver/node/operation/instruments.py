"""Measures at the edges of the other parts: each instrument stands in for what it wraps.

Times are taken from a monotonic clock that comes in, so tests choose them.
"""

import contextlib
import re
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import TypeVar

from drawbar.driver.api import attachments, meta
from drawbar.driver.node import errors, uevents
from drawbar.driver.node.operation import metrics
from drawbar.driver.node.plugin import servicers

T = TypeVar("T")
Clock = Callable[[], float]

# Of how many devices the last event is kept: more than a host has slots for.
DEVICES_LIMIT = 1024
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


class TimedPreparation:
    """Counts and times what the kubelet asks for; implements `servicers.Preparation`."""

    def __init__(
        self, inner: servicers.Preparation, measured: metrics.Metrics, clock: Clock = time.perf_counter
    ) -> None:
        self._inner = inner
        self._metrics = measured
        self._clock = clock

    async def prepare(self, claim: servicers.ClaimName) -> tuple[servicers.Prepared, ...]:
        """See `servicers.Preparation`."""
        with self._measured("prepare"):
            return await self._inner.prepare(claim)

    async def unprepare(self, claim: servicers.ClaimName) -> None:
        """See `servicers.Preparation`."""
        with self._measured("unprepare"):
            await self._inner.unprepare(claim)

    @contextlib.contextmanager
    def _measured(self, operation: str) -> Iterator[None]:
        # A call that the kubelet gave up, or a bug: neither of them has a reason of its own.
        began, result = self._clock(), "Aborted"
        with self._metrics.claims_in_flight.labels(operation).track_inprogress():
            try:
                yield
                result = "OK"
            except errors.NodeError as error:
                result = error.reason if isinstance(error, errors.PrepareError) else "Failed"
                raise
            finally:
                self._metrics.claim_requests.labels(operation, result).inc()
                self._metrics.claim_seconds.labels(operation).observe(self._clock() - began)


class CountedUevents:
    """Counts events and keeps when each device had its last one; implements `uevents.UeventSource`."""

    def __init__(
        self, inner: uevents.UeventSource, measured: metrics.Metrics, clock: Clock = time.monotonic
    ) -> None:
        self._inner = inner
        self._metrics = measured
        self._clock = clock
        self._last: OrderedDict[str, float] = OrderedDict()

    async def events(self) -> AsyncIterator[uevents.Uevent | uevents.Overflow]:
        """See `uevents.UeventSource`."""
        async for event in self._inner.events():
            if isinstance(event, uevents.Overflow):
                self._metrics.overflows.inc()
            else:
                self._metrics.uevents.labels(event.action if event.action in _ACTIONS else "other").inc()
                self._note(event)
            yield event

    def since(self, address: str) -> float | None:
        """Seconds since the last event of the function or of anything below it; None if it had none."""
        at = self._last.get(address)
        return None if at is None else self._clock() - at

    def _note(self, event: uevents.Uevent) -> None:
        found = _ADDRESS.findall(event.devpath)
        if found:
            self._last[found[-1]] = self._clock()
            self._last.move_to_end(found[-1])
            if len(self._last) > DEVICES_LIMIT:
                self._last.popitem(last=False)


# lib/kobject_uevent.c; what else a sender writes must not become a label.
_ACTIONS = frozenset({"add", "remove", "change", "move", "online", "offline", "bind", "unbind"})


class AttachmentMeter:
    """Reads from the changes of attachments how long things took and what failed.

    What the API server tells back counts, so a duration has the way there and back in it.
    """

    def __init__(
        self,
        measured: metrics.Metrics,
        since_event: Callable[[str], float | None],
        clock: Clock = time.monotonic,
    ) -> None:
        self._metrics = measured
        self._since_event = since_event
        self._clock = clock
        # By uid since when an attachment is being released; what is gone is forgotten.
        self._releasing: dict[str, float] = {}

    def changed(
        self, old: attachments.DeviceAttachment | None, new: attachments.DeviceAttachment | None
    ) -> None:
        """Call it with every change; `old` is None for what was there before the daemon."""
        if new is None:
            if old is not None:
                self._releasing.pop(old.metadata.uid, None)
            return
        self._release(new)
        if old is None or old.metadata.uid != new.metadata.uid:
            return
        before = meta.find(old.status.conditions, attachments.VISIBLE)
        after = meta.find(new.status.conditions, attachments.VISIBLE)
        if after is None or (before is not None and before.status == after.status):
            return
        if not after.is_true:
            self._metrics.attach_failures.labels(after.reason or "Unknown").inc()
        elif new.status.node is not None:
            seconds = self._since_event(new.status.node.pci_address)
            if seconds is not None:
                self._metrics.visible_seconds.observe(seconds)

    def _release(self, new: attachments.DeviceAttachment) -> None:
        uid = new.metadata.uid
        if not new.deleting:
            return
        if not new.holds(attachments.RELEASED):
            self._releasing.setdefault(uid, self._clock())
        elif uid in self._releasing:
            self._metrics.release_seconds.observe(self._clock() - self._releasing.pop(uid))


def phases(found: Iterable[attachments.DeviceAttachment]) -> dict[str, float]:
    """How many attachments are in each phase."""
    return _counted(attachment.status.phase or "Pending" for attachment in found)


def blocked(found: Iterable[attachments.DeviceAttachment]) -> dict[str, float]:
    """How many attachments cannot be released now, by reason."""
    said = (meta.find(one.status.conditions, attachments.RELEASED) for one in found if one.deleting)
    return _counted(condition.reason for condition in said if condition is not None and not condition.is_true)


def _counted(values: Iterable[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for value in values:
        found[value] = found.get(value, 0.0) + 1.0
    return found
