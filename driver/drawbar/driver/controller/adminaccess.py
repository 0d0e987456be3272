"""Claims with admin access: they observe a device in its place, and never have it attached.

The scheduler waits for the binding conditions of such a device as for any other, and no node prepares the claim. So the
controller sets the conditions: both once the device is attached to the claim's node and visible there; or at once a
failure, if the device will not come there or the claim's parameters are invalid.

Source: KEP-5018 (admin access), KEP-5007.
"""

from collections.abc import Mapping
from typing import Any

from drawbar.driver.api import attachments, bindings, claims, configurations, meta
from drawbar.driver.catalogue import reasons
from drawbar.driver.controller import claims as claim_index
from drawbar.driver.controller import names, outcomes


def build_apply(
    claim: claims.ResourceClaim,
    driver: str,
    observed: Mapping[names.DeviceKey, attachments.DeviceAttachment | None],
    now: str,
) -> dict[str, Any] | None:
    """Return the object for a server-side apply to the claim's status, or None if nothing changes.

    Args:
        claim: the claim as read; its UID and resourceVersion guard the write.
        driver: the driver of the devices.
        observed: the attachment of each of the claim's observed devices.
        now: the time of changed statuses, RFC 3339.
    """
    node = claim.status.allocation.node if claim.status.allocation else None
    wanted = claim_index.list_observed_devices(claim, driver)
    elsewhere = [key for key in wanted if not _may_come(observed.get(key), node)]
    _, failure = configurations.try_by_device(claim.status.allocation, driver)
    refusal = failure or _absent(elsewhere, observed)
    entries = []
    changed = False
    for key, result in wanted.items():
        before = claim.conditions(result)
        after = _conditions(driver, before, observed.get(key), refusal, now)
        mine = tuple(meta.find(before, condition.type) for condition in after)
        changed = changed or mine != after
        if after:
            entries.append(bindings.entry(result, after))
    return bindings.document(claim, entries) if changed else None


def _may_come(attachment: attachments.DeviceAttachment | None, node: str | None) -> bool:
    """Return whether the device is on that node, or on its way there."""
    return (
        attachment is not None
        and attachment.spec.node_name == node
        and not attachment.deleting
        and outcomes.problem(attachment) is None
    )


def _absent(
    elsewhere: list[names.DeviceKey], observed: Mapping[names.DeviceKey, attachments.DeviceAttachment | None]
) -> attachments.Failure | None:
    """Return the failure of devices elsewhere. The scheduler may stop at any device, so all devices get the same."""
    if not elsewhere:
        return None
    attachment = observed.get(elsewhere[0])
    where = f"on its way to or on node {attachment.spec.node_name}" if attachment else "attached to no node"
    message = f"admin access never attaches a device, and {elsewhere[0].device} is {where}"
    return attachments.Failure(reason=reasons.ADMIN_ACCESS_NEVER_ATTACHES, message=message)


def _conditions(
    driver: str,
    before: tuple[meta.Condition, ...],
    attachment: attachments.DeviceAttachment | None,
    refusal: attachments.Failure | None,
    now: str,
) -> tuple[meta.Condition, ...]:
    if refusal is not None:
        reported = [(bindings.ATTACH_FAILED, refusal.reason, refusal.message)]
    elif attachment is not None and all(
        attachment.holds(kind) for kind in (attachments.ATTACHED, attachments.VISIBLE)
    ):
        message = f"in use on node {attachment.spec.node_name}"
        reported = [
            (bindings.ATTACHED, reasons.ATTACHED, message),
            (bindings.VISIBLE, reasons.DEVICE_READY, message),
        ]
    else:
        reported = []
    return tuple(
        meta.transition(
            before,
            bindings.condition_type(driver, condition),
            status=True,
            reason=reason,
            message=message,
            now=now,
        )
        for condition, reason, message in reported
    )
