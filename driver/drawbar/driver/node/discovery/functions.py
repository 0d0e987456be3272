"""The reader of one PCI function.

It is the hot path of discovery, with a target of 10,000 functions a second. A function costs one `uevent` with its ids,
class and driver, or single files without them. It also costs one directory listing, and only those further files in the
listing. All are opened relative to the directory.
"""

import functools
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec

from drawbar.driver.node import classes
from drawbar.driver.node.classes import users
from drawbar.driver.node.discovery import slowreads
from drawbar.driver.node.inventory import (
    files,
    hotplug,
    identities,
    model,
    nvidia,
    partitions,
    pci,
    resources,
    vfio,
    vpd,
)
from drawbar.fabric.classes import DeviceClass

_NO_DEVICE = 0xFFFF  # the id read from configuration space without a device
_NO_CLASS = 0xFF0000  # "does not fit in any defined class"
_LINES = re.compile(r"^(DRIVER|PCI_CLASS|PCI_ID|PCI_SUBSYS_ID)=(.*)$", re.MULTILINE)


class Ids(msgspec.Struct, frozen=True, kw_only=True):
    """The ids of a function, its class, and its bound driver."""

    class_code: int
    kind: DeviceClass
    vendor: int
    device: int
    subsystem_vendor: int | None
    subsystem_device: int | None
    driver: str | None

    @property
    def is_known(self) -> bool:
        """Return whether the function answered."""
        return self.vendor != _NO_DEVICE


def read_ids(directory: int) -> Ids:
    """Return the ids of the function with this open directory."""
    properties = dict(_LINES.findall(files.text("uevent", directory) or ""))
    driver = properties.get("DRIVER") or None
    ids = _from_uevent(
        properties.get("PCI_CLASS", ""),
        properties.get("PCI_ID", ""),
        properties.get("PCI_SUBSYS_ID", ""),
        driver,
    )
    return ids if ids is not None else _from_files(directory, driver or files.link_name("driver", directory))


@functools.lru_cache(maxsize=1024)  # a host has thousands of functions of few kinds
def _from_uevent(class_code: str, device: str, subsystem: str, driver: str | None) -> Ids | None:
    """Return the ids from texts such as `10802` and `1B36:0010`, or None if one has another form."""
    try:
        code = int(class_code, 16)
        ids = tuple(int(number, 16) for pair in (device, subsystem) for number in pair.split(":"))
        first, second, third, fourth = ids
    except ValueError:
        return None
    return _make_ids(code, (first, second), (third, fourth), driver)


def _from_files(directory: int, driver: str | None) -> Ids:
    names = ("class", "vendor", "device", "subsystem_vendor", "subsystem_device")
    code, vendor, device, subsystem_vendor, subsystem_device = (
        files.number(name, directory) for name in names
    )
    return _make_ids(
        _NO_CLASS if code is None else code,
        (_NO_DEVICE if vendor is None else vendor, _NO_DEVICE if device is None else device),
        (subsystem_vendor, subsystem_device),
        driver,
    )


def _make_ids(
    code: int, ids: tuple[int, int], subsystem: tuple[int | None, int | None], driver: str | None
) -> Ids:
    vendor, device = ids
    return Ids(
        class_code=code,
        kind=classes.classify(code, vendor, device, driver),
        vendor=vendor,
        device=device,
        subsystem_vendor=subsystem[0],
        subsystem_device=subsystem[1],
        driver=driver,
    )


_ROOT = re.compile(r"(?:^|/)(pci[0-9a-f]{4,8}:[0-9a-f]{2})(?:/|$)")
# A bridge's directory is not listed: its children are other functions. It may have these entries of interest.
_BRIDGES_OWN = frozenset({"current_link_speed", "iommu_group"})
_CHILDLESS = pci.Children()
# Nor is the directory of a function without a driver, or with a driver in `_BOUND_TO`, which lists the drivers' directories.
_CORE = frozenset(
    {"config", "current_link_speed", "iommu_group", "physfn", "serial_number", "sriov_totalvfs", "vpd"}
)
_TAKES_ANY = frozenset({None, "vfio-pci"})
# For reads without a reader of Vital Product Data; it keeps only the reads in progress.
_DRIVERS_TEXTS = slowreads.SlowReads()
_BOUND_TO: dict[str | None, tuple[str, ...]] = {None: (), "pci-stub": (), "vfio-pci": ("vfio-dev",)}


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """A function's context outside its own directory.

    Attributes:
        slots: names by location.
        managers: directories of FPGA managers by the function's address.
        partitions: the GPUs' partitions.
        proc: the host's proc file system.
        slow: the reader of Vital Product Data; None to skip it.
        nodes: a cache of NUMA nodes of physical functions by address, for their virtual functions.
    """

    slots: Mapping[str, str]
    managers: Mapping[str, tuple[str, ...]]
    proc: str
    partitions: partitions.Partitions
    groups: vfio.Groups
    slow: slowreads.SlowReads | None = None
    nodes: dict[str, int | None] = msgspec.field(default_factory=dict)


def surroundings(
    root: str, slots: Mapping[str, str], slow: slowreads.SlowReads | None = None
) -> Surroundings:
    """Return the context of every function, with the known slots by location."""
    return Surroundings(
        slots=slots,
        managers=pci.fpga_manager_paths(root),
        partitions=partitions.Partitions(root),
        groups=vfio.Groups(root),
        proc=os.fspath(users.Host.from_sysfs(Path(root)).proc),
        slow=slow,
    )


def read(root: str, address: str, around: Surroundings) -> model.PciFunction | None:
    """Return the function at `address` (`domain:bus:device.function`) of the tree at `root`, or None if it is gone."""
    link = files.link_target(f"{root}/bus/pci/devices/{address}")
    if link is None:
        return None
    relative = files.resolve_below_root(link)
    descriptor = files.open_directory(f"{root}/{relative}")
    if descriptor is None:
        return None
    try:
        ids = read_ids(descriptor)
        names, directories = _entries(descriptor, ids)
        if not names:
            return None
        directory = identities.FunctionDirectory(
            root, address, relative, descriptor, ids.kind, ids.vendor, ids.driver, names, directories
        )
        return _build(directory, ids, around)
    finally:
        os.close(descriptor)


def _entries(descriptor: int, ids: Ids) -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the directory's entries of interest, and the subdirectories among them that drivers make.

    Both are empty if the directory is gone. A listing costs more than all other reads.
    """
    if ids.kind is DeviceClass.BRIDGE:
        return _BRIDGES_OWN, ()
    if ids.is_known and ids.driver in _BOUND_TO:
        return _CORE, _BOUND_TO[ids.driver]
    names = files.list_names(descriptor)
    # Entries of the PCI core need no further check.
    return names, tuple(
        sorted(name for name in names - model.CORE_ENTRIES if files.is_directory(name, descriptor))
    )


def _build(directory: identities.FunctionDirectory, ids: Ids, around: Surroundings) -> model.PciFunction:
    names, descriptor = directory.names, directory.descriptor
    bridge = ids.kind is DeviceClass.BRIDGE
    owner = files.link_name("physfn", descriptor) if "physfn" in names else None
    physical = owner is None
    number, hidden = _device_serial_number(descriptor) if physical and "config" in names else (None, False)
    dsn = model.format_serial(number) if number is not None else None
    below = (
        pci.read_children(directory.root, directory.path, directory.directories)
        if directory.directories
        else _CHILDLESS
    )
    group = files.parse_number(files.link_name("iommu_group", descriptor)) if "iommu_group" in names else None
    nodes, defect = below.device_nodes, None
    if ids.driver is not None and (ids.driver == partitions.DRIVER or vfio.is_driver(ids.driver)):
        nodes, defect = _device_nodes(directory, around, ids.driver, group, nodes)
    information = _information(directory, around) if ids.driver == nvidia.DRIVER else None
    nodes = (*nodes, *nvidia.device_nodes(information))
    ari = not bridge and _has_ari(directory, owner)
    controllers = pci.read_nvme(directory.path) if "nvme" in directory.directories else ()
    identifiers, unread = (
        identities.read(
            directory,
            identities.Readings(dsn, hidden, information, _vital_reader(directory, ids.device, around.slow)),
        )
        if physical and not bridge
        else identities.NOTHING
    )
    return model.PciFunction(
        address=directory.address,
        path=directory.relative,
        class_code=ids.class_code,
        device_class=ids.kind,
        vendor=ids.vendor,
        device=ids.device,
        subsystem_vendor=ids.subsystem_vendor,
        subsystem_device=ids.subsystem_device,
        driver=ids.driver,
        numa_node=_numa_node(descriptor, owner, around.nodes),
        pcie_root=_root_complex(directory.relative),
        # A virtual function has its physical one's link; its own registers are undefined (9.3.5.7).
        link=pci.read_link(descriptor) if physical and "current_link_speed" in names else pci.NO_LINK,
        serial=_class_serial(directory, controllers) or dsn,
        dsn=dsn,
        dsn_hidden=hidden,
        iommu_group=group,
        sriov=_sriov(descriptor) if physical and "sriov_totalvfs" in names else None,
        physical_function=owner,
        slot=_slot(directory.relative, owner, around.slots, ari=ari),
        device_nodes=nodes,
        net_interfaces=below.net_interfaces,
        secondary_bus=files.number("secondary_bus_number", descriptor) if bridge else None,
        nvme=controllers,
        fpga_managers=pci.read_fpga_managers(directory.root, around.managers[directory.address])
        if directory.address in around.managers
        else (),
        # A driver refuses a function without the BARs it needs; vfio accepts any.
        unassigned_bars=_read_unassigned_bars(descriptor)
        if physical and not bridge and ids.driver in _TAKES_ANY
        else (),
        ari=ari,
        defect=defect,
        identifiers=identifiers,
        unread=unread,
        arrival=files.inode(descriptor),
    )


def _information(directory: identities.FunctionDirectory, around: Surroundings) -> str | None:
    """Return the text of NVIDIA's driver about the function, or None if it does not come in time."""
    slow = around.slow if around.slow is not None else _DRIVERS_TEXTS
    return slow.text(nvidia.information_path(around.proc, directory.address))


def _vital_reader(
    directory: identities.FunctionDirectory, device: int, slow: slowreads.SlowReads | None
) -> Callable[[bool], identities.Vpd]:
    """Return the reader of the function's Vital Product Data for `identities.Readings`."""

    def read_vital(is_identified: bool) -> identities.Vpd:
        if (
            slow is None
            or "vpd" not in directory.names
            or not vpd.is_worthwhile(
                directory.device_class, directory.vendor, device, is_identified=is_identified
            )
            or not files.is_there("vpd", directory.descriptor)
        ):
            return identities.NO_VPD
        inode = files.inode(directory.descriptor)
        return slow.vital(slowreads.Arrival(directory.address, inode), f"{directory.path}/vpd")

    return read_vital


def _device_nodes(
    directory: identities.FunctionDirectory,
    around: Surroundings,
    driver: str,
    group: int | None,
    below: tuple[model.DeviceNode, ...],
) -> tuple[tuple[model.DeviceNode, ...], str | None]:
    """Return the function's device files, including those elsewhere in the tree, and its `defect`."""
    if driver == partitions.DRIVER and partitions.MODE_FILE in directory.names:
        mode = files.text(partitions.MODE_FILE, directory.descriptor)
        partitioned = around.partitions.find(directory.address, mode, below)
        return (*below, *partitioned.nodes), partitioned.defect
    if vfio.is_driver(driver):
        shown = around.groups.find_node(group) if group is not None else None
        nodes = below if shown is None else (*below, shown)
        return nodes, vfio.defect(driver, group, nodes)
    return below, None


def _has_ari(directory: identities.FunctionDirectory, owner: str | None) -> bool:
    """Return whether the device number of the function, or of its physical one, is a part of its function number.

    This requires an endpoint below a port: not on the bus of a root complex, and not on device 0.
    """
    device = (owner or directory.address).rpartition(".")[0]
    if device.endswith(":00") or directory.relative.rpartition("/")[0].rpartition("/")[2].startswith("pci"):
        return False
    return files.number("physfn/ari_enabled" if owner else "ari_enabled", directory.descriptor) == 1


def _root_complex(relative: str) -> str | None:
    match = _ROOT.search(relative)
    return match[1] if match else None


def _read_unassigned_bars(descriptor: int) -> tuple[int, ...]:
    lines = resources.parse(files.text("resource", descriptor))
    header = files.head("config", resources.HEADER_BYTES, descriptor) if lines else b""
    return resources.unassigned_bars(lines, header)


def _device_serial_number(descriptor: int) -> tuple[int | None, bool]:
    try:
        return pci.read_serial_number(descriptor), False
    except pci.ConfigSpaceHidden:
        return None, True


def _class_serial(
    directory: identities.FunctionDirectory, controllers: tuple[model.NvmeController, ...]
) -> str | None:
    """Return the serial from the class's own driver, or None."""
    for controller in controllers:
        if controller.serial:
            return controller.serial
    for name in directory.directories:
        if model.MEMDEV.fullmatch(name):
            serial = files.text(name + "/serial", directory.descriptor)
            if model.plausible_serial(files.parse_number(serial)):
                return serial
    return None


def _numa_node(descriptor: int, owner: str | None, by_owner: dict[str, int | None]) -> int | None:
    """Return the NUMA node; a virtual function has its physical one's, read once for up to hundreds of them."""
    if owner is None:
        return files.node_number(files.number("numa_node", descriptor))
    if owner not in by_owner:
        by_owner[owner] = files.node_number(files.number("physfn/numa_node", descriptor))
    return by_owner[owner]


def _sriov(descriptor: int) -> model.Sriov | None:
    total = files.number("sriov_totalvfs", descriptor)
    if total is None:
        return None
    present = files.number("sriov_numvfs", descriptor) or 0
    return model.Sriov(
        total_vfs=total, num_vfs=present, virtual_functions=tuple(_virtual_functions(descriptor, present))
    )


def _virtual_functions(descriptor: int, count: int) -> Iterator[str]:
    """Yield the addresses of the virtual functions, up to the first gap: the count may be outdated."""
    for number in range(count):
        name = files.link_name(f"virtfn{number}", descriptor)
        if name is None:
            return
        yield name


def _slot(
    relative: str, physical_function: str | None, by_location: Mapping[str, str], *, ari: bool
) -> str | None:
    """Return the name of the nearest slot above, or None; a card may hold a switch with functions behind it.

    A virtual function may have another device number, but it is in its physical function's slot.
    """
    if not by_location:
        return None
    path = f"{relative.rpartition('/')[0]}/{physical_function}" if physical_function else relative
    return hotplug.nearest_slot(path, by_location, ari=ari)
