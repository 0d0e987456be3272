"""The reconciler of each Fabric's pools, status and finalizer, the labels of all nodes, and claims with admin access.

Each job observes the cluster again and writes only differences, so it may be added at any time.
"""

import asyncio
import functools
import logging
import random
import weakref
from collections.abc import Callable
from typing import assert_never

from drawbar.driver import containment, wording
from drawbar.driver.api import drivers, fabrics, meta
from drawbar.driver.controller import (
    adminaccess,
    damping,
    fabric_status,
    jobs,
    maintenance,
    names,
    node_labels,
)
from drawbar.driver.controller import claims as claim_index
from drawbar.driver.controller.cluster import Cluster
from drawbar.driver.controller.fabrics import connection
from drawbar.driver.controller.jobs import Job
from drawbar.driver.kube import errors as kube_errors
from drawbar.driver.kube import kinds, pacing
from drawbar.driver.operation import readiness
from drawbar.driver.slices import encoding

log = logging.getLogger(__name__)

RESYNC_SECONDS = 300.0
# This keeps Fabrics that were connected together from being published together ever after.
RESYNC_SPREAD = 0.2
# A separate field manager: an apply removes fields that its manager left out, and attachments have another one.
ADMIN_MANAGER = "drawbar-controller-admin-access"
COMPOSITES = "composites"
WEAR = "wear"
NAMED_MAX = 10


class FabricReconciler:
    """The reconciler of the jobs. Run `work()` in one or more tasks."""

    def __init__(
        self,
        cluster: Cluster,
        queue: jobs.Jobs,
        watchdog: readiness.Watchdog,
        changes: Callable[[jobs.JobDone], None],
    ) -> None:
        """Hold the parts.

        Args:
            cluster: the cluster to read and write.
            queue: the queue of the jobs.
            watchdog: reports rounds that take too long.
            changes: receives each finished job.
        """
        self._cluster = cluster
        self._jobs = queue
        self._watchdog = watchdog
        self._changes = changes
        self.labels = node_labels.NodeLabels(cluster, queue, self._attempt)
        self._status = fabric_status.FabricStatus(cluster, queue)
        # The locks of the Fabrics that are being written.
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    async def work(self) -> None:
        """Do jobs until cancelled."""
        await self._jobs.queue.run(
            self._reconcile,
            lambda key: {"job": key[0].value, "object": key[1]},
            worker="fabric-jobs",
            contained=self._cluster.contained,
            report=lambda key, failure: self._report_unexpected(*key, failure),
        )

    def _report_unexpected(self, job: Job, name: str, failure: str) -> None:
        """Emit an Event on the object of a job."""
        cluster = self._cluster
        if job is Job.ADMIN:
            namespace, _, claim_name = name.partition("/")
            claim = cluster.claims.get(claim_name, namespace)
            if claim is not None:
                cluster.recorder.record_unexpected(kinds.CLAIM, claim.metadata, failure)
        elif (fabric := cluster.fabrics.get(name)) is not None:
            cluster.recorder.record_unexpected(kinds.FABRIC, fabric.metadata, failure)

    def _attempt(self, work: str, fabric: str) -> containment.Attempt:
        """Return the context of a Fabric's part in a job that all Fabrics share."""
        return self._cluster.contained.attempt(
            work,
            fabric,
            extra=lambda: {"fabric": fabric},
            report=functools.partial(self._report_unexpected, Job.LABELS, fabric),
        )

    async def _reconcile(self, key: tuple[Job, str]) -> float | None:
        job, name = key
        again: float | None = None
        # Writes for no Fabric, or for several, have a share of their own.
        payer = "" if job in (Job.LABELS, Job.ADMIN) else name
        with self._watchdog.watching(f"{job} {name}"), pacing.writing_for(payer):
            match job:
                case Job.PUBLISH:
                    again = await self._publish(name)
                case Job.STATUS | Job.FINALIZER:
                    # One after the other: each write makes the other's view of the object stale.
                    async with self._locks.setdefault(name, asyncio.Lock()):
                        if job is Job.STATUS:
                            again = await self._status.write(name)
                        else:
                            await self._write_finalizer(name)
                case Job.ADMIN:
                    await self._write_admin_access(name)
                case Job.LABELS:
                    await self.labels.write()
                case Job.MAINTENANCE:
                    await self._write_maintenance(name)
                case _:
                    assert_never(job)
        self._changes(jobs.JobDone(job=job))
        return again

    async def _publish(self, fabric: str) -> float | None:
        self._report_composites(fabric)
        self._report_wear(fabric)
        dropped, left_out = self._cluster.pools.dropped_fields, self._cluster.pools.left_out(fabric)
        scope = self._cluster.maintenance.scope(fabric)
        try:
            again = await self._cluster.pools.publish(fabric)
        except (kube_errors.Denied, kube_errors.Invalid) as error:
            # This could not even find out the fields that the API server keeps.
            self._set_unpublished(fabric, str(error))
            raise
        except kube_errors.Conflict:
            self._set_unpublished(fabric, self._cluster.pools.find_refused(fabric))
            raise
        self._set_unpublished(fabric, self._cluster.pools.find_refused(fabric))
        self._report_withheld(fabric)
        self._report_taints(fabric)
        self._cluster.maintenance.publish(fabric, scope)
        for name in self._cluster.maintenance.names(fabric):
            self._jobs.add(Job.MAINTENANCE, name)
        if dropped != self._cluster.pools.dropped_fields:
            for view in self._cluster.sessions:
                self._jobs.add(Job.STATUS, view.name)
        if left_out != self._cluster.pools.left_out(fabric):
            self._jobs.add(Job.STATUS, fabric)
        late = self._cluster.placed.overdue_after(fabric, self._cluster.clock())
        if self._cluster.fabrics.get(fabric) is None:
            return None
        spread = random.uniform(1.0 - RESYNC_SPREAD, 1.0)  # noqa: S311 - spreads resyncs, guards nothing
        moments = (again, self._grace_left(fabric), late, RESYNC_SECONDS * spread)
        return min(moment for moment in moments if moment is not None)

    def _grace_left(self, name: str) -> float | None:
        """Return the seconds until the manager's silence shows in its pools, or None if it shows, or there is none."""
        view = self._cluster.sessions.get(name)
        if view is None or view.manager.silent_since is None:
            return None
        left = view.spec.policy.unreachable_grace_seconds - view.silent_seconds
        return max(left, damping.LOOK_AGAIN_SECONDS) if left > 0 else None

    def grace_seconds(self, fabric: str) -> float:
        """Return the seconds until a change of the connection shows in the pools: few, or the rest of the silence's grace."""
        view = self._cluster.sessions.get(fabric)
        if view is None or view.manager.silent_since is None:
            return jobs.GATHER_SECONDS
        return max(jobs.GATHER_SECONDS, view.spec.policy.unreachable_grace_seconds - view.silent_seconds)

    def _report_wear(self, fabric: str) -> None:
        view = self._cluster.sessions.get(fabric)
        if view is None:
            return
        limit = view.spec.policy.erases_per_device_per_day
        resting = sorted(view.erasures.find_exhausted(limit, self._cluster.clock()))
        trouble = (
            f"erased {limit} times within a day and resting: {wording.join_some(resting, NAMED_MAX)}; find the claims that "
            "take and return them, or raise policy.erasesPerDevicePerDay"
        )
        view.report(WEAR, trouble if resting else "")

    def _report_composites(self, fabric: str) -> None:
        view = self._cluster.sessions.get(fabric)
        if view is not None:
            arranged = self._cluster.composites(fabric)
            view.report(COMPOSITES, "; ".join(arranged.problems) if arranged is not None else "")

    def _report_withheld(self, fabric: str) -> None:
        view, withheld = self._cluster.sessions.get(fabric), self._cluster.pools.withheld(fabric)
        if view is None:
            return
        limit = view.spec.policy.limits.slices
        view.report(
            connection.SLICES,
            f"{withheld.devices} devices are not published: their pools would be {len(withheld.pools)} more ResourceSlices "
            f"than the {limit} of spec.policy.limits.slices; raise it (kubectl edit fabric {fabric})"
            if withheld is not None
            else "",
        )

    def _report_taints(self, fabric: str) -> None:
        """Keep whether each published device has a taint that keeps further claims away."""
        view, published = self._cluster.sessions.get(fabric), self._cluster.pools.in_fabric(fabric)
        is_all_tainted = encoding.is_all_closed(published)
        if view is not None and view.is_all_tainted != is_all_tainted:
            view.is_all_tainted = is_all_tainted
            self._jobs.add(Job.STATUS, fabric)

    def _set_unpublished(self, fabric: str, refused: str) -> None:
        self._cluster.refusals.record(fabric, "ResourceSlices", refused)
        view = self._cluster.sessions.get(fabric)
        if view is not None and view.unpublished != refused:
            view.unpublished = refused
            self._jobs.add(Job.STATUS, fabric)

    async def _write_finalizer(self, name: str) -> None:
        """Keep a Fabric's finalizer while something is attached through it."""
        fabric = self._cluster.fabrics.get(name)
        if fabric is None:
            return
        wanted = not fabric.deleting or self._cluster.placed.has(name)
        finalizers = fabric.metadata.finalizers
        if wanted == (fabrics.FINALIZER in finalizers) or (wanted and fabric.deleting):
            return
        remaining = [finalizer for finalizer in finalizers if finalizer != fabrics.FINALIZER]
        metadata = {
            "uid": fabric.metadata.uid,
            "resourceVersion": fabric.metadata.resource_version,
            "finalizers": [*remaining, fabrics.FINALIZER] if wanted else remaining,
        }
        with self._cluster.refusals.attempt((name,), f"finalizer of Fabric {name}"):
            await self._cluster.fabrics.merge(fabric, {"metadata": metadata}, manager=self._cluster.manager)

    async def _write_admin_access(self, claim_name: str) -> None:
        """Write on a claim with admin access whether its devices are on its node."""
        namespace, _, name = claim_name.partition("/")
        claim, subject = self._cluster.claims.get(name, namespace), f"claim {claim_name}"
        if claim is None:
            self._cluster.refusals.drop(subject)
            return
        observed = {
            key: self._cluster.attachments.get(key.attachment)
            for key in claim_index.list_observed_devices(claim, self._cluster.driver)
        }
        body = adminaccess.build_apply(
            claim, self._cluster.driver, observed, meta.timestamp(self._cluster.time_of_day())
        )
        if body is None:
            self._cluster.refusals.drop(subject)
            return
        with self._cluster.refusals.attempt({key.fabric for key in observed}, subject):
            manager = drivers.manager(ADMIN_MANAGER, self._cluster.driver)
            await self._cluster.apply_to_claim(claim, body, manager=manager)

    async def _write_maintenance(self, name: str) -> None:
        """Write on a Maintenance whether it is in effect, once the pools show it."""
        item = self._cluster.maintenances.get(name)
        if item is None:
            return
        fabric, view = item.spec.fabric, self._cluster.sessions.get(item.spec.fabric)
        listed = None
        if view is not None and view.has_listing:
            arranged = self._cluster.composites(fabric)
            devices = {label for device in view.devices for label in (device.id, names.label(device.id))}
            devices |= arranged.members.keys() if arranged is not None else set()
            if not self._cluster.maintenance.is_published(item):
                return  # to be written after the next publication
            listed = maintenance.ListedNames(devices=devices, nodes=view.nodes.host_of)
        has_fabric = self._cluster.fabrics.get(fabric) is not None
        wanted = maintenance.status(item, listed, has_fabric=has_fabric, now=self._cluster.time_of_day())
        if wanted != item.status:
            document = maintenance.document(item, wanted)
            await self._cluster.maintenances.apply(
                item, document, manager=self._cluster.manager, subresource="status"
            )
