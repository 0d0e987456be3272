"""Serial numbers in the notations in which kernels and fabric managers write them.

The kernel writes an NVMe serial as padded text, a CXL memory device's as `0x1234`, and shows the PCIe
Device Serial Number only in configuration space. A fabric manager writes the same 64-bit number as
`00-00-00-00-00-00-12-34`, with colons, in decimal, or as a GCXLID with `:<LD-ID>` behind.
"""

import re

_PAIRS = re.compile(r"((?:[0-9a-f]{2}[-:]){7}[0-9a-f]{2})(?::[0-9a-f]{4})?")
_SIXTEEN_DIGITS = re.compile(r"[0-9a-f]{16}")
_BEYOND = 1 << 64


def dashed(number: int) -> str:
    """A 64-bit number as eight pairs of hexadecimal digits, most significant first."""
    return number.to_bytes(8, "big").hex("-")


def plausible(number: int | None) -> int | None:
    """A serial number of 64 bits, or None: a device that was never given one says 0, and a broken one anything."""
    return number if number and 0 < number < _BEYOND else None


def canonical(serial: str) -> str:
    """What two notations of one textual serial have in common: case and padding do not count."""
    return serial.strip().casefold()


def numbers(serial: str) -> frozenset[int]:
    """Every 64-bit number that this notation can mean; several if sixteen digits could be either base."""
    value = canonical(serial)
    if pairs := _PAIRS.fullmatch(value):
        return frozenset({int(re.sub("[-:]", "", pairs[1]), 16)})
    found = set()
    if re.fullmatch("[0-9]{1,20}", value) and int(value) < _BEYOND:
        found.add(int(value))
    if value.startswith("0x") and re.fullmatch("[0-9a-f]{1,16}", value[2:]):
        found.add(int(value, 16))
    if _SIXTEEN_DIGITS.fullmatch(value):
        found.add(int(value, 16))
    return frozenset(found)
