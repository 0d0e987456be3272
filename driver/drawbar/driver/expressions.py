"""CEL selectors of DeviceClasses, over the devices of a node.

A device is `device.driver`, `device.attributes["domain"].name` and `device.capacity["domain"].name`; a name without a
domain belongs to the driver's own. Capacities are numbers, and so is `quantity("80Gi")`; `compareTo`,
`isGreaterThan`, `isLessThan` and `matches` work. Semantic versions, `cel.bind` and optional values are not supported.

The library's package loads a command line of its own with a terminal toolkit (13 MB). Only its compiled part is
loaded here (3 MB), and only if a selector is set.

Source: Kubernetes documentation, "Common Expression Language in Kubernetes"; ResourceSlice API reference.
"""

import functools
import importlib.machinery
import importlib.util
import re
import sys
from collections.abc import Mapping
from typing import Any

from drawbar.driver.api import quantities, slices

_PACKAGE = "cel"
_DOMAIN = re.compile(r"""\[\s*["']([^"']+)["']\s*\]""")


class SelectorError(Exception):
    """The expression fails on this device, or yields no boolean; the message is the reason."""


def fault(expression: str) -> str | None:
    """Return why it does not compile, in one line; None for one that does."""
    try:
        _program(expression)
    except ValueError as error:
        return " ".join(str(error).split())
    return None


def matches(expression: str, driver: str, device: slices.Device) -> bool:
    """Return whether the device, as it would be published, meets the expression.

    Raises:
        SelectorError: the expression cannot be evaluated; for example, the device has no such attribute.
    """
    context = library().Context()
    for name, function in _FUNCTIONS.items():
        context.add_function(name, function)
    try:
        context.add_variable("device", _variables(expression, driver, device))
        value = _program(expression).execute(context)
    except KeyError as error:
        raise SelectorError(f"it has no {error.args[0]}") from error
    except (ValueError, TypeError, RuntimeError) as error:
        raise SelectorError(" ".join(str(error).split())) from error
    if not isinstance(value, bool):
        raise SelectorError(f"the selector yields {type(value).__name__}, not true or false")
    return value


def library(part: str = "cel") -> Any:
    """Return a module of the CEL library without loading its package: by default the compiled one.

    Raises:
        ModuleNotFoundError: the library is not installed.
    """
    name = f"{_PACKAGE}.{part}"
    loaded = sys.modules.get(name)
    if loaded is not None:
        return loaded
    package = importlib.util.find_spec(_PACKAGE)
    locations = package.submodule_search_locations if package is not None else None
    spec = importlib.machinery.PathFinder.find_spec(name, locations)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"no module named {name!r}: install common-expression-language")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@functools.lru_cache(maxsize=4)
def _program(expression: str) -> Any:
    return library().compile(expression)


def _variables(expression: str, driver: str, device: slices.Device) -> dict[str, Any]:
    # A missing domain is an empty map, so that has() works on its names.
    domains = (driver, *_DOMAIN.findall(expression))
    boxes: dict[str, dict[str, dict[str, Any]]] = {
        box: {domain: {} for domain in domains} for box in ("attributes", "capacity")
    }
    for name, attribute in device.attributes.items():
        _put(boxes["attributes"], driver, name, _value(attribute))
    for name, capacity in device.capacity.items():
        _put(boxes["capacity"], driver, name, quantities.parse(capacity.value))
    return {"driver": driver, **boxes}


def _put(box: dict[str, dict[str, Any]], driver: str, name: str, value: object) -> None:
    domain, _, identifier = name.rpartition("/")
    box.setdefault(domain or driver, {})[identifier] = value


def _value(attribute: slices.Attribute) -> object:
    held = (attribute.string, attribute.int_, attribute.bool_, attribute.version)
    return next((value for value in held if value is not None), None)


def _compare(left: float, right: float) -> int:
    return int(left > right) - int(left < right)


_FUNCTIONS: Mapping[str, Any] = {
    "quantity": quantities.parse,
    "compareTo": _compare,
    "isGreaterThan": lambda left, right: _compare(left, right) > 0,
    "isLessThan": lambda left, right: _compare(left, right) < 0,
    "lowerAscii": lambda text: text.lower(),
    "upperAscii": lambda text: text.upper(),
}
