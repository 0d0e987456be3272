"""Which card is the device of an attachment."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.scenes import attachments as scenes
from tests.scenes import cards
from tests.scenes.cards import slot

from drawbar.driver.api import attachments
from drawbar.driver.node.attachments import matching
from drawbar.driver.node.attachments import witnesses as comparison
from drawbar.driver.node.inventory import index, model
from drawbar.fabric import witnesses
from drawbar.fabric.contract import DeviceClass
from drawbar.fabric.witnesses import Kind

DSN = "48-b0-2d-00-00-00-00-01"
GPU = {"device_class": DeviceClass.GPU, "vendor": 0x10DE, "device": 0x2330}
NVME = {"device_class": DeviceClass.NVME, "vendor": 0x144D, "device": 0xA824}


def function(slot, *, number=0, **what):
    bus = int(slot or 31)
    address = f"0000:{bus:02x}:00.{number}"
    path = f"devices/pci0000:00/0000:00:03.{bus % 8}/{address}"
    return cards.function(**{"address": address, "path": path, "slot": slot or None} | GPU | what)


def inventory(*functions, slots=()):
    slots_by_name = {each.name: each for each in slots}
    for function in functions:
        if function.slot:
            slots_by_name.setdefault(function.slot, slot(function.slot))
    return index.Inventory(functions=functions, slots=tuple(slots_by_name.values()))


def identity(*numbers, **what):
    """Return an identity with these numbers, each given as `kind=value`."""
    listed = tuple(
        attachments.DeviceIdentifier(
            kind=kind, value=witnesses.normal(Kind(kind), value), shared="shared" in more
        )
        for kind, value, *more in (number.split("=") for number in numbers)
    )
    return attachments.Identity(**({"device_class": "gpu", "identifiers": listed} | what))


def brief(outcome):
    match outcome:
        case matching.Found(card=card, by=by):
            return ("found", card.address, by)
        case matching.Wrong(card=card, was_recognised=again):
            return ("wrong", card.address, *(["recognised"] if again else []))
        case matching.Absent(slot=empty_slot, settles=settles):
            return ("absent", empty_slot.name if empty_slot else None, *(["settles"] if settles else []))
        case matching.Unpowered(slot=unpowered_slot):
            return ("unpowered", unpowered_slot.name)
        case matching.Ambiguous(cards=cards):
            return ("ambiguous", *(card.address for card in cards))
        case matching.Unrecognised(cards=cards):
            return ("unrecognised", *(card.address for card in cards))


MODEL_DSN = "00-00-00-00-00-2d-b0-48"
UUID, OTHER_UUID = "8d3ab7c0-14fe-9c02-6b1d-70a2e94f0c55", "8d3ab7c0-14fe-9c02-6b1d-70a2e94f0c56"
HIDDEN = function("2", dsn_hidden=True)
BARE_DISK = function("2", **NVME)
DISK = function("2", nvme="SN0001    ", **NVME)
DISK_WITH_DSN = function("2", nvme="SN0001", dsn=DSN, **NVME)
BARE_DISK_WITH_DSN = function("2", dsn=DSN, **NVME)
SAME_SERIAL = (function("1", nvme="SN1", **NVME), function("2", nvme="SN1", **NVME | {"vendor": 0x8086}))

SECOND, HERE, WRONG = (
    ("found", "0000:02:00.0", "identifier"),
    ("found", "0000:02:00.0", "slot"),
    ("wrong", "0000:02:00.0"),
)
BOTH = ("ambiguous", "0000:01:00.0", "0000:02:00.0")
EMPTY, ABSENT = ("absent", "2"), ("absent", None)
CXL = function("2", serial="0x1234", device_class=DeviceClass.CXL_MEMORY)
KNOWN = function("2", dsn=DSN)
THIS_GPU = identity(f"pcie-dsn={DSN}", pci_id="10de:2330")
THIS_DISK = identity("nvme-serial=SN0001", device_class="nvme", pci_id="144d:a824")
THAT_DISK = identity("nvme-serial=SN0002", device_class="nvme", pci_id="144d:a824")


def shows(slot, *numbers, **what):
    """Return a function that shows these numbers, each as `kind=value`."""
    listed = (number.split("=") for number in numbers)
    made = (witnesses.identifier(Kind(kind), value, "sysfs") for kind, value in listed)
    return function(slot, identifiers=tuple(each for each in made if each is not None), **what)


def make_empty_inventory(**changes):
    return inventory(slots=[slot("2", **changes)])


def disk(**fields):
    return identity(device_class="nvme", **fields)


CASES = {
    "by-serial-in-its-slot": (inventory(KNOWN), identity(serial=DSN), "2", SECOND),
    "by-serial-in-another-slot": (
        inventory(function("3", dsn=DSN)),
        identity(serial=DSN),
        "2",
        ("found", "0000:03:00.0", "identifier"),
    ),
    "by-serial-in-no-slot": (
        inventory(function("", dsn=DSN)),
        identity(serial=DSN),
        "",
        ("found", "0000:1f:00.0", "identifier"),
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
    "two-cards-with-one-number": (
        inventory(function("1", dsn=DSN), KNOWN),
        identity(serial=DSN),
        "",
        BOTH,
    ),
    "two-cards-with-one-number-and-a-slot": (
        inventory(function("1", dsn=DSN), KNOWN),
        identity(serial=DSN),
        "2",
        HERE,
    ),
    "two-cards-with-one-number-and-a-third-in-the-slot": (
        inventory(function("1", dsn=DSN), KNOWN, function("3")),
        identity(serial=DSN),
        "3",
        ("unrecognised", "0000:01:00.0", "0000:02:00.0"),
    ),
    "a-number-that-several-devices-have": (
        inventory(KNOWN),
        identity(f"pcie-dsn={DSN}=shared"),
        "",
        ("unrecognised", "0000:02:00.0"),
    ),
    "a-number-that-several-devices-have-and-a-slot": (
        inventory(KNOWN),
        identity(f"pcie-dsn={DSN}=shared"),
        "2",
        HERE,
    ),
    "a-shared-number-beside-one-of-its-own": (
        inventory(shows("2", "board-serial=1583124769917", "mac=b8:e9:24:c0:7d:10")),
        identity("board-serial=1583124769917=shared", "mac=b8:e9:24:c0:7d:10"),
        "",
        SECOND,
    ),
    "two-vendors-with-one-serial": (
        inventory(*SAME_SERIAL),
        disk(serial="SN1", pci_id="8086:a824"),
        "",
        SECOND,
    ),
    "two-cards-with-one-serial-of-neither-vendor": (
        inventory(*SAME_SERIAL),
        disk(serial="SN1", pci_id="1234:5678"),
        "",
        ABSENT,
    ),
    "two-cards-each-with-one-of-its-numbers": (
        inventory(function("1", dsn=DSN), shows("2", f"gpu-uuid={UUID}")),
        identity(f"pcie-dsn={DSN}", f"gpu-uuid={UUID}"),
        "",
        BOTH,
    ),
    "nothing-in-the-slot": (make_empty_inventory(present=False), identity(serial=DSN), "2", EMPTY),
    "no-such-slot": (inventory(), identity(serial=DSN), "9", ABSENT),
    "no-slot-known": (inventory(HIDDEN), identity(serial=DSN), "", ABSENT),
    "waits-for-power": (make_empty_inventory(powered=False), identity(serial=DSN), "2", ("unpowered", "2")),
    "an-empty-slot-without-power-waits-for-nothing": (
        make_empty_inventory(present=False, powered=False),
        identity(serial=DSN),
        "2",
        EMPTY,
    ),
    "a-slot-without-a-switch": (make_empty_inventory(powered=None), identity(serial=DSN), "2", EMPTY),
    "a-slot-name-that-the-kernel-gave-twice": (
        inventory(function("2"), slots=[slot("2"), slot("2-1", address="0000:b8:00")]),
        identity(pci_id="10de:2330"),
        "2",
        ABSENT,
    ),
    "another-dsn": (inventory(function("2", dsn="48-b0-2d-00-00-00-00-02")), THIS_GPU, "2", WRONG),
    "another-number-of-no-declared-kind": (
        inventory(function("2", dsn="48-b0-2d-00-00-00-00-02")),
        identity(serial=DSN),
        "2",
        HERE,
    ),
    "a-board-serial-is-no-dsn": (
        inventory(KNOWN),
        identity("board-serial=1654422009913", pci_id="10de:2330"),
        "2",
        HERE,
    ),
    "a-placeholder": (inventory(KNOWN), identity(serial="N/A", pci_id="0000:0000"), "2", HERE),
    "serial-hidden": (inventory(HIDDEN), THIS_GPU, "2", HERE),
    "serial-hidden-and-another-model": (
        inventory(HIDDEN),
        identity(serial=DSN, pci_id="10de:2331"),
        "2",
        WRONG,
    ),
    "its-number-and-another-model": (
        inventory(KNOWN),
        identity(f"pcie-dsn={DSN}", pci_id="10de:2331"),
        "2",
        WRONG,
    ),
    "a-part-number-of-another-chip": (
        inventory(HIDDEN),
        identity("part-number=2335-895-A1", pci_id="0000:0000"),
        "2",
        WRONG,
    ),
    "a-part-number-of-its-chip": (inventory(HIDDEN), identity("part-number=2330-885-A1"), "2", HERE),
    "serial-unknown": (inventory(KNOWN), identity(pci_id="10de:2330"), "2", HERE),
    "serial-unknown-and-no-slot": (inventory(KNOWN), identity(pci_id="10de:2330"), "", ABSENT),
    "only-the-class-is-known": (inventory(HIDDEN), identity(), "2", HERE),
    "another-class": (inventory(HIDDEN), identity(device_class="nic"), "2", WRONG),
    "classes-that-people-mix-up": (inventory(HIDDEN), identity(device_class="accelerator"), "2", HERE),
    "an-fpga-with-its-golden-image": (
        inventory(function("2", vendor=0x10EE, device=0xD004, device_class=DeviceClass.OTHER)),
        identity(device_class="fpga", pci_id="10ee:5004"),
        "2",
        HERE,
    ),
    "an-fpga-of-another-vendor": (
        inventory(function("2", vendor=0x8086, device=0x0B30, device_class=DeviceClass.FPGA)),
        identity(device_class="fpga", pci_id="10ee:5004"),
        "2",
        WRONG,
    ),
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
def test_the_device_is_recognised_by_an_identifier_else_by_slot_and_model(case):
    seen, wanted, slot_name, expected = CASES[case]
    assert brief(matching.match(seen, wanted, slot=slot_name)) == expected


def make_node_report(function, *, kind="sole-arrival", slot=None, fingerprint=None):
    """Return the report of a node that recognised the card of this function."""
    (card,) = inventory(function).cards
    shown = comparison.fingerprint(card) if fingerprint is None else fingerprint
    by = attachments.Recognition(kind=kind, fingerprint=shown)
    slot_name = function.slot if slot is None else slot
    return attachments.NodeReport(
        pci_address=card.address, boot_id="boot-1", slot=slot_name or "", recognised_by=by
    )


BARE = function("")
BARE_UUID = shows("", f"gpu-uuid={UUID}")
THIS_UUID = identity(f"gpu-uuid={UUID}", sole_arrival=True)
RECORDED = {
    "the-card-of-before": (
        inventory(BARE),
        identity(),
        make_node_report(BARE),
        ("found", "0000:1f:00.0", "record"),
    ),
    "another-card-at-its-place": (
        inventory(function("", dsn=DSN)),
        identity(sole_arrival=True),
        make_node_report(BARE),
        ("unrecognised",),
    ),
    "its-number-appears": (
        inventory(BARE_UUID),
        THIS_UUID,
        make_node_report(BARE),
        ("found", "0000:1f:00.0", "identifier"),
    ),
    "another-number-appears": (
        inventory(shows("", f"gpu-uuid={OTHER_UUID}")),
        THIS_UUID,
        make_node_report(BARE),
        ("wrong", "0000:1f:00.0", "recognised"),
    ),
    "another-card-shows-its-number": (
        inventory(function("2"), BARE_UUID),
        THIS_UUID,
        make_node_report(function("2")),
        ("wrong", "0000:02:00.0", "recognised"),
    ),
    "another-card-shows-its-number-and-the-first-is-gone": (
        inventory(BARE_UUID),
        THIS_UUID,
        make_node_report(function("2")),
        ("found", "0000:1f:00.0", "identifier"),
    ),
    "a-second-card-with-its-number": (
        inventory(shows("2", f"gpu-uuid={UUID}"), BARE_UUID),
        THIS_UUID,
        make_node_report(function("2"), kind="gpu-uuid"),
        ("found", "0000:02:00.0", "record"),
    ),
    "another-card-came-into-its-slot": (
        inventory(shows("2", f"gpu-uuid={OTHER_UUID}")),
        THIS_UUID,
        make_node_report(function("2"), kind="gpu-uuid"),
        WRONG,
    ),
    "another-card-came-to-its-address": (
        inventory(shows("", f"gpu-uuid={OTHER_UUID}")),
        identity(f"gpu-uuid={UUID}"),
        make_node_report(BARE, kind="gpu-uuid"),
        ABSENT,
    ),
}


@pytest.mark.parametrize("case", RECORDED)
def test_a_device_stays_the_card_that_was_recognised(case):
    seen, wanted, record, expected = RECORDED[case]
    assert brief(matching.match(seen, wanted, slot=record.slot, record=record)) == expected


@pytest.mark.parametrize("kind", ["gpu-uuid", "sole-arrival"])
def test_a_card_replacing_a_lost_one_is_identified_by_its_number(kind):
    card, record = shows("2", f"gpu-uuid={UUID}"), make_node_report(function("2"), kind=kind)
    lost = identity(f"gpu-uuid={OTHER_UUID}", sole_arrival=True)
    seen = inventory(card)
    held = matching.find_held_card(seen, lost, record)
    beside = matching.Neighbours(identities=(lost,), cards=frozenset({held} - {""}))
    assert brief(matching.match(seen, THIS_UUID, slot="2", neighbours=beside)) == SECOND
    after = matching.match(
        seen, lost, slot="2", record=record, neighbours=matching.Neighbours(identities=(THIS_UUID,))
    )
    assert brief(after) == WRONG


SOLE = identity(pci_id="10de:2330", sole_arrival=True)
OLD, NEW, NEWER, NIC = function("1"), function("2"), function("3"), {"device_class": DeviceClass.NIC}
ARRIVED = ("found", "0000:02:00.0", "sole-arrival")


def fingerprints(*functions):
    return frozenset(comparison.fingerprint(card) for card in inventory(*functions).cards)


def arrivals(*before, vanished=(), **what):
    return matching.Arrivals(before=fingerprints(*before), vanished=fingerprints(*vanished), **what)


def make_waiting_neighbours(wanted, slot=""):
    return matching.Neighbours(
        identities=(wanted,), waiting=(matching.Waiting(name="fab.x", identity=wanted, slot=slot),)
    )


TWO_IN_ONE = (function("2"), function("2", number=1))
ARRIVALS = {
    "the-one-new-card": (inventory(OLD, NEW), SOLE, arrivals(OLD), ARRIVED),
    "the-only-card-of-its-model": (
        inventory(NEW, function("3", **NVME), function("4", vendor=0x15B3, device=0x1021, **NIC)),
        SOLE,
        arrivals(),
        ARRIVED,
    ),
    "several-functions-are-one-card": (inventory(*TWO_IN_ONE), SOLE, arrivals(), ARRIVED),
    "two-new-cards": (
        inventory(OLD, NEW, NEWER),
        SOLE,
        arrivals(OLD),
        ("unrecognised", "0000:02:00.0", "0000:03:00.0"),
    ),
    "no-new-card": (inventory(OLD), SOLE, arrivals(OLD), ABSENT),
    "not-settled": (inventory(NEW), SOLE, arrivals(settled=False), ("absent", None, "settles")),
    "without-the-rule": (inventory(NEW), identity(pci_id="10de:2330"), arrivals(), ABSENT),
    "no-memory": (inventory(NEW), SOLE, None, ("unrecognised",)),
    "events-were-lost": (inventory(NEW), SOLE, arrivals(doubt="events were lost"), ("unrecognised",)),
    "it-had-vanished": (
        inventory(NEW),
        SOLE,
        arrivals(vanished=[NEW]),
        ("unrecognised", "0000:02:00.0"),
    ),
    "one-like-it-had-vanished-from-another-place": (
        inventory(NEW),
        SOLE,
        arrivals(vanished=[NEWER]),
        ("unrecognised", "0000:02:00.0"),
    ),
    "a-card-that-moved": (
        inventory(function("2", dsn=DSN)),
        SOLE,
        arrivals(function("1", dsn=DSN)),
        ABSENT,
    ),
    "a-number-that-the-whole-model-shows": (
        inventory(function("1", dsn=MODEL_DSN), function("2", dsn=MODEL_DSN)),
        SOLE,
        arrivals(function("1", dsn=MODEL_DSN)),
        ARRIVED,
    ),
    "another-model": (inventory(NEW), identity(pci_id="10de:2331", sole_arrival=True), arrivals(), ABSENT),
    "another-number": (
        inventory(function("2", dsn=DSN)),
        identity("pcie-dsn=48-b0-2d-00-00-00-00-02", sole_arrival=True),
        arrivals(),
        ABSENT,
    ),
    "narrowed-by-a-shared-number": (
        inventory(function("1", dsn=DSN), function("2", dsn=DSN)),
        identity(f"pcie-dsn={DSN}=shared", sole_arrival=True),
        arrivals(function("1", dsn=DSN)),
        ARRIVED,
    ),
    "nothing-to-compare": (
        inventory(NEW),
        identity(device_class="other", sole_arrival=True),
        arrivals(),
        ABSENT,
    ),
}


@pytest.mark.parametrize("case", ARRIVALS)
def test_the_sole_arrival_is_the_device(case):
    seen, wanted, came, expected = ARRIVALS[case]
    assert brief(matching.match(seen, wanted, arrivals=came)) == expected


OTHERS = {
    "a-rival": (NEW, make_waiting_neighbours(SOLE), "", ("unrecognised", "0000:02:00.0")),
    "a-rival-of-another-slot": (NEW, make_waiting_neighbours(SOLE, slot="9"), "", ARRIVED),
    "the-neighbours-card": (NEW, matching.Neighbours(cards=fingerprints(NEW)), "", ABSENT),
    "the-neighbours-card-in-the-slot": (NEW, matching.Neighbours(cards=fingerprints(NEW)), "2", WRONG),
    "the-others-card-with-our-number": (
        shows("2", f"gpu-uuid={UUID}"),
        matching.Neighbours(cards=fingerprints(shows("2", f"gpu-uuid={UUID}"))),
        "",
        ("unrecognised", "0000:02:00.0"),
    ),
    "the-other-proves-it": (
        shows("2", f"gpu-uuid={UUID}"),
        make_waiting_neighbours(identity(f"gpu-uuid={UUID}")),
        "",
        ABSENT,
    ),
    "the-other-proves-it-in-the-slot": (
        shows("2", f"gpu-uuid={UUID}"),
        make_waiting_neighbours(identity(f"gpu-uuid={UUID}")),
        "2",
        WRONG,
    ),
}


@pytest.mark.parametrize("case", OTHERS)
def test_a_card_of_another_attachment_is_not_the_device(case):
    shown, neighbours, slot_name, expected = OTHERS[case]
    wanted = THIS_UUID if case == "the-others-card-with-our-number" else SOLE
    outcome = matching.match(
        inventory(shown), wanted, slot=slot_name, arrivals=arrivals(), neighbours=neighbours
    )
    assert brief(outcome) == expected


WAITS, WAITS_IN_SLOT = ("absent", None, "settles"), ("absent", "2", "settles")
STARTING = function("2", driver="nvidia", unread=((Kind.GPU_UUID, model.Silence.NOT_INITIALISED),))
SLOW_NIC = {
    "device_class": DeviceClass.NIC,
    "vendor": 0x8086,
    "driver": "ice",
    "net_interfaces": ("e0",),
    "unread": ((Kind.VPD_SERIAL, model.Silence.VPD_SLOW),),
}
HIDDEN_NIC = SLOW_NIC | {"unread": ((Kind.VPD_SERIAL, model.Silence.NO_PRIVILEGE),)}
THIS_NIC = identity("vpd-serial=MT2", device_class="nic", pci_id="8086:2330")
FRESH = {
    "no-driver-yet": (function("2"), THIS_UUID, WAITS_IN_SLOT),
    "not-initialised": (STARTING, THIS_UUID, WAITS_IN_SLOT),
    "vital-product-data-is-being-read": (function("2", **SLOW_NIC), THIS_NIC, WAITS_IN_SLOT),
    "its-second-function-starts": (
        (function("2", **HIDDEN_NIC), function("2", number=1, **SLOW_NIC)),
        THIS_NIC,
        WAITS_IN_SLOT,
    ),
    "it-shows-its-number": (shows("2", f"gpu-uuid={UUID}", driver="nvidia"), THIS_UUID, SECOND),
    "it-shows-another-number": (shows("2", f"gpu-uuid={OTHER_UUID}", driver="nvidia"), THIS_UUID, WRONG),
    "of-another-model": (
        function("2", device=0x2331),
        identity(f"gpu-uuid={UUID}", pci_id="10de:2330"),
        WRONG,
    ),
    "of-a-guest": (function("2", driver="vfio-pci"), THIS_UUID, HERE),
    "without-addresses-no-driver-comes": (function("2", unassigned_bars=(0,)), THIS_UUID, HERE),
    "with-the-driver-of-another-maker": (function("2", driver="nouveau"), THIS_UUID, HERE),
    "without-the-privilege": (function("2", **HIDDEN_NIC), THIS_NIC, HERE),
    "of-kinds-that-the-fabric-does-not-show": (function("2"), identity(pci_id="10de:2330"), HERE),
    "of-a-serial-number-of-any-kind": (
        function("2", **NVME),
        disk(serial="SN0001", pci_id="144d:a824"),
        WAITS_IN_SLOT,
    ),
    "that-arrived-alone": (function("2"), THIS_UUID, WAITS),
    "that-arrived-alone-for-a-guest": (function("2", driver="vfio-pci"), THIS_UUID, ARRIVED),
}


@pytest.mark.parametrize("case", FRESH)
def test_a_fresh_card_that_may_show_a_number_is_waited_for_before_slot_and_arrival(case):
    shown, wanted, expected = FRESH[case]
    seen = inventory(*(shown if isinstance(shown, tuple) else (shown,)))
    fresh = {comparison.fingerprint(card) for card in seen.cards}
    slot_name = "" if expected in (WAITS, ARRIVED) else "2"
    assert brief(matching.match(seen, wanted, slot=slot_name, arrivals=arrivals(), fresh=fresh)) == expected
    later = {WAITS: ARRIVED, WAITS_IN_SLOT: HERE}.get(expected, expected)
    assert brief(matching.match(seen, wanted, slot=slot_name, arrivals=arrivals())) == later


AGAIN = {
    "shows-its-number": (shows("2", f"gpu-uuid={UUID}"), "gpu-uuid", SECOND),
    "may-soon-show-its-number": (BARE, "gpu-uuid", ("absent", None, "settles")),
    "shows-another-number": (shows("2", f"gpu-uuid={OTHER_UUID}"), "gpu-uuid", WRONG),
    "shows-none-in-its-slot": (function("2"), "slot", HERE),
    "shows-none-and-was-alone": (BARE, "sole-arrival", ("unrecognised", "0000:1f:00.0")),
}


@pytest.mark.parametrize("case", AGAIN)
def test_a_card_that_was_put_in_again_is_recognised_again(case):
    shown, kind, expected = AGAIN[case]
    shown = msgspec.structs.replace(shown, arrival=8)
    record = msgspec.structs.replace(make_node_report(shown, kind=kind), arrival=7)
    seen = inventory(shown)
    fresh = {comparison.fingerprint(card) for card in seen.cards} if "soon" in case else ()
    outcome = matching.match(
        seen, THIS_UUID, slot=record.slot, record=record, fresh=fresh, arrivals=arrivals(vanished=(shown,))
    )
    assert brief(outcome) == expected
    same = msgspec.structs.replace(record, arrival=8)
    before = matching.match(seen, THIS_UUID, slot=record.slot, record=same, fresh=fresh)
    assert before.card == outcome.card if expected in (SECOND, HERE, WRONG) else before != outcome


def test_a_fresh_card_that_was_recognised_is_not_waited_for():
    (card,) = inventory(function("2")).cards
    fresh = {comparison.fingerprint(card)}
    outcome = matching.match(
        inventory(function("2")), THIS_UUID, slot="2", record=make_node_report(function("2")), fresh=fresh
    )
    assert brief(outcome) == ("found", "0000:02:00.0", "record")


def test_a_number_of_two_attachments_proves_neither():
    neighbours = matching.Neighbours(identities=(THIS_GPU,))
    assert brief(matching.match(inventory(KNOWN), THIS_GPU, neighbours=neighbours)) == (
        "unrecognised",
        "0000:02:00.0",
    )


def attachment(*, slot="", connected="", seen="", boot_id="boot-1"):
    return scenes.attachment(
        identity=identity(slot=slot),
        connection=attachments.ConnectionRecord(slot=connected) if connected else None,
        node=attachments.NodeReport(slot=seen, boot_id=boot_id) if seen else None,
    )


@pytest.mark.parametrize(
    ("attached", "slot_name"),
    [
        (attachment(slot="1", connected="2", seen="3"), "3"),
        (attachment(slot="1", connected="2", seen="3", boot_id="boot-0"), "1"),
        (attachment(slot="1", connected="2"), "1"),
        (attachment(connected="2"), "2"),
        (attachment(), ""),
    ],
)
def test_the_slot_seen_in_this_boot_takes_precedence(attached, slot_name):
    assert matching.find_expected_slot(attached, "boot-1") == slot_name


def test_cards_of_the_model_that_show_no_number_are_named():
    silent = function("1", driver="vfio-pci")
    other, model_of_another = shows("2", f"gpu-uuid={OTHER_UUID}"), function("3", device=0x2331)
    wanted = identity(f"gpu-uuid={UUID}", pci_id="10de:2330")
    outcome = matching.match(inventory(silent, other, model_of_another), wanted)
    assert isinstance(outcome, matching.Absent)
    assert [card.address for card in outcome.silent] == [silent.address]


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
def test_a_card_that_shows_another_declared_number_is_never_the_device(cards, wanted, slot_name):
    functions = [function(name, dsn=serial, dsn_hidden=hidden) for name, serial, hidden in cards]
    outcome = matching.match(
        inventory(*functions),
        identity(*([f"pcie-dsn={wanted}"] if wanted else []), pci_id="10de:2330"),
        slot=slot_name,
    )
    if isinstance(outcome, matching.Found):
        assert not wanted or outcome.card.first.dsn in (wanted, None)
        assert outcome.by == "identifier" or outcome.card.first.slot == slot_name
