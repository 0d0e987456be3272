"""What a driver hangs below a PCI function: device nodes and network interfaces.

The walk is generic: a directory whose `uevent` names a DEVNAME is a device node, whatever its subsystem.
It goes three levels deep (nvme/nvme0/nvme0n1 is the deepest of interest) and stays out of directories
that are known to hold only attributes.
"""

import dataclasses
import os
import re
from collections.abc import Iterable, Iterator

from drawbar.driver.node.inventory import files, model

ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
"""A PCI address as sysfs writes it; domains behind a VMD have five digits or more."""

_LEVELS = 3
_ATTRIBUTES_ONLY = frozenset(
    {
        "power",
        "link",
        "msi_irqs",
        "pci_bus",
        "firmware_node",
        "hwmon",
        "queues",
        "statistics",
        "integrity",
        "wakeup",
    }
)
# Below these there are partitions, connectors and the like, and no further files that a container needs.
_LEAVES = frozenset({"drm", "accel", "nvme-generic", "cxl"})
_FLAT = frozenset({"vfio-dev"})  # their devices have nothing below them
# Directories of a class are no devices themselves (drivers/base/core.c, class_dir_create_and_add).
_CLASSES = frozenset({"accel", "drm", "infiniband", "infiniband_verbs", "nvme", "vfio-dev"})
_MULTIPATH_LEG = re.compile(r"nvme(\d+)c\d+n(\d+)")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Children:
    """The device nodes and network interfaces below one function, sorted."""

    device_nodes: tuple[model.DeviceNode, ...] = ()
    net_interfaces: tuple[str, ...] = ()


def read(root: str, path: str, directories: Iterable[str]) -> Children:
    """Walks the named directories in the function's directory `path`; `root` is where sysfs is."""
    nodes: list[model.DeviceNode] = []
    interfaces: list[str] = []
    for name in directories:
        if name not in _ATTRIBUTES_ONLY and not _is_another_device(name):
            for found in _walk(root, f"{path}/{name}", name, _LEVELS):
                if isinstance(found, str):
                    interfaces.append(found)
                else:
                    nodes.append(found)
    return Children(
        device_nodes=tuple(sorted(set(nodes), key=lambda node: node.path)),
        net_interfaces=tuple(sorted(interfaces)),
    )


def device_node(path: str) -> model.DeviceNode | None:
    """The device node of the directory `path`, or None if it has none."""
    content = files.text(path + "/uevent")
    if content is None or "DEVNAME=" not in content:
        return None
    properties = files.pairs(content)
    name = properties.get("DEVNAME")
    numbers = _device_numbers(path, properties)
    if not name or numbers is None:
        return None
    subsystem = files.link_name(path + "/subsystem") or ""
    major, minor = numbers
    return model.DeviceNode(
        path="/dev/" + name, major=major, minor=minor, block=subsystem == "block", subsystem=subsystem
    )


def _device_numbers(path: str, properties: dict[str, str]) -> tuple[int, int] | None:
    major, minor = files.parse_number(properties.get("MAJOR")), files.parse_number(properties.get("MINOR"))
    if major is not None and minor is not None:
        return major, minor
    before, _, after = (files.text(path + "/dev") or "").partition(":")
    major, minor = files.parse_number(before), files.parse_number(after)
    return (major, minor) if major is not None and minor is not None else None


def _walk(root: str, path: str, name: str, levels: int) -> Iterator[model.DeviceNode | str]:
    """Device nodes, and the names of network interfaces, in and below one directory."""
    if name == "net":
        yield from (entry.name for entry in files.entries(path) if _is_directory(entry))
        return
    if leg := _MULTIPATH_LEG.fullmatch(name):
        yield from _multipath_head(root, leg)
        return
    node = device_node(path) if name not in _CLASSES else None
    if node is not None:
        yield node
        if node.block or node.subsystem in _LEAVES:
            return
    if levels > 1:
        levels = 2 if name in _FLAT else levels
        for entry in files.entries(path):
            if _is_directory(entry) and entry.name not in _ATTRIBUTES_ONLY:
                yield from _walk(root, entry.path, entry.name, levels - 1)


def _multipath_head(root: str, leg: re.Match[str]) -> Iterator[model.DeviceNode]:
    """The disk that a hidden path nvme<subsystem>c<controller>n<head> leads to (drivers/nvme/host/multipath.c)."""
    for kind, prefix in (("block", "nvme"), ("nvme-generic", "ng")):
        if (node := device_node(f"{root}/class/{kind}/{prefix}{leg[1]}n{leg[2]}")) is not None:
            yield node


def _is_directory(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir(follow_symlinks=False)


def _is_another_device(name: str) -> bool:
    """The functions behind a bridge, and a port's own services (`0000:00:03.0:pcie001`)."""
    return ADDRESS.match(name) is not None
