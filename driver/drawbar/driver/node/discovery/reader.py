"""The reader of a sysfs tree, as a whole or object by object.

It needs no privilege and writes nothing. All functions block on file reads, up to a second on a large host. Call them in
a thread from asyncio code.

A uevent reports a change, never the current state: when it arrives, the device may have gone and come back. An event
therefore only names objects (`Subject`), from its path. An `Observation` holds their current state, or None for a missing
object. Some changes have no event of their own. A slot's power and presence, and the link of the bridge above it, change
with the functions. The decoders of a region and a port's number of committed decoders change with the region.

Reading functions is the hot path of discovery, with a target of 10,000 a second. A function costs one `uevent` with its
ids, class and driver, or single files without them. It also costs one directory listing, and only those further files in
the listing. All are opened relative to the directory.
"""

import dataclasses
import enum
import functools
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from drawbar.driver.node import classes, errors
from drawbar.driver.node.classes import users
from drawbar.driver.node.discovery import slowreads
from drawbar.driver.node.inventory import (
    cxl,
    files,
    identities,
    index,
    model,
    nvidia,
    partitions,
    pci,
    resources,
    vfio,
    vpd,
)
from drawbar.fabric.classes import DeviceClass

_SLOT = re.compile(r"/bus/pci/slots/([^/]+)")  # pci_hp_add (drivers/pci/hotplug/pci_hotplug_core.c)
_CXL = re.compile(r"(mem|root|port|endpoint|region)\d+|decoder\d+\.\d+")
_DAX = re.compile(r"dax\d+\.\d+")
_SUBSYSTEM = re.compile(r"/devices/virtual/nvme-subsystem/([^/]+)")


_NO_DEVICE = 0xFFFF  # the id read from configuration space without a device
_NO_CLASS = 0xFF0000  # "does not fit in any defined class"
_LINES = re.compile(r"^(DRIVER|PCI_CLASS|PCI_ID|PCI_SUBSYS_ID)=(.*)$", re.MULTILINE)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Ids:
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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """A function's context outside its own directory.

    Attributes:
        slots: names by location.
        managers: directories of FPGA managers by the function's address.
        partitions: the GPUs' partitions.
        groups: the groups of vfio.
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
    nodes: dict[str, int | None] = dataclasses.field(default_factory=dict)


# Neither frozen nor checked, for speed: every function read makes one.
@dataclasses.dataclass(slots=True)
class _Place:
    """A function's directory.

    Attributes:
        relative: its path below the root.
        descriptor: an open descriptor of the directory.
        ids: the ids from its uevent.
        names: the names of its entries of interest.
        directories: its subdirectories made by drivers.
    """

    root: str
    address: str
    relative: str
    descriptor: int
    ids: Ids
    names: frozenset[str]
    directories: tuple[str, ...]

    @property
    def path(self) -> str:
        return f"{self.root}/{self.relative}"


def _read_at(root: str, address: str, around: Surroundings) -> model.PciFunction | None:
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
        return _build(_Place(root, address, relative, descriptor, ids, names, directories), around)
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
    names = files.listing(descriptor)
    # Entries of the PCI core need no further check.
    return names, tuple(
        sorted(name for name in names - model.CORE_ENTRIES if files.is_directory(name, descriptor))
    )


def _build(place: _Place, around: Surroundings) -> model.PciFunction:
    ids, names, descriptor = place.ids, place.names, place.descriptor
    bridge = ids.kind is DeviceClass.BRIDGE
    owner = files.link_name("physfn", descriptor) if "physfn" in names else None
    physical = owner is None
    number, hidden = _device_serial_number(descriptor) if physical and "config" in names else (None, False)
    dsn = model.format_serial(number) if number is not None else None
    below = pci.read_children(place.root, place.path, place.directories) if place.directories else _CHILDLESS
    group = files.parse_number(files.link_name("iommu_group", descriptor)) if "iommu_group" in names else None
    nodes, defect = below.device_nodes, None
    if ids.driver is not None and (ids.driver == partitions.DRIVER or vfio.is_driver(ids.driver)):
        nodes, defect = _device_nodes(place, around, ids.driver, group, nodes)
    information = _information(place, around) if ids.driver == nvidia.DRIVER else None
    nodes = (*nodes, *nvidia.device_nodes(information))
    ari = not bridge and _has_ari(place, owner)
    controllers = pci.read_nvme(place.path) if "nvme" in place.directories else ()
    identifiers, unread = (
        identities.read(_identity(place, dsn, around, information, hidden=hidden))
        if physical and not bridge
        else identities.NOTHING
    )
    return model.PciFunction(
        address=place.address,
        path=place.relative,
        class_code=ids.class_code,
        device_class=ids.kind,
        vendor=ids.vendor,
        device=ids.device,
        subsystem_vendor=ids.subsystem_vendor,
        subsystem_device=ids.subsystem_device,
        driver=ids.driver,
        numa_node=_numa_node(descriptor, owner, around.nodes),
        pcie_root=_root_complex(place.relative),
        # A virtual function has its physical one's link; its own registers are undefined (9.3.5.7).
        link=pci.read_link(descriptor) if physical and "current_link_speed" in names else pci.NO_LINK,
        serial=_class_serial(place, controllers) or dsn,
        dsn=dsn,
        dsn_hidden=hidden,
        iommu_group=group,
        sriov=_sriov(descriptor) if physical and "sriov_totalvfs" in names else None,
        physical_function=owner,
        slot=_slot(place.relative, owner, around.slots, ari=ari),
        device_nodes=nodes,
        net_interfaces=below.net_interfaces,
        secondary_bus=files.number("secondary_bus_number", descriptor) if bridge else None,
        nvme=controllers,
        fpga_managers=pci.read_fpga_managers(place.root, around.managers[place.address])
        if place.address in around.managers
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


def _information(place: _Place, around: Surroundings) -> str | None:
    """Return the text of NVIDIA's driver about the function, or None if it does not come in time."""
    slow = around.slow if around.slow is not None else _DRIVERS_TEXTS
    return slow.text(nvidia.information_path(around.proc, place.address))


def _identity(
    place: _Place, dsn: str | None, around: Surroundings, information: str | None, *, hidden: bool
) -> identities.Place:
    slow, ids = around.slow, place.ids

    def vital(is_identified: bool) -> identities.Vpd:
        if (
            slow is None
            or "vpd" not in place.names
            or not vpd.is_worthwhile(ids.kind, ids.vendor, ids.device, is_identified=is_identified)
            or not files.is_there("vpd", place.descriptor)
        ):
            return identities.NO_VPD
        inode = files.inode(place.descriptor)
        return slow.vital(slowreads.Arrival(place.address, inode), f"{place.path}/vpd")

    return identities.Place(
        path=place.path,
        descriptor=place.descriptor,
        names=place.names,
        directories=place.directories,
        device_class=ids.kind,
        vendor=ids.vendor,
        driver=ids.driver,
        dsn=dsn,
        dsn_hidden=hidden,
        information=information,
        vpd=vital,
    )


def _device_nodes(
    place: _Place,
    around: Surroundings,
    driver: str,
    group: int | None,
    below: tuple[model.DeviceNode, ...],
) -> tuple[tuple[model.DeviceNode, ...], str | None]:
    """Return the function's device files, including those elsewhere in the tree, and its `defect`."""
    if driver == partitions.DRIVER and partitions.MODE_FILE in place.names:
        mode = files.text(partitions.MODE_FILE, place.descriptor)
        partitioned = around.partitions.find(place.address, mode, below)
        return (*below, *partitioned.nodes), partitioned.defect
    if vfio.is_driver(driver):
        shown = around.groups.find_node(group) if group is not None else None
        nodes = below if shown is None else (*below, shown)
        return nodes, vfio.defect(driver, group, nodes)
    return below, None


def _has_ari(place: _Place, owner: str | None) -> bool:
    """Return whether the device number of the function, or of its physical one, is a part of its function number.

    This requires an endpoint below a port: not on the bus of a root complex, and not on device 0.
    """
    device = (owner or place.address).rpartition(".")[0]
    if device.endswith(":00") or place.relative.rpartition("/")[0].rpartition("/")[2].startswith("pci"):
        return False
    return files.number("physfn/ari_enabled" if owner else "ari_enabled", place.descriptor) == 1


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


def _class_serial(place: _Place, controllers: tuple[model.NvmeController, ...]) -> str | None:
    """Return the serial from the class's own driver, or None."""
    for controller in controllers:
        if controller.serial:
            return controller.serial
    for name in place.directories:
        if model.MEMDEV.fullmatch(name):
            serial = files.text(name + "/serial", place.descriptor)
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
    return pci.nearest_slot(path, by_location, ari=ari)


class Kind(enum.Enum):
    """The kinds of objects with separate reads."""

    FUNCTION = "function"
    SLOT = "slot"
    SLOTS = "slots"
    """The list of slots; without a name."""
    CXL = "cxl"
    DAX = "dax"
    NVME_SUBSYSTEM = "nvme-subsystem"
    """Disks with several paths; in sysfs they are below none of their functions."""
    PARTITIONS = "partitions"
    """The partitions of all GPUs; in sysfs they are below none of their functions. Without a name."""


@dataclasses.dataclass(frozen=True, slots=True)
class Subject:
    """An object by its name: an address, or the name of its directory."""

    kind: Kind
    name: str = ""


SLOTS = Subject(Kind.SLOTS)


def addresses_of_path(devpath: str) -> tuple[str, ...]:
    """Return the functions on the path to a device, the nearest last."""
    return tuple(part for part in devpath.split("/") if pci.ADDRESS.fullmatch(part))


def subjects_of_event(devpath: str) -> frozenset[Subject]:
    """Return the objects to read after an event of the device in this directory; empty for other events.

    Args:
        devpath: its path below the sysfs root, with a leading slash.
    """
    if match := _SLOT.fullmatch(devpath):
        return frozenset({SLOTS, Subject(Kind.SLOT, match[1])})
    if match := _SUBSYSTEM.match(devpath):
        return frozenset({Subject(Kind.NVME_SUBSYSTEM, match[1])})
    if partitions.EVENTS.match(devpath):
        return frozenset({Subject(Kind.PARTITIONS)})
    parts = devpath.split("/")
    on_the_way = addresses_of_path(devpath)
    subjects = {Subject(Kind.FUNCTION, address) for address in on_the_way[-1:]}
    if on_the_way and parts[-1] == on_the_way[-1]:
        subjects |= {
            Subject(Kind.FUNCTION, address) for address in on_the_way[-2:-1]
        }  # the bridge above, for its link and its buses
    subjects |= {Subject(Kind.CXL, part) for part in parts if _CXL.fullmatch(part)}
    subjects |= {Subject(Kind.DAX, part) for part in parts if _DAX.fullmatch(part)}
    return frozenset(subjects)


SYSFS = Path("/sys")


def read(sysfs: Path = SYSFS, slow: slowreads.SlowReads | None = None) -> index.Inventory:
    """Return the inventory of the tree.

    A host without PCI (a container, a small virtual machine) has an empty inventory.

    Args:
        sysfs: the tree; its proc file system is that of `users.Host.from_sysfs`.
        slow: the reader of Vital Product Data; None to skip it.

    Raises:
        SysfsError: there is no readable sysfs tree at `sysfs`.
    """
    root = os.fspath(sysfs)
    listed = addresses(root)
    all_slots = pci.read_slots(root, frozenset(listed))
    around = surroundings(root, all_slots, slow)
    topology = cxl.read(root)
    devices = (cxl.read_dax(root, name) for name in sorted(cxl.dax_names(root), key=cxl.dax_order))
    return index.Inventory(
        functions=tuple(
            function for address in listed if (function := _read_at(root, address, around)) is not None
        ),
        slots=all_slots,
        memdevs=topology.memdevs,
        ports=topology.ports,
        decoders=topology.decoders,
        regions=topology.regions,
        dax=tuple(device for device in devices if device is not None),
    )


def read_function(sysfs: Path, address: str) -> model.PciFunction | None:
    """Return one function, or None if there is none; reads nothing of other functions."""
    if not pci.ADDRESS.fullmatch(address):
        return None
    root = os.fspath(sysfs)
    return _read_at(root, address, surroundings(root, pci.read_slots(root)))


def surroundings(
    root: str, slots: tuple[model.Slot, ...], slow: slowreads.SlowReads | None = None
) -> Surroundings:
    """Return the context of every function, with the known slots."""
    return Surroundings(
        slots=pci.slot_locations(slots),
        managers=pci.fpga_manager_paths(root),
        partitions=partitions.Partitions(root),
        groups=vfio.Groups(root),
        proc=_proc(root),
        slow=slow,
    )


def _proc(root: str) -> str:
    return os.fspath(users.Host.from_sysfs(Path(root)).proc)


def addresses(root: str) -> list[str]:
    """Return the addresses of all functions, in order.

    Raises:
        SysfsError: there is no readable sysfs tree.
    """
    if not os.path.isdir(root + "/bus"):  # noqa: PTH112 - as everywhere in this package, paths are str
        raise errors.SysfsError(
            f"{root} is not a sysfs tree (it has no bus directory): name one with --sysfs"
        )
    try:
        with os.scandir(root + "/bus/pci/devices") as entries:
            names = [entry.name for entry in entries if pci.ADDRESS.fullmatch(entry.name)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise errors.SysfsError(f"cannot list {root}/bus/pci/devices: {error.strerror}") from error
    return sorted(names, key=model.address_order)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The result of a read, by name or address.

    Attributes:
        slot_names: the names of all slots; None if not read.
        objects: the objects on the CXL bus.
        behind: functions with device files elsewhere, and with an event of these.
    """

    functions: Mapping[str, model.PciFunction | None] = dataclasses.field(default_factory=dict)
    slots: Mapping[str, model.Slot | None] = dataclasses.field(default_factory=dict)
    slot_names: frozenset[str] | None = None
    objects: Mapping[str, cxl.Object | None] = dataclasses.field(default_factory=dict)
    dax_devices: Mapping[str, model.DaxDevice | None] = dataclasses.field(default_factory=dict)
    behind: frozenset[str] = frozenset()


def read_subjects(
    root: str,
    subjects: Iterable[Subject],
    slots: Mapping[str, str],
    slow: slowreads.SlowReads | None = None,
) -> Observation:
    """Return the current state of these objects.

    Args:
        root: the root of the sysfs tree.
        subjects: the objects to read.
        slots: names of slots by location.
        slow: the reader of Vital Product Data; None to skip it.
    """
    names: dict[Kind, list[str]] = {kind: [] for kind in Kind}
    for subject in subjects:
        names[subject.kind].append(subject.name)
    around = Surroundings(
        slots=slots,
        managers=pci.fpga_manager_paths(root) if names[Kind.FUNCTION] else {},
        partitions=partitions.Partitions(root),
        groups=vfio.Groups(root),
        proc=_proc(root),
        slow=slow,
    )
    return Observation(
        functions={name: _read_at(root, name, around) for name in names[Kind.FUNCTION]},
        slots={name: pci.read_slot(root, name) for name in names[Kind.SLOT]},
        slot_names=frozenset(pci.slot_names(root)) if names[Kind.SLOTS] else None,
        objects={name: cxl.read_one(root, name) for name in names[Kind.CXL]},
        dax_devices={name: cxl.read_dax(root, name) for name in names[Kind.DAX]},
        behind=frozenset().union(
            *(pci.functions_of_subsystem(root, name) for name in names[Kind.NVME_SUBSYSTEM]),
            *(partitions.functions(root) for _ in names[Kind.PARTITIONS]),
        ),
    )


def listing(root: str) -> frozenset[Subject]:
    """Return every object in the tree, of all kinds, without reading any.

    Raises:
        SysfsError: there is no readable sysfs tree.
    """
    return frozenset(
        (
            SLOTS,
            *(Subject(Kind.FUNCTION, address) for address in addresses(root)),
            *(Subject(Kind.SLOT, name) for name in pci.slot_names(root)),
            *(Subject(Kind.CXL, name) for name in cxl.names(root)),
            *(Subject(Kind.DAX, name) for name in cxl.dax_names(root)),
        )
    )
