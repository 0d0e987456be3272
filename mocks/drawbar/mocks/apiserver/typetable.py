"""The types of the built-in kinds: their fields and the fields' types.

``typetable.json`` lists them (field names and types as declared by Kubernetes 1.37). ``string``, ``integer``,
``number``, ``boolean``, ``bytes`` (base64), ``time``, ``microtime``, ``quantity``, ``int-or-string`` and ``any`` are
values. ``[X]`` is a list, ``{X}`` a map, and every other word is another type of the table. ``!`` marks fields
required by the API. A profile omits the unknown fields of its release, and ``kep-5055`` adds the proposal's. A field
with a disabled feature gate stays in the table, as in the OpenAPI document of a real server. ``classictypes.json``
lists the differences of 1.30 and 1.31: the records of their ``resource.k8s.io`` and of a pod's claims, and later
fields of other types.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources as files
from types import MappingProxyType
from typing import Any

from drawbar.mocks.apiserver.profiles import Profile

Fields = Mapping[str, str]

SCALARS = frozenset(
    [
        "any",
        "boolean",
        "bytes",
        "int-or-string",
        "integer",
        "microtime",
        "number",
        "quantity",
        "string",
        "time",
    ]
)
_LISTS_SINCE_36 = ("bools", "ints", "strings", "versions")
_PROPOSED: dict[str, dict[str, str]] = {
    # The proposal has no Device.taints.
    "ResourceSliceSpec": {"taints": "[SliceDeviceTaint]"},
    "SliceDeviceTaint": {"device": "string!", "taint": "DeviceTaint!"},
    "DeviceTaint": {"description": "string", "data": "any", "evictionsPerSecond": "integer"},
    "DeviceTaintSelector": {"deviceClassName": "string", "selectors": "[DeviceSelector]"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Type:
    """The type of a field: a value (``scalar``), a list or map of ``item``, or a ``record`` of the table."""

    scalar: str = ""
    container: str = ""
    item: Type | None = None
    record: str = ""

    @property
    def go(self) -> str:
        """Return the type's name in the Go API, for decoding errors."""
        if self.item is not None:
            return ("[]" if self.container == "list" else "map[string]") + self.item.go
        names = {"integer": "int64", "boolean": "bool", "number": "float64", "bytes": "[]uint8"}
        return f"v1.{self.record}" if self.record else names.get(self.scalar, self.scalar)


class TypeTable:
    """The types of one profile."""

    def __init__(self, records: Mapping[str, Fields]) -> None:
        """Parse ``records`` in the notation of ``typetable.json``."""
        self._records = {
            name: {field: _parse_type(text.rstrip("!")) for field, text in fields.items()}
            for name, fields in records.items()
        }
        self._required = {
            name: tuple(field for field, text in fields.items() if text.endswith("!"))
            for name, fields in records.items()
        }

    def __contains__(self, name: str) -> bool:
        """Return true if there is a record of that name."""
        return name in self._records

    def fields(self, name: str) -> Mapping[str, Type]:
        """Return the fields of a record.

        Raises:
            KeyError: there is no such record.
        """
        return self._records[name]

    def required_fields(self, name: str) -> tuple[str, ...]:
        """Return the fields of a record that the API marks required (its decoder accepts their absence)."""
        return self._required[name]


def _parse_type(text: str) -> Type:
    if text.startswith("["):
        return Type(container="list", item=_parse_type(text[1:-1]))
    if text.startswith("{"):
        return Type(container="map", item=_parse_type(text[1:-1]))
    return Type(scalar=text) if text in SCALARS else Type(record=text)


@functools.lru_cache(maxsize=2)
def _file(name: str) -> Mapping[str, Any]:
    text = files.files("drawbar.mocks.apiserver").joinpath(name).read_text(encoding="utf-8")
    return MappingProxyType(json.loads(text))


@functools.lru_cache(maxsize=16)
def _table(minor: int, *, proposed: bool) -> TypeTable:
    records: dict[str, dict[str, str]] = {
        name: dict(fields) for name, fields in _file("typetable.json").items()
    }
    if minor < 36:
        for field in _LISTS_SINCE_36:
            records["DeviceAttribute"].pop(field)
    classic = _file("classictypes.json").get(str(minor), {})
    for name, gone in classic.get("absent", {}).items():
        for field in gone:
            records[name].pop(field)
    records |= classic.get("records", {})
    if proposed:
        records["Device"].pop("taints")
        for name, more in _PROPOSED.items():
            records[name] = {**records.get(name, {}), **more}
    return TypeTable(records)


def table(profile: Profile) -> TypeTable:
    """Return the types of a profile's server."""
    return _table(profile.minor, proposed=profile.taint_slices)
