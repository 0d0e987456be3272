"""Quantities (``1Gi``, ``500m``) and their canonical form, without I/O.

The API server stores quantities in the canonical form, without a fraction and with the largest possible suffix. So
``1024Mi`` comes back as ``1Gi`` and ``0.5`` as ``500m``. An amount with a binary suffix is 2^63 - 1 at most. A client must compare values, not texts.
"""

from __future__ import annotations

import functools
import re
from fractions import Fraction

_FORM = re.compile(r"^([+-]?)(\d+\.?\d*|\.\d+)(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]|[eE][+-]?\d+)?$")
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_DECIMAL = {"n": -3, "u": -2, "m": -1, "": 0, "k": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}
_BINARY_NAMES = {power: suffix for suffix, power in _BINARY.items()}
_DECIMAL_NAMES = {power: suffix for suffix, power in _DECIMAL.items()}
_BINARY_MAX = 2**63 - 1
_LIMIT = 64  # characters; longer texts are certainly mistakes

MALFORMED = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


def value(text: str | float) -> Fraction:
    """Return the exact amount.

    Raises:
        ValueError: the text is not a quantity.
    """
    return _parts(text)[0]


@functools.lru_cache(maxsize=4096)  # a pool's devices repeat few amounts
def canonical(text: str | float) -> str:
    """Return the stored form of an amount.

    Raises:
        ValueError: the text is not a quantity.
    """
    amount, suffix = _parts(text)
    rounded = _round_to_nano(amount)
    if suffix in _BINARY:
        rounded = min(rounded, Fraction(_BINARY_MAX))
    if suffix in _BINARY and abs(rounded) >= 1024 and rounded.denominator == 1:
        return _format_scaled(rounded.numerator, 1024, _BINARY_NAMES)
    if suffix[:1] in ("e", "E") and suffix != "E":
        mantissa, exponent = _decimal(rounded)
        return f"{mantissa}e{exponent * 3}" if exponent else str(mantissa)
    mantissa, exponent = _decimal(rounded)
    while exponent > max(_DECIMAL_NAMES):
        mantissa, exponent = mantissa * 1000, exponent - 1
    return f"{mantissa}{_DECIMAL_NAMES[exponent]}"


def _parts(text: str | float) -> tuple[Fraction, str]:
    match = _FORM.match(str(text)) if len(str(text)) <= _LIMIT else None
    if match is None:
        raise ValueError(MALFORMED)
    sign, digits, suffix = match.group(1), match.group(2), match.group(3) or ""
    number = Fraction(digits.rstrip(".") if digits.endswith(".") else digits)
    if suffix in _BINARY:
        number *= 1024 ** _BINARY[suffix]
    elif suffix in _DECIMAL:
        number *= Fraction(1000) ** _DECIMAL[suffix]
    else:
        exponent = int(suffix[1:])
        if abs(exponent) > 99:
            raise ValueError(MALFORMED)
        number *= Fraction(10) ** exponent
    return (-number if sign == "-" else number), suffix


def _round_to_nano(amount: Fraction) -> Fraction:
    """Round away from zero to a billionth."""
    scaled = abs(amount) * 10**9
    whole = -(-scaled.numerator // scaled.denominator)
    return Fraction(whole if amount >= 0 else -whole, 10**9)


def _decimal(amount: Fraction) -> tuple[int, int]:
    """Return a whole mantissa and the largest power of a thousand."""
    if amount == 0:
        return 0, 0
    exponent = -3
    scaled = amount * 1000**3
    mantissa = scaled.numerator
    while mantissa % 1000 == 0:
        mantissa, exponent = mantissa // 1000, exponent + 1
    return mantissa, exponent


def _format_scaled(amount: int, base: int, names: dict[int, str]) -> str:
    power = 0
    while amount % base == 0 and power < max(names):
        amount, power = amount // base, power + 1
    return f"{amount}{names.get(power, '')}"
