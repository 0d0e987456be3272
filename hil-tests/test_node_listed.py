"""On real hardware alone: every listed device, of whatever class, makes the way to a pod and back."""

import pytest
from lab import cluster

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.hardware(each=True)
async def test_a_listed_device_is_attached_prepared_for_a_pod_and_released(node, listed):
    card = node.chassis.card("listed")
    device = cluster.Device(device=card.name, device_class=card.device_class, serial=card.serial)
    claim = await node.cluster.claim(card.name, device, node=node.name)
    await node.cluster.intend(claim, device, node=node.name)
    await node.chassis.plug(card, "")
    await node.cluster.say_attached(device)
    seen = await node.cluster.visible(device)
    assert seen["pciAddress"] in await node.guest.names("/sys/bus/pci/devices")
    assert await node.cluster.claim_condition(card.name, "visible") == "True"
    await node.cluster.pod("pod-listed", card.name, node=node.name)
    await node.cluster.running_pod("pod-listed")
    assert len(await node.cdi_files()) == 1
    await node.cluster.end_pod("pod-listed")
    assert await node.cdi_files() == []
    await node.cluster.deallocate(card.name)
    await node.cluster.begin_release(device)
    await node.cluster.wait_until_released(device)
    assert seen["pciAddress"] not in await node.guest.names("/sys/bus/pci/devices")
    await node.chassis.out(card)
    await node.cluster.end_release(device)
    assert await node.chassis.list_attached_devices() == ()
