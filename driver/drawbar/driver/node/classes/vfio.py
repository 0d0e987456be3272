"""Functions that are handed on as they are, to a virtual machine or a driver in user space: vfio.

Whoever has the group's file open has every function of the group, and their drivers cannot be changed.
Source: Documentation/driver-api/vfio.rst.
"""

from drawbar.cdi import spec
from drawbar.driver.node.classes import openers, operations
from drawbar.driver.node.inventory import files, model

DRIVER = "vfio-pci"
CONTAINER = "/dev/vfio/vfio"


def groups(card: model.Card) -> tuple[int, ...]:
    """The IOMMU groups of the functions that vfio has."""
    found = {
        function.iommu_group
        for function in card.functions
        if function.driver == DRIVER and function.iommu_group is not None
    }
    return tuple(sorted(found))


def nodes(card: model.Card) -> tuple[spec.DeviceNode, ...]:
    """The groups' files, and the file that all users of vfio share; their numbers are left to the runtime."""
    paths = tuple(f"/dev/vfio/{group}" for group in groups(card))
    return tuple(
        spec.DeviceNode(path=path, permissions=spec.READ_WRITE)
        for path in ((*paths, CONTAINER) if paths else ())
    )


def numbers(host: operations.Host, card: model.Card) -> dict[openers.Numbers, str]:
    """The groups' files by their numbers."""
    found = {}
    for group in groups(card):
        major, _, minor = (files.text(f"{host.sysfs}/class/vfio/{group}/dev") or "").partition(":")
        if major.isdecimal() and minor.isdecimal():
            key = openers.Numbers(block=False, major=int(major), minor=int(minor))
            found[key] = f"/dev/vfio/{group}"
    return found
