"""The pool of devices that QEMU emulates, each with all settings to create it on any virtual machine.

A device is only a description until it is attached. Its data (the file of a disk or a memory) is on the machine of
QEMU, so it stays when the device moves from one virtual machine to another.

Source: QEMU 7.2, docs/system/devices/{nvme,cxl,ivshmem}.rst, docs/specs/edu.txt, and the model's own properties
(`qemu-system-x86_64 -device nvme,help`).
"""

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from drawbar.fabric import contract, witnesses
from drawbar.fabric.witnesses import Kind

MIB = 1 << 20
NVME_SERIAL_CHARS = 20
_MAC = re.compile(r"([0-9a-f]{2}:){5}[0-9a-f]{2}")


class _Model(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel", tag_field="driver"
):
    """The common settings of every device.

    Attributes:
        id: unique in the pool; a part of QEMU's id.
        model: for people and for attaches by model.
        enclosure: the devices of one enclosure make one pool in the cluster.
        properties: further properties for `device_add`, in QEMU's spelling.
    """

    id: str
    model: str = ""
    enclosure: str = ""
    properties: dict[str, str | int | bool] = {}


class Nvme(_Model, frozen=True, kw_only=True, tag="nvme"):
    """A disk; `file` is a raw image."""

    serial: str
    file: str


class CxlMemory(_Model, frozen=True, kw_only=True, tag="cxl-type3"):
    """Persistent CXL memory in a file, with a second one for its label area; QEMU makes both if they are missing."""

    serial: int
    file: str
    labels_file: str
    size_mib: int = msgspec.field(name="sizeMiB")
    labels_mib: int = msgspec.field(name="labelsMiB", default=1)


class SharedMemory(_Model, frozen=True, kw_only=True, tag="ivshmem-plain"):
    """An accelerator without a driver and without a serial number: memory behind a BAR."""

    file: str
    size_mib: int = msgspec.field(name="sizeMiB", default=1)


class Edu(_Model, frozen=True, kw_only=True, tag="edu"):
    """An accelerator without a driver and without a serial number: registers, an interrupt, DMA."""


class E1000e(_Model, frozen=True, kw_only=True, tag="e1000e"):
    """A network card without a network; its device serial number is made from its MAC address."""

    mac: str


class Igb(_Model, frozen=True, kw_only=True, tag="igb"):
    """A network card with virtual functions; QEMU 8.0 and later."""

    mac: str


Model = Nvme | CxlMemory | SharedMemory | Edu | E1000e | Igb


def is_cxl(model: Model) -> bool:
    """Return whether the device needs a CXL root port, which takes only such devices."""
    return isinstance(model, CxlMemory)


def bus(model: Model) -> str:
    """Return the kind of bus for the device: the reachability group of hosts with such ports."""
    return _bus(cxl=is_cxl(model))


def host_groups(ports: Iterable[bool]) -> frozenset[str]:
    """Return the reachability groups of a machine from its ports (True for CXL); none without ports.

    A machine that has never run shows no ports, so its reachability is unknown.
    """
    return frozenset(_bus(cxl=cxl) for cxl in ports)


def _bus(*, cxl: bool) -> str:
    return "cxl" if cxl else "pcie"


def device(model: Model) -> contract.Device:
    """Return the device in the fabric's listing, free."""
    kind, vendor_id, device_id = _KINDS[type(model)]
    serial = serial_number(model)
    return contract.Device(
        id=model.id,
        device_class=kind,
        model=model.model or f"qemu-{driver(model)}",
        vendor="QEMU",
        pci_vendor_id=vendor_id,
        pci_device_id=device_id,
        serial=serial,
        identifiers=identifiers(model),
        enclosure=model.enclosure,
        reach_groups=frozenset({bus(model)}),
        memory_bytes=model.size_mib * MIB if isinstance(model, CxlMemory) else 0,
        health=contract.Health.OK,
    )


def driver(model: Model) -> str:
    """Return QEMU's name of the model."""
    return str(model.__struct_config__.tag)


def serial_number(model: Model) -> str | None:
    """Return the serial number that the guest's kernel reads from the device, or None."""
    match model:
        case Nvme(serial=text):
            return text
        case CxlMemory(serial=number):
            return f"0x{number:x}"
        case E1000e(mac=mac):
            first, last = mac.lower().split(":")[:3], mac.lower().split(":")[3:]
            return "-".join((*first, "ff", "ff", *last))
        case _:
            return None


def identifiers(model: Model) -> tuple[witnesses.Identifier, ...]:
    """Return the identifiers that the guest's kernel can read as well."""
    made: list[witnesses.Identifier | None] = []
    match model:
        case Nvme(serial=text):
            made = [witnesses.identifier(Kind.NVME_SERIAL, text, "nvme.serial")]
        case CxlMemory(serial=number):
            made = [witnesses.identifier(Kind.PCIE_DSN, f"{number:#x}", "cxl-type3.sn")]
        case E1000e(mac=mac):
            # The addresses of QEMU's own prefix, 52:54:00, are locally administered, and identify no card.
            made = [
                witnesses.identifier(Kind.PCIE_DSN, serial_number(model) or "", "e1000e.mac"),
                witnesses.identifier(Kind.MAC, mac, "e1000e.mac"),
            ]
        case Igb(mac=mac):
            made = [witnesses.identifier(Kind.MAC, mac, "igb.mac")]
        case _:
            pass
    return tuple(each for each in made if each is not None)


def problems(model: Model) -> tuple[str, ...]:
    """Return the problems of a device that go beyond the form of its fields."""
    wrong = []
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", model.id):
        wrong.append("its id must be 1 to 64 letters, digits, - and _, and begin with a letter or digit")
    for name, text in (("model", model.model), ("enclosure", model.enclosure)):
        if len(text.encode()) > contract.STRING_BYTES:
            wrong.append(f"{name} has more than {contract.STRING_BYTES} bytes")
    if reserved := sorted(_RESERVED & model.properties.keys()):
        wrong.append(f"properties sets {', '.join(reserved)}, which Drawbar itself sets")
    wrong += [
        f'{name} "{path}" is not an absolute path' for name, path in _files(model) if not path.startswith("/")
    ]
    match model:
        case Nvme(serial=text) if not (text.strip() and text.isascii() and len(text) <= NVME_SERIAL_CHARS):
            wrong.append(f"its serial must be 1 to {NVME_SERIAL_CHARS} ASCII characters")
        case CxlMemory() if not 0 < model.serial < (1 << 64) - 1:
            wrong.append("its serial must be a number of 64 bits, neither 0 nor the greatest")
        case E1000e(mac=mac) | Igb(mac=mac) if not _MAC.fullmatch(mac.lower()):
            wrong.append(f'its mac "{mac}" is not of the form 52:54:00:12:34:56')
        case _:
            pass
    for name in ("size_mib", "labels_mib"):
        if getattr(model, name, 1) < 1:
            wrong.append(f"{name.replace('_mib', 'MiB')} is less than 1")
    return tuple(f"device {model.id}: {problem}" for problem in wrong)


def files(model: Model) -> tuple[str, ...]:
    """Return the files with the device's data; no two devices may share one."""
    return tuple(path for _, path in _files(model))


def _files(model: Model) -> tuple[tuple[str, str], ...]:
    match model:
        case CxlMemory():
            return ("file", model.file), ("labelsFile", model.labels_file)
        case Nvme() | SharedMemory():
            return (("file", model.file),)
        case _:
            return ()


_RESERVED = frozenset({"driver", "id", "bus", "serial", "drive", "memdev", "lsa", "sn", "mac"})
# Any: the types of the structs have no common supertype for mypy.
_KINDS: dict[Any, tuple[contract.DeviceClass, int, int]] = {
    Nvme: (contract.DeviceClass.NVME, 0x1B36, 0x0010),
    CxlMemory: (contract.DeviceClass.CXL_MEMORY, 0x8086, 0x0D93),
    SharedMemory: (contract.DeviceClass.ACCELERATOR, 0x1AF4, 0x1110),
    Edu: (contract.DeviceClass.ACCELERATOR, 0x1234, 0x11E8),
    E1000e: (contract.DeviceClass.NIC, 0x8086, 0x10D3),
    Igb: (contract.DeviceClass.NIC, 0x8086, 0x10C9),
}
