"""Events about the reasons why claims wait for more than a moment.

The claims are checked at intervals, not at each attach: a claim that gets its device at once needs no Event. Each
cause is reported once per allocation, even if its message changes. The message about an unreachable manager changes with
every try; the Fabric's condition has the latest. An Event is not repeated if the queue is full, or if the API server
refuses it. The memory is bounded by the waiting allocations.
"""

import asyncio
import datetime
import enum
from collections.abc import Iterable
from dataclasses import dataclass, field

from drawbar.driver.api import attachments, claims, meta
from drawbar.driver.catalogue import reasons
from drawbar.driver.controller import claims as claim_index
from drawbar.driver.controller import names
from drawbar.driver.controller.attachments import statements
from drawbar.driver.controller.attachments.context import Context
from drawbar.driver.controller.fabrics import session

LOOK_SECONDS = 5.0
PATIENCE_SECONDS = 5.0
# A fast node needs a second or two; users begin to ask about a slower one.
NODE_PATIENCE_SECONDS = 15.0
NO_CONDITIONS = (
    "the device was allocated without binding conditions, so it is never attached: the scheduler is older than Kubernetes "
    "1.34 or has the feature gate DRADeviceBindingConditions off; delete the claim once that is corrected"
)


class Cause(enum.Enum):
    """The reason why a device is not attached yet."""

    NO_FABRIC = "there is no such Fabric"
    NOT_REACHED = "the fabric manager is not reached"
    RETURNING = "it is on its way back from another node"
    QUEUED = "another device goes first"
    REFUSED = "the fabric manager refuses it for now"
    BUSY = "the fabric manager is busy"
    LIMITED = "the namespace has begun its attaches of a minute"
    PAUSED = "its claim failed before"


_Allocation = tuple[names.DeviceKey, str, str]
"""A device, the UID of a claim, and the timestamp of its allocation."""


class _Reported:
    """The causes with an Event, by allocation."""

    def __init__(self) -> None:
        self._causes: dict[_Allocation, set[Cause | None]] = {}

    def is_new(self, key: names.DeviceKey, claim: claims.ResourceClaim, cause: Cause | None = None) -> bool:
        """Note the cause; return whether it is new."""
        causes = self._causes.setdefault(_allocation(key, claim), set())
        is_new = cause not in causes
        causes.add(cause)
        return is_new

    def retain(self, waiting: Iterable[_Allocation]) -> None:
        """Drop all other allocations."""
        for over in self._causes.keys() - set(waiting):
            del self._causes[over]


@dataclass(slots=True, kw_only=True)
class Delays:
    """The emitter of Events about waiting claims."""

    context: Context
    _attaching: _Reported = field(default_factory=_Reported)
    _at_node: _Reported = field(default_factory=_Reported)
    _never: _Reported = field(default_factory=_Reported)

    async def run(self) -> None:
        """Check claims until cancelled, even those that have waited since before this process led."""
        self._attaching, self._at_node, self._never = _Reported(), _Reported(), _Reported()
        keys = self.context.cluster.allocated.devices()
        self.context.latency.resume(key for key in keys if self._find_attached(key) is None)
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.look(PATIENCE_SECONDS)
            self.look_at_nodes(NODE_PATIENCE_SECONDS)
            self.look_at_allocations()

    def look(self, patience_seconds: float) -> None:
        """Emit why devices are not attached that claims have awaited for so many seconds."""
        cluster, waiting = self.context.cluster, []
        for key in self.context.latency.list_waiting(patience_seconds):
            claim = self._claim(key)
            if claim is None:
                continue
            waiting.append(_allocation(key, claim))
            session, attachment = cluster.sessions.get(key.fabric), cluster.attachments.get(key.attachment)
            failures = cluster.retries.failures(claim.metadata.uid)
            why = cause(key, claim, session, attachment, cluster.clock(), failures=failures)
            if why is not None and self._attaching.is_new(key, claim, why[0]):
                self._emit(claim, key, why[1])
        self._attaching.retain(waiting)

    def look_at_nodes(self, patience_seconds: float) -> None:
        """Emit that devices are attached, but for so many seconds their nodes have not reported them ready."""
        cluster, waiting = self.context.cluster, []
        for attachment in cluster.placed.awaiting_nodes():
            key = names.DeviceKey(fabric=attachment.spec.fabric, device=attachment.spec.device)
            for claim in cluster.allocated.find_claims(key):
                demand = self._demand(key, claim)
                if demand is None or not demand.attach_reported or demand.failure_reported:
                    continue
                waiting.append(_allocation(key, claim))
                now = cluster.clock()
                waited = now - (cluster.placed.find_attach_time(key.attachment) or now)
                if waited.total_seconds() >= patience_seconds and self._at_node.is_new(key, claim):
                    message = f"attached, waiting for its node {demand.node} to report it ready"
                    self._emit(claim, key, message)
        self._at_node.retain(waiting)

    def look_at_allocations(self) -> None:
        """Emit the fabric devices that claims have without binding conditions."""
        cluster, allocations = self.context.cluster, []
        for served in cluster.sessions:
            for device in tuple(cluster.unattached.pools(served.name)):
                # A node's own pool may have the name of a Fabric.
                if served.device(device) is None:
                    continue
                key = names.DeviceKey(fabric=served.name, device=device)
                for claim in cluster.unattached.find_claims(key):
                    allocations.append(_allocation(key, claim))
                    if self._never.is_new(key, claim):
                        self._emit(
                            claim, key, NO_CONDITIONS, reason=reasons.DEVICE_NEVER_ATTACHED, warning=True
                        )
        self._never.retain(allocations)

    def _emit(
        self,
        claim: claims.ResourceClaim,
        key: names.DeviceKey,
        message: str,
        *,
        reason: str = reasons.DEVICE_WAITING,
        warning: bool = False,
    ) -> None:
        recorder = self.context.cluster.recorder
        attachment = self.context.cluster.attachments.get(key.attachment)
        statements.emit(recorder, claim, key, attachment, warning=warning, reason=reason, message=message)

    def _find_attached(self, key: names.DeviceKey) -> attachments.DeviceAttachment | None:
        attachment = self.context.cluster.attachments.get(key.attachment)
        return attachment if attachment is not None and attachment.holds(attachments.ATTACHED) else None

    def _demand(self, key: names.DeviceKey, claim: claims.ResourceClaim) -> claim_index.Demand | None:
        cluster = self.context.cluster
        return claim_index.demand(claim, cluster.driver, key, None, cluster.allocated.find_first_seen(claim))

    def _claim(self, key: names.DeviceKey) -> claims.ResourceClaim | None:
        """Return the oldest claim for the device that is neither attached nor failed."""
        for claim in self.context.cluster.allocated.find_claims(key):
            demand = self._demand(key, claim)
            if demand is not None and not demand.failure_reported and not demand.attach_reported:
                return claim
        return None


def cause(
    key: names.DeviceKey,
    claim: claims.ResourceClaim | None,
    fabric: session.Session | None,
    attachment: attachments.DeviceAttachment | None,
    now: datetime.datetime,
    *,
    failures: int = 0,
) -> tuple[Cause, str] | None:
    """Return why the device is not attached yet, with a sentence for its user, or None if nothing is in the way.

    Args:
        key: the device.
        claim: the waiting claim.
        fabric: the session with the device's fabric manager.
        attachment: the device's attachment.
        now: the time on the steady clock.
        failures: the number of the claim's failures since it was last ready.
    """
    if fabric is None:
        return Cause.NO_FABRIC, f"there is no Fabric {key.fabric} any more"
    if not fabric.connection.connected:
        return Cause.NOT_REACHED, f"the fabric manager is not reached: {fabric.connection.message}"
    if attachment is not None and (attachment.deleting or not _is_for(attachment, claim)):
        return Cause.RETURNING, f"it is still on its way back from node {attachment.spec.node_name}"
    recorded = _read_recorded_cause(attachment) if attachment is not None else None
    if recorded is not None:
        return recorded
    if queue := fabric.describe_queue(key, claim.metadata.namespace if claim is not None else "", now):
        if fabric.manager.queue.is_waiting(key):
            return Cause.BUSY, queue
        return Cause.LIMITED, f"{queue}; the next begin as that minute passes"
    if attachment is None and failures:
        return Cause.PAUSED, f"the claim failed {failures} times, so its next attach begins after a pause"
    return None


def _read_recorded_cause(attachment: attachments.DeviceAttachment) -> tuple[Cause, str] | None:
    """Return the cause in the attachment's condition `Attached`, or None."""
    condition = meta.find(attachment.status.conditions, attachments.ATTACHED)
    if condition is None or condition.is_true or attachment.status.error is not None:
        return None
    if condition.reason == reasons.ATTACH_QUEUED:
        return Cause.QUEUED, f"it {condition.message}"
    return Cause.REFUSED, f"it is not attached yet ({condition.reason}): {condition.message}"


def _allocation(key: names.DeviceKey, claim: claims.ResourceClaim) -> _Allocation:
    allocation = claim.status.allocation
    return key, claim.metadata.uid, (allocation.allocation_timestamp if allocation else None) or ""


def _is_for(attachment: attachments.DeviceAttachment, claim: claims.ResourceClaim | None) -> bool:
    holder = attachment.spec.claim
    return claim is None or (holder is not None and holder.uid == claim.metadata.uid)
