"""What this process may do on this host, as far as that can be seen without doing it.

Sources: capabilities(7), proc(5) (`status`, `mountinfo`), namespaces(7); the inode numbers of the first namespaces are
fixed by include/uapi/linux/nsfs.h (`*_NS_INIT_INO`).
"""

import enum
import os
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
# By the name of its namespace file the inode number of the first one.
FIRST_NAMESPACES = {"user": 0xEFFFFFFD, "pid": 0xEFFFFFFC}
NETLINK_KOBJECT_UEVENT = 15
_ESCAPE = re.compile(r"\\([0-7]{3})")


class Capability(enum.IntEnum):
    """The capabilities that Drawbar has a use for, by their bit (include/uapi/linux/capability.h)."""

    CAP_DAC_OVERRIDE = 1
    CAP_DAC_READ_SEARCH = 2
    CAP_NET_ADMIN = 12
    CAP_SYS_PTRACE = 19
    CAP_SYS_ADMIN = 21


class Access(enum.Enum):
    """Whether files can be made at a place."""

    FINE = enum.auto()
    READ_ONLY = enum.auto()
    DENIED = enum.auto()
    NOT_A_DIRECTORY = enum.auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A directory that is to be written.

    Attributes:
        found: the part of the path that exists.
        source: where in its filesystem the mount that holds it begins; empty if that is not known.
        mount: the mount point that holds it.
    """

    path: Path
    access: Access
    found: Path
    source: str = ""
    mount: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The process on its host.

    Attributes:
        capabilities: of those known here, the ones in effect; None where /proc does not tell.
        first_namespaces: by `user` and `pid` whether the process is in the host's own; None where that is not known.
        boot_id: whether the kernel tells it.
        sysfs: whether there is a PCI bus in it, and whether it can be written.
        uevents: why the kernel's uevents cannot be heard; None if they can.
    """

    capabilities: frozenset[Capability] | None
    first_namespaces: dict[str, bool | None]
    boot_id: bool
    sysfs_readable: bool
    sysfs: Place
    directories: tuple[Place, ...]
    uevents: str | None


def facts(directories: tuple[Path, ...], sysfs: Path, *, proc: Path = PROC) -> Facts:
    """Looks at everything. Blocking; raises nothing, since what cannot be seen is a fact too."""
    mounts = tuple(_mounts(proc))
    return Facts(
        capabilities=_capabilities(proc),
        first_namespaces={name: _is_first(proc, name) for name in FIRST_NAMESPACES},
        boot_id=os.access(proc / "sys" / "kernel" / "random" / "boot_id", os.R_OK),
        sysfs_readable=os.access(sysfs / "bus" / "pci" / "devices", os.R_OK),
        sysfs=_place(sysfs / "bus" / "pci", mounts),
        directories=tuple(_place(path, mounts) for path in directories),
        uevents=_uevents(),
    )


def _capabilities(proc: Path) -> frozenset[Capability] | None:
    for line in _lines(proc / "self" / "status"):
        name, _, value = line.partition(":")
        if name == "CapEff":
            bits = int(value, 16)
            return frozenset(one for one in Capability if bits >> one & 1)
    return None


def _is_first(proc: Path, name: str) -> bool | None:
    try:
        return (proc / "self" / "ns" / name).readlink().name == f"{name}:[{FIRST_NAMESPACES[name]}]"
    except OSError:
        return None


def _place(path: Path, mounts: tuple[tuple[str, str], ...]) -> Place:
    found = next(one for one in (path, *path.parents) if os.path.lexists(one) or one == one.parent)
    # Mount points have no links in them, and /var/run often is one.
    real = Path(os.path.realpath(found))
    holding = [(source, mount) for source, mount in mounts if real.is_relative_to(mount)]
    # The longest, and of several on top of each other the last.
    source, mount = max(reversed(holding), key=lambda one: len(one[1]), default=("", ""))
    return Place(path=path, access=_access(found), found=found, source=source, mount=mount)


def _access(found: Path) -> Access:
    if not found.is_dir():
        return Access.NOT_A_DIRECTORY
    try:
        read_only = os.statvfs(found).f_flag & os.ST_RDONLY
    except OSError:
        return Access.DENIED
    if read_only:
        return Access.READ_ONLY
    return Access.FINE if os.access(found, os.W_OK | os.X_OK) else Access.DENIED


def _uevents() -> str | None:
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_KOBJECT_UEVENT) as probe:
            probe.bind((0, 1))
    except OSError as error:
        return error.strerror or str(error)
    return None


def _mounts(proc: Path) -> Iterator[tuple[str, str]]:
    """Of each mount where in its filesystem it begins, and where it is."""
    for line in _lines(proc / "self" / "mountinfo"):
        fields = line.split(" ")
        if len(fields) > 5:
            yield _unescaped(fields[3]), _unescaped(fields[4])


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda found: chr(int(found[1], 8)), text)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return []
