"""The PCIe Device Serial Number, read from a function's configuration space.

PCI Express Base Specification, 7.9.3: extended capability 0x0003 holds a 64-bit number that is unique to
the card (all functions of one card show the same). Extended capabilities start at 256; an unprivileged
reader gets only the first 64 bytes, which looks like the end of the file.

The list is walked with small reads: each dword is a real access to the device, and 4,096 bytes of them
would take a millisecond per function.
"""

import os
from collections.abc import Callable

_EXTENDED_START = 0x100
_SPACE_BYTES = 4096
_CAPABILITY_DSN = 0x0003
_MOST_CAPABILITIES = (_SPACE_BYTES - _EXTENDED_START) // 8  # a list that is longer runs in a circle
_ALL_ONES = 0xFFFF_FFFF  # what a device that has gone answers

Read = Callable[[int, int], bytes]
"""Takes a length and an offset in bytes, as `os.pread` does after its descriptor."""


class Hidden(Exception):
    """Configuration space beyond 64 bytes is not shown to this process."""


def serial_number(directory: int) -> int | None:
    """The Device Serial Number of the function whose directory this descriptor is, or None if it has none.

    Raises:
        Hidden: the process lacks the privilege (CAP_SYS_ADMIN) to see it.
    """
    try:
        descriptor = os.open("config", os.O_RDONLY | os.O_CLOEXEC, dir_fd=directory)
    except PermissionError as error:
        raise Hidden from error
    except OSError:
        return None
    try:
        return find_serial_number(
            lambda length, offset: os.pread(descriptor, length, offset), lambda: os.fstat(descriptor).st_size
        )
    except OSError:
        return None
    finally:
        os.close(descriptor)


def find_serial_number(read: Read, size: Callable[[], int]) -> int | None:
    """Walks the extended capabilities.

    Args:
        read: reads configuration space; answers fewer bytes than asked for where it ends.
        size: answers the bytes of configuration space that the function has, 4,096 if it is PCI Express.

    Raises:
        Hidden: the function has extended space, and `read` ends before it.
    """
    offset = _EXTENDED_START
    for _ in range(_MOST_CAPABILITIES):
        block = read(12, offset)
        if offset == _EXTENDED_START and not block and size() > _EXTENDED_START:
            raise Hidden
        header = int.from_bytes(block[:4], "little")
        if len(block) < 12 or header in (0, _ALL_ONES):
            return None
        if header & 0xFFFF == _CAPABILITY_DSN:
            return _plausible(int.from_bytes(block[4:12], "little"))
        offset = (header >> 20) & 0xFFC
        if offset < _EXTENDED_START:
            return None
    return None


def _plausible(number: int) -> int | None:
    """Boards that were never given a number carry zeros or ones."""
    return None if number in (0, 0xFFFF_FFFF_FFFF_FFFF) else number
