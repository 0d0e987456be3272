"""The state of a fabric's devices, attachments and slices: the whole input of the wanted pools."""

import datetime
from collections.abc import Collection, Iterable, Mapping

import msgspec

from drawbar.driver.api import attachments, fabrics, maintenances, meta, slices
from drawbar.driver.controller import names, outcomes, reach
from drawbar.driver.controller.offers import group
from drawbar.driver.controller.offers.offer import Part
from drawbar.driver.controller.pools import causes
from drawbar.driver.slices import encoding
from drawbar.fabric import contract

FABRIC_LABEL = "drawbar.dev/fabric"


def fabric_of(published: slices.ResourceSlice | None) -> str | None:
    """Return the Fabric of our driver's slice, or None for a node's own pool."""
    if published is None or published.spec.node_name is not None:
        return None
    return names.fabric_of(published.spec.pool.name)


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """The fabric manager's reports, and their history.

    Attributes:
        fabric: the Fabric object.
        devices: the last listing; None before the first one, and then devices neither come nor go.
        silent_seconds: the seconds since the manager was last reached.
        probations: by device name, the time for which its failure counts, if it is not the usual one.
        failures: by device name, the number of failures in a row.
        allocated_pools: by device name, the pool in a claim's allocation.
        missing: the names of unlisted devices that keep their earlier state.
        made: by the id of each pool of memory, the bytes in memory chunks of ours.
        chooses: whether the fabric chooses the device itself, so that it has model offers.
        worn: by the name of a device that was erased too often within a day, the end of its rest; on the steady clock.
        maintenance: the devices and nodes in maintenance.
        not_offered: the names of listed devices outside of the Fabric's offer; in `devices` only while a claim has
            them.
        refused: the pairs of a device and a host that the manager refused as incompatible, and is not asked about now.
        refused_until: the time when the first of these pairs may be tried again; on the steady clock.
    """

    fabric: fabrics.Fabric
    devices: tuple[contract.Device, ...] | None
    silent_seconds: float = 0.0
    probations: Mapping[str, datetime.timedelta] = msgspec.field(default_factory=dict)
    failures: Mapping[str, int] = msgspec.field(default_factory=dict)
    allocated_pools: Mapping[str, str] = msgspec.field(default_factory=dict)
    missing: frozenset[str] = frozenset()
    made: Mapping[str, int] = msgspec.field(default_factory=dict)
    chooses: bool = False
    worn: Mapping[str, datetime.datetime] = msgspec.field(default_factory=dict)
    maintenance: maintenances.Scope = msgspec.field(default_factory=maintenances.Scope)
    not_offered: frozenset[str] = frozenset()
    refused: Collection[reach.Pair] = ()
    refused_until: datetime.datetime | None = None


class FabricState(msgspec.Struct, frozen=True, kw_only=True):
    """A fabric's devices, attachments and slices at one moment.

    Attributes:
        attached_by_us: the node of each attached device, by all names that its attachment covers.
        composites: by name, the members of the composites with attachments; their names are in `attached_by_us` too.
        attached_pools: by device name, the pool that its claim names, from its attachment.
        reported: by device name, the causes in its attachment's report.
        date: the time of day, for new taints.
        failed_since: by device name, the time when this process first saw its failure's taint, on the steady clock.
        published: the present slices of this fabric.
        kept: the fields of slices that the API server keeps. If it drops binding conditions, a pod would be bound
            before its device is there, so nothing is published.
    """

    driver: str
    facts: Facts
    date: datetime.datetime
    attached_by_us: Mapping[str, str] = msgspec.field(default_factory=dict)
    composites: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    attached_pools: Mapping[str, str] = msgspec.field(default_factory=dict)
    reported: Mapping[str, tuple[causes.Cause, ...]] = msgspec.field(default_factory=dict)
    failed_since: Mapping[str, datetime.datetime] = msgspec.field(default_factory=dict)
    published: tuple[slices.ResourceSlice, ...] = ()
    kept: encoding.Kept

    @property
    def fabric(self) -> str:
        """Return the name of the Fabric object."""
        return self.facts.fabric.metadata.name

    @property
    def policy(self) -> fabrics.Policy:
        """Return the Fabric's policy."""
        return self.facts.fabric.spec.policy

    @property
    def devices(self) -> tuple[contract.Device, ...] | None:
        """Return the devices to publish: none of a Fabric that is being deleted, None before the first listing."""
        return () if self.facts.fabric.deleting else self.facts.devices


def withdrawal(
    driver: str, fabric: str, published: tuple[slices.ResourceSlice, ...], date: datetime.datetime
) -> FabricState:
    """Return the state of a fabric that no longer exists: its slices are left over.

    Only slices made by the controller count: others may have published a pool of the same name.
    """
    published = tuple(each for each in published if each.metadata.labels.get(FABRIC_LABEL) == fabric)
    gone = fabrics.Fabric(
        metadata=meta.ObjectMeta(name=fabric), spec=fabrics.FabricSpec(adapter="", endpoint="")
    )
    kept = encoding.Kept(dropped=(), form=encoding.Encoding.PER_DEVICE)
    return FabricState(
        driver=driver, facts=Facts(fabric=gone, devices=()), date=date, published=published, kept=kept
    )


def find_attached_pools(attached: Iterable[attachments.DeviceAttachment]) -> dict[str, str]:
    """Return, by device name, the pool that its claim names; a device attached by hand has none."""
    return {
        attachment.spec.allocated: attachment.spec.pool
        for attachment in attached
        if not attachment.held_by_hand
    }


def observe(
    driver: str,
    facts: Facts,
    attached: Iterable[attachments.DeviceAttachment],
    published: tuple[slices.ResourceSlice, ...],
    kept: encoding.Kept,
    *,
    date: datetime.datetime,
    overdue: Collection[str] = (),
) -> FabricState:
    """Return the observed state for the plan.

    Args:
        driver: the DRA driver's name.
        facts: the fabric manager's reports.
        attached: the attachments of this fabric.
        published: its present slices.
        kept: the fields of slices that the API server keeps.
        date: the time of day.
        overdue: the names of devices whose release takes too long, for any reason.
    """
    by_device = {attachment.spec.device: attachment for attachment in attached}
    reported = {
        name: _count_failures(
            causes.find_attachment_causes(attachment, overdue=name in overdue), facts.failures.get(name, 0)
        )
        for name, attachment in by_device.items()
        if not Part.from_attachment(attachment).is_carved
    }
    for attachment in by_device.values():
        failed, part = causes.failure(attachment), Part.from_attachment(attachment)
        if part.is_carved and failed is not None and outcomes.taints_device(attachment, failed.reason):
            whole = part.source
            reported[whole] = _count_failures((failed,), facts.failures.get(whole, 0))
    ours = [attachment for attachment in by_device.values() if not attachment.held_by_hand]
    return FabricState(
        driver=driver,
        facts=facts,
        date=date,
        attached_by_us={
            name: attachment.spec.node_name
            for attachment in ours
            for name in (attachment.spec.device, attachment.spec.allocated)
        },
        composites=group.find_held_members(ours),
        attached_pools=find_attached_pools(by_device.values()),
        reported={name: (causes.NotReleased(),) for name in overdue} | reported,
        published=published,
        kept=kept,
    )


def _count_failures(reported: tuple[causes.Cause, ...], failures: int) -> tuple[causes.Cause, ...]:
    return tuple(
        msgspec.structs.replace(cause, failures=failures) if isinstance(cause, causes.AttachFailed) else cause
        for cause in reported
    )
