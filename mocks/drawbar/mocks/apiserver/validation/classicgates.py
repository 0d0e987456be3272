"""The fields dropped by 1.31 with ``DRAControlPlaneController`` off, and by any release without dynamic allocation.

A field in use stays.
"""

from __future__ import annotations

from typing import Any

from drawbar.mocks.apiserver import profiles
from drawbar.mocks.apiserver.profiles import Profile

Json = dict[str, Any]
_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")


def claim_spec(spec: Json, old: Json, profile: Profile) -> Json:
    """Return a claim's spec without fields of the disabled gate."""
    if profile.is_off(profiles.CONTROL_PLANE_CONTROLLER) and not old.get("controller"):
        return _drop_key(spec, "controller")
    return spec


def claim_status(status: Json, old: Json, profile: Profile) -> Json:
    """Return a claim's status without fields of the disabled gate; with a controller in the spec, all fields stay."""
    if not profile.is_off(profiles.CONTROL_PLANE_CONTROLLER) or (old.get("spec") or {}).get("controller"):
        return status
    before = old.get("status") or {}
    if not before.get("deallocationRequested"):
        status = _drop_key(status, "deallocationRequested")
    if status.get("allocation") and not (before.get("allocation") or {}).get("controller"):
        status = {**status, "allocation": _drop_key(status["allocation"], "controller")}
    return status


def class_spec(spec: Json, old: Json, profile: Profile) -> Json:
    """Return a DeviceClass's spec without fields of the disabled gate."""
    if profile.is_off(profiles.CONTROL_PLANE_CONTROLLER) and old.get("suitableNodes") is None:
        return _drop_key(spec, "suitableNodes")
    return spec


def pod(item: Json, old: Json, profile: Profile) -> Json:
    """Return a pod without claims if dynamic allocation is off."""
    before = old.get("spec") or {}
    if not profile.is_off(profiles.DYNAMIC_ALLOCATION) or before.get("resourceClaims"):
        return item
    spec = _drop_key(item.get("spec") or {}, "resourceClaims")
    for key in _CONTAINERS:
        if spec.get(key):
            spec[key] = [_drop_claims(container) for container in spec[key]]
    done = {**item, "spec": spec}
    if done.get("status"):
        done["status"] = _drop_key(done["status"], "resourceClaimStatuses")
    return done


def _drop_claims(container: Json) -> Json:
    if not (container.get("resources") or {}).get("claims"):
        return container
    return {**container, "resources": _drop_key(container["resources"], "claims")}


def _drop_key(item: Json, key: str) -> Json:
    return {name: value for name, value in item.items() if name != key}
