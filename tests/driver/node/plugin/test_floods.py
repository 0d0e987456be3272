"""Floods of HTTP/2 frames on the kubelet's sockets, against a node daemon in a process of its own."""

import asyncio

import pytest
from tests.scenes import http2, nodeprocesses

FLOOD_SECONDS = 0.5
GROWTH_LIMIT_BYTES = 160 << 20


@pytest.mark.parametrize("which", ["service", "registration"])
async def test_no_flood_of_frames_keeps_the_kubelet_waiting(tmp_path, which):
    loop = asyncio.get_running_loop()
    async with nodeprocesses.running(tmp_path, "one") as (_, instance):
        for name, flood in http2.FLOODS.items():
            usage = http2.Usage(instance.process.pid)
            slowest, answered = 0.0, 0
            with http2.Flood(getattr(instance.sockets, which), flood) as flooding:
                ends = loop.time() + FLOOD_SECONDS
                while loop.time() < ends:
                    asked = loop.time()
                    answers = await instance.unprepare(("c", "unknown"))
                    slowest, answered = max(slowest, loop.time() - asked), answered + 1
                    assert not answers["unknown"].error
            assert flooding.sent > 0, name
            assert slowest < 10, name
            assert usage.grown_bytes < GROWTH_LIMIT_BYTES, name
            assert usage.descriptors < 64, name
        assert instance.process.returncode is None
