"""Consumable capacity: how much of a device a request takes, and whether that much is left. Pure.

A request names capacities exactly as the device publishes them. A capacity that the request does not name is taken by
its policy's default, and whole where there is none: so a device that is shared without a policy is taken whole by the
first request. A device that is not shared must be large enough all the same.

Left out: requests that spell a capacity with the driver's domain where the device does not, or the reverse (understood
from 1.38 on).

Source: `k8s.io/dynamic-resource-allocation/structured`, consumable capacity; API reference, CapacityRequestPolicy.
"""

from collections.abc import Mapping
from decimal import ROUND_CEILING, Decimal
from typing import Any

from drawbar.mocks.scheduler import objects, quantities

Amounts = Mapping[str, Decimal]


def takes(device: objects.Device, wanted: objects.CapacityRequirements) -> dict[str, str] | None:
    """The amounts, as canonical quantities, that the request takes of the device; None where it cannot be met.

    Raises:
        ValueError: the request, or the device, has something else than a quantity.
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
            amount = _stepped(amount, policy["validRange"])
            like = str(step)
        if _violates(amount, policy):
            return None
        taken[name] = quantities.render(amount, like=like)
    return taken


def fits(device: objects.Device, taken: Mapping[str, str], *, used: Amounts) -> bool:
    """Whether the device has that much left when `used` of it is taken already."""
    return all(
        used.get(name, Decimal(0)) + quantities.parse(text)
        <= quantities.parse(str(device.capacity[name].get("value", "0")))
        for name, text in taken.items()
    )


def numbers(taken: Mapping[str, str]) -> dict[str, Decimal]:
    """The amounts as numbers."""
    return {name: quantities.parse(text) for name, text in taken.items()}


def added(left: Amounts, right: Amounts) -> dict[str, Decimal]:
    """The sum of two amounts by name."""
    zero = Decimal(0)
    return {name: left.get(name, zero) + right.get(name, zero) for name in {**left, **right}}


def _amount(value: Any, policy: Mapping[str, Any], wanted: Any) -> str:
    """The amount before it is rounded to steps, in the words of whoever named it."""
    if wanted is None:
        return str(policy.get("default") or value)
    wanted = str(wanted)
    number = quantities.parse(wanted)
    lowest = (policy.get("validRange") or {}).get("min")
    if lowest is not None:
        return str(lowest) if number < quantities.parse(str(lowest)) else wanted
    larger = (valid for valid in policy.get("validValues") or () if number <= quantities.parse(str(valid)))
    return str(next(larger, wanted))


def _stepped(amount: Decimal, valid: Mapping[str, Any]) -> Decimal:
    lowest, step = quantities.parse(str(valid.get("min") or "0")), quantities.parse(str(valid["step"]))
    return lowest + ((amount - lowest) / step).to_integral_value(ROUND_CEILING) * step


def _violates(amount: Decimal, policy: Mapping[str, Any]) -> bool:
    if policy.get("default") is not None and amount == quantities.parse(str(policy["default"])):
        return False
    valid = policy.get("validRange")
    if valid:
        too_much = valid.get("max") is not None and amount > quantities.parse(str(valid["max"]))
        return too_much or (bool(valid.get("step")) and amount != _stepped(amount, valid))
    values = policy.get("validValues") or ()
    return bool(values) and all(amount != quantities.parse(str(value)) for value in values)
