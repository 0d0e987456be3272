"""Heads of answers that no library of a service makes: each call ends with one clear error, in time and in bounded memory."""

import asyncio
import contextlib
import json

import pytest

from drawbar.fabric import contract, errors
from drawbar.fabric.redfish.adapter import RedfishAdapter

TIMEOUT_SECONDS = 1.0
ROOT = json.dumps({"@odata.id": "/redfish/v1", "RedfishVersion": "1.15.0"}).encode()
EMPTY = b"Content-Length: 0\r\n\r\n"
ANSWERS = {
    "a challenge that is not UTF-8": (
        b'HTTP/1.1 401 x\r\nWWW-Authenticate: Basic realm="\xff\x1b[2J"\r\n' + EMPTY,
        errors.Unauthenticated,
    ),
    "a type that is not UTF-8": (
        b"HTTP/1.1 200 x\r\nContent-Type: \xff\x1b[2J\r\nContent-Length: 1\r\n\r\nx",
        errors.Unavailable,
    ),
    "a location that is not UTF-8": (
        b"HTTP/1.1 307 x\r\nLocation: http://[\xff\r\n" + EMPTY,
        errors.Unavailable,
    ),
    "a pause that is not UTF-8": (b"HTTP/1.1 503 x\r\nRetry-After: \xff\r\n" + EMPTY, errors.Unavailable),
    "two lengths": (
        b"HTTP/1.1 200 x\r\nContent-Length: 2\r\nContent-Length: 5\r\n\r\n{}",
        errors.Unavailable,
    ),
    "a length of 30 digits": (
        b"HTTP/1.1 200 x\r\nContent-Length: %s\r\n\r\n{}" % (b"9" * 30),
        errors.Unavailable,
    ),
    "another protocol": (b"HTTP/1.1 101 x\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", errors.Unavailable),
    "a name with NUL": (b"HTTP/1.1 200 x\r\nA\0: b\r\n" + EMPTY, errors.Unavailable),
}
FLOODS = {
    "answers before the answer": (b"", b"HTTP/1.1 102 Processing\r\nX: y\r\n\r\n" * 1000),
    "headers": (b"HTTP/1.1 200 x\r\n", b"Set-Cookie: a=b\r\n" * 1000),
    "one header": (b"HTTP/1.1 200 x\r\nX: ", b"x" * 65536),
    "an extension of a chunk": (b"HTTP/1.1 200 x\r\nTransfer-Encoding: chunked\r\n\r\n5;", b"x" * 65536),
    "trailers": (b"HTTP/1.1 200 x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n", b"A: b\r\n" * 1000),
}


@contextlib.asynccontextmanager
async def answering(first, rest=b""):
    """Yield the URL of a service that answers each request so; the rest is sent again and again."""

    async def handle(reader, writer):
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(first)
                await writer.drain()
                while rest:
                    writer.write(rest)
                    await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def connect(url):
    return await RedfishAdapter.connect(
        contract.AdapterConfig(name="rack", endpoint=url, timeout_seconds=TIMEOUT_SECONDS)
    )


@pytest.mark.parametrize(("answer", "error"), ANSWERS.values(), ids=ANSWERS)
async def test_an_odd_head_is_one_error_that_can_be_written(answer, error):
    async with answering(answer) as url:
        with pytest.raises(error) as refused:
            await connect(url)
    assert 0 < len(str(refused.value).encode()) < 4096


@pytest.mark.sockets
@pytest.mark.parametrize(("first", "rest"), FLOODS.values(), ids=FLOODS)
async def test_a_head_without_end_costs_one_deadline(first, rest):
    async with answering(first, rest) as url:
        began = asyncio.get_running_loop().time()
        with pytest.raises(errors.FabricError):
            await connect(url)
        assert asyncio.get_running_loop().time() - began < TIMEOUT_SECONDS + 10
