"""What a fabric holds: hosts with ports, devices, and which device hangs on which port.

The values are what the fabric manager reports, parsed once at the adapter's edge. They are immutable; an
inventory is one moment, and its version names that moment for `FabricAdapter.watch`.
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
"""One to three numbers with points between them, such as 9.0: what becomes a version that claims compare."""

SWITCH = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.:/-]{0,62}[A-Za-z0-9])?")
"""The id of a switch, such as chassis-1:sw-0: at most 64 characters, as an attribute that claims match has room for."""

SENTENCES_MAX = 16
SENTENCE_BYTES = 256
"""The most sentences about parts that a listing leaves out, and the longest one."""


class Health(StrEnum):
    """The fabric manager's opinion of a device; information, not yet a taint."""

    OK = "ok"
    WARNING = "warning"
    CRITICAL = "critical"
    UNKNOWN = "unknown"


class PortState(StrEnum):
    """What a host port can be used for now."""

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
        device_id: the device on it, or the one for which it is reserved.
        slot_hint: the host's name for the slot behind it, if the fabric has it; the node goes by its kernel.
    """

    id: str
    state: PortState
    device_id: str | None = None
    slot_hint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A machine that the fabric reaches.

    Attributes:
        id: stable, unique in the fabric, and never what the machine itself can write, such as the HostName of its BMC.
        name: for people.
        identifiers: what ties it to a node: "system-uuid", "serial", "hostname".
        ports: in the fabric's own order.
        reach_groups: the reachability groups that it is in, see `reach`; empty when they are not known, or for all.
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
    """Where a device is attached.

    Attributes:
        host_id: the host that has it.
        port_id: None when the fabric does not tell.
        slot_hint: as in `Port`.
        request_id: the request that made the connection, if the fabric can carry such a mark.
        mark: the `AttachRequest.mark` that it was made with; None without one. Kept by fabrics with the capability
            `marks` for as long as the connection lasts.
    """

    host_id: str
    port_id: str | None = None
    slot_hint: str | None = None
    request_id: str | None = None
    mark: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """What makes a device a slice: a part of the memory of another one, which is connected by itself.

    Attributes:
        origin_id: the device that it is a part of.
        request_id: the request that made it, if the fabric can carry such a mark.
        mark: the `CreateSliceRequest.mark` that it was made with; None without one. Kept by fabrics with the capability
            `marks` for as long as the slice is there.
    """

    origin_id: str
    request_id: str | None = None
    mark: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Carving:
    """What slices can be made of a device.

    Attributes:
        free_bytes: memory that is in no slice.
        step_bytes: the size of a slice is a multiple of it, and not less; 1 where any will do.
        is_pool: the device is only there to be carved, and never attached itself.
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
        pci_vendor_id: for example 0x8086; None when not known.
        pci_device_id: None when not known.
        serial: the serial number that the manager shows, of an undeclared kind; None when there is none. An equal number on
            the node supports the device, another one says nothing.
        identifiers: the numbers of declared kinds by which the node can recognise the device; see `witnesses.Kind`.
        enclosure: the chassis that holds it; its devices make one pool. Empty when there is only one.
        switch: the PCIe or CXL switch that it hangs at, in the form of `SWITCH`; equal for the devices of one switch, and
            different in one enclosure for those of two. Empty when it is not known.
        reach_groups: the reachability groups that it is in, see `reach`: it can go to the hosts of each of them. Empty when
            they are not known, or for all hosts.
        memory_bytes: 0 when it has none or it is not known.
        compute_capability: of a GPU or accelerator, which programs it runs, in the form of `COMPUTE_CAPABILITY`;
            empty when it has none or it is not known.
        max_link_speed_mts: the fastest that its PCI Express link can run, in MT/s per lane: 16.0 GT/s is 16000. What
            the device can, not what a port makes of it; 0 when not known.
        max_link_width: the most lanes that its link can have; 0 when not known.
        health: see `Health`.
        connection: where it is attached now, whoever attached it; None when it is free.
        slice_of: what it is a slice of; None when it is none.
        carving: what slices can be made of it; None when it cannot be carved. A device with slices is not attached itself.
        attributes: what the vendor's adapter says of it beyond the fields above, for claims to select by, such as the domain
            of an NVLink or the position in a rack; as `attributes.collect` makes them.
        refused_attributes: a clause for each attribute of the adapter that does not fit, for people.
        etag: changes whenever the device does; None when the fabric has none.
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
        unread: a sentence for each part of the fabric that cannot be read for now; see `bound_sentences`. While there is one,
            a device or host that is missing is in doubt and not gone.
        oddities: a sentence for each part that is left out for good, such as a fabric of another kind.
    """

    version: str
    devices: tuple[Device, ...]
    unread: tuple[str, ...] = ()
    oddities: tuple[str, ...] = ()

    def device(self, device_id: str) -> Device | None:
        """The device of that id, or None when the fabric has none."""
        return next((device for device in self.devices if device.id == device_id), None)


def bound_sentences(sentences: Iterable[str]) -> tuple[str, ...]:
    """Return at most `SENTENCES_MAX` sentences, each cut to `SENTENCE_BYTES`; the last one counts the others."""
    listed = tuple(sentences)
    kept = listed if len(listed) <= SENTENCES_MAX else listed[: SENTENCES_MAX - 1]
    more = (f"{len(listed) - len(kept)} more parts",) if len(kept) < len(listed) else ()
    return tuple(errors.cut(sentence, SENTENCE_BYTES) for sentence in (*kept, *more))


def carved(devices: Iterable[Device]) -> frozenset[str]:
    """Return the ids of the devices that are not attached themselves, as they have slices or are only there for these."""
    listed = tuple(devices)
    origins = {device.slice_of.origin_id for device in listed if device.slice_of is not None}
    pools = {device.id for device in listed if device.carving is not None and device.carving.is_pool}
    return frozenset(origins | pools)
