"""The page over HTTP, for the browsers of the user who started it.

It listens on loopback alone. Another user of the machine, and a page of another origin in the user's browser, reach the
port, too; so every path begins with a random token, without which nothing is answered but 404, and a request that names
another host than the loopback (DNS rebinding) is refused. Nothing is written, and no request is logged.

A stream of updates has no queue: once a browser has read an update, the next one has what differs since then. A browser
that does not read for `WRITE_SECONDS` is disconnected, and begins anew.
"""

import asyncio
import contextlib
import errno
import hmac
import secrets
import socket
from collections.abc import AsyncIterator, Iterator
from importlib import resources

import msgspec
from aiohttp import web

from drawbar.driver import errors
from drawbar.driver.cli.ui import following, model

ADDRESS = "127.0.0.1"
STREAMS_LIMIT = 16
WRITE_SECONDS = 30.0
# A browser that is gone is noticed by writing.
HEARTBEAT_SECONDS = 15.0
SHUTDOWN_SECONDS = 0.2
LINE_LIMIT_BYTES = 4096

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    # The path has the token.
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
FILES = {
    "": ("page.html", "text/html"),
    "page.css": ("page.css", "text/css"),
    "page.js": ("page.js", "text/javascript"),
    "icon.svg": ("icon.svg", "image/svg+xml"),
}


def is_loopback(host: str) -> bool:
    """Return whether the header `Host` names the loopback; the port may be that of a tunnel."""
    name = host[: host.index("]") + 1] if host.startswith("[") and "]" in host else host.partition(":")[0]
    return name.lower() in {"127.0.0.1", "localhost", "[::1]"}


class _Pages:
    """The answers."""

    def __init__(self, latest: following.Latest, token: str) -> None:
        self._latest = latest
        self._token = token.encode()
        self._streams = 0
        folder = resources.files("drawbar.driver.cli.ui").joinpath("page")
        self._files = {
            path: (folder.joinpath(name).read_bytes(), kind) for path, (name, kind) in FILES.items()
        }

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer a request."""
        if not is_loopback(request.headers.get("Host", "")):
            return _refusal(
                421,
                "this is the page of drawbar ui on another machine's loopback; open the URL that it printed",
            )
        token, _, path = request.match_info["path"].partition("/")
        if not hmac.compare_digest(token.encode(), self._token):
            return _refusal(404, "not found: open the URL that drawbar ui printed")
        if request.method not in ("GET", "HEAD"):
            return _refusal(405, "only GET and HEAD are answered", Allow="GET, HEAD")
        if path == "updates" and request.method == "GET":
            return await self._stream(request)
        if path not in self._files:
            return _refusal(404, "not found: open the URL that drawbar ui printed")
        body, kind = self._files[path]
        return web.Response(body=body, content_type=kind, charset="utf-8", headers=HEADERS)

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        if self._streams >= STREAMS_LIMIT:
            return _refusal(503, f"{STREAMS_LIMIT} pages are open already; close one")
        response = web.StreamResponse(headers=HEADERS | {"Content-Type": "text/event-stream; charset=utf-8"})
        self._streams += 1
        try:
            await response.prepare(request)
            # That the browser is gone ends the stream.
            with contextlib.suppress(ConnectionError):
                await self._send(response)
        except TimeoutError:
            if request.transport is not None:
                request.transport.abort()
        finally:
            self._streams -= 1
        return response

    async def _send(self, response: web.StreamResponse) -> None:
        before: model.Page | None = None
        while True:
            page = self._latest.page
            update = model.update(before, page)
            content = b"data: " + msgspec.json.encode(update) + b"\n\n" if update is not None else b":\n\n"
            async with asyncio.timeout(WRITE_SECONDS):
                await response.write(content)
            before = page
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(HEARTBEAT_SECONDS):
                    await self._latest.after(page)


def _refusal(status: int, sentence: str, **headers: str) -> web.Response:
    return web.Response(status=status, text=sentence + "\n", headers=HEADERS | headers)


@contextlib.contextmanager
def listening(port: int = 0) -> Iterator[socket.socket]:
    """`with`: yield a socket that is bound to the loopback.

    Args:
        port: 0 for any that is free.

    Raises:
        errors.DrawbarError: the port cannot be used.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((ADDRESS, port))
        except OSError as error:
            why = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be used ({error.strerror})"
            raise errors.DrawbarError(
                f"port {port} of {ADDRESS} {why}; name another one by --port, or leave it out for any that is free"
            ) from error
        yield bound


@contextlib.asynccontextmanager
async def serving(latest: following.Latest, bound: socket.socket) -> AsyncIterator[str]:
    """`async with`: serve the page, and yield its URL, which has the token.

    Args:
        latest: what to show.
        bound: see `listening`.
    """
    token = secrets.token_urlsafe(32)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", _Pages(latest, token).answer)
    runner = web.AppRunner(
        app, access_log=None, max_line_size=LINE_LIMIT_BYTES, shutdown_timeout=SHUTDOWN_SECONDS
    )
    try:
        await runner.setup()
        await web.SockSite(runner, bound).start()
        yield f"http://{ADDRESS}:{bound.getsockname()[1]}/{token}/"
    finally:
        await runner.cleanup()
