"""The durations and outcomes of the steps of each attach and detach, as this process sees them.

A device is measured in two directions at most: to the node of its next claim, and back from the node of its last. A
step is the time between two consecutive milestones. A step whose begin this process did not see, such as one around its
own start, is not counted. An allocation counts from the watch's report. A classic claim is allocated last, so it counts
from the attempt, and the attachment's condition counts in place of the claim's.

It is bounded by the devices with claims: a measurement ends when the device is ready, has failed, is free, or its claim
is gone.
"""

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import prometheus_client as prometheus

from drawbar.driver import clocks
from drawbar.driver.api import attachments, claims
from drawbar.driver.controller import names, outcomes
from drawbar.driver.controller.operation import metrics, traces


class There(enum.IntEnum):
    """The milestones of an attach, in their order; `metrics.STEPS_THERE` are the steps between them."""

    ALLOCATED = 0
    CREATED = 1
    ASKED = 2
    CONNECTED = 3
    TOLD = 4
    READY = 5


class Back(enum.IntEnum):
    """The milestones of a detach, in their order; `metrics.STEPS_BACK` are the steps between them."""

    RELEASING = 0
    RELEASED = 1
    ASKED = 2
    DISCONNECTED = 3
    FREE = 4


# The last milestone of a measurement whose begin was not seen; no milestone follows it directly.
BEFORE = -2


@dataclass(slots=True)
class _Measurement:
    """The last milestone with its time, and the time of the first; in seconds of one clock.

    It is not whole if it began before this process saw it. For a classic claim it lasts until the allocation.
    """

    last: int
    at: float
    began: float
    whole: bool
    classic: bool = False


class _Measurements:
    """The measured devices in one direction; `traced` gets their steps by name."""

    def __init__(
        self, steps: tuple[prometheus.Histogram, ...], step_names: tuple[str, ...], traced: traces.Traces
    ) -> None:
        self._steps = steps
        self._names = step_names
        self._traces = traced
        self.measured: dict[names.DeviceKey, _Measurement] = {}

    def begin(self, key: names.DeviceKey, now: float, *, last: int = 0) -> None:
        self.measured[key] = _Measurement(last, now, now, last == 0)
        if last == 0:
            self._traces.begin(key)

    def end(self, key: names.DeviceKey) -> None:
        self.measured.pop(key, None)
        self._traces.drop(key)

    def clear(self) -> None:
        self.measured.clear()
        self._traces.clear()

    def reach(self, key: names.DeviceKey, milestone: int, now: float) -> None:
        """Count a step; ignore an earlier milestone, or a device that is not measured."""
        measurement = self.measured.get(key)
        if measurement is None or milestone <= measurement.last:
            return
        if milestone == measurement.last + 1:
            self._steps[measurement.last].observe(now - measurement.at)
            self._traces.add_step(key, self._names[measurement.last], now - measurement.at)
        measurement.last, measurement.at = milestone, now


class Latency:
    """The measurement of all devices' attaches and detaches; its methods are called as events happen."""

    def __init__(
        self,
        measured: metrics.Metrics,
        clock: Callable[[], float] = clocks.loop_seconds,
        traced: traces.Traces | None = None,
    ) -> None:
        self._metrics = measured
        self._clock = clock
        self._traces = traced or traces.NoTraces()
        self._there = _Measurements(measured.steps_there, metrics.STEPS_THERE, self._traces)
        self._back = _Measurements(measured.steps_back, metrics.STEPS_BACK, traces.NoTraces())

    def clear(self) -> None:
        """Drop all measurements: another controller led meanwhile."""
        self._there.clear()
        self._back.clear()

    def resume(self, keys: Iterable[names.DeviceKey]) -> None:
        """Begin for devices that claims already wait for, since an unknown time."""
        now = self._clock()
        for key in keys:
            self._there.begin(key, now, last=BEFORE)

    def list_waiting(self, seconds: float) -> tuple[names.DeviceKey, ...]:
        """Return the devices that claims have awaited for so many seconds, and that the fabric has not connected."""
        since = self._clock() - seconds
        measurements = self._there.measured.items()
        return tuple(
            key
            for key, measurement in measurements
            if measurement.last < There.CONNECTED and measurement.began <= since
        )

    def note_claim_change(
        self,
        keys: Iterable[names.DeviceKey],
        old: claims.ResourceClaim | None,
        new: claims.ResourceClaim | None,
    ) -> None:
        """Begin for a claim's new devices; end for those of a deallocated claim."""
        before, after = (claim is not None and claim.status.allocation is not None for claim in (old, new))
        now = self._clock()
        for key in keys if before != after else ():
            if after:
                self._there.begin(key, now)
            else:
                self._there.end(key)

    def note_call(self, key: names.DeviceKey, side: outcomes.Side) -> None:
        """Note that the fabric is called now."""
        self._reach(key, side, There.ASKED, Back.ASKED)

    def note_result(self, key: names.DeviceKey, side: outcomes.Side, reason: str | None) -> None:
        """Note that a call to the fabric succeeded, or failed for that reason."""
        if reason is None:
            self._reach(key, side, There.CONNECTED, Back.DISCONNECTED)
        else:
            self._metrics.failed_operations.labels(metrics.SIDES[side], outcomes.failure(reason)).inc()

    def note_claim_report(self, key: names.DeviceKey) -> None:
        """Note that the claim's status reports the attach."""
        now = self._clock()
        measurement = self._there.measured.get(key)
        # A device that was handed on was neither created for this claim nor requested.
        way = (
            outcomes.REUSED
            if measurement is not None and measurement.last == There.ALLOCATED
            else outcomes.ATTACHED
        )
        self._metrics.attaches[way].inc()
        if measurement is not None and measurement.last < There.TOLD:
            if measurement.whole:
                self._metrics.attach_seconds[way].observe(now - measurement.began)
            self._there.reach(key, There.TOLD, now)
            if way is outcomes.REUSED:
                self._there.end(key)

    def begin_classic(self, key: names.DeviceKey) -> None:
        """Begin for a device that is being attached for a classic claim."""
        self._there.begin(key, self._clock())
        self._there.measured[key].classic = True

    def drop_classic(self, key: names.DeviceKey) -> None:
        """Drop an attempt for a classic claim whose DeviceAttachment could not be created."""
        self._there.end(key)

    def note_allocation(self, key: names.DeviceKey) -> None:
        """Note that a classic claim was allocated the device; count an attach that this process did not see now."""
        measurement = self._there.measured.get(key)
        if measurement is None or measurement.last < There.TOLD:
            self.note_claim_report(key)
        self._there.end(key)

    def note_failure(self, key: names.DeviceKey, reason: str) -> None:
        """Note that the claim's status reports the failure."""
        self._metrics.attaches[outcomes.failure(reason)].inc()
        self._traces.finish(key, outcomes.failure(reason))
        self._there.end(key)

    def note_change(
        self,
        key: names.DeviceKey,
        old: attachments.DeviceAttachment | None,
        new: attachments.DeviceAttachment | None,
    ) -> None:
        """Take in a change of an attachment."""
        now = self._clock()
        measurement = self._there.measured.get(key)
        if new is not None and not new.deleting:
            self._traces.identify(key, new)
        if measurement is not None and measurement.classic:
            self._classic_changed(key, measurement, new)
        if new is None:
            assert old is not None
            self._back.reach(key, Back.FREE, now)
            self._back.end(key)
            self._metrics.detaches[outcomes.detach(old)].inc()
        elif new.deleting:
            if old is None or not old.deleting:
                self._back.begin(key, now)
            if new.holds(attachments.RELEASED):
                self._back.reach(key, Back.RELEASED, now)
        elif old is None:
            self._there.reach(key, There.CREATED, now)
        else:
            self._look_whether_ready(key, new, now)

    def _classic_changed(
        self, key: names.DeviceKey, measurement: _Measurement, new: attachments.DeviceAttachment | None
    ) -> None:
        """Drop an attempt whose attachment is being deleted."""
        if new is None or new.deleting:
            self._there.end(key)
        elif measurement.last < There.TOLD and new.holds(attachments.ATTACHED):
            self.note_claim_report(key)

    def _reach(self, key: names.DeviceKey, side: outcomes.Side, there: There, back: Back) -> None:
        if side is outcomes.Side.ATTACH:
            self._there.reach(key, there, self._clock())
        else:
            self._back.reach(key, back, self._clock())

    def _look_whether_ready(
        self, key: names.DeviceKey, attachment: attachments.DeviceAttachment, now: float
    ) -> None:
        """Note the last milestone once the claim's status reports the attach, even if the node reported the device earlier."""
        measurement = self._there.measured.get(key)
        if (
            measurement is not None
            and measurement.last == There.TOLD
            and attachment.holds(attachments.VISIBLE)
        ):
            self._there.reach(key, There.READY, now)
            self._traces.finish(key)
            if not measurement.classic:
                self._there.end(key)
