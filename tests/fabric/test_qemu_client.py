"""The QMP client against peers that are not QEMU, or not well."""

import asyncio
import json
import time
from contextlib import asynccontextmanager

import pytest

from drawbar.fabric import budget
from drawbar.fabric.qemu import qmp
from drawbar.mocks import qemu

HELLO = b'{"QMP": {"version": {}, "capabilities": []}}\r\n'


@asynccontextmanager
async def peer(path, converse):
    """Serve `converse` on a socket."""

    async def serve(reader, writer):
        try:
            await converse(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_unix_server(serve, path)
    try:
        yield
    finally:
        server.close()
        await server.wait_closed()


@pytest.fixture
def connect(tmp_path):
    events, lost, clients = [], [], []

    async def connect():
        client = await qmp.Client.connect(
            str(tmp_path / "qmp"),
            on_event=lambda name, data: events.append((name, data)),
            on_lost=lambda: lost.append(True),
            flow=budget.Flow(budget.Limits(), "lab", clock=time.monotonic),
        )
        clients.append(client)
        return client

    connect.events, connect.lost = events, lost
    yield connect
    for client in clients:
        client.close()


async def answer_commands(reader, writer, *answers):
    """Greet, and answer command by command; `None` answers well."""
    writer.write(HELLO)
    for answer in (None, *answers):
        asked = json.loads(await reader.readline())
        reply = b'{"return": {}, "id": %d}\n' % asked["id"] if answer is None else answer % asked["id"]
        writer.write(reply)
    await reader.read()


@pytest.mark.parametrize("words", [b"", b"220 smtp ready\r\n", b"x" * (qmp.LINE_BYTES + 1)])
async def test_a_peer_that_does_not_speak_qmp_is_left(tmp_path, connect, words):
    async def converse(reader, writer):
        writer.write(words)
        if words:
            await reader.read()

    async with peer(tmp_path / "qmp", converse):
        with pytest.raises(qmp.Lost):
            await connect()
    assert not connect.lost


async def test_an_answer_that_comes_too_late_is_thrown_away(tmp_path, connect):
    go = asyncio.Event()

    async def converse(reader, writer):
        writer.write(HELLO)
        first = json.loads(await reader.readline())
        writer.write(b'{"return": {}, "id": %d}\n' % first["id"])
        late = json.loads(await reader.readline())
        await go.wait()
        writer.write(b'{"return": "late", "id": %d}\n' % late["id"])
        prompt = json.loads(await reader.readline())
        writer.write(b'{"return": "prompt", "id": %d}\n' % prompt["id"])
        await reader.read()

    async with peer(tmp_path / "qmp", converse):
        client = await connect()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await client.execute("query-late")
        go.set()
        assert await client.execute("query-prompt") == "prompt"
        client.close()


async def test_errors_and_events_are_told_apart_from_answers(tmp_path, connect):
    async def converse(reader, writer):
        event = b'{"event": "DEVICE_DELETED", "data": {"device": "x"}}\n{"event": "RESET"}\n{"what": 1}\n'
        refusal = b'{"error": {"class": "GenericError", "desc": "no"}, "id": %d}\n'
        await answer_commands(reader, writer, event + refusal, b'{"id": %d}\n')

    async with peer(tmp_path / "qmp", converse):
        client = await connect()
        with pytest.raises(qmp.Rejected) as caught:
            await client.execute("device_add")
        assert (caught.value.kind, caught.value.description) == ("GenericError", "no")
        assert connect.events == [("DEVICE_DELETED", {"device": "x"}), ("RESET", {})]
        with pytest.raises(qmp.Rejected, match="neither"):
            await client.execute("device_del")
        client.close()


async def test_a_lost_connection_ends_waiting_commands_and_is_reported_once(tmp_path, connect):
    path = tmp_path / "qmp"
    stumble = qemu.Stumble(command="query-uuid")
    async with qemu.serving(qemu.VirtualMachine(), path, stumble):
        client = await connect()
        with pytest.raises(qmp.Lost):
            await client.execute("query-uuid")
        assert (client.closed, connect.lost) == (True, [True])
        with pytest.raises(qmp.Lost):
            await client.execute("query-uuid")


async def test_a_client_that_closes_is_not_told_that_it_lost_anything(tmp_path, connect):
    async with qemu.serving(qemu.VirtualMachine(), tmp_path / "qmp"):
        client = await connect()
        assert (await client.execute("query-uuid"))["UUID"]
        client.close()
        client.close()
    assert not connect.lost


async def test_a_flood_of_events_ends_the_connection_with_the_limit(tmp_path, connect):
    async def converse(reader, writer):
        flood = b'{"event": "RTC_CHANGE"}\n{"what": 1}\n' * 4000
        await answer_commands(reader, writer, flood + b'{"return": {}, "id": %d}\n')

    async with peer(tmp_path / "qmp", converse):
        client = await connect()
        with pytest.raises(qmp.Lost, match="more than 256 events a second"):
            await client.execute("query-uuid")
    assert (client.closed, connect.lost) == (True, [True])
    assert len(connect.events) <= 256 * budget.WINDOW_SECONDS


async def test_brackets_without_end_are_no_json(tmp_path, connect):
    async def converse(reader, writer):
        await answer_commands(reader, writer, b"[" * 100_000 + b"\n" + b'{"return": {}, "id": %d}\n')

    async with peer(tmp_path / "qmp", converse):
        client = await connect()
        with pytest.raises(qmp.Lost, match="not JSON"):
            await client.execute("query-uuid")
