"""Events: what a user sees with `kubectl describe`.

They are a courtesy: recording never waits and never fails a caller. The queue is bounded; when it is full the newest
event is dropped and counted, since the API server is then slow or gone, and the conditions tell the same story.

Source: `events.k8s.io/v1`.
"""

import asyncio
import datetime
import logging
import uuid
from typing import Any

from drawbar.driver.api import attachments, claims
from drawbar.driver.kube import client, errors, kinds

log = logging.getLogger(__name__)

QUEUE_LIMIT = 1000
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
        """Something went as it should."""
        self._record(claim, "Normal", reason, message)

    def warning(self, claim: attachments.ClaimReference | None, *, reason: str, message: str) -> None:
        """Something needs attention."""
        self._record(claim, "Warning", reason, message)

    def tell_pods(self, claim: claims.ResourceClaim, *, warning: bool, reason: str, message: str) -> None:
        """The same for the first `PODS_LIMIT` pods that wait for the claim: their users look there first."""
        pods = [consumer for consumer in claim.status.reserved_for if consumer.resource == "pods"]
        for pod in pods[:PODS_LIMIT]:
            regarding = {
                "apiVersion": kinds.POD.api_version,
                "kind": kinds.POD.kind,
                "namespace": claim.metadata.namespace,
                "name": pod.name,
                "uid": pod.uid,
            }
            kind = "Warning" if warning else "Normal"
            self._put(regarding, claim.metadata.namespace, kind, reason, message)

    def attachment_warning(
        self, attachment: attachments.DeviceAttachment, *, reason: str, message: str
    ) -> None:
        """Something of an attachment needs attention. It is in no namespace, and its events are in the default one."""
        self._note(attachment, "Warning", reason, message)

    def attachment_normal(
        self, attachment: attachments.DeviceAttachment, *, reason: str, message: str
    ) -> None:
        """Something became of an attachment."""
        self._note(attachment, "Normal", reason, message)

    def node_warning(self, name: str, uid: str, *, reason: str, message: str) -> None:
        """Something of a node needs attention."""
        regarding = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}
        self._put(regarding, "default", "Warning", reason, message)

    def _note(self, attachment: attachments.DeviceAttachment, kind: str, reason: str, message: str) -> None:
        regarding = {
            "apiVersion": attachments.API_VERSION,
            "kind": attachments.KIND,
            "name": attachment.metadata.name,
            "uid": attachment.metadata.uid,
        }
        self._put(regarding, "default", kind, reason, message)

    async def run(self) -> None:
        """Sends what is queued until cancelled."""
        while True:
            namespace, event = await self._queue.get()
            try:
                await self._api.create(kinds.EVENT, event, into=dict[str, Any], namespace=namespace)
            except errors.KubeError as error:
                log.info("event was not recorded: %s", error, extra={"reason": event["reason"]})

    def _record(self, claim: attachments.ClaimReference | None, kind: str, reason: str, message: str) -> None:
        if claim is None:
            return
        regarding = {
            "apiVersion": kinds.CLAIM.api_version,
            "kind": kinds.CLAIM.kind,
            "namespace": claim.namespace,
            "name": claim.name,
            "uid": claim.uid,
        }
        self._put(regarding, claim.namespace, kind, reason, message)

    def _put(self, regarding: dict[str, str], namespace: str, kind: str, reason: str, message: str) -> None:
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


def _cut(text: str, limit_bytes: int) -> str:
    return text.encode()[:limit_bytes].decode(errors="ignore")
