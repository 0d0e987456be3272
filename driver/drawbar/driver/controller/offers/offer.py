"""The controller's subject: an offer, and the parts that realise it on one host; pure.

A ResourceSlice lists an offer, and a claim is given it. One or more parts realise it. The name of a part is its lock: a
part has at most one DeviceAttachment. The state machine attaches, reports and releases parts of every kind of offer.
"""

import functools
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Self

import msgspec

from drawbar.driver.api import attachments, fabrics, maintenances
from drawbar.driver.controller import names
from drawbar.fabric import contract


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A device, or a memory chunk that is carved from one.

    Attributes:
        key: its name.
        source: the device's name; for a chunk, the name of the device that it is carved from.
        source_id: the fabric manager's id of the source.
        share: the capacity of a chunk, which is made for one claim and deleted after it; None for a device.
    """

    key: names.DeviceKey
    source: str
    source_id: str
    share: attachments.Share | None = None

    @classmethod
    def from_attachment(cls, attachment: attachments.DeviceAttachment) -> Self:
        """Return the part of a DeviceAttachment."""
        spec = attachment.spec
        return cls.from_share(
            names.DeviceKey(fabric=spec.fabric, device=spec.device), spec.share, source_id=spec.device_id
        )

    @classmethod
    def from_share(
        cls, key: names.DeviceKey, share: attachments.Share | None, *, source_id: str = ""
    ) -> Self:
        """Return the part of that name; without a share it is the device `source_id` itself."""
        if share is None:
            return cls(key=key, source=key.device, source_id=source_id)
        return cls(key=key, source=share.device, source_id=share.device_id, share=share)

    @property
    def is_carved(self) -> bool:
        """Return whether the part is a memory chunk."""
        return self.share is not None


class Realisation(msgspec.Struct, frozen=True, kw_only=True):
    """An offer and its parts.

    Attributes:
        offer: its name in the allocations of claims.
        parts: at least one, in order.
    """

    offer: names.DeviceKey
    parts: tuple[names.DeviceKey, ...]

    @property
    def composite(self) -> attachments.Composite | None:
        """Return the offer in the form of DeviceAttachments, or None if it has only itself as a part."""
        if self.parts == (self.offer,):
            return None
        return attachments.Composite(
            name=self.offer.device, devices=tuple(part.device for part in self.parts)
        )

    @classmethod
    def from_composite(cls, part: names.DeviceKey, composite: attachments.Composite | None) -> Self:
        """Return the realisation with that part; without a composite, the part is the offer."""
        if composite is None:
            return cls(offer=part, parts=(part,))
        return cls(
            offer=names.DeviceKey(fabric=part.fabric, device=composite.name),
            parts=tuple(names.DeviceKey(fabric=part.fabric, device=device) for device in composite.devices),
        )


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of a ResourceSlice for claims.

    Attributes:
        name: the device name in the slice.
        device: the device with the properties for selectors.
        parts: the names of the devices that realise it, in order.
        made_bytes: the bytes in chunks of this cluster, if each claim takes a memory chunk of the offer; None if a
            claim gets it as a whole.
    """

    name: str
    device: contract.Device
    parts: tuple[str, ...]
    made_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class Stock:
    """The input of a fabric's offers.

    Attributes:
        spec: the Fabric's spec; None for a Fabric in deletion.
        devices: the fabric's listed devices.
        held: by the name of a composite with DeviceAttachments, the names of its parts.
        in_use: the names of devices with a claim, or attached for one.
        published: by the name of a published composite, the names of its parts.
        missing: the names of unlisted devices that keep their earlier state.
        chooses: whether the fabric chooses the device itself.
        maintenance: the devices in maintenance.
        kept_whole: the names of devices that are published as a whole and attached.
        made: by the id of a pool of memory, the bytes in chunks of this cluster.
    """

    spec: fabrics.FabricSpec | None
    devices: tuple[contract.Device, ...]
    held: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    in_use: Collection[str] = frozenset()
    published: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    missing: Collection[str] = frozenset()
    chooses: bool = False
    maintenance: maintenances.Scope = field(default_factory=maintenances.Scope)
    kept_whole: Collection[str] = frozenset()
    made: Mapping[str, int] = field(default_factory=dict)

    @functools.cached_property
    def by_name(self) -> Mapping[str, contract.Device]:
        """Return the devices by their names."""
        return {names.label(device.id): device for device in self.devices}


class Arrangement(msgspec.Struct, frozen=True, kw_only=True):
    """The offers of a fabric.

    Attributes:
        offers: the offers by name.
        members: by the name of each present or held offer of several parts, the names of these; if none of its parts is
            listed, the offer is only here.
        unlisted: the same for offers that stay published, since a part is not listed and not lost yet.
        withheld: devices that are not offered separately.
        problems: a sentence for each impossible offer, and for devices that are left over.
    """

    offers: Mapping[str, Offer] = msgspec.field(default_factory=dict)
    members: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    unlisted: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    withheld: frozenset[str] = frozenset()
    problems: tuple[str, ...] = ()

    def composite_of(self, device: str) -> attachments.Composite | None:
        """Return the offer of several parts that includes a device, or None."""
        return next(
            (
                attachments.Composite(name=name, devices=members)
                for name, members in self.members.items()
                if device in members
            ),
            None,
        )

    def merge_arrangement(self, more: Self) -> Self:
        """Return both arrangements as one; this one wins for common names."""
        return type(self)(
            offers={**more.offers, **self.offers},
            members={**more.members, **self.members},
            unlisted={**more.unlisted, **self.unlisted},
            withheld=self.withheld | more.withheld,
            problems=(*self.problems, *more.problems),
        )
