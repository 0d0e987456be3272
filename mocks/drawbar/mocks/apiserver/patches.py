"""JSON patch (RFC 6902), JSON merge patch (RFC 7386) and strategic merge patch, as pure functions.

Each takes the document and the decoded patch and returns a new document; the argument is never changed.
Strategic merge honours merge keys, ``$patch: delete|replace|merge``, ``$deleteFromPrimitiveList`` and
``$retainKeys``; ``$setElementOrder`` is accepted and ignored.
"""

from __future__ import annotations

import copy
from typing import Any

from drawbar.mocks.apiserver.schemas import OPEN, Schema

Json = dict[str, Any]
MAX_OPERATIONS = 10_000  # the real server's limit for one JSON patch


class PatchError(ValueError):
    """The patch is malformed, or does not fit the document; the message says which operation."""


def json_patch(document: Any, operations: Any) -> Any:
    """Apply the operations of a JSON patch in order; all or nothing.

    Raises:
        PatchError: an operation is malformed, a path does not exist, or a test fails.
    """
    if not isinstance(operations, list):
        raise PatchError("a JSON patch is a list of operations")
    if len(operations) > MAX_OPERATIONS:
        raise PatchError(
            f"a JSON patch may have at most {MAX_OPERATIONS} operations, this has {len(operations)}"
        )
    result = copy.deepcopy(document)
    for number, operation in enumerate(operations):
        if not isinstance(operation, dict) or not isinstance(operation.get("path"), str):
            raise PatchError(f"operation {number} needs a path")
        result = _operate(result, operation, number)
    return result


def merge_patch(document: Any, patch: Any) -> Any:
    """Lay the patch over the document; ``null`` removes a key."""
    if not isinstance(patch, dict):
        return patch
    result = dict(document) if isinstance(document, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


def strategic_merge(document: Any, patch: Any, schema: Schema) -> Any:
    """Lay the patch over the document; lists with a merge key merge item by item.

    Raises:
        PatchError: an item of a keyed list has no key, or a directive is unknown.
    """
    if not isinstance(patch, dict):
        return patch
    directive = patch.get("$patch")
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise PatchError(f"unknown directive $patch: {directive!r}")
    result = dict(document) if isinstance(document, dict) else {}
    retained = patch.get("$retainKeys")
    if isinstance(retained, list):
        result = {key: value for key, value in result.items() if key in retained}
    for key, value in patch.items():
        if key.startswith("$"):
            _delete_from_primitives(result, key, value)
        elif value is None:
            result.pop(key, None)
        else:
            result[key] = _strategic_value(result.get(key), value, schema.child(key, value))
    return result


def _delete_from_primitives(result: Json, key: str, value: Any) -> None:
    prefix, _, name = key.partition("/")
    if (
        prefix == "$deleteFromPrimitiveList"
        and isinstance(result.get(name), list)
        and isinstance(value, list)
    ):
        result[name] = [item for item in result[name] if item not in value]


def _strategic_value(current: Any, value: Any, schema: Schema) -> Any:
    if isinstance(value, dict):
        return strategic_merge(current, value, schema)
    if isinstance(value, list) and schema.kind == "set" and schema.merge_key:
        held = current if isinstance(current, list) else []
        return [*held, *(item for item in value if item not in held)]
    if isinstance(value, list) and schema.kind == "list-map" and schema.merge_key:
        return _strategic_list(current if isinstance(current, list) else [], value, schema)
    return value


def _strategic_list(current: list[Any], patch: list[Any], schema: Schema) -> list[Any]:
    key = schema.merge_key
    if any(isinstance(item, dict) and item.get("$patch") == "replace" for item in patch):
        return [item for item in patch if not (isinstance(item, dict) and item.get("$patch") == "replace")]
    result = list(current)
    for item in patch:
        if not isinstance(item, dict) or key not in item:
            raise PatchError(f"map: {item!r} does not contain declared merge key: {key}")
        position = next((i for i, held in enumerate(result) if held.get(key) == item[key]), None)
        if item.get("$patch") == "delete":
            result = [held for held in result if held.get(key) != item[key]]
        elif position is None:
            result.append(strategic_merge({}, item, schema.item or OPEN))
        else:
            result[position] = strategic_merge(result[position], item, schema.item or OPEN)
    return result


def _operate(document: Any, operation: Json, number: int) -> Any:
    path = _pointer(operation["path"], number)
    name = operation.get("op")
    if name in ("add", "replace", "test") and "value" not in operation:
        raise PatchError(f"operation {number} ({name}) needs a value")
    match name:
        case "add":
            return _put(document, path, copy.deepcopy(operation["value"]), number, insert=True)
        case "replace":
            # As in the real server's library, the parent must exist, but the key of a map need not.
            _get(document, path[:-1], number)
            return _put(document, path, copy.deepcopy(operation["value"]), number, insert=False)
        case "remove":
            return _take(document, path, number)[0]
        case "test":
            if _get(document, path, number) != operation["value"]:
                raise PatchError(f"testing value {operation['path']} failed")
            return document
        case "move" | "copy":
            source = _pointer(operation.get("from"), number)
            value = copy.deepcopy(_get(document, source, number))
            rest = _take(document, source, number)[0] if name == "move" else document
            return _put(rest, path, value, number, insert=True)
        case _:
            raise PatchError(f"operation {number} has an unknown op {name!r}")


def _pointer(text: Any, number: int) -> list[str]:
    if not isinstance(text, str) or (text and not text.startswith("/")):
        raise PatchError(f"operation {number} has a malformed path {text!r}")
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _index(parts: list[Any], key: str, number: int, *, limit: int) -> int:
    if not (key.isascii() and key.isdigit() and len(key) < 10) or int(key) > limit:
        raise PatchError(f"operation {number}: no index {key!r} in a list of {len(parts)}")
    return int(key)


def _get(document: Any, path: list[str], number: int) -> Any:
    value = document
    for key in path:
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list):
            value = value[_index(value, key, number, limit=len(value) - 1)]
        else:
            raise PatchError(f"operation {number}: doc is missing path /{'/'.join(path)}")
    return value


def _put(document: Any, path: list[str], value: Any, number: int, *, insert: bool) -> Any:
    if not path:
        return value
    parent, key = _get(document, path[:-1], number), path[-1]
    if isinstance(parent, dict):
        parent[key] = value
    elif isinstance(parent, list) and insert:
        parent.insert(len(parent) if key == "-" else _index(parent, key, number, limit=len(parent)), value)
    elif isinstance(parent, list):
        parent[_index(parent, key, number, limit=len(parent) - 1)] = value
    else:
        raise PatchError(f"operation {number}: /{'/'.join(path[:-1])} is not a container")
    return document


def _take(document: Any, path: list[str], number: int) -> tuple[Any, Any]:
    if not path:
        raise PatchError(f"operation {number} may not remove the whole document")
    value = _get(document, path, number)
    parent = _get(document, path[:-1], number)
    if isinstance(parent, dict):
        del parent[path[-1]]
    else:
        del parent[int(path[-1])]
    return document, value
