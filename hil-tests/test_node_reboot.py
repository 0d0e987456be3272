"""A machine that is reset while a claim is held."""

import pytest
from lab import cluster, waiting

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_after_a_reset_the_claim_has_its_disk_again(node):
    disk = await node.chassis.disk("disk-r")
    device = cluster.Device(device=disk.name, serial=disk.serial)
    claim = await node.cluster.claim("disk-r", device, node=node.name)
    await node.cluster.intend(claim, device, node=node.name)
    await node.chassis.plug(disk, "port-3")
    await node.cluster.say_attached(device, port="port-3")
    before = await node.cluster.visible(device)
    await node.cluster.pod("pod-r", "disk-r", node=node.name)
    await node.cluster.running_pod("pod-r")
    await node.reset()
    assert node.guest.boot_id != before["bootID"]
    seen = await waiting.until(
        lambda: node.cluster.visible(device), lambda condition: condition["bootID"] == node.guest.boot_id
    )
    assert seen["slot"] == "3"
    # CDI files are in memory and went; the kubelet prepares the claim again for the pod's new sandbox.
    await waiting.until(node.cdi_files)
    pod = await node.cluster.running_pod("pod-r")
    read = ("head", "-n", "1", "/dev/nvme0n1")
    await waiting.until(
        lambda: node.run_in_container(pod, *read), lambda done: done.output == "this is disk-r\n"
    )
    await node.cluster.end_pod("pod-r")
    await node.cluster.deallocate("disk-r")
    await node.cluster.begin_release(device)
    await node.cluster.wait_until_released(device)
    await node.chassis.out(disk)
    await node.cluster.end_release(device)
