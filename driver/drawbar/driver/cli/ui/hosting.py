"""The page for the readers of a cluster, over TLS; `readers` decides what each reader sees.

A reader logs in with a bearer token in the body of a request, and gets a cookie that no script can read and that is sent
to this server alone. A program, such as an authenticating proxy, may send the token as header `Authorization`. Tokens are
in no URL. Connections are bounded as in `operation.server`; those of a stream, an explanation or a login last longer, and each
of these has a bound of its own.
"""

import asyncio
import contextlib
import http.cookies
import logging
import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
from aiohttp import web, web_request

from drawbar.driver import errors
from drawbar.driver.cli.ui import readers as reading
from drawbar.driver.cli.ui import server
from drawbar.driver.operation import certificates
from drawbar.driver.operation import server as bounded

log = logging.getLogger(__name__)

COOKIE = "__Host-drawbar"
BEARER = "Bearer "
BODY_LIMIT_BYTES = 32768
JSON = "application/json"
SESSION, HEALTH = "session", "healthz"
PUBLIC = frozenset({"page.css", "icon.svg"})
"""The files of the page that the login shows, too."""
_OWN_SITES = frozenset({"", "same-origin", "none"})


class Login(msgspec.Struct, frozen=True):
    """The body of a login."""

    token: str


class Site:
    """The answers to all requests.

    Attributes:
        handlers: the protocol of the listener.
    """

    def __init__(self, readers: reading.Readers) -> None:
        self._readers = readers
        self._login = server.read_files("login")
        self._page = server.read_files("page")
        self.handlers = bounded.make_handlers(self.answer, server.CONNECTIONS_LIMIT)

    async def answer(self, request: web_request.BaseRequest) -> web.StreamResponse:
        """Answer a request; each has a connection of its own."""
        response = await self._answer(request, request.path.removeprefix("/"))
        response.force_close()
        return response

    async def _answer(self, request: web_request.BaseRequest, path: str) -> web.StreamResponse:
        if path == HEALTH:
            return web.Response(text="ok\n", headers=server.HEADERS)
        if path == SESSION and request.method == "POST":
            return await self._log_in(request)
        try:
            reader = await self._find(request)
        except reading.Refused as refused:
            return server.refuse(refused.status, str(refused))
        if path == SESSION and request.method in ("GET", "HEAD", "DELETE"):
            return self._answer_session(request, reader)
        if reader is None:
            return self._answer_stranger(request, path)
        if path in server.LASTING:
            self.handlers.keep(request)
        return await reader.pages.answer(request, path)

    def _answer_stranger(self, request: web_request.BaseRequest, path: str) -> web.Response:
        if request.method not in ("GET", "HEAD"):
            return server.refuse(405, "only GET and HEAD are answered", Allow="GET, HEAD")
        if path in PUBLIC:
            return server.send_file(self._page, path)
        if path in self._login:
            return server.send_file(self._login, path)
        return server.refuse(401, "log in first")

    async def _find(self, request: web_request.BaseRequest) -> reading.Reader | None:
        """Return the reader by his cookie or his token, or None."""
        header = request.headers.get("Authorization", "")
        if header.startswith(BEARER):
            self.handlers.keep(request)
            return await self._readers.admit(header.removeprefix(BEARER).strip())
        try:
            secret = request.cookies.get(COOKIE, "")
        except http.cookies.CookieError:
            return None
        return self._readers.find(secret) if secret else None

    async def _log_in(self, request: web_request.BaseRequest) -> web.Response:
        # No page of another origin may log its reader in here.
        if request.content_type != JSON or request.headers.get("Sec-Fetch-Site", "") not in _OWN_SITES:
            return server.refuse(415, f"send the token as {JSON}")
        body = await request.content.read(BODY_LIMIT_BYTES)
        while not request.content.at_eof() and len(body) < BODY_LIMIT_BYTES:
            body += await request.content.read(BODY_LIMIT_BYTES - len(body))
        try:
            token = msgspec.json.decode(body, type=Login).token.strip()
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return server.refuse(400, "send one token")
        self.handlers.keep(request)
        try:
            reader = await self._readers.admit(token)
        except reading.Refused as refused:
            return server.refuse(refused.status, str(refused))
        response = web.Response(status=204, headers=server.HEADERS)
        response.set_cookie(
            COOKIE,
            reader.secret,
            max_age=int(reading.SESSION_SECONDS),
            path="/",
            secure=True,
            httponly=True,
            samesite="Strict",
        )
        return response

    def _answer_session(
        self, request: web_request.BaseRequest, reader: reading.Reader | None
    ) -> web.Response:
        """Tell whether the caller is logged in, or log him out."""
        if reader is None:
            return server.refuse(401, "log in first")
        response = web.Response(status=204, headers=server.HEADERS)
        if request.method == "DELETE":
            self._readers.leave(reader)
            response.del_cookie(COOKIE, path="/", secure=True, httponly=True, samesite="Strict")
        return response


@contextlib.asynccontextmanager
async def serving(
    readers: reading.Readers, *, host: str | None, port: int, tls: ssl.SSLContext
) -> AsyncIterator[int]:
    """Serve the page, and yield the port.

    Args:
        readers: the admitted readers.
        host: the address to listen on; None for all.
        port: 0 for any free one.
        tls: the certificate.

    Raises:
        errors.DrawbarError: the port cannot be used.
    """
    site = Site(readers)
    async with contextlib.AsyncExitStack() as stack:
        try:
            bound = await stack.enter_async_context(site.handlers.serving(host, port, tls))
        except OSError as error:
            raise errors.DrawbarError(
                f"cannot listen on port {port}: {error.strerror or error}; name another one by --listen"
            ) from error
        yield bound


async def run(
    connect: reading.Connect,
    *,
    listen: str,
    certificate: Path | None,
    key: Path | None,
    driver: str,
    namespace: str,
    cluster_name: str = "",
) -> None:
    """Serve until cancelled.

    Args:
        connect: see `readers.Connect`.
        listen: the port on all addresses, as `:8443`, or HOST:PORT.
        certificate: PEM file with the certificate; None for self-signed.
        key: PEM file with its key.
        driver: the DRA driver's name.
        namespace: the daemons' namespace.
        cluster_name: the name for people.

    Raises:
        errors.DrawbarError: the certificate or the port cannot be used.
    """
    host, _, port = listen.rpartition(":")
    async with asyncio.TaskGroup() as tasks:
        if certificate is not None and key is not None:
            files = certificates.Certificates(certificate, key)
            tls = await files.load()
            tasks.create_task(files.follow(), name="certificate")
        else:
            tls = await _make_certificate()
        async with (
            reading.receiving(
                connect, driver=driver, namespace=namespace, cluster_name=cluster_name
            ) as readers,
            serving(readers, host=host.strip("[]") or None, port=int(port), tls=tls) as bound,
        ):
            log.info("serving the page to readers with a token", extra={"port": bound})
            await asyncio.get_running_loop().create_future()


async def _make_certificate() -> ssl.SSLContext:
    try:
        return await asyncio.to_thread(certificates.make_self_signed)
    except (OSError, subprocess.SubprocessError) as error:
        raise errors.DrawbarError(
            f"no certificate can be made: {error}; install openssl, or name one by --tls-certificate and --tls-key"
        ) from error
