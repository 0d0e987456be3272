"""The writer of all node labels: the Fabrics that reach a node, and the models and devices that are closed to it."""

import asyncio
import datetime
import functools
from collections.abc import Callable

from drawbar.driver import containment
from drawbar.driver.api import drivers, fabrics
from drawbar.driver.controller import daemons, damping, hosts, jobs, labels, names, policies, reach
from drawbar.driver.controller.cluster import Cluster
from drawbar.driver.controller.fabrics import session
from drawbar.driver.controller.jobs import Job
from drawbar.driver.controller.offers import group
from drawbar.driver.kube import errors as kube_errors
from drawbar.driver.kube import pacing

# A node daemon may publish the pools that begin with its node's name.
NAMESAKE = (
    "the node {name} has the name of this Fabric, so its daemon could publish in the Fabric's pools; delete this Fabric and create "
    "it with another name"
)
# The pause after the labels of a Fabric could not be judged.
FAILED_SECONDS = 30.0
# A refusal of one node's labels may hold for all nodes; the next round begins with nodes that were not refused.
REFUSED_NODES_MAX = 10
REACH, CROWDED = "reachability", "reachability groups"
_NODE = "node "


class NodeLabels:
    """The writer of the labels."""

    def __init__(
        self, cluster: Cluster, queue: jobs.Jobs, attempt: Callable[[str, str], containment.Attempt]
    ) -> None:
        """Hold the parts.

        Args:
            cluster: the cluster with the nodes and the sessions.
            queue: the queue for jobs that a round needs.
            attempt: returns the context of a Fabric's part in the round.
        """
        self._cluster = cluster
        self._jobs = queue
        self._attempt = attempt
        # By Fabric and node: whether the node is offered.
        self._damper: damping.Damper[tuple[str, str]] = damping.Damper()

    async def write(self) -> None:
        """Write the labels that differ.

        Raises:
            kube_errors.KubeError: one of them was not written; all others were tried.
        """
        value = drivers.label_value(self._cluster.driver)
        # If a Fabric's labels cannot be judged, they stay.
        reached: dict[str, frozenset[str] | None] = {}
        related: dict[str, reach.NodeLabels] = {}
        for view in self._cluster.sessions:
            reached[view.name] = None
            with self._attempt("labels", view.name) as attempt:
                reached[view.name] = self._judge_labels(view, value)
                related[view.name] = self._relate(view) if view.has_listing else reach.NodeLabels()
            if attempt.failure:
                self._jobs.add(Job.LABELS, after=FAILED_SECONDS)
        there = {
            view.name: set(view.nodes.remembered.values()) if reached[view.name] is not None else None
            for view in self._cluster.sessions
        }
        self._damper.retain(lambda key: (hosts_of := there.get(key[0], set())) is None or key[1] in hosts_of)
        further = self._index_closed_labels()
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
            by_fabric.setdefault(labels.select_fabrics(change, limited), []).append(change)
        refused: list[kube_errors.KubeError] = []
        async with asyncio.TaskGroup() as tasks:
            # A Fabric with many changes must not delay the others.
            for concerned, planned in by_fabric.items():
                tasks.create_task(
                    self._label_all(concerned, planned, refused), name=f"labels-{','.join(concerned)}"
                )
        if refused:
            raise refused[0]

    def _relate(self, view: session.Session) -> reach.NodeLabels:
        """Return the labels for the nodes' reachable devices; report the devices that no host reaches."""
        arranged = self._cluster.composites(view.name)
        members = arranged.members if arranged is not None else {}
        probation = datetime.timedelta(seconds=view.spec.policy.probation_seconds)
        refused = view.pairs.ends(probation, self._cluster.clock())
        devices = {names.label(device.id): device for device in view.devices}
        composed = [
            group.compose(name, listed)
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
        fabric, shown = self._cluster.fabrics.get(view.name), summarise(view)
        if fabric is not None and fabric.status.reach_groups != shown:
            self._jobs.add(Job.STATUS, view.name, after=jobs.GATHER_SECONDS)
        view.report(REACH, reach.find_stranded(view.devices, view.hosts))
        view.report(CROWDED, reach.describe_crowded(related.crowded))
        return related

    def _judge_labels(self, view: session.Session, value: str) -> frozenset[str] | None:
        """Map a Fabric's hosts, and report its labels; return the nodes with room, or None if it was never listed."""
        self.map(view.name)
        mapped = [node for name in sorted(view.nodes.host_of) if (node := self._cluster.nodes.get(name))]
        models = [rule.model for rule in view.spec.policy.models]
        view.report("node labels", "; ".join(labels.foreign(mapped, view.name, models, value=value)))
        namesake = self._cluster.nodes.get(view.name) is not None
        view.report("its name", NAMESAKE.format(name=view.name) if namesake else "")
        return self._steady(view, self._find_room(view)) if view.has_listing else None

    async def _label_all(
        self, concerned: tuple[str, ...], changes: list[labels.Change], refused: list[kube_errors.KubeError]
    ) -> None:
        """Write the labels of the same Fabrics, until the API server stops answering or has refused many."""
        with pacing.writing_for(concerned[0] if len(concerned) == 1 else ""):
            for change in changes:
                attempt = self._cluster.contained.attempt(
                    "labels",
                    (concerned, change.node),
                    extra=functools.partial(_describe_node, change.node),
                    expected=kube_errors.KubeError,
                )
                try:
                    with attempt:
                        await self._label(change, concerned)
                    if attempt.failure:
                        self._jobs.add(Job.LABELS, after=FAILED_SECONDS)
                except (kube_errors.Denied, kube_errors.Invalid) as error:
                    # A node whose labels are refused must not keep the others from theirs.
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
        """Return the offered nodes, without those whose unstable label is held back."""
        now, steady = asyncio.get_running_loop().time(), set[str]()
        for node in view.nodes.remembered.values():
            key, good = (view.name, node), node in offered
            if good and key not in self._damper:
                steady.add(node)
                continue
            attached = self._cluster.placed.list_on(node)
            work = frozenset(
                attachment.metadata.uid for attachment in attached if attachment.spec.fabric == view.name
            )
            if self._damper.look(key, good=good, now=now, work=work):
                steady.add(node)
        held = {
            node: seconds
            for (name, node), seconds in self._damper.find_held_back(now).items()
            if name == view.name
        }
        if held:
            self._jobs.add(Job.LABELS, after=min(held.values()) + damping.LOOK_AGAIN_SECONDS)
        view.report("unsteady nodes", labels.describe_unstable_nodes(sorted(held)))
        return frozenset(steady)

    def map(self, fabric_name: str) -> None:
        """Map the fabric's hosts to nodes, and add the jobs that depend on a change of the map."""
        view = self._cluster.sessions.get(fabric_name)
        if view is None or not view.has_listing:
            return
        fabric = self._cluster.fabrics.get(fabric_name)
        # Before this controller began, another one mapped the hosts; attached devices show that too.
        held = view.nodes.remembered or (hosts.from_status(fabric) if fabric is not None else {})
        held = held or {
            attachment.spec.host_id: attachment.spec.node_name
            for attachment in self._cluster.placed.in_fabric(fabric_name)
        }
        mapped = hosts.node_map(view.spec, view.hosts, self._cluster.nodes, held)
        if mapped != view.nodes:
            view.map(mapped)
            self._jobs.add(Job.STATUS, fabric_name, after=jobs.GATHER_SECONDS)
            self._jobs.add(Job.LABELS, after=jobs.GATHER_SECONDS)

    def _index_closed_labels(self) -> dict[str, set[str]]:
        """Return, by node name, the labels of the models that the node may have no more of."""
        closed: dict[str, set[str]] = {}
        for fabric in self._cluster.fabrics:
            name, rules = fabric.metadata.name, fabric.spec.policy.models
            if rules:
                attached = policies.models_by_node(self._cluster.placed.in_fabric(name))
                for node, models in policies.find_closed_models(rules, attached).items():
                    closed.setdefault(node, set()).update(
                        names.make_closed_label(name, model) for model in models
                    )
        return closed

    def _find_room(self, view: session.Session) -> frozenset[str]:
        """Return the nodes that can take one more device, without those at fault or in maintenance."""
        fabric = self._cluster.fabrics.get(view.name)
        blamed = find_faulty_hosts(self._cluster, fabric) if fabric is not None else {}
        for until in blamed.values():
            self._jobs.add(Job.LABELS, after=max(1.0, (until - self._cluster.clock()).total_seconds()))
        living = self._find_live_nodes(view).difference(self._cluster.maintenance.scope(view.name).nodes)
        usable = frozenset(
            node for node, host in view.nodes.host_of.items() if host not in blamed and node in living
        )
        if view.usable_nodes != len(usable):
            view.usable_nodes = len(usable)
            self._jobs.add(Job.STATUS, view.name, after=jobs.GATHER_SECONDS)
        return view.nodes.with_room & usable

    def _find_live_nodes(self, view: session.Session) -> frozenset[str]:
        """Return the fabric's nodes with a live daemon; report the others, and look again at the end of a fading one's grace."""
        now, label = self._cluster.clock(), names.node_label(view.name)
        living, silent = set(), []
        for name in sorted(view.nodes.host_of):
            node = self._cluster.nodes.get(name)
            state = self._cluster.daemons.look(node, now) if node is not None else daemons.State.NODE_DOWN
            if state is daemons.State.SILENT:
                silent.append(name)
            elif state is daemons.State.FADING:
                self._jobs.add(
                    Job.LABELS, after=self._cluster.daemons.grace_left(name, now) + damping.LOOK_AGAIN_SECONDS
                )
            offered = node is not None and label in node.metadata.labels
            if state is daemons.State.ALIVE or (state is daemons.State.FADING and offered):
                living.add(name)
        view.report("node daemons", daemons.trouble(silent))
        return frozenset(living)


def summarise(view: session.Session) -> tuple[fabrics.ReachGroup, ...]:
    """Return the reachability groups for the status."""
    return reach.summarise(view.devices, view.hosts, view.nodes.remembered)


def find_faulty_hosts(cluster: Cluster, fabric: fabrics.Fabric) -> dict[str, datetime.datetime]:
    """Return the hosts at fault, each with the time until which it is avoided."""
    view = cluster.sessions.get(fabric.metadata.name)
    probation = datetime.timedelta(seconds=fabric.spec.policy.probation_seconds)
    return view.faults.find_faulty_hosts(probation, cluster.clock()) if view is not None else {}


def _describe_node(name: str) -> dict[str, object]:
    return {"node": name}
