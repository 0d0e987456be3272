"""Restarts that keep the data: within the process, and of a killed process with its state file."""

import asyncio
import contextlib
import gc
import json
import resource
import signal
import socket
import ssl
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from drawbar.mocks import apiserver
from drawbar.mocks.apiserver import command, statefile
from drawbar.mocks.apiserver.statefile import StateFile
from drawbar.mocks.apiserver.storage import Store

MAPS = "/api/v1/namespaces/default/configmaps"
WHERE = ("", "configmaps")


async def test_a_restart_keeps_objects_users_and_port(api: Any, make_config_map: Any) -> None:
    before = await api.post(MAPS, make_config_map())
    url = api.server.url
    await api.server.restart()
    after = await api.get(f"{MAPS}/one")
    assert after.body == before.body
    assert api.server.url == url


async def test_a_restart_breaks_watches_and_forgets_their_history(api: Any, make_config_map: Any) -> None:
    await api.get("/api/v1/nodes")
    old = (await api.post(MAPS, make_config_map("a"))).version
    await api.post("/api/v1/namespaces/kube-system/configmaps", make_config_map("b"))
    page = await api.get(MAPS.replace("/namespaces/default", ""), limit=1)
    async with api.watch(MAPS, resourceVersion=page.version) as stream:
        await api.server.restart()
        with pytest.raises(aiohttp.ClientError):
            await asyncio.wait_for(stream.content.readline(), 10)
    for path in (MAPS, "/api/v1/nodes"):
        async with api.watch(path, resourceVersion=old) as stream:
            event = json.loads(await asyncio.wait_for(stream.content.readline(), 10))
        assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
    continued = await api.get(
        MAPS.replace("/namespaces/default", ""), **{"continue": page.body["metadata"]["continue"]}
    )
    assert continued.code == 200, "nothing changed since, so the page is still consistent"
    async with api.watch(MAPS, resourceVersion=page.version) as stream:
        await api.post(MAPS, make_config_map("c"))
        event = json.loads(await asyncio.wait_for(stream.content.readline(), 10))
    assert event["object"]["metadata"]["name"] == "c"


async def test_a_restart_takes_as_long_as_it_is_told(api: Any) -> None:
    async with asyncio.timeout(120), asyncio.TaskGroup() as group:
        restarted = group.create_task(api.server.restart(down_seconds=0.3))
        refused = False
        while not refused:
            try:
                await api.get("/version")
            except aiohttp.ClientConnectionError:
                refused = True
        assert not restarted.done()
    assert (await api.get("/version")).code == 200


@pytest.mark.parametrize("rounds", range(5))
async def test_no_client_waits_for_a_port_that_closed(start: Any, rounds: int) -> None:
    listener = (await start()).server.listener
    with socket.create_connection(("127.0.0.1", listener.port)) as client:
        client.setblocking(False)
        # The connection waits for its acceptance, is accepted, or is served.
        for _ in range(rounds):
            await asyncio.sleep(0)
        await listener.close()
        listener.drop()
        async with asyncio.timeout(120):
            with contextlib.suppress(ConnectionError):
                client.send(b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert await asyncio.get_running_loop().sock_recv(client, 1) == b""


async def test_a_connection_whose_tls_handshake_outlives_the_port_is_broken(start: Any) -> None:
    api = await start(tls=True)
    listener = api.server.listener
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    secured = api.server.client_context().wrap_bio(received, sent, server_hostname="127.0.0.1")

    def is_secured() -> bool:
        with contextlib.suppress(ssl.SSLWantReadError):
            secured.do_handshake()
            return True
        return False

    async with asyncio.timeout(120):
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        assert not is_secured()
        writer.write(sent.read())
        # The server has accepted the connection once it answers.
        received.write(await reader.read(65536))
        await listener.close()
        listener.drop()
        while not is_secured():
            received.write(await reader.read(65536))
        secured.write(b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n")
        writer.write(sent.read())
        with contextlib.suppress(ConnectionResetError):
            received.write(await reader.read())
        writer.close()
    with pytest.raises(ssl.SSLWantReadError):
        secured.read(65536)


async def test_a_restart_over_http_spares_only_the_connection_that_asks(api: Any) -> None:
    async with api.watch(MAPS) as stream:
        assert (await api.post("/mocks/drawbar.dev/v1/restart", {})).body == {"restarted": True}
        with pytest.raises(aiohttp.ClientError):
            await asyncio.wait_for(stream.content.readline(), 10)


async def test_a_server_that_does_not_run_cannot_restart(api: Any) -> None:
    async with apiserver.serving() as server:
        pass
    with pytest.raises(RuntimeError, match="does not run"):
        await server.restart()


async def test_the_next_server_goes_on_with_the_state_file(
    start: Any, tmp_path: Any, make_config_map: Any, definition: Any
) -> None:
    path = tmp_path / "state"
    async with apiserver.serving(state=path, tls=True) as server:
        token, certificate = server.token_for("default:app", node="n1"), server.certificate
    api = await start(state=path)
    await api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    await api.post(MAPS, make_config_map("kept"))
    changed = await api.merge(f"{MAPS}/kept", {"data": {"a": "b"}})
    await api.post(MAPS, make_config_map("gone"))
    await api.delete(f"{MAPS}/gone")
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(statefile.StateError, match="stop that one first"):
        await start(state=path)
    copy = tmp_path / "copy"
    copy.write_bytes(path.read_bytes())
    with socket.create_server(("127.0.0.1", 0)) as free:  # the recorded port is the first server's
        port: int = free.getsockname()[1]
    async with apiserver.serving(state=copy, tls=True, port=port) as server:
        assert server.certificate == certificate
        assert server.token_for("default:app", node="n1") == token
        assert server.token_for() == api.headers["Authorization"].removeprefix("Bearer ")
        items = server.store.collection(WHERE).items
        assert set(items) == {("default", "kept")}
        assert items["default", "kept"]["metadata"] == changed.body["metadata"]
        assert server.store.version >= int(changed.version) + 2
        assert server.registry.catalogue.find("drawbar.dev", "v1alpha1", "widgets") is not None


async def test_the_state_file_keeps_the_port(tmp_path: Any) -> None:
    urls = []
    for _ in range(2):
        async with apiserver.serving(state=tmp_path / "state") as server:
            urls.append(server.url)
    assert urls[0] == urls[1]


async def test_versions_never_go_back_over_a_restart(start: Any, tmp_path: Any, make_config_map: Any) -> None:
    async with apiserver.serving(state=tmp_path / "state") as server:
        async with aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {server.token_for()}"}
        ) as session:
            await session.post(server.url + MAPS, json=make_config_map())
            await session.delete(f"{server.url}{MAPS}/one")
        last = server.store.version
    api = await start(state=tmp_path / "state")
    assert api.server.store.version >= last
    assert int((await api.post(MAPS, make_config_map())).version) > last


def fill_state_file(path: Any, count: int) -> list[dict[str, str]]:
    """Write to a state file as a server does; return what the store held after each write."""
    seen = []
    with StateFile.opened(path) as state:
        store = Store()
        state.resume(store, state.identity)
        items = store.collection(WHERE).items
        seen.append({})
        for number in range(count):
            name = f"m{number % 3}"
            if ("default", name) in items and number % 2:
                store.remove(WHERE, items["default", name])
            else:
                store.put(WHERE, {"metadata": {"namespace": "default", "name": name}, "data": str(number)})
            seen.append({key[1]: item["data"] for key, item in items.items()})
    return seen


def load_state_file(path: Any) -> dict[str, str]:
    with StateFile.opened(path) as state:
        store = Store()
        state.resume(store, state.identity)
        return {key[1]: item["data"] for key, item in store.collection(WHERE).items.items()}


def test_a_log_cut_off_anywhere_holds_every_complete_write(tmp_path: Any) -> None:
    path = tmp_path / "state"
    seen = fill_state_file(path, 12)
    content = path.read_bytes()
    first = content.index(b"\n") + 1
    for end in range(first, len(content) + 1):
        path.write_bytes(content[:end])
        assert load_state_file(path) == seen[content[first:end].count(b"\n")]


def test_a_log_that_outgrew_the_objects_is_rewritten(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(statefile, "_SLACK_LINES", 5)
    path = tmp_path / "state"
    seen = fill_state_file(path, 200)
    assert path.read_bytes().count(b"\n") < 15
    assert load_state_file(path) == seen[-1]
    assert [entry.name for entry in tmp_path.iterdir()] == ["state"]


@pytest.mark.parametrize(
    "content",
    [b"hello\n", b'{"a": 1}\n', b'{"record":"removed","where":["",""],"version":1,"key":["",""]}\n'],
)
def test_a_foreign_file_is_refused_and_left_alone(tmp_path: Any, content: bytes) -> None:
    path = tmp_path / "state"
    path.write_bytes(content)
    with pytest.raises(statefile.StateError, match="move it away"), StateFile.opened(path):
        pass
    assert path.read_bytes() == content


def test_damage_in_the_middle_is_named_by_its_line(tmp_path: Any) -> None:
    path = tmp_path / "state"
    fill_state_file(path, 3)
    lines = path.read_bytes().split(b"\n")
    lines[2] = lines[2][:-5]
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(statefile.StateError, match="line 3"), StateFile.opened(path):
        pass


async def test_a_write_that_cannot_be_kept_is_refused_and_not_done(
    start: Any, tmp_path: Any, make_config_map: Any
) -> None:
    path = tmp_path / "state"
    api = await start(state=path)
    await api.post(MAPS, make_config_map("a"))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 50, limits[1]))
    try:
        refused = await api.post(MAPS, make_config_map("b"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (refused.code, refused.body["reason"]) == (500, "InternalError")
    assert str(path) in refused.body["message"]
    assert (await api.get(f"{MAPS}/b")).code == 404
    await api.post(MAPS, make_config_map("c"))
    copy = tmp_path / "copy"
    copy.write_bytes(path.read_bytes())
    assert len(loaded_names(copy)) == 2


def loaded_names(path: Any) -> list[str]:
    with StateFile.opened(path) as state:
        store = Store()
        state.resume(store, state.identity)
        return [key[1] for key in store.collection(WHERE).items]


@asynccontextmanager
async def process(tmp_path: Any, *options: str):
    """Run `drawbar mock apiserver`; yield the process and the content of its ready line."""
    arguments = ("mock", "apiserver", "--kubeconfig-dir", str(tmp_path / "kube"), "--plain-http", *options)
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "drawbar.driver.main", *arguments, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert child.stdout is not None
        async with asyncio.timeout(120):
            ready = json.loads(await child.stdout.readline())
        yield child, ready
    finally:
        if child.returncode is None:
            child.terminate()
        async with asyncio.timeout(120):
            await child.wait()


def session_of(ready: Any) -> aiohttp.ClientSession:
    token = json.loads(Path(ready["kubeconfig"]).read_bytes())["users"][0]["user"]["token"]
    return aiohttp.ClientSession(ready["url"], headers={"Authorization": f"Bearer {token}"})


async def test_a_killed_server_has_every_acknowledged_write_when_it_comes_back(tmp_path: Any) -> None:
    acknowledged: dict[str, dict[str, Any]] = {}
    unanswered: set[str] = set()

    async def write(session: aiohttp.ClientSession, worker: int) -> None:
        for number in range(100_000):
            name = f"w{worker}-{number}"
            unanswered.add(name)
            try:
                async with session.post(MAPS, json={"metadata": {"name": name}}) as reply:
                    body = await reply.json()
                assert reply.status == 201
            except aiohttp.ClientError:
                return
            unanswered.remove(name)
            acknowledged[name] = body["metadata"]

    state = ("--state", str(tmp_path / "state"))
    async with (
        process(tmp_path, *state) as (child, ready),
        session_of(ready) as session,
        asyncio.timeout(120),
        asyncio.TaskGroup() as group,
    ):
        for worker in range(4):
            group.create_task(write(session, worker))
        while len(acknowledged) < 200:
            async with session.get("/version") as reply:
                assert reply.status == 200
        child.kill()
        assert await child.wait() == -signal.SIGKILL
    async with (
        process(tmp_path, *state) as (_, again),
        session_of(again) as session,
        session.get(MAPS) as reply,
    ):
        items = {item["metadata"]["name"]: item["metadata"] for item in (await reply.json())["items"]}
    assert again["url"] == ready["url"]
    assert {name: items.get(name) for name in acknowledged} == acknowledged
    assert set(items) - set(acknowledged) <= unanswered


async def test_long_lived_objects_are_hidden_from_the_collector() -> None:
    keeper = asyncio.Event()
    try:
        async with asyncio.timeout(120), asyncio.TaskGroup() as group:
            task = group.create_task(command.keep_pauses_short())
            await asyncio.sleep(0)  # its first round does not wait
            task.cancel()
        assert all(tracked is not keeper for tracked in gc.get_objects())
    finally:
        gc.unfreeze()


async def test_a_process_starts_with_the_faults_of_a_file(tmp_path: Any) -> None:
    path = tmp_path / "faults.yaml"
    path.write_text("faults:\n- select: {resource: configmaps}\n  effect: {kind: refusal, code: 503}\n")
    async with (
        process(tmp_path, "--faults", str(path)) as (_, ready),
        session_of(ready) as session,
        session.get(MAPS) as reply,
    ):
        assert reply.status == 503


@pytest.mark.parametrize(("option", "content"), [("faults", "faults: 3"), ("state", "hello\n")])
async def test_a_file_that_cannot_be_used_is_told_in_one_sentence(
    tmp_path: Any, capsys: Any, option: str, content: str
) -> None:
    import argparse

    path = tmp_path / "file"
    path.write_text(content)
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    args = parser.parse_args(["--kubeconfig-dir", str(tmp_path), f"--{option}", str(path)])
    assert await command.serve(args) == 2
    message = capsys.readouterr().err
    assert str(path) in message
    assert message.count("\n") == 1
