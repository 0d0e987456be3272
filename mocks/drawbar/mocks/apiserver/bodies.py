"""The bodies of requests, decoded and checked by the common rules of all resources."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import yaml
from aiohttp import web

from drawbar.mocks.apiserver import decoding, errors, protobuf, requests, visits
from drawbar.mocks.apiserver.requests import APPLY_TYPE, JSON_TYPE, YAML_TYPE
from drawbar.mocks.apiserver.typetable import TypeTable
from drawbar.mocks.apiserver.visits import Visit

Json = dict[str, Any]

_DUPLICATES_LIMIT = 100  # complaints of one body that are reported
_DELETE_OPTIONS = frozenset({"dryRun", "gracePeriodSeconds", "orphanDependents", "propagationPolicy"})


async def read_object(request: web.Request, accepted: tuple[str, ...]) -> Json:
    """Return the body as one object.

    Raises:
        ApiError: 400, 413 or 415.
    """
    item = requests.decode(await request.read(), request.headers.get("Content-Type", ""), accepted)
    if not isinstance(item, dict):
        raise errors.bad_request("the body must be one JSON object")
    return item


async def read_item(visit: Visit, types: TypeTable) -> Json:
    """Return the body as an object in its stored form (a Binding or Eviction unchanged).

    Raises:
        ApiError: 400 (also for another kind than the path's, and for fields that ``fieldValidation`` refuses), 413,
            415 or 422.
    """
    item = await read_object(visit.request, (JSON_TYPE, YAML_TYPE))
    if visit.target.subresource == "eviction":
        visits.check_kind(visit, item, kind="Eviction", version="policy/v1")
        return item
    binding = visit.target.subresource == "binding"
    visits.check_kind(visit, item, kind="Binding" if binding else visit.resource.kind)
    if binding:
        return item
    strictness = decoding.level(visit.query.get("fieldValidation"), visits.options_kind(visit))
    kind, version = visit.resource.kind, visit.target.version
    try:
        item, unknown = decoding.decode(item, visit.resource, version, types)
    except decoding.MistypedError as error:
        raise decoding.complaint(error, kind, version) from error
    twice = [] if strictness == "Ignore" else await _find_duplicates(visit.request)
    texts = decoding.strict_text(unknown, twice)
    if texts and strictness == "Strict":
        raise errors.bad_request(
            f'{kind} in version "{version}" cannot be handled as a {kind}: '
            f"strict decoding error: {', '.join(texts)}"
        )
    if strictness == "Warn":
        visit.warnings.extend(texts)
    return visit.resource.convert_to_stored({"metadata": {}, **item}, version)


def decode_patched(visit: Visit, item: Json, types: TypeTable) -> Json:
    """Return a patched object (in its served form), decoded by its type.

    Raises:
        ApiError: 422, the patch leaves something that cannot be decoded, or that ``fieldValidation`` refuses.
    """
    strictness = decoding.level(visit.query.get("fieldValidation"), visits.options_kind(visit))
    try:
        decoded, unknown = decoding.decode(item, visit.resource, visit.target.version, types)
    except decoding.MistypedError as error:
        raise _bad_patch(item, str(error)) from error
    texts = decoding.strict_text(unknown, ())
    if texts and strictness == "Strict":
        raise _bad_patch(item, f"strict decoding error: {', '.join(texts)}")
    if strictness == "Warn":
        visit.warnings.extend(texts)
    return decoded


async def read_configuration(visit: Visit, types: TypeTable, accepted: tuple[str, ...]) -> Json:
    """Return the body of a server-side apply in its stored form.

    Raises:
        ApiError: 400, 415, 422 or 500 (a field that the type does not know or that has the wrong type).
    """
    body = await visit.request.read()
    config = requests.decode(body, APPLY_TYPE, accepted)
    if not isinstance(config, dict):
        raise errors.bad_request("an applied configuration is one object")
    for key in ("apiVersion", "kind"):
        if not config.get(key):
            raise errors.bad_request(f"error decoding patch: {key} must be set in an applied configuration")
    resource, target = visit.resource, visit.target
    visits.check_kind(visit, config, kind=resource.kind)
    strictness = decoding.level(visit.query.get("fieldValidation"), "PatchOptions")
    if strictness != "Ignore":
        twice = _duplicates_in_yaml(body)
        if twice and strictness == "Strict":
            raise errors.bad_request(f"error strict decoding YAML: {', '.join(twice)}")
        visit.warnings.extend(twice)
    kind = f"{resource.api_version(target.version)}, Kind={resource.kind}"
    failure = f"failed to create typed patch object ({target.namespace}/{target.name}; {kind})"
    try:
        decoded, unknown = decoding.decode(config, resource, target.version, types)
    except decoding.MistypedError as error:
        raise errors.internal_error(f"{failure}: .{error.path}: expected {error.expected}") from error
    if unknown:
        raise errors.internal_error(f"{failure}: .{unknown[0]}: field not declared in schema")
    return resource.convert_to_stored({"metadata": {}, **decoded}, target.version)


async def delete_options(visit: Visit) -> Json:
    """Return the DeleteOptions of a delete; empty without a body.

    Raises:
        ApiError: 400, 413 or 415.
    """
    body = await visit.request.read()
    if not body.strip():
        return {}
    if visit.request.content_type == protobuf.CONTENT_TYPE:
        return {}  # of DeleteOptions, kubectl's typed commands set the propagation only
    options = requests.decode(
        body, visit.request.content_type, (JSON_TYPE, YAML_TYPE, "application/octet-stream")
    )
    if not isinstance(options, dict) or not isinstance(options.get("preconditions") or {}, dict):
        raise errors.bad_request("the body of a delete is a DeleteOptions object")
    return options


async def with_delete_options(visit: Visit) -> Visit:
    """Apply the DeleteOptions to the visit: if a delete has a body, the query's options, ``dryRun`` too, are ignored.

    Raises:
        ApiError: 400, 413 or 415.
    """
    if (
        visit.verb not in ("delete", "deletecollection")
        or visit.request.content_type == protobuf.CONTENT_TYPE
    ):
        return visit
    if not (await visit.request.read()).strip():
        return visit
    dry_run = (await delete_options(visit)).get("dryRun") or []
    if not isinstance(dry_run, list) or not all(isinstance(value, str) for value in dry_run):
        raise errors.bad_request("dryRun of a DeleteOptions object is a list of strings")
    query = {key: value for key, value in visit.query.items() if key not in _DELETE_OPTIONS}
    return replace(visit, query=query | ({"dryRun": dry_run[0]} if dry_run else {}))


async def _find_duplicates(request: web.Request) -> list[str]:
    body, kind = await request.read(), request.content_type
    if kind == protobuf.CONTENT_TYPE:
        return []
    try:
        return _duplicates_in_json(body)
    except ValueError:  # it was YAML
        return _duplicates_in_yaml(body)


def _bad_patch(item: Json, text: str) -> errors.ApiError:
    """Return the error for a bad patch; the real server names neither kind nor object here."""
    return errors.invalid_error("", "", "", [errors.invalid_value("patch", item, text)])


class _Doubled(dict[str, Any]):
    """An object of the body with repeated keys."""

    again: tuple[str, ...] = ()


def _duplicates_in_json(body: bytes) -> list[str]:
    """Return the paths of repeated fields in a JSON body; decoders keep the last value silently."""
    seen = False

    def keep(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal seen
        item = dict(pairs)
        if len(item) == len(pairs):
            return item
        seen = True
        doubled, again, passed = _Doubled(item), [], set()
        for key, _ in pairs:
            if key in passed:
                again.append(key)
            passed.add(key)
        doubled.again = tuple(dict.fromkeys(again))
        return doubled

    value = json.loads(body.decode(errors="replace"), object_pairs_hook=keep)
    return list(_paths(value, ""))[:_DUPLICATES_LIMIT] if seen else []


def _duplicates_in_yaml(body: bytes) -> list[str]:
    """Return the messages about repeated fields in a YAML body: ``line 7: key "data" already set in map``."""
    with contextlib.suppress(
        ValueError
    ):  # most YAML that clients send is JSON, which is read 50 times faster
        if not _duplicates_in_json(body):
            return []
    root = yaml.compose(body, Loader=yaml.SafeLoader)
    return list(_nodes(root))[:_DUPLICATES_LIMIT]


def _paths(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value, _Doubled):
            yield from (f"{path}.{key}" if path else key for key in value.again)
        for key, inner in value.items():
            yield from _paths(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _paths(inner, f"{path}[{index}]")


def _nodes(node: yaml.Node | None) -> Iterator[str]:
    if isinstance(node, yaml.MappingNode):
        passed: set[str] = set()
        for key, inner in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in passed:
                    yield f'line {key.start_mark.line + 1}: key "{key.value}" already set in map'
                passed.add(key.value)
            yield from _nodes(inner)
    elif isinstance(node, yaml.SequenceNode):
        for inner in node.value:
            yield from _nodes(inner)
