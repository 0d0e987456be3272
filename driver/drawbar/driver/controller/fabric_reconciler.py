"""Reconciles pools, statuses and finalizers of each Fabric, the labels of all nodes, and claims with admin access.

Each job observes everything anew and writes only what differs, so it may be added as often as one likes; adding it twice
before it is done is adding it once.
"""

import asyncio
import datetime
import functools
import logging
import math
import random
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import assert_never

from drawbar.driver import containment
from drawbar.driver.api import drivers, fabrics, meta
from drawbar.driver.controller import (
    adminaccess,
    daemons,
    damping,
    hosts,
    labels,
    maintenance,
    marks,
    names,
    outcomes,
    policies,
    reach,
    routing,
)
from drawbar.driver.controller import claims as claim_index
from drawbar.driver.controller.cluster import Cluster
from drawbar.driver.controller.fabrics import session, status
from drawbar.driver.controller.offers import group
from drawbar.driver.controller.routing import Job
from drawbar.driver.kube import client, kinds, workers
from drawbar.driver.kube import errors as kube_errors
from drawbar.driver.operation import readiness
from drawbar.fabric import contract

log = logging.getLogger(__name__)

# A node daemon may publish the pools that begin with its node's name.
NAMESAKE = (
    "the node {name} has the name of this Fabric, so its daemon could publish in the Fabric's pools; make the Fabric anew "
    "by another name"
)
# The labels look at every node: at 5,000 nodes once a second at most.
GATHER_SECONDS_PER_NODE = 0.0002
# And the pools at every device of their fabric: at 10,000 devices once a second at most.
GATHER_SECONDS_PER_DEVICE = 0.0001
RESYNC_SECONDS = 300.0
# Fabrics that were connected together are not published together ever after.
RESYNC_SPREAD = 0.2
LOOK_AGAIN_SECONDS = 0.1
# After the labels of a Fabric could not be judged.
FAILED_LABELS_SECONDS = 30.0
# What refuses one node's labels may refuse all; the next round begins with nodes that were not refused.
REFUSED_NODES_MAX = 10
# A manager whose hosts or devices keep changing has its Fabric's status written so often, after so many writes at once.
STATUS_SECONDS, STATUS_BURST = 2.0, 10
# A field manager of its own: an apply takes back what its manager left out, and attachments are written under another.
ADMIN_MANAGER = "drawbar-controller-admin-access"


_NODE = "node "
COMPOSITES = "composites"
REACH, CROWDED = "reachability", "reachability groups"
WEAR = "wear"
NAMED_MAX = 10


class FabricReconciler:
    """The jobs and their queue. Run `work()` in one or more tasks."""

    def __init__(self, cluster: Cluster, watchdog: readiness.Watchdog) -> None:
        self._cluster = cluster
        self._watchdog = watchdog
        # Of the Fabrics that are being written.
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        # By Fabric: when its status may be written next, were there no burst; on the event loop's clock.
        self._status_due: dict[str, float] = {}
        # Called after each job.
        self.done: Callable[[Job], None] | None = None
        self._queue: workers.WorkQueue[tuple[Job, str]] = workers.WorkQueue()
        # By Fabric and node: whether the node is offered.
        self._damper: damping.Damper[tuple[str, str]] = damping.Damper()

    def add(self, job: Job, fabric: str = "", *, after: float = 0.0) -> None:
        """Add a job, to be done now or after some seconds."""
        if job is Job.LABELS and after:
            after += GATHER_SECONDS_PER_NODE * len(self._cluster.nodes)
        view = self._cluster.sessions.get(fabric) if job is Job.PUBLISH and after else None
        if view is not None:
            after += GATHER_SECONDS_PER_DEVICE * view.count
        if after:
            self._queue.add_after((job, fabric), after)
        else:
            self._queue.add((job, fabric))

    @property
    def waiting(self) -> int:
        """How many jobs wait to be done."""
        return len(self._queue)

    async def work(self) -> None:
        """Do jobs until cancelled."""
        await self._queue.run(
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
                cluster.recorder.unexpected(kinds.CLAIM, claim.metadata, failure)
        elif (fabric := cluster.fabrics.get(name)) is not None:
            cluster.recorder.unexpected(kinds.FABRIC, fabric.metadata, failure)

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
        # What is written of no Fabric, or of several, has a share of its own.
        payer = "" if job in (Job.LABELS, Job.ADMIN) else name
        with self._watchdog.watching(f"{job} {name}"), client.writing_for(payer):
            match job:
                case Job.PUBLISH:
                    again = await self._publish(name)
                case Job.STATUS | Job.FINALIZER:
                    # One after the other: each makes what the other has seen of the object stale.
                    async with self._locks.setdefault(name, asyncio.Lock()):
                        if job is Job.STATUS:
                            again = await self._write_status(name)
                        else:
                            await self._write_finalizer(name)
                case Job.ADMIN:
                    await self._write_admin_access(name)
                case Job.LABELS:
                    await self._write_labels()
                case Job.MAINTENANCE:
                    await self._write_maintenance(name)
                case _:
                    assert_never(job)
        if self.done is not None:
            self.done(job)
        return again

    async def _publish(self, fabric: str) -> float | None:
        self._report_composites(fabric)
        self._report_wear(fabric)
        dropped, left_out = self._cluster.pools.dropped_fields, self._cluster.pools.left_out(fabric)
        scope = self._cluster.maintenance.scope(fabric)
        try:
            again = await self._cluster.pools.publish(fabric)
        except (kube_errors.Denied, kube_errors.Invalid) as error:
            # It could not even be found out what the API server keeps.
            self._set_unpublished(fabric, str(error))
            raise
        except kube_errors.Conflict:
            self._set_unpublished(fabric, self._cluster.pools.refused(fabric))
            raise
        self._set_unpublished(fabric, self._cluster.pools.refused(fabric))
        self._report_withheld(fabric)
        self._cluster.maintenance.publish(fabric, scope)
        for name in self._cluster.maintenance.names(fabric):
            self.add(Job.MAINTENANCE, name)
        if dropped != self._cluster.pools.dropped_fields:
            for view in self._cluster.sessions:
                self.add(Job.STATUS, view.name)
        if left_out != self._cluster.pools.left_out(fabric):
            self.add(Job.STATUS, fabric)
        late = self._cluster.placed.overdue_after(fabric, self._cluster.clock())
        if self._cluster.fabrics.get(fabric) is None:
            return None
        spread = random.uniform(1.0 - RESYNC_SPREAD, 1.0)  # noqa: S311 - spreads resyncs, guards nothing
        moments = (again, self._grace_left(fabric), late, RESYNC_SECONDS * spread)
        return min(moment for moment in moments if moment is not None)

    def _grace_left(self, name: str) -> float | None:
        """Return the seconds until the silence of the manager shows in its pools; None if it shows, or there is none."""
        view = self._cluster.sessions.get(name)
        if view is None or view.silent_since is None:
            return None
        left = view.spec.policy.unreachable_grace_seconds - view.silent_seconds
        # A timer may fire a little early, and the rest would be asked for again and again.
        return max(left, LOOK_AGAIN_SECONDS) if left > 0 else None

    def grace_seconds(self, fabric: str) -> float:
        """Return the seconds until a change of the connection shows in the pools: at once, or once the silence has lasted."""
        view = self._cluster.sessions.get(fabric)
        if view is None or view.silent_since is None:
            return routing.GATHER_SECONDS
        return max(routing.GATHER_SECONDS, view.spec.policy.unreachable_grace_seconds - view.silent_seconds)

    def _report_wear(self, fabric: str) -> None:
        view = self._cluster.sessions.get(fabric)
        if view is None:
            return
        limit = view.spec.policy.erases_per_device_per_day
        resting = sorted(view.erasures.over(limit, self._cluster.clock()))
        further = f" and {len(resting) - NAMED_MAX} more" if len(resting) > NAMED_MAX else ""
        trouble = (
            f"erased {limit} times within a day and resting: {', '.join(resting[:NAMED_MAX])}{further}; find the claims that "
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
            session.SLICES,
            f"{withheld.devices} devices are not published: their pools would be {len(withheld.pools)} more ResourceSlices "
            f"than the {limit} of spec.policy.limits.slices; raise it (kubectl edit fabric {fabric})"
            if withheld is not None
            else "",
        )

    def _set_unpublished(self, fabric: str, refused: str) -> None:
        self._cluster.refusals.record(fabric, "ResourceSlices", refused)
        view = self._cluster.sessions.get(fabric)
        if view is not None and view.unpublished != refused:
            view.unpublished = refused
            self.add(Job.STATUS, fabric)

    async def _write_status(self, name: str) -> float | None:
        """Write the status if it is another; return the seconds to wait first if it was written too often lately."""
        fabric, view = self._cluster.fabrics.get(name), self._cluster.sessions.get(name)
        if fabric is None or view is None:
            return None
        wanted = status.status(
            fabric,
            replace(
                view.view,
                troubles=self._troubles(fabric),
                contradicted=any(self._contradicted(name)),
                refused=self._cluster.refusals.message(name),
                incompatible=self._incompatible(fabric, view),
                not_offered=len(self._cluster.pools.not_offered(name)),
                reach_groups=self._summary(view),
            ),
            dropped_fields=self._cluster.pools.dropped_fields,
            attached=self._cluster.placed.attached(name),
            now=self._cluster.time_of_day(),
        )
        if wanted == fabric.status:
            return None
        now = asyncio.get_running_loop().time()
        due = max(self._status_due.get(name, -math.inf), now - STATUS_BURST * STATUS_SECONDS)
        if due > now:
            return due - now
        self._status_due[name] = due + STATUS_SECONDS
        document = status.document(fabric, wanted)
        await self._cluster.fabrics.apply(
            fabric, document, manager=self._cluster.manager, subresource="status"
        )
        return None

    async def _write_finalizer(self, name: str) -> None:
        """Keep a Fabric while something is attached through it."""
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
        """Write on a claim with admin access whether its devices are where it is."""
        namespace, _, name = claim_name.partition("/")
        claim, subject = self._cluster.claims.get(name, namespace), f"claim {claim_name}"
        if claim is None:
            self._cluster.refusals.settled(subject)
            return
        observed = {
            key: self._cluster.attachments.get(key.attachment)
            for key in claim_index.observed_devices(claim, self._cluster.driver)
        }
        body = adminaccess.applied(
            claim, self._cluster.driver, observed, meta.timestamp(self._cluster.time_of_day())
        )
        if body is None:
            self._cluster.refusals.settled(subject)
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
        if view is not None and view.listed:
            arranged = self._cluster.composites(fabric)
            devices = {label for device in view.devices for label in (device.id, names.label(device.id))}
            devices |= arranged.members.keys() if arranged is not None else set()
            if not self._cluster.maintenance.is_published(item):
                return  # to be written after the next publication
            listed = maintenance.Listed(devices=devices, nodes=view.nodes.host_of)
        has_fabric = self._cluster.fabrics.get(fabric) is not None
        wanted = maintenance.status(item, listed, has_fabric=has_fabric, now=self._cluster.time_of_day())
        if wanted != item.status:
            document = maintenance.document(item, wanted)
            await self._cluster.maintenances.apply(
                item, document, manager=self._cluster.manager, subresource="status"
            )

    async def _write_labels(self) -> None:
        value = drivers.label_value(self._cluster.driver)
        # The labels of a Fabric that cannot be judged stay.
        reached: dict[str, frozenset[str] | None] = {}
        related: dict[str, reach.NodeLabels] = {}
        for view in self._cluster.sessions:
            reached[view.name] = None
            with self._attempt("labels", view.name) as attempt:
                reached[view.name] = self._judge_labels(view, value)
                related[view.name] = self._relate(view) if view.listed else reach.NodeLabels()
            if attempt.failure:
                self.add(Job.LABELS, after=FAILED_LABELS_SECONDS)
        there = {
            view.name: set(view.nodes.remembered.values()) if reached[view.name] is not None else None
            for view in self._cluster.sessions
        }
        self._damper.retain(lambda key: (hosts_of := there.get(key[0], set())) is None or key[1] in hosts_of)
        self._status_due = {name: due for name, due in self._status_due.items() if name in there}
        further = self._closed()
        for by_node in (by_node for each in related.values() for by_node in (each.reached, each.closed)):
            for node, of_node in by_node.items():
                further.setdefault(node, set()).update(of_node)
        changes = labels.plan(self._cluster.nodes, reached, further, value=value)
        self._cluster.refusals.retain(_NODE, {_NODE + change.node for change in changes})
        limited = {
            view.name: [rule.model for rule in view.spec.policy.models] for view in self._cluster.sessions
        }
        by_fabric: dict[tuple[str, ...], list[labels.Change]] = {}
        for change in sorted(
            changes, key=lambda planned: self._cluster.refusals.is_refused(_NODE + planned.node)
        ):
            by_fabric.setdefault(labels.concerned(change, limited), []).append(change)
        refused: list[kube_errors.KubeError] = []
        async with asyncio.TaskGroup() as tasks:
            # One Fabric that has many changes must not keep the others from theirs.
            for concerned, planned in by_fabric.items():
                tasks.create_task(
                    self._label_all(concerned, planned, refused), name=f"labels-{','.join(concerned)}"
                )
        if refused:
            raise refused[0]

    def _relate(self, view: session.Session) -> reach.NodeLabels:
        """Return which of the Fabric's nodes reach which devices; report the devices that no host reaches."""
        arranged = self._cluster.composites(view.name)
        members = arranged.members if arranged is not None else {}
        probation = datetime.timedelta(seconds=view.spec.policy.probation_seconds)
        refused = view.pairs.ends(probation, self._cluster.clock())
        devices = {names.label(device.id): device for device in view.devices}
        composed = [
            group.composed(name, listed)
            for name, of_composite in members.items()
            if (listed := [devices[member] for member in of_composite if member in devices])
        ]
        related = reach.node_labels(
            view.name,
            (device.reach_groups for device in (*devices.values(), *composed)),
            view.hosts,
            view.nodes.remembered,
            refusing=reach.refusing_hosts(refused, members).values(),
            published=[published.spec.pool.name for published in self._cluster.pools.in_fabric(view.name)],
        )
        fabric, shown = self._cluster.fabrics.get(view.name), self._summary(view)
        if fabric is not None and fabric.status.reach_groups != shown:
            self.add(Job.STATUS, view.name, after=routing.GATHER_SECONDS)
        view.report(REACH, reach.find_stranded(view.devices, view.hosts))
        view.report(CROWDED, reach.describe_crowded(related.crowded))
        return related

    @staticmethod
    def _summary(view: session.Session) -> tuple[fabrics.ReachGroup, ...]:
        """Return the reachability groups for the status."""
        return reach.summarise(view.devices, view.hosts, view.nodes.remembered)

    def _judge_labels(self, view: session.Session, value: str) -> frozenset[str] | None:
        """Map a Fabric's hosts, and report its labels; return the nodes with room, or None if it was never listed."""
        self.map(view.name)
        mapped = [node for name in sorted(view.nodes.host_of) if (node := self._cluster.nodes.get(name))]
        models = [rule.model for rule in view.spec.policy.models]
        view.report("node labels", "; ".join(labels.foreign(mapped, view.name, models, value=value)))
        namesake = self._cluster.nodes.get(view.name) is not None
        view.report("its name", NAMESAKE.format(name=view.name) if namesake else "")
        return self._steady(view, self._with_room(view)) if view.listed else None

    async def _label_all(
        self, concerned: tuple[str, ...], changes: list[labels.Change], refused: list[kube_errors.KubeError]
    ) -> None:
        """Write the labels that concern the same Fabrics, until the API server answers no more or has refused many."""
        with client.writing_for(concerned[0] if len(concerned) == 1 else ""):
            for change in changes:
                attempt = self._cluster.contained.attempt(
                    "labels",
                    (concerned, change.node),
                    extra=functools.partial(_about_node, change.node),
                    expected=kube_errors.KubeError,
                )
                try:
                    with attempt:
                        await self._label(change, concerned)
                    if attempt.failure:
                        self.add(Job.LABELS, after=FAILED_LABELS_SECONDS)
                except (kube_errors.Denied, kube_errors.Invalid) as error:
                    # One node that may not be labelled must not keep the others from their labels.
                    refused.append(error)
                    if len(refused) >= REFUSED_NODES_MAX:
                        return
                except kube_errors.KubeError as error:
                    refused.append(error)
                    return

    async def _label(self, change: labels.Change, concerned: tuple[str, ...]) -> None:
        node = self._cluster.nodes.get(change.node)
        if node is None:
            return
        body = {"metadata": {"labels": change.labels}}
        with self._cluster.refusals.attempt(concerned, _NODE + change.node):
            await self._cluster.nodes.merge(node, body, manager=self._cluster.manager)

    def _steady(self, view: session.Session, offered: frozenset[str]) -> frozenset[str]:
        """Return the offered nodes whose label is not held back because it came and went too often."""
        now, steady = asyncio.get_running_loop().time(), set[str]()
        for node in view.nodes.remembered.values():
            key, good = (view.name, node), node in offered
            if good and key not in self._damper:
                steady.add(node)
                continue
            attached = self._cluster.placed.on(node)
            work = frozenset(
                attachment.metadata.uid for attachment in attached if attachment.spec.fabric == view.name
            )
            if self._damper.look(key, good=good, now=now, work=work):
                steady.add(node)
        held = {
            node: seconds for (name, node), seconds in self._damper.held(now).items() if name == view.name
        }
        if held:
            self.add(Job.LABELS, after=min(held.values()) + LOOK_AGAIN_SECONDS)
        view.report("unsteady nodes", labels.held_back(sorted(held)))
        return frozenset(steady)

    def map(self, fabric_name: str) -> None:
        """Map the fabric's hosts to nodes, and add the jobs that depend on a change of that."""
        view = self._cluster.sessions.get(fabric_name)
        if view is None or not view.listed:
            return
        fabric = self._cluster.fabrics.get(fabric_name)
        # When this controller has just begun, another one mapped them; what is attached shows that too.
        held = view.nodes.remembered or (hosts.from_status(fabric) if fabric is not None else {})
        held = held or {
            attachment.spec.host_id: attachment.spec.node_name
            for attachment in self._cluster.placed.in_fabric(fabric_name)
        }
        mapped = hosts.node_map(view.spec, view.hosts, self._cluster.nodes, held)
        if mapped != view.nodes:
            view.nodes = mapped
            self.add(Job.STATUS, fabric_name, after=routing.GATHER_SECONDS)
            self.add(Job.LABELS, after=routing.GATHER_SECONDS)

    def _closed(self) -> dict[str, set[str]]:
        """By node name the labels of the models that it may have no more of."""
        closed: dict[str, set[str]] = {}
        for fabric in self._cluster.fabrics:
            name, rules = fabric.metadata.name, fabric.spec.policy.models
            if rules:
                attached = policies.models_by_node(self._cluster.placed.in_fabric(name))
                for node, models in policies.closed(rules, attached).items():
                    closed.setdefault(node, set()).update(names.closed_label(name, model) for model in models)
        return closed

    def _with_room(self, view: session.Session) -> frozenset[str]:
        """Return the nodes that can take one more device, and are neither at fault nor in maintenance."""
        fabric = self._cluster.fabrics.get(view.name)
        blamed = _blamed(self._cluster, fabric) if fabric is not None else {}
        for until in blamed.values():
            self.add(Job.LABELS, after=max(1.0, (until - self._cluster.clock()).total_seconds()))
        living = self._living(view).difference(self._cluster.maintenance.scope(view.name).nodes)
        return frozenset(
            node for node in view.nodes.with_room if view.nodes.host_of[node] not in blamed and node in living
        )

    def _living(self, view: session.Session) -> frozenset[str]:
        """Return the fabric's nodes whose daemon is alive; report the others, and look again when a fading one's grace ends."""
        now, label = self._cluster.clock(), names.node_label(view.name)
        living, silent = set(), []
        for name in sorted(view.nodes.host_of):
            node = self._cluster.nodes.get(name)
            state = self._cluster.daemons.look(node, now) if node is not None else daemons.State.NODE_DOWN
            if state is daemons.State.SILENT:
                silent.append(name)
            elif state is daemons.State.FADING:
                self.add(Job.LABELS, after=self._cluster.daemons.grace_left(name, now) + LOOK_AGAIN_SECONDS)
            offered = node is not None and label in node.metadata.labels
            if state is daemons.State.ALIVE or (state is daemons.State.FADING and offered):
                living.add(name)
        view.report("node daemons", daemons.trouble(silent))
        return frozenset(living)

    def _troubles(self, fabric: fabrics.Fabric) -> tuple[str, ...]:
        view = self._cluster.sessions.get(fabric.metadata.name)
        left_out = self._cluster.pools.left_out(fabric.metadata.name)
        sentences = []
        if view is not None:
            blamed = _blamed(self._cluster, fabric)
            for host in sorted(self._suspects(fabric, view) - blamed.keys()):
                failed = ", ".join(view.faults.devices_on(host))
                sentences.append(
                    f"host {host} may be at fault: attaches of {failed} failed there, for claims of one namespace; it is "
                    "offered until another namespace confirms it; look at its ports"
                )
            for host in sorted(blamed):
                failed = ", ".join(view.faults.devices_on(host))
                sentences.append(
                    f"host {host} is avoided: attaches of {failed} failed there; look at its ports"
                )
            sentences += self._contradictions(fabric.metadata.name)
            sentences += self._stranded(view)
            sentences += view.troubles.values()
            limited = [view.troubles[subject] for subject in session.LIMITED if subject in view.troubles]
            # The message is cut, and they are the reason of the condition.
            sentences = list(dict.fromkeys((*limited, *sentences)))
        if fabric.metadata.annotations.get(fabrics.GIVE_UP_ANNOTATION) is not None and not fabric.given_up:
            sentences.append(status.GIVING_UP)
        if left_out:
            sentences.append(f"there is no room for all taints of {', '.join(left_out)}: the worst stand")
        return tuple(sentences)

    def _contradicted(self, fabric: str) -> Iterator[str]:
        """Yield the fabric manager's ids of the devices whose connections it does not show."""
        for attachment in self._cluster.placed.in_fabric(fabric):
            if not attachment.deleting and outcomes.contradiction(attachment) is not None:
                yield attachment.device_id

    def _contradictions(self, fabric: str) -> Iterator[str]:
        devices = sorted(self._contradicted(fabric))
        if devices:
            listed = ", ".join(devices[:NAMED_MAX]) + (", …" if len(devices) > NAMED_MAX else "")
            count = f"{len(devices)} attached device{'s' if len(devices) > 1 else ''}"
            yield (
                f"the fabric manager no longer shows the connection of {count} ({listed}): did it lose its state, or did "
                "another client move them? The condition Attached of each DeviceAttachment says more"
            )

    def _suspects(self, fabric: fabrics.Fabric, view: session.Session) -> frozenset[str]:
        probation = datetime.timedelta(seconds=fabric.spec.policy.probation_seconds)
        return view.faults.suspects(probation, self._cluster.clock())

    def _incompatible(
        self, fabric: fabrics.Fabric, view: session.Session
    ) -> tuple[fabrics.IncompatiblePair, ...]:
        """Return the pairs that are not tried now, and look again when the first of them may be."""
        probation, now = (
            datetime.timedelta(seconds=fabric.spec.policy.probation_seconds),
            self._cluster.clock(),
        )
        ends = view.pairs.ends(probation, now).values()
        if ends:
            seconds = max(1.0, (min(ends) - now).total_seconds())
            self.add(Job.STATUS, fabric.metadata.name, after=seconds)
            self.add(Job.LABELS, after=seconds)
        return view.pairs.reported(probation, now)

    def _stranded(self, view: session.Session) -> tuple[str, ...]:
        def recorded(device: contract.Device) -> bool:
            key = names.DeviceKey(fabric=view.name, device=names.label(device.id))
            return self._cluster.attachments.get(key.attachment) is not None

        # While nothing is mapped yet, everything would look stranded.
        if not view.nodes.host_of:
            return ()
        mapped = set(view.nodes.host_of.values())
        return marks.stranded(view.devices, view.mark, recorded=recorded, mapped=mapped)


def _blamed(cluster: Cluster, fabric: fabrics.Fabric) -> dict[str, datetime.datetime]:
    """Return the hosts at fault, each with the moment until which it is avoided."""
    view = cluster.sessions.get(fabric.metadata.name)
    probation = datetime.timedelta(seconds=fabric.spec.policy.probation_seconds)
    return view.faults.blamed(probation, cluster.clock()) if view is not None else {}


def _about_node(name: str) -> dict[str, object]:
    return {"node": name}
