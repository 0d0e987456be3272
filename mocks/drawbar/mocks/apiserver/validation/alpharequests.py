"""Rules of 1.31 (``resource.k8s.io/v1alpha3``): requests without ``exactly``, controllers.

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
    names,
    nodes,
    selectors,
)

Json = dict[str, Any]
_SOURCES = ("FromClaim", "FromClass")
_UNKNOWN = "must be the name of a request in the claim"


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


def _driver_name(value: str, path: str) -> Iterator[Cause]:
    """Yield the problems of a driver name; an empty one is also refused for its form, unlike in later releases."""
    yield from names.driver_name(value, path)
    if not value:
        yield errors.invalid_value(path, value, names.SUBDOMAIN_TEXT)
