"""Mocked DFL cards: what they look like, and what the double of their ioctl takes and refuses, as drivers/fpga does."""

import ctypes
import errno
import os
import struct
import threading

import pytest

from drawbar.fabric.contract import DeviceClass
from drawbar.mocks.sysfs import MockDevice, SysfsTree, dfl, reconfiguration

CARD = MockDevice(device_class=DeviceClass.FPGA, vendor=0x8086, device=0x0B30)
PORT_PR = 0xB680
BITS = ctypes.create_string_buffer(b"bits", 4)


@pytest.fixture
def tree(tmp_path):
    """Return a host with a DFL card, and its device files."""
    tree = SysfsTree.create(tmp_path / "sys", slots=2)
    tree.attach(1, CARD)
    reconfiguration.device_files(tree.root)
    return tree


def ask(tree, answers, *, request=PORT_PR, device="dfl-fme.0", size=24, flags=0, port=0):
    argument = struct.pack("=IIIIQ", size, flags, port, len(BITS), ctypes.addressof(BITS))
    descriptor = os.open(tree.root.parent / "dev" / device, os.O_RDWR)
    try:
        return answers(descriptor, request, argument)
    finally:
        os.close(descriptor)


def read_manager_attribute(tree, name):
    return (tree.root / "class/fpga_manager/fpga0" / name).read_text().strip()


def test_a_card_looks_as_the_kernel_documents_it(tree):
    base = tree.root / f"bus/pci/devices/{tree.address(1)}/fpga_region/region0"
    assert (base / "dfl-fme.0/ports_num").read_text() == "1\n"
    assert (base / "dfl-port.0/id").read_text() == "0\n"
    assert (base / "dfl-fme.0/dfl-fme-mgr.0/fpga_manager/fpga0/state").read_text() == "unknown\n"
    region = base / "dfl-fme.0/dfl-fme-region.0/fpga_region/region1"
    assert (region / "compat_id").read_text() == f"{dfl.INTERFACE}\n"
    assert (tree.root / "class/fpga_region/region1").resolve() == region.resolve()
    assert (base / "dfl-fme.0/driver").resolve().name == "dfl-fme"


def test_nothing_of_a_card_stays_when_it_goes(tree):
    tree.attach(2, CARD)
    assert (tree.root / "bus/platform/devices/dfl-fme.1").exists()
    tree.detach(1)
    left = {path.name for path in (tree.root / "bus/platform/devices").glob("dfl-*")}
    assert left == {"dfl-fme.1", "dfl-port.1", "dfl-fme-mgr.1", "dfl-fme-region.1"}
    assert [path.name for path in (tree.root / "bus/platform/drivers/dfl-fme").glob("dfl-*")] == ["dfl-fme.1"]


def test_a_design_is_taken_from_this_process(tree):
    answers = reconfiguration.PortReconfiguration()
    assert ask(tree, answers) == 0
    device = tree.root.parent / "dev/dfl-fme.0"
    assert answers.loaded == [reconfiguration.Load(device=device, port=0, design=b"bits")]
    assert (read_manager_attribute(tree, "state"), read_manager_attribute(tree, "status")) == (
        "operating",
        "",
    )


@pytest.mark.parametrize(
    ("wrong", "number"),
    [
        ({"request": 0xB681}, errno.ENOTTY),
        ({"device": "dfl-port.0"}, errno.ENOTTY),
        ({"size": 20}, errno.EINVAL),
        ({"flags": 1}, errno.EINVAL),
        ({"port": 1}, errno.EINVAL),
    ],
)
def test_reconfigurations_invalid_for_the_kernel_are_refused(tree, wrong, number):
    answers = reconfiguration.PortReconfiguration()
    with pytest.raises(OSError, match=os.strerror(number)) as caught:
        ask(tree, answers, **wrong)
    assert caught.value.errno == number
    assert (answers.loaded, read_manager_attribute(tree, "state")) == ([], "unknown")


def test_a_fault_of_the_design_shows_in_the_manager_until_the_next(tree):
    answers = reconfiguration.PortReconfiguration(finds="reconfig CRC error")
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        ask(tree, answers)
    assert (read_manager_attribute(tree, "state"), read_manager_attribute(tree, "status")) == (
        "write complete error",
        "reconfig CRC error",
    )
    answers.finds = ""
    ask(tree, answers)
    assert (read_manager_attribute(tree, "state"), read_manager_attribute(tree, "status")) == (
        "operating",
        "",
    )


def test_a_card_that_goes_meanwhile_comes_to_nothing(tree):
    answers = reconfiguration.PortReconfiguration(gate=threading.Event())
    failures = []

    def load():
        try:
            ask(tree, answers)
        except OSError as error:
            failures.append(error.errno)

    thread = threading.Thread(target=load)
    thread.start()
    while read_manager_attribute(tree, "state") != "write":
        thread.join(0.01)
    tree.detach(1)
    answers.gate.set()
    thread.join(60)
    assert (failures, answers.loaded) == ([errno.ENODEV], [])
    assert not (tree.root / f"bus/pci/devices/{tree.address(1)}").exists()
    with pytest.raises(OSError, match=os.strerror(errno.ENODEV)):
        ask(tree, answers)
