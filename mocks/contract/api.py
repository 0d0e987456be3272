"""Plain HTTP to an API server: raw JSON in, raw JSON out, so that no client library hides its answers."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from drawbar.mocks.kube import connections

Json = dict[str, Any]
# A cluster is slower than doubles on this machine; both are done much sooner when they behave.
PATIENCE_SECONDS = 120.0
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One answer.

    Attributes:
        code: the HTTP status.
        body: the decoded JSON, or the text of an answer that is none.
        headers: by name; several of one name are joined.
        raw: the body as it was sent.
    """

    code: int
    body: Any
    headers: Mapping[str, str]
    raw: bytes = b""

    @property
    def reason(self) -> str:
        """Return the machine-readable reason of a refusal."""
        return str(self.body.get("reason", "")) if isinstance(self.body, dict) else ""

    @property
    def message(self) -> str:
        """Return a refusal's message."""
        return str(self.body.get("message", "")) if isinstance(self.body, dict) else str(self.body)

    @property
    def causes(self) -> dict[str, str]:
        """Return the fields that a refusal complains of, and why: the reason of each (the last one of a field)."""
        causes = (self.body.get("details") or {}).get("causes") or [] if isinstance(self.body, dict) else []
        return {cause.get("field", ""): cause.get("reason", "") for cause in causes}

    @property
    def version(self) -> str:
        """Return the resourceVersion of the object or list."""
        return str(self.body["metadata"]["resourceVersion"])

    @property
    def items(self) -> list[Json]:
        """Return a list's items."""
        return list(self.body["items"] or [])

    @property
    def names(self) -> list[str]:
        """Return the names of a list's items."""
        return [item["metadata"]["name"] for item in self.items]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A watch that is open."""

    code: int
    _response: aiohttp.ClientResponse

    async def next(self) -> Json | None:
        """Return the next event; None when the server ended the stream.

        Raises:
            TimeoutError: nothing came in `PATIENCE_SECONDS`.
        """
        line = await self.line()
        return json.loads(line) if line.strip() else None

    async def line(self) -> bytes:
        """Return the next event as it was sent; empty when the server ended the stream.

        Raises:
            TimeoutError: nothing came in `PATIENCE_SECONDS`.
        """
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self._response.content.readline()

    async def expect(self, kind: str) -> Json:
        """Return the object of the next event, which must be of this type; bookmarks are passed over."""
        event = await self.next()
        while event is not None and event["type"] == "BOOKMARK" != kind:
            event = await self.next()
        assert event is not None, f"the watch ended before a {kind} event"
        assert event["type"] == kind, event
        changed: Json = event["object"]
        return changed


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """The requests of one caller.

    Attributes:
        connection: the server and the credentials.
        session: open connections, shared by all callers.
        extra: headers of every request, such as those of impersonation.
        anonymous: send no credentials.
    """

    connection: connections.Connection
    session: aiohttp.ClientSession
    extra: Mapping[str, str] = field(default_factory=dict)
    anonymous: bool = False

    async def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        kind: str = "application/json",
        accept: str = "application/json",
        **query: object,
    ) -> Reply:
        """Send one request. Underscores in a query's name stay; values are turned into text, booleans as JSON has them."""
        # Without spaces: opaque parameters are stored as they are written, and compared so.
        data = body if isinstance(body, bytes) or body is None else _compact(body)
        headers = {**self._headers(), "Accept": accept}
        if data is not None:
            headers["Content-Type"] = kind
        async with (
            asyncio.timeout(PATIENCE_SECONDS),
            self.session.request(
                method, self.connection.server + path, data=data, headers=headers, params=_texts(query)
            ) as response,
        ):
            raw = await response.read()
            merged = {name: ", ".join(response.headers.getall(name)) for name in response.headers}
            return Reply(code=response.status, body=_decode(raw), headers=merged, raw=raw)

    async def get(self, path: str, **query: Any) -> Reply:
        return await self.send("GET", path, **query)

    async def post(self, path: str, body: Any, **query: Any) -> Reply:
        return await self.send("POST", path, body, **query)

    async def put(self, path: str, body: Any, **query: Any) -> Reply:
        return await self.send("PUT", path, body, **query)

    async def delete(self, path: str, body: Any = None, **query: Any) -> Reply:
        return await self.send("DELETE", path, body, **query)

    async def merge(self, path: str, body: Any, **query: Any) -> Reply:
        return await self.send("PATCH", path, body, kind=MERGE, **query)

    async def strategic(self, path: str, body: Any, **query: Any) -> Reply:
        return await self.send("PATCH", path, body, kind=STRATEGIC, **query)

    async def json_patch(self, path: str, *operations: Json, **query: Any) -> Reply:
        return await self.send("PATCH", path, list(operations), kind=JSON_PATCH, **query)

    async def apply(self, path: str, body: Any, *, manager: str | None = "contract", **query: Any) -> Reply:
        if manager is not None:
            query["fieldManager"] = manager
        return await self.send("PATCH", path, body, kind=APPLY, **query)

    @contextlib.asynccontextmanager
    async def watch(self, path: str, **query: object) -> AsyncIterator[Stream]:
        """Return an open watch of a collection."""
        params = _texts({"watch": True, **query})
        url = self.connection.server + path
        async with self.session.get(url, headers=self._headers(), params=params) as response:
            yield Stream(code=response.status, _response=response)

    async def until(self, collection: str, name: str, holds: Callable[[Json | None], Any]) -> Json | None:
        """Wait until something holds of the object (None: it does not exist), and return it.

        Raises:
            TimeoutError: it does not come to hold in `PATIENCE_SECONDS`.
        """
        selector = f"metadata.name={name}"
        state: Json | None = None
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while True:
                    listed = await self.get(collection, fieldSelector=selector)
                    assert listed.code == 200, listed.body
                    state = listed.items[0] if listed.items else None
                    if holds(state):
                        return state
                    query = {"fieldSelector": selector, "resourceVersion": listed.version}
                    async with self.watch(collection, **query) as changes:
                        while (event := await changes.next()) is not None and event["type"] != "ERROR":
                            state = None if event["type"] == "DELETED" else event["object"]
                            if holds(state):
                                return state
        except TimeoutError as error:
            raise TimeoutError(f"{collection}/{name} is still {json.dumps(state)}") from error

    def _headers(self) -> dict[str, str]:
        headers = dict(self.extra)
        token = None if self.anonymous else self.connection.authorization()
        if token:
            headers.setdefault("Authorization", token)
        return headers


def _compact(body: Any) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()


def _texts(query: Mapping[str, object]) -> dict[str, str]:
    return {
        key: json.dumps(value) if isinstance(value, bool) else str(value)
        for key, value in query.items()
        if value is not None
    }


def _decode(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return raw.decode(errors="replace")
