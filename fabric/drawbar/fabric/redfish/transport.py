"""The transport to one Redfish service: single requests, and their redirects on the configured origin.

An answer is bounded in bytes, values and depth, also if it is compressed. A request with possible effects is sent
once. It is sent again only after a redirect.
"""

import asyncio
import base64
import contextlib
import errno
import functools
import socket
import ssl
import urllib.parse
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from dataclasses import dataclass

import aiohappyeyeballs
import aiohttp
import msgspec
import multidict
import yarl

from drawbar.fabric import budget, contract, errors, judgement, tls
from drawbar.fabric.contract.credentials import FILLER
from drawbar.fabric.redfish import (
    addresses,
    decoding,
    documents,
    failures,
    messages,
    pace,
    polling,
    transcripts,
)

REDIRECTS = 3
# Tasks that wait for answers; how many of their requests are on their way at once is the pace's.
PARALLEL = polling.AT_ONCE_MAX
# The time that each answer adds to the deadline of a listing, and the most that all of them add.
ANSWER_SECONDS = 1.0
ROOT = "/redfish/v1"
LISTING_SECONDS_MAX = 600.0
EVENT_BYTES = 64 * 1024
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_BUSY = frozenset({429, 503})
# Statuses of a change that tell its outcome without a body.
_DONE = frozenset({201, 202})
# Some services send long headers for browsers, or links to schemas.
HEADER_BYTES = 32 * 1024
# Identity is preferred, since unpacking costs time. Some services send only gzip.
_ENCODINGS = "identity, gzip;q=0.5, deflate;q=0.5"
REFUSED_ADDRESS = "the controller may not connect to its address; add its network to fabricNetworks of the controller's configuration"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request to the service.

    Attributes:
        method: of HTTP.
        url: of the resource.
        what: the request, for people, such as "to read /redfish/v1".
        body: None without one.
        headers: besides those of every request.
        changes: whether it may change something.
        listing: the budget of the answer; None for a budget of its own.
        seconds: the deadline; None for the configured one.
    """

    method: str
    url: yarl.URL
    what: str
    body: documents.Json | None = None
    headers: Mapping[str, str] | None = None
    changes: bool = False
    listing: budget.Listing | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer of a status below 400; its body is empty if it has none, or redirects.

    Attributes:
        headers: likewise.
        body: likewise.
        path: of the request.
    """

    status: int
    headers: Mapping[str, str]
    body: documents.Json
    path: str = ""

    @property
    def locations(self) -> tuple[str, ...]:
        """Return the URIs in the header Location, and in the body: those of a task's monitor, or of the resource."""
        shown = (
            self.headers.get("Location"),
            documents.value(self.body, "TaskMonitor"),
            self.body.get(documents.ID),
        )
        return tuple(self._resolve(uri) for uri in shown if isinstance(uri, str) and uri)

    def _resolve(self, uri: str) -> str:
        """Return a URI that is relative to the request as a path; some services only omit the first slash."""
        is_relative = not uri.startswith("/") and "://" not in uri and not uri.lower().startswith("redfish/")
        return urllib.parse.urljoin(self.path, uri) if is_relative else uri


class Transport:
    """The connections to one service.

    Attributes:
        answers: the number of answered requests.
        is_proven: whether the service has shown that it is one of Redfish; before that it is not quoted.
        tokens: the secrets of sessions that an answer may echo.
    """

    def __init__(
        self,
        config: contract.AdapterConfig,
        recorder: transcripts.Recorder | None = None,
        *,
        requests_at_once: int = polling.AT_ONCE,
    ) -> None:
        """Begin without a connection.

        Raises:
            InvalidConfiguration: a certificate of the configuration cannot be used.
        """
        self.answers = 0
        self.is_proven = False
        self.tokens: tuple[str, ...] = ()
        self._config = config
        self._base = yarl.URL(config.endpoint)
        self._addresses = addresses.Addresses(self._base)
        self._session = _build_session(config)
        # A service may have closed an idle connection, and then a request may have had an effect or none. A read is sent
        # again, a change has a connection of its own.
        self._changing = _build_session(config, is_reused=False)
        self._recorder = recorder
        self._pace = pace.Pace(requests_at_once)
        self._server_name = config.tls.server_name or None
        # For all event streams of this transport, so that a new stream gets no full balance.
        self._flow = budget.Flow(config.limits, config.name, clock=asyncio.get_running_loop().time)
        # Of calls in flight, which each answer puts off, with the latest that each may become.
        self._deadlines: dict[asyncio.Timeout, float] = {}

    async def close(self) -> None:
        """Close all connections; idempotent."""
        try:
            await self._session.close()
        finally:
            await self._changing.close()

    @contextlib.contextmanager
    def extending(self, deadline: asyncio.Timeout) -> Iterator[None]:
        """Put the deadline off by `ANSWER_SECONDS` with each answer: a large service may take longer than a small one."""
        began = deadline.when() or 0.0
        self._deadlines[deadline] = began + LISTING_SECONDS_MAX
        try:
            yield
        finally:
            del self._deadlines[deadline]

    def put_off(self, seconds: float) -> None:
        """Put the deadlines of calls in flight off by these seconds, within their limits."""
        for deadline, latest in self._deadlines.items():
            due = deadline.when()
            if due is not None and not deadline.expired():
                deadline.reschedule(min(due + seconds, latest))

    def begin_listing(self) -> budget.Listing:
        """Return the unused budget of one listing."""
        return budget.Listing(self._config.limits, self._config.name)

    def resolve(self, uri: str, redirected: yarl.URL | None = None) -> yarl.URL:
        """Return the address of a resource on the configured origin; see `addresses.Addresses`.

        Raises:
            Unavailable: the address is not one of Redfish.
        """
        try:
            return self._addresses.resolve(uri, redirected)
        except addresses.Foreign as error:
            raise self.build_malformed("to follow a link", str(error)) from error

    def build_malformed(self, what: str, did: str, *, changes: bool = False) -> errors.Unavailable:
        """Return the error of an answer that breaks the rules of Redfish; see `failures.build_malformed`."""
        return failures.build_malformed(self._exchange(what, changes=changes), did)

    def redact(self, text: str) -> str:
        """Return a text of the service without secrets, also those that a proxy echoes from the headers."""
        credentials = self._config.credentials
        basic = base64.b64encode(f"{credentials.username}:{credentials.password}".encode()).decode()
        for secret in (*self.tokens, basic if credentials.password else ""):
            if secret:
                text = text.replace(secret, FILLER)
        return credentials.redact(text)

    async def send(self, request: Request) -> Answer:
        """Send a request, and follow its redirects on this origin (RFC 9110, section 15.4).

        The request is sent again after 307 and 308, and after 301 and 302 to the same path with another slash at its end:
        it had no effect. Any other redirect of a change names the result.

        Raises:
            FabricError: it was refused, or failed.
        """
        method, url, body = request.method, request.url, request.body
        for _ in range(REDIRECTS + 1):
            answer = await self._send_once(request, method, url, body)
            location = answer.headers.get("Location", "")
            if answer.status not in _REDIRECTS or not location:
                return answer
            try:
                target = self._addresses.resolve(location, url)
            except addresses.Foreign as error:
                exchange = self._exchange(request.what, changes=request.changes)
                remedy = failures.find_scheme_remedy(exchange)
                raise failures.build_malformed(
                    exchange, f"redirected to another host or port{remedy}"
                ) from error
            is_same = target.path.rstrip("/") == url.path.rstrip("/")
            if answer.status == 303 or (answer.status in {301, 302} and not is_same):
                method, body = "GET", None
            url = target
        raise self.build_malformed(
            request.what, f"redirected more than {REDIRECTS} times", changes=request.changes
        )

    async def _send_once(
        self, request: Request, method: str, url: yarl.URL, body: documents.Json | None
    ) -> Answer:
        """Send one request without a redirect.

        Raises:
            FabricError: it was refused, or failed.
        """
        content = None if body is None else msgspec.json.encode(body)
        status, received, raw = await self._send_raw(request, method, url, content)
        self._note_answer(status, received)
        what, changes = request.what, request.changes
        if status >= 400:
            exchange = self._exchange(what, changes=changes)
            raise messages.refusal(
                status,
                decoding.refusal(raw) if self.is_proven else {},
                what=what,
                changes=changes,
                redacted=self.redact,
                remedy=failures.find_status_remedy(exchange, status),
                challenge=self.redact(", ".join(received.getall("WWW-Authenticate", ()))),
            )
        if status in _REDIRECTS:
            return Answer(status=status, headers=received, body={})
        answered = decoding.json_object(raw, received.get("Content-Type", ""))
        if answered is None and changes and status in _DONE:
            # Some services say so in words, so the outcome is read.
            answered = {}
        if answered is None:
            content_type = errors.cut(
                self.redact(received.get("Content-Type", "").partition(";")[0].strip()),
                documents.TEXT_BYTES,
            )
            named = content_type if self.is_proven and content_type else "something"
            raise self.build_malformed(what, f"answered with {named} that is no JSON object", changes=changes)
        self._addresses.note(raw)
        return Answer(status=status, headers=received, body=answered, path=url.raw_path)

    async def _send_raw(
        self, request: Request, method: str, url: yarl.URL, content: bytes | None
    ) -> tuple[int, multidict.CIMultiDictProxy[str], bytes]:
        """Return status, headers and body of the answer to one request, and keep them with the recorder.

        Raises:
            FabricError: there is none.
        """
        kind = {} if content is None else {"Content-Type": "application/json"}
        seconds = self._config.timeout_seconds if request.seconds is None else request.seconds
        session = self._session if method == "GET" else self._changing
        try:
            async with (
                self._pace,
                self._translate_errors(request.what, changes=request.changes, seconds=seconds),
                session.request(
                    method,
                    url,
                    headers={**(request.headers or {}), **kind},
                    allow_redirects=False,
                    data=content,
                    timeout=aiohttp.ClientTimeout(total=seconds),
                    server_hostname=self._server_name,
                ) as response,
            ):
                status, received = response.status, _read_headers(response)
                raw = await _read_body(response, request.listing or self.begin_listing())
        except (errors.FabricError, asyncio.CancelledError) as error:
            if self._recorder is not None:
                is_stall = isinstance(error, errors.DeadlineExceeded | asyncio.CancelledError)
                self._recorder.record_failure(method, url, content, "stall" if is_stall else "broken")
            raise
        if self._recorder is not None:
            self._recorder.record_answer(method, url, content, status=status, headers=received, raw=raw)
        return status, received, raw

    def _note_answer(self, status: int, headers: Mapping[str, str]) -> None:
        """Put off the deadlines of calls in flight, and adapt the number of requests at once."""
        self.answers += 1
        self.put_off(ANSWER_SECONDS)
        if status in _BUSY:
            self._pace.note_busy(decoding.retry_after_seconds(headers.get("Retry-After")) or 0.0)
        else:
            self._pace.note_answer()

    async def probe(self, seconds: float) -> bool:
        """Return whether the service answers for its root within these seconds, with any status; the pace does not delay it."""
        try:
            async with self._session.get(
                self.resolve(f"{ROOT}/"),
                timeout=aiohttp.ClientTimeout(total=seconds),
                allow_redirects=False,
                server_hostname=self._server_name,
            ):
                return True
        except (aiohttp.ClientError, TimeoutError, ValueError):
            return False

    async def stream(self, uri: str, headers: Mapping[str, str], what: str) -> AsyncGenerator[None, None]:
        """Yield once when a stream of server-sent events is open, and then for each part of it.

        Raises:
            FabricError: the stream cannot be opened, broke off, or exceeds its budget; then it is closed.
        """
        # The service is silent between events: connecting is bounded, reading is not.
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._config.timeout_seconds)
        async with self._translate_errors(what, changes=False):
            async with asyncio.timeout(self._config.timeout_seconds):
                response = await self._session.get(
                    self.resolve(uri),
                    headers={"Accept": "text/event-stream", **headers},
                    timeout=timeout,
                    allow_redirects=False,
                    server_hostname=self._server_name,
                )
            try:
                kind = _read_headers(response).get("Content-Type", "").partition(";")[0].strip().lower()
                if response.status != 200 or kind != "text/event-stream":
                    raise self.build_malformed(what, f"answered with {response.status} {kind}")
                yield
                async for part in response.content.iter_chunked(EVENT_BYTES):
                    self._flow.take(len(part))
                    yield
            finally:
                response.close()

    @contextlib.asynccontextmanager
    async def _translate_errors(
        self, what: str, *, changes: bool, seconds: float | None = None
    ) -> AsyncIterator[None]:
        """Raise errors of the contract in place of the library's, for a request with this deadline."""
        try:
            yield
        except errors.FabricError as error:
            if changes:
                raise judgement.unknown(error) from error
            raise
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise failures.translate(error, self._exchange(what, changes=changes, seconds=seconds)) from error

    def _exchange(self, what: str, *, changes: bool, seconds: float | None = None) -> failures.Exchange:
        return failures.Exchange(
            what=what,
            base=self._base,
            changes=changes,
            is_proven=self.is_proven,
            timeout_seconds=self._config.timeout_seconds if seconds is None else seconds,
            answers=self.answers,
        )


def _build_session(config: contract.AdapterConfig, *, is_reused: bool = True) -> aiohttp.ClientSession:
    """Return the library's session for a configuration.

    Args:
        config: of the adapter.
        is_reused: whether a connection serves several requests.

    Raises:
        InvalidConfiguration: a certificate of the configuration cannot be used.
    """
    context: ssl.SSLContext | bool = True
    if yarl.URL(config.endpoint).scheme == "https":
        context = tls.context(config.credentials, config.tls)
    opened = functools.partial(_open, config.networks) if config.networks is not None else None
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            ssl=context, limit=PARALLEL + 2, socket_factory=opened, force_close=not is_reused
        ),
        timeout=aiohttp.ClientTimeout(total=config.timeout_seconds),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        max_line_size=HEADER_BYTES,
        max_field_size=HEADER_BYTES,
        middlewares=(_send_at_most_once,),
        headers={"Accept": "application/json", "Accept-Encoding": _ENCODINGS, "OData-Version": "4.0"},
    )


def _read_headers(response: aiohttp.ClientResponse) -> multidict.CIMultiDictProxy[str]:
    """Return the headers of an answer, with U+FFFD in place of bytes that are not UTF-8; the library has half characters there."""
    return multidict.CIMultiDictProxy(
        multidict.CIMultiDict(
            (
                name,
                value if value.isascii() else value.encode(errors="surrogateescape").decode(errors="replace"),
            )
            for name, value in response.headers.items()
        )
    )


async def _read_body(response: aiohttp.ClientResponse, listing: budget.Listing) -> bytes:
    """Return the unpacked body of an answer.

    If the body of a refusal breaks off, return an empty one: its status suffices.
    """
    try:
        return decoding.unpack(await _read(response, listing), response.headers, listing)
    except (aiohttp.ClientPayloadError, decoding.Damaged):
        if response.status < 400:
            raise
        return b""


async def _send_at_most_once(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Send a request through the library without its repetition of a DELETE after a lost connection."""
    try:
        return await handler(request)
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        if request.method == "GET" or isinstance(error, aiohttp.ClientConnectorError):
            raise
        raise aiohttp.ClientConnectionError(str(error)) from error


async def _read(response: aiohttp.ClientResponse, listing: budget.Listing) -> bytearray:
    """Return the body of an answer, counted while it arrives: its values cost memory in addition to its bytes."""
    raw = bytearray()
    async for part in response.content.iter_any():
        try:
            listing.count(budget.Counted.BYTES, len(part))
        except errors.FabricError:
            # Not to the pool: the rest is still to come.
            response.close()
            raise
        raw += part
    listing.count(budget.Counted.VALUES, raw.count(b",") + raw.count(b"{") + raw.count(b"["))
    return raw


def _open(networks: contract.Networks, information: aiohappyeyeballs.AddrInfoType) -> socket.socket:
    """Return a socket for a connection to an address, after the resolution of its name.

    Raises:
        OSError: the address is not permitted.
    """
    family, kind, protocol, _, address = information
    if not networks.permits(str(address[0])):
        raise OSError(errno.EACCES, REFUSED_ADDRESS)
    return socket.socket(family, kind, protocol)
