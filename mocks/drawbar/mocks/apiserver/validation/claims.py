"""Rules of a ResourceClaim's status, and of its immutable spec.

The allocation is checked for shape and immutability. As in the real server, its match with requests and slices is not
checked; that is the scheduler's task.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterator
from typing import Any

from drawbar.mocks.apiserver import errors
from drawbar.mocks.apiserver.errors import Cause
from drawbar.mocks.apiserver.validation import (
    claimspecs,
    conditions,
    devices,
    lists,
    names,
    nodes,
    taints,
)

Json = dict[str, Any]
DeviceId = tuple[str, str, str, str]

MAX_CONDITIONS = 8
MAX_RESERVED = 256
MAX_RESULTS = 32
MAX_DATA_BYTES = 10 * 1024
MAX_INTERFACE_NAME = 256
MAX_HARDWARE_ADDRESS = 128
MAX_ADDRESSES = 16


def results(status: Json) -> list[Json]:
    """Return the allocated devices of a status."""
    allocation = status.get("allocation") or {}
    return list((allocation.get("devices") or {}).get("results") or ())


def device_id(entry: Json) -> DeviceId:
    """Return the driver, pool, device and share of an allocated device or of its status."""
    return (
        entry.get("driver", ""),
        entry.get("pool", ""),
        entry.get("device", ""),
        entry.get("shareID") or "",
    )


def drop_deallocated(status: Json, old: Json, new: Json) -> Json:
    """Return a status without the entries of the devices deallocated by an update from ``old`` to ``new``."""
    gone = {device_id(r)[:3] for r in results(old)} - {device_id(r)[:3] for r in results(new)}
    if not gone or "devices" not in status:
        return status
    kept = [entry for entry in status["devices"] or () if device_id(entry)[:3] not in gone]
    rest = {key: value for key, value in status.items() if key != "devices"}
    return {**rest, "devices": kept} if kept else rest


def immutable_spec(spec: Json, old: Json) -> Iterator[Cause]:
    """Yield a problem if a claim's spec changed."""
    if _has_changed(spec, old):
        yield errors.invalid_value("spec", "object", "field is immutable")


def sort_opaque_keys(item: Json) -> Json:
    """Return a claim after server-side apply, which re-encodes its opaque parameters with sorted keys."""
    status = dict(item.get("status") or {})
    if status.get("allocation"):
        allocation = status["allocation"]
        status["allocation"] = {**allocation, "devices": _sort_config_keys(allocation.get("devices") or {})}
    spec = item.get("spec") or {}
    ordered = (
        {**item, "spec": {**spec, "devices": _sort_config_keys(spec["devices"])}}
        if "devices" in spec
        else item
    )
    return {**ordered, "status": status} if "status" in item else dict(ordered)


def _sort_config_keys(devices: Json) -> Json:
    if not devices.get("config"):
        return devices
    entries = [
        {**entry, "opaque": {**entry["opaque"], "parameters": _sort_keys(entry["opaque"].get("parameters"))}}
        if entry.get("opaque")
        else entry
        for entry in devices["config"]
    ]
    return {**devices, "config": entries}


def _sort_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sort_keys(value[key]) for key in sorted(value)}
    return [_sort_keys(element) for element in value] if isinstance(value, list) else value


def _has_changed(new: Json, old: Json) -> bool:
    """Return true if an immutable part changed. Opaque parameters are compared as text, not by their meaning."""
    return new != old or _opaque(new) != _opaque(old)


def _opaque(part: Json) -> list[str]:
    entries = (part.get("devices") or {}).get("config") or ()
    return [json.dumps((entry.get("opaque") or {}).get("parameters")) for entry in entries]


def validate_status(status: Json, old: Json, spec: Json, *, deleted: bool) -> Iterator[Cause]:
    """Yield every rule broken by a claim's new status; ``deleted`` is true if the claim is being deleted."""
    yield from lists.check_distinct(
        status.get("reservedFor") or [],
        "status.reservedFor",
        _consumer,
        lambda consumer: consumer.get("uid") or "",
        limit=MAX_RESERVED,
    )
    allocated = {device_id(result) for result in results(status)}

    def device(entry: Json, path: str) -> Iterator[Cause]:
        yield from _device_status(entry, path, allocated)

    yield from lists.check_distinct(status.get("devices") or [], "status.devices", device, _shown_id)
    yield from _reservations(status, old, deleted=deleted)
    allocation, before = status.get("allocation"), old.get("allocation")
    if allocation is not None and before is not None:
        if _has_changed(allocation, before):
            yield errors.invalid_value("status.allocation", "object", "field is immutable")
    elif allocation is not None:
        yield from _allocation(allocation, claimspecs.request_names(spec))


def _consumer(consumer: Json, path: str) -> Iterator[Cause]:
    for key in ("resource", "name", "uid"):
        if not consumer.get(key):
            yield errors.required_value(f"{path}.{key}")


def _reservations(status: Json, old: Json, *, deleted: bool) -> Iterator[Cause]:
    reserved = status.get("reservedFor") or []
    if reserved and status.get("allocation") is None:
        yield errors.forbidden_value("status.reservedFor", "may not be specified when `allocated` is not set")
    elif deleted and any(entry not in (old.get("reservedFor") or ()) for entry in reserved):
        text = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
        yield errors.forbidden_value("status.reservedFor", text)


def _shown_id(entry: Json) -> str:
    return "/".join(part for part in device_id(entry) if part)


def _device_status(entry: Json, path: str, allocated: set[DeviceId]) -> Iterator[Cause]:
    yield from names.driver_name(entry.get("driver") or "", f"{path}.driver")
    yield from names.pool_name(entry.get("pool") or "", f"{path}.pool")
    yield from names.dns_label(entry.get("device") or "", f"{path}.device")
    if entry.get("shareID") is not None:
        yield from names.uid(entry["shareID"], f"{path}.shareID")
    if device_id(entry) not in allocated:
        yield errors.invalid_value(path, _shown_id(entry), "must be an allocated device in the claim")
    held = entry.get("conditions") or []
    if len(held) > MAX_CONDITIONS:
        yield errors.too_many(f"{path}.conditions", len(held), MAX_CONDITIONS)
    yield from conditions.validate(held, f"{path}.conditions")
    if entry.get("data") is not None:
        yield from taints.raw_object(entry["data"], f"{path}.data", MAX_DATA_BYTES)
    yield from _network(entry.get("networkData") or {}, f"{path}.networkData")


def _network(data: Json, path: str) -> Iterator[Cause]:
    for key, limit in (("interfaceName", MAX_INTERFACE_NAME), ("hardwareAddress", MAX_HARDWARE_ADDRESS)):
        if len((data.get(key) or "").encode()) > limit:
            yield errors.too_long(f"{path}.{key}", limit)
    yield from lists.check_distinct(data.get("ips") or [], f"{path}.ips", _address, str, limit=MAX_ADDRESSES)


def _address(text: str, path: str) -> Iterator[Cause]:
    """Yield the problems of an interface's address with prefix length, which must be in canonical form."""
    try:
        canonical = str(ipaddress.ip_interface(text)) if "/" in text else ""
    except ValueError:
        canonical = ""
    if not canonical:
        wanted = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)"
        yield errors.invalid_value(path, text, wanted)
    elif canonical != text:
        yield errors.invalid_value(path, text, f'must be in canonical form ("{canonical}")')


def _allocation(allocation: Json, requests: dict[str, set[str]]) -> Iterator[Cause]:
    inner, path = allocation.get("devices") or {}, "status.allocation.devices"

    def result(entry: Json, here: str) -> Iterator[Cause]:
        yield from _result(entry, here, requests)

    def config(entry: Json, here: str) -> Iterator[Cause]:
        source = entry.get("source") or ""
        if not source:
            yield errors.required_value(f"{here}.source")
        elif source not in ("FromClaim", "FromClass"):
            yield errors.unsupported_value(f"{here}.source", source, ("FromClaim", "FromClass"))
        yield from claimspecs.references(entry.get("requests") or [], f"{here}.requests", requests)
        yield from claimspecs.configuration(entry, here)

    yield from lists.check_each(inner.get("results") or [], f"{path}.results", result, limit=MAX_RESULTS)
    yield from lists.check_each(
        inner.get("config") or [], f"{path}.config", config, limit=2 * claimspecs.MAX_CONFIGS
    )
    if allocation.get("nodeSelector") is not None:
        yield from nodes.selector(allocation["nodeSelector"], "status.allocation.nodeSelector")


def _result(result: Json, path: str, requests: dict[str, set[str]]) -> Iterator[Cause]:
    yield from claimspecs.reference(result.get("request") or "", f"{path}.request", requests)
    yield from names.driver_name(result.get("driver") or "", f"{path}.driver")
    yield from names.pool_name(result.get("pool") or "", f"{path}.pool")
    yield from names.dns_label(result.get("device") or "", f"{path}.device")
    yield from devices.check_binding_conditions(result, path)
    yield from taints.tolerations(result.get("tolerations") or [], path)
    if result.get("shareID") is not None:
        yield from names.uid(result["shareID"], f"{path}.shareID")


def allocated_node(status: Json) -> str:
    """Return the only node in the allocation's node selector, or an empty string."""
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
    """Return the drivers with device entries added, changed or removed by an update, sorted."""
    before = {device_id(entry): entry for entry in old.get("devices") or ()}
    after = {device_id(entry): entry for entry in status.get("devices") or ()}
    return sorted({key[0] for key in before.keys() | after.keys() if before.get(key) != after.get(key)})


def admin_results(status: Json) -> Iterator[str]:
    """Yield the paths of the allocated devices with administrative access."""
    for index, result in enumerate(results(status)):
        if result.get("adminAccess"):
            yield f"status.allocation.devices.results[{index}].adminAccess"
