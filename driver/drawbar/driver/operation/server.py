"""The HTTP server for probes and Prometheus.

One request per connection, GET and HEAD. No more connections at once than `CONNECTIONS_LIMIT`: the oldest gives way, which is a
silent one, since an answer takes no time. One that lasts longer than `REQUEST_TIMEOUT_SECONDS` is aborted, and the
head of a request is bounded.

aiohttp's modules are imported one by one, since all of `aiohttp.web` takes 1 MB more of memory on every node.

An address that another instance holds is tried again: with `hostNetwork` the instance that is being replaced still
has the port for a moment. A UNIX socket is checked, replaced, bound and made to listen under a lock of its folder: between
binding and listening it would look like that of a dead daemon to another instance.
"""

import asyncio
import contextlib
import errno
import functools
import json
import logging
import os
import socket
import ssl
import stat
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from pathlib import Path

from aiohttp import http_exceptions, web_protocol, web_request, web_response, web_server

from drawbar.driver import containment
from drawbar.driver.operation import address, gate, readiness

log = logging.getLogger(__name__)

CONNECTIONS_LIMIT = 16
LINE_LIMIT_BYTES = 4096
HEADERS_LIMIT = 32
REQUEST_TIMEOUT_SECONDS = 5.0
TAKEN_PAUSE_SECONDS = 2.0
CLOSE_TIMEOUT_SECONDS = 1.0

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def make_request_log(log: logging.Logger) -> logging.Logger:
    """Return the logger for aiohttp. Bytes that are no HTTP are answered with 400; a traceback for each would fill the log."""
    made = log.getChild("requests")
    made.addFilter(_is_no_protocol_error)
    return made


def _is_no_protocol_error(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], http_exceptions.HttpProcessingError))


Pages = Mapping[str, Callable[[], web_response.Response]]


def pages(
    watchdog: readiness.Watchdog,
    ready: readiness.Readiness,
    metrics: Callable[[], bytes],
    details: Callable[[], Mapping[str, object]] = dict,
    contained: containment.Containment | None = None,
) -> Pages:
    """Return the three pages by path.

    Args:
        watchdog: the hanging work.
        ready: the missing requirements.
        metrics: the text of the last page.
        details: further contents of `/readyz`, without an effect on readiness.
        contained: its details stand there, too.
    """
    contained = contained or containment.Uncontained()
    return {
        "/healthz": lambda: _verdict("alive", {"overdue": watchdog.overdue()}, {}),
        "/readyz": lambda: _verdict(
            "ready", {"missing": ready.find_missing()}, {**details(), **contained.details()}
        ),
        "/metrics": lambda: web_response.Response(body=metrics(), headers={"Content-Type": METRICS_TYPE}),
    }


def _verdict(name: str, why_not: dict[str, object], details: Mapping[str, object]) -> web_response.Response:
    good = not any(why_not.values())
    text = json.dumps({name: good, **why_not, **details}) + "\n"
    return web_response.Response(status=200 if good else 503, text=text, content_type="application/json")


@contextlib.asynccontextmanager
async def serving(
    endpoint: address.Endpoint | None,
    by_path: Pages,
    *,
    pause_seconds: float = TAKEN_PAUSE_SECONDS,
    contained: containment.Containment | None = None,
) -> AsyncIterator[None]:
    """Serve pages by path while the context lasts, from its entry on unless another process holds the address.

    Args:
        endpoint: where; None serves nothing.
        by_path: the functions that make the response.
        pause_seconds: how long until an address that another process holds is tried again.
        contained: keeps a page that fails from the others; without it, aiohttp logs each failure.

    Raises:
        errors.AddressError: the address cannot be listened on, however long one waits.
    """
    if endpoint is None:
        yield
        return
    contained = contained or containment.Uncontained()
    handlers = make_handlers(_handler(by_path, contained))
    async with contextlib.AsyncExitStack() as stack:
        listening = await _listen(endpoint, handlers, stack)
        if not listening:
            log.warning(
                "the address for probes and metrics is taken, waiting", extra={"address": str(endpoint)}
            )
        async with asyncio.TaskGroup() as tasks:
            retrying = functools.partial(
                _listen_when_free, endpoint, handlers, stack, pause_seconds, listening=listening
            )
            waiting = contained.start(tasks, "http-address", retrying)
            try:
                yield
            finally:
                waiting.cancel()


class Handlers(web_server.Server):
    """The protocol of a listener. It bounds the number of connections, and how long each lasts."""

    def __init__(self, *arguments: object, connections: int, **options: object) -> None:
        super().__init__(*arguments, **options)  # type: ignore[arg-type]
        self._limit = connections
        self._entrance: gate.Gate | None = None
        self._transports: dict[web_protocol.RequestHandler, asyncio.Transport] = {}
        # The oldest first; without those that are kept.
        self._timers: dict[web_protocol.RequestHandler, asyncio.TimerHandle] = {}
        self._lost = asyncio.Event()

    def connection_made(self, handler: web_protocol.RequestHandler, transport: asyncio.Transport) -> None:
        """Bound the number of connections, and how long each lasts."""
        super().connection_made(handler, transport)
        self._transports[handler] = transport
        self._timers[handler] = asyncio.get_running_loop().call_later(
            REQUEST_TIMEOUT_SECONDS, transport.abort
        )
        if len(self._timers) > self._limit:
            oldest = next(iter(self._timers))
            self._release(oldest)
            self._transports[oldest].abort()

    def connection_lost(self, handler: web_protocol.RequestHandler, exc: BaseException | None = None) -> None:
        """Forget the connection."""
        self._release(handler)
        self._transports.pop(handler, None)
        self._lost.set()
        super().connection_lost(handler, exc)

    async def shutdown(self, timeout: float | None = None) -> None:
        """End all connections, and return once they are closed.

        They are aborted, since closing waits until the other side reads the rest. A TLS connection that was closed before
        cannot be aborted; the gate bounds its end.
        """
        await super().shutdown(timeout)
        while self._transports:
            for transport in self._transports.values():
                transport.abort()
            self._lost.clear()
            await self._lost.wait()

    def keep(self, request: web_request.BaseRequest) -> None:
        """Let the request's connection last; the caller bounds their number."""
        self._release(request.protocol)
        if self._entrance is not None:
            self._entrance.keep(request.transport)

    @contextlib.asynccontextmanager
    async def serving(self, host: str | None, port: int, tls: ssl.SSLContext) -> AsyncIterator[int]:
        """Serve over TLS while the context lasts, with the same bound for handshakes, and yield the port.

        Args:
            host: the address to listen on; None for all.
            port: 0 for any free one.
            tls: the certificate.

        Raises:
            OSError: the port cannot be used.
        """
        self._entrance = gate.Gate(tls, gate.Limits(connections=self._limit))
        listener = await asyncio.get_running_loop().create_server(self._entrance.wrap(self), host, port)
        try:
            yield listener.sockets[0].getsockname()[1]
        finally:
            listener.close()
            self._entrance.close()
            await self.shutdown(CLOSE_TIMEOUT_SECONDS)

    def _release(self, handler: web_protocol.RequestHandler) -> None:
        timer = self._timers.pop(handler, None)
        if timer is not None:
            timer.cancel()


def make_handlers(
    handle: Callable[[web_request.BaseRequest], Awaitable[web_response.StreamResponse]],
    connections: int = CONNECTIONS_LIMIT,
) -> Handlers:
    """Return the protocol of a listener, with bounds for connections and for the head of a request."""
    return Handlers(
        handle,
        connections=connections,
        access_log=None,
        logger=make_request_log(log),
        max_line_size=LINE_LIMIT_BYTES,
        max_field_size=LINE_LIMIT_BYTES,
        max_headers=HEADERS_LIMIT,
        lingering_time=0.0,
        # A stream ends with its connection, and not at its next write.
        handler_cancellation=True,
    )


def _handler(
    by_path: Pages, contained: containment.Containment
) -> Callable[[web_request.BaseRequest], Awaitable[web_response.Response]]:
    async def handle(request: web_request.BaseRequest) -> web_response.Response:
        page = by_path.get(request.path)
        if page is None:
            response = web_response.Response(status=404, text=f"here are {', '.join(by_path)}\n")
        elif request.method not in ("GET", "HEAD"):
            response = web_response.Response(status=405, text="only GET\n")
        else:
            response = web_response.Response(
                status=500, text=f"unexpected error; look for '{containment.MESSAGE}' in the log\n"
            )
            with contained.attempt("http", request.path):
                response = page()
        response.force_close()
        return response

    return handle


async def _listen_when_free(
    endpoint: address.Endpoint,
    handlers: Handlers,
    stack: contextlib.AsyncExitStack,
    pause_seconds: float,
    *,
    listening: bool,
) -> None:
    while not listening:
        await asyncio.sleep(pause_seconds)
        listening = await _listen(endpoint, handlers, stack)
        if listening:
            log.info("serving probes and metrics now", extra={"address": str(endpoint)})


async def _listen(endpoint: address.Endpoint, handlers: Handlers, stack: contextlib.AsyncExitStack) -> bool:
    """Serve until the stack ends; return False if another process holds the address."""
    loop = asyncio.get_running_loop()
    try:
        if endpoint.family is address.Family.UNIX:
            path = Path(endpoint.host)
            listener = await loop.create_unix_server(handlers, sock=_open_socket(path))
        else:
            listener = await loop.create_server(handlers, endpoint.host, endpoint.port)
    except OSError as error:
        if error.errno in (errno.EADDRINUSE, errno.EWOULDBLOCK):
            return False
        raise address.AddressError(
            f"cannot serve probes and metrics on {endpoint}: {error.strerror or error}; choose another "
            f"--http-address, or off"
        ) from error
    stack.push_async_callback(handlers.shutdown, CLOSE_TIMEOUT_SECONDS)
    stack.callback(listener.close)
    if endpoint.family is address.Family.UNIX:
        # While it still listens: afterwards the path may be another instance's. Not in a thread: at the end these may
        # all hang in the kernel, and this does not wait for anything.
        stack.callback(path.unlink, missing_ok=True)
    return True


@contextlib.contextmanager
def _lock_folder(folder: Path) -> Iterator[None]:
    """Keep other daemons from changing sockets in the folder; raises BlockingIOError if one does right now."""
    # Windows, where `drawbar ui` serves its page, has no such module.
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _open_socket(path: Path) -> socket.socket:
    """Return a UNIX socket for its owner only; replace a dead socket at the path, but not a live one."""
    with _lock_folder(path.parent), contextlib.ExitStack() as stack:
        if os.path.lexists(path) and not stat.S_ISSOCK(path.lstat().st_mode):
            raise FileExistsError(errno.EEXIST, "a file is in the way", str(path))
        if _is_dead(path):
            path.unlink(missing_ok=True)
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        mask = os.umask(0o077)
        try:
            listener.bind(str(path))
        finally:
            os.umask(mask)
        listener.listen(CONNECTIONS_LIMIT)
        stack.pop_all()
    return listener


def sweep(data_dir: Path) -> None:
    """Remove the sockets that dead daemons left beside the kubelet's; live sockets stay."""
    with contextlib.suppress(OSError), _lock_folder(data_dir):
        for path in data_dir.glob("http*.sock"):
            if stat.S_ISSOCK(path.lstat().st_mode) and _is_dead(path):
                path.unlink(missing_ok=True)


def _is_dead(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
        return probe.connect_ex(str(path)) == errno.ECONNREFUSED
