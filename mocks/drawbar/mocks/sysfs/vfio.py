"""What vfio shows of a function that it has: the IOMMU group, and the file of that.

Without an IOMMU the group is made up when vfio takes the function, and its file has another name (drivers/vfio/group.c).
"""

from drawbar.mocks.sysfs.kobjects import Kobject, readable
from drawbar.mocks.sysfs.steps import Add, Join, Step, Write


def shared() -> tuple[Kobject, ...]:
    """The file that all users of groups share."""
    return (_node("misc", "vfio", (10, 196), "vfio/vfio"),)


def steps(function: Kobject, *, iommu: bool) -> tuple[Step, ...]:
    """What happens when vfio takes a function, in order, before it has bound.

    Args:
        function: the function.
        iommu: whether there is an IOMMU.
    """
    number = _group(function)
    folder = f"kernel/iommu_groups/{number}"
    named = {"name": readable("" if iommu else "vfio-noiommu")}
    name = str(number) if iommu else f"noiommu-{number}"
    return (
        Join(place=f"{folder}/devices/{function.name}", target=function.path),
        Write(folder=folder, files=named),
        Join(place=f"{function.path}/iommu_group", target=folder),
        Add(kobject=_node("vfio", name, (511, number & 0xFF), f"vfio/{name}")),
    )


def _group(function: Kobject) -> int:
    """A number that no other function has."""
    _, bus, device = function.name.split(":")
    number, _, within = device.partition(".")
    return int(bus, 16) << 8 | int(number, 16) << 3 | int(within)


def _node(subsystem: str, name: str, numbers: tuple[int, int], devname: str) -> Kobject:
    major, minor = numbers
    return Kobject(
        path=f"devices/virtual/{subsystem}/{name}",
        subsystem=subsystem,
        subsystem_path=f"class/{subsystem}",
        uevent={"MAJOR": str(major), "MINOR": str(minor), "DEVNAME": devname},
        files={"dev": readable(f"{major}:{minor}")},
    )
