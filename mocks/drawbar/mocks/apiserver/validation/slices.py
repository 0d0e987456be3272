"""Rules of ResourceSlices, and what a server with gates off drops from them.

The limits are those of pkg/apis/resource/validation in Kubernetes 1.36.  Not checked yet: shared counters
beyond their number, request policies of capacity, node selector terms.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from drawbar.mocks.apiserver import errors, profiles
from drawbar.mocks.apiserver.errors import Cause
from drawbar.mocks.apiserver.profiles import Profile
from drawbar.mocks.apiserver.validation import names

Json = dict[str, Any]

MAX_DEVICES = 128
MAX_DEVICES_WITH_TAINTS = 64  # also with counters or list attributes
MAX_ATTRIBUTES_AND_CAPACITY = 32
MAX_ATTRIBUTE_TEXT = 64
MAX_TAINTS = 16
MAX_CONDITIONS = 4
_SEMVER = re.compile(r"^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$")
_QUANTITY = re.compile(r"^[+-]?(\d+(\.\d*)?|\.\d+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?\d+)?$")
_LISTS = ("ints", "bools", "strings", "versions")
_BINDING = ("bindsToNode", "bindingConditions", "bindingFailureConditions")
_NODE = ("nodeName", "nodeSelector", "allNodes")


def drop_disabled(spec: Json, old: Json | None, profile: Profile) -> Json:
    """The spec without the fields of gates that are off; a field already in use is kept."""
    devices = [dict(device) for device in spec.get("devices") or ()]
    held = (old or {}).get("devices") or ()
    dropped: list[str] = []
    binding = profile.on(profiles.BINDING_CONDITIONS) and profile.on(profiles.DEVICE_STATUS)
    if not binding and not any(device.get(key) is not None for device in held for key in _BINDING):
        dropped += _BINDING
    if not profile.on(profiles.TAINTS) and not any(device.get("taints") for device in held):
        dropped.append("taints")
    result = dict(spec)
    if not profile.on(profiles.PARTITIONABLE):
        dropped += ["consumesCounters", *_NODE]
        result.pop("sharedCounters", None)
        result.pop("perDeviceNodeSelection", None)
    if not profile.on(profiles.CONSUMABLE):
        dropped.append("allowMultipleAllocations")
    if not profile.on(profiles.SKIP_NODE_OPERATIONS):
        result.pop("skipNodeOperations", None)
    for device in devices:
        for key in dropped:
            device.pop(key, None)
        if not profile.on(profiles.LIST_ATTRIBUTES):
            _drop_lists(device)
    if "devices" in spec:
        result["devices"] = devices
    return result


def _drop_lists(device: Json) -> None:
    attributes = device.get("attributes")
    if isinstance(attributes, dict) and any(
        key in (value or {}) for value in attributes.values() for key in _LISTS
    ):
        device["attributes"] = {
            name: {key: inner for key, inner in value.items() if key not in _LISTS}
            for name, value in attributes.items()
        }


def default_taints(spec: Json, *, now: str) -> Json:
    """The spec with ``timeAdded`` on every taint that has none."""
    devices = spec.get("devices") or []
    if not any(not taint.get("timeAdded") for device in devices for taint in device.get("taints") or ()):
        return spec
    return {
        **spec,
        "devices": [
            {
                **device,
                "taints": [
                    {**taint, "timeAdded": taint.get("timeAdded") or now} for taint in device["taints"]
                ],
            }
            if device.get("taints")
            else device
            for device in devices
        ],
    }


def malformed(spec: Any) -> str | None:
    """Why a spec does not even have the right types, or None."""
    if not isinstance(spec, dict):
        return "spec must be an object"
    if not isinstance(spec.get("pool") or {}, dict):
        return "spec.pool must be an object"
    devices = spec.get("devices")
    if devices is not None and not (isinstance(devices, list) and all(isinstance(d, dict) for d in devices)):
        return "spec.devices must be a list of objects"
    problems = (_malformed_device(device, f"spec.devices[{i}]") for i, device in enumerate(devices or ()))
    return next(filter(None, problems), None)


def _malformed_device(device: Json, path: str) -> str | None:
    for key, kind in (("taints", list), ("attributes", dict), ("capacity", dict), ("bindsToNode", bool)):
        if device.get(key) is not None and not isinstance(device[key], kind):
            return f"{path}.{key} has the wrong type"
    if not all(isinstance(taint, dict) for taint in device.get("taints") or ()):
        return f"{path}.taints must be a list of objects"
    if not all(isinstance(value, dict) for value in (device.get("attributes") or {}).values()):
        return f"{path}.attributes must be a map of objects"
    for key in ("bindingConditions", "bindingFailureConditions"):
        held = device.get(key)
        if held is not None and not (isinstance(held, list) and all(isinstance(v, str) for v in held)):
            return f"{path}.{key} must be a list of strings"
    return None


def validate(spec: Json, old: Json | None = None) -> Iterator[Cause]:
    """Every rule that a slice's spec, or its change, breaks."""
    pool = spec.get("pool") or {}
    yield from names.driver_name(spec.get("driver", ""), "spec.driver")
    yield from names.pool_name(pool.get("name", ""), "spec.pool.name")
    if (pool.get("resourceSliceCount") or 0) <= 0:
        yield errors.invalid_value(
            "spec.pool.resourceSliceCount", pool.get("resourceSliceCount") or 0, "must be greater than zero"
        )
    if (pool.get("generation") or 0) < 0:
        yield errors.invalid_value(
            "spec.pool.generation", pool["generation"], "must be greater than or equal to zero"
        )
    yield from _node(spec)
    yield from _devices(spec)
    if old is not None:
        for path, now, before in (
            ("spec.pool.name", pool.get("name"), (old.get("pool") or {}).get("name")),
            ("spec.driver", spec.get("driver"), old.get("driver")),
            ("spec.nodeName", spec.get("nodeName"), old.get("nodeName")),
        ):
            if now != before:
                yield errors.invalid_value(path, now, "field is immutable")


def _node(spec: Json) -> Iterator[Cause]:
    given = [key for key in (*_NODE, "perDeviceNodeSelection") if spec.get(key)]
    options = "`nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection`"
    if not given:
        yield errors.required("spec", f"exactly one of {options} is required")
    elif len(given) > 1:
        shown = "{" + ", ".join(f"`{key}`" for key in given) + "}"
        yield errors.invalid_value(
            "spec", shown, f"exactly one of {options} is required, but multiple fields are set"
        )
    if spec.get("nodeName"):
        yield from names.subdomain(spec["nodeName"], "spec.nodeName")
    selector = spec.get("nodeSelector")
    if selector and len(selector.get("nodeSelectorTerms") or ()) != 1:
        terms = selector.get("nodeSelectorTerms") or ()
        yield errors.invalid_value(
            "spec.nodeSelector.nodeSelectorTerms", len(terms), "must have exactly one node selector term"
        )


def _devices(spec: Json) -> Iterator[Cause]:
    devices = spec.get("devices") or []
    special = any(
        device.get("taints")
        or device.get("consumesCounters")
        or any(key in value for value in (device.get("attributes") or {}).values() for key in _LISTS)
        for device in devices
    )
    limit = MAX_DEVICES_WITH_TAINTS if special else MAX_DEVICES
    if len(devices) > limit:
        yield errors.too_many("spec.devices", len(devices), limit)
    if len(spec.get("sharedCounters") or ()) > 8:
        yield errors.too_many("spec.sharedCounters", len(spec["sharedCounters"]), 8)
    if devices and spec.get("sharedCounters"):
        yield errors.invalid_value(
            "spec", "devices, sharedCounters", "only one of `sharedCounters` or `devices` is allowed"
        )
    seen: set[str] = set()
    for index, device in enumerate(devices):
        path = f"spec.devices[{index}]"
        name = device.get("name") or ""
        if not name:
            yield errors.required(f"{path}.name")
        else:
            yield from names.dns_label(name, f"{path}.name")
        if name in seen:
            yield errors.duplicate(f"{path}.name", name)
        seen.add(name)
        yield from _device(device, path, spec)


def _device(device: Json, path: str, spec: Json) -> Iterator[Cause]:
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    if len(attributes) + len(capacity) > MAX_ATTRIBUTES_AND_CAPACITY:
        text = f"the total number of attributes and capacities must not exceed {MAX_ATTRIBUTES_AND_CAPACITY}"
        yield errors.invalid_value(path, len(attributes) + len(capacity), text)
    for name, value in attributes.items():
        yield from names.attribute_name(name, f"{path}.attributes")
        yield from _attribute(value, f"{path}.attributes[{name}]")
    for name, value in capacity.items():
        yield from names.attribute_name(name, f"{path}.capacity")
        amount = str((value or {}).get("value", "")) if isinstance(value, dict) else ""
        if not _QUANTITY.match(amount):
            yield errors.invalid_value(f"{path}.capacity[{name}].value", amount, "must be a quantity")
    yield from _taints(device, path)
    yield from _binding(device, path)
    if not spec.get("perDeviceNodeSelection"):
        for key in _NODE:
            if device.get(key):
                text = (
                    "may only be set when `perDeviceNodeSelection` is set to true in the ResourceSlice spec"
                )
                yield errors.invalid_value(f"{path}.{key}", device[key], text)
    if len(device.get("consumesCounters") or ()) > 2:
        yield errors.too_many(f"{path}.consumesCounters", len(device["consumesCounters"]), 2)


def _attribute(value: Json, path: str) -> Iterator[Cause]:
    given = [key for key in ("int", "bool", "string", "version", *_LISTS) if value.get(key) is not None]
    if not given:
        yield errors.required(path, "exactly one value must be specified")
        return
    if len(given) > 1:
        yield errors.invalid_value(path, ", ".join(given), "exactly one value must be specified")
        return
    held = value[given[0]]
    expected: dict[str, type] = {"int": int, "bool": bool, "string": str, "version": str}
    kind = expected.get(given[0], list)
    if not isinstance(held, kind) or (kind is int and isinstance(held, bool)):
        yield errors.invalid_value(f"{path}.{given[0]}", held, f"must be of type {given[0]}")
    elif isinstance(held, str):
        if len(held.encode()) > MAX_ATTRIBUTE_TEXT:
            yield errors.too_long(f"{path}.{given[0]}", MAX_ATTRIBUTE_TEXT)
        if given[0] == "version" and not _SEMVER.match(held):
            text = "must be a string compatible with semver.org spec 2.0.0"
            yield errors.invalid_value(f"{path}.version", held, text)


def _taints(device: Json, path: str) -> Iterator[Cause]:
    taints = device.get("taints") or []
    if len(taints) > MAX_TAINTS:
        yield errors.too_many(f"{path}.taints", len(taints), MAX_TAINTS)
    for index, taint in enumerate(taints):
        here = f"{path}.taints[{index}]"
        yield from names.label_name(taint.get("key", ""), f"{here}.key")
        if taint.get("value") and (
            len(taint["value"]) > 63
            or not re.match(r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$", taint["value"])
        ):
            yield errors.invalid_value(f"{here}.value", taint["value"], "must be a valid label value")
        if not taint.get("effect"):
            yield errors.required(f"{here}.effect")
        elif taint["effect"] not in ("NoSchedule", "NoExecute", "None"):
            yield errors.unsupported(f"{here}.effect", taint["effect"], ("NoExecute", "NoSchedule", "None"))


def _binding(device: Json, path: str) -> Iterator[Cause]:
    wanted, failing = device.get("bindingConditions") or [], device.get("bindingFailureConditions") or []
    for key, held, other in (
        ("bindingConditions", wanted, failing),
        ("bindingFailureConditions", failing, wanted),
    ):
        if len(held) > MAX_CONDITIONS:
            yield errors.too_many(f"{path}.{key}", len(held), MAX_CONDITIONS)
        for index, name in enumerate(held):
            yield from names.label_name(name, f"{path}.{key}[{index}]")
            if name in held[:index]:
                yield errors.duplicate(f"{path}.{key}[{index}]", name)
        if held and not other:
            missing = "bindingFailureConditions" if key == "bindingConditions" else "bindingConditions"
            yield errors.required(f"{path}.{missing}", f"{missing} are required to use {key}")
    for index, name in enumerate(failing):
        if name in wanted:
            text = "bindingFailureConditions must not overlap with bindingConditions"
            yield errors.invalid_value(f"{path}.bindingFailureConditions[{index}]", name, text)
