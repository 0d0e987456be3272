"""A manager that sends its answers a byte at a time: each call ends in time, and costs little."""

import asyncio
import contextlib
import time

import pytest

from drawbar.fabric import contract, errors
from drawbar.fabric.redfish.adapter import RedfishAdapter

SECONDS, SLACK_SECONDS = 1, 8.0
DRIPPING = {
    "body": b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n{"a":"',
    "chunks": b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n",
    "refusal": b"HTTP/1.1 503 Busy\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n{",
    "headers": b"HTTP/1.1 200 OK\r\nX: ",
    "redirect": b"HTTP/1.1 302 Found\r\nLocation: /redfish/v1/x\r\nContent-Length: 1000000\r\n\r\n",
}


class Manager:
    """Answers the first requests at once with the root, and each later one without end."""

    def __init__(self, head, *, answered):
        self.head, self.answered, self.requests = head, answered, 0

    async def serve(self, reader, writer):
        with contextlib.closing(writer), contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                self.requests += 1
                if self.requests > self.answered:
                    break
                root = b'{"@odata.id":"/redfish/v1","RedfishVersion":"1.15.0","Fabrics":{"@odata.id":"/redfish/v1/Fabrics"}}'
                head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                writer.write(head % len(root) + root)
                await writer.drain()
            writer.write(self.head)
            while True:
                writer.write(b"1\r\nx\r\n" if b"chunked" in self.head else b"x")
                await writer.drain()
                await asyncio.sleep(0.001)


@pytest.mark.parametrize("answered", [0, 1, 3])
@pytest.mark.parametrize("kind", DRIPPING)
async def test_a_call_of_a_manager_that_drips_ends_in_time(kind, answered):
    made = Manager(DRIPPING[kind], answered=answered)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    async with server:
        config = contract.AdapterConfig(
            name="rack-7",
            endpoint=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}",
            timeout_seconds=SECONDS,
        )
        began, spent = time.monotonic(), time.process_time()
        async with asyncio.timeout(60):
            with pytest.raises(errors.FabricError):
                async with await RedfishAdapter.connect(config) as adapter:
                    await adapter.devices()
        assert time.monotonic() - began < (2 + answered) * SECONDS + SLACK_SECONDS
        assert time.process_time() - spent < SLACK_SECONDS
