"""Which card is the device of an attachment."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.scenes import attachments as scenes

from drawbar.driver.api import attachments
from drawbar.driver.node.attachments import matching
from drawbar.driver.node.inventory import index, model
from drawbar.fabric.contract import DeviceClass

DSN = "48-b0-2d-00-00-00-00-01"
GPU = {"device_class": DeviceClass.GPU, "vendor": 0x10DE, "device": 0x2330}
NVME = {"device_class": DeviceClass.NVME, "vendor": 0x144D, "device": 0xA824}


def function(slot, *, serial=None, dsn=None, number=0, nvme=None, **what):
    bus = int(slot or 31)
    described = GPU | what
    return model.PciFunction(
        **{
            "address": f"0000:{bus:02x}:00.{number}",
            "path": f"devices/pci0000:00/0000:00:03.{bus % 8}/0000:{bus:02x}:00.{number}",
            "class_code": 0x030200,
            "subsystem_vendor": None,
            "subsystem_device": None,
            "driver": None,
            "numa_node": None,
            "pcie_root": "pci0000:00",
            "link": model.Link(),
            "serial": serial or nvme or dsn,
            "dsn": dsn,
            "dsn_hidden": False,
            "iommu_group": None,
            "sriov": None,
            "physical_function": None,
            "slot": slot or None,
            "device_nodes": (),
            "net_interfaces": (),
            "nvme": (controller(nvme),) if nvme else (),
        }
        | described
    )


def controller(serial):
    return model.NvmeController(name="nvme0", state="live", model=None, firmware=None, serial=serial)


def slot(name, *, present=True, powered=True):
    return model.Slot(
        name=name,
        address=f"0000:{int(name):02x}:00",
        present=present,
        powered=powered,
        attention=None,
        speed_gts=None,
        max_speed_gts=None,
    )


def inventory(*functions, slots=()):
    places = {one.name: one for one in slots}
    for one in functions:
        if one.slot:
            places.setdefault(one.slot, slot(one.slot))
    return index.Inventory(functions=functions, slots=tuple(places.values()))


def identity(**what):
    return attachments.Identity(**({"device_class": "gpu"} | what))


def brief(found):
    match found:
        case matching.Found(card=card, by=by):
            return ("found", card.address, by)
        case matching.Wrong(card=card):
            return ("wrong", card.address)
        case matching.Absent(slot=place):
            return ("absent", place.name if place else None)
        case matching.Unpowered(slot=place):
            return ("unpowered", place.name)
        case matching.Ambiguous(cards=cards):
            return ("ambiguous", *(card.address for card in cards))


HIDDEN = function("2", dsn_hidden=True)
BARE_DISK = function("2", **NVME)
DISK = function("2", nvme="SN0001    ", **NVME)
DISK_WITH_DSN = function("2", nvme="SN0001", dsn=DSN, **NVME)
BARE_DISK_WITH_DSN = function("2", dsn=DSN, **NVME)
SAME_SERIAL = (function("1", nvme="1", **NVME), function("2", nvme="1", **NVME | {"vendor": 0x8086}))

CASES = {
    "by-serial-in-its-slot": (
        inventory(function("2", dsn=DSN)),
        identity(serial=DSN),
        "2",
        ("found", "0000:02:00.0", "serial"),
    ),
    "by-serial-in-another-slot": (
        inventory(function("3", dsn=DSN)),
        identity(serial=DSN),
        "2",
        ("found", "0000:03:00.0", "serial"),
    ),
    "by-serial-in-no-slot": (
        inventory(function("", dsn=DSN)),
        identity(serial=DSN),
        "",
        ("found", "0000:1f:00.0", "serial"),
    ),
    "in-another-notation": (
        inventory(function("2", dsn=DSN)),
        identity(serial="0x48b02d0000000001"),
        "2",
        ("found", "0000:02:00.0", "serial"),
    ),
    "padded": (
        inventory(DISK),
        identity(device_class="nvme", serial="sn0001"),
        "",
        ("found", "0000:02:00.0", "serial"),
    ),
    "by-a-cxl-serial": (
        inventory(function("2", serial="0x1234", device_class=DeviceClass.CXL_MEMORY)),
        identity(device_class="cxl-memory", serial="4660"),
        "",
        ("found", "0000:02:00.0", "serial"),
    ),
    "all-functions-of-one-card-are-one": (
        inventory(function("2", dsn=DSN), function("2", dsn=DSN, number=1)),
        identity(serial=DSN),
        "",
        ("found", "0000:02:00.0", "serial"),
    ),
    "two-cards-with-one-serial": (
        inventory(function("1", dsn=DSN), function("2", dsn=DSN)),
        identity(serial=DSN),
        "2",
        ("ambiguous", "0000:01:00.0", "0000:02:00.0"),
    ),
    "two-vendors-with-one-serial": (
        inventory(*SAME_SERIAL),
        identity(device_class="nvme", serial="1", pci_id="8086:a824"),
        "",
        ("found", "0000:02:00.0", "serial"),
    ),
    "two-cards-with-one-serial-of-neither-vendor": (
        inventory(*SAME_SERIAL),
        identity(device_class="nvme", serial="1", pci_id="1234:5678"),
        "",
        ("ambiguous", "0000:01:00.0", "0000:02:00.0"),
    ),
    "nothing-in-the-slot": (
        inventory(slots=[slot("2", present=False)]),
        identity(serial=DSN),
        "2",
        ("absent", "2"),
    ),
    "no-such-slot": (inventory(), identity(serial=DSN), "9", ("absent", None)),
    "no-slot-known": (inventory(HIDDEN), identity(serial=DSN), "", ("absent", None)),
    "waits-for-power": (
        inventory(slots=[slot("2", powered=False)]),
        identity(serial=DSN),
        "2",
        ("unpowered", "2"),
    ),
    "an-empty-slot-without-power-waits-for-nothing": (
        inventory(slots=[slot("2", present=False, powered=False)]),
        identity(serial=DSN),
        "2",
        ("absent", "2"),
    ),
    "a-slot-without-a-switch": (
        inventory(slots=[slot("2", powered=None)]),
        identity(serial=DSN),
        "2",
        ("absent", "2"),
    ),
    "another-serial": (
        inventory(function("2", dsn="48-b0-2d-00-00-00-00-02")),
        identity(serial=DSN, pci_id="10de:2330"),
        "2",
        ("wrong", "0000:02:00.0"),
    ),
    "serial-hidden": (
        inventory(HIDDEN),
        identity(serial=DSN, pci_id="10de:2330"),
        "2",
        ("found", "0000:02:00.0", "slot"),
    ),
    "serial-hidden-and-another-model": (
        inventory(HIDDEN),
        identity(serial=DSN, pci_id="10de:2331"),
        "2",
        ("wrong", "0000:02:00.0"),
    ),
    "serial-unknown": (
        inventory(function("2", dsn=DSN)),
        identity(pci_id="10de:2330"),
        "2",
        ("found", "0000:02:00.0", "slot"),
    ),
    "serial-unknown-and-no-slot": (
        inventory(function("2", dsn=DSN)),
        identity(pci_id="10de:2330"),
        "",
        ("absent", None),
    ),
    "only-the-class-is-known": (inventory(HIDDEN), identity(), "2", ("found", "0000:02:00.0", "slot")),
    "another-class": (inventory(HIDDEN), identity(device_class="nic"), "2", ("wrong", "0000:02:00.0")),
    "classes-that-people-mix-up": (
        inventory(HIDDEN),
        identity(device_class="accelerator"),
        "2",
        ("found", "0000:02:00.0", "slot"),
    ),
    "nothing-but-the-slot-is-known": (
        inventory(HIDDEN),
        identity(device_class="other"),
        "2",
        ("wrong", "0000:02:00.0"),
    ),
    "a-disk-without-its-driver": (
        inventory(BARE_DISK),
        identity(device_class="nvme", serial="SN0001", pci_id="144d:a824"),
        "2",
        ("found", "0000:02:00.0", "slot"),
    ),
    "a-disk-without-its-driver-and-with-another-number": (
        inventory(BARE_DISK_WITH_DSN),
        identity(device_class="nvme", serial="SN0001", pci_id="144d:a824"),
        "2",
        ("found", "0000:02:00.0", "slot"),
    ),
    "a-disk-with-its-driver-and-another-serial": (
        inventory(DISK_WITH_DSN),
        identity(device_class="nvme", serial="SN0002", pci_id="144d:a824"),
        "2",
        ("wrong", "0000:02:00.0"),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_device_is_known_by_serial_else_by_slot_and_kind(case):
    seen, wanted, place, expected = CASES[case]
    assert brief(matching.match(seen, wanted, slot=place)) == expected


def attachment(*, known="", connected="", seen="", boot_id="boot-1"):
    return scenes.attachment(
        identity=identity(slot=known),
        connection=attachments.ConnectionRecord(slot=connected) if connected else None,
        node=attachments.NodeReport(slot=seen, boot_id=boot_id) if seen else None,
    )


@pytest.mark.parametrize(
    ("found", "place"),
    [
        (attachment(known="1", connected="2", seen="3"), "3"),
        (attachment(known="1", connected="2", seen="3", boot_id="boot-0"), "1"),
        (attachment(known="1", connected="2"), "1"),
        (attachment(connected="2"), "2"),
        (attachment(), ""),
    ],
)
def test_what_was_seen_in_this_boot_counts_before_what_is_expected(found, place):
    assert matching.expected_slot(found, "boot-1") == place


serial_numbers = st.sampled_from([None, DSN, "48-b0-2d-00-00-00-00-02"])


@given(
    st.lists(
        st.tuples(st.sampled_from("1234"), serial_numbers, st.booleans()),
        max_size=4,
        unique_by=lambda row: row[0],
    ),
    serial_numbers,
    st.sampled_from(["", "1", "2"]),
)
def test_a_card_that_shows_another_serial_is_never_the_device(cards, wanted, place):
    functions = [function(name, dsn=serial, dsn_hidden=hidden) for name, serial, hidden in cards]
    found = matching.match(
        inventory(*functions), identity(serial=wanted or "", pci_id="10de:2330"), slot=place
    )
    if isinstance(found, matching.Found):
        assert not wanted or found.card.first.dsn in (wanted, None)
        assert found.by == "serial" or found.card.first.slot == place
