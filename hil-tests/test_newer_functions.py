"""The virtual functions that a class asks for, on QEMU 10.0's network card and Linux 6.12: its driver does what is asked."""

import json
import sys

import pytest
from lab import handover, waiting

from drawbar.driver.node.attachments import functions

pytestmark = pytest.mark.asyncio(loop_scope="session")

DEVICES = "/sys/bus/pci/devices"
OWN = "0000:01:00.0"
GROUPS = [{"count": 2, "vlan": 120, "trust": True, "spoofCheck": False, "stableAddress": True}, {"count": 1}]
# Run on the node: what the card's driver does for each virtual function, by its number.
SHOWS = """
import json, sys
import pyroute2
with pyroute2.IPRoute() as route:
    (link,) = route.link("get", ifname=sys.argv[1], ext_mask=1)
settings = {}
for entry in link.get_attr("IFLA_VFINFO_LIST").get_attrs("IFLA_VF_INFO"):
    mac = entry.get_attr("IFLA_VF_MAC")
    settings[mac["vf"]] = {
        "mac": mac["mac"],
        "vlan": entry.get_attr("IFLA_VF_VLAN")["vlan"],
        "trust": entry.get_attr("IFLA_VF_TRUST")["trust"],
        "spoofchk": entry.get_attr("IFLA_VF_SPOOFCHK")["spoofchk"],
    }
print(json.dumps(settings))
"""


async def interface(node, address):
    (name,) = await waiting.until(lambda: node.guest.names(f"{DEVICES}/{address}/net"))
    return name


async def functions_of(node):
    return [name for name in await node.guest.names(DEVICES) if name.startswith("0000:01:") and name != OWN]


async def test_a_card_has_the_functions_of_its_class_before_it_is_visible_and_gives_them_back(newer_node):
    node = newer_node
    card = node.chassis.network("nic-f")
    lent = await handover.attach_device(node, card, "port-1", set_up={"virtualFunctions": {"groups": GROUPS}})
    made = await functions_of(node)
    assert len(made) == 3
    shown = json.loads(await node.guest.output(sys.executable, "-c", SHOWS, await interface(node, OWN)))
    wanted = [functions.stable_address(f"lab/nic-f/0/{number}") for number in range(2)]
    for number, address in enumerate(wanted):
        assert shown[str(number)] == {"mac": address, "vlan": 120, "trust": 1, "spoofchk": 0}
        # Its own driver asks the card for the address, and QEMU's card does not answer: it takes one by chance.
        link = (await node.guest.output("readlink", f"{DEVICES}/{OWN}/virtfn{number}")).strip()
        assert await interface(node, link.rpartition("/")[2])
    assert shown["2"]["vlan"] == 0
    assert (await node.guest.read(f"{DEVICES}/{OWN}/sriov_drivers_autoprobe")).strip() == "1"
    await handover.give_back(node, lent)
    assert await functions_of(node) == []
    assert OWN not in await node.guest.names(DEVICES)


async def test_a_card_that_cannot_have_as_many_fails_with_the_number_that_it_can_have(newer_node):
    node = newer_node
    card = node.chassis.network("nic-g")
    asked = {"virtualFunctions": {"groups": [{"count": 100}]}}
    lent = await handover.intend_attachment(node, card, "port-1", set_up=asked)
    await handover.connect(node, lent)
    reported = await waiting.until(
        lambda: node.cluster.condition(lent.device, "Visible"),
        lambda condition: condition.get("status") == "False",
    )
    assert reported["reason"] == "FunctionsNotSetUp"
    assert f"{OWN} can have 7" in reported["message"]
    await handover.give_back(node, lent)
