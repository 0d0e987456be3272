"""A small typed client of the API server over aiohttp.

Objects are decoded into the caller's msgspec structs: the generated models of the `kubernetes` package cost 31 MB and
1.6 s at start-up, on every node. Every request has a deadline; errors are `drawbar.driver.kube.errors`, never aiohttp's.
The client retries nothing: only the caller knows whether the state behind the request is still current.

Writes are paced (`Pace`), since after an outage all of them are due at the same moment, and what the API server's own
flow control refuses is sent again.

Source: Kubernetes API concepts (watch, chunked lists, server-side apply).
"""

import asyncio
import contextvars
import enum
import os
import socket
import urllib.parse
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Generic, TypeVar

import aiohttp
import msgspec
from multidict import CIMultiDict

from drawbar.driver.api import meta
from drawbar.driver.kube import bodies, connections, decoding, errors, exclusions, kinds

_PAYER: contextvars.ContextVar[str] = contextvars.ContextVar("payer", default="")


@contextmanager
def writing_for(payer: str) -> Iterator[None]:
    """Have the writes in the block, and in the tasks that begin there, wait in the queue of that payer, such as a Fabric."""
    token = _PAYER.set(payer)
    try:
        yield
    finally:
        _PAYER.reset(token)


class Pace:
    """A limit of the rate of writes. Waiting payers are served in turn, each first come, first served.

    So a payer with any number of writes delays another payer's write by at most one write, and the others use the
    share of an idle payer. The waiting callers bound the memory.

    Args:
        per_second: sustained rate.
        burst: the most writes at once after a quiet time.
    """

    def __init__(self, *, per_second: float, burst: int) -> None:
        self._interval = 1.0 / per_second
        self._burst = burst
        # The time of the next write without a burst, on the event loop's clock.
        self._next = 0.0
        # By payer, in the order in which they are served.
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def take(self) -> None:
        """Wait until this caller may write."""
        loop = asyncio.get_running_loop()
        if not self._waiting and self._start(loop.time()) <= loop.time():
            self._next = self._start(loop.time()) + self._interval
            return
        place = loop.create_future()
        self._waiting.setdefault(_PAYER.get(), deque()).append(place)
        if self._timer is None:
            self._timer = loop.call_at(self._start(loop.time()), self._serve)
        await place

    def _start(self, now: float) -> float:
        """Return when the next write may begin."""
        return max(self._next, now - (self._burst - 1) * self._interval)

    def _serve(self) -> None:
        """Let those write for whom it is time, and come again for the others."""
        loop = asyncio.get_running_loop()
        while self._waiting and (start := self._start(loop.time())) <= loop.time():
            payer = next(iter(self._waiting))
            queue = self._waiting.pop(payer)
            place = queue.popleft()
            if queue:
                # Behind the others.
                self._waiting[payer] = queue
            if not place.done():
                place.set_result(None)
                self._next = start + self._interval
        self._timer = loop.call_at(self._start(loop.time()), self._serve) if self._waiting else None


T = TypeVar("T")
Count = Callable[[str, str, str], None]
"""Takes the verb of a request that has ended, the plural of its resource with the subresource, and OK or an error's name."""

REQUEST_TIMEOUT_SECONDS = 30.0
CLOSE_SECONDS, CLOSE_PAUSE_SECONDS = 1.0, 0.005
# Objects of a page. The first page is small: the API server builds a whole page, however little of it is read here.
PAGE_FIRST = 50
PAGE_LIMIT = 500
PAGE_STEP = 4
WATCH_TIMEOUT_SECONDS = 300
MESSAGE_LIMIT_CHARS = 500
REQUESTS_LIMIT = 50
"""At once. Watches have further connections, one each."""
KEEPALIVE = {socket.TCP_KEEPIDLE: 30, socket.TCP_KEEPINTVL: 10, socket.TCP_KEEPCNT: 3}
"""A watch may be silent for minutes. A peer that is gone without closing is noticed after 30 + 3 * 10 s."""

JSON = "application/json"
METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
"""The content type of lists with the metadata of each object alone."""


class Patch(enum.StrEnum):
    """The kinds of PATCH, by their content type."""

    MERGE = "application/merge-patch+json"
    JSON = "application/json-patch+json"
    APPLY = "application/apply-patch+yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing(Generic[T]):
    """All objects of a collection, and the version from which a watch continues.

    Attributes:
        unreadable: existing objects that cannot be read.
    """

    items: tuple[T, ...]
    resource_version: str
    unreadable: tuple[exclusions.Unreadable, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchEvent(Generic[T]):
    """One line of a watch: ADDED, MODIFIED or DELETED with the object, or BOOKMARK with only a version.

    Attributes:
        unreadable: replaces the item if it cannot be read.
    """

    type: str
    item: T | None
    resource_version: str
    unreadable: exclusions.Unreadable | None = None


class _Meta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _Page(msgspec.Struct):
    metadata: _Meta
    items: list[msgspec.Raw] | None = None


class _Identity(msgspec.Struct, rename="camel"):
    name: str
    uid: str
    namespace: str = ""
    resource_version: str = ""


class _Identified(msgspec.Struct):
    metadata: _Identity


class _Line(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Versioned(msgspec.Struct):
    metadata: _Meta


class _Kinded(msgspec.Struct):
    kind: str = ""


class _Cause(msgspec.Struct):
    field: str = ""


class _Details(msgspec.Struct):
    causes: list[_Cause] | None = None


class _Status(msgspec.Struct):
    message: str = ""
    reason: str = ""
    code: int = 0
    details: _Details | None = None

    @property
    def names_another_uid(self) -> bool:
        """Return whether the requested object was deleted and created again under its name."""
        causes = self.details.causes if self.details is not None else None
        return any(cause.field == "metadata.uid" for cause in causes or ())


class Client:
    """One API server. Make it with `connecting`."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        watches: aiohttp.ClientSession,
        connection: connections.Connection,
        *,
        writes: Pace | None = None,
        identity: Mapping[str, str] | None = None,
        count: Count | None = None,
    ) -> None:
        self._session = session
        self._watches = watches
        self._connection = connection
        self._writes = writes
        self._identity = identity or {}
        self._count = count

    def skip_pacing(self) -> "Client":
        """Return the same client without pacing, for urgent writes such as the renewal of a lease."""
        return self._with(writes=None)

    def count_requests(self, count: Count) -> "Client":
        """Return the same client, which reports each request to `count` when it ends."""
        return self._with(count=count)

    def acting_as(self, user: str, extra: Mapping[str, str]) -> "Client":
        """Return the same client with the identity of another user; needs the permission to impersonate.

        Args:
            user: such as `system:serviceaccount:NAMESPACE:NAME`, whose groups the API server adds.
            extra: further attributes of the user, by key.
        """
        headers = {
            f"Impersonate-Extra-{urllib.parse.quote(key, safe='')}": value for key, value in extra.items()
        }
        return self._with(identity={"Impersonate-User": user} | headers)

    def _with(self, **changes: Any) -> "Client":
        options = {"writes": self._writes, "identity": self._identity, "count": self._count} | changes
        return Client(self._session, self._watches, self._connection, **options)

    @property
    def server(self) -> str:
        """Return the API server's base URL."""
        return self._connection.server

    async def read(self, kind: kinds.Kind, name: str, *, into: type[T], namespace: str | None = None) -> T:
        """Return one object.

        Raises:
            errors.NotFound: there is none of that name.
        """
        return await self._decoded("GET", kind.path(namespace=namespace, name=name), into)

    async def list_all(
        self,
        kind: kinds.Kind,
        *,
        into: type[T],
        namespace: str | None = None,
        labels: str = "",
        fields: str = "",
    ) -> Listing[T]:
        """Return all objects that match, fetched in pages of bounded size.

        Raises:
            errors.Expired: the collection changed too much between two pages; list again.
        """
        items: list[T] = []
        left_out: list[exclusions.Unreadable] = []
        query = _selectors(labels, fields)
        path = kind.path(namespace=namespace)
        limit = min(PAGE_FIRST, PAGE_LIMIT)
        while True:
            query["limit"] = str(limit)
            try:
                body = await self.request("GET", path, query)
            except errors.TooLarge:
                if limit > 1:
                    limit = max(1, limit // PAGE_STEP)
                    continue
                page = await self._decoded("GET", path, _Page, query, accept=METADATA)
                left_out += [_too_large(raw, kind, f"GET {path}") for raw in page.items or ()]
            else:
                page = _understood(body, _Page, f"GET {path}")
                for raw in page.items or ():
                    try:
                        items.append(decoding.decode(raw, into))
                    except decoding.Malformed as error:
                        left_out.append(_malformed(raw, kind, error, f"GET {path}"))
                if len(body) * PAGE_STEP <= bodies.LIMIT_BYTES:
                    limit = min(PAGE_LIMIT, limit * PAGE_STEP)
            if not page.metadata.continue_:
                version = page.metadata.resource_version
                return Listing(items=tuple(items), resource_version=version, unreadable=tuple(left_out))
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
        """Yield changes since `resource_version` until the server ends the stream; watch on from the last version then.

        Raises:
            errors.Expired: the version is no longer kept; list again.
            errors.TooLarge: an object changed that is too large to be read; list again.
            errors.Unreachable: the stream broke.
        """
        query = _selectors(labels, fields) | {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(WATCH_TIMEOUT_SECONDS),
        }
        path = kind.path(namespace=namespace)
        with self._counting("WATCH", kind.plural):
            try:
                async with self._watches.get(
                    self.server + path,
                    params=query,
                    headers=await self._headers(),
                    # The server closes in time; silence beyond that means that it is stuck.
                    timeout=aiohttp.ClientTimeout(sock_connect=10, sock_read=WATCH_TIMEOUT_SECONDS + 30),
                ) as response:
                    self._look_at_status(response)
                    if response.status != 200:
                        raise _failure("WATCH", path, response, await bodies.read_whole(response.content))
                    async for line in bodies.lines(response.content):
                        yield _event(line, kind, into, path)
            except bodies.TooLarge as error:
                raise _beyond_limit("WATCH", path) from error
            except bodies.FAILURES as error:
                reason = _cut(str(error) or repr(error))
                raise errors.Unreachable(f"WATCH {path}: the stream broke: {reason}") from error

    async def create(
        self,
        kind: kinds.Kind,
        body: object,
        *,
        into: type[T],
        namespace: str | None = None,
        dry_run: bool = False,
    ) -> T:
        """Create an object; return it as stored (or as it would be stored, with `dry_run`).

        Raises:
            errors.AlreadyExists: there is one of that name.
        """
        query = {"dryRun": "All"} if dry_run else {}
        return await self._decoded("POST", kind.path(namespace=namespace), into, query, body=body)

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
        """Replace an object whole; fails with Conflict if it names a `metadata.resourceVersion` that is stale."""
        path = kind.path(namespace=namespace, name=name, subresource=subresource)
        return await self._decoded("PUT", path, into, body=body)

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
        dry_run: bool = False,
    ) -> T:
        """Change some fields; with `Patch.APPLY`, `manager` takes them over. With `dry_run`, nothing is stored."""
        query = {"fieldManager": manager} if manager else {}
        if content == Patch.APPLY:
            query["force"] = "true"
        if dry_run:
            query["dryRun"] = "All"
        path = kind.path(namespace=namespace, name=name, subresource=subresource)
        return await self._decoded("PATCH", path, into, query, body=body, content=content)

    async def delete(
        self,
        kind: kinds.Kind,
        name: str,
        *,
        namespace: str | None = None,
        uid: str = "",
        resource_version: str = "",
    ) -> None:
        """Delete an object if it has this uid and version. One that is gone already is success.

        Raises:
            errors.Conflict: another object has the name now, or it changed.
        """
        await self._delete(kind, name, namespace=namespace, uid=uid, resource_version=resource_version)

    async def begin_delete(
        self, kind: kinds.Kind, name: str, *, into: type[T], namespace: str | None = None, uid: str = ""
    ) -> T | None:
        """Delete as `delete` does; return the object if finalizers keep it, or None if it is gone."""
        answer = await self._delete(kind, name, namespace=namespace, uid=uid)
        request = f"DELETE {kind.path(namespace=namespace, name=name)}"
        if answer is None or _understood(answer, _Kinded, request).kind == "Status":
            return None
        return _understood(answer, into, request)

    async def _delete(
        self,
        kind: kinds.Kind,
        name: str,
        *,
        namespace: str | None,
        uid: str,
        resource_version: str = "",
    ) -> bytes | None:
        conditions = {"uid": uid, "resourceVersion": resource_version}
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {key: value for key, value in conditions.items() if value},
        }
        try:
            return await self.request("DELETE", kind.path(namespace=namespace, name=name), body=body)
        except errors.NotFound:
            return None

    async def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        body: object = None,
        content: str = JSON,
        accept: str = JSON,
    ) -> bytes:
        """Send one request; return the body of the answer.

        Raises:
            errors.KubeError: one of its kinds, by what the API server answered.
        """
        with self._counting(method, _resource(path)):
            if self._writes is not None and method != "GET":
                await self._writes.take()
            try:
                async with self._session.request(
                    method,
                    self.server + path,
                    params=query,
                    data=None if body is None else msgspec.json.encode(body),
                    headers=await self._headers(
                        accept, **({} if body is None else {"Content-Type": content})
                    ),
                ) as response:
                    self._look_at_status(response)
                    answer = await bodies.read_whole(response.content)
                    if response.status >= 300:
                        raise _failure(method, path, response, answer)
                    return answer
            except bodies.TooLarge as error:
                raise _beyond_limit(method, path) from error
            except bodies.FAILURES as error:
                message = f"{method} {path} got no answer from {self.server}: {_cut(words(error))}"
                raise errors.Unreachable(message) from error

    async def _decoded(
        self,
        method: str,
        path: str,
        into: type[T],
        query: Mapping[str, str] | None = None,
        *,
        body: object = None,
        content: str = JSON,
        accept: str = JSON,
    ) -> T:
        answer = await self.request(method, path, query, body=body, content=content, accept=accept)
        return _understood(answer, into, f"{method} {path}")

    @contextmanager
    def _counting(self, verb: str, resource: str) -> Iterator[None]:
        """Count a request that returns or raises a `KubeError`; one that is cancelled is not counted."""
        count = self._count or _ignore
        try:
            yield
        except errors.KubeError as error:
            count(verb, resource, _RESULTS.get(type(error), type(error).__name__))
            raise
        count(verb, resource, "OK")

    async def _headers(self, accept: str = JSON, **more: str) -> CIMultiDict[str]:
        return await headers(self._connection, self._identity, Accept=accept, **more)

    def _look_at_status(self, response: aiohttp.ClientResponse) -> None:
        if response.status == HTTPStatus.UNAUTHORIZED:
            self._connection.refused()


async def headers(
    connection: connections.Connection, identity: Mapping[str, str] | None = None, **more: str
) -> CIMultiDict[str]:
    """Return the headers of a request, as `identity` or else as the connection's user; several groups are one header each."""
    made = CIMultiDict(more)
    made.extend(identity or connection.impersonation)
    if authorization := await connection.authorize():
        made["Authorization"] = authorization
    return made


@asynccontextmanager
async def connecting(
    connection: connections.Connection, *, writes: Pace | None = None
) -> AsyncIterator[Client]:
    """Yield a client. Nothing is sent on entry.

    Args:
        connection: where, and as whom.
        writes: limits the rate of writes; unlimited without.
    """
    async with sessions(connection, REQUESTS_LIMIT, 0) as (requests, watches):
        yield Client(requests, watches, connection, writes=writes)


@asynccontextmanager
async def sessions(
    connection: connections.Connection, *limits: int
) -> AsyncIterator[tuple[aiohttp.ClientSession, ...]]:
    """Yield a session for each limit of connections at once; 0: of any number. All are closed on return, for `CLOSE_SECONDS` at most."""
    sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
    try:
        async with AsyncExitStack() as stack:
            opened = [
                await stack.enter_async_context(_session(connection, limit, sockets)) for limit in limits
            ]
            yield tuple(opened)
    finally:
        # aiohttp does not wait until its transports are closed.
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                pause = 0.0
                while any(made.fileno() != -1 for made in sockets):
                    await asyncio.sleep(pause)
                    pause = CLOSE_PAUSE_SECONDS


def _session(
    connection: connections.Connection, limit: int, sockets: "weakref.WeakSet[socket.socket]"
) -> aiohttp.ClientSession:
    """Return a session, as `sessions` has them, whose sockets are added to `sockets`."""
    tls = connection.tls if connection.tls is not None else True

    def make(address: aiohttp.AddrInfoType) -> socket.socket:
        made = _kept_alive(address)
        sockets.add(made)
        return made

    proxy, connector = connection.proxy, None
    if proxy and proxy.startswith("socks"):
        import aiohttp_socks

        # As Go, names are resolved by the proxy.
        url = f"socks5://{proxy.partition('://')[2]}"
        connector = aiohttp_socks.ProxyConnector.from_url(url, rdns=True, ssl=tls, limit=limit)
    return aiohttp.ClientSession(
        connector=connector or aiohttp.TCPConnector(ssl=tls, limit=limit, socket_factory=make),
        proxy=None if connector else proxy,
        timeout=aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_SECONDS, sock_connect=10),
        # None is kept, as in client-go: a server could send them without end.
        cookie_jar=aiohttp.DummyCookieJar(),
    )


def _kept_alive(address: aiohttp.AddrInfoType) -> socket.socket:
    family, kind, protocol = address[:3]
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in KEEPALIVE.items():
        made.setsockopt(socket.IPPROTO_TCP, option, value)
    return made


_RESULTS: Mapping[type[errors.KubeError], str] = {
    errors.AlreadyExists: "Conflict",
    errors.ConfigError: "Failed",
}
"""The results of requests that are not counted under their error's name."""


def _ignore(verb: str, resource: str, result: str) -> None:
    """Count nothing."""


def _resource(path: str) -> str:
    """Return the resource of a path `/apis/GROUP/VERSION[/namespaces/NS]/PLURAL[/NAME[/SUB]]`, as `PLURAL[/SUB]`."""
    parts = path.strip("/").split("/")
    parts = parts[3:] if parts[0] == "apis" else parts[2:]
    if len(parts) > 2 and parts[0] == "namespaces":
        parts = parts[2:]
    match parts:
        case [plural, _, sub, *_]:
            return f"{plural}/{sub}"
        case [plural, *_]:
            return plural
        case _:
            return "other"


def _selectors(labels: str, fields: str) -> dict[str, str]:
    query = {"labelSelector": labels, "fieldSelector": fields}
    return {key: value for key, value in query.items() if value}


_LIMIT = f"larger than {bodies.LIMIT_BYTES // 1024**2} MiB"


def _beyond_limit(method: str, path: str) -> errors.TooLarge:
    return errors.TooLarge(f"{method} {path}: the answer is {_LIMIT}, which is the most that is read")


def _too_large(body: msgspec.Raw, kind: kinds.Kind, request: str) -> exclusions.Unreadable:
    problem = f"is {_LIMIT} as JSON"
    return exclusions.Unreadable(
        kind=kind, metadata=_identity(body, request), cause=exclusions.Cause.TOO_LARGE, problem=problem
    )


def _malformed(
    body: msgspec.Raw, kind: kinds.Kind, error: decoding.Malformed, request: str
) -> exclusions.Unreadable:
    problem = f"is no {kind.kind} of {kind.api_version} that this release knows: {_cut(str(error))}"
    return exclusions.Unreadable(
        kind=kind, metadata=_identity(body, request), cause=exclusions.Cause.MALFORMED, problem=problem
    )


def _identity(body: msgspec.Raw, request: str) -> meta.ObjectMeta:
    """Return what identifies an object.

    Raises:
        errors.Unreachable: nothing identifies it; no API server stores that.
    """
    identity = _understood(body, _Identified, request).metadata
    return meta.ObjectMeta(
        name=identity.name,
        namespace=identity.namespace,
        uid=identity.uid,
        resource_version=identity.resource_version,
    )


def _understood(body: bytes | bytearray | msgspec.Raw, into: type[T], request: str) -> T:
    try:
        return decoding.decode(body, into)
    except decoding.Malformed as error:
        raise errors.Unreachable(
            f"{request} was answered with something else than asked for: {_cut(str(error))}"
        ) from error


def _event(line: bytes | bytearray, kind: kinds.Kind, into: type[T], path: str) -> WatchEvent[T]:
    request = f"WATCH {path}"
    parsed = _understood(line, _Line, request)
    if parsed.type == "ERROR":
        status = _understood(parsed.object, _Status, request)
        message = f"WATCH {path}: {_cut(status.message)}"
        raise errors.Expired(message) if status.code == 410 else errors.Unreachable(message)
    version = _understood(parsed.object, _Versioned, request).metadata.resource_version
    item, left = None, None
    if parsed.type != "BOOKMARK":
        try:
            item = decoding.decode(parsed.object, into)
        except decoding.Malformed as error:
            left = _malformed(parsed.object, kind, error, request)
    return WatchEvent(type=parsed.type, item=item, resource_version=version, unreadable=left)


def _failure(
    method: str, path: str, response: aiohttp.ClientResponse, body: bytes | bytearray
) -> errors.KubeError:
    try:
        status = decoding.decode(body, _Status)
    except decoding.Malformed:
        status = _Status(message=body.decode(errors="replace"))
    message = f"{method} {path}: {response.status} {_cut(status.message or response.reason or '')}"
    pause = response.headers.get("Retry-After", "")
    if response.status == 429 or (response.status >= 500 and pause.isdecimal()):
        return errors.Throttled(message, retry_after_seconds=float(pause) if pause.isdecimal() else 1.0)
    if response.status == 409 and status.reason == "AlreadyExists":
        return errors.AlreadyExists(message)
    if response.status == 422 and status.names_another_uid:
        return errors.Conflict(message)
    of_status = _BY_STATUS.get(
        response.status, errors.Unreachable if response.status >= 500 else errors.Invalid
    )
    failure = of_status(message)
    if isinstance(failure, errors.Denied) and method not in ("GET", "WATCH"):
        failure.exit_code = errors.KubeError.exit_code
    return failure


_BY_STATUS: dict[int, type[errors.KubeError]] = {
    401: errors.Unauthenticated,
    403: errors.Denied,
    404: errors.NotFound,
    409: errors.Conflict,
    410: errors.Expired,
}


def words(error: BaseException) -> str:
    """Return why there is no answer, without the library's own terms."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        inner = error.certificate_error
        return f"its certificate is not trusted ({getattr(inner, 'verify_message', '') or inner})"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "its host name has no address"
    if isinstance(error, aiohttp.ClientConnectorError) and error.os_error.errno:
        return os.strerror(error.os_error.errno)
    return " ".join(str(error).split()) or type(error).__name__


def _cut(text: str) -> str:
    """Return text of the API server as one line of at most `MESSAGE_LIMIT_CHARS`."""
    line = " ".join(text.split())
    return line if len(line) <= MESSAGE_LIMIT_CHARS else line[:MESSAGE_LIMIT_CHARS] + "…"
