"""Rules of a capacity's request policy: the amounts that claims may request."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from drawbar.mocks.apiserver import errors, quantities
from drawbar.mocks.apiserver.errors import Cause
from drawbar.mocks.apiserver.validation import lists

Json = dict[str, Any]

MAX_VALUES = 10


def check_exclusive_capacity(capacity: Json, path: str) -> Iterator[Cause]:
    """Yield the problems of the capacity of a device for one allocation, which must have no policy."""
    if capacity.get("requestPolicy") is not None:
        text = "allowMultipleAllocations must be true"
        yield errors.forbidden_value(f"{path}.requestPolicy", text)


def check_shared_capacity(capacity: Json, path: str) -> Iterator[Cause]:
    """Yield the problems of the capacity of a device for several allocations."""
    policy = capacity.get("requestPolicy")
    if policy is None:
        return
    here = f"{path}.requestPolicy"
    values, limits = policy.get("validValues") or [], policy.get("validRange")
    field = "validValues" if values else "validRange"
    if values and limits is not None:
        text = (
            "exactly one policy can be specified, cannot specify "
            '"validValues" and "validRange" at the same time'
        )
        yield errors.forbidden_value(here, text)
    elif (values or limits is not None) and policy.get("default") is None:
        yield errors.required_value(f"{here}.default", f"required when {field} is defined")
    elif values:
        yield from _values(policy, capacity["value"], f"{here}.validValues")
    elif limits is not None:
        yield from _range(policy, capacity["value"], f"{here}.validRange")


def _values(policy: Json, most: str, path: str) -> Iterator[Cause]:
    items = policy["validValues"]
    amounts = [quantities.value(item) for item in items]
    for index in range(1, len(items)):
        if amounts[index - 1] > amounts[index]:
            text = "values must be sorted in ascending order"
            yield errors.invalid_value(f"{path}[{index}]", items[index], text)

    def option(item: str, here: str) -> Iterator[Cause]:
        if quantities.value(item) > quantities.value(most):
            yield errors.invalid_value(here, item, f"option is larger than capacity value: {most}")

    yield from lists.check_distinct(items, path, option, quantities.value, limit=MAX_VALUES)
    if quantities.value(policy["default"]) not in amounts:
        text = "default value is not valid according to the requestPolicy"
        yield errors.invalid_value(path, policy["default"], text)


def _range(policy: Json, most: str, path: str) -> Iterator[Cause]:
    default, limits = policy["default"], policy["validRange"]
    low, high, step = limits.get("min"), limits.get("max"), limits.get("step")
    if low is None:
        yield errors.required_value(f"{path}.min", "required when validRange is defined")
        return
    value = quantities.value
    wrong = [
        ("min", low, value(low) > value(most), f"min is larger than capacity value: {most}"),
        ("default", default, value(default) < value(low), f"default is less than min: {low}"),
    ]
    if high is not None:
        wrong += [
            ("max", low, value(low) > value(high), f"min is larger than max: {high}"),
            ("max", high, value(high) > value(most), f"max is larger than capacity value: {most}"),
            ("default", default, value(default) > value(high), f"default is more than max: {high}"),
        ]
    for key, shown, broken, text in wrong:
        if broken:
            yield errors.invalid_value(f"{path}.{key}", shown, text)
    if step is not None:
        yield from _step(policy, most, f"{path}.step")


def _step(policy: Json, most: str, path: str) -> Iterator[Cause]:
    limits = policy["validRange"]
    low, step = limits["min"], limits["step"]
    base, size = quantities.value(low), quantities.value(step)
    if size <= 0:
        yield errors.invalid_value(path, step, "must be greater than zero")
        return
    if base + size > quantities.value(most):
        text = f"one step {_format_amount(base + size)} is larger than capacity value: {most}"
        yield errors.invalid_value(path, step, text)
    for item in (policy["default"], limits.get("max")):
        if item is not None and (quantities.value(item) - base) % size:
            text = f"value is not a multiple of a given step ({step}) from ({low})"
            yield errors.invalid_value(path, item, text)


def _format_amount(amount: Fraction) -> str:
    return quantities.canonical(str(float(amount)) if amount.denominator != 1 else str(amount.numerator))
