"""Volatile CXL memory on QEMU 10.0 and Linux 6.12, from the port of the machine to a container, and back.

Debian 12's own QEMU and kernel have persistent memory alone. The mocked memory is compared with the kernel's, too.
"""

import asyncio
import itertools
import json
import re
import signal

import pytest
from lab import handover, kernel_probe, mocked, persistent, volatile, waiting

from drawbar.fabric.contract import DeviceClass
from drawbar.mocks import sysfs

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
    """Return how much memory the node has, in bytes."""
    return int(re.search(r"MemTotal:\s+(\d+) kB", await node.guest.read("/proc/meminfo"))[1]) << 10


async def nothing_left(node, before):
    """Assert that all of the memory is gone, and that the host's settings are its own."""
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
    """Return the zones in which the memory blocks of the dax device are online."""
    names = await persistent.blocks(node.guest)
    return {(await node.guest.read(f"{persistent.MEMORY}/{name}/valid_zones")).strip() for name in names}


async def test_a_pod_has_the_memory_for_itself_as_a_dax_device_and_it_goes_again(newer_node, drawbar):
    node = newer_node
    assert (await node.guest.output("uname", "-r")).startswith("6.12.")
    before = await total(node)
    memory = await node.chassis.memory("memory-d", size_bytes=SIZE, volatile=True)
    lent = await handover.attach_device(node, memory, "cxl-1")
    assert await driver(node) == "device_dax"
    assert await total(node) == before, "none of it is the node's"
    await node.cluster.pod("pod-d", lent.name, node=node.name)
    pod = await node.cluster.running_pod("pod-d")
    assert await node.device_nodes(pod) == [f"/dev/{DAX}"]
    python = drawbar.rpartition("/")[0] + "/python"
    done = await node.run_in_container(pod, python, "-c", USES, f"/dev/{DAX}", str(SIZE))
    assert (done.status, done.output) == (0, "drawn\n"), done.errors
    await node.cluster.end_pod("pod-d")
    await handover.give_back(node, lent)
    await nothing_left(node, before)


async def test_nothing_of_a_pods_data_is_left_in_memory_that_leaves_the_node(newer_node, drawbar):
    node = newer_node
    before = await total(node)
    memory = await node.chassis.memory("memory-e", size_bytes=SIZE, volatile=True)
    lent = await handover.attach_device(node, memory, "cxl-1", erase=True)
    await node.cluster.pod("pod-e", lent.name, node=node.name)
    pod = await node.cluster.running_pod("pod-e")
    python = drawbar.rpartition("/")[0] + "/python"
    done = await node.run_in_container(pod, python, "-c", USES, f"/dev/{DAX}", str(SIZE))
    assert (done.status, done.output) == (0, "drawn\n"), done.errors
    assert b"drawn" in await asyncio.to_thread(memory.file.read_bytes)
    await node.cluster.end_pod("pod-e")
    await handover.give_back(node, lent)
    assert len(set(await asyncio.to_thread(memory.file.read_bytes))) == 1, "it is the same in every byte"
    await nothing_left(node, before)


async def test_memory_of_the_node_comes_online_as_movable_and_goes_again(newer_node):
    node = newer_node
    before = await total(node)
    memory = await node.chassis.memory("memory-s", size_bytes=SIZE, volatile=True)
    lent = await handover.attach_device(node, memory, "cxl-1", memory_mode="system-ram")
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
    lent = await handover.attach_device(node, memory, "cxl-1", memory_mode="system-ram")
    numa = (await node.guest.read(f"/sys/bus/dax/devices/{DAX}/target_node")).strip()
    for name in await persistent.blocks(node.guest):
        await node.guest.write(f"{persistent.MEMORY}/{name}/state", "offline\n")
        await node.guest.write(f"{persistent.MEMORY}/{name}/state", "online_kernel\n")
    assert await zones(node) == {"Normal"}
    python = drawbar.rpartition("/")[0] + "/python"
    async with node.guest.process(python, "-c", HOLDS, numa) as holder:
        await holder.says("held")
        await handover.ask_back(node, lent)
        condition = await handover.wait_for_refusal(node, lent, saying="came online in zone Normal")
        assert condition["reason"] == "KernelRefused"
        assert "set auto_online_blocks to online_movable" in condition["message"]
        await holder.signal(signal.SIGKILL)
        await holder.wait()
    await handover.take_back(node, lent)
    await nothing_left(node, before)


# Run in the container: fill the first two stretches with a letter each.
FILLS = """
import mmap, os, sys
file = os.open(sys.argv[1], os.O_RDWR)
memory, each = mmap.mmap(file, int(sys.argv[2])), int(sys.argv[3])
memory[: 2 * each] = b"a" * each + b"b" * each
memory[-5:] = b"drawn"
print(memory[-5:].decode())
"""


async def region_of(node):
    """Return the shape of the region, and its targets in order."""
    names = ("interleave_ways", "interleave_granularity", "size", "commit", "target0", "target1")
    return [(await node.guest.read(f"{BUS}/region0/{name}")).strip() for name in names]


async def two(node, name):
    """Make two memory devices, and return them by the ports that they are for."""
    return {
        f"cxl-{number}": await node.chassis.memory(f"{name}-{number}", size_bytes=SIZE, volatile=True)
        for number in (1, 2)
    }


async def test_two_devices_are_one_dax_device_whose_stretches_alternate_between_them(newer_node, drawbar):
    node, granularity = newer_node, 4096
    before = await total(node)
    cards = await two(node, "pair")
    members = await handover.attached_together(node, "duo", cards, memoryGranularity=granularity)
    *shape, first, second = await region_of(node)
    assert shape == ["2", str(granularity), f"{2 * SIZE:#x}", "1"]
    assert first != second
    assert int(await node.guest.read(f"/sys/bus/dax/devices/{DAX}/size")) == 2 * SIZE
    assert (await driver(node), await total(node)) == ("device_dax", before)
    await node.cluster.pod("pod-duo", "duo", node=node.name)
    pod = await node.cluster.running_pod("pod-duo")
    assert await node.device_nodes(pod) == [f"/dev/{DAX}"], "once, not once for each device"
    python = drawbar.rpartition("/")[0] + "/python"
    done = await node.run_in_container(
        pod, python, "-c", FILLS, f"/dev/{DAX}", str(2 * SIZE), str(granularity)
    )
    assert (done.status, done.output) == (0, "drawn\n"), done.errors
    contents = [await asyncio.to_thread(card.file.read_bytes) for card in cards.values()]
    assert sorted({content[:granularity] for content in contents}) == [b"a" * granularity, b"b" * granularity]
    assert [content.endswith(b"drawn") for content in contents].count(True) == 1
    await node.cluster.end_pod("pod-duo")
    await handover.give_back_together(node, "duo", members)
    await nothing_left(node, before)


async def test_two_devices_are_memory_of_the_node_together_and_go_again(newer_node):
    node = newer_node
    before = await total(node)
    cards = await two(node, "sum")
    members = await handover.attached_together(node, "sum", cards, memory_mode="system-ram")
    assert (await driver(node), await zones(node)) == ("kmem", {"Movable"})
    assert await total(node) == before + 2 * SIZE
    assert (await region_of(node))[:4] == ["2", "256", f"{2 * SIZE:#x}", "1"]
    await handover.give_back_together(node, "sum", members)
    await nothing_left(node, before)


async def test_a_device_that_is_pulled_out_of_an_interleaved_region_leaves_nothing_of_it_behind(newer_node):
    node = newer_node
    before = await total(node)
    cards = await two(node, "torn")
    members = await handover.attached_together(node, "torn", cards)
    stays, pulled = members
    await node.chassis.press(pulled.card)
    lost = await waiting.until(
        lambda: node.cluster.condition(pulled.device, "Visible"),
        lambda condition: condition.get("status") == "False",
    )
    assert lost["reason"] == "DeviceLost"
    assert (await region_of(node))[3] == "0", "the kernel has taken it down"
    assert (await node.cluster.condition(stays.device, "Visible"))["status"] == "True", (
        "nothing is wrong with it"
    )
    await handover.give_back_together(node, "torn", members)
    await nothing_left(node, before)


CARD = "0000:41:00.0"
REGION = "/sys/bus/cxl/devices/region0/"
BUSES = ("cxl", "pci", "dax", "memory")
HEAD = {"ACTION", "DEVPATH", "SUBSYSTEM", "SEQNUM"}
# Where the memory is in the host's address space, and a name with a number that need not be free again.
OWN = {"resource", "target0"}
# QEMU 10.0 gives an endpoint four decoders, the mock one.
FURTHER = re.compile(r"decoder\d+\.[1-3]")
MEMORY = sysfs.MockDevice(
    device_class=DeviceClass.CXL_MEMORY, vendor=0x8086, device=0x0D93, serial="4660", memory_bytes=SIZE
)


def summary(events):
    """Return what counts of the events; those of memory blocks are apart, without repetitions."""
    lines = []
    for event in events:
        name = event["DEVPATH"].rpartition("/")[2]
        if event["SUBSYSTEM"] in BUSES and not FURTHER.fullmatch(name):
            variables = sorted(set(event) - HEAD)
            lines.append((event["ACTION"], event["SUBSYSTEM"], re.sub(r"\d+", "N", name), variables))
    blocks = [line for line in lines if line[1] == "memory"]
    return [line for line in lines if line[1] != "memory"], [line for line, _ in itertools.groupby(blocks)]


async def of_the_kernel(node):
    shown = {}

    async def look(name, folder):
        shown[name] = json.loads(
            await node.guest.output(*node.guest.module("lab.kernel_probe", "tree", folder))
        )

    async with node.guest.process(*node.guest.module("lab.kernel_probe", "events")) as process:

        async def count(action, name):
            events = [json.loads(line) for line in process.output.splitlines()[1:] if line.endswith("}")]
            return [
                event
                for event in events
                if event["ACTION"] == action and event["DEVPATH"].endswith(f"/{name}")
            ]

        await process.says("{}")
        memory = await node.chassis.memory("memory-k", size_bytes=SIZE, volatile=True)
        await node.chassis.plug(memory, "cxl-1")
        await waiting.until(lambda: count("bind", CARD))
        await volatile.make_region(node.guest, SIZE)
        await volatile.bind(node.guest, "device_dax")
        await look("dax", REGION)
        await volatile.unbind(node.guest, "device_dax")
        # In zone Normal the kernel might use it by the time that it is to go offline.
        await node.guest.write(POLICY, "online_movable\n")
        await volatile.bind(node.guest, "kmem")
        await node.guest.write(POLICY, "online\n")
        blocks = await persistent.blocks(node.guest)
        await look("online", f"{persistent.MEMORY}/{blocks[0]}/")
        await persistent.set_state(node.guest, blocks, "offline")
        await look("offline", f"{persistent.MEMORY}/{blocks[0]}/")
        await volatile.unbind(node.guest, "kmem")
        await volatile.delete_region(node.guest)
        await node.guest.write(f"/sys/bus/pci/devices/{CARD}/driver/unbind", f"{CARD}\n")
        await node.guest.write(f"/sys/bus/pci/devices/{CARD}/remove", "1\n")
        await node.guest.write("/sys/bus/pci/slots/101/power", "0\n")
        await node.chassis.out(memory)
        await waiting.until(lambda: count("remove", CARD))
        return summary([json.loads(line) for line in process.output.splitlines()[1:]]), shown


async def of_the_mock(folder):
    shown = {}
    async with mocked.host(folder, "newer-lab") as host:
        root = host.tree.root
        await asyncio.to_thread(host.tree.attach, 101, MEMORY)
        for path, value in (
            ("decoder0.0/create_ram_region", "region0"),
            ("region0/interleave_ways", 1),
            ("region0/interleave_granularity", 256),
            ("region0/size", SIZE),
            ("region0/target0", "decoder2.0"),
            ("region0/commit", 1),
        ):
            await host.write(f"bus/cxl/devices/{path}", value)
        for path, value in (
            ("bus/dax/drivers_autoprobe", 0),
            (POLICY[5:], "online_movable"),
        ):
            (root / path).write_text(f"{value}\n")  # without an answer
        await host.write("bus/cxl/drivers_probe", "region0")
        await host.write("bus/dax/drivers/device_dax/new_id", DAX)
        shown["dax"] = kernel_probe.tree((root / REGION[5:]).resolve())
        await host.write("bus/dax/drivers/device_dax/unbind", DAX)
        await host.write("bus/dax/drivers/kmem/new_id", DAX)
        (block,) = (root / "devices/system/memory").glob("memory*")
        shown["online"] = kernel_probe.tree(block)
        await host.write(f"devices/system/memory/{block.name}/state", "offline")
        shown["offline"] = kernel_probe.tree(block)
        await host.write("bus/dax/drivers/kmem/unbind", DAX)
        await host.write("bus/cxl/devices/region0/commit", 0)
        await host.write("bus/cxl/devices/decoder0.0/delete_region", "region0")
        await host.write("bus/pci/drivers/cxl_pci/unbind", CARD)
        await host.write(f"bus/pci/devices/{CARD}/remove", 1)
        await host.wait_until_removed(CARD)
    return summary(host.events), shown


async def test_volatile_memory_comes_and_goes_as_on_the_kernel(newer_node, tmp_path):
    (events, of_blocks), shown = await of_the_kernel(newer_node)
    (mock_events, mock_of_blocks), mock_shown = await of_the_mock(tmp_path)
    assert mock_events == events
    assert mock_of_blocks == of_blocks
    for look, mock_files in mock_shown.items():
        modes = {path: entry.get("mode") for path, entry in mock_files.items()}
        assert modes == {path: shown[look].get(path, {}).get("mode") for path in modes}, look
        differ = {path.rpartition("/")[2] for path in mock_files if mock_files[path] != shown[look][path]}
        assert differ <= (OWN if look == "dax" else {"phys_index"}), look
