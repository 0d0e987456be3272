"""Takes over what the API server and the fabric managers report: updates the indexes, and wakes the reconcilers.

Which change wakes which reconciler is decided in `routing`. Changes are taken over while another controller leads, too, so
that this one begins at once; what they wake waits in the queues.
"""

import asyncio
import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, assert_never

import msgspec

from drawbar.driver import containment
from drawbar.driver.api import attachments, claims, core, demands, fabrics, maintenances, slices
from drawbar.driver.controller import claims as claim_index
from drawbar.driver.controller import fabric_reconciler, faults, names, outcomes, routing, watches
from drawbar.driver.controller.attachments import calls, executor, plan
from drawbar.driver.controller.cluster import Cluster
from drawbar.driver.controller.fabrics import losses, session
from drawbar.driver.controller.immediate import allocator
from drawbar.driver.controller.offers import any_of_model, memory_chunk
from drawbar.driver.controller.operation import metrics
from drawbar.driver.controller.pools import causes
from drawbar.driver.kube import exclusions, kinds, mirror, workers
from drawbar.fabric import contract


@dataclass(slots=True, kw_only=True, eq=False)
class Changes:
    """The listener of the watches and of the sessions.

    Attributes:
        devices: the queue of the devices to reconcile.
        jobs: the reconciler of fabrics.
        look_again: have all claims of a way of allocation looked at again.
    """

    cluster: Cluster
    context: executor.Context
    devices: workers.PartitionedQueue[names.DeviceKey]
    jobs: fabric_reconciler.FabricReconciler
    immediate: allocator.Allocator
    look_again: Mapping[routing.Allocation, Callable[[], None]]
    metrics: metrics.Metrics
    # Given while this controller leads: only then are fabrics connected and anything is written.
    _tasks: asyncio.TaskGroup | None = None
    _mirrors: tuple[mirror.Mirror[Any], ...] = ()
    _beginnings: containment.Callbacks[str] = field(init=False)
    # The devices by the uid of their attachment.
    _keys: dict[str, names.DeviceKey] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._beginnings = containment.Callbacks(self.cluster.contained, "fabric-begin")

    def follow(self, watched: watches.Watches, mirrors: Iterable[mirror.Mirror[Any]]) -> None:
        """Have all changes that the API server reports taken over, and what cannot be read in any of `mirrors`."""
        self._mirrors = tuple(mirrors)
        for followed in self._mirrors:
            followed.report_unreadable(self.unreadable_changed)
        watched.fabrics.follow(self.fabric_changed)
        watched.attachments.follow(self.attachment_changed)
        watched.maintenances.follow(self.maintenance_changed)
        watched.nodes.follow(self.node_changed)
        watched.claims.follow(self.claim_changed)
        watched.slices.follow(self.slice_changed)
        if watched.daemons is not None:
            watched.daemons.follow(self.daemon_changed)

    def begin(self, tasks: asyncio.TaskGroup) -> None:
        """Connect to the fabrics and have everything looked at, since this controller leads."""
        self._tasks = tasks
        for fabric in self.cluster.fabrics:
            name = fabric.metadata.name
            self._beginnings.call(
                name,
                functools.partial(self._begin_fabric, name, tasks),
                extra=lambda: {"fabric": name},  # noqa: B023
                report=functools.partial(self.cluster.recorder.unexpected, kinds.FABRIC, fabric.metadata),
            )
        self._wake(self._known_devices())
        self._wake(
            routing.WakeJob(routing.Job.MAINTENANCE, item.metadata.name) for item in self.cluster.maintenances
        )
        observers = dict.fromkeys(routing.claim_name(claim) for claim in self.cluster.observers)
        self._wake(routing.WakeJob(routing.Job.ADMIN, name) for name in observers)
        for followed in self._mirrors:
            for left in followed.unreadable.values():
                self.unreadable_changed(None, left)

    def end(self) -> None:
        """Disconnect from the fabrics: another controller leads, or none."""
        self._tasks = None
        self._beginnings.close()
        self.cluster.sessions.clear()

    def _begin_fabric(self, name: str, tasks: asyncio.TaskGroup) -> None:
        fabric = self.cluster.fabrics.get(name)
        if fabric is not None:
            self._serve(fabric, tasks)
            self._wake(routing.begin(name))

    def _route(self, change: routing.Change) -> None:
        self._wake(routing.route(change))

    def _wake(self, wakes: Iterable[routing.Wake]) -> None:
        for wake in wakes:
            match wake:
                case names.DeviceKey():
                    self.devices.add(wake)
                case routing.WakeJob(job=job, name=name, after=after):
                    self.jobs.add(job, name, after=after)
                case routing.Allocation():
                    self.look_again[wake]()
                case _:
                    assert_never(wake)

    def _serve(self, fabric: fabrics.Fabric, tasks: asyncio.TaskGroup) -> None:
        """Have a session with the fabric's manager; one that begins takes over the refused pairs from the status."""
        name, sessions = fabric.metadata.name, self.cluster.sessions
        before = sessions.get(name)
        sessions.put(fabric, tasks)
        opened = sessions.get(name)
        if opened is not None and opened is not before:
            opened.pairs.restore(fabric.status.incompatible, self.cluster.clock())

    # What the API server reports.

    def fabric_changed(self, old: fabrics.Fabric | None, new: fabrics.Fabric | None) -> None:
        """Take over a change of a Fabric; before this controller leads there is nothing to do."""
        if self._tasks is None:
            return
        change = routing.FabricChange(old=old, new=new)
        if new is not None:
            self._serve(new, self._tasks)
        else:
            self.cluster.sessions.drop(change.name)
            self.metrics.forget_fabric(change.name)
            self.cluster.refusals.forget(change.name)
            # Whoever deletes a Fabric by force leaves attachments that no session serves.
            self._wake(map(attachment_key, self.cluster.placed.in_fabric(change.name)))
        self._route(change)

    def attachment_changed(
        self, old: attachments.DeviceAttachment | None, new: attachments.DeviceAttachment | None
    ) -> None:
        """Take over a change of a DeviceAttachment."""
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self._keys.pop(old.metadata.uid, None)
            self.context.calls.forget(old.metadata.uid)
        attachment = new or old
        assert attachment is not None
        key, cluster = attachment_key(attachment), self.cluster
        release_seconds = cluster.placed.release_seconds(key.attachment, cluster.clock())
        cluster.placed.change(old, new, cluster.clock())
        if new is not None:
            self._keys[new.metadata.uid] = key
        if self._tasks is not None:
            self.context.latency.changed(key, old, new)
        opened, fabric = cluster.sessions.get(key.fabric), cluster.fabrics.get(key.fabric)
        if opened is not None:
            opened.reconsider(key.device)
        change = routing.AttachmentChange(
            old=old,
            new=new,
            key=key,
            release_seconds=release_seconds,
            observers=tuple(routing.claim_name(claim) for claim in cluster.observers.with_device(key)),
            limits_models=fabric is not None and bool(fabric.spec.policy.models),
            served=opened is not None,
            shows_owner=self._shows_owner(key),
            has_composites=attachment.spec.composite is not None or self._groups(key.fabric),
        )
        if opened is not None and change.erases:
            opened.erasures.add(key.device, cluster.clock())
            limit = opened.spec.policy.erases_per_device_per_day
            worn = opened.erasures.free_at(key.device, limit, cluster.clock()) is not None
            change = replace(change, is_worn=worn)
        if opened is not None and new is not None:
            self._blame(opened, change, new)
        self._route(change)

    def _blame(
        self, opened: session.Session, change: routing.AttachmentChange, new: attachments.DeviceAttachment
    ) -> None:
        """Count what became of an attach: against device and host, against the pair, or for all of them."""
        device = new.spec.share.device if new.spec.share is not None else change.key.device
        host, source, now = new.spec.host_id, faults.Source.from_attachment(new), self.cluster.clock()
        refusal = causes.refusal(new)
        if change.fails:
            # A share that was made and its node cannot use is nothing against the other shares.
            failed = change.key.device if new.holds(attachments.ATTACHED) else device
            opened.faults.failed(failed, host, source, now)
        elif change.is_refused and refusal is not None:
            date = self.cluster.time_of_day()
            opened.pairs.refused((device, host), source, refusal.message, now=now, date=date)
        elif change.works:
            opened.faults.succeeded(device, host)
            opened.pairs.succeeded(device, host)

    def maintenance_changed(
        self, old: maintenances.Maintenance | None, new: maintenances.Maintenance | None
    ) -> None:
        """Take over a change of a Maintenance."""
        self.cluster.maintenance.change(old, new)
        self._route(routing.MaintenanceChange(old=old, new=new))

    def claim_changed(self, old: claims.ResourceClaim | None, new: claims.ResourceClaim | None) -> None:
        """Take over a change of any claim."""
        had, has = self.cluster.allocated.change(old, new)
        given = tuple(had | has)
        if given and self._tasks is not None:
            self.context.latency.claim_changed(given, old, new)
        if any(claim is not None and demands.is_immediate(claim.metadata) for claim in (old, new)):
            self.immediate.changed(old, new)
        _, observed = self.cluster.observers.change(old, new)
        self.cluster.unattached.change(old, new)
        self.cluster.retries.change(old, new)
        moved = tuple(key for key in given if self._has_moved(key, had) or self._has_moved(key, has))
        regrouped = tuple(key for key in given if (key in had) != (key in has) and self._groups(key.fabric))
        self._route(
            routing.ClaimChange(
                new=new,
                devices=self._parts(given),
                moved=moved,
                regrouped=regrouped,
                observes=bool(observed),
            )
        )

    def unreadable_changed(
        self, old: exclusions.Unreadable | None, new: exclusions.Unreadable | None
    ) -> None:
        """Report an object that cannot be read; once it is read or gone, look at everything that waited for it."""
        if self._tasks is None:
            return
        if new is not None:
            self.cluster.recorder.unreadable(new)
        elif old is not None:
            if old.kind == kinds.FABRIC:
                self._wake(routing.begin(old.metadata.name))
            self._wake(self._known_devices())

    def node_changed(self, old: core.Node | None, new: core.Node | None) -> None:
        """Take over a change of any Node. Most are a kubelet's reports that it lives, which change nothing that is read here."""
        if old is not None and new is not None and _reads_the_same(old, new):
            return
        node = new or old
        assert node is not None
        name = node.metadata.name
        attached = tuple(attachment_key(attachment) for attachment in self.cluster.placed.on(name))
        if new is None:
            self.cluster.daemons.forget(name)
        if new is not None or attached:
            self.cluster.absences.see(name)
        self._route(routing.NodeChange(old=old, new=new, attached=attached))

    def daemon_changed(self, old: core.Pod | None, new: core.Pod | None) -> None:
        """Take over a change of a node daemon's pod."""
        if self.cluster.daemons.change(old, new):
            self._route(routing.DaemonChange())

    def slice_changed(self, old: slices.ResourceSlice | None, new: slices.ResourceSlice | None) -> None:
        """Take over a change of a ResourceSlice."""
        self.cluster.pools.changed(old, new)
        self.immediate.published(old, new)
        self._route(routing.SliceChange(old=old, new=new))

    def classic_claim_gone(self, uid: str) -> None:
        """Reconcile the devices of a classic claim that was deleted."""
        devices = tuple(attachment_key(attachment) for attachment in self.cluster.placed.for_claim(uid))
        self._route(routing.OperationChange(devices=devices))

    # What the fabric managers report.

    def device_changed(self, fabric: str, old: contract.Device | None, new: contract.Device | None) -> None:
        """Take over a change of a device."""
        change = routing.DeviceChange(fabric=fabric, old=old, new=new)
        attached = self.cluster.attachments.get(change.key.attachment) is not None
        self._route(replace(change, attached=attached))

    def hosts_changed(self, fabric: str) -> None:
        """Take over a change of hosts; those of a fabric that was just listed are mapped at once, the others together."""
        session = self.cluster.sessions.get(fabric)
        if session is not None and session.is_mapped:
            self._route(routing.HostsChange())
            return
        self.jobs.map(fabric)
        if session is not None:
            session.is_mapped = session.listed

    def operation_changed(self, fabric: str, operation: contract.Operation) -> None:
        """Take over how far an operation of this controller is."""
        uid = calls.attachment_uid(operation.request_id)
        key, side = self._keys.get(uid), self.context.calls.side(uid, operation.request_id)
        if key is None or side is None:
            return
        now = asyncio.get_running_loop().time()
        # What the call's answer reported already may be outdated by now.
        is_reported = self.context.calls.view(uid, side, now).state == plan.CallState.SUCCEEDED
        self.context.calls.settle(uid, side, operation, now, watched=True)
        session = self.cluster.sessions.get(fabric)
        if session is not None and operation.succeeded and operation.device is not None and not is_reported:
            session.learn(operation.device)
        self._route(routing.OperationChange(devices=(key,)))

    def turn_came(self, key: names.DeviceKey) -> None:
        """Have the operation made for which the fabric has a place now."""
        self._route(routing.OperationChange(devices=(key,)))

    def witnesses(self, fabric: str) -> dict[str, losses.Witness]:
        """Return by device name what the nodes report of the fabric's attachments."""
        absences = self.cluster.absences
        return {
            attachment.spec.device: losses.witness(
                attachment, node_gone=absences.is_gone(attachment.spec.node_name, (fabric,))
            )
            for attachment in self.cluster.placed.in_fabric(fabric)
        }

    def published(self, fabric: str) -> frozenset[str]:
        """Return the names of the devices in the fabric's slices, of a composite those of its members."""
        members = self.cluster.pools.composites(fabric)
        return frozenset(
            name
            for published in self.cluster.pools.in_fabric(fabric)
            for device in published.spec.devices
            for name in members.get(device.name, (device.name,))
        )

    def taken(self, fabric: str) -> any_of_model.Taken:
        """Return what DeviceAttachments and claims have taken of the fabric's places."""
        holds = tuple(map(any_of_model.Hold.from_attachment, self.cluster.placed.in_fabric(fabric)))
        claimed = (key.device for key in self.cluster.allocated.devices() if key.fabric == fabric)
        return any_of_model.Taken(holds=holds, claimed=frozenset(claimed))

    def shares(self, fabric: str) -> tuple[memory_chunk.Hold, ...]:
        """Return the DeviceAttachments of shares of the fabric."""
        holds = map(memory_chunk.Hold.from_attachment, self.cluster.placed.of_shares(fabric))
        return tuple(hold for hold in holds if hold is not None)

    def troubles_changed(self, fabric: str) -> None:
        """Have the Fabric's status written."""
        self._route(routing.TroublesChange(fabric=fabric))

    def connection_changed(self, fabric: str) -> None:
        """Take over that the manager is reached, or no longer."""
        devices = tuple(key for key in self._known_devices() if key.fabric == fabric)
        after = self.jobs.grace_seconds(fabric)
        self._route(routing.ConnectionChange(fabric=fabric, publish_after=after, devices=devices))

    # What the controller's own parts report.

    def call_settled(self, uid: str, side: outcomes.Side, reason: str | None) -> None:
        """Measure how long a call to a fabric took."""
        key = self._keys.get(uid)
        if key is not None:
            self.context.latency.settled(key, side, reason)

    def job_done(self, job: routing.Job) -> None:
        """Have those who allocate look again, since what can be given may have changed."""
        self._route(routing.JobDone(job=job))

    def _known_devices(self) -> tuple[names.DeviceKey, ...]:
        """Return the devices that are attached or were given to a claim, each once."""
        return tuple(dict.fromkeys((*self._keys.values(), *self._parts(self.cluster.allocated.devices()))))

    def _parts(self, given: Iterable[names.DeviceKey]) -> tuple[names.DeviceKey, ...]:
        """Return the devices that claims were given, the members in place of each composite."""
        return tuple(part for key in given for part in self.cluster.members(key) or (key,))

    def _groups(self, name: str) -> bool:
        """Return whether a Fabric has composites, or had some that are published."""
        fabric = self.cluster.fabrics.get(name)
        wanted = fabric is not None and (fabric.spec.composites or fabric.spec.composite_rules)
        return bool(wanted) or self.cluster.pools.has_composites(name)

    def _has_moved(self, key: names.DeviceKey, given: claim_index.Given) -> bool:
        """Return whether the device was given out of a pool that it would not be published in now."""
        device = self._device(key) if key in given else None
        if device is None:
            return False
        reach, pool = names.reach_key(device.reach_groups), given[key].pool
        home = names.pool(key.fabric, device.enclosure, reach=reach)
        is_within = pool == home or pool.startswith(f"{home}/")
        session = self.cluster.sessions.get(key.fabric)
        is_refused = session is not None and session.pairs.has(key.device)
        return not is_within or names.reach_of(pool) != reach or bool(names.refusal_of(pool)) != is_refused

    def _device(self, key: names.DeviceKey) -> contract.Device | None:
        session = self.cluster.sessions.get(key.fabric)
        return session.device(key.device) if session is not None else None

    def _shows_owner(self, key: names.DeviceKey) -> bool:
        """Return whether the pool shows whose a device is: while it is connected, if it is reserved, or if not all are offered."""
        session, device = self.cluster.sessions.get(key.fabric), self._device(key)
        if session is None or device is None:
            return False
        return (
            device.connection is not None
            or not session.spec.offer.is_everything
            or session.spec.policy.immediate.holds(device.id, device.model)
        )


def attachment_key(attachment: attachments.DeviceAttachment) -> names.DeviceKey:
    """Return the device of an attachment."""
    return names.DeviceKey(fabric=attachment.spec.fabric, device=attachment.spec.device)


def _reads_the_same(old: core.Node, new: core.Node) -> bool:
    version = old.metadata.resource_version
    metadata = msgspec.structs.replace(new.metadata, resource_version=version)
    return (metadata, new.spec, new.status) == (old.metadata, old.spec, old.status)
