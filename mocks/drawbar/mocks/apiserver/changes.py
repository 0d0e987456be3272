"""Requests for changes: create, update, patch, apply and delete over HTTP."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from drawbar.mocks.apiserver import (
    access,
    answers,
    bodies,
    errors,
    evictions,
    lifecycle,
    listing,
    patches,
    requests,
    reviews,
    typetable,
    visits,
)
from drawbar.mocks.apiserver.builtin import DEFINITIONS
from drawbar.mocks.apiserver.registry import Registry, Written
from drawbar.mocks.apiserver.requests import APPLY_TYPE, JSON_TYPE, YAML_TYPE
from drawbar.mocks.apiserver.strategies import Call
from drawbar.mocks.apiserver.visits import Visit

Json = dict[str, Any]

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
_PATCH_TYPES = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_TYPE)
_POLICIES = ("Orphan", "Background", "Foreground")


async def carry_out(registry: Registry, desk: reviews.Desk, visit: Visit) -> web.Response:
    """Carry out the request and return the answer.

    Raises:
        ApiError: it is refused.
    """
    types = typetable.table(registry.profile)
    match visit.verb:
        case "create" if visit.target.subresource == "token":
            return await _token(registry, desk, visit)
        case "create":
            item = await bodies.read_item(visit, types)
            if visit.target.subresource == "binding":
                return answers.as_json(_bind(registry, visit, item), 201)
            if visit.target.subresource == "eviction":
                return answers.as_json(evictions.evict(registry, _call(visit), item), 201)
            return _answer_write(registry, visit, registry.create(_call(visit), item))
        case "update":
            item = await bodies.read_item(visit, types)
            return _answer_write(registry, visit, registry.update(_call(visit), item))
        case "patch":
            return await _patch(registry, visit)
        case "delete":
            return await _delete(registry, visit)
        case _:
            return await _delete_all(registry, visit)


def _bind(registry: Registry, visit: Visit, binding: Json) -> Json:
    """Assign a pod to the binding's target node; return a Status.

    Raises:
        ApiError: 404, 409 (another uid, being deleted, or assigned already) or 422 (no target).
    """
    node = (binding.get("target") or {}).get("name") if isinstance(binding.get("target"), dict) else None
    if not node:
        cause = errors.required_value("target.name")
        raise errors.invalid_error("Binding", "", visit.target.name, [cause])
    pod = registry.find(visit.resource, visit.target.namespace, visit.target.name)
    held = pod["spec"].get("nodeName")
    uid = (binding.get("metadata") or {}).get("uid")
    problem = ""
    if uid and uid != pod["metadata"]["uid"]:
        problem = (
            f"Precondition failed: UID in precondition: {uid}, UID in object meta: {pod['metadata']['uid']}"
        )
    elif pod["metadata"].get("deletionTimestamp"):
        problem = f"pod {visit.target.name} is being deleted, cannot be assigned to a host"
    elif held:
        problem = f'pod {visit.target.name} is already assigned to node "{held}"'
    if problem:
        raise errors.conflict("pods/binding", "", visit.target.name, problem)
    status = pod.get("status") or {}
    conditions = [c for c in status.get("conditions") or () if c.get("type") != "PodScheduled"]
    scheduled = {
        "type": "PodScheduled",
        "status": "True",
        "lastTransitionTime": visit.now,
        "lastProbeTime": None,
    }
    if not visits.is_dry_run(visit):
        bound = {
            **pod,
            "spec": {**pod["spec"], "nodeName": node},
            "status": {**status, "conditions": [*conditions, scheduled]},
        }
        registry.write(visit.resource, bound)
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


async def _token(registry: Registry, desk: reviews.Desk, visit: Visit) -> web.Response:
    """Issue a service account's token, bound to the request's pod."""
    body = await bodies.read_object(visit.request, (JSON_TYPE, YAML_TYPE))
    account = registry.find(visit.resource, visit.target.namespace, visit.target.name)
    bound = (body.get("spec") or {}).get("boundObjectRef") or {}
    pod = None
    if bound.get("kind") == "Pod":
        pods = registry.catalogue.get("", "pods")
        pod = registry.find(pods, visit.target.namespace, str(bound.get("name") or ""))
        if bound.get("uid") not in (None, "", pod["metadata"]["uid"]):
            text = f"the UID in the bound object reference ({bound['uid']}) does not match the UID in record"
            raise errors.conflict("pods", "", pod["metadata"]["name"], text)
    return answers.as_json(desk.token(account, pod, body, now=visit.now), 201)


async def _patch(registry: Registry, visit: Visit) -> web.Response:
    resource, request = visit.resource, visit.request
    accepted = tuple(t for t in _PATCH_TYPES if t != STRATEGIC_PATCH or not resource.custom)
    kind = request.content_type
    if kind == APPLY_TYPE:
        return await _apply(registry, visit, accepted)
    if "force" in visit.query:
        cause = errors.forbidden_value("force", "may not be specified for non-apply patch")
        raise errors.invalid_error("PatchOptions", "meta.k8s.io", "", [cause])
    patch = requests.decode(await request.read(), kind, accepted)
    schema, types = resource.merge_schema(visit.target.version), typetable.table(registry.profile)

    def change(shown: Json) -> Json:
        try:
            if kind == JSON_PATCH:
                result = patches.json_patch(shown, patch)
            elif kind == MERGE_PATCH:
                result = patches.merge_patch(shown, patch)
            else:
                result = patches.strategic_merge(shown, patch, schema)
        except patches.PatchError as error:
            cause = errors.invalid_value("patch", "", str(error))
            raise errors.invalid_error(resource.kind, resource.group, visit.target.name, [cause]) from error
        if not isinstance(result, dict):
            raise errors.bad_request("the patch leaves no object")
        return bodies.decode_patched(visit, result, types)

    return _answer_write(registry, visit, registry.patch(_call(visit), change))


async def _apply(registry: Registry, visit: Visit, accepted: tuple[str, ...]) -> web.Response:
    config = await bodies.read_configuration(visit, typetable.table(registry.profile), accepted)
    if not visit.query.get("fieldManager"):
        cause = errors.required_value("fieldManager", "is required for apply patch")
        raise errors.invalid_error("PatchOptions", "meta.k8s.io", "", [cause])
    stored = registry.store.collection(visit.resource.where).items
    if (visit.target.namespace, visit.target.name) not in stored and not visit.target.subresource:
        access.check_create(registry, visit)
    force = requests.is_true(visit.query.get("force"))
    return _answer_write(registry, visit, registry.apply(_call(visit), config, force=force))


async def _delete(registry: Registry, visit: Visit) -> web.Response:
    options = await bodies.delete_options(visit)
    call, policy = _call(visit), _policy(visit, options)
    preconditions = options.get("preconditions") or {}
    if visit.resource is DEFINITIONS and not call.dry_run:
        item = registry.find(DEFINITIONS, "", call.name)
        registry.check_preconditions(call, item, preconditions)
        registry.write(DEFINITIONS, lifecycle.protect(item))
        preconditions = {}
    grace = options.get("gracePeriodSeconds")
    if not isinstance(grace, int):
        grace = requests.whole_number(visit.query.get("gracePeriodSeconds"), "gracePeriodSeconds")
    outcome = registry.delete(call, grace=grace, preconditions=preconditions, policy=policy)
    if visit.resource is DEFINITIONS and not call.dry_run:
        lifecycle.empty_definition(registry, call, outcome.item)
    elif visit.resource.where == ("", "namespaces"):
        lifecycle.empty_namespace(registry, call)
    if outcome.removed and not visit.resource.returns_object:
        return answers.as_json(visits.success(visit, outcome))
    return _answer_write(registry, visit, outcome)


async def _delete_all(registry: Registry, visit: Visit) -> web.Response:
    policy = _policy(visit, await bodies.delete_options(visit))
    page = listing.page(registry.store, visit.resource, visit.target.namespace, visit.query)
    call = _call(visit)
    for item in page.items:
        metadata = item["metadata"]
        inner = lifecycle.inner_call(call, visit.resource, metadata.get("namespace", ""), metadata["name"])
        registry.admit(inner, None, item)
        registry.remove_or_mark(inner, item, policy=policy)
    items = [answers.make_list_item(visit, item) for item in page.items]
    kind, api = visit.resource.list_kind, visit.resource.api_version(visit.target.version)
    return answers.as_json({"kind": kind, "apiVersion": api, "metadata": page.metadata, "items": items})


def _policy(visit: Visit, options: Json) -> str:
    """Return the propagation policy of a delete, or an empty string.

    Raises:
        ApiError: 422.
    """
    policy = options.get("propagationPolicy") or visit.query.get("propagationPolicy") or ""
    orphans = options.get("orphanDependents")
    if orphans is None and "orphanDependents" in visit.query:
        orphans = requests.is_true(visit.query["orphanDependents"])
    if policy and orphans is not None:
        text = "orphanDependents and deletionPropagation cannot be both set"
        cause = errors.invalid_value("propagationPolicy", policy, text)
        raise errors.invalid_error("DeleteOptions", "", "", [cause])
    if policy and policy not in _POLICIES:
        cause = errors.unsupported_value("propagationPolicy", policy, (*_POLICIES, "nil"))
        raise errors.invalid_error("DeleteOptions", "", "", [cause])
    if orphans is not None:
        return "Orphan" if orphans else "Background"
    return str(policy)


def _call(visit: Visit) -> Call:
    target = visit.target
    agent = visit.request.headers.get("User-Agent", "").split("/")[0]
    if not visit.resource.namespaced and target.namespace:
        raise errors.no_such_path()
    return Call(
        resource=visit.resource,
        version=target.version,
        user=visit.user,
        verb=visit.verb,
        now=visit.now,
        namespace=target.namespace,
        name=target.name,
        subresource=target.subresource,
        manager=(visit.query.get("fieldManager") or agent or "unknown")[:128],
        dry_run=visits.is_dry_run(visit),
        warnings=visit.warnings,
    )


def _answer_write(registry: Registry, visit: Visit, outcome: Written) -> web.Response:
    item = outcome.item
    defines = visit.resource is DEFINITIONS and visit.verb != "delete"
    if defines and not outcome.removed and not visits.is_dry_run(visit):
        now = lifecycle.establish(registry, item["metadata"]["name"], visit.now)
        item = item if outcome.created else now
    shown = answers.view(visit).render_item(item, visit.now)
    return answers.as_json(shown, 201 if outcome.created else 200)
