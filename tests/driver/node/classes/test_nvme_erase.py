"""Erasing NVMe disks, on a controller that does what the specification says a controller does."""

import errno
import struct
from pathlib import Path

import pytest

from drawbar.driver.node import errors
from drawbar.driver.node.classes import nvme_erase
from drawbar.driver.node.classes.nvme_erase import Identify, Opcode
from drawbar.driver.node.inventory import model

# A character device that every process may open stands for the controller's file.
NODE = model.DeviceNode(path="/dev/nvme0", major=1, minor=3, block=False, subsystem="nvme")
PATH = Path("/dev/null")
SECRET = b"the last user's"
ACTIONS = {0b010: "block", 0b011: "overwrite", 0b100: "key"}
FORMAT, NAMESPACES = 1 << 1, 1 << 3
KEY, BLOCK, OVERWRITE = 1, 2, 4


class Disk:
    """An NVMe disk with one controller; each namespace keeps some bytes."""

    def __init__(self, *, serial="SN1", oacs=FORMAT, fna=0, sanicap=0, namespaces=1, looks=3, cmic=0):
        self.serial, self.oacs, self.fna, self.sanicap, self.looks = serial, oacs, fna, sanicap, looks
        self.cmic = cmic
        self.data = dict.fromkeys(range(1, namespaces + 1), SECRET)
        self.unattached, self.status, self.left = set(), 0, 0
        self.done, self.formats, self.refused, self.fails = [], {}, {}, 0

    def __call__(self, descriptor, command, data):
        assert descriptor > 0
        if command.opcode in self.refused:
            answer = self.refused[command.opcode]
            if isinstance(answer, OSError):
                raise answer
            return answer
        match command.opcode:
            case Opcode.IDENTIFY:
                memoryview(data)[:] = self._identify(command)
            case Opcode.GET_LOG_PAGE:
                assert (command.cdw10 & 0xFF, command.namespace) == (0x81, 0xFFFFFFFF)
                assert command.cdw10 >> 16 == len(data) // 4 - 1
                memoryview(data)[:4] = self._read_sanitize_log()
            case Opcode.SANITIZE:
                self._sanitize(command.cdw10)
            case Opcode.FORMAT_NVM:
                return self._format(command)
        return 0

    def _identify(self, command):
        page = bytearray(4096)
        match command.cdw10:
            case Identify.CONTROLLER:
                page[4:24] = self.serial.encode().ljust(20)
                page[76] = self.cmic
                page[256:258] = struct.pack("<H", self.oacs)
                page[328:332] = struct.pack("<I", self.sanicap)
                page[524] = self.fna
            case Identify.ACTIVE:
                self._list(page, self.data.keys() - self.unattached)
            case Identify.ALLOCATED:
                self._list(page, self.data.keys())
            case Identify.NAMESPACE:
                page[26], page[29] = self.formats.get(command.namespace, (0, 0))
        return bytes(page)

    def _list(self, page, numbers):
        struct.pack_into(f"<{len(numbers)}I", page, 0, *sorted(numbers))

    def _read_sanitize_log(self):
        if self.status == 2:
            self.left -= 1
            if self.left <= 0:
                self.fails, failed = max(0, self.fails - 1), self.fails > 0
                self.status = 3 if failed else 1
                if not failed:
                    self.data = dict.fromkeys(self.data, b"")
        return struct.pack("<HH", (self.looks - self.left) * 65535 // self.looks, self.status)

    def _sanitize(self, cdw10):
        assert self.status != 2, "one at a time"
        assert cdw10 & 1 << 3, "a failure could not be left otherwise"
        way = ACTIONS[cdw10 & 0b111]
        assert cdw10 >> 4 == (1 if way == "overwrite" else 0)
        self.done.append(way)
        self.status, self.left = 2, self.looks

    def _format(self, command):
        if command.namespace in self.unattached:
            return 0x0B
        self.done.append((command.namespace, command.cdw10))
        every = self.fna & 0b11
        for namespace in self.data if every else (command.namespace,):
            self.data[namespace] = b""
        return 0


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(nvme_erase, "LOOK_SECONDS", 0)


def erase(disk, *, serial="SN1", node=NODE, path=PATH):
    reported = []
    nvme_erase.eraser(path, node, serial, disk)(reported.append)
    return reported


@pytest.mark.parametrize(
    ("ways", "way"),
    [(KEY, "key"), (BLOCK, "block"), (KEY | BLOCK | OVERWRITE, "key"), (BLOCK | OVERWRITE, "block")],
)
def test_a_disk_that_sanitizes_quickly_is_sanitized(ways, way):
    disk = Disk(sanicap=ways)
    reported = erase(disk)
    assert (disk.done, disk.data) == ([way], {1: b""})
    assert reported == ["sanitizing /dev/nvme0, 30 % done", "sanitizing /dev/nvme0, 60 % done"]


def test_a_disk_that_can_only_overwrite_is_formatted_where_it_can_be():
    disk = Disk(sanicap=OVERWRITE)
    erase(disk)
    assert disk.done == [(1, 0b001 << 9)]
    disk = Disk(sanicap=OVERWRITE, oacs=0)
    erase(disk)
    assert (disk.done, disk.data) == (["overwrite"], {1: b""})


@pytest.mark.parametrize(("fna", "secure"), [(0, 0b001), (0b100, 0b010)])
def test_every_namespace_is_formatted_securely_in_the_format_that_it_has(fna, secure):
    disk = Disk(fna=fna, namespaces=3)
    disk.formats = {2: (0b0110011, 0b1010)}
    reported = erase(disk)
    # Format 0x13 in two parts, metadata at the end of each block, protection 2 in its first bytes.
    kept = 0b0011 | 1 << 4 | 2 << 5 | 1 << 8 | 1 << 12
    assert disk.done == [(1, secure << 9), (2, kept | secure << 9), (3, secure << 9)]
    assert set(disk.data.values()) == {b""}
    assert reported[-1] == "formatting /dev/nvme0, namespace 3 of 3"


@pytest.mark.parametrize("fna", [0b01, 0b10])
def test_where_one_format_takes_all_one_is_made(fna):
    disk = Disk(fna=fna, namespaces=2)
    erase(disk)
    assert ([namespace for namespace, _ in disk.done], set(disk.data.values())) == ([1], {b""})


def test_a_namespace_that_its_user_hid_is_no_way_past_the_erase():
    disk = Disk(oacs=FORMAT | NAMESPACES, namespaces=2)
    disk.unattached = {2}
    with pytest.raises(errors.NotCleaned, match=r"namespace 2 is not attached to this controller.*delete-ns"):
        erase(disk)
    assert disk.done == []
    disk = Disk(oacs=FORMAT | NAMESPACES, namespaces=2, sanicap=BLOCK)
    disk.unattached = {2}
    erase(disk)
    assert set(disk.data.values()) == {b""}


@pytest.mark.parametrize("ways", [0, BLOCK])
def test_a_namespace_of_another_host_is_not_erased(ways):
    disk = Disk(oacs=FORMAT | NAMESPACES, namespaces=2, sanicap=ways, cmic=0b10)
    disk.unattached = {2}
    with pytest.raises(errors.NotCleaned, match="or is another host's"):
        erase(disk)
    assert (disk.done, set(disk.data.values())) == ([], {SECRET})
    disk.unattached = set()
    erase(disk)
    assert set(disk.data.values()) == {b""}


def test_a_sanitize_that_its_user_began_is_waited_for_and_another_follows():
    disk = Disk(sanicap=BLOCK)
    disk.status, disk.left = 2, 2
    erase(disk)
    assert (disk.done, disk.status) == (["block"], 1)


def test_a_sanitize_that_fails_half_way_is_no_erase_and_may_be_tried_again():
    disk = Disk(sanicap=BLOCK)
    disk.fails = 1
    with pytest.raises(errors.NotCleaned, match=r"/dev/nvme0 is not erased.*failed half way"):
        erase(disk)
    assert disk.data == {1: SECRET}
    erase(disk)
    assert disk.data == {1: b""}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"serial": "SN2"}, "it has the serial number 'SN1', and 'SN2' is to be erased"),
        ({"path": Path("/dev/zero")}, "/dev/zero is another device by now"),
        ({"path": Path("/etc/hostname")}, "/etc/hostname is another device by now"),
        ({"path": Path("/dev/nothing-of-the-kind")}, "cannot open /dev/nothing-of-the-kind: No such file"),
    ],
)
def test_another_disk_is_not_touched(fields, message):
    disk = Disk()
    with pytest.raises(errors.NotCleaned, match=message):
        erase(disk, **fields)
    assert disk.data == {1: SECRET}


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (0x2002, "asked to format namespace 1, it answered with status 0x2002"),
        (OSError(errno.ENODEV, "x"), r"the kernel answered No such device \(ENODEV\); look at its log"),
    ],
)
def test_a_refusal_is_reported_as_it_came(answer, message):
    disk = Disk()
    disk.refused[Opcode.FORMAT_NVM] = answer
    with pytest.raises(errors.NotCleaned, match=message):
        erase(disk)


def test_a_disk_that_has_no_way_to_forget_is_not_handed_on():
    with pytest.raises(
        errors.NotCleaned, match=r"neither be sanitized nor formatted; set policy\.clean of its Fabric"
    ):
        erase(Disk(oacs=0))


def test_a_disk_without_namespaces_has_nothing_to_erase():
    disk = Disk(namespaces=0)
    assert erase(disk) == []


def test_the_kernels_command_is_of_the_size_that_the_ioctl_names():
    assert nvme_erase.COMMAND >> 16 & 0x3FFF == nvme_erase._STRUCT.size == 72
