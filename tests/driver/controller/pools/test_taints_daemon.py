"""The controller against the API server double and the simulated fabric: what keeps devices and nodes from use."""

import pytest
from tests.scenes import attachments as scenes

from drawbar.driver.api import attachments
from drawbar.driver.kube import client, kinds

DRIVER = "drawbar.dev"
LABEL = "fabric.drawbar.dev/fab"


def marks(specs, device):
    """The device's taints in whichever form they stand; None while it is not published."""
    if not any(one["name"] == device for spec in specs for one in spec.get("devices", ())):
        return None
    found = [
        taint
        for spec in specs
        for one in spec.get("devices", ())
        if one["name"] == device
        for taint in one.get("taints", ())
    ]
    found += [one["taint"] for spec in specs for one in spec.get("taints", ()) if one["device"] == device]
    return {(taint["key"].removeprefix(f"{DRIVER}/"), taint["effect"]) for taint in found}


async def patch_fabric(cluster, **spec):
    body = {"spec": spec}
    await cluster.api.patch(kinds.FABRIC, "fab", body, content=client.Patch.MERGE, into=dict, manager="admin")


async def labels(cluster, node):
    found = await cluster.api.read(kinds.NODE, node, into=dict)
    return found["metadata"].get("labels", {})


async def in_use(cluster, until, device, claim="c1", **where):
    """The device is attached for a claim, and the node has said that it sees it."""
    await cluster.allocate(device, name=claim, pod=claim, **where)
    await until(lambda: cluster.said(claim), lambda value: "attached" in value.get(device, {}))
    await cluster.node_says(f"fab.{device}", attachments.VISIBLE)


async def test_maintenance_marks_the_device_and_ends_with_its_entry(controller_world, until):
    async with controller_world() as cluster:
        cluster.start()
        await cluster.make_fabric()
        await cluster.published()
        await patch_fabric(cluster, maintenance=["gpu-0"])
        await until(cluster.slices, lambda value: marks(value, "gpu-0") == {("maintenance", "NoSchedule")})
        assert marks(await cluster.slices(), "disk-0") == set()
        await patch_fabric(cluster, maintenance=None)
        await until(cluster.slices, lambda value: marks(value, "gpu-0") == set())


async def test_free_devices_of_a_silent_fabric_are_marked_and_attached_ones_are_not(
    controller_world, until, tmp_path
):
    async with controller_world() as cluster:
        cluster.start()
        await cluster.make_fabric(policy={"unreachableGraceSeconds": 1})
        await cluster.published()
        await in_use(cluster, until, "disk-0")
        await patch_fabric(cluster, endpoint=f"unix:{tmp_path / 'nobody.sock'}")
        expected = {("fabric-unreachable", "NoSchedule")}
        await until(cluster.slices, lambda value: marks(value, "gpu-0") == expected)
        assert marks(await cluster.slices(), "disk-0") == set()
        await patch_fabric(cluster, endpoint=f"unix:{tmp_path / 'f.sock'}")
        await until(cluster.slices, lambda value: marks(value, "gpu-0") == set())


async def test_a_device_that_an_operator_attaches_by_hand_is_marked_before_the_fabric_moves_it(
    controller_world, until
):
    async with controller_world(attachSeconds=60.0) as cluster:
        cluster.start()
        await cluster.make_fabric()
        await cluster.published()
        body = scenes.document("fab.gpu-0", "node-1", pool="fab/enc-1", hostID="host-node-1")
        await cluster.api.create(kinds.ATTACHMENT, body, into=dict)
        await until(cluster.slices, lambda value: marks(value, "gpu-0") == {("in-use", "NoSchedule")})
        assert (await cluster.attachments())["fab.gpu-0"].get("status", {}).get("phase") != "Attached"


async def test_a_device_that_its_node_lost_is_marked_no_execute_until_its_claim_lets_go(
    controller_world, until
):
    async with controller_world() as cluster:
        cluster.start()
        await cluster.make_fabric(policy={"probationSeconds": 0})
        await cluster.published()
        await in_use(cluster, until, "gpu-0")
        await cluster.node_says("fab.gpu-0", attachments.VISIBLE, status="False", reason="DeviceLost")
        found = await until(cluster.slices, lambda value: marks(value, "gpu-0"))
        assert ("device-lost", "NoExecute") in marks(found, "gpu-0")
        await cluster.deallocate()
        await cluster.node_says("fab.gpu-0", attachments.RELEASED)
        await until(cluster.attachments, lambda value: not value)
        await until(cluster.slices, lambda value: marks(value, "gpu-0") == set())


async def test_two_devices_that_fail_on_one_node_cost_the_node_its_label_and_not_the_devices(
    controller_world, until
):
    fails = [{"device": "gpu-0"}, {"device": "disk-0"}]
    async with controller_world(attachFails=fails) as cluster:
        cluster.start()
        await cluster.make_fabric()
        await cluster.published()
        await until(lambda: labels(cluster, "node-1"), lambda value: LABEL in value)
        for device in ("gpu-0", "disk-0"):
            await cluster.allocate(device, name=f"c-{device}", pod=device)
            await until(
                lambda name=f"c-{device}": cluster.said(name),
                lambda value, device=device: "attach-failed" in value.get(device, {}),
            )
        await until(lambda: labels(cluster, "node-1"), lambda value: LABEL not in value)
        assert LABEL in await labels(cluster, "node-2")
        told = await until(
            lambda: cluster.fabric_condition("Degraded"), lambda value: value.get("status") == "True"
        )
        assert "host-node-1" in told["message"]
        for device in ("gpu-0", "disk-0"):
            await cluster.deallocate(f"c-{device}")
            await cluster.node_says(f"fab.{device}", attachments.RELEASED)
        await until(cluster.attachments, lambda value: not value)
        await until(cluster.slices, lambda value: marks(value, "gpu-0") == marks(value, "disk-0") == set())


@pytest.mark.parametrize("profile", ["1.36", "1.37", "kep-5055"])
async def test_a_failed_attach_is_marked_in_the_form_that_the_api_server_takes(
    controller_world, until, profile
):
    async with controller_world(profile, attachFails=[{"device": "gpu-0"}]) as cluster:
        cluster.start()
        await cluster.make_fabric()
        before = await cluster.published()
        slices_of_pool = 2 if profile == "kep-5055" else 1
        await until(cluster.slices, lambda value: len(value) == slices_of_pool)
        await cluster.allocate("gpu-0")
        await until(cluster.said, lambda value: "attach-failed" in value.get("gpu-0", {}))
        found = await cluster.slices()
        assert marks(found, "gpu-0") == {("attach-failed", "NoSchedule")}
        assert {spec["pool"]["resourceSliceCount"] for spec in found} == {slices_of_pool}
        assert {spec["pool"]["generation"] for spec in found} == {before[0]["pool"]["generation"]}
        assert any(spec.get("taints") for spec in found) == (profile == "kep-5055")
