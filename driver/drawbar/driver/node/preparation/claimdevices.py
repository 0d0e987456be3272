"""The devices of a claim on this node, and their CDI devices for its containers."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

import msgspec

from drawbar.cdi import errors as cdi_errors
from drawbar.cdi import files, spec
from drawbar.driver.api import parameters
from drawbar.driver.catalogue import reasons
from drawbar.driver.node import classes, edits, errors
from drawbar.driver.node.classes import driverfiles
from drawbar.driver.node.inventory import attributes, model
from drawbar.driver.node.inventory import files as inventory_files
from drawbar.driver.node.local import nulls, pool
from drawbar.driver.node.preparation import records


class AllocatedDevice(records.Device, frozen=True):
    """A device that the scheduler gave to a claim.

    Attributes:
        allocation_timestamp: the time of the claim's allocation; None if the allocation was not read.
    """

    allocation_timestamp: str | None = None

    @property
    def name(self) -> str:
        """Return the device's pool and name, for messages."""
        return f"device {self.pool}/{self.device}"


class PresentDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A device that is present on this node.

    Attributes:
        card: the card as the kernel shows it.
        device_class: one of `drawbar.fabric.classes.DeviceClass`.
        origin: the attributes of the device's place in a fabric, and those of the fabric's adapter.
        occupied: returns the host's uses of network interfaces, for a device of the node's own pool; see `pool.Interfaces`.
        companions: the cards of the other composite members on this node.
    """

    record: records.PreparedDevice
    card: model.Card
    device_class: str
    claim_uid: str
    host: classes.Host
    origin: Mapping[str, attributes.Value] = msgspec.field(default_factory=dict)
    occupied: pool.Interfaces | None = None
    companions: tuple[model.Card, ...] = ()

    @property
    def values(self) -> dict[str, attributes.Value]:
        """Return the device's attributes by name."""
        return attributes.from_card(self.card) | {
            name: value for name, value in self.origin.items() if attributes.fits(value)
        }

    @property
    def asks_the_driver(self) -> bool:
        """Return whether `content` may wait for the device's driver."""
        operations = classes.by_name(self.device_class)
        return self.occupied is not None or operations.asks_the_driver

    @property
    def container_view(self) -> model.Card:
        """Return the card, including its virtual functions only if the DeviceClass passes them to the claim."""
        return self.card if self._parameters.virtual_functions.is_passed_to_claim else self.card.bare

    @property
    def _parameters(self) -> parameters.DeviceParameters:
        return (
            parameters.from_record(self.record.parameters) if self.record.parameters else parameters.NOTHING
        )

    @property
    def interfaces(self) -> int | None:
        """Return the number of network interfaces for a container; None for a class without interfaces."""
        names = classes.by_name(self.device_class).interfaces(self.container_view)
        return None if names is None else len(names)

    @property
    def vendor_kind(self) -> str | None:
        """Return the kind of the vendor's CDI files that must list the device, or None."""
        return self._parameters.vendor_kind

    def vendor_id(self, directories: Sequence[Path]) -> str | None:
        """Return the device's ID in its vendor's CDI files, or None without a `vendor_kind`. Call it in a thread.

        Args:
            directories: the directories of CDI files, from the lowest priority to the highest.

        Raises:
            errors.DeviceLate: no file lists the device, or two of one directory do.
        """
        kind = self.vendor_kind
        if kind is None:
            return None
        operations = classes.by_name(self.device_class)
        nodes = operations.edits(self.container_view, self.host).device_nodes
        names = operations.names(self.card, self.host)
        # Files without a device number are shared by all devices of a driver; the runtime looks them up.
        own = frozenset(node.path for node in nodes if node.major is not None)
        common = frozenset(node.path for node in nodes) - own
        try:
            vendor_id = files.find(directories, kind, names=names, own=own, common=common)
        except cdi_errors.AmbiguousDevice as error:
            raise errors.DeviceLate(
                f"device {self.record.pool}/{self.record.device}: {error}", reason=reasons.VENDOR_FILE_MISSING
            ) from error
        if vendor_id is None:
            looked = ", ".join(map(str, directories))
            raise errors.DeviceLate(
                f"device {self.record.pool}/{self.record.device} ({', '.join(sorted(names))}) is in no CDI file of kind {kind} "
                f"in {looked}; see that the vendor's service that writes them runs on this node",
                reason=reasons.VENDOR_FILE_MISSING,
            )
        return vendor_id

    def content(self) -> spec.Device:
        """Return the CDI device for the containers. Call it in a thread if `asks_the_driver` is true.

        Raises:
            errors.DeviceLate: the device has just vanished, or its device files are missing.
            errors.PrepareError: the host uses a network interface of the device.
        """
        # A plain call, because every Prepare makes it.
        if not os.path.exists(f"{self.host.sysfs}/{self.card.first.path}"):  # noqa: PTH110 - see above
            raise errors.DeviceLate(
                f"device {self.record.pool}/{self.record.device} has just gone from {self.card.address}; trying again",
                reason=reasons.DEVICE_NOT_VISIBLE,
            )
        missing = driverfiles.find_missing(self.container_view, self.host)
        if missing is not None:
            raise errors.DeviceLate(
                f"device {self.record.pool}/{self.record.device} is not ready on this node: {missing}",
                reason=reasons.DEVICE_NOT_READY,
            )
        if not self.record.admin:
            self._refuse_occupied()
        content = edits.device(
            name=self.record.device,
            serial=self.record.serial,
            device_class=self.device_class,
            card=self.container_view,
            claim_uid=self.claim_uid,
            host=self.host,
            device_parameters=self._parameters,
            first_interface=self.record.first_interface,
            mounts=_mounts(self.record),
            companions=self.companions,
        )
        if self.record.admin:
            # The interfaces stay for the claim that holds the card, and for its next ones.
            bare = msgspec.structs.replace(content.edits, net_devices=())
            content = msgspec.structs.replace(content, edits=bare)
        return content

    def _refuse_occupied(self) -> None:
        names = classes.by_name(self.device_class).interfaces(self.container_view)
        if self.occupied is None or not names:
            return
        uses = self.occupied(names)
        problem = "whether the host uses its network interfaces is unknown" if uses is None else ""
        for name, use in sorted((uses or {}).items()):
            problem = problem or f"network interface {name} {use}"
        if problem:
            raise errors.PrepareError(
                f"device {self.record.pool}/{self.record.device} is in use by this node: {problem}; take that away, or delete the pod",
                reason=reasons.HOST_USES_DEVICE,
            )

    def network(self, content: spec.Device) -> records.Network | None:
        """Return the first interface that the container runtime moves, or None."""
        if not content.edits.net_devices:
            return None
        first = content.edits.net_devices[0]
        address = inventory_files.text(f"{self.host.sysfs}/class/net/{first.host_name}/address")
        return records.Network(interface_name=first.name, hardware_address=address or "")


class Nothing(msgspec.Struct, frozen=True, kw_only=True):
    """The null device of a request without a device: always present, and without hardware."""

    record: records.PreparedDevice
    claim_uid: str
    interfaces: ClassVar[None] = None
    asks_the_driver: ClassVar[bool] = False
    vendor_kind: ClassVar[None] = None
    values: ClassVar[Mapping[str, attributes.Value]] = MappingProxyType({})

    def content(self) -> spec.Device:
        """Return the CDI device for the containers."""
        content = nulls.content(self.claim_uid, self.record.requests)
        edits = msgspec.structs.replace(content.edits, mounts=_mounts(self.record))
        return msgspec.structs.replace(content, edits=edits)

    def network(self, content: spec.Device) -> None:
        """Return None: there is no interface."""
        del content


ClaimDevice = PresentDevice | Nothing


def _mounts(record: records.PreparedDevice) -> tuple[spec.Mount, ...]:
    return tuple(
        spec.Mount(host_path=mount.host_path, container_path=mount.container_path, options=("ro", "bind"))
        for mount in record.mounts
    )


# By prefix: the number of interfaces of each device, by pool and name and in that order.
_NamedInterfaces = dict[str, dict[tuple[str, str], int]]


def interface_prefix(device_parameters: records.Json) -> str | None:
    """Return the interface prefix in recorded parameters, or None."""
    return parameters.from_record(device_parameters).network.interface_prefix


def number_interfaces(devices: Sequence[ClaimDevice]) -> list[ClaimDevice]:
    """Number the network interfaces of a claim's devices, if its parameters name them.

    All interfaces of a claim get different names, so they can meet in one container.

    Returns:
        The devices in the same order, with the number of the first interface in each record. Numbers follow pool and name.
    """
    first: dict[tuple[str, str], int] = {}
    for counts in _count_interfaces(devices).values():
        used = 0
        for key, count in counts.items():
            first[key] = used
            used += count
    return [
        _set_first_interface(device, first.get((device.record.pool, device.record.device), 0))
        for device in devices
    ]


def are_all_here(devices: Sequence[ClaimDevice]) -> bool:
    """Return whether `number_interfaces` repeats the numbers of the preparation; interfaces in a container cannot be counted."""
    return all(len(counts) < 2 or all(counts.values()) for counts in _count_interfaces(devices).values())


def _count_interfaces(devices: Sequence[ClaimDevice]) -> _NamedInterfaces:
    by_prefix: _NamedInterfaces = {}
    for device in sorted(devices, key=lambda device: (device.record.pool, device.record.device)):
        prefix = interface_prefix(device.record.parameters)
        if prefix is not None and device.interfaces is not None:
            # Two shares of one device are one device to the container.
            by_prefix.setdefault(prefix, {}).setdefault(
                (device.record.pool, device.record.device), device.interfaces
            )
    return by_prefix


def _set_first_interface(device: ClaimDevice, first: int) -> ClaimDevice:
    if not first:
        return device
    return replace_record(device, msgspec.structs.replace(device.record, first_interface=first))


def replace_record(device: ClaimDevice, record: records.PreparedDevice) -> ClaimDevice:
    """Return the same device with another record."""
    return msgspec.structs.replace(device, record=record)
