"""Rules of ResourceClaims: the immutable spec, and what a status may say.

The allocation is checked for shape and immutability; that it fits requests and slices is the scheduler's
business and not checked, as in the real server.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from drawbar.mocks.apiserver import errors, profiles
from drawbar.mocks.apiserver.errors import Cause
from drawbar.mocks.apiserver.profiles import Profile
from drawbar.mocks.apiserver.validation import names

Json = dict[str, Any]
DeviceId = tuple[str, str, str, str]

MAX_CONDITIONS = 8
MAX_RESERVED = 256
MAX_MESSAGE = 32_768
MAX_DATA_BYTES = 10 * 1024
_REASON = re.compile(r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")
_TIME = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$")
_BINDING = ("bindingConditions", "bindingFailureConditions")


def results(status: Json) -> list[Json]:
    """The allocated devices of a status."""
    allocation = status.get("allocation") or {}
    return list((allocation.get("devices") or {}).get("results") or ())


def device_id(entry: Json) -> DeviceId:
    """Driver, pool, device and share of an allocated device or of its status."""
    return (
        entry.get("driver", ""),
        entry.get("pool", ""),
        entry.get("device", ""),
        entry.get("shareID") or "",
    )


def drop_deallocated(status: Json, old: Json) -> Json:
    """The status without the device entries whose allocation this very update takes away."""
    gone = {device_id(r)[:3] for r in results(old)} - {device_id(r)[:3] for r in results(status)}
    if not gone or "devices" not in status:
        return status
    kept = [entry for entry in status["devices"] or () if device_id(entry)[:3] not in gone]
    rest = {key: value for key, value in status.items() if key != "devices"}
    return {**rest, "devices": kept} if kept else rest


def drop_disabled(status: Json, old: Json, profile: Profile) -> Json:
    """The status without the fields of gates that are off; fields already in use are kept."""
    if not profile.on(profiles.DEVICE_STATUS) and not old.get("devices"):
        status = {key: value for key, value in status.items() if key != "devices"}
    used = any(result.get(key) for result in results(old) for key in _BINDING)
    if profile.on(profiles.BINDING_CONDITIONS) or used or not results(status):
        return status
    allocation = {key: value for key, value in status["allocation"].items() if key != "allocationTimestamp"}
    kept = [{key: value for key, value in r.items() if key not in _BINDING} for r in results(status)]
    allocation["devices"] = {**allocation["devices"], "results": kept}
    return {**status, "allocation": allocation}


def malformed(status: Any) -> str | None:
    """Why a status does not even have the right types, or None."""
    if not isinstance(status, dict):
        return "status must be an object"
    allocation = status.get("allocation")
    if allocation is not None and not isinstance(allocation, dict):
        return "status.allocation must be an object"
    inner = (allocation or {}).get("devices")
    if inner is not None and not isinstance(inner, dict):
        return "status.allocation.devices must be an object"
    for path, held in (
        ("status.allocation.devices.results", (inner or {}).get("results")),
        ("status.devices", status.get("devices")),
        ("status.reservedFor", status.get("reservedFor")),
        *((f"status.devices[{i}].conditions", d.get("conditions")) for i, d in _entries(status)),
    ):
        if held is not None and not (isinstance(held, list) and all(isinstance(item, dict) for item in held)):
            return f"{path} must be a list of objects"
    return None


def _entries(status: Json) -> list[tuple[int, Json]]:
    devices = status.get("devices")
    if not isinstance(devices, list):
        return []
    return [(index, entry) for index, entry in enumerate(devices) if isinstance(entry, dict)]


def validate_spec(spec: Json) -> Iterator[Cause]:
    """Every rule that a claim's spec breaks."""
    requests = (spec.get("devices") or {}).get("requests") or []
    seen: set[str] = set()
    for index, request in enumerate(requests):
        path = f"spec.devices.requests[{index}]"
        yield from names.dns_label(request.get("name") or "", f"{path}.name")
        if request.get("name") in seen:
            yield errors.duplicate(f"{path}.name", request.get("name"))
        seen.add(request.get("name") or "")
        given = [key for key in ("exactly", "firstAvailable") if request.get(key)]
        if len(given) != 1:
            text = "exactly one of `exactly` or `firstAvailable` is required"
            yield (
                errors.required(path, text)
                if not given
                else errors.invalid_value(path, ", ".join(given), text)
            )
        if request.get("exactly") and not request["exactly"].get("deviceClassName"):
            yield errors.required(f"{path}.exactly.deviceClassName")


def validate_status(status: Json, old: Json) -> Iterator[Cause]:
    """Every rule that a claim's new status breaks."""
    allocation, before = status.get("allocation"), old.get("allocation")
    if allocation is not None and before is not None and allocation != before:
        yield errors.invalid_value("status.allocation", "object", "field is immutable")
    yield from _reserved(status)
    allocated = {device_id(result) for result in results(status)}
    yield from _results(status)
    seen: set[DeviceId] = set()
    for index, entry in enumerate(status.get("devices") or ()):
        path = f"status.devices[{index}]"
        identity = device_id(entry)
        yield from names.driver_name(entry.get("driver") or "", f"{path}.driver")
        yield from names.pool_name(entry.get("pool") or "", f"{path}.pool")
        yield from names.dns_label(entry.get("device") or "", f"{path}.device")
        shown = "/".join(part for part in identity if part)
        if identity in seen:
            yield errors.duplicate(path, shown)
        seen.add(identity)
        if identity not in allocated:
            yield errors.invalid_value(path, shown, "must be an allocated device in the claim")
        yield from _conditions(entry.get("conditions") or [], f"{path}.conditions")
        yield from _data(entry.get("data"), f"{path}.data")


def _reserved(status: Json) -> Iterator[Cause]:
    reserved = status.get("reservedFor") or []
    if len(reserved) > MAX_RESERVED:
        yield errors.too_many("status.reservedFor", len(reserved), MAX_RESERVED)
    if reserved and status.get("allocation") is None:
        yield errors.forbidden_value("status.reservedFor", "may not be specified when `allocated` is not set")
    seen: set[str] = set()
    for index, consumer in enumerate(reserved):
        for key in ("resource", "name", "uid"):
            if not consumer.get(key):
                yield errors.required(f"status.reservedFor[{index}].{key}")
        if consumer.get("uid") in seen:
            yield errors.duplicate(f"status.reservedFor[{index}].uid", consumer.get("uid"))
        seen.add(consumer.get("uid") or "")


def _results(status: Json) -> Iterator[Cause]:
    for index, result in enumerate(results(status)):
        path = f"status.allocation.devices.results[{index}]"
        if not result.get("request"):
            yield errors.required(f"{path}.request")
        yield from names.driver_name(result.get("driver") or "", f"{path}.driver")
        yield from names.pool_name(result.get("pool") or "", f"{path}.pool")
        yield from names.dns_label(result.get("device") or "", f"{path}.device")


def _conditions(conditions: list[Json], path: str) -> Iterator[Cause]:
    if len(conditions) > MAX_CONDITIONS:
        yield errors.too_many(path, len(conditions), MAX_CONDITIONS)
    seen: set[str] = set()
    for index, condition in enumerate(conditions):
        here = f"{path}[{index}]"
        kind = condition.get("type") or ""
        if kind in seen:
            yield errors.duplicate(f"{here}.type", kind)
        seen.add(kind)
        yield from names.label_name(kind, f"{here}.type") if kind else [errors.required(f"{here}.type")]
        if condition.get("status") not in ("True", "False", "Unknown"):
            yield errors.unsupported(
                f"{here}.status", condition.get("status", ""), ("False", "True", "Unknown")
            )
        reason = condition.get("reason") or ""
        if not reason:
            yield errors.required(f"{here}.reason")
        elif not _REASON.match(reason):
            text = "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric characters or '_,:', and must end with an alphanumeric character or '_'"
            yield errors.invalid_value(f"{here}.reason", reason, text)
        if not condition.get("lastTransitionTime"):
            yield errors.required(f"{here}.lastTransitionTime")
        elif not _TIME.match(str(condition["lastTransitionTime"])):
            yield errors.invalid_value(
                f"{here}.lastTransitionTime", condition["lastTransitionTime"], "must be RFC 3339"
            )
        if len(condition.get("message") or "") > MAX_MESSAGE:
            yield errors.too_long(f"{here}.message", MAX_MESSAGE)


def _data(data: Any, path: str) -> Iterator[Cause]:
    if data is None:
        return
    if not isinstance(data, dict):
        yield errors.invalid_value(path, "<value omitted>", "must be a JSON object")
    elif len(json.dumps(data, separators=(",", ":"))) > MAX_DATA_BYTES:
        yield errors.too_long(path, MAX_DATA_BYTES)


def allocated_node(status: Json) -> str:
    """The one node that the allocation names in its node selector, or nothing."""
    selector = (status.get("allocation") or {}).get("nodeSelector") or {}
    terms = selector.get("nodeSelectorTerms") or []
    if len(terms) != 1 or terms[0].get("matchExpressions") or len(terms[0].get("matchFields") or ()) != 1:
        return ""
    need = terms[0]["matchFields"][0]
    values = need.get("values") or []
    if need.get("key") != "metadata.name" or need.get("operator") != "In" or len(values) != 1:
        return ""
    return str(values[0])


def modified_drivers(status: Json, old: Json) -> list[str]:
    """The drivers whose device entries an update adds, changes or removes, sorted."""
    before = {device_id(entry): entry for entry in old.get("devices") or ()}
    after = {device_id(entry): entry for entry in status.get("devices") or ()}
    return sorted({key[0] for key in before.keys() | after.keys() if before.get(key) != after.get(key)})


def immutable_spec(spec: Json, old: Json) -> Iterator[Cause]:
    """A claim's spec never changes."""
    if spec != old:
        yield errors.invalid_value("spec", "object", "field is immutable")
