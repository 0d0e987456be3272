"""The controller's subject: an offer, and the parts that realise it on one host; pure.

A ResourceSlice lists an offer, and a claim is given it. One or more parts realise it. The name of a part is its lock: a part has
at most one DeviceAttachment. The state machine attaches, reports and releases parts, whatever the kind of the offer.
"""

from dataclasses import dataclass
from typing import Self

from drawbar.driver.api import attachments
from drawbar.driver.controller import names


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
