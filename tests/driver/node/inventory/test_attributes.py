"""Cards as attributes: what claims select by, within the limits of ResourceSlices."""

import re
from pathlib import Path

import msgspec
import pytest

from drawbar.driver.node.discovery import reader
from drawbar.driver.node.inventory import attributes, model
from drawbar.mocks import sysfs

DOCUMENT = Path(__file__).parents[4] / "docs" / "attributes.md"
NAME = re.compile(r"([a-z0-9.]{1,63}/)?[A-Za-z_][A-Za-z0-9_]{0,31}")


@pytest.fixture
def cards(tmp_path):
    listed = []
    for name in ("gpu-node", "fpga-node", "nvme-node", "cxl-node"):
        listed += reader.read(sysfs.build(name, tmp_path / name / "sys").root).cards
    return {card.device_class.value: card for card in listed}


def test_a_disk_has_attributes_of_location_and_model(cards):
    assert attributes.from_card(cards["nvme"]) == {
        "resource.kubernetes.io/pcieRoot": "pci0000:40",
        "resource.kubernetes.io/pciBusID": cards["nvme"].address,
        "resource.kubernetes.io/numaNode": 0,
        "class": "nvme",
        "serial": cards["nvme"].first.serial,
        "pciVendorID": "0x144d",
        "pciDeviceID": "0xa824",
        "pciSubsystemVendorID": "0x1af4",
        "pciSubsystemDeviceID": "0x1100",
        "driver": "nvme",
        "slot": cards["nvme"].slot.name,
        "physicalFunctions": 1,
        "maxLinkSpeedMTs": 16_000,
        "maxLinkWidth": cards["nvme"].first.link.max_width,
        "model": "Drawbar Mock NVMe",
        "firmware": "1.0",
    }


def test_memory_sizes_are_in_bytes(cards):
    values = attributes.from_card(cards["cxl-memory"])
    assert (values["volatileMemoryBytes"], values["persistentMemoryBytes"]) == (2 << 30, 0)
    assert values["firmware"] == "BWFW VERSION 00"


def test_a_cxl_device_has_one_serial_whether_its_driver_is_bound_or_not(cards):
    card = cards["cxl-memory"]
    unbound = msgspec.structs.replace(card.first, serial=card.first.dsn, driver=None)
    bare = msgspec.structs.replace(card, functions=(unbound,), memdevs=())
    assert card.serial == bare.serial == card.first.dsn
    assert attributes.from_card(bare)["serial"] == card.serial


def test_unknown_attributes_are_left_out(cards):
    card = cards["gpu"]
    first = msgspec.structs.replace(
        card.first,
        address="10000:01:00.0",
        numa_node=None,
        serial="S" * 65,
        driver="",
        link=model.Link(),
        slot=None,
    )
    values = attributes.from_card(msgspec.structs.replace(card, functions=(first,)))
    assert not {"serial", "driver", "slot", "maxLinkSpeedMTs", "maxLinkWidth"} & set(values)
    assert not {attributes.PCI_BUS_ID, attributes.NUMA_NODE} & set(values)
    assert values[attributes.PCIE_ROOT] == card.first.pcie_root


def test_every_attribute_is_documented_and_within_the_limits(cards):
    documented = set(re.findall(r"`([^`\s]+)`", DOCUMENT.read_text()))
    for card in cards.values():
        values = attributes.from_card(card)
        assert len(values) <= 31  # and a capacity
        assert set(values) <= documented
        assert all(NAME.fullmatch(name) for name in values)
        assert values["class"] == card.device_class.value
