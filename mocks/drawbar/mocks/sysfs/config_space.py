"""PCI configuration space as bytes: header, PCI Express capability, Device Serial Number.

PCI Express Base Specification, 7.5.1 (headers), 7.5.3 (PCI Express capability), 7.9.3 (serial number).
"""

import struct
from collections.abc import Mapping

SPACE_BYTES = 4096
_EXTENDED = 0x100
_CAPABILITIES = 0x40
_STATUS_HAS_CAPABILITIES = 0x10
_COMMAND_MEMORY_AND_MASTER = 0x06
_PCI_EXPRESS = 0x10
_ENDPOINT = 0x0002
_SLOT_CAPABILITIES = 0x14
_HOT_PLUG = (
    0x7B  # button, power controller, indicators, surprise, hot-plug capable: as recorded on QEMU's ports
)
_DSN_HEADER = 0x0003 | 1 << 16  # capability 3, version 1, last in the list


def endpoint(
    *,
    vendor: int,
    device: int,
    class_code: int,
    subsystem: tuple[int, int],
    serial_number: int | None,
    bars: Mapping[int, int] | None = None,
) -> bytes:
    """Return the configuration space of a card's function.

    `bars` are 64-bit registers by the number of their first half.
    """
    space = _header(vendor, device, class_code, header_type=0)
    for number, register in (bars or {}).items():
        struct.pack_into("<Q", space, 0x10 + 4 * number, register)
    struct.pack_into("<HH", space, 0x2C, *subsystem)
    struct.pack_into("<BBH", space, _CAPABILITIES, _PCI_EXPRESS, 0, _ENDPOINT)
    if serial_number is not None:
        struct.pack_into("<IQ", space, _EXTENDED, _DSN_HEADER, serial_number)
    return bytes(space)


def bridge(
    *, vendor: int, device: int, capability: int, buses: tuple[int, int, int], slot: int | None = None
) -> bytes:
    """Return the configuration space of a port.

    Args:
        vendor: its vendor id.
        device: its device id.
        capability: its PCI Express capabilities register.
        buses: its primary, secondary and subordinate bus numbers.
        slot: the physical slot number in its Slot Capabilities (7.5.3.9).
    """
    space = _header(vendor, device, 0x060400, header_type=1)
    struct.pack_into("<BBB", space, 0x18, *buses)
    struct.pack_into("<BBH", space, _CAPABILITIES, _PCI_EXPRESS, 0, capability)
    if slot is not None:
        struct.pack_into("<I", space, _CAPABILITIES + _SLOT_CAPABILITIES, slot << 19 | _HOT_PLUG)
    return bytes(space)


def host_bridge(*, vendor: int, device: int) -> bytes:
    """Return the configuration space of a host bridge."""
    return bytes(_header(vendor, device, 0x060000, header_type=0))


def _header(vendor: int, device: int, class_code: int, *, header_type: int) -> bytearray:
    space = bytearray(SPACE_BYTES)
    struct.pack_into("<HHHH", space, 0, vendor, device, _COMMAND_MEMORY_AND_MASTER, _STATUS_HAS_CAPABILITIES)
    space[0x09:0x0C] = class_code.to_bytes(3, "little")
    space[0x0E] = header_type
    space[0x34] = _CAPABILITIES
    return space
