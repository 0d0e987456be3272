"""Restarts that keep the data, and the server as a process."""

import asyncio
import contextlib
import gc
import json
import socket
import ssl
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from drawbar.mocks import apiserver
from drawbar.mocks.apiserver import command

MAPS = "/api/v1/namespaces/default/configmaps"


async def test_a_restart_keeps_objects_users_and_port(api: Any, make_config_map: Any) -> None:
    before = await api.post(MAPS, make_config_map())
    url = api.server.url
    await api.server.restart()
    after = await api.get(f"{MAPS}/one")
    assert after.body == before.body
    assert api.server.url == url


async def test_a_restart_can_change_gates(start: Any, make_slice: Any, definition: Any) -> None:
    api = await start(profile="1.34")
    await api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    slices = "/apis/resource.k8s.io/v1/resourceslices"
    body = make_slice(devices=[{"name": "a", "taints": [{"key": "k", "effect": "NoSchedule"}]}])
    assert "taints" not in (await api.post(slices, body)).body["spec"]["devices"][0]
    await api.server.restart(gates={"DRADeviceTaints": True})
    assert (await api.get("/apis/drawbar.dev/v1alpha1/widgets")).code == 200
    body["metadata"]["name"] = "later"
    assert (await api.post(slices, body)).body["spec"]["devices"][0]["taints"]


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


async def test_a_file_that_cannot_be_used_is_told_in_one_sentence(tmp_path: Any, capsys: Any) -> None:
    import argparse

    path = tmp_path / "file"
    path.write_text("faults: 3")
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    args = parser.parse_args(["--kubeconfig-dir", str(tmp_path), "--faults", str(path)])
    assert await command.serve(args) == 2
    message = capsys.readouterr().err
    assert str(path) in message
    assert message.count("\n") == 1
