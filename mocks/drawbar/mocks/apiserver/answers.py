"""Answers: JSON bodies, the requested form, and the warnings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aiohttp import web

from drawbar.mocks.apiserver import requests, streams
from drawbar.mocks.apiserver.requests import JSON_TYPE
from drawbar.mocks.apiserver.visits import Visit

Json = dict[str, Any]
WARNINGS_LIMIT = 32  # Warning headers of one answer
_TEXT_LIMIT = 256  # characters of one


def as_json(body: Any, status: int = 200) -> web.Response:
    """Return a JSON answer."""
    return web.Response(body=requests.encode(body), status=status, content_type=JSON_TYPE)


def warn(response: web.StreamResponse, warnings: Iterable[str]) -> None:
    """Add the ``Warning`` headers, each text once."""
    for text in list(dict.fromkeys(warnings))[:WARNINGS_LIMIT]:
        plain = " ".join(text[:_TEXT_LIMIT].split()).replace("\\", "\\\\").replace('"', '\\"')
        response.headers.add("Warning", f'299 - "{plain}"')


def make_list_item(visit: Visit, item: Json) -> Json:
    """Return an object for a list; built-in kinds omit kind and apiVersion there."""
    if visit.resource.custom:
        return visit.resource.convert_to_version(item, visit.target.version)
    return visit.resource.rename_fields(item, visit.target.version)


def view(visit: Visit) -> streams.View:
    """Return the requested view of objects.

    Raises:
        ApiError: 406.
    """
    return streams.View(
        resource=visit.resource,
        version=visit.target.version,
        namespace=visit.target.namespace,
        form=requests.answer(visit.request.headers.get("Accept", "")).form,
        query=visit.query,
    )
