"""CEL selectors over devices, with Kubernetes' additional functions.

A device has `device.driver`, `device.allowMultipleAllocations`, `device.attributes["domain"].name` and
`device.capacity["domain"].name`. An attribute without a domain belongs to the driver's domain. Quantities become
numbers and versions stay strings; the comparing functions distinguish them by type. Limits: no cost limits, no type
checks before evaluation, no `cel.bind`, no optional syntax, and only `lowerAscii` and `upperAscii` of the string
library.

Source: Kubernetes documentation, "Common Expression Language in Kubernetes"; ResourceSlice API reference.
"""

import functools
import re
from typing import Any

from drawbar.mocks.cellibrary import cel
from drawbar.mocks.scheduler import objects, quantities

_DOMAIN = re.compile(r"\.(attributes|capacity)\s*\[\s*[\"']([^\"']+)[\"']\s*\]")
_SEMVER = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?")


class SelectorError(Exception):
    """An expression does not compile, fails on a device, or yields another type than a boolean."""


def matches(expression: str, driver: str, device: objects.Device) -> bool:
    """Return true if the device meets the expression.

    Raises:
        SelectorError: the expression is faulty; as in Kubernetes, this fails the whole attempt.
    """
    context = cel.Context()
    context.add_variable("device", _variables(expression, driver, device))
    for name, function in _FUNCTIONS.items():
        context.add_function(name, function)
    try:
        value = _program(expression).execute(context)
    except KeyError as error:
        raise SelectorError(f"runtime error: no such key: {error.args[0]}") from error
    except (ValueError, TypeError, RuntimeError) as error:
        raise SelectorError(f"runtime error: {error}") from error
    if not isinstance(value, bool):
        raise SelectorError(f"the expression yields {type(value).__name__}, not bool")
    return value


def quantity(text: str) -> int | float:
    """Return the number of a `resource.Quantity` such as `80Gi`, `1.5` or `100m`.

    Raises:
        ValueError: the text is not a quantity.
    """
    value = quantities.parse(text)
    return int(value) if value == value.to_integral_value() else float(value)


@functools.lru_cache(maxsize=1024)
def _program(expression: str) -> Any:
    try:
        return cel.compile(expression)
    except ValueError as error:
        raise SelectorError(f"compilation failed: {error}") from error


def _variables(expression: str, driver: str, device: objects.Device) -> dict[str, Any]:
    attributes: dict[str, dict[str, Any]] = {}
    for name, box in device.attributes.items():
        domain, _, identifier = name.rpartition("/")
        attributes.setdefault(domain or driver, {})[identifier] = next(iter(box.values()), None)
    capacity: dict[str, dict[str, Any]] = {}
    for name, box in device.capacity.items():
        domain, _, identifier = name.rpartition("/")
        capacity.setdefault(domain or driver, {})[identifier] = quantity(str(box.get("value", "0")))
    boxes = {"attributes": attributes, "capacity": capacity}
    # A domain missing from the device is an empty map, so that has() works on its names.
    for box_name, domain in _DOMAIN.findall(expression):
        boxes[box_name].setdefault(domain, {})
    return {"driver": driver, "allowMultipleAllocations": device.allow_multiple_allocations, **boxes}


def _version(text: str) -> tuple[Any, ...]:
    parts = _SEMVER.fullmatch(text)
    if parts is None:
        raise ValueError(f"{text!r} is no semantic version")
    release = tuple(int(part) for part in parts.group(1, 2, 3))
    # A pre-release sorts before its release; its numeric parts by number and before the others.
    suffix = tuple(
        (0, int(part), "") if part.isdigit() else (1, 0, part) for part in (parts[4] or "").split(".") if part
    )
    return (*release, (0, suffix) if suffix else (1,))


def _compare(left: Any, right: Any) -> int:
    if isinstance(left, str) and isinstance(right, str):
        left, right = _version(left), _version(right)
    return int(left > right) - int(left < right)


_FUNCTIONS: dict[str, Any] = {
    "quantity": quantity,
    "semver": lambda text: (_version(text), text)[1],
    "compareTo": _compare,
    "isGreaterThan": lambda left, right: _compare(left, right) > 0,
    "isLessThan": lambda left, right: _compare(left, right) < 0,
    "major": lambda text: _version(text)[0],
    "minor": lambda text: _version(text)[1],
    "patch": lambda text: _version(text)[2],
    "includes": lambda holder, item: item in holder if isinstance(holder, list) else item == holder,
    "lowerAscii": lambda text: text.lower(),
    "upperAscii": lambda text: text.upper(),
}
