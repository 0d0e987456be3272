"""The wording that messages share; pure."""

from collections.abc import Sequence


def join_some(texts: Sequence[str], most: int, separator: str = ", ") -> str:
    """Return the first `most` texts, and the number of the others: `a, b and 3 more`, or `a; b; and 3 more`."""
    shown, more = separator.join(texts[:most]), len(texts) - most
    if more <= 0:
        return shown
    return f"{shown}{' ' if separator == ', ' else separator}and {more} more"
