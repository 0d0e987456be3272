"""Many attaches and releases on a real kernel: nothing may be left of them."""

import asyncio
import collections
import os

import pytest
from lab import handover

pytestmark = pytest.mark.asyncio(loop_scope="session")

CYCLES = int(os.environ.get("DRAWBAR_HIL_CYCLES", "200"))
"""In all; those in different ports go on at the same time."""
PORTS = ("port-1", "port-2", "port-3", "port-4")
WARM_UP = 3
"""Of each port, for what is made once."""
GROWTH_MAX_KIB = 3072
"""Measured: 1,472 KiB in 200 cycles, from 83,560, of which the last 20 took 60."""
FOLDERS = (
    "/sys/bus/pci/devices",
    "/sys/class/nvme",
    "/sys/class/nvme-subsystem",
    "/sys/class/block",
    "/sys/kernel/slab",
    "/dev",
    "/run/cdi",
)


async def cycles(node, disk, port, count):
    for number in range(count):
        lent = await handover.attach_device(node, disk, port, erase=True)
        await write(node, lent, f"what cycle {number} of {port} wrote")
        await handover.give_back(node, lent)
        assert not any(await asyncio.to_thread(disk.file.read_bytes)), f"cycle {number} of {port} left bytes"


async def write(node, lent, text):
    """Write to the first and the last block of a disk, and to one in the middle."""
    report = (await node.cluster.attachment(lent.device))["status"]["node"]
    (controller,) = await node.guest.names(f"/sys/bus/pci/devices/{report['pciAddress']}/nvme")
    path = f"/dev/{controller}n1"
    blocks = lent.card.file.stat().st_size // 512
    for block in (0, blocks // 2, blocks - 1):
        command = f"printf %s '{text}' | dd of={path} bs=512 seek={block} conv=sync,fsync,notrunc status=none"
        await node.guest.output("sh", "-c", command)
    assert text.encode() in await asyncio.to_thread(lent.card.file.read_bytes)


async def everywhere(node, disks, count):
    """Run so many cycles in each port, in all ports at once."""
    async with asyncio.TaskGroup() as tasks:
        for port, disk in disks.items():
            tasks.create_task(cycles(node, disk, port, count), name=port)


async def memory_kib(node):
    lines = (await node.guest.read(f"/proc/{node.daemon.pid}/status")).splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


async def count_entries(node):
    """Return how many entries there are: files that the daemon has open, by kind, entries in sysfs and in /dev."""
    folder = f"/proc/{node.daemon.pid}/fd"
    listed = await node.guest.output("ls", "-l", folder)
    opened = collections.Counter(
        "socket" if "socket:[" in line else "file" for line in listed.splitlines()[1:]
    )
    tasks = len(await node.guest.names(f"/proc/{node.daemon.pid}/task"))
    return {**opened, "tasks": tasks, **{path: len(await node.guest.names(path)) for path in FOLDERS}}


@pytest.mark.timeout(200 + CYCLES * 10)
async def test_nothing_is_left_of_many_attaches_and_releases(node):
    disks = {port: await node.chassis.disk(f"disk-z{port[-1]}") for port in PORTS}
    await everywhere(node, disks, WARM_UP)
    before, memory = await count_entries(node), await memory_kib(node)
    await everywhere(node, disks, -(-CYCLES // len(PORTS)))
    after = await count_entries(node)
    # Threads, and connections to the API server, are pooled: their number goes up and down, but not with the cycles.
    for pooled in ("tasks", "socket"):
        assert after.pop(pooled) <= before.pop(pooled) + len(PORTS)
    assert after == before
    assert await memory_kib(node) - memory < GROWTH_MAX_KIB
