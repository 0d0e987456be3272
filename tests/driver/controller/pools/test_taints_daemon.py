"""The controller against the API server double and the simulated fabric: what keeps devices and nodes from use."""

import pytest
from tests.scenes import attachments as scenes
from tests.scenes import maintenances

from drawbar.driver.api import attachments
from drawbar.driver.kube import kinds

DRIVER = "drawbar.dev"
LABEL = "fabric.drawbar.dev/fab"


async def in_use(cluster, until, device, claim="c1", **where):
    """Have the device attached for a claim, and reported visible by the node."""
    await cluster.allocate(device, name=claim, pod=claim, **where)
    await cluster.wait_until_attached(device, claim)
    await cluster.node_says(f"fab.{device}", attachments.VISIBLE)


async def test_maintenance_marks_the_device_and_ends_with_its_entry(served_world, until):
    async with served_world() as cluster:
        await maintenances.begin(cluster.api, devices=["gpu-0"])
        await until(
            lambda: cluster.marks("gpu-0"), lambda taints: taints == [("maintenance", "", "NoSchedule")]
        )
        assert await cluster.marks("disk-0") == []
        await maintenances.end(cluster.api)
        await until(lambda: cluster.marks("gpu-0"), lambda taints: taints == [])


async def test_free_devices_of_a_silent_fabric_are_marked_and_attached_ones_are_not(
    served_world, until, tmp_path
):
    async with served_world(spec={"policy": {"unreachableGraceSeconds": 1}}) as cluster:
        await in_use(cluster, until, "disk-0")
        await cluster.patch(kinds.FABRIC, "fab", {"spec": {"endpoint": f"unix:{tmp_path / 'absent.sock'}"}})
        expected = [("fabric-unreachable", "", "NoSchedule")]
        await until(lambda: cluster.marks("gpu-0"), lambda taints: taints == expected)
        assert await cluster.marks("disk-0") == []
        await cluster.patch(kinds.FABRIC, "fab", {"spec": {"endpoint": f"unix:{tmp_path / 'f.sock'}"}})
        await until(lambda: cluster.marks("gpu-0"), lambda taints: taints == [])


async def test_a_device_that_an_operator_attaches_by_hand_is_marked_before_the_fabric_moves_it(
    served_world, until
):
    async with served_world(attachSeconds=60.0) as cluster:
        body = scenes.document("fab.gpu-0", "node-1", pool="fab/enc-1", hostID="host-node-1")
        await cluster.api.create(kinds.ATTACHMENT, body, into=dict)
        await until(
            lambda: cluster.marks("gpu-0"), lambda taints: taints == [("in-use", "manual", "NoSchedule")]
        )
        assert (await cluster.attachments())["fab.gpu-0"].get("status", {}).get("phase") != "Attached"


async def test_a_device_that_its_node_lost_is_marked_no_execute_until_its_claim_lets_go(served_world, until):
    async with served_world(spec={"policy": {"probationSeconds": 0}}) as cluster:
        await in_use(cluster, until, "gpu-0")
        await cluster.node_says("fab.gpu-0", attachments.VISIBLE, status="False", reason="DeviceLost")
        assert ("device-lost", "", "NoExecute") in await until(lambda: cluster.marks("gpu-0"), bool)
        await cluster.deallocate()
        await cluster.release_attachments("fab.gpu-0")
        await until(lambda: cluster.marks("gpu-0"), lambda taints: taints == [])


async def test_two_devices_that_fail_on_one_node_for_one_namespace_are_free_and_the_node_keeps_its_label(
    served_world, until
):
    fails = [{"device": "gpu-0"}, {"device": "disk-0"}]
    async with served_world(attachFails=fails) as cluster:
        await until(lambda: cluster.labels("node-1"), lambda value: LABEL in value)
        for device in ("gpu-0", "disk-0"):
            await cluster.allocate(device, name=f"c-{device}", pod=device)
            await cluster.wait_until_failed(device, f"c-{device}")
        condition = await cluster.condition("Degraded", status="True")
        assert "host-node-1 may be at fault" in condition["message"]
        for device in ("gpu-0", "disk-0"):
            await cluster.deallocate(f"c-{device}")
        await cluster.release_attachments("fab.gpu-0", "fab.disk-0")
        for device in ("gpu-0", "disk-0"):
            await until(lambda name=device: cluster.marks(name), lambda taints: taints == [])
        assert LABEL in await cluster.labels("node-1")


async def test_two_devices_that_fail_on_one_node_for_two_namespaces_cost_the_node_its_label_and_not_the_devices(
    served_world, until
):
    fails = [{"device": "gpu-0"}, {"device": "disk-0"}]
    async with served_world(attachFails=fails) as cluster:
        await until(lambda: cluster.labels("node-1"), lambda value: LABEL in value)
        for device in ("gpu-0", "disk-0"):
            await cluster.create(kinds.NAMESPACE, f"ns-{device}")
            await cluster.allocate(device, name=f"c-{device}", pod=device, namespace=f"ns-{device}")
            await cluster.wait_until_failed(device, f"c-{device}")
        await until(lambda: cluster.labels("node-1"), lambda value: LABEL not in value)
        assert LABEL in await cluster.labels("node-2")
        condition = await cluster.condition("Degraded", status="True")
        assert "host-node-1 is avoided" in condition["message"]
        for device in ("gpu-0", "disk-0"):
            await cluster.deallocate(f"c-{device}")
        await cluster.release_attachments("fab.gpu-0", "fab.disk-0")
        for device in ("gpu-0", "disk-0"):
            await until(lambda name=device: cluster.marks(name), lambda taints: taints == [])


@pytest.mark.parametrize("profile", ["1.36", "1.37", "kep-5055"])
async def test_a_failed_attach_is_marked_in_the_form_that_the_api_server_takes(
    controller_world, until, profile
):
    async with controller_world(profile, attachFails=[{"device": "gpu-0"}]) as cluster:
        cluster.start()
        await cluster.make_fabric()
        before = await cluster.wait_for_slices()
        slices_of_pool = 2 if profile == "kep-5055" else 1
        await until(cluster.slices, lambda value: len(value) == slices_of_pool)
        await cluster.allocate("gpu-0")
        await cluster.wait_until_failed("gpu-0")
        specs = await cluster.slices()
        assert await cluster.marks("gpu-0") == [("attach-failed", "FabricError", "NoSchedule")]
        assert {spec["pool"]["resourceSliceCount"] for spec in specs} == {slices_of_pool}
        assert {spec["pool"]["generation"] for spec in specs} == {before[0]["pool"]["generation"]}
        assert any(spec.get("taints") for spec in specs) == (profile == "kep-5055")
