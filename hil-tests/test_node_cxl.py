"""CXL memory through the node daemon on a real kernel. Debian 12's QEMU and kernel have persistent memory alone.

The node daemon makes nothing of persistent memory, so an administrator does here what it does with volatile memory.
"""

import signal

import pytest
from lab import handover, persistent, waiting

pytestmark = pytest.mark.asyncio(loop_scope="session")

SIZE = 256 << 20
BUS = "/sys/bus/cxl"
SLOT = "101"


async def no_power(node):
    await waiting.until(lambda: node.slot(SLOT), lambda seen: seen == ("0", "0"))


async def memdevs(node):
    """Return the names of the memory devices; a new one need not get a former one's number."""
    return [name for name in await node.guest.names(f"{BUS}/devices") if name.startswith("mem")]


@pytest.mark.short
async def test_memory_waits_for_power_is_powered_and_is_kept_while_a_region_stands_on_it(node):
    memory = await node.chassis.memory("memory-a", size_bytes=SIZE)
    lent = await handover.intend_attachment(node, memory, "cxl-1")
    await node.chassis.plug(memory, lent.port)
    await waiting.until(lambda: node.slot(SLOT), lambda seen: seen == ("0", "1"))
    assert await memdevs(node) == [], "the kernel leaves it without power"
    await node.cluster.say_attached(lent.device, port=lent.port)
    seen = await node.cluster.visible(lent.device)
    assert (seen["kernelDriver"], seen["slot"]) == ("cxl_pci", SLOT)
    assert await node.slot(SLOT) == ("1", "1")
    (name,) = await memdevs(node)
    assert (await node.guest.read(f"{BUS}/devices/{name}/serial")).strip() == f"{memory.serial:#x}"
    await persistent.make_region(node.guest, SIZE)
    await handover.ask_back(node, lent)
    await handover.wait_for_refusal(node, lent, saying="region0 holds persistent memory")
    assert (await node.guest.read(f"{BUS}/devices/region0/commit")).strip() == "1"
    await persistent.delete_region(node.guest)
    # QEMU takes it out when the slot loses its power, and says nothing.
    await handover.take_back(node, lent)
    await no_power(node)


async def test_memory_in_use_stays_until_it_is_offline_and_released(node):
    lent = await handover.attach_device(
        node, await node.chassis.memory("memory-b", size_bytes=2 * SIZE), "cxl-1"
    )
    await persistent.make_region(node.guest, 2 * SIZE)
    await persistent.make_dax(node.guest, 2 * SIZE)
    async with node.guest.process("sh", "-c", "exec 3<> /dev/dax0.0; echo open; sleep 600") as user:
        await user.says("open")
        await handover.ask_back(node, lent)
        await handover.wait_for_refusal(node, lent, saying=f"held by pid {user.pid} (sh), /dev/dax0.0")
        await user.signal(signal.SIGKILL)
        await user.wait()
    await handover.wait_for_refusal(node, lent, saying="region0 holds persistent memory")
    blocks = await persistent.to_system_memory(node.guest)
    await persistent.set_state(node.guest, blocks, "online_movable")
    numa = (await node.guest.read("/sys/bus/dax/devices/dax0.0/target_node")).strip()
    await node.guest.make_folder("/mnt/cxl")
    await node.guest.output("mount", "-t", "tmpfs", "-o", f"mpol=bind:{numa}", "memory", "/mnt/cxl")
    await node.guest.output("dd", "if=/dev/urandom", "of=/mnt/cxl/file", "bs=1M", "count=4")
    content = await node.guest.output("cksum", "/mnt/cxl/file")
    assert await persistent.used_bytes(node.guest, numa) >= 4 << 20
    await handover.wait_for_refusal(node, lent, saying="region0 holds persistent memory")
    assert await persistent.states(node.guest, blocks) == {"online"}
    await persistent.set_state(node.guest, blocks, "offline")
    assert await node.guest.output("cksum", "/mnt/cxl/file") == content, "what is movable was moved"
    await node.guest.output("umount", "/mnt/cxl")
    await persistent.from_system_memory(node.guest)
    assert await persistent.states(node.guest, blocks) == set()
    await persistent.delete_region(node.guest)
    await handover.take_back(node, lent)
    await no_power(node)
