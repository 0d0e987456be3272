"""What belongs to a card, and which slot it is in, where that is not obvious: ARI, and devices that are two ports."""

import json

import pytest
import pytest_asyncio
from lab import chassis, machine, waiting

pytestmark = pytest.mark.asyncio(loop_scope="session")

MACHINE = machine.Machine(name="worker-c", ports=1, paired_ports=True)
DEVICES, SLOTS = "/sys/bus/pci/devices", "/sys/bus/pci/slots"
PORTS = {"0000:00:10.0", "0000:00:10.1", "0000:00:11.0", "0000:00:11.1"}
CARD = "0000:01:00.0"
FUNCTIONS = 12


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def shown_guest(lab):
    async with lab.guest(MACHINE) as made:
        yield made


async def shown_cards(guest, drawbar):
    """Return the cards by their first functions, and the slots by their names, as `drawbar discover` shows them."""
    shown = json.loads(await guest.output(drawbar, "discover", "-o", "json", seconds=120))
    return {card["address"]: card for card in shown["cards"]}, {slot["name"]: slot for slot in shown["slots"]}


def assert_apart(cards):
    """Fail if a port is in a card with anything else."""
    for card in cards.values():
        assert len(card["functions"]) == 1 or PORTS.isdisjoint(card["functions"]), card


async def read_bus_number(guest, port):
    """Return the number of the bus below a port."""
    (bus,) = await guest.names(f"{DEVICES}/{port}/pci_bus")
    return bus.partition(":")[2]


async def test_a_slot_whose_address_names_two_ports_shows_two_cards(shown_guest, drawbar):
    guest = shown_guest
    assert (await guest.read(f"{SLOTS}/11/address")).strip() == "0000:00:10"
    # Linux makes one slot of a device, so the second port's slot is in its firmware node alone.
    assert "12" not in await guest.names(SLOTS)
    assert (await guest.read(f"{DEVICES}/0000:00:10.1/firmware_node/sun")).strip() == "12"
    cards, slots = await shown_cards(guest, drawbar)
    assert_apart(cards)
    assert slots["11"]["port"] == "0000:00:10.0"
    buses = [await read_bus_number(guest, port) for port in ("0000:00:10.0", "0000:00:10.1")]
    first, second = (cards[f"0000:{bus}:00.0"] for bus in buses)
    assert [(card["deviceClass"], card["slot"], len(card["functions"])) for card in (first, second)] == [
        ("nic", "11", 1),
        ("nic", None, 1),
    ]


async def test_two_hot_plug_ports_of_one_device_are_two_slots(lab, shown_guest, drawbar):
    guest = shown_guest
    plugs = chassis.Chassis(guest, lab.folder)
    disks = {f"pair-{number}": await plugs.disk(f"disk-{number}") for number in (3, 4)}
    for port, disk in disks.items():
        await plugs.plug(disk, port)
    buses = [await read_bus_number(guest, port) for port in ("0000:00:11.0", "0000:00:11.1")]
    for bus in buses:
        await waiting.until(lambda bus=bus: guest.names(f"{DEVICES}/0000:{bus}:00.0/nvme"))
    cards, slots = await shown_cards(guest, drawbar)
    assert_apart(cards)
    assert [slots[name]["address"] for name in ("13", "14")] == [f"0000:{bus}:00" for bus in buses]
    shown = [cards[f"0000:{bus}:00.0"] for bus in buses]
    assert [(card["slot"], card["serial"], len(card["functions"])) for card in shown] == [
        ("13", "SN-disk-3", 1),
        ("14", "SN-disk-4", 1),
    ]
    for disk in disks.values():
        await plugs.pull(disk)


async def test_virtual_functions_above_7_are_of_the_card_that_has_them(lab, shown_guest, drawbar):
    guest = shown_guest
    plugs = chassis.Chassis(guest, lab.folder)
    card = plugs.controller("disk-v", functions=FUNCTIONS)
    await plugs.plug(card, "port-1")
    await waiting.until(lambda: guest.names(f"{DEVICES}/{CARD}/nvme"))
    assert (await guest.read(f"{DEVICES}/{CARD}/ari_enabled")).strip() == "1"
    await guest.write(f"{DEVICES}/{CARD}/sriov_drivers_autoprobe", "0\n")
    await guest.write(f"{DEVICES}/{CARD}/sriov_numvfs", f"{FUNCTIONS}\n")
    cards, _ = await shown_cards(guest, drawbar)
    assert [address for address in cards if address.startswith("0000:01:")] == [CARD]
    numbers = [divmod(number, 8) for number in range(FUNCTIONS + 1)]
    wanted = [f"0000:01:{device:02x}.{function}" for device, function in numbers]
    assert sorted(cards[CARD]["functions"]) == wanted
    assert (cards[CARD]["slot"], cards[CARD]["serial"]) == ("1", card.serial)
    await plugs.pull(card)
