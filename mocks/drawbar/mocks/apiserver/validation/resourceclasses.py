"""Rules of 1.30 (``resource.k8s.io/v1alpha2``): classes with drivers, claims and handles.

Source: pkg/apis/resource/validation of Kubernetes 1.30. Limit: no structured parameters, because a driver's controller
does not use them.
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
    if len((handle.get("data") or "").encode()) > MAX_DATA_BYTES:
        yield errors.longer_than(f"{path}.data", MAX_DATA_BYTES)
