"""Rules of ResourceSlices, with the limits of pkg/apis/resource/validation in Kubernetes 1.36 and 1.37.

Limit: no partitionable devices, so neither counters nor devices with nodes of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from drawbar.mocks.apiserver import errors
from drawbar.mocks.apiserver.errors import Cause
from drawbar.mocks.apiserver.profiles import Profile
from drawbar.mocks.apiserver.validation import devices, lists, names, nodes, taints

Json = dict[str, Any]

MAX_DEVICES = 128
MAX_DEVICES_ADVANCED = 64  # if any has taints or attributes with lists


def with_times(spec: Json, *, now: str) -> Json:
    """Return the spec with ``timeAdded`` on every taint without one."""
    result = spec
    held = spec.get("devices") or []
    if any(not taint.get("timeAdded") for device in held for taint in device.get("taints") or ()):
        stamped = [
            {**device, "taints": [taints.set_time_added(taint, now=now) for taint in device["taints"]]}
            if device.get("taints")
            else device
            for device in held
        ]
        result = {**result, "devices": stamped}
    if spec.get("taints"):
        entries = [
            {**entry, "taint": taints.set_time_added(entry.get("taint") or {}, now=now)}
            for entry in spec["taints"]
        ]
        result = {**result, "taints": entries}
    return result


def warnings(spec: Json) -> Iterator[str]:
    """Yield the server's warnings about an accepted slice."""
    driver = spec.get("driver") or ""
    if driver != driver.lower():
        yield f'spec.driver: driver names should be lowercase; "{driver}" contains uppercase characters'


def validate(spec: Json, profile: Profile, old: Json | None = None) -> Iterator[Cause]:
    """Yield every rule broken by a slice's spec, or by its change."""
    pool = spec.get("pool") or {}
    yield from names.driver_name(spec.get("driver") or "", "spec.driver")
    yield from names.pool_name(pool.get("name") or "", "spec.pool.name")
    count, generation = pool.get("resourceSliceCount") or 0, pool.get("generation") or 0
    if count <= 0:
        yield errors.invalid_value("spec.pool.resourceSliceCount", count, "must be greater than zero")
    if generation < 0:
        yield errors.invalid_value(
            "spec.pool.generation", generation, "must be greater than or equal to zero"
        )
    if old is not None:
        for path, now, before in (
            ("spec.pool.name", pool.get("name"), (old.get("pool") or {}).get("name")),
            ("spec.driver", spec.get("driver"), old.get("driver")),
            ("spec.nodeName", spec.get("nodeName"), old.get("nodeName")),
        ):
            if now != before:
                yield errors.invalid_value(path, now, "field is immutable")
    yield from _node(spec)
    yield from _content(spec, profile, old)


def _node(spec: Json) -> Iterator[Cause]:
    """Yield a problem unless there is exactly one selection of the devices' nodes."""
    selections: list[str] = []
    if spec.get("nodeName") is not None:
        if spec["nodeName"]:
            selections.append("nodeName")
            yield from names.subdomain(spec["nodeName"], "spec.nodeName")
        else:
            text = "must be either unset or set to a non-empty string"
            yield errors.invalid_value("spec.nodeName", "", text)
    if spec.get("nodeSelector") is not None:
        selections.append("nodeSelector")
        yield from nodes.selector(spec["nodeSelector"], "spec.nodeSelector")
        terms = spec["nodeSelector"].get("nodeSelectorTerms") or []
        if len(terms) != 1:
            text = "must have exactly one node selector term"
            yield errors.invalid_value("spec.nodeSelector.nodeSelectorTerms", terms, text)
    if spec.get("allNodes") is True:
        selections.append("allNodes")
    elif spec.get("allNodes") is False:
        yield errors.invalid_value("spec.allNodes", False, "must be either unset or set to true")
    text = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
    if not selections:
        yield errors.required_value("spec", text)
    elif len(selections) > 1:
        shown = "{" + ", ".join(f"`{key}`" for key in selections) + "}"
        yield errors.invalid_value("spec", shown, f"{text}, but multiple fields are set")


def _content(spec: Json, profile: Profile, old: Json | None) -> Iterator[Cause]:
    held = spec.get("devices") or []
    before = {device.get("name"): device for device in (old or {}).get("devices") or ()}

    def device(item: Json, path: str) -> Iterator[Cause]:
        earlier = before.get(item.get("name"))
        if earlier != item:  # an unchanged device was checked before
            yield from devices.validate(item, earlier, path, effects=effects)

    effects = taints.effects(profile.minor)
    limit = MAX_DEVICES_ADVANCED if any(_has_advanced_fields(item) for item in held) else MAX_DEVICES
    yield from lists.check_distinct(held, "spec.devices", device, _name, limit=limit)
    yield from taints.check_slice_taints(spec)


def _name(item: Json) -> str:
    return item.get("name") or ""


def _has_advanced_fields(device: Json) -> bool:
    return bool(
        device.get("taints")
        or any(
            value.get(key) is not None
            for value in (device.get("attributes") or {}).values()
            for key in devices.LISTS
        )
    )
