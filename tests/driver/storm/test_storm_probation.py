"""The probation of a device that failed, over a hand-over to a controller whose clock differs."""

import asyncio

import pytest


@pytest.mark.parametrize("skew", [600.0, -600.0, 0.0], ids=["ahead", "behind", "equal"])
def test_a_probation_keeps_its_length_over_a_hand_over_with_skewed_clocks(in_storm, skew):
    async def steps(storm):
        await storm.allocate("d0", "n1")
        await asyncio.sleep(5)
        await storm.a_node_fails_a_device(0)
        await asyncio.sleep(2)
        await storm.release(0, deletes=True)
        for _ in range(5):
            await asyncio.sleep(1)
            await storm.nodes_do_their_duty()
        assert "attach-failed" in (await storm.taints())["d0"]
        assert await storm.attachments() == []
        await storm.kill_controller()
        storm.start_controller(skew_seconds=skew)
        # The probation is 30 s, from when this controller saw it.
        await asyncio.sleep(25)
        assert "attach-failed" in (await storm.taints())["d0"]
        await asyncio.sleep(15)
        assert "attach-failed" not in (await storm.taints())["d0"]

    in_storm(steps)
