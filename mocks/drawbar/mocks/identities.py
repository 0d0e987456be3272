"""The identifiers of an emulated device, made from its one serial number; pure.

A simulated fabric and a mocked kernel describe a device by different numbers, as real managers and kernels do: a
manager reads a GPU's board serial number, a kernel its UUID. Both sides call `defaults` with the same serial number,
so the values of the same kind agree and those of different kinds differ.
"""

import hashlib
import re
import uuid
from collections.abc import Iterator

from drawbar.fabric.classes import DeviceClass
from drawbar.fabric.witnesses import Identifier, Kind, identifier

DSN = re.compile(r"([0-9a-f]{2}-){7}[0-9a-f]{2}", re.IGNORECASE)
"""The form of a PCIe Device Serial Number."""
SOURCE = "serial of the emulated device"
"""The source of each identifier that `defaults` makes."""


def defaults(device_class: DeviceClass, serial: str) -> tuple[Identifier, ...]:
    """Return the identifiers of a device with this serial number; none for a placeholder."""
    if not serial.strip():
        return ()
    made = (identifier(kind, text, SOURCE) for kind, text in _texts(device_class, serial))
    return tuple(each for each in made if each is not None)


def _texts(device_class: DeviceClass, serial: str) -> Iterator[tuple[Kind, str]]:
    match device_class:
        case DeviceClass.NVME:
            yield Kind.NVME_SERIAL, serial
        case DeviceClass.CXL_MEMORY:
            yield Kind.PCIE_DSN, _hexadecimal(serial)
        case DeviceClass.GPU:
            yield Kind.BOARD_SERIAL, serial
            yield Kind.GPU_UUID, str(uuid.uuid5(uuid.NAMESPACE_OID, serial))
        case DeviceClass.NIC:
            yield Kind.VPD_SERIAL, serial
            yield Kind.MAC, _mac_address(serial)
        case _:
            yield Kind.PCIE_DSN, serial if DSN.fullmatch(serial) else _digest(serial)[:8].hex("-")


def _hexadecimal(serial: str) -> str:
    """Return a CXL serial number, decimal or after 0x, as the kernel prints it; another text unchanged."""
    try:
        return f"{int(serial, 0):#x}"
    except ValueError:
        return serial


def _mac_address(serial: str) -> str:
    """Return a universally administered unicast address (IEEE 802, 8.2)."""
    first, *following = _digest(serial)[:6]
    return bytes((first & ~3, *following)).hex(":")


def _digest(serial: str) -> bytes:
    return hashlib.sha256(serial.encode()).digest()
