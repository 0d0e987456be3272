"""What goes wrong with hardware on a mocked host: errors, links, surprise removal, cards that do not come up."""

import contextlib
import dataclasses
import gzip
import json
import queue
import socket
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.scenes import witnesses

from drawbar.driver.node import uevents
from drawbar.driver.node.discovery import reader
from drawbar.fabric.contract import DeviceClass
from drawbar.mocks.sysfs import Arrival, ImpossibleWorld, MockDevice, Severity, SysfsTree, build

RECORDINGS = Path(__file__).parents[1] / "cases" / "kernels" / "kernel-6.1-qemu"
NVME = MockDevice(device_class=DeviceClass.NVME, vendor=0x144D, device=0xA824, serial="SN0001")
GPU = MockDevice(
    device_class=DeviceClass.GPU, vendor=0x10DE, device=0x2330, serial="1654422000001"
).with_usual_link(32.0)
CXL = MockDevice(
    device_class=DeviceClass.CXL_MEMORY, vendor=0x8086, device=0x0D93, serial="4660", memory_bytes=1 << 29
)
FPGA = MockDevice(device_class=DeviceClass.FPGA, vendor=0x8086, device=0x0B2B, total_vfs=20, vf_driver="x")


class Listener:
    """Takes events off the socket while they come: the kernel's queue holds ten of them."""

    END = b"end"

    def __init__(self, path):
        self._path = str(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self._path)
        self._messages = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _listen(self):
        while message := self._socket.recv(65536):
            self._messages.put(message)

    def new_events(self):
        """Return the events since the last call, as (action, name)."""
        self._send(self.END)
        events = []
        while (message := self._messages.get(timeout=120)) != self.END:
            event = uevents.parse(message)
            events.append((event.action, event.devpath.rpartition("/")[2]))
        return events

    def close(self):
        self._send(b"")
        self._thread.join()
        self._socket.close()

    def _send(self, message):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(message, self._path)


@pytest.fixture
def listener(tmp_path):
    with contextlib.closing(Listener(tmp_path / "uevents")) as connected:
        yield connected


@pytest.fixture
def tree(tmp_path, listener):
    return SysfsTree.create(tmp_path / "sys", slots=3, uevent_socket=tmp_path / "uevents")


def read_recording(name):
    entries = json.loads(gzip.decompress((RECORDINGS / f"{name}.json.gz").read_bytes()))
    return {path.removeprefix("/sys/"): entry for path, entry in entries.items()}


def read(tree, path):
    return (tree.root / path).read_text()


def function(tree, slot):
    return f"bus/pci/devices/{tree.address(slot)}"


def slot_files(tree, slot):
    folder = tree.root / "bus/pci/slots" / str(slot)
    return {name: (folder / name).read_text() for name in ("adapter", "power", "address", "cur_bus_speed")}


# --- error counters ---


@pytest.mark.parametrize("name", ["aer_dev_correctable", "aer_dev_fatal", "aer_dev_nonfatal"])
def test_counters_without_errors_are_those_that_were_recorded(name, tree):
    tree.attach(1, GPU)
    recorded = read_recording("sysfs-0-empty")[f"devices/pci0000:00/0000:00:03.0/{name}"]["text"]
    assert read(tree, f"{function(tree, 1)}/{name}") == recorded
    assert read(tree, f"bus/pci/devices/0000:00:03.0/{name}") == recorded


def test_errors_are_counted_at_the_function_and_at_the_root_port(tmp_path, listener):
    tree = build("gpu-node", tmp_path / "sys", uevent_socket=tmp_path / "uevents")
    listener.new_events()
    tree.add_errors(7, Severity.CORRECTABLE, {"BadTLP": 1})
    tree.add_errors(7, Severity.CORRECTABLE, {"BadTLP": 2, "RxErr": 1})
    tree.add_errors(7, Severity.CORRECTABLE, {"BadTLP": 2}, at_port=True)
    tree.add_errors(7, Severity.FATAL, {"CmpltTO": 1})
    card = read(tree, f"{function(tree, 7)}/aer_dev_correctable")
    assert card.startswith("RxErr 1\nBadTLP 3\nBadDLLP 0\n")
    assert card.endswith("TOTAL_ERR_COR 4\n")
    assert "\nCmpltTO 1\n" in read(tree, f"{function(tree, 7)}/aer_dev_fatal")
    port = (tree.root / function(tree, 7)).resolve().parent
    assert "BadTLP 2\n" in (port / "aer_dev_correctable").read_text()
    root_port = tree.root / "bus/pci/devices/0000:90:01.0"
    assert (root_port / "aer_rootport_total_err_cor").read_text() == "6\n"
    assert (root_port / "aer_rootport_total_err_fatal").read_text() == "1\n"
    assert (root_port / "aer_dev_correctable").read_text().endswith("TOTAL_ERR_COR 0\n")
    assert (tree.root / "bus/pci/devices/0000:10:01.0/aer_rootport_total_err_cor").read_text() == "0\n"
    assert listener.new_events() == []


def test_a_card_that_comes_back_has_had_no_errors(tree):
    tree.attach(1, GPU)
    tree.add_errors(1, Severity.NONFATAL, {"ECRC": 5})
    tree.detach(1)
    tree.attach(1, GPU)
    assert read(tree, f"{function(tree, 1)}/aer_dev_nonfatal").endswith("TOTAL_ERR_NONFATAL 0\n")


# --- links ---


def test_a_link_that_degrades_says_so_at_both_ends_and_its_maximum_stays(tree, listener):
    tree.attach(1, GPU)
    listener.new_events()
    before = reader.read_function(tree.root, tree.address(1)).link
    assert (before.speed_gts, before.width) == (16.0, 16)  # the port's fastest; the card could do 32
    tree.set_link(1, speed_gts=8.0, width=4)
    now = reader.read_function(tree.root, tree.address(1)).link
    assert (now.speed_gts, now.width, now.max_speed_gts, now.max_width) == (8.0, 4, 32.0, 16)
    assert read(tree, "bus/pci/devices/0000:00:03.0/current_link_speed") == "8.0 GT/s PCIe\n"
    assert read(tree, "bus/pci/devices/0000:00:03.0/current_link_width") == "4\n"
    assert slot_files(tree, 1)["cur_bus_speed"] == "8.0 GT/s PCIe\n"
    tree.set_link(1)
    assert reader.read_function(tree.root, tree.address(1)).link == before
    assert listener.new_events() == []


def test_an_empty_slot_shows_the_link_that_was_recorded_of_one(tree):
    tree.attach(1, GPU)
    tree.detach(1)
    recorded = read_recording("sysfs-0-empty")
    port = "devices/pci0000:00/0000:00:03.0"
    for name in (f"{port}/current_link_speed", f"{port}/current_link_width", "bus/pci/slots/1/cur_bus_speed"):
        assert read(tree, name) == recorded[name]["text"]


# --- cards that are late, elsewhere, another's or never there ---


def test_a_card_without_power_is_present_as_recorded_and_comes_up_when_powered(tree, listener):
    tree.attach(3, CXL, arrival=Arrival.UNPOWERED)
    recorded = read_recording("sysfs-2-cxl")
    for name in ("adapter", "power"):
        assert slot_files(tree, 3)[name] == recorded[f"bus/pci/slots/3/{name}"]["text"]
    assert listener.new_events() == []
    discovered = reader.read(tree.root)
    assert discovered.by_serial("4660") is None
    assert [(slot.present, slot.powered) for slot in discovered.slots] == [(False, False)] * 2 + [
        (True, False)
    ]
    tree.power_on(3)
    assert reader.read(tree.root).by_serial("4660").slot == "3"
    assert listener.new_events()[0] == ("add", "0000:03:00.0")
    tree.power_on(3)
    assert listener.new_events() == []


@pytest.mark.parametrize(
    ("arrival", "present"), [(Arrival.NO_LINK, True), (Arrival.NOT_SEEN, False)], ids=str
)
def test_a_card_that_never_appears_leaves_a_powered_slot(tree, listener, arrival, present):
    tree.attach(1, GPU, arrival=arrival)
    tree.power_on(1)
    discovered = reader.read(tree.root)
    assert witnesses.addresses(discovered, GPU) == []
    assert (discovered.slots[0].present, discovered.slots[0].powered) == (present, True)
    tree.detach(1)
    assert listener.new_events() == []
    assert (slot_files(tree, 1)["adapter"], slot_files(tree, 1)["power"]) == ("0\n", "0\n")


def test_a_card_can_be_at_another_address_which_the_slot_and_the_port_tell(tree):
    assert tree.attach(1, GPU, address="0000:41:00.0") == "0000:41:00.0"
    assert tree.address(1) == "0000:41:00.0"
    inventory = reader.read(tree.root)
    (address,) = witnesses.addresses(inventory, GPU)
    assert (address, inventory.by_address(address).slot) == ("0000:41:00.0", "1")
    assert slot_files(tree, 1)["address"] == "0000:41:00\n"
    assert read(tree, "bus/pci/devices/0000:00:03.0/secondary_bus_number") == "65\n"
    tree.detach(1)
    assert slot_files(tree, 1)["address"] == "0000:01:00\n"
    assert tree.attach(1, GPU) == "0000:01:00.0"


def test_a_card_with_the_wrong_serial_is_found_by_that_one_alone(tree):
    other = dataclasses.replace(GPU, serial="1654422000099")
    tree.attach(1, other)
    discovered = reader.read(tree.root)
    assert witnesses.addresses(discovered, GPU) == []
    assert witnesses.addresses(discovered, other) == [tree.address(1)]


def test_a_card_whose_driver_does_not_bind_is_added_and_nothing_more(tree, listener):
    tree.attach(1, dataclasses.replace(NVME, driver=""))
    assert listener.new_events() == [("add", "0000:01:00.0")]
    function = reader.read(tree.root).by_address("0000:01:00.0")
    assert (function.driver, function.serial, function.device_nodes) == (None, None, ())


# --- surprise removal ---


def test_a_card_that_is_pulled_goes_with_the_events_of_an_orderly_removal(tree, listener):
    tree.attach(1, NVME)
    tree.attach(2, NVME)
    listener.new_events()
    tree.detach(1)
    orderly = listener.new_events()
    tree.surprise_remove(2)
    names = {"nvme1": "nvme0", "nvme1n1": "nvme0n1", "ng1n1": "ng0n1", "0000:02:00.0": "0000:01:00.0"}
    assert [(action, names[name]) for action, name in listener.new_events()] == orderly
    assert tree.list_attached_cards() == {}


def test_a_card_that_is_gone_answers_ones_until_the_kernel_notices(tree, listener):
    tree.attach(1, GPU)
    listener.new_events()
    tree.lose(1)
    assert set((tree.root / function(tree, 1) / "config").read_bytes()) == {0xFF}
    assert reader.read(tree.root).by_address(tree.address(1)).dsn is None
    assert slot_files(tree, 1)["adapter"] == "0\n"
    assert listener.new_events() == []
    tree.detach(1)
    assert listener.new_events()[-1] == ("remove", "0000:01:00.0")


# --- virtual functions ---


def test_virtual_functions_come_one_by_one_and_go_before_their_card(tree, listener):
    tree.attach(1, FPGA)
    listener.new_events()
    tree.set_vfs(1, 2)
    first = [("add", "0000:01:00.1"), ("change", "0000:01:00.1"), ("bind", "0000:01:00.1")]
    two = [(action, "0000:01:00.2") for action, _ in first]
    assert listener.new_events() == [*first, *two, ("change", "0000:01:00.0")]
    tree.detach(1)
    gone = listener.new_events()
    assert gone[:4] == [(action, f"0000:01:00.{n}") for n in (2, 1) for action in ("unbind", "remove")]
    assert gone[-1] == ("remove", "0000:01:00.0")
    assert not list((tree.root / "bus/pci/devices").glob("0000:01:*"))


def test_virtual_functions_beyond_the_seventh_have_a_device_number_of_their_own(tree):
    tree.attach(1, FPGA)
    tree.set_vfs(1, 9)
    discovered = reader.read(tree.root)
    owner = discovered.by_address("0000:01:00.0")
    assert owner.sriov.virtual_functions[6:] == ("0000:01:00.7", "0000:01:01.0", "0000:01:01.1")
    assert discovered.by_address("0000:01:01.1").slot == "1"


def test_the_number_of_virtual_functions_changes_only_over_zero(tree):
    tree.attach(1, FPGA)
    tree.set_vfs(1, 1)
    with pytest.raises(ImpossibleWorld, match="EBUSY"):
        tree.set_vfs(1, 2)
    with pytest.raises(ImpossibleWorld, match="ERANGE"):
        tree.set_vfs(1, 21)
    tree.set_vfs(1, 0)
    assert reader.read(tree.root).by_address("0000:01:00.0").sriov.virtual_functions == ()
    tree.set_vfs(1, 2)
    assert reader.read(tree.root).by_address("0000:01:00.0").sriov.num_vfs == 2


# --- CXL regions ---


def test_a_region_comes_with_its_memory_and_goes_without_a_trace(tree, listener):
    tree.attach(1, CXL)
    before = contents(tree)
    listener.new_events()
    assert tree.create_region([1]) == "region0"
    assert [event for event in listener.new_events() if event[1][:6] != "memory"] == [
        *(("add", "region0"), ("bind", "region0"), ("add", "dax_region0"), ("bind", "dax_region0")),
        *(("add", "dax0.0"), ("add", "node1"), ("bind", "dax0.0")),
    ]
    tree.destroy_region("region0")
    tree.destroy_region("region0")
    assert contents(tree) == before


def test_a_card_that_is_taken_out_leaves_its_region_without_a_target(tree):
    for slot in (1, 2):
        tree.attach(slot, CXL)
    tree.create_region([1, 2])
    tree.detach(2)
    [region] = reader.read(tree.root).regions
    assert (region.targets, region.committed, region.interleave_ways) == (("decoder2.0",), False, 2)
    assert not (tree.root / "bus/cxl/devices/region0/driver").exists()
    assert not (tree.root / "bus/dax/devices/dax0.0").exists()
    tree.destroy_region("region0")
    assert reader.read(tree.root).regions == ()


def contents(tree):
    """Return every file and link of the tree, except the files of drivers."""
    files = {}
    for path in tree.root.rglob("*"):
        if path.is_symlink():
            files[path] = str(path.readlink())
        elif path.is_file() and "/drivers/" not in str(path):
            files[path] = path.read_bytes()
    return files


# --- refusals ---


@pytest.mark.parametrize(
    ("act", "complaint"),
    [
        (lambda tree: tree.attach(2, GPU, address="0000:01:00.0"), "another's"),
        (lambda tree: tree.attach(2, GPU, address="0000:00:00.0"), "another's"),
        (lambda tree: tree.attach(2, GPU, address="0000:41:01.0"), "give 0000:<bus>:00.0"),
        (lambda tree: tree.attach(2, dataclasses.replace(GPU, link_width=3)), "no link runs"),
        (lambda tree: tree.attach(2, dataclasses.replace(GPU, total_vfs=256)), "0 to 255 virtual"),
        (lambda tree: tree.set_link(1, width=32), "no link runs"),
        (lambda tree: tree.set_link(1, speed_gts=32.0), "at most"),
        (lambda tree: tree.set_link(2), "is empty"),
        (lambda tree: tree.lose(2), "is empty"),
        (lambda tree: tree.power_on(2), "is empty"),
        (lambda tree: tree.set_link(3), "has not come up"),
        (lambda tree: tree.add_errors(1, Severity.FATAL, {"BadTLP": 1}), "no fatal PCI Express error"),
        (lambda tree: tree.add_errors(1, Severity.FATAL, {"TLP": -1}), "only grow"),
        (lambda tree: tree.set_vfs(1, 1), "0 to 0 virtual"),
        (lambda tree: tree.create_region([1]), "CXL memory"),
        (lambda tree: tree.create_region([]), "not 0"),
        (lambda tree: tree.create_region([4]), "no slot 4"),
    ],
)
def test_impossible_hardware_changes_are_refused_and_change_nothing(tree, act, complaint):
    tree.attach(1, GPU)
    tree.attach(3, CXL, arrival=Arrival.UNPOWERED)
    before = contents(tree), tree.list_attached_cards()
    with pytest.raises(ImpossibleWorld, match=complaint):
        act(tree)
    assert (contents(tree), tree.list_attached_cards()) == before


def test_regions_that_cannot_be_are_refused(tree):
    tree.attach(1, CXL)
    tree.attach(2, dataclasses.replace(CXL, memory_bytes=1 << 28))
    tree.attach(3, dataclasses.replace(CXL, memory_bytes=1000))
    for slots, complaint in (([1, 2], "differ"), ([1, 1], "twice"), ([3], "multiple of")):
        with pytest.raises(ImpossibleWorld, match=complaint):
            tree.create_region(slots)
    tree.create_region([1])
    with pytest.raises(ImpossibleWorld, match="destroy it first"):
        tree.create_region([1])
    assert tree.create_region([2]) == "region1"
    assert int(read(tree, "bus/cxl/devices/region1/resource"), 16) == 0x2_D000_0000 + CXL.memory_bytes


def test_errors_of_a_card_that_counts_none_can_only_be_the_ports(tree):
    tree.attach(1, dataclasses.replace(GPU, aer=False))
    with pytest.raises(ImpossibleWorld, match="counts no errors"):
        tree.add_errors(1, Severity.FATAL, {"TLP": 1})
    tree.add_errors(1, Severity.FATAL, {"TLP": 1}, at_port=True)
    assert read(tree, "bus/pci/devices/0000:00:03.0/aer_dev_fatal").endswith("TOTAL_ERR_FATAL 1\n")


# --- everything together ---

CARDS = (NVME, GPU, CXL, FPGA)
moves = st.lists(
    st.tuples(
        st.sampled_from(
            ["attach", "elsewhere", "unpowered", "power", "pull", "detach", "vfs", "region", "unregion"]
        ),
        st.integers(1, 3),
        st.sampled_from(CARDS),
    ),
    max_size=12,
)


def make(tree, move, slot, card):
    match move:
        case "attach":
            tree.attach(slot, card)
        case "elsewhere":
            tree.attach(slot, card, address=f"0000:5{slot}:00.0")
        case "unpowered":
            tree.attach(slot, card, arrival=Arrival.UNPOWERED)
        case "power":
            tree.power_on(slot)
        case "pull":
            tree.surprise_remove(slot)
        case "detach":
            tree.detach(slot)
        case "vfs":
            tree.set_vfs(slot, 3)
        case "region":
            tree.create_region([slot])
        case "unregion":
            tree.destroy_region("region0")


@settings(max_examples=15, deadline=None)
@given(moves)
def test_an_emptied_host_returns_to_its_initial_state(tmp_path_factory, sequence):
    tree = SysfsTree.create(tmp_path_factory.mktemp("host") / "sys", slots=3)
    before = contents(tree)
    for move, slot, card in sequence:
        with contextlib.suppress(ImpossibleWorld):
            make(tree, move, slot, card)
        discovered = reader.read(tree.root)
        assert len({each.address for each in discovered.functions}) == len(discovered.functions)
        links = [path for path in tree.root.rglob("*") if path.is_symlink()]
        assert [path for path in links if not path.exists()] == []
    for slot in (1, 2, 3):
        tree.detach(slot)
    tree.destroy_region("region0")
    assert contents(tree) == before
