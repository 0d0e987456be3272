"""What an operator can say about which devices of a node are its own to give out."""

import fnmatch
from dataclasses import dataclass

from drawbar.driver import expressions
from drawbar.fabric.contract import OFFERED_CLASSES, DeviceClass

DEFAULT_CLASSES = ("gpu", "accelerator", "fpga", "cxl-memory")
# Chipset parts, USB controllers and whatever else has no class of ours.
NEEDS_SELECTOR = DeviceClass.OTHER


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which devices of a node are in its own pool.

    Attributes:
        enabled: whether there is a local pool at all.
        classes: the classes of device that are offered: gpu, accelerator, fpga, cxl-memory, nvme, nic, other.
        selector: a CEL expression over `device`, as in a DeviceClass; only devices for which it is true are offered.
        slots: names of hot-plug slots, or patterns such as `*`, in which devices of this node sit. What sits in any
            other hot-plug slot is taken for a fabric's.
        virtual_functions: offer the virtual functions of a device that has some, each by itself, in its place.
    """

    enabled: bool = True
    classes: tuple[str, ...] = DEFAULT_CLASSES
    selector: str = ""
    slots: tuple[str, ...] = ()
    virtual_functions: bool = False

    def has_slot(self, name: str) -> bool:
        """Whether devices in that hot-plug slot are this node's."""
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in self.slots)


def problems(settings: Selection) -> list[str]:
    """One sentence for each wrong value."""
    known = [one.value for one in OFFERED_CLASSES]
    found = [
        f"the local pool has no class of device {name!r}: choose of {', '.join(known)}"
        for name in settings.classes
        if name not in known
    ]
    if NEEDS_SELECTOR in settings.classes and not settings.selector:
        found.append(
            "the local pool would offer every part of the chipset: class 'other' needs a selector that names the devices"
        )
    if settings.enabled and not settings.classes:
        found.append("the local pool has no class of device: name some, or turn it off")
    if settings.selector:
        fault = expressions.fault(settings.selector)
        if fault is not None:
            found.append(f"the local pool's selector {settings.selector!r} is no CEL expression: {fault}")
    return found
