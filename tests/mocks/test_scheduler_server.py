"""The scheduler double against the API server double, over HTTP."""

import datetime
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.scenes import clusters

from drawbar.driver.kube import kinds
from drawbar.mocks import scheduler
from drawbar.mocks.scheduler import server as scheduler_server

QUICK = scheduler.Settings(
    poll_seconds=0.05, binding_timeout_seconds=30, backoff_first_seconds=0.05, backoff_max_seconds=0.2
)
ATTACHED, FAILED = "drawbar.dev/attached", "drawbar.dev/attach-failed"
Json = dict[str, Any]


class Cluster(clusters.Cluster):
    # By how much the scheduler's clock is ahead.
    ahead = datetime.timedelta()

    async def pool(self, *devices: str, binding: bool = True) -> None:
        conditions = {
            "bindsToNode": True,
            "bindingConditions": [ATTACHED],
            "bindingFailureConditions": [FAILED],
        }
        spec = {
            "driver": "drawbar.dev",
            "pool": {"name": "chassis-1", "generation": 1, "resourceSliceCount": 1},
            "allNodes": True,
            "devices": [{"name": name, **(conditions if binding else {})} for name in devices],
        }
        await self.create(kinds.SLICE, "chassis-1", spec=spec)
        selector = {"cel": {"expression": 'device.driver == "drawbar.dev"'}}
        await self.create(kinds.DEVICE_CLASS, "any", spec={"selectors": [selector]})

    @asynccontextmanager
    async def scheduling(self) -> AsyncIterator[None]:
        def now() -> datetime.datetime:
            return scheduler_server.utc_now() + self.ahead

        async with scheduler.serving(self.connection, QUICK, clock=now):
            yield


def bound(pod: Json) -> bool:
    return bool(pod["spec"].get("nodeName"))


def allocated(claim: Json) -> bool:
    return bool(claim.get("status", {}).get("allocation"))


def device(claim: Json) -> str:
    return str(claim["status"]["allocation"]["devices"]["results"][0]["device"])


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with clusters.serving(tmp_path, Cluster, profile="1.36") as made:
        yield made


async def test_several_pods_wait_at_the_same_time_on_different_nodes(cluster: Cluster) -> None:
    await cluster.node("node-a")
    await cluster.node("node-b")
    await cluster.pool("slot-1", "slot-2")
    for number in ("1", "2"):
        await cluster.claim(f"c{number}")
        await cluster.pod(f"p{number}", f"c{number}")
    async with cluster.scheduling():
        claims = [await cluster.one(kinds.CLAIM, name, allocated) for name in ("c1", "c2")]
        assert {device(claim) for claim in claims} == {"slot-1", "slot-2"}
        for claim in reversed(claims):
            await cluster.set_condition(claim["metadata"]["name"], ATTACHED)
        pods = [await cluster.one(kinds.POD, name, bound) for name in ("p1", "p2")]
    assert {pod["spec"]["nodeName"] for pod in pods} == {"node-a", "node-b"}


async def test_a_pod_stops_waiting_at_the_binding_timeout_and_tries_again(cluster: Cluster) -> None:
    await cluster.node("node-a")
    await cluster.pool("slot-1")
    await cluster.claim("c1")
    await cluster.pod("p1", "c1")
    async with cluster.scheduling():
        await cluster.one(kinds.CLAIM, "c1", allocated)
        cluster.ahead += datetime.timedelta(seconds=QUICK.binding_timeout_seconds + 1)
        await cluster.event("FailedScheduling", "device binding timeout")
        await cluster.event("FailedScheduling", "deallocation of ResourceClaim completed")
        claim = await cluster.one(kinds.CLAIM, "c1", allocated)
        await cluster.set_condition(claim["metadata"]["name"], ATTACHED)
        await cluster.one(kinds.POD, "p1", bound)


async def test_a_pod_that_fits_nowhere_is_scheduled_when_a_device_is_published(cluster: Cluster) -> None:
    await cluster.node("node-a")
    await cluster.claim("c1")
    await cluster.pod("p1", "c1")
    async with cluster.scheduling():
        await cluster.event("FailedScheduling", "device class any does not exist")
        await cluster.pool("slot-1", binding=False)
        await cluster.one(kinds.POD, "p1", bound)


async def test_a_shared_claim_brings_the_second_pod_to_the_first_ones_node(cluster: Cluster) -> None:
    await cluster.node("node-a")
    await cluster.node("node-b")
    await cluster.pool("slot-1")
    await cluster.claim("c1")
    await cluster.pod("p1", "c1")
    await cluster.pod("p2", "c1")
    async with cluster.scheduling():
        claim = await cluster.one(
            kinds.CLAIM, "c1", lambda claim: len(claim.get("status", {}).get("reservedFor", ())) == 2
        )
        await cluster.set_condition(claim["metadata"]["name"], ATTACHED)
        pods = [await cluster.one(kinds.POD, name, bound) for name in ("p1", "p2")]
    assert pods[0]["spec"]["nodeName"] == pods[1]["spec"]["nodeName"]


async def test_a_pod_deleted_while_it_waits_leaves_the_claim_allocated_but_not_reserved(
    cluster: Cluster,
) -> None:
    await cluster.node("node-a")
    await cluster.pool("slot-1")
    await cluster.claim("c1")
    await cluster.pod("p1", "c1")
    async with cluster.scheduling():
        await cluster.one(kinds.CLAIM, "c1", allocated)
        await cluster.one(kinds.POD, "p1", lambda pod: pod["status"].get("nominatedNodeName"))
        await cluster.api.delete(kinds.POD, "p1", namespace="default")
        left = await cluster.one(kinds.CLAIM, "c1", lambda claim: not claim["status"].get("reservedFor"))
    assert allocated(left)


async def test_a_restarted_scheduler_goes_on_waiting_for_an_allocation_it_finds(cluster: Cluster) -> None:
    await cluster.node("node-a")
    await cluster.pool("slot-1")
    await cluster.claim("c1")
    await cluster.pod("p1", "c1")
    async with cluster.scheduling():
        claim = await cluster.one(kinds.CLAIM, "c1", allocated)
    async with cluster.scheduling():
        await cluster.set_condition(claim["metadata"]["name"], ATTACHED)
        await cluster.one(kinds.POD, "p1", bound)
    same = await cluster.one(kinds.CLAIM, "c1", allocated)
    assert same["status"]["allocation"] == claim["status"]["allocation"]
