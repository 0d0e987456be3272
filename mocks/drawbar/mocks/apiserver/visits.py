"""A parsed request to a resource: its parts, its verb, and the check of path and method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from drawbar.mocks.apiserver import errors, rbac, requests
from drawbar.mocks.apiserver.registry import Written
from drawbar.mocks.apiserver.requests import Target
from drawbar.mocks.apiserver.resources import ResourceType

Json = dict[str, Any]
# Subresources that can only be created, with the kinds of their bodies.
CREATED = {"binding": "Binding", "eviction": "Eviction", "token": "TokenRequest"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """A parsed request to a resource; ``warnings`` collects the warnings of its answer."""

    request: web.Request
    user: rbac.User
    resource: ResourceType
    target: Target
    verb: str
    query: Mapping[str, str]
    now: str
    warnings: list[str] = field(default_factory=list)


def verb_of(request: web.Request, target: Target) -> str:
    """Return the verb of a request, for authorization.

    Raises:
        ApiError: 405, the API does not support the HTTP method.
    """
    watching = requests.is_true(request.query.get("watch"))
    match request.method:
        case "GET" | "HEAD":
            return "watch" if watching and not target.subresource else "get" if target.name else "list"
        case "POST":
            return "create"
        case "PUT":
            return "update"
        case "PATCH":
            return "patch"
        case "DELETE":
            return "delete" if target.name else "deletecollection"
        case _:
            raise errors.method_not_allowed()


def check_shape(visit: Visit) -> None:
    """Refuse impossible combinations of path and method.

    Raises:
        ApiError: 400, 404 or 405.
    """
    resource, target, verb = visit.resource, visit.target, visit.verb
    if target.namespace and not resource.namespaced:
        raise errors.no_such_path()
    if target.subresource and target.subresource not in resource.subresources:
        raise errors.no_such_path()
    if (
        resource.namespaced
        and not target.namespace
        and (target.name or verb in ("create", "deletecollection"))
    ):
        raise errors.method_not_allowed() if verb == "create" else errors.no_such_path()
    if verb == "create" and target.name and target.subresource not in CREATED:
        raise errors.method_not_allowed()
    if verb == "deletecollection" and resource.plural in ("namespaces", "customresourcedefinitions"):
        raise errors.method_not_allowed()
    if not target.name and verb in ("update", "patch"):
        raise errors.method_not_allowed()
    if target.subresource in CREATED and verb != "create":
        raise errors.method_not_allowed()
    if target.subresource == "status" and verb in ("create", "delete"):
        raise errors.method_not_allowed()


def check_kind(visit: Visit, item: Json, *, kind: str, version: str = "") -> None:
    """Refuse a body whose kind or version differs from that of the path.

    Raises:
        ApiError: 400.
    """
    wanted = {"apiVersion": version or visit.resource.api_version(visit.target.version), "kind": kind}
    for key, expected in wanted.items():
        actual = item.get(key)
        if actual and actual != expected:
            text = f"the {key} in the data ({actual}) does not match the expected {key} ({expected})"
            raise errors.bad_request(text)


def options_kind(visit: Visit) -> str:
    """Return the kind of a write's options for errors about them."""
    return {"create": "CreateOptions", "update": "UpdateOptions"}.get(visit.verb, "PatchOptions")


def is_dry_run(visit: Visit) -> bool:
    """Return true if the write must not be stored.

    Raises:
        ApiError: 422, the value is not ``All``.
    """
    value = visit.query.get("dryRun")
    if value and value != "All":
        cause = errors.unsupported_value("dryRun", value, ("All",))
        raise errors.invalid_error("Options", "meta.k8s.io", "", [cause])
    return bool(value)


def success(visit: Visit, outcome: Written) -> Json:
    """Return the Status of a finished delete."""
    metadata = outcome.item["metadata"]
    details = {"name": metadata["name"], "kind": visit.resource.plural, "uid": metadata["uid"]}
    if visit.resource.group:
        details["group"] = visit.resource.group
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
