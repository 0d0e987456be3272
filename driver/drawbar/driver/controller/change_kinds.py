"""The kinds of change that the controller observes, with the facts for the watches of its reconcilers; pure.

The observers update the indexes, gather these facts, and pass on the change.
"""

import dataclasses

import msgspec

from drawbar.driver.api import attachments, claims, core, fabrics, maintenances, slices
from drawbar.driver.controller import hosts, names
from drawbar.driver.controller.pools import causes, fabric_state
from drawbar.fabric import contract


class FabricChange(msgspec.Struct, frozen=True, kw_only=True):
    """A Fabric of this driver.

    Attributes:
        unserved: the devices whose attachments it leaves behind.
    """

    old: fabrics.Fabric | None
    new: fabrics.Fabric | None
    unserved: tuple[names.DeviceKey, ...] = ()

    @property
    def name(self) -> str:
        """Return the Fabric's name."""
        fabric = self.new or self.old
        assert fabric is not None
        return fabric.metadata.name


class AttachmentChange(msgspec.Struct, frozen=True, kw_only=True):
    """A DeviceAttachment of this driver.

    Attributes:
        key: its device.
        release_seconds: the seconds since its release began, before this change; None without a release.
        observers: the claims with admin access to the device, as `namespace/name`.
        limits_models: whether the Fabric has rules about models.
        served: whether there is a session with the fabric's manager.
        shows_owner: whether the pool depends on the device's owner.
        has_composites: whether the Fabric has composites that may wait for the device, or had it.
        is_worn: whether the device has just been erased as often as its Fabric allows within a day.
    """

    old: attachments.DeviceAttachment | None
    new: attachments.DeviceAttachment | None
    key: names.DeviceKey
    release_seconds: float | None = None
    observers: tuple[str, ...] = ()
    limits_models: bool = False
    served: bool = True
    shows_owner: bool = False
    has_composites: bool = False
    is_worn: bool = False

    @property
    def companions(self) -> tuple[names.DeviceKey, ...]:
        """Return the other members of its composite; the claim waits for these as well."""
        attachment = self.new or self.old
        composite = attachment.spec.composite if attachment is not None else None
        members = composite.devices if composite is not None else ()
        return tuple(
            names.DeviceKey(fabric=self.key.fabric, device=device)
            for device in members
            if device != self.key.device
        )

    @property
    def begins_release(self) -> bool:
        """Return whether the change begins its deletion."""
        return self.new is not None and self.new.deleting and not (self.old and self.old.deleting)

    @property
    def fails(self) -> bool:
        """Return whether the change adds a failure that the device is to blame for."""
        return (
            self.new is not None and causes.failure(self.new) is not None and causes.failure(self.old) is None
        )

    @property
    def is_refused(self) -> bool:
        """Return whether the change adds a refusal of the device at this host by the fabric manager."""
        return causes.refusal(self.new) is not None and causes.refusal(self.old) is None

    @property
    def works(self) -> bool:
        """Return whether the device is in use on its node, without a failure that it is to blame for."""
        return (
            self.new is not None and self.new.holds(attachments.VISIBLE) and causes.failure(self.new) is None
        )

    @property
    def erases(self) -> bool:
        """Return whether the change ends a use after which wearing storage is erased."""
        return (
            self.old is not None
            and self.old.spec.erases
            and self.old.spec.identity.device_class not in attachments.UNWEARING_CLASSES
            and _is_used(self.old)
            and not _is_used(self.new)
        )

    @property
    def is_shown(self) -> bool:
        """Return whether the change shows in the device's pool."""
        was_claimed, is_claimed = (it is not None and not it.held_by_hand for it in (self.old, self.new))
        changes_owner = was_claimed != is_claimed and self.shows_owner
        return changes_owner or causes.find_attachment_causes(self.old) != causes.find_attachment_causes(
            self.new
        )


def _is_used(attachment: attachments.DeviceAttachment | None) -> bool:
    """Return whether the device may hold a user's data."""
    report = attachment.status.node if attachment is not None else None
    return report is not None and bool(report.claim_uid)


class ClaimChange(msgspec.Struct, frozen=True, kw_only=True):
    """Any claim.

    Attributes:
        devices: the claim's earlier and present fabric devices.
        moved: devices that were given out of a pool other than their enclosure's present ones.
        regrouped: devices gained or lost, of a fabric with composites.
        observes: whether the claim has admin access to a device.
    """

    old: claims.ResourceClaim | None = None
    new: claims.ResourceClaim | None
    devices: tuple[names.DeviceKey, ...] = ()
    moved: tuple[names.DeviceKey, ...] = ()
    regrouped: tuple[names.DeviceKey, ...] = ()
    observes: bool = False


class MaintenanceChange(msgspec.Struct, frozen=True, kw_only=True):
    """A Maintenance of this driver."""

    old: maintenances.Maintenance | None
    new: maintenances.Maintenance | None

    @property
    def fabrics(self) -> tuple[str, ...]:
        """Return the Fabrics whose devices or nodes begin or end maintenance."""
        if self.old is not None and self.new is not None and self.old.spec == self.new.spec:
            return ()
        return tuple(dict.fromkeys(item.spec.fabric for item in (self.old, self.new) if item is not None))


class NodeChange(msgspec.Struct, frozen=True, kw_only=True):
    """Any Node.

    Attributes:
        attached: the devices attached to it.
    """

    old: core.Node | None
    new: core.Node | None
    attached: tuple[names.DeviceKey, ...] = ()

    @property
    def is_remapped(self) -> bool:
        """Return whether the change may affect the map of hosts, or the labels."""
        return self.old is None or self.new is None or hosts.shape(self.old) != hosts.shape(self.new)

    @property
    def is_lost_or_found(self) -> bool:
        """Return whether the Node is gone, or an administrator has marked its machine as off or on again."""
        old, new = self.old, self.new
        return old is not None and (new is None or new.out_of_service != old.out_of_service)


class DaemonChange(msgspec.Struct, frozen=True, kw_only=True):
    """The change of a node daemon's pod to or from Ready, on some node."""


class SliceChange(msgspec.Struct, frozen=True, kw_only=True):
    """A ResourceSlice of this driver."""

    old: slices.ResourceSlice | None
    new: slices.ResourceSlice | None

    @property
    def fabric(self) -> str | None:
        """Return the slice's Fabric, or None for a node's own pool."""
        return fabric_state.fabric_of(self.new or self.old)

    @property
    def needs_labels(self) -> bool:
        """Return whether the change adds a pool that only some nodes of its fabric are offered."""
        if self.fabric is None or self.old is not None or self.new is None:
            return False
        pool = self.new.spec.pool.name
        return bool(names.reach_of(pool) or names.refusal_of(pool))


class DeviceChange(msgspec.Struct, frozen=True, kw_only=True):
    """A device in its fabric manager's list.

    Attributes:
        attached: whether it has a DeviceAttachment.
    """

    fabric: str
    old: contract.Device | None
    new: contract.Device | None
    attached: bool = False

    @property
    def is_regrouped(self) -> bool:
        """Return whether the device's reachable hosts may differ."""
        old, new = (each.reach_groups if each is not None else None for each in (self.old, self.new))
        return bool(old or new) and old != new

    @property
    def key(self) -> names.DeviceKey:
        """Return the device's key."""
        device = self.new or self.old
        assert device is not None
        return names.DeviceKey(fabric=self.fabric, device=names.label(device.id))

    @property
    def is_shown(self) -> bool:
        """Return whether the change shows in the device's pool; our own attach does not."""
        old, new = self.old, self.new
        if (
            old is None
            or new is None
            or dataclasses.replace(old, connection=new.connection, etag=new.etag) != new
        ):
            return True
        return (old.connection is None) != (new.connection is None) and not self.attached


class HostsChange(msgspec.Struct, frozen=True, kw_only=True):
    """The hosts of a fabric, or their ports; some of the hosts are Nodes already."""


class ConnectionChange(msgspec.Struct, frozen=True, kw_only=True):
    """The connection to a fabric manager, or its Fabric's policy.

    Attributes:
        publish_after: the seconds until the pools show it.
        devices: the devices that are attached or have a claim.
    """

    fabric: str
    publish_after: float
    devices: tuple[names.DeviceKey, ...] = ()


class TroublesChange(msgspec.Struct, frozen=True, kw_only=True):
    """The troubles of a Fabric, in the words of its status."""

    fabric: str


class OperationChange(msgspec.Struct, frozen=True, kw_only=True):
    """An operation of the fabric that began or ended, or can begin now."""

    devices: tuple[names.DeviceKey, ...]


class TermChange(msgspec.Struct, frozen=True, kw_only=True):
    """The begin of this controller's leadership.

    Attributes:
        devices: the devices that are attached or have a claim.
        maintenances: the names of all Maintenances.
        observers: the claims with admin access, as `namespace/name`.
    """

    devices: tuple[names.DeviceKey, ...] = ()
    maintenances: tuple[str, ...] = ()
    observers: tuple[str, ...] = ()


class SessionChange(msgspec.Struct, frozen=True, kw_only=True):
    """The Fabric's first session in a term of leadership."""

    fabric: str


class ReadableChange(msgspec.Struct, frozen=True, kw_only=True):
    """An object that could not be read, and now is read or gone.

    Attributes:
        fabric: its name, if it is a Fabric.
        devices: the devices that are attached or have a claim.
    """

    fabric: str | None = None
    devices: tuple[names.DeviceKey, ...] = ()


def claim_name(claim: claims.ResourceClaim) -> str:
    """Return a claim as `namespace/name`."""
    return f"{claim.metadata.namespace}/{claim.metadata.name}"
