"""Who uses a block device: mounts in any mount namespace, swap, md and dm, and file systems that span devices.

Source: proc(5) for mountinfo and swaps; Documentation/ABI/stable/sysfs-block for `holders`.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from drawbar.driver.node.classes import openers, operations, users
from drawbar.driver.node.inventory import files, model

_ESCAPE = re.compile(r"\\([0-7]{3})")
_FIELDS_BEFORE_OPTIONS = 6
_MOUNTINFO_BYTES_MAX = 8 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """A disk or a partition of it.

    Attributes:
        number: `major:minor`.
        path: its directory in sysfs.
    """

    name: str
    number: str
    path: str


def find(host: operations.Host, nodes: Iterable[model.DeviceNode]) -> tuple[users.User, ...]:
    """Everybody who uses these disks or their partitions; character devices are passed over."""
    volumes = tuple(volume for node in nodes if node.block for volume in _volumes(host, node))
    if not volumes:
        return ()
    return (*_holders(host, volumes), *_swaps(host, volumes), *_mounts(host.proc, volumes))


def _volumes(host: operations.Host, node: model.DeviceNode) -> Iterator[Volume]:
    disk = node.path.rpartition("/")[2]
    path = f"{host.sysfs}/class/block/{disk}"
    yield Volume(name=disk, number=f"{node.major}:{node.minor}", path=path)
    for name in files.names(path):
        number = files.text(f"{path}/{name}/dev")
        if number and files.text(f"{path}/{name}/partition") is not None:
            yield Volume(name=name, number=number, path=f"{path}/{name}")


def _holders(host: operations.Host, volumes: tuple[Volume, ...]) -> Iterator[users.User]:
    names = {volume.name for volume in volumes}
    for volume in volumes:
        for holder in files.names(f"{volume.path}/holders"):
            yield users.User(text=f"part of {holder}, /dev/{volume.name}")
    for identity in files.names(f"{host.sysfs}/fs/btrfs"):
        for name in names.intersection(files.names(f"{host.sysfs}/fs/btrfs/{identity}/devices")):
            yield users.User(text=f"part of the mounted btrfs {identity}, /dev/{name}")


def _swaps(host: operations.Host, volumes: tuple[Volume, ...]) -> Iterator[users.User]:
    paths = {f"/dev/{volume.name}" for volume in volumes}
    for line in _lines(host.proc / "swaps")[1:]:
        path = _plain(line.partition(" ")[0].partition("\t")[0])
        if path in paths:
            yield users.User(text=f"used as swap, {path}")


def _mounts(proc: Path, volumes: tuple[Volume, ...]) -> Iterator[users.User]:
    by_number = {volume.number: f"/dev/{volume.name}" for volume in volumes}
    paths = set(by_number.values())
    seen = set()
    for pid in openers.processes(proc):
        namespace = files.link_target(f"{proc}/{pid}/ns/mnt")
        if namespace in seen:
            continue
        seen.add(namespace)
        for line in _lines(proc / str(pid) / "mountinfo"):
            number, point, source = _mount(line)
            path = by_number.get(number) or (source if source in paths else None)
            if path is not None:
                yield users.User(text=f"mounted at {point}, {path}")
                break  # one mount of a namespace is enough


def _mount(line: str) -> tuple[str, str, str]:
    """Device number, mount point and source of a line of mountinfo; a btrfs shows its disk by the source alone."""
    before, _, after = line.partition(" - ")
    fields, rest = before.split(" "), after.split(" ")
    if len(fields) < _FIELDS_BEFORE_OPTIONS:
        return "", "", ""
    return fields[2], _plain(fields[4]), _plain(rest[1]) if len(rest) > 1 else ""


def _lines(path: Path) -> list[str]:
    try:
        with path.open("rb") as content:
            return content.read(_MOUNTINFO_BYTES_MAX).decode("utf-8", "replace").splitlines()
    except OSError:
        return []


def _plain(text: str) -> str:
    """Without the octal escapes that the kernel writes for blanks."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), text)
