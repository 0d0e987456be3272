"""The inventory of recorded kernels."""

import shutil
from pathlib import Path

import pytest

from drawbar.driver.node.discovery import reader
from drawbar.driver.node.inventory import model
from drawbar.fabric import witnesses
from drawbar.fabric.contract import DeviceClass
from drawbar.mocks.sysfs import load_recording

RECORDINGS = Path(__file__).parents[3] / "cases" / "kernels" / "kernel-6.1-qemu"
NVME, CXL = "0000:01:00.0", "0000:0d:00.0"


def load_sysfs(name: str, tmp_path: Path) -> Path:
    load_recording(RECORDINGS / f"{name}.json.gz", tmp_path / "sys")
    return tmp_path / "sys"


@pytest.mark.parametrize(
    ("name", "functions", "present"),
    [
        ("sysfs-0-empty", 9, {}),
        ("sysfs-1-nvme", 10, {"1": (True, True)}),
        ("sysfs-2-cxl", 10, {"1": (True, True), "3": (True, False)}),
        ("sysfs-3-cxl-powered", 11, {"1": (True, True), "3": (True, True)}),
        ("sysfs-4-nvme-removed", 10, {"3": (True, True)}),
        ("sysfs-5-cxl-del-asked", 10, {"3": (True, True)}),
    ],
)
def test_a_recorded_kernel_shows_its_functions_and_slots(name, functions, present, tmp_path):
    root = load_sysfs(name, tmp_path)
    inventory = reader.read(root)
    assert len(inventory.functions) == functions == len(list((root / "bus/pci/devices").iterdir()))
    assert {s.name: (s.present, s.powered) for s in inventory.slots if s.present} == present
    assert [slot.name for slot in inventory.slots] == ["1", "2", "3"]


def test_the_recorded_nvme_device_is_read_in_full(tmp_path):
    disk = reader.read(load_sysfs("sysfs-1-nvme", tmp_path)).by_serial("sn0001 ")
    assert disk == model.PciFunction(
        address=NVME,
        path="devices/pci0000:00/0000:00:03.0/0000:01:00.0",
        class_code=0x010802,
        device_class=DeviceClass.NVME,
        vendor=0x1B36,
        device=0x0010,
        subsystem_vendor=0x1AF4,
        subsystem_device=0x1100,
        driver="nvme",
        numa_node=None,
        pcie_root="pci0000:00",
        link=model.Link(speed_gts=2.5, width=1, max_speed_gts=2.5, max_width=1),
        serial="SN0001",
        dsn=None,
        dsn_hidden=False,
        iommu_group=None,
        sriov=None,
        physical_function=None,
        slot="1",
        device_nodes=(
            model.DeviceNode(path="/dev/ng0n1", major=245, minor=0, block=False, subsystem="nvme-generic"),
            model.DeviceNode(path="/dev/nvme0", major=246, minor=0, block=False, subsystem="nvme"),
            model.DeviceNode(path="/dev/nvme0n1", major=259, minor=0, block=True, subsystem="block"),
        ),
        net_interfaces=(),
        nvme=(
            model.NvmeController(
                name="nvme0", state="live", model="QEMU NVMe Ctrl", firmware="7.2.22", serial="SN0001"
            ),
        ),
        identifiers=(
            witnesses.Identifier(kind=witnesses.Kind.NVME_SERIAL, value="sn0001", source="nvme/nvme0/serial"),
            witnesses.Identifier(
                kind=witnesses.Kind.NVME_NQN,
                value="nqn.2019-08.org.qemu:sn0001",
                source="nvme/nvme0/subsysnqn",
            ),
        ),
        arrival=disk.arrival,
    )


def test_the_recorded_cxl_device_is_read_with_its_topology(tmp_path):
    inventory = reader.read(load_sysfs("sysfs-3-cxl-powered", tmp_path))
    function = inventory.by_address(CXL)
    assert function is not None
    assert (function.device_class, function.driver, function.slot) == (DeviceClass.CXL_MEMORY, "cxl_pci", "3")
    assert function.pcie_root == "pci0000:0c"
    assert (function.serial, function.dsn) == ("0x1234", "00-00-00-00-00-00-12-34")
    (identified,) = function.identifiers
    assert (identified.kind, identified.value) == (witnesses.Kind.PCIE_DSN, "00-00-00-00-00-00-12-34")
    [memdev] = inventory.memdevs
    assert (memdev.name, memdev.serial, memdev.pci_address) == ("mem0", 4660, CXL)
    assert (memdev.ram_bytes, memdev.pmem_bytes) == (0, 0x1000_0000)
    assert memdev.device_node is not None
    assert memdev.device_node.path == "/dev/cxl/mem0"
    assert [(p.name, p.kind, p.parent, p.uport) for p in inventory.ports] == [
        ("root0", "root", None, "ACPI0017:00"),
        ("port1", "switch", "root0", "ACPI0016:00"),
        ("endpoint2", "endpoint", "port1", "mem0"),
    ]
    root, switch, endpoint = inventory.decoders
    assert (root.kind, root.start, root.size_bytes, root.targets) == ("root", 0x2D0000000, 0x40000000, (12,))
    assert (switch.kind, switch.interleave_granularity_bytes, switch.port) == ("switch", 4096, "port1")
    assert (endpoint.kind, endpoint.mode, endpoint.region, endpoint.dpa_bytes) == (
        "endpoint",
        "none",
        None,
        0,
    )
    assert inventory.regions == ()


def test_a_cxl_serial_beyond_64_bits_is_ignored(tmp_path):
    root = load_sysfs("sysfs-3-cxl-powered", tmp_path)
    (serial,) = (path for path in (root / "devices").rglob("mem0/serial"))
    for text in ("20000000000000000000", "0x10000000000000000", "-1", "0"):
        serial.chmod(0o644)
        serial.write_text(f"{text}\n")
        inventory = reader.read(root)
        (card,) = (card for card in inventory.cards if card.memdevs)
        assert card.memdevs[0].serial is None
        assert card.serial == card.first.dsn


@pytest.mark.parametrize(
    "serial",
    ["4660", "0x1234", "00-00-00-00-00-00-12-34", "00:00:00:00:00:00:12:34", "00-00-00-00-00-00-12-34:0001"],
)
def test_a_cxl_device_is_found_by_its_serial_in_any_notation(serial, tmp_path):
    function = reader.read(load_sysfs("sysfs-3-cxl-powered", tmp_path)).by_serial(serial)
    assert function is not None
    assert function.address == CXL


@pytest.mark.parametrize("serial", ["", "   ", "-", "1234", "SN000", "SN00011"])
def test_a_serial_that_no_device_has_finds_nothing(serial, tmp_path):
    assert reader.read(load_sysfs("sysfs-3-cxl-powered", tmp_path)).by_serial(serial) is None


def test_one_function_is_read_without_reading_the_others(tmp_path):
    root = load_sysfs("sysfs-3-cxl-powered", tmp_path)
    expected = reader.read(root).by_address(NVME)
    for other in (root / "bus/pci/devices").iterdir():
        if other.name != NVME:
            other.unlink()
    shutil.rmtree(root / "devices/pci0000:0c")
    assert reader.read_function(root, NVME) == expected
    assert reader.read_function(root, CXL) is None
    assert reader.read_function(root, "../../etc/passwd") is None
