"""The device taint eviction double against the API server double, over HTTP."""

import datetime

import pytest
from tests.scenes import clusters, waiting

from drawbar.driver.kube import client, kinds
from drawbar.mocks import eviction

NOW = datetime.datetime(2026, 1, 1, 12, 0, tzinfo=datetime.UTC)
STAMP = "2026-01-01T12:00:00Z"
RULE = kinds.Kind(
    group="resource.k8s.io", version="v1", kind="DeviceTaintRule", plural="devicetaintrules", namespaced=False
)
BROKEN = {"key": "drawbar.dev/broken", "effect": "NoExecute", "timeAdded": STAMP}


class EvictionCluster(clusters.Cluster):
    def __init__(self, *served):
        super().__init__(*served)
        self.clock = waiting.Clock(NOW)

    async def pool(self, *taints):
        spec = {
            "driver": "drawbar.dev",
            "pool": {"name": "chassis-1", "generation": 1, "resourceSliceCount": 1},
            "allNodes": True,
            "devices": [{"name": "slot-1", "taints": list(taints)}],
        }
        await self.create(kinds.SLICE, "chassis-1", spec=spec)

    async def taint(self, *taints):
        patch = [{"op": "add", "path": "/spec/devices/0/taints", "value": list(taints)}]
        await self.api.patch(kinds.SLICE, "chassis-1", patch, content=client.Patch.JSON, into=dict)

    async def rule(self, name, effect="NoExecute", selector=None):
        spec = {"taint": {**BROKEN, "effect": effect}, "deviceSelector": selector or {}}
        return await self.create(RULE, name, spec=spec)

    async def create_running_pod(self, name, *tolerations):
        """Create a bound pod with an allocated claim that is reserved for it."""
        uses = [{"name": "gpu", "resourceClaimName": name}]
        spec = {
            "containers": [{"name": "main", "image": "none"}],
            "resourceClaims": uses,
            "nodeName": "node-a",
        }
        pod = await self.create(kinds.POD, name, spec=spec)
        request = {"name": "one", "exactly": {"deviceClassName": "any"}}
        await self.create(kinds.CLAIM, name, spec={"devices": {"requests": [request]}})
        result = {"request": "one", "driver": "drawbar.dev", "pool": "chassis-1", "device": "slot-1"}
        if tolerations:
            result["tolerations"] = list(tolerations)
        status = {
            "allocation": {"devices": {"results": [result]}},
            "reservedFor": [{"resource": "pods", "name": name, "uid": pod["metadata"]["uid"]}],
        }
        await self.set_status(kinds.CLAIM, name, status)
        return pod

    async def wait_until_terminating(self, name):
        return await self.until(
            kinds.POD,
            lambda pods: [
                pod
                for pod in pods
                if pod["metadata"]["name"] == name and pod["metadata"].get("deletionTimestamp")
            ],
        )

    async def condition(self, name, reason, words=""):
        """Wait until the rule's condition has this reason and its message begins so; return the condition."""

        def holds(rules):
            rule = next(stored for stored in rules if stored["metadata"]["name"] == name)
            conditions = (rule.get("status") or {}).get("conditions") or []
            return [
                condition
                for condition in conditions
                if condition["reason"] == reason and condition["message"].startswith(words)
            ]

        return (await self.until(RULE, holds))[0]

    async def event(self, note):
        return await self.until(
            kinds.EVENT, lambda events: [event for event in events if event["note"] == note]
        )

    def run_eviction(self, **times):
        return eviction.serving(self.connection, eviction.Settings(**times), clock=self.clock)


@pytest.fixture
async def world(tmp_path):
    async with clusters.serving(tmp_path, EvictionCluster, profile="1.37") as made:
        yield made


async def test_a_tolerating_pod_stays_until_its_patience_is_over(world):
    toleration = {"operator": "Exists", "effect": "NoExecute"}
    await world.pool(BROKEN)
    await world.rule("all")
    for name, seconds in (("patient", 3600), ("curt", 0)):
        await world.create_running_pod(name, {**toleration, "tolerationSeconds": seconds})
    await world.create_running_pod("stoic", toleration)
    async with world.run_eviction(status_seconds=0):
        await world.wait_until_terminating("curt")
        # Before the curt one went they were two, and that may still be what is written.
        await world.condition("all", "PodsPendingEviction", "1 pod needs to be evicted in 1 namespace.")
        world.clock.now += datetime.timedelta(hours=1)
        # The test's clock alone wakes no task.
        await world.api.patch(
            kinds.CLAIM,
            "patient",
            {"metadata": {"labels": {"touched": "yes"}}},
            content=client.Patch.MERGE,
            into=dict,
            namespace="default",
        )
        await world.wait_until_terminating("patient")
        await world.condition("all", "Completed")
    pods = await world.api.list_all(kinds.POD, into=dict, namespace="default")
    assert [
        pod["metadata"]["name"] for pod in pods.items if not pod["metadata"].get("deletionTimestamp")
    ] == ["stoic"]


async def test_a_taint_that_goes_in_time_cancels_the_eviction(world):
    await world.pool()
    patience = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3600}
    await world.create_running_pod("p1", patience)
    async with world.run_eviction():
        await world.taint(BROKEN)
        await world.taint()
        await world.event("Cancelling deletion")


async def test_an_unreserved_claim_evicts_nobody_and_a_later_reservation_does(world):
    await world.pool(BROKEN)
    pod = await world.create_running_pod("p1")
    await world.set_status(kinds.CLAIM, "p1", {"reservedFor": None})
    await world.rule("all")
    async with world.run_eviction():
        await world.condition("all", "NotStarted")
        reserved = {"resource": "pods", "name": "p1", "uid": pod["metadata"]["uid"]}
        assert not (await world.api.list_all(kinds.EVENT, into=dict)).items
        await world.set_status(kinds.CLAIM, "p1", {"reservedFor": [reserved]})
        await world.wait_until_terminating("p1")


async def test_a_rule_previews_with_none_and_then_evicts(world):
    # The API server's own clock says since when a changed taint counts.
    world.clock.now = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)
    await world.pool()
    await world.create_running_pod("p1")
    async with world.run_eviction(status_seconds=0):
        await world.rule("chassis", effect="None", selector={"pool": "chassis-1"})
        preview = await world.condition("chassis", "NoEffect")
        assert preview["status"] == "False"
        assert preview["message"].startswith(
            "1 published device selected. 1 allocated device selected. 1 pod would be evicted in 1 namespace "
        )
        change = {"spec": {"taint": {"effect": "NoExecute"}}}
        await world.api.patch(RULE, "chassis", change, content=client.Patch.MERGE, into=dict)
        await world.wait_until_terminating("p1")
        done = await world.condition("chassis", "Completed")
        assert done["message"] == "1 pod evicted since starting the controller."
        assert done["observedGeneration"] == 2


async def test_a_rule_that_does_not_evict_says_so(world):
    async with world.run_eviction():
        await world.rule("gentle", effect="NoSchedule")
        assert (await world.condition("gentle", "OtherEffect"))["status"] == "False"


async def test_a_status_is_written_under_one_manager_and_not_again_for_the_same_words(world):
    async with world.run_eviction(status_seconds=0):
        await world.rule("all")
        await world.condition("all", "NotStarted")
        rule = await world.api.read(RULE, "all", into=dict)
    async with world.run_eviction(status_seconds=0):
        await world.rule("other")
        await world.condition("other", "NotStarted")
    again = await world.api.read(RULE, "all", into=dict)
    assert again["metadata"]["resourceVersion"] == rule["metadata"]["resourceVersion"]
    managers = [
        manager for manager in again["metadata"]["managedFields"] if manager.get("subresource") == "status"
    ]
    assert [(manager["manager"], manager["operation"]) for manager in managers] == [
        ("device-taint-eviction-controller", "Apply")
    ]
