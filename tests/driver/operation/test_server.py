"""The daemon's own small HTTP server, and the client of `drawbar node --check`."""

import asyncio
import contextlib
import gc
import json
import os
import socket
import stat
import subprocess
import sys
import weakref
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from tests.scenes import waiting

from drawbar.driver import containment
from drawbar.driver.node import settings as node_address
from drawbar.driver.operation import address, exposition, probe, readiness, server

HELLO = {"/hello": lambda: web.Response(text='"hello"', content_type="application/json")}


@pytest.fixture
def endpoint(tmp_path):
    return address.Endpoint(family=address.Family.UNIX, host=str(tmp_path / "h.sock"))


@pytest.fixture
def port(own_address):
    host, number = own_address
    return address.Endpoint(family=address.Family.TCP, host=host, port=number)


async def raw(endpoint, request):
    """Return the answer to these bytes; empty if the server hung up."""
    reader, writer = await asyncio.open_unix_connection(endpoint.host)
    try:
        writer.write(request)
        async with asyncio.timeout(120):
            return await reader.read()
    except (BrokenPipeError, ConnectionResetError):
        return b""
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def test_the_server_does_not_take_the_memory_of_all_of_aiohttp_web():
    program = "import sys, drawbar.driver.operation.server; print('aiohttp.web' in sys.modules)"
    command = [sys.executable, "-c", program]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "False\n"


@pytest.mark.parametrize("family", ["unix", "tcp"])
async def test_a_real_client_gets_the_page(endpoint, port, family):
    where = endpoint if family == "unix" else port
    connector = aiohttp.UnixConnector(endpoint.host) if family == "unix" else aiohttp.TCPConnector()
    url = f"http://{port}/hello?name=x"
    async with server.serving(where, HELLO), aiohttp.ClientSession(connector=connector) as session:
        for _ in range(3):
            async with session.get(url) as response:
                assert (response.status, await response.json()) == (200, "hello")
        async with session.head(url) as response:
            assert (response.headers["Content-Length"], await response.read()) == ("7", b"")


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /other HTTP/1.1\r\nHost: h\r\n\r\n", b"404"),
        (b"POST /hello HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx", b"405"),
        (b"GET /hello HTTP/1.1\r\n\r\n", b"400"),
        (b"GET\r\n\r\n", b"400"),
        (b"\xff\x00 /hello\r\n\r\n", b"400"),
    ],
)
async def test_other_requests_are_refused_without_a_word_in_the_log(endpoint, request_, status, caplog):
    async with server.serving(endpoint, HELLO):
        assert (await raw(endpoint, request_)).split(b" ")[1] == status
    assert caplog.records == []


@pytest.mark.parametrize("part", [b"x", b"hello HTTP/1.1\r\nHost: h\r\n" + b"X: y\r\n" * 8])
async def test_a_request_without_end_is_cut_off(endpoint, part):
    async with server.serving(endpoint, HELLO):
        answer = await raw(endpoint, b"GET /" + part * server.LINE_LIMIT_BYTES)
        assert answer == b"" or answer.split(b" ")[1] == b"400"


async def test_a_request_that_takes_too_long_is_cut_off(endpoint, monkeypatch):
    monkeypatch.setattr(server, "REQUEST_TIMEOUT_SECONDS", 0.01)
    async with server.serving(endpoint, HELLO):
        assert await raw(endpoint, b"GET /hello") == b""


async def test_silent_callers_keep_nobody_out_and_the_oldest_of_them_give_way(endpoint):
    request = b"GET /hello HTTP/1.1\r\nHost: h\r\n\r\n"
    async with server.serving(endpoint, HELLO), contextlib.AsyncExitStack() as stack:
        silent = []
        for _ in range(server.CONNECTIONS_LIMIT):
            silent.append(await asyncio.open_unix_connection(endpoint.host))
            stack.callback(silent[-1][1].transport.abort)
        for _ in range(2):
            assert b"200 OK" in await raw(endpoint, request)
        async with asyncio.timeout(120):
            assert await silent[0][0].read() == b""
        assert not silent[-1][0].at_eof()


class Transport(asyncio.Transport):
    """A connection that can be aborted."""

    def abort(self):
        """Do nothing."""

    def close(self):
        """Do nothing."""


async def test_a_connection_that_gave_way_is_held_by_no_timer():
    handlers = server.make_handlers(lambda request: None, connections=1)
    oldest, newest = handlers(), handlers()
    oldest.connection_made(transport := Transport())
    newest.connection_made(Transport())
    await asyncio.sleep(0)
    oldest.connection_lost(None)
    newest.connection_lost(None)
    gone = weakref.ref(transport)
    del transport
    for _ in range(10):
        await asyncio.sleep(0)
    gc.collect()
    assert gone() is None


async def test_open_connections_do_not_hold_up_the_end(endpoint, tmp_path):
    async with asyncio.timeout(120):
        async with server.serving(endpoint, HELLO):
            reader, writer = await asyncio.open_unix_connection(endpoint.host)
            writer.write(b"GET ")
            # Connections are taken up in turn: once this one is answered, that one is open.
            await raw(endpoint, b"GET /hello HTTP/1.1\r\nHost: h\r\n\r\n")
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()
    assert list(tmp_path.iterdir()) == []


async def test_the_socket_belongs_to_its_owner_alone(endpoint, tmp_path):
    async with server.serving(endpoint, HELLO):
        assert stat.S_IMODE((tmp_path / "h.sock").stat().st_mode) == 0o700


async def test_the_socket_of_a_dead_daemon_is_replaced(endpoint):
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(endpoint.host)
    async with server.serving(endpoint, HELLO):
        assert (await asyncio.to_thread(address.ask, endpoint, "/hello")).good


async def test_sockets_of_dead_daemons_are_swept_and_nothing_else(tmp_path):
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "http-dead.sock"))
    (tmp_path / "http-file.sock").write_text("")
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(tmp_path / "dra.sock"))
    alive = address.Endpoint(family=address.Family.UNIX, host=str(tmp_path / "http-alive.sock"))
    async with server.serving(alive, HELLO):
        server.sweep(tmp_path)
        left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["dra.sock", "http-alive.sock", "http-file.sock"]


@pytest.mark.parametrize("family", ["unix", "tcp"])
async def test_an_address_that_another_holds_is_taken_over_when_it_is_free(endpoint, port, until, family):
    where = endpoint if family == "unix" else port

    async def good():
        try:
            return (await asyncio.to_thread(address.ask, where, "/hello")).good
        except address.AddressError:
            return False

    async with contextlib.AsyncExitStack() as second:
        async with server.serving(where, {}):
            await second.enter_async_context(server.serving(where, HELLO, pause_seconds=0.01))
            assert not await good()
        await until(good, bool)


async def test_a_live_socket_is_not_taken_away(endpoint):
    async with server.serving(endpoint, HELLO):
        async with server.serving(endpoint, {}):
            assert (await asyncio.to_thread(address.ask, endpoint, "/hello")).good
        assert (await asyncio.to_thread(address.ask, endpoint, "/hello")).good


async def test_a_socket_that_another_instance_is_making_is_neither_replaced_nor_swept(
    endpoint, tmp_path, until
):
    """Such a socket looks like that of a dead daemon between its binding and its listening."""
    path = tmp_path / "h.sock"
    with socket.socket(socket.AF_UNIX) as begun, server._lock_folder(tmp_path):
        begun.bind(str(path))
        path.with_name("http-begun.sock").hardlink_to(path)
        made = path.stat()
        async with server.serving(endpoint, HELLO, pause_seconds=60):
            server.sweep(tmp_path)
            assert os.path.samestat(path.stat(), made)
            assert path.stat().st_nlink == 2


@pytest.mark.parametrize("obstacle", ["file", "no-directory"])
async def test_an_address_that_can_never_be_listened_on_is_an_error(endpoint, tmp_path, obstacle):
    if obstacle == "file":
        (tmp_path / "h.sock").write_text("")
    else:
        endpoint = address.Endpoint(family=address.Family.UNIX, host=str(tmp_path / "no" / "h"))
    with pytest.raises(address.AddressError, match="choose another --http-address"):
        async with server.serving(endpoint, HELLO):
            pass


def test_a_probe_without_an_answer_is_one_sentence(endpoint):
    with pytest.raises(address.AddressError, match="no daemon answers at unix:"):
        address.ask(endpoint, "/readyz")


async def run_probe(*words, where=None, options=()):
    """Run the probe as the image does; return its status, what it printed, and its errors."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-IS", *options, probe.__file__, *words),
        env={} if where is None else {probe.VARIABLE: str(where)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


@pytest.mark.parametrize("family", ["unix", "tcp"])
async def test_the_probe_passes_on_the_daemons_answer(endpoint, port, family):
    where = endpoint if family == "unix" else port
    missing = readiness.Readiness({"kubelet": lambda: "it has not registered the driver"})
    served = server.pages(readiness.Watchdog(), missing, lambda: b"")
    async with server.serving(where, served):
        assert await run_probe("alive", where=where) == (0, '{"alive": true, "overdue": []}\n', "")
        status, body, _ = await run_probe("ready", where=where)
        assert (status, json.loads(body)["ready"]) == (1, False)
    status, body, problem = await run_probe("alive", where=where)
    assert (status, body) == (1, "")
    assert problem.startswith(f"no daemon answers at {where}: ")


@pytest.mark.parametrize(
    ("words", "where"),
    [
        ([], "unix:/x"),
        (["metrics"], "unix:/x"),
        (["ready", "now"], "unix:/x"),
        (["ready"], None),
        (["ready"], "auto"),
        (["ready"], "off"),
    ],
)
async def test_a_probe_that_cannot_ask_prints_how_it_is_used(words, where):
    status, _, problem = await run_probe(*words, where=where)
    assert status == probe.USAGE
    assert probe.VARIABLE in problem


async def test_a_probe_imports_next_to_nothing(endpoint):
    async def list_imported_modules(*words):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-IS", "-X", "importtime", *words),
            env={probe.VARIABLE: str(endpoint)},
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        _, lines = await process.communicate()
        return {line.rpartition("|")[2].strip() for line in lines.decode().splitlines() if "|" in line}

    more = await list_imported_modules(probe.__file__, "alive") - await list_imported_modules("-c", "0")
    assert more <= {"_socket", "posix"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("off", None),
        ("auto", "unix:/k/http-uid.sock"),
        ("unix:/run/x", "unix:/run/x"),
        ("127.0.0.1:9178", "127.0.0.1:9178"),
        ("localhost:1", "localhost:1"),
        ("[::1]:80", "::1:80"),
    ],
)
def test_addresses_are_understood(text, expected):
    endpoint = node_address.parse_endpoint(text, Path("/k"), "uid")
    assert (str(endpoint) if endpoint else None) == expected
    assert address.find_problems(text, auto="/k/http-uid.sock") == []


@given(st.text())
def test_no_address_reaches_beyond_this_host(text):
    if address.find_problems(text, auto="/k/http-uid.sock"):
        return
    endpoint = node_address.parse_endpoint(text, Path("/k"), "uid")
    assert endpoint is None or endpoint.family is address.Family.UNIX or endpoint.host in address.LOOPBACK


@pytest.mark.parametrize(
    "text", ["", "0.0.0.0:80", ":80", "127.0.0.1", "127.0.0.1:0", "unix:x", "unix:/" + "x" * 200]
)
def test_an_address_for_others_is_refused(text):
    assert "--http-address" in address.find_problems(text, auto="/k/http-uid.sock")[0]


@given(st.text("ab0-", max_size=60), st.integers(0, 60))
def test_the_socket_beside_the_kubelets_is_never_too_long(uid, length):
    endpoint = node_address.parse_endpoint("auto", Path("/" + "d" * length), uid)
    assert len(endpoint.host.encode()) <= address.PATH_LIMIT_BYTES


def read_page(page):
    answer = page()
    return answer.status, json.loads(answer.text)


def test_the_daemon_is_ready_once_nothing_is_missing():
    restored, registered = readiness.Milestone("not known"), readiness.Milestone("not registered")
    ready = readiness.Readiness({"attachments": restored.find_missing, "kubelet": registered.find_missing})
    page = server.pages(readiness.Watchdog(), ready, bytes)["/readyz"]
    restored.reach(True)
    assert read_page(page) == (503, {"ready": False, "missing": {"kubelet": "not registered"}})
    registered.reach(True)
    assert read_page(page) == (200, {"ready": True, "missing": {}})
    registered.reach(False)
    assert read_page(page)[0] == 503


def test_the_daemon_is_alive_while_nothing_hangs():
    clock = waiting.Clock()
    watchdog = readiness.Watchdog(clock)
    page = server.pages(watchdog, readiness.Readiness({}), bytes)["/healthz"]
    with (
        watchdog.watching("attachment a", limit_seconds=10),
        watchdog.watching("attachment b", limit_seconds=99),
    ):
        clock.now = 10.0
        assert read_page(page) == (200, {"alive": True, "overdue": []})
        clock.now = 15.0
        assert read_page(page) == (503, {"alive": False, "overdue": ["attachment a is 5 s overdue"]})
    assert read_page(page)[0] == 200


@pytest.mark.defects
async def test_a_page_that_fails_is_answered_and_counted_and_the_others_are_served(endpoint):
    contained = containment.Containment()

    def fail():
        raise ZeroDivisionError("s3cret")

    async with server.serving(endpoint, {"/broken": fail} | HELLO, contained=contained):
        answer = await raw(endpoint, b"GET /broken HTTP/1.1\r\nHost: x\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 500 ")
        assert b"s3cret" not in answer
        assert b"hello" in await raw(endpoint, b"GET /hello HTTP/1.1\r\nHost: x\r\n\r\n")
    assert contained.counts()["http"] == 1.0


@pytest.mark.defects
async def test_readyz_names_the_workers_that_fail(endpoint):
    clock = waiting.Clock()
    contained = containment.Containment(clock)
    ready = readiness.Readiness({"workers": contained.find_missing})
    pages = server.pages(readiness.Watchdog(), ready, bytes, contained=contained)

    async def ask_readiness():
        answer = await raw(endpoint, b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
        head, _, content = answer.partition(b"\r\n\r\n")
        return int(head.split()[1]), json.loads(content)

    async with server.serving(endpoint, pages, contained=contained):
        assert await ask_readiness() == (200, {"ready": True, "missing": {}})
        for subject in ("", "d1"):
            with contained.attempt("devices", subject):
                raise KeyError
        assert await ask_readiness() == (200, {"ready": True, "missing": {}, "failing": {"devices": 2}})
        clock.now += containment.PATIENCE_SECONDS
        status, content = await ask_readiness()
        assert (status, content["ready"]) == (503, False)
        assert "devices failed unexpectedly" in content["missing"]["workers"]


@pytest.mark.defects
def test_a_metric_that_fails_leaves_the_others_to_be_read():
    shown = exposition.Exposition("drawbar_x_", "drawbar.dev")

    def fail():
        raise KeyError

    shown.watch("broken", "Fails.", fail)
    shown.watch("whole", "Works.", lambda: {"": 7.0})
    shown.render()
    text = shown.render().decode()
    assert 'drawbar_x_whole{driver="drawbar.dev"} 7.0' in text
    assert 'drawbar_x_unexpected_errors_total{driver="drawbar.dev",worker="metrics"} ' in text
    assert 'drawbar_x_failing_work{driver="drawbar.dev",worker="metrics"} 1.0' in text
