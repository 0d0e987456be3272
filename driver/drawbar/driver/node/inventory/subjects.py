"""What a uevent is about: the objects of the model that are to be read again, decided from its path alone.

An event says that something happened, never what is true now: by the time it is heard the device may have gone and
come back. So an event only names objects, and whoever follows reads them as they are.

Some things change without an event of their own, and follow from the events of others: a slot's power and presence and
the link of the bridge above it (a function came or went), the decoders of a region, the number of a port's committed
decoders.
"""

import dataclasses
import enum
import re

from drawbar.driver.node.inventory import children

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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One object by its name: an address, or the name of its directory."""

    kind: Kind
    name: str = ""


SLOTS = Subject(kind=Kind.SLOTS)


def function(address: str) -> Subject:
    """The function at an address."""
    return Subject(kind=Kind.FUNCTION, name=address)


def slot(name: str) -> Subject:
    """The slot of a name."""
    return Subject(kind=Kind.SLOT, name=name)


def cxl(name: str) -> Subject:
    """A memory device, port, decoder or region."""
    return Subject(kind=Kind.CXL, name=name)


def dax(name: str) -> Subject:
    """A dax device."""
    return Subject(kind=Kind.DAX, name=name)


def addresses(devpath: str) -> tuple[str, ...]:
    """The functions on the way to a device, the nearest last."""
    return tuple(part for part in devpath.split("/") if children.ADDRESS.fullmatch(part))


def of_event(devpath: str) -> frozenset[Subject]:
    """What is to be read again after an event of the device in this directory; empty if it is no business of ours.

    Args:
        devpath: below the sysfs root, with a leading slash.
    """
    if match := _SLOT.fullmatch(devpath):
        return frozenset({SLOTS, slot(match[1])})
    if match := _SUBSYSTEM.match(devpath):
        return frozenset({Subject(kind=Kind.NVME_SUBSYSTEM, name=match[1])})
    parts = devpath.split("/")
    on_the_way = addresses(devpath)
    found = {function(address) for address in on_the_way[-1:]}
    if on_the_way and parts[-1] == on_the_way[-1]:
        found |= {function(address) for address in on_the_way[-2:-1]}  # its link, and the buses behind it
    found |= {cxl(part) for part in parts if _CXL.fullmatch(part)}
    found |= {dax(part) for part in parts if _DAX.fullmatch(part)}
    return frozenset(found)
