"""CXL memory through the node daemon on a real kernel. Debian 12's QEMU and kernel have persistent memory alone."""

import uuid

import pytest
from lab import cluster, polling

pytestmark = pytest.mark.asyncio(loop_scope="session")

SIZE = 256 << 20
BUS = "/sys/bus/cxl"
SLOT = "101"


async def write(node, path, value):
    # The newline matters: the kernel takes no uuid without it.
    await node.guest.write(f"{BUS}/{path}", f"{value}\n")


async def make_region(node):
    """A committed region over all of the only endpoint, as `cxl create-region -t pmem` makes it."""
    (endpoint,) = [one for one in await node.guest.names(f"{BUS}/devices") if one.startswith("endpoint")]
    decoder = f"decoder{endpoint.removeprefix('endpoint')}.0"
    await write(node, "devices/decoder0.0/create_pmem_region", "region0")
    await write(node, "devices/region0/interleave_ways", 1)
    await write(node, "devices/region0/interleave_granularity", 256)
    await write(node, "devices/region0/uuid", uuid.uuid4())
    await write(node, "devices/region0/size", SIZE)
    await write(node, f"devices/{decoder}/mode", "pmem")
    await write(node, f"devices/{decoder}/dpa_size", SIZE)
    await write(node, "devices/region0/target0", decoder)
    await write(node, "devices/region0/commit", 1)
    await write(node, "drivers/cxl_region/bind", "region0")


async def test_memory_waits_for_power_is_powered_and_is_kept_while_a_region_stands_on_it(node):
    memory = await node.chassis.memory("memory-a", size_bytes=SIZE)
    device = cluster.Device(device="memory-a", device_class="cxl-memory", pci_id="8086:0d93", slot=SLOT)
    claim = await node.cluster.claim("memory-a", device, node=node.name)
    await node.cluster.intend(claim, device, node=node.name)
    await node.chassis.plug(memory, "cxl-1")

    async def slot():
        return await node.slot(SLOT)

    await polling.until(slot, lambda seen: seen == ("0", "1"))
    assert "mem0" not in await node.guest.names(f"{BUS}/devices"), "the kernel leaves it without power"
    await node.cluster.say_attached(device, port="cxl-1")
    seen = await node.cluster.visible(device)
    assert (seen["kernelDriver"], seen["slot"]) == ("cxl_pci", SLOT)
    assert await node.slot(SLOT) == ("1", "1")
    assert "mem0" in await node.guest.names(f"{BUS}/devices")
    await make_region(node)
    await node.cluster.deallocate("memory-a")
    await node.cluster.begin_release(device)
    blocked = await polling.until(
        lambda: node.cluster.condition(device, "Released"), lambda found: found.get("status") == "False"
    )
    assert "region0 holds persistent memory" in blocked["message"]
    assert (await node.guest.read(f"{BUS}/devices/region0/commit")).strip() == "1"
    await write(node, "devices/region0/commit", 0)
    await write(node, "devices/decoder0.0/delete_region", "region0")
    await node.cluster.released(device)
    # QEMU takes it out when the slot loses its power, and says nothing.
    await node.chassis.out(memory)
    assert await node.slot(SLOT) == ("0", "0")
    await node.cluster.end_release(device)
