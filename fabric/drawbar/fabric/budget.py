"""The budget of one fabric manager: limits for its listings and its streams.

A listing is counted while it is read, so that only its beginning is ever held in memory. Beyond a limit the count
raises one error, with the number, the limit and the remedy. The reader then gives up and keeps its previous listing.

A stream, such as a watch, has a balance of events and bytes that is refilled over time. The balance belongs to the
fabric, not to one connection: a sender whose connection was closed cannot get a full balance by connecting again.
"""

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from drawbar.fabric import errors

MIB = 1024 * 1024
# A stream may bring the events of this many seconds all at once.
WINDOW_SECONDS = 20.0
EVENT_BYTES = 4096
# An attach or detach is followed by a handful of events of devices, hosts and operations.
EVENTS_PER_CALL = 32
PORTS_PER_HOST = 32
OPERATIONS_PER_DEVICE = 2
# Endpoint, card, functions and processor of a device are resources of their own.
RESOURCES_PER_DEVICE = 8
# A value of JSON takes up to 140 bytes of memory, and 26 bytes of text in the listings of real services.
BYTES_PER_VALUE = 38


class Counted(enum.StrEnum):
    """The counted things of a listing, in the words of its error."""

    BYTES = "bytes"
    VALUES = "JSON values"
    RESOURCES = "resources"
    DEVICES = "devices"
    HOSTS = "hosts"
    PORTS = "ports"
    OPERATIONS = "operations"


# The deciding field of a Fabric's `policy.limits`.
_FIELDS: Mapping[Counted, str] = MappingProxyType(
    {
        Counted.BYTES: "listingMebibytes",
        Counted.VALUES: "listingMebibytes",
        Counted.RESOURCES: "devices",
        Counted.DEVICES: "devices",
        Counted.HOSTS: "hosts",
        Counted.PORTS: "hosts",
        Counted.OPERATIONS: "devices",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits for the listings and streams of one fabric manager.

    Attributes:
        devices: the most devices; operations and resources in proportion.
        hosts: the most hosts; ports in proportion.
        listing_mebibytes: the size of all answers of one listing; JSON values in proportion.
        watch_events_per_second: events of one stream, without those of the caller's own attaches and detaches.
    """

    devices: int = 4096
    hosts: int = 1024
    listing_mebibytes: int = 24
    watch_events_per_second: int = 256

    def most(self, counted: Counted) -> int:
        """Return the limit of one kind."""
        match counted:
            case Counted.BYTES:
                return self.listing_mebibytes * MIB
            case Counted.VALUES:
                return self.listing_mebibytes * MIB // BYTES_PER_VALUE
            case Counted.RESOURCES:
                return RESOURCES_PER_DEVICE * (self.devices + self.hosts)
            case Counted.DEVICES:
                return self.devices
            case Counted.HOSTS:
                return self.hosts
            case Counted.PORTS:
                return PORTS_PER_HOST * self.hosts
            case Counted.OPERATIONS:
                return OPERATIONS_PER_DEVICE * self.devices


def is_exceeded(error: BaseException) -> bool:
    """Return whether the error reports an exceeded limit."""
    return isinstance(error, errors.FabricError) and error.reason == errors.Reason.LIMIT_EXCEEDED


def _build_exceeded(what: str, field: str, fabric: str) -> errors.Unavailable:
    return errors.Unavailable(
        f"the fabric manager {what}; correct the manager, or raise spec.policy.limits.{field} of the Fabric "
        f"(kubectl edit fabric {fabric})",
        reason=errors.Reason.LIMIT_EXCEEDED,
    )


class Listing:
    """One listing, counted while it is read."""

    def __init__(self, limits: Limits, fabric: str) -> None:
        """Begin a listing.

        Args:
            limits: of the fabric.
            fabric: the Fabric's name, for the remedy.
        """
        self._limits = limits
        self._fabric = fabric
        self._counts = dict.fromkeys(Counted, 0)

    def count(self, counted: Counted, number: int = 1) -> None:
        """Add a number to the count.

        Raises:
            Unavailable: LIMIT_EXCEEDED.
        """
        self._counts[counted] += number
        read, most = self._counts[counted], self._limits.most(counted)
        if read > most:
            raise _build_exceeded(
                f"lists {read} {counted} or more, and at most {most} are read", _FIELDS[counted], self._fabric
            )


class Flow:
    """The balance of one fabric manager's streams."""

    def __init__(self, limits: Limits, fabric: str, *, clock: Callable[[], float]) -> None:
        """Begin with a full balance.

        Args:
            limits: of the fabric.
            fabric: the Fabric's name, for the remedy.
            clock: returns monotonic seconds.
        """
        self._fabric = fabric
        self._clock = clock
        self._per_second = limits.watch_events_per_second
        self._most = self._per_second * WINDOW_SECONDS
        self._events = self._most
        self._bytes = self._most * EVENT_BYTES
        self._counted_at: float | None = None

    def take(self, size_bytes: int = 0, *, events: int = 1) -> None:
        """Count received events and bytes.

        Raises:
            Unavailable: LIMIT_EXCEEDED; close the connection.
        """
        now = self._clock()
        self._refill((now - (now if self._counted_at is None else self._counted_at)) * self._per_second)
        self._counted_at = now
        self._events = max(self._events - events, -1.0)
        self._bytes = max(self._bytes - size_bytes, -1.0)
        if self._events < 0 or self._bytes < 0:
            most = (
                f"{self._per_second * EVENT_BYTES // 1024} KiB"
                if self._bytes < 0
                else f"{self._per_second} events"
            )
            raise _build_exceeded(
                f"streams more than {most} a second for {WINDOW_SECONDS:.0f} s",
                "watchEventsPerSecond",
                self._fabric,
            )

    def credit(self) -> None:
        """Allow for the events that an attach or detach of the caller brings."""
        self._refill(EVENTS_PER_CALL)

    def _refill(self, events: float) -> None:
        self._events = min(self._events + events, self._most)
        self._bytes = min(self._bytes + events * EVENT_BYTES, self._most * EVENT_BYTES)
