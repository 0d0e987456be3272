"""The rule by which a claim may have a fabric's device now; pure.

Binding conditions delay only the scheduler. The kubelet calls Prepare for every pod of its node, and a pod with
`spec.nodeName` has passed no scheduler. So Prepare checks the promises of the conditions in the record of both daemons: the
DeviceAttachment.

Invariant: for a first Prepare, `missing` returns None only if all of these hold. The device is attached, and visible on this
node in this boot. It was made ready for this allocation of the claim, and has stayed in its place since. It has no trace of
another use, and no failure. A claim that was prepared in this boot keeps its device, even after a failure, unless the device left
its place.
"""

import msgspec

from drawbar.driver.api import attachments, meta
from drawbar.driver.catalogue import reasons
from drawbar.driver.node.inventory import model


class Use(msgspec.Struct, frozen=True, kw_only=True):
    """A claim's use of a device.

    Attributes:
        allocation_timestamp: the time of the claim's allocation; None if only the attachment knows it.
        admin: whether the claim has admin access to a device that is attached for another claim, or for none.
        prepared: whether the claim was prepared with the device in this boot.
    """

    claim_uid: str
    allocation_timestamp: str | None = None
    admin: bool = False
    prepared: bool = False


class Missing(msgspec.Struct, frozen=True, kw_only=True):
    """The first condition that does not hold.

    Attributes:
        reason: one word in CamelCase for the Event.
        clause: the condition, to follow the device's name.
        may_come: whether the next change may meet the condition, so that waiting helps.
        is_node_at_work: whether the node cleans the device or makes it ready.
    """

    reason: str
    clause: str
    may_come: bool = True
    is_node_at_work: bool = False


def find_missing(
    attachment: attachments.DeviceAttachment, use: Use, *, boot_id: str, card: model.Card | None
) -> Missing | None:
    """Return the first condition of the claim's use that does not hold; None if the claim may have the device.

    Args:
        attachment: the device's attachment on this node.
        use: the claim's use.
        boot_id: the ID of the running kernel's boot.
        card: the device's card now; None if the kernel shows none.
    """
    if attachment.deleting:
        return Missing(
            reason=reasons.DEVICE_DETACHING,
            clause="is being detached from this node; trying again",
            may_come=False,
        )
    if not use.admin and not _is_for(attachment, use):
        return Missing(
            reason=reasons.DEVICE_NOT_ATTACHED, clause="is not attached to this node for this claim yet"
        )
    node = attachment.status.node
    has_stayed = (
        card is not None
        and node is not None
        and node.boot_id == boot_id
        and card.has_stayed(node.pci_address, node.arrival)
    )
    was_ready = attachment.is_made_ready and has_stayed
    if use.prepared and was_ready:
        return None
    failure = _failure(attachment)
    if failure is not None:
        return Missing(
            reason=reasons.DEVICE_FAILED, clause=f"cannot be used on this node: {failure}", may_come=False
        )
    return _find_unfinished(attachment, card, was_ready=was_ready)


def _find_unfinished(
    attachment: attachments.DeviceAttachment, card: model.Card | None, *, was_ready: bool
) -> Missing | None:
    """Return the first condition that the controller, the kernel or the node has not met yet, or None."""
    if not attachment.holds(attachments.ATTACHED):
        return Missing(reason=reasons.DEVICE_NOT_ATTACHED, clause="is not attached to this node yet")
    if card is None:
        serial = attachment.identity.serial or "unknown"
        return Missing(
            reason=reasons.DEVICE_NOT_VISIBLE, clause=f"(serial {serial}) is not visible on this node yet"
        )
    if attachment.has_traces:
        clause = "has traces of an earlier use, which this node removes first"
        return Missing(reason=reasons.NOT_CLEANED, clause=clause, is_node_at_work=True)
    if not was_ready or not attachment.holds(attachments.VISIBLE):
        clause = "is not ready for its claim on this node yet"
        return Missing(reason=reasons.DEVICE_NOT_READY, clause=clause, is_node_at_work=True)
    return None


def _is_for(attachment: attachments.DeviceAttachment, use: Use) -> bool:
    spec = attachment.spec
    is_current = use.allocation_timestamp in (None, spec.allocation_timestamp)
    return spec.claim is not None and spec.claim.uid == use.claim_uid and is_current


def _failure(attachment: attachments.DeviceAttachment) -> str | None:
    """Return the failure that the controller or the node has recorded, or None."""
    if attachment.status.error is not None:
        return attachment.status.error.message
    visible = meta.find(attachment.status.conditions, attachments.VISIBLE)
    return visible.message if visible is not None and visible.status == "False" else None
