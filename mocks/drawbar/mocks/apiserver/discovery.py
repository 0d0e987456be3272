"""Discovery documents: which groups, versions and resources there are, and a minimal OpenAPI v3.

The OpenAPI documents name each resource's path with its kind and the ``fieldValidation`` parameter, which
is what kubectl asks them before it lets the server validate, and carry the schemas of custom resources.
Of the built-in types only ResourceSlice's devices are described; as in the real server they list gated
fields whether their gate is on or not.
"""

from __future__ import annotations

from typing import Any

from drawbar.mocks.apiserver.profiles import Profile
from drawbar.mocks.apiserver.resources import ALL_VERBS, Catalogue, ResourceType

Json = dict[str, Any]

REVIEWS = {
    "authorization.k8s.io": (
        ("selfsubjectaccessreviews", "SelfSubjectAccessReview"),
        ("selfsubjectrulesreviews", "SelfSubjectRulesReview"),
    ),
    "authentication.k8s.io": (("selfsubjectreviews", "SelfSubjectReview"),),
}


def version_info(profile: Profile) -> Json:
    """The answer of ``/version``."""
    major, minor = profile.name.split(".")
    return {
        "major": major,
        "minor": minor,
        "gitVersion": profile.git_version,
        "gitCommit": "0" * 40,
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none",
        "compiler": "none",
        "platform": "linux/amd64",
    }


def core_versions() -> Json:
    """The answer of ``/api``."""
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def group_list(catalogue: Catalogue) -> Json:
    """The answer of ``/apis``."""
    groups = [group(catalogue, name) for name in _groups(catalogue) if name]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [g for g in groups if g is not None]}


def group(catalogue: Catalogue, name: str) -> Json | None:
    """The answer of ``/apis/<group>``, or None if there is no such group."""
    versions = _groups(catalogue).get(name)
    if not versions:
        return None
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": name,
        "versions": listed,
        "preferredVersion": listed[0],
    }


def resource_list(catalogue: Catalogue, name: str, version: str) -> Json | None:
    """The answer of ``/api/v1`` or ``/apis/<group>/<version>``, or None if it is not served."""
    if version not in _groups(catalogue).get(name, ()):
        return None
    entries: list[Json] = []
    for resource in catalogue.all():
        if resource.group == name and version in resource.versions:
            entries += _entries(resource)
    for plural, kind in REVIEWS.get(name, ()):
        entries.append(
            {
                "name": plural,
                "singularName": kind.lower(),
                "namespaced": False,
                "kind": kind,
                "verbs": ["create"],
            }
        )
    group_version = f"{name}/{version}" if name else version
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": entries,
    }


def openapi_index(catalogue: Catalogue) -> Json:
    """The answer of ``/openapi/v3``."""
    paths = {}
    for name, versions in _groups(catalogue).items():
        for version in versions:
            path = f"apis/{name}/{version}" if name else f"api/{version}"
            paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}"}
    return {"paths": paths}


def openapi(catalogue: Catalogue, name: str, version: str, profile: Profile) -> Json | None:
    """The OpenAPI v3 document of a group and version, or None if it is not served."""
    if version not in _groups(catalogue).get(name, ()):
        return None
    paths: Json = {}
    components: Json = {}
    for resource in catalogue.all():
        if resource.group == name and version in resource.versions:
            key = f"{'.'.join(reversed(name.split('.'))) or 'io.k8s.api.core'}.{version}.{resource.kind}"
            paths |= _paths(resource, version, key)
            components[key] = _component(resource, version)
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": profile.git_version},
        "paths": paths,
        "components": {"schemas": components},
    }


def _groups(catalogue: Catalogue) -> dict[str, list[str]]:
    return catalogue.groups() | {name: ["v1"] for name in REVIEWS}


def _entries(resource: ResourceType) -> list[Json]:
    entry: Json = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(ALL_VERBS),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    found = [entry]
    for name in resource.subresources:
        kind, verbs = (
            ("Binding", ["create"]) if name == "binding" else (resource.kind, ["get", "patch", "update"])
        )
        found.append(
            {
                "name": f"{resource.plural}/{name}",
                "singularName": "",
                "namespaced": resource.namespaced,
                "kind": kind,
                "verbs": verbs,
            }
        )
    return found


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
        return {
            "parameters": query,
            "responses": {"200": {"description": "OK", "content": reference}},
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": kind,
        }

    return {
        f"{root}{scope}/{resource.plural}": {"post": operation("post"), "get": operation("list")},
        f"{root}{scope}/{resource.plural}/{{name}}": {
            action: operation(action) for action in ("get", "put", "patch", "delete")
        },
    }


def _component(resource: ResourceType, version: str) -> Json:
    kind = {"group": resource.group, "version": version, "kind": resource.kind}
    described = resource.structural.get(version) or _DESCRIBED.get(resource.kind) or {"type": "object"}
    return {**described, "x-kubernetes-group-version-kind": [kind]}


_STRING = {"type": "string"}
_STRINGS = {"type": "array", "items": _STRING}
_DEVICE = {
    "type": "object",
    "properties": {
        "name": _STRING,
        "attributes": {"type": "object", "additionalProperties": {"type": "object"}},
        "capacity": {"type": "object", "additionalProperties": {"type": "object"}},
        "nodeName": _STRING,
        "nodeSelector": {"type": "object"},
        "allNodes": {"type": "boolean"},
        "bindsToNode": {"type": "boolean"},
        "bindingConditions": _STRINGS,
        "bindingFailureConditions": _STRINGS,
        "consumesCounters": {"type": "array", "items": {"type": "object"}},
        "allowMultipleAllocations": {"type": "boolean"},
        "taints": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"key": _STRING, "value": _STRING, "effect": _STRING, "timeAdded": _STRING},
            },
        },
    },
}
_DESCRIBED: dict[str, Json] = {
    "ResourceSlice": {
        "type": "object",
        "properties": {
            "apiVersion": _STRING,
            "kind": _STRING,
            "metadata": {"type": "object"},
            "spec": {
                "type": "object",
                "properties": {
                    "driver": _STRING,
                    "pool": {"type": "object"},
                    "nodeName": _STRING,
                    "nodeSelector": {"type": "object"},
                    "allNodes": {"type": "boolean"},
                    "perDeviceNodeSelection": {"type": "boolean"},
                    "sharedCounters": {"type": "array", "items": {"type": "object"}},
                    "devices": {"type": "array", "items": _DEVICE},
                },
            },
        },
    }
}
