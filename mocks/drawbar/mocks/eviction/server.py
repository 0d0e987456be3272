"""The device taint eviction double: watches the input of its plan, deletes pods, and updates the status of rules.

Order: the status of a rule is first queued before its first eviction. A pod gets the event, then the condition
`DisruptionTarget`, and is deleted last, with its uid as a precondition. The rate is not limited, as in the real
controller, unless the API server has `evictionsPerSecond` in taints (KEP-5055): see `eviction.rates`. If the API
server serves no DeviceTaintRules, only the taints published by drivers evict.

Not emulated: pods with extended resources (the real controller misses them, too), pod groups, the metrics.
"""

import asyncio
import datetime
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal, TypeVar

import msgspec

from drawbar.mocks import controlloop
from drawbar.mocks.claims import documents, events
from drawbar.mocks.eviction import board, plan, progress, rates, settings
from drawbar.mocks.kube import client, connections, errors, kinds, meta, mirror, workqueue
from drawbar.mocks.scheduler import discovery, objects, taintrules

log = logging.getLogger(__name__)

COMPONENT = "device-taint-eviction-controller"
STRATEGIC = "application/strategic-merge-patch+json"
# The number of evicted pods to remember: they need time to end.
EVICTED_LIMIT = 500

# Type, namespace, name, uid.
WorkKey = tuple[Literal["pod", "rule"], str, str, str]
T = TypeVar("T", bound=mirror.Item)


def utc_now() -> datetime.datetime:
    """Return the current time in UTC."""
    return datetime.datetime.now(datetime.UTC)


class EvictionController:
    """Deletes pods whose devices are tainted NoExecute. Make it with `serving`."""

    def __init__(
        self, api: client.Client, times: settings.Settings, clock: Callable[[], datetime.datetime]
    ) -> None:
        self._api = api
        self._times = times
        self._clock = clock
        self._events = events.Recorder(api, component=COMPONENT, clock=clock)
        self._queue: workqueue.WorkQueue[WorkKey] = workqueue.WorkQueue()
        self._board = board.Board()
        self._rates = rates.Rates()
        self._due: dict[WorkKey, plan.Eviction] = {}
        self._evicted: OrderedDict[str, None] = OrderedDict()
        # The number of pods evicted because of a rule, by the rule's uid.
        self._counts: dict[str, int] = {}
        self._rule_kind: kinds.Kind | None = None
        self._claims = self._mirror(kinds.CLAIM, documents.Document, self._claim_changed)
        self._slices = self._mirror(kinds.SLICE, objects.Slice, self._slice_changed)
        self._pods = self._mirror(kinds.POD, documents.Document, self._pod_changed)

    async def run(self, ready: asyncio.Event) -> None:
        """Run until cancelled; set `ready` when the first lists were received."""
        self._rule_kind = await discovery.taint_rules(self._api)
        self._board.usual_rate = rates.USUAL if await discovery.eviction_rates(self._api) else None
        copies: list[mirror.Mirror[Any]] = [self._claims, self._slices, self._pods]
        if self._rule_kind is not None:
            copies.append(self._mirror(self._rule_kind, taintrules.Rule, self._rule_changed))
        await controlloop.run("eviction", copies, self._queue, self._reconcile, ready)

    def _mirror(
        self, kind: kinds.Kind, into: type[T], changed: Callable[[T | None, T | None], None]
    ) -> mirror.Mirror[T]:
        return mirror.Mirror(self._api, kind, into=into, changed=changed)

    def _claim_changed(self, old: documents.Document | None, new: documents.Document | None) -> None:
        self._look_at_users(self._board.claim_changed(old, new))

    def _slice_changed(self, old: objects.Slice | None, new: objects.Slice | None) -> None:
        self._look_at_users(self._board.slice_changed(old, new))

    def _rule_changed(self, old: taintrules.Rule | None, new: taintrules.Rule | None) -> None:
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self._counts.pop(old.metadata.uid, None)
        if new is not None and (old is None or old.metadata.uid != new.metadata.uid or old.spec != new.spec):
            self._queue.add(_rule_key(new))
        self._look_at_users(self._board.rule_changed(old, new))

    def _pod_changed(self, old: documents.Document | None, new: documents.Document | None) -> None:
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self._due.pop(_pod_key(old), None)
        # Other changes of a pod, also of the condition written here, are ignored.
        if new is not None and (old is None or _matters(old) != _matters(new)):
            self._look_at(new)

    def _look_at_users(self, claims: tuple[documents.Document, ...]) -> None:
        for claim in claims:
            for consumer in documents.reserved_for(claim):
                pod = self._pods.get(consumer["name"], claim.metadata.namespace)
                if pod is not None and pod.metadata.uid == consumer["uid"]:
                    self._look_at(pod)

    def _look_at(self, pod: documents.Document) -> None:
        key = _pod_key(pod)
        eviction = self._board.eviction_of(pod)
        if eviction is None:
            if self._due.pop(key, None) is not None:
                # The worker records that the eviction was cancelled.
                self._queue.add(key)
            return
        self._due[key] = eviction
        self._queue.add_after(key, (eviction.when - self._clock()).total_seconds())
        self._write_status_later(eviction)

    def _write_status_later(self, eviction: plan.Eviction) -> None:
        """Queue the status of the rules among the causes with a delay, as more evictions may follow."""
        for uid in eviction.rules:
            if (rule := self._board.rules.get(uid)) is not None:
                self._queue.add_after(_rule_key(rule), self._times.status_seconds)

    async def _reconcile(self, key: WorkKey) -> float | None:
        return await (self._write_status(key) if key[0] == "rule" else self._evict(key))

    async def _evict(self, key: WorkKey) -> float | None:
        """Delete the pod if that is due; return the seconds until it is, or None."""
        _, namespace, name, uid = key
        eviction = self._due.get(key)
        if uid in self._evicted:
            return None
        if eviction is None:
            await self._report_cancellation(key)
            return None
        wait = (eviction.when - self._clock()).total_seconds()
        if wait <= 0:
            wait = self._rates.pause(eviction.limits, self._clock())
        if wait > 0:
            return wait
        try:
            pod = await self._api.read(kinds.POD, name, into=documents.Document, namespace=namespace)
        except errors.NotFound:
            pod = None
        if pod is not None and pod.metadata.uid == uid and not documents.is_deleting(pod):
            await self._delete(pod)
            for rule in eviction.rules:
                self._counts[rule] = self._counts.get(rule, 0) + 1
            self._write_status_later(eviction)
        self._remember(uid)
        self._due.pop(key, None)
        return None

    async def _report_cancellation(self, key: WorkKey) -> None:
        pod = self._pods.get(key[2], key[1])
        if pod is not None and pod.metadata.uid == key[3] and not documents.is_deleting(pod):
            log.info("eviction cancelled", extra={"pod": pod.full_name})
            await self._record(pod, "Cancelling deletion")

    async def _delete(self, pod: documents.Document) -> None:
        log.info("pod evicted", extra={"pod": pod.full_name})
        await self._record(pod, "Marking for deletion")
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "DeletionByDeviceTaintManager",
            "message": "Device Taint manager: deleting due to NoExecute taint",
            "lastTransitionTime": meta.timestamp(self._clock()),
        }
        namespace, name = pod.metadata.namespace, pod.metadata.name
        path = kinds.POD.path(namespace=namespace, name=name, subresource="status")
        body = {"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}}
        await self._api.request("PATCH", path, body=body, content=STRATEGIC)
        await self._api.delete(kinds.POD, name, namespace=namespace, uid=pod.metadata.uid)

    async def _record(self, pod: documents.Document, note: str) -> None:
        await self._events.record(
            pod, kind="Pod", reason="DeviceTaintManagerEviction", note=note, action="Evicting"
        )

    def _remember(self, uid: str) -> None:
        self._evicted[uid] = None
        if len(self._evicted) > EVICTED_LIMIT:
            self._evicted.popitem(last=False)

    async def _write_status(self, key: WorkKey) -> float | None:
        """Write the rule's status unless it was just written; return the seconds to wait in that case, or None."""
        rule = self._board.rules.get(key[3])
        if rule is None or self._rule_kind is None:
            return None
        now = self._clock()
        wait = progress.pause(rule, now=now, period_seconds=self._times.status_seconds)
        if wait > 0:
            return wait
        condition = progress.condition(rule, self._findings(rule), now=now)
        if condition is None:
            return None
        body = {
            "apiVersion": self._rule_kind.api_version,
            "kind": self._rule_kind.kind,
            "metadata": {"name": rule.metadata.name, "uid": rule.metadata.uid},
            # An empty message is sent, too.
            "status": {"conditions": [{"message": "", **msgspec.to_builtins(condition)}]},
        }
        try:
            await self._api.patch(
                self._rule_kind,
                rule.metadata.name,
                body,
                content=client.Patch.APPLY,
                into=taintrules.Rule,
                subresource="status",
                manager=COMPONENT,
            )
        except errors.NotFound:
            log.info("rule went away before its status was written", extra={"rule": rule.metadata.name})
        return None

    def _findings(self, rule: taintrules.Rule) -> progress.Findings:
        preview = rule.spec.taint.effect == "None"
        counts = preview or rule.spec.taint.effect == plan.NO_EXECUTE
        return progress.Findings(
            pending=self._board.find_pods_to_evict(rule, self._pods) if counts else (),
            evicted=self._counts.get(rule.metadata.uid, 0),
            selection=plan.selection(rule, self._board.slices, self._board.claims.values())
            if preview
            else progress.NOTHING_SELECTED,
        )


@asynccontextmanager
async def serving(
    connection: connections.Connection,
    times: settings.Settings | None = None,
    *,
    clock: Callable[[], datetime.datetime] = utc_now,
) -> AsyncIterator[EvictionController]:
    """Run an eviction controller while the block lasts; the block is entered when its first lists were received."""
    async with client.connecting(connection) as api, asyncio.TaskGroup() as group:
        ready = asyncio.Event()
        controller = EvictionController(api, times or settings.Settings(), clock)
        task = group.create_task(controller.run(ready), name="eviction-controller")
        try:
            await ready.wait()
            yield controller
        finally:
            task.cancel()


def _rule_key(rule: taintrules.Rule) -> WorkKey:
    return "rule", "", rule.metadata.name, rule.metadata.uid


def _pod_key(pod: documents.Document) -> WorkKey:
    return "pod", pod.metadata.namespace, pod.metadata.name, pod.metadata.uid


def _matters(pod: documents.Document) -> object:
    return pod.metadata.uid, documents.node_name(pod), pod.status.get("resourceClaimStatuses")
