"""Accelerators of every kind. Some have no kernel driver at all, and work through their memory alone."""

from dataclasses import dataclass

from drawbar.driver.node.classes import generic


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator(generic.Generic):
    """See `operations.DeviceOperations`."""
