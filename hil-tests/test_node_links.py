"""Links as a real kernel shows them. QEMU's endpoints have one lane at 2.5 GT/s, so none can be narrower than it could."""

import pytest
from lab import handover, waiting

pytestmark = pytest.mark.asyncio(loop_scope="session")

DEVICE = "/sys/bus/pci/devices/0000:01:00.0"
WIDTHS = ("max_link_width", "current_link_width")


async def test_a_card_with_fewer_lanes_than_its_port_is_healthy(node):
    lent = await handover.attach_device(node, await node.chassis.disk("disk-l"), "port-1")
    port = (await node.guest.leads_to(DEVICE)).split("/")[-2]
    card = [(await node.guest.read(f"{DEVICE}/{name}")).strip() for name in WIDTHS]
    above = [(await node.guest.read(f"/sys/bus/pci/devices/{port}/{name}")).strip() for name in WIDTHS]
    assert (card, above) == (["1", "1"], ["32", "1"])

    async def read_health():
        return (await node.cluster.attachment(lent.device))["status"]["node"].get("health")

    assert await waiting.until(read_health) == "Healthy"
    await handover.give_back(node, lent)
