"""The types inside a CustomResourceDefinition, so that all later code may rely on them.

Only the fields used by this server are listed; unknown fields pass. Source: the Go types of
``k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1``.
"""

from __future__ import annotations

from typing import Any

import msgspec

Json = dict[str, Any]


class _Rule(msgspec.Struct, frozen=True):
    rule: str | None = None
    message: str | None = None
    message_expression: str | None = msgspec.field(name="messageExpression", default=None)
    reason: str | None = None
    field_path: str | None = msgspec.field(name="fieldPath", default=None)
    optional_old_self: bool | None = msgspec.field(name="optionalOldSelf", default=None)


class _Schema(msgspec.Struct, frozen=True, rename="camel"):
    type: str | None = None
    format: str | None = None
    description: str | None = None
    pattern: str | None = None
    nullable: bool | None = None
    enum: list[Any] | None = None
    required: list[str] | None = None
    properties: dict[str, _Schema] | None = None
    items: _Schema | None = None
    additional_properties: bool | _Schema | None = None
    all_of: list[_Schema] | None = None
    any_of: list[_Schema] | None = None
    one_of: list[_Schema] | None = None
    not_: _Schema | None = msgspec.field(name="not", default=None)
    minimum: int | float | None = None
    maximum: int | float | None = None
    exclusive_minimum: bool | None = None
    exclusive_maximum: bool | None = None
    multiple_of: int | float | None = None
    min_length: int | None = None
    max_length: int | None = None
    min_items: int | None = None
    max_items: int | None = None
    min_properties: int | None = None
    max_properties: int | None = None
    unique_items: bool | None = None
    list_type: str | None = msgspec.field(name="x-kubernetes-list-type", default=None)
    list_map_keys: list[str] | None = msgspec.field(name="x-kubernetes-list-map-keys", default=None)
    map_type: str | None = msgspec.field(name="x-kubernetes-map-type", default=None)
    int_or_string: bool | None = msgspec.field(name="x-kubernetes-int-or-string", default=None)
    embedded: bool | None = msgspec.field(name="x-kubernetes-embedded-resource", default=None)
    preserve: bool | None = msgspec.field(name="x-kubernetes-preserve-unknown-fields", default=None)
    rules: list[_Rule] | None = msgspec.field(name="x-kubernetes-validations", default=None)


class _Validation(msgspec.Struct, frozen=True, rename="camel"):
    open_api_v3_schema: _Schema | None = msgspec.field(name="openAPIV3Schema", default=None)


class _Column(msgspec.Struct, frozen=True, rename="camel"):
    name: str | None = None
    type: str | None = None
    json_path: str | None = None
    description: str | None = None
    format: str | None = None
    priority: int | None = None


class _Selectable(msgspec.Struct, frozen=True, rename="camel"):
    json_path: str | None = None


class _Version(msgspec.Struct, frozen=True, rename="camel"):
    name: str | None = None
    served: bool | None = None
    storage: bool | None = None
    deprecated: bool | None = None
    schema: _Validation | None = None
    subresources: dict[str, Any] | None = None
    additional_printer_columns: list[_Column] | None = None
    selectable_fields: list[_Selectable] | None = None


class _Names(msgspec.Struct, frozen=True, rename="camel"):
    plural: str | None = None
    singular: str | None = None
    kind: str | None = None
    list_kind: str | None = None
    short_names: list[str] | None = None
    categories: list[str] | None = None


class _Conversion(msgspec.Struct, frozen=True):
    strategy: str | None = None


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    group: str | None = None
    scope: str | None = None
    names: _Names | None = None
    versions: list[_Version] | None = None
    conversion: _Conversion | None = None


class _Condition(msgspec.Struct, frozen=True):
    type: str


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    stored_versions: list[str] | None = None
    conditions: list[_Condition] | None = None
    accepted_names: _Names | None = None


class _Definition(msgspec.Struct, frozen=True):
    spec: _Spec | None = None
    status: _Status | None = None


def find_type_error(item: Json) -> str | None:
    """Return the problem of a definition with a value of the wrong type, or None."""
    try:
        msgspec.convert(item, _Definition)
    except (msgspec.ValidationError, RecursionError) as error:
        return str(error)
    return None
