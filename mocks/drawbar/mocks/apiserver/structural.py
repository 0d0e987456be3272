"""Structural schemas of custom resources: pruning, defaulting and validation, without I/O.

Limits: no ``format`` other than ``date-time``, no ``x-kubernetes-embedded-resource`` and no validation ratcheting. CEL
rules are in ``rules``.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any

from drawbar.mocks.apiserver import errors
from drawbar.mocks.apiserver.errors import Cause

Json = dict[str, Any]

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}
_DATE_TIME = re.compile(r"^\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)$")
_RESERVED = frozenset(["apiVersion", "kind", "metadata"])


def prune(value: Any, schema: Json, *, root: bool = True) -> tuple[Any, list[str]]:
    """Return the value without undeclared fields, and the paths of the dropped ones."""
    dropped: list[str] = []
    return _prune(value, schema, "", dropped, root=root), dropped


def _prune(value: Any, schema: Json, path: str, dropped: list[str], *, root: bool = False) -> Any:
    if isinstance(value, list):
        items = schema.get("items") or {}
        return [_prune(item, items, f"{path}[{index}]", dropped) for index, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    properties = schema.get("properties") or {}
    additional = schema.get("additionalProperties")
    preserve = bool(schema.get("x-kubernetes-preserve-unknown-fields")) or additional is True
    kept: Json = {}
    for key, inner in value.items():
        here = f"{path}.{key}" if path else key
        if root and key in _RESERVED:
            kept[key] = inner
        elif key in properties:
            kept[key] = _prune(inner, properties[key], here, dropped)
        elif isinstance(additional, dict):
            kept[key] = _prune(inner, additional, here, dropped)
        elif preserve:
            kept[key] = inner
        else:
            dropped.append(here)
    return kept


def default(value: Any, schema: Json) -> Any:
    """Return the value with the schema's defaults; a ``null`` that is not allowed is replaced too."""
    if isinstance(value, list):
        items = schema.get("items") or {}
        return [default(item, items) for item in value]
    if not isinstance(value, dict):
        return value
    result = dict(value)
    additional = schema.get("additionalProperties")
    for key, inner in (schema.get("properties") or {}).items():
        if "default" in inner and (key not in result or (result[key] is None and not inner.get("nullable"))):
            result[key] = copy.deepcopy(inner["default"])
        elif key in result and result[key] is None and not inner.get("nullable"):
            del result[key]
        if key in result:
            result[key] = default(result[key], inner)
    if isinstance(additional, dict):
        declared = schema.get("properties") or {}
        result |= {key: default(inner, additional) for key, inner in result.items() if key not in declared}
    return result


def validate(value: Any, schema: Json, path: str = "") -> Iterator[Cause]:
    """Yield every rule of the schema broken by the value."""
    if value is None and schema.get("nullable"):
        return
    wrong = _wrong_type(value, schema, path)
    if wrong is not None:
        yield wrong
        return
    if "enum" in schema and value not in schema["enum"]:
        yield errors.unsupported_value(path, value, schema["enum"])
    if isinstance(value, str):
        yield from _string(value, schema, path)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _number(value, schema, path)
    elif isinstance(value, list):
        yield from _array(value, schema, path)
    elif isinstance(value, dict):
        yield from _object(value, schema, path)
    yield from _combinations(value, schema, path)


def _wrong_type(value: Any, schema: Json, path: str) -> Cause | None:
    if schema.get("x-kubernetes-int-or-string"):
        if isinstance(value, int | str) and not isinstance(value, bool):
            return None
        return _make_type_cause(value, "integer,string", path)
    wanted = schema.get("type")
    if not wanted or (
        isinstance(value, _TYPES[wanted]) and not (isinstance(value, bool) and wanted != "boolean")
    ):
        return None
    if wanted == "integer" and isinstance(value, float) and value.is_integer():
        return None
    return _make_type_cause(value, wanted, path)


def _make_type_cause(value: Any, wanted: str, path: str) -> Cause:
    text = f'{path} in body must be of type {wanted}: "{_type_name(value)}"'
    return Cause(
        field=path, reason="FieldValueTypeInvalid", message=f'Invalid value: "{_type_name(value)}": {text}'
    )


def _type_name(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    for name, types in _TYPES.items():
        if isinstance(value, types):
            return name
    return type(value).__name__


def _string(value: str, schema: Json, path: str) -> Iterator[Cause]:
    if "maxLength" in schema and len(value) > schema["maxLength"]:
        yield errors.too_long(path, schema["maxLength"])
    if "minLength" in schema and len(value) < schema["minLength"]:
        text = f"{path} in body should be at least {schema['minLength']} chars long"
        yield errors.invalid_value(path, value, text)
    if "pattern" in schema and not re.search(schema["pattern"], value):
        yield errors.invalid_value(path, value, f"{path} in body should match '{schema['pattern']}'")
    if schema.get("format") == "date-time" and not _DATE_TIME.match(value):
        yield errors.invalid_value(path, value, f'{path} in body must be of type date-time: "{value}"')


def _number(value: float, schema: Json, path: str) -> Iterator[Cause]:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and (value < low or (schema.get("exclusiveMinimum") and value == low)):
        word = "greater than" if schema.get("exclusiveMinimum") else "greater than or equal to"
        yield errors.invalid_value(path, value, f"{path} in body should be {word} {low}")
    if high is not None and (value > high or (schema.get("exclusiveMaximum") and value == high)):
        word = "less than" if schema.get("exclusiveMaximum") else "less than or equal to"
        yield errors.invalid_value(path, value, f"{path} in body should be {word} {high}")


def _array(value: list[Any], schema: Json, path: str) -> Iterator[Cause]:
    if "maxItems" in schema and len(value) > schema["maxItems"]:
        yield errors.too_many(path, len(value), schema["maxItems"])
    if "minItems" in schema and len(value) < schema["minItems"]:
        text = f"{path} in body should have at least {schema['minItems']} items"
        yield errors.invalid_value(path, len(value), text)
    keys = schema.get("x-kubernetes-list-map-keys") or []
    seen: list[Any] = []
    for index, item in enumerate(value):
        here = f"{path}[{index}]"
        match schema.get("x-kubernetes-list-type"):
            case "map" if isinstance(item, dict):
                identity = {key: item.get(key) for key in keys}
                if identity in seen:
                    yield errors.duplicate_value(here, identity)
                seen.append(identity)
            case "set":
                if item in seen:
                    yield errors.duplicate_value(here, item)
                seen.append(item)
        yield from validate(item, schema.get("items") or {}, here)


def _object(value: Json, schema: Json, path: str) -> Iterator[Cause]:
    for key in schema.get("required") or ():
        if key not in value:
            yield errors.required_value(f"{path}.{key}" if path else key)
    if "maxProperties" in schema and len(value) > schema["maxProperties"]:
        yield errors.too_many(path, len(value), schema["maxProperties"])
    if "minProperties" in schema and len(value) < schema["minProperties"]:
        text = f"{path} in body should have at least {schema['minProperties']} properties"
        yield errors.invalid_value(path, len(value), text)
    properties = schema.get("properties") or {}
    additional = schema.get("additionalProperties")
    for key, inner in value.items():
        below = properties.get(key, additional)
        if isinstance(below, dict):
            yield from validate(inner, below, f"{path}.{key}" if path else key)


def _combinations(value: Any, schema: Json, path: str) -> Iterator[Cause]:
    for part in schema.get("allOf") or ():
        yield from validate(value, part, path)
    if "anyOf" in schema and not any(_fits(value, part) for part in schema["anyOf"]):
        yield errors.invalid_value(
            path, _type_name(value), f"{path} in body must validate at least one schema (anyOf)"
        )
    if "oneOf" in schema and sum(_fits(value, part) for part in schema["oneOf"]) != 1:
        yield errors.invalid_value(
            path, _type_name(value), f"{path} in body must validate one and only one schema (oneOf)"
        )
    if "not" in schema and _fits(value, schema["not"]):
        yield errors.invalid_value(
            path, _type_name(value), f"{path} in body must not validate the schema (not)"
        )


def _fits(value: Any, schema: Json) -> bool:
    return next(validate(value, schema), None) is None
