"""Accelerators of every kind. Some have no kernel driver, and programs use only their memory."""

from dataclasses import dataclass

from drawbar.driver.node.classes import generic
from drawbar.fabric.classes import DeviceClass


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator(generic.Generic):
    """See `generic.Generic`."""

    device_class: DeviceClass = DeviceClass.ACCELERATOR
    class_codes: tuple[str, ...] = ("12", "40", "0b40")
