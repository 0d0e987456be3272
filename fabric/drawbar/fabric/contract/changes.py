"""The events of a watch: a closed union.

Events are hints. They may repeat, and intermediate states may be missing, but never the last one. So act on the value
in an event, and do not count events.
"""

from dataclasses import dataclass

from drawbar.fabric.contract import inventory, operations

BOOKMARK_SECONDS = 30.0
"""A watch yields something at least this often, so that silence means a lost connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceChanged:
    """A new or changed device."""

    version: str
    device: inventory.Device


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceGone:
    """A device that is no longer in the fabric."""

    version: str
    device_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HostChanged:
    """A new or changed host (after a host disappears comes a `Resync`)."""

    version: str
    host: inventory.Host


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationChanged:
    """An operation that began, progressed or finished."""

    version: str
    operation: operations.Operation


@dataclass(frozen=True, slots=True, kw_only=True)
class Bookmark:
    """A version without further events before it.

    Attributes:
        version: of the fabric.
        exceeded: a sentence while the manager exceeds a limit unseen by any call, such as by a flood of events; else
            empty.
    """

    version: str
    exceeded: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resync:
    """The loss of events: list again. The watch ends after it."""


WatchEvent = DeviceChanged | DeviceGone | HostChanged | OperationChanged | Bookmark | Resync
