"""The event loop whose clock jumps."""

import asyncio
import contextlib
import time

import pytest

from drawbar.mocks.testing import virtualtime


@pytest.fixture
def loop():
    with contextlib.closing(virtualtime.VirtualTimeLoop()) as made:
        yield made


def test_a_day_of_sleep_takes_no_time(loop):
    began = loop.now()
    real = time.monotonic()
    loop.run_until_complete(asyncio.sleep(86_400))
    assert loop.time() == pytest.approx(86_400, abs=1)
    assert (loop.now() - began).total_seconds() == pytest.approx(86_400, abs=1)
    assert time.monotonic() - real < 60


def test_timers_come_in_their_order(loop):
    seen = []

    async def sleep_and_note(seconds):
        await asyncio.sleep(seconds)
        seen.append(seconds)

    async def all_of_them():
        await asyncio.gather(*(sleep_and_note(seconds) for seconds in (30, 10, 3600, 20)))

    loop.run_until_complete(all_of_them())
    assert seen == [10, 20, 30, 3600]


def test_an_answer_over_loopback_comes_before_the_deadline(loop):
    async def answer(reader, writer):
        writer.write((await reader.readline()).upper())
        writer.close()

    async def ask():
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(b"hello\n")
            async with asyncio.timeout(0.001):
                reported = await reader.readline()
            writer.close()
            await writer.wait_closed()
            return reported

    assert loop.run_until_complete(ask()) == b"HELLO\n"
