"""DFL cards: what a bitstream's file has to be, and how the card's driver is asked to load it."""

import errno
import os
import shutil
from pathlib import Path

import pytest
from tests.driver.node.classes.test_classes import card_of, device
from tests.scenes import bitstreams

from drawbar.driver.node import errors, kernel
from drawbar.driver.node.classes import dfl
from drawbar.driver.node.classes.users import Host
from drawbar.fabric.contract import DeviceClass
from drawbar.mocks.sysfs import SysfsTree, reconfiguration
from drawbar.mocks.sysfs import dfl as cards

CARD = device(DeviceClass.FPGA, vendor=0x8086, device=0x0B30)


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """Return a host with a DFL card, whose drivers are all there are."""
    monkeypatch.setattr(dfl, "SETTLE_SECONDS", 0)
    tree = SysfsTree.create(tmp_path / "sys", slots=1)
    tree.attach(1, CARD)
    reconfiguration.device_files(tree.root)
    return tree


@pytest.fixture
def answers(monkeypatch):
    """Answer the hosts' ioctl by a double; return the double."""
    double = reconfiguration.PortReconfiguration()
    monkeypatch.setattr(kernel, "ioctl", double)
    return double


def load(tree, content, *, is_wanted=True):
    engine = dfl.await_engine(tree.root, card_of(tree), lambda: is_wanted)
    view = memoryview(bytearray(content))
    dfl.load(Host.from_sysfs(tree.root), engine, view, "b.gbs", is_wanted=lambda: is_wanted)


def engine_folder(tree):
    return (tree.root / "bus/platform/devices/dfl-fme.0").resolve()


def add_port(tree, instance, number):
    """Add another port of the card, as the kernel lists it."""
    old = (tree.root / "bus/platform/devices/dfl-port.0").resolve()
    new = old.with_name(f"dfl-port.{instance}")
    shutil.copytree(old, new, symlinks=True)
    (new / "id").write_text(f"{number}\n")
    text = (old / "uevent").read_text()
    (new / "uevent").write_text(text.replace("dfl-port.0", new.name))
    reconfiguration.device_files(tree.root, instance)


def test_the_design_without_its_metadata_goes_into_the_port(tree, answers):
    load(tree, bitstreams.gbs())
    (done,) = answers.loaded
    assert (done.port, done.design, done.device.name) == (0, bitstreams.DESIGN, "dfl-fme.0")
    engine = dfl.find(tree.root, card_of(tree))
    assert [manager.state for manager in dfl.managers(tree.root, engine)] == ["operating"]


def test_of_several_ports_that_with_the_lowest_number_gets_it(tree, answers):
    add_port(tree, 7, 1)
    (engine_folder(tree) / "ports_num").write_text("3\n")
    (engine_folder(tree).parent / "dfl-port.0/id").write_text("2\n")
    region = engine_folder(tree) / "dfl-fme-region.0"
    shutil.copytree(region, region.with_suffix(".1"), symlinks=True)
    load(tree, bitstreams.gbs())
    assert [done.port for done in answers.loaded] == [1]
    engine = dfl.find(tree.root, card_of(tree))
    assert [(port.number, port.node.path) for port in engine.ports] == [
        (1, "/dev/dfl-port.7"),
        (2, "/dev/dfl-port.0"),
    ]


BROKEN = {
    "no metadata": (b"x" * 64, "has no metadata of OPAE, .*: give the .gbs file, or load it by a hook"),
    "empty": (b"", "has no metadata of OPAE"),
    "cut off": (bitstreams.gbs(b""), "is cut off, or broken: put the whole file there"),
    "endless metadata": (bitstreams.GUID + b"\xff" * 8, "is cut off, or broken"),
    "no JSON": (bitstreams.gbs(metadata=b"{"), "has metadata that cannot be read"),
    "no interface": (bitstreams.gbs(metadata=b'{"version":1,"afu-image":{}}'), "interface-uuid"),
    "no UUID": (bitstreams.gbs(**{"interface-uuid": "card 7"}), "has metadata that cannot be read"),
    "another version": (bitstreams.gbs(version=9), "version 9, which is not known here"),
    "a clock": (bitstreams.gbs(**{"clock-frequency-low": 156}), "needs a clock of 156 MHz set, which is not"),
    "another card": (
        bitstreams.gbs(**{"interface-uuid": "ce489693-98f0-5f33-946d-560708be108a"}),
        f"was made for a card of the interface ce48969398f05f33946d560708be108a, and dfl-fme.0 has {cards.INTERFACE}",
    ),
}


@pytest.mark.parametrize(("content", "words"), BROKEN.values(), ids=BROKEN)
def test_a_file_that_is_none_for_this_card_never_reaches_it(tree, answers, content, words):
    with pytest.raises(errors.BitstreamNotLoaded, match=words):
        load(tree, content)
    assert answers.loaded == []


@pytest.mark.parametrize("version", [1, 640, 650])
def test_metadata_may_end_in_zeros_and_have_a_version_of_old(tree, answers, version):
    metadata = bitstreams.gbs(b"", version=version)[20:] + b"\0\0"
    load(tree, bitstreams.gbs(metadata=metadata))
    assert [done.design for done in answers.loaded] == [bitstreams.DESIGN]


DEFECTS = {
    "no port": (lambda folder: shutil.rmtree(folder.parent / "dfl-port.0"), "has no port of its own to load"),
    "a port without a driver": (
        lambda folder: (folder.parent / "dfl-port.0/id").unlink(),
        "no port of its own",
    ),
    "a port beyond the last": (lambda folder: (folder / "ports_num").write_text("0\n"), "no port of its own"),
    "no region": (
        lambda folder: shutil.rmtree(folder / "dfl-fme-region.0"),
        "has no region to load b.gbs into",
    ),
    "no file": (lambda folder: (folder / "uevent").write_text(""), "has no region to load b.gbs into"),
}


@pytest.mark.parametrize(("spoil", "words"), DEFECTS.values(), ids=DEFECTS)
def test_a_card_without_a_driver_or_port_is_reported_with_a_remedy(tree, answers, spoil, words):
    (engine_folder(tree) / "dev").unlink()
    spoil(engine_folder(tree))
    with pytest.raises(errors.BitstreamNotLoaded, match=words):
        load(tree, bitstreams.gbs())
    assert answers.loaded == []


def test_drivers_that_bind_after_the_cards_own_are_waited_for(tree, monkeypatch):
    monkeypatch.setattr(dfl, "SETTLE_SECONDS", 20)
    identity = engine_folder(tree).parent / "dfl-port.0/id"
    identity.unlink()
    looks = []

    def is_wanted():
        looks.append(None)
        if len(looks) == 3:
            identity.write_text("0\n")
        return True

    assert dfl.await_engine(tree.root, card_of(tree), is_wanted).is_complete
    assert len(looks) == 3
    identity.unlink()
    assert not dfl.await_engine(tree.root, card_of(tree), lambda: False).is_complete, "no longer wanted"


def test_an_unwanted_bitstream_is_not_loaded(tree, answers):
    with pytest.raises(errors.BitstreamNotLoaded, match="was not loaded in time"):
        load(tree, bitstreams.gbs(), is_wanted=False)
    assert answers.loaded == []


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EBUSY, r"Device or resource busy \(EBUSY\); a process has the card open"),
        (errno.EINVAL, r"cannot reconfigure port 0 by .*/dev/dfl-fme.0: Invalid argument \(EINVAL\)"),
        (errno.ENOENT, "load dfl-afu on this node"),
        (errno.ETIMEDOUT, "the hardware did not answer"),
    ],
)
def test_a_kernel_that_refuses_is_quoted_with_the_remedy(tree, answers, number, words):
    answers.refuses = number
    with pytest.raises(errors.BitstreamNotLoaded, match=words):
        load(tree, bitstreams.gbs())


def test_an_error_of_the_card_is_quoted_from_its_manager(tree, answers):
    answers.finds = "reconfig CRC error\nreconfig incompatible image"
    with pytest.raises(errors.BitstreamNotLoaded) as caught:
        load(tree, bitstreams.gbs())
    assert str(caught.value).endswith(
        "(EIO); the card found the bitstream faulty or not made for it; make it again for this card; fpga0 shows "
        "'write complete error', 'reconfig CRC error', 'reconfig incompatible image'"
    )


def test_a_device_file_that_is_missing_is_a_refusal(tree, answers):
    (tree.root.parent / "dev/dfl-port.0").unlink()
    with pytest.raises(errors.BitstreamNotLoaded, match=r"cannot open .*/dev/dfl-port.0: No such file"):
        load(tree, bitstreams.gbs())
    assert answers.loaded == []


@pytest.mark.parametrize(
    "mock",
    [device(DeviceClass.FPGA), device(DeviceClass.FPGA, vendor=0x8086, device=0x0B30, driver="vfio-pci")],
    ids=["another maker's", "a virtual machine's"],
)
def test_other_cards_have_no_engine(tmp_path, mock):
    tree = SysfsTree.create(tmp_path / "sys", slots=1)
    tree.attach(1, mock)
    assert dfl.find(tree.root, card_of(tree)) is None


# Character devices that every process may open stand for those of the card.
NULL = kernel.CharacterDevice(path=Path("/dev/null"), numbers=(1, 3))
ZERO = kernel.CharacterDevice(path=Path("/dev/zero"), numbers=(1, 5))


def test_the_kernel_itself_is_asked_by_its_ioctl():
    with pytest.raises(errors.KernelRefused, match=r"port 3 by /dev/null: .* \(ENOTTY\)") as caught:
        kernel.reconfigure_port(NULL, ZERO, 3, memoryview(bytearray(b"bits")))
    assert caught.value.number == errno.ENOTTY


@pytest.mark.parametrize("path", ["/dev/zero", "a file"])
def test_a_file_that_is_not_the_devices_is_not_asked(tmp_path, answers, path):
    (tmp_path / "a file").touch()
    wrong = kernel.CharacterDevice(path=tmp_path / path, numbers=(1, 3))
    with pytest.raises(errors.KernelRefused, match="is not the device that the kernel shows"):
        kernel.reconfigure_port(wrong, ZERO, 0, memoryview(bytearray(b"bits")))
    assert answers.loaded == []


def test_the_files_are_opened_exclusively_and_closed(monkeypatch):
    flags, before = [], len(list(Path("/proc/self/fd").iterdir()))
    real = os.open
    monkeypatch.setattr(os, "open", lambda path, flag: flags.append(flag) or real(path, flag))
    with pytest.raises(errors.KernelRefused):
        kernel.reconfigure_port(NULL, ZERO, 0, memoryview(bytearray(b"bits")))
    assert [flag & (os.O_EXCL | os.O_CLOEXEC | os.O_RDWR) for flag in flags] == [
        os.O_EXCL | os.O_CLOEXEC | os.O_RDWR
    ] * 2
    assert len(list(Path("/proc/self/fd").iterdir())) == before
