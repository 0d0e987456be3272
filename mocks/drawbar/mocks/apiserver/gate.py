"""The common steps before every request: active faults, the time limit, and the body.

A request over the time limit, such as a half-sent body, is answered with a 504 as by the real server. Open watches are
exempt. The body is read here, once for all. A body that breaks off or violates HTTP is the client's error. Limits: no
query parameter ``timeout``, and no time limit for a client's headers.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Mapping

import msgspec
from aiohttp import web

from drawbar.mocks.apiserver import errors, faultcontrol, faults, interference, rbac, requests, visits
from drawbar.mocks.apiserver.faults import Asked, Faults, Handle

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    410: "Expired",
    422: "Invalid",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}
_TEXTS = {
    410: errors.TOO_OLD,
    500: "Internal error occurred: etcdserver: request timed out",
}
_THROTTLED = "Too many requests, please try again later."


class _CutError(Exception):
    """The connection must end without an answer."""


class Gate:
    """The outermost handler."""

    def __init__(
        self,
        handler: Handler,
        active: Faults,
        users: Mapping[str, rbac.User],
        control: faultcontrol.Control,
        *,
        request_seconds: float,
    ) -> None:
        """Pass requests to ``handler``, unless ``active`` faults strike them."""
        self._handler = handler
        self._faults = active
        self._users = users
        self._control = control
        self._seconds = request_seconds

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        try:
            async with asyncio.timeout(self._seconds) as limit:
                return await self._answer(request, limit)
        except TimeoutError:
            text = "Timeout: request did not complete within the allotted timeout"
            return _status(errors.ApiError(code=504, reason="Timeout", message=text))
        except _CutError:
            _abort(request)
            return web.Response(status=500)  # the connection is closed already
        except web.HTTPRequestEntityTooLarge:
            return _status(errors.too_large(requests.BODY_LIMIT))
        except web.RequestPayloadError as error:
            return _status(errors.bad_request(f"the body of the request cannot be read: {error}"))

    async def _answer(self, request: web.Request, limit: asyncio.Timeout) -> web.StreamResponse:
        caller = self._caller(request)
        if caller is not None and request.body_exists:
            await request.read()
        if request.path.startswith(faultcontrol.PREFIX):
            return await self._control.handle(request, caller)
        asked = self._describe_request(request, caller)
        struck: list[Handle] = []
        if self._faults:
            struck = self._faults.find_striking_faults(await self._add_body_name(request, asked))
            refused = await self._disturb_request(asked, struck, limit)
            if refused is not None:
                return refused
        if asked.verb != "watch":
            return await self._disturb_answer(asked, struck, await self._handler(request))
        limit.reschedule(None)
        interference.CURRENT.set(interference.Stream(self._faults, asked, lambda: _abort(request)))
        return await self._handler(request)

    def _caller(self, request: web.Request) -> rbac.User | None:
        """Return the caller; None for an unknown token."""
        header = request.headers.get("Authorization", "")
        if not header:
            return rbac.ANONYMOUS
        scheme, _, token = header.partition(" ")
        return self._users.get(token.strip()) if scheme.lower() == "bearer" else None

    def _describe_request(self, request: web.Request, caller: rbac.User | None) -> Asked:
        user = caller.name if caller is not None else ""
        target = requests.target(request.path)
        if target is None or not target.plural:
            return Asked(user=user, verb=request.method.lower())
        try:
            verb = visits.verb_of(request, target)
        except errors.ApiError:  # an unknown method; the handler refuses it
            verb = request.method.lower()
        agent = request.headers.get("User-Agent", "").split("/")[0]
        return Asked(
            user=user,
            verb=verb,
            group=target.group,
            resource=target.plural,
            subresource=target.subresource,
            namespace=target.namespace,
            name=target.name,
            manager=request.query.get("fieldManager") or agent,
        )

    async def _add_body_name(self, request: web.Request, asked: Asked) -> Asked:
        """Return a creation with the name in its body; the body is decoded only if a fault selects names."""
        if asked.verb != "create" or asked.name or all(h.fault.select.name == "*" for h in self._faults):
            return asked
        accepted = (requests.JSON_TYPE, requests.YAML_TYPE)
        try:
            item = requests.decode(await request.read(), request.content_type, accepted)
        except errors.ApiError:  # the handler refuses it
            return asked
        metadata = item.get("metadata") if isinstance(item, dict) else None
        name = metadata.get("name") if isinstance(metadata, dict) else None
        return dataclasses.replace(asked, name=name) if isinstance(name, str) else asked

    async def _disturb_request(
        self, asked: Asked, struck: list[Handle], limit: asyncio.Timeout
    ) -> web.Response | None:
        """Carry out the faults before the request; return an answer if it is refused."""
        for handle in struck:
            match handle.fault.effect:
                case faults.Latency(after=False, seconds=seconds):
                    await interference.pause(handle, seconds)
                case faults.Partition():
                    limit.reschedule(None)
                    await interference.pause(handle, self._seconds)
                    if not handle.lifted.is_set():
                        raise _CutError
                    limit.reschedule(asyncio.get_running_loop().time() + self._seconds)
                case faults.Disconnect(after=after) if not after or asked.verb == "watch":
                    raise _CutError
                case faults.Refusal(after=after) as effect if not after or asked.verb == "watch":
                    return _refusal(effect, asked)
                case _:
                    pass
            if self._faults.closed:
                raise _CutError
        return None

    async def _disturb_answer(
        self, asked: Asked, struck: list[Handle], response: web.StreamResponse
    ) -> web.StreamResponse:
        """Return the answer after the request, changed by its faults."""
        for handle in struck:
            match handle.fault.effect:
                case faults.Latency(after=True, seconds=seconds):
                    await interference.pause(handle, seconds)
                case faults.Disconnect(after=True):
                    raise _CutError
                case faults.Refusal(after=True) as effect:
                    return _refusal(effect, asked)
                case _:
                    pass
        return response


def _refusal(effect: faults.Refusal, asked: Asked) -> web.Response:
    """Return the answer of a refusal, in the real server's words unless the fault has a message."""
    after = effect.retry_after
    if effect.code == 429:
        text = effect.message or _THROTTLED
        return web.Response(text=f"{text}\n", status=429, headers={"Retry-After": str(after or 1)})
    if effect.code == 409:
        error = errors.conflict(asked.resource, asked.group, asked.name, errors.STALE)
        if asked.verb == "create":
            error = errors.already_exists(asked.resource, asked.group, asked.name)
    else:
        text = _TEXTS.get(effect.code, "the server is currently unable to handle the request").format(
            asked.verb
        )
        error = errors.ApiError(code=effect.code, reason=_REASONS.get(effect.code, ""), message=text)
    if effect.message:
        error.message = effect.message
    if after is not None:
        error.details = {**error.details, "retryAfterSeconds": after}
    response = _status(error)
    if after is not None:
        response.headers["Retry-After"] = str(after)
    return response


def _status(error: errors.ApiError) -> web.Response:
    body = msgspec.json.encode(error.body())
    return web.Response(body=body, status=error.code, content_type=requests.JSON_TYPE)


def _abort(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()
