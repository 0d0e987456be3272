"""A small HTTP server for a few documents: enough for probes and for Prometheus.

One request per connection, GET and HEAD, no bodies, and no more connections at once than `CONNECTIONS_LIMIT`. It is our
own because aiohttp's costs 2.7 MB of memory on every node, for three pages that only this host can see.

An address that somebody else holds is waited for: with `hostNetwork` the instance that is being replaced still
has the port for a moment.
"""

import asyncio
import contextlib
import errno
import http
import logging
import os
import socket
import stat
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from drawbar.driver.operation import errors
from drawbar.driver.operation.http import address

log = logging.getLogger(__name__)

CONNECTIONS_LIMIT = 16
REQUEST_LIMIT_BYTES = 16 * 1024
REQUEST_TIMEOUT_SECONDS = 5.0
TAKEN_PAUSE_SECONDS = 2.0
CLOSE_TIMEOUT_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A document."""

    status: http.HTTPStatus
    content: bytes
    content_type: str = "application/json"


Pages = Mapping[str, Callable[[], Answer]]


@contextlib.asynccontextmanager
async def serving(
    endpoint: address.Endpoint, pages: Pages, *, pause_seconds: float = TAKEN_PAUSE_SECONDS
) -> AsyncIterator[None]:
    """Answers by path while the context lasts, from its entry on unless somebody else holds the address.

    Args:
        endpoint: where.
        pages: by path what makes the document.
        pause_seconds: how long until an address that somebody else holds is tried again.

    Raises:
        errors.AddressError: the address cannot be listened on, however long one waits.
    """
    served = _Server(pages)
    try:
        await served.listen(endpoint)
    except _Taken:
        log.warning("the address for probes and metrics is taken, waiting", extra={"address": str(endpoint)})
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(_listen_when_free(served, endpoint, pause_seconds), name="http-address")
        try:
            yield
        finally:
            waiting.cancel()
            await served.close()
            if served.listening:
                _remove(endpoint)


class _Taken(Exception):
    """Somebody else listens there."""


async def _listen_when_free(served: "_Server", endpoint: address.Endpoint, pause_seconds: float) -> None:
    while not served.listening:
        await asyncio.sleep(pause_seconds)
        with contextlib.suppress(_Taken):
            await served.listen(endpoint)
            log.info("serving probes and metrics now", extra={"address": str(endpoint)})


class _Server:
    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    @property
    def listening(self) -> bool:
        """Whether the address is ours."""
        return self._server is not None

    async def listen(self, endpoint: address.Endpoint) -> None:
        """Raises `_Taken` if somebody else does."""
        try:
            if endpoint.family is address.Family.UNIX:
                listener = _bound(Path(endpoint.host))
                self._server = await asyncio.start_unix_server(
                    self._connected, sock=listener, limit=REQUEST_LIMIT_BYTES
                )
            else:
                self._server = await asyncio.start_server(
                    self._connected, endpoint.host, endpoint.port, limit=REQUEST_LIMIT_BYTES
                )
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise _Taken from error
            raise errors.AddressError(
                f"cannot serve probes and metrics on {endpoint}: {error.strerror or error}; choose another "
                f"--http-address, or off"
            ) from error

    async def close(self) -> None:
        """Ends all connections."""
        if self._server is None:
            return
        self._server.close()
        for writer in tuple(self._open):
            writer.transport.abort()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_SECONDS):
                await self._server.wait_closed()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= CONNECTIONS_LIMIT:
            writer.transport.abort()
            return
        self._open.add(writer)
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_SECONDS):
                writer.write(await self._answered(reader))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            # A caller that says nothing, too much, or is gone.
            writer.transport.abort()
        finally:
            self._open.discard(writer)

    async def _answered(self, reader: asyncio.StreamReader) -> bytes:
        head = await reader.readuntil(b"\r\n\r\n")
        method, _, rest = head.split(b"\r\n", 1)[0].decode("latin-1").partition(" ")
        path = rest.split(" ", 1)[0].split("?", 1)[0]
        page = self._pages.get(path)
        if page is None:
            known = ", ".join(self._pages)
            answer = _plain(http.HTTPStatus.NOT_FOUND, f"here are {known}\n")
        elif method not in ("GET", "HEAD"):
            answer = _plain(http.HTTPStatus.METHOD_NOT_ALLOWED, "only GET\n")
        else:
            answer = page()
        return _encoded(answer, with_content=method != "HEAD")


def _plain(status: http.HTTPStatus, text: str) -> Answer:
    return Answer(status=status, content=text.encode(), content_type="text/plain; charset=utf-8")


def _encoded(answer: Answer, *, with_content: bool) -> bytes:
    head = (
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}\r\n"
        f"Content-Type: {answer.content_type}\r\n"
        f"Content-Length: {len(answer.content)}\r\n"
        f"Connection: close\r\n\r\n"
    )
    return head.encode("latin-1") + (answer.content if with_content else b"")


def _bound(path: Path) -> socket.socket:
    """A UNIX socket that only its owner can use; a dead one at its place is replaced, a live one is not."""
    if os.path.lexists(path) and not stat.S_ISSOCK(path.lstat().st_mode):
        raise FileExistsError(errno.EEXIST, "a file is in the way", str(path))
    if _is_dead(path):
        path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    mask = os.umask(0o077)
    try:
        listener.bind(str(path))
    except OSError:
        listener.close()
        raise
    finally:
        os.umask(mask)
    return listener


def sweep(data_dir: Path) -> None:
    """Removes the sockets that dead daemons left beside the kubelet's; what lives stays."""
    for path in data_dir.glob("http*.sock"):
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(path.lstat().st_mode) and _is_dead(path):
                path.unlink(missing_ok=True)


def _remove(endpoint: address.Endpoint) -> None:
    # Not in a thread: at the end these may all hang in the kernel, and this does not wait for anything.
    if endpoint.family is address.Family.UNIX:
        Path(endpoint.host).unlink(missing_ok=True)


def _is_dead(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
        return probe.connect_ex(str(path)) == errno.ECONNREFUSED
