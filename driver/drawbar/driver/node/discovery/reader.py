"""Reads a sysfs tree: all of it, or single objects of it.

Needs no privilege and writes nothing. Everything blocks on file reads; a large host takes up to a second, so asyncio code
calls it in a thread.

A uevent says that something happened, never what is true now: by the time it is read the device may have gone and come
back. So an event only names objects (`Subject`), decided from its path alone, and an `Observation` says what is there now,
and None for what is not. Some things change without an event of their own, and follow from the events of others: a slot's
power and presence and the link of the bridge above it (a function came or went), the decoders of a region, the number of a
port's committed decoders.
"""

import dataclasses
import enum
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from drawbar.driver.node import errors
from drawbar.driver.node.discovery import functions
from drawbar.driver.node.inventory import cxl, index, model, pci

_SLOT = re.compile(r"/bus/pci/slots/([^/]+)")  # pci_hp_add (drivers/pci/hotplug/pci_hotplug_core.c)
_CXL = re.compile(r"(mem|root|port|endpoint|region)\d+|decoder\d+\.\d+")
_DAX = re.compile(r"dax\d+\.\d+")
_SUBSYSTEM = re.compile(r"/devices/virtual/nvme-subsystem/([^/]+)")


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
    found = {Subject(Kind.FUNCTION, address) for address in on_the_way[-1:]}
    if on_the_way and parts[-1] == on_the_way[-1]:
        found |= {
            Subject(Kind.FUNCTION, address) for address in on_the_way[-2:-1]
        }  # its link, and the buses behind it
    found |= {Subject(Kind.CXL, part) for part in parts if _CXL.fullmatch(part)}
    found |= {Subject(Kind.DAX, part) for part in parts if _DAX.fullmatch(part)}
    return frozenset(found)


SYSFS = Path("/sys")


def read(sysfs: Path = SYSFS) -> index.Inventory:
    """Everything that the tree shows.

    A host without PCI (a container, a small virtual machine) has an empty inventory.

    Raises:
        SysfsError: there is no readable sysfs tree at `sysfs`.
    """
    root = os.fspath(sysfs)
    found = addresses(root)
    all_slots = pci.read_slots(root)
    around = surroundings(root, all_slots)
    topology = cxl.read(root)
    devices = (cxl.read_dax(root, name) for name in sorted(cxl.dax_names(root), key=cxl.dax_order))
    return index.Inventory(
        functions=tuple(
            function for address in found if (function := functions.read(root, address, around)) is not None
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
    return functions.read(root, address, surroundings(root, pci.read_slots(root)))


def surroundings(root: str, known: tuple[model.Slot, ...]) -> functions.Surroundings:
    """What every function is related to, with the slots as they are known."""
    return functions.Surroundings(slots=pci.slot_addresses(known), managers=pci.fpga_manager_paths(root))


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
        with os.scandir(root + "/bus/pci/devices") as found:
            names = [entry.name for entry in found if pci.ADDRESS.fullmatch(entry.name)]
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


def read_subjects(root: str, wanted: Iterable[Subject], known: Mapping[str, str]) -> Observation:
    """Reads these objects.

    Args:
        root: of the sysfs tree.
        wanted: what to read.
        known: names of slots by address (`domain:bus:device`).
    """
    names: dict[Kind, list[str]] = {kind: [] for kind in Kind}
    for subject in wanted:
        names[subject.kind].append(subject.name)
    around = functions.Surroundings(
        slots=known, managers=pci.fpga_manager_paths(root) if names[Kind.FUNCTION] else {}
    )
    return Observation(
        functions={name: functions.read(root, name, around) for name in names[Kind.FUNCTION]},
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
