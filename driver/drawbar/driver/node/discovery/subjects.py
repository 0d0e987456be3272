"""The objects in a sysfs tree that are read separately, and those that an event concerns.

A uevent reports a change, never the current state: when it arrives, the device may have gone and come back. An event
therefore only names objects, from its path. Pure.
"""

import enum
import re

import msgspec

from drawbar.driver.node.inventory import partitions, pci

_SLOT = re.compile(r"/bus/pci/slots/([^/]+)")  # pci_hp_add (drivers/pci/hotplug/pci_hotplug_core.c)
_CXL = re.compile(r"(mem|root|port|endpoint|region)\d+|decoder\d+\.\d+")
_DAX = re.compile(r"dax\d+\.\d+")
_SUBSYSTEM = re.compile(r"/devices/virtual/nvme-subsystem/([^/]+)")


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


class Subject(msgspec.Struct, frozen=True):
    """An object by its name: an address, or the name of its directory."""

    kind: Kind
    name: str = ""


SLOTS = Subject(Kind.SLOTS)


def _addresses_of_path(devpath: str) -> tuple[str, ...]:
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
    on_the_way = _addresses_of_path(devpath)
    subjects = {Subject(Kind.FUNCTION, address) for address in on_the_way[-1:]}
    if on_the_way and parts[-1] == on_the_way[-1]:
        subjects |= {
            Subject(Kind.FUNCTION, address) for address in on_the_way[-2:-1]
        }  # the bridge above, for its link and its buses
    subjects |= {Subject(Kind.CXL, part) for part in parts if _CXL.fullmatch(part)}
    subjects |= {Subject(Kind.DAX, part) for part in parts if _DAX.fullmatch(part)}
    return frozenset(subjects)
