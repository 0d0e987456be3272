"""The configuration of the node's own pool: the devices to offer, and their treatment; pure."""

import enum
import fnmatch
from dataclasses import dataclass

from drawbar.driver import expressions
from drawbar.driver.api import attachments, deviceplugins
from drawbar.fabric.classes import OFFERED_CLASSES, DeviceClass

# GPUs, accelerators and FPGAs have vendors' drivers and device plugins, which an installation must not disturb.
DEFAULT_CLASSES = ("cxl-memory",)
QUIET_MAX_SECONDS = 86_400.0
CLAIMS_LOAD = ("fpga",)
"""Classes whose claims may ask for work on the device first, such as the load of a bitstream."""
# Chipset parts, USB controllers and all other devices without a class.
NEEDS_SELECTOR = DeviceClass.OTHER


class Clean(enum.StrEnum):
    """The treatment of a device between two users."""

    BY_CLASS = "by-class"
    """Disks are erased, and each function is reset."""
    NONE = "none"
    """No treatment."""
    RESET = "reset"
    """Each function is reset."""
    ERASE = "erase"
    """The user's data are erased if the class can, and each function is reset."""

    @property
    def way(self) -> attachments.Clean | None:
        """Return the value for a DeviceAttachment, or None for `by-class`."""
        return None if self is Clean.BY_CLASS else attachments.Clean(self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The choice of devices in the node's own pool.

    Attributes:
        enabled: offer devices of the node itself.
        classes: the classes of device to offer.
        selector: a CEL expression over `device`, as in a DeviceClass, for the devices to offer.
        slots: hot-plug slots of the node's own devices, by name or pattern such as `*`; all others are a fabric's.
        virtual_functions: offer each virtual function in place of its device.
        clean: the treatment of a device between two claims.
        bind_when_ready: the classes of devices to make ready before a pod is bound.
        despite_others: devices, by name or pattern such as `gpu-*`, to offer even if another driver, a device plugin
            or a process has them.
        plugin_resources: the cards of further extended resources, as `example.com/*=nic`, `x.io/fec=0x8086`,
            `x.io/fec=0x8086:accelerator` or `x.io/y=none`.
        quiet_seconds: the time from another driver's or device plugin's use of a device to its offer.
    """

    enabled: bool = True
    classes: tuple[str, ...] = DEFAULT_CLASSES
    selector: str = ""
    slots: tuple[str, ...] = ()
    virtual_functions: bool = False
    clean: Clean = Clean.BY_CLASS
    bind_when_ready: tuple[str, ...] = CLAIMS_LOAD
    despite_others: tuple[str, ...] = ()
    plugin_resources: tuple[str, ...] = ()
    quiet_seconds: float = 300.0

    def lends(self, device_class: str) -> bool:
        """Return whether the virtual functions of a class of devices are offered."""
        return self.enabled and self.virtual_functions and device_class in self.classes

    def is_offered_anyway(self, name: str) -> bool:
        """Return whether the device is offered even if other components have it."""
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in self.despite_others)

    def has_slot(self, name: str) -> bool:
        """Return whether devices in that hot-plug slot belong to this node."""
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in self.slots)


def problems(settings: Selection) -> list[str]:
    """Return one sentence for each invalid value."""
    offered = [offered_class.value for offered_class in OFFERED_CLASSES]
    wrong = [
        f"the local pool has no class of device {name!r}: choose of {', '.join(offered)}"
        for name in dict.fromkeys((*settings.classes, *settings.bind_when_ready))
        if name not in offered
    ]
    if NEEDS_SELECTOR in settings.classes and not settings.selector:
        wrong.append(
            "the local pool would offer every part of the chipset: class 'other' needs a selector that names the devices"
        )
    if settings.enabled and not settings.classes:
        wrong.append("the local pool has no class of device: name some, or turn it off")
    parsed = map(deviceplugins.parse, settings.plugin_resources)
    wrong += [f"the local pool's pluginResources: {fault}" for fault in parsed if isinstance(fault, str)]
    # NaN fails this comparison.
    if not 0 <= settings.quiet_seconds <= QUIET_MAX_SECONDS:
        wrong.append(
            f"the local pool's quietSeconds {settings.quiet_seconds} is not a number of seconds from 0 to {QUIET_MAX_SECONDS:g}"
        )
    if settings.selector:
        fault = expressions.fault(settings.selector)
        if fault is not None:
            wrong.append(f"the local pool's selector {settings.selector!r} is not a CEL expression: {fault}")
    return wrong
