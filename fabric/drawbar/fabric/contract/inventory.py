"""A fabric's inventory: hosts with ports, devices, and the connections between them.

The values are the fabric manager's reports, parsed once at the adapter's edge. They are immutable. An inventory is
one moment, and its version names that moment for `FabricAdapter.watch`.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from drawbar.fabric import attributes as own_attributes
from drawbar.fabric import errors, witnesses
from drawbar.fabric.classes import DeviceClass
from drawbar.fabric.contract import reach

COMPUTE_CAPABILITY = re.compile(r"(?:0|[1-9][0-9]{0,8})(?:\.(?:0|[1-9][0-9]{0,8})){0,2}")
"""One to three numbers with points between them, such as 9.0; claims compare it as a version."""

SWITCH = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.:/-]{0,62}[A-Za-z0-9])?")
"""The id of a switch, such as chassis-1:sw-0; at most 64 characters, the limit of an attribute."""

SENTENCES_MAX = 16
SENTENCE_BYTES = 256
"""The most sentences about omitted parts of a listing, and the longest sentence."""


class Health(StrEnum):
    """The fabric manager's opinion of a device; information, not yet a taint."""

    OK = "ok"
    WARNING = "warning"
    CRITICAL = "critical"
    UNKNOWN = "unknown"


class PortState(StrEnum):
    """The use of a host port."""

    FREE = "free"
    USED = "used"
    """Connected, or reserved by an operation in flight."""
    FAULT = "fault"


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """One downstream port of a host.

    Attributes:
        id: unique within the host.
        state: see `PortState`.
        device_id: the connected device, or the device of a reservation.
        slot_hint: the host's name for the slot behind the port, if the fabric knows it; the node relies on its
            kernel.
    """

    id: str
    state: PortState
    device_id: str | None = None
    slot_hint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A machine that the fabric reaches.

    Attributes:
        id: stable and unique in the fabric; never a value that the machine itself can write, such as the HostName of
            its BMC.
        name: for people.
        identifiers: values that link it to a node: "system-uuid", "serial", "hostname".
        ports: in the fabric's own order.
        reach_groups: its reachability groups, see `reach`; empty if they are unknown, or for all.
    """

    id: str
    name: str
    identifiers: Mapping[str, str] = field(default_factory=dict)
    ports: tuple[Port, ...] = ()
    reach_groups: frozenset[str] = frozenset()

    def reaches(self, device: "Device") -> bool:
        """Return whether the device can be attached to this host, as far as their groups tell."""
        return reach.reaches(device.reach_groups, self.reach_groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """The connection of a device to a host.

    Attributes:
        host_id: the device's host.
        port_id: None if the fabric does not report it.
        slot_hint: as in `Port`.
        request_id: the request that made the connection, if the fabric keeps it.
        mark: the `AttachRequest.mark` of that request; None without one. Fabrics with the capability `marks` keep it
            for as long as the connection lasts.
    """

    host_id: str
    port_id: str | None = None
    slot_hint: str | None = None
    request_id: str | None = None
    mark: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """A slice: a part of another device's memory, with a connection of its own.

    Attributes:
        origin_id: the device of the memory.
        request_id: the request that made the slice, if the fabric keeps it.
        mark: the `CreateSliceRequest.mark` of that request; None without one. Fabrics with the capability `marks`
            keep it for as long as the slice exists.
    """

    origin_id: str
    request_id: str | None = None
    mark: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Carving:
    """The possible slices of a device.

    Attributes:
        free_bytes: memory outside all slices.
        step_bytes: the least size of a slice; every size is a multiple of it. 1 for any size.
        is_pool: whether the device is only carved, and never attached itself.
    """

    free_bytes: int
    step_bytes: int = 1
    is_pool: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One device of the fabric, attached or not.

    Attributes:
        id: stable over restarts of the fabric manager and moves between hosts; unique in the fabric.
        device_class: see `DeviceClass`.
        model: for people and for `AttachRequest.model`.
        vendor: for people.
        pci_vendor_id: for example 0x8086; None if unknown.
        pci_device_id: None if unknown.
        serial: the manager's serial number for it, of an undeclared kind; None if there is none. An equal number on
            the node supports the device; a different one is no evidence.
        identifiers: the numbers of declared kinds by which the node can recognise the device; see `witnesses.Kind`.
        enclosure: its chassis; the devices of one chassis make one pool. Empty if there is only one.
        switch: its PCIe or CXL switch, in the form of `SWITCH`: equal for the devices of one switch, different for
            two switches of one enclosure. Empty if unknown.
        reach_groups: its reachability groups, see `reach`: it can go to the hosts of each of them. Empty if they are
            unknown, or for all hosts.
        memory_bytes: 0 without memory or if unknown.
        compute_capability: the programs that a GPU or accelerator can run, in the form of `COMPUTE_CAPABILITY`; empty
            if unknown or without meaning for the device.
        max_link_speed_mts: the highest speed of its PCI Express link, in MT/s per lane: 16.0 GT/s is 16000. It is the
            device's limit, not the port's; 0 if unknown.
        max_link_width: the most lanes of its link; 0 if unknown.
        health: see `Health`.
        connection: its current connection, made by any client; None if it is free.
        slice_of: the origin of a slice; None if the device is no slice.
        carving: its possible slices; None if it cannot be carved. A device with slices is not attached itself.
        attributes: further facts from the vendor's adapter for claims to select by, such as the domain of an NVLink
            or the position in a rack; from `attributes.collect`.
        refused_attributes: a clause for people about each attribute of the adapter that does not fit.
        etag: changes with every change of the device; None if the fabric has none.
    """

    id: str
    device_class: DeviceClass
    model: str = ""
    vendor: str = ""
    pci_vendor_id: int | None = None
    pci_device_id: int | None = None
    serial: str | None = None
    identifiers: tuple[witnesses.Identifier, ...] = ()
    enclosure: str = ""
    switch: str = ""
    reach_groups: frozenset[str] = frozenset()
    memory_bytes: int = 0
    compute_capability: str = ""
    max_link_speed_mts: int = 0
    max_link_width: int = 0
    health: Health = Health.UNKNOWN
    connection: Connection | None = None
    slice_of: Slice | None = None
    carving: Carving | None = None
    attributes: tuple[own_attributes.Attribute, ...] = ()
    refused_attributes: tuple[str, ...] = ()
    etag: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """All devices at one moment.

    Attributes:
        version: opaque; `FabricAdapter.watch` continues from it. Compare for equality only.
        devices: each id once.
        unread: a sentence for each part of the fabric that cannot be read now; see `bound_sentences`. If there is
            one, a missing device or host is in doubt, not gone.
        oddities: a sentence for each part that is permanently omitted, such as a fabric of another kind.
    """

    version: str
    devices: tuple[Device, ...]
    unread: tuple[str, ...] = ()
    oddities: tuple[str, ...] = ()

    def device(self, device_id: str) -> Device | None:
        """Return the device with that id, or None if the fabric has none."""
        return next((device for device in self.devices if device.id == device_id), None)

    def explain_missing(self, device_id: str, remedy: str) -> str:
        """Return why a device has no entry, in a sentence with the remedy; another one if it may be in an unread part."""
        if self.unread:
            return f"device {device_id} is not listed, and {self.unread[0]}; look at the fabric manager"
        return f"there is no device {device_id}; {remedy}"


def bound_sentences(sentences: Iterable[str]) -> tuple[str, ...]:
    """Return at most `SENTENCES_MAX` sentences, each cut to `SENTENCE_BYTES`; the last one counts the others."""
    listed = tuple(sentences)
    kept = listed if len(listed) <= SENTENCES_MAX else listed[: SENTENCES_MAX - 1]
    more = (f"{len(listed) - len(kept)} more parts",) if len(kept) < len(listed) else ()
    return tuple(errors.cut(sentence, SENTENCE_BYTES) for sentence in (*kept, *more))


def find_carved(devices: Iterable[Device]) -> frozenset[str]:
    """Return the ids of the devices that are not attached themselves: they have slices, or exist only to be carved."""
    listed = tuple(devices)
    origins = {device.slice_of.origin_id for device in listed if device.slice_of is not None}
    pools = {device.id for device in listed if device.carving is not None and device.carving.is_pool}
    return frozenset(origins | pools)
