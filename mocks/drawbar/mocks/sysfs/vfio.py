"""The devices of vfio for a bound function: the IOMMU group, and the group's device file.

Without an IOMMU vfio invents the group when it binds, and the file has another name (drivers/vfio/group.c).
"""

from drawbar.mocks.sysfs.kobjects import Kobject, readable
from drawbar.mocks.sysfs.steps import Add, Join, Step, Write


def make_container_device() -> tuple[Kobject, ...]:
    """Return the device file shared by the users of all groups."""
    return (_node("misc", "vfio", (10, 196), "vfio/vfio"),)


def steps(function: Kobject, *, iommu: bool) -> tuple[Step, ...]:
    """Return the steps of binding vfio to a function, in order, before the bind itself.

    Args:
        function: the function.
        iommu: true if there is an IOMMU.
    """
    number = _group(function)
    folder = f"kernel/iommu_groups/{number}"
    named = {"name": readable("" if iommu else "vfio-noiommu")}
    name = str(number) if iommu else f"noiommu-{number}"
    return (
        Join(path=f"{folder}/devices/{function.name}", target=function.path),
        Write(folder=folder, files=named),
        Join(path=f"{function.path}/iommu_group", target=folder),
        Add(kobject=_node("vfio", name, (511, number & 0xFF), f"vfio/{name}")),
    )


def _group(function: Kobject) -> int:
    """Return the function's group, a number of its own."""
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
