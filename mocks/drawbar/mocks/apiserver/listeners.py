"""The port of a server and its certificate. It can close for a while without losing the number, and drop connections."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import http_exceptions, web

from drawbar.mocks.apiserver import requests

HOST = "127.0.0.1"
_LINGERING_SECONDS = (
    1.0  # a refused body is read for so long, so that the client sees the refusal and no reset
)
_logger = logging.getLogger("drawbar.mocks.apiserver.http")


class _ClientMistakes(logging.Filter):
    """A filter for clients' errors: bytes that are not HTTP get a 400, and their tracebacks would hide real errors."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return true if the record is worth writing."""
        error = record.exc_info[1] if record.exc_info else None
        return not isinstance(error, http_exceptions.HttpProcessingError | web.RequestPayloadError)


_logger.addFilter(_ClientMistakes())


def issue_certificate(*names: str) -> tuple[bytes, bytes]:
    """Return a temporary certificate for these names and its key, as PEM; by default for ``localhost`` and this host.

    The authority's certificate follows, so the text serves as a chain and as the clients' trust anchor.
    """
    import trustme  # loads OpenSSL a second time, which takes half a second on a slow machine

    authority = trustme.CA()
    issued = authority.issue_cert(*(names or ("localhost", HOST)))
    certificate = issued.cert_chain_pems[0].bytes() + authority.cert_pem.bytes()
    return certificate, issued.private_key_pem.bytes()


class Listener:
    """One TCP port on the loopback interface, served by an aiohttp runner."""

    def __init__(self, runner: web.AppRunner, reserve: socket.socket, context: ssl.SSLContext | None) -> None:
        """Serve on the port to which ``reserve`` is bound."""
        self._runner = runner
        self._reserve = reserve
        self._context = context
        self._accepting = reserve
        self._site: web.BaseSite | None = None

    @property
    def port(self) -> int:
        """Return the port's number."""
        return int(self._reserve.getsockname()[1])

    @property
    def is_open(self) -> bool:
        """Return whether connections are accepted."""
        return self._site is not None

    async def open(self) -> None:
        """Accept connections.

        Raises:
            OSError: another program listens there.
        """
        self._accepting = _bind_socket(self.port)
        self._site = web.SockSite(self._runner, self._accepting, ssl_context=self._context)
        await self._site.start()

    async def close(self) -> None:
        """Refuse connections from now on; keep the port's number."""
        if self._site is None:
            return
        # asyncio fails for a connection that it has accepted and has not served yet, and leaves the client waiting.
        asyncio.get_running_loop().remove_reader(self._accepting)
        await asyncio.sleep(0)
        await self._site.stop()
        self._site = None

    def drop(self, spared: asyncio.BaseTransport | None = None) -> None:
        """Break all connections but one; cancel requests in progress."""
        for transport in self._transports():
            if transport is not spared:
                transport.abort()

    async def stop(self) -> None:
        """End everything; otherwise a silent TLS client would hold its socket for 30 s."""
        await self.close()
        transports = self._transports()
        await self._runner.cleanup()
        for transport in transports:
            transport.abort()
        self._reserve.close()
        await asyncio.sleep(0)  # lets the event loop close the sockets just aborted

    def _transports(self) -> list[asyncio.WriteTransport]:
        handlers = self._runner.server.connections if self._runner.server is not None else []
        return [handler.transport for handler in handlers if handler.transport is not None]


@asynccontextmanager
async def listening(
    handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    *,
    port: int,
    context: ssl.SSLContext | None,
) -> AsyncIterator[Listener]:
    """Hold a port (0: a free one) until the block ends; ``open`` then serves ``handler`` on it.

    Raises:
        OSError: the port is taken.
    """

    async def answer(request: web.Request) -> web.StreamResponse:
        if listener.is_open:
            return await handler(request)
        # Its connection was in the TLS handshake when the port closed, so ``drop`` did not see it.
        if request.transport is not None:
            request.transport.abort()
        return web.Response(status=500)

    application = web.Application(client_max_size=requests.BODY_LIMIT, logger=_logger)
    application.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(
        application,
        access_log=None,
        handler_cancellation=True,
        shutdown_timeout=2,
        lingering_time=_LINGERING_SECONDS,
        logger=_logger,
    )
    # Bound but never listening, so that no other process gets the port while the server is down.
    listener = Listener(runner, _bind_socket(port), context)
    try:
        await runner.setup()
        yield listener
    finally:
        await listener.stop()


def _bind_socket(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port))
    except OSError:
        listener.close()
        raise
    return listener
