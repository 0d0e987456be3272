"""The control of faults over HTTP, for tests and tools in other processes; only ``system:masters`` may use it.

Real servers do not have this endpoint:

| request | effect |
|---|---|
| ``GET /mocks/drawbar.dev/v1/faults`` | the active faults: ``{"faults": [{"id", "met", "struck", "fault"}]}`` |
| ``POST /mocks/drawbar.dev/v1/faults`` | add one fault, or several as ``{"faults": [...]}``; answers with them |
| ``DELETE /mocks/drawbar.dev/v1/faults`` | lift all |
| ``DELETE /mocks/drawbar.dev/v1/faults/ID`` | lift one |
| ``POST /mocks/drawbar.dev/v1/restart`` | drop all other connections and forget the history, as a restart does |

A fault as JSON or YAML (``faults`` explains the fields; all but ``effect`` have defaults):

    {"name": "lost replies", "select": {"user": "system:serviceaccount:drawbar:*", "verb": "patch"},
     "when": {"times": 3}, "effect": {"kind": "refusal", "code": 500, "after": true}}
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import yaml
from aiohttp import web

from drawbar.mocks.apiserver import errors, rbac, requests
from drawbar.mocks.apiserver.faults import Fault, Faults, Handle

Json = dict[str, Any]
PREFIX = "/mocks/drawbar.dev/v1/"


class InvalidFaultsError(ValueError):
    """The faults cannot be decoded; the text is one sentence."""


class Control:
    """The handler of requests to the endpoint."""

    def __init__(self, active: Faults, restart: Callable[[asyncio.BaseTransport | None], None]) -> None:
        """Add to and lift from ``active``; ``restart`` drops all connections but one."""
        self._faults = active
        self._restart = restart

    async def handle(self, request: web.Request, caller: rbac.User | None) -> web.Response:
        """Answer one request; errors are ``Status`` objects."""
        try:
            return await self._answer(request, caller)
        except errors.ApiError as error:
            return _json(error.body(), error.code)

    async def _answer(self, request: web.Request, caller: rbac.User | None) -> web.Response:
        if caller is None:
            raise errors.unauthorized_error()
        if rbac.MASTERS not in caller.groups:
            wanted = rbac.Attributes(verb=request.method.lower(), path=request.path)
            raise errors.forbidden_error("", "", "", rbac.refusal(caller, wanted))
        match request.method, request.path.removeprefix(PREFIX).rstrip("/").split("/"):
            case "GET", ["faults"]:
                return _json({"faults": [_encode_handle(handle) for handle in self._faults]})
            case "POST", ["faults"]:
                return _json({"faults": [_encode_handle(handle) for handle in await self._add(request)]}, 201)
            case "DELETE", ["faults"]:
                self._faults.clear()
                return _json({"faults": []})
            case "DELETE", ["faults", identity]:
                handle = self._faults.get(identity)
                if handle is None:
                    raise errors.not_found("faults", "drawbar.dev", identity)
                handle.lift()
                return _json(_encode_handle(handle))
            case "POST", ["restart"]:
                self._restart(request.transport)
                return _json({"restarted": True})
            case _, ["faults"] | ["faults", _] | ["restart"]:
                raise errors.method_not_allowed()
            case _:
                raise errors.no_such_path()

    async def _add(self, request: web.Request) -> list[Handle]:
        accepted = (requests.JSON_TYPE, requests.YAML_TYPE)
        body = requests.decode(await request.read(), request.content_type, accepted)
        try:
            return [self._faults.add(fault) for fault in parse(body)]
        except ValueError as error:
            raise errors.bad_request(str(error)) from error


def parse(document: Any) -> list[Fault]:
    """Return the faults in a decoded document: one fault, a list of them, or ``{"faults": [...]}``.

    Raises:
        InvalidFaultsError: the document is invalid; the message names the first mistake and its place.
    """
    if isinstance(document, dict) and "faults" in document and "effect" not in document:
        document = document["faults"]
    documents = document if isinstance(document, list) else [document]
    try:
        return msgspec.convert(documents, list[Fault])
    except msgspec.ValidationError as error:
        raise InvalidFaultsError(f"the faults cannot be read: {error}") from error


def load(path: Path) -> list[Fault]:
    """Return the faults in a YAML or JSON file.

    Raises:
        InvalidFaultsError: the file is invalid; the message names it and the first mistake.
        OSError: the file cannot be read.
    """
    try:
        return parse(yaml.safe_load(path.read_bytes()))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        text = str(error).splitlines()[0]
        raise InvalidFaultsError(f"{path} is not a YAML file: {text}") from error
    except InvalidFaultsError as error:
        raise InvalidFaultsError(f"{path}: {error}") from error


def _encode_handle(handle: Handle) -> Json:
    fault: Json = msgspec.to_builtins(handle.fault)
    return {"id": handle.id, "met": handle.met, "struck": handle.struck, "fault": fault}


def _json(body: Json, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), status=status, content_type=requests.JSON_TYPE)
