"""An API server that refuses everything for a while, and a controller that goes easy on it and loses nothing."""

import asyncio

import pytest

from drawbar.mocks.apiserver import faults

CONTROLLER = "system:serviceaccount:drawbar:drawbar-controller"
STORM_SECONDS = 4.0
# A controller follows about ten collections and renews its lease. Each asks again after pauses that double from 0.1 to 0.2 s,
# in 4 s five times, and a list that is answered adds a watch.
REQUESTS_LIMIT = 12 * 5 * 2
STORMS = {
    "429": faults.Refusal(code=429, retry_after=1),
    "500": faults.Refusal(code=500),
    "503": faults.Refusal(code=503),
    "410": faults.Refusal(code=410),
    "disconnects": faults.Disconnect(),
    "watches that expire at once": faults.DroppedWatch(ending="expired"),
    "watches that break at once": faults.DroppedWatch(ending="abort"),
}


@pytest.mark.parametrize("effect", STORMS.values(), ids=STORMS)
async def test_a_storm_is_met_with_few_requests_and_the_claim_of_that_time_gets_its_device(
    served_world, effect
):
    async with served_world() as cluster:
        # No server answers anything else with 410.
        verb = "list,watch" if effect == STORMS["410"] else "*"
        handle = cluster.server.faults.add(
            faults.Fault(select=faults.Selection(user=CONTROLLER, verb=verb), effect=effect)
        )
        if not isinstance(effect, faults.DroppedWatch):
            # Open watches would not notice.
            cluster.server.faults.add(
                faults.Fault(
                    select=faults.Selection(verb="watch", user=CONTROLLER),
                    when=faults.Occasions(times=20),
                    effect=faults.DroppedWatch(ending="abort"),
                )
            )
        await cluster.allocate("gpu-0")
        await asyncio.sleep(STORM_SECONDS)  # the length of the storm, in which requests are counted
        assert 0 < handle.met <= REQUESTS_LIMIT, handle.met
        cluster.server.faults.clear()
        await cluster.wait_until_attached("gpu-0")
        assert cluster.calls("attach") == ["gpu-0"]
