"""The HTTP sessions with the API server: connection, tokens, headers, and the words of a failed connection."""

import asyncio
import os
import socket
import ssl
import weakref
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import msgspec
from multidict import CIMultiDict

from drawbar.driver.kube import errors


def _ignore() -> None:
    """Do nothing: there is no other credential."""


class Connection(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a connection to one API server.

    Attributes:
        server: base URL without a trailing slash.
        tls: TLS settings for https, else None.
        authorization: returns the Authorization header or None; called for every request, since the kubelet rotates
            the token file.
        origin: the source of the settings, for messages.
        may_block: whether `authorization` may run a program or ask an identity provider.
        refused: called after the API server refused the credential, so that the next request logs in again.
        impersonation: headers that name another user.
        proxy: URL of the proxy for the server, or None.
        namespace: the context's namespace, or None.
    """

    server: str
    tls: ssl.SSLContext | None
    authorization: Callable[[], str | None]
    origin: str
    may_block: bool = False
    refused: Callable[[], None] = _ignore
    impersonation: tuple[tuple[str, str], ...] = ()
    proxy: str | None = None
    namespace: str | None = None

    def __repr__(self) -> str:
        return f"Connection(server={self.server!r}, origin={self.origin!r})"

    async def authorize(self) -> str | None:
        """Return the Authorization header or None; the event loop goes on while a login lasts."""
        return await asyncio.to_thread(self.authorization) if self.may_block else self.authorization()


def read_bearer(path: Path) -> str:
    """Return the Authorization header with the token in the file.

    Raises:
        errors.ConfigError: there is none.
    """
    try:
        token = path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise errors.ConfigError(f"cannot read the token file {path}: {error.strerror}") from error
    except ValueError as error:
        raise errors.ConfigError(f"the token file {path} is not text") from error
    return f"Bearer {sendable(token, f'the token in {path}')}"


def sendable(token: str, what: str) -> str:
    """Return the token, if it can stand in a header; the message does not quote it."""
    if token and token.isascii() and token.isprintable() and " " not in token:
        return token
    raise errors.ConfigError(f"{what} is empty, or holds spaces or characters that no token has")


REQUEST_TIMEOUT_SECONDS = 30.0
CLOSE_SECONDS, CLOSE_PAUSE_SECONDS = 1.0, 0.005
KEEPALIVE = {socket.TCP_KEEPIDLE: 30, socket.TCP_KEEPINTVL: 10, socket.TCP_KEEPCNT: 3}
"""A watch may be silent for minutes. A peer that is gone without closing is noticed after 30 + 3 * 10 s."""


async def headers(
    connection: Connection, identity: Mapping[str, str] | None = None, **more: str
) -> CIMultiDict[str]:
    """Return the headers of a request, as `identity` or else as the connection's user; several groups are one header each."""
    made = CIMultiDict(more)
    made.extend(identity or connection.impersonation)
    if authorization := await connection.authorize():
        made["Authorization"] = authorization
    return made


@asynccontextmanager
async def opening(connection: Connection, *limits: int) -> AsyncIterator[tuple[aiohttp.ClientSession, ...]]:
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
    connection: Connection, limit: int, sockets: "weakref.WeakSet[socket.socket]"
) -> aiohttp.ClientSession:
    """Return a session, as `sessions` has them, whose sockets are added to `sockets`."""
    tls = connection.tls if connection.tls is not None else True

    def make(address: aiohttp.AddrInfoType) -> socket.socket:
        made = _open_kept_alive(address)
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


def _open_kept_alive(address: aiohttp.AddrInfoType) -> socket.socket:
    family, kind, protocol = address[:3]
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in KEEPALIVE.items():
        made.setsockopt(socket.IPPROTO_TCP, option, value)
    return made


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
