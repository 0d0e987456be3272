"""Cards whose class has virtual functions set up: KEP-3063's functions of one card that are set up together."""

import asyncio
import json

from tests.driver.flows.lab import drawbar_fabric
from tests.driver.flows.test_controller_flows_hooks import config
from tests.driver.flows.test_controller_flows_network import NIC

from drawbar.driver.kube import kinds
from drawbar.driver.node.inventory import netdevs
from drawbar.driver.node.local import selections

FPGA = {
    "id": "fpga-0",
    "class": "fpga",
    "serial": "00-0a-35-00-00-00-00-01",
    "pciVendor": 0x8086,
    "pciDevice": 0x0B2B,
}
GPU = {
    "id": "gpu-0",
    "class": "gpu",
    "serial": "48-b0-2d-00-00-00-00-01",
    "pciVendor": 0x10DE,
    "pciDevice": 0x2330,
}
OFFERING = {"local_pool": selections.Selection(classes=("gpu", "fpga"), virtual_functions=True)}


async def make_class(cluster, name, selects, groups, **settings):
    selectors = [
        {
            "cel": {
                "expression": f'device.driver == "drawbar.dev" && device.attributes["drawbar.dev"].class == "{selects}"'
                ' && !("physicalFunction" in device.attributes["drawbar.dev"])'
            }
        }
    ]
    content = config(virtualFunctions={"groups": groups, **settings})
    await cluster.create(kinds.DEVICE_CLASS, name, spec={"selectors": selectors, "config": content})


async def make_pod(cluster, name, device_class):
    request = {"name": "card", "exactly": {"deviceClassName": device_class}}
    await cluster.pod_from_template(name, {"requests": [request]}, ["card"])


def set_links(monkeypatch):
    """Replace the card's driver; return the settings that it is asked to set."""
    asked = {}

    def set_up(interface, links):
        for number, link in links.items():
            asked[interface, number] = link.settings

    monkeypatch.setattr(netdevs, "set_up_functions", set_up)
    return asked


def driver_of(tree, address):
    link = tree.root / "bus/pci/devices" / address / "driver"
    return link.resolve().name if link.is_symlink() else None


async def test_a_card_has_its_virtual_functions_before_its_pod_is_bound_and_none_after(flow_lab, monkeypatch):
    asked = set_links(monkeypatch)
    enclosures = [{"id": "enc", "devices": [NIC]}]
    groups = [
        {"count": 2, "vlan": 120, "trust": True, "stableAddress": True},
        {"count": 1, "driver": "vfio-pci"},
    ]
    async with flow_lab("1.36", enclosures=enclosures) as cluster:
        await make_class(cluster, "split", "nic", groups)
        await make_pod(cluster, "user", "split")
        node, (device,) = await cluster.wait_until_running("user")
        tree = cluster.trees[node]
        (slot,) = tree.list_attached_cards()
        owner = tree.address(slot)
        made = sorted((tree.root / "bus/pci/devices" / owner).glob("virtfn*"))
        drivers = [driver_of(tree, link.resolve().name) for link in made]
        assert drivers[2] == "vfio-pci"
        assert None not in drivers[:2]
        (first, second) = (asked[key] for key in sorted(asked))
        assert {key[1] for key in asked} == {0, 1}
        assert first | {"mac": ""} == {"vlan": 120, "trust": True, "mac": ""}
        assert first["mac"] != second["mac"]
        (cdi,) = (cluster.path / node / "k" / "cdi").glob("*.json")
        (edits,) = [entry["containerEdits"] for entry in json.loads(cdi.read_text())["devices"]]
        assert len(edits["netDevices"]) == 3, "the card's own, and those of two virtual functions"
        # A daemon that is started again leaves alone what a pod uses.
        asked.clear()
        await cluster.stop(node)
        cluster.start_node(node)
        await cluster.api.delete(kinds.POD, "user", namespace="default")
        await cluster.is_free(device)
        assert asked == {}
        # The next claim of any card of this one gets the same addresses.
        await make_pod(cluster, "next", "split")
        await cluster.wait_until_running("next")
        assert sorted(link["mac"] for link in asked.values()) == sorted((first["mac"], second["mac"]))
        await cluster.api.delete(kinds.POD, "next", namespace="default")
        await cluster.is_free(device)


async def test_a_card_that_cannot_have_as_many_is_left_to_others(flow_lab):
    async with flow_lab("1.36", enclosures=[{"id": "enc", "devices": [FPGA, GPU]}]) as cluster:
        await make_class(cluster, "many", "fpga", [{"count": 200}])
        await make_class(cluster, "none", "gpu", [{"count": 1}])
        await make_pod(cluster, "a", "many")
        await cluster.wait_for_event("FunctionsNotSetUp", "asks for 200 virtual functions, and")
        await make_pod(cluster, "b", "none")
        await cluster.wait_for_event(
            "FunctionsNotSetUp", "the device can have none: leave virtualFunctions out"
        )
        for name in ("a", "b"):
            await cluster.api.delete(kinds.POD, name, namespace="default")
            await cluster.wait_until_gone(name)
        for device in ("fpga-0", "gpu-0"):
            assert not await cluster.taints(device)
            await cluster.is_free(device)


async def test_a_claim_opens_its_card_to_others_and_the_card_leaves_after_them(flow_lab, capsys):
    async with flow_lab("1.36", node=OFFERING, enclosures=[{"id": "enc", "devices": [FPGA]}]) as cluster:
        await make_class(cluster, "opened", "fpga", [{"count": 2}], offered=True)
        await make_pod(cluster, "opener", "opened")
        node, (card,) = await cluster.wait_until_running("opener")
        for name in ("a", "b"):
            await make_pod(cluster, name, "fpga.drawbar.dev")
        names = [f"fpga-{FPGA['serial']}-vf{number}" for number in range(2)]
        placed = [await cluster.wait_until_running(name) for name in ("a", "b")]
        assert sorted(placed) == [(node, [name]) for name in names]
        assert await drawbar_fabric(cluster, "detach", card) == 1
        assert "delete the pod or claim" in capsys.readouterr().err

        await cluster.api.delete(kinds.POD, "opener", namespace="default")

        async def read():
            conditions = (await cluster.attachments())[card]["status"]["conditions"]
            return [entry["message"] for entry in conditions if entry["type"] == "Released"]

        messages = await cluster.until(read, lambda value: value and all(name in value[0] for name in names))
        assert "delete the pods that use it" in messages[0]
        for name in ("a", "b"):
            await cluster.api.delete(kinds.POD, name, namespace="default")
        await cluster.is_free(card)


async def test_a_card_that_is_kept_attached_waits_for_those_that_it_was_opened_to(flow_lab):
    async with flow_lab("1.36", node=OFFERING, enclosures=[{"id": "enc", "devices": [FPGA]}]) as cluster:
        await cluster.until(cluster.slices, bool)
        await cluster.change(kinds.FABRIC, "fab", spec={"policy": {"keepAttachedSeconds": 600}})
        await make_class(cluster, "opened", "fpga", [{"count": 1}], offered=True)
        await make_pod(cluster, "opener", "opened")
        node, (card,) = await cluster.wait_until_running("opener")
        await make_pod(cluster, "user", "fpga.drawbar.dev")
        await cluster.wait_until_running("user")
        await cluster.api.delete(kinds.POD, "opener", namespace="default")
        await cluster.wait_until_gone("opener")
        tree = cluster.trees[node]
        (slot,) = tree.list_attached_cards()
        owner = tree.root / "bus/pci/devices" / tree.address(slot)
        await cluster.until(cluster.attachments, lambda value: "claim" not in value[card]["spec"])
        assert (owner / "virtfn0").is_symlink(), "a pod still uses it"
        await cluster.api.delete(kinds.POD, "user", namespace="default")
        await cluster.until(
            lambda: asyncio.to_thread((owner / "virtfn0").is_symlink), lambda there: not there
        )
