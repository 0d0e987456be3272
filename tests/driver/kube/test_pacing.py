"""How fast a client writes."""

import asyncio
import contextlib

import pytest

from drawbar.driver.kube import pacing
from drawbar.mocks.testing import virtualtime


@pytest.mark.parametrize(("quiet", "burst", "expected"), [(0.0, 1, 9.9), (100.0, 1, 9.9), (100.0, 20, 8.0)])
def test_a_burst_passes_at_once_and_the_rest_at_the_sustained_rate(quiet, burst, expected):
    async def a_hundred():
        loop = asyncio.get_running_loop()
        writes = pacing.Pace(per_second=10, burst=burst)
        await asyncio.sleep(quiet)
        began = loop.time()
        await asyncio.gather(*(writes.take() for _ in range(100)))
        return loop.time() - began

    with contextlib.closing(virtualtime.VirtualTimeLoop()) as loop:
        assert loop.run_until_complete(a_hundred()) == pytest.approx(expected, abs=0.11)


RATE = 10


def run_scene(scene):
    """Return the scene's result with a pace of `RATE` writes a second."""

    async def play():
        return await scene(pacing.Pace(per_second=RATE, burst=1), asyncio.get_running_loop())

    with contextlib.closing(virtualtime.VirtualTimeLoop()) as loop:
        return loop.run_until_complete(play())


async def write_for_payer(writes, payer, count, moments):
    """Write so often for a payer; note each moment."""
    with pacing.writing_for(payer):
        for _ in range(count):
            await writes.take()
            moments.append(asyncio.get_running_loop().time())


def test_a_payer_with_a_thousand_writes_delays_another_ones_by_one_write_each():
    async def scene(writes, loop):
        flood, few = [], []
        async with asyncio.TaskGroup() as tasks:
            for _ in range(1000):
                tasks.create_task(write_for_payer(writes, "flood", 1, flood))
            await asyncio.sleep(5)
            began = loop.time()
            await tasks.create_task(write_for_payer(writes, "few", 20, few))
        assert len(flood) == 1000
        return [after - before for before, after in zip([began, *few], few, strict=False)]

    assert max(run_scene(scene)) <= 2.01 / RATE


def test_the_share_of_a_payer_that_writes_nothing_is_used_by_the_others():
    async def scene(writes, loop):
        both, alone = ([], []), []
        began = loop.time()
        async with asyncio.TaskGroup() as tasks:
            for payer, moments in zip(("a", "b"), both, strict=True):
                tasks.create_task(write_for_payer(writes, payer, 50, moments))
        shared = loop.time() - began
        began = loop.time()
        await write_for_payer(writes, "a", 100, alone)
        return shared, loop.time() - began, [moments[-1] for moments in both]

    shared, alone, (last_a, last_b) = run_scene(scene)
    assert shared == pytest.approx(10.0, abs=0.2)
    assert alone == pytest.approx(10.0, abs=0.2)
    assert last_a == pytest.approx(last_b, abs=0.25)


def test_a_cancelled_write_costs_no_time():
    async def scene(writes, loop):
        moments = []
        await writes.take()
        async with asyncio.TaskGroup() as tasks:
            cancelled = [tasks.create_task(write_for_payer(writes, "a", 1, [])) for _ in range(100)]
            kept = tasks.create_task(write_for_payer(writes, "b", 1, moments))
            await asyncio.sleep(0)
            for task in cancelled:
                task.cancel()
            await kept
        return moments

    assert run_scene(scene) == [pytest.approx(1 / RATE, abs=0.01)]
