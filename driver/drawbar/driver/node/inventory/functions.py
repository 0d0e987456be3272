"""One PCI function, read from its directory.

This is the hot path of discovery: 10,000 functions are to be read in about a second, so a function costs
one directory listing, one `uevent` (which holds ids, class and driver) and only those further files that
the listing shows.
"""

import dataclasses
import re
from collections.abc import Mapping

from drawbar.driver.node.inventory import children, classification, config_space, files, links, model, serials
from drawbar.driver.node.inventory.classification import FunctionClass

_NO_DEVICE = 0xFFFF  # the vendor id that configuration space answers where nothing answers
_ROOT = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")
_MEMDEV = re.compile(r"mem\d+")
_VIRTFN = re.compile(r"virtfn(\d+)")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Listing:
    """A function's directory: its subdirectories, and the names of everything else."""

    names: frozenset[str]
    directories: tuple[str, ...]


def read(root: str, address: str, slots: Mapping[str, str]) -> model.PciFunction | None:
    """The function at `address`, or None if it is not there (any more).

    Args:
        root: where sysfs is.
        address: `domain:bus:device.function`.
        slots: hot-plug slots, name by address (`domain:bus:device`).
    """
    link = files.link_target(f"{root}/bus/pci/devices/{address}")
    if link is None:
        return None
    relative = files.below_root(link)
    path = f"{root}/{relative}"
    listing = _list(path)
    if not listing.names:
        return None
    return _build(root, address, relative, listing, slots)


def _list(path: str) -> _Listing:
    names: list[str] = []
    directories: list[str] = []
    for entry in files.entries(path):
        (directories if entry.is_dir(follow_symlinks=False) else names).append(entry.name)
    return _Listing(names=frozenset(names), directories=tuple(sorted(directories)))


def _build(
    root: str, address: str, relative: str, listing: _Listing, slots: Mapping[str, str]
) -> model.PciFunction:
    path = f"{root}/{relative}"
    properties = files.properties(path + "/uevent")
    vendor, device = _ids(properties.get("PCI_ID"), path, ("vendor", "device"))
    subsystem = _ids(properties.get("PCI_SUBSYS_ID"), path, ("subsystem_vendor", "subsystem_device"))
    class_code = _class_code(properties, path)
    kind = classification.classify(class_code, vendor or 0, device or 0)
    below = (
        children.Children()
        if kind is FunctionClass.BRIDGE
        else children.read(root, path, listing.directories)
    )
    number, hidden = _device_serial_number(path, listing)
    dsn = serials.dashed(number) if number is not None else None
    owner = files.link_name(path + "/physfn") if "physfn" in listing.names else None
    return model.PciFunction(
        address=address,
        path=relative,
        class_code=class_code,
        device_class=kind,
        vendor=_NO_DEVICE if vendor is None else vendor,
        device=_NO_DEVICE if device is None else device,
        subsystem_vendor=subsystem[0],
        subsystem_device=subsystem[1],
        driver=properties.get("DRIVER")
        or (files.link_name(path + "/driver") if "driver" in listing.names else None),
        numa_node=files.node_number(files.number(path + "/numa_node"))
        if "numa_node" in listing.names
        else None,
        pcie_root=next((part for part in relative.split("/") if _ROOT.fullmatch(part)), None),
        link=links.read(path) if "current_link_speed" in listing.names else model.Link(),
        serial=_class_serial(path, listing) or dsn,
        dsn=dsn,
        dsn_hidden=hidden,
        iommu_group=_iommu_group(path, listing),
        sriov=_sriov(path, listing),
        physical_function=owner,
        slot=_slot(relative, owner, slots),
        device_nodes=below.device_nodes,
        net_interfaces=below.net_interfaces,
    )


def _ids(pair: str | None, path: str, attributes: tuple[str, str]) -> tuple[int | None, int | None]:
    """A vendor and a device id from `VVVV:DDDD` of the uevent, else from the two files."""
    first, _, second = (pair or "").partition(":")
    try:
        return int(first, 16), int(second, 16)
    except ValueError:
        return files.number(f"{path}/{attributes[0]}"), files.number(f"{path}/{attributes[1]}")


def _class_code(properties: Mapping[str, str], path: str) -> int:
    try:
        return int(properties["PCI_CLASS"], 16)
    except (KeyError, ValueError):
        code = files.number(path + "/class")
        return 0xFF0000 if code is None else code  # "does not fit in any defined class"


def _device_serial_number(path: str, listing: _Listing) -> tuple[int | None, bool]:
    if "config" not in listing.names:
        return None, False
    try:
        return config_space.serial_number(path + "/config"), False
    except config_space.Hidden:
        return None, True


def _class_serial(path: str, listing: _Listing) -> str | None:
    """The serial that the class's own driver shows."""
    for name in listing.directories:
        if name == "nvme":
            for controller in files.names(path + "/nvme"):
                if serial := files.text(f"{path}/nvme/{controller}/serial"):
                    return serial
        elif _MEMDEV.fullmatch(name) and files.number(f"{path}/{name}/serial"):
            return files.text(f"{path}/{name}/serial")
    return None


def _iommu_group(path: str, listing: _Listing) -> int | None:
    if "iommu_group" not in listing.names:
        return None
    return files.parse_number(files.link_name(path + "/iommu_group"))


def _sriov(path: str, listing: _Listing) -> model.Sriov | None:
    if "sriov_totalvfs" not in listing.names:
        return None
    indices = sorted(int(match[1]) for name in listing.names if (match := _VIRTFN.fullmatch(name)))
    functions = (files.link_name(f"{path}/virtfn{index}") for index in indices)
    return model.Sriov(
        total_vfs=files.number(path + "/sriov_totalvfs") or 0,
        num_vfs=files.number(path + "/sriov_numvfs") or 0,
        virtual_functions=tuple(name for name in functions if name is not None),
    )


def _slot(relative: str, physical_function: str | None, slots: Mapping[str, str]) -> str | None:
    """The nearest slot on the way up: a card may hold a switch with functions behind it.

    A virtual function can have a device number of its own and then sits where its physical function does.
    """
    if not slots:
        return None
    candidates = reversed([*relative.split("/"), *([physical_function] if physical_function else [])])
    return next(
        (slots[address] for part in candidates if (address := part.rpartition(".")[0]) in slots), None
    )
