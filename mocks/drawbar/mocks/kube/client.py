"""A small client of the API server: objects in, objects out.

Objects are decoded into the caller's types; `dict` is one of them. The client retries nothing, because only the caller
knows whether its request is still right. Every request has a deadline and a largest answer.
"""

import enum
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import aiohttp
import msgspec

from drawbar.mocks.kube import errors, kinds
from drawbar.mocks.kube.connections import Connection

T = TypeVar("T")
JSON = "application/json"
REQUEST_SECONDS = 30.0
WATCH_SECONDS = 300
PAGE = 500
ANSWER_BYTES = 64 << 20


class Patch(enum.StrEnum):
    """The kinds of PATCH, by content type."""

    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing(Generic[T]):
    """The objects of a collection, and the version from which a watch continues."""

    items: tuple[T, ...]
    resource_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchEvent(Generic[T]):
    """A line of a watch: ADDED, MODIFIED or DELETED with the object; BOOKMARK without."""

    type: str
    item: T | None
    resource_version: str


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _Page(msgspec.Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


class _Line(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Versioned(msgspec.Struct):
    metadata: _ListMeta


class Client:
    """One API server as one caller. Make it with `connecting`."""

    def __init__(self, session: aiohttp.ClientSession, connection: Connection) -> None:
        self._session = session
        self._connection = connection

    async def read(self, kind: kinds.Kind, name: str, *, into: type[T], namespace: str | None = None) -> T:
        """Return one object."""
        return await self._send("GET", kind.path(namespace=namespace, name=name), into)

    async def list_all(
        self,
        kind: kinds.Kind,
        *,
        into: type[T],
        namespace: str | None = None,
        labels: str = "",
        fields: str = "",
    ) -> Listing[T]:
        """Return all objects that match."""
        items: list[T] = []
        query = _selection(labels, fields) | {"limit": str(PAGE)}
        path = kind.path(namespace=namespace)
        while True:
            page = await self._send("GET", path, _Page, query)
            items += [_decode(f"GET {path}", raw, into) for raw in page.items or ()]
            if not page.metadata.continue_:
                return Listing(items=tuple(items), resource_version=page.metadata.resource_version)
            query["continue"] = page.metadata.continue_

    async def watch(
        self,
        kind: kinds.Kind,
        *,
        into: type[T],
        resource_version: str,
        namespace: str | None = None,
        labels: str = "",
        fields: str = "",
    ) -> AsyncIterator[WatchEvent[T]]:
        """Yield the changes since `resource_version` until the API server ends the stream.

        Raises:
            errors.Expired: the version is no longer kept.
            errors.Unreachable: the stream broke.
        """
        path = kind.path(namespace=namespace)
        query = _selection(labels, fields) | {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(WATCH_SECONDS),
        }
        # The API server ends the stream in time; longer silence is a fault.
        limits = aiohttp.ClientTimeout(
            sock_connect=REQUEST_SECONDS, sock_read=WATCH_SECONDS + REQUEST_SECONDS
        )
        async with self._answer("GET", path, query, timeout=limits) as response:
            async for text in _lines(response.content):
                line = _decode(f"WATCH {path}", text, _Line)
                if line.type == "ERROR":
                    status = msgspec.json.decode(line.object, type=dict[str, Any])
                    raise errors.refusal(f"WATCH {path}", int(status.get("code") or 500), bytes(line.object))
                version = _decode(f"WATCH {path}", line.object, _Versioned).metadata.resource_version
                item = _decode(f"WATCH {path}", line.object, into) if line.type != "BOOKMARK" else None
                yield WatchEvent(type=line.type, item=item, resource_version=version)

    async def create(
        self, kind: kinds.Kind, body: object, *, into: type[T], namespace: str | None = None
    ) -> T:
        """Create an object; return it as stored."""
        return await self._send("POST", kind.path(namespace=namespace), into, body=body)

    async def replace(
        self,
        kind: kinds.Kind,
        name: str,
        body: object,
        *,
        into: type[T],
        namespace: str | None = None,
        subresource: str | None = None,
    ) -> T:
        """Replace an object whole; return it as stored."""
        path = kind.path(namespace=namespace, name=name, subresource=subresource)
        return await self._send("PUT", path, into, body=body)

    async def patch(
        self,
        kind: kinds.Kind,
        name: str,
        body: object,
        *,
        content: Patch,
        into: type[T],
        namespace: str | None = None,
        subresource: str | None = None,
        manager: str = "",
    ) -> T:
        """Change some fields of an object; return it as stored. `manager` owns the fields that `Patch.APPLY` writes."""
        query = {"fieldManager": manager} if manager else {}
        if content is Patch.APPLY:
            query["force"] = "true"
        path = kind.path(namespace=namespace, name=name, subresource=subresource)
        return await self._send("PATCH", path, into, query, body=body, content=content)

    async def delete(
        self, kind: kinds.Kind, name: str, *, namespace: str | None = None, uid: str = ""
    ) -> None:
        """Delete an object, if it has this uid. A missing object is success."""
        conditions = {"uid": uid} if uid else {}
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": conditions}
        try:
            await self.request("DELETE", kind.path(namespace=namespace, name=name), body=body)
        except errors.NotFound:
            return

    async def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        body: object = None,
        content: str = JSON,
    ) -> bytes:
        """Send a request; return the body of the answer.

        Raises:
            errors.KubeError: one of its kinds, by the answer.
        """
        async with self._answer(method, path, query or {}, body=body, content=content) as response:
            return await _read_whole(response)

    async def _send(
        self, method: str, path: str, into: type[T], query: Mapping[str, str] | None = None, **options: Any
    ) -> T:
        return _decode(f"{method} {path}", await self.request(method, path, query, **options), into)

    @asynccontextmanager
    async def _answer(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        *,
        body: object = None,
        content: str = JSON,
        **options: Any,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Yield the answer to a request, unless it is a refusal."""
        headers = {"Accept": JSON} | ({} if body is None else {"Content-Type": str(content)})
        if authorization := self._connection.authorization():
            headers["Authorization"] = authorization
        data = None if body is None else msgspec.json.encode(body)
        url = self._connection.server + path
        try:
            async with self._session.request(
                method, url, params=query, data=data, headers=headers, **options
            ) as response:
                if response.status >= 400:
                    pause = response.headers.get("Retry-After", "")
                    raise errors.refusal(
                        f"{method} {path}", response.status, await _read_whole(response), pause
                    )
                yield response
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            raise errors.Unreachable(f"{method} {path}: no answer: {reason}") from error


@asynccontextmanager
async def connecting(connection: Connection) -> AsyncIterator[Client]:
    """Yield a client. Nothing is sent on entry."""
    async with session(connection) as opened:
        yield Client(opened, connection)


@asynccontextmanager
async def session(connection: Connection) -> AsyncIterator[aiohttp.ClientSession]:
    """Yield an HTTP session with any number of connections to the API server; cookies are not kept."""
    tls = connection.tls if connection.tls is not None else True
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=tls, limit=0),
        timeout=aiohttp.ClientTimeout(total=REQUEST_SECONDS),
        cookie_jar=aiohttp.DummyCookieJar(),
    ) as opened:
        yield opened


async def _read_whole(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > ANSWER_BYTES:
            raise errors.Unreachable(f"{response.method} {response.url.path}: the answer is too large")
    return bytes(body)


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    rest = bytearray()
    async for chunk in content.iter_any():
        *whole, last = (rest + chunk).split(b"\n") if b"\n" in chunk else (rest + chunk,)
        for line in whole:
            yield bytes(line)
        rest = last
        if len(rest) > ANSWER_BYTES:
            raise errors.Unreachable("a line of the watch is too large")


def _decode(request: str, text: bytes | msgspec.Raw, into: type[T]) -> T:
    try:
        try:
            return msgspec.json.decode(text, type=into)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return msgspec.json.decode(_unicode(bytes(text)), type=into)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise errors.Unreachable(f"{request}: the answer is not what was asked for: {error}") from error


def _unicode(text: bytes) -> str:
    """Return JSON with U+FFFD for each byte and each surrogate that is no Unicode.

    Opaque parameters of a claim may hold such text, and the API server sends it as it was written.
    """
    written = json.dumps(json.loads(text.decode(errors="replace")), ensure_ascii=False)
    return written.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _selection(labels: str, fields: str) -> dict[str, str]:
    named = {"labelSelector": labels, "fieldSelector": fields}
    return {name: selector for name, selector in named.items() if selector}
