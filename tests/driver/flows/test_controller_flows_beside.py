"""A node with the ResourceSlice of another driver, and one with a device plugin: whose the devices are."""

import asyncio

from drawbar.driver.api import leftout
from drawbar.driver.kube import client, kinds
from drawbar.driver.node.local import selections
from drawbar.fabric import contract
from drawbar.mocks import sysfs

GPU = sysfs.MockDevice(
    device_class=contract.DeviceClass.GPU, vendor=0x10DE, device=0x2330, serial="48-b0-2d-00-00-00-00-01"
)
NAME = "gpu-48-b0-2d-00-00-00-00-01"
OWN_GPUS = {"local_pool": selections.Selection(classes=("gpu",), slots=("1",), quiet_seconds=1.0)}
SLICE = "another-driver"


async def publish(cluster, address, node="node-1"):
    """Let a vendor's driver publish the device at this address of a node."""
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": "gpu-0", "attributes": {"resource.kubernetes.io/pciBusID": {"string": address}}}]
    content = {"driver": "gpu.example.com", "nodeName": node, "pool": pool, "devices": devices}
    await cluster.create(kinds.SLICE, SLICE, spec=content)


async def register(cluster, quantity):
    """Let a device plugin on node-2 have so many GPUs; None takes the resource away."""
    await cluster.api.patch(
        kinds.NODE,
        "node-2",
        {"status": {name: {"nvidia.com/gpu": quantity} for name in ("capacity", "allocatable")}},
        content=client.Patch.MERGE,
        into=dict,
        subresource="status",
    )


async def own(cluster):
    """Return the nodes' own devices by node, and the reasons for the devices left out."""
    listed = (await cluster.api.list_all(kinds.SLICE, into=dict)).items
    ours = [
        (entry, entry["spec"]["nodeName"])
        for entry in listed
        if entry["spec"].get("nodeName") and entry["spec"]["driver"] == "drawbar.dev"
    ]
    offered = {node: [device["name"] for device in entry["spec"].get("devices", ())] for entry, node in ours}
    notes = {
        node: entry["metadata"].get("annotations", {}).get(leftout.ANNOTATION, "") for entry, node in ours
    }
    left = {node: [(each.device, each.why) for each in leftout.decode(text)] for node, text in notes.items()}
    return offered, {node: devices for node, devices in left.items() if devices}


async def test_a_device_has_one_owner_and_the_pod_waits_until_that_is_us(flow_lab):
    async with flow_lab("1.36", devices=0, node=OWN_GPUS) as cluster:
        # A device plugin has registered on the second node before its card is seen.
        await register(cluster, "1")
        await publish(cluster, cluster.trees["node-1"].address(1))
        for tree in cluster.trees.values():
            await asyncio.to_thread(tree.attach, 1, GPU)
        left = {"node-1": [(NAME, "driver")], "node-2": [(NAME, "plugin")]}
        await cluster.until(lambda: own(cluster), lambda value: value[1] == left)
        await cluster.wait_for_event("DevicesLeftToOthers", "driver gpu.example.com offers it")
        request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.drawbar.dev"}}
        await cluster.pod_from_template("user", {"requests": [request]}, ["gpu"])
        await cluster.wait_for_event_about("user", "FailedScheduling")
        assert (await own(cluster))[0] == {"node-1": [], "node-2": []}

        await cluster.api.delete(kinds.SLICE, SLICE)
        assert await cluster.wait_until_running("user") == ("node-1", [NAME])
        # It comes back while the claim has the device: that is reported, and nothing is taken from the pod.
        await publish(cluster, cluster.trees["node-1"].address(1))
        await cluster.wait_for_event("DeviceOfferedTwice", f"has given {NAME} to a claim")
        assert (await own(cluster))[0]["node-1"] == [NAME]
        await cluster.api.delete(kinds.POD, "user", namespace="default")
        await cluster.until(lambda: own(cluster), lambda value: value[1] == left)
        assert (await own(cluster))[0] == {"node-1": [], "node-2": []}
        # Real components stay for the next test.
        await cluster.api.delete(kinds.SLICE, SLICE)
        await register(cluster, None)


async def test_a_fabric_device_that_another_driver_offers_is_reported_until_that_is_over(flow_lab):
    async with flow_lab("1.36", devices=1, node=OWN_GPUS) as cluster:
        await cluster.until(cluster.slices, bool)
        await cluster.pod("user")
        node, (device,) = await cluster.wait_until_running("user")
        attachment = (await cluster.attachments())[device]
        assert attachment["spec"]["nodeName"] == node
        await publish(cluster, attachment["status"]["node"]["pciAddress"], node)

        def exclusive(attached):
            conditions = attached.get(device, {}).get("status", {}).get("conditions", ())
            return {each["type"]: each["status"] for each in conditions}.get("Exclusive")

        await cluster.until(cluster.attachments, lambda value: exclusive(value) == "False")
        await cluster.wait_for_event("OfferedByAnotherDriver", "driver gpu.example.com offers this device")
        await cluster.api.delete(kinds.SLICE, SLICE)
        await cluster.until(cluster.attachments, lambda value: exclusive(value) == "True")
        assert await cluster.wait_until_running("user") == (node, [device])
        await cluster.api.delete(kinds.POD, "user", namespace="default")
        await cluster.is_free(device)
