"""The objects with which the node server-side applies an attachment's status. Pure.

Server-side apply removes whatever its manager applied before and leaves out now, so each object has everything that the
node applies: both its conditions, where the device is, and its health.
"""

import datetime
from typing import Any

import msgspec

from drawbar.driver.api import attachments, meta
from drawbar.driver.node.health import verdicts
from drawbar.driver.node.inventory import model

OWN = (attachments.VISIBLE, attachments.RELEASED)
READY = "Ready"
IDLE = "Idle"
FAILED = "Failed"
RELEASED = "Released"
# The other phases are the controller's, and the admission policy lets no node write them.
OWN_PHASES = frozenset({READY, IDLE, FAILED, RELEASED})
FINDING_MESSAGE_CHARS = 256
"""As many as the DeviceAttachment takes; `healthMessage` has all."""


def report(
    attachment: attachments.DeviceAttachment,
    card: model.Card,
    boot_id: str,
    *,
    used: bool,
) -> attachments.NodeReport:
    """Where the device is now, with what was said of its health.

    Args:
        attachment: as it is known.
        card: the device.
        boot_id: of the running kernel.
        used: the claim that it is attached for gets it or keeps it; else it has no traces of a use.
    """
    known, claim = attachment.status.node or attachments.NodeReport(), attachment.spec.claim
    allocated = attachment.spec.allocation_timestamp or ""
    return msgspec.structs.replace(
        known,
        pci_address=card.address,
        kernel_driver=card.first.driver or "",
        boot_id=boot_id,
        slot=card.first.slot or "",
        claim_uid=claim.uid if used and claim is not None else "",
        allocation_timestamp=allocated if used and claim is not None else "",
    )


def judged(attachment: attachments.DeviceAttachment, verdict: verdicts.Verdict) -> attachments.NodeReport:
    """Return the report with a new verdict. While that is Unknown, the findings of before stay."""
    known = attachment.status.node or attachments.NodeReport()
    unknown = verdict.status is verdicts.Status.UNKNOWN
    findings = tuple(
        attachments.NodeFinding(
            name=taint.key,
            value=taint.value,
            effect=taint.effect.value,
            message=taint.message[:FINDING_MESSAGE_CHARS],
        )
        for taint in verdict.taints
    )
    return msgspec.structs.replace(
        known,
        health=verdict.status.value,
        health_message=verdict.message,
        findings=known.findings if unknown else findings,
    )


def condition(
    attachment: attachments.DeviceAttachment,
    name: str,
    *,
    status: bool,
    reason: str,
    message: str,
    now: datetime.datetime,
) -> meta.Condition:
    """A condition of the attachment as this node sees it."""
    return meta.transition(
        attachment.status.conditions,
        name,
        status=status,
        reason=reason,
        message=message,
        now=meta.timestamp(now),
    )


def applied(
    attachment: attachments.DeviceAttachment,
    *,
    fresh: meta.Condition | None = None,
    node: attachments.NodeReport | None = None,
    phase: str | None = None,
) -> dict[str, Any]:
    """Return the object to apply; what is not given stays as it is."""
    status = attachment.status
    conditions = {one.type: one for one in status.conditions if one.type in OWN}
    if fresh is not None:
        conditions[fresh.type] = fresh
    said: dict[str, Any] = {
        "conditions": [msgspec.to_builtins(conditions[name]) for name in sorted(conditions)],
    }
    phase = status.phase if phase is None else phase
    if phase in OWN_PHASES:
        said["phase"] = phase
    place = node or status.node
    if place is not None:
        said["node"] = msgspec.to_builtins(place)
    return {
        "apiVersion": attachments.API_VERSION,
        "kind": attachments.KIND,
        "metadata": {"name": attachment.metadata.name, "uid": attachment.metadata.uid},
        "status": said,
    }
