"""Which functions belong to a device that leaves its slot."""

import pytest
from tests.scenes import kerneltrees

from drawbar.driver.node import classes, treatment
from drawbar.driver.node.discovery import reader
from drawbar.driver.node.treatment import observation

GPU = {"class_code": 0x030200, "vendor": 0x8086, "device": 0x0BDA, "driver": "xe"}
SATA = {"class_code": 0x010601, "vendor": 0x8086, "device": 0x2922, "driver": "ahci"}


def make_ports_of_one_device(tree):
    """Two root ports of one device; the slots have the address of the ports."""
    for number, bus in ((1, 0x81), (2, 0x82)):
        port = f"pci0000:80/0000:80:03.{number}"
        tree.port(port, bus=bus, kind=kerneltrees.ROOT_PORT, files={"label": f"SLOT {number}"})
        tree.function(f"{port}/0000:{bus:02x}:00.0", **GPU)
    tree.slot("1", "0000:80:03")


def make_root_bus(tree):
    """A slot on the bus of the root complex, as those of acpiphp, beside a controller of the mainboard."""
    tree.function("pci0000:80/0000:80:02.0", **SATA)
    tree.function("pci0000:80/0000:81:00.0", **GPU)
    tree.slot("1", "0000:81:00")


def make_bus_of_slots(tree, bridge=None):
    """A bus of conventional PCI with several slots."""
    tree.port("pci0000:80/0000:80:1e.0", bus=0x81, kind=bridge)
    for name, number in (("0", 0), ("1", 1), ("2", 2)):
        tree.function(f"pci0000:80/0000:80:1e.0/0000:81:0{number}.0", **GPU)
        tree.slot(name, f"0000:81:0{number}")


def make_bus_of_slots_below_express(tree):
    """Such a bus below a bridge from PCI Express."""
    make_bus_of_slots(tree, kerneltrees.BRIDGE_FROM_EXPRESS)


def make_card_with_ari(tree):
    """A port of PCI Express, and a card with a switch and functions of all device numbers."""
    tree.port("pci0000:80/0000:80:01.0", bus=0x81, kind=kerneltrees.ROOT_PORT)
    for address in ("0000:81:00.0", "0000:81:01.3"):
        tree.function(f"pci0000:80/0000:80:01.0/{address}", **GPU)
    tree.function("pci0000:80/0000:80:01.0/0000:81:00.0/0000:82:00.0", **GPU)
    tree.slot("1", "0000:81:00")


@pytest.mark.parametrize(
    ("make", "slot", "leaving"),
    [
        (make_ports_of_one_device, "1", {"0000:81:00.0"}),
        (make_root_bus, "1", {"0000:81:00.0"}),
        (make_bus_of_slots, "0", {"0000:81:00.0"}),
        (make_bus_of_slots, "2", {"0000:81:02.0"}),
        (make_bus_of_slots_below_express, "0", {"0000:81:00.0"}),
        (make_card_with_ari, "1", {"0000:81:00.0", "0000:81:01.3", "0000:82:00.0"}),
    ],
)
def test_a_device_leaves_with_the_functions_of_its_slot_and_no_others(make, slot, leaving, tmp_path):
    tree = kerneltrees.Tree(tmp_path / "sys")
    make(tree)
    card = reader.read(tree.root).card_of(min(leaving))
    order = treatment.Order(card=card, slot=slot)
    seen = observation.look(classes.Host.from_sysfs(tree.root), order, treatment.Progress())
    assert {function.address for function in seen.observed.functions} == leaving
