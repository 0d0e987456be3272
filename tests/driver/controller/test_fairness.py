"""One tenant neither keeps a slow fabric from the others, nor wears its devices out."""

import dataclasses
import math

from tests.scenes import waiting

from drawbar.driver import clocks
from drawbar.driver.controller import names
from drawbar.driver.kube import kinds
from drawbar.fabric import contract
from drawbar.mocks.testing import worlds

NODE = "node-1"
DISKS = [f"d{number}" for number in range(6)]
CHASSIS = [
    {
        "id": "enc",
        "devices": [{"id": name, "class": "nvme", "model": "M", "serial": f"SN-{name}"} for name in DISKS],
    }
]


SHAPE = {"enclosures": CHASSIS, "hosts": [{"id": "host-node-1", "name": NODE, "ports": len(DISKS)}]}


async def allocate(cluster, namespace, device):
    """Do what a scheduler does for a claim of this namespace."""
    metadata = {"name": device, "namespace": namespace}
    requests = [{"name": "r0", "exactly": {"deviceClassName": "any"}}]
    body = {
        "apiVersion": kinds.CLAIM.api_version,
        "kind": "ResourceClaim",
        "metadata": metadata,
        "spec": {"devices": {"requests": requests}},
    }
    claim = await cluster.api.create(kinds.CLAIM, body, into=dict, namespace=namespace)
    now = clocks.time_of_day().strftime("%Y-%m-%dT%H:%M:%SZ")
    result = worlds.result("fab/enc", device, request="r0")
    claim["status"] = {"allocation": worlds.allocation(NODE, result, at=now)}
    await cluster.api.replace(
        kinds.CLAIM, device, claim, namespace=namespace, subresource="status", into=dict
    )


async def make_namespaces(cluster):
    for name in ("noisy", "quiet"):
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        await cluster.api.create(kinds.NAMESPACE, body, into=dict)


async def wait_until_connected(cluster, *devices):
    async def list_connected():
        return {device.id for device in (await cluster.fabric.devices()).devices if device.connection}

    await waiting.until(list_connected, set(devices).issubset)


async def serve_one_at_a_time(cluster):
    can = await cluster.fabric.capabilities()

    async def capabilities():
        return dataclasses.replace(can, serialization_scope=contract.SerializationScope.FABRIC)

    cluster.fabric.capabilities = capabilities


async def test_a_namespace_waits_for_one_operation_of_another_and_not_for_all(controller_world):
    async with controller_world(**SHAPE, attachSeconds=0.3) as cluster:
        await serve_one_at_a_time(cluster)
        cluster.start()
        await cluster.make_fabric()
        await cluster.wait_for_slices()
        await make_namespaces(cluster)
        for device in DISKS[:5]:
            await allocate(cluster, "noisy", device)
        await waiting.eventually(lambda: cluster.calls("attach"))
        begun = len(cluster.calls("attach"))
        await allocate(cluster, "quiet", DISKS[5])
        await wait_until_connected(cluster, *DISKS)
        # The one that ran, and one that was next in turn when it ended.
        assert cluster.calls("attach").index(DISKS[5]) <= begun + 1


async def test_attaches_beyond_a_namespaces_rate_wait_and_those_of_others_do_not(served_world):
    policy = {"attachesPerNamespacePerMinute": 2}
    async with served_world(spec={"policy": policy}, **SHAPE) as cluster:
        await make_namespaces(cluster)
        for device in DISKS[:4]:
            await allocate(cluster, "noisy", device)
        await waiting.until(cluster.attachments, lambda made: len(made) == 4)
        await waiting.eventually(lambda: len(cluster.calls("attach")) == 2)
        await allocate(cluster, "quiet", DISKS[5])
        await wait_until_connected(cluster, DISKS[5])
        assert len(cluster.calls("attach")) == 3


async def test_a_busy_manager_serves_others_while_a_namespace_waits_for_its_rate(controller_world):
    async with controller_world(**SHAPE, attachSeconds=0.3) as cluster:
        await serve_one_at_a_time(cluster)
        cluster.start()
        await cluster.make_fabric(policy={"attachesPerNamespacePerMinute": 2})
        await cluster.wait_for_slices()
        await make_namespaces(cluster)
        for device in DISKS[:4]:
            await allocate(cluster, "noisy", device)
        await waiting.eventually(lambda: len(cluster.calls("attach")) == 2)
        await allocate(cluster, "quiet", DISKS[5])
        await wait_until_connected(cluster, DISKS[5])
        assert len(cluster.calls("attach")) == 3


async def test_a_claim_that_goes_gives_its_place_in_the_line_up(controller_world):
    async with controller_world(**SHAPE) as cluster:
        controller = await cluster.controller(fabric_networks=("127.0.0.0/8",))
        await cluster.make_fabric(policy={"attachesPerNamespacePerMinute": 1})
        await cluster.wait_for_slices()
        await make_namespaces(cluster)
        await allocate(cluster, "noisy", DISKS[0])
        await waiting.eventually(lambda: cluster.calls("attach"))
        opened = controller._cluster.sessions.get("fab")

        def count_minutes(device):
            turn = opened.find_turn("noisy", names.DeviceKey(fabric="fab", device=device), clocks.steady())
            return math.ceil((turn - clocks.steady()).total_seconds() / 60)

        assert [count_minutes(device) for device in DISKS[1:3]] == [1, 2]
        await allocate(cluster, "noisy", DISKS[1])
        await waiting.until(cluster.attachments, lambda made: f"fab.{DISKS[1]}" in made)
        await cluster.api.delete(kinds.CLAIM, DISKS[1], namespace="noisy")
        await cluster.wait_until_deleting(f"fab.{DISKS[1]}")
        await cluster.node_says(f"fab.{DISKS[1]}", "Released")
        await waiting.eventually(lambda: count_minutes(DISKS[2]) == 1)


async def test_a_disk_that_was_erased_as_often_as_a_day_allows_rests_and_its_fabric_says_so(served_world):
    policy = {"erasesPerDevicePerDay": 2}
    async with served_world(spec={"policy": policy}, **SHAPE) as cluster:
        for number in range(2):
            assert await cluster.marks("d0") == []
            name = f"c{number}"
            claim = await cluster.allocate("d0", name=name, pool="fab/enc")
            await cluster.wait_until_attached("d0", name)
            used = {"pciAddress": "0000:01:00.0", "claimUID": claim["metadata"]["uid"]}
            await worlds.apply_status(cluster.api, "fab.d0", "drawbar-node", node=used)
            await cluster.deallocate(name)
            await cluster.wait_until_deleting("fab.d0")
            await cluster.release_attachments("fab.d0")
        await waiting.until(
            lambda: cluster.marks("d0"), lambda marks: marks == [("wear-limited", "", "NoSchedule")]
        )
        degraded = await cluster.condition("Degraded", status="True")
        assert "erased 2 times within a day and resting: d0;" in degraded["message"]
        assert await cluster.marks("d1") == []
