"""Ownership of fields: sets of paths, and their form in ``metadata.managedFields``.

A path is a tuple of elements in the wire form of FieldsV1: ``f:name`` for a map key, ``k:{...}`` for an item of a
keyed list (its keys as compact, sorted JSON) and ``v:...`` for a member of a set. A set of owned fields is a frozenset
of such paths. Nothing here does I/O.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from drawbar.mocks.apiserver.schemas import ATOMIC, OPEN, Schema

Json = dict[str, Any]
Path = tuple[str, ...]
FieldSet = frozenset[Path]

# These fields name the object or belong to the server, so their ownership is not recorded.
UNOWNED: FieldSet = frozenset(
    [("f:apiVersion",), ("f:kind",)]
    + [
        ("f:metadata", f"f:{key}")
        for key in (
            "name",
            "namespace",
            "generateName",
            "uid",
            "resourceVersion",
            "generation",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "selfLink",
            "managedFields",
        )
    ]
)


# `json.dumps` would make an encoder for each of the very many calls.
_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


class KeylessItemError(ValueError):
    """An item of a keyed list has none of its keys; the message names the list."""


def item_element(schema: Schema, item: Any) -> str:
    """Return the path element of an item of a keyed list; absent keys are omitted, because keys may be optional.

    Raises:
        KeylessItemError: the item has none of the list's keys.
    """
    keys = {key: item[key] for key in schema.keys if key in item} if isinstance(item, dict) else {}
    if not keys:
        names = ", ".join(schema.keys)
        raise KeylessItemError(f"associative list with keys has an element that omits all keys [{names}]")
    return "k:" + _encode(keys)


def value_element(value: Any) -> str:
    """Return the path element of a member of a set."""
    return "v:" + _encode(value)


def from_value(value: Any, schema: Schema) -> FieldSet:
    """Return all fields set by a value: its leaves, and the keyed items themselves.

    Raises:
        KeylessItemError: a keyed list has an item without keys.
    """
    fields: set[Path] = set()
    _add_fields(fields, value, schema, ())
    return frozenset(fields) - UNOWNED


def _add_fields(fields: set[Path], value: Any, schema: Schema, path: Path) -> None:
    if schema.kind == "map" and isinstance(value, dict) and (value or not path):
        for key, inner in value.items():
            _add_fields(fields, inner, schema.child(key, inner), (*path, f"f:{key}"))
    elif schema.kind == "list-map" and isinstance(value, list):
        for item in value:
            here = (*path, item_element(schema, item))
            fields.add(here)
            if item:
                _add_fields(fields, item, schema.item or OPEN, here)
    elif schema.kind == "set" and isinstance(value, list):
        fields.update((*path, value_element(item)) for item in value)
    else:
        fields.add(path)


def changes(old: Any, new: Any, schema: Schema) -> tuple[FieldSet, FieldSet]:
    """Return the changes of an update: (fields added or changed, fields removed). Equal subtrees cost nothing.

    Raises:
        KeylessItemError: a keyed list has an item without keys.
    """
    written: set[Path] = set()
    removed: set[Path] = set()
    _compare(old, new, schema, (), (written, removed))
    return frozenset(written) - UNOWNED, frozenset(removed) - UNOWNED


def _compare(old: Any, new: Any, schema: Schema, path: Path, touched: tuple[set[Path], set[Path]]) -> None:
    if old == new:
        return
    written, removed = touched
    before, after = _children(old, schema, path), _children(new, schema, path)
    if before is None or after is None:
        mine: set[Path] = set()
        gone: set[Path] = set()
        _add_fields(mine, new, schema, path)
        _add_fields(gone, old, schema, path)
        written |= mine
        removed |= gone - mine
        return
    for element in before.keys() | after.keys():
        here = (*path, element)
        if element not in after:
            inner, value = before[element]
            _add_fields(removed, value, inner, here)
            removed |= _itself(element, here)
        elif element not in before:
            inner, value = after[element]
            _add_fields(written, value, inner, here)
            written |= _itself(element, here)
        else:
            _compare(before[element][1], after[element][1], after[element][0], here, touched)


def _itself(element: str, path: Path) -> set[Path]:
    return set() if element.startswith("f:") else {path}


def _children(value: Any, schema: Schema, path: Path) -> dict[str, tuple[Schema, Any]] | None:
    """Return the places below a container, or None for a leaf."""
    if schema.kind == "map" and isinstance(value, dict) and (value or not path):
        return {f"f:{key}": (schema.child(key, inner), inner) for key, inner in value.items()}
    if schema.kind == "list-map" and isinstance(value, list):
        return {item_element(schema, item): (schema.item or OPEN, item) for item in value}
    if schema.kind == "set" and isinstance(value, list):
        return {value_element(item): (ATOMIC, item) for item in value}
    return None


def with_parents(paths: Iterable[Path]) -> FieldSet:
    """Return the set with every ancestor of its members."""
    found = set(paths)
    for path in tuple(found):
        parent = path[:-1]
        while parent and parent not in found:
            found.add(parent)
            parent = parent[:-1]
    return frozenset(found)


def encode(paths: FieldSet) -> Json:
    """Return the set as a FieldsV1 object."""
    root: Json = {}
    parents = with_parents(path[:-1] for path in paths)
    for path in sorted(paths):
        node = root
        for element in path:
            node = node.setdefault(element, {})
        if path in parents:
            node["."] = {}
    return root


def decode(fields: Json) -> FieldSet:
    """Return the set of a FieldsV1 object."""
    paths: set[Path] = set()
    _decode(paths, fields, ())
    return frozenset(paths)


def _decode(paths: set[Path], node: Json, path: Path) -> None:
    if path and (not node or "." in node):
        paths.add(path)
    for element, inner in node.items():
        if element != ".":
            _decode(paths, inner if isinstance(inner, dict) else {}, (*path, element))


def format_path(path: Path) -> str:
    """Return a path as in conflict messages: ``.status.devices[device="d",driver="x"].conditions``."""
    text = ""
    for element in path:
        kind, _, rest = element.partition(":")
        if kind == "f":
            text += f".{rest}"
        elif kind == "k":
            keys = json.loads(rest)
            text += "[" + ",".join(f"{key}={json.dumps(value)}" for key, value in keys.items()) + "]"
        else:
            text += f"[={rest}]"
    return text


def remove(value: Any, schema: Schema, paths: FieldSet) -> Any:
    """Return a copy of the value without the places in ``paths``; containers that become empty go too."""
    return _remove(value, schema, (), paths, with_parents(paths))


def _remove(value: Any, schema: Schema, path: Path, gone: FieldSet, touched: FieldSet) -> Any:
    if path and path not in touched:
        return value
    if schema.kind == "map" and isinstance(value, dict):
        return _remove_keys(value, schema, path, gone, touched)
    if schema.kind == "list-map" and isinstance(value, list):
        kept = []
        for item in value:
            here = (*path, item_element(schema, item))
            if here not in gone:
                kept.append(_remove(item, schema.item or OPEN, here, gone, touched))
        return kept
    if schema.kind == "set" and isinstance(value, list):
        return [item for item in value if (*path, value_element(item)) not in gone]
    return value


def _remove_keys(value: Json, schema: Schema, path: Path, gone: FieldSet, touched: FieldSet) -> Json:
    kept: Json = {}
    for key, inner in value.items():
        here = (*path, f"f:{key}")
        if here in gone:
            continue
        after = _remove(inner, schema.child(key, inner), here, gone, touched)
        if after in ({}, []) and inner not in ({}, []):
            continue
        kept[key] = after
    return kept
