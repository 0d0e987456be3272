"""Tells users why they wait, where that takes more than a moment.

Looked at now and then, and not on the way of each attach: who gets a device at once needs no word. Each cause is told
once per allocation, whatever its words are by then: those of a manager that is down change with every try, and the Fabric's
condition has the latest. An Event that found no room, or that the API server did not take, is not repeated. Bounded by the
devices that claims wait for.
"""

import asyncio
import enum
from dataclasses import dataclass, field

from drawbar.driver.api import attachments, claims
from drawbar.driver.controller import claims as claim_index
from drawbar.driver.controller import names
from drawbar.driver.controller.attachments import observation, statements
from drawbar.driver.controller.fabrics import session

LOOK_SECONDS = 5.0
PATIENCE_SECONDS = 5.0
REASON = "DeviceWaiting"
# A node that is quick needs a second or two; one that takes longer makes users ask.
NODE_PATIENCE_SECONDS = 15.0
NEVER_ATTACHED = "DeviceNeverAttached"
NO_CONDITIONS = (
    "the device was allocated without binding conditions, so it is never attached: the scheduler is older than Kubernetes "
    "1.34 or has the feature gate DRADeviceBindingConditions off; delete the claim once that is mended"
)


class Cause(enum.Enum):
    """Why a device is not attached yet."""

    NO_FABRIC = "there is no such Fabric"
    NOT_REACHED = "the fabric manager is not reached"
    RETURNING = "it is on its way back from another node"
    BUSY = "the fabric manager is busy"


@dataclass(slots=True, kw_only=True)
class Delays:
    """Those who wait, and what they were told of their allocation."""

    context: observation.Context
    _told: dict[names.DeviceKey, tuple[tuple[str, str], set[Cause]]] = field(default_factory=dict)
    _told_of_node: dict[names.DeviceKey, tuple[str, str]] = field(default_factory=dict)
    _told_never: dict[names.DeviceKey, tuple[str, str]] = field(default_factory=dict)

    async def run(self) -> None:
        """Looks until cancelled, for those too who waited before this process led."""
        for told in (self._told, self._told_of_node, self._told_never):
            told.clear()
        keys = self.context.cluster.allocated.keys()
        self.context.latency.resume(key for key in keys if not self._is_attached(key))
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.look(PATIENCE_SECONDS)
            self.look_at_nodes(NODE_PATIENCE_SECONDS)
            self.look_at_allocations()

    def look(self, patience_seconds: float) -> None:
        """Tells everybody who has waited as long as that, unless that was told."""
        waiting = self.context.latency.waiting(patience_seconds)
        for over in self._told.keys() - set(waiting):
            del self._told[over]
        for key in waiting:
            claim = self._claim(key)
            why = cause(
                key,
                claim,
                self.context.cluster.sessions.get(key.fabric),
                self.context.cluster.attachments.get(key.attachment),
            )
            if claim is None or why is None:
                continue
            told = self._told.get(key)
            if told is None or told[0] != _allocation(claim):
                told = self._told[key] = (_allocation(claim), set())
            if why[0] not in told[1]:
                told[1].add(why[0])
                self._tell(claim, key, REASON, why[1])

    def look_at_nodes(self, patience_seconds: float) -> None:
        """Tells everybody whose device is attached and has waited for its node as long as that, once per allocation."""
        now, waiting = self.context.cluster.clock(), set()
        given = self.context.cluster.allocated.keys()
        for key in given:
            known = self.context.cluster.attachments.get(key.attachment)
            if known is None or known.deleting or not known.holds(attachments.ATTACHED):
                continue
            for claim in self.context.cluster.allocated.of(key):
                seen = self.context.cluster.allocated.seen(claim)
                wish = claim_index.wish(claim, self.context.cluster.driver, key, None, seen)
                if wish is None or not wish.attached_said or wish.visible_said or wish.failed_said:
                    continue
                waiting.add(key)
                since = self.context.cluster.placed.attached_since(key.attachment) or now
                told = (claim.metadata.uid, wish.allocation_timestamp or "")
                if (now - since).total_seconds() >= patience_seconds and self._told_of_node.get(key) != told:
                    self._told_of_node[key] = told
                    message = f"attached, waiting for its node {wish.node} to report it ready"
                    self._tell(claim, key, REASON, message)
        for over in self._told_of_node.keys() - waiting:
            del self._told_of_node[over]

    def look_at_allocations(self) -> None:
        """Tells everybody who was given a fabric device without binding conditions, once per allocation."""
        here, given = set(), self.context.cluster.unattached.keys()
        for key in given:
            fabric = self.context.cluster.sessions.get(key.fabric)
            # A node's own pool may have the name of a Fabric.
            if fabric is None or fabric.device(key.device) is None:
                continue
            here.add(key)
            for claim in self.context.cluster.unattached.of(key):
                if self._told_never.get(key) != _allocation(claim):
                    self._told_never[key] = _allocation(claim)
                    self._tell(claim, key, NEVER_ATTACHED, NO_CONDITIONS, warning=True)
        for over in self._told_never.keys() - here:
            del self._told_never[over]

    def _tell(
        self,
        claim: claims.ResourceClaim,
        key: names.DeviceKey,
        reason: str,
        message: str,
        *,
        warning: bool = False,
    ) -> None:
        statements.emit(
            self.context.cluster.recorder, claim, key, warning=warning, reason=reason, message=message
        )

    def _is_attached(self, key: names.DeviceKey) -> bool:
        known = self.context.cluster.attachments.get(key.attachment)
        return known is not None and known.holds(attachments.ATTACHED)

    def _claim(self, key: names.DeviceKey) -> claims.ResourceClaim | None:
        """The claim that has waited longest and was not told that it failed."""
        for claim in self.context.cluster.allocated.of(key):
            wish = claim_index.wish(
                claim, self.context.cluster.driver, key, None, self.context.cluster.allocated.seen(claim)
            )
            if wish is not None and not wish.failed_said and not wish.attached_said:
                return claim
        return None


def cause(
    key: names.DeviceKey,
    claim: claims.ResourceClaim | None,
    fabric: session.Session | None,
    attachment: attachments.DeviceAttachment | None,
) -> tuple[Cause, str] | None:
    """Why the device is not attached yet, in words for its user; None where nothing is known to be in the way."""
    if fabric is None:
        return Cause.NO_FABRIC, f"there is no Fabric {key.fabric} any more"
    if not fabric.connection.connected:
        return Cause.NOT_REACHED, f"the fabric manager is not reached: {fabric.connection.message}"
    if attachment is not None and (attachment.deleting or not _is_for(attachment, claim)):
        return Cause.RETURNING, f"it is still on its way back from node {attachment.spec.node_name}"
    if fabric.turns.is_waiting(key):
        return Cause.BUSY, "the fabric manager is busy with other devices"
    return None


def _allocation(claim: claims.ResourceClaim) -> tuple[str, str]:
    """Return what identifies the claim's allocation."""
    allocation = claim.status.allocation
    stamp = allocation.allocation_timestamp if allocation is not None else None
    return claim.metadata.uid, stamp or ""


def _is_for(attachment: attachments.DeviceAttachment, claim: claims.ResourceClaim | None) -> bool:
    holder = attachment.spec.claim
    return claim is None or (holder is not None and holder.uid == claim.metadata.uid)
