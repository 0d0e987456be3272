"""CustomResourceDefinitions: checks, acceptance of their names, and the resource of each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import MappingProxyType
from typing import Any

from drawbar.mocks.apiserver import errors, jsonpath, rules, schemas
from drawbar.mocks.apiserver.errors import Cause
from drawbar.mocks.apiserver.resources import ResourceType
from drawbar.mocks.apiserver.validation import definitions as types

Json = dict[str, Any]
_TYPES = ("array", "boolean", "integer", "number", "object", "string")
CLEANUP_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"


def prepare(definition: Json) -> Json:
    """Return the definition with the defaults of the real server."""
    spec = dict(definition.get("spec") or {})
    names = dict(spec.get("names") or {})
    if "kind" in names:
        names.setdefault("singular", str(names["kind"]).lower())
        names.setdefault("listKind", f"{names['kind']}List")
    spec["names"] = names
    spec.setdefault("conversion", {"strategy": "None"})
    return {**definition, "spec": spec}


def validate(definition: Json) -> Iterator[Cause]:
    """Yield every broken rule of a definition.

    Raises:
        ApiError: 400, a value has the wrong type.
    """
    problem = types.find_type_error(definition)
    if problem is not None:
        kind = "CustomResourceDefinition"
        raise errors.bad_request(f'{kind} in version "v1" cannot be handled as a {kind}: {problem}')
    spec = definition["spec"]
    names, group, versions = spec["names"], spec.get("group"), spec.get("versions") or []
    if not group:
        yield errors.required_value("spec.group")
    for key in ("plural", "kind"):
        if not names.get(key):
            yield errors.required_value(f"spec.names.{key}")
    if spec.get("scope") not in ("Cluster", "Namespaced"):
        yield errors.unsupported_value("spec.scope", spec.get("scope", ""), ("Cluster", "Namespaced"))
    wanted = f"{names.get('plural')}.{group}"
    if definition["metadata"].get("name") != wanted:
        text = 'must be spec.names.plural+"."+spec.group'
        yield errors.invalid_value("metadata.name", definition["metadata"].get("name"), text)
    if sum(bool(version.get("storage")) for version in versions) != 1:
        text = "must have exactly one version marked as storage version"
        yield errors.invalid_value("spec.versions", [v.get("name") for v in versions], text)
    for index, version in enumerate(versions):
        yield from _validate_version(version, f"spec.versions[{index}]")


def _validate_version(version: Json, path: str) -> Iterator[Cause]:
    if not version.get("name"):
        yield errors.required_value(f"{path}.name")
    schema = (version.get("schema") or {}).get("openAPIV3Schema")
    if not isinstance(schema, dict):
        yield errors.required_value(f"{path}.schema.openAPIV3Schema", "schemas are required")
        return
    root = f"{path}.schema.openAPIV3Schema"
    if schema.get("type") != "object":
        yield errors.invalid_value(f"{root}.type", schema.get("type"), "must be object at the root")
    yield from _structural(schema, root)
    metadata = (schema.get("properties") or {}).get("metadata") or {}
    if metadata.keys() - {"type", "properties"} or metadata.get("properties", {}).keys() - {
        "name",
        "generateName",
    }:
        text = (
            "must not specify anything other than name and generateName, but metadata is implicitly specified"
        )
        yield errors.forbidden_value(f"{root}.properties[metadata]", text)
    yield from rules.check_compilation(schema, root)
    for index, column in enumerate(version.get("additionalPrinterColumns") or ()):
        here = f"{path}.additionalPrinterColumns[{index}]"
        for key in ("name", "type", "jsonPath"):
            if not column.get(key):
                yield errors.required_value(f"{here}.{key}")
        try:
            jsonpath.values({}, column.get("jsonPath", ""))
        except ValueError as error:
            yield errors.invalid_value(f"{here}.jsonPath", column.get("jsonPath"), str(error))


def _structural(schema: Json, path: str) -> Iterator[Cause]:
    """Yield the broken rules of structural schemas, as far as merging and pruning rely on them."""
    loose = schema.get("x-kubernetes-preserve-unknown-fields") or schema.get("x-kubernetes-int-or-string")
    if not schema.get("type") and not loose:
        yield errors.required_value(f"{path}.type", "must not be empty for specified object fields")
    if schema.get("type") and schema["type"] not in _TYPES:
        yield errors.unsupported_value(f"{path}.type", schema["type"], _TYPES)
    try:
        re.compile(schema.get("pattern") or "")
    except (re.error, OverflowError) as error:
        text = f"must be a valid regular expression, but isn't: {error}"
        yield errors.invalid_value(f"{path}.pattern", schema["pattern"], text)
    if schema.get("type") == "array" and not isinstance(schema.get("items"), dict):
        yield errors.required_value(f"{path}.items", "must be specified")
    if schema.get("x-kubernetes-list-type") == "map":
        yield from _map_keys(schema, path)
    for key, inner in (schema.get("properties") or {}).items():
        if isinstance(inner, dict):
            yield from _structural(inner, f"{path}.properties[{key}]")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from _structural(schema[key], f"{path}.{key}")


def _map_keys(schema: Json, path: str) -> Iterator[Cause]:
    """Yield a problem for each key of a keyed list that may be absent from an item."""
    keys = schema.get("x-kubernetes-list-map-keys") or []
    if not keys:
        text = "must not be empty if the list type is map"
        yield errors.required_value(f"{path}.x-kubernetes-list-map-keys", text)
    item = schema.get("items") or {}
    for key in keys:
        declared = (item.get("properties") or {}).get(key)
        if declared is None or (key not in (item.get("required") or ()) and "default" not in declared):
            text = (
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required "
                "property"
            )
            yield errors.required_value(f"{path}.items.properties[{key}].default", text)


def make_initial_status(definition: Json) -> Json:
    """Return the status of a new definition: its conditions are null, not absent and not empty."""
    versions = definition["spec"].get("versions") or ()
    stored = [
        version.get("name", "")
        for version in versions
        if isinstance(version, dict) and version.get("storage")
    ]
    return {"conditions": None, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": stored}


def make_established_status(definition: Json, *, now: str) -> Json:
    """Return the status of an accepted definition; existing conditions keep their time stamps."""
    spec = definition["spec"]
    old = definition.get("status") or {}
    storage = next(version["name"] for version in spec["versions"] if version.get("storage"))
    stored = list(dict.fromkeys([*(old.get("storedVersions") or ()), storage]))
    held = {condition["type"]: condition for condition in old.get("conditions") or ()}
    conditions = [
        held.get(kind)
        or {"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now}
        for kind, reason, message in (
            ("NamesAccepted", "NoConflicts", "no conflicts found"),
            ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        )
    ]
    rest = [condition for kind, condition in held.items() if kind not in ("NamesAccepted", "Established")]
    return {"conditions": [*conditions, *rest], "acceptedNames": spec["names"], "storedVersions": stored}


def resource(definition: Json) -> ResourceType:
    """Return the resource of an established definition."""
    spec, names = definition["spec"], definition["spec"]["names"]
    served = [version for version in spec["versions"] if version.get("served")]
    ordered = sorted(served, key=lambda version: not version.get("storage"))
    subresources = ("status",) if any("status" in (v.get("subresources") or {}) for v in ordered) else ()
    structural = {v["name"]: v["schema"]["openAPIV3Schema"] for v in ordered}
    selectable = {
        entry["jsonPath"].lstrip("."): entry["jsonPath"].lstrip(".")
        for version in ordered
        for entry in version.get("selectableFields") or ()
    }
    return ResourceType(
        group=spec["group"],
        plural=names["plural"],
        singular=names["singular"],
        kind=names["kind"],
        namespaced=spec["scope"] == "Namespaced",
        versions=tuple(version["name"] for version in ordered),
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        subresources=subresources,
        fields=MappingProxyType(selectable),
        structural=MappingProxyType(structural),
        rules=MappingProxyType({name: rules.read_rules(schema) for name, schema in structural.items()}),
        columns=MappingProxyType(
            {v["name"]: v["additionalPrinterColumns"] for v in ordered if v.get("additionalPrinterColumns")}
        ),
        schemas_by_version=MappingProxyType(
            {name: schemas.from_structural(schema) for name, schema in structural.items()}
        ),
        counts_generation=True,
        unconditional=False,
        custom=True,
    )
