"""Rules of the devices in a ResourceSlice: attributes, capacity, counters, nodes and binding conditions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from drawbar.mocks.apiserver import errors
from drawbar.mocks.apiserver.errors import Cause
from drawbar.mocks.apiserver.validation import lists, names, policies, taints

Json = dict[str, Any]

MAX_ATTRIBUTES_AND_CAPACITY = 32
MAX_ATTRIBUTE_VALUES = 48
MAX_ATTRIBUTE_TEXT = 64
MAX_CONDITIONS = 4
LISTS = ("bools", "ints", "strings", "versions")
_NUMBER, _LABEL = r"(0|[1-9]\d*)", r"(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)"
_SEMVER = re.compile(
    rf"^{_NUMBER}\.{_NUMBER}\.{_NUMBER}(-{_LABEL}(\.{_LABEL})*)?(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?$"
)


def validate(device: Json, old: Json | None, path: str, *, effects: tuple[str, ...]) -> Iterator[Cause]:
    """Yield every rule broken by a device.

    Args:
        device: the device.
        old: the device of the same name before the update; unchanged capacity and taints are not checked again.
        path: the field path of the device.
        effects: the allowed effects of taints.
    """
    yield from names.dns_label(device.get("name") or "", f"{path}.name")
    yield from _amounts(device, path)
    yield from lists.check_entries(
        device.get("attributes") or {}, f"{path}.attributes", names.attribute_name, attribute
    )
    if old is None or old.get("capacity") != device.get("capacity"):
        check = (
            policies.check_shared_capacity
            if device.get("allowMultipleAllocations")
            else policies.check_exclusive_capacity
        )
        yield from lists.check_entries(
            device.get("capacity") or {}, f"{path}.capacity", names.attribute_name, check
        )
    yield from taints.check_device_taints(device, old, path, effects)
    yield from check_binding_conditions(device, path)


def check_binding_conditions(item: Json, path: str) -> Iterator[Cause]:
    """Yield the problems of the binding conditions of a device, or of its allocation."""
    wanted, failing = item.get("bindingConditions") or [], item.get("bindingFailureConditions") or []
    for key, held in (("bindingConditions", wanted), ("bindingFailureConditions", failing)):
        yield from lists.check_each(held, f"{path}.{key}", names.label_name, limit=MAX_CONDITIONS)
    for key, held in (("bindingConditions", wanted), ("bindingFailureConditions", failing)):
        for index, name in enumerate(held):
            if name in held[:index]:
                yield errors.duplicate_value(f"{path}.{key}[{index}]", name)
    for index, name in enumerate(failing):
        if name in wanted:
            text = "bindingFailureConditions must not overlap with bindingConditions"
            yield errors.invalid_value(f"{path}.bindingFailureConditions[{index}]", name, text)
    for missing, present, held in (
        ("bindingConditions", "bindingFailureConditions", bool(failing and not wanted)),
        ("bindingFailureConditions", "bindingConditions", bool(wanted and not failing)),
    ):
        if held:
            yield errors.invalid_value(f"{path}.{missing}", [], f"{missing} are required to use {present}")


def _amounts(device: Json, path: str) -> Iterator[Cause]:
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    entries = len(attributes) + len(capacity)
    if entries > MAX_ATTRIBUTES_AND_CAPACITY:
        text = f"the total number of attributes and capacities must not exceed {MAX_ATTRIBUTES_AND_CAPACITY}"
        yield errors.invalid_value(path, entries, text)
    values = sum(max(1, sum(len(value.get(key) or ()) for key in LISTS)) for value in attributes.values())
    if values > MAX_ATTRIBUTE_VALUES:
        text = f"the total number of attribute values must not exceed {MAX_ATTRIBUTE_VALUES}"
        yield errors.invalid_value(path, values, text)


def attribute(value: Json, path: str) -> Iterator[Cause]:
    """Yield the problems of an attribute's value, which must have exactly one type."""
    types = [key for key in ("bool", "int", "string", "version", *LISTS) if value.get(key) is not None]
    for key in types:
        held = value[key]
        if key == "string":
            yield from _text(held, f"{path}.{key}")
        elif key == "version":
            yield from _version(held, f"{path}.{key}")
        elif key in LISTS and not held:
            yield errors.invalid_value(f"{path}.{key}", held, "must not be empty if specified")
        elif key in ("strings", "versions"):
            yield from lists.check_each(held, f"{path}.{key}", _text if key == "strings" else _version)
    if len(types) != 1:
        yield errors.invalid_value(path, ", ".join(types), "exactly one value must be specified")


def _text(value: str, path: str) -> Iterator[Cause]:
    if len(value.encode()) > MAX_ATTRIBUTE_TEXT:
        yield errors.too_long(path, MAX_ATTRIBUTE_TEXT)


def _version(value: str, path: str) -> Iterator[Cause]:
    if not _SEMVER.match(value):
        yield errors.invalid_value(path, value, "must be a string compatible with semver.org spec 2.0.0")
    yield from _text(value, path)
