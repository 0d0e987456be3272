"""Volatile CXL memory on QEMU 10.0 and Linux 6.12, from the port of the machine to a container, and back.

Debian 12's own QEMU and kernel have persistent memory alone.
"""

import re
import signal

import pytest
from lab import handover, persistent

pytestmark = pytest.mark.asyncio(loop_scope="session")

SIZE = 256 << 20
BUS = "/sys/bus/cxl/devices"
POLICY = "/sys/devices/system/memory/auto_online_blocks"
DAX = "dax0.0"
# Run in the container: write to the end of the memory and read it again.
USES = """
import mmap, os, sys
file = os.open(sys.argv[1], os.O_RDWR)
memory = mmap.mmap(file, int(sys.argv[2]))
memory[-5:] = b"drawn"
print(memory[-5:].decode())
"""
# Holds pages of the kernel's on a NUMA node: the content of a pipe cannot be moved.
HOLDS = """
import ctypes, fcntl, os, sys, time
mask = ctypes.c_ulong(1 << int(sys.argv[1]))
bind, set_mempolicy = 2, 238
assert ctypes.CDLL(None).syscall(set_mempolicy, bind, ctypes.byref(mask), 64) == 0
reader, writer = os.pipe()
fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 1 << 20)
os.write(writer, bytes(1 << 20))
print("held", flush=True)
time.sleep(600)
"""


async def total(node):
    """How much memory the node has, in bytes."""
    return int(re.search(r"MemTotal:\s+(\d+) kB", await node.guest.read("/proc/meminfo"))[1]) << 10


async def nothing_left(node, before):
    """All of the memory is gone from the kernel and from the machine, and the host's settings are its own."""
    assert [
        name for name in await node.guest.names(BUS) if name.startswith(("region", "mem", "endpoint"))
    ] == []
    assert await node.guest.names("/sys/bus/dax/devices") == []
    assert await total(node) == before
    assert (await node.guest.read("/sys/bus/dax/drivers_autoprobe")).strip() == "1"
    assert (await node.guest.read(POLICY)).strip() == "online"


async def driver(node):
    link = await node.guest.output("readlink", f"/sys/bus/dax/devices/{DAX}/driver")
    return link.strip().rpartition("/")[2]


async def zones(node):
    """Where the memory blocks of the dax device are online."""
    names = await persistent.blocks(node.guest)
    return {(await node.guest.read(f"{persistent.MEMORY}/{name}/valid_zones")).strip() for name in names}


async def test_a_pod_has_the_memory_for_itself_as_a_dax_device_and_it_goes_again(newer_node, drawbar):
    node = newer_node
    assert (await node.guest.output("uname", "-r")).startswith("6.12.")
    before = await total(node)
    memory = await node.chassis.memory("memory-d", size_bytes=SIZE, volatile=True)
    lent = await handover.attached(node, memory, "cxl-1")
    assert await driver(node) == "device_dax"
    assert await total(node) == before, "none of it is the node's"
    await node.cluster.pod("pod-d", lent.name, node=node.name)
    pod = await node.cluster.running_pod("pod-d")
    assert await node.device_nodes(pod) == [f"/dev/{DAX}"]
    python = drawbar.rpartition("/")[0] + "/python"
    done = await node.contained(pod, python, "-c", USES, f"/dev/{DAX}", str(SIZE))
    assert (done.status, done.output) == (0, "drawn\n"), done.errors
    await node.cluster.end_pod("pod-d")
    await handover.give_back(node, lent)
    await nothing_left(node, before)


async def test_memory_of_the_node_comes_online_as_movable_and_goes_again(newer_node):
    node = newer_node
    before = await total(node)
    memory = await node.chassis.memory("memory-s", size_bytes=SIZE, volatile=True)
    lent = await handover.attached(node, memory, "cxl-1", memory_mode="system-ram")
    assert (await driver(node), await zones(node)) == ("kmem", {"Movable"})
    assert await total(node) == before + SIZE
    numa = (await node.guest.read(f"/sys/bus/dax/devices/{DAX}/target_node")).strip()
    await node.guest.make_folder("/mnt/volatile")
    await node.guest.output("mount", "-t", "tmpfs", "-o", f"mpol=bind:{numa}", "memory", "/mnt/volatile")
    await node.guest.output("dd", "if=/dev/urandom", "of=/mnt/volatile/file", "bs=1M", "count=4")
    content = await node.guest.output("cksum", "/mnt/volatile/file")
    assert await persistent.used_bytes(node.guest, numa) >= 4 << 20
    await handover.give_back(node, lent)
    assert await node.guest.output("cksum", "/mnt/volatile/file") == content, "what is movable was moved"
    await node.guest.output("umount", "/mnt/volatile")
    await nothing_left(node, before)


async def test_memory_in_the_wrong_zone_that_the_kernel_uses_is_named_with_the_remedy(newer_node, drawbar):
    node = newer_node
    before = await total(node)
    memory = await node.chassis.memory("memory-z", size_bytes=SIZE, volatile=True)
    lent = await handover.attached(node, memory, "cxl-1", memory_mode="system-ram")
    numa = (await node.guest.read(f"/sys/bus/dax/devices/{DAX}/target_node")).strip()
    for name in await persistent.blocks(node.guest):
        await node.guest.write(f"{persistent.MEMORY}/{name}/state", "offline\n")
        await node.guest.write(f"{persistent.MEMORY}/{name}/state", "online_kernel\n")
    assert await zones(node) == {"Normal"}
    python = drawbar.rpartition("/")[0] + "/python"
    async with node.guest.process(python, "-c", HOLDS, numa) as holder:
        await holder.says("held")
        await handover.ask_back(node, lent)
        condition = await handover.refused(node, lent, saying="came online in zone Normal")
        assert condition["reason"] == "KernelRefused"
        assert "set auto_online_blocks to online_movable" in condition["message"]
        await holder.signal(signal.SIGKILL)
        await holder.wait()
    await handover.take_back(node, lent)
    await nothing_left(node, before)
