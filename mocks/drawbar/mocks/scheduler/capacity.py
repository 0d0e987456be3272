"""Consumable capacity: a request's amounts of a device, and their availability. Pure.

A request names capacities exactly as published. For other capacities it takes the policy's default, or all without a
default. So the first request of a shared device without a policy takes it completely. An unshared device must still be
large enough.

Limit: a request and a device must both use, or both omit, the driver's domain in names of capacities (both forms match
since 1.38).

Source: `k8s.io/dynamic-resource-allocation/structured`, consumable capacity; API reference, CapacityRequestPolicy.
"""

from collections.abc import Mapping
from decimal import ROUND_CEILING, Decimal
from typing import Any

from drawbar.mocks.scheduler import objects, quantities

Amounts = Mapping[str, Decimal]


def takes(device: objects.Device, wanted: objects.CapacityRequirements) -> dict[str, str] | None:
    """Return the request's amounts of the device, as canonical quantities; None if they are impossible.

    Raises:
        ValueError: a value of the request or the device is not a quantity.
    """
    if any(name not in device.capacity for name in wanted.requests):
        return None
    taken: dict[str, str] = {}
    for name, box in device.capacity.items():
        policy: dict[str, Any] = box.get("requestPolicy") or {}
        like = _amount(box.get("value", "0"), policy, wanted.requests.get(name))
        amount = quantities.parse(like)
        step = (policy.get("validRange") or {}).get("step")
        if name in wanted.requests and step:
            amount = _round_up_to_step(amount, policy["validRange"])
            like = str(step)
        if _violates(amount, policy):
            return None
        taken[name] = quantities.render(amount, like=like)
    return taken


def fits(device: objects.Device, taken: Mapping[str, str], *, used: Amounts) -> bool:
    """Return true if the device has these amounts left after `used`."""
    return all(
        used.get(name, Decimal(0)) + quantities.parse(text)
        <= quantities.parse(str(device.capacity[name].get("value", "0")))
        for name, text in taken.items()
    )


def numbers(taken: Mapping[str, str]) -> dict[str, Decimal]:
    """Return the amounts as numbers."""
    return {name: quantities.parse(text) for name, text in taken.items()}


def add_amounts(left: Amounts, right: Amounts) -> dict[str, Decimal]:
    """Return the sum of two amounts by name."""
    zero = Decimal(0)
    return {name: left.get(name, zero) + right.get(name, zero) for name in {**left, **right}}


def _amount(value: Any, policy: Mapping[str, Any], wanted: Any) -> str:
    """Return the amount before rounding to steps, in the notation of its source."""
    if wanted is None:
        return str(policy.get("default") or value)
    wanted = str(wanted)
    number = quantities.parse(wanted)
    lowest = (policy.get("validRange") or {}).get("min")
    if lowest is not None:
        return str(lowest) if number < quantities.parse(str(lowest)) else wanted
    larger = (valid for valid in policy.get("validValues") or () if number <= quantities.parse(str(valid)))
    return str(next(larger, wanted))


def _round_up_to_step(amount: Decimal, valid: Mapping[str, Any]) -> Decimal:
    lowest, step = quantities.parse(str(valid.get("min") or "0")), quantities.parse(str(valid["step"]))
    return lowest + ((amount - lowest) / step).to_integral_value(ROUND_CEILING) * step


def _violates(amount: Decimal, policy: Mapping[str, Any]) -> bool:
    if policy.get("default") is not None and amount == quantities.parse(str(policy["default"])):
        return False
    valid = policy.get("validRange")
    if valid:
        too_much = valid.get("max") is not None and amount > quantities.parse(str(valid["max"]))
        return too_much or (bool(valid.get("step")) and amount != _round_up_to_step(amount, valid))
    values = policy.get("validValues") or ()
    return bool(values) and all(amount != quantities.parse(str(value)) for value in values)
