"""A small typed client of the API server over aiohttp.

Objects are decoded into the caller's msgspec structs: the generated models of the `kubernetes` package cost 31 MB and
1.6 s at start-up, on every node. Every request has a deadline; errors are `drawbar.driver.kube.errors`, never aiohttp's.
The client retries nothing: only the caller knows whether the state behind the request is still current.

Writes are paced (`Pace`), since after an outage all of them are due at the same moment. If the API server's flow control
refuses a request, the error `Throttled` has its pause.

Source: Kubernetes API concepts (watch, chunked lists, server-side apply).
"""

import asyncio
import enum
import urllib.parse
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from http import HTTPStatus
from typing import Any

import aiohttp
import msgspec
from multidict import CIMultiDict

from drawbar.driver.kube import answers, decoding, errors, exclusions, kinds, sessions
from drawbar.driver.kube.answers import Listing, T, WatchEvent
from drawbar.driver.kube.pacing import Pace

Count = Callable[[str, str, str], None]
"""Takes the verb of a request that has ended, the plural of its resource with the subresource, and OK or an error's name."""


# Objects of a page. The first page is small: the API server builds a whole page, however little of it is read here.
PAGE_FIRST = 50
PAGE_LIMIT = 500
PAGE_STEP = 4
WATCH_TIMEOUT_SECONDS = 300
WATCH_GRACE_SECONDS = 30
"""After its time, a server ends a watch by itself. A watch that lasts longer is broken, even if it still sends bytes."""
REQUESTS_LIMIT = 50
"""At once. Watches have further connections, one each."""


JSON = "application/json"
METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
"""The content type of lists with the metadata of each object alone."""


class Patch(enum.StrEnum):
    """The kinds of PATCH, by their content type."""

    MERGE = "application/merge-patch+json"
    JSON = "application/json-patch+json"
    APPLY = "application/apply-patch+yaml"


class Client:
    """One API server. Make it with `connecting`."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        watches: aiohttp.ClientSession,
        connection: sessions.Connection,
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
        return self._replace(writes=None)

    def count_requests(self, count: Count) -> "Client":
        """Return the same client, which reports each request to `count` when it ends."""
        return self._replace(count=count)

    def acting_as(self, user: str, extra: Mapping[str, str]) -> "Client":
        """Return the same client with the identity of another user; needs the permission to impersonate.

        Args:
            user: such as `system:serviceaccount:NAMESPACE:NAME`, whose groups the API server adds.
            extra: further attributes of the user, by key.
        """
        headers = {
            f"Impersonate-Extra-{urllib.parse.quote(key, safe='')}": value for key, value in extra.items()
        }
        return self._replace(identity={"Impersonate-User": user} | headers)

    def _replace(self, **changes: Any) -> "Client":
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
        return await self._request_decoded("GET", kind.path(namespace=namespace, name=name), into)

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
                page = await self._request_decoded("GET", path, answers.Page, query, accept=METADATA)
                left_out += [answers.leave_out_large(raw, kind, f"GET {path}") for raw in page.items or ()]
            else:
                page = answers.decode(body, answers.Page, f"GET {path}")
                for raw in page.items or ():
                    try:
                        items.append(decoding.decode(raw, into))
                    except decoding.Malformed as error:
                        left_out.append(answers.leave_out_malformed(raw, kind, error, f"GET {path}"))
                if len(body) * PAGE_STEP <= answers.LIMIT_BYTES:
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
                async with self._open_watch(path, query) as response:
                    async for line in answers.lines(response.content):
                        yield answers.decode_event(line, kind, into, path)
            except answers.TooLarge as error:
                raise answers.make_too_large("WATCH", path) from error
            except answers.FAILURES as error:
                reason = answers.cut(str(error) or repr(error))
                raise errors.Unreachable(f"WATCH {path}: the stream broke: {reason}") from error

    @asynccontextmanager
    async def _open_watch(self, path: str, query: dict[str, str]) -> AsyncIterator[aiohttp.ClientResponse]:
        """Yield the answer to a watch; its events may come until `WATCH_GRACE_SECONDS` after the watch's time."""
        whole = aiohttp.ClientTimeout(total=WATCH_TIMEOUT_SECONDS + WATCH_GRACE_SECONDS, sock_connect=10)
        headers = await self._headers()
        async with asyncio.timeout(sessions.REQUEST_TIMEOUT_SECONDS):
            response = await self._watches.get(
                self.server + path, params=query, headers=headers, timeout=whole
            )
        async with response:
            self._look_at_status(response)
            if response.status != 200:
                async with asyncio.timeout(sessions.REQUEST_TIMEOUT_SECONDS):
                    body = await answers.read_whole(response.content)
                raise answers.make_failure("WATCH", path, response, body)
            yield response

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
        return await self._request_decoded("POST", kind.path(namespace=namespace), into, query, body=body)

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
        return await self._request_decoded("PUT", path, into, body=body)

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
        return await self._request_decoded("PATCH", path, into, query, body=body, content=content)

    async def delete(
        self,
        kind: kinds.Kind,
        name: str,
        *,
        namespace: str | None = None,
        uid: str = "",
        resource_version: str = "",
        dry_run: bool = False,
    ) -> None:
        """Delete an object if it has this uid and version. One that is gone already is success. With `dry_run`, keep it.

        Raises:
            errors.Conflict: another object has the name now, or it changed.
        """
        await self._delete(
            kind, name, namespace=namespace, uid=uid, resource_version=resource_version, dry_run=dry_run
        )

    async def begin_delete(
        self, kind: kinds.Kind, name: str, *, into: type[T], namespace: str | None = None, uid: str = ""
    ) -> T | None:
        """Delete as `delete` does; return the object if finalizers keep it, or None if it is gone."""
        answer = await self._delete(kind, name, namespace=namespace, uid=uid)
        request = f"DELETE {kind.path(namespace=namespace, name=name)}"
        if answer is None or answers.decode(answer, answers.Kinded, request).kind == "Status":
            return None
        return answers.decode(answer, into, request)

    async def _delete(
        self,
        kind: kinds.Kind,
        name: str,
        *,
        namespace: str | None,
        uid: str,
        resource_version: str = "",
        dry_run: bool = False,
    ) -> bytes | None:
        conditions = {"uid": uid, "resourceVersion": resource_version}
        body: dict[str, object] = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {key: value for key, value in conditions.items() if value},
        }
        if dry_run:
            body["dryRun"] = ["All"]
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
            errors.KubeError: one of its kinds, by the API server's answer.
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
                    answer = await answers.read_whole(response.content)
                    if response.status >= 300:
                        raise answers.make_failure(method, path, response, answer)
                    return answer
            except answers.TooLarge as error:
                raise answers.make_too_large(method, path) from error
            except answers.FAILURES as error:
                message = (
                    f"{method} {path} got no answer from {self.server}: {answers.cut(sessions.words(error))}"
                )
                raise errors.Unreachable(message) from error

    async def _request_decoded(
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
        return answers.decode(answer, into, f"{method} {path}")

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
        return await sessions.headers(self._connection, self._identity, Accept=accept, **more)

    def _look_at_status(self, response: aiohttp.ClientResponse) -> None:
        if response.status == HTTPStatus.UNAUTHORIZED:
            self._connection.refused()


@asynccontextmanager
async def connecting(connection: sessions.Connection, *, writes: Pace | None = None) -> AsyncIterator[Client]:
    """Yield a client. Nothing is sent on entry.

    Args:
        connection: where, and as whom.
        writes: limits the rate of writes; unlimited without.
    """
    async with sessions.opening(connection, REQUESTS_LIMIT, 0) as (requests, watches):
        yield Client(requests, watches, connection, writes=writes)


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
