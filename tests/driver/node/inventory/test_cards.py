"""Which functions make a card, and how they are found."""

import msgspec
import pytest
from tests.scenes import cards, inventories, kerneltrees

from drawbar.driver.node.discovery import reader, subjects
from drawbar.driver.node.inventory import index, model
from drawbar.fabric.contract import DeviceClass
from drawbar.mocks import sysfs


def function(address, kind=DeviceClass.OTHER, **fields):
    return cards.function(address, kind, **fields)


def group_addresses(*functions, **parts):
    inventory = index.Inventory(functions=functions, **parts)
    return [[each.address for each in card.functions] for card in inventory.cards]


def test_the_functions_of_one_multi_function_device_are_a_card():
    gpu = function("0000:01:00.0", DeviceClass.GPU)
    audio = function("0000:01:00.1")
    other = function("0000:01:01.0")
    assert group_addresses(gpu, audio, other) == [["0000:01:00.0", "0000:01:00.1"], ["0000:01:01.0"]]


def test_everything_behind_one_slot_is_a_card_and_its_bridges_come_last():
    functions = [
        function("0000:01:00.0", DeviceClass.BRIDGE, slot="7"),
        function("0000:02:00.0", DeviceClass.BRIDGE, slot="7"),
        function("0000:03:00.0", DeviceClass.ACCELERATOR, slot="7"),
        function("0000:04:00.0", DeviceClass.ACCELERATOR, slot="7"),
    ]
    inventory = index.Inventory(functions=tuple(functions), slots=(cards.slot("7", address="0000:01:00"),))
    [card] = inventory.cards
    assert [each.address for each in card.functions] == [functions[n].address for n in (2, 3, 0, 1)]
    assert (card.address, card.device_class) == ("0000:03:00.0", DeviceClass.ACCELERATOR)
    assert card.slot == cards.slot("7", address="0000:01:00")


def test_a_card_is_known_by_the_function_that_computes_wherever_its_address_is():
    functions = [
        function("0000:14:00.0", DeviceClass.NIC, slot="7"),
        function("0000:14:00.1", DeviceClass.NIC, slot="7"),
        function("0000:16:00.0", DeviceClass.FPGA, slot="7"),
        function("0000:18:00.0", DeviceClass.NVME, slot="7"),
        function("0000:16:00.1", DeviceClass.FPGA, slot="7", physical_function="0000:16:00.0"),
    ]
    assert group_addresses(*functions) == [[functions[n].address for n in (2, 0, 1, 3, 4)]]


def test_virtual_functions_belong_to_the_card_of_their_physical_one():
    physical = function("0000:01:00.0", DeviceClass.NIC)
    virtual = [
        function(f"0000:01:{n:02x}.1", DeviceClass.NIC, physical_function=physical.address) for n in (1, 2)
    ]
    second = function("0000:01:00.1", DeviceClass.NIC)
    assert group_addresses(*virtual, physical, second) == [
        ["0000:01:00.0", "0000:01:00.1", "0000:01:01.1", "0000:01:02.1"]
    ]


def ari_card(tree, *, slot=None, functions=256, virtual=4):
    """Create a card with ARI below a root port; return the addresses of its functions.

    Its functions take all device numbers of its bus; the virtual functions belong to the last of them."""
    port = "pci0000:00/0000:00:02.0"
    tree.port(port, bus=1)
    ids = {"class_code": 0x120000, "vendor": 0x1DA3, "device": 0x1060}
    addresses = [f"0000:01:{number >> 3:02x}.{number & 7}" for number in range(functions)]
    for address in addresses:
        tree.function(f"{port}/{address}", **ids, driver="habanalabs", files={"ari_enabled": 1})
    for number in range(virtual):
        base = tree.function(f"{port}/0000:02:10.{number}", **ids, files={"ari_enabled": 0})
        tree.link(f"{base}/physfn", f"devices/{port}/{addresses[-1]}")
    if slot is not None:
        tree.slot(slot, "0000:01:00")
    return addresses


@pytest.mark.parametrize("slot", [None, "4"])
def test_a_card_with_ari_has_functions_on_all_device_numbers(tmp_path, slot):
    tree = kerneltrees.Tree(tmp_path / "sys")
    addresses = ari_card(tree, slot=slot)
    [_, card] = reader.read(tree.root).cards
    assert [each.address for each in card.functions[:256]] == addresses
    assert [each.physical_function for each in card.functions[256:]] == [addresses[-1]] * 4
    assert (card.address, card.first.slot) == ("0000:01:00.0", slot)


def test_without_ari_each_device_of_a_bus_is_a_card(tmp_path):
    tree = kerneltrees.Tree(tmp_path / "sys")
    tree.port("pci0000:00/0000:00:02.0", bus=1)
    for number in (0, 1):
        path = f"pci0000:00/0000:00:02.0/0000:01:{number:02x}.0"
        tree.function(path, class_code=0x0C0330, vendor=1, device=1, files={"ari_enabled": 0})
    assert [card.address for card in reader.read(tree.root).cards[1:]] == ["0000:01:00.0", "0000:01:01.0"]


def test_a_slot_that_appears_takes_in_all_functions_of_a_card_with_ari(tmp_path):
    tree = kerneltrees.Tree(tmp_path / "sys")
    ari_card(tree, functions=17)
    current = inventories.read_known(tree.root)
    tree.slot("4", "0000:01:00")
    todo = frozenset({subjects.SLOTS})
    for _ in range(4):
        _, todo = current.take(inventories.read_subjects(tree.root, todo, current.slot_names))
    assert current.snapshot() == reader.read(tree.root)
    [_, card] = current.snapshot().cards
    assert (len(card.functions), card.first.slot) == (21, "4")


def test_a_root_port_is_part_of_no_card():
    port = function(
        "0000:00:1c.0", DeviceClass.BRIDGE, secondary_bus=1, path="devices/pci0000:00/0000:00:1c.0"
    )
    beside = function("0000:00:1c.1", path="devices/pci0000:00/0000:00:1c.1")
    assert group_addresses(port, beside) == [["0000:00:1c.0"], ["0000:00:1c.1"]]


def test_a_card_of_nothing_but_bridges_is_distinguished_by_its_class():
    [card] = index.Inventory(functions=(function("0000:00:1c.0", DeviceClass.BRIDGE),)).cards
    assert card.device_class is DeviceClass.BRIDGE


def test_a_card_shows_the_memory_devices_of_its_functions_and_their_files():
    node = model.DeviceNode(path="/dev/cxl/mem0", major=247, minor=0, block=False, subsystem="cxl")
    memdev = model.Memdev(
        name="mem0",
        path="devices/x/mem0",
        serial=1,
        pci_address="0000:01:00.0",
        ram_bytes=1,
        pmem_bytes=0,
        numa_node=None,
        firmware=None,
        device_node=node,
    )
    memory = function("0000:01:00.0", DeviceClass.CXL_MEMORY, device_nodes=(node,))
    inventory = index.Inventory(functions=(memory, function("0000:02:00.0")), memdevs=(memdev,))
    card = inventory.card_of("0000:01:00.0")
    assert card is not None
    assert (card.memdevs, card.device_nodes) == ((memdev,), (node,))
    assert inventory.card_of("0000:03:00.0") is None
    assert [card.memdevs for card in inventory.cards] == [(memdev,), ()]


def test_cards_and_functions_of_longer_domains_come_last():
    functions = [function(address) for address in ("10000:00:00.0", "0000:ff:00.0", "0000:01:00.0")]
    entries = index.Entries()
    for each in functions:
        entries.put(each.address, each)
    assert [each.address for each in entries.list_functions()] == [
        "0000:01:00.0",
        "0000:ff:00.0",
        "10000:00:00.0",
    ]
    assert [card.address for card in entries.index().ordered] == [
        "0000:01:00.0",
        "0000:ff:00.0",
        "10000:00:00.0",
    ]


def test_a_snapshot_stays_as_it_was_when_functions_change():
    entries = index.Entries()
    entries.put("0000:01:00.0", function("0000:01:00.0", serial="A"))
    before = entries.index()
    entries.put("0000:01:00.0", function("0000:01:00.0", serial="B"))
    entries.put("0000:02:00.0", function("0000:02:00.0", serial="A"))
    after = entries.index()
    assert [each.address for each in before.by_serial("a")] == ["0000:01:00.0"]
    assert [each.address for each in after.by_serial("A ")] == ["0000:02:00.0"]
    entries.put("0000:02:00.0", None)
    entries.put("0000:02:00.0", None)
    assert entries.index().by_serial("A") == ()
    assert [card.address for card in entries.index().ordered] == ["0000:01:00.0"]


def test_a_function_that_moves_to_another_slot_leaves_its_card():
    entries = index.Entries()
    entries.put("0000:01:00.0", function("0000:01:00.0", slot="1"))
    entries.put("0000:01:00.1", function("0000:01:00.1", slot="1"))
    assert len(entries.index().ordered) == 1
    entries.put("0000:01:00.1", msgspec.structs.replace(entries.functions["0000:01:00.1"], slot="2"))
    assert [len(card.functions) for card in entries.index().ordered] == [1, 1]
    assert model.card_group(entries.functions["0000:01:00.1"]) == model.slot_group("2")


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("gpu-node", {"gpu": [1] * 8, "nic": [1] * 4}),
        ("fpga-node", {"fpga": [5, 1]}),
        ("cxl-node", {"cxl-memory": [1] * 3}),
        ("nvme-node", {"nvme": [1] * 4}),
    ],
)
def test_mocked_nodes_show_the_cards_that_are_in_them(name, sizes, tmp_path):
    inventory = reader.read(sysfs.build(name, tmp_path / "sys").root)
    shown = {}
    for card in inventory.cards:
        if card.device_class is not DeviceClass.BRIDGE:
            assert card.slot is not None
            assert card.slot.present
            shown.setdefault(card.device_class.value, []).append(len(card.functions))
    assert shown == sizes
    assert all(card is inventory.card_of(each.address) for card in inventory.cards for each in card.functions)


def test_cards_whose_slots_appear_after_they_were_read_are_all_there_with_their_slots():
    entries = index.Entries()
    addresses = {str(bus): f"0000:{bus:02x}:00.0" for bus in range(1, 21)}
    for address in addresses.values():
        entries.put(address, function(address))
    assert len(entries.index().ordered) == len(addresses)
    entries.slots = {name: cards.slot(name, address=address[:-2]) for name, address in addresses.items()}
    for name, address in addresses.items():
        entries.put(address, function(address, slot=name))
    assert [card.first.slot for card in entries.index().ordered] == list(addresses)
