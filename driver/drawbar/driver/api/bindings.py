"""The binding conditions of a device, and how each writer applies its own.

| condition type           | writer      |                                                                |
|---|---|---|
| `<driver>/attached`      | controller  | the fabric has connected the device to the node's port         |
| `<driver>/visible`       | node daemon | the kernel shows this very device and it is ready for use      |
| `<driver>/attach-failed` | controller  | the fabric could not attach it                                 |
| `<driver>/node-failed`   | node daemon | it never appeared, is the wrong device, or would not initialise |

Server-side apply removes fields that a manager applied before and omits now, so each apply carries all conditions of its
writer on all devices of the claim (`build_apply`), and the claim's uid and resourceVersion: a write that was made from an
outdated claim fails instead of marking a new allocation ready.

Source: KEP-5007; server-side apply, "Field management".
"""

from collections.abc import Mapping
from typing import Any, Self

import msgspec

from drawbar.driver.api import claims, meta

ATTACHED = "attached"
VISIBLE = "visible"
ATTACH_FAILED = "attach-failed"
NODE_FAILED = "node-failed"

CONTROLLER_CONDITIONS = (ATTACHED, ATTACH_FAILED)
NODE_CONDITIONS = (VISIBLE, NODE_FAILED)


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """One device, or share of one, by its DRA names.

    Drivers and pools cannot hold spaces, so a key is one line of text.
    """

    pool: str
    device: str
    share_id: str | None = None

    @classmethod
    def from_result(cls, result: claims.AllocationResult) -> Self:
        """Return the key of the allocated device."""
        return cls(pool=result.pool, device=result.device, share_id=result.share_id)


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    """A condition of one device, to be applied."""

    condition: str
    status: bool
    reason: str
    message: str


def condition_type(driver: str, condition: str) -> str:
    """Return the condition's type as published and applied."""
    return f"{driver}/{condition}"


def binding_conditions(driver: str) -> tuple[str, ...]:
    """Return the conditions that must be True before a pod is bound."""
    return condition_type(driver, ATTACHED), condition_type(driver, VISIBLE)


def failure_conditions(driver: str) -> tuple[str, ...]:
    """Return the conditions that end the wait when True."""
    return condition_type(driver, ATTACH_FAILED), condition_type(driver, NODE_FAILED)


def is_true(claim: claims.ResourceClaim, driver: str, key: Key, condition: str) -> bool:
    """Return whether this condition of the device is True in the claim's status."""
    return meta.is_true(_conditions(claim, driver, key), condition_type(driver, condition))


def is_current(claim: claims.ResourceClaim, *, uid: str, allocation_timestamp: str | None) -> bool:
    """Return whether the claim has this UID and this allocation."""
    allocation = claim.status.allocation
    return (
        claim.metadata.uid == uid
        and allocation is not None
        and allocation.allocation_timestamp == allocation_timestamp
    )


def build_apply(
    claim: claims.ResourceClaim,
    driver: str,
    *,
    own: tuple[str, ...],
    statements: Mapping[Key, Statement],
    now: str,
    data: Mapping[Key, Mapping[str, str]] | None = None,
) -> dict[str, Any] | None:
    """Return the object for a server-side apply to the claim's status, or None if it would change nothing.

    Args:
        claim: as read; its uid and resourceVersion guard the write.
        driver: whose devices.
        own: the conditions of this writer.
        statements: the new ones.
        now: RFC 3339; used where a status changes.
        data: the writer's further data of devices.
    """
    types = {condition_type(driver, condition) for condition in own}
    devices: list[dict[str, Any]] = []
    changed = False
    for result in claim.results(driver):
        key = Key.from_result(result)
        conditions = claim.conditions(result)
        mine = {condition.type: condition for condition in conditions if condition.type in types}
        statement = statements.get(key)
        if statement is not None:
            fresh = meta.transition(
                conditions,
                condition_type(driver, statement.condition),
                status=statement.status,
                reason=statement.reason,
                message=statement.message,
                now=now,
            )
            changed = changed or mine.get(fresh.type) != fresh
            mine[fresh.type] = fresh
        if mine:
            reported = (data or {}).get(key)
            device = entry(result, tuple(mine[name] for name in sorted(mine)))
            devices.append(device | ({"data": dict(reported)} if reported else {}))
    return document(claim, devices) if changed else None


def document(claim: claims.ResourceClaim, devices: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the object for a server-side apply, guarded by the claim's uid and resourceVersion."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": claim.metadata.name,
            "namespace": claim.metadata.namespace,
            "uid": claim.metadata.uid,
            "resourceVersion": claim.metadata.resource_version,
        },
        "status": {"devices": devices},
    }


def operations(claim: claims.ResourceClaim, body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a JSON patch with the same content as a server-side apply; conditions of other writers stay."""
    metadata = body["metadata"]
    patch: list[dict[str, Any]] = [
        {"op": "replace", "path": f"/metadata/{name}", "value": metadata[name]}
        for name in ("uid", "resourceVersion")
    ]
    keys = [(entry.driver, entry.pool, entry.device, entry.share_id or "") for entry in claim.status.devices]
    if not keys:
        return [*patch, {"op": "add", "path": "/status/devices", "value": body["status"]["devices"]}]
    for device in body["status"]["devices"]:
        key = (device["driver"], device["pool"], device["device"], device.get("shareID", ""))
        if key not in keys:
            patch.append({"op": "add", "path": "/status/devices/-", "value": device})
            continue
        index, fresh = keys.index(key), device.get("conditions", [])
        patch.extend(
            {"op": "add", "path": f"/status/devices/{index}/{name}", "value": device[name]}
            for name in ("data", "networkData")
            if name in device
        )
        if not fresh:
            continue
        types = {condition["type"] for condition in fresh}
        kept = [
            msgspec.to_builtins(condition)
            for condition in claim.status.devices[index].conditions
            if condition.type not in types
        ]
        patch.append({"op": "add", "path": f"/status/devices/{index}/conditions", "value": [*kept, *fresh]})
    return patch


def entry(result: claims.AllocationResult, conditions: tuple[meta.Condition, ...] = ()) -> dict[str, Any]:
    """Return one device of the claim's status with all conditions of a writer."""
    device: dict[str, Any] = {"driver": result.driver, "pool": result.pool, "device": result.device}
    if conditions:
        device["conditions"] = [msgspec.to_builtins(condition) for condition in conditions]
    return device | ({"shareID": result.share_id} if result.share_id else {})


def _conditions(claim: claims.ResourceClaim, driver: str, key: Key) -> tuple[meta.Condition, ...]:
    for device in claim.status.devices:
        named = (device.driver, device.pool, device.device, device.share_id)
        if named == (driver, key.pool, key.device, key.share_id):
            return device.conditions
    return ()
