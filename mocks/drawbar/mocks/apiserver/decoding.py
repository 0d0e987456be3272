"""Decoding of objects by their types, as in the real server.

Unknown fields are dropped, ``null`` counts as absent, times become UTC and quantities canonical. A value of the wrong
type is refused with 400. Dropped and repeated fields are reported. ``fieldValidation`` decides the outcome: ``Strict``
refuses (400), ``Warn`` (the default) adds ``Warning`` headers, ``Ignore`` is silent.

Limit: Go omits most empty optional lists, maps and strings when it stores an object; here they stay.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from drawbar.mocks.apiserver import errors, quantities, structural, timestamps
from drawbar.mocks.apiserver.resources import ResourceType
from drawbar.mocks.apiserver.typetable import Type, TypeTable

Json = dict[str, Any]
LEVELS = ("Ignore", "Strict", "Warn")
METADATA = Type(record="ObjectMeta")


class MistypedError(ValueError):
    """A value has the wrong type; ``path`` is its field and ``expected`` the right type."""

    def __init__(self, message: str, *, path: str, expected: str) -> None:
        """Keep the message of the real server."""
        super().__init__(message)
        self.path = path
        self.expected = expected


@dataclass(slots=True)
class Report:
    """The fields dropped by decoding: the paths of unknown ones."""

    unknown: list[str] = field(default_factory=list)


def decode(item: Json, resource: ResourceType, version: str, types: TypeTable) -> tuple[Json, list[str]]:
    """Return an object with a version's declared fields, and the paths of its other fields.

    Raises:
        MistypedError: a value has the wrong type.
    """
    report = Report()
    if resource.custom:
        return _custom(item, resource, version, types, report), report.unknown
    name = resource.record_name
    if name not in types:
        return item, []
    return _record(item, name, types, "", report), report.unknown


def complaint(problem: MistypedError, kind: str, version: str) -> errors.ApiError:
    """Return a 400 for an object of a kind that cannot be decoded."""
    return errors.bad_request(f'{kind} in version "{version}" cannot be handled as a {kind}: {problem}')


def level(asked: str | None, options: str) -> str:
    """Return the requested strictness for fields; ``options`` names the kind of the request's options.

    Raises:
        ApiError: 422, there is no such level.
    """
    if not asked:
        return "Warn"
    if asked not in LEVELS:
        cause = errors.unsupported_value("fieldValidation", asked, LEVELS)
        raise errors.invalid_error(options, "meta.k8s.io", "", [cause])
    return asked


def strict_text(unknown: Iterable[str], twice: Iterable[str]) -> list[str]:
    """Return the messages of strict decoding, one for each field."""
    return [
        *(f'unknown field "{path}"' for path in unknown),
        *(f'duplicate field "{path}"' for path in twice),
    ]


def _custom(item: Json, resource: ResourceType, version: str, types: TypeTable, report: Report) -> Json:
    pruned, dropped = structural.prune(item, resource.structural[version])
    report.unknown += dropped
    if isinstance(pruned.get("metadata"), dict):
        pruned["metadata"] = _record(pruned["metadata"], "ObjectMeta", types, "metadata", report)
    elif pruned.get("metadata") is not None:
        raise _make_mistyped_error(pruned["metadata"], METADATA, "metadata", "")
    return dict(pruned)


def _record(item: Json, name: str, types: TypeTable, path: str, report: Report) -> Json:
    declarations = types.fields(name)
    result: Json = {}
    for key, value in item.items():
        here = f"{path}.{key}" if path else key
        declared = declarations.get(key)
        if declared is None:
            report.unknown.append(here)
        elif declared.scalar == "string" and isinstance(value, str):  # most fields are: a short cut
            result[key] = value
        elif value is not None:
            result[key] = _value(value, declared, types, here, report, owner=name)
    return result


def _value(value: Any, kind: Type, types: TypeTable, path: str, report: Report, *, owner: str) -> Any:
    if kind.record:
        if not isinstance(value, dict):
            raise _make_mistyped_error(value, kind, path, owner)
        return _record(value, kind.record, types, path, report)
    if kind.item is None:
        return _scalar(value, kind, path, owner)
    if kind.container == "list":
        if not isinstance(value, list):
            raise _make_mistyped_error(value, kind, path, owner)
        return [
            _element(inner, kind.item, types, f"{path}[{index}]", report, owner=owner)
            for index, inner in enumerate(value)
        ]
    if not isinstance(value, dict):
        raise _make_mistyped_error(value, kind, path, owner)
    return {
        key: _element(inner, kind.item, types, f"{path}.{key}", report, owner=owner)
        for key, inner in value.items()
    }


def _element(value: Any, kind: Type, types: TypeTable, path: str, report: Report, *, owner: str) -> Any:
    """Return the decoded item of a list or map; ``null`` becomes the zero value."""
    if value is None and kind.scalar != "any":
        zeros = {"string": "", "integer": 0, "boolean": False}
        return zeros.get(kind.scalar, {} if kind.record else value)
    return _value(value, kind, types, path, report, owner=owner)


def _scalar(value: Any, kind: Type, path: str, owner: str) -> Any:
    fits = _SCALARS[kind.scalar]
    if not isinstance(value, fits.python) or (isinstance(value, bool) and bool not in fits.python):
        raise _make_mistyped_error(value, kind, path, owner)
    if fits.read is None:
        return value
    try:
        return fits.read(value)
    except ValueError as error:
        raise MistypedError(str(error), path=path, expected=kind.scalar) from error


def _base64(text: str) -> str:
    """Return Base64 unchanged after checking it."""
    try:
        base64.b64decode(text, validate=True)
    except ValueError as error:
        raise ValueError("illegal base64 data") from error
    return text


@dataclass(frozen=True, slots=True)
class _Scalar:
    """The JSON types of a scalar, and its conversion."""

    python: tuple[type, ...]
    read: Callable[[Any], Any] | None = None


_SCALARS: Mapping[str, _Scalar] = MappingProxyType(
    {
        "any": _Scalar((object, bool)),
        "boolean": _Scalar((bool,)),
        "string": _Scalar((str,)),
        "bytes": _Scalar((str,), _base64),
        "integer": _Scalar((int,)),
        "number": _Scalar((int, float)),
        "int-or-string": _Scalar((int, str)),
        "quantity": _Scalar((int, float, str), quantities.canonical),
        "time": _Scalar((str,), timestamps.seconds),
        "microtime": _Scalar((str,), timestamps.micro),
    }
)


def _make_mistyped_error(value: Any, kind: Type, path: str, owner: str) -> MistypedError:
    shown = (
        "bool"
        if isinstance(value, bool)
        else "object"
        if isinstance(value, dict)
        else "array"
        if isinstance(value, list)
        else "string"
        if isinstance(value, str)
        else f"number {value}"
        if isinstance(value, float)
        else "number"
    )
    field = ".".join(part.partition("[")[0] for part in path.split("."))
    where = f"Go struct field {owner}.{field}" if owner else f"Go value {field}"
    expected = "map" if kind.container == "map" else kind.container or kind.scalar or "map"
    text = f"json: cannot unmarshal {shown} into {where} of type {kind.go}"
    return MistypedError(text, path=path, expected=expected)
