"""The users of a device, in words for an operator; `release.plan` waits until there are none.

Processes with an open device file are found in /proc, as `fuser` finds them. Only the links of /proc/PID/fd that lead to
a device file are followed. A hung network file system elsewhere therefore does not block the search. Four kinds of user
are not seen: a mapping after its file was closed, a device file with another name outside /dev, GPU memory that a CUDA
program exported before it ended (only /dev/nvidiactl is open), and users inside the kernel. A block device has further users: mounts
in any mount namespace, swap, md and dm, and file systems on several devices.

Source: proc(5) for fd, mountinfo and swaps; Documentation/filesystems/proc.rst; Documentation/ABI/stable/sysfs-block for
`holders`.
"""

import errno
import os
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import msgspec

from drawbar.driver.node.inventory import files, model

SYSFS = Path("/sys")


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """The paths of the host's kernel interfaces.

    Attributes:
        sysfs: the sysfs tree.
        proc: the proc file system of the host's process namespace; in any other, the host's processes are invisible.
        dev: the host's device files.
    """

    sysfs: Path = SYSFS
    proc: Path = Path("/proc")
    dev: Path = Path("/dev")

    @classmethod
    def from_sysfs(cls, sysfs: Path) -> "Host":
        """Return the host of a sysfs tree.

        A tree other than /sys is a mocked host's. Its processes and device files lie next to it, and its device numbers mean
        other devices to the running kernel.
        """
        return (
            cls()
            if sysfs == SYSFS
            else cls(sysfs=sysfs, proc=sysfs.parent / "proc", dev=sysfs.parent / "dev")
        )


FOUND_MAX = 16
"""The search stops after this number of users: it is enough to show that a device is in use."""
_INITIAL_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO, include/linux/proc_ns.h
_NO_REMEDIES: Mapping[str, str] = MappingProxyType({})
_CONTAINER_INITS = frozenset({"pause", "tini", "catatonit", "dumb-init", "docker-init"})


class Numbers(msgspec.Struct, frozen=True, kw_only=True):
    """The identity of a device file, independent of its path and name."""

    block: bool
    major: int
    minor: int


def index_nodes(nodes: Iterable[model.DeviceNode]) -> dict[Numbers, str]:
    """Return the paths of device files by their numbers."""
    return {Numbers(block=node.block, major=node.major, minor=node.minor): node.path for node in nodes}


def index_files(host: Host, nodes: Collection[model.DeviceNode]) -> dict[Numbers, str]:
    """Return the paths of device files and of the disks' partitions by their numbers. Reads files."""
    partitions: dict[Numbers, str] = {}
    for volume in (volume for node in nodes if node.block for volume in _volumes(host, node)):
        major, minor = map(files.parse_number, volume.number.partition(":")[::2])
        if major is not None and minor is not None:
            partitions[Numbers(block=True, major=major, minor=minor)] = f"/dev/{volume.name}"
    return partitions | index_nodes(nodes)


def find_openers(
    proc: Path, device_files: Mapping[Numbers, str], remedies: Mapping[str, str] = _NO_REMEDIES
) -> tuple[str, ...]:
    """Return the other processes that have one of these files open, at most `FOUND_MAX`.

    Args:
        proc: the proc file system.
        device_files: the paths of the device files.
        remedies: a program's remedy to close them, by the first 15 characters of its name, as in /proc/PID/comm.
    """
    if not device_files:
        return ()
    openers: list[str] = []
    names = {path.rpartition("/")[2] for path in device_files.values()}
    for pid in processes(proc):
        if pid == os.getpid():
            continue
        for numbers in _find_open(_list_tasks(proc, pid), device_files, names):
            path = device_files[numbers]
            name = files.text(f"{proc}/{pid}/comm") or "?"
            remedy = f": {remedies[name]}" if name in remedies else ""
            openers.append(f"held by pid {pid} ({name}), {path}{remedy}")
            if len(openers) == FOUND_MAX:
                return tuple(openers)
    return tuple(openers)


def find_first_openers(
    proc: Path, device_files: Mapping[Numbers, str], ignored: Collection[str] = ()
) -> dict[Numbers, str]:
    """Return, for each file that another process has open, the first such process.

    Args:
        proc: the proc file system.
        device_files: the paths of the device files.
        ignored: the programs to ignore, by their names in /proc/PID/comm.
    """
    openers: dict[Numbers, str] = {}
    names = {path.rpartition("/")[2] for path in device_files.values()}
    for pid in processes(proc):
        if pid == os.getpid() or len(openers) == len(device_files):
            continue
        for numbers in _find_open(_list_tasks(proc, pid), device_files, names):
            name = files.text(f"{proc}/{pid}/comm") or "?"
            if name not in ignored:
                openers.setdefault(numbers, f"pid {pid} ({name}) has {device_files[numbers]} open")
    return openers


def processes(proc: Path) -> list[int]:
    """Return the visible processes, in order."""
    return sorted(int(name) for name in files.names(os.fspath(proc)) if name.isdecimal())


def blindness(proc: Path) -> str | None:
    """Return why other processes of the host are invisible, with the remedy, or None if they are visible."""
    if files.link_target(f"{proc}/self/ns/pid") == _INITIAL_NAMESPACE:
        return None
    first = files.text(f"{proc}/1/comm")
    if first is None:
        return f"{proc} shows no processes: mount the host's"
    if files.link_target(f"{proc}/self") == "1" or first in _CONTAINER_INITS:
        return "only the processes of this pod can be seen, so users of a device can be missed: set hostPID: true"
    return None


def _list_tasks(proc: Path, pid: int) -> list[str]:
    """Return the directories of a process, and of all its threads if the first one has ended.

    A process that was killed during a hanging call of a driver is such a one. Only its other threads show its files.
    """
    process = f"{proc}/{pid}"
    if files.link_target(f"{process}/ns/mnt") is not None:
        return [process]
    return [process, *(f"{process}/task/{name}" for name in files.names(f"{process}/task"))]


def _find_open(
    tasks: Iterable[str], device_files: Mapping[Numbers, str], names: set[str]
) -> Iterator[Numbers]:
    """Yield each wanted file that one of the tasks has open, once."""
    seen = set()
    for link in (f"{task}/fd/{name}" for task in tasks for name in files.names(f"{task}/fd")):
        target = files.link_target(link) or ""
        if not (target.startswith("/dev/") or target.rpartition("/")[2] in names):
            continue
        numbers = _numbers(link)
        if numbers is not None and numbers in device_files and numbers not in seen:
            seen.add(numbers)
            yield numbers


def _numbers(path: str) -> Numbers | None:
    try:
        status = os.stat(path)  # noqa: PTH116 - thousands of Path objects cost more than the reads
    except OSError:
        return None
    if not (stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode)):
        return None
    return Numbers(
        block=stat.S_ISBLK(status.st_mode), major=os.major(status.st_rdev), minor=os.minor(status.st_rdev)
    )


_FIELDS_BEFORE_OPTIONS = 6


class Volume(msgspec.Struct, frozen=True, kw_only=True):
    """A disk or one of its partitions.

    Attributes:
        name: the kernel's name.
        number: `major:minor`.
        path: its directory in sysfs.
    """

    name: str
    number: str
    path: str


def find_storage_users(host: Host, nodes: Iterable[model.DeviceNode]) -> tuple[str, ...]:
    """Return the users of these disks and of their partitions; character devices are ignored."""
    volumes = tuple(volume for node in nodes if node.block for volume in _volumes(host, node))
    if not volumes:
        return ()
    return (*_holders(host, volumes), *_swaps(host, volumes), *_mounts(host.proc, volumes))


def find_kernel_users(host: Host, nodes: Iterable[model.DeviceNode]) -> Iterator[str]:
    """Yield a clause for each disk that a part of the kernel has for itself, such as ZFS, an NVMe target or a journal.

    No table names such a user. The kernel refuses it and its partitions to an exclusive open, which lasts for a moment.
    """
    for node in nodes:
        try:
            os.close(
                os.open(host.dev / node.path.removeprefix("/dev/"), os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC)
            )
        except OSError as error:
            if error.errno == errno.EBUSY:
                yield f"in use inside the kernel, such as by ZFS or an NVMe target, {node.path}"


def _volumes(host: Host, node: model.DeviceNode) -> Iterator[Volume]:
    disk = node.path.rpartition("/")[2]
    path = f"{host.sysfs}/class/block/{disk}"
    yield Volume(name=disk, number=f"{node.major}:{node.minor}", path=path)
    for name in files.names(path):
        number = files.text(f"{path}/{name}/dev")
        if number and files.text(f"{path}/{name}/partition") is not None:
            yield Volume(name=name, number=number, path=f"{path}/{name}")


def _holders(host: Host, volumes: tuple[Volume, ...]) -> Iterator[str]:
    names = {volume.name for volume in volumes}
    for volume in volumes:
        for holder in files.names(f"{volume.path}/holders"):
            yield f"part of {holder}, /dev/{volume.name}"
    for identity in files.names(f"{host.sysfs}/fs/btrfs"):
        for name in names.intersection(files.names(f"{host.sysfs}/fs/btrfs/{identity}/devices")):
            yield f"part of the mounted btrfs {identity}, /dev/{name}"


def _swaps(host: Host, volumes: tuple[Volume, ...]) -> Iterator[str]:
    paths = {f"/dev/{volume.name}" for volume in volumes}
    for line in files.lines(f"{host.proc}/swaps")[1:]:
        path = files.unescape(line.partition(" ")[0].partition("\t")[0])
        if path in paths:
            yield f"used as swap, {path}"


def _mounts(proc: Path, volumes: tuple[Volume, ...]) -> Iterator[str]:
    by_number = {volume.number: f"/dev/{volume.name}" for volume in volumes}
    paths = set(by_number.values())
    seen = set()
    for task in (task for pid in processes(proc) for task in _list_tasks(proc, pid)):
        namespace = files.link_target(f"{task}/ns/mnt")
        if namespace in seen:
            continue
        seen.add(namespace)
        for line in files.lines(f"{task}/mountinfo"):
            number, point, source = _mount(line)
            path = by_number.get(number) or (source if source in paths else None)
            if path is not None:
                yield f"mounted at {point}, {path}"
                break  # one mount of a namespace is enough


def _mount(line: str) -> tuple[str, str, str]:
    """Return the device number, mount point and source of a line of mountinfo; a btrfs names its disk only as source."""
    before, _, after = line.partition(" - ")
    fields, rest = before.split(" "), after.split(" ")
    if len(fields) < _FIELDS_BEFORE_OPTIONS:
        return "", "", ""
    return fields[2], files.unescape(fields[4]), files.unescape(rest[1]) if len(rest) > 1 else ""
