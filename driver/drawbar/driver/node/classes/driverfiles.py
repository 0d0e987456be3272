"""Device files that come from a function's driver, independent of the device's class.

Some drivers have files shared by all their devices. Such a file alone gives access to no device. This module lists them,
and a container gets those present on the host. NVIDIA's driver has no device files in sysfs. /proc/driver/nvidia shows
the number of a GPU, and the program `nvidia-modprobe` makes the files.

Source: Documentation/gpu/amdgpu (KFD); Documentation/driver-api/vfio.rst; Documentation/userspace-api/iommufd.rst;
drivers/infiniband/core/ucma.c; NVIDIA/nvidia-container-toolkit (the files of its CDI specification).
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from drawbar.cdi import spec
from drawbar.driver.node.classes.users import Host
from drawbar.driver.node.inventory import files, model, pci, vfio

NVIDIA = "nvidia"
_NVIDIA_MAJOR = 195  # Documentation/admin-guide/devices.txt
_MINOR = re.compile(r"^Device Minor:\s*(\d+)\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedFile:
    """A device file shared by all devices of a driver.

    Attributes:
        name: its path below /dev.
        path: its directory below the sysfs root; empty if sysfs has none.
    """

    name: str
    path: str = ""


_BY_DRIVER: Mapping[str, tuple[SharedFile, ...]] = {
    "amdgpu": (SharedFile(name="kfd", path="class/kfd/kfd"),),
    NVIDIA: (
        SharedFile(name="nvidiactl"),
        SharedFile(name="nvidia-uvm"),
        SharedFile(name="nvidia-uvm-tools"),
        SharedFile(name="nvidia-modeset"),
    ),
}
_BY_SUBSYSTEM: Mapping[str, tuple[SharedFile, ...]] = {
    vfio.GROUPS: (SharedFile(name="vfio/vfio", path="class/misc/vfio"),),
    vfio.DEVICES: (SharedFile(name="iommu", path="class/misc/iommu"),),
    "infiniband_verbs": (SharedFile(name="infiniband/rdma_cm", path="class/misc/rdma_cm"),),
}
"""The shared files by the subsystem of a function's own device file."""


def is_slow(card: model.Card) -> bool:
    """Return whether this module's functions must ask the card's driver, which may take any time."""
    return any(function.driver in _BY_DRIVER for function in card.functions)


def find_shared(card: model.Card, host: Host) -> tuple[spec.DeviceNode, ...]:
    """Return the shared files of the card's drivers that are present on the host. Reads files.

    The container runtime fills in their device numbers.
    """
    nodes: dict[str, spec.DeviceNode] = {}
    for function in card.functions:
        wanted = [*_BY_DRIVER.get(function.driver or "", ())]
        for node in function.device_nodes:
            wanted += _BY_SUBSYSTEM.get(node.subsystem, ())
        for shared in wanted:
            path = _path(shared, host)
            if path is not None:
                nodes[path] = spec.DeviceNode(path=path, permissions=spec.READ_WRITE)
    return tuple(nodes.values())


def _path(shared: SharedFile, host: Host) -> str | None:
    """Return the path of the file on the host, or None if neither sysfs nor /dev has it."""
    node = pci.device_node(f"{host.sysfs}/{shared.path}") if shared.path else None
    if node is not None:
        return node.path
    return f"/dev/{shared.name}" if (host.dev / shared.name).exists() else None


def find_nvidia(
    card: model.Card, host: Host, read: Callable[[str], str | None] = files.text
) -> tuple[model.DeviceNode, ...]:
    """Return the files of NVIDIA's driver for the card's own GPUs, present or not. Reads files by `read`."""
    return tuple(
        model.DeviceNode(
            path=f"/dev/nvidia{match[1]}",
            major=_NVIDIA_MAJOR,
            minor=int(match[1]),
            block=False,
            subsystem=NVIDIA,
        )
        for information in read_nvidia(card, host, read)
        if (match := _MINOR.search(information))
    )


def find_missing(card: model.Card, host: Host) -> str | None:
    """Return a clause about a missing file of NVIDIA's driver, with the remedy, or None if none is missing. Reads files."""
    for node in find_nvidia(card, host):
        if not _exists(node, host):
            return f"its driver {NVIDIA} has it as {node.path}, which is not there; run nvidia-modprobe -u -c {node.minor}"
    return None


def _exists(node: model.DeviceNode, host: Host) -> bool:
    return (host.dev / node.path.removeprefix("/dev/")).exists()


def is_of_nvidia(card: model.Card) -> bool:
    """Return whether NVIDIA's driver has a function of the card."""
    return any(function.driver == NVIDIA for function in card.functions)


def read_nvidia(
    card: model.Card, host: Host, read: Callable[[str], str | None] = files.text
) -> Iterator[str]:
    """Yield the information of NVIDIA's driver about each of the card's functions bound to it. Reads files."""
    for function in card.functions:
        if function.driver == NVIDIA:
            yield read(f"{host.proc}/driver/nvidia/gpus/{function.address}/information") or ""
