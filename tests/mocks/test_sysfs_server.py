"""What the mocked host `server` and its cards show: as kernels show slots of two ports, ARI, VMD, switchdev, partitions and vfio."""

import dataclasses

import pytest

from drawbar.driver.node import classes, uevents
from drawbar.driver.node.discovery import devices, reader
from drawbar.driver.node.uevents import sources
from drawbar.fabric.contract import DeviceClass
from drawbar.mocks.sysfs import ImpossibleWorld, MockDevice, SysfsTree

GAUDI = MockDevice(
    device_class=DeviceClass.ACCELERATOR,
    vendor=0x1DA3,
    device=0x1060,
    serial="00-00-00-00-00-00-12-34",
    ari=True,
    further=(MockDevice(device_class=DeviceClass.NIC, vendor=0x1DA3, device=0x1061, driver=""),) * 23,
)
PORT = MockDevice(device_class=DeviceClass.NIC, vendor=0x8086, device=0x0D58, driver="i40e")
N3000 = MockDevice(
    device_class=DeviceClass.FPGA,
    vendor=0x8086,
    device=0x0B30,
    serial="00-00-00-00-00-00-30-00",
    switch=True,
    further=(
        PORT,
        dataclasses.replace(PORT, beside=True),
        PORT,
        dataclasses.replace(PORT, beside=True),
    ),
)
INSTINCT = MockDevice(device_class=DeviceClass.GPU, vendor=0x1002, device=0x74A1, code=0x120000, partitions=8)
H100 = MockDevice(device_class=DeviceClass.GPU, vendor=0x10DE, device=0x2330, minor=3)
SWITCHDEV = MockDevice(device_class=DeviceClass.NIC, vendor=0x15B3, device=0x1021, representors=3)
DISK = MockDevice(device_class=DeviceClass.NVME, vendor=0x144D, device=0xA824, serial="S1")


@pytest.fixture
def tree(tmp_path):
    return SysfsTree.create(tmp_path / "sys", layout="server")


def read_cards_by_slot(tree):
    """Return by slot the card in it and what a container gets of it: files, interfaces and what is missing."""
    host, result = classes.Host.from_sysfs(tree.root), {}
    for card in reader.read(tree.root).cards:
        if card.first.slot is not None:
            kind = classes.by_name(card.device_class)
            edits = kind.edits(card.bare, host)
            files = [node.path for node in edits.device_nodes]
            interfaces = [each.host_name for each in edits.net_devices]
            result[card.first.slot] = (card, files, interfaces, kind.missing_requirements(card))
    return result


def test_two_slots_of_one_device_have_a_card_each(tree):
    for slot in (1, 2):
        tree.attach(slot, DISK if slot == 1 else dataclasses.replace(DISK, serial="S2"))
    slots = {slot.name: (slot.address, slot.port) for slot in reader.read(tree.root).slots}
    assert slots["1"] == ("0000:80:03", "0000:80:03.1")
    assert slots["2"] == ("0000:80:03", "0000:80:03.2")
    assert {slot: card.serial for slot, (card, *_) in read_cards_by_slot(tree).items()} == {
        "1": "S1",
        "2": "S2",
    }


def test_a_card_with_ari_has_functions_on_several_device_numbers(tree):
    tree.attach(1, GAUDI)
    [(card, *_)] = read_cards_by_slot(tree).values()
    assert card.functions[-1].address == "0000:81:02.7"
    assert (len(card.functions), card.device_class) == (24, DeviceClass.ACCELERATOR)


def test_an_fpga_card_with_network_ports_is_one_card_behind_its_switch(tree):
    tree.attach(1, N3000)
    [(card, files, interfaces, missing)] = read_cards_by_slot(tree).values()
    addresses = [each.address for each in card.functions]
    assert addresses[:5] == ["0000:83:00.0", "0000:84:00.0", "0000:84:00.1", "0000:85:00.0", "0000:85:00.1"]
    assert len(card.functions) == 9, "and the ports of its switch"
    assert card.device_class is DeviceClass.FPGA
    assert (files, len(interfaces), missing) == (["/dev/dfl-fme.0", "/dev/dfl-port.0"], 4, None)
    tree.detach(1)
    assert read_cards_by_slot(tree) == {}


def test_a_disk_behind_a_vmd_has_an_address_of_five_digits(tree):
    assert tree.attach(3, DISK) == "10000:e1:00.0"
    [(card, files, *_)] = read_cards_by_slot(tree).values()
    assert (card.address, card.first.pcie_root) == ("10000:e1:00.0", "pci0000:80")
    assert "/dev/nvme0n1" in files


def test_a_gpu_in_partitions_has_the_files_of_all_of_them(tree):
    tree.attach(1, INSTINCT)
    [(card, files, _, missing)] = read_cards_by_slot(tree).values()
    assert (card.device_class, card.first.class_code, missing) == (DeviceClass.GPU, 0x120000, None)
    assert len([path for path in files if "renderD" in path]) == 8
    assert files[-1] == "/dev/kfd"
    tree.detach(1)
    assert not list((tree.root / "devices/platform").glob("amdgpu_xcp*"))


def test_a_gpu_of_nvidia_has_files_in_proc_and_dev(tree):
    tree.attach(1, H100)
    [(_, files, _, missing)] = read_cards_by_slot(tree).values()
    assert missing is None
    assert files[-5:] == [
        *("/dev/nvidia3", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
    ]
    tree.detach(1)
    assert not (tree.root.parent / "dev/nvidia3").exists()


def test_representors_and_upper_interfaces_are_not_the_cards_own(tree):
    tree.attach(1, SWITCHDEV)
    for name in ("bond0", "eth0.100"):
        tree.stack_interface(1, name)
    assert (tree.root / "class/net/eth0r2").exists()
    assert (tree.root / "class/net/bond0/lower_eth0/address").exists()
    [(_, _, interfaces, _)] = read_cards_by_slot(tree).values()
    assert interfaces == ["eth0"]


@pytest.mark.parametrize(("iommu", "name"), [(True, "/dev/vfio/33032"), (False, "/dev/vfio/noiommu-33032")])
def test_a_function_that_vfio_has_shows_its_group(tmp_path, iommu, name):
    tree = SysfsTree.create(tmp_path / "sys", layout="server", iommu=iommu)
    tree.attach(1, dataclasses.replace(DISK, driver="vfio-pci"), address="0000:81:00.0")
    [(card, files, _, missing)] = read_cards_by_slot(tree).values()
    assert missing is None
    assert files == [name.replace("33032", str(card.first.iommu_group)), "/dev/vfio/vfio"]


def test_without_groups_a_function_that_vfio_has_is_not_ready(tree):
    tree.attach(1, dataclasses.replace(DISK, driver="vfio-pci"))
    [(_, files, _, missing)] = read_cards_by_slot(tree).values()
    assert files == []
    assert missing is not None


def test_a_card_needs_room_for_its_buses(tree):
    with pytest.raises(ImpossibleWorld, match="does not fit behind slot 3"):
        tree.attach(3, N3000)


@pytest.mark.parametrize(
    "card", [GAUDI, N3000, INSTINCT, H100, SWITCHDEV], ids=lambda card: f"{card.device:x}"
)
def test_every_link_leads_somewhere_and_nothing_is_left_of_a_card(tree, card):
    def list_paths():
        return sorted(str(path.relative_to(tree.root)) for path in (tree.root / "devices").rglob("*"))

    tree.attach(1, card)
    tree.detach(1)
    before = list_paths()
    tree.attach(1, card)
    assert [path for path in tree.root.rglob("*") if path.is_symlink() and not path.exists()] == []
    tree.detach(1)
    assert list_paths() == before


def event(action, path):
    return uevents.parse(f"{action}@/{path}\0SUBSYSTEM=pci\0SEQNUM=1\0".encode())


async def test_a_slot_that_flaps_ends_in_its_state(tree):
    """As with a bad contact: the card comes and goes, and its events are late."""
    followed = devices.Devices(tree.root, settings=devices.Tracking(audit_seconds=0), pauses_seconds=(0.01,))
    await followed.read()
    source = sources.Backlog(4096)
    for number in range(6):
        tree.attach(1, N3000)
        paths = [function.path for function in reader.read(tree.root).functions if function.slot == "1"]
        if number < 5:
            tree.surprise_remove(1)
        for action in ("add", "remove", "add"):
            for path in paths:
                source.put(event(action, path))
    source.close()
    await followed.follow(source)
    assert followed.inventory == reader.read(tree.root)
    assert len(followed.card_at("0000:83:00.0").functions) == 9
