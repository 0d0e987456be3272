"""The order that people expect of names and versions with numbers: gpu-2 before gpu-10, 1.9 before 1.10."""

import functools
import re

_PARTS = re.compile(r"([0-9]+)")

SortKey = tuple[tuple[int, int, str], ...]


@functools.lru_cache(maxsize=65536)
def sort_key(name: str) -> SortKey:
    """Return the sort key of a name; a number precedes a word.

    Digits stay text, for a number of any length may be in a name: Python refuses to read one of more than 4,300 digits.
    """
    return tuple(number_key(part) or (1, 0, part) for part in _PARTS.split(name) if part)


def number_key(part: str) -> tuple[int, int, str] | None:
    """Return the sort key of a number in ASCII digits; None for any other text."""
    if not (part.isascii() and part.isdigit()):
        return None
    digits = part.lstrip("0")
    return 0, len(digits), digits
