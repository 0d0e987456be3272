"""What the distilled steps of the storm run in."""

import asyncio

import pytest
from tests.driver.storm import world

from drawbar.mocks.testing import virtualtime


@pytest.fixture
def in_storm(tmp_path):
    """Return a function that runs steps in virtual time, with a `Storm` of two nodes and four devices."""

    def run(steps, made=world.Storm, keep_seconds=0):
        loop = virtualtime.VirtualTimeLoop()
        storm = made(loop, tmp_path, ("n1", "n2"), ("d0", "d1", "d2", "d3"))

        async def run_whole():
            await storm.begin(keep_seconds)
            await asyncio.sleep(1)
            try:
                await steps(storm)
            finally:
                await storm.end()

        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(run_whole())

    return run
