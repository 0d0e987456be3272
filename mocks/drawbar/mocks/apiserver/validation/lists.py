"""Common rules of lists and maps: their size, their items, and unique keys."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any

from drawbar.mocks.apiserver import errors
from drawbar.mocks.apiserver.errors import Cause

Check = Callable[[Any, str], Iterable[Cause]]


def check_each(items: list[Any], path: str, check: Check, *, limit: int = -1) -> Iterator[Cause]:
    """Yield the rules broken by items; a list over its limit (negative: none) is not examined."""
    if 0 <= limit < len(items):
        yield errors.too_many(path, len(items), limit)
        return
    for index, item in enumerate(items):
        yield from check(item, f"{path}[{index}]")


def check_distinct(
    items: list[Any], path: str, check: Check, key: Callable[[Any], Hashable], *, limit: int = -1
) -> Iterator[Cause]:
    """Do the same for a list with unique keys."""
    yield from check_each(items, path, check, limit=limit)
    if 0 <= limit < len(items):
        return
    seen: set[Hashable] = set()
    for index, item in enumerate(items):
        held = key(item)
        if held in seen:
            yield errors.duplicate_value(f"{path}[{index}]", held)
        seen.add(held)


def check_entries(
    items: dict[str, Any], path: str, check_key: Check, check: Check, *, limit: int = -1
) -> Iterator[Cause]:
    """Yield the rules broken by a map's keys (reported at the map) and values (reported at ``path[key]``)."""
    if 0 <= limit < len(items):
        yield errors.too_many(path, len(items), limit)
        return
    for key, item in items.items():
        yield from check_key(key, path)
        yield from check(item, f"{path}[{key}]")
