"""Which reconcilers a change wakes: one table, each row of which is pure.

A row names a kind of change, when it matters, and what it wakes. Whoever observes a change first updates the indexes, then
gathers what the rows need, and adds what `route` returns to the queues.
"""

import enum
from collections.abc import Iterator
from dataclasses import dataclass, replace

from drawbar.driver import routes
from drawbar.driver.api import attachments, claims, core, fabrics, maintenances, slices
from drawbar.driver.controller import attachment_index, hosts, names
from drawbar.driver.controller.pools import causes, desired
from drawbar.fabric import contract

# Changes that come together become one write.
GATHER_SECONDS = 0.05
# The number of attached devices in a Fabric's status is no news.
COUNTS_SECONDS = 2.0


class Job(enum.StrEnum):
    """What is reconciled by the reconciler of fabrics.

    Labels are for all nodes, admin access for one claim (`namespace/name`), maintenance for one Maintenance, the others for
    one Fabric.
    """

    PUBLISH = "publish"
    STATUS = "status"
    LABELS = "labels"
    FINALIZER = "finalizer"
    ADMIN = "admin-access"
    MAINTENANCE = "maintenance"


class Allocation(enum.Enum):
    """The parts of the controller that allocate; each looks at all its claims again."""

    CLASSIC = enum.auto()
    IMMEDIATE = enum.auto()


@dataclass(frozen=True, slots=True)
class WakeJob:
    """Have the reconciler of fabrics do a job, after some seconds."""

    job: Job
    name: str = ""
    after: float = 0.0


Wake = names.DeviceKey | WakeJob | Allocation
"""A device to reconcile, a job, or an allocator that is to look again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricChange:
    """A Fabric of this driver."""

    old: fabrics.Fabric | None
    new: fabrics.Fabric | None

    @property
    def name(self) -> str:
        """Its name."""
        fabric = self.new or self.old
        assert fabric is not None
        return fabric.metadata.name


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachmentChange:
    """A DeviceAttachment of this driver.

    Attributes:
        key: its device.
        release_seconds: for how long its release had taken before this change; None where there was none.
        observers: the claims with admin access to the device, as `namespace/name`.
        limits_models: the Fabric has rules about models.
        served: there is a session with the fabric's manager.
        shows_owner: the pool shows whose the device is.
        has_composites: the Fabric has composites, of which one may be waiting for the device, or had this one.
        is_worn: the device has just been erased as often as its Fabric allows within a day.
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
        """The other members of its composite, for which the claim waits as well."""
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
        """Whether its deletion is new."""
        return self.new is not None and self.new.deleting and not (self.old and self.old.deleting)

    @property
    def fails(self) -> bool:
        """Whether a failure that the device is to blame for is new."""
        return (
            self.new is not None and causes.failure(self.new) is not None and causes.failure(self.old) is None
        )

    @property
    def is_refused(self) -> bool:
        """Whether it is new that the fabric manager refuses the device at this host."""
        return causes.refusal(self.new) is not None and causes.refusal(self.old) is None

    @property
    def works(self) -> bool:
        """Whether the device is in use on its node, and nothing that it is to blame for is wrong."""
        return (
            self.new is not None and self.new.holds(attachments.VISIBLE) and causes.failure(self.new) is None
        )

    @property
    def erases(self) -> bool:
        """Whether it ends a use of the device whose data are erased from something that wears."""
        return (
            self.old is not None
            and self.old.spec.erases
            and self.old.spec.identity.device_class not in attachments.UNWEARING_CLASSES
            and _is_used(self.old)
            and not _is_used(self.new)
        )

    @property
    def is_shown(self) -> bool:
        """Whether the device's pool shows the change."""
        was_claimed, is_claimed = (it is not None and not it.held_by_hand for it in (self.old, self.new))
        changes_owner = was_claimed != is_claimed and self.shows_owner
        return changes_owner or causes.of_attachment(self.old) != causes.of_attachment(self.new)


def _is_used(attachment: attachments.DeviceAttachment | None) -> bool:
    """Return whether the device may have data of a user."""
    report = attachment.status.node if attachment is not None else None
    return report is not None and bool(report.claim_uid)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimChange:
    """Any claim.

    Attributes:
        devices: the fabric devices that it was given before or is given now.
        moved: those given out of a pool that their enclosure does not have.
        regrouped: those that it has now, or no longer, of a fabric with composites.
        observes: it has admin access to a device.
    """

    new: claims.ResourceClaim | None
    devices: tuple[names.DeviceKey, ...] = ()
    moved: tuple[names.DeviceKey, ...] = ()
    regrouped: tuple[names.DeviceKey, ...] = ()
    observes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceChange:
    """A Maintenance of this driver."""

    old: maintenances.Maintenance | None
    new: maintenances.Maintenance | None

    @property
    def fabrics(self) -> tuple[str, ...]:
        """The Fabrics whose devices or nodes begin or end to be in maintenance."""
        if self.old is not None and self.new is not None and self.old.spec == self.new.spec:
            return ()
        return tuple(dict.fromkeys(item.spec.fabric for item in (self.old, self.new) if item is not None))


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeChange:
    """Any Node.

    Attributes:
        attached: the devices that are attached to it.
    """

    old: core.Node | None
    new: core.Node | None
    attached: tuple[names.DeviceKey, ...] = ()

    @property
    def is_mapped_anew(self) -> bool:
        """Whether the map of hosts, or the labels, may depend on the change."""
        return self.old is None or self.new is None or hosts.shape(self.old) != hosts.shape(self.new)

    @property
    def is_lost_or_found(self) -> bool:
        """Whether the Node is gone, or an administrator has marked its machine as off, or is on again."""
        old, new = self.old, self.new
        return old is not None and (new is None or new.out_of_service != old.out_of_service)


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonChange:
    """A pod of a node daemon that is Ready, or no longer, on some node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceChange:
    """A ResourceSlice of this driver."""

    old: slices.ResourceSlice | None
    new: slices.ResourceSlice | None

    @property
    def fabric(self) -> str | None:
        """The Fabric that it is of; None for one of a node's own pools."""
        return desired.fabric_of(self.new or self.old)

    @property
    def needs_labels(self) -> bool:
        """Whether a pool comes that not all nodes of its fabric are offered."""
        if self.fabric is None or self.old is not None or self.new is None:
            return False
        pool = self.new.spec.pool.name
        return bool(names.reach_of(pool) or names.refusal_of(pool))


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceChange:
    """A device as its fabric manager lists it.

    Attributes:
        attached: it has a DeviceAttachment.
    """

    fabric: str
    old: contract.Device | None
    new: contract.Device | None
    attached: bool = False

    @property
    def is_regrouped(self) -> bool:
        """Whether other hosts may reach it than before."""
        old, new = (each.reach_groups if each is not None else None for each in (self.old, self.new))
        return bool(old or new) and old != new

    @property
    def key(self) -> names.DeviceKey:
        """The device."""
        device = self.new or self.old
        assert device is not None
        return names.DeviceKey(fabric=self.fabric, device=names.label(device.id))

    @property
    def is_shown(self) -> bool:
        """Whether the device's pool shows the change: an attach of ours changes nothing of it."""
        old, new = self.old, self.new
        if old is None or new is None or replace(old, connection=new.connection, etag=new.etag) != new:
            return True
        return (old.connection is None) != (new.connection is None) and not self.attached


@dataclass(frozen=True, slots=True, kw_only=True)
class HostsChange:
    """The hosts of a fabric, or their ports, while some of them are Nodes already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionChange:
    """A fabric manager is reached, or no longer, or its Fabric's policy is another one.

    Attributes:
        publish_after: the seconds until the pools show it.
        devices: that are attached or were given to a claim.
    """

    fabric: str
    publish_after: float
    devices: tuple[names.DeviceKey, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TroublesChange:
    """What is wrong with a Fabric, in the words of its status."""

    fabric: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationChange:
    """An operation of the fabric began or ended, or has a place now; or a classic claim of these devices is gone."""

    devices: tuple[names.DeviceKey, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDone:
    """The reconciler of fabrics has done a job."""

    job: Job


Change = (
    FabricChange
    | AttachmentChange
    | ClaimChange
    | MaintenanceChange
    | NodeChange
    | DaemonChange
    | SliceChange
    | DeviceChange
    | HostsChange
    | ConnectionChange
    | TroublesChange
    | OperationChange
    | JobDone
)
"""Whatever has a row in the table."""

TABLE = (
    routes.row(
        "fabric",
        FabricChange,
        lambda c: c.old is None or c.new is None or _asked(c.old) != _asked(c.new),
        lambda c: begin(c.name),
    ),
    routes.row(
        "fabric loses its finalizer, or gets another",
        FabricChange,
        lambda c: _metadata(c.old) != _metadata(c.new),
        lambda c: [WakeJob(Job.FINALIZER, c.name, GATHER_SECONDS)],
    ),
    routes.row(
        "fabric's status written, by whomever",
        FabricChange,
        lambda c: c.old is not None and c.new is not None and c.old.status != c.new.status,
        lambda c: [WakeJob(Job.STATUS, c.name, COUNTS_SECONDS)],
    ),
    routes.row("attachment: device", AttachmentChange, routes.always, lambda c: [c.key]),
    routes.row(
        "attachment: members of its composite", AttachmentChange, routes.always, lambda c: c.companions
    ),
    routes.row("attachment: classic", AttachmentChange, routes.always, lambda _: [Allocation.CLASSIC]),
    routes.row(
        "attachment: observers",
        AttachmentChange,
        routes.always,
        lambda c: [WakeJob(Job.ADMIN, name) for name in c.observers],
    ),
    routes.row(
        "attachment: counts",
        AttachmentChange,
        routes.always,
        lambda c: [WakeJob(Job.STATUS, c.key.fabric, COUNTS_SECONDS)],
    ),
    routes.row(
        "attachment gone: finalizer of its fabric",
        AttachmentChange,
        lambda c: c.new is None,
        lambda c: [WakeJob(Job.FINALIZER, c.key.fabric, GATHER_SECONDS)],
    ),
    routes.row(
        "attachment comes or goes where models are limited",
        AttachmentChange,
        lambda c: (c.old is None or c.new is None) and c.limits_models,
        lambda _: [WakeJob(Job.LABELS)],
    ),
    routes.row(
        "attachment goes where a composite may be waiting for its device",
        AttachmentChange,
        lambda c: c.new is None and c.has_composites,
        lambda c: [WakeJob(Job.PUBLISH, c.key.fabric, GATHER_SECONDS)],
    ),
    routes.row(
        "release begins",
        AttachmentChange,
        lambda c: c.begins_release,
        lambda c: [WakeJob(Job.PUBLISH, c.key.fabric, attachment_index.RELEASE_SECONDS)],
    ),
    routes.row(
        "release ends that was overdue",
        AttachmentChange,
        lambda c: c.new is None and (c.release_seconds or 0.0) >= attachment_index.RELEASE_SECONDS,
        lambda c: [WakeJob(Job.PUBLISH, c.key.fabric, GATHER_SECONDS)],
    ),
    routes.row(
        "device is erased as often as a day allows",
        AttachmentChange,
        lambda c: c.is_worn,
        lambda c: [WakeJob(Job.PUBLISH, c.key.fabric, GATHER_SECONDS)],
    ),
    routes.row(
        "attach fails",
        AttachmentChange,
        lambda c: c.served and c.fails,
        lambda c: [
            WakeJob(Job.LABELS, after=GATHER_SECONDS),
            WakeJob(Job.STATUS, c.key.fabric, GATHER_SECONDS),
        ],
    ),
    routes.row(
        "pair is refused",
        AttachmentChange,
        lambda c: c.served and c.is_refused,
        lambda c: [
            WakeJob(Job.LABELS, after=GATHER_SECONDS),
            WakeJob(Job.STATUS, c.key.fabric, GATHER_SECONDS),
            WakeJob(Job.PUBLISH, c.key.fabric, GATHER_SECONDS),
        ],
    ),
    routes.row(
        "attachment of a refused pair goes, or works at last",
        AttachmentChange,
        lambda c: c.served and causes.refusal(c.old) is not None and causes.refusal(c.new) is None,
        lambda c: [
            WakeJob(Job.LABELS, after=GATHER_SECONDS),
            WakeJob(Job.PUBLISH, c.key.fabric, GATHER_SECONDS),
        ],
    ),
    routes.row(
        "attachment shows in the pool",
        AttachmentChange,
        lambda c: c.is_shown,
        lambda c: [WakeJob(Job.PUBLISH, c.key.fabric, GATHER_SECONDS)],
    ),
    routes.row("claim: devices", ClaimChange, routes.always, lambda c: c.devices),
    routes.row(
        "claim of a device that moved to another pool",
        ClaimChange,
        lambda c: bool(c.moved),
        lambda c: [WakeJob(Job.PUBLISH, key.fabric) for key in c.moved],
    ),
    routes.row(
        "claim begins or ends to keep a composite from changing",
        ClaimChange,
        lambda c: bool(c.regrouped),
        lambda c: [WakeJob(Job.PUBLISH, key.fabric, GATHER_SECONDS) for key in c.regrouped],
    ),
    routes.row(
        "claim with admin access",
        ClaimChange,
        lambda c: c.observes,
        lambda c: [WakeJob(Job.ADMIN, claim_name(c.new))] if c.new is not None else [],
    ),
    routes.row(
        "maintenance: its status",
        MaintenanceChange,
        lambda c: c.new is not None,
        lambda c: [WakeJob(Job.MAINTENANCE, c.new.metadata.name)] if c.new is not None else [],
    ),
    routes.row(
        "maintenance begins or ends",
        MaintenanceChange,
        lambda c: bool(c.fabrics),
        lambda c: [
            WakeJob(Job.LABELS, after=GATHER_SECONDS),
            *(WakeJob(Job.PUBLISH, fabric, GATHER_SECONDS) for fabric in c.fabrics),
        ],
    ),
    routes.row(
        "node mapped anew",
        NodeChange,
        lambda c: c.is_mapped_anew,
        lambda _: [WakeJob(Job.LABELS, after=GATHER_SECONDS)],
    ),
    routes.row(
        "node lost or found",
        NodeChange,
        lambda c: c.is_lost_or_found,
        lambda c: [Allocation.IMMEDIATE, Allocation.CLASSIC, *c.attached],
    ),
    routes.row(
        "node daemon", DaemonChange, routes.always, lambda _: [WakeJob(Job.LABELS, after=GATHER_SECONDS)]
    ),
    routes.row(
        "slice of a fabric",
        SliceChange,
        lambda c: c.fabric is not None,
        lambda c: [WakeJob(Job.PUBLISH, c.fabric or "", 0.0 if c.new is None else GATHER_SECONDS)],
    ),
    routes.row(
        "slice of a pool whose nodes have a label for it",
        SliceChange,
        lambda c: c.needs_labels,
        lambda _: [WakeJob(Job.LABELS, after=GATHER_SECONDS)],
    ),
    routes.row(
        "device in other reachability groups",
        DeviceChange,
        lambda c: c.is_regrouped,
        lambda _: [WakeJob(Job.LABELS, after=GATHER_SECONDS)],
    ),
    routes.row("device", DeviceChange, routes.always, lambda c: [c.key, Allocation.CLASSIC]),
    routes.row(
        "device shows in the pool",
        DeviceChange,
        lambda c: c.is_shown,
        lambda c: [WakeJob(Job.PUBLISH, c.fabric, GATHER_SECONDS)],
    ),
    # Ports fill and empty all the time; what that means for the nodes can wait for the next ones.
    routes.row("hosts", HostsChange, routes.always, lambda _: [WakeJob(Job.LABELS, after=GATHER_SECONDS)]),
    routes.row(
        "connection",
        ConnectionChange,
        routes.always,
        lambda c: [
            WakeJob(Job.STATUS, c.fabric),
            WakeJob(Job.LABELS),
            WakeJob(Job.PUBLISH, c.fabric, c.publish_after),
            *c.devices,
        ],
    ),
    routes.row(
        "troubles", TroublesChange, routes.always, lambda c: [WakeJob(Job.STATUS, c.fabric, GATHER_SECONDS)]
    ),
    routes.row("operation", OperationChange, routes.always, lambda c: c.devices),
    routes.row(
        "what can be given changed",
        JobDone,
        lambda c: c.job in (Job.PUBLISH, Job.LABELS),
        lambda _: [Allocation.IMMEDIATE, Allocation.CLASSIC],
    ),
)


_ROWS = routes.by_change(TABLE)


def route(change: Change) -> Iterator[Wake]:
    """Return what a change wakes, by all rows of the table that are about it."""
    for row in _ROWS[type(change)]:
        if row.when(change):
            yield from row.wakes(change)


def begin(fabric: str) -> tuple[WakeJob, ...]:
    """Return the jobs of a Fabric whose session begins."""
    jobs = tuple(WakeJob(job, fabric) for job in (Job.PUBLISH, Job.STATUS, Job.FINALIZER))
    return (*jobs, WakeJob(Job.LABELS))


def claim_name(claim: claims.ResourceClaim) -> str:
    """Return the name of the claim's job."""
    return f"{claim.metadata.namespace}/{claim.metadata.name}"


def _metadata(fabric: fabrics.Fabric | None) -> tuple[object, ...]:
    return fabric.metadata.finalizers if fabric is not None else ()


def _asked(fabric: fabrics.Fabric) -> tuple[object, ...]:
    """Return what of a Fabric people decide."""
    return fabric.spec, fabric.deleting, fabric.metadata.annotations.get(fabrics.GIVE_UP_ANNOTATION)
