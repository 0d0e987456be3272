"""Kubernetes quantities. Source: `k8s.io/apimachinery/pkg/api/resource`."""

import decimal
import re

_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E)?")
_BINARY = {suffix: 1024**power for power, suffix in enumerate(("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_THOUSANDS = {"": 1} | {suffix: 10**power for suffix, power in _DECIMAL.items() if power > 0}
BYTES_MAX = 2**63 - 1


def parse(text: str) -> int | float:
    """Return the number that a quantity such as `80Gi` or `1.5` stands for; no exponents, which the API server removes.

    Raises:
        ValueError: it is not a quantity.
    """
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a quantity")
    number, suffix = decimal.Decimal(match[1]), match[2] or ""
    value = number * _BINARY[suffix] if suffix in _BINARY else number.scaleb(_DECIMAL[suffix])
    return int(value) if value == value.to_integral_value() else float(value)


def format_bytes(amount: int) -> str:
    """Return an amount of bytes as the API server stores it; written in another way, it would be written again and again.

    It has the largest binary unit that divides it, else the largest decimal one. More than `BYTES_MAX` bytes are as many.
    """
    amount = min(amount, BYTES_MAX)
    units = _BINARY if amount % 1024 == 0 else _THOUSANDS
    suffix = next((suffix for suffix, unit in reversed(units.items()) if amount and amount % unit == 0), "")
    return f"{amount // units[suffix]}{suffix}"
