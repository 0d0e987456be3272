"""TCP connections inside one event loop, without sockets."""

import asyncio
import contextlib
import errno
import io
import socket

import aiohttp
import pytest
from aiohttp import web

from drawbar.mocks.testing import memorynetwork, virtualtime

BODY = b"x" * (20 * memorynetwork.HIGH_WATER_BYTES)


@contextlib.asynccontextmanager
async def serving(handler):
    async with await asyncio.start_server(handler, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()


@virtualtime.in_virtual_time
async def test_bytes_written_before_the_end_are_read():
    async def answer(reader, writer):
        writer.write(BODY)
        writer.close()

    async with serving(answer) as address:
        reader, writer = await asyncio.open_connection(*address)
        assert await reader.read() == BODY
        writer.close()
        await writer.wait_closed()


@virtualtime.in_virtual_time
async def test_a_port_that_another_process_has_is_free_in_the_loop_and_only_once():
    async def answer(reader, writer):
        writer.write(b"here")
        writer.close()

    with socket.create_server(("127.0.0.1", 0)) as theirs:
        address = theirs.getsockname()
        async with await asyncio.start_server(answer, *address):
            reader, writer = await asyncio.open_connection(*address)
            assert await reader.read() == b"here"
            writer.close()
            with pytest.raises(OSError, match="in use in this loop") as refused:
                await asyncio.start_server(answer, *address)
            assert refused.value.errno == errno.EADDRINUSE


@virtualtime.in_virtual_time
async def test_who_writes_more_than_is_read_waits():
    written = []

    async def answer(reader, writer):
        for _ in range(20):
            writer.write(BODY[: memorynetwork.HIGH_WATER_BYTES])
            await writer.drain()
            written.append(1)
        writer.close()

    async with serving(answer) as address:
        reader, writer = await asyncio.open_connection(*address)
        await asyncio.sleep(60)
        assert len(written) < 20
        assert await reader.read() == BODY
        writer.close()
        await writer.wait_closed()


@virtualtime.in_virtual_time
async def test_an_aborted_connection_is_reset():
    async def answer(reader, writer):
        await reader.readline()
        writer.transport.abort()

    async with serving(answer) as address:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"hello\n")
        with pytest.raises(ConnectionResetError):
            await reader.read()
        writer.close()
        with contextlib.suppress(ConnectionResetError):
            await writer.wait_closed()


@virtualtime.in_virtual_time
async def test_a_connection_is_refused_where_nothing_listens():
    async def answer(reader, writer):
        writer.close()

    async with serving(answer) as address:
        pass
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(*address)


@virtualtime.in_virtual_time
async def test_an_http_server_and_its_client_talk_without_sockets():
    async def answer(request):
        return web.Response(body=await request.read())

    application = web.Application(client_max_size=2 * len(BODY))
    application.router.add_post("/", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    held = socket.socket()
    held.bind(("127.0.0.1", 0))
    await web.SockSite(runner, held).start()
    url = f"http://127.0.0.1:{held.getsockname()[1]}/"
    # No real connection leads there: nothing listens on the socket that holds the number.
    with socket.socket() as real, pytest.raises(ConnectionRefusedError):
        real.connect(held.getsockname())
    async with aiohttp.ClientSession() as session, session.post(url, data=io.BytesIO(BODY)) as response:
        assert await response.read() == BODY
    await runner.cleanup()


@virtualtime.in_virtual_time
async def test_the_clock_waits_for_work_in_a_thread():
    def work():
        return sum(range(1_000_000))

    async with asyncio.timeout(0.001):
        assert await asyncio.to_thread(work) == 499_999_500_000


@virtualtime.in_virtual_time
async def test_an_error_in_a_thread_is_raised():
    def work():
        raise LookupError("not here")

    with pytest.raises(LookupError, match="not here"):
        await asyncio.to_thread(work)


@virtualtime.in_virtual_time
async def test_sockets_of_the_machine_are_refused(tmp_path):
    with pytest.raises(RuntimeError, match="in memory"):
        await asyncio.open_unix_connection(tmp_path / "socket")
    with pytest.raises(RuntimeError, match="in memory"):
        await asyncio.create_subprocess_exec("true")
