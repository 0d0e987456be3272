"""The device files of vfio, as the kernel shows them. The driver never computes a name or number of such a file.

A group's file is called by its number, or `noiommu-` and its number without an IOMMU (drivers/vfio/group.c,
vfio_group_create). With iommufd a function also has a file of its own below `vfio-dev`.
"""

import functools
import re

from drawbar.driver.node.inventory import files, model, pci

GROUPS, DEVICES = "vfio", "vfio-dev"
"""The subsystems of the files of groups, and of functions."""
SUBSYSTEMS = frozenset({GROUPS, DEVICES})
_DRIVER = re.compile(r"(?:.+[-_])?vfio[-_]pci")


@functools.lru_cache(maxsize=256)  # a host has thousands of functions, and few drivers
def is_driver(name: str | None) -> bool:
    """Return whether this driver passes functions on: `vfio-pci`, or a vendor's variant such as `mlx5_vfio_pci`."""
    return name is not None and _DRIVER.fullmatch(name) is not None


class Groups:
    """The groups of the tree at `root`, listed once."""

    def __init__(self, root: str) -> None:
        self._folder = f"{root}/class/vfio"

    def find_node(self, group: int) -> model.DeviceNode | None:
        """Return the file of an IOMMU group, or None if the kernel shows none."""
        for name in (f"noiommu-{group}", str(group)):
            node = pci.device_node(f"{self._folder}/{name}") if name in self._names else None
            if node is not None:
                return node
        return None

    @functools.cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(files.names(self._folder))


def defect(driver: str, group: int | None, nodes: tuple[model.DeviceNode, ...]) -> str | None:
    """Return why the function cannot be passed on, as a clause, or None if it can.

    Args:
        driver: the function's driver.
        group: the number of its IOMMU group, or None.
        nodes: its device files and its group's.
    """
    if any(node.subsystem in SUBSYSTEMS for node in nodes):
        return None
    if group is None:
        return f"{driver} is bound without an IOMMU group; turn the IOMMU on"
    return (
        f"{driver} is bound, and the kernel shows no file of its IOMMU group {group} in class/vfio; look at the kernel's log, "
        f"and bind {driver} again"
    )
