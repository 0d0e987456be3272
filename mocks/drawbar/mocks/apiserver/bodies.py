"""The bodies of requests, decoded and checked as far as every resource has them in common."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from drawbar.mocks.apiserver import errors, protobuf, requests, visits
from drawbar.mocks.apiserver.requests import JSON_TYPE, YAML_TYPE
from drawbar.mocks.apiserver.visits import Visit

Json = dict[str, Any]


async def an_object(request: web.Request, accepted: tuple[str, ...]) -> Json:
    """The body as one object.

    Raises:
        ApiError: 400, 413 or 415.
    """
    item = requests.decode(await request.read(), request.headers.get("Content-Type", ""), accepted)
    if not isinstance(item, dict):
        raise errors.bad_request("the body must be one JSON object")
    return item


async def an_item(visit: Visit) -> Json:
    """The body as an object in its stored form (a Binding as it is).

    Raises:
        ApiError: 400 (also for another kind than the path's), 413 or 415.
    """
    item = await an_object(visit.request, (JSON_TYPE, YAML_TYPE))
    binding = visit.target.subresource == "binding"
    visits.check_kind(visit, item, kind="Binding" if binding else visit.resource.kind)
    return item if binding else visit.resource.stored(item, visit.target.version)


async def delete_options(visit: Visit) -> Json:
    """The DeleteOptions of a delete; empty without a body.

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
