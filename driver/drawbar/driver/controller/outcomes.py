"""The outcomes of an attach or a detach, as closed lists, so that the number of metric series is bounded.

The reasons of a failed attach are those of `catalogue.attachment_conditions`, with the node daemon's; pure.
"""

import enum

import msgspec

from drawbar.driver.api import attachments, meta
from drawbar.driver.catalogue import attachment_conditions, events, reasons


class Side(enum.StrEnum):
    """One of the two calls to the fabric; the value is its letter in request ids."""

    ATTACH = "a"
    DETACH = "d"


CONTRADICTIONS = frozenset({reasons.CONNECTION_NOT_SHOWN, reasons.CONNECTED_ELSEWHERE})
"""The reasons of `Attached` when the fabric manager's listing contradicts the record."""


NOT_THE_DEVICE = frozenset(
    row.reason
    for table in (*attachment_conditions.FAILURES, events.CLASSIC)
    for row in table.rows
    if not row.blames_device
)
"""The reasons that are no fault of the device: another one would fail too, or other hosts and claims are not affected."""
# With these reasons the device is not connected, even if the record says so.
NOT_CONNECTED = frozenset({reasons.DEVICE_IN_USE, reasons.CONNECTION_NOT_SHOWN})

ATTACHED = "Attached"
REUSED = "Reused"

NODE_FAILURES = attachment_conditions.NODE_FAILURES.reasons
"""The reasons of a node why its device does not become ready."""
FAILURES = NODE_FAILURES | attachment_conditions.CONTROLLER_FAILURES.reasons
BLOCKERS = attachment_conditions.RELEASED.reasons - {reasons.NOT_IN_USE}
"""The reasons of a node why it does not release a device."""

RELEASED = "Released"
FORCED = "Forced"
DETACHES = (RELEASED, FORCED, reasons.NODE_GONE)

# The phases of the two daemons, in the order of an attachment's life.
PHASES = (attachments.PENDING, "Attached", "Ready", "Idle", "Failed", "Releasing", "Released")


def failure(reason: str) -> str:
    """Return the reason, or `Other` for one outside of the closed list: an object of the API could hold any text."""
    return reason if reason in FAILURES else reasons.OTHER


def detach(attachment: attachments.DeviceAttachment) -> str:
    """Return the reason why the device of a deleted attachment could be detached."""
    if attachment.holds(attachments.RELEASED):
        return RELEASED
    return FORCED if attachment.forced else reasons.NODE_GONE


def phase(attachment: attachments.DeviceAttachment) -> str:
    """Return the phase of an attachment, also before the controller has seen the node's last report."""
    if attachment.deleting:
        return "Released" if attachment.holds(attachments.RELEASED) else "Releasing"
    reported = attachment.status.phase
    if reported == "Ready" and not attachment.holds(attachments.VISIBLE):
        return "Attached"
    return reported if reported in PHASES else reasons.OTHER


def problem(attachment: attachments.DeviceAttachment) -> attachments.Failure | None:
    """Return why the attachment fails: the controller's own record, else the node's report.

    A reason outside of the closed list becomes `Other`: a node's reason becomes a taint, a condition and an Event.
    """
    recorded = attachment.status.error
    if recorded is not None:
        return msgspec.structs.replace(recorded, reason=failure(recorded.reason))
    visible = meta.find(attachment.status.conditions, attachments.VISIBLE)
    if visible is not None and visible.status == "False":
        reason = visible.reason if visible.reason in NODE_FAILURES else reasons.OTHER
        return attachments.Failure(reason=reason, message=visible.message)
    return None


def taints_device(attachment: attachments.DeviceAttachment, reason: str) -> bool:
    """Return whether a failure for this reason taints the allocated device.

    A node's trouble with an attached memory chunk does not affect the other chunks of the device.
    """
    is_of_chunk = attachment.spec.share is not None and attachment.holds(attachments.ATTACHED)
    return reason not in NOT_THE_DEVICE and not is_of_chunk


def contradiction(attachment: attachments.DeviceAttachment) -> meta.Condition | None:
    """Return the condition `Attached` if it says that the fabric manager's listing contradicts the record, else None."""
    attached = meta.find(attachment.status.conditions, attachments.ATTACHED)
    return attached if attached is not None and attached.reason in CONTRADICTIONS else None


def blocker(attachment: attachments.DeviceAttachment) -> str:
    """Return why the node does not release the device; empty if it does, or reports nothing."""
    released = meta.find(attachment.status.conditions, attachments.RELEASED)
    if released is None or released.status != "False":
        return ""
    return released.reason if released.reason in BLOCKERS else reasons.OTHER
