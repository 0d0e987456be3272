"""Rules and defaults of a claim's requests, also inside templates and device classes.

The limits are those of pkg/apis/resource/validation in Kubernetes 1.36 and 1.37. Not checked: the cost of CEL
expressions, and the use of a derived attribute by a constraint.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from drawbar.mocks.apiserver import errors
from drawbar.mocks.apiserver.errors import Cause
from drawbar.mocks.apiserver.validation import lists, names, selectors, taints

Json = dict[str, Any]

_EXTENDED = re.compile(r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")
_RESERVED = ("kubernetes.io/", "requests.")
MAX_REQUESTS = 32
MAX_ALTERNATIVES = 8
MAX_CONSTRAINTS = 32
MAX_CONFIGS = 32
MAX_PARAMETERS_BYTES = 10 * 1024
ADMIN_LABEL = "resource.kubernetes.io/admin-access"
_REFERENCE = (
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
)


def add_defaults(spec: Json) -> Json:
    """Return the spec with the defaults of the API server: one device of each request, tolerations with ``Equal``.

    Without requests these are null, because the field has no `omitempty`.
    """
    devices = spec.get("devices") or {}
    if not devices.get("requests"):
        return {**spec, "devices": {**devices, "requests": None}}
    requests = []
    for request in devices["requests"]:
        done = dict(request)
        if request.get("exactly") is not None:
            done["exactly"] = _add_request_defaults(request["exactly"])
        if request.get("firstAvailable"):
            done["firstAvailable"] = [_add_request_defaults(item) for item in request["firstAvailable"]]
        requests.append(done)
    return {**spec, "devices": {**devices, "requests": requests}}


def _add_request_defaults(request: Json) -> Json:
    done = {**request, "allocationMode": request.get("allocationMode") or "ExactCount"}
    if done["allocationMode"] == "ExactCount" and not done.get("count"):
        done["count"] = 1
    if done.get("tolerations"):
        done["tolerations"] = [{"operator": "Equal", **item} for item in done["tolerations"]]
    return done


def validate(spec: Json, path: str = "spec") -> Iterator[Cause]:
    """Yield every rule broken by a claim's spec."""
    devices = spec.get("devices") or {}
    here, requests = f"{path}.devices", request_names(spec)
    yield from lists.check_distinct(
        devices.get("requests") or [], f"{here}.requests", _request, _name, limit=MAX_REQUESTS
    )

    def constraint(item: Json, where: str) -> Iterator[Cause]:
        yield from _constraint(item, where, requests)

    def config(item: Json, where: str) -> Iterator[Cause]:
        yield from references(item.get("requests") or [], f"{where}.requests", requests)
        yield from configuration(item, where)

    yield from lists.check_each(
        devices.get("constraints") or [], f"{here}.constraints", constraint, limit=MAX_CONSTRAINTS
    )
    yield from lists.check_each(devices.get("config") or [], f"{here}.config", config, limit=MAX_CONFIGS)


def request_names(spec: Json) -> dict[str, set[str]]:
    """Return the requests of a claim with the names of their alternatives."""
    return {
        request.get("name") or "": {item.get("name") or "" for item in request.get("firstAvailable") or ()}
        for request in (spec.get("devices") or {}).get("requests") or ()
    }


def admin_requests(spec: Json, path: str = "spec") -> Iterator[str]:
    """Yield the paths of the requests for administrative access, which only labelled namespaces allow."""
    for index, request in enumerate((spec.get("devices") or {}).get("requests") or ()):
        if (request.get("exactly") or {}).get("adminAccess"):
            yield f"{path}.devices.requests[{index}].adminAccess"


def references(items: list[str], path: str, requests: dict[str, set[str]]) -> Iterator[Cause]:
    """Yield the problems of names of requests, or of a request and one of its alternatives."""
    yield from lists.check_distinct(
        items, path, lambda name, here: reference(name, here, requests), str, limit=MAX_REQUESTS
    )


def reference(name: str, path: str, requests: dict[str, set[str]]) -> Iterator[Cause]:
    """Yield the problems of one such name."""
    parts = name.split("/")
    if len(parts) > 2:
        yield errors.invalid_value(path, name, _REFERENCE)
        return
    for part in parts:
        yield from names.dns_label(part, path)
    if parts[0] not in requests or (len(parts) == 2 and parts[1] not in requests[parts[0]]):
        yield errors.invalid_value(path, name, _REFERENCE)


def configuration(config: Json, path: str) -> Iterator[Cause]:
    """Yield the problems of a driver's opaque parameters."""
    opaque = config.get("opaque")
    if opaque is None:
        yield errors.required_value(f"{path}.opaque")
        return
    yield from names.driver_name(opaque.get("driver") or "", f"{path}.opaque.driver")
    yield from taints.raw_object(opaque.get("parameters"), f"{path}.opaque.parameters", MAX_PARAMETERS_BYTES)


def _name(request: Json) -> str:
    return request.get("name") or ""


def _request(request: Json, path: str) -> Iterator[Cause]:
    yield from names.dns_label(_name(request), f"{path}.name")
    exactly, alternatives = request.get("exactly"), request.get("firstAvailable") or []
    text = "exactly one of `exactly` or `firstAvailable` is required"
    if exactly is None and not alternatives:
        yield errors.required_value(path, text)
    elif exactly is not None and alternatives:
        yield errors.invalid_value(path, None, f"{text}, but multiple fields are set")
    elif exactly is not None:
        yield from _device_request(exactly, f"{path}.exactly")
    else:
        yield from lists.check_distinct(
            alternatives, f"{path}.firstAvailable", _alternative, _name, limit=MAX_ALTERNATIVES
        )


def _alternative(request: Json, path: str) -> Iterator[Cause]:
    yield from names.dns_label(_name(request), f"{path}.name")
    yield from _device_request(request, path)


def _device_request(request: Json, path: str) -> Iterator[Cause]:
    yield from amount(request, path)
    yield from selectors.validate(request.get("selectors") or [], f"{path}.selectors")
    yield from taints.tolerations(request.get("tolerations") or [], path)


def amount(request: Json, path: str) -> Iterator[Cause]:
    """Yield the problems of a request's class and number of devices."""
    if not request.get("deviceClassName"):
        yield errors.required_value(f"{path}.deviceClassName")
    else:
        yield from names.subdomain(request["deviceClassName"], f"{path}.deviceClassName")
    mode, count = request.get("allocationMode") or "", request.get("count") or 0
    if mode == "All" and count:
        text = "must not be specified when allocationMode is 'All'"
        yield errors.invalid_value(f"{path}.count", count, text)
    elif mode == "ExactCount" and count <= 0:
        yield errors.invalid_value(f"{path}.count", count, "must be greater than zero")
    elif mode not in ("All", "ExactCount"):
        yield errors.unsupported_value(f"{path}.allocationMode", mode, ("All", "ExactCount"))


def _constraint(item: Json, path: str, requests: dict[str, set[str]]) -> Iterator[Cause]:
    yield from references(item.get("requests") or [], f"{path}.requests", requests)
    keys = [key for key in ("matchAttribute", "distinctAttribute") if item.get(key) is not None]
    if keys:
        yield from names.full_attribute_name(item[keys[0]], f"{path}.{keys[0]}")
    else:
        text = (
            'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set'
        )
        yield errors.required_value(path, text)


def validate_class(spec: Json) -> Iterator[Cause]:
    """Yield every rule broken by a device class."""
    yield from selectors.validate(spec.get("selectors") or [], "spec.selectors")
    yield from lists.check_each(spec.get("config") or [], "spec.config", configuration, limit=MAX_CONFIGS)
    name = spec.get("extendedResourceName")
    if name is not None and not _is_extended(name):
        text = "must be a valid extended resource name"
        yield errors.invalid_value("spec.extendedResourceName", name, text)


def _is_extended(name: str) -> bool:
    domain = name.partition("/")[0] + "/"
    native = domain == "kubernetes.io/" or domain.endswith(".kubernetes.io/")
    return bool(_EXTENDED.match(name)) and not native and not name.startswith(_RESERVED)


def validate_template(spec: Json) -> Iterator[Cause]:
    """Yield every rule broken by the spec of a claim template."""
    yield from validate(spec.get("spec") or {}, "spec.spec")
