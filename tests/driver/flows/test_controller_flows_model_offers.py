"""A fabric that chooses the device itself: from a claim for an offer to the device that came, and back to a free offer."""

import json

import pytest
from tests.driver.flows.lab import drawbar_fabric

from drawbar.driver.kube import kinds
from drawbar.fabric import contract
from drawbar.mocks.fabric import faults
from drawbar.mocks.testing import worlds

ATTACH = contract.OperationKind.ATTACH
CHOOSING = {"chooses": "last", "devices": 3}
READY = {"attached": "Attached", "visible": "DeviceReady"}
WITH_GATES = {"profile": "1.34", "gates": {"DRADeviceBindingConditions": True, "DRADeviceTaints": True}}
PROFILES = pytest.mark.parametrize(
    "server", [pytest.param({"profile": "1.36"}, id="1.36"), pytest.param(WITH_GATES, id="1.34 with gates")]
)


async def read_offers(cluster):
    """Return the names of the published offers by their numbers."""
    names = [device["name"] for spec in await cluster.slices() for device in spec.get("devices", ())]
    return {int(name.rpartition("-")[2]): name for name in names}


async def wait_for_offers(cluster, *numbers):
    """Wait until these offers are published, and return them by their numbers."""
    return await cluster.until(lambda: read_offers(cluster), lambda names: sorted(names) == [*numbers])


async def wait_for_recorded_device(cluster, offer):
    """Wait until the offer's DeviceAttachment records the device that came, and return the attachment."""
    attachments = await cluster.until(
        cluster.attachments, lambda listed: "device" in listed.get(offer, {}).get("status", {})
    )
    return attachments[offer]


async def data_of(cluster, pod):
    """Return the data of the device in the status of the pod's only claim."""
    (claim,) = await cluster.claims(pod)
    (entry,) = claim["status"]["devices"]
    return entry["data"]


def serials(tree):
    """Return the serial numbers of the disks that a node's kernel shows."""
    return {file.read_text().strip() for file in (tree.root / "class" / "nvme").glob("*/serial")}


async def attaches(cluster):
    """Return how many attaches the fabric manager remembers."""
    operations = await cluster.fabric.operations()
    return sum(operation.kind is ATTACH for operation in operations)


@PROFILES
async def test_a_claim_for_a_place_gets_the_device_that_the_fabric_chose_and_the_place_is_free_again(
    flow_lab, server
):
    async with flow_lab(**server, **CHOOSING) as cluster:
        before = await wait_for_offers(cluster, 1, 2, 3)
        await cluster.pod("user")
        node, (offer,) = await cluster.wait_until_running("user")
        assert offer in before.values()
        assert await cluster.list_connections() == {"disk-2": f"host-{node}"}
        attachment = await wait_for_recorded_device(cluster, offer)
        assert attachment["spec"]["deviceID"] == offer
        identity = worlds.disk(2)
        device = attachment["status"]["device"]
        assert device.pop("identifiers")[0]["value"] == identity["serial"].lower()
        assert device == {
            "id": "disk-2",
            "serial": identity["serial"],
            "pciID": f"{identity['pciVendor']:04x}:{identity['pciDevice']:04x}",
        }
        assert await cluster.conditions_of("user") == {offer: READY}
        data = await data_of(cluster, "user")
        assert (data["deviceID"], data["serialNumber"]) == ("disk-2", identity["serial"])
        assert serials(cluster.trees[node]) == {identity["serial"]}
        assert cluster.cdi_files
        assert await read_offers(cluster) == before

        await cluster.api.delete(kinds.POD, "user", namespace="default")
        await cluster.is_free(offer)
        assert await cluster.list_connections() == {}
        assert not cluster.cdi_files
        assert await wait_for_offers(cluster, 1, 2, 3) == before


async def test_a_place_is_locked_until_its_device_is_there_and_that_device_from_then_on(flow_lab):
    async with flow_lab("1.36", **CHOOSING) as cluster:
        await wait_for_offers(cluster, 1, 2, 3)
        # The controller ends after the attach and before it records what came: the answer and the news of it do not arrive.
        for fault in (faults.LoseEvents(resync_seconds=3600), faults.LoseReply(method=ATTACH, hang=True)):
            cluster.fabric.console.add_fault(fault)
        await cluster.pod("first")
        await cluster.until(cluster.list_connections, bool)
        await cluster.stop("controller")
        cluster.fabric.console.clear_faults()
        await cluster.fabric.console.forget_operations()
        ((first, attachment),) = (await cluster.attachments()).items()
        assert "device" not in attachment.get("status", {})
        host = attachment["spec"]["hostID"]
        assert await cluster.list_connections() == {"disk-2": host}
        await cluster.pod("second")
        await cluster.wait_until_allocated("second")
        assert await cluster.devices_of("second") != [first]
        await cluster.fabric.console.foreign_attach("disk-0", host)

        cluster.start_controller()
        for pod, device in (("first", "disk-2"), ("second", "disk-1")):
            _, (offer,) = await cluster.wait_until_running(pod)
            assert (await wait_for_recorded_device(cluster, offer))["status"]["device"]["id"] == device
            assert (await data_of(cluster, pod))["deviceID"] == device
        assert await attaches(cluster) == 1, "that of the second pod"

        await cluster.api.delete(kinds.POD, "first", namespace="default")
        await cluster.is_free(first)
        assert (await cluster.list_connections()).keys() == {"disk-0", "disk-1"}


async def test_a_device_of_a_model_is_attached_by_hand_through_a_place_and_detached_by_its_id(
    flow_lab, capsys
):
    async with flow_lab("1.36", **CHOOSING) as cluster:
        before = await wait_for_offers(cluster, 1, 2, 3)
        assert await drawbar_fabric(cluster, "attach", "disk-0", "node-1") == 1
        assert "--model" in capsys.readouterr().err
        assert await drawbar_fabric(cluster, "attach", "--model", "M1", "--host", "node-1", "-o", "json") == 0
        outcome = json.loads(capsys.readouterr().out)
        assert (outcome["device"], outcome["node"], outcome["changed"]) == ("disk-2", "node-1", True)
        assert await cluster.list_connections() == {"disk-2": "host-node-1"}
        ((offer, attachment),) = (await cluster.attachments()).items()
        assert offer in before.values()
        assert "claim" not in attachment["spec"]
        await cluster.until(cluster.attachments, lambda value: value[offer]["status"].get("phase") == "Ready")
        await cluster.wait_for_taints(offer, "in-use=manual:NoSchedule")
        assert await drawbar_fabric(cluster, "detach", "disk-2") == 0
        assert await cluster.list_connections() == {}
        assert await cluster.attachments() == {}
        assert await wait_for_offers(cluster, 1, 2, 3) == before
