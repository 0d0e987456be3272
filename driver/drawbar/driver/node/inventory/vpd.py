"""Vital Product Data of a PCI function: the choice of functions to read, and the parsing of their data. Pure.

The data is a list of resources: a name, a read-only part, a writable part, and an end tag. The read-only part has fields
with names of two characters, such as `PN` (part number) and `SN` (serial number). A device may take 125 ms to answer the
read of one dword, so the writable part is not read.

Source: PCI Local Bus Specification 3.0, appendix I; drivers/pci/vpd.c, whose quirks list devices that hang.
"""

from collections.abc import Callable, Mapping

from drawbar.fabric.classes import DeviceClass

READ_BYTES_MAX = 4096
"""The maximum size of a read-only part; real ones have a few hundred bytes."""
_RESOURCES_MAX = 8
_NAME, _READ_ONLY = 0x82, 0x90
_LARGE = 0x80
_HEADER_BYTES = 3
_FIELD_HEADER_BYTES = 3

_CLASSES = frozenset({DeviceClass.NIC, DeviceClass.NVME})
_ALSO_CLASSES = frozenset({DeviceClass.GPU, DeviceClass.ACCELERATOR, DeviceClass.FPGA})
_LSI, _ATTANSIC, _ANNAPURNA = 0x1000, 0x1969, 0x1C36
_BLOCKED_VENDORS = frozenset({_LSI, _ATTANSIC})
_BLOCKED_DEVICES = frozenset({(_ANNAPURNA, 0x0031)})

ReadBytes = Callable[[int, int], bytes]
"""A function of a length and an offset, like `os.pread` after its descriptor."""


def is_worthwhile(device_class: DeviceClass, vendor: int, device: int, *, is_identified: bool) -> bool:
    """Return whether to read the data of a physical function.

    Args:
        device_class: the function's class.
        vendor: the PCI vendor id.
        device: the PCI device id.
        is_identified: another source shows a number of the card.
    """
    if vendor in _BLOCKED_VENDORS or (vendor, device) in _BLOCKED_DEVICES:
        return False
    return device_class in _CLASSES or (device_class in _ALSO_CLASSES and not is_identified)


def read_fields(read: ReadBytes) -> Mapping[str, str]:
    """Return the fields of the read-only part without padding; none if the data has another form.

    Raises:
        OSError: `read` failed.
    """
    offset = 0
    for _ in range(_RESOURCES_MAX):
        header = read(_HEADER_BYTES, offset)
        if len(header) < _HEADER_BYTES or not header[0] & _LARGE:
            return {}
        length = int.from_bytes(header[1:], "little")
        offset += _HEADER_BYTES
        if header[0] == _READ_ONLY:
            return _fields(read(min(length, READ_BYTES_MAX), offset))
        if header[0] != _NAME:
            return {}
        offset += length
    return {}


def _fields(data: bytes) -> dict[str, str]:
    fields: dict[str, str] = {}
    offset = 0
    while offset + _FIELD_HEADER_BYTES <= len(data):
        start = offset + _FIELD_HEADER_BYTES
        end = start + data[offset + 2]
        if end > len(data):
            break
        try:
            name, text = data[offset : offset + 2].decode("ascii"), data[start:end].decode("ascii")
        except UnicodeDecodeError:
            pass  # RV holds a checksum, and an unresponsive device returns ones
        else:
            fields.setdefault(name, text.strip("\0 "))
        offset = end
    return fields
