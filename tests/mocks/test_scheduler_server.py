"""The scheduler double against the API server double, over HTTP: what `mocks/contract` does not assert.

Some are the flows of Kubernetes' own integration tests of device binding conditions.
"""

import datetime
from contextlib import asynccontextmanager

import pytest
from tests.scenes import clusters

from drawbar.driver.kube import client, kinds
from drawbar.mocks import claims, scheduler
from drawbar.mocks.scheduler import server as scheduler_server

DRIVER, ATTACHED, FAILED = "drawbar.dev", "attached", "failed"
WITH = {"name": "with-binding", "bindingConditions": [ATTACHED], "bindingFailureConditions": [FAILED]}
WITHOUT = {"name": "without-binding"}


class Clock:
    """The time of day, which a test can move on."""

    def __init__(self):
        self.ahead = datetime.timedelta()

    def __call__(self):
        return scheduler_server.utc_now() + self.ahead


class SchedulingCluster(clusters.Cluster):
    def __init__(self, *served):
        super().__init__(*served)
        self.clock = Clock()

    async def nodes(self, *names):
        for name in names:
            await self.node(name)
        await self.create(kinds.DEVICE_CLASS, "class", spec={})

    async def slice(self, node, *devices, **spec):
        name = f"{node}-{devices[0]['name']}"
        pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
        node_selection = spec or {"nodeName": node}
        await self.create(
            kinds.SLICE,
            name,
            spec={"driver": DRIVER, "pool": pool, "devices": list(devices), **node_selection},
        )

    async def pod(self, name, **ask):
        """Create a pod with a claim of the same name."""
        await self.claim(name, "class", **ask)
        await super().pod(name, name)

    async def wait_for_allocation(self, name, device):
        """Wait until the claim's allocation is this device; return the allocation."""
        claim = await self.wait_for(kinds.CLAIM, name, lambda claim: device_of(claim) == device)
        return claim["status"]["allocation"]

    async def wait_until_bound(self, name):
        return await self.wait_for(kinds.POD, name, lambda pod: pod["spec"].get("nodeName"))

    async def wait_for_condition(self, name, words):
        """Wait until the pod's condition has these words; return the pod."""

        def holds(pod):
            message = find_scheduled_condition(pod).get("message", "")
            return words in message

        return await self.wait_for(kinds.POD, name, holds)

    async def finish(self, name):
        """Report the pod as succeeded, as a kubelet does when the containers have ended."""
        await self.set_status(kinds.POD, name, {"phase": "Succeeded"})

    async def notes(self, reason):
        return [event["note"] for event in await self.list(kinds.EVENT) if event["reason"] == reason]

    def scheduler_alone(self, binding_timeout_seconds=600):
        times = scheduler.Settings(
            poll_seconds=0.05,
            binding_timeout_seconds=binding_timeout_seconds,
            backoff_first_seconds=0.05,
            backoff_max_seconds=0.2,
        )
        return scheduler.serving(self.connection, times, clock=self.clock)

    @asynccontextmanager
    async def scheduling(self, binding_timeout_seconds=600):
        async with claims.serving(self.connection), self.scheduler_alone(binding_timeout_seconds):
            yield


def device_of(claim):
    allocation = (claim.get("status") or {}).get("allocation")
    return allocation["devices"]["results"][0]["device"] if allocation else None


def find_scheduled_condition(pod):
    conditions = pod["status"].get("conditions") or []
    return next((condition for condition in conditions if condition["type"] == "PodScheduled"), {})


@pytest.fixture
async def world(tmp_path):
    async with clusters.serving(tmp_path, SchedulingCluster, profile="1.36") as made:
        yield made


async def test_a_failed_device_that_left_its_slice_sends_the_pod_to_another_node(world):
    await world.nodes("worker-0", "worker-1")
    await world.slice("worker-0", WITH)
    async with world.scheduling():
        await world.pod("a")
        await world.wait_for_allocation("a", "with-binding")
        patch = [{"op": "add", "path": "/spec/devices", "value": []}]
        await world.api.patch(
            kinds.SLICE, "worker-0-with-binding", patch, content=client.Patch.JSON, into=dict
        )
        await world.slice("worker-1", WITHOUT)
        await world.set_condition("a", FAILED)
        await world.wait_for_allocation("a", "without-binding")
        assert (await world.wait_until_bound("a"))["spec"]["nodeName"] == "worker-1"


async def test_at_the_timeout_the_pod_says_so_and_stays_without_a_node(world):
    await world.nodes("worker-0")
    await world.slice("worker-0", WITH)
    async with world.scheduling(binding_timeout_seconds=6):
        await world.pod("a")
        await world.wait_for_allocation("a", "with-binding")
        world.clock.ahead += datetime.timedelta(seconds=7)
        pod = await world.wait_for_condition("a", "device binding timeout: claim=a")
        assert (find_scheduled_condition(pod)["status"], find_scheduled_condition(pod)["reason"]) == (
            "False",
            "SchedulerError",
        )
        assert not pod["spec"].get("nodeName")
        assert not pod["status"].get("nominatedNodeName")


async def test_after_the_timeout_a_device_that_came_meanwhile_is_taken(world):
    await world.nodes("worker-0")
    await world.slice("worker-0", WITH)
    async with world.scheduling(binding_timeout_seconds=6):
        await world.pod("a")
        await world.wait_for_allocation("a", "with-binding")
        await world.slice("worker-0", WITHOUT)
        world.clock.ahead += datetime.timedelta(seconds=7)
        await world.wait_for_allocation("a", "without-binding")
        await world.wait_until_bound("a")
    assert any("binding timeout" in note for note in await world.notes("FailedScheduling"))


async def test_without_the_gate_the_unattached_device_is_bound_at_once(tmp_path):
    async with clusters.serving(tmp_path, SchedulingCluster, profile="1.34") as world:
        await world.nodes("worker-0")
        await world.slice("worker-0", WITH)
        async with world.scheduling():
            await world.pod("a")
            await world.wait_until_bound("a")
            allocation = await world.wait_for_allocation("a", "with-binding")
    assert "bindingConditions" not in allocation["devices"]["results"][0]
    assert "allocationTimestamp" not in allocation


async def test_a_waiting_pod_is_nominated_and_an_event_names_its_devices(world):
    await world.nodes("worker-0")
    await world.slice("worker-0", WITH)
    async with world.scheduling():
        await world.pod("a")
        await world.wait_for_allocation("a", "with-binding")
        pod = await world.api.read(kinds.POD, "a", into=dict, namespace="default")
        assert pod["status"]["nominatedNodeName"] == "worker-0"
        await world.set_condition("a", ATTACHED)
        pod = await world.wait_until_bound("a")
        assert find_scheduled_condition(pod)["status"] == "True"
    assert await world.notes("BindingConditionsPending") == [
        "waiting for binding conditions for device on node worker-0"
    ]


async def test_a_restarted_scheduler_still_counts_the_timeout_from_the_allocation(world):
    await world.nodes("worker-0")
    await world.slice("worker-0", WITH)
    async with world.scheduling(binding_timeout_seconds=6):
        await world.pod("a")
        before = await world.wait_for_allocation("a", "with-binding")
    world.clock.ahead += datetime.timedelta(seconds=7)
    async with world.scheduling(binding_timeout_seconds=6):
        await world.wait_for_condition("a", "deallocation of ResourceClaim completed")
        again = await world.wait_for(
            kinds.CLAIM,
            "a",
            lambda claim: (
                device_of(claim)
                and claim["status"]["allocation"]["allocationTimestamp"] != before["allocationTimestamp"]
            ),
        )
        assert device_of(again) == "with-binding"


async def test_a_pod_that_fits_nowhere_says_why_in_its_condition(world):
    await world.nodes("worker-0")
    async with world.scheduling():
        await world.pod("a")
        pod = await world.wait_for_condition("a", "1 cannot allocate all claims")
        assert (find_scheduled_condition(pod)["status"], find_scheduled_condition(pod)["reason"]) == (
            "False",
            "Unschedulable",
        )
        await world.slice("worker-0", WITHOUT)
        assert find_scheduled_condition(await world.wait_until_bound("a"))["status"] == "True"


async def test_a_rules_taint_keeps_pods_away_until_the_rule_goes(tmp_path):
    async with clusters.serving(tmp_path, SchedulingCluster, profile="1.37") as world:
        await world.nodes("worker-0")
        await world.slice("worker-0", WITHOUT)
        rule = kinds.Kind(
            group="resource.k8s.io",
            version="v1",
            kind="DeviceTaintRule",
            plural="devicetaintrules",
            namespaced=False,
        )
        taint = {"key": "example.com/maintenance", "effect": "NoSchedule"}
        await world.create(rule, "all", spec={"deviceSelector": {"driver": DRIVER}, "taint": taint})
        async with world.scheduling():
            await world.pod("a")
            await world.wait_for_condition("a", "1 cannot allocate all claims")
            await world.api.delete(rule, "all")
            await world.wait_until_bound("a")


async def test_pods_share_a_device_until_its_capacity_is_used_up(world):
    memory = {"value": "16Gi", "requestPolicy": {"default": "8Gi"}}
    shared = {"name": "mem", "allowMultipleAllocations": True, "capacity": {"memory": memory}}
    await world.nodes("worker-0")
    await world.slice("worker-0", shared)
    async with world.scheduling():
        for name in ("a", "b"):
            await world.pod(name)
            await world.wait_until_bound(name)
        await world.pod("c")
        await world.wait_for_condition("c", "1 cannot allocate all claims")
        allocations = [await world.wait_for_allocation(name, "mem") for name in ("a", "b")]
        assert all(allocation["allocationTimestamp"] for allocation in allocations)
        shares = [allocation["devices"]["results"][0] for allocation in allocations]
        assert [share["consumedCapacity"] for share in shares] == [{"memory": "8Gi"}] * 2
        assert len({share["shareID"] for share in shares}) == 2
        await world.finish("a")
        await world.wait_until_bound("c")


async def test_a_share_counts_once_while_its_pod_waits(world):
    memory = {"value": "16Gi", "requestPolicy": {"default": "8Gi"}}
    await world.nodes("worker-0")
    await world.slice("worker-0", {**WITH, "allowMultipleAllocations": True, "capacity": {"memory": memory}})
    async with world.scheduling():
        for name in ("a", "b"):
            await world.pod(name)
            await world.wait_for(kinds.POD, name, lambda pod: pod["status"].get("nominatedNodeName"))
            await world.wait_for_allocation(name, "with-binding")
        for name in ("a", "b"):
            await world.set_condition(name, ATTACHED)
            await world.wait_until_bound(name)


async def test_a_pod_whose_claim_is_not_there_or_going_waits_and_says_so(world):
    await world.nodes("worker-0")
    await world.slice("worker-0", WITHOUT)
    async with world.scheduling():
        spec = {"containers": [{"name": "main", "image": "none"}]}
        uses = [{"name": "gpu", "resourceClaimName": "a"}]
        await world.create(kinds.POD, "early", spec={**spec, "resourceClaims": uses})
        await world.wait_for_condition("early", '0/1 nodes are available: resourceclaim "a" not found. ')
        templated = [{"name": "gpu", "resourceClaimTemplateName": "absent"}]
        await world.create(kinds.POD, "lone", spec={**spec, "resourceClaims": templated})
        await world.wait_for_condition("lone", 'pod "default/lone": ResourceClaim not created yet')
        await world.pod("a")
        await world.wait_until_bound("a")
        await world.wait_until_bound("early")
        await world.api.delete(kinds.CLAIM, "a", namespace="default")
        await world.create(kinds.POD, "late", spec={**spec, "resourceClaims": uses})
        await world.wait_for_condition("late", 'resourceclaim "a" is being deleted')


SLOT = {**WITH, "name": "slot-1", "bindsToNode": True}


async def test_several_pods_wait_at_the_same_time_on_different_nodes(world):
    await world.nodes("node-a", "node-b")
    await world.slice("chassis", SLOT, {**SLOT, "name": "slot-2"}, allNodes=True)
    await world.pod("p1")
    await world.pod("p2")
    async with world.scheduling():
        claims = [await world.wait_for(kinds.CLAIM, name, device_of) for name in ("p1", "p2")]
        assert {device_of(claim) for claim in claims} == {"slot-1", "slot-2"}
        for claim in reversed(claims):
            await world.set_condition(claim["metadata"]["name"], ATTACHED)
        pods = [await world.wait_until_bound(name) for name in ("p1", "p2")]
    assert {pod["spec"]["nodeName"] for pod in pods} == {"node-a", "node-b"}


async def test_a_pod_whose_class_does_not_exist_is_scheduled_when_it_and_a_device_come(world):
    await world.node("node-a")
    await world.pod("p1")
    async with world.scheduling():
        await world.event("FailedScheduling", "device class class does not exist")
        await world.slice("chassis", WITHOUT, allNodes=True)
        await world.nodes()
        await world.wait_until_bound("p1")


async def test_a_shared_claim_brings_the_second_pod_to_the_first_ones_node(world):
    await world.nodes("node-a", "node-b")
    await world.slice("chassis", SLOT, allNodes=True)
    await world.pod("p1")
    await clusters.Cluster.pod(world, "p2", "p1")
    async with world.scheduling():
        await world.wait_for(
            kinds.CLAIM, "p1", lambda claim: len(claim.get("status", {}).get("reservedFor", ())) == 2
        )
        await world.set_condition("p1", ATTACHED)
        pods = [await world.wait_until_bound(name) for name in ("p1", "p2")]
    assert pods[0]["spec"]["nodeName"] == pods[1]["spec"]["nodeName"]


async def test_a_pod_deleted_while_it_waits_leaves_the_claim_allocated_but_not_reserved(world):
    await world.nodes("node-a")
    await world.slice("chassis", SLOT, allNodes=True)
    await world.pod("p1")
    async with world.scheduler_alone():
        await world.wait_for_allocation("p1", "slot-1")
        await world.wait_for(kinds.POD, "p1", lambda pod: pod["status"].get("nominatedNodeName"))
        await world.api.delete(kinds.POD, "p1", namespace="default")
        left = await world.wait_for(kinds.CLAIM, "p1", lambda claim: not claim["status"].get("reservedFor"))
    assert device_of(left)


async def test_a_restarted_scheduler_goes_on_waiting_for_an_allocation_that_it_finds(world):
    await world.nodes("node-a")
    await world.slice("chassis", SLOT, allNodes=True)
    await world.pod("p1")
    async with world.scheduling():
        allocation = await world.wait_for_allocation("p1", "slot-1")
    async with world.scheduling():
        await world.set_condition("p1", ATTACHED)
        await world.wait_until_bound("p1")
    assert await world.wait_for_allocation("p1", "slot-1") == allocation
