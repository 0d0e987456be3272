"""The privileges and mounts of this process on its host, checked before the daemon starts.

Without some of these the daemon would be useless, and it does not start. Without the others some functions fail, which is
logged. One message lists all of them, each with the missing capability, mount or pod field. A mocked tree needs no
privilege, so capabilities are checked only on the host itself. The checks change nothing: they read /proc and
permissions, and open a netlink socket.

Sources: capabilities(7), proc(5) (`status`, `mountinfo`), namespaces(7); the inode numbers of the first namespaces are
fixed by include/uapi/linux/nsfs.h (`*_NS_INIT_INO`).
"""

import asyncio
import enum
import logging
import os
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from drawbar.driver.node import errors, settings, uevents
from drawbar.driver.node.inventory import files

PROC = Path("/proc")
BOOT_ID = Path("sys/kernel/random/boot_id")
"""The random number of the running kernel, below /proc."""
# The inode number of the first namespace of each kind, by the name of its file.
FIRST_NAMESPACES = {"user": 0xEFFFFFFD, "pid": 0xEFFFFFFC}
NETLINK_KOBJECT_UEVENT = 15


class Capability(enum.IntEnum):
    """The capabilities that Drawbar uses, by their bit (include/uapi/linux/capability.h)."""

    CAP_DAC_OVERRIDE = 1
    CAP_DAC_READ_SEARCH = 2
    CAP_NET_ADMIN = 12
    CAP_SYS_PTRACE = 19
    CAP_SYS_ADMIN = 21


class Access(enum.Enum):
    """Whether files can be created in a directory."""

    FINE = enum.auto()
    READ_ONLY = enum.auto()
    DENIED = enum.auto()
    NOT_A_DIRECTORY = enum.auto()


class HostPath(msgspec.Struct, frozen=True, kw_only=True):
    """A directory to be written.

    Attributes:
        existing: the existing part of the path.
        source: the root of its mount within the filesystem; empty if unknown.
        mount: its mount point; empty if unknown.
    """

    path: Path
    access: Access
    existing: Path
    source: str = ""
    mount: str = ""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the process on its host.

    Attributes:
        capabilities: the effective ones among those listed here; None if /proc does not show them.
        first_namespaces: by `user` and `pid`, whether the process is in the host's own namespace; None if unknown.
        boot_id: whether the kernel's boot id is readable.
        sysfs_readable: whether sysfs has a readable PCI bus.
        sysfs: the PCI bus in sysfs, as a directory to be written.
        directories: the directories to be written.
        uevents: why the kernel's uevents cannot be received; None if they can.
    """

    capabilities: frozenset[Capability] | None
    first_namespaces: dict[str, bool | None]
    boot_id: bool
    sysfs_readable: bool
    sysfs: HostPath
    directories: tuple[HostPath, ...]
    uevents: str | None


def read_boot_id() -> str:
    """Return the random number of the running kernel.

    Raises:
        NodeError: it cannot be read.
    """
    try:
        return (PROC / BOOT_ID).read_text(encoding="ascii").strip()
    except OSError as error:
        raise errors.NodeError(f"cannot read {PROC / BOOT_ID}: {error.strerror}; mount /proc") from error


def facts(directories: tuple[Path, ...], sysfs: Path, *, proc: Path = PROC) -> Facts:
    """Return all facts. Blocking; never raises, because an unreadable fact is a fact too."""
    mounts = tuple(_mounts(proc))
    return Facts(
        capabilities=_capabilities(proc),
        first_namespaces={name: _is_first(proc, name) for name in FIRST_NAMESPACES},
        boot_id=os.access(proc / BOOT_ID, os.R_OK),
        sysfs_readable=os.access(sysfs / "bus" / "pci" / "devices", os.R_OK),
        sysfs=_inspect(sysfs / "bus" / "pci", mounts),
        directories=tuple(_inspect(path, mounts) for path in directories),
        uevents=_uevents(),
    )


def _capabilities(proc: Path) -> frozenset[Capability] | None:
    for line in files.lines(f"{proc}/self/status"):
        name, _, value = line.partition(":")
        if name == "CapEff":
            bits = int(value, 16)
            return frozenset(capability for capability in Capability if bits >> capability & 1)
    return None


def _is_first(proc: Path, name: str) -> bool | None:
    try:
        return (proc / "self" / "ns" / name).readlink().name == f"{name}:[{FIRST_NAMESPACES[name]}]"
    except OSError:
        return None


def _inspect(path: Path, mounts: tuple[tuple[str, str], ...]) -> HostPath:
    existing = next(
        ancestor
        for ancestor in (path, *path.parents)
        if os.path.lexists(ancestor) or ancestor == ancestor.parent
    )
    # Mount points contain no symbolic links, but /var/run often is one.
    real = Path(os.path.realpath(existing))
    holding = [(source, mount) for source, mount in mounts if real.is_relative_to(mount)]
    # The longest mount point; of several mounts on it, the last.
    source, mount = max(
        reversed(holding), key=lambda source_and_mount: len(source_and_mount[1]), default=("", "")
    )
    return HostPath(path=path, access=_access(existing), existing=existing, source=source, mount=mount)


def _access(existing: Path) -> Access:
    if not existing.is_dir():
        return Access.NOT_A_DIRECTORY
    try:
        read_only = os.statvfs(existing).f_flag & os.ST_RDONLY
    except OSError:
        return Access.DENIED
    if read_only:
        return Access.READ_ONLY
    return Access.FINE if os.access(existing, os.W_OK | os.X_OK) else Access.DENIED


def _uevents() -> str | None:
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_KOBJECT_UEVENT) as probe:
            probe.bind((0, 1))
    except OSError as error:
        return error.strerror or str(error)
    return None


def _mounts(proc: Path) -> Iterator[tuple[str, str]]:
    """Yield each mount's root within its filesystem, and its mount point."""
    for line in files.lines(f"{proc}/self/mountinfo", "surrogateescape"):
        fields = line.split(" ")
        if len(fields) > 5:
            yield files.unescape(fields[3]), files.unescape(fields[4])


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """The missing privileges and mounts, in sentences.

    Attributes:
        fatal: without these the daemon would be useless.
        warnings: without these some functions fail.
    """

    fatal: tuple[str, ...]
    warnings: tuple[str, ...]


def find_missing(facts: Facts, *, on_host: bool, in_pod: bool) -> Findings:
    """Return the missing privileges and mounts.

    Args:
        facts: the facts of this process.
        on_host: the daemon uses the kernel's own devices and uevents, not a mocked tree.
        in_pod: the directories must be mounts of the host's.
    """
    fatal = [*_directories(facts.directories), *_sources(facts, on_host=on_host)]
    warnings = [
        *(_mount_warnings(facts.directories) if in_pod else ()),
        *(_privileges(facts) if on_host else ()),
    ]
    if facts.sysfs_readable and facts.sysfs.access is not Access.FINE:
        warnings.append(_sysfs(facts.sysfs))
    return Findings(fatal=tuple(fatal), warnings=tuple(warnings))


def sentence(findings: Findings) -> str:
    """Return all findings as one message."""
    lines = [*findings.fatal, *(f"besides: {warning}" for warning in findings.warnings)]
    if len(lines) == 1:
        return lines[0]
    listed = "".join(f"\n  - {line}" for line in lines)
    return f"the daemon cannot run here, {len(lines)} things are missing:{listed}"


def _directories(host_paths: Sequence[HostPath]) -> Iterator[str]:
    remedies = {
        Access.READ_ONLY: "it is mounted read-only; mount it read-write",
        Access.DENIED: "permission denied; run as root (runAsUser: 0)",
        Access.NOT_A_DIRECTORY: "it is not a directory; mount the host's directory there",
    }
    for host_path in host_paths:
        if host_path.access is not Access.FINE:
            at = "" if host_path.existing == host_path.path else f" ({host_path.existing})"
            yield f"cannot write {host_path.path}{at}: {remedies[host_path.access]}"


def _sources(facts: Facts, *, on_host: bool) -> Iterator[str]:
    if not facts.boot_id:
        yield f"cannot read {PROC / BOOT_ID}; mount /proc"
    if not facts.sysfs_readable:
        root = facts.sysfs.path.parents[1]
        yield f"{root} is not a sysfs tree with a PCI bus; mount the host's /sys, or name one with --sysfs"
    if on_host and facts.uevents is not None:
        yield (
            f"cannot receive the kernel's uevents: {facts.uevents}; allow AF_NETLINK sockets (seccompProfile, SELinux)"
        )


def _mount_warnings(host_paths: Sequence[HostPath]) -> Iterator[str]:
    for host_path in host_paths:
        if host_path.mount == "/":
            yield f"{host_path.path} is in the container's own filesystem; mount the host's (hostPath) at the same path"
        # The host may mount the filesystem below its root, or the mount may show only a part; one path must end with the other.
        elif host_path.mount and not _same(host_path.source, host_path.mount):
            yield (
                f"{host_path.mount} shows {host_path.source} of the host; mount it at the same path, since the kubelet and the "
                f"container runtime get paths"
            )


def _same(source: str, mount: str) -> bool:
    return source == "/" or mount.endswith(source) or source.endswith(mount)


def _privileges(facts: Facts) -> Iterator[str]:
    missing = frozenset(Capability) - facts.capabilities if facts.capabilities is not None else frozenset()
    consequences = {
        Capability.CAP_SYS_ADMIN: (
            "PCI configuration space cannot be read beyond 64 bytes: no PCIe Device Serial Number is known, and fabric "
            "devices without another number are not recognised"
        ),
        Capability.CAP_NET_ADMIN: "a burst of uevents overflows the usual buffer, and then everything is read again",
        Capability.CAP_SYS_PTRACE: "programs with an open device are not seen, so a device in use may be released",
    }
    # CAP_DAC_OVERRIDE includes CAP_DAC_READ_SEARCH.
    if missing >= {Capability.CAP_DAC_OVERRIDE, Capability.CAP_DAC_READ_SEARCH}:
        consequences[Capability.CAP_DAC_READ_SEARCH] = (
            "who of other users has a device open cannot be seen, so a device in use may be released"
        )
    for capability, consequence in consequences.items():
        if capability in missing:
            yield f"{capability.name} is missing (securityContext.capabilities.add, or privileged): {consequence}"
    if facts.first_namespaces["pid"] is False:
        yield "the host's processes cannot be seen (hostPID: true): a device in use may be released"
    if facts.first_namespaces["user"] is False:
        yield "the kernel sends no uevents into a user namespace (hostUsers: true): no hot-plug will be noticed"


def _sysfs(host_path: HostPath) -> str:
    root = host_path.path.parents[1]
    reasons = {
        Access.READ_ONLY: f"{root} is mounted read-only; mount it read-write (privileged: true)",
        Access.DENIED: f"{root} cannot be written; run as root with CAP_DAC_OVERRIDE",
        Access.NOT_A_DIRECTORY: f"{host_path.path} is not a directory",
    }
    return (
        f"{reasons[host_path.access]}: slots cannot be powered, drivers not bound, and devices not released"
    )


log = logging.getLogger(__name__)


async def check(options: settings.Settings) -> None:
    """Log a warning for each function that will fail.

    Raises:
        errors.Unprivileged: the daemon would be useless; the message lists everything missing.
    """
    directories = (options.kubelet_dir / "plugins_registry", options.data_dir, options.cdi_dir)
    seen = await asyncio.to_thread(facts, directories, options.sysfs)
    missing = find_missing(seen, on_host=options.uevents == uevents.KERNEL, in_pod=bool(options.instance))
    if missing.fatal:
        raise errors.Unprivileged(sentence(missing))
    for warning in missing.warnings:
        log.warning(warning)
