"""Tells users why they wait, where that takes more than a moment.

Looked at now and then, and not on the way of each attach: who gets a device at once needs no word. Each cause is told
once per allocation. Bounded by the devices that claims wait for.
"""

import asyncio
from dataclasses import dataclass, field

from drawbar.driver.api import attachments, claims
from drawbar.driver.controller import claims as claim_index
from drawbar.driver.controller import names
from drawbar.driver.controller.attachments import context, telling
from drawbar.driver.controller.fabrics import session

LOOK_SECONDS = 5.0
PATIENCE_SECONDS = 5.0
REASON = "DeviceWaiting"


@dataclass(slots=True, kw_only=True)
class Waits:
    """Those who wait, and what they were told last."""

    context: context.Context
    _told: dict[names.DeviceKey, tuple[str, str]] = field(default_factory=dict)

    async def run(self) -> None:
        """Looks until cancelled, for those too who waited before this process led."""
        self._told.clear()
        keys = self.context.index.keys()
        self.context.journeys.resume(key for key in keys if not self._is_attached(key))
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.look(PATIENCE_SECONDS)

    def look(self, patience_seconds: float) -> None:
        """Tells everybody who has waited as long as that, unless that was told."""
        waiting = self.context.journeys.waiting(patience_seconds)
        for over in self._told.keys() - set(waiting):
            del self._told[over]
        for key in waiting:
            claim = self._claim(key)
            why = cause(
                key, claim, self.context.fabrics.get(key.fabric), self.context.attachments.get(key.attachment)
            )
            if claim is None or why is None or self._told.get(key) == (claim.metadata.uid, why):
                continue
            self._told[key] = (claim.metadata.uid, why)
            telling.tell(self.context.recorder, claim, key, warning=False, reason=REASON, message=why)

    def _is_attached(self, key: names.DeviceKey) -> bool:
        known = self.context.attachments.get(key.attachment)
        return known is not None and known.holds(attachments.ATTACHED)

    def _claim(self, key: names.DeviceKey) -> claims.ResourceClaim | None:
        """The claim that has waited longest and was not told that it failed."""
        for claim in self.context.index.of(key):
            wish = claim_index.wish(claim, self.context.driver, key, None, self.context.index.seen(claim))
            if wish is not None and not wish.failed_said and not wish.attached_said:
                return claim
        return None


def cause(
    key: names.DeviceKey,
    claim: claims.ResourceClaim | None,
    fabric: session.Session | None,
    attachment: attachments.DeviceAttachment | None,
) -> str | None:
    """Why the device is not attached yet; None if there is nothing to say that was not said already."""
    if fabric is None:
        return f"there is no Fabric {key.fabric} any more"
    if not fabric.connection.connected:
        return f"the fabric manager is not reached: {fabric.connection.message}"
    if attachment is not None and (attachment.deleting or not _is_for(attachment, claim)):
        return f"it is still on its way back from node {attachment.spec.node_name}"
    if fabric.turns.is_waiting(key):
        return "the fabric manager is busy with other devices"
    return None


def _is_for(attachment: attachments.DeviceAttachment, claim: claims.ResourceClaim | None) -> bool:
    holder = attachment.spec.claim
    return claim is None or (holder is not None and holder.uid == claim.metadata.uid)
