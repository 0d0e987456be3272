"""The inventory of mocked hosts and of this host."""

import shutil
from pathlib import Path

import pytest
from tests.scenes import witnesses

from drawbar.driver.node import errors
from drawbar.driver.node.discovery import reader
from drawbar.driver.node.inventory import index, model
from drawbar.fabric.contract import DeviceClass
from drawbar.mocks.sysfs import MockDevice, SysfsTree

NVME = "0000:01:00.0"


CARDS = [
    MockDevice(device_class=DeviceClass.GPU, vendor=0x10DE, device=0x2330, serial="48-b0-2d-00-00-00-00-01"),
    MockDevice(
        device_class=DeviceClass.ACCELERATOR, vendor=0x1DA3, device=0x1020, serial="48-b0-2d-00-00-00-00-02"
    ),
    MockDevice(device_class=DeviceClass.FPGA, vendor=0x10EE, device=0x5000, serial="48-b0-2d-00-00-00-00-03"),
    MockDevice(device_class=DeviceClass.NVME, vendor=0x144D, device=0xA80A, serial="S4EVNX0"),
    MockDevice(
        device_class=DeviceClass.CXL_MEMORY, vendor=0x8086, device=0x0D93, serial="77", memory_bytes=1 << 34
    ),
    MockDevice(device_class=DeviceClass.NIC, vendor=0x15B3, device=0x1021, serial="48-b0-2d-00-00-00-00-04"),
    MockDevice(device_class=DeviceClass.OTHER, vendor=0x1234, device=0x11E8),
]
NODES = {
    DeviceClass.GPU: ["/dev/dri/card0", "/dev/dri/renderD128", "/dev/nvidia0"],
    DeviceClass.ACCELERATOR: ["/dev/accel/accel0"],
    DeviceClass.NVME: ["/dev/ng0n1", "/dev/nvme0", "/dev/nvme0n1"],
    DeviceClass.CXL_MEMORY: ["/dev/cxl/mem0"],
}


def test_a_mocked_host_shows_exactly_the_cards_that_were_put_in(tmp_path):
    tree = SysfsTree.create(tmp_path / "sys", slots=9)
    addresses = {card.device_class: tree.attach(slot, card) for slot, card in enumerate(CARDS, start=2)}
    inventory = reader.read(tree.root)
    shown = {f.address: f for f in inventory.functions if f.device_class is not DeviceClass.BRIDGE}
    assert sorted(shown) == sorted(addresses.values())
    for slot, card in enumerate(CARDS, start=2):
        function = shown[addresses[card.device_class]]
        assert function.device_class == card.device_class.value
        assert (function.vendor, function.device, function.slot) == (card.vendor, card.device, str(slot))
        assert function.driver == card.bound_driver
        assert [node.path for node in function.device_nodes] == NODES.get(card.device_class, [])
        assert function.net_interfaces == (("eth0",) if card.device_class is DeviceClass.NIC else ())
        if card.serial:
            assert witnesses.addresses(inventory, card) == [function.address]
    assert [(m.serial, m.ram_bytes) for m in inventory.memdevs] == [(77, 1 << 34)]
    assert [s.name for s in inventory.slots if s.present] == [str(slot) for slot in range(2, 9)]


def test_two_cards_that_claim_the_same_serial_are_both_listed(tmp_path):
    tree = SysfsTree.create(tmp_path / "sys")
    tree.attach(1, CARDS[1])
    tree.attach(2, CARDS[1])
    inventory = reader.read(tree.root)
    assert CARDS[1].serial is not None
    assert [f.address for f in inventory.all_by_serial(CARDS[1].serial)] == [NVME, "0000:02:00.0"]


def read_function(root: Path, address: str = NVME) -> model.PciFunction:
    """Return the function, which must be there."""
    function = reader.read_function(root, address)
    assert function is not None
    return function


def attach_card(tmp_path: Path, card: MockDevice) -> tuple[Path, Path]:
    tree = SysfsTree.create(tmp_path / "sys", slots=1)
    address = tree.attach(1, card)
    return tree.root, (tree.root / "bus/pci/devices" / address).resolve()


@pytest.mark.parametrize(
    ("attribute", "content"),
    [
        ("current_link_speed", "Unknown\n"),
        ("current_link_speed", "33 MHz PCI\n"),
        ("current_link_speed", "nan GT/s\n"),
        ("current_link_width", "63\n"),
        ("current_link_width", "255\n"),
        ("current_link_width", "0\n"),
        ("numa_node", "garbage\n"),
        ("numa_node", "-1\n"),
        ("numa_node", "\udcff\n"),
    ],
)
def test_nonsense_in_a_file_reads_as_unknown(attribute, content, tmp_path):
    root, device = attach_card(tmp_path, CARDS[0])
    (device / attribute).write_text(content, errors="surrogateescape")
    function = read_function(root)
    values = {
        "current_link_speed": function.link.speed_gts,
        "current_link_width": function.link.width,
        "numa_node": function.numa_node,
    }
    assert values[attribute] is None


def test_attributes_that_answer_with_an_errno_leave_the_function_readable(tmp_path):
    root, device = attach_card(tmp_path, CARDS[0])
    for path in [path for path in device.iterdir() if path.is_file() and not path.is_symlink()]:
        path.unlink()
        path.mkdir()  # reading it is EISDIR, for root as well
    (device / "still_here").touch()
    function = read_function(root)
    assert (function.vendor, function.device, function.device_class) == (0xFFFF, 0xFFFF, DeviceClass.GPU)
    assert (function.numa_node, function.serial, function.link) == (None, None, model.Link())


def test_ids_come_from_their_own_files_where_the_uevent_does_not_say(tmp_path):
    root, device = attach_card(tmp_path, CARDS[0])
    (device / "uevent").write_text("DRIVER=nvidia\nPCI_ID=zz\n")
    function = read_function(root)
    assert (function.vendor, function.device, function.device_class) == (0x10DE, 0x2330, DeviceClass.GPU)
    assert (function.subsystem_vendor, function.subsystem_device) == (0x1AF4, 0x1100)


def test_a_function_that_vanishes_while_it_is_listed_is_left_out(tmp_path):
    root, device = attach_card(tmp_path, CARDS[0])
    shutil.rmtree(device)
    assert [f.address for f in reader.read(root).functions] == ["0000:00:00.0", "0000:00:03.0"]


def test_virtual_functions_know_their_physical_one_and_its_slot(tmp_path):
    root, device = attach_card(tmp_path, CARDS[5])
    virtual = device.parent / "0000:01:10.1"
    virtual.mkdir()
    (virtual / "uevent").write_text("PCI_CLASS=20000\nPCI_ID=15B3:1018\n")
    (virtual / "physfn").symlink_to(f"../{device.name}")
    (virtual / "iommu_group").symlink_to("../../../../kernel/iommu_groups/17")
    (device / "virtfn0").symlink_to(f"../{virtual.name}")
    (device / "sriov_totalvfs").write_text("8\n")
    (device / "sriov_numvfs").write_text("1\n")
    (device / "numa_node").write_text("1\n")
    (root / "bus/pci/devices" / virtual.name).symlink_to(f"../../../{virtual.relative_to(root)}")
    inventory = reader.read(root)
    first, second = (inventory.by_address(directory.name) for directory in (device, virtual))
    assert first.sriov == model.Sriov(total_vfs=8, num_vfs=1, virtual_functions=(virtual.name,))
    assert (second.physical_function, second.slot, second.iommu_group) == (device.name, "1", 17)
    assert (first.numa_node, second.numa_node) == (1, 1)
    assert reader.read_function(root, virtual.name) == second


@pytest.mark.parametrize(
    ("driver", "nodes"), [("", ()), ("pci-stub", ()), ("vfio-pci", ("/dev/vfio/devices/vfio3",))]
)
def test_a_function_that_no_driver_of_its_class_has_shows_all_that_the_kernel_says_of_it(
    driver, nodes, tmp_path
):
    root, device = attach_card(tmp_path, CARDS[3])
    used = reader.read_function(root, NVME)
    shutil.rmtree(device / "nvme")
    lines = (device / "uevent").read_text().splitlines()
    lines = [line for line in lines if not line.startswith("DRIVER=")] + [f"DRIVER={driver}"] * bool(driver)
    (device / "uevent").write_text("\n".join(lines) + "\n")
    if driver == "vfio-pci":
        (device / "vfio-dev/vfio3").mkdir(parents=True)
        (device / "vfio-dev/vfio3/uevent").write_text("MAJOR=511\nMINOR=3\nDEVNAME=vfio/devices/vfio3\n")
    function = reader.read_function(root, NVME)
    assert (function.driver or "") == driver
    assert tuple(node.path for node in function.device_nodes) == nodes
    assert (function.dsn, function.link, function.iommu_group) == (used.dsn, used.link, used.iommu_group)
    assert function.link != model.Link()


def test_an_unbound_function_that_vanishes_while_it_is_read_is_left_out(tmp_path):
    root, device = attach_card(tmp_path, CARDS[3])
    for entry in device.iterdir():
        shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    assert reader.read_function(root, NVME) is None


def test_a_function_behind_a_switch_in_a_slot_is_in_that_slot(tmp_path):
    root, device = attach_card(tmp_path, CARDS[6])
    nested = device / "0000:05:00.0"
    nested.mkdir()
    (nested / "uevent").write_text("PCI_CLASS=30200\nPCI_ID=10DE:2330\n")
    (root / "bus/pci/devices/0000:05:00.0").symlink_to(f"../../../{nested.relative_to(root)}")
    function = read_function(root, "0000:05:00.0")
    assert function.slot == "1"
    (root / "bus/pci/slots/7").mkdir()
    (root / "bus/pci/slots/7/address").write_text("0000:05:00\n")  # the switch has slots of its own
    function = read_function(root, "0000:05:00.0")
    assert function.slot == "7"
    parent = read_function(root, device.name)
    assert parent.device_nodes == ()


def test_the_disk_of_a_multipath_nvme_controller_is_found_through_its_hidden_leg(tmp_path):
    root, device = attach_card(tmp_path, CARDS[3])
    controller = device / "nvme/nvme0"
    (controller / "nvme0n1").rename(controller / "nvme4c0n1")
    head = root / "devices/virtual/nvme-subsystem/nvme-subsys4/nvme4n1"
    head.mkdir(parents=True)
    (head / "uevent").write_text("MAJOR=259\nMINOR=3\nDEVNAME=nvme4n1\nDEVTYPE=disk\n")
    (head / "subsystem").symlink_to(root / "class/block")
    (root / "class/block/nvme4n1").symlink_to(head)
    function = read_function(root)
    assert [node.path for node in function.device_nodes] == ["/dev/ng0n1", "/dev/nvme0", "/dev/nvme4n1"]


def test_a_cxl_region_is_read(tmp_path):
    tree = SysfsTree.create(tmp_path / "sys")
    region = tree.root / "devices/platform/ACPI0017:00/root0/decoder0.0/region0"
    region.mkdir()
    for name, content in {
        "uuid": "7ff3d20e-6d8e-4b4a-9a4c-000000000000",
        "size": "0x10000000",
        "resource": "0x2d0000000",
        "interleave_ways": "2",
        "interleave_granularity": "256",
        "mode": "pmem",
        "commit": "1",
        "target0": "decoder2.0",
        "target1": "decoder3.0",
    }.items():
        (region / name).write_text(content + "\n")
    (tree.root / "bus/cxl/devices/region0").symlink_to(f"../../../{region.relative_to(tree.root)}")
    [cxl_region] = reader.read(tree.root).regions
    assert (cxl_region.size_bytes, cxl_region.start, cxl_region.mode, cxl_region.committed) == (
        1 << 28,
        0x2D0000000,
        "pmem",
        True,
    )
    assert cxl_region.targets == ("decoder2.0", "decoder3.0")


def test_a_directory_without_a_sysfs_tree_is_refused(tmp_path):
    with pytest.raises(errors.SysfsError, match="is not a sysfs tree"):
        reader.read(tmp_path)
    with pytest.raises(errors.SysfsError, match="is not a sysfs tree"):
        reader.read(tmp_path / "absent")


def test_a_host_without_pci_has_an_empty_inventory(tmp_path):
    (tmp_path / "bus").mkdir()
    assert reader.read(tmp_path) == index.Inventory(functions=())


def test_a_bus_that_cannot_be_listed_is_one_clear_error(tmp_path):
    (tmp_path / "bus/pci").mkdir(parents=True)
    (tmp_path / "bus/pci/devices").touch()
    with pytest.raises(errors.SysfsError, match="cannot list"):
        reader.read(tmp_path)


def test_this_host_shows_as_many_functions_as_its_bus_lists():
    bus = Path("/sys/bus/pci/devices")
    listed = sorted(entry.name for entry in bus.iterdir()) if bus.is_dir() else []
    assert [function.address for function in reader.read().functions] == listed
