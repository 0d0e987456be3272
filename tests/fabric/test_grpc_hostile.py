"""A fabric plugin that speaks HTTP/2 to harm its client: each call ends with an error in time, and in bounded memory."""

import asyncio
import os

import pytest
from tests.scenes import http2

from drawbar.fabric import contract, errors
from drawbar.fabric.grpc.adapter import GrpcAdapter

TIMEOUT_SECONDS = 1.0
GROWTH_LIMIT_BYTES = 160 << 20


@pytest.mark.parametrize("answer", http2.ANSWERS)
async def test_a_hostile_plugin_costs_its_caller_one_deadline_and_nobody_else_anything(tmp_path, answer):
    loop = asyncio.get_running_loop()
    endpoint = f"unix:{tmp_path / 'f.sock'}"
    usage = http2.Usage(os.getpid())
    longest_pause = 0.0

    async def work():
        """Stand for other work of the controller: measure the longest pause between two turns."""
        nonlocal longest_pause
        while True:
            began = loop.time()
            await asyncio.sleep(0.01)
            longest_pause = max(longest_pause, loop.time() - began)

    with http2.HostileServer(tmp_path / "f.sock", http2.ANSWERS[answer]) as server:
        working = asyncio.Task(work())
        for _ in range(3):
            config = contract.AdapterConfig(name="rack", endpoint=endpoint, timeout_seconds=TIMEOUT_SECONDS)
            began = loop.time()
            with pytest.raises(errors.FabricError) as refused:
                await GrpcAdapter.connect(config)
            assert loop.time() - began < TIMEOUT_SECONDS + 5
            assert len(str(refused.value)) < 4096
        working.cancel()
        assert server.connections <= 3 * 20, "connected again and again"
    assert longest_pause < 3
    assert usage.grown_bytes < GROWTH_LIMIT_BYTES
