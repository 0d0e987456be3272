"""Reads of single sysfs files, which may be absent, disappear during the read, or hold nonsense.

No function raises for such a file; each has an empty result, mostly None. Three cases are ordinary on a live kernel: a
device disappears during the read, a driver answers EIO or EINVAL, or a value is not a number.
"""

import os
import re
import stat

_ATTRIBUTE_BYTES = 4096  # sysfs hands out at most one page per attribute
_FILE = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
_TABLE_BYTES = 8 << 20
_NUMBER = re.compile("-?(?:0|[1-9][0-9]{0,19}|0[xX][0-9a-fA-F]{1,16})")
_ESCAPE = re.compile(r"\\([0-7]{3})")
_DIRECTORY = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY


def text(path: str, directory: int | None = None) -> str | None:
    """Return the file's content without surrounding white space, or None if it cannot be read.

    Args:
        path: the file; relative to `directory`, if given.
        directory: a descriptor, which saves the kernel the lookup from the root for each file.
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


def as_text(name: str) -> str:
    """Return a file's name with U+FFFD in place of bytes that are not UTF-8, as `text` returns a file's content."""
    return name if name.isascii() else os.fsencode(name).decode("utf-8", "replace")


def head(path: str, length: int, directory: int | None = None) -> bytes:
    """Return the first bytes of a file, up to `length`; none if it cannot be read. Arguments as for `text`."""
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
    """Return the file's content as an integer (decimal, or hexadecimal after 0x), or None. Arguments as for `text`."""
    return parse_number(text(path, directory))


def open_directory(path: str) -> int | None:
    """Return a descriptor of a directory, to be closed by the caller, or None if there is none."""
    try:
        return os.open(path, _DIRECTORY)
    except OSError:
        return None


def parse_number(value: str | None) -> int | None:
    """Return an integer of at most 64 bits in sysfs notation, or None for any other text."""
    return int(value, 0) if value and _NUMBER.fullmatch(value) else None


def pairs(content: str) -> dict[str, str]:
    """Return the KEY=VALUE lines of a `uevent` file."""
    return dict([line.split("=", 1) for line in content.split("\n") if "=" in line])


def link_target(path: str, directory: int | None = None) -> str | None:
    """Return the text of a symbolic link, or None. Arguments as for `text`."""
    try:
        return os.readlink(path, dir_fd=directory)
    except OSError:
        return None


def link_name(path: str, directory: int | None = None) -> str | None:
    """Return the last component of a symbolic link's target, or None. Arguments as for `text`."""
    target = link_target(path, directory)
    return as_text(target.rpartition("/")[2]) if target is not None else None


def list_names(directory: int) -> frozenset[str]:
    """Return the names of all entries of an open directory; empty if it cannot be listed."""
    try:
        return frozenset(os.listdir(directory))
    except OSError:
        return frozenset()


def is_directory(path: str, directory: int) -> bool:
    """Return whether this is a directory, and no link to one. Arguments as for `text`."""
    try:
        return stat.S_ISDIR(os.stat(path, dir_fd=directory, follow_symlinks=False).st_mode)
    except OSError:
        return False


def is_there(path: str, directory: int) -> bool:
    """Return whether there is a file of this name. Arguments as for `text`."""
    try:
        os.stat(path, dir_fd=directory)
    except OSError:
        return False
    return True


def inode(directory: int) -> int:
    """Return the inode number of an open directory; no two directories of sysfs have the same one in one boot."""
    return os.fstat(directory).st_ino


def names(path: str) -> list[str]:
    """Return the names of a directory's entries, sorted; empty if it cannot be listed."""
    return sorted(entry.name for entry in entries(path))


def entries(path: str | int) -> list[os.DirEntry[str]]:
    """Return the entries of a directory or its descriptor, with their types, unordered; empty if it cannot be listed."""
    try:
        with os.scandir(path) as listing:
            return list(listing)
    except OSError:
        return []


def resolve_below_root(link: str) -> str:
    """Return a link such as `../../../devices/x` as a path below the root of sysfs: `devices/x`."""
    return link.lstrip("./")


def node_number(value: int | None) -> int | None:
    """Return a NUMA node, or None for -1, the kernel's value for "no affinity known"."""
    return value if value is not None and value >= 0 else None


def flag(value: int | None) -> bool | None:
    """Return 0 or 1 as a truth value; None stays None."""
    return None if value is None else value != 0


def lines(path: str, undecodable: str = "replace") -> list[str]:
    """Return the lines of a table of /proc, of at most 8 MiB; none if it cannot be read.

    Args:
        path: the table's path.
        undecodable: the treatment of bytes that are not UTF-8, as for `bytes.decode`.
    """
    try:
        with open(path, "rb") as content:  # noqa: PTH123 - as everywhere in this package, paths are str
            return content.read(_TABLE_BYTES).decode("utf-8", undecodable).splitlines()
    except OSError:
        return []


def unescape(content: str) -> str:
    """Return a field of such a table, with the kernel's octal escapes for blanks decoded; proc(5)."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), content)
