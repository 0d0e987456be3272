"""What a watch of a fabric tells: a closed union of events.

Events are hints. They may repeat, and intermediate states may be missing, but never the last one; so acting on
an event means looking at the value it carries, not counting.
"""

from dataclasses import dataclass

from drawbar.fabric.contract import inventory, operations

BOOKMARK_SECONDS = 30.0
"""A watch yields something at least this often, so that silence means a lost connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceChanged:
    """A device is new, or different."""

    version: str
    device: inventory.Device


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceGone:
    """The fabric no longer has the device."""

    version: str
    device_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HostChanged:
    """A host is new, or different (after a host disappears comes a `Resync`)."""

    version: str
    host: inventory.Host


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationChanged:
    """An operation began, moved on or finished."""

    version: str
    operation: operations.Operation


@dataclass(frozen=True, slots=True, kw_only=True)
class Bookmark:
    """Nothing else happened up to this version.

    Attributes:
        version: of the fabric.
        exceeded: a sentence while the manager passes a limit that no call shows, as with a flood of events; else empty.
    """

    version: str
    exceeded: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resync:
    """What happened is no longer known: list again. The watch ends after it."""


WatchEvent = DeviceChanged | DeviceGone | HostChanged | OperationChanged | Bookmark | Resync
