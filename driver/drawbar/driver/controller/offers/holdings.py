"""A cluster's holdings of one fabric, as one value; pure.

A session with a fabric manager receives this value whenever it changes, and asks nobody for it. A change makes a new
value that shares all other parts with the one before.
"""

import dataclasses
import datetime
import enum
import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Self, TypeVar

import msgspec

from drawbar.driver.api import attachments, meta, slices
from drawbar.driver.catalogue import reasons
from drawbar.driver.controller.offers import group

V = TypeVar("V")


class NodeReport(enum.Enum):
    """The report of a node on an attached device."""

    SHOWS = "shows"
    LOST = "lost"
    SILENT = "silent"
    """No report: the node has not seen the device yet, has released it, or is gone."""

    @classmethod
    def from_attachment(cls, attachment: attachments.DeviceAttachment) -> "NodeReport":
        """Return the report in a DeviceAttachment's status."""
        visible = meta.find(attachment.status.conditions, attachments.VISIBLE)
        if visible is None or attachment.holds(attachments.RELEASED):
            return cls.SILENT
        if visible.is_true:
            return cls.SHOWS
        return cls.LOST if visible.reason == reasons.DEVICE_LOST else cls.SILENT


class Holding(msgspec.Struct, frozen=True, kw_only=True):
    """A part with a DeviceAttachment.

    Attributes:
        name: the part's device name.
        uid: the attachment's UID.
        node: the node that it is attached to.
        device_id: the device, or the memory chunk, in its status; empty before it is recorded.
        share: the capacity of a memory chunk; None for any other part.
        report: its node's report.
    """

    name: str
    uid: str
    model: str = ""
    host_id: str
    node: str = ""
    device_id: str = ""
    share: attachments.Share | None = None
    report: NodeReport = NodeReport.SILENT

    @classmethod
    def from_attachment(cls, attachment: attachments.DeviceAttachment) -> Self:
        """Return the holding of a DeviceAttachment."""
        spec, recorded = attachment.spec, attachment.status.device
        return cls(
            name=spec.device,
            uid=attachment.metadata.uid,
            model=spec.model,
            host_id=spec.host_id,
            node=spec.node_name,
            device_id=recorded.id if recorded is not None else "",
            share=spec.share,
            report=NodeReport.from_attachment(attachment),
        )


@dataclass(frozen=True, kw_only=True)
class Holdings:
    """A cluster's holdings of one fabric.

    Attributes:
        parts: the parts with DeviceAttachments, by device name.
        gone_at: by the name of a missing node, the time when it counts as gone.
        claimed: the names of offers with a claim.
        published: by the name of a ResourceSlice, the names of its devices, with members in place of composites.
    """

    parts: Mapping[str, Holding] = field(default_factory=dict)
    gone_at: Mapping[str, datetime.datetime] = field(default_factory=dict)
    claimed: frozenset[str] = frozenset()
    published: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @classmethod
    def from_parts(cls, parts: Iterable[Holding], *, claimed: Iterable[str] = ()) -> Self:
        """Return the holdings with these parts."""
        return cls(parts={part.name: part for part in parts}, claimed=frozenset(claimed))

    @functools.cached_property
    def chunks(self) -> Mapping[str, Holding]:
        """Return the memory chunks among the parts."""
        return {name: part for name, part in self.parts.items() if part.share is not None}

    @functools.cached_property
    def chunks_by_uid(self) -> Mapping[str, Holding]:
        """Return the memory chunks by the UID of their DeviceAttachment."""
        return {part.uid: part for part in self.chunks.values()}

    @functools.cached_property
    def by_uid(self) -> Mapping[str, Holding]:
        """Return the parts by the UID of their DeviceAttachment."""
        return {part.uid: part for part in self.parts.values()}

    def reports(self, now: datetime.datetime) -> dict[str, NodeReport]:
        """Return, by device name, the reports of the nodes; a node that is gone reports nothing."""
        gone = {node for node, moment in self.gone_at.items() if moment <= now}
        return {
            name: NodeReport.SILENT if part.node in gone else part.report for name, part in self.parts.items()
        }

    def list_published(self) -> frozenset[str]:
        """Return the names of all published devices."""
        return frozenset().union(*self.published.values())

    def add_part(self, part: Holding, gone_at: datetime.datetime | None = None) -> Self:
        """Return the holdings with that part under its name, and with its node's absence; None for a present node."""
        before, held = self.parts.get(part.name), self
        if before is not None and before.node != part.node:
            held = self.remove_part(part.name)
        if before != part:
            held = dataclasses.replace(held, parts=_replace_value(held.parts, part.name, part))
        return held.replace_absence(part.node, gone_at)

    def remove_part(self, name: str) -> Self:
        """Return the holdings without that part, and without the absences of nodes that have no part left."""
        if name not in self.parts:
            return self
        parts = _replace_value(self.parts, name, None)
        nodes = {part.node for part in parts.values()} if self.gone_at else set()
        gone_at = {node: moment for node, moment in self.gone_at.items() if node in nodes}
        return dataclasses.replace(self, parts=parts, gone_at=gone_at)

    def replace_absence(self, node: str, gone_at: datetime.datetime | None) -> Self:
        """Return the holdings with the absence of a node; None for a present node."""
        if self.gone_at.get(node) == gone_at:
            return self
        return dataclasses.replace(self, gone_at=_replace_value(self.gone_at, node, gone_at))

    def replace_slice(self, name: str, published: slices.ResourceSlice | None) -> Self:
        """Return the holdings with that ResourceSlice; None for a deleted one."""
        names = names_in(published) if published is not None else None
        if self.published.get(name) == names:
            return self
        return dataclasses.replace(self, published=_replace_value(self.published, name, names))


def names_in(published: slices.ResourceSlice) -> frozenset[str]:
    """Return the names of the devices in a ResourceSlice, with members in place of composites."""
    members = group.find_published_members((published,))
    return frozenset(
        name for device in published.spec.devices for name in members.get(device.name, (device.name,))
    )


def _replace_value(values: Mapping[str, V], name: str, value: V | None) -> Mapping[str, V]:
    kept = dict(values)
    if value is None:
        kept.pop(name, None)
    else:
        kept[name] = value
    return kept
