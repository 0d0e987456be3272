"""The API server's answers: pages, lines of a watch, and failures, as values or `drawbar.driver.kube.errors`.

They are read in bounded memory: the body of a watch has no end, and anyone may write large objects. Every failure of a
connection comes out of aiohttp as one of `FAILURES`.

Source: Kubernetes API concepts (watch, chunked lists); `meta/v1` Status.
"""

from collections.abc import AsyncIterator
from typing import Generic, TypeVar

import aiohttp
import msgspec
from aiohttp import http_exceptions

from drawbar.driver.api import meta
from drawbar.driver.kube import decoding, errors, exclusions, kinds

LIMIT_BYTES = 16 * 1024 * 1024
"""Of one object, and of a page of objects.

etcd stores objects of 1.5 MiB, and the API server sends it no more than 2 MiB, whatever etcd's limit. JSON needs six bytes
for each `<`, `>`, `&` and control character of a string (`\\u003c`): 12 MiB, and the names of the fields.
"""

FAILURES: tuple[type[Exception], ...] = (
    aiohttp.ClientError,
    # Not a ClientError, and yet raised for some answers that break the protocol.
    http_exceptions.HttpProcessingError,
    EOFError,
    OSError,
    ValueError,
)
"""All errors of aiohttp for a connection or an answer; TimeoutError is an OSError."""


class TooLarge(Exception):
    """A body is larger than the limit."""


async def read_whole(content: aiohttp.StreamReader) -> bytes:
    """Return the whole body.

    Raises:
        TooLarge: the body is longer than `LIMIT_BYTES`.
    """
    chunks, size = [], 0
    async for chunk in content.iter_any():
        chunks.append(chunk)
        size += len(chunk)
        if size > LIMIT_BYTES:
            raise TooLarge
    return b"".join(chunks)


async def lines(content: aiohttp.StreamReader) -> AsyncIterator[bytearray]:
    """Yield the lines of a body as they arrive, and at the end the text after the last line.

    Raises:
        TooLarge: a line is longer than `LIMIT_BYTES`.
    """
    line = bytearray()
    async for chunk in content.iter_any():
        first, *rest = chunk.split(b"\n")
        line += first
        for other in rest:
            if len(line) > LIMIT_BYTES:
                break
            yield line
            line = bytearray(other)
        if len(line) > LIMIT_BYTES:
            raise TooLarge
    if line:
        yield line


T = TypeVar("T")
MESSAGE_LIMIT_CHARS = 500


class Listing(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """All objects of a collection, and the version from which a watch continues.

    Attributes:
        unreadable: existing objects that cannot be read.
    """

    items: tuple[T, ...]
    resource_version: str
    unreadable: tuple[exclusions.Unreadable, ...] = ()


class WatchEvent(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
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


class Page(msgspec.Struct):
    """A page of a list; its objects are decoded one by one."""

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


class Kinded(msgspec.Struct):
    """The kind of an answer: a Status, or the object."""

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


_LIMIT = f"larger than {LIMIT_BYTES // 1024**2} MiB"


def make_too_large(method: str, path: str) -> errors.TooLarge:
    """Return the error of an answer that is too large to be read."""
    return errors.TooLarge(f"{method} {path}: the answer is {_LIMIT}, which is the most that is read")


def leave_out_large(body: msgspec.Raw, kind: kinds.Kind, request: str) -> exclusions.Unreadable:
    """Return an object of a list that is too large to be read, from its metadata."""
    problem = f"is {_LIMIT} as JSON"
    return exclusions.Unreadable(
        kind=kind, metadata=_identity(body, request), cause=exclusions.Cause.TOO_LARGE, problem=problem
    )


def leave_out_malformed(
    body: msgspec.Raw, kind: kinds.Kind, error: decoding.Malformed, request: str
) -> exclusions.Unreadable:
    """Return an object that is not of its kind, from its metadata."""
    problem = f"is no {kind.kind} of {kind.api_version} that this release knows: {cut(str(error))}"
    return exclusions.Unreadable(
        kind=kind, metadata=_identity(body, request), cause=exclusions.Cause.MALFORMED, problem=problem
    )


def _identity(body: msgspec.Raw, request: str) -> meta.ObjectMeta:
    """Return the identity of an object.

    Raises:
        errors.Unreachable: nothing identifies it; no API server stores that.
    """
    identity = decode(body, _Identified, request).metadata
    return meta.ObjectMeta(
        name=identity.name,
        namespace=identity.namespace,
        uid=identity.uid,
        resource_version=identity.resource_version,
    )


def decode(body: bytes | bytearray | msgspec.Raw, into: type[T], request: str) -> T:
    """Return an answer as a value.

    Raises:
        errors.Unreachable: it is not of this type, as from a proxy.
    """
    try:
        return decoding.decode(body, into)
    except decoding.Malformed as error:
        raise errors.Unreachable(
            f"{request} was answered with something else than asked for: {cut(str(error))}"
        ) from error


def decode_event(line: bytes | bytearray, kind: kinds.Kind, into: type[T], path: str) -> WatchEvent[T]:
    """Return the event of one line of a watch.

    Raises:
        errors.Expired: the watch's version is no longer kept.
        errors.Unreachable: the API server ended the watch with another error, or sent something else.
    """
    request = f"WATCH {path}"
    parsed = decode(line, _Line, request)
    if parsed.type == "ERROR":
        status = decode(parsed.object, _Status, request)
        message = f"WATCH {path}: {cut(status.message)}"
        raise errors.Expired(message) if status.code == 410 else errors.Unreachable(message)
    version = decode(parsed.object, _Versioned, request).metadata.resource_version
    item, left = None, None
    if parsed.type != "BOOKMARK":
        try:
            item = decoding.decode(parsed.object, into)
        except decoding.Malformed as error:
            left = leave_out_malformed(parsed.object, kind, error, request)
    return WatchEvent(type=parsed.type, item=item, resource_version=version, unreadable=left)


def make_failure(
    method: str, path: str, response: aiohttp.ClientResponse, body: bytes | bytearray
) -> errors.KubeError:
    """Return the error of an answer with a status of 300 or more, by the caller's remedy."""
    try:
        status = decoding.decode(body, _Status)
    except decoding.Malformed:
        status = _Status(message=body.decode(errors="replace"))
    message = f"{method} {path}: {response.status} {cut(status.message or response.reason or '')}"
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


def cut(text: str) -> str:
    """Return text of the API server as one line of at most `MESSAGE_LIMIT_CHARS`."""
    line = " ".join(text.split())
    return line if len(line) <= MESSAGE_LIMIT_CHARS else line[:MESSAGE_LIMIT_CHARS] + "…"
