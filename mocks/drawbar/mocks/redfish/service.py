"""The HTTP side of the Redfish service (DSP0266): sessions, ETags, `$expand`, tasks, events, and accidents."""

import asyncio
import base64
import binascii
import contextlib
import itertools
import json
import re
import secrets
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from drawbar.mocks.fabric.journal import Journal
from drawbar.mocks.redfish import odata, rules, world
from drawbar.mocks.redfish.configuration import Configuration
from drawbar.mocks.redfish.faults import FaultKind, Faults
from drawbar.mocks.redfish.tree import ROOT, Body
from drawbar.mocks.redfish.wiring import Wiring

HUGE_BYTES = 100 * 1024 * 1024
DEEP_LEVELS = 100_000
EVENTS_QUEUED = 1000
SHUTDOWN_SECONDS = 1.0
_EXPAND = re.compile(r"^[.*](?:\(\$levels=(?P<levels>[0-9]{1,2})\))?$")
_SLOW = {FaultKind.SLOW_TASK, FaultKind.LOST_TASK}
_OPEN = ("/redfish", ROOT, odata.SERVICE, odata.METADATA)


@dataclass(slots=True, kw_only=True)
class _Task:
    uri: str
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    status: int = 204
    body: Body | None = None
    headers: dict[str, str] = field(default_factory=dict)


class Service:
    """A running Redfish service.

    Attributes:
        tree: its resources.
        faults: the accidents that are still to come.
        requests: method and path of every request that was answered, in order.
        url: where it is served.
        issued: the tokens of all sessions that ever began.
    """

    def __init__(self, configuration: Configuration, wiring: Wiring) -> None:
        self._wiring = wiring
        self.configuration = configuration
        self.tree = world.create(configuration)
        self.faults = Faults()
        self.requests: list[tuple[str, str]] = []
        self.url = ""
        self.issued: list[str] = []
        self._rules = rules.Rules(self.tree, configuration)
        self._tokens: dict[str, str] = {}
        self._tasks: dict[str, _Task] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._slow: list[asyncio.Event] = []
        self._numbers = itertools.count(1)
        self._streams: set[asyncio.Queue[bytes | None]] = set()
        self.tree.on_change = self._publish

    @property
    def followers(self) -> int:
        """How many streams of events are open."""
        return len(self._streams)

    # --- for tests and the demo ---

    def restart(self) -> None:
        """Forget sessions and tasks, as a service does that is started again; tasks come to nothing."""
        self._tokens.clear()
        for task in self._running:
            task.cancel()
        for uri in (*self.tree.below(world.TASKS), *self.tree.below(world.SESSIONS)):
            self.tree.remove(uri)
        self._tasks.clear()

    def end_streams(self) -> None:
        """End all streams of events."""
        for stream in self._streams:
            stream.put_nowait(None)

    def end_sessions(self) -> None:
        """End all sessions."""
        self._tokens.clear()
        for uri in self.tree.below(world.SESSIONS):
            self.tree.remove(uri)

    def end_slow_tasks(self) -> None:
        """Let the tasks of the accident `slow-task` come to their end."""
        while self._slow:
            self._slow.pop().set()

    async def settled(self) -> None:
        """Wait for the end of all tasks."""
        self.end_slow_tasks()
        while self._running:
            await asyncio.wait(self._running)

    def connections(self) -> dict[str, list[str]]:
        """Return by device the hosts that have it; more than one would be a fault of the service or of a client."""
        result: dict[str, list[str]] = {}
        hosts = {host.id for host in self.configuration.hosts}
        for uri in (*self.tree.below(world.ZONES), *self.tree.below(world.CONNECTIONS)):
            names = [end.rpartition("/")[2] for end in world.ends(self.tree[uri])]
            for device_id in (name for name in names if name not in hosts):
                result.setdefault(device_id, []).extend(name for name in names if name in hosts)
        for uri in self.tree.below(world.SYSTEMS):
            for entry in self.tree[uri]["Links"].get("ResourceBlocks", ()):
                block = entry["@odata.id"].rpartition("/")[2]
                if block not in hosts:
                    result.setdefault(block, []).append(uri.rpartition("/")[2])
        return result

    # --- requests ---

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        path = request.path.rstrip("/") or "/"
        if request.method == "POST":
            # A collection and its property `Members` are one (DSP0266, "POST (create)").
            path = path.removesuffix("/Members")
        fault = self.faults.next(request.method, path)
        if fault is not None and (response := await self._accident(fault, request)) is not None:
            return response
        refused = _unsupported(request) or self._unauthorized(request, path)
        if refused is not None:
            return self._with_headers(request, path, refused)
        raw = await request.read()
        response = self._with_headers(request, path, await self._answer(request, path, raw, fault))
        self.requests.append((request.method, path))
        if fault in {FaultKind.LOST_REPLY, FaultKind.LOST_TASK}:
            return await _broken(request)
        if fault is FaultKind.HALF_BODY and isinstance(response, web.Response):
            return await _broken(request, response)
        return response

    async def _answer(
        self, request: web.BaseRequest, path: str, raw: bytes, fault: FaultKind | None
    ) -> web.StreamResponse:
        if path == world.EVENTS and self.configuration.events and request.method == "GET":
            return await self._stream(request)
        if request.method in {"GET", "HEAD"}:
            return self._get(request, path)
        try:
            # Some clients send `null` where they mean no body.
            body = json.loads(raw) if raw.strip() not in {b"", b"null"} else {}
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict):
            return _refusal(400, "Base.1.18.MalformedJSON", "The request is no JSON object.")
        if path == world.SESSIONS and request.method == "POST" and path in self.tree:
            return self._begin_session(body)
        if path.startswith(f"{world.SESSIONS}/") and request.method == "DELETE" and path in self.tree:
            self._tokens = {token: uri for token, uri in self._tokens.items() if uri != path}
            self.tree.remove(path)
            return web.Response(status=204)
        return await self._change(request, path, body, fault)

    def _get(self, request: web.BaseRequest, path: str) -> web.Response:
        if path == "/redfish":
            return web.json_response({"v1": f"{ROOT}/"})
        if path == odata.SERVICE:
            return web.json_response(odata.service_document(self.tree))
        if path == odata.METADATA:
            return web.Response(text=odata.metadata(self.tree), content_type="application/xml")
        if path in self._tasks:
            return self._monitor(self._tasks[path])
        if path not in self.tree:
            is_action = bool(self._rules.allowed(path))
            return _refused(rules.not_allowed("GET", path) if is_action else rules.missing(path))
        levels = 0
        expands = {"$expand"} if self.configuration.expand else set()
        if unknown := {name for name in request.query if name.startswith("$")} - expands:
            return _refusal(501, "Base.1.18.QueryNotSupported", f"There is no query {min(unknown)}.")
        if (query := request.query.get("$expand")) is not None:
            match = _EXPAND.match(query)
            if match is None:
                return _refusal(400, "Base.1.18.QueryParameterValueFormatError", f"$expand={query} is wrong.")
            levels = int(match["levels"] or 1)
        return web.json_response(self.tree.body(path, levels=levels), headers={"ETag": self.tree.etag(path)})

    def _with_headers(
        self, request: web.BaseRequest, path: str, response: web.StreamResponse
    ) -> web.StreamResponse:
        if not response.prepared:
            is_read = request.method in {"GET", "HEAD"}
            body = self.tree[path] if path in self.tree and response.status < 400 else {}
            response.headers.update(
                odata.headers(body if is_read else None, status=response.status, allowed=self._allowed(path))
            )
        return response

    def _allowed(self, path: str) -> tuple[str, ...]:
        if path == world.SESSIONS:
            return ("GET", "HEAD", "POST")
        if path.startswith(f"{world.SESSIONS}/"):
            return ("GET", "HEAD", "DELETE")
        return self._rules.allowed(path) or ("GET", "HEAD")

    async def _change(
        self, request: web.BaseRequest, path: str, body: Body, fault: FaultKind | None
    ) -> web.Response:
        given = request.headers.get("If-Match")
        if fault is FaultKind.STALE_ETAG or (
            given is not None and path in self.tree and given not in {"*", self.tree.etag(path)}
        ):
            return _refused(rules.stale(path))
        if fault in {*_SLOW, FaultKind.FAILED_TASK} or self.configuration.task_seconds:
            return self._begin_task(request.method, path, body, fault)
        return self._made(request.method, path, body, began=time.time())

    def _made(self, method: str, path: str, body: Mapping[str, Any], *, began: float) -> web.Response:
        before = self.connections()
        try:
            created = self._rules.change(method, path, body)
        except rules.Refused as refused:
            return _refused(refused)
        self._wiring.changed(
            before, self.connections(), request=f"request-{next(self._numbers)}", began=began
        )
        if created is None:
            return web.Response(status=204)
        headers = {"Location": created, "ETag": self.tree.etag(created)}
        return web.json_response(self.tree.body(created), status=201, headers=headers)

    # --- tasks ---

    def _begin_task(self, method: str, path: str, body: Body, fault: FaultKind | None) -> web.Response:
        number = next(self._numbers)
        monitor = f"{ROOT}/TaskService/TaskMonitors/{number}"
        task = _Task(uri=f"{world.TASKS}/{number}")
        self._tasks[monitor] = task
        self.tree.put(
            task.uri,
            {
                "@odata.type": "#Task.v1_7_4.Task",
                "Id": str(number),
                "Name": f"{method} {path}",
                "TaskState": "Running",
                "PercentComplete": 10,
                "TaskMonitor": monitor,
                "Payload": {"HttpOperation": method, "TargetUri": path, "JsonBody": json.dumps(body)},
                "Messages": [],
            },
        )
        running = asyncio.get_running_loop().create_task(
            self._run_task(task, method, path, body, fault), name=f"task {number}"
        )
        self._running.add(running)
        running.add_done_callback(self._running.discard)
        headers = {"Location": monitor, "Retry-After": "0"}
        return web.json_response(self.tree.body(task.uri), status=202, headers=headers)

    async def _run_task(
        self, task: _Task, method: str, path: str, body: Body, fault: FaultKind | None
    ) -> None:
        began = time.time()
        if fault in _SLOW:
            slow = asyncio.Event()
            self._slow.append(slow)
            await slow.wait()
        await asyncio.sleep(self.configuration.task_seconds)
        if fault is FaultKind.FAILED_TASK:
            answer = _refusal(500, "Base.1.18.InternalError", "The switch did not answer.")
        else:
            answer = self._made(method, path, body, began=began)
        task.status = answer.status
        task.body = json.loads(answer.body) if isinstance(answer.body, bytes) and answer.body else None
        task.headers = {name: answer.headers[name] for name in ("Location",) if name in answer.headers}
        is_well = answer.status < 400
        if task.uri in self.tree:
            messages = [] if is_well or task.body is None else task.body["error"]["@Message.ExtendedInfo"]
            state = "Completed" if is_well else "Exception"
            self.tree.update(task.uri, TaskState=state, PercentComplete=100, Messages=messages)
        task.ended.set()

    def _monitor(self, task: _Task) -> web.Response:
        if not task.ended.is_set():
            return web.json_response(self.tree.body(task.uri), status=202, headers={"Retry-After": "0"})
        if task.body is None:
            return web.Response(status=task.status, headers=task.headers)
        return web.json_response(task.body, status=task.status, headers=task.headers)

    # --- sessions ---

    def _begin_session(self, body: Mapping[str, Any]) -> web.Response:
        configuration = self.configuration
        if (body.get("UserName"), body.get("Password")) != (configuration.username, configuration.password):
            text = f"The user name {body.get('UserName')} or password {body.get('Password')} is wrong."
            return _refusal(401, "Base.1.18.ResourceAtUriUnauthorized", text)
        if len(self._tokens) >= configuration.max_sessions:
            return _refusal(503, "Base.1.18.SessionLimitExceeded", "There are too many sessions.")
        uri = f"{world.SESSIONS}/{next(self._numbers)}"
        token = secrets.token_hex(16)
        self._tokens[token] = uri
        self.issued.append(token)
        self.tree.put(
            uri,
            {
                "@odata.type": "#Session.v1_7_2.Session",
                "Id": uri.rpartition("/")[2],
                "Name": "Session",
                "UserName": configuration.username,
            },
        )
        headers = {"X-Auth-Token": token, "Location": uri}
        return web.json_response(self.tree.body(uri), status=201, headers=headers)

    def _unauthorized(self, request: web.BaseRequest, path: str) -> web.Response | None:
        configuration = self.configuration
        is_login = path == world.SESSIONS and request.method == "POST"
        if not configuration.username or path in _OPEN or is_login:
            return None
        if request.headers.get("X-Auth-Token", "") in self._tokens:
            return None
        kind, _, content = request.headers.get("Authorization", "").partition(" ")
        if kind == "Basic":
            with contextlib.suppress(binascii.Error, UnicodeDecodeError):
                given = base64.b64decode(content).decode()
                if given == f"{configuration.username}:{configuration.password}":
                    return None
        return _refusal(401, "Base.1.18.NoValidSession", "There is no session.")

    # --- events ---

    def _publish(self, uri: str, key: str) -> None:
        event = {
            "@odata.type": "#Event.v1_11_0.Event",
            "Id": str(next(self._numbers)),
            "Name": "Event",
            "Events": [
                {
                    "EventId": key,
                    "MessageId": f"ResourceEvent.1.4.{key}",
                    "OriginOfCondition": {"@odata.id": uri},
                }
            ],
        }
        line = f"id: {event['Id']}\ndata: {json.dumps(event)}\n\n".encode()
        for stream in self._streams:
            if stream.qsize() < EVENTS_QUEUED:
                stream.put_nowait(line)

    async def _stream(self, request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}
        )
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._streams.add(queue)
        try:
            # The client may go at any time.
            with contextlib.suppress(ConnectionResetError):
                await response.prepare(request)
                await response.write(b": stream\n\n")
                while (line := await queue.get()) is not None:
                    await response.write(line)
        finally:
            self._streams.discard(queue)
        return response

    # --- accidents ---

    async def _accident(self, kind: FaultKind, request: web.BaseRequest) -> web.StreamResponse | None:
        match kind:
            case FaultKind.BUSY:
                refused = _refusal(503, "Base.1.18.ServiceTemporarilyUnavailable", "The service is busy.")
                refused.headers["Retry-After"] = "1"
                return refused
            case FaultKind.FORBIDDEN:
                # Services quote what they were sent.
                token = request.headers.get("X-Auth-Token", "")
                return _refusal(
                    403, "Base.1.18.InsufficientPrivilege", f"The session {token} lacks a privilege."
                )
            case FaultKind.PASSWORD_CHANGE:
                return _refusal(403, "Base.1.18.PasswordChangeRequired", "The password has expired.")
            case FaultKind.HTML:
                return web.Response(text="<html><body>Sign in</body></html>", content_type="text/html")
            case FaultKind.DEEP:
                return web.Response(text='{"Members":' + "[" * DEEP_LEVELS, content_type="application/json")
            case FaultKind.HUGE:
                response = web.StreamResponse(headers={"Content-Type": "application/json"})
                await response.prepare(request)
                part = b" " * (1024 * 1024)
                with contextlib.suppress(ConnectionResetError):
                    for _ in range(HUGE_BYTES // len(part)):
                        await response.write(part)
                return response
            case FaultKind.REDIRECT:
                return web.Response(status=307, headers={"Location": "https://elsewhere.invalid/redfish/v1"})
            case FaultKind.STALL:
                await asyncio.Event().wait()
            case FaultKind.EXPIRED_SESSION:
                self.end_sessions()
            case _:
                pass
        return None


@contextlib.asynccontextmanager
async def serving(
    configuration: Configuration,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    tls: ssl.SSLContext | None = None,
    journal: Path | None = None,
) -> AsyncIterator[Service]:
    """Serve until the block is left; a port of the kernel's choice for 0, and a `journal` of all connections."""
    with Journal(journal) as written:
        wiring = Wiring(configuration, written)
        async with wiring.following(), _serving(Service(configuration, wiring), host, port, tls) as service:
            yield service


@contextlib.asynccontextmanager
async def _serving(
    service: Service, host: str, port: int, tls: ssl.SSLContext | None
) -> AsyncIterator[Service]:
    server = web.Server(service.handle, access_log=None)
    runner = web.ServerRunner(server, shutdown_timeout=SHUTDOWN_SECONDS)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port, ssl_context=tls)
        await site.start()
        bound = runner.addresses[0][1]
        service.url = f"{'http' if tls is None else 'https'}://{host}:{bound}"
        yield service
    finally:
        service.end_streams()
        service.restart()
        await runner.cleanup()


async def _broken(request: web.BaseRequest, answer: web.Response | None = None) -> web.StreamResponse:
    """End the connection: before the answer, or in the middle of it."""
    response = web.StreamResponse()
    if answer is not None and isinstance(answer.body, bytes):
        response.content_length = len(answer.body) + 1000
        response.content_type = "application/json"
        await response.prepare(request)
        await response.write(answer.body[: len(answer.body) // 2])
    if request.transport is not None:
        request.transport.abort()
    return response


def _unsupported(request: web.BaseRequest) -> web.Response | None:
    version = request.headers.get("OData-Version", odata.VERSION)
    if version == odata.VERSION:
        return None
    return _refusal(412, "Base.1.18.PreconditionFailed", f"The service has OData {odata.VERSION} alone.")


def _refused(refused: rules.Refused) -> web.Response:
    return _refusal(refused.status, refused.key, refused.text)


def _refusal(status: int, key: str, text: str) -> web.Response:
    entry = {
        "@odata.type": "#Message.v1_3_0.Message",
        "MessageId": key,
        "Message": text,
        "MessageSeverity": "Critical",
        "Resolution": "None.",
    }
    error = {"error": {"code": key, "message": text, "@Message.ExtendedInfo": [entry]}}
    return web.json_response(error, status=status)
