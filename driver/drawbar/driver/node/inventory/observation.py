"""Reads single objects of the model, as many as are asked for and no others; blocks on files.

For what is read an `Observation` says what is there now, and None for what is not.
"""

import dataclasses
from collections.abc import Iterable, Mapping

from drawbar.driver.node.inventory import cxl, dax, fpga, functions, model, nvme, reader, slots, subjects
from drawbar.driver.node.inventory.subjects import Kind, Subject


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


def read(root: str, wanted: Iterable[Subject], known: Mapping[str, str]) -> Observation:
    """Reads these objects.

    Args:
        root: of the sysfs tree.
        wanted: what to read.
        known: names of slots by address (`domain:bus:device`).
    """
    names: dict[Kind, list[str]] = {kind: [] for kind in Kind}
    for subject in wanted:
        names[subject.kind].append(subject.name)
    around = functions.Surroundings(slots=known, managers=fpga.paths(root) if names[Kind.FUNCTION] else {})
    return Observation(
        functions={name: functions.read(root, name, around) for name in names[Kind.FUNCTION]},
        slots={name: slots.read_one(root, name) for name in names[Kind.SLOT]},
        slot_names=frozenset(slots.names(root)) if names[Kind.SLOTS] else None,
        objects={name: cxl.read_one(root, name) for name in names[Kind.CXL]},
        dax_devices={name: dax.read_one(root, name) for name in names[Kind.DAX]},
        behind=frozenset().union(*(nvme.behind(root, name) for name in names[Kind.NVME_SUBSYSTEM])),
    )


def listing(root: str) -> frozenset[Subject]:
    """Every object that the tree lists, of all kinds, without reading any.

    Raises:
        SysfsError: there is no readable sysfs tree.
    """
    return frozenset(
        (
            subjects.SLOTS,
            *(subjects.function(address) for address in reader.addresses(root)),
            *(subjects.slot(name) for name in slots.names(root)),
            *(subjects.cxl(name) for name in cxl.names(root)),
            *(subjects.dax(name) for name in dax.names(root)),
        )
    )
