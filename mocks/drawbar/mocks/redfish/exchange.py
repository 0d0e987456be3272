"""A request to a Redfish service and its answer, as values."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from aiohttp import web
from multidict import CIMultiDict


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request.

    Attributes:
        method: the HTTP method.
        path: the path as sent, possibly with a trailing slash.
        query: the query parameters by name.
        headers: the headers by name, ignoring case.
        content: the body.
    """

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: CIMultiDict[str] = field(default_factory=CIMultiDict)
    content: bytes = b""

    @classmethod
    async def read(cls, request: web.BaseRequest) -> Self:
        """Return the request, with its body."""
        return cls(
            method=request.method,
            path=request.path,
            query=dict(request.query),
            headers=CIMultiDict(request.headers),
            content=await request.read(),
        )

    @property
    def resource(self) -> str:
        """Return the path without a trailing slash."""
        return self.path.rstrip("/") or "/"

    @property
    def is_read(self) -> bool:
        """Return whether the request changes nothing."""
        return self.method in {"GET", "HEAD"}

    def json(self) -> Any:
        """Return the body as JSON; None if it is none."""
        return parse_json(self.content)

    def with_json(self, body: Any) -> "Asked":
        """Return the same request with another body."""
        return replace(self, content=json.dumps(body).encode())

    def with_header(self, name: str, value: str | None) -> "Asked":
        """Return the same request with another header, or without it."""
        return replace(self, headers=_with_header(self.headers, name, value))


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer.

    Attributes:
        status: the HTTP status.
        headers: the headers by name, ignoring case; Content-Length is added.
        body: a JSON value, the raw bytes, or None.
        is_cut: whether the connection ends in the middle of the body.
    """

    status: int = 200
    headers: CIMultiDict[str] = field(default_factory=CIMultiDict)
    body: Any = None
    is_cut: bool = False

    @property
    def content(self) -> bytes:
        """Return the body in bytes."""
        if self.body is None:
            return b""
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()

    @property
    def resource(self) -> dict[str, Any] | None:
        """Return the body if it is a JSON object, else None."""
        return self.body if isinstance(self.body, dict) else None

    def with_header(self, name: str, value: str | None) -> "Answer":
        """Return the same answer with another header, or without it."""
        return replace(self, headers=_with_header(self.headers, name, value))

    def response(self) -> web.Response:
        """Return the answer for the library."""
        headers = self.headers.copy()
        if self.body is not None:
            headers.setdefault("Content-Type", "application/json; charset=utf-8")
        return web.Response(status=self.status, headers=headers, body=self.content or None)


def make_answer(
    body: Any = None, *, status: int = 200, kind: str = "", headers: Mapping[str, str] | None = None
) -> Answer:
    """Return an answer; without a `kind` of content it is JSON."""
    shown = CIMultiDict(headers or {})
    if kind:
        shown["Content-Type"] = kind
    return Answer(
        status=status, headers=shown, body=body.encode() if isinstance(body, str) and kind else body
    )


def make_refusal(status: int, key: str, text: str) -> Answer:
    """Return a refusal with one message of a registry, such as `Base.1.18.ResourceInUse`."""
    entry = {
        "@odata.type": "#Message.v1_3_0.Message",
        "MessageId": key,
        "Message": text,
        "MessageSeverity": "Critical",
        "Resolution": "None.",
    }
    error = {"error": {"code": key, "message": text, "@Message.ExtendedInfo": [entry]}}
    return make_answer(error, status=status)


def parse_json(content: bytes) -> Any:
    """Return the value of JSON; None if it is none. Nothing is an empty object, and so is `null`, as some clients send it."""
    try:
        return json.loads(content) if content.strip() not in {b"", b"null"} else {}
    except (ValueError, RecursionError):
        return None


def _with_header(headers: CIMultiDict[str], name: str, value: str | None) -> CIMultiDict[str]:
    changed = headers.copy()
    if value is None:
        changed.popall(name, None)
    else:
        changed[name] = value
    return changed
