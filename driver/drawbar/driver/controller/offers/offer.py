"""The controller's subject: an offer, and the parts that realise it on one host; pure.

A ResourceSlice lists an offer, and a claim is given it. One or more parts realise it. The name of a part is its lock: a part has
at most one DeviceAttachment. The state machine attaches, reports and releases parts, whatever the kind of the offer.
"""

import functools
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Self

from drawbar.driver.api import attachments, fabrics, maintenances
from drawbar.driver.controller import names
from drawbar.fabric import contract


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A device, or a memory chunk that is carved from one.

    Attributes:
        key: its name.
        source: the device's name; of a chunk, the name of the device that it is carved from.
        source_id: the fabric manager's id of the source.
        share: of a chunk, the capacity that it is carved for; such a part is made for one claim, and deleted after it.
    """

    key: names.DeviceKey
    source: str
    source_id: str
    share: attachments.Share | None = None

    @classmethod
    def from_attachment(cls, attachment: attachments.DeviceAttachment) -> Self:
        """Return the part that a DeviceAttachment holds."""
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
        """Whether the part is a memory chunk."""
        return self.share is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Realisation:
    """An offer and its parts.

    Attributes:
        offer: by the name that the allocations of claims have.
        parts: at least one, in order.
    """

    offer: names.DeviceKey
    parts: tuple[names.DeviceKey, ...]

    @property
    def composite(self) -> attachments.Composite | None:
        """The offer as DeviceAttachments name it, where it has several parts."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What a ResourceSlice lists and a claim is given.

    Attributes:
        name: the device name in the slice.
        device: what claims can select it by.
        parts: the names of the devices that realise it, in order.
        made_bytes: of an offer of which each claim takes a memory chunk, the memory in chunks of this cluster; None for one that
            a claim gets as a whole.
    """

    name: str
    device: contract.Device
    parts: tuple[str, ...]
    made_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class Stock:
    """Everything that the offers of a fabric are made from.

    Attributes:
        spec: of the Fabric; None of one that goes.
        devices: as the fabric lists them.
        held: by the name of an offer of several parts that has DeviceAttachments, the names of its parts.
        given: names of the devices that claims were given, or that are attached for one.
        published: by the name of an offer of several parts, as it is published, the names of its parts.
        missing: names of the devices that count as they were although they are not listed.
        chooses: the fabric chooses the device itself.
        maintenance: the devices in maintenance.
        kept_whole: names of devices that are published as a whole and attached.
        made: by the id of a device that claims are given memory chunks of, the memory in chunks of this cluster.
    """

    spec: fabrics.FabricSpec | None
    devices: tuple[contract.Device, ...]
    held: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    given: Collection[str] = frozenset()
    published: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    missing: Collection[str] = frozenset()
    chooses: bool = False
    maintenance: maintenances.Scope = field(default_factory=maintenances.Scope)
    kept_whole: Collection[str] = frozenset()
    made: Mapping[str, int] = field(default_factory=dict)

    @functools.cached_property
    def by_name(self) -> Mapping[str, contract.Device]:
        """The devices by their names."""
        return {names.label(device.id): device for device in self.devices}


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrangement:
    """The offers of a fabric.

    Attributes:
        offers: by name.
        members: by the name of each offer of several parts that is there or held, their names; an offer none of whose parts is
            listed is only here.
        unlisted: the same of those that stay as they are published, since a part is not listed and not lost yet.
        withheld: devices that are not offered by themselves.
        problems: why offers are not made, and which devices are left over, one sentence each.
    """

    offers: Mapping[str, Offer] = field(default_factory=dict)
    members: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unlisted: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    withheld: frozenset[str] = frozenset()
    problems: tuple[str, ...] = ()

    def composite_of(self, device: str) -> attachments.Composite | None:
        """Return the offer of several parts that a device is one of; None for any other device."""
        return next(
            (
                attachments.Composite(name=name, devices=members)
                for name, members in self.members.items()
                if device in members
            ),
            None,
        )

    def with_more(self, more: Self) -> Self:
        """Return both arrangements as one; what is in both is taken from this one."""
        return type(self)(
            offers={**more.offers, **self.offers},
            members={**more.members, **self.members},
            unlisted={**more.unlisted, **self.unlisted},
            withheld=self.withheld | more.withheld,
            problems=(*self.problems, *more.problems),
        )
