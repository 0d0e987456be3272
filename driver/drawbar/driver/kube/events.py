"""Events: what a user sees with `kubectl describe`.

Recording never waits and never fails. The queue is bounded; when it is full, because the API server is slow or gone, the
newest event is dropped and counted: the conditions hold the same.

Source: `events.k8s.io/v1`.
"""

import asyncio
import datetime
import logging
import uuid
from typing import Any

from drawbar.driver.api import attachments, claims
from drawbar.driver.kube import client, errors, exclusions, kinds

log = logging.getLogger(__name__)

NORMAL, WARNING = "Normal", "Warning"
UNREADABLE = "ObjectUnreadable"
QUEUE_LIMIT = 1000
# Events wait among themselves: no Fabric has this name.
PAYER = "Events"
# A shared claim may have hundreds of users.
PODS_LIMIT = 8
# The API server's limits, in bytes; a longer field makes it refuse the event.
NOTE_LIMIT_BYTES = 1024
FIELD_LIMIT_BYTES = 128


class Recorder:
    """Queues events for claims; `run` sends them."""

    def __init__(self, api: client.Client, *, controller: str, instance: str) -> None:
        self._api = api
        self._controller = controller
        self._instance = instance
        self._queue: asyncio.Queue[tuple[str, dict[str, Any]]] = asyncio.Queue(QUEUE_LIMIT)
        self._full = False
        self.dropped = 0

    def normal(self, claim: attachments.ClaimReference | None, *, reason: str, message: str) -> None:
        """Record that something about a claim went as it should; without a claim, record nothing."""
        self._claim(claim, NORMAL, reason, message)

    def warning(self, claim: attachments.ClaimReference | None, *, reason: str, message: str) -> None:
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
        self._put(_attachment(attachment), WARNING, reason, message)

    def attachment_normal(
        self, attachment: attachments.DeviceAttachment, *, reason: str, message: str
    ) -> None:
        """Record what became of an attachment."""
        self._put(_attachment(attachment), NORMAL, reason, message)

    def node_warning(self, name: str, uid: str, *, reason: str, message: str) -> None:
        """Record that something about a node needs attention."""
        self._put(_reference(kinds.NODE, name, uid), WARNING, reason, message)

    def rule_normal(self, kind: kinds.Kind, name: str, uid: str, *, reason: str, message: str) -> None:
        """Record what became of a DeviceTaintRule, in the default namespace: it has none."""
        self._put(_reference(kind, name, uid), NORMAL, reason, message)

    def policy_event(self, name: str, uid: str, *, warning: bool, reason: str, message: str) -> None:
        """Record what was decided by a HealthPolicy, in the default namespace: it has none."""
        self._put(_reference(kinds.HEALTH_POLICY, name, uid), WARNING if warning else NORMAL, reason, message)

    def unreadable(self, left: exclusions.Unreadable) -> None:
        """Record that an object is left out, since it cannot be read."""
        metadata = left.metadata
        regarding = _reference(left.kind, metadata.name, metadata.uid, metadata.namespace)
        message = (
            f"{left}. Nothing new is done for it; what was done before, such as an attached device, stays"
        )
        self._put(regarding, WARNING, UNREADABLE, message)

    async def run(self) -> None:
        """Sends what is queued until cancelled."""
        while True:
            namespace, event = await self._queue.get()
            try:
                with client.writing_for(PAYER):
                    await self._api.create(kinds.EVENT, event, into=dict[str, Any], namespace=namespace)
            except errors.KubeError as error:
                log.info("event was not recorded: %s", error, extra={"reason": event["reason"]})

    def _claim(self, claim: attachments.ClaimReference | None, kind: str, reason: str, message: str) -> None:
        if claim is not None:
            self._put(_reference(kinds.CLAIM, claim.name, claim.uid, claim.namespace), kind, reason, message)

    def _put(self, regarding: dict[str, str], kind: str, reason: str, message: str) -> None:
        namespace = regarding.get("namespace", "default")
        now = datetime.datetime.now(datetime.UTC)
        event = {
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
        try:
            self._queue.put_nowait((namespace, event))
        except asyncio.QueueFull:
            self.dropped += 1
            if not self._full:
                log.warning("event queue is full, dropping events", extra={"dropped": self.dropped})
            self._full = True
        else:
            self._full = False


def _reference(kind: kinds.Kind, name: str, uid: str, namespace: str = "") -> dict[str, str]:
    reference = {"apiVersion": kind.api_version, "kind": kind.kind, "name": name, "uid": uid}
    return reference | ({"namespace": namespace} if namespace else {})


def _attachment(attachment: attachments.DeviceAttachment) -> dict[str, str]:
    return _reference(kinds.ATTACHMENT, attachment.metadata.name, attachment.metadata.uid)


def _cut(text: str, limit_bytes: int) -> str:
    # The name of a file may hold what is no text.
    return text.encode(errors="replace")[:limit_bytes].decode(errors="ignore")
