"""The page over HTTP, for the browsers of the user who started it.

The server listens on loopback only. Other users of the machine, and pages of other origins in the user's browser, can
reach the port too. So every path begins with a random token; without it the answer is 404. A request that names another
host than the loopback (DNS rebinding) is refused. Connections are bounded as in `operation.server`. Nothing is written, and
no request is logged.

A stream of updates has no queue. Once a browser has read an update, the next one holds the difference since then. A
browser that does not read for `WRITE_SECONDS` is disconnected, and starts again with the whole page.
"""

import asyncio
import contextlib
import errno
import hmac
import secrets
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from importlib import resources

import msgspec
from aiohttp import web, web_request

from drawbar.driver import errors
from drawbar.driver.api import dnsnames
from drawbar.driver.cli import objects
from drawbar.driver.cli.ui import explaining, following, model
from drawbar.driver.operation import server as bounded

ADDRESS = "127.0.0.1"
STREAMS_LIMIT = 16
WRITE_SECONDS = 30.0
# Only a write shows that a browser is gone.
HEARTBEAT_SECONDS = 15.0
SHUTDOWN_SECONDS = 0.2
CONNECTIONS_LIMIT = 64
LASTING = frozenset({"updates", "explain"})
"""The paths whose answers may last longer than a request; streams and explanations have bounds of their own."""

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
KINDS = {
    "html": "text/html",
    "css": "text/css",
    "js": "text/javascript",
    "svg": "image/svg+xml",
}
"""The content types by the suffix of the page's files."""
INDEX = "page.html"
NOT_FOUND = "not found: open the URL that drawbar ui printed"
# The form of a Kubernetes name in the URL of an object.
_NAMELESS = frozenset("/?#%\\")


def is_loopback(host: str) -> bool:
    """Return whether the header `Host` names the loopback; the port may be that of a tunnel."""
    name = host[: host.index("]") + 1] if host.startswith("[") and "]" in host else host.partition(":")[0]
    return name.lower() in {"127.0.0.1", "localhost", "[::1]"}


class Pages:
    """The answers to the requests of one reader, who is known already."""

    def __init__(self, latest: following.Latest, explain: explaining.Explain | None) -> None:
        self._latest = latest
        self._explain = explain
        self._is_closed = False
        self._files = read_files("page")
        self.streams = 0

    def close(self) -> None:
        """End each stream, after an empty page."""
        self._is_closed = True
        self._latest.publish(model.Page())

    async def answer(self, request: web_request.BaseRequest, path: str) -> web.StreamResponse:
        """Answer a request for a path of the page."""
        if request.method not in ("GET", "HEAD"):
            return refuse(405, "only GET and HEAD are answered", Allow="GET, HEAD")
        if path == "updates" and request.method == "GET":
            return await self._stream(request)
        if path == "explain":
            return await self._answer_explain(request.query)
        return send_file(self._files, path)

    async def _answer_explain(self, query: Mapping[str, str]) -> web.Response:
        kind, namespace, name = (query.get(key, "") for key in ("kind", "namespace", "name"))
        names = [
            name,
            *({"claim": [namespace], "pod": [namespace], "device": namespace.split("/")}.get(kind, [])),
        ]
        if self._explain is None or kind not in explaining.KINDS or not all(map(_is_name, names)):
            return refuse(400, f"give a name, and one of the kinds {', '.join(sorted(explaining.KINDS))}")
        if kind == "device":
            # The page sends the pool as the namespace of the device.
            name, namespace = f"{namespace}/{name}", ""
        answer = await self._explain(objects.Target(kind=kind, name=name, namespace=namespace))
        return web.Response(
            body=msgspec.json.encode(answer), content_type="application/json", headers=HEADERS
        )

    async def _stream(self, request: web_request.BaseRequest) -> web.StreamResponse:
        if self.streams >= STREAMS_LIMIT:
            return refuse(503, f"{STREAMS_LIMIT} pages are open already; close one")
        response = web.StreamResponse(headers=HEADERS | {"Content-Type": "text/event-stream; charset=utf-8"})
        response.force_close()
        self.streams += 1
        try:
            await response.prepare(request)
            with contextlib.suppress(ConnectionError):
                await self._send(response)
        except TimeoutError:
            if request.transport is not None:
                request.transport.abort()
        finally:
            self.streams -= 1
        return response

    async def _send(self, response: web.StreamResponse) -> None:
        before: model.Page | None = None
        while True:
            page = self._latest.page
            update = model.update(before, page)
            for part in model.split(update) if update is not None else (None,):
                content = b":\n\n" if part is None else b"data: " + msgspec.json.encode(part) + b"\n\n"
                async with asyncio.timeout(WRITE_SECONDS):
                    await response.write(content)
            before = page
            if self._is_closed:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(HEARTBEAT_SECONDS):
                    await self._latest.wait_for_newer(page)


class _LocalPages:
    """The answers to requests on the loopback that have the token and name the loopback as host.

    Attributes:
        handlers: the protocol of the listener.
    """

    def __init__(self, pages: Pages, token: str) -> None:
        self._pages = pages
        self._token = token.encode()
        self.handlers = bounded.make_handlers(self.answer, CONNECTIONS_LIMIT)

    async def answer(self, request: web_request.BaseRequest) -> web.StreamResponse:
        """Answer a request; each has a connection of its own."""
        response = await self._answer(request)
        response.force_close()
        return response

    async def _answer(self, request: web_request.BaseRequest) -> web.StreamResponse:
        if not is_loopback(request.headers.get("Host", "")):
            return refuse(
                421,
                "this is the page of drawbar ui on another machine's loopback; open the URL that it printed",
            )
        token, _, path = request.path.removeprefix("/").partition("/")
        if not hmac.compare_digest(token.encode(errors="surrogateescape"), self._token):
            return refuse(404, NOT_FOUND)
        if path in LASTING:
            self.handlers.keep(request)
        return await self._pages.answer(request, path)


Files = Mapping[str, tuple[bytes, str]]


def read_files(folder_name: str) -> Files:
    """Return content and type of a folder's files by path."""
    folder = resources.files("drawbar.driver.cli.ui").joinpath(folder_name)
    files = {
        item.name: (item.read_bytes(), KINDS[item.name.rpartition(".")[2]])
        for item in folder.iterdir()
        if item.name.rpartition(".")[2] in KINDS
    }
    return {"": files.pop(INDEX), **files}


def send_file(files: Files, path: str) -> web.Response:
    """Return a file, or 404."""
    if path not in files:
        return refuse(404, NOT_FOUND)
    body, kind = files[path]
    return web.Response(body=body, content_type=kind, charset="utf-8", headers=HEADERS)


def _is_name(content: str) -> bool:
    return (
        0 < len(content) <= dnsnames.SUBDOMAIN_CHARS
        and content.isprintable()
        and _NAMELESS.isdisjoint(content)
    )


def refuse(status: int, sentence: str, **headers: str) -> web.Response:
    """Return an error for people."""
    return web.Response(status=status, text=sentence + "\n", headers=HEADERS | headers)


@contextlib.contextmanager
def listening(port: int = 0) -> Iterator[socket.socket]:
    """Yield a socket that is bound to the loopback.

    Args:
        port: the port; 0 for any free one.

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
async def serving(
    latest: following.Latest, bound: socket.socket, explain: explaining.Explain | None = None
) -> AsyncIterator[str]:
    """Serve the page, and yield its URL, which has the token.

    Args:
        latest: the content.
        bound: see `listening`.
        explain: explains an object; None to refuse such requests.
    """
    token = secrets.token_urlsafe(32)
    site = _LocalPages(Pages(latest, explain), token)
    try:
        listener = await asyncio.get_running_loop().create_server(site.handlers, sock=bound)
        try:
            yield f"http://{ADDRESS}:{bound.getsockname()[1]}/{token}/"
        finally:
            listener.close()
    finally:
        await site.handlers.shutdown(SHUTDOWN_SECONDS)
