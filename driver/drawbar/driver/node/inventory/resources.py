"""Address ranges of PCI functions and bridges, from their file `resource`. Pure.

Each line of `resource` is start, end and flags (drivers/pci/pci-sysfs.c, `resource_show`). There are six BARs, the ROM,
six BARs of virtual functions if the kernel supports them, and four windows of a bridge. A BAR without an address has one
of two forms. The kernel keeps its size and sets a flag, or it clears the whole line (drivers/pci/setup-bus.c,
`reset_resource`). A cleared line also means that the function has no such BAR. Configuration space then decides.

I/O ranges and ROMs do not count: drivers work without them, and few hosts have enough I/O space.

Source: include/linux/ioport.h for the flags; PCI Local Bus Specification 3.0, 6.2.5.1 for the registers.
"""

import re

import msgspec

_LINE = re.compile(r"0x([0-9a-f]{1,16}) 0x([0-9a-f]{1,16}) 0x([0-9a-f]{1,16})")
_MEMORY = 0x200
_UNSET, _DISABLED = 0x2000_0000, 0x1000_0000
_BARS = 6
_BAR_LINES = (7, 13)
"""The lines of a function without and with the BARs of virtual functions; a bridge has four more."""
_WINDOWS = 4
HEADER_BYTES, _HEADER_TYPE, _FIRST_BAR = 64, 0x0E, 0x10
_FUNCTION_HEADER = 0
_IO_BAR, _BAR_KIND, _BAR_64_BIT = 0x1, 0x6, 0x4
_ALL_ONES = 0xFFFF_FFFF


class Range(msgspec.Struct, frozen=True, kw_only=True):
    """One line of `resource`."""

    start: int = 0
    end: int = 0
    flags: int = 0

    @property
    def size(self) -> int:
        """Return its size in bytes; 0 without an address."""
        return self.end - self.start + 1 if self.is_assigned else 0

    @property
    def is_assigned(self) -> bool:
        """Return whether it has an address."""
        return not self.flags & (_UNSET | _DISABLED) and 0 < self.start <= self.end

    @property
    def is_memory(self) -> bool:
        """Return whether it is a range of memory, not of I/O ports."""
        return bool(self.flags & _MEMORY)

    @property
    def is_cleared(self) -> bool:
        """Return whether the line is all zeros."""
        return self == Range()


class Windows(msgspec.Struct, frozen=True, kw_only=True):
    """The memory windows of a bridge, in bytes.

    Attributes:
        memory: the size of the window that is not prefetchable, below 4 GiB.
        prefetchable: the size of the prefetchable window.
    """

    memory: int = 0
    prefetchable: int = 0


def parse(text: str | None) -> tuple[Range, ...]:
    """Return the lines of a `resource` file; none if the text has another form."""
    lines = (text or "").strip().split("\n")
    if len(lines) > max(_BAR_LINES) + _WINDOWS:
        return ()
    ranges = []
    for line in lines:
        match = _LINE.fullmatch(line.strip())
        if match is None:
            return ()
        start, end, flags = (int(number, 16) for number in match.groups())
        ranges.append(Range(start=start, end=end, flags=flags))
    return tuple(ranges)


def windows(lines: tuple[Range, ...]) -> Windows | None:
    """Return the windows of a bridge, or None if these are not a bridge's lines."""
    if len(lines) - _WINDOWS not in _BAR_LINES:
        return None
    _, memory, prefetchable, _ = lines[-_WINDOWS:]
    return Windows(
        memory=memory.size if memory.is_memory else 0,
        prefetchable=prefetchable.size if prefetchable.is_memory else 0,
    )


def unassigned_bars(lines: tuple[Range, ...], header: bytes) -> tuple[int, ...]:
    """Return the numbers of a function's memory BARs without an address.

    Args:
        lines: the lines of its `resource` file.
        header: the readable part of the first 64 bytes of its configuration space.
    """
    if len(lines) < _BARS:
        return ()
    implemented = memory_bars(header)
    return tuple(
        number
        for number, line in enumerate(lines[:_BARS])
        if (line.is_memory and not line.is_assigned) or (line.is_cleared and number in implemented)
    )


def memory_bars(header: bytes) -> frozenset[int]:
    """Return the numbers of the memory BARs visible in a function's registers.

    A register of zeros is ambiguous: the function has no such BAR, or a 32-bit BAR without an address.
    """
    if len(header) < HEADER_BYTES or header[_HEADER_TYPE] & 0x7F != _FUNCTION_HEADER:
        return frozenset()
    registers = [
        int.from_bytes(header[offset : offset + 4], "little")
        for offset in range(_FIRST_BAR, _FIRST_BAR + 4 * _BARS, 4)
    ]
    implemented, number = set(), 0
    while number < _BARS:
        register = registers[number]
        is_memory = register not in (0, _ALL_ONES) and not register & _IO_BAR
        if is_memory:
            implemented.add(number)
        number += 2 if is_memory and register & _BAR_KIND == _BAR_64_BIT else 1
    return frozenset(implemented)
