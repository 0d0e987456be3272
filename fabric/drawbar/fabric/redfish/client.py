"""The client of a Redfish service (DSP0266): sessions, ETags, tasks, pages, and errors of the contract.

The service is not trusted: an answer is bounded in bytes, values and depth, both by itself and as a part of a listing
(`reading`), also if it is compressed. Every request goes to the configured origin. A manager behind a proxy may link
to another name of the service; such a link is followed on the configured origin. A request with possible effects is
sent once. It is sent again only after a redirect or a refusal for lack of a session.
"""

import asyncio
import base64
import contextlib
import errno
import functools
import logging
import re
import socket
import ssl
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Self

import aiohappyeyeballs
import aiohttp
import msgspec
import yarl

from drawbar.fabric import backoff, budget, contract, errors, judgement, tls
from drawbar.fabric.contract.credentials import FILLER
from drawbar.fabric.redfish import decoding, documents, messages, pace, polling, transcripts

_logger = logging.getLogger(__name__)

ROOT = "/redfish/v1"
REDIRECTS = 3
# Tasks that wait for answers; how many of their requests are on their way at once is the pace's.
PARALLEL = polling.AT_ONCE_MAX
CLOSE_SECONDS = 2.0
# What each answer adds to the deadline of a listing, and the most that all of them add.
ANSWER_SECONDS = 1.0
LISTING_SECONDS_MAX = 600.0
EVENT_BYTES = 64 * 1024
TASK_PAUSE_SECONDS_MIN = 0.1
TASK_PAUSE_SECONDS_MAX = 10.0
# Of Task (`TaskState`); "Killed" is that of services before Task 1.2.
ENDED_STATES = frozenset({"Completed", "Exception", "Killed", "Cancelled"})
MALFORMED = "MALFORMED_ANSWER"
BROKEN_OFF = "BROKEN_OFF"
BUSY = "SERVICE_BUSY"
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_BUSY = frozenset({429, 503})
# A URI with a slash at its end, as a value of JSON.
_SLASHED = re.compile(rb'"(/[^"\\\s]{1,1000})/"')
SLASHED_MAX = 16_384
# Identity is preferred, since unpacking costs time. Some services send only gzip.
_ENCODINGS = "identity, gzip;q=0.5, deflate;q=0.5"
REFUSED_ADDRESS = "the controller may not connect to its address; add its network to fabricNetworks of the controller's configuration"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The progress of a service's task.

    Attributes:
        percent: 0 to 100; None if unknown.
        retry_after_seconds: the time until the next look.
    """

    percent: int | None = None
    retry_after_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    status: int
    headers: Mapping[str, str]
    body: documents.Json


class Client:
    """One connection to one Redfish service; made by `connect`, ended by `close`.

    Attributes:
        root: the service root.
        answers: the number of answered requests.
    """

    def __init__(
        self,
        config: contract.AdapterConfig,
        session: aiohttp.ClientSession,
        recorder: transcripts.Recorder | None = None,
        *,
        requests_at_once: int = polling.AT_ONCE,
    ) -> None:
        self.root = documents.Document(uri=ROOT)
        self._config = config
        self._base = yarl.URL(config.endpoint)
        self._session = session
        self._recorder = recorder
        self._pace = pace.Pace(requests_at_once)
        self._token = ""
        # Of this session and of the one before, which an answer on its way may still echo.
        self._tokens: tuple[str, ...] = ()
        self._session_uri: str | None = None
        self._is_basic = False
        # The refusal after which the password is sent with each request.
        self._refused_login: errors.Unauthenticated | None = None
        self._server_name = config.tls.server_name or None
        self._login = asyncio.Lock()
        # For all event streams of this client, so that a new stream gets no full balance.
        self._flow = budget.Flow(config.limits, config.name, clock=asyncio.get_running_loop().time)
        self._closed = False
        # Whether the service has shown that it is one of Redfish.
        self._is_proven = False
        # Of calls in flight, which each answer puts off, with the latest that each may become.
        self._deadlines: dict[asyncio.Timeout, float] = {}
        self.answers = 0
        # Paths that the service writes with a slash at the end; some serve nothing without it.
        self._slashed: OrderedDict[str, None] = OrderedDict()

    @classmethod
    async def connect(
        cls,
        config: contract.AdapterConfig,
        recorder: transcripts.Recorder | None = None,
        *,
        requests_at_once: int = polling.AT_ONCE,
    ) -> Self:
        """Read the service root and begin a session, if there are credentials; keep all but events with the recorder.

        Raises:
            InvalidConfiguration: a certificate of the configuration cannot be used.
            FabricError: the service cannot be reached, or refuses the credentials.
        """
        context: ssl.SSLContext | bool = True
        if yarl.URL(config.endpoint).scheme == "https":
            context = tls.context(config.credentials, config.tls)
        opened = functools.partial(_open, config.networks) if config.networks is not None else None
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=context, limit=PARALLEL + 2, socket_factory=opened),
            timeout=aiohttp.ClientTimeout(total=config.timeout_seconds),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            middlewares=(_sent_once,),
            headers={"Accept": "application/json", "Accept-Encoding": _ENCODINGS, "OData-Version": "4.0"},
        )
        client = cls(config, session, recorder, requests_at_once=requests_at_once)
        try:
            client.root = await client._read_root()
            await client._begin_session("")
        except BaseException:
            await client.close()
            raise
        return client

    async def _read_root(self) -> documents.Document:
        """Return the service root, and from then on quote the service.

        Before that, an answer only shows that there is a web server. It could be any service that the controller
        reaches and the author of the endpoint does not, so only its status is shown, not its text.

        Raises:
            FabricError: it cannot be read, or is no service root.
        """
        try:
            root = await self.get(ROOT + "/", is_open=True)
        except (errors.NotFound, errors.Unimplemented):
            root = await self.get(ROOT, is_open=True)
        if not (root.text("@odata.type").startswith("#ServiceRoot.") or root.text("RedfishVersion")):
            raise self._odd("to read the service root", "answered as no Redfish service does", changes=False)
        self._is_proven = True
        return root

    @contextlib.contextmanager
    def extending(self, deadline: asyncio.Timeout) -> Iterator[None]:
        """Put the deadline off by `ANSWER_SECONDS` with each answer: a large service may take longer than a small one."""
        began = deadline.when() or 0.0
        self._deadlines[deadline] = began + LISTING_SECONDS_MAX
        try:
            yield
        finally:
            del self._deadlines[deadline]

    def _extend(self) -> None:
        self.answers += 1
        for deadline, latest in self._deadlines.items():
            due = deadline.when()
            if due is not None and not deadline.expired():
                deadline.reschedule(min(due + ANSWER_SECONDS, latest))

    # --- reading ---

    def listing(self) -> budget.Listing:
        """Return the unused budget of one listing."""
        return budget.Listing(self._config.limits, self._config.name)

    async def get(
        self, uri: str, *, query: str = "", is_open: bool = False, listing: budget.Listing | None = None
    ) -> documents.Document:
        """Read a resource and return it.

        Args:
            uri: its path.
            query: such as `$expand=.($levels=1)`.
            is_open: whether the resource needs no credentials.
            listing: the budget of the answer; None for a budget of its own.

        Raises:
            FabricError: it cannot be read; NotFound if there is none.
        """
        url, what = self._url(uri), f"to read {uri}"
        if query:
            url = url.with_query(query)
        answer = await self._send("GET", url, what=what, is_open=is_open, listing=listing)
        if answer.status != 200:
            raise self._odd(what, f"answered with the status {answer.status}", changes=False)
        return documents.Document.from_json(answer.body, uri=uri, etag=answer.headers.get("ETag"))

    # --- changing ---

    async def change(
        self,
        method: str,
        uri: str,
        body: documents.Json | None = None,
        *,
        etag: str | None = None,
        on_progress: Callable[[Progress], None] = lambda _: None,
    ) -> documents.Document | None:
        """Send a request that changes something, and wait for the end of its task, if there is one.

        Return the resource in the answer; None without one, and after a task. The caller sets the deadline, and reads
        the fabric again to see the outcome.

        Args:
            method: of HTTP.
            uri: that of the resource, collection or action.
            body: of the request.
            etag: the ETag of the reading; the resource must not have changed since.
            on_progress: called with each state of the task.

        Raises:
            FabricError: it was refused, or failed.
        """
        headers = {"If-Match": etag} if etag else {}
        what = f"{method} {uri}"
        answer = await self._send(method, self._url(uri), body=body, headers=headers, what=what, changes=True)
        if answer.status == 202:
            await self._task_ended(answer, what, on_progress)
        elif answer.status not in {200, 201, 204}:
            raise self._odd(what, f"answered with the status {answer.status}", changes=True)
        is_shown = answer.status != 202 and (answer.body or "ETag" in answer.headers)
        if not is_shown:
            return None
        return documents.Document.from_json(answer.body, uri=uri, etag=answer.headers.get("ETag"))

    async def _task_ended(self, answer: _Answer, what: str, on_progress: Callable[[Progress], None]) -> None:
        """Wait for the end of a task (DSP0266, "Asynchronous operations").

        A monitor answers 202 while the task runs, then as the request itself would have. Some services send the task
        in place of its monitor, and some forget the monitor at once.
        """
        monitor = answer.headers.get("Location") or _own_uri(answer.body)
        if not monitor:
            raise self._odd(what, "accepted it and names no task monitor", changes=True)
        where, pauses = self._url(monitor), _task_pauses()
        while True:
            state = documents.text(answer.body, "TaskState")
            if state in ENDED_STATES:
                if state == "Completed":
                    return
                entries = documents.objects(answer.body, "Messages")[: messages.MESSAGES]
                raise messages.failure(entries, what=what, redacted=self._redacted)
            asked = decoding.retry_after_seconds(answer.headers.get("Retry-After"))
            pause = (
                pauses.count_failure()
                if asked is None
                else min(max(asked, TASK_PAUSE_SECONDS_MIN), TASK_PAUSE_SECONDS_MAX)
            )
            percent = documents.number(answer.body, "PercentComplete")
            on_progress(Progress(percent=min(percent, 100) if percent else None, retry_after_seconds=pause))
            await asyncio.sleep(pause)
            try:
                answer = await self._send("GET", where, what=f"to follow the task of {what}", changes=True)
            except errors.NotFound:
                # It ended, and its monitor is gone, or the service has forgotten it: the fabric shows which.
                return
            except errors.Misconfigured as error:
                raise judgement.unknown(error) from error
            except errors.Transient as error:
                if error.reason in messages.FINAL_REASONS:
                    raise
                _logger.info(
                    "a task of the Redfish service cannot be followed now", extra={"error": error.message}
                )
                answer = _Answer(status=202, headers={}, body={})
                continue
            if answer.status in {201, 204} or (
                answer.status == 200 and not documents.text(answer.body, "TaskState")
            ):
                return

    async def task_ended(self, uri: str) -> None:
        """Wait until a task, begun by any client, has ended or is forgotten; the caller sets the deadline.

        Raises:
            FabricError: it cannot be read, for another reason than that the service is not reached now.
        """
        pauses = _task_pauses()
        while True:
            try:
                task = await self.get(uri)
            except errors.NotFound:
                return
            except errors.Transient as error:
                _logger.debug("a task of the Redfish service cannot be read", extra={"error": error.message})
            else:
                if task.text("TaskState") in ENDED_STATES:
                    return
            await asyncio.sleep(pauses.count_failure())

    # --- events ---

    async def events(self) -> AsyncGenerator[None, None]:
        """Yield once when the service's stream of server-sent events is open, and then for each event.

        The content is ignored: an event is only a hint. Use it with `contextlib.aclosing`.

        Raises:
            Unimplemented: the service offers no stream.
            FabricError: the stream cannot be opened, broke off, or exceeds its budget; then it is closed.
        """
        uri = self.root.link("EventService")
        service = await self.get(uri) if uri is not None else None
        stream = service.value("ServerSentEventUri") if service is not None else None
        if not isinstance(stream, str) or not stream:
            raise errors.Unimplemented("the Redfish service sends no events")
        what = "to send its events"
        # The service is silent between events: connecting is bounded, reading is not.
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._config.timeout_seconds)
        headers = {"Accept": "text/event-stream", **self._authorization()}
        async with self._translated(what, changes=False):
            async with asyncio.timeout(self._config.timeout_seconds):
                response = await self._session.get(
                    self._url(stream),
                    headers=headers,
                    timeout=timeout,
                    allow_redirects=False,
                    server_hostname=self._server_name,
                )
            try:
                if response.status != 200 or response.content_type != "text/event-stream":
                    raise self._odd(
                        what, f"answered with {response.status} {response.content_type}", changes=False
                    )
                yield
                async for part in response.content.iter_chunked(EVENT_BYTES):
                    self._flow.take(len(part))
                    yield
            finally:
                response.close()

    # --- sessions ---

    async def _begin_session(self, former: str) -> None:
        """Begin a session in place of the one with the former token, unless another task has begun one."""
        credentials = self._config.credentials
        if not credentials.username or self._is_basic:
            return
        async with self._login:
            if self._token != former:
                return
            uri = self.root.link("Links", "Sessions") or self._sessions_of_schema()
            if uri is None:
                self._is_basic = True
                return
            body = {"UserName": credentials.username, "Password": credentials.password}
            what = f"to begin a session as {credentials.username}"
            try:
                answer = await self._redirected("POST", self._url(uri), body, {}, what, changes=True)
            except (errors.NotFound, errors.Unimplemented):
                self._is_basic = True
                _logger.info("the Redfish service has no sessions, each request carries the password")
                return
            except errors.Unauthenticated as error:
                if not former and error.vendor.get(messages.CHALLENGE, "").casefold().startswith("basic"):
                    # A wrong password is refused again.
                    self._is_basic, self._refused_login = True, error
                    return
                raise
            except (errors.Refused, errors.Misconfigured) as error:
                raise messages.about_login(error) from error
            self._token = answer.headers.get("X-Auth-Token", "")
            self._tokens = (former, self._token)
            if not self._token:
                raise self._odd("to begin a session", "sent no X-Auth-Token", changes=False)
            location = answer.headers.get("Location") or _own_uri(answer.body)
            self._session_uri = location or None

    def _sessions_of_schema(self) -> str | None:
        """Return the schema's place of the sessions if the service has them there without a link; else None."""
        service = self.root.link("SessionService")
        return f"{service}/Sessions" if service is not None else None

    def _authorization(self) -> dict[str, str]:
        credentials = self._config.credentials
        if self._token:
            return {"X-Auth-Token": self._token}
        if self._is_basic:
            return {
                "Authorization": aiohttp.encode_basic_auth(
                    credentials.username, credentials.password, "utf-8"
                )
            }
        return {"Authorization": f"Bearer {credentials.token}"} if credentials.token else {}

    async def close(self) -> None:
        """End the session on the service, within `CLOSE_SECONDS`, and close all connections; idempotent."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._session_uri is not None:
                async with asyncio.timeout(CLOSE_SECONDS):
                    url = self._url(self._session_uri)
                    await self._redirected(
                        "DELETE", url, None, self._authorization(), "to end the session", changes=True
                    )
        except (errors.FabricError, TimeoutError) as error:
            _logger.debug("the session on the Redfish service was not ended", extra={"error": str(error)})
        finally:
            await self._session.close()

    # --- one exchange ---

    async def _send(
        self,
        method: str,
        url: yarl.URL,
        *,
        what: str,
        body: documents.Json | None = None,
        headers: Mapping[str, str] | None = None,
        changes: bool = False,
        is_open: bool = False,
        listing: budget.Listing | None = None,
    ) -> _Answer:
        """Send a request and return the answer.

        If it is refused for lack of a session, and so had no effect, it is sent again with a new session.
        """
        if self._closed:
            raise errors.Unavailable("the connection to the Redfish service is closed")
        token = self._token
        own = {} if is_open else self._authorization()
        try:
            return await self._redirected(
                method, url, body, {**(headers or {}), **own}, what, changes=changes, listing=listing
            )
        except errors.Unauthenticated as error:
            if self._is_basic and self._refused_login is not None:
                raise self._refused_login from error
            if is_open or not token:
                raise
        await self._begin_session(token)
        own = self._authorization()
        return await self._redirected(
            method, url, body, {**(headers or {}), **own}, what, changes=changes, listing=listing
        )

    async def _redirected(
        self,
        method: str,
        url: yarl.URL,
        body: documents.Json | None,
        headers: Mapping[str, str],
        what: str,
        *,
        changes: bool,
        listing: budget.Listing | None = None,
    ) -> _Answer:
        """Send a request, and follow its redirects on this origin (RFC 9110, section 15.4).

        The request is sent again after 307 and 308, and after 301 and 302 to the same path with another slash at its end:
        it had no effect. Any other redirect of a change names the result.
        """
        for _ in range(REDIRECTS + 1):
            answer = await self._send_once(method, url, body, headers, what, changes=changes, listing=listing)
            location = answer.headers.get("Location", "")
            if answer.status not in _REDIRECTS or not location:
                return answer
            try:
                target = self._url(location, is_redirect=True)
            except errors.FabricError as error:
                raise judgement.unknown(error) if changes else error from error
            is_same = target.path.rstrip("/") == url.path.rstrip("/")
            if answer.status == 303 or (answer.status in {301, 302} and not is_same):
                method, body = "GET", None
            url = target
        raise self._odd(what, f"redirected more than {REDIRECTS} times", changes=changes)

    async def _send_once(
        self,
        method: str,
        url: yarl.URL,
        body: documents.Json | None,
        headers: Mapping[str, str],
        what: str,
        *,
        changes: bool,
        listing: budget.Listing | None = None,
    ) -> _Answer:
        listing = listing or self.listing()
        content = None if body is None else msgspec.json.encode(body)
        kind = {} if body is None else {"Content-Type": "application/json"}
        try:
            async with (
                self._pace,
                self._translated(what, changes=changes),
                self._session.request(
                    method,
                    url,
                    headers={**headers, **kind},
                    allow_redirects=False,
                    data=content,
                    server_hostname=self._server_name,
                ) as response,
            ):
                status, received = response.status, response.headers
                content_type = response.content_type
                raw = await self._body(response, listing)
        except (errors.FabricError, asyncio.CancelledError) as error:
            if self._recorder is not None:
                is_stall = isinstance(error, errors.DeadlineExceeded | asyncio.CancelledError)
                self._recorder.record_failure(method, url, content, "stall" if is_stall else "broken")
            raise
        if self._recorder is not None:
            self._recorder.record_answer(method, url, content, status=status, headers=received, raw=raw)
        self._extend()
        if status in _BUSY:
            self._pace.note_busy()
        else:
            self._pace.note_answer()
        if status >= 400:
            raise messages.refusal(
                status,
                decoding.refusal(raw) if self._is_proven else {},
                what=what,
                changes=changes,
                redacted=self._redacted,
                remedy=self._scheme_remedy() if status == 400 else "",
                challenge=received.get("WWW-Authenticate", ""),
            )
        if status in _REDIRECTS:
            return _Answer(status=status, headers=received, body={})
        answered = decoding.json_object(raw)
        if answered is None:
            named = content_type if self._is_proven and content_type else "something"
            raise self._odd(what, f"answered with {named} that is no JSON object", changes=changes)
        self._note_slashes(raw)
        return _Answer(status=status, headers=received, body=answered)

    async def _body(self, response: aiohttp.ClientResponse, listing: budget.Listing) -> bytes:
        """Return the unpacked body of an answer.

        If the body of a refusal breaks off, return an empty one: its status suffices.
        """
        try:
            return decoding.unpack(await _read(response, listing), response.headers, listing)
        except (aiohttp.ClientPayloadError, decoding.Damaged):
            if response.status < 400:
                raise
            return b""

    def _note_slashes(self, raw: bytes) -> None:
        """Remember which paths of an answer end with a slash."""
        for match in _SLASHED.finditer(raw):
            self._slashed[match[1].decode(errors="replace")] = None
            if len(self._slashed) > SLASHED_MAX:
                self._slashed.popitem(last=False)

    @contextlib.asynccontextmanager
    async def _translated(self, what: str, *, changes: bool) -> AsyncIterator[None]:
        """Raise errors of the contract in place of the library's."""
        host = self._base.host
        try:
            yield
        except errors.FabricError as error:
            if changes:
                raise judgement.unknown(error) from error
            raise
        except aiohttp.ClientConnectorCertificateError as error:
            raise errors.Unavailable(
                f"the certificate of {host} is not trusted ({_cause(error.certificate_error)}); put the authority that "
                f"signed it into the Fabric's Secret, or the name in it into `tls.serverName`",
                reason="CERTIFICATE_REFUSED",
            ) from error
        except aiohttp.ClientSSLError as error:
            if getattr(error.os_error, "reason", "") == "WRONG_VERSION_NUMBER":
                raise errors.Unavailable(
                    f"{host} speaks no TLS on port {self._base.port}; put http:// into spec.endpoint, or the port of its TLS",
                    reason="TLS_REFUSED",
                ) from error
            raise errors.Unavailable(
                f"no TLS with {host} ({_cause(error.os_error)}); look at the endpoint and at the client certificate",
                reason="TLS_REFUSED",
            ) from error
        except aiohttp.ClientConnectorError as error:
            raise errors.Unavailable(f"{host} cannot be reached ({_cause(error.os_error)})") from error
        except TimeoutError as error:
            raise errors.DeadlineExceeded(
                f"the Redfish service was asked {what} and did not answer within {self._config.timeout_seconds:g} s, after {self.answers} other "
                f"answers; raise spec.timeoutSeconds, or look at the service",
                side_effects_unknown=changes,
            ) from error
        except (aiohttp.ClientError, ValueError) as error:
            if self._base.scheme == "https" and not self.root.body:
                # The library does not show the alert by which a server asks for a certificate (RFC 8446, section 6.2).
                raise errors.Unavailable(
                    f"{host} ended the first connection without an answer; where it asks for a client certificate, put "
                    f"one that it accepts into the Fabric's Secret",
                    reason="TLS_REFUSED",
                ) from error
            raise errors.Unavailable(
                f"the Redfish service broke off {what}: {_breach(error)}{self._scheme_remedy()}",
                reason=BROKEN_OFF,
                side_effects_unknown=changes,
            ) from error

    def _url(self, uri: str, *, is_redirect: bool = False) -> yarl.URL:
        """Return the address of a resource on the configured origin.

        A manager behind a proxy knows itself by another name, scheme or port, so only path and query of a link count.
        A redirect to another origin is deliberate, and refused.

        Raises:
            Unavailable: the address is not one of Redfish.
        """
        origin = self._base.origin()
        try:
            url = origin.join(yarl.URL(uri))
            is_elsewhere = url.origin() != origin
        except ValueError as error:
            raise self._odd("to follow a link", "sent one that is no URI", changes=False) from error
        is_own = not is_elsewhere or (url.path.startswith("/redfish/") and not is_redirect)
        if url.user is not None or not is_own:
            raise self._odd("to follow a link", "sent one that leads to another host", changes=False)
        if is_elsewhere:
            url = origin.join(yarl.URL(url.raw_path_qs, encoded=True))
        if url.raw_path in self._slashed:
            url = url.with_path(url.raw_path + "/", encoded=True, keep_query=True)
        return url

    def _scheme_remedy(self) -> str:
        """Return the remedy for a TLS port that is used without TLS; empty once the service has answered."""
        is_possible = self._base.scheme == "http" and not self._is_proven
        return "; if this port speaks TLS, put https:// into spec.endpoint" if is_possible else ""

    def _odd(self, what: str, did: str, *, changes: bool) -> errors.Unavailable:
        return errors.Unavailable(
            f"the Redfish service at {self._base.host} was asked {what} and {did}; look at the endpoint and the service",
            reason=MALFORMED,
            side_effects_unknown=changes,
        )

    def _redacted(self, text: str) -> str:
        """Return a text of the service without secrets, also those that a proxy echoes from the headers."""
        credentials = self._config.credentials
        basic = base64.b64encode(f"{credentials.username}:{credentials.password}".encode()).decode()
        for secret in (*self._tokens, basic if credentials.password else ""):
            if secret:
                text = text.replace(secret, FILLER)
        return credentials.redact(text)


def _task_pauses() -> backoff.Backoff:
    """Return the pauses between two looks at a task."""
    return backoff.Backoff(TASK_PAUSE_SECONDS_MIN, TASK_PAUSE_SECONDS_MAX)


async def _sent_once(
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


def _own_uri(body: documents.Json) -> str:
    uri = body.get(documents.ID)
    return uri if isinstance(uri, str) else ""


def _breach(error: Exception) -> str:
    """Return why an exchange broke off, in a clause."""
    # `_sent_once` raises another error in its place.
    if isinstance(error, aiohttp.ServerDisconnectedError) or isinstance(
        error.__cause__, aiohttp.ServerDisconnectedError
    ):
        return "it closed the connection without an answer"
    if isinstance(error, aiohttp.ClientPayloadError):
        return "its answer is not complete"
    if isinstance(error, decoding.Damaged):
        return "its compressed answer is damaged"
    if isinstance(error, OSError) and error.strerror:
        return errors.cut(error.strerror, documents.TEXT_BYTES)
    return "its answer is not HTTP"


def _cause(error: Exception | None) -> str:
    reason = getattr(error, "verify_message", "") or getattr(error, "strerror", "") or type(error).__name__
    return errors.cut(str(reason), documents.TEXT_BYTES)
