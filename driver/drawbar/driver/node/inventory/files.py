"""Reads of single sysfs files, each of which may be absent, racing with a removal, or nonsense.

Every function answers None instead of raising: a device that vanishes while it is read, a driver that
answers EIO or EINVAL and a value that is not a number are ordinary on a live kernel.
"""

import os
import re
import stat

_ATTRIBUTE_BYTES = 4096  # sysfs hands out at most one page per attribute
_FILE = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
_TABLE_BYTES = 8 << 20
_ESCAPE = re.compile(r"\\([0-7]{3})")
_DIRECTORY = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY


def text(path: str, directory: int | None = None) -> str | None:
    """The file's content without surrounding white space, or None if it cannot be read.

    Args:
        path: the file; relative to `directory`, if that is given.
        directory: a descriptor, which spares the kernel the way from the root for each of many files.
    """
    try:
        descriptor = os.open(path, _FILE, dir_fd=directory)
    except OSError:
        return None
    try:
        return os.read(descriptor, _ATTRIBUTE_BYTES).decode("utf-8", "replace").strip()
    except OSError:
        return None
    finally:
        os.close(descriptor)


def head(path: str, length: int, directory: int | None = None) -> bytes:
    """The first bytes of a file, as many as the kernel shows, or none; arguments as of `text`."""
    try:
        descriptor = os.open(path, _FILE, dir_fd=directory)
    except OSError:
        return b""
    try:
        return os.pread(descriptor, length, 0)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def number(path: str, directory: int | None = None) -> int | None:
    """The file's content as an integer (decimal, or hexadecimal after 0x), or None; arguments as of `text`."""
    return parse_number(text(path, directory))


def open_directory(path: str) -> int | None:
    """A descriptor of a directory for `text` and the others, for the caller to close; None if there is none."""
    try:
        return os.open(path, _DIRECTORY)
    except OSError:
        return None


def parse_number(value: str | None) -> int | None:
    """An integer as sysfs writes it, or None where it wrote something else."""
    if not value:
        return None
    try:
        return int(value, 0)
    except ValueError:
        return None


def pairs(content: str) -> dict[str, str]:
    """The KEY=VALUE lines of a `uevent` file."""
    return dict([line.split("=", 1) for line in content.split("\n") if "=" in line])


def link_target(path: str, directory: int | None = None) -> str | None:
    """What a symbolic link says, or None; arguments as of `text`."""
    try:
        return os.readlink(path, dir_fd=directory)
    except OSError:
        return None


def link_name(path: str, directory: int | None = None) -> str | None:
    """The last component of what a symbolic link points to, or None; arguments as of `text`."""
    target = link_target(path, directory)
    return target.rpartition("/")[2] if target is not None else None


def listing(directory: int) -> frozenset[str]:
    """The names of everything in the directory of this descriptor; empty if it cannot be listed."""
    try:
        return frozenset(os.listdir(directory))
    except OSError:
        return frozenset()


def is_directory(path: str, directory: int) -> bool:
    """Whether this is a directory itself, and no link to one; arguments as of `text`."""
    try:
        return stat.S_ISDIR(os.stat(path, dir_fd=directory, follow_symlinks=False).st_mode)
    except OSError:
        return False


def is_there(path: str, directory: int) -> bool:
    """Return whether there is a file of this name; arguments as of `text`."""
    try:
        os.stat(path, dir_fd=directory)
    except OSError:
        return False
    return True


def inode(directory: int) -> int:
    """Return the inode number of the directory of this descriptor; sysfs gives one to no second directory."""
    return os.fstat(directory).st_ino


def names(path: str) -> list[str]:
    """The directory's entries, sorted; empty if it cannot be listed."""
    return sorted(entry.name for entry in entries(path))


def entries(path: str | int) -> list[os.DirEntry[str]]:
    """The entries of a directory or its descriptor, with their types, in no order; empty if it cannot be listed."""
    try:
        with os.scandir(path) as listing:
            return list(listing)
    except OSError:
        return []


def below_root(link: str) -> str:
    """A link like `../../../devices/x` as a path below the root of sysfs: `devices/x`."""
    return link.lstrip("./")


def node_number(value: int | None) -> int | None:
    """A NUMA node, or None: the kernel writes -1 for "no affinity known"."""
    return value if value is not None and value >= 0 else None


def lines(path: str, undecodable: str = "replace") -> list[str]:
    """The lines of a table of /proc, of at most 8 MiB; none if it cannot be read.

    Args:
        path: of the table.
        undecodable: what becomes of bytes that are not UTF-8, as of `bytes.decode`.
    """
    try:
        with open(path, "rb") as content:  # noqa: PTH123 - as everywhere in this package, paths are str
            return content.read(_TABLE_BYTES).decode("utf-8", undecodable).splitlines()
    except OSError:
        return []


def unescaped(content: str) -> str:
    """A field of such a table without the octal escapes that the kernel writes for blanks; proc(5)."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), content)
