"""ACPI tables that a guest's firmware has besides QEMU's own, in AML.

A server's firmware numbers the slots of ports by `_SUN`. Two functions of one device can be two ports. Linux makes one slot of
them, and its address names the device (`drivers/acpi/pci_slot.c`), as on a Dell R6615 (systemd#33598).

Source: Advanced Configuration and Power Interface Specification 6.5, section 20.2.
"""

_HEAD = 63
"""Bytes that a package of one length byte may have, with that."""


def slots_of_two_ports(device: int, numbers: tuple[int, int]) -> bytes:
    """Return the body of an SSDT that numbers the slots below functions 0 and 1 of a device of bus 0.

    QEMU's own tables describe function 0 alone, by the name of its address.
    """
    first, second = (f"S{device << 3 | function:02X}_".encode() for function in (0, 1))
    described = _name(b"_ADR", device << 16 | 1) + _name(b"_SUN", numbers[1])
    return _scope(b"\\\x2f\x03_SB_PCI0" + first, _name(b"_SUN", numbers[0])) + _scope(
        b"\\\x2e_SB_PCI0", b"\x5b\x82" + _package(second + described)
    )


def _scope(path: bytes, terms: bytes) -> bytes:
    return b"\x10" + _package(path + terms)


def _name(name: bytes, number: int) -> bytes:
    return b"\x08" + name + b"\x0c" + number.to_bytes(4, "little")


def _package(content: bytes) -> bytes:
    if len(content) < _HEAD:
        return bytes([len(content) + 1]) + content
    length = len(content) + 2
    return bytes([0x40 | length & 0xF, length >> 4]) + content
