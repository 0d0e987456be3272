"""The observer of the cluster: it updates the indexes by the API server's reports, and passes the changes to the reconcilers.

Changes are also taken in while another controller leads, so that this one can begin at once. Their keys wait in the
queues of the reconcilers.
"""

import dataclasses
import functools
from collections.abc import Iterable
from typing import Any

import msgspec

from drawbar.driver import containment, watching
from drawbar.driver.api import attachments, claims, core, fabrics, maintenances, slices
from drawbar.driver.controller import attachment_index, change_kinds, facts, faults, names, watches
from drawbar.driver.controller.attachments.context import Context
from drawbar.driver.controller.cluster import Cluster
from drawbar.driver.controller.fabrics import session, sessions
from drawbar.driver.controller.offers import holdings, offer
from drawbar.driver.controller.operation import metrics
from drawbar.driver.controller.pools import causes, fabric_state
from drawbar.driver.kube import exclusions, kinds, mirror


class ClusterObserver:
    """The follower of the mirrors; it also begins and ends the sessions."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        watched: watches.Watches,
        mirrors: Iterable[mirror.Mirror[Any]],
        context: Context,
        changes: watching.Dispatcher,
        metrics: metrics.Metrics,
    ) -> None:
        """Follow the mirrors.

        Args:
            cluster: the cluster whose indexes are kept current.
            watched: the collections of the cluster.
            mirrors: all running mirrors; their unreadable objects are reported.
            context: the context whose calls and latencies are kept current.
            changes: receives each change.
            metrics: forget a Fabric that is gone.
        """
        self._cluster = cluster
        self._context = context
        self._changes = changes
        self._metrics = metrics
        self._mirrors = tuple(mirrors)
        # Set while this controller leads: only then are fabrics connected and anything is written.
        self._term: sessions.Term | None = None
        self._beginnings: containment.Callbacks[str] = containment.Callbacks(
            cluster.contained, "fabric-begin"
        )
        for followed in self._mirrors:
            followed.report_unreadable(self._unreadable_changed)
        watched.fabrics.follow(self._fabric_changed)
        watched.attachments.follow(self._attachment_changed)
        watched.maintenances.follow(self._maintenance_changed)
        watched.nodes.follow(self._node_changed)
        watched.claims.follow(self._claim_changed)
        watched.slices.follow(self._slice_changed)
        if watched.daemons is not None:
            watched.daemons.follow(self._daemon_changed)

    def begin(self, term: sessions.Term) -> None:
        """Connect to the fabrics and have everything reconciled, since this controller leads."""
        self._term = term
        for fabric in self._cluster.fabrics:
            name = fabric.metadata.name
            self._beginnings.call(
                name,
                functools.partial(self._begin_fabric, name, term),
                extra=lambda: {"fabric": name},  # noqa: B023
                report=functools.partial(
                    self._cluster.recorder.record_unexpected, kinds.FABRIC, fabric.metadata
                ),
            )
        self._changes.tell(
            change_kinds.TermChange(
                devices=facts.list_known_devices(self._cluster),
                maintenances=tuple(item.metadata.name for item in self._cluster.maintenances),
                observers=tuple(dict.fromkeys(map(change_kinds.claim_name, self._cluster.observers))),
            )
        )
        for followed in self._mirrors:
            for left in followed.unreadable.values():
                self._unreadable_changed(None, left)

    def end(self) -> None:
        """Disconnect from the fabrics: another controller leads, or none."""
        self._term = None
        self._beginnings.close()
        self._cluster.sessions.clear()

    def _begin_fabric(self, name: str, term: sessions.Term) -> None:
        fabric = self._cluster.fabrics.get(name)
        if fabric is not None:
            self._serve(fabric, term)
            self._changes.tell(change_kinds.SessionChange(fabric=name))

    def _serve(self, fabric: fabrics.Fabric, term: sessions.Term) -> None:
        """Open a session with the fabric's manager; a new session takes the refused pairs from the status."""
        name, opened = fabric.metadata.name, self._cluster.sessions
        before = opened.get(name)
        spec = before.spec if before is not None else None
        opened.put(fabric, term)
        current = opened.get(name)
        if current is not None and (current is not before or current.spec != spec):
            # The Fabric sets when a node counts as gone.
            current.update_holdings(self._cluster.holdings(name))
        if current is not None and current is not before:
            current.pairs.restore(fabric.status.incompatible, self._cluster.clock())

    def _fabric_changed(self, old: fabrics.Fabric | None, new: fabrics.Fabric | None) -> None:
        """Take in a change of a Fabric; before this controller leads there is nothing to do."""
        if self._term is None:
            return
        change = change_kinds.FabricChange(old=old, new=new)
        if new is not None:
            self._serve(new, self._term)
        else:
            self._cluster.sessions.drop(change.name)
            self._metrics.forget_fabric(change.name)
            self._cluster.refusals.forget(change.name)
            # A Fabric that is deleted by force leaves attachments without a session.
            unserved = map(attachment_index.device_key, self._cluster.placed.in_fabric(change.name))
            change = msgspec.structs.replace(change, unserved=tuple(unserved))
        self._changes.tell(change)

    def _attachment_changed(
        self, old: attachments.DeviceAttachment | None, new: attachments.DeviceAttachment | None
    ) -> None:
        """Take in a change of a DeviceAttachment."""
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self._context.calls.forget(old.metadata.uid)
        attachment = new or old
        assert attachment is not None
        key, cluster = attachment_index.device_key(attachment), self._cluster
        release_seconds = cluster.placed.release_seconds(key.attachment, cluster.clock())
        cluster.placed.change(old, new, cluster.clock())
        if self._term is not None:
            self._context.latency.note_change(key, old, new)
        opened, fabric = cluster.sessions.get(key.fabric), cluster.fabrics.get(key.fabric)
        if opened is not None:
            if new is None:
                opened.attaches.leave(key)
            held, node = opened.inventory.held, attachment.spec.node_name
            opened.update_holdings(
                held.add_part(
                    holdings.Holding.from_attachment(new), cluster.absences.gone_at(node, (key.fabric,))
                )
                if new is not None
                else held.remove_part(key.device)
            )
        change = change_kinds.AttachmentChange(
            old=old,
            new=new,
            key=key,
            release_seconds=release_seconds,
            observers=tuple(change_kinds.claim_name(claim) for claim in cluster.observers.find_claims(key)),
            limits_models=fabric is not None and bool(fabric.spec.policy.models),
            served=opened is not None,
            shows_owner=facts.shows_owner(cluster, key),
            has_composites=attachment.spec.composite is not None
            or facts.has_composites(self._cluster, key.fabric),
        )
        if opened is not None and change.erases:
            opened.erasures.add(key.device, cluster.clock())
            limit = opened.spec.policy.erases_per_device_per_day
            worn = opened.erasures.free_at(key.device, limit, cluster.clock()) is not None
            change = msgspec.structs.replace(change, is_worn=worn)
        if opened is not None and new is not None:
            self._blame(opened, change, new)
        self._changes.tell(change)

    def _blame(
        self,
        opened: session.Session,
        change: change_kinds.AttachmentChange,
        new: attachments.DeviceAttachment,
    ) -> None:
        """Count the outcome of an attach: for or against device and host, or against the pair."""
        device = offer.Part.from_attachment(new).source
        host, source, now = new.spec.host_id, faults.Source.from_attachment(new), self._cluster.clock()
        refusal = causes.refusal(new)
        if change.fails:
            # A share that its node cannot use does not count against the other shares.
            failed = change.key.device if new.holds(attachments.ATTACHED) else device
            opened.faults.count_failure(failed, host, source, now)
        elif change.is_refused and refusal is not None:
            date = self._cluster.time_of_day()
            opened.pairs.note_refusal((device, host), source, refusal.message, now=now, date=date)
        elif change.works:
            opened.faults.note_success(device, host)
            opened.pairs.note_success(device, host)

    def _maintenance_changed(
        self, old: maintenances.Maintenance | None, new: maintenances.Maintenance | None
    ) -> None:
        """Take in a change of a Maintenance."""
        self._cluster.maintenance.change(old, new)
        self._changes.tell(change_kinds.MaintenanceChange(old=old, new=new))

    def _claim_changed(self, old: claims.ResourceClaim | None, new: claims.ResourceClaim | None) -> None:
        """Take in a change of any claim."""
        had, has = self._cluster.allocated.change(old, new)
        devices = tuple(had | has)
        if devices and self._term is not None:
            self._context.latency.note_claim_change(devices, old, new)
        _, observed = self._cluster.observers.change(old, new)
        self._cluster.unattached.change(old, new)
        self._cluster.retries.change(old, new)
        moved = tuple(key for key in devices if facts.has_moved(self._cluster, key, had, has))
        changed = tuple(key for key in devices if (key in had) != (key in has))
        for fabric in {key.fabric for key in changed}:
            opened = self._cluster.sessions.get(fabric)
            if opened is not None:
                claimed = frozenset(self._cluster.allocated.pools(fabric))
                opened.update_holdings(dataclasses.replace(opened.inventory.held, claimed=claimed))
        regrouped = tuple(key for key in changed if facts.has_composites(self._cluster, key.fabric))
        self._changes.tell(
            change_kinds.ClaimChange(
                old=old,
                new=new,
                devices=facts.parts(self._cluster, devices),
                moved=moved,
                regrouped=regrouped,
                observes=bool(observed),
            )
        )

    def _unreadable_changed(
        self, old: exclusions.Unreadable | None, new: exclusions.Unreadable | None
    ) -> None:
        """Report an object that cannot be read; once it is read or gone, reconcile everything that waited for it."""
        if self._term is None:
            return
        if new is not None:
            self._cluster.recorder.unreadable(old, new)
        elif old is not None:
            self._changes.tell(
                change_kinds.ReadableChange(
                    fabric=old.metadata.name if old.kind == kinds.FABRIC else None,
                    devices=facts.list_known_devices(self._cluster),
                )
            )
            if old.kind == kinds.NODE:
                attached = map(attachment_index.device_key, self._cluster.placed.list_on(old.metadata.name))
                self._see_absence(old.metadata.name, attached)

    def _node_changed(self, old: core.Node | None, new: core.Node | None) -> None:
        """Take in a change of any Node. Most changes are a kubelet's signs of life, which do not matter here."""
        if old is not None and new is not None and _reads_the_same(old, new):
            return
        node = new or old
        assert node is not None
        name = node.metadata.name
        attached = tuple(
            attachment_index.device_key(attachment) for attachment in self._cluster.placed.list_on(name)
        )
        if new is None:
            self._cluster.daemons.forget(name)
        if new is not None or attached:
            self._cluster.absences.see(name)
        self._see_absence(name, attached)
        self._changes.tell(change_kinds.NodeChange(old=old, new=new, attached=attached))

    def _see_absence(self, node: str, attached: Iterable[names.DeviceKey]) -> None:
        """Pass the absence, or the presence, of a node to the sessions with some of its devices."""
        for fabric in {key.fabric for key in attached}:
            opened = self._cluster.sessions.get(fabric)
            if opened is not None:
                gone_at = self._cluster.absences.gone_at(node, (fabric,))
                opened.update_holdings(opened.inventory.held.replace_absence(node, gone_at))

    def _daemon_changed(self, old: core.Pod | None, new: core.Pod | None) -> None:
        """Take in a change of a node daemon's pod."""
        if self._cluster.daemons.change(old, new):
            self._changes.tell(change_kinds.DaemonChange())

    def _slice_changed(self, old: slices.ResourceSlice | None, new: slices.ResourceSlice | None) -> None:
        """Take in a change of a ResourceSlice."""
        self._cluster.pools.note_change(old, new)
        for each, stored in ((old, None), (new, new)):
            fabric = fabric_state.fabric_of(each)
            opened = self._cluster.sessions.get(fabric) if fabric is not None else None
            if opened is not None and each is not None and each.spec.driver == self._cluster.driver:
                opened.update_holdings(opened.inventory.held.replace_slice(each.metadata.name, stored))
        self._changes.tell(change_kinds.SliceChange(old=old, new=new))


def _reads_the_same(old: core.Node, new: core.Node) -> bool:
    version = old.metadata.resource_version
    metadata = msgspec.structs.replace(new.metadata, resource_version=version)
    return (metadata, new.spec, new.status) == (old.metadata, old.spec, old.status)
