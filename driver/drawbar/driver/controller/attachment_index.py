"""Attachments by fabric, by node and by claim, kept current from the watch of all attachments.

A query for every device, or for every change, must not walk through all attachments of a cluster. The index is bounded
by the number of attachments; a name counts once, with any UID.
"""

import datetime
from collections import Counter
from collections.abc import Iterator

from drawbar.driver import sightings
from drawbar.driver.api import attachments
from drawbar.driver.controller import names

# A longer release shows in the pool, since the device must not be given out meanwhile.
RELEASE_SECONDS = 30.0
_AWAITING_NODE = ("awaits", "node")


class Index:
    """Attachments by their properties, with the times since when they are in a state."""

    def __init__(self) -> None:
        # By kind and value, such as `node` and its name: the attachments by their name.
        self._by: dict[tuple[str, str], dict[str, attachments.DeviceAttachment]] = {}
        self._attached: Counter[str] = Counter()
        # By name: its claim, the claim while it is attached, the begin of idleness, and the deletion.
        self._held: sightings.Sightings[str] = sightings.Sightings()
        self._since: sightings.Sightings[str] = sightings.Sightings()
        self._idle: sightings.Sightings[str] = sightings.Sightings()
        self._deleting: sightings.Sightings[str] = sightings.Sightings()

    def change(
        self,
        old: attachments.DeviceAttachment | None,
        new: attachments.DeviceAttachment | None,
        now: datetime.datetime,
    ) -> None:
        """Take in a change of one attachment."""
        if old is not None:
            self._attached[old.spec.fabric] -= old.holds(attachments.ATTACHED)
            for index_key in _list_index_keys(old):
                self._by[index_key].pop(old.metadata.name, None)
                if not self._by[index_key]:
                    del self._by[index_key]
            if new is None:
                for seen in (self._held, self._since, self._idle, self._deleting):
                    seen.forget(old.metadata.name)
        if new is not None:
            attached, spec, name = new.holds(attachments.ATTACHED), new.spec, new.metadata.name
            self._attached[spec.fabric] += attached
            for index_key in _list_index_keys(new):
                self._by.setdefault(index_key, {})[name] = new
            uid, claim = new.metadata.uid, spec.claim.uid if spec.claim is not None else ""
            holder = (uid, claim, spec.allocation_timestamp)
            self._held.see(name, holder, now)
            self._since.see(name, holder if attached else None, now)
            self._idle.see(name, (uid, spec.idle_since) if spec.idle_since is not None else None, now)
            self._deleting.see(name, uid if new.deleting else None, now)

    def find_claim_time(self, name: str) -> datetime.datetime | None:
        """Return when the attachment was first seen to be for its claim, or None if it does not exist."""
        return self._held.since(name)

    def find_attach_time(self, name: str) -> datetime.datetime | None:
        """Return when the attachment was first seen attached for its claim, or None while it is not."""
        return self._since.since(name)

    def idle_since(self, name: str) -> datetime.datetime | None:
        """Return when the attachment was first seen to be idle, or None if it is not."""
        return self._idle.since(name)

    def release_seconds(self, name: str, now: datetime.datetime) -> float | None:
        """Return the seconds since the attachment's deletion began, or None if it is not being deleted."""
        since = self._deleting.since(name)
        return (now - since).total_seconds() if since is not None else None

    def overdue(self, fabric: str, now: datetime.datetime) -> frozenset[str]:
        """Return the names of the fabric's devices whose release has taken `RELEASE_SECONDS`, for any reason."""
        return frozenset(
            device for device, seconds in self._releases(fabric, now) if seconds >= RELEASE_SECONDS
        )

    def overdue_after(self, fabric: str, now: datetime.datetime) -> float | None:
        """Return the seconds until the fabric's next release is overdue, or None if none is in progress."""
        left = (RELEASE_SECONDS - seconds for _, seconds in self._releases(fabric, now))
        return min((seconds for seconds in left if seconds > 0), default=None)

    def _releases(self, fabric: str, now: datetime.datetime) -> Iterator[tuple[str, float]]:
        for attachment in self.in_fabric(fabric):
            seconds = self.release_seconds(attachment.metadata.name, now)
            if seconds is not None:
                yield attachment.spec.device, seconds

    def in_fabric(self, fabric: str) -> Iterator[attachments.DeviceAttachment]:
        """Return all attachments of a fabric."""
        return iter(tuple(self._by.get(("fabric", fabric), {}).values()))

    def device(self, uid: str) -> names.DeviceKey | None:
        """Return the device of the attachment with that UID, or None if there is none."""
        return next(map(device_key, self._by.get(("uid", uid), {}).values()), None)

    def list_on(self, node: str) -> Iterator[attachments.DeviceAttachment]:
        """Return all attachments of a node."""
        return iter(tuple(self._by.get(("node", node), {}).values()))

    def for_claim(self, uid: str) -> Iterator[attachments.DeviceAttachment]:
        """Return all attachments for a claim."""
        return iter(tuple(self._by.get(("claim", uid), {}).values()))

    def composite(self, fabric: str, name: str) -> attachments.Composite | None:
        """Return the composite of that name if a member has an attachment, else None."""
        members = self._by.get(("composite", f"{fabric}/{name}"), {})
        return next((member.spec.composite for member in members.values()), None)

    def awaiting_nodes(self) -> Iterator[attachments.DeviceAttachment]:
        """Return all attachments whose device is attached and not yet visible to its node."""
        return iter(tuple(self._by.get(_AWAITING_NODE, {}).values()))

    def has(self, fabric: str) -> bool:
        """Return whether the fabric has any attachment."""
        return ("fabric", fabric) in self._by

    def count_attached(self, fabric: str) -> int:
        """Return the number of the fabric's attached attachments."""
        return self._attached[fabric]


def device_key(attachment: attachments.DeviceAttachment) -> names.DeviceKey:
    """Return the device of an attachment."""
    return names.DeviceKey(fabric=attachment.spec.fabric, device=attachment.spec.device)


def _list_index_keys(attachment: attachments.DeviceAttachment) -> Iterator[tuple[str, str]]:
    yield "uid", attachment.metadata.uid
    yield "fabric", attachment.spec.fabric
    yield "node", attachment.spec.node_name
    if attachment.spec.claim is not None:
        yield "claim", attachment.spec.claim.uid
    if attachment.spec.composite is not None:
        yield "composite", f"{attachment.spec.fabric}/{attachment.spec.composite.name}"
    if (
        attachment.holds(attachments.ATTACHED)
        and not attachment.holds(attachments.VISIBLE)
        and not attachment.deleting
    ):
        yield _AWAITING_NODE
