"""Rules of 1.30 (``resource.k8s.io/v1alpha2``): classes with drivers, claims, handles and parameters.

Source: pkg/apis/resource/validation of Kubernetes 1.30. Not checked: the CEL expressions of structured parameters and
the attributes of named resources, because a driver's controller does not use them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from drawbar.mocks.apiserver import errors
from drawbar.mocks.apiserver.errors import Cause
from drawbar.mocks.apiserver.validation import classicclaims, names, nodes

Json = dict[str, Any]
IMMEDIATE, WAIT = "Immediate", "WaitForFirstConsumer"
MAX_HANDLES = 32
MAX_DATA_BYTES = 16 * 1024
_ONE_MODEL = "exactly one structured model field must be set"


def add_defaults(spec: Json) -> Json:
    """Return a claim's spec with the default of the API server: it waits for a pod."""
    return {**spec, "allocationMode": spec.get("allocationMode") or WAIT}


def claim(spec: Json, path: str = "spec") -> Iterator[Cause]:
    """Yield every rule broken by a claim's spec."""
    yield from names.subdomain(spec.get("resourceClassName") or "", f"{path}.resourceClassName")
    yield from _reference(spec.get("parametersRef"), f"{path}.parametersRef")
    mode = spec.get("allocationMode") or ""
    if mode not in (IMMEDIATE, WAIT):
        yield errors.unsupported_value(f"{path}.allocationMode", mode, (IMMEDIATE, WAIT))


def resource_class(item: Json) -> Iterator[Cause]:
    """Yield every rule broken by a ResourceClass."""
    yield from names.driver_name(item.get("driverName") or "", "driverName")
    yield from _reference(item.get("parametersRef"), "parametersRef")
    if item.get("suitableNodes") is not None:
        yield from nodes.selector(item["suitableNodes"], "suitableNodes")


def claim_status(status: Json, old: Json, *, deleted: bool) -> Iterator[Cause]:
    """Yield every rule broken by a claim's new status."""
    yield from classicclaims.status(status, old, _allocation(status), deleted=deleted)
    shareable = (status.get("allocation") or {}).get("shareable")
    if status.get("allocation") is not None and not shareable and len(status.get("reservedFor") or ()) > 1:
        yield errors.forbidden_value("status.reservedFor", "may not be reserved more than once")


def claim_parameters(item: Json) -> Iterator[Cause]:
    """Yield every rule broken by ResourceClaimParameters."""
    yield from _reference(item.get("generatedFrom"), "generatedFrom")
    yield from _drivers(item.get("driverRequests") or [], "driverRequests")
    for index, entry in enumerate(item.get("driverRequests") or ()):
        path = f"driverRequests[{index}].requests"
        if not entry.get("requests"):
            yield errors.required_value(path, "empty entries with no requests are not allowed")
        yield from _models(entry.get("requests") or [], path)


def class_parameters(item: Json) -> Iterator[Cause]:
    """Yield every rule broken by ResourceClassParameters."""
    yield from _reference(item.get("generatedFrom"), "generatedFrom")
    yield from _drivers(item.get("filters") or [], "filters")
    yield from _models(item.get("filters") or [], "filters")
    yield from _drivers(item.get("vendorParameters") or [], "vendorParameters")


def resource_slice(item: Json, old: Json | None = None) -> Iterator[Cause]:
    """Yield every rule broken by a ResourceSlice of 1.30, or by its change."""
    if item.get("nodeName"):
        yield from names.subdomain(item["nodeName"], "nodeName")
    yield from names.driver_name(item.get("driverName") or "", "driverName")
    if item.get("namedResources") is None:
        yield errors.required_value("", _ONE_MODEL)
    for key in ("nodeName", "driverName"):
        if old is not None and item.get(key) != old.get(key):
            yield errors.invalid_value(key, item.get(key), "field is immutable")


def _reference(reference: Json | None, path: str) -> Iterator[Cause]:
    if reference is None:
        return
    for key in ("kind", "name"):
        if not reference.get(key):
            yield errors.required_value(f"{path}.{key}")
    if reference.get("namespace"):
        yield from names.dns_label(reference["namespace"], f"{path}.namespace")


def _allocation(status: Json) -> Iterator[Cause]:
    """Yield the problems of the driver's name, required by an allocation, and of the allocation."""
    driver, allocation = status.get("driverName"), status.get("allocation")
    if driver:
        yield from names.driver_name(driver, "status.driverName")
    elif allocation is not None:
        yield errors.required_value("status.driverName", "must be specified when `allocation` is set")
    if allocation is None:
        return
    path = "status.allocation"
    handles = allocation.get("resourceHandles") or []
    yield from classicclaims.check_at_most(handles, f"{path}.resourceHandles", _handle, limit=MAX_HANDLES)
    if allocation.get("availableOnNodes") is not None:
        yield from nodes.selector(allocation["availableOnNodes"], f"{path}.availableOnNodes")


def _handle(handle: Json, path: str) -> Iterator[Cause]:
    yield from names.driver_name(handle.get("driverName") or "", f"{path}.driverName")
    data, structured = handle.get("data") or "", handle.get("structuredData")
    if len(data.encode()) > MAX_DATA_BYTES:
        yield errors.longer_than(f"{path}.data", MAX_DATA_BYTES)
    if structured is None:
        return
    if structured.get("nodeName"):
        yield from names.subdomain(structured["nodeName"], f"{path}.structuredData.nodeName")
    yield from _models(structured.get("results") or [], f"{path}.structuredData.results")
    if data:
        yield errors.invalid_value(path, None, "data and structuredData are mutually exclusive")


def _drivers(entries: list[Json], path: str) -> Iterator[Cause]:
    """Yield a problem for each repeated driver."""
    seen: set[str] = set()
    for index, entry in enumerate(entries):
        here, driver = f"{path}[{index}].driverName", entry.get("driverName") or ""
        yield from names.driver_name(driver, here)
        if driver in seen:
            yield errors.duplicate_value(here, driver)
        seen.add(driver)


def _models(entries: list[Json], path: str) -> Iterator[Cause]:
    """Yield a problem for each entry without the only supported model."""
    for index, entry in enumerate(entries):
        if entry.get("namedResources") is None:
            yield errors.required_value(f"{path}[{index}]", _ONE_MODEL)
