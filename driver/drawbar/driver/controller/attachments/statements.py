"""The controller's statuses of claims and attachments, and the Events about them.

Server-side apply removes fields that its manager applied before and leaves out now. So every apply to an attachment's
status carries all fields of the controller.
"""

import datetime
from collections.abc import Mapping
from typing import Any

import msgspec

from drawbar.driver.api import attachments, bindings, claims, fabrics, meta
from drawbar.driver.catalogue import reasons
from drawbar.driver.controller import claims as claim_index
from drawbar.driver.controller import names, outcomes
from drawbar.driver.controller.attachments import actions, identities
from drawbar.driver.controller.pools import devices
from drawbar.driver.kube import events
from drawbar.fabric import contract


def intent(
    fabric: fabrics.FabricSpec,
    key: names.DeviceKey,
    device: contract.Device,
    demand: claim_index.Demand,
    *,
    identity: attachments.Identity | None = None,
    unclean: bool = False,
    composite: attachments.Composite | None = None,
) -> dict[str, Any]:
    """Return the attachment to create before the fabric is called.

    Args:
        fabric: the device's Fabric.
        key: the device's key.
        device: the device in the fabric's list.
        demand: the demand that it is attached for.
        identity: the device's identity among all devices of the fabric; None to take it from the device itself.
        unclean: whether it may have data of an earlier user.
        composite: the composite that it is attached for; None without one.
    """
    assert demand.host_id is not None
    return _intent(
        fabric,
        key,
        device,
        pool=demand.pool,
        node_name=demand.node,
        host_id=demand.host_id,
        identity=identity or identities.identify(device),
        unclean=unclean,
        composite=composite,
        share=demand.share,
        claim=demand.claim,
        allocation_timestamp=demand.allocation_timestamp,
    )


def build_restored(
    fabric: fabrics.FabricSpec,
    key: names.DeviceKey,
    device: contract.Device,
    where: actions.Restore,
    now: datetime.datetime,
    *,
    identity: attachments.Identity,
) -> dict[str, Any]:
    """Return the attachment of a connection whose record was lost: without a claim, idle from now on."""
    return _intent(
        fabric,
        key,
        device,
        pool=names.pool(key.fabric, device.enclosure, reach=names.reach_key(device.reach_groups)),
        node_name=where.node,
        host_id=where.host_id,
        identity=identity,
        idle_since=meta.timestamp(now),
    )


def held_by_hand(
    fabric: fabrics.FabricSpec,
    key: names.DeviceKey,
    device: contract.Device,
    node: str,
    host_id: str,
    *,
    identity: attachments.Identity,
    unclean: bool = False,
) -> dict[str, Any]:
    """Return the attachment that an operator makes, for no claim; no claim was given its device out of a pool."""
    pool = names.pool(key.fabric, device.enclosure)
    return _intent(
        fabric, key, device, pool=pool, node_name=node, host_id=host_id, identity=identity, unclean=unclean
    )


def _intent(
    fabric: fabrics.FabricSpec, key: names.DeviceKey, device: contract.Device, **changes: Any
) -> dict[str, Any]:
    """Return the attachment of a device, with these fields of its specification."""
    spec = attachments.AttachmentSpec(
        fabric=key.fabric,
        device_id=device.id,
        driver=fabric.driver,
        device=key.device,
        model=device.model,
        attributes=devices.own_attributes(fabric.driver, device),
        clean=fabric.policy.clean.way(device.device_class.value),
        **changes,
    )
    metadata = meta.ObjectMeta(
        name=key.attachment,
        labels={attachments.NODE_LABEL: attachments.node_label(spec.node_name)},
        finalizers=(attachments.FINALIZER,),
    )
    return {
        "apiVersion": attachments.API_VERSION,
        "kind": attachments.KIND,
        "metadata": msgspec.to_builtins(metadata),
        "spec": msgspec.to_builtins(spec),
    }


def build_attached(
    attachment: attachments.DeviceAttachment,
    operation: attachments.OperationRecord,
    connection: contract.Connection | None,
    message: str,
    now: datetime.datetime,
    *,
    placed_device: contract.Device | None = None,
) -> dict[str, Any]:
    """Return the attachment's status once the fabric has connected the device."""
    phase = "Ready" if attachment.holds(attachments.VISIBLE) else "Attached"
    condition = _condition(attachment, status=True, reason=reasons.ATTACHED, message=message, now=now)
    status: dict[str, Any] = {
        "phase": phase,
        "conditions": [condition],
        "operation": msgspec.to_builtins(operation),
    }
    if connection is not None:
        status["connection"] = {"port": connection.port_id or "", "slot": connection.slot_hint or ""}
    device = attachment.status.device or device_record(placed_device)
    if device is not None:
        status["device"] = msgspec.to_builtins(device)
    # A stale view would turn back the phase that the node has already advanced.
    return _status(attachment, status, resource_version=attachment.metadata.resource_version)


def build_queued(
    attachment: attachments.DeviceAttachment, message: str, now: datetime.datetime
) -> dict[str, Any]:
    """Return the attachment's status while another attachment of its node goes first."""
    condition = _condition(attachment, status=False, reason=reasons.ATTACH_QUEUED, message=message, now=now)
    return _status(attachment, {"conditions": [condition]})


def build_refused(
    attachment: attachments.DeviceAttachment, action: actions.RecordRefusal, now: datetime.datetime
) -> dict[str, Any]:
    """Return the attachment's status while the fabric refuses its attach, or its detach, which is repeated."""
    if action.side is outcomes.Side.ATTACH:
        condition = _condition(
            attachment, status=False, reason=action.reason, message=action.message, now=now
        )
        return _keep_status(attachment, {attachments.ATTACHED: condition}, refusal=meta.cut(action.words))
    moment = meta.timestamp(now)
    condition = msgspec.to_builtins(
        meta.transition(
            attachment.status.conditions,
            attachments.DETACHED,
            status=False,
            reason=action.reason,
            message=action.message,
            now=moment,
        )
    )
    return _keep_status(attachment, {attachments.DETACHED: condition})


def build_contradicted(
    attachment: attachments.DeviceAttachment, action: actions.RecordContradiction, now: datetime.datetime
) -> dict[str, Any]:
    """Return the attachment's status while the fabric manager does not show its connection."""
    condition = _condition(
        attachment, status=action.is_attached, reason=action.reason, message=action.message, now=now
    )
    changes: dict[str, Any] = {} if action.is_attached else {"phase": attachments.PENDING}
    if action.record is not None:
        changes["contradiction"] = msgspec.to_builtins(action.record)
    return _keep_status(attachment, {attachments.ATTACHED: condition}, **changes)


def _keep_status(
    attachment: attachments.DeviceAttachment, conditions: Mapping[str, Any], **changes: Any
) -> dict[str, Any]:
    """Return the attachment's status as the controller last wrote it, with other conditions of the controller."""
    own = {
        condition.type: msgspec.to_builtins(condition)
        for condition in attachment.status.conditions
        if condition.type in (attachments.ATTACHED, attachments.DETACHED)
    }
    current = attachment.status
    status: dict[str, Any] = {"conditions": list((own | dict(conditions)).values())}
    # The node's progress must not be turned back.
    is_connected = current.phase != attachments.PENDING
    version = attachment.metadata.resource_version if is_connected else ""
    if is_connected:
        status["phase"] = current.phase
    for name, value in (
        ("operation", current.operation),
        ("connection", current.connection),
        ("device", current.device),
        ("error", current.error),
        # This goes with the condition that has its reason.
        ("contradiction", current.contradiction if attachments.ATTACHED not in conditions else None),
    ):
        if value is not None:
            status[name] = msgspec.to_builtins(value)
    return _status(attachment, status | changes, resource_version=version)


def build_failed(
    attachment: attachments.DeviceAttachment,
    operation: attachments.OperationRecord,
    failure: attachments.Failure,
    now: datetime.datetime,
) -> dict[str, Any]:
    """Return the attachment's status when its attach has failed."""
    current = meta.find(attachment.status.conditions, attachments.ATTACHED)
    if current is not None and current.is_true and failure.reason not in outcomes.NOT_CONNECTED:
        # The device is attached; only the node cannot use it.
        condition = msgspec.to_builtins(current)
    else:
        condition = _condition(
            attachment, status=False, reason=failure.reason, message=failure.message, now=now
        )
    status: dict[str, Any] = {
        "phase": "Failed",
        "conditions": [condition],
        "operation": msgspec.to_builtins(operation),
        "error": {
            "reason": failure.reason,
            "message": meta.cut(failure.message),
            "retryable": failure.retryable,
        },
    }
    if attachment.status.connection is not None:
        status["connection"] = msgspec.to_builtins(attachment.status.connection)
    if attachment.status.device is not None:
        status["device"] = msgspec.to_builtins(attachment.status.device)
    return _status(attachment, status)


def device_record(placed_device: contract.Device | None) -> attachments.DeviceRecord | None:
    """Return the attachment's record of the device in its place, or None if there is none."""
    if placed_device is None:
        return None
    identity = identities.identify(placed_device)
    return attachments.DeviceRecord(
        id=placed_device.id, serial=identity.serial, identifiers=identity.identifiers, pci_id=identity.pci_id
    )


Contents = Mapping[names.DeviceKey, attachments.DeviceRecord]


def build_claim_attached(
    claim: claims.ResourceClaim,
    driver: str,
    key: names.DeviceKey,
    message: str,
    now: datetime.datetime,
    *,
    contents: Contents | None = None,
) -> dict[str, Any] | None:
    """Return the claim's status with the device attached, or None if it is so already.

    Args:
        claim: the present claim.
        driver: the DRA driver's name.
        key: the device, or its model offer.
        message: the host, fabric and port of the connection, in words.
        now: the time for the condition.
        contents: the devices in the claim's model offers.
    """
    return _claim(
        claim,
        driver,
        {
            key: bindings.Statement(
                condition=bindings.ATTACHED, status=True, reason=reasons.ATTACHED, message=message
            )
        },
        now,
        contents,
    )


def build_claim_failed(
    claim: claims.ResourceClaim,
    driver: str,
    failure: attachments.Failure,
    now: datetime.datetime,
    *,
    contents: Contents | None = None,
) -> dict[str, Any] | None:
    """Return the claim's status with all our devices failed, or None if it is so already.

    The scheduler reads them in order and stops at the first that is not ready, so it would not see a later failure.
    """
    statement = bindings.Statement(
        condition=bindings.ATTACH_FAILED,
        status=True,
        reason=failure.reason,
        message=failure.message,
    )
    return _claim(claim, driver, dict.fromkeys(claim_index.devices(claim, driver), statement), now, contents)


def _claim(
    claim: claims.ResourceClaim,
    driver: str,
    statements: Mapping[names.DeviceKey, bindings.Statement],
    now: datetime.datetime,
    contents: Contents | None,
) -> dict[str, Any] | None:
    keys = {
        key: bindings.Key.from_result(result) for key, result in claim_index.devices(claim, driver).items()
    }
    return bindings.build_apply(
        claim,
        driver,
        own=bindings.CONTROLLER_CONDITIONS,
        statements={keys[key]: statement for key, statement in statements.items() if key in keys},
        data={
            keys[key]: {
                "deviceID": device.id,
                **({"serialNumber": device.serial} if device.serial else {}),
            }
            for key, device in (contents or {}).items()
            if key in keys
        },
        now=meta.timestamp(now),
    )


def _condition(
    attachment: attachments.DeviceAttachment,
    *,
    status: bool,
    reason: str,
    message: str,
    now: datetime.datetime,
) -> Any:
    return msgspec.to_builtins(
        meta.transition(
            attachment.status.conditions,
            attachments.ATTACHED,
            status=status,
            reason=reason,
            message=message,
            now=meta.timestamp(now),
        )
    )


def _status(
    attachment: attachments.DeviceAttachment, status: dict[str, Any], *, resource_version: str = ""
) -> dict[str, Any]:
    metadata = {"name": attachment.metadata.name, "uid": attachment.metadata.uid}
    return {
        "apiVersion": attachments.API_VERSION,
        "kind": attachments.KIND,
        "metadata": metadata | ({"resourceVersion": resource_version} if resource_version else {}),
        "status": status,
    }


def emit(
    recorder: events.Recorder,
    claim: claims.ResourceClaim,
    key: names.DeviceKey,
    attachment: attachments.DeviceAttachment | None,
    *,
    warning: bool,
    reason: str,
    message: str,
) -> None:
    """Emit an Event about one device of the claim, on the claim, the pods that wait for it, and its own DeviceAttachment."""
    metadata = claim.metadata
    reference = attachments.ClaimReference(namespace=metadata.namespace, name=metadata.name, uid=metadata.uid)
    text = f"{key.device} of fabric {key.fabric}: {message}"
    (recorder.record_warning if warning else recorder.record_normal)(reference, reason=reason, message=text)
    recorder.tell_pods(claim, warning=warning, reason=reason, message=text)
    if (
        attachment is not None
        and attachment.spec.claim is not None
        and attachment.spec.claim.uid == metadata.uid
    ):
        record = recorder.attachment_warning if warning else recorder.attachment_normal
        record(attachment, reason=reason, message=text)


def emit_taken_back(
    recorder: events.Recorder, attachment: attachments.DeviceAttachment, what_follows: str
) -> None:
    """Emit an Event about a connected device whose lost record is restored."""
    spec = attachment.spec
    message = (
        f"{spec.device} of fabric {spec.fabric} was connected to host {spec.host_id} by this cluster and had no "
        f"DeviceAttachment; {what_follows}"
    )
    recorder.attachment_normal(attachment, reason=reasons.DEVICE_TAKEN_BACK, message=message)
