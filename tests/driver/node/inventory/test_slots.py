"""Which slot a function sits in, where the address of a slot is that of ports, and where it is that of the card."""

import pytest
from tests.scenes import inventories, kerneltrees

from drawbar.driver.node.discovery import reader, subjects
from drawbar.driver.node.inventory import hotplug
from drawbar.fabric.contract import DeviceClass

GPU = {"class_code": 0x030200, "vendor": 0x8086, "device": 0x0BDA, "driver": "xe"}
ROOT = "pci0000:80"


def two_ports(tmp_path, *, slots=("1",), kind=kerneltrees.ROOT_PORT, **clues):
    """Create two root ports of one device, a GPU below each, and slots with the address of the ports.

    Args:
        tmp_path: an empty place.
        slots: their names.
        kind: of the ports; None without privilege.
        clues: what the ports show, each by the name of a file, or `slot_number`.
    """
    tree = kerneltrees.Tree(tmp_path / "sys")
    for index, (function, bus) in enumerate(((1, 0x81), (2, 0x82))):
        files = {name: texts[index] for name, texts in clues.items() if texts[index] is not None}
        number = files.pop("slot_number", 0)
        files = {name.replace("sun", "firmware_node/sun"): text for name, text in files.items()}
        path = f"{ROOT}/0000:80:03.{function}"
        tree.port(path, bus=bus, kind=kind, slot_number=number, files=files)
        tree.function(f"{path}/0000:{bus:02x}:00.0", **GPU)
    for name in slots:
        tree.slot(name, "0000:80:03")
    return tree


def cards(tree):
    """Return by address the slot and the other functions of each card that is no bridge."""
    return {
        card.address: (card.first.slot, [each.address for each in card.functions[1:]])
        for card in reader.read(tree.root).cards
        if card.device_class is not DeviceClass.BRIDGE
    }


CLUES = {
    "label": {"label": ("SLOT 1", "SLOT 2")},
    "label with other numbers": {"label": ("PCIe Slot 1 x16", "PCIe Slot 2 x16")},
    "firmware": {"sun": ("1", "2")},
    "capability": {"slot_number": (1, 2)},
    "firmware before a label": {"sun": ("1", "2"), "label": ("SLOT 2", "SLOT 1")},
    "label where two have one number": {"slot_number": (5, 5), "label": ("SLOT 1", "SLOT 2")},
}


@pytest.mark.parametrize("clues", CLUES.values(), ids=CLUES)
def test_two_ports_of_one_device_have_a_card_each_and_the_port_that_is_named_has_the_slot(tmp_path, clues):
    tree = two_ports(tmp_path, **clues)
    assert cards(tree) == {"0000:81:00.0": ("1", []), "0000:82:00.0": (None, [])}


@pytest.mark.parametrize("clues", CLUES.values(), ids=CLUES)
def test_two_slots_with_one_address_have_a_card_each(tmp_path, clues):
    tree = two_ports(tmp_path, slots=("1", "2"), **clues)
    assert cards(tree) == {"0000:81:00.0": ("1", []), "0000:82:00.0": ("2", [])}


@pytest.mark.parametrize(
    "clues",
    [{}, {"slot_number": (7, 7)}, {"sun": ("1", "1")}, {"label": ("SLOT 3", "SLOT 4")}],
    ids=["nothing", "one number twice", "the same twice", "other slots"],
)
def test_a_slot_of_which_nothing_tells_the_port_has_no_card(tmp_path, clues):
    tree = two_ports(tmp_path, **clues)
    assert cards(tree) == {"0000:81:00.0": (None, []), "0000:82:00.0": (None, [])}
    [slot] = reader.read(tree.root).slots
    assert (slot.is_ambiguous, slot.port, slot.location) == (True, None, None)


def test_the_number_that_the_kernel_adds_to_a_name_is_no_slots(tmp_path):
    tree = two_ports(tmp_path, slots=("1-2",), label=("SLOT 1", "SLOT 2"))
    assert cards(tree) == {"0000:81:00.0": ("1-2", []), "0000:82:00.0": (None, [])}


@pytest.mark.parametrize("name", ["001", "Slot 1", "PCIE-1", "P0-C1"])
def test_a_name_that_is_more_than_a_number_tells_the_port_by_its_last_one(tmp_path, name):
    tree = two_ports(tmp_path, slots=(name,), sun=("1", "2"))
    assert cards(tree) == {"0000:81:00.0": (name, []), "0000:82:00.0": (None, [])}


def test_of_two_slots_for_one_port_the_one_with_the_plain_name_counts(tmp_path):
    tree = two_ports(tmp_path, slots=("1-1", "1"), label=("SLOT 1", "SLOT 2"))
    assert cards(tree)["0000:81:00.0"] == ("1", [])


def test_ports_are_recognised_without_the_privilege_to_read_their_capabilities(tmp_path):
    tree = two_ports(tmp_path, kind=None, label=("SLOT 1", "SLOT 2"))
    assert cards(tree) == {"0000:81:00.0": ("1", []), "0000:82:00.0": (None, [])}


@pytest.mark.parametrize("kind", [kerneltrees.ROOT_PORT, None])
def test_no_root_port_belongs_to_a_card(tmp_path, kind):
    tree = two_ports(tmp_path, kind=kind)
    tree.function(f"{ROOT}/0000:80:03.0", class_code=0x060000, vendor=0x1022, device=0x14A4)
    for slot in (None, "1"):
        if slot is not None:
            tree.slot("9", "0000:80:03")
        for card in reader.read(tree.root).cards:
            assert len(card.functions) == 1
            assert card.first.slot is None or card.device_class is DeviceClass.GPU


@pytest.mark.parametrize("kind", [True, False], ids=["privileged", "not"])
def test_the_switch_of_a_card_is_in_the_slot_and_a_downstream_port_leads_to_one(tmp_path, kind):
    tree = kerneltrees.Tree(tmp_path / "sys")
    upper, lower = (kerneltrees.UPSTREAM_PORT, kerneltrees.DOWNSTREAM_PORT) if kind else (None, None)
    port = f"{ROOT}/0000:80:01.0"
    tree.port(port, bus=0x81, kind=kerneltrees.ROOT_PORT if kind else None)
    tree.port(f"{port}/0000:81:00.0", bus=0x82, kind=upper)
    for number in (0, 1):
        down = f"{port}/0000:81:00.0/0000:82:00.{number}"
        tree.port(down, bus=0x83 + number, kind=lower, files={"label": f"SLOT {number + 7}"})
        tree.function(f"{down}/0000:{0x83 + number:02x}:00.0", **GPU)
    tree.slot("1", "0000:81:00")
    tree.slot("7", "0000:82:00")
    tree.slot("8", "0000:82:00")
    assert cards(tree) == {"0000:83:00.0": ("7", []), "0000:84:00.0": ("8", [])}
    slots = {function.address: function.slot for function in reader.read(tree.root).functions}
    assert slots["0000:81:00.0"] == slots["0000:82:00.0"] == slots["0000:82:00.1"] == "1"
    assert slots["0000:80:01.0"] is None


def test_a_root_port_behind_a_vmd_is_a_port_in_a_domain_of_five_digits(tmp_path):
    tree = kerneltrees.Tree(tmp_path / "sys")
    vmd = "pci0000:e1/0000:e1:00.5"
    tree.function(vmd, class_code=0x010400, vendor=0x8086, device=0x28C0, driver="vmd")
    for function, bus in ((0, 0xE1), (1, 0xE2)):
        port = f"{vmd}/pci10000:e0/10000:e0:02.{function}"
        tree.port(port, bus=bus, kind=kerneltrees.ROOT_PORT, slot_number=20 + function)
        tree.function(
            f"{port}/10000:{bus:02x}:00.0", class_code=0x010802, vendor=0x144D, device=0xA824, driver="nvme"
        )
    tree.slot("20", "10000:e0:02")
    tree.slot("21", "10000:e0:02")
    expected = {"0000:e1:00.5": (None, []), "10000:e1:00.0": ("20", []), "10000:e2:00.0": ("21", [])}
    assert cards(tree) == expected
    assert list(cards(tree)) == list(expected)


def test_a_slot_of_ports_is_known_by_the_events_of_its_port_and_of_its_card(tmp_path):
    tree = two_ports(tmp_path, slots=("1", "2"), label=("SLOT 1", "SLOT 2"))
    current = inventories.read_known(tree.root)
    for below in ("", "/0000:82:00.0", "/0000:82:00.0/drm/card1"):
        concerned = current.find_concerned(f"/devices/{ROOT}/0000:80:03.2{below}")
        slots = {subject.name for subject in concerned if subject.kind is subjects.Kind.SLOT}
        assert slots == {"2"}


def test_a_slot_is_followed_when_its_ports_come_after_it(tmp_path):
    tree = two_ports(tmp_path, label=("SLOT 1", "SLOT 2"))
    whole = reader.read(tree.root)
    links = {address: tree.root / "bus/pci/devices" / address for address in ("0000:80:03.1", "0000:80:03.2")}
    targets = {address: link.readlink() for address, link in links.items()}
    for link in links.values():
        link.unlink()
    current = inventories.read_known(tree.root)
    for address, link in links.items():
        link.symlink_to(targets[address])
        todo = frozenset({subjects.Subject(subjects.Kind.FUNCTION, address)})
        for _ in range(4):
            observed = inventories.read_subjects(tree.root, todo, current.slot_names)
            _, todo = current.take(observed)
    assert current.snapshot() == whole


@pytest.mark.parametrize(
    "space",
    [b"", bytes(64), bytes(256), b"\xff" * 256, kerneltrees.port_space(4, 9)[:64]],
    ids=["nothing", "header", "zeros", "ones", "without privilege"],
)
def test_configuration_space_without_a_capability_has_no_port(space):
    assert hotplug.find_port(space) == hotplug.PortCapability()


def test_a_list_of_capabilities_that_runs_in_a_circle_ends():
    space = bytearray(256)
    space[0x34], space[0x41] = 0x40, 0x40
    assert hotplug.find_port(bytes(space)) == hotplug.PortCapability()


def test_a_slot_that_was_empty_at_boot_may_have_the_address_of_its_bus(tmp_path):
    tree = kerneltrees.Tree(tmp_path / "sys")
    tree.port("pci0021:00/0021:00:00.0", bus=1, kind=kerneltrees.ROOT_PORT)
    tree.function("pci0021:00/0021:00:00.0/0021:01:00.0", **GPU)
    tree.slot("GPU4", "0021:01")
    assert cards(tree) == {"0021:01:00.0": ("GPU4", [])}


@pytest.mark.parametrize("address", ["", "0000:80:03\0", "../../../etc", "0000:80:03.0", "x" * 5000])
def test_a_slot_without_an_address_in_its_form_is_none(tmp_path, address):
    tree = kerneltrees.Tree(tmp_path / "sys")
    tree.slot("1", address)
    assert hotplug.read_slots(str(tree.root)) == ()


def test_a_slots_name_that_is_not_utf8_is_text_in_every_reading(tmp_path):
    tree = kerneltrees.Tree(tmp_path / "sys")
    tree.function(f"{ROOT}/0000:81:00.0", **GPU)
    tree.slot("Riser \udcb0C", "0000:81:00")
    inventory = reader.read(tree.root)
    assert [slot.name for slot in inventory.slots] == ["Riser \N{REPLACEMENT CHARACTER}C"]
    assert cards(tree) == {"0000:81:00.0": ("Riser \N{REPLACEMENT CHARACTER}C", [])}
    assert inventories.read_known(tree.root).snapshot() == inventory
