"""Devices of no class that the node knows anything about."""

from dataclasses import dataclass

from drawbar.driver.node.classes import generic


@dataclass(frozen=True, slots=True, kw_only=True)
class Other(generic.Generic):
    """See `operations.DeviceOperations`."""
