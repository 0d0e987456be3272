"""Network devices: what a pod's interface is called is in the status of its claim."""

import asyncio

from tests.driver.flows.lab import drawbar_fabric

from drawbar.driver.kube import kinds
from drawbar.driver.node.inventory import netdevs
from drawbar.driver.node.local import selections

NIC = {
    "id": "nic-0",
    "class": "nic",
    "serial": "94-6d-ae-00-00-00-00-01",
    "pciVendor": 0x15B3,
    "pciDevice": 0x1021,
}
ENCLOSURES = [{"id": "enc", "devices": [NIC]}]
WITH_FUNCTIONS = {"local_pool": selections.Selection(classes=("nic",), virtual_functions=True)}


async def make_pod(cluster, name, *, prefix=None):
    spec = {"requests": [{"name": "card", "exactly": {"deviceClassName": "nic.drawbar.dev"}}]}
    if prefix is not None:
        head = {"apiVersion": "drawbar.dev/v1alpha1", "kind": "DeviceParameters"}
        opaque = {"driver": "drawbar.dev", "parameters": head | {"network": {"interfacePrefix": prefix}}}
        spec["config"] = [{"opaque": opaque}]
    await cluster.pod_from_template(name, spec, ["card"])


async def network_data(cluster):
    """Return the `networkData` of all claims by device."""
    listed = (await cluster.api.list_all(kinds.CLAIM, into=dict)).items
    return {
        entry["device"]: entry["networkData"]
        for claim in listed
        for entry in claim.get("status", {}).get("devices", [])
        if "networkData" in entry
    }


async def list_published_devices(cluster):
    """Return the names of all devices in slices."""
    listed = (await cluster.api.list_all(kinds.SLICE, into=dict)).items
    return [device["name"] for entry in listed for device in entry["spec"].get("devices", ())]


def hardware_address(tree, interface):
    return (tree.root / "class/net" / interface / "address").read_text().strip()


async def test_the_interface_of_a_pod_is_in_its_claim_beside_the_conditions(flow_lab):
    async with flow_lab("1.36", enclosures=ENCLOSURES) as cluster:
        await cluster.until(cluster.slices, bool)
        await make_pod(cluster, "user", prefix="data")
        node, (device,) = await cluster.wait_until_running("user")
        (interface,) = [
            path.name for path in (cluster.trees[node].root / "class/net").iterdir() if path.name != "lo"
        ]
        address = hardware_address(cluster.trees[node], interface)
        reported = {device: {"interfaceName": "data0", "hardwareAddress": address}}
        await cluster.until(lambda: network_data(cluster), lambda value: value == reported)
        (claim,) = (await cluster.api.list_all(kinds.CLAIM, into=dict)).items
        (entry,) = claim["status"]["devices"]
        assert {condition["type"] for condition in entry["conditions"]} == {
            "drawbar.dev/attached",
            "drawbar.dev/visible",
        }
        # A daemon that is started again reports the same, and takes nothing back.
        await cluster.stop(node)
        cluster.start_node(node)
        await cluster.api.delete(kinds.POD, "user", namespace="default")
        await cluster.wait_until_gone("user")
        await cluster.until(cluster.list_connections, lambda value: value == {})


def answer_netlink(monkeypatch, trees):
    """Answer for the kernel with the interfaces of the mocked trees, which nothing of the host uses."""

    def read():
        names = {path.name for tree in trees.values() for path in tree.root.glob("class/net/*")}
        return dict.fromkeys(names, netdevs.Netdev())

    monkeypatch.setattr(netdevs, "read", read)


async def test_so_is_the_one_of_a_virtual_function(flow_lab, capsys, monkeypatch):
    async with flow_lab("1.36", node=WITH_FUNCTIONS, enclosures=ENCLOSURES) as cluster:
        answer_netlink(monkeypatch, cluster.trees)
        await cluster.until(cluster.slices, bool)
        assert await drawbar_fabric(cluster, "attach", "nic-0", "node-2") == 0
        capsys.readouterr()
        tree = cluster.trees["node-2"]
        (slot,) = tree.list_attached_cards()
        await asyncio.to_thread(tree.set_vfs, slot, 1)
        await cluster.until(
            lambda: list_published_devices(cluster),
            lambda names: any(name.endswith("-vf0") for name in names),
        )
        await make_pod(cluster, "user")
        _, (device,) = await cluster.wait_until_running("user")
        assert device.endswith("-vf0")
        data = await cluster.until(lambda: network_data(cluster), bool)
        interface = data[device]["interfaceName"]
        assert data[device]["hardwareAddress"] == hardware_address(tree, interface)
        # It is reset before another claim gets it.
        assert tree.resets(slot) == 0
        await cluster.api.delete(kinds.POD, "user", namespace="default")
        await cluster.until(lambda: asyncio.to_thread(tree.resets, slot), lambda count: count == 1)
