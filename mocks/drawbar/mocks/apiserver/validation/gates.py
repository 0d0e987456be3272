"""Disabled feature gates: their fields are dropped silently, unless they are already in use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from drawbar.mocks.apiserver import profiles
from drawbar.mocks.apiserver.profiles import Profile
from drawbar.mocks.apiserver.validation import devices

Json = dict[str, Any]
Device = dict[str, Any]
_BINDING = ("bindsToNode", "bindingConditions", "bindingFailureConditions")

OMITTED_SINCE = 36
"""The first minor release that omits `devices` from a slice without any; in 1.34 it is null."""


def without_empty_devices(spec: Json, profile: Profile) -> Json:
    """Return the spec of a ResourceSlice as encoded if it has no devices."""
    if spec.get("devices"):
        return spec
    return _drop_keys(spec, ["devices"]) | ({"devices": None} if profile.minor < OMITTED_SINCE else {})


def slice_spec(spec: Json, old: Json | None, profile: Profile) -> Json:
    """Return the spec of a ResourceSlice without the fields of disabled gates."""
    held = list((old or {}).get("devices") or ())
    result = dict(spec)
    drops: list[Callable[[Device], None]] = []
    binding = profile.is_on(profiles.BINDING_CONDITIONS) and profile.is_on(profiles.DEVICE_STATUS)
    if not binding and not _has_any(held, _BINDING):
        drops.append(lambda device: _pop(device, _BINDING))
    if not profile.is_on(profiles.TAINTS):
        if not any(device.get("taints") for device in held):
            drops.append(lambda device: _pop(device, ("taints",)))
        if not (old or {}).get("taints"):
            result.pop("taints", None)
    if not profile.is_on(profiles.CONSUMABLE) and not _shares(held):
        drops.append(_drop_sharing)
    if not profile.is_on(profiles.LIST_ATTRIBUTES) and not any(_lists(device) for device in held):
        drops.append(_drop_lists)
    if drops and result.get("devices"):
        result["devices"] = [_strip_device(device, drops) for device in result["devices"]]
    return result


def claim_spec(spec: Json, profile: Profile) -> Json:
    """Return the spec of a claim without the fields of disabled gates; the spec is immutable, so none is in use."""
    dropped = [] if profile.is_on(profiles.TAINTS) else ["tolerations"]
    if not profile.is_on(profiles.CONSUMABLE):
        dropped.append("capacity")
    wanted = (spec.get("devices") or {}).get("requests")
    if not dropped or not wanted:
        return spec
    requests = []
    for request in wanted:
        done = dict(request)
        if request.get("exactly"):
            done["exactly"] = _drop_keys(request["exactly"], dropped)
        if request.get("firstAvailable"):
            done["firstAvailable"] = [_drop_keys(item, dropped) for item in request["firstAvailable"]]
        requests.append(done)
    inner = {**spec["devices"], "requests": requests}
    if not profile.is_on(profiles.CONSUMABLE) and inner.get("constraints"):
        inner["constraints"] = [_drop_keys(item, ["distinctAttribute"]) for item in inner["constraints"]]
    return {**spec, "devices": inner}


def claim_status(status: Json, old: Json, profile: Profile) -> Json:
    """Return the status of a claim without the fields of disabled gates."""
    if not profile.is_on(profiles.DEVICE_STATUS) and not old.get("devices"):
        status = _drop_keys(status, ["devices"])
    if status.get("devices"):
        entries = [{**entry, "conditions": entry.get("conditions") or None} for entry in status["devices"]]
        status = {**status, "devices": entries}
    results = ((status.get("allocation") or {}).get("devices") or {}).get("results")
    if not results:
        return status
    before = (((old.get("allocation") or {}).get("devices")) or {}).get("results") or []
    dropped: list[str] = []
    allocation = dict(status["allocation"])
    if not profile.is_on(profiles.BINDING_CONDITIONS) and not _has_any(before, _BINDING[1:]):
        dropped += _BINDING[1:]
        allocation.pop("allocationTimestamp", None)
    if not profile.is_on(profiles.TAINTS) and not _has_any(before, ("tolerations",)):
        dropped.append("tolerations")
    if not profile.is_on(profiles.CONSUMABLE) and not _has_any(before, ("shareID", "consumedCapacity")):
        dropped += ["shareID", "consumedCapacity"]
    kept = [_drop_keys(result, dropped) for result in results]
    allocation["devices"] = {**allocation["devices"], "results": kept}
    if "shareID" in dropped and status.get("devices"):
        status = {**status, "devices": [_drop_keys(entry, ["shareID"]) for entry in status["devices"]]}
    return {**status, "allocation": allocation}


def _has_any(items: list[Json], keys: tuple[str, ...]) -> bool:
    return any(item.get(key) is not None for item in items for key in keys)


def _pop(item: Json, keys: tuple[str, ...]) -> None:
    for key in keys:
        item.pop(key, None)


def _drop_keys(item: Json, keys: list[str]) -> Json:
    return {key: value for key, value in item.items() if key not in keys}


def _strip_device(device: Device, drops: list[Callable[[Device], None]]) -> Device:
    copy = dict(device)
    for drop in drops:
        drop(copy)
    return copy


def _shares(held: list[Device]) -> bool:
    return any(
        device.get("allowMultipleAllocations") is not None
        or any(value.get("requestPolicy") for value in (device.get("capacity") or {}).values())
        for device in held
    )


def _drop_sharing(device: Device) -> None:
    device.pop("allowMultipleAllocations", None)
    if device.get("capacity"):
        device["capacity"] = {
            name: _drop_keys(value, ["requestPolicy"]) for name, value in device["capacity"].items()
        }


def _lists(device: Device) -> bool:
    attributes = (device.get("attributes") or {}).values()
    return any(value.get(key) is not None for value in attributes for key in devices.LISTS)


def _drop_lists(device: Device) -> None:
    if _lists(device):
        device["attributes"] = {
            name: _drop_keys(value, list(devices.LISTS)) for name, value in device["attributes"].items()
        }
