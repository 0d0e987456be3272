"""The HTTPS server for alerts and events.

The body is read only from a sender with the token and, if required, a certificate of the clients' authority. One request per
connection; a connection lasts `CONNECTION_SECONDS` at most. Of more connections than `gate.Limits` allows, the oldest without
authentication is aborted, so that silent callers keep no sender out. A body has `BODY_BYTES` at most.

Each address has a budget of signals (`Flow`). Beyond it, a request is refused before its body is read, so a sender whose signals
change every millisecond costs little, and no other sender waits for it.
"""

import asyncio
import contextlib
import hmac
import logging
import ssl
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from aiohttp import web_exceptions, web_protocol, web_request, web_response, web_server

from drawbar.driver import containment, errors
from drawbar.driver.api.healthpolicies import Source
from drawbar.driver.healthmonitor import settings, signals
from drawbar.driver.operation import address, gate, server

log = logging.getLogger(__name__)

PATHS = {"/v1/alerts": Source.ALERT, "/v1/redfish": Source.REDFISH}
BODY_BYTES = 1 << 20
CONNECTION_SECONDS = 10.0
LINE_LIMIT_BYTES = 8190
HEADERS_LIMIT = 64
LINGER_SECONDS = 1.0
"""So long a refused body is read and dropped, so that its sender sees why."""
CLOSE_TIMEOUT_SECONDS = 2.0
TOKEN_BYTES_MIN = 16
TOKEN_BYTES_MAX = 4096


SIGNALS_PER_SECOND = 500.0
SIGNALS_AT_ONCE = 20_000.0
"""The signals that an address may send at once after a pause: all alerts of a large cluster."""
REQUEST_COST = 20.0
"""A request costs as much as so many signals, even with a single one."""
ADDRESSES_MAX = 256
RETRY_SECONDS = 5


class Flow:
    """The budgets of signals by address, of the `ADDRESSES_MAX` addresses with the latest requests."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        # The rest of each address, and the time of its calculation.
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def has_room(self, address_: str) -> bool:
        """Return whether the address may send signals now."""
        return self._find_left(address_) > 0

    def take(self, address_: str, signals_: int) -> None:
        """Count a request with so many signals."""
        self._left[address_] = self._find_left(address_) - REQUEST_COST - signals_, self._clock()
        self._left.move_to_end(address_)
        if len(self._left) > ADDRESSES_MAX:
            self._left.popitem(last=False)

    def _find_left(self, address_: str) -> float:
        left, at = self._left.get(address_, (SIGNALS_AT_ONCE, 0.0))
        return min(SIGNALS_AT_ONCE, left + (self._clock() - at) * SIGNALS_PER_SECOND)


class NotReady(Exception):
    """The signals cannot be taken now; the sender should try again."""


Receive = Callable[[signals.Batch], None]
"""Take a batch, or raise `NotReady`."""
Count = Callable[[int], None]


class Token:
    """The token that clients send, in a file that is read again."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._expected = b""

    def load(self) -> None:
        """Read the file.

        Raises:
            errors.UsageError: it cannot be read, or holds no token of a fitting length; the former one stays.
        """
        if self._path is None:
            return
        try:
            with self._path.open("rb") as file:
                token = file.read(TOKEN_BYTES_MAX + 1).strip()
        except OSError as error:
            raise errors.UsageError(
                f"cannot read {self._path}: {error.strerror or error}; name the token's file by --token-file"
            ) from error
        if not TOKEN_BYTES_MIN <= len(token) <= TOKEN_BYTES_MAX or b"\n" in token:
            raise errors.UsageError(
                f"{self._path} holds no line of {TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX} bytes; `openssl rand -hex 32` makes a token"
            )
        self._expected = b"Bearer " + token

    async def follow(self, pause_seconds: float) -> None:
        """Read the file now and then, until cancelled."""
        while True:
            await asyncio.sleep(pause_seconds)
            try:
                await asyncio.to_thread(self.load)
            except errors.UsageError as error:
                log.warning("keeping the former token: %s", error)

    def accepts(self, header: str) -> bool:
        """Return whether a header Authorization has the token, in a time that does not depend on the error in it."""
        if self._path is None:
            return True
        return hmac.compare_digest(header.encode(errors="surrogateescape"), self._expected)


@contextlib.asynccontextmanager
async def serving(
    where: settings.Listen,
    context: ssl.SSLContext,
    token: Token,
    receive: Receive,
    count: Count,
    *,
    contained: containment.Containment | None = None,
) -> AsyncIterator[int]:
    """Take requests while the context lasts; give the port. Unexpected errors are `contained`, and answered with 500.

    Raises:
        errors.AddressError: the address cannot be listened on.
    """
    entrance = gate.Gate(context)
    handlers = _Handlers(
        _handler(token, _Intake(receive), count, contained or containment.Uncontained(), entrance),
        access_log=None,
        logger=server.make_request_log(log),
        max_line_size=LINE_LIMIT_BYTES,
        max_field_size=LINE_LIMIT_BYTES,
        max_headers=HEADERS_LIMIT,
        lingering_time=LINGER_SECONDS,
    )
    try:
        listening = await asyncio.get_running_loop().create_server(
            entrance.wrap(handlers), where.address, where.port
        )
    except OSError as error:
        raise address.make_listen_error(where.address, where.port, error) from error
    try:
        yield listening.sockets[0].getsockname()[1]
    finally:
        listening.close()
        entrance.close()
        await handlers.shutdown(CLOSE_TIMEOUT_SECONDS)


class _Handlers(web_server.Server):
    def connection_made(self, handler: web_protocol.RequestHandler, transport: asyncio.Transport) -> None:
        """Bound how long a connection lasts."""
        super().connection_made(handler, transport)
        asyncio.get_running_loop().call_later(CONNECTION_SECONDS, transport.abort)


class _Intake:
    """The way of a request's signals to the monitor."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._flow = Flow(asyncio.get_running_loop().time)

    async def take(self, source: Source, request: web_request.BaseRequest) -> None:
        """Read the signals of a request, and hand them over.

        Raises:
            NotReady: the address has sent too many, or the cluster is not read yet.
            signals.Unreadable: the body is of another form.
        """
        sender = str(request.remote)
        if not self._flow.has_room(sender):
            raise NotReady(
                f"more than {SIGNALS_PER_SECOND:.0f} signals a second came from this address; send fewer, or in fewer requests"
            )
        read = None
        try:
            read = signals.read(source, await request.read())
        finally:
            self._flow.take(sender, len(read.signals) if read is not None else 0)
        self._receive(read)


Handle = Callable[[web_request.BaseRequest], Awaitable[web_response.Response]]


def _handler(
    token: Token, intake: _Intake, count: Count, contained: containment.Containment, entrance: gate.Gate
) -> Handle:
    async def handle(request: web_request.BaseRequest) -> web_response.Response:
        status, text = 500, f"unexpected error; look for '{containment.MESSAGE}' in the log"
        with contained.attempt("requests", request.path if request.path in PATHS else "other"):
            status, text = await _answer(request, token, intake, entrance)
        count(status)
        response = web_response.Response(status=status, text=f"{text}\n")
        if status == web_exceptions.HTTPUnauthorized.status_code:
            response.headers["WWW-Authenticate"] = "Bearer"
        if status == web_exceptions.HTTPServiceUnavailable.status_code:
            response.headers["Retry-After"] = str(RETRY_SECONDS)
        response.force_close()
        return response

    return handle


async def _answer(
    request: web_request.BaseRequest, token: Token, intake: _Intake, entrance: gate.Gate
) -> tuple[int, str]:
    if not token.accepts(request.headers.get("Authorization", "")):
        return 401, "send the token of the health monitor as Authorization: Bearer"
    entrance.keep(request.transport)
    source = PATHS.get(request.path)
    if source is None:
        return 404, f"here are {', '.join(PATHS)}"
    if request.method != "POST":
        return 405, "only POST"
    try:
        await intake.take(source, request)
    except web_exceptions.HTTPRequestEntityTooLarge:
        return 413, f"a body has at most {BODY_BYTES} bytes; have fewer alerts in one"
    except ConnectionError:
        return 400, "the connection was lost"
    except signals.Unreadable as error:
        return 400, str(error)
    except NotReady as error:
        return 503, str(error)
    return 200, "ok"
