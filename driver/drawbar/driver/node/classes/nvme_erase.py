"""Erase of an NVMe disk through its controller's device file.

Sanitize comes first, because it reaches the whole medium and reports its progress: by a new key, or by erasing blocks.
A controller without these formats each namespace with a secure erase, by a new key if it can. The namespace keeps its
format. A controller without Format NVM sanitizes by overwriting.

The previous user had the controller too, and may have left it in any state. The erase first waits for a sanitize in
progress. It refuses a disk with an allocated namespace that is not attached to this controller. A format would miss it.
On a disk with several controllers it may belong to another host, and a sanitize would erase that host's data.

Source: NVM Express Base Specification 2.0: Identify, Sanitize, Format NVM, log page 81h; include/uapi/linux/nvme_ioctl.h.
"""

import array
import enum
import errno
import fcntl
import os
import stat
import struct
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from drawbar.driver.node import errors
from drawbar.driver.node.classes import generic
from drawbar.driver.node.inventory import model

COMMAND = 0xC0484E41  # NVME_IOCTL_ADMIN_CMD
_STRUCT = struct.Struct("=BBHIIIQQII6III")  # struct nvme_passthru_cmd
_PAGE_BYTES = 4096
_QUICK_MS = 30_000
LONGEST_SECONDS = 24 * 3600
"""The limit for a whole disk; overwriting takes the longest. A longer erase counts as failed."""
LOOK_SECONDS = 0.5
"""The interval between two reads of a sanitize's progress."""


class Opcode(enum.IntEnum):
    """Admin commands."""

    GET_LOG_PAGE = 0x02
    IDENTIFY = 0x06
    FORMAT_NVM = 0x80
    SANITIZE = 0x84


class Identify(enum.IntEnum):
    """Values of the CNS field of Identify."""

    NAMESPACE = 0x00
    CONTROLLER = 0x01
    ACTIVE = 0x02
    ALLOCATED = 0x10


_SANITIZE_STATUS = 0x81
_MANY_CONTROLLERS = 1 << 1  # CMIC
_FORMAT_ADMITTED, _NAMESPACE_MANAGEMENT = 1 << 1, 1 << 3  # OACS
_ERASE_TAKES_ALL, _FORMAT_TAKES_ALL, _CRYPTOGRAPHIC = 1 << 1, 1 << 0, 1 << 2  # FNA
_BY_KEY, _BY_BLOCK, _BY_OVERWRITING = 1 << 0, 1 << 1, 1 << 2  # SANICAP
_ACTIONS = {_BY_KEY: 0b100, _BY_BLOCK: 0b010, _BY_OVERWRITING: 0b011}  # SANACT
_ONE_PASS, _UNRESTRICTED_EXIT = 1 << 4, 1 << 3
_IN_PROGRESS, _FAILED = 2, 3  # SSTAT


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """An admin command; `cdw10` and `cdw11` are the dwords of that name."""

    opcode: Opcode
    namespace: int = 0
    cdw10: int = 0
    cdw11: int = 0
    timeout_ms: int = _QUICK_MS


# An array of bytes knows its address.
Page = array.array
Submit = Callable[[int, Command, "Page[int] | None"], int]
"""A function to send a command to the controller behind a descriptor; returns its status, 0 for success. Raises OSError."""


def submit(descriptor: int, command: Command, data: "Page[int] | None") -> int:
    """Send a command to the kernel's NVMe driver and return its status, as `Submit` specifies."""
    address = data.buffer_info()[0] if data is not None else 0
    raw = bytearray(
        _STRUCT.pack(
            *(command.opcode, 0, 0, command.namespace, 0, 0, 0, address),
            *(0, len(data) if data is not None else 0),
            *(command.cdw10, command.cdw11, 0, 0, 0, 0),
            *(command.timeout_ms, 0),
        )
    )
    return int(fcntl.ioctl(descriptor, COMMAND, raw, True))


def eraser(path: Path, node: model.DeviceNode, serial: str, submit: Submit = submit) -> generic.Eraser:
    """Return a function to erase the disk.

    Args:
        path: the controller's device file, as this process sees it.
        node: the kernel's description of that file.
        serial: the disk's serial number; a disk with another number is not erased.
        submit: the function to send a command.
    """

    def erase(report: generic.Report) -> None:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise _refusal(node.path, f"cannot open {path}: {os.strerror(error.errno or 0)}") from error
        try:
            facts = os.fstat(descriptor)
            if not stat.S_ISCHR(facts.st_mode) or facts.st_rdev != os.makedev(node.major, node.minor):
                raise _refusal(node.path, f"{path} is another device by now")
            _Disk(descriptor, node.path, submit).erase(serial, report)
        finally:
            os.close(descriptor)

    return erase


class _Disk:
    """A disk behind its controller's descriptor."""

    def __init__(self, descriptor: int, name: str, submit: Submit) -> None:
        self._descriptor = descriptor
        self._name = name
        self._submit = submit
        self._ends = time.monotonic() + LONGEST_SECONDS

    def erase(self, serial: str, report: generic.Report) -> None:
        """Erase the disk by the best method it supports."""
        about = self._identify(Identify.CONTROLLER)
        own = about[4:24].decode("ascii", errors="replace").strip()
        if model.canonical_serial(own) != model.canonical_serial(serial):
            raise _refusal(self._name, f"it has the serial number {own!r}, and {serial!r} is to be erased")
        admitted, attributes = int.from_bytes(about[256:258], "little"), about[524]
        sanitizes = int.from_bytes(about[328:332], "little")
        quick = next((way for way in (_BY_KEY, _BY_BLOCK) if sanitizes & way), None)
        self._refuse_hidden(
            admitted, is_shared=bool(about[76] & _MANY_CONTROLLERS), reached=quick is not None
        )
        if quick is not None:
            self._sanitize(quick, report)
        elif admitted & _FORMAT_ADMITTED:
            self._format(attributes, report)
        elif sanitizes & _BY_OVERWRITING:
            self._sanitize(_BY_OVERWRITING, report)
        else:
            raise _refusal(
                self._name,
                "it can neither be sanitized nor formatted; set policy.clean of its Fabric to reset for disks "
                "whose data the next user may read",
            )

    def _sanitize(self, way: int, report: generic.Report) -> None:
        self._await_sanitize(report)  # the previous user may have started one
        passes = _ONE_PASS if way == _BY_OVERWRITING else 0
        begin = Command(opcode=Opcode.SANITIZE, cdw10=_ACTIONS[way] | _UNRESTRICTED_EXIT | passes)
        self._send(begin, "sanitize")
        state = self._await_sanitize(report)
        if state == _FAILED:
            raise _refusal(
                self._name,
                "its sanitize failed half way; it is tried again, and if it fails again the disk is broken",
            )

    def _await_sanitize(self, report: generic.Report) -> int:
        """Wait until no sanitize is in progress; return the state of the last one."""
        while True:
            state, done = self._read_sanitize_state()
            if state != _IN_PROGRESS:
                return state
            if time.monotonic() > self._ends:
                raise _refusal(self._name, f"its sanitize did not end within {LONGEST_SECONDS // 3600} h")
            report(f"sanitizing {self._name}, {done // 10 * 10} % done")  # each change is a write
            time.sleep(LOOK_SECONDS)

    def _read_sanitize_state(self) -> tuple[int, int]:
        """Return the state of the most recent sanitize, and its progress in percent."""
        dwords = 512 // 4 - 1
        page = array.array("B", bytes(512))
        ask = Command(
            opcode=Opcode.GET_LOG_PAGE,
            namespace=0xFFFFFFFF,
            cdw10=dwords << 16 | _SANITIZE_STATUS,
        )
        self._send(ask, "report its sanitize's state", page)
        done, state = struct.unpack_from("<HH", page)
        return state & 0b111, done * 100 // 65536

    def _refuse_hidden(self, admitted: int, *, is_shared: bool, reached: bool) -> None:
        """Raise NotCleaned if the disk has namespaces that are not attached to this controller.

        They are allowed if an erase reaches them (`reached`) and the disk has no other controller.
        """
        if not admitted & _NAMESPACE_MANAGEMENT or (reached and not is_shared):
            return
        hidden = set(self._namespaces(Identify.ALLOCATED)) - set(self._namespaces(Identify.ACTIVE))
        if hidden:
            raise _refusal(
                self._name,
                f"its namespace {min(hidden)} is not attached to this controller, so it would be missed, or is another host's; "
                "delete it (nvme delete-ns) or attach it here",
            )

    def _format(self, attributes: int, report: generic.Report) -> None:
        namespaces = self._namespaces(Identify.ACTIVE)
        if attributes & (_ERASE_TAKES_ALL | _FORMAT_TAKES_ALL):
            namespaces = namespaces[:1]
        erase = 0b010 if attributes & _CRYPTOGRAPHIC else 0b001
        for number, namespace in enumerate(namespaces):
            report(f"formatting {self._name}, namespace {number + 1} of {len(namespaces)}")
            about = self._identify(Identify.NAMESPACE, namespace)
            size, protection = about[26], about[29]
            kept = (
                (size & 0b1111)
                | (size >> 4 & 1) << 4
                | (protection & 0b111) << 5
                | (protection >> 3 & 1) << 8
                | (size >> 5 & 0b11) << 12
            )
            left_ms = max(1, int((self._ends - time.monotonic()) * 1000))
            command = Command(
                opcode=Opcode.FORMAT_NVM,
                namespace=namespace,
                cdw10=kept | erase << 9,
                timeout_ms=min(left_ms, 0xFFFFFFFF),
            )
            self._send(command, f"format namespace {namespace}")

    def _namespaces(self, which: Identify) -> list[int]:
        """Return the namespace numbers of one Identify page: at most 1,024, more than any disk has."""
        page = self._identify(which)
        return [number for number in struct.unpack("<1024I", page) if number]

    def _identify(self, what: Identify, namespace: int = 0) -> bytes:
        page = array.array("B", bytes(_PAGE_BYTES))
        self._send(
            Command(opcode=Opcode.IDENTIFY, namespace=namespace, cdw10=what),
            "identify itself",
            page,
        )
        return page.tobytes()

    def _send(self, command: Command, what: str, page: "Page[int] | None" = None) -> None:
        try:
            status = self._submit(self._descriptor, command, page)
        except OSError as error:
            number = error.errno or 0
            name = errno.errorcode.get(number, "no errno")
            raise _refusal(
                self._name,
                f"asked to {what}, the kernel answered {os.strerror(number)} ({name}); look at its log",
            ) from error
        if status:
            raise _refusal(self._name, f"asked to {what}, it answered with status {status:#06x}")


def _refusal(name: str, why: str) -> errors.NotCleaned:
    return errors.NotCleaned(f"{name} is not erased, so no other user gets it: {why}")
