"""Device files that come from a function's driver, independent of the device's class.

Some drivers have files shared by all their devices. Such a file alone gives access to no device. This module lists them,
and a container gets those present on the host. A function's own files are in its `device_nodes`. A file of NVIDIA's driver
is in /dev only after the program `nvidia-modprobe` made it.

Source: Documentation/gpu/amdgpu (KFD); Documentation/driver-api/vfio.rst; Documentation/userspace-api/iommufd.rst;
drivers/infiniband/core/ucma.c; NVIDIA/nvidia-container-toolkit (the files of its CDI specification).
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from drawbar.cdi import spec
from drawbar.driver.node.classes.users import Host
from drawbar.driver.node.inventory import model, nvidia, pci, silences, vfio


class SharedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A device file shared by all devices of a driver.

    Attributes:
        name: its path below /dev.
        path: its directory below the sysfs root; empty if sysfs has none.
    """

    name: str
    path: str = ""


_BY_DRIVER: Mapping[str, tuple[SharedFile, ...]] = {
    "amdgpu": (SharedFile(name="kfd", path="class/kfd/kfd"),),
    nvidia.DRIVER: (
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


def find_missing(card: model.Card, host: Host) -> str | None:
    """Return a clause about a missing file of NVIDIA's driver, with the remedy, or None if none is missing.

    Looks for files, and asks no driver.
    """
    for function in card.functions:
        if function.driver != nvidia.DRIVER:
            continue
        for node in function.device_nodes:
            if (
                node.subsystem == nvidia.SUBSYSTEM
                and not (host.dev / node.path.removeprefix("/dev/")).exists()
            ):
                return (
                    f"its driver {nvidia.DRIVER} has it as {node.path}, which is not there; "
                    f"run nvidia-modprobe -u -c {node.minor}"
                )
        is_late = not nvidia.is_shown(function) and silences.is_lagging(function)
        if is_late and Path(nvidia.information_path(str(host.proc), function.address)).exists():
            return (
                f"its driver {nvidia.DRIVER} does not show its device file in /proc/driver/nvidia; "
                "look for NVRM in the kernel's log"
            )
    return None
