"""Fields that stand twice in one object of a body, which decoders otherwise drop in silence."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import yaml

LIMIT = 100  # complaints of one body that are reported


class _Doubled(dict[str, Any]):
    """An object of the body that names some of its keys again."""

    again: tuple[str, ...] = ()


def in_json(body: bytes) -> list[str]:
    """The paths of the fields that stand twice in a JSON body (already known to be JSON)."""
    seen = False

    def keep(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal seen
        item = dict(pairs)
        if len(item) == len(pairs):
            return item
        seen = True
        doubled, again, known = _Doubled(item), [], set()
        for key, _ in pairs:
            if key in known:
                again.append(key)
            known.add(key)
        doubled.again = tuple(dict.fromkeys(again))
        return doubled

    value = json.loads(body, object_pairs_hook=keep)
    return list(_paths(value, ""))[:LIMIT] if seen else []


def in_yaml(body: bytes) -> list[str]:
    """The same of a YAML body: ``line 7: key "data" already set in map``."""
    with contextlib.suppress(
        ValueError
    ):  # most YAML that clients send is JSON, which is read 50 times faster
        if not in_json(body):
            return []
    root = yaml.compose(body, Loader=yaml.SafeLoader)
    return list(_nodes(root))[:LIMIT]


def _paths(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value, _Doubled):
            yield from (f"{path}.{key}" if path else key for key in value.again)
        for key, inner in value.items():
            yield from _paths(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _paths(inner, f"{path}[{index}]")


def _nodes(node: yaml.Node | None) -> Iterator[str]:
    if isinstance(node, yaml.MappingNode):
        known: set[str] = set()
        for key, inner in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in known:
                    yield f'line {key.start_mark.line + 1}: key "{key.value}" already set in map'
                known.add(key.value)
            yield from _nodes(inner)
    elif isinstance(node, yaml.SequenceNode):
        for inner in node.value:
            yield from _nodes(inner)
