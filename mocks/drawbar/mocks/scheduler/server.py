"""The scheduler double: one scheduling cycle at a time, with any number of pods in their binding cycles.

Limits: no resources other than devices and those of a DeviceClass (`extended`), no priorities and preemption, pod
(anti-)affinity, topology spread, volumes, pod groups, extenders, further profiles, or hints to skip hopeless wake-ups.
Pods are spread: the node with the fewest pods comes first. An allocated claim is open to further pods even if its
device is tainted.
"""

import asyncio
import datetime
import logging
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar, assert_never

import msgspec

from drawbar.mocks import controlloop
from drawbar.mocks.claims import discovery as claims_discovery
from drawbar.mocks.claims import documents
from drawbar.mocks.kube import client, connections, errors, kinds, mirror, workqueue
from drawbar.mocks.scheduler import (
    binding,
    discovery,
    extended,
    ledger,
    matching,
    messages,
    nodes,
    objects,
    plan,
    pods,
    pools,
    reports,
    settings,
    taintrules,
)
from drawbar.mocks.scheduler.classic import server as classic

log = logging.getLogger(__name__)

T = TypeVar("T", bound=mirror.Item)


def utc_now() -> datetime.datetime:
    """Return the time of day in UTC."""
    return datetime.datetime.now(datetime.UTC)


class Scheduler:
    """A scheduler that assigns pods to nodes. Make it with `serving`."""

    def __init__(
        self, api: client.Client, times: settings.Settings, clock: Callable[[], datetime.datetime]
    ) -> None:
        self._api = api
        self._times = times
        self._clock = clock
        self._reporter = reports.Reporter(api, component=pods.COMPONENT, clock=clock)
        self._queue: workqueue.WorkQueue[documents.Key] = workqueue.WorkQueue()
        self._attempts: dict[documents.Key, int] = {}
        # Pods that wait for a change, with the earliest time of the next attempt in the loop's time.
        self._parked: dict[documents.Key, float] = {}
        self._binding: dict[documents.Key, plan.Placement] = {}
        # Uids of bound pods until the watch shows their node, so that they are not scheduled again.
        self._bound: dict[documents.Key, str] = {}
        self._ledger = ledger.Ledger()
        self._views: dict[str, matching.Node] = {}
        self._supply: tuple[pools.PoolSupply, ...] | None = None
        self._from_incomplete = False
        self._rules: mirror.Mirror[taintrules.Rule] | None = None
        self._classes = self._mirror(kinds.DEVICE_CLASS, objects.DeviceClass, self._something_changed)
        self._slices = self._mirror(kinds.SLICE, objects.Slice, self._supply_changed)
        self._nodes = self._mirror(kinds.NODE, documents.Document, self._node_changed)
        self._claims = self._mirror(kinds.CLAIM, documents.Document, self._claim_changed)
        self._pods = self._mirror(kinds.POD, documents.Document, self._pod_changed)
        self._binder = binding.Binder(
            api, claims=self._claims, pods=self._pods, reporter=self._reporter, times=times, clock=clock
        )

    async def run(self, ready: asyncio.Event) -> None:
        """Work until cancelled; set `ready` when the first lists are in."""
        self._from_incomplete = self._binder.before_1_36 = await discovery.is_before_1_36(self._api)
        rules = await discovery.rules_for_scheduling(self._api)
        copies: list[mirror.Mirror[Any]] = [
            self._classes,
            self._slices,
            self._nodes,
            self._claims,
            self._pods,
        ]
        if rules is not None:
            self._rules = self._mirror(rules, taintrules.Rule, self._supply_changed)
            copies.append(self._rules)
        try:
            async with asyncio.TaskGroup() as group:
                await controlloop.start_mirrors(group, "scheduler", copies)
                ready.set()
                while True:
                    key = await self._queue.take()
                    try:
                        await self._cycle(key, group)
                    finally:
                        self._queue.mark_done(key)
        finally:
            self._queue.close()

    async def _cycle(self, key: documents.Key, group: asyncio.TaskGroup) -> None:
        pod = self._pods.get(key[1], key[0])
        if pod is None or not pods.wants_node(pod) or key in self._binding:
            return
        if self._bound.get(key) == pod.metadata.uid:
            return
        self._parked.pop(key, None)
        try:
            await self._schedule(pod, group)
        except errors.KubeError as error:
            await self._fail(pod, str(error), retry=True)

    async def _schedule(self, pod: documents.Document, group: asyncio.TaskGroup) -> None:
        claims, problem = self._claims_of(pod)
        if problem:
            await self._fail(pod, messages.describe_unready(len(self._nodes), problem))
            return
        timeout = datetime.timedelta(seconds=self._times.binding_timeout_seconds)
        try:
            special = extended.claim_for(pod, self._classes)
            if special is not None:
                if await self._delete_stale(pod):
                    return
                claims.append(special)
            decision = plan.decide(pod, claims, self._world(), now=self._clock(), timeout=timeout)
        except msgspec.ValidationError as error:
            await self._fail(pod, f"cannot read the pod, a claim of it or a node: {error}")
            return
        match decision:
            case plan.Placement():
                self._binding[pod.key] = decision
                self._ledger.begin(decision)
                group.create_task(self._bind(pod, claims, decision), name=f"scheduler-bind-{pod.full_name}")
            case plan.Deallocate():
                await self._binder.deallocate(decision.claim)
                await self._fail(pod, decision.reason)
                # An idle scheduler tries the pod again at once, regardless of its back-off.
                self._parked.pop(pod.key, None)
                self._queue.add(pod.key)
            case plan.Unschedulable():
                await self._fail(pod, decision.reason)
            case plan.Broken():
                await self._fail(pod, decision.reason, retry=True)
            case _:
                assert_never(decision)

    async def _bind(
        self, pod: documents.Document, claims: Sequence[documents.Document], placement: plan.Placement
    ) -> None:
        try:
            claims, placement = await self._create_extended_claim(pod, claims, placement)
            await self._binder.bind(pod, claims, placement)
        except binding.PodGone:
            log.info("pod went away while it waited for its devices", extra={"pod": pod.full_name})
            self._end_binding(pod.key)
            # Another pod of its name may exist now.
            self._queue.add(pod.key)
        except binding.BindingFailed as error:
            self._end_binding(pod.key)
            await self._fail(pod, messages.describe_unbound(str(error)), retry=True)
        except errors.KubeError as error:
            self._end_binding(pod.key)
            await self._fail(pod, str(error), retry=True)
        else:
            self._attempts.pop(pod.key, None)
            self._bound[pod.key] = pod.metadata.uid
            log.info("pod bound", extra={"pod": pod.full_name, "node": placement.node})
            await self._reporter.report_scheduled(pod, placement.node)
        finally:
            self._end_binding(pod.key)
            self._something_changed(None, None)

    async def _delete_stale(self, pod: documents.Document) -> bool:
        """Delete the claim for extended resources of an earlier cycle; return true if there was one."""
        stale = next((claim for claim in self._claims if extended.is_for(claim, pod)), None)
        if stale is not None:
            await self._binder.delete(stale)
            await self._fail(
                pod, messages.describe_refusals([messages.STALE] * len(self._nodes), messages.DELETED)
            )
        return stale is not None

    async def _create_extended_claim(
        self, pod: documents.Document, claims: Sequence[documents.Document], placement: plan.Placement
    ) -> tuple[Sequence[documents.Document], plan.Placement]:
        """Create the claim for the pod's extended resources; return its claims and its placement with it."""
        uid = pod.metadata.uid
        if uid not in placement.allocations:
            return claims, placement
        *named, special = claims
        stored = await self._binder.create(extended.body(special))
        allocations = {
            stored.metadata.uid if key == uid else key: allocation
            for key, allocation in placement.allocations.items()
        }
        made = plan.Placement(node=placement.node, allocations=allocations)
        self._ledger.end(placement)
        self._ledger.begin(made)
        self._binding[pod.key] = made
        await self._binder.record(pod, extended.status(pod, stored.metadata.name, self._classes))
        return (*named, stored), made

    def _end_binding(self, key: documents.Key) -> None:
        placement = self._binding.pop(key, None)
        if placement is not None:
            self._ledger.end(placement)

    async def _fail(self, pod: documents.Document, reason: str, *, retry: bool = False) -> None:
        """Park the pod until a change, or with `retry` until its back-off is over."""
        attempts = self._attempts.get(pod.key, 0) + 1
        self._attempts[pod.key] = attempts
        pause = self._times.backoff_seconds(attempts)
        if retry:
            self._parked.pop(pod.key, None)
            self._queue.add_after(pod.key, pause)
        else:
            self._parked[pod.key] = asyncio.get_running_loop().time() + pause
        stored = self._pods.get(pod.metadata.name, pod.metadata.namespace)
        if stored is not None and stored.metadata.uid == pod.metadata.uid:
            code = reports.SCHEDULER_ERROR if retry else reports.UNSCHEDULABLE
            await self._reporter.report_failure(stored, code, reason)

    def _claims_of(self, pod: documents.Document) -> tuple[list[documents.Document], str]:
        claims = []
        for entry, name, template in documents.pod_claims(pod):
            if name is None:
                return [], f'pod "{pod.full_name}": ResourceClaim not created yet'
            if not name:
                continue
            claim = self._claims.get(name, pod.metadata.namespace)
            if claim is None:
                return [], f'resourceclaim "{name}" not found'
            if documents.is_deleting(claim):
                return [], f'resourceclaim "{name}" is being deleted'
            if template is not None and not documents.is_owned_by(claim, pod):
                return [], f'resourceclaim "{name}" for {entry} was not created for pod {pod.full_name}'
            if self._ledger.is_under_way(claim.metadata.uid) and documents.allocation(claim) is None:
                return [], f"resource claim {claim.full_name} is in the process of being allocated"
            claims.append(claim)
        return claims, ""

    def _world(self) -> plan.World:
        if self._supply is None:
            rules = list(self._rules or ())
            tainted = taintrules.taint_slices(self._slices, rules)
            self._supply = pools.from_slices(tainted, from_incomplete=self._from_incomplete)
        return plan.World(
            nodes=self._ranked_nodes(),
            supply=self._supply,
            classes={item.metadata.name: item for item in self._classes},
            used=self._ledger.used,
            new_share_id=lambda: str(uuid.uuid4()),
        )

    def _ranked_nodes(self) -> list[matching.Node]:
        return sorted(self._views.values(), key=lambda node: (self._ledger.pods_on(node.name), node.name))

    def _mirror(
        self, kind: kinds.Kind, into: type[T], changed: Callable[[T | None, T | None], None]
    ) -> mirror.Mirror[T]:
        return mirror.Mirror(self._api, kind, into=into, changed=changed)

    def _something_changed(self, _old: object, _new: object) -> None:
        """Let parked pods try again, each after its back-off."""
        now = asyncio.get_running_loop().time()
        for key, earliest in self._parked.items():
            self._queue.add_after(key, earliest - now)
        self._parked.clear()

    def _supply_changed(self, old: object, new: object) -> None:
        self._supply = None
        self._something_changed(old, new)

    def _node_changed(self, old: documents.Document | None, new: documents.Document | None) -> None:
        node = new or old
        assert node is not None
        before = self._views.pop(node.metadata.name, None)
        if new is not None:
            self._views[new.metadata.name] = nodes.view(new)
        # A node's heartbeat does not matter.
        if before != self._views.get(node.metadata.name):
            self._something_changed(old, new)

    def _claim_changed(self, old: documents.Document | None, new: documents.Document | None) -> None:
        self._ledger.claim_changed(old, new)
        self._something_changed(old, new)

    def _pod_changed(self, old: documents.Document | None, new: documents.Document | None) -> None:
        self._ledger.pod_changed(old, new)
        if new is None:
            if old is not None:
                self._attempts.pop(old.key, None)
                self._parked.pop(old.key, None)
                self._bound.pop(old.key, None)
            self._something_changed(old, new)
            return
        if self._bound.get(new.key) != new.metadata.uid or documents.node_name(new):
            self._bound.pop(new.key, None)
        if pods.wants_node(new) and pods.is_news(old, new) and new.key not in self._binding:
            self._parked.pop(new.key, None)
            self._queue.add(new.key)


@asynccontextmanager
async def serving(
    connection: connections.Connection,
    times: settings.Settings | None = None,
    *,
    clock: Callable[[], datetime.datetime] = utc_now,
) -> AsyncIterator[None]:
    """Run a scheduler until the block ends; its first lists are in on entry.

    It is the scheduler of the API server's release: with classic DRA, it negotiates with the drivers.
    """
    async with client.connecting(connection) as api, asyncio.TaskGroup() as group:
        ready = asyncio.Event()
        work = _run(api, times or settings.Settings(), clock, ready)
        task = group.create_task(work, name="scheduler")
        try:
            await ready.wait()
            yield
        finally:
            task.cancel()


async def _run(
    api: client.Client,
    times: settings.Settings,
    clock: Callable[[], datetime.datetime],
    ready: asyncio.Event,
) -> None:
    dialect = await claims_discovery.dialect(api)
    if dialect.context is None:
        await Scheduler(api, times, clock).run(ready)
    else:
        await classic.Scheduler(api, dialect, times, clock).run(ready)
