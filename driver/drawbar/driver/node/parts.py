"""Factories of the node daemon's parts. Each part is made from earlier ones."""

import asyncio
import datetime
from collections.abc import Callable, Iterator

import msgspec

from drawbar.driver import clocks, containment, evaluation, watching
from drawbar.driver.api import attachments, claims
from drawbar.driver.kube import client, events, kinds, mirror
from drawbar.driver.node import claim_versions, kernel, settings, treatment, watches
from drawbar.driver.node.attachments import context, exclusiveness, local, probation, reporting
from drawbar.driver.node.classes import users
from drawbar.driver.node.discovery import devices
from drawbar.driver.node.health import monitor
from drawbar.driver.node.inventory import netdevs
from drawbar.driver.node.local import neighbours, pool, publisher
from drawbar.driver.node.preparation import cleaning, holders, lookup, metadata, networks, preparer
from drawbar.driver.node.treatment import hooks

Sharing = Callable[[attachments.DeviceAttachment], context.Sharing]


class Own:
    """The attachments of this daemon's driver, among all attachments in the node's mirror.

    Several drivers may have attachments on one node. This daemon prepares, judges and releases only its own driver's devices.
    """

    def __init__(self, mirrored: mirror.Mirror[attachments.DeviceAttachment], driver: str) -> None:
        self._mirrored = mirrored
        self._driver = driver

    def __iter__(self) -> Iterator[attachments.DeviceAttachment]:
        return (attachment for attachment in self._mirrored if self.has(attachment))

    def has(self, attachment: attachments.DeviceAttachment) -> bool:
        """Return whether the attachment belongs to this daemon's driver."""
        return attachment.spec.driver == self._driver

    def get(self, name: str) -> attachments.DeviceAttachment | None:
        """Return the attachment of that name, or None."""
        attachment = self._mirrored.get(name)
        return attachment if attachment is not None and self.has(attachment) else None

    def names(self) -> tuple[str, ...]:
        """Return the names of all attachments, those that wait for the arrival or removal of a device first."""
        ordered = sorted(self, key=lambda each: each.holds(attachments.VISIBLE) and not each.deleting)
        return tuple(attachment.metadata.name for attachment in ordered)

    def names_for(self, pool: str, device: str) -> tuple[str, ...]:
        """Return the names of the attachments of a device."""
        return tuple(
            attachment.metadata.name
            for attachment in self
            if (attachment.spec.pool, attachment.spec.device) == (pool, device)
        )


class Basis(msgspec.Struct, frozen=True, kw_only=True):
    """The basic parts, used by all others.

    Attributes:
        options: the daemon's settings.
        api: the client of the API server.
        contained: contains unexpected errors.
        recorder: writes Events.
        changes: dispatches each change.
        boot_id: the ID of the running kernel's boot.
        host: the host of this node.
        arrivals: the node's devices, as the kernel shows them.
        attached: the attachments of this node, of all drivers.
        own: the attachments of this daemon's driver.
        served: the served versions of claims.
        reader: reads claims.
        holders: the claims that hold devices.
        works: the cleanings in progress.
        probations: the failures of the node's own devices that still count.
        verdicts: the health of the devices.
        kernel: writes to sysfs.
    """

    options: settings.Settings
    api: client.Client
    contained: containment.Containment
    recorder: events.Recorder
    changes: watching.Dispatcher
    boot_id: str
    host: users.Host
    arrivals: devices.Devices
    attached: mirror.Mirror[attachments.DeviceAttachment]
    own: Own
    served: claim_versions.Served
    reader: claim_versions.Reader
    holders: holders.Holders
    works: cleaning.Works
    probations: probation.Probations
    verdicts: monitor.Monitor
    kernel: kernel.Kernel

    @property
    def marks(self) -> cleaning.Marks:
        """Return the marks of the devices to be cleaned."""
        return cleaning.Marks(self.options.data_dir)


def build_neighbours(basis: Basis) -> neighbours.Neighbours:
    """Return the other components that offer devices of this node."""
    options = basis.options
    return neighbours.Neighbours(
        basis.api,
        driver=options.driver,
        node_name=options.node_name,
        selection=options.local_pool,
        host=basis.host,
        directory=options.data_dir,
        recorder=basis.recorder,
        changed=lambda: basis.changes.tell(watches.NeighbourChange(attachments=basis.own.names())),
        clock=asyncio.get_running_loop().time,
        contained=basis.contained,
    )


def residents(
    basis: Basis,
    neighbours_seen: neighbours.Neighbours,
    evaluator: evaluation.Evaluator,
    holds_back: asyncio.Event,
) -> pool.LocalPool:
    """Return the node's own devices; `holds_back` is set once the scheduler waits for one of them."""
    options = basis.options
    return pool.LocalPool(
        driver=options.driver,
        node_name=options.node_name,
        selection=options.local_pool,
        surroundings=pool.Surroundings(
            inventory=lambda: basis.arrivals.inventory,
            attached=lambda: basis.attached,
            held=basis.holders.list_devices,
            interfaces=netdevs.find_used,
            host=basis.host,
            boot_id=basis.boot_id,
            unclean=basis.works.taint,
            neighbours=neighbours_seen,
            failed=basis.probations.taint,
            held_back=holds_back.set,
        ),
        health=basis.verdicts,
        evaluator=evaluator,
        contained=basis.contained,
    )


def build_publisher(basis: Basis, own_devices: pool.LocalPool) -> publisher.Publisher:
    """Return the publisher of the node's own devices."""
    options = basis.options
    return publisher.Publisher(
        basis.api,
        driver=options.driver,
        node_name=options.node_name,
        devices=own_devices,
        time_of_day=clocks.time_of_day,
        null=options.null_device,
        recorder=basis.recorder,
        contained=basis.contained,
    )


def cleaner(
    basis: Basis, treated: treatment.Executor, hooked: hooks.Runner, own_devices: pool.LocalPool
) -> cleaning.Cleaner:
    """Return the cleaner of the node's own devices."""
    around = cleaning.Surroundings(
        node_name=basis.options.node_name,
        treatment=treated,
        card=own_devices.card,
        reader=basis.reader,
        holder=basis.holders.find,
        hooks=hooked,
        changed=lambda: basis.changes.tell(watches.CleaningChange()),
    )
    clean = basis.options.local_pool.clean
    return cleaning.Cleaner(basis.marks, basis.works, around, clean=clean, contained=basis.contained)


def reporting_networks(basis: Basis) -> networks.Networks:
    """Return the reports of network interfaces on claims."""
    return networks.Networks(
        basis.api,
        driver=basis.options.driver,
        files=basis.holders.store,
        tells_claims=basis.served.modern.is_set,
        contained=basis.contained,
    )


def surroundings(
    basis: Basis, treated: treatment.Executor, hooked: hooks.Runner, sharing: Sharing
) -> context.Context:
    """Return the surroundings of the work on attachments."""
    options = basis.options
    return context.Context(
        reporter=reporting.Reporter(
            api=basis.api,
            recorder=basis.recorder,
            boot_id=basis.boot_id,
            learn=basis.attached.learn,
            tells_claims=basis.served.modern.is_set,
            companion=basis.own.get,
        ),
        arrivals=basis.arrivals,
        kernel=basis.kernel,
        treatment=treated,
        boot_id=basis.boot_id,
        since=clocks.steady(),
        patience=datetime.timedelta(seconds=options.visible_timeout_seconds),
        clock=clocks.steady,
        time_of_day=clocks.time_of_day,
        holder=basis.holders.find,
        node_verdicts=basis.verdicts,
        hooks=hooked,
        sharing=sharing,
        offers=options.local_pool.lends,
        links=netdevs.set_up_functions,
        companion=basis.own.get,
        attached=lambda: basis.attached,
    )


def build_demands(
    basis: Basis,
    around: context.Context,
    cleans: cleaning.Cleaner,
    own_devices: pool.LocalPool,
    published: publisher.Publisher,
) -> local.LocalDevices:
    """Return the work on the claims' demands for the node's own devices."""
    return local.LocalDevices(
        local.Surroundings(
            node_name=basis.options.node_name,
            driver=basis.options.driver,
            context=around,
            marks=basis.marks,
            cleaner=cleans,
            card=own_devices.card,
            published=lambda: published.published,
            changed=lambda: basis.changes.tell(watches.DemandChange()),
            probations=basis.probations,
        ),
        basis.contained,
    )


def finder(
    basis: Basis,
    around: context.Context,
    cleans: cleaning.Cleaner,
    own_devices: pool.LocalPool,
    demands: local.LocalDevices,
) -> lookup.Finder:
    """Return the lookup of claims' devices."""

    def pending_step(attachment: attachments.DeviceAttachment) -> str:
        is_local = attachment.spec.is_local
        return demands.pending_step(attachment) if is_local else around.pending_step(attachment)

    return lookup.Finder(
        driver=basis.options.driver,
        node_name=basis.options.node_name,
        boot_id=basis.boot_id,
        attached=lambda: basis.own,
        card=around.card,
        pending_step=pending_step,
        host=basis.host,
        local=own_devices,
        refusal=cleans.refusal,
        local_attachment=demands.attachment,
        occupied=netdevs.find_used,
    )


def preparation(
    basis: Basis,
    found: lookup.Finder,
    reported: networks.Networks,
    cleans: cleaning.Cleaner,
    demands: local.LocalDevices,
) -> preparer.Preparer:
    """Return the implementation of the kubelet's calls."""
    options = basis.options

    def tell_release(pool_name: str, device: str) -> None:
        names = basis.own.names_for(pool_name, device)
        basis.changes.tell(watches.HolderChange(pool=pool_name, device=device, attachments=names))

    return preparer.Preparer(
        reader=basis.reader,
        finder=found,
        held_by=basis.holders,
        boot_id=basis.boot_id,
        released=tell_release,
        prepared=reported.report,
        leave=cleans.mark_for_cleaning,
        seen=demands.take_claim,
        recorder=basis.recorder,
        waits=options.prepare,
        described=metadata.Files(options.data_dir, options.driver, enabled=options.device_metadata),
    )


def exclusive(
    basis: Basis, around: context.Context, neighbours_seen: neighbours.Neighbours
) -> exclusiveness.Exclusiveness:
    """Return the comparison of attached devices with the offers of other drivers."""
    return exclusiveness.Exclusiveness(
        reporter=around.reporter,
        card=around.last_card,
        offered=neighbours_seen.find_offered,
        quiet_seconds=basis.options.local_pool.quiet_seconds,
        clock=asyncio.get_running_loop().time,
    )


def follow_claims(basis: Basis, demands: local.LocalDevices) -> mirror.Mirror[claims.ResourceClaim]:
    """Return the mirror of the claims for the node's own devices."""
    return mirror.Mirror(
        basis.api,
        kinds.CLAIM,
        into=claims.ResourceClaim,
        changed=demands.claim_changed,
        keep=demands.is_followed,
        contained=basis.contained,
        recorder=basis.recorder,
    )
