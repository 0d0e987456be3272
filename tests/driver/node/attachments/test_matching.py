"""Which card is the device of an attachment."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.scenes import attachments as scenes
from tests.scenes import cards
from tests.scenes.cards import slot

from drawbar.driver.api import attachments
from drawbar.driver.node.attachments import matching
from drawbar.driver.node.inventory import index
from drawbar.fabric.contract import DeviceClass

DSN = "48-b0-2d-00-00-00-00-01"
GPU = {"device_class": DeviceClass.GPU, "vendor": 0x10DE, "device": 0x2330}
NVME = {"device_class": DeviceClass.NVME, "vendor": 0x144D, "device": 0xA824}


def function(slot, *, number=0, **what):
    bus = int(slot or 31)
    address = f"0000:{bus:02x}:00.{number}"
    path = f"devices/pci0000:00/0000:00:03.{bus % 8}/{address}"
    return cards.function(**{"address": address, "path": path, "slot": slot or None} | GPU | what)


def inventory(*functions, slots=()):
    places = {place.name: place for place in slots}
    for function in functions:
        if function.slot:
            places.setdefault(function.slot, slot(function.slot))
    return index.Inventory(functions=functions, slots=tuple(places.values()))


def identity(**what):
    return attachments.Identity(**({"device_class": "gpu"} | what))


def brief(outcome):
    match outcome:
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

SECOND, HERE, WRONG = (
    ("found", "0000:02:00.0", "serial"),
    ("found", "0000:02:00.0", "slot"),
    ("wrong", "0000:02:00.0"),
)
BOTH = ("ambiguous", "0000:01:00.0", "0000:02:00.0")
EMPTY, ABSENT = ("absent", "2"), ("absent", None)
CXL = function("2", serial="0x1234", device_class=DeviceClass.CXL_MEMORY)
KNOWN = function("2", dsn=DSN)
THIS_GPU = identity(serial=DSN, pci_id="10de:2330")
THIS_DISK = identity(device_class="nvme", serial="SN0001", pci_id="144d:a824")
THAT_DISK = identity(device_class="nvme", serial="SN0002", pci_id="144d:a824")


def empty(**changes):
    return inventory(slots=[slot("2", **changes)])


def disk(**fields):
    return identity(device_class="nvme", **fields)


CASES = {
    "by-serial-in-its-slot": (inventory(KNOWN), identity(serial=DSN), "2", SECOND),
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
    "in-another-notation": (inventory(KNOWN), identity(serial="0x48b02d0000000001"), "2", SECOND),
    "padded": (inventory(DISK), disk(serial="sn0001"), "", SECOND),
    "by-a-cxl-serial": (inventory(CXL), identity(device_class="cxl-memory", serial="4660"), "", SECOND),
    "all-functions-of-one-card-are-one": (
        inventory(KNOWN, function("2", dsn=DSN, number=1)),
        identity(serial=DSN),
        "",
        SECOND,
    ),
    "two-cards-with-one-serial": (inventory(function("1", dsn=DSN), KNOWN), identity(serial=DSN), "2", BOTH),
    "two-vendors-with-one-serial": (
        inventory(*SAME_SERIAL),
        disk(serial="1", pci_id="8086:a824"),
        "",
        SECOND,
    ),
    "two-cards-with-one-serial-of-neither-vendor": (
        inventory(*SAME_SERIAL),
        disk(serial="1", pci_id="1234:5678"),
        "",
        BOTH,
    ),
    "nothing-in-the-slot": (empty(present=False), identity(serial=DSN), "2", EMPTY),
    "no-such-slot": (inventory(), identity(serial=DSN), "9", ABSENT),
    "no-slot-known": (inventory(HIDDEN), identity(serial=DSN), "", ABSENT),
    "waits-for-power": (empty(powered=False), identity(serial=DSN), "2", ("unpowered", "2")),
    "an-empty-slot-without-power-waits-for-nothing": (
        empty(present=False, powered=False),
        identity(serial=DSN),
        "2",
        EMPTY,
    ),
    "a-slot-without-a-switch": (empty(powered=None), identity(serial=DSN), "2", EMPTY),
    "another-serial": (inventory(function("2", dsn="48-b0-2d-00-00-00-00-02")), THIS_GPU, "2", WRONG),
    "serial-hidden": (inventory(HIDDEN), THIS_GPU, "2", HERE),
    "serial-hidden-and-another-model": (
        inventory(HIDDEN),
        identity(serial=DSN, pci_id="10de:2331"),
        "2",
        WRONG,
    ),
    "serial-unknown": (inventory(KNOWN), identity(pci_id="10de:2330"), "2", HERE),
    "serial-unknown-and-no-slot": (inventory(KNOWN), identity(pci_id="10de:2330"), "", ABSENT),
    "only-the-class-is-known": (inventory(HIDDEN), identity(), "2", HERE),
    "another-class": (inventory(HIDDEN), identity(device_class="nic"), "2", WRONG),
    "classes-that-people-mix-up": (inventory(HIDDEN), identity(device_class="accelerator"), "2", HERE),
    "nothing-but-the-slot-is-known": (inventory(HIDDEN), identity(device_class="other"), "2", WRONG),
    "a-disk-without-its-driver": (inventory(BARE_DISK), THIS_DISK, "2", HERE),
    "a-disk-without-its-driver-and-with-another-number": (
        inventory(BARE_DISK_WITH_DSN),
        THIS_DISK,
        "2",
        HERE,
    ),
    "a-disk-with-its-driver-and-another-serial": (inventory(DISK_WITH_DSN), THAT_DISK, "2", WRONG),
}


@pytest.mark.parametrize("case", CASES)
def test_the_device_is_known_by_serial_else_by_slot_and_kind(case):
    seen, wanted, place, expected = CASES[case]
    assert brief(matching.match(seen, wanted, slot=place)) == expected


def attachment(*, slot="", connected="", seen="", boot_id="boot-1"):
    return scenes.attachment(
        identity=identity(slot=slot),
        connection=attachments.ConnectionRecord(slot=connected) if connected else None,
        node=attachments.NodeReport(slot=seen, boot_id=boot_id) if seen else None,
    )


@pytest.mark.parametrize(
    ("attached", "place"),
    [
        (attachment(slot="1", connected="2", seen="3"), "3"),
        (attachment(slot="1", connected="2", seen="3", boot_id="boot-0"), "1"),
        (attachment(slot="1", connected="2"), "1"),
        (attachment(connected="2"), "2"),
        (attachment(), ""),
    ],
)
def test_what_was_seen_in_this_boot_counts_before_what_is_expected(attached, place):
    assert matching.expected_slot(attached, "boot-1") == place


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
    outcome = matching.match(
        inventory(*functions), identity(serial=wanted or "", pci_id="10de:2330"), slot=place
    )
    if isinstance(outcome, matching.Found):
        assert not wanted or outcome.card.first.dsn in (wanted, None)
        assert outcome.by == "serial" or outcome.card.first.slot == place
