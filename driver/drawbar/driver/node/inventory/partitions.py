"""The device files of an AMD GPU's partitions. In sysfs they are below platform devices, not below the GPU.

Partition 0 has the files of the PCI function. For each further partition the driver makes a platform device `amdgpu_xcp`
(drivers/gpu/drm/amd/amdxcp), without any reference to the GPU. The topology of KFD shows the partitions of each GPU
(`/sys/class/kfd/kfd/topology/nodes`, drivers/gpu/drm/amd/amdkfd/kfd_topology.c). Its nodes have the GPU's domain, bus and
device, and the minor number of the partition's render node. Their function number may be the partition's.
"""

import functools
import re
from collections.abc import Mapping

import msgspec

from drawbar.driver.node.inventory import files, model, pci

DRIVER = "amdgpu"
MODE_FILE = "current_compute_partition"
EVENTS = re.compile(r"/devices/(?:platform|faux)/amdgpu_xcp[._]\d+(?:/|$)")
"""The directories with events about new and removed partitions."""
_PARTITION = re.compile(r"amdgpu_xcp[._]\d+")
_WHOLE = "SPX"
_COUNTS = {"UNKNOWN": 1, "DPX": 2, "TPX": 3, "QPX": 4}
"""The least number of partitions in each mode; for CPX it depends on the GPU. The driver may not know the mode."""
_DEVICES = "bus/pci/devices"
_TOPOLOGY = "class/kfd/kfd/topology/nodes"


class GpuPartitions(msgspec.Struct, frozen=True, kw_only=True):
    """The partitions of one GPU.

    Attributes:
        nodes: the device files of all partitions except the first.
        defect: see `model.PciFunction`.
    """

    nodes: tuple[model.DeviceNode, ...] = ()
    defect: str | None = None


NONE = GpuPartitions()


class Partitions:
    """The partitions of the tree at `root`. Data for several GPUs is read once."""

    def __init__(self, root: str) -> None:
        self._root = root

    def find(self, address: str, mode: str | None, own: tuple[model.DeviceNode, ...]) -> GpuPartitions:
        """Return the partitions of the GPU at this address.

        Args:
            address: the address of its function.
            mode: the text of its `MODE_FILE`.
            own: the device files of the function.
        """
        mode = (mode or "").upper()
        if mode in ("", _WHOLE):
            return NONE
        renders = {node.minor for node in own if _is_render(node)}
        minors = self._minors.get(address.rpartition(".")[0], frozenset())
        if self._minors:
            nodes = [node for minor in minors - renders for node in self._nodes.get(minor, ())]
        elif self._is_sole(address):
            nodes = [node for partition in self._nodes.values() for node in partition]
        else:
            nodes = []
        shown = len(renders) + sum(map(_is_render, nodes))
        expected = max(_COUNTS.get(mode, 2), len(minors))
        return GpuPartitions(
            nodes=tuple(nodes), defect=_defect(mode, shown, expected) if shown < expected else None
        )

    def _is_sole(self, address: str) -> bool:
        """Return whether no other GPU of this driver is partitioned."""
        others = (name for name in files.names(f"{self._root}/{_DEVICES}") if name != address)
        return not any(
            (files.text(f"{self._root}/{_DEVICES}/{name}/{MODE_FILE}") or _WHOLE).upper() != _WHOLE
            for name in others
        )

    @functools.cached_property
    def _nodes(self) -> Mapping[int, tuple[model.DeviceNode, ...]]:
        """Return the device files of each partition, by the minor number of its render node."""
        by_partition: dict[str, list[model.DeviceNode]] = {}
        for name in files.names(f"{self._root}/class/drm"):
            target = files.link_target(f"{self._root}/class/drm/{name}") or ""
            partition = next((part for part in target.split("/") if _PARTITION.fullmatch(part)), None)
            node = pci.device_node(f"{self._root}/class/drm/{name}") if partition is not None else None
            if partition is not None and node is not None:
                by_partition.setdefault(partition, []).append(node)
        return {
            node.minor: tuple(nodes) for nodes in by_partition.values() for node in nodes if _is_render(node)
        }

    @functools.cached_property
    def _minors(self) -> Mapping[str, frozenset[int]]:
        """Return the minor numbers of render nodes, by `domain:bus:device` of their GPU."""
        by_device: dict[str, frozenset[int]] = {}
        for name in files.names(f"{self._root}/{_TOPOLOGY}"):
            properties = dict(
                line.split(" ", 1)
                for line in (files.text(f"{self._root}/{_TOPOLOGY}/{name}/properties") or "").splitlines()
                if " " in line
            )
            minor, location, domain = (
                files.parse_number(properties.get(key))
                for key in ("drm_render_minor", "location_id", "domain")
            )
            if minor and location is not None and minor > 0:
                # The function bits may hold the partition's number.
                device = f"{domain or 0:04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}"
                by_device[device] = by_device.get(device, frozenset()) | {minor}
        return by_device


def functions(root: str) -> frozenset[str]:
    """Return the addresses of the functions bound to the driver."""
    return frozenset(
        name for name in files.names(f"{root}/bus/pci/drivers/{DRIVER}") if pci.ADDRESS.fullmatch(name)
    )


def _is_render(node: model.DeviceNode) -> bool:
    return node.path.rpartition("/")[2].startswith("renderD")


def _defect(mode: str, shown: int, expected: int) -> str:
    return (
        f"it is in partition mode {mode}, and the kernel shows {shown} of its {expected} or more render nodes; write SPX to its "
        f"{MODE_FILE}, or load its driver {DRIVER} again"
    )
