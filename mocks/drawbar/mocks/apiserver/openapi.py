"""OpenAPI v3 for client-side validation, ``kubectl explain`` and other clients.

Built-in kinds come from the type table, custom ones from their definitions. Each resource's paths name its kind and
the parameters of a write; kubectl requires these for server-side validation. As in the real server a field is listed
whether its feature gate is on or not. Limits: no OpenAPI v2, no descriptions of built-in fields, no paths of
subresources, and no answers of operations beyond their schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from drawbar.mocks.apiserver import typetable
from drawbar.mocks.apiserver.profiles import Profile
from drawbar.mocks.apiserver.resources import Catalogue, ResourceType
from drawbar.mocks.apiserver.typetable import Type, TypeTable

Json = dict[str, Any]
_PREFIX = "io.k8s.api"
_METADATA = "ObjectMeta"
_SHARED: Mapping[str, str] = MappingProxyType(  # types of other groups than those that use them
    {
        **dict.fromkeys(
            ("ObjectMeta", "OwnerReference", "ManagedFieldsEntry", "Condition", "LabelSelector"),
            "io.k8s.apimachinery.pkg.apis.meta.v1",
        ),
        **dict.fromkeys(
            ("NodeSelector", "NodeSelectorTerm", "NodeSelectorRequirement", "ObjectReference"),
            "io.k8s.api.core.v1",
        ),
    }
)
_SCALARS: Mapping[str, Json] = MappingProxyType(
    {
        "string": {"type": "string"},
        "boolean": {"type": "boolean"},
        "integer": {"type": "integer", "format": "int64"},
        "number": {"type": "number", "format": "double"},
        "bytes": {"type": "string", "format": "byte"},
        "time": {"type": "string", "format": "date-time"},
        "microtime": {"type": "string", "format": "date-time"},
        "quantity": {"oneOf": [{"type": "string"}, {"type": "number"}]},
        "int-or-string": {"oneOf": [{"type": "integer"}, {"type": "string"}], "format": "int-or-string"},
        "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    }
)
_PATCHES = (
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
)


def index(groups: Mapping[str, list[str]]) -> Json:
    """Return the answer of ``/openapi/v3``."""
    paths = {}
    for name, versions in groups.items():
        for version in versions:
            path = f"apis/{name}/{version}" if name else f"api/{version}"
            paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}"}
    return {"paths": paths}


def document(catalogue: Catalogue, group: str, version: str, profile: Profile) -> Json:
    """Return the OpenAPI v3 document of a group and version."""
    types = typetable.table(profile)
    paths: Json = {}
    components: Json = {}
    for resource in catalogue.all():
        if resource.group == group and version in resource.versions:
            key = _component_key(resource, version)
            paths |= _paths(resource, version, key)
            components[key] = _kind(resource, version, types, components)
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": profile.git_version},
        "paths": paths,
        "components": {"schemas": components},
    }


def _component_key(resource: ResourceType, version: str) -> str:
    if not resource.custom:
        return f"{_PREFIX}.{resource.group.partition('.')[0] or 'core'}.{version}.{resource.kind}"
    return f"{'.'.join(reversed(resource.group.split('.')))}.{version}.{resource.kind}"


def _kind(resource: ResourceType, version: str, types: TypeTable, components: Json) -> Json:
    home = _component_key(resource, version).rpartition(".")[0]
    named = {"group": resource.group, "version": version, "kind": resource.kind}
    if resource.custom:
        described = dict(resource.structural[version])
        described["properties"] = {
            **_identity(),
            **(described.get("properties") or {}),
            "metadata": _reference(_METADATA, types, components, home),
        }
    elif resource.record_name in types:
        described = _record(resource.record_name, types, components, home)
        described["properties"] |= _identity()
    else:
        described = {"type": "object"}
    return {**described, "x-kubernetes-group-version-kind": [named]}


def _identity() -> Json:
    return {key: {"type": "string"} for key in ("apiVersion", "kind")}


def _record(name: str, types: TypeTable, components: Json, home: str) -> Json:
    properties = {field: _schema(kind, types, components, home) for field, kind in types.fields(name).items()}
    described: Json = {"type": "object", "properties": properties}
    if types.required_fields(name):
        described["required"] = list(types.required_fields(name))
    return described


def _schema(kind: Type, types: TypeTable, components: Json, home: str) -> Json:
    if kind.record:
        return _reference(kind.record, types, components, home)
    if kind.item is None:
        return dict(_SCALARS[kind.scalar])
    inner = _schema(kind.item, types, components, home)
    if kind.container == "list":
        return {"type": "array", "items": inner}
    return {"type": "object", "additionalProperties": inner}


def _reference(name: str, types: TypeTable, components: Json, home: str) -> Json:
    """Return a reference to a type; add the type to the components."""
    key = f"{_SHARED.get(name, home)}.{name.rpartition('.')[2]}"
    if key not in components:
        components[key] = {}  # ends the recursion of a type that contains itself
        components[key] = _record(name, types, components, home)
    return {"$ref": f"#/components/schemas/{key}"}


def _paths(resource: ResourceType, version: str, key: str) -> Json:
    root = f"/apis/{resource.group}/{version}" if resource.group else f"/api/{version}"
    scope = "/namespaces/{namespace}" if resource.namespaced else ""
    kind = {"group": resource.group, "version": version, "kind": resource.kind}
    query = [
        {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
        for name in ("dryRun", "fieldManager", "fieldValidation")
    ]
    reference = {"application/json": {"schema": {"$ref": f"#/components/schemas/{key}"}}}

    def operation(action: str) -> Json:
        described: Json = {
            "parameters": query,
            "responses": {"200": {"description": "OK", "content": reference}},
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": kind,
        }
        if action == "patch":
            accepted = [t for t in _PATCHES if not (resource.custom and "strategic" in t)]
            described["requestBody"] = {"content": {t: {"schema": {"type": "object"}} for t in accepted}}
        return described

    return {
        f"{root}{scope}/{resource.plural}": {"post": operation("post"), "get": operation("list")},
        f"{root}{scope}/{resource.plural}/{{name}}": {
            action: operation(action) for action in ("get", "put", "patch", "delete")
        },
    }
