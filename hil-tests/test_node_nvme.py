"""NVMe disks through the node daemon on a real kernel: from the port of the machine to a container, and back."""

import asyncio
import signal

import pytest
from lab import cluster, polling

pytestmark = pytest.mark.asyncio(loop_scope="session")


def described(disk):
    return cluster.Device(device=disk.name, serial=disk.serial)


async def attach(node, name, port):
    """A disk that is plugged in for a claim of its name, and visible; disk, device, and what the node says of it."""
    disk = await node.chassis.disk(name)
    device = described(disk)
    claim = await node.cluster.claim(name, device, node=node.name)
    await node.cluster.intend(claim, device, node=node.name)
    await node.chassis.plug(disk, port)
    await node.cluster.say_attached(device, port=port)
    return disk, device, await node.cluster.visible(device)


async def give_back(node, disk, device):
    """The node lets go of a disk first, then the fabric takes it."""
    await node.cluster.deallocate(disk.name)
    await node.cluster.begin_release(device)
    await node.cluster.released(device)
    await node.chassis.out(disk)
    await node.cluster.end_release(device)


@pytest.mark.short
async def test_a_disk_is_attached_read_through_its_cdi_device_and_released(node):
    disk, device, seen = await attach(node, "disk-a", "port-1")
    assert (seen["pciAddress"], seen["kernelDriver"], seen["slot"]) == ("0000:01:00.0", "nvme", "1")
    assert await node.cluster.claim_condition("disk-a", "visible") == "True"
    await node.cluster.pod("pod-a", "disk-a", node=node.name)
    pod = await node.cluster.running_pod("pod-a")
    assert "/dev/nvme0n1" in await node.device_nodes(pod)
    done = await node.contained(pod, "head", "-n", "1", "/dev/nvme0n1")
    assert (done.status, done.output) == (0, "this is disk-a\n"), done.errors
    assert (await node.contained(pod, "ls", "/dev/vda")).status != 0, "what the claim has not is not there"
    await node.cluster.end_pod("pod-a")
    assert await node.cdi_files() == []
    await give_back(node, disk, device)
    assert await node.slot("1") == ("0", "0")


@pytest.mark.short
async def test_two_disks_at_once_and_one_that_the_fabric_takes_without_a_word(node):
    (first, one, _), (second, other, _) = await asyncio.gather(
        attach(node, "disk-b", "port-1"), attach(node, "disk-c", "port-2")
    )
    # The attention button of its slot: after 5 s the kernel removes it, driver and all.
    await node.chassis.press(first)
    lost = await polling.until(
        lambda: node.cluster.condition(one, "Visible"), lambda found: found.get("status") == "False"
    )
    assert lost["reason"] == "DeviceLost"
    assert first.serial in lost["message"]
    kept = await node.cluster.condition(other, "Visible")
    assert kept["status"] == "True", "the other one is none of its business"
    await asyncio.gather(give_back(node, first, one), give_back(node, second, other))
    assert await node.slot("1") == await node.slot("2") == ("0", "0")


async def test_a_disk_that_comes_back_in_another_slot_is_known_by_its_serial_number(node):
    disk, device, seen = await attach(node, "disk-d", "port-1")
    await node.chassis.pull(disk)
    await polling.until(
        lambda: node.cluster.condition(device, "Visible"), lambda found: found.get("status") == "False"
    )
    await node.chassis.plug(disk, "port-4")
    again = await node.cluster.visible(device)
    assert (seen["slot"], again["slot"]) == ("1", "4")
    await give_back(node, disk, device)


async def test_a_disk_that_is_mounted_is_not_taken_away(node):
    disk, device, _ = await attach(node, "disk-e", "port-2")
    await node.guest.output("mkfs.ext4", "-q", "-F", "/dev/nvme0n1")
    await node.guest.make_folder("/mnt/e")
    await node.guest.output("mount", "/dev/nvme0n1", "/mnt/e")
    await node.cluster.deallocate("disk-e")
    await node.cluster.begin_release(device)
    said = await polling.until(
        lambda: node.cluster.condition(device, "Released"), lambda found: found.get("status") == "False"
    )
    assert "mounted at /mnt/e" in said["message"]
    assert await node.slot("2") == ("1", "1")
    await node.guest.output("umount", "/mnt/e")
    await node.cluster.released(device)
    await node.chassis.out(disk)
    await node.cluster.end_release(device)


async def test_a_daemon_that_is_killed_finds_what_it_had_prepared(node):
    disk, device, _ = await attach(node, "disk-f", "port-3")
    await node.cluster.pod("pod-f", "disk-f", node=node.name)
    pod = await node.cluster.running_pod("pod-f")
    files = await node.cdi_files()
    assert (await node.end_daemon(signal.SIGKILL)).status == -signal.SIGKILL
    await node.start_daemon()
    await node.ready()
    assert await node.cdi_files() == files
    done = await node.contained(pod, "head", "-n", "1", "/dev/nvme0n1")
    assert done.output == "this is disk-f\n"
    await node.cluster.end_pod("pod-f")
    await give_back(node, disk, device)
    assert (await node.end_daemon(signal.SIGTERM)).status == 0
    await node.start_daemon()
    await node.ready()
