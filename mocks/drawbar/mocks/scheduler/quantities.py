"""Kubernetes quantities such as `80Gi`, `1.5` and `100m`, as exact numbers.

Source: `k8s.io/apimachinery/pkg/api/resource`, Quantity: the serialisation format and its canonical form.
"""

import re
from decimal import Decimal, InvalidOperation

_BINARY = {
    suffix: Decimal(1024) ** power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)
}
_DECIMAL = {suffix: Decimal(1000) ** power for power, suffix in enumerate(("k", "M", "G", "T", "P", "E"), 1)}
_SMALL = {suffix: Decimal(1000) ** -power for power, suffix in enumerate(("m", "u", "n"), 1)}
_UNITS = {**_BINARY, **_DECIMAL, **_SMALL, "": Decimal(1)}
_QUANTITY = re.compile(r"([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)([A-Za-z]*)")


def parse(text: str) -> Decimal:
    """Return the number of a quantity.

    Raises:
        ValueError: the text is not a quantity.
    """
    parts = _QUANTITY.fullmatch(text)
    try:
        if parts is None:
            raise ValueError(f"{text!r} is not a quantity")
        return Decimal(parts[1]) * _UNITS[parts[2]]
    except (InvalidOperation, KeyError) as error:
        raise ValueError(f"{text!r} is not a quantity") from error


def render(number: Decimal, *, like: str = "") -> str:
    """Return the canonical text of a number, in powers of 1024 if `like` ends in "i", else of 1000."""
    if number != number.to_integral_value():
        return _in_units(number, _SMALL) or str(number.normalize())
    units = _BINARY if like.endswith("i") else _DECIMAL
    return _in_units(number, dict(reversed(units.items()))) or str(int(number))


def _in_units(number: Decimal, units: dict[str, Decimal]) -> str:
    """Return the number in the first unit with a whole multiple; empty if there is none."""
    for suffix, unit in units.items():
        count = number / unit
        if number and count == count.to_integral_value():
            return f"{int(count)}{suffix}"
    return ""
