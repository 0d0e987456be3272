"""Accelerators of every kind. Some have no kernel driver, and programs use only their memory."""

from drawbar.driver.node.classes import generic
from drawbar.fabric.classes import DeviceClass


class Accelerator(generic.Generic, frozen=True, kw_only=True):
    """See `generic.Generic`."""

    device_class: DeviceClass = DeviceClass.ACCELERATOR
    class_codes: tuple[str, ...] = ("12", "40", "0b40")
