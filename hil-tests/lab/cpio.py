"""A cpio archive as the kernel takes it for an initrd, the same bytes for the same content.

Source: Documentation/driver-api/early-userspace/buffer-format.rst ("newc" format).
"""

import stat
from collections.abc import Iterable
from dataclasses import dataclass

_MAGIC = b"070701"
_TRAILER = "TRAILER!!!"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A member of the archive.

    Attributes:
        name: its path, without a slash in front.
        mode: type and permissions, as in `st_mode`.
        content: a file's bytes, or where a symbolic link leads.
        device: major and minor number of a device node.
    """

    name: str
    mode: int
    content: bytes = b""
    device: tuple[int, int] = (0, 0)


def folder(name: str) -> Entry:
    """Return the entry of a directory."""
    return Entry(name=name, mode=stat.S_IFDIR | 0o755)


def file(name: str, content: bytes, *, executable: bool = False) -> Entry:
    """Return the entry of a regular file."""
    return Entry(name=name, mode=stat.S_IFREG | (0o755 if executable else 0o644), content=content)


def link(name: str, target: str) -> Entry:
    """Return the entry of a symbolic link."""
    return Entry(name=name, mode=stat.S_IFLNK | 0o777, content=target.encode())


def character_device(name: str, major: int, minor: int) -> Entry:
    """Return the entry of a character device: the kernel wants /dev/console before any mount."""
    return Entry(name=name, mode=stat.S_IFCHR | 0o600, device=(major, minor))


def archive(entries: Iterable[Entry]) -> bytes:
    """Return the archive of all entries in their order. Owners are 0, times are 0, inodes are counted."""
    packed = [_member(number, entry) for number, entry in enumerate(entries, start=1)]
    packed.append(_member(0, Entry(name=_TRAILER, mode=0)))
    return _pad_data(b"".join(packed), 512)


def _member(inode: int, entry: Entry) -> bytes:
    name = entry.name.encode() + b"\0"
    links = 2 if stat.S_ISDIR(entry.mode) else 1
    fields = (
        inode,
        entry.mode,
        0,  # uid
        0,  # gid
        links,
        0,  # mtime
        len(entry.content),
        0,  # the device that holds it
        0,
        *entry.device,
        len(name),
        0,  # checksum, of another format
    )
    header = _MAGIC + b"".join(b"%08X" % field for field in fields)
    return _pad_data(header + name, 4) + _pad_data(entry.content, 4)


def _pad_data(data: bytes, unit: int) -> bytes:
    return data + bytes(-len(data) % unit)
