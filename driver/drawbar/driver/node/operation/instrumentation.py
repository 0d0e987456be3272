"""One daemon's metrics, probes, and instruments.

The daemon passes its parts through here (`client`, `uevents`, `preparation`) and gets them back wrapped in instruments
with the same interface. The monotonic clock is an argument, so that tests control the time. `docs/metrics.md` explains
each metric.
"""

import contextlib
import os
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

from drawbar.driver import containment
from drawbar.driver.api import attachments, meta
from drawbar.driver.catalogue import reasons
from drawbar.driver.kube import client, events, kinds
from drawbar.driver.node import errors as node_errors
from drawbar.driver.node import settings, uevents
from drawbar.driver.node.health import verdicts
from drawbar.driver.node.inventory import pci
from drawbar.driver.node.plugin import servicers
from drawbar.driver.operation import exposition, readiness, server
from drawbar.driver.tracing import activation, spans

PREFIX = "drawbar_node_"
# A kubelet waits 45 s for an answer; a claim with ready devices takes milliseconds.
CLAIM_BUCKETS_SECONDS = (
    0.001,
    0.002,
    0.005,
    0.01,
    0.02,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    45.0,
)
VISIBLE_BUCKETS_SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
RELEASE_BUCKETS_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)


class Metrics(exposition.Exposition):
    """All counters and histograms of one node daemon."""

    def __init__(self, driver: str) -> None:
        super().__init__(PREFIX, driver)
        self.claim_requests = self.counter(
            "claim_requests",
            "Claims to prepare or unprepare: OK, Aborted (by the kubelet), or the reason of the Event.",
            "operation",
            "result",
        )
        self.claim_seconds = self.histogram(
            "claim_request_duration_seconds",
            "From the kubelet's call to the answer for one claim.",
            CLAIM_BUCKETS_SECONDS,
            "operation",
        )
        self.claims_in_flight = self.gauge("claim_requests_in_flight", "Claims being worked on.", "operation")
        self.uevents = self.counter("uevents", "Events of the kernel about devices.", "action")
        self.overflows = self.counter("uevent_overflows", "Times of lost events.")
        self.visible_seconds = self.histogram(
            "visible_duration_seconds",
            "From a device's last kernel event to Visible at the API server.",
            VISIBLE_BUCKETS_SECONDS,
        )
        self.attach_failures = self.counter("attach_failures", "Failed devices.", "reason")
        self.recognised = self.counter(
            "recognised_devices", "Recognised devices, by kind of identifier, slot or sole-arrival.", "kind"
        )
        self.release_seconds = self.histogram(
            "release_duration_seconds",
            "From the deletion to Released.",
            RELEASE_BUCKETS_SECONDS,
        )
        self.slice_writes = self.counter("slice_writes", "Writes of this node's ResourceSlices.", "result")

    def request_done(self, verb: str, resource: str, result: str) -> None:
        """Count a request, as `exposition.Exposition.request_done` does, and count writes of slices separately."""
        super().request_done(verb, resource, result)
        if resource == kinds.SLICE.plural and verb in ("POST", "PUT", "PATCH", "DELETE"):
            self.slice_writes.labels(result).inc()


T = TypeVar("T")
Clock = Callable[[], float]

# The number of devices with a remembered last event, more than a host has slots for.
DEVICES_LIMIT = 1024


class TimedPreparation:
    """A `servicers.Preparation` that counts and times the kubelet's calls.

    An unexpected error becomes an error of its claim, and the kubelet tries again; `recorder` shows it on the claim.
    """

    def __init__(
        self,
        inner: servicers.Preparation,
        measured: Metrics,
        clock: Clock = time.perf_counter,
        recorder: events.Recorder | None = None,
    ) -> None:
        self._recorder = recorder
        self._inner = inner
        self._metrics = measured
        self._clock = clock

    async def prepare(self, claim: servicers.ClaimName) -> tuple[servicers.Prepared, ...]:
        """Prepare the claim, as `servicers.Preparation` specifies."""
        with self._measure("prepare"):
            attempt = self._attempt(claim)
            with attempt:
                return await self._inner.prepare(claim)
            raise node_errors.NodeError(attempt.failure)

    async def unprepare(self, claim: servicers.ClaimName) -> None:
        """Unprepare the claim, as `servicers.Preparation` specifies."""
        with self._measure("unprepare"):
            attempt = self._attempt(claim)
            with attempt:
                await self._inner.unprepare(claim)
            if attempt.failure:
                raise node_errors.NodeError(attempt.failure)

    def _attempt(self, claim: servicers.ClaimName) -> containment.Attempt:
        reference = attachments.ClaimReference(namespace=claim.namespace, name=claim.name, uid=claim.uid)

        def report(failure: str) -> None:
            if self._recorder is not None:
                self._recorder.record_warning(reference, reason=reasons.UNEXPECTED_ERROR, message=failure)

        return self._metrics.contained.attempt(
            "kubelet",
            claim.uid,
            extra=lambda: {"claim": claim.name, "namespace": claim.namespace, "uid": claim.uid},
            report=report,
            expected=node_errors.NodeError,
        )

    @contextlib.contextmanager
    def _measure(self, operation: str) -> Iterator[None]:
        # The result of a call that the kubelet cancelled, or of a bug; neither has a reason.
        began, result = self._clock(), "Aborted"
        with self._metrics.claims_in_flight.labels(operation).track_inprogress():
            try:
                yield
                result = "OK"
            except node_errors.NodeError as error:
                result = error.reason if isinstance(error, node_errors.PrepareError) else "Failed"
                raise
            finally:
                self._metrics.claim_requests.labels(operation, result).inc()
                self._metrics.claim_seconds.labels(operation).observe(self._clock() - began)


class CountedUevents:
    """A `uevents.UeventSource` that counts events and remembers each device's last one."""

    def __init__(self, inner: uevents.UeventSource, measured: Metrics, clock: Clock = time.monotonic) -> None:
        self._inner = inner
        self._metrics = measured
        self._clock = clock
        self._last: OrderedDict[str, float] = OrderedDict()

    async def events(self) -> AsyncIterator[uevents.Uevent | uevents.Overflow]:
        """Yield the events, as `uevents.UeventSource` specifies."""
        async for event in self._inner.events():
            if isinstance(event, uevents.Overflow):
                self._metrics.overflows.inc()
            else:
                self._metrics.uevents.labels(event.action if event.action in _ACTIONS else "other").inc()
                self._note(event)
            yield event

    def since(self, address: str) -> float | None:
        """Return the seconds since the last event of the function or anything below it, or None if there was none."""
        at = self._last.get(address)
        return None if at is None else self._clock() - at

    def _note(self, event: uevents.Uevent) -> None:
        addresses = pci.ADDRESS.findall(event.devpath)
        if addresses:
            self._last[addresses[-1]] = self._clock()
            self._last.move_to_end(addresses[-1])
            if len(self._last) > DEVICES_LIMIT:
                self._last.popitem(last=False)


# lib/kobject_uevent.c; other texts from a sender must not become labels.
_ACTIONS = frozenset({"add", "remove", "change", "move", "online", "offline", "bind", "unbind"})


class AttachmentMeter:
    """A meter of durations and failures, from the changes of attachments.

    It counts changes reported by the API server, so a duration includes the round trip.
    """

    def __init__(
        self,
        measured: Metrics,
        since_event: Callable[[str], float | None],
        clock: Clock = time.monotonic,
        sink: spans.Sink | None = None,
    ) -> None:
        self._metrics = measured
        self._measure_event_age = since_event
        self._clock = clock
        self._sink = sink
        # The start of each attachment's release, by uid, until the attachment is gone.
        self._releasing: dict[str, float] = {}

    def note_change(
        self, old: attachments.DeviceAttachment | None, new: attachments.DeviceAttachment | None
    ) -> None:
        """Note a change of an attachment; `old` is None for one from before the daemon's start."""
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
            self._trace(new, after.reason or "Unknown")
        elif new.status.node is not None:
            by = new.status.node.recognised_by
            if by is not None:
                self._metrics.recognised.labels(by.kind).inc()
            seconds = self._measure_event_age(new.status.node.pci_address)
            if seconds is not None:
                self._metrics.visible_seconds.observe(seconds)
            self._trace(new, seconds=seconds or 0.0)

    def _trace(
        self, attachment: attachments.DeviceAttachment, failure: str = "", seconds: float = 0.0
    ) -> None:
        """Add the node's span to the attach's trace: from the device's last kernel event to its report."""
        if self._sink is None:
            return
        now = time.time_ns()
        node = attachment.status.node
        more = {"pci.address": node.pci_address} if node is not None else {}
        if node is not None and node.recognised_by is not None:
            more["drawbar.recognised_by"] = node.recognised_by.kind
        self._sink.export(
            spans.Span(
                trace_id=spans.trace_id(attachment),
                parent_id=spans.root_id(attachment),
                name="recognise device",
                start_ns=now - int(seconds * 1_000_000_000),
                end_ns=now,
                attributes=spans.attributes(attachment) | more,
                failure=failure,
            )
        )

    def _release(self, new: attachments.DeviceAttachment) -> None:
        uid = new.metadata.uid
        if not new.deleting:
            return
        if not new.holds(attachments.RELEASED):
            self._releasing.setdefault(uid, self._clock())
        elif uid in self._releasing:
            self._metrics.release_seconds.observe(self._clock() - self._releasing.pop(uid))


def phases(listed: Iterable[attachments.DeviceAttachment]) -> dict[str, float]:
    """Return the number of attachments in each phase."""
    return _count(attachment.status.phase for attachment in listed)


def count_blocked(listed: Iterable[attachments.DeviceAttachment]) -> dict[str, float]:
    """Return the number of attachments that cannot be released now, by reason."""
    conditions = (
        meta.find(attachment.status.conditions, attachments.RELEASED)
        for attachment in listed
        if attachment.deleting
    )
    return _count(
        condition.reason for condition in conditions if condition is not None and not condition.is_true
    )


def _count(values: Iterable[str]) -> dict[str, float]:
    counts: dict[str, float] = {}
    for value in values:
        counts[value] = counts.get(value, 0.0) + 1.0
    return counts


class Audited(Protocol):
    """The numbers of `devices.Devices`."""

    audits: int
    missed: int

    @property
    def hanging(self) -> Sequence[str]:
        """Return the names of the objects whose reading hangs."""


class Instrumentation:
    """The daemon's metrics, probes and instruments."""

    def __init__(self, options: settings.Settings) -> None:
        self._options = options
        self._uevents: CountedUevents | None = None
        self.metrics = Metrics(options.driver)
        self.watchdog = readiness.Watchdog()
        self.synced = readiness.Milestone(
            "the attachments of this node are not known yet: no answer from the API server"
        )
        self.restored = readiness.Milestone("the prepared claims are not restored yet")
        self.registered = readiness.Milestone("the kubelet has not registered the driver")
        self.acting = readiness.Milestone("another instance acts on the devices of this node")
        self.contained = self.metrics.contained
        self.readiness = readiness.Readiness(
            {
                "workers": self.contained.find_missing,
                "attachments": self.synced.find_missing,
                "checkpoint": self.restored.find_missing,
                "kubelet": self.registered.find_missing,
            }
        )
        self._tracing = activation.Switch("drawbar-node", os.environ)
        self.meter = AttachmentMeter(
            self.metrics, self._measure_event_age, sink=self._tracing if self._tracing.wanted else None
        )
        self.metrics.watch(
            "kubelet_registered",
            "1 while the kubelet has the driver registered.",
            lambda: {"": float(self.registered.reached)},
        )
        # Not a condition of readiness, because the other instance ends only after this one is ready.
        self.metrics.watch(
            "acting",
            "1 for the acting instance.",
            lambda: {"": float(self.acting.reached)},
        )
        self.metrics.watch("ready", "1 while ready.", lambda: {"": float(not self.readiness.find_missing())})

    # Instrumented parts.

    def client(self, api: client.Client) -> client.Client:
        """Return the client with its requests counted."""
        return api.count_requests(self.metrics.request_done)

    def uevents(self, source: uevents.UeventSource) -> uevents.UeventSource:
        """Return the source with its events counted."""
        self._uevents = CountedUevents(source, self.metrics)
        return self._uevents

    def preparation(
        self, preparation: servicers.Preparation, recorder: events.Recorder | None = None
    ) -> servicers.Preparation:
        """Return the preparation with its calls counted and timed."""
        return TimedPreparation(preparation, self.metrics, recorder=recorder)

    # Gauges of the current state.

    def watch_attachments(self, listed: Iterable[attachments.DeviceAttachment]) -> None:
        """Export the numbers of this node's attachments."""
        watch = self.metrics.watch
        watch("attachments", "DeviceAttachments of this node.", lambda: phases(listed), label="phase")
        watch(
            "blocked_releases",
            "Blocked releases.",
            lambda: count_blocked(listed),
            label="reason",
        )

    def watch_devices(self, devices: Audited) -> None:
        """Export the results of the inventory's audits, and the number of objects that hang."""
        watch = self.metrics.watch
        watch(
            "audits",
            "Full comparisons with the kernel.",
            lambda: {"": devices.audits},
            counter=True,
        )
        watch(
            "audit_findings", "Changes found by full comparisons.", lambda: {"": devices.missed}, counter=True
        )
        watch(
            "hanging_objects",
            "Devices, slots and CXL objects that the kernel does not finish reading.",
            lambda: {"": len(devices.hanging)},
        )

    def watch_prepared(self, prepared: Callable[[], int]) -> None:
        """Export the number of devices prepared for claims on this node."""
        self.metrics.watch("prepared_devices", "Prepared devices.", lambda: {"": float(prepared())})

    def watch_verdicts(self, node_verdicts: verdicts.Verdicts) -> None:
        """Export the number of devices by health."""
        self.metrics.watch(
            "devices",
            "Watched devices.",
            lambda: dict(Counter(str(verdict.status) for verdict in node_verdicts.all().values())),
            label="health",
        )

    def watch_neighbours(self, left_out: Callable[[], dict[str, float]], twice: Callable[[], int]) -> None:
        """Export the numbers of devices left to other components, and of devices offered twice."""
        watch = self.metrics.watch
        watch(
            "left_out_devices",
            "Devices left to other components: driver, plugin or process.",
            left_out,
            label="why",
        )
        watch(
            "devices_offered_twice",
            "Devices in use that another driver offers.",
            lambda: {"": float(twice())},
        )

    def watch_unreadable(self, counted: Callable[[], dict[str, float]]) -> None:
        """Export the number of unreadable objects of the API server."""
        self.metrics.watch(
            "unreadable_objects",
            "Unreadable objects.",
            counted,
            label="resource",
        )

    def watch_queue(self, waiting: Callable[[], int], dropped_events: Callable[[], int]) -> None:
        """Export the length of the work queue, and the number of Kubernetes Events that were not sent."""
        watch = self.metrics.watch
        watch("queue_length", "Waiting attachments.", lambda: {"": float(waiting())})
        watch(
            "dropped_events",
            "Unsent Events.",
            lambda: {"": float(dropped_events())},
            counter=True,
        )

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Answer probes, and send traces if they are on, while the context lasts; the kubelet's directory must exist.

        Raises:
            http_address.AddressError: the daemon cannot listen on the address.
            errors.UsageError: traces are on, and their packages are not installed.
        """
        options = self._options
        endpoint = settings.parse_endpoint(options.http.address, options.data_dir, options.instance)
        answers = server.pages(self.watchdog, self.readiness, self.metrics.render, contained=self.contained)
        server.sweep(options.data_dir)
        async with self._tracing.exporting(), server.serving(endpoint, answers, contained=self.contained):
            yield

    def _measure_event_age(self, address: str) -> float | None:
        return self._uevents.since(address) if self._uevents is not None else None
