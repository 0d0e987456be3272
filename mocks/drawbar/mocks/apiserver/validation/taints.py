"""Rules of taints, tolerations and DeviceTaintRules.

The limits are those of pkg/apis/resource in Kubernetes 1.36 and 1.37. The additional fields of a taint exist only in
the ``kep-5055`` profile.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from drawbar.mocks.apiserver import errors
from drawbar.mocks.apiserver.errors import Cause
from drawbar.mocks.apiserver.validation import conditions, lists, names, selectors

Json = dict[str, Any]

EFFECTS = ("NoExecute", "NoSchedule", "None")
_NONE_SINCE = 35  # the first minor version with the effect None
OPERATORS = ("Equal", "Exists")
MAX_TAINTS = 16  # of one device
MAX_SLICE_TAINTS = 32  # of one slice, as proposed
MAX_TOLERATIONS = 16  # of one request
MAX_DESCRIPTION_BYTES = 1024
MAX_DATA_BYTES = 10 * 1024
MAX_RULE_CONDITIONS = 8


def effects(minor: int) -> tuple[str, ...]:
    """Return the supported effects of a release."""
    return EFFECTS if minor >= _NONE_SINCE else EFFECTS[:2]


def set_time_added(taint: Json, *, now: str) -> Json:
    """Return the taint with the time of its addition."""
    return taint if taint.get("timeAdded") else {**taint, "timeAdded": now}


def validate(
    taint: Json, path: str, old: Json | None = None, allowed: tuple[str, ...] = EFFECTS
) -> Iterator[Cause]:
    """Yield every rule broken by a taint; an unchanged effect is not checked."""
    yield from names.label_name(taint.get("key") or "", f"{path}.key")
    if taint.get("value"):
        yield from names.label_value(taint["value"], f"{path}.value")
    effect = taint.get("effect") or ""
    if old is None or old.get("effect") != effect:
        if not effect:
            yield errors.required_value(f"{path}.effect")
        elif effect not in allowed:
            yield errors.unsupported_value(f"{path}.effect", effect, allowed)
    yield from _check_proposed_fields(taint, path)


def _check_proposed_fields(taint: Json, path: str) -> Iterator[Cause]:
    if len((taint.get("description") or "").encode()) > MAX_DESCRIPTION_BYTES:
        yield errors.too_long(f"{path}.description", MAX_DESCRIPTION_BYTES)
    if taint.get("data") is not None:
        yield from raw_object(taint["data"], f"{path}.data", MAX_DATA_BYTES)
    if taint.get("evictionsPerSecond") is not None and taint["evictionsPerSecond"] <= 0:
        yield errors.invalid_value(
            f"{path}.evictionsPerSecond", taint["evictionsPerSecond"], "must be greater than zero"
        )


def check_device_taints(
    device: Json, old: Json | None, path: str, allowed: tuple[str, ...]
) -> Iterator[Cause]:
    """Yield the problems of one device's taints; unchanged ones are not checked again."""

    def taint(item: Json, path: str) -> Iterator[Cause]:
        yield from validate(item, path, allowed=allowed)

    if old is None or old.get("taints") != device.get("taints"):
        yield from lists.check_each(device.get("taints") or [], f"{path}.taints", taint, limit=MAX_TAINTS)


def check_slice_taints(spec: Json) -> Iterator[Cause]:
    """Yield the problems of the taints of a slice without devices."""

    def entry(item: Json, path: str) -> Iterator[Cause]:
        if not item.get("device"):
            yield errors.required_value(f"{path}.device")
        yield from validate(item.get("taint") or {}, f"{path}.taint")

    held = spec.get("taints") or []
    if held and spec.get("devices"):
        text = "only one of `devices` or `taints` is allowed"
        yield errors.invalid_value("spec", "{`devices`, `taints`}", text)
    yield from lists.check_each(held, "spec.taints", entry, limit=MAX_SLICE_TAINTS)


def toleration(item: Json, path: str) -> Iterator[Cause]:
    """Yield every rule broken by a toleration with a defaulted operator."""
    if item.get("key"):
        yield from names.label_name(item["key"], f"{path}.key")
    match item.get("operator") or "":
        case "Exists":
            if item.get("value"):
                text = "must be empty for operator `Exists`"
                yield errors.invalid_value(f"{path}.value", item["value"], text)
        case "Equal":
            yield from names.label_value(item.get("value") or "", f"{path}.value")
        case "":
            yield errors.required_value(f"{path}.operator")
        case other:
            yield errors.unsupported_value(f"{path}.operator", other, OPERATORS)
    if item.get("effect") and item["effect"] not in EFFECTS:
        yield errors.unsupported_value(f"{path}.effect", item["effect"], EFFECTS)


def tolerations(items: list[Json], path: str) -> Iterator[Cause]:
    """Yield the problems of the tolerations of a request or an allocated device."""
    yield from lists.check_each(items, f"{path}.tolerations", toleration, limit=MAX_TOLERATIONS)


def rule(spec: Json, minor: int, old: Json | None = None) -> Iterator[Cause]:
    """Yield every rule of the release broken by the spec of a DeviceTaintRule."""
    selector = spec.get("deviceSelector") or {}
    if "driver" in selector:
        yield from names.driver_name(selector["driver"], "spec.deviceSelector.driver")
    if "pool" in selector:
        yield from names.pool_name(selector["pool"], "spec.deviceSelector.pool")
    if "device" in selector:
        yield from names.dns_label(selector["device"], "spec.deviceSelector.device")
    if "deviceClassName" in selector:
        yield from names.subdomain(selector["deviceClassName"], "spec.deviceSelector.deviceClassName")
    yield from selectors.validate(selector.get("selectors") or [], "spec.deviceSelector.selectors")
    before = (old or {}).get("taint") if old is not None else None
    yield from validate(spec.get("taint") or {}, "spec.taint", before, effects(minor))


def rule_status(status: Json) -> Iterator[Cause]:
    """Yield every rule broken by the status of a DeviceTaintRule."""
    held = status.get("conditions") or []
    yield from conditions.validate(held, "status.conditions")
    if len(held) > MAX_RULE_CONDITIONS:
        yield errors.too_many("status.conditions", len(held), MAX_RULE_CONDITIONS)


def raw_object(value: Any, path: str, limit: int) -> Iterator[Cause]:
    """Yield the problems of another program's JSON object, with a limit in bytes."""
    if value is None:
        yield errors.required_value(path)
    elif len(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()) > limit:
        yield errors.too_long(path, limit)
    elif not isinstance(value, dict):
        yield errors.invalid_value(path, "<value omitted>", "must be a valid JSON object")
