"""Volatile CXL memory: as a dax device of its pod alone, or as memory of the pod's node."""

import json

import pytest
from tests.driver.flows.test_controller_flows_hooks import config, make_class

from drawbar.driver.kube import kinds

GIB = 1 << 30
MEMORY = {
    "id": "mem-0",
    "class": "cxl-memory",
    "serial": "0x1234",
    "memoryBytes": GIB,
    "pciVendor": 0x1E98,
    "pciDevice": 0x0D93,
}
ENCLOSURES = [{"id": "enc", "devices": [MEMORY]}]


async def make_pod(cluster, name, *, mode=None, **memory):
    """Create a pod with memory of that mode, which its class asks for, and with the other parameters, which its claim does."""
    device_class = "cxl-memory.drawbar.dev"
    if mode is not None:
        device_class = f"memory-of-{name}"
        await make_class(cluster, device_class, memory={"mode": mode})
    request = {"name": "memory", "exactly": {"deviceClassName": device_class}}
    reported = config(**({"memory": memory} if memory else {}))
    await cluster.pod_from_template(name, {"requests": [request], "config": reported}, ["memory"])


def files(cluster, node):
    """Return the paths of the device files that the containers of a node's pods get."""
    return [
        path["path"]
        for file in (cluster.path / node / "k" / "cdi").glob("*.json")
        for device in json.loads(file.read_text())["devices"]
        for path in device["containerEdits"].get("deviceNodes", ())
    ]


def regions(cluster):
    return [
        path.name for tree in cluster.trees.values() for path in tree.root.glob("bus/cxl/devices/region*")
    ]


def blocks(cluster):
    """Return the zones of each memory block of the nodes, by the block's path."""
    return {
        path: (path / "valid_zones").read_text().strip()
        for tree in cluster.trees.values()
        for path in tree.root.glob("devices/system/memory/memory[0-9]*")
    }


@pytest.mark.parametrize("memory", [{}, {"mode": "system-ram"}], ids=["devdax", "system-ram"])
async def test_memory_is_made_ready_before_its_pod_is_bound_and_taken_down_after_it(flow_lab, memory):
    async with flow_lab("1.36", enclosures=ENCLOSURES) as cluster:
        await cluster.until(cluster.slices, bool)
        before = blocks(cluster)
        await make_pod(cluster, "user", **memory)
        node, (device,) = await cluster.wait_until_running("user")
        assert device == "mem-0"
        assert len(regions(cluster)) == 1
        is_own = not memory
        assert any(path.startswith("/dev/dax") for path in files(cluster, node)) is is_own
        added = {zone for path, zone in blocks(cluster).items() if path not in before}
        assert added == (set() if is_own else {"Movable"})
        claim = (await cluster.claims("user"))[0]
        (visible,) = [
            condition["status"]
            for entry in claim["status"]["devices"]
            for condition in entry["conditions"]
            if condition["type"].endswith("/visible")
        ]
        assert visible == "True"
        await cluster.api.delete(kinds.POD, "user", namespace="default")
        await cluster.wait_until_gone("user")
        await cluster.until(cluster.list_connections, lambda connected: not connected)
        assert (regions(cluster), blocks(cluster)) == ([], before)
