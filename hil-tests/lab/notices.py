"""A notice that is hard to overlook: what was not tested, in a box."""

import textwrap
from collections.abc import Sequence

WIDTH = 100


def box(lines: Sequence[str], width: int = WIDTH) -> str:
    """The lines in a frame, wrapped; with a line's end."""
    inner = width - 4
    wrapped = [
        piece
        for line in lines
        for piece in textwrap.wrap(line, inner, break_on_hyphens=False, break_long_words=True) or [""]
    ]
    edge = f"+{'-' * (width - 2)}+"
    return "\n".join([edge, *(f"| {piece:<{inner}} |" for piece in wrapped), edge, ""])


def not_tested(reason: str) -> str:
    """That the short set was not run, why, and how to have it.

    Args:
        reason: one sentence with the remedy.
    """
    return box(
        [
            "NOT TESTED: the node daemon on a real kernel with real hot-plug (the lab's short set, docs/lab.md).",
            reason,
            "Afterwards `make test` runs it again, and `make hil-short` it alone (5 minutes).",
        ]
    )
