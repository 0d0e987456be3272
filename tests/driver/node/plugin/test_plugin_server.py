"""The end of the kubelet's servers while they still start."""

import asyncio

import pytest
from tests.driver.node.plugin.test_servicers import Preparation

from drawbar.driver.node.plugin import server, sockets


@pytest.mark.parametrize("steps", range(12))
async def test_a_daemon_that_ends_while_its_servers_start_leaves_none_behind(tmp_path, steps):
    where = sockets.paths(tmp_path, "drawbar.dev", "")
    where.registration.parent.mkdir(parents=True)

    async def serve():
        async with server.serving("drawbar.dev", where, Preparation(), None):
            await asyncio.Event().wait()

    async with asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(serve())
        for _ in range(steps):
            await asyncio.sleep(0)
        serving.cancel()
