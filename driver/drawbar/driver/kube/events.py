"""Events, which a user sees with `kubectl describe`.

Recording never waits and never fails. The queue is bounded. If the API server is slow or gone and the queue is full, the
newest event is dropped and counted; the conditions hold the same information.

A repeated event of one object is no second Event: the first one counts it in its series. Of one reason and object,
`NOTES_MAX` different notes have an Event each; further ones share one. An object costs at most `BURST` requests at once, and
then one in `REFILL_SECONDS`; meanwhile the series count on, and the next request has the sum. The limits are those of
client-go. Bounded: of more than `OBJECTS_MAX` objects, the one without an event for longest is forgotten.

Source: `events.k8s.io/v1`; client-go, tools/record/events_cache.go and tools/events/event_broadcaster.go.
"""

import asyncio
import datetime
import logging
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from drawbar.driver.api import attachments, claims, meta
from drawbar.driver.catalogue import reasons
from drawbar.driver.kube import answers, client, errors, exclusions, kinds, pacing

log = logging.getLogger(__name__)

NORMAL, WARNING = "Normal", "Warning"
QUEUE_LIMIT = 1000
# Events wait among themselves: no Fabric has this name.
PAYER = "Events"
# A shared claim may have hundreds of users.
PODS_LIMIT = 8
# The API server's limits, in bytes; a longer field makes it refuse the event.
NOTE_LIMIT_BYTES = 1024
FIELD_LIMIT_BYTES = 128

NOTES_MAX = 10
BURST = 25
REFILL_SECONDS = 300.0
# An event after such a silence is news: it begins another series.
SILENCE_SECONDS = 600.0
OBJECTS_MAX = 4096
# Of one object.
SERIES_MAX = 64
COMBINED = "(combined from similar events): "

_Key = tuple[str, str, int | None]
"""The type, the reason and the digest of the note; no note where several share one Event."""


@dataclass(slots=True, kw_only=True)
class _Series:
    """A repeated event, counted by one Event.

    Attributes:
        event: the last one; None if there is nothing to send.
        count: the number of repetitions.
        name: of the stored Event; empty before the first request.
        seen_at: the time of the last one, on the recorder's clock.
    """

    regarded: "_Object"
    event: dict[str, Any] | None = None
    count: int = 0
    name: str = ""
    seen_at: float


@dataclass(slots=True, kw_only=True)
class _Object:
    """The series of one object, and its budget of requests."""

    tokens: float = float(BURST)
    refilled_at: float
    series: OrderedDict[_Key, _Series] = field(default_factory=OrderedDict)

    def take(self, now: float) -> bool:
        """Take one request from the budget; return whether there was one."""
        self.tokens = min(float(BURST), self.tokens + (now - self.refilled_at) / REFILL_SECONDS)
        self.refilled_at = now
        if self.tokens < 1.0:
            return False
        self.tokens -= 1.0
        return True

    def series_for(self, kind: str, reason: str, note: str, now: float) -> tuple[_Series, str]:
        """Return the series that counts an event, and the note that its Event has."""
        for old in [key for key, series in self.series.items() if now - series.seen_at > SILENCE_SECONDS]:
            del self.series[old]
        key: _Key = (kind, reason, hash(note))
        if key not in self.series and sum(entry[:2] == key[:2] for entry in self.series) >= NOTES_MAX:
            key, note = (kind, reason, None), COMBINED + note
        series = self.series.pop(key, None) or _Series(regarded=self, seen_at=now)
        while len(self.series) >= SERIES_MAX:
            self.series.popitem(last=False)
        self.series[key] = series
        return series, note


class Recorder:
    """A queue of events for claims; `run` sends them.

    Args:
        api: the API server.
        controller: the reporting controller.
        instance: its instance.
        clock: monotonic, in seconds.
    """

    def __init__(
        self,
        api: client.Client,
        *,
        controller: str,
        instance: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._controller = controller
        self._instance = instance
        self._clock = clock
        self._queue: asyncio.Queue[_Series] = asyncio.Queue(QUEUE_LIMIT)
        self._objects: OrderedDict[str, _Object] = OrderedDict()
        self._full = False
        self.dropped = 0

    def record_normal(self, claim: attachments.ClaimReference | None, *, reason: str, message: str) -> None:
        """Record that something about a claim went as it should; without a claim, record nothing."""
        self._claim(claim, NORMAL, reason, message)

    def record_warning(self, claim: attachments.ClaimReference | None, *, reason: str, message: str) -> None:
        """Record that something about a claim needs attention; without a claim, record nothing."""
        self._claim(claim, WARNING, reason, message)

    def tell_pods(self, claim: claims.ResourceClaim, *, warning: bool, reason: str, message: str) -> None:
        """Record the same on the first `PODS_LIMIT` pods that wait for the claim, where their users look first."""
        pods = [consumer for consumer in claim.status.reserved_for if consumer.resource == "pods"]
        for pod in pods[:PODS_LIMIT]:
            regarding = _reference(kinds.POD, pod.name, pod.uid, claim.metadata.namespace)
            self._put(regarding, WARNING if warning else NORMAL, reason, message)

    def attachment_warning(
        self, attachment: attachments.DeviceAttachment, *, reason: str, message: str
    ) -> None:
        """Record that an attachment needs attention, in the default namespace: it has none."""
        self._attachment(attachment, WARNING, reason, message)

    def attachment_normal(
        self, attachment: attachments.DeviceAttachment, *, reason: str, message: str
    ) -> None:
        """Record that something about an attachment went as it should."""
        self._attachment(attachment, NORMAL, reason, message)

    def node_warning(self, name: str, uid: str, *, reason: str, message: str) -> None:
        """Record that something about a node needs attention."""
        self._put(_reference(kinds.NODE, name, uid), WARNING, reason, message)

    def node_normal(self, name: str, uid: str, *, reason: str, message: str) -> None:
        """Record something about a node that needs no attention."""
        self._put(_reference(kinds.NODE, name, uid), NORMAL, reason, message)

    def rule_normal(self, kind: kinds.Kind, name: str, uid: str, *, reason: str, message: str) -> None:
        """Record the outcome of a DeviceTaintRule, in the default namespace: it has none."""
        self._put(_reference(kind, name, uid), NORMAL, reason, message)

    def policy_event(self, name: str, uid: str, *, warning: bool, reason: str, message: str) -> None:
        """Record the decision of a HealthPolicy, in the default namespace: it has none."""
        self._put(_reference(kinds.HEALTH_POLICY, name, uid), WARNING if warning else NORMAL, reason, message)

    def unreadable(self, _old: object, left: exclusions.Unreadable | None) -> None:
        """Record that an object is left out, since it cannot be read. See `mirror.Mirror.report_unreadable`."""
        if left is None:
            return
        metadata = left.metadata
        regarding = _reference(left.kind, metadata.name, metadata.uid, metadata.namespace)
        message = f"{left}. Nothing new is done for it; earlier results, such as an attached device, stay"
        self._put(regarding, WARNING, reasons.OBJECT_UNREADABLE, message)

    def record_unexpected(self, kind: kinds.Kind, metadata: meta.ObjectMeta, failure: str) -> None:
        """Record that Drawbar failed unexpectedly over an object; one without a namespace has its Events in `default`."""
        regarding = _reference(kind, metadata.name, metadata.uid, metadata.namespace)
        self._put(regarding, WARNING, reasons.UNEXPECTED_ERROR, failure)

    async def run(self) -> None:
        """Send the queued Events until cancelled."""
        while True:
            series = await self._queue.get()
            event, series.event = series.event, None
            if event is None:
                continue
            if not series.regarded.take(self._clock()):
                # The next Event within the budget has the sum.
                self.dropped += not series.name
                continue
            try:
                with pacing.writing_for(PAYER):
                    await self._send(series, event)
            except errors.KubeError as error:
                log.info("event was not recorded: %s", error, extra={"reason": event["reason"]})

    async def _send(self, series: _Series, event: dict[str, Any]) -> None:
        namespace, counted = event["metadata"]["namespace"], {}
        if series.count > 1:
            counted = {"series": {"count": series.count, "lastObservedTime": event["eventTime"]}}
        if series.name:
            try:
                await self._api.patch(
                    kinds.EVENT,
                    series.name,
                    counted,
                    content=client.Patch.MERGE,
                    into=answers.Kinded,
                    namespace=namespace,
                )
            except errors.NotFound:
                # The API server keeps Events for an hour.
                series.name = ""
            else:
                return
        await self._api.create(kinds.EVENT, event | counted, into=answers.Kinded, namespace=namespace)
        series.name = event["metadata"]["name"]

    def _claim(self, claim: attachments.ClaimReference | None, kind: str, reason: str, message: str) -> None:
        if claim is not None:
            self._put(_reference(kinds.CLAIM, claim.name, claim.uid, claim.namespace), kind, reason, message)

    def _attachment(
        self, attachment: attachments.DeviceAttachment, kind: str, reason: str, message: str
    ) -> None:
        """Record something about an attachment; of a local pool's device, which has no such object, record nothing."""
        if attachment.spec.is_local:
            return
        regarding = _reference(kinds.ATTACHMENT, attachment.metadata.name, attachment.metadata.uid)
        claim = attachment.spec.claim
        related = (
            _reference(kinds.CLAIM, claim.name, claim.uid, claim.namespace) if claim is not None else None
        )
        self._put(regarding, kind, reason, message, related)

    def _put(
        self,
        regarding: dict[str, str],
        kind: str,
        reason: str,
        message: str,
        related: dict[str, str] | None = None,
    ) -> None:
        namespace, seen_at = regarding.get("namespace", "default"), self._clock()
        series, message = self._object(regarding, seen_at).series_for(kind, reason, message, seen_at)
        now = datetime.datetime.now(datetime.UTC)
        event: dict[str, Any] = {
            "apiVersion": kinds.EVENT.api_version,
            "kind": kinds.EVENT.kind,
            "metadata": {
                "name": f"{regarding['name'][:200].rstrip('-.')}.{uuid.uuid4().hex[:16]}",
                "namespace": namespace,
            },
            "eventTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "reportingController": _cut(self._controller, FIELD_LIMIT_BYTES),
            "reportingInstance": _cut(self._instance, FIELD_LIMIT_BYTES),
            "action": _cut(reason, FIELD_LIMIT_BYTES),
            "reason": _cut(reason, FIELD_LIMIT_BYTES),
            "type": kind,
            "note": _cut(message, NOTE_LIMIT_BYTES),
            "regarding": regarding,
        }
        if related is not None:
            event["related"] = related
        is_queued = series.event is not None
        series.count, series.seen_at, series.event = series.count + 1, seen_at, event
        if is_queued:
            return
        try:
            self._queue.put_nowait(series)
        except asyncio.QueueFull:
            series.event = None
            self.dropped += 1
            if not self._full:
                log.warning("event queue is full, dropping events", extra={"dropped": self.dropped})
            self._full = True
        else:
            self._full = False

    def _object(self, regarding: dict[str, str], now: float) -> _Object:
        identity = "/".join(
            (regarding["kind"], regarding.get("namespace", ""), regarding["name"], regarding["uid"])
        )
        regarded = self._objects.pop(identity, None) or _Object(refilled_at=now)
        while len(self._objects) >= OBJECTS_MAX:
            self._objects.popitem(last=False)
        self._objects[identity] = regarded
        return regarded


def _reference(kind: kinds.Kind, name: str, uid: str, namespace: str = "") -> dict[str, str]:
    reference = {"apiVersion": kind.api_version, "kind": kind.kind, "name": name, "uid": uid}
    return reference | ({"namespace": namespace} if namespace else {})


def _cut(text: str, limit_bytes: int) -> str:
    # The name of a file may hold bytes that are no text.
    return text.encode(errors="replace")[:limit_bytes].decode(errors="ignore")
