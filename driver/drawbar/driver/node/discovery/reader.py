"""Reads a sysfs tree: all of it, or single objects of it.

Needs no privilege and writes nothing. Everything blocks on file reads; a large host takes up to a second, so asyncio code
calls it in a thread.

A uevent reports that something happened, never what is true now: by the time it is read the device may have gone and come
back. So an event only names objects (`Subject`), decided from its path alone, and an `Observation` is what is there now,
and None for what is not. Some things change without an event of their own, and follow from the events of others: a slot's
power and presence and the link of the bridge above it (a function came or went), the decoders of a region, the number of a
port's committed decoders.

Reading functions is the hot path of discovery: 10,000 are to be read in a second, so a function costs one `uevent` (which
holds ids, class and driver; single files where it does not), one directory listing and only those further files that the
listing shows, all opened relative to the directory.
"""

import dataclasses
import enum
import functools
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from drawbar.driver.node import classes, errors
from drawbar.driver.node.inventory import cxl, files, index, model, pci
from drawbar.fabric import witnesses
from drawbar.fabric.classes import DeviceClass

_SLOT = re.compile(r"/bus/pci/slots/([^/]+)")  # pci_hp_add (drivers/pci/hotplug/pci_hotplug_core.c)
_CXL = re.compile(r"(mem|root|port|endpoint|region)\d+|decoder\d+\.\d+")
_DAX = re.compile(r"dax\d+\.\d+")
_SUBSYSTEM = re.compile(r"/devices/virtual/nvme-subsystem/([^/]+)")


_NO_DEVICE = 0xFFFF  # the id that configuration space answers where nothing answers
_NO_CLASS = 0xFF0000  # "does not fit in any defined class"
_LINES = re.compile(r"^(DRIVER|PCI_CLASS|PCI_ID|PCI_SUBSYS_ID)=(.*)$", re.MULTILINE)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Ids:
    """The ids of a function, its class, and the driver that is bound to it."""

    class_code: int
    kind: DeviceClass
    vendor: int
    device: int
    subsystem_vendor: int | None
    subsystem_device: int | None
    driver: str | None

    @property
    def is_known(self) -> bool:
        """Whether anything answered."""
        return self.vendor != _NO_DEVICE


def read_ids(directory: int) -> Ids:
    """The ids of the function whose directory this descriptor is."""
    said = dict(_LINES.findall(files.text("uevent", directory) or ""))
    driver = said.get("DRIVER") or None
    ids = _from_uevent(
        said.get("PCI_CLASS", ""), said.get("PCI_ID", ""), said.get("PCI_SUBSYS_ID", ""), driver
    )
    return ids if ids is not None else _from_files(directory, driver or files.link_name("driver", directory))


@functools.lru_cache(maxsize=1024)  # a host has thousands of functions, and far fewer kinds of them
def _from_uevent(class_code: str, device: str, subsystem: str, driver: str | None) -> Ids | None:
    """Ids as in `PCI_CLASS=10802`, `PCI_ID=1B36:0010`; None if one is no such thing."""
    try:
        code = int(class_code, 16)
        ids = tuple(int(number, 16) for pair in (device, subsystem) for number in pair.split(":"))
        first, second, third, fourth = ids
    except ValueError:
        return None
    return _made(code, (first, second), (third, fourth), driver)


def _from_files(directory: int, driver: str | None) -> Ids:
    names = ("class", "vendor", "device", "subsystem_vendor", "subsystem_device")
    code, vendor, device, subsystem_vendor, subsystem_device = (
        files.number(name, directory) for name in names
    )
    return _made(
        _NO_CLASS if code is None else code,
        (_NO_DEVICE if vendor is None else vendor, _NO_DEVICE if device is None else device),
        (subsystem_vendor, subsystem_device),
        driver,
    )


def _made(
    code: int, ids: tuple[int, int], subsystem: tuple[int | None, int | None], driver: str | None
) -> Ids:
    vendor, device = ids
    return Ids(
        class_code=code,
        kind=classes.classify(code, vendor, device),
        vendor=vendor,
        device=device,
        subsystem_vendor=subsystem[0],
        subsystem_device=subsystem[1],
        driver=driver,
    )


_ROOT = re.compile(r"(?:^|/)(pci[0-9a-f]{4,8}:[0-9a-f]{2})(?:/|$)")
_MEMDEV = re.compile(r"mem\d+")
# A bridge's directory is not listed: its children are functions of their own, and these it may have.
_BRIDGES_OWN = frozenset({"current_link_speed", "iommu_group"})
_CHILDLESS = pci.Children()
# Nor is that of a function to which no driver is bound, or one of those that make nothing there but these directories.
_CORE = frozenset({"config", "current_link_speed", "iommu_group", "physfn", "sriov_totalvfs"})
_BOUND_TO: dict[str | None, tuple[str, ...]] = {None: (), "pci-stub": (), "vfio-pci": ("vfio-dev",)}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a function is related to and its own directory does not say.

    Attributes:
        slots: names by address (`domain:bus:device`).
        managers: directories of FPGA managers by the function's address.
        nodes: NUMA nodes of physical functions by address, as far as their virtual ones have asked.
    """

    slots: Mapping[str, str]
    managers: Mapping[str, tuple[str, ...]]
    nodes: dict[str, int | None] = dataclasses.field(default_factory=dict)


# Neither frozen nor with checks: one is made for every function that is read.
@dataclasses.dataclass(slots=True)
class _Place:
    """A function's directory.

    Attributes:
        relative: its path below the root.
        descriptor: of the directory.
        ids: what its uevent says of it.
        names: of everything in it that may be of interest.
        directories: those of its directories that drivers make.
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
    """The function at `address` (`domain:bus:device.function`) of the tree at `root`, or None if it is not there."""
    link = files.link_target(f"{root}/bus/pci/devices/{address}")
    if link is None:
        return None
    relative = files.below_root(link)
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
    """What may be of interest in the directory, and which of it are directories that drivers make.

    There is nothing if it is gone. A listing is dearer than all the rest.
    """
    if ids.kind is DeviceClass.BRIDGE:
        return _BRIDGES_OWN, ()
    if ids.is_known and ids.driver in _BOUND_TO:
        return _CORE, _BOUND_TO[ids.driver]
    names = files.listing(descriptor)
    # The kernel is not asked about those that never are directories.
    return names, tuple(
        sorted(name for name in names - model.CORE_ENTRIES if files.is_directory(name, descriptor))
    )


def _build(place: _Place, around: Surroundings) -> model.PciFunction:
    ids, names, descriptor = place.ids, place.names, place.descriptor
    bridge = ids.kind is DeviceClass.BRIDGE
    owner = files.link_name("physfn", descriptor) if "physfn" in names else None
    physical = owner is None
    number, hidden = _device_serial_number(descriptor) if physical and "config" in names else (None, False)
    dsn = model.dashed_serial(number) if number is not None else None
    below = pci.read_children(place.root, place.path, place.directories) if place.directories else _CHILDLESS
    controllers = pci.read_nvme(place.path) if "nvme" in place.directories else ()
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
        # A virtual function's link is its physical one's, and its own registers say nothing (9.3.5.7).
        link=pci.read_link(descriptor) if physical and "current_link_speed" in names else pci.NO_LINK,
        serial=_class_serial(place, controllers) or dsn,
        dsn=dsn,
        dsn_hidden=hidden,
        iommu_group=files.parse_number(files.link_name("iommu_group", descriptor))
        if "iommu_group" in names
        else None,
        sriov=_sriov(descriptor) if physical and "sriov_totalvfs" in names else None,
        physical_function=owner,
        slot=_slot(place.relative, owner, around.slots),
        device_nodes=below.device_nodes,
        net_interfaces=below.net_interfaces,
        secondary_bus=files.number("secondary_bus_number", descriptor) if bridge else None,
        nvme=controllers,
        fpga_managers=pci.read_fpga_managers(place.root, around.managers[place.address])
        if place.address in around.managers
        else (),
        identifiers=_identifiers(dsn, controllers),
    )


def _identifiers(
    dsn: str | None, controllers: tuple[model.NvmeController, ...]
) -> tuple[witnesses.Identifier, ...]:
    """Return the numbers that were read, each of its kind."""
    texts = [(witnesses.Kind.PCIE_DSN, dsn or "", "config")]
    texts += [
        (witnesses.Kind.NVME_SERIAL, controller.serial or "", f"{controller.name}/serial")
        for controller in controllers
    ]
    made = (witnesses.identifier(kind, text, source) for kind, text, source in texts if text)
    return tuple(each for each in made if each is not None)


def _root_complex(relative: str) -> str | None:
    match = _ROOT.search(relative)
    return match[1] if match else None


def _device_serial_number(descriptor: int) -> tuple[int | None, bool]:
    try:
        return pci.read_serial_number(descriptor), False
    except pci.ConfigSpaceHidden:
        return None, True


def _class_serial(place: _Place, controllers: tuple[model.NvmeController, ...]) -> str | None:
    """The serial that the class's own driver shows."""
    for controller in controllers:
        if controller.serial:
            return controller.serial
    for name in place.directories:
        if _MEMDEV.fullmatch(name):
            serial = files.text(name + "/serial", place.descriptor)
            if model.plausible_serial(files.parse_number(serial)):
                return serial
    return None


def _numa_node(descriptor: int, owner: str | None, by_owner: dict[str, int | None]) -> int | None:
    """A virtual function is where its physical one is, and there may be hundreds of them."""
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
    """They are numbered without a gap; where one is missing, the count was never true, or is no longer."""
    for number in range(count):
        name = files.link_name(f"virtfn{number}", descriptor)
        if name is None:
            return
        yield name


def _slot(relative: str, physical_function: str | None, by_address: Mapping[str, str]) -> str | None:
    """The nearest slot on the way up: a card may hold a switch with functions behind it.

    A virtual function can have a device number of its own and then sits where its physical function does.
    """
    if not by_address:
        return None
    return pci.nearest_slot(f"{relative}/{physical_function}" if physical_function else relative, by_address)


class Kind(enum.Enum):
    """The kinds of object that are read one at a time."""

    FUNCTION = "function"
    SLOT = "slot"
    SLOTS = "slots"
    """Which slots there are; without a name."""
    CXL = "cxl"
    DAX = "dax"
    NVME_SUBSYSTEM = "nvme-subsystem"
    """Disks with several paths, which hang below none of their functions."""


@dataclasses.dataclass(frozen=True, slots=True)
class Subject:
    """One object by its name: an address, or the name of its directory."""

    kind: Kind
    name: str = ""


SLOTS = Subject(Kind.SLOTS)


def addresses_of_path(devpath: str) -> tuple[str, ...]:
    """The functions on the way to a device, the nearest last."""
    return tuple(part for part in devpath.split("/") if pci.ADDRESS.fullmatch(part))


def subjects_of_event(devpath: str) -> frozenset[Subject]:
    """What is to be read again after an event of the device in this directory; empty if it is no business of ours.

    Args:
        devpath: below the sysfs root, with a leading slash.
    """
    if match := _SLOT.fullmatch(devpath):
        return frozenset({SLOTS, Subject(Kind.SLOT, match[1])})
    if match := _SUBSYSTEM.match(devpath):
        return frozenset({Subject(Kind.NVME_SUBSYSTEM, match[1])})
    parts = devpath.split("/")
    on_the_way = addresses_of_path(devpath)
    subjects = {Subject(Kind.FUNCTION, address) for address in on_the_way[-1:]}
    if on_the_way and parts[-1] == on_the_way[-1]:
        subjects |= {
            Subject(Kind.FUNCTION, address) for address in on_the_way[-2:-1]
        }  # its link, and the buses behind it
    subjects |= {Subject(Kind.CXL, part) for part in parts if _CXL.fullmatch(part)}
    subjects |= {Subject(Kind.DAX, part) for part in parts if _DAX.fullmatch(part)}
    return frozenset(subjects)


SYSFS = Path("/sys")


def read(sysfs: Path = SYSFS) -> index.Inventory:
    """Everything that the tree shows.

    A host without PCI (a container, a small virtual machine) has an empty inventory.

    Raises:
        SysfsError: there is no readable sysfs tree at `sysfs`.
    """
    root = os.fspath(sysfs)
    listed = addresses(root)
    all_slots = pci.read_slots(root)
    around = surroundings(root, all_slots)
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
    """One function, or None if it is not there; reads nothing of the other functions."""
    if not pci.ADDRESS.fullmatch(address):
        return None
    root = os.fspath(sysfs)
    return _read_at(root, address, surroundings(root, pci.read_slots(root)))


def surroundings(root: str, slots: tuple[model.Slot, ...]) -> Surroundings:
    """What every function is related to, with the slots as they are known."""
    return Surroundings(slots=pci.slot_addresses(slots), managers=pci.fpga_manager_paths(root))


def addresses(root: str) -> list[str]:
    """The addresses of all functions, in order.

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
    """What was read, by name or address.

    Attributes:
        slot_names: all slots there are; None if that was not read.
        objects: on the CXL bus.
        behind: functions whose disks are those of an NVMe subsystem that was read.
    """

    functions: Mapping[str, model.PciFunction | None] = dataclasses.field(default_factory=dict)
    slots: Mapping[str, model.Slot | None] = dataclasses.field(default_factory=dict)
    slot_names: frozenset[str] | None = None
    objects: Mapping[str, cxl.Object | None] = dataclasses.field(default_factory=dict)
    dax_devices: Mapping[str, model.DaxDevice | None] = dataclasses.field(default_factory=dict)
    behind: frozenset[str] = frozenset()


def read_subjects(root: str, wanted: Iterable[Subject], slots: Mapping[str, str]) -> Observation:
    """Reads these objects.

    Args:
        root: of the sysfs tree.
        wanted: what to read.
        slots: names of slots by address (`domain:bus:device`).
    """
    names: dict[Kind, list[str]] = {kind: [] for kind in Kind}
    for subject in wanted:
        names[subject.kind].append(subject.name)
    around = Surroundings(slots=slots, managers=pci.fpga_manager_paths(root) if names[Kind.FUNCTION] else {})
    return Observation(
        functions={name: _read_at(root, name, around) for name in names[Kind.FUNCTION]},
        slots={name: pci.read_slot(root, name) for name in names[Kind.SLOT]},
        slot_names=frozenset(pci.slot_names(root)) if names[Kind.SLOTS] else None,
        objects={name: cxl.read_one(root, name) for name in names[Kind.CXL]},
        dax_devices={name: cxl.read_dax(root, name) for name in names[Kind.DAX]},
        behind=frozenset().union(
            *(pci.functions_of_subsystem(root, name) for name in names[Kind.NVME_SUBSYSTEM])
        ),
    )


def listing(root: str) -> frozenset[Subject]:
    """Every object that the tree lists, of all kinds, without reading any.

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
