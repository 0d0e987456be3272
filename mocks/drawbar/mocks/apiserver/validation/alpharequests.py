"""Rules of 1.31 (``resource.k8s.io/v1alpha3``): requests without ``exactly``, devices with ``basic``, controllers.

Source: pkg/apis/resource/validation of Kubernetes 1.31. There were no limits yet for the length of CEL expressions and
of opaque parameters, and for administrative access.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from drawbar.mocks.apiserver import celchecks, errors, expressions
from drawbar.mocks.apiserver.errors import Cause
from drawbar.mocks.apiserver.validation import (
    claims,
    claimspecs,
    classicclaims,
    devices,
    lists,
    names,
    nodes,
    selectors,
)

Json = dict[str, Any]
MAX_DEVICES = 128
_SOURCES = ("FromClaim", "FromClass")
_UNKNOWN = "must be the name of a request in the claim"
_NODES = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required"


def add_defaults(spec: Json) -> Json:
    """Return a claim's spec with the defaults of the API server: one device of each request."""
    inner = spec.get("devices") or {}
    if not inner.get("requests"):
        return spec
    return {
        **spec,
        "devices": {**inner, "requests": [_add_request_defaults(request) for request in inner["requests"]]},
    }


def _add_request_defaults(request: Json) -> Json:
    done = {**request, "allocationMode": request.get("allocationMode") or "ExactCount"}
    if done["allocationMode"] == "ExactCount" and not done.get("count"):
        done["count"] = 1
    return done


def claim(spec: Json, path: str = "spec") -> Iterator[Cause]:
    """Yield every rule broken by a claim's spec."""
    inner, here, requests = spec.get("devices") or {}, f"{path}.devices", request_names(spec)

    def constraint(item: Json, where: str) -> Iterator[Cause]:
        yield from _references(item.get("requests") or [], f"{where}.requests", requests)
        if item.get("matchAttribute") is None:
            yield errors.required_value(f"{where}.matchAttribute")
        else:
            yield from names.full_attribute_name(item["matchAttribute"], f"{where}.matchAttribute")

    def config(item: Json, where: str) -> Iterator[Cause]:
        yield from _references(item.get("requests") or [], f"{where}.requests", requests)
        yield from _configuration(item, where)

    yield from classicclaims.check_distinct(
        inner.get("requests") or [],
        f"{here}.requests",
        _request,
        lambda request: request.get("name") or "",
        limit=claimspecs.MAX_REQUESTS,
        field=".name",
    )
    yield from classicclaims.check_at_most(
        inner.get("constraints") or [], f"{here}.constraints", constraint, limit=claimspecs.MAX_CONSTRAINTS
    )
    yield from classicclaims.check_at_most(
        inner.get("config") or [], f"{here}.config", config, limit=claimspecs.MAX_CONFIGS
    )
    if spec.get("controller"):
        yield from _driver_name(spec["controller"], f"{path}.controller")


def request_names(spec: Json) -> frozenset[str]:
    """Return the names of a claim's requests."""
    return frozenset(claimspecs.request_names(spec))


def claim_status(status: Json, old: Json, spec: Json, *, deleted: bool) -> Iterator[Cause]:
    """Yield every rule broken by a claim's new status."""
    allocation = _allocation(status.get("allocation"), request_names(spec))
    yield from classicclaims.status(status, old, allocation, deleted=deleted)


def device_class(spec: Json) -> Iterator[Cause]:
    """Yield every rule broken by a DeviceClass; the real server reports ``suitableNodes`` without ``spec``."""
    yield from classicclaims.check_at_most(
        spec.get("selectors") or [], "spec.selectors", _selector, limit=selectors.MAX_SELECTORS
    )
    yield from classicclaims.check_at_most(
        spec.get("config") or [], "spec.config", _configuration, limit=claimspecs.MAX_CONFIGS
    )
    if spec.get("suitableNodes") is not None:
        yield from nodes.selector(spec["suitableNodes"], "suitableNodes")


def resource_slice(spec: Json, old: Json | None = None) -> Iterator[Cause]:
    """Yield every rule broken by a slice's spec, or by its change."""
    pool, before = spec.get("pool") or {}, old or {}
    yield from _driver_name(spec.get("driver") or "", "spec.driver")
    yield from names.pool_name(pool.get("name") or "", "spec.pool.name")
    count, generation = pool.get("resourceSliceCount") or 0, pool.get("generation") or 0
    if count <= 0:
        yield errors.invalid_value("spec.pool.resourceSliceCount", count, "must be greater than zero")
    if generation < 0:
        text = "must be greater than or equal to zero"
        yield errors.invalid_value("spec.pool.generation", generation, text)
    for path, value, held in (
        ("spec.pool.name", pool.get("name"), (before.get("pool") or {}).get("name")),
        ("spec.driver", spec.get("driver"), before.get("driver")),
        ("spec.nodeName", spec.get("nodeName"), before.get("nodeName")),
    ):
        if old is not None and value != held:
            yield errors.invalid_value(path, value, "field is immutable")
    yield from _check_nodes(spec)
    yield from classicclaims.check_distinct(
        spec.get("devices") or [],
        "spec.devices",
        _device,
        lambda device: device.get("name") or "",
        limit=MAX_DEVICES,
        field=".name",
    )


def _request(request: Json, path: str) -> Iterator[Cause]:
    yield from names.dns_label(request.get("name") or "", f"{path}.name")
    yield from claimspecs.amount(request, path)
    yield from classicclaims.check_at_most(
        request.get("selectors") or [], f"{path}.selectors", _selector, limit=selectors.MAX_SELECTORS
    )


def _selector(item: Json, path: str) -> Iterator[Cause]:
    if item.get("cel") is None:
        yield errors.required_value(f"{path}.cel")
        return
    text = item["cel"].get("expression") or ""
    problem = expressions.problem(text) or celchecks.problem(text, {"device": selectors.DEVICE})
    if problem is not None:
        yield errors.invalid_value(f"{path}.cel.expression", text, f"compilation failed: {problem}")


def _references(items: list[str], path: str, requests: frozenset[str]) -> Iterator[Cause]:
    def reference(name: str, here: str) -> Iterator[Cause]:
        yield from _reference(name, here, requests)

    yield from classicclaims.check_distinct(items, path, reference, str, limit=claimspecs.MAX_REQUESTS)


def _reference(name: str, path: str, requests: frozenset[str]) -> Iterator[Cause]:
    yield from names.dns_label(name, path)
    if name not in requests:
        yield errors.invalid_value(path, name, _UNKNOWN)


def _configuration(config: Json, path: str) -> Iterator[Cause]:
    opaque = config.get("opaque")
    if opaque is None:
        yield errors.required_value(f"{path}.opaque")
        return
    yield from _driver_name(opaque.get("driver") or "", f"{path}.opaque.driver")
    parameters = opaque.get("parameters")
    if parameters is None:
        yield errors.required_value(f"{path}.opaque.parameters")
    elif not isinstance(parameters, dict):
        text = "parameters must be a valid JSON object"
        yield errors.invalid_value(f"{path}.opaque.parameters", "<value omitted>", text)


def _allocation(allocation: Json | None, requests: frozenset[str]) -> Iterator[Cause]:
    if allocation is None:
        return
    inner, path = allocation.get("devices") or {}, "status.allocation"

    def result(item: Json, where: str) -> Iterator[Cause]:
        yield from _reference(item.get("request") or "", f"{where}.request", requests)
        yield from _driver_name(item.get("driver") or "", f"{where}.driver")
        yield from names.pool_name(item.get("pool") or "", f"{where}.pool")
        yield from names.dns_label(item.get("device") or "", f"{where}.device")

    def config(item: Json, where: str) -> Iterator[Cause]:
        source = item.get("source") or ""
        if not source:
            yield errors.required_value(f"{where}.source")
        elif source not in _SOURCES:
            yield errors.unsupported_value(f"{where}.source", source, _SOURCES)
        yield from _references(item.get("requests") or [], f"{where}.requests", requests)
        yield from _configuration(item, where)

    yield from classicclaims.check_at_most(
        inner.get("results") or [], f"{path}.devices.results", result, limit=claims.MAX_RESULTS
    )
    yield from classicclaims.check_at_most(
        inner.get("config") or [], f"{path}.devices.config", config, limit=2 * claimspecs.MAX_CONFIGS
    )
    if allocation.get("nodeSelector") is not None:
        yield from nodes.selector(allocation["nodeSelector"], f"{path}.nodeSelector")
    if allocation.get("controller"):
        yield from _driver_name(allocation["controller"], f"{path}.controller")


def _check_nodes(spec: Json) -> Iterator[Cause]:
    """Yield a problem unless there is exactly one selection of the devices' nodes."""
    if spec.get("nodeName"):
        yield from names.subdomain(spec["nodeName"], "spec.nodeName")
    if spec.get("nodeSelector") is not None:
        yield from nodes.selector(spec["nodeSelector"], "spec.nodeSelector")
        terms = spec["nodeSelector"].get("nodeSelectorTerms") or []
        if len(terms) != 1:
            path = "spec.nodeSelector.nodeSelectorTerms"
            yield errors.invalid_value(path, terms, "must have exactly one selector term")
    selections = (
        bool(spec.get("nodeName")) + (spec.get("nodeSelector") is not None) + bool(spec.get("allNodes"))
    )
    if not selections:
        yield errors.required_value("spec", _NODES)
    elif selections > 1:
        yield errors.invalid_value("spec", "object", _NODES)


def _device(device: Json, path: str) -> Iterator[Cause]:
    yield from names.dns_label(device.get("name") or "", f"{path}.name")
    basic = device.get("basic")
    if basic is None:
        yield errors.required_value(f"{path}.basic")
        return
    attributes, capacity = basic.get("attributes") or {}, basic.get("capacity") or {}
    yield from lists.check_entries(
        attributes, f"{path}.basic.attributes", names.attribute_name, devices.attribute
    )
    yield from lists.check_entries(
        capacity, f"{path}.basic.capacity", names.attribute_name, lists.check_nothing
    )
    if len(attributes) + len(capacity) > devices.MAX_ATTRIBUTES_AND_CAPACITY:
        limit = devices.MAX_ATTRIBUTES_AND_CAPACITY
        text = f"the total number of attributes and capacities must not exceed {limit}"
        yield errors.invalid_value(f"{path}.basic", len(attributes) + len(capacity), text)


def _driver_name(value: str, path: str) -> Iterator[Cause]:
    """Yield the problems of a driver name; an empty one is also refused for its form, unlike in later releases."""
    yield from names.driver_name(value, path)
    if not value:
        yield errors.invalid_value(path, value, names.SUBDOMAIN_TEXT)
