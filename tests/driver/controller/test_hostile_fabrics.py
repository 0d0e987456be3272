"""One fabric manager that lists or streams without end, and a claim for a device of another Fabric beside it."""

import asyncio
import time

import pytest
from tests.scenes import sidecars, waiting

from drawbar.driver.api import fabrics
from drawbar.driver.kube import kinds

# Lower than by default, so that what has no end gets there sooner.
LIMITS = fabrics.Limits(devices=400, hosts=128, slices=8)
POLICY = {"limits": {"devices": LIMITS.devices, "hosts": LIMITS.hosts, "slices": LIMITS.slices}}
# A claim of the good Fabric is attached in 0.1 s; the machine may be busy with other tests.
PATIENCE_SECONDS = 60.0


def slices_of(fabric, slices):
    return [entry for entry in slices if entry["pool"]["name"].partition("/")[0] == fabric]


@pytest.mark.parametrize("mode", ["pages", "empty", "ids", "enclosures", "hosts", "flood", "large"])
async def test_a_manager_without_bounds_is_degraded_alone_and_publishes_no_more_than_its_limits(
    controller_world, tmp_path, mode
):
    endpoint = f"unix:{tmp_path / 'evil.sock'}"
    async with controller_world() as cluster, sidecars.serving(endpoint) as plugin:
        cluster.start(leader_election=False)
        await cluster.make_fabric()
        await cluster.make_fabric("evil", endpoint=endpoint, policy=POLICY)
        await waiting.until(cluster.slices, lambda value: len(value) == 2)
        plugin.mode = mode
        # Its watch is opened again, and begins with what the mode does.
        await cluster.patch(kinds.FABRIC, "evil", {"spec": {"timeoutSeconds": 29}})
        condition = await cluster.condition("Degraded", "evil", status="True", reason="LimitExceeded")
        assert "spec.policy.limits." in condition["message"]
        began = time.monotonic()
        await cluster.allocate("gpu-0")
        await cluster.wait_until_attached("gpu-0")
        assert time.monotonic() - began < PATIENCE_SECONDS
        await cluster.condition("Degraded", status="False")
        await asyncio.sleep(2)
        evil = slices_of("evil", await cluster.slices())
        assert 1 <= len(evil) <= LIMITS.slices
        names = {device["name"] for entry in evil for device in entry["devices"]}
        # What was published before stays.
        assert {f"d-{number}" for number in range(50)} <= names
        assert len(names) <= LIMITS.devices
        watches = plugin.watches
        await asyncio.sleep(2)
        assert plugin.watches - watches <= 1
        await cluster.stop()
