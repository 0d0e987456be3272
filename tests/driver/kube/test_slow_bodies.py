"""An API server, or a proxy before it, that sends its answers a byte at a time: each request ends in time, and costs little."""

import asyncio
import contextlib
import time

import pytest
from tests.scenes import apiservers
from tests.scenes.apiservers import Thing

from drawbar.driver.kube import client, errors, kinds, sessions

SECONDS, SLACK_SECONDS = 0.5, 5.0
HEAD = b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
BEGUN = b'{"type":"ADDED","object":{"metadata":{"name":"'


@contextlib.asynccontextmanager
async def dripping(head):
    """Yield a client of a server that answers with this head, and then with single bytes without end."""

    async def serve(reader, writer):
        with contextlib.closing(writer), contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(head)
            for byte in BEGUN:
                writer.write(b"1\r\n%c\r\n" % byte)
            while True:
                writer.write(b"1\r\nx\r\n")
                await writer.drain()
                await asyncio.sleep(0.001)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with client.connecting(apiservers.connection(url)) as api:
            yield api


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(sessions, "REQUEST_TIMEOUT_SECONDS", SECONDS)
    monkeypatch.setattr(client, "WATCH_TIMEOUT_SECONDS", SECONDS)
    monkeypatch.setattr(client, "WATCH_GRACE_SECONDS", SECONDS)


async def watch(api):
    async for _ in api.watch(kinds.NODE, into=Thing, resource_version="1"):
        pass


CALLS = {
    "a read": lambda api: api.read(kinds.NODE, "n", into=Thing),
    "a list": lambda api: api.list_all(kinds.NODE, into=Thing),
    "a write": lambda api: api.create(kinds.NODE, {}, into=Thing),
    "a watch": watch,
}
HEADS = {
    "200": HEAD % b"200 OK",
    "410": HEAD % b"410 Gone",
    "500": HEAD % b"500 Internal Server Error",
    "headers without end": b"HTTP/1.1 200 OK\r\nX: ",
}


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("call", CALLS)
async def test_an_answer_that_comes_byte_by_byte_ends_in_time(head, call):
    async with dripping(HEADS[head]) as api:
        began, spent = time.monotonic(), time.process_time()
        async with asyncio.timeout(60):
            with pytest.raises(errors.KubeError):
                await CALLS[call](api)
        assert time.monotonic() - began < 2 * SECONDS + SLACK_SECONDS
        assert time.process_time() - spent < SLACK_SECONDS
