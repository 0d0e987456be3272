"""Rules that lists and maps have in common: their size, their items, and that nothing stands in them twice."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any

from drawbar.mocks.apiserver import errors
from drawbar.mocks.apiserver.errors import Cause

Check = Callable[[Any, str], Iterable[Cause]]


def each(items: list[Any], path: str, check: Check, *, limit: int = -1) -> Iterator[Cause]:
    """The rules that items break; a list over its limit (negative: none) is not looked into."""
    if 0 <= limit < len(items):
        yield errors.too_many(path, len(items), limit)
        return
    for index, item in enumerate(items):
        yield from check(item, f"{path}[{index}]")


def distinct(
    items: list[Any], path: str, check: Check, key: Callable[[Any], Hashable], *, limit: int = -1
) -> Iterator[Cause]:
    """The same, of a list in which no key may stand twice."""
    yield from each(items, path, check, limit=limit)
    if 0 <= limit < len(items):
        return
    seen: set[Hashable] = set()
    for index, item in enumerate(items):
        held = key(item)
        if held in seen:
            yield errors.duplicate(f"{path}[{index}]", held)
        seen.add(held)


def entries(
    items: dict[str, Any], path: str, check_key: Check, check: Check, *, limit: int = -1
) -> Iterator[Cause]:
    """The rules that a map's keys (told at the map) and values (told at ``path[key]``) break."""
    if 0 <= limit < len(items):
        yield errors.too_many(path, len(items), limit)
        return
    for key, item in items.items():
        yield from check_key(key, path)
        yield from check(item, f"{path}[{key}]")


def nothing(_item: Any, _path: str) -> Iterator[Cause]:
    """No rule at all."""
    yield from ()
