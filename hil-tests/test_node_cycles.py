"""Many attaches and releases on a real kernel: nothing may be left of them."""

import os

import pytest
from lab import cluster

pytestmark = pytest.mark.asyncio(loop_scope="session")

CYCLES = int(os.environ.get("DRAWBAR_HIL_CYCLES", "20"))
"""Each takes 4 s on an idle machine; the long run is 200."""
WARM_UP = 3
GROWTH_MAX_KIB = 2048
PLACES = ("/sys/bus/pci/devices", "/sys/class/nvme", "/sys/class/block", "/dev")


async def cycle(node, disk, number):
    device = cluster.Device(device=f"{disk.name}-{number}", serial=disk.serial)
    claim = await node.cluster.claim(device.device, device, node=node.name)
    await node.cluster.intend(claim, device, node=node.name)
    await node.chassis.plug(disk, "port-1")
    await node.cluster.say_attached(device, port="port-1")
    await node.cluster.visible(device)
    await node.cluster.deallocate(device.device)
    await node.cluster.begin_release(device)
    await node.cluster.released(device)
    await node.chassis.out(disk)
    await node.cluster.end_release(device)


async def memory_kib(node):
    lines = (await node.guest.read(f"/proc/{node.daemon.pid}/status")).splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


async def standing(node):
    """What there is: files that the daemon has open, and entries in sysfs and /dev."""
    places = (f"/proc/{node.daemon.pid}/fd", f"/proc/{node.daemon.pid}/task", *PLACES)
    return {place: len(await node.guest.names(place)) for place in places}


@pytest.mark.timeout(200 + CYCLES * 30)
async def test_nothing_is_left_of_many_attaches_and_releases(node):
    disk = await node.chassis.disk("disk-z")
    for number in range(WARM_UP):
        await cycle(node, disk, number)
    before, memory = await standing(node), await memory_kib(node)
    for number in range(WARM_UP, WARM_UP + CYCLES):
        await cycle(node, disk, number)
    after = await standing(node)
    # A thread that the kernel was asked in may not have ended yet, or a pooled one have been started.
    tasks = f"/proc/{node.daemon.pid}/task"
    assert after.pop(tasks) <= before.pop(tasks) + 4
    assert after == before
    assert await memory_kib(node) - memory < GROWTH_MAX_KIB
