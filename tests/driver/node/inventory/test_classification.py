"""Classification, serial numbers and names: the parts of the inventory that need no tree."""

import contextlib
import os
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from drawbar.driver.node import classes
from drawbar.driver.node.classes import models
from drawbar.driver.node.discovery import reader
from drawbar.driver.node.inventory import model, names, pci
from drawbar.fabric.contract import DeviceClass
from drawbar.mocks.sysfs import MockDevice, SysfsTree


@pytest.mark.parametrize(
    ("class_code", "vendor", "device", "expected"),
    [
        (0x030000, 0x1002, 0x73BF, DeviceClass.GPU),
        (0x030200, 0x10DE, 0x2330, DeviceClass.GPU),
        (0x038000, 0x1002, 0x740F, DeviceClass.GPU),
        (0x120000, 0x1DA3, 0x1020, DeviceClass.ACCELERATOR),
        (0x0B4000, 0x8086, 0x4940, DeviceClass.ACCELERATOR),
        (0x120000, 0x10EE, 0x5000, DeviceClass.FPGA),
        (0x058000, 0x10EE, 0x903F, DeviceClass.FPGA),
        (0xFF0000, 0x1172, 0x2494, DeviceClass.FPGA),
        (0x120000, 0x8086, 0x0B2B, DeviceClass.FPGA),
        (0x120000, 0x8086, 0x1234, DeviceClass.ACCELERATOR),
        (0x020000, 0x10EE, 0x5084, DeviceClass.NIC),
        (0x060400, 0x10EE, 0x9134, DeviceClass.BRIDGE),
        (0x010802, 0x144D, 0xA80A, DeviceClass.NVME),
        (0x010800, 0x1B36, 0x0001, DeviceClass.STORAGE),
        (0x010601, 0x8086, 0x2922, DeviceClass.STORAGE),
        (0x020700, 0x15B3, 0x1021, DeviceClass.NIC),
        (0x050210, 0x8086, 0x0D93, DeviceClass.CXL_MEMORY),
        (0x050000, 0x8086, 0x0001, DeviceClass.OTHER),
        (0x0C0330, 0x8086, 0x0001, DeviceClass.OTHER),
        (0x040300, 0x10DE, 0x22BA, DeviceClass.OTHER),
        (0x120000, 0x1002, 0x74A1, DeviceClass.GPU),
        (0x038000, 0x1002, 0x74A1, DeviceClass.GPU),
        (0x040300, 0x1002, 0xAB38, DeviceClass.OTHER),
        (0x0B4000, 0x1D94, 0x6210, DeviceClass.GPU),
        (0x108000, 0x1D94, 0x1486, DeviceClass.OTHER),
        (0x120000, 0x1E3E, 0x0002, DeviceClass.GPU),
        (0x038000, 0x9999, 0x4001, DeviceClass.GPU),
        (0x068000, 0x10DE, 0x22A3, DeviceClass.BRIDGE),
        (0x028000, 0x1DA3, 0x1060, DeviceClass.ACCELERATOR),
        (0x088000, 0x1D0F, 0x7364, DeviceClass.ACCELERATOR),
        (0x118000, 0x1022, 0x1502, DeviceClass.ACCELERATOR),
        (0x020000, 0x8086, 0x0B30, DeviceClass.FPGA),
        (0x038000, 0x8086, 0xBCCE, DeviceClass.FPGA),
        (0x020000, 0x8086, 0x0D58, DeviceClass.NIC),
        (0x020000, 0x10EE, 0x903F, DeviceClass.FPGA),
        (0x070001, 0x10EE, 0x903F, DeviceClass.FPGA),
        (0x040100, 0x10EE, 0x3FC5, DeviceClass.OTHER),
        (0x020000, 0x1C2C, 0x1001, DeviceClass.FPGA),
        (0x020000, 0x1C2C, 0xA00E, DeviceClass.NIC),
        (0x028000, 0x1204, 0x1965, DeviceClass.NIC),
        (0x010802, 0x10EE, 0x9038, DeviceClass.NVME),
        (0x050210, 0x8086, 0xBCCE, DeviceClass.CXL_MEMORY),
    ],
)
def test_a_function_is_classified_by_its_model_and_then_by_its_class_code(
    class_code, vendor, device, expected
):
    assert classes.classify(class_code, vendor, device) is expected


@pytest.mark.parametrize(
    ("driver", "expected"),
    [
        ("amdgpu", DeviceClass.GPU),
        ("xe", DeviceClass.GPU),
        ("habanalabs", DeviceClass.ACCELERATOR),
        ("xclmgmt", DeviceClass.FPGA),
        ("nvme", DeviceClass.NVME),
        ("vfio-pci", DeviceClass.NIC),
        (None, DeviceClass.NIC),
    ],
)
def test_a_driver_of_one_class_counts_for_more_than_the_class_code(driver, expected):
    assert classes.classify(0x020000, 0x1234, 0x5678, driver) is expected


def test_no_row_of_the_table_of_models_is_hidden_by_an_earlier_one():
    for index, row in enumerate(models.ROWS):
        for device in row.devices or {0xFFFE}:
            for code in row.codes or ("ff0000",):
                earlier = [before for before in models.ROWS[:index] if before.vendor == row.vendor]
                assert not any(before.describes(f"{code:0<6}", device) for before in earlier), row


def space(*capabilities: tuple[int, int, bytes]) -> bytes:
    """Return configuration space with these extended capabilities: offset and next offset, then id and content."""
    result = bytearray(4096)
    for header, offset, content in capabilities:
        struct.pack_into("<I", result, offset, header)
        result[offset + 4 : offset + 4 + len(content)] = content
    return bytes(result)


def find(content: bytes, size: int = 4096) -> int | None:
    return pci.find_serial_number(lambda length, offset: content[offset : offset + length], lambda: size)


AER_THEN_0X148 = 0x0001 | 2 << 16 | 0x148 << 20
DSN_LAST = 0x0003 | 1 << 16
NUMBER = bytes.fromhex("3412000000000000")


def test_the_serial_number_is_found_behind_other_capabilities():
    assert find(space((AER_THEN_0X148, 0x100, b""), (DSN_LAST, 0x148, NUMBER))) == 0x1234


@pytest.mark.parametrize(
    "content",
    [
        space(),
        b"\xff" * 4096,
        space((DSN_LAST, 0x100, bytes(8))),
        space((DSN_LAST, 0x100, b"\xff" * 8)),
        space((AER_THEN_0X148, 0x100, b""), (0x0001 | 0x100 << 20, 0x148, b"")),
        space((0x0001 | 0x040 << 20, 0x100, b"")),
        space((0x0001 | 0xFFC << 20, 0x100, b""), (DSN_LAST, 0xFFC, b"")),
    ],
    ids=["no capability", "device gone", "zeros", "ones", "a circle", "into the header", "cut off"],
)
def test_configuration_space_without_a_usable_serial_number_has_none(content):
    assert find(content) is None


def test_a_conventional_pci_function_has_no_serial_number():
    assert find(space((DSN_LAST, 0x100, NUMBER))[:256], size=256) is None


def test_extended_space_that_is_not_shown_is_distinguished_from_none():
    with pytest.raises(pci.ConfigSpaceHidden):
        find(space((DSN_LAST, 0x100, NUMBER))[:64])


@contextlib.contextmanager
def as_unprivileged_user() -> Iterator[None]:
    """Run without root's right to read everything, if we have it."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(before)


def test_a_serial_number_that_needs_privilege_is_noted_as_hidden():
    with tempfile.TemporaryDirectory() as folder:  # no other user may look below tmp_path
        tree = SysfsTree.create(Path(folder) / "sys", slots=1)
        address = tree.attach(1, MockDevice(device_class=DeviceClass.OTHER, vendor=0x1234, device=0x11E8))
        Path(folder).chmod(0o755)
        (tree.root / "bus/pci/devices" / address / "config").chmod(0)
        with as_unprivileged_user():
            function = reader.read_function(tree.root, address)
    assert function is not None
    assert (function.dsn, function.dsn_hidden) == (None, True)


def test_a_number_is_written_as_eight_pairs():
    assert model.format_serial(0x48B02D0000000001) == "48-b0-2d-00-00-00-00-01"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4660", {4660}),
        (" 0X1234 ", {0x1234}),
        (str((1 << 64) - 1), {(1 << 64) - 1}),
        (str(1 << 64), set()),
        ("9" * 4096, set()),
        ("48-B0-2D-00-00-00-00-01", {0x48B02D0000000001}),
        ("4c:1d:96:ff:fe:dd:d8:35:0001", {0x4C1D96FFFEDDD835}),
        ("0000000000001234", {1234, 0x1234}),
        ("48b02d0000000001", {0x48B02D0000000001}),
        ("SN0001", set()),
        ("", set()),
        ("0x", set()),
        ("٣", set()),
    ],
)
def test_serial_numbers_are_understood_in_every_notation(text, expected):
    assert model.serial_numbers(text) == expected


DATABASE = """\
# a comment
10de  NVIDIA Corporation
\t2330  GH100 [H100 SXM5 80GB]
\t\t10de 16c1  H100 board
\t2331  GH100 [H100 PCIe]
1af4  Red Hat, Inc.
not a line
zzzz  Not a vendor
C 03  Display controller
\t02  3D controller
\t\t00  Never asked for
C 12  Processing accelerators
"""


def function_with_ids(
    tmp_path: Path, vendor: int, device: int, subsystem: tuple[int, int]
) -> model.PciFunction:
    directory = tmp_path / "devices/pci0000:00/0000:00:01.0"
    directory.mkdir(parents=True)
    ids = f"PCI_CLASS=30200\nPCI_ID={vendor:04X}:{device:04X}\nPCI_SUBSYS_ID={subsystem[0]:04X}:{subsystem[1]:04X}\n"
    (directory / "uevent").write_text(ids)
    (tmp_path / "bus/pci/devices").mkdir(parents=True)
    (tmp_path / "bus/pci/devices/0000:00:01.0").symlink_to("../../../devices/pci0000:00/0000:00:01.0")
    function = reader.read_function(tmp_path, "0000:00:01.0")
    assert function is not None
    return function


@pytest.mark.parametrize(
    ("subsystem", "expected"),
    [((0x10DE, 0x16C1), "H100 board"), ((0x1AF4, 1), "Red Hat, Inc."), ((1, 1), None)],
)
def test_names_are_looked_up_for_the_ids_asked_for(subsystem, expected, tmp_path):
    function = function_with_ids(tmp_path, 0x10DE, 0x2330, subsystem)
    pci_names = names.look_up(DATABASE.splitlines(keepends=True), [function])
    assert pci_names.vendor(function) == "NVIDIA Corporation"
    assert pci_names.device(function) == "GH100 [H100 SXM5 80GB]"
    assert pci_names.subsystem(function) == expected
    assert pci_names.class_name(0x030200) == "3D controller"
    assert pci_names.class_name(0x120000) == "Processing accelerators"
    assert pci_names.class_name(0x990000) is None
    assert (0x10DE, 0x2331) not in pci_names.devices


def test_the_systems_database_goes_before_the_packaged_one(tmp_path):
    own = tmp_path / "pci.ids"
    own.write_text(DATABASE)
    assert names.find_database([tmp_path / "absent", own]) == own
    packaged = names.find_database([])
    assert packaged is not None
    assert packaged.parent.parent.name == "pypci"


def test_without_a_database_there_are_no_names(tmp_path):
    function = function_with_ids(tmp_path, 0x10DE, 0x2330, (0, 0))
    for database in (None, tmp_path / "absent", tmp_path):
        assert names.load([function], database).vendor(function) is None


@pytest.mark.parametrize("reported", ["(efault)", "(null)", ""])
def test_a_controller_that_has_not_been_asked_who_it_is_has_no_serial_number(tmp_path, reported):
    """Linux 6.1, in the lab: for some milliseconds after the controller's first event."""
    folder = tmp_path / "nvme" / "nvme0"
    folder.mkdir(parents=True)
    for name in ("serial", "model", "firmware_rev"):
        (folder / name).write_text(f"{reported}\n")
    (folder / "state").write_text("connecting\n")
    (controller,) = pci.read_nvme(str(tmp_path))
    assert (controller.serial, controller.model, controller.firmware, controller.state) == (
        None,
        None,
        None,
        "connecting",
    )
