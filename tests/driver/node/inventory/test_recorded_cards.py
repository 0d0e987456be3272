"""What belongs to a card, and which slot it is in, on a recorded kernel: ARI, and devices that are two ports."""

import shutil
from pathlib import Path

import pytest
from tests.scenes import cards, inventories

from drawbar.driver.node.discovery import reader
from drawbar.fabric.contract import DeviceClass
from drawbar.mocks.sysfs import load_recording

RECORDING = Path(__file__).parents[3] / "cases" / "kernels" / "kernel-6.1-cards"
PORTS = ("0000:00:10.0", "0000:00:10.1", "0000:00:11.0", "0000:00:11.1")
FUNCTIONS = tuple(f"0000:01:{number >> 3:02x}.{number & 7}" for number in range(13))


@pytest.fixture
def root(tmp_path):
    load_recording(RECORDING, tmp_path / "sys")
    return tmp_path / "sys"


def test_each_card_is_in_its_own_slot(root):
    cards = [card for card in reader.read(root).cards if not card.address.startswith("0000:00:")]
    assert [(card.address, card.device_class, card.first.slot, len(card.functions)) for card in cards] == [
        ("0000:01:00.0", DeviceClass.NVME, "1", 13),
        ("0000:02:00.0", DeviceClass.NIC, "11", 1),
        ("0000:03:00.0", DeviceClass.NIC, None, 1),
        ("0000:04:00.0", DeviceClass.NVME, "13", 1),
        ("0000:05:00.0", DeviceClass.NVME, "14", 1),
    ]


def test_a_port_is_in_a_card_with_nothing_else(root):
    inventory = reader.read(root)
    for port in PORTS:
        card = inventory.card_of(port)
        assert [function.address for function in card.functions] == [port]


def test_a_slot_whose_address_names_two_ports_is_below_the_one_with_its_number(root):
    slots = {slot.name: slot for slot in reader.read(root).slots}
    assert [(name, slot.address, slot.port, slot.is_ambiguous) for name, slot in slots.items()] == [
        ("1", "0000:01:00", None, False),
        ("11", "0000:00:10", "0000:00:10.0", False),
        ("13", "0000:04:00", None, False),
        ("14", "0000:05:00", None, False),
    ]


def test_where_nothing_numbers_the_ports_no_card_is_in_their_slot(root):
    for port in PORTS[:2]:
        node = root / "bus/pci/devices" / port
        for tells in (node / "firmware_node/sun", node / "config"):
            tells.unlink()
    inventory = reader.read(root)
    (slot,) = (slot for slot in inventory.slots if slot.name == "11")
    assert (slot.port, slot.is_ambiguous) == (None, True)
    assert [inventory.card_of(address).first.slot for address in ("0000:02:00.0", "0000:03:00.0")] == [
        None
    ] * 2


@pytest.mark.parametrize("has_slots", [True, False], ids=["in a slot", "without slots"])
def test_virtual_functions_above_7_are_of_the_card_that_has_them(root, has_slots):
    if not has_slots:
        shutil.rmtree(root / "bus/pci/slots")
    inventory = reader.read(root)
    card = inventory.card_of(FUNCTIONS[0])
    assert tuple(function.address for function in card.functions) == FUNCTIONS
    assert {function.physical_function for function in card.functions[1:]} == {FUNCTIONS[0]}
    assert {inventory.card_of(address).address for address in FUNCTIONS} == {FUNCTIONS[0]}


def test_virtual_functions_above_7_that_come_later_join_their_card(root, tmp_path):
    now = reader.read(root)
    load_recording(RECORDING, tmp_path / "before" / "sys")
    wanted = frozenset()
    for address in FUNCTIONS[1:]:
        (tmp_path / "before/sys/bus/pci/devices" / address).unlink()
    current = inventories.read_known(tmp_path / "before" / "sys")
    assert len(current.snapshot().card_of(FUNCTIONS[0]).functions) == 1
    for address in FUNCTIONS[1:]:
        wanted |= current.find_concerned(f"/{now.by_address(address).path}")
    while wanted:
        _, wanted = current.take(inventories.read_subjects(root, wanted, current.slot_names))
    assert cards.of_any_arrival(current.snapshot()) == cards.of_any_arrival(now)
