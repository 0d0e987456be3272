"""How fast a client writes."""

import asyncio
import contextlib

import pytest

from drawbar.driver.kube import client
from drawbar.mocks.testing import virtualtime


@pytest.mark.parametrize(("quiet", "burst", "expected"), [(0.0, 1, 9.9), (100.0, 1, 9.9), (100.0, 20, 8.0)])
def test_a_burst_passes_at_once_and_the_rest_at_the_sustained_rate(quiet, burst, expected):
    async def a_hundred():
        loop = asyncio.get_running_loop()
        writes = client.Pace(per_second=10, burst=burst)
        await asyncio.sleep(quiet)
        began = loop.time()
        await asyncio.gather(*(writes.take() for _ in range(100)))
        return loop.time() - began

    with contextlib.closing(virtualtime.VirtualTimeLoop()) as loop:
        assert loop.run_until_complete(a_hundred()) == pytest.approx(expected, abs=0.11)
