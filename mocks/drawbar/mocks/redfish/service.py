"""The HTTP side of the Redfish service (DSP0266): sessions, ETags, `$expand`, tasks, events, and faults."""

import asyncio
import base64
import binascii
import contextlib
import functools
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
from drawbar.mocks.redfish import ends, odata, paths, quirks, rules, world
from drawbar.mocks.redfish.configuration import Configuration
from drawbar.mocks.redfish.exchange import Answer, Asked, make_answer, make_refusal
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
        faults: the faults that are still to come.
        quirks: its quirks, in the order in which an answer passes them.
        requests: method and path of every request to a resource, in order.
        url: the URL of the service.
        issued: the tokens of all sessions ever created.
    """

    def __init__(self, configuration: Configuration, wiring: Wiring) -> None:
        self._wiring = wiring
        self.configuration = configuration
        self.tree = world.create(configuration)
        self.faults = Faults()
        self.quirks = quirks.choose(configuration.quirks, configuration)
        for quirk in self.quirks:
            quirk.furnish(self.tree, configuration)
        self.requests: list[tuple[str, str]] = []
        self.url = ""
        self.issued: list[str] = []
        self._setting = quirks.Setting(configuration=configuration)
        self._rules = rules.Rules(self.tree, configuration)
        self._tokens: dict[str, str] = {}
        self._tasks: dict[str, _Task] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._slow: list[asyncio.Event] = []
        self._numbers = itertools.count(1)
        self._streams: set[asyncio.Queue[bytes | None]] = set()
        self._server: web.Server | None = None
        self.tree.on_change = self._publish

    @property
    def clients(self) -> int:
        """Return the number of open connections."""
        connections = self._server.connections if self._server is not None else ()
        # A stream of events is held until the next one shows that its client is gone.
        return sum(connection.transport is not None for connection in connections)

    @property
    def followers(self) -> int:
        """Return the number of open event streams."""
        return len(self._streams)

    # --- for tests and the demo ---

    def restart(self) -> None:
        """Forget sessions and tasks, as a service does that is started again; tasks come to nothing."""
        self._tokens.clear()
        for task in self._running:
            task.cancel()
        for uri in (*self.tree.list_members(paths.TASKS), *self.tree.list_members(paths.SESSIONS)):
            self.tree.remove(uri)
        self._tasks.clear()

    def close(self) -> None:
        """End all streams of events, and the requests that hang."""
        self._setting.closed.set()
        self.end_streams()

    def end_streams(self) -> None:
        """End all streams of events."""
        for stream in self._streams:
            stream.put_nowait(None)

    def end_sessions(self) -> None:
        """End all sessions."""
        self._tokens.clear()
        for uri in self.tree.list_members(paths.SESSIONS):
            self.tree.remove(uri)

    def end_slow_tasks(self) -> None:
        """Let the tasks of the accident `slow-task` come to their end."""
        while self._slow:
            self._slow.pop().set()

    async def wait_until_settled(self) -> None:
        """Wait for the end of all tasks."""
        self.end_slow_tasks()
        while self._running:
            await asyncio.wait(self._running)

    def connections(self) -> dict[str, list[str]]:
        """Return by device the hosts that have it; more than one would be a fault of the service or of a client."""
        result: dict[str, list[str]] = {}
        hosts = {host.id for host in self.configuration.hosts}
        for uri in (*self.tree.list_members(paths.ZONES), *self.tree.list_members(paths.CONNECTIONS)):
            names = [end.rpartition("/")[2] for end in ends.ends(self.tree[uri])]
            for device_id in (name for name in names if name not in hosts):
                result.setdefault(device_id, []).extend(name for name in names if name in hosts)
        for uri in self.tree.list_members(paths.SYSTEMS):
            for entry in self.tree[uri]["Links"].get("ResourceBlocks", ()):
                block = entry["@odata.id"].rpartition("/")[2]
                if block not in hosts:
                    result.setdefault(block, []).append(uri.rpartition("/")[2])
        return result

    # --- requests ---

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        asked = await Asked.read(request)
        fault = self.faults.next(asked.method, _path(asked))
        if fault is not None and (response := await self._accident(fault, request)) is not None:
            return response
        if _path(asked) == paths.EVENTS and self.configuration.events and asked.method == "GET":
            denied = _check_odata_version(asked) or self._check_authorization(asked, paths.EVENTS)
            return await self._stream(request) if denied is None else denied.response()
        serve = functools.partial(self._answer, fault)
        answer = await quirks.exchange(asked, serve, self.quirks, self._setting)
        if fault in {FaultKind.LOST_REPLY, FaultKind.LOST_TASK}:
            return await _break(request)
        if fault is FaultKind.HALF_BODY or answer.is_cut:
            return await _break(request, answer)
        return answer.response()

    async def _answer(self, fault: FaultKind | None, asked: Asked) -> Answer:
        path = _path(asked)
        denied = _check_odata_version(asked) or self._check_authorization(asked, path)
        if denied is not None:
            return self._with_headers(asked, path, denied)
        answer = self._with_headers(asked, path, self._serve(asked, path, fault))
        self.requests.append((asked.method, path))
        return answer

    def _serve(self, asked: Asked, path: str, fault: FaultKind | None) -> Answer:
        if asked.is_read:
            return self._get(asked, path)
        body = asked.json()
        if not isinstance(body, dict):
            return make_refusal(400, "Base.1.18.MalformedJSON", "The request is not a JSON object.")
        if path == paths.SESSIONS and asked.method == "POST" and path in self.tree:
            return self._begin_session(body)
        if path.startswith(f"{paths.SESSIONS}/") and asked.method == "DELETE" and path in self.tree:
            self._tokens = {token: uri for token, uri in self._tokens.items() if uri != path}
            self.tree.remove(path)
            return make_answer(status=204)
        return self._change(asked, path, body, fault)

    def _get(self, asked: Asked, path: str) -> Answer:
        if path == "/redfish":
            return make_answer({"v1": f"{ROOT}/"})
        if path == odata.SERVICE:
            return make_answer(odata.service_document(self.tree))
        if path == odata.METADATA:
            return make_answer(odata.metadata(self.tree), kind="application/xml")
        if path in self._tasks:
            return self._monitor(self._tasks[path])
        if path not in self.tree:
            is_action = bool(self._rules.list_allowed_methods(path))
            return _convert_refusal(
                rules.make_not_allowed("GET", path) if is_action else rules.make_not_found(path)
            )
        levels = 0
        expands = {"$expand"} if self.configuration.expand else set()
        if unknown := {name for name in asked.query if name.startswith("$")} - expands:
            return make_refusal(501, "Base.1.18.QueryNotSupported", f"There is no query {min(unknown)}.")
        if (query := asked.query.get("$expand")) is not None:
            match = _EXPAND.match(query)
            if match is None:
                return make_refusal(
                    400, "Base.1.18.QueryParameterValueFormatError", f"$expand={query} is wrong."
                )
            levels = int(match["levels"] or 1)
        return make_answer(self.tree.body(path, levels=levels), headers={"ETag": self.tree.etag(path)})

    def _with_headers(self, asked: Asked, path: str, answer: Answer) -> Answer:
        body = self.tree[path] if path in self.tree and answer.status < 400 else {}
        shown = odata.headers(
            body if asked.is_read else None, status=answer.status, allowed=self._list_allowed_methods(path)
        )
        answer.headers.update(shown)
        return answer

    def _list_allowed_methods(self, path: str) -> tuple[str, ...]:
        if path == paths.SESSIONS:
            return ("GET", "HEAD", "POST")
        if path.startswith(f"{paths.SESSIONS}/"):
            return ("GET", "HEAD", "DELETE")
        return self._rules.list_allowed_methods(path) or ("GET", "HEAD")

    def _change(self, asked: Asked, path: str, body: Body, fault: FaultKind | None) -> Answer:
        if_match = asked.headers.get("If-Match")
        if fault is FaultKind.STALE_ETAG or (
            if_match is not None and path in self.tree and if_match not in {"*", self.tree.etag(path)}
        ):
            return _convert_refusal(rules.make_precondition_failed(path))
        if fault in {*_SLOW, FaultKind.FAILED_TASK} or self.configuration.task_seconds:
            return self._begin_task(asked.method, path, body, fault)
        return self._apply_change(asked.method, path, body, began=time.time())

    def _apply_change(self, method: str, path: str, body: Mapping[str, Any], *, began: float) -> Answer:
        before = self.connections()
        try:
            created = self._rules.change(method, path, body)
        except rules.Refused as error:
            return _convert_refusal(error)
        self._wiring.follow_change(
            before, self.connections(), request=f"request-{next(self._numbers)}", began=began
        )
        if created is None:
            return make_answer(status=204)
        headers = {"Location": created, "ETag": self.tree.etag(created)}
        return make_answer(self.tree.body(created), status=201, headers=headers)

    # --- tasks ---

    def _begin_task(self, method: str, path: str, body: Body, fault: FaultKind | None) -> Answer:
        number = next(self._numbers)
        monitor = f"{ROOT}/TaskService/TaskMonitors/{number}"
        task = _Task(uri=f"{paths.TASKS}/{number}")
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
        return make_answer(self.tree.body(task.uri), status=202, headers=headers)

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
            answer = make_refusal(500, "Base.1.18.InternalError", "The switch did not answer.")
        else:
            answer = self._apply_change(method, path, body, began=began)
        task.status = answer.status
        task.body = answer.body
        task.headers = {name: answer.headers[name] for name in ("Location",) if name in answer.headers}
        is_well = answer.status < 400
        if task.uri in self.tree:
            messages = [] if is_well or task.body is None else task.body["error"]["@Message.ExtendedInfo"]
            state = "Completed" if is_well else "Exception"
            self.tree.update(task.uri, TaskState=state, PercentComplete=100, Messages=messages)
        task.ended.set()

    def _monitor(self, task: _Task) -> Answer:
        if not task.ended.is_set():
            return make_answer(self.tree.body(task.uri), status=202, headers={"Retry-After": "0"})
        if task.body is None:
            return make_answer(status=task.status, headers=task.headers)
        return make_answer(task.body, status=task.status, headers=task.headers)

    # --- sessions ---

    def _begin_session(self, body: Mapping[str, Any]) -> Answer:
        configuration = self.configuration
        if (body.get("UserName"), body.get("Password")) != (configuration.username, configuration.password):
            text = f"The user name {body.get('UserName')} or password {body.get('Password')} is wrong."
            return make_refusal(401, "Base.1.18.ResourceAtUriUnauthorized", text)
        if len(self._tokens) >= configuration.max_sessions:
            return make_refusal(503, "Base.1.18.SessionLimitExceeded", "There are too many sessions.")
        uri = f"{paths.SESSIONS}/{next(self._numbers)}"
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
        return make_answer(self.tree.body(uri), status=201, headers=headers)

    def _check_authorization(self, asked: Asked, path: str) -> Answer | None:
        configuration = self.configuration
        is_login = path == paths.SESSIONS and asked.method == "POST"
        if not configuration.username or path in _OPEN or is_login:
            return None
        if asked.headers.get("X-Auth-Token", "") in self._tokens:
            return None
        kind, _, content = asked.headers.get("Authorization", "").partition(" ")
        if kind == "Basic":
            with contextlib.suppress(binascii.Error, UnicodeDecodeError):
                credentials = base64.b64decode(content).decode()
                if credentials == f"{configuration.username}:{configuration.password}":
                    return None
        return make_refusal(401, "Base.1.18.NoValidSession", "There is no session.")

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
                busy = make_refusal(503, "Base.1.18.ServiceTemporarilyUnavailable", "The service is busy.")
                return busy.with_header("Retry-After", "1").response()
            case FaultKind.FORBIDDEN:
                # Services quote their requests.
                token = request.headers.get("X-Auth-Token", "")
                text = f"The session {token} lacks a privilege."
                return make_refusal(403, "Base.1.18.InsufficientPrivilege", text).response()
            case FaultKind.PASSWORD_CHANGE:
                return make_refusal(
                    403, "Base.1.18.PasswordChangeRequired", "The password has expired."
                ).response()
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
                await self._setting.closed.wait()
                raise web.HTTPServiceUnavailable
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
    service._server = server  # noqa: SLF001 - of this module
    runner = web.ServerRunner(server, shutdown_timeout=SHUTDOWN_SECONDS)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port, ssl_context=tls)
        await site.start()
        bound = runner.addresses[0][1]
        service.url = f"{'http' if tls is None else 'https'}://{host}:{bound}"
        yield service
    finally:
        service.close()
        service.restart()
        await runner.cleanup()


async def _break(request: web.BaseRequest, answer: Answer | None = None) -> web.StreamResponse:
    """End the connection: before the answer, or in the middle of it."""
    if answer is None:
        response = web.StreamResponse()
    else:
        content = answer.content
        response = web.StreamResponse(status=answer.status, headers=answer.headers)
        response.content_length = len(content) + 1000
        await response.prepare(request)
        await response.write(content[: len(content) // 2])
    if request.transport is not None:
        request.transport.abort()
    return response


def _path(asked: Asked) -> str:
    """Return the path of the resource: a collection and its property `Members` are one (DSP0266, "POST (create)")."""
    return asked.resource.removesuffix("/Members") if asked.method == "POST" else asked.resource


def _check_odata_version(asked: Asked) -> Answer | None:
    version = asked.headers.get("OData-Version", odata.VERSION)
    if version == odata.VERSION:
        return None
    return make_refusal(412, "Base.1.18.PreconditionFailed", f"The service has OData {odata.VERSION} alone.")


def _convert_refusal(error: rules.Refused) -> Answer:
    return make_refusal(error.status, error.key, error.text)
