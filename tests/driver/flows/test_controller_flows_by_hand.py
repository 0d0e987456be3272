"""A device that an operator attaches with `drawbar fabric`: held by a DeviceAttachment, kept by both daemons, and given back."""

import asyncio

from tests.driver.flows.lab import drawbar_fabric

from drawbar.driver.kube import kinds
from drawbar.driver.node.local import selections

FPGA = {
    "id": "fpga-0",
    "class": "fpga",
    "serial": "00-0a-35-00-00-00-00-01",
    "pciVendor": 0x8086,
    "pciDevice": 0x0B2B,
}
FUNCTIONS = [f"fpga-{FPGA['serial']}-vf{number}" for number in range(2)]
WITH_FUNCTIONS = {"local_pool": selections.Selection(classes=("gpu", "fpga"), virtual_functions=True)}


async def test_a_device_attached_by_hand_is_kept_until_it_is_detached(flow_lab, capsys):
    async with flow_lab("1.36", devices=2) as cluster:
        await cluster.until(cluster.slices, bool)
        (device, *_) = (await cluster.fabric.devices()).devices
        assert await drawbar_fabric(cluster, "attach", device.id, "node-1") == 0
        assert "Attached True" in capsys.readouterr().err
        connected = await cluster.list_connections()
        assert list(connected) == [device.id]
        (attachment,) = (await cluster.attachments()).values()
        assert attachment["spec"]["nodeName"] == "node-1"
        assert "claim" not in attachment["spec"]
        assert "ownerReferences" not in attachment["metadata"]
        # The node has recorded it, so that the controller has had every occasion to remove it.
        await cluster.until(
            cluster.attachments, lambda value: value[device.id]["status"].get("phase") == "Ready"
        )
        assert await drawbar_fabric(cluster, "attach", device.id, "node-2") == 1
        assert "for no claim on node node-1" in capsys.readouterr().err
        assert await drawbar_fabric(cluster, "detach", device.id) == 0
        assert await cluster.list_connections() == {}
        assert await cluster.attachments() == {}


async def test_a_device_of_a_claim_is_not_detached_by_hand(flow_lab, capsys):
    async with flow_lab("1.36", devices=1) as cluster:
        await cluster.until(cluster.slices, bool)
        await cluster.pod("user")
        await cluster.wait_until_running("user")
        (device,) = await cluster.list_connections()
        assert await drawbar_fabric(cluster, "detach", device) == 1
        assert "delete the pod or claim" in capsys.readouterr().err
        assert list(await cluster.list_connections()) == [device]
        assert len((await cluster.api.list_all(kinds.ATTACHMENT, into=dict)).items) == 1


async def test_a_detach_by_force_does_not_wait_for_a_node_that_does_not_answer(flow_lab, capsys):
    async with flow_lab("1.36", devices=1) as cluster:
        await cluster.until(cluster.slices, bool)
        (device,) = (await cluster.fabric.devices()).devices
        assert await drawbar_fabric(cluster, "attach", device.id, "node-1") == 0
        await cluster.until(
            cluster.attachments, lambda value: value[device.id]["status"].get("phase") == "Ready"
        )
        await cluster.stop("node-1")
        assert await drawbar_fabric(cluster, "detach", device.id, "--timeout", "3") == 1
        assert list(await cluster.list_connections()) == [device.id]
        assert await drawbar_fabric(cluster, "detach", device.id, "--force") == 0
        assert await cluster.list_connections() == {}
        assert await cluster.attachments() == {}
        capsys.readouterr()


async def test_force_takes_no_device_from_a_claim_that_keeps_it(flow_lab, capsys):
    async with flow_lab("1.36", devices=1) as cluster:
        await cluster.until(cluster.slices, bool)
        await cluster.pod("user")
        await cluster.wait_until_running("user")
        (device,) = await cluster.list_connections()
        assert await drawbar_fabric(cluster, "detach", device, "--force") == 1
        assert "delete the pod or claim" in capsys.readouterr().err
        assert list(await cluster.list_connections()) == [device]


async def make_pod(cluster, name):
    request = {"name": "card", "exactly": {"deviceClassName": "fpga.drawbar.dev"}}
    await cluster.pod_from_template(name, {"requests": [request]}, ["card"])


async def test_pods_share_the_virtual_functions_of_a_card_attached_by_hand_and_it_leaves_after_them(
    flow_lab, capsys
):
    enclosures = [{"id": "enc", "devices": [FPGA]}]
    async with flow_lab("1.36", node=WITH_FUNCTIONS, enclosures=enclosures) as cluster:
        await cluster.until(cluster.slices, bool)
        assert await drawbar_fabric(cluster, "attach", "fpga-0", "node-2") == 0
        tree = cluster.trees["node-2"]
        (slot,) = tree.list_attached_cards()
        await asyncio.to_thread(tree.set_vfs, slot, 2)
        for name in ("a", "b"):
            await make_pod(cluster, name)
        placed = [await cluster.wait_until_running(name) for name in ("a", "b")]
        assert sorted(placed) == [("node-2", [name]) for name in FUNCTIONS]
        assert len(cluster.cdi_files) == 2

        assert await drawbar_fabric(cluster, "detach", "fpga-0", "--timeout", "3") == 1
        assert "InUse" in capsys.readouterr().err
        released = (await cluster.attachments())["fpga-0"]["status"]["conditions"]
        (message,) = [entry["message"] for entry in released if entry["type"] == "Released"]
        assert all(f"has {name}" in message for name in FUNCTIONS)
        # A function that becomes free goes to no other pod, which waits for the card itself.
        await cluster.api.delete(kinds.POD, "a", namespace="default")
        await cluster.wait_until_gone("a")
        await make_pod(cluster, "late")
        await cluster.api.delete(kinds.POD, "b", namespace="default")
        assert (await cluster.wait_until_running("late"))[1] == ["fpga-0"]
