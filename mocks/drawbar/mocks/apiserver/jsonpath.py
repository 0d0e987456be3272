"""The subset of JSONPath for printer columns: fields, indexes, ``[*]`` and ``[?(@.key=="value")]``."""

from __future__ import annotations

import re
from typing import Any

_STEP = re.compile(
    r"""\.(?P<field>[A-Za-z0-9_\-/\0]+)
      | \[['"](?P<quoted>[^'"\]]+)['"]\]
      | \[(?P<index>-?\d+|\*)\]
      | \[\?\(\s*@\.(?P<key>[\w\-.]+)\s*==\s*['"]?(?P<value>[^'")]*)['"]?\s*\)\]""",
    re.VERBOSE,
)
_DOT = "\0"  # stands for an escaped dot inside a field name


def values(item: Any, path: str) -> list[Any]:
    """Return every value at a path; empty if a step finds nothing.

    Raises:
        ValueError: the path uses unsupported syntax.
    """
    reached = [item]
    rest = path.strip().strip("{}").replace("\\.", _DOT)
    position = 0
    while position < len(rest):
        match = _STEP.match(rest, position)
        if match is None:
            raise ValueError(f"JSONPath {path!r} is not understood at {rest[position:]!r}")
        reached = [value for held in reached for value in _step(held, match)]
        position = match.end()
    return reached


def _step(value: Any, match: re.Match[str]) -> list[Any]:
    name = match["field"] or match["quoted"]
    if name:
        name = name.replace(_DOT, ".")
        return [value[name]] if isinstance(value, dict) and value.get(name) is not None else []
    if not isinstance(value, list):
        return []
    if match["index"] == "*":
        return value
    if match["index"]:
        index = int(match["index"])
        return [value[index]] if -len(value) <= index < len(value) else []
    wanted = match["value"].strip()
    return [
        item for item in value if isinstance(item, dict) and _format_value(item.get(match["key"])) == wanted
    ]


def _format_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)
