"""How a node finds out which of its cards the fabric has attached: by numbers, or by arrival where there are none."""

import asyncio
import json

from tests.driver.flows.sites import NODES

from drawbar.driver.kube import kinds
from drawbar.driver.node.discovery import reader
from drawbar.fabric.contract import DeviceClass
from drawbar.mocks import sysfs

MODEL = {"class": "gpu", "model": "H100", "pciVendor": 0x10DE, "pciDevice": 0x2330}
TWIN = sysfs.MockDevice(device_class=DeviceClass.GPU, vendor=0x10DE, device=0x2330)
SERIAL, UUID = "1654422007043", "8d3ab7c0-14fe-9c02-6b1d-70a2e94f0c55"
DSN = "9f-21-0f-69-a4-2d-b0-48"


def nameless(count):
    """Return the configuration of a fabric that shows neither numbers nor slots of this many GPUs of one model."""
    devices = [MODEL | {"id": f"gpu-{number}", "identifiers": []} for number in range(count)]
    return {"enclosures": [{"id": "enc", "devices": devices}], "namesSlots": False}


async def make_pod(cluster, name, claims=1):
    request = {"name": "card", "exactly": {"deviceClassName": "gpu.drawbar.dev"}}
    await cluster.pod_from_template(name, {"requests": [request]}, [f"card-{n}" for n in range(claims)])


def device_files(tree, address):
    """Return the paths of the device files that the kernel has of this function."""
    return {node.path for node in reader.read_function(tree.root, address).device_nodes}


async def cards(cluster):
    """Return by device its node and the address of the card that is behind its port at the fabric."""
    inventory = await cluster.fabric.devices()
    connections = {device.id: device.connection for device in inventory.devices if device.connection}
    return {
        name: (
            node := connection.host_id.removeprefix("host-"),
            cluster.trees[node].address(int(connection.port_id)),
        )
        for name, connection in connections.items()
    }


async def handed_out(cluster, pod):
    """Return by device the device files in the CDI specification of the claim that has it."""
    folders = [cluster.path / node / "k" / "cdi" for node in NODES]
    texts = [file.read_text() for folder in folders for file in folder.glob("*.json")]
    files = {}
    for claim in await cluster.claims(pod):
        (result,) = claim["status"]["allocation"]["devices"]["results"]
        (text,) = [text for text in texts if claim["metadata"]["uid"] in text]
        edits = [device["containerEdits"] for device in json.loads(text)["devices"]]
        files[result["device"]] = {node["path"] for each in edits for node in each.get("deviceNodes", ())}
    return files


async def conditions_since(cluster, version):
    """Return type, status and reason of each condition of a claim's device since that version."""
    return {
        (entry["type"].removeprefix("drawbar.dev/"), entry["status"], entry["reason"])
        for _, claim in await cluster.history(cluster.claim_kind, version)
        for device in claim.get("status", {}).get("devices", ())
        for entry in device.get("conditions", ())
    }


def is_arriving(attachment):
    """Return whether the fabric has attached the device, and its node has not recognised it yet."""
    node = attachment.get("status", {}).get("node", {})
    conditions = attachment.get("status", {}).get("conditions", ())
    is_attached = any(each["type"] == "Attached" and each["status"] == "True" for each in conditions)
    return is_attached and "recognisedBy" not in node


async def test_two_devices_without_numbers_are_attached_one_after_the_other_and_each_claim_gets_its_own(
    flow_lab,
):
    async with flow_lab("1.36", **nameless(2)) as cluster:
        await cluster.until(cluster.slices, bool)
        since = await cluster.version()
        await make_pod(cluster, "user", claims=2)
        node, devices = await cluster.wait_until_running("user")
        assert devices == ["gpu-0", "gpu-1"]
        shown, files = await cards(cluster), await handed_out(cluster, "user")
        for device, attachment in (await cluster.attachments()).items():
            report = attachment["status"]["node"]
            assert (report["recognisedBy"]["kind"], shown[device]) == (
                "sole-arrival",
                (node, report["pciAddress"]),
            )
            # The shared files of the driver stay on a host that had a GPU with them before.
            own = {path for path in files[device] if not path.startswith("/dev/nvidia")}
            assert own == device_files(cluster.trees[node], report["pciAddress"])
        arriving = {}
        for _, attachment in await cluster.history(kinds.ATTACHMENT, since):
            arriving[attachment["spec"]["device"]] = is_arriving(attachment)
            assert sum(arriving.values()) <= 1, "the second one arrived before the first one was recognised"


async def test_a_card_of_the_model_that_is_plugged_in_meanwhile_fails_the_claim_and_taints_nothing(flow_lab):
    async with flow_lab("1.36", visible=4, attachSeconds=1.5, **nameless(1)) as cluster:
        await cluster.until(cluster.slices, bool)
        since = await cluster.version()
        await make_pod(cluster, "user")
        listed = await cluster.until(
            cluster.attachments, lambda value: value.get("gpu-0", {}).get("status", {}).get("baseline")
        )
        node = listed["gpu-0"]["spec"]["nodeName"]
        await asyncio.to_thread(cluster.trees[node].attach, 4, TWIN)
        await cluster.wait_for_event("DeviceNotRecognised", "several cards of its model arrived")
        await cluster.until(
            lambda: conditions_since(cluster, since),
            lambda value: ("node-failed", "True", "DeviceNotRecognised") in value,
        )
        assert await cluster.taints("gpu-0") == set()
        assert ("visible", "True") not in {each[:2] for each in await conditions_since(cluster, since)}
        await cluster.api.delete(kinds.POD, "user", namespace="default")
        await cluster.wait_until_gone("user")
        await cluster.until(cluster.attachments, lambda value: value == {})
        assert await cluster.list_connections() == {}
        assert cluster.trees[node].list_attached_cards() == {4: TWIN}, "the card of the technician stays"
        assert cluster.cdi_files == []
        assert await cluster.taints("gpu-0") == set()


async def test_a_gpu_is_recognised_by_its_uuid_despite_different_serial_numbers(
    flow_lab,
):
    shown = [{"kind": "board-serial", "value": SERIAL}, {"kind": "gpu-uuid", "value": f"GPU-{UUID.upper()}"}]
    gpu = MODEL | {"id": "gpu-0", "serial": SERIAL, "identifiers": shown}
    kernel = {"effect": "appear", "device": "gpu-0", "identifiers": {"gpu-uuid": UUID, "pcie-dsn": DSN}}
    enclosures = [{"id": "enc", "devices": [gpu]}]
    async with flow_lab("1.36", enclosures=enclosures, faults=[kernel], namesSlots=False) as cluster:
        await cluster.until(cluster.slices, bool)
        await make_pod(cluster, "user")
        node, devices = await cluster.wait_until_running("user")
        assert devices == ["gpu-0"]
        report = (await cluster.attachments())["gpu-0"]["status"]["node"]
        assert report["recognisedBy"]["kind"] == "gpu-uuid"
        function = reader.read_function(cluster.trees[node].root, report["pciAddress"])
        assert {each.kind.value: each.value for each in function.identifiers} == {
            "gpu-uuid": UUID,
            "pcie-dsn": DSN,
        }
        assert SERIAL not in DSN
