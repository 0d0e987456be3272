"""An API server that refuses everything for a while, and a node daemon that goes easy on it and loses nothing."""

import asyncio

import pytest
from tests.scenes import nodes

from drawbar.mocks.apiserver import faults

STORM_SECONDS = 4.0
# A daemon follows about ten collections. Each asks again after pauses that double from 0.1 to 0.2 s, in 4 s five times, and a list
# that is answered adds a watch.
REQUESTS_LIMIT = 10 * 5 * 2
RECOVERY_SECONDS = 45

STORMS = {
    "429": faults.Refusal(code=429, retry_after=1),
    "500": faults.Refusal(code=500),
    "503": faults.Refusal(code=503),
    "503 with Retry-After": faults.Refusal(code=503, retry_after=2),
    "410": faults.Refusal(code=410),
    "disconnects": faults.Disconnect(),
    "watches that expire at once": faults.DroppedWatch(ending="expired"),
    "watches that end at once": faults.DroppedWatch(ending="close"),
    "watches that break at once": faults.DroppedWatch(ending="abort"),
}


@pytest.mark.parametrize("storm", STORMS)
async def test_a_storm_is_met_with_few_requests_and_is_over_soon_after_it_ends(tmp_path, until, storm):
    async with nodes.serving(tmp_path) as node:
        await until(node.is_listening, bool)
        effect = STORMS[storm]
        # No server answers anything else with 410.
        verb = "list,watch" if storm == "410" else "*"
        user = f"system:serviceaccount:{nodes.ACCOUNT}"
        handle = node.server.faults.add(
            faults.Fault(select=faults.Selection(user=user, verb=verb), effect=effect)
        )
        if not isinstance(effect, faults.DroppedWatch):
            # Open watches would not notice.
            node.server.faults.add(
                faults.Fault(
                    select=faults.Selection(verb="watch"),
                    when=faults.Occasions(times=20),
                    effect=faults.DroppedWatch(ending="abort"),
                )
            )
        # What happens meanwhile must not be lost.
        claim = await node.allocate_claim()
        await node.attach(claim)
        await node.controller_says()
        await node.plug()
        await asyncio.sleep(STORM_SECONDS)  # the length of the storm, in which requests are counted
        assert 0 < handle.met <= REQUESTS_LIMIT, handle.met
        node.server.faults.clear()

        async def try_prepare():
            return (await node.prepare(claim)).error

        async with asyncio.timeout(RECOVERY_SECONDS):
            await until(try_prepare, lambda error: not error, seconds=RECOVERY_SECONDS)
        await until(node.conditions, lambda conditions: conditions.get("Visible", {}).get("status") == "True")
