"""The devices of a claim on this node, and what its containers get of each."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

import msgspec

from drawbar.cdi import files, spec
from drawbar.driver.api import parameters
from drawbar.driver.catalogue import reasons
from drawbar.driver.node import classes, edits, errors
from drawbar.driver.node.classes import driverfiles
from drawbar.driver.node.inventory import attributes, model
from drawbar.driver.node.inventory import files as inventory_files
from drawbar.driver.node.local import nulls, pool
from drawbar.driver.node.preparation import records


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A device that the scheduler gave to a claim.

    Attributes:
        requests: of the claim; a request with alternatives counts under its own name, which the kubelet knows.
        share_id: which share, where several claims may use the device.
        admin: admin access, which holds nothing.
        said: the parameters that hold for it.
        first_interface: see `records.PreparedDevice`.
        composite: see `records.PreparedDevice`.
        allocation_timestamp: of the claim; None if its allocation was not read.
    """

    pool: str
    device: str
    requests: tuple[str, ...]
    share_id: str | None = None
    admin: bool = False
    said: records.Json = field(default_factory=dict)
    first_interface: int = 0
    composite: str = ""
    allocation_timestamp: str | None = None

    @property
    def is_shared(self) -> bool:
        """Whether other claims may use the same device; a share that is a device of its own has its claim alone."""
        return self.share_id is not None and not self.composite

    @property
    def name(self) -> str:
        """The device with its pool, for people."""
        return f"device {self.pool}/{self.device}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A device that is here.

    Attributes:
        record: what is recorded of it.
        card: as the kernel shows it.
        device_class: one of `drawbar.fabric.classes.DeviceClass`.
        claim_uid: of the claim that it is for.
        host: whose device it is.
        origin: attributes that tell where a fabric has it, and those of the fabric's adapter.
        occupied: of a device that lives in the node, which of its interfaces the host uses; see `pool.Interfaces`.
        companions: the other members of its composite, those that this node shows.
    """

    record: records.PreparedDevice
    card: model.Card
    device_class: str
    claim_uid: str
    host: classes.Host
    origin: Mapping[str, attributes.Value] = field(default_factory=dict)
    occupied: pool.Interfaces | None = None
    companions: tuple[model.Card, ...] = ()

    @property
    def values(self) -> dict[str, attributes.Value]:
        """The attributes by name."""
        return attributes.from_card(self.card) | {
            name: value for name, value in self.origin.items() if attributes.fits(value)
        }

    @property
    def asks_the_driver(self) -> bool:
        """Whether `content` asks the kernel what may take as long as the device's driver does."""
        operations = classes.by_name(self.device_class)
        return self.occupied is not None or operations.asks_the_driver or driverfiles.is_slow(self.card)

    @property
    def container_view(self) -> model.Card:
        """Return the card, including its virtual functions only if the DeviceClass passes them to the claim."""
        return self.card if self._said.virtual_functions.given else self.card.bare

    @property
    def _said(self) -> parameters.DeviceParameters:
        return (
            parameters.from_record(self.record.parameters) if self.record.parameters else parameters.NOTHING
        )

    @property
    def interfaces(self) -> int | None:
        """The number of network interfaces that a container gets; None for a class without any."""
        names = classes.by_name(self.device_class).interfaces(self.container_view)
        return None if names is None else len(names)

    @property
    def vendor_kind(self) -> str | None:
        """The kind of the vendor's CDI files that must have it, where its class wants that."""
        return self._said.vendor_kind

    def vendor_id(self, directories: Sequence[Path]) -> str | None:
        """Return the device's ID in its vendor's CDI files, or None without a `vendor_kind`. Call it in a thread.

        Args:
            directories: of CDI files, from the lowest priority to the highest.

        Raises:
            errors.DeviceLate: no file has it.
        """
        kind = self.vendor_kind
        if kind is None:
            return None
        operations = classes.by_name(self.device_class)
        nodes = operations.edits(self.container_view, self.host).device_nodes
        names = operations.names(self.card, self.host)
        # Files that all devices of a driver share are left to the runtime to look up.
        own = frozenset(node.path for node in nodes if node.major is not None)
        common = frozenset(node.path for node in nodes) - own
        vendor_id = files.find(directories, kind, names=names, own=own, common=common)
        if vendor_id is None:
            looked = ", ".join(map(str, directories))
            raise errors.DeviceLate(
                f"device {self.record.pool}/{self.record.device} ({', '.join(sorted(names))}) is in no CDI file of kind {kind} "
                f"in {looked}; see that the vendor's service that writes them runs on this node",
                reason=reasons.VENDOR_FILE_MISSING,
            )
        return vendor_id

    def content(self) -> spec.Device:
        """Return what a container gets. Call it in a thread if it `asks_the_driver`.

        Raises:
            errors.DeviceLate: the device went since the kernel last told of it.
            errors.PrepareError: the host uses an interface of it.
        """
        # A plain call: this is on the way of every Prepare.
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
        self._refuse_occupied()
        return edits.device(
            name=self.record.device,
            serial=self.record.serial,
            device_class=self.device_class,
            card=self.container_view,
            claim_uid=self.claim_uid,
            host=self.host,
            said=self._said,
            first_interface=self.record.first_interface,
            mounts=_mounts(self.record),
            companions=self.companions,
        )

    def _refuse_occupied(self) -> None:
        names = classes.by_name(self.device_class).interfaces(self.container_view)
        if self.occupied is None or not names:
            return
        uses = self.occupied(names)
        said = "whether the host uses its network interfaces is unknown" if uses is None else ""
        for name, use in sorted((uses or {}).items()):
            said = said or f"network interface {name} {use}"
        if said:
            raise errors.PrepareError(
                f"device {self.record.pool}/{self.record.device} is in use by this node: {said}; take that away, or delete the pod",
                reason=reasons.HOST_USES_DEVICE,
            )

    def network(self, content: spec.Device) -> records.Network | None:
        """Return the first interface that the container runtime moves, or None."""
        if not content.edits.net_devices or self.record.admin:
            return None
        first = content.edits.net_devices[0]
        address = inventory_files.text(f"{self.host.sysfs}/class/net/{first.host_name}/address")
        return records.Network(interface_name=first.name, hardware_address=address or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Nothing:
    """The nothing that a request without a device is given: always here, and without hardware.

    Attributes:
        record: what is recorded of it.
        claim_uid: of the claim that it is for.
    """

    record: records.PreparedDevice
    claim_uid: str
    interfaces: ClassVar[None] = None
    asks_the_driver: ClassVar[bool] = False
    vendor_kind: ClassVar[None] = None
    values: ClassVar[Mapping[str, attributes.Value]] = MappingProxyType({})

    def vendor_id(self, directories: Sequence[Path]) -> None:
        """Return None: there is no vendor."""
        del directories

    def content(self) -> spec.Device:
        """Return what a container gets."""
        content = nulls.content(self.claim_uid, self.record.requests)
        edits = msgspec.structs.replace(content.edits, mounts=_mounts(self.record))
        return msgspec.structs.replace(content, edits=edits)

    def network(self, content: spec.Device) -> None:
        """Return None: there is no interface."""
        del content


Given = Found | Nothing


def _mounts(record: records.PreparedDevice) -> tuple[spec.Mount, ...]:
    return tuple(
        spec.Mount(host_path=mount.host_path, container_path=mount.container_path, options=("ro", "bind"))
        for mount in record.mounts
    )


# By prefix the interfaces of each device, as pool and name, in order of these.
_NamedInterfaces = dict[str, dict[tuple[str, str], int]]


def interface_prefix(said: records.Json) -> str | None:
    """Return the prefix of the interfaces by recorded parameters, or None."""
    return parameters.from_record(said).network.interface_prefix


def numbered(given: Sequence[Given]) -> list[Given]:
    """Number the network interfaces of a claim's devices, where its parameters name them.

    No two interfaces of one claim get the same name, in whichever container they meet.

    Returns:
        the same with the number of the first interface in each record, in order of pool and device.
    """
    first: dict[tuple[str, str], int] = {}
    for counts in _named(given).values():
        used = 0
        for key, count in counts.items():
            first[key] = used
            used += count
    return [_with(device, first.get((device.record.pool, device.record.device), 0)) for device in given]


def are_all_here(given: Sequence[Given]) -> bool:
    """Return whether `numbered` gives the numbers of their preparation: a container takes its interfaces with it."""
    return all(len(counts) < 2 or all(counts.values()) for counts in _named(given).values())


def _named(given: Sequence[Given]) -> _NamedInterfaces:
    by_prefix: _NamedInterfaces = {}
    for device in sorted(given, key=lambda device: (device.record.pool, device.record.device)):
        said = interface_prefix(device.record.parameters)
        if said is not None and device.interfaces is not None:
            # Two shares of one device are one device to the container.
            by_prefix.setdefault(said, {}).setdefault(
                (device.record.pool, device.record.device), device.interfaces
            )
    return by_prefix


def _with(device: Given, first: int) -> Given:
    if not first:
        return device
    return with_record(device, msgspec.structs.replace(device.record, first_interface=first))


def with_record(device: Given, record: records.PreparedDevice) -> Given:
    """Return the same device with another record."""
    return dataclasses.replace(device, record=record)
