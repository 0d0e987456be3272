"""Attachments by the fabric and by the node they are on, kept current from the watch of all attachments.

What is asked for every device, or for every change, must not walk through all attachments of a cluster. Bounded by
the number of attachments; a name counts once, whatever its uid.
"""

import datetime
from collections import Counter
from collections.abc import Iterator

from drawbar.driver import sightings
from drawbar.driver.api import attachments

_ByName = dict[str, attachments.DeviceAttachment]

# A release that takes longer shows in the pool: the device is not to be given out meanwhile.
RELEASE_SECONDS = 30.0


class Index:
    """Attachments by fabric and by node."""

    def __init__(self) -> None:
        self._by_fabric: dict[str, _ByName] = {}
        self._by_node: dict[str, _ByName] = {}
        self._attached: Counter[str] = Counter()
        # By name: for whom it is, since when it is idle, and its deletion.
        self._held: sightings.Sightings[str] = sightings.Sightings()
        self._idle: sightings.Sightings[str] = sightings.Sightings()
        self._deleting: sightings.Sightings[str] = sightings.Sightings()
        self._since: sightings.Sightings[str] = sightings.Sightings()

    def change(
        self,
        old: attachments.DeviceAttachment | None,
        new: attachments.DeviceAttachment | None,
        now: datetime.datetime,
    ) -> None:
        """Takes over a change of one attachment."""
        self._see(old, new, now)
        if old is not None:
            self._attached[old.spec.fabric] -= old.holds(attachments.ATTACHED)
            _remove(self._by_fabric, old.spec.fabric, old.metadata.name)
            _remove(self._by_node, old.spec.node_name, old.metadata.name)
        if new is not None:
            self._attached[new.spec.fabric] += new.holds(attachments.ATTACHED)
            self._by_fabric.setdefault(new.spec.fabric, {})[new.metadata.name] = new
            self._by_node.setdefault(new.spec.node_name, {})[new.metadata.name] = new

    def _see(
        self,
        old: attachments.DeviceAttachment | None,
        new: attachments.DeviceAttachment | None,
        now: datetime.datetime,
    ) -> None:
        found = new or old
        if found is None:
            return
        name, uid, spec = found.metadata.name, found.metadata.uid, found.spec
        claim = spec.claim.uid if spec.claim is not None else ""
        self._held.see(name, (uid, claim, spec.allocation_timestamp) if new is not None else None, now)
        attached = new is not None and new.holds(attachments.ATTACHED)
        self._since.see(name, (uid, claim, spec.allocation_timestamp) if attached else None, now)
        idle = new is not None and spec.idle_since is not None
        self._idle.see(name, (uid, spec.idle_since) if idle else None, now)
        self._deleting.see(name, uid if new is not None and new.deleting else None, now)

    def held_since(self, name: str) -> datetime.datetime | None:
        """Return when the attachment was first seen to be for its claim; None for one that is not there."""
        return self._held.since(name)

    def attached_since(self, name: str) -> datetime.datetime | None:
        """Return when the attachment was first seen attached for its claim; None while it is not."""
        return self._since.since(name)

    def idle_since(self, name: str) -> datetime.datetime | None:
        """Return when the attachment was first seen to be idle; None for one that is not."""
        return self._idle.since(name)

    def release_seconds(self, name: str, now: datetime.datetime) -> float | None:
        """Return for how long the attachment has been deleting; None for one that is not."""
        asked = self._deleting.since(name)
        return (now - asked).total_seconds() if asked is not None else None

    def overdue(self, fabric: str, now: datetime.datetime) -> frozenset[str]:
        """Return the names of the fabric's devices whose release has taken `RELEASE_SECONDS`, whatever the reason."""
        return frozenset(
            one.spec.device
            for name, one in self._by_fabric.get(fabric, {}).items()
            if (seconds := self.release_seconds(name, now)) is not None and seconds >= RELEASE_SECONDS
        )

    def overdue_after(self, fabric: str, now: datetime.datetime) -> float | None:
        """Return the seconds until the next release of the fabric is overdue; None where none is under way."""
        left = [
            RELEASE_SECONDS - seconds
            for name in self._by_fabric.get(fabric, {})
            if (seconds := self.release_seconds(name, now)) is not None and seconds < RELEASE_SECONDS
        ]
        return min(left, default=None)

    def of(self, fabric: str) -> Iterator[attachments.DeviceAttachment]:
        """All attachments of a fabric."""
        return iter(tuple(self._by_fabric.get(fabric, {}).values()))

    def has(self, fabric: str) -> bool:
        """Whether there is any attachment of the fabric."""
        return fabric in self._by_fabric

    def attached(self, fabric: str) -> int:
        """How many attachments of the fabric are attached."""
        return self._attached[fabric]

    def on(self, node: str) -> Iterator[attachments.DeviceAttachment]:
        """All attachments of a node."""
        return iter(tuple(self._by_node.get(node, {}).values()))


def _remove(known: dict[str, _ByName], key: str, name: str) -> None:
    found = known.get(key, {})
    found.pop(name, None)
    if not found:
        known.pop(key, None)
