"""Reads of single sysfs files, each of which may be absent, racing with a removal, or nonsense.

Every function answers None instead of raising: a device that vanishes while it is read, a driver that
answers EIO or EINVAL and a value that is not a number are ordinary on a live kernel.
"""

import os

_ATTRIBUTE_BYTES = 4096  # sysfs hands out at most one page per attribute


def text(path: str) -> str | None:
    """The file's content without surrounding white space, or None if it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        return os.read(descriptor, _ATTRIBUTE_BYTES).decode("utf-8", "replace").strip()
    except OSError:
        return None
    finally:
        os.close(descriptor)


def number(path: str) -> int | None:
    """The file's content as an integer (decimal, or hexadecimal after 0x), or None."""
    return parse_number(text(path))


def parse_number(value: str | None) -> int | None:
    """An integer as sysfs writes it, or None where it wrote something else."""
    if not value:
        return None
    try:
        return int(value, 0)
    except ValueError:
        return None


def properties(path: str) -> dict[str, str]:
    """The KEY=VALUE lines of a `uevent` file; empty if it cannot be read."""
    return dict(line.split("=", 1) for line in (text(path) or "").split("\n") if "=" in line)


def link_target(path: str) -> str | None:
    """What a symbolic link says, or None."""
    try:
        return os.readlink(path)  # noqa: PTH115 - thousands of Path objects cost more than the reads
    except OSError:
        return None


def link_name(path: str) -> str | None:
    """The last component of what a symbolic link points to, or None."""
    target = link_target(path)
    return target.rpartition("/")[2] if target is not None else None


def names(path: str) -> list[str]:
    """The directory's entries, sorted; empty if it cannot be listed."""
    return sorted(entry.name for entry in entries(path))


def entries(path: str) -> list[os.DirEntry[str]]:
    """The directory's entries with their types, in no order; empty if it cannot be listed."""
    try:
        with os.scandir(path) as found:
            return list(found)
    except OSError:
        return []


def below_root(link: str) -> str:
    """A link like `../../../devices/x` as a path below the root of sysfs: `devices/x`."""
    while link.startswith("../"):
        link = link[3:]
    return link


def node_number(value: int | None) -> int | None:
    """A NUMA node, or None: the kernel writes -1 for "no affinity known"."""
    return value if value is not None and value >= 0 else None
