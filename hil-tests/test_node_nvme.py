"""NVMe disks through the node daemon on a real kernel: from the port of the machine to a container, and back."""

import asyncio
import re
import signal

import pytest
from lab import cluster, waiting

pytestmark = pytest.mark.asyncio(loop_scope="session")

NAMESPACE = re.compile(r"/dev/nvme\d+n\d+")


def make_device(disk):
    return cluster.Device(device=disk.name, serial=disk.serial)


async def attach(node, name, port, *, disk=None, erase=False):
    """Attach a disk for a claim of its name; return disk, device and the node's report, once visible."""
    disk = disk or await node.chassis.disk(name)
    device = make_device(disk)
    claim = await node.cluster.claim(name, device, node=node.name)
    await node.cluster.intend(claim, device, node=node.name, erase=erase)
    await node.chassis.plug(disk, port)
    await node.cluster.say_attached(device, port=port)
    return disk, device, await node.cluster.visible(device)


async def give_back(node, disk, device):
    """Delete the disk's claim, and take the disk once the node has let go of it."""
    await node.cluster.deallocate(disk.name)
    await node.cluster.begin_release(device)
    await node.cluster.wait_until_released(device)
    await node.chassis.out(disk)
    await node.cluster.end_release(device)


async def reads(node, pod, disk):
    """Assert that the container reads of its disk what the node reads: in the lab, what the lab wrote."""
    (path,) = [path for path in await node.device_nodes(pod) if NAMESPACE.fullmatch(path)]
    done = await node.run_in_container(pod, "head", "-c", "512", path)
    assert (done.status, done.output) == (0, await node.guest.output("head", "-c", "512", path)), done.errors
    assert done.output.startswith(f"this is {disk.name}\n" if disk.file.is_file() else "")


@pytest.mark.short
@pytest.mark.hardware(nvme=1)
async def test_a_disk_is_attached_read_through_its_cdi_device_and_released(node):
    disk, device, seen = await attach(node, "disk-a", "port-1")
    assert seen.items() >= (node.chassis.where("port-1") | {"kernelDriver": "nvme"}).items()
    assert await node.cluster.claim_condition("disk-a", "visible") == "True"
    await node.cluster.pod("pod-a", "disk-a", node=node.name)
    pod = await node.cluster.running_pod("pod-a")
    await reads(node, pod, disk)
    assert (await node.run_in_container(pod, "ls", "/dev/vda")).status != 0, (
        "what the claim has not is not there"
    )
    await node.cluster.end_pod("pod-a")
    assert await node.cdi_files() == []
    await give_back(node, disk, device)
    assert await node.slot(seen["slot"]) == ("0", "0")


@pytest.mark.short
@pytest.mark.hardware(nvme=1, writes=True)
async def test_the_next_pod_reads_nothing_of_the_last_one(node):
    disk, device, _ = await attach(node, "disk-g", "port-1", erase=True)
    await node.cluster.pod("pod-g", "disk-g", node=node.name)
    pod = await node.cluster.running_pod("pod-g")
    (path,) = [path for path in await node.device_nodes(pod) if NAMESPACE.fullmatch(path)]
    write = f"printf %s 'a secret of pod-g' | dd of={path} bs=512 seek=9 conv=sync,fsync,notrunc status=none"
    done = await node.run_in_container(pod, "sh", "-c", write)
    assert done.status == 0, done.errors
    read = ("dd", f"if={path}", "bs=512", "skip=9", "count=1", "status=none")
    assert (await node.run_in_container(pod, *read)).output.startswith("a secret of pod-g")
    await node.cluster.end_pod("pod-g")
    await give_back(node, disk, device)
    disk, device, _ = await attach(node, "disk-g", "port-1", disk=disk, erase=True)
    await node.cluster.pod("pod-h", "disk-g", node=node.name)
    pod = await node.cluster.running_pod("pod-h")
    (path,) = [path for path in await node.device_nodes(pod) if NAMESPACE.fullmatch(path)]
    # Whatever an erase leaves of a disk, zeros or ones, it is the same in every byte.
    done = await node.run_in_container(
        pod, "sh", "-c", f"head -c 1048576 {path} | tr -d '\\000\\377' | wc -c"
    )
    assert (done.status, done.output.strip()) == (0, "0"), done.errors
    await node.cluster.end_pod("pod-h")
    await give_back(node, disk, device)


@pytest.mark.short
async def test_two_disks_at_once_and_one_that_the_fabric_takes_without_a_word(node):
    (first, pulled, _), (second, other, _) = await asyncio.gather(
        attach(node, "disk-b", "port-1"), attach(node, "disk-c", "port-2")
    )
    # The attention button of its slot: after 5 s the kernel removes it, driver and all.
    await node.chassis.press(first)
    lost = await waiting.until(
        lambda: node.cluster.condition(pulled, "Visible"),
        lambda condition: condition.get("status") == "False",
    )
    assert lost["reason"] == "DeviceLost"
    assert first.serial in lost["message"]
    kept = await node.cluster.condition(other, "Visible")
    assert kept["status"] == "True", "the other one is none of its business"
    await asyncio.gather(give_back(node, first, pulled), give_back(node, second, other))
    assert await node.slot("1") == await node.slot("2") == ("0", "0")


async def test_a_disk_that_comes_back_in_another_slot_is_known_by_its_serial_number(node):
    disk, device, seen = await attach(node, "disk-d", "port-1")
    await node.chassis.pull(disk)
    await waiting.until(
        lambda: node.cluster.condition(device, "Visible"),
        lambda condition: condition.get("status") == "False",
    )
    await node.chassis.plug(disk, "port-4")
    again = await node.cluster.visible(device)
    assert (seen["slot"], again["slot"]) == ("1", "4")
    await give_back(node, disk, device)


async def namespace_of(node, address):
    """Return the path of the block device of the NVMe function at an address."""
    folder = f"/sys/bus/pci/devices/{address}/nvme"
    (controller,) = await node.guest.names(folder)
    paths = [f"/dev/{name}" for name in await node.guest.names(f"{folder}/{controller}")]
    (path,) = [path for path in paths if NAMESPACE.fullmatch(path)]
    return path


@pytest.mark.hardware(nvme=1, writes=True)
async def test_a_disk_that_is_mounted_is_not_taken_away(node):
    disk, device, seen = await attach(node, "disk-e", "port-2")
    path, mount_point = await namespace_of(node, seen["pciAddress"]), f"{node.layout.configuration}/mounted"
    await node.guest.output("mkfs.ext4", "-q", "-F", path)
    await node.guest.make_folder(mount_point)
    await node.guest.output("mount", path, mount_point)
    await node.cluster.deallocate("disk-e")
    await node.cluster.begin_release(device)
    reported = await waiting.until(
        lambda: node.cluster.condition(device, "Released"),
        lambda condition: condition.get("status") == "False",
    )
    assert f"mounted at {mount_point}" in reported["message"]
    assert await node.slot(seen["slot"]) == ("1", "1")
    await node.guest.output("umount", mount_point)
    await node.cluster.wait_until_released(device)
    await node.chassis.out(disk)
    await node.cluster.end_release(device)


@pytest.mark.hardware(nvme=1)
async def test_a_killed_daemon_finds_its_prepared_claims_again(node):
    disk, device, _ = await attach(node, "disk-f", "port-3")
    await node.cluster.pod("pod-f", "disk-f", node=node.name)
    pod = await node.cluster.running_pod("pod-f")
    files = await node.cdi_files()
    assert (await node.end_daemon(signal.SIGKILL)).status == -signal.SIGKILL
    await node.start_daemon()
    await node.ready()
    assert await node.cdi_files() == files
    await reads(node, pod, disk)
    await node.cluster.end_pod("pod-f")
    await give_back(node, disk, device)
    assert (await node.end_daemon(signal.SIGTERM)).status == 0
    await node.start_daemon()
    await node.ready()
