"""The reader of a sysfs tree, as a whole or object by object.

It needs no privilege and writes nothing. All functions block on file reads, up to a second on a large host, and longer if
a device hangs. `Devices` calls them in a thread (`hangingreads`).

An `Observation` holds the current state of objects, or None for a missing object. Some changes have no event of their own.
A slot's power and presence, and the link of the bridge above it, change with the functions. The decoders of a region and a
port's number of committed decoders change with the region.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from drawbar.driver.node import errors
from drawbar.driver.node.discovery import functions, slowreads
from drawbar.driver.node.discovery.subjects import SLOTS, Kind, Subject
from drawbar.driver.node.inventory import cxl, hotplug, index, model, partitions, pci

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
    all_slots = hotplug.read_slots(root, frozenset(listed))
    around = functions.surroundings(root, hotplug.slot_locations(all_slots), slow)
    topology = cxl.read(root)
    devices = (cxl.read_dax(root, name) for name in sorted(cxl.dax_names(root), key=cxl.dax_order))
    return index.Inventory(
        functions=tuple(
            function for address in listed if (function := functions.read(root, address, around)) is not None
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
    return functions.read(
        root, address, functions.surroundings(root, hotplug.slot_locations(hotplug.read_slots(root)))
    )


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


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a read, by name or address.

    Attributes:
        slot_names: the names of all slots; None if not read.
        objects: the objects on the CXL bus.
        behind: functions with device files elsewhere, and with an event of these.
    """

    functions: Mapping[str, model.PciFunction | None] = msgspec.field(default_factory=dict)
    slots: Mapping[str, model.Slot | None] = msgspec.field(default_factory=dict)
    slot_names: frozenset[str] | None = None
    objects: Mapping[str, cxl.Object | None] = msgspec.field(default_factory=dict)
    dax_devices: Mapping[str, model.DaxDevice | None] = msgspec.field(default_factory=dict)
    behind: frozenset[str] = frozenset()


def read_subject(root: str, subject: Subject, around: functions.Surroundings) -> Observation:
    """Return the current state of one object."""
    name = subject.name
    match subject.kind:
        case Kind.FUNCTION:
            return Observation(functions={name: functions.read(root, name, around)})
        case Kind.SLOT:
            return Observation(slots={name: hotplug.read_slot(root, name)})
        case Kind.SLOTS:
            return Observation(slot_names=frozenset(hotplug.slot_names(root)))
        case Kind.CXL:
            return Observation(objects={name: cxl.read_one(root, name)})
        case Kind.DAX:
            return Observation(dax_devices={name: cxl.read_dax(root, name)})
        case Kind.NVME_SUBSYSTEM:
            return Observation(behind=frozenset(pci.functions_of_subsystem(root, name)))
        case Kind.PARTITIONS:
            return Observation(behind=partitions.functions(root))


def combine(observations: Sequence[Observation]) -> Observation:
    """Return the results of several reads as one; of two about the same object the later counts."""
    return Observation(
        functions=dict(item for each in observations for item in each.functions.items()),
        slots=dict(item for each in observations for item in each.slots.items()),
        slot_names=next(
            (each.slot_names for each in reversed(observations) if each.slot_names is not None), None
        ),
        objects=dict(item for each in observations for item in each.objects.items()),
        dax_devices=dict(item for each in observations for item in each.dax_devices.items()),
        behind=frozenset().union(*(each.behind for each in observations)),
    )


def list_subjects(root: str) -> frozenset[Subject]:
    """Return every object in the tree, of all kinds, without reading any.

    Raises:
        SysfsError: there is no readable sysfs tree.
    """
    return frozenset(
        (
            SLOTS,
            *(Subject(Kind.FUNCTION, address) for address in addresses(root)),
            *(Subject(Kind.SLOT, name) for name in hotplug.slot_names(root)),
            *(Subject(Kind.CXL, name) for name in cxl.names(root)),
            *(Subject(Kind.DAX, name) for name in cxl.dax_names(root)),
        )
    )
