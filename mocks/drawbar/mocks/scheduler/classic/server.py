"""The scheduler double on a cluster with classic DRA: one scheduling cycle at a time, with any number of bindings.

Limits, in addition to those of the modern one: no claims allocated by the scheduler itself (structured parameters of
1.30 and 1.31), no partial search of nodes in a large cluster, and no retry after five minutes for pods without a
wake-up. The fitting node with the fewest pods is chosen, at random among equal ones.
"""

import asyncio
import datetime
import logging
import random
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, assert_never

import msgspec

from drawbar.mocks import controlloop
from drawbar.mocks.claims import dialects, documents, users
from drawbar.mocks.kube import client, errors, kinds, mirror
from drawbar.mocks.scheduler import ledger, matching, messages, nodes, pods, reports, settings
from drawbar.mocks.scheduler import plan as modern
from drawbar.mocks.scheduler.binding import BindingFailed, PodGone
from drawbar.mocks.scheduler.classic import backlog, binding, hints, objects, plan

log = logging.getLogger(__name__)

PUBLISHED = "waiting for resource driver"
UNANSWERED = "waiting for resource driver to provide information"
T = TypeVar("T", bound=mirror.Item)


class Scheduler:
    """A scheduler that assigns pods to nodes. Made by `drawbar.mocks.scheduler.serving`."""

    def __init__(
        self,
        api: client.Client,
        dialect: dialects.Dialect,
        times: settings.Settings,
        clock: Callable[[], datetime.datetime],
    ) -> None:
        assert dialect.context is not None
        self._api = api
        self._dialect = dialect
        self._reporter = reports.Reporter(api, component=pods.COMPONENT, clock=clock)
        # Not for security; a seed makes a run repeatable.
        self._chance = random.Random(times.seed)  # noqa: S311 - choices between nodes
        self._backlog = backlog.Backlog(times)
        # Uids of bound pods until the watch shows their node, so that they are not scheduled again.
        self._bound: dict[documents.Key, str] = {}
        self._users = users.Users()
        self._ledger = ledger.Ledger()
        self._views: dict[str, matching.Node] = {}
        self._classes = self._mirror(dialect.class_kind, objects.Class, self._anything_changed)
        self._nodes = self._mirror(kinds.NODE, documents.Document, self._node_changed)
        self._claims = self._mirror(dialect.claim, documents.Document, self._claim_changed)
        self._contexts = self._mirror(dialect.context, documents.Document, self._context_changed)
        self._pods = self._mirror(kinds.POD, documents.Document, self._pod_changed)
        self._binder = binding.Binder(api, dialect, claims=self._claims, contexts=self._contexts)

    async def run(self, ready: asyncio.Event) -> None:
        """Work until cancelled; set `ready` when the first lists are in."""
        copies: list[mirror.Mirror[Any]] = [
            self._classes,
            self._nodes,
            self._claims,
            self._contexts,
            self._pods,
        ]
        try:
            async with asyncio.TaskGroup() as group:
                await controlloop.start_mirrors(group, "scheduler", copies)
                ready.set()
                while True:
                    await self._cycle(await self._backlog.take(), group)
        finally:
            self._backlog.close()

    async def _cycle(self, key: documents.Key, group: asyncio.TaskGroup) -> None:
        pod = self._pods.get(key[1], key[0])
        if pod is None or not pods.wants_node(pod) or self._bound.get(key) == pod.metadata.uid:
            self._backlog.end(key)
            return
        uses, problem = self._uses(pod)
        if problem:
            # Such a pod does not enter the real scheduler's queue, and there is no Event.
            log.info("pod not ready to be scheduled", extra={"pod": pod.full_name, "reason": problem})
            self._backlog.sleep(key, backoff=False)
            return
        context = self._contexts.get(key[1], key[0])
        try:
            decision = plan.decide(pod, uses, context, self._world())
        except msgspec.ValidationError as error:
            await self._report_failure(pod, f"cannot read the pod, a claim of it or a node: {error}")
            return
        await self._carry_out(pod, [use.claim for use in uses], decision, group)

    async def _carry_out(
        self,
        pod: documents.Document,
        claims: Sequence[documents.Document],
        decision: plan.Decision,
        group: asyncio.TaskGroup,
    ) -> None:
        match decision:
            case modern.Placement():
                self._ledger.begin(decision)
                group.create_task(self._bind(pod, claims, decision), name=f"scheduler-bind-{pod.full_name}")
            case plan.Publish() | plan.Wait():
                group.create_task(
                    self._ask(pod, claims, decision), name=f"scheduler-negotiate-{pod.full_name}"
                )
            case plan.Deallocate():
                try:
                    await self._binder.deallocate(pod, decision)
                except errors.KubeError as error:
                    await self._report_failure(pod, str(error))
                else:
                    await self._unschedulable(pod, decision.reason)
            case modern.Unschedulable():
                await self._unschedulable(pod, decision.reason)
            case modern.Broken():
                await self._report_failure(pod, decision.reason)
            case _:
                assert_never(decision)

    async def _ask(
        self,
        pod: documents.Document,
        claims: Sequence[documents.Document],
        decision: plan.Publish | plan.Wait,
    ) -> None:
        """Publish changes for the drivers, if there are any, and let the pod wait."""
        reason = UNANSWERED
        if isinstance(decision, plan.Publish):
            reason = PUBLISHED
            try:
                await self._binder.publish(pod, decision.changes)
            except errors.KubeError as error:
                await self._report_failure(pod, messages.describe_unbound(str(error)))
                return
        await self._binder.unreserve(pod, claims)
        await self._report(pod, reports.UNSCHEDULABLE, messages.describe_held_up(reason))
        self._backlog.sleep(pod.key, backoff=False)

    async def _bind(
        self,
        pod: documents.Document,
        claims: Sequence[documents.Document],
        placement: modern.Placement,
    ) -> None:
        try:
            await self._binder.bind(pod, claims, placement.node)
        except PodGone:
            log.info("pod went away while it was bound", extra={"pod": pod.full_name})
            self._backlog.end(pod.key)
        except (BindingFailed, errors.KubeError) as error:
            await self._report_failure(pod, messages.describe_unbound(str(error)))
        else:
            self._bound[pod.key] = pod.metadata.uid
            self._backlog.end(pod.key)
            log.info("pod bound", extra={"pod": pod.full_name, "node": placement.node})
            await self._reporter.report_scheduled(pod, placement.node)
        finally:
            self._ledger.end(placement)

    async def _unschedulable(self, pod: documents.Document, reason: str) -> None:
        await self._report(pod, reports.UNSCHEDULABLE, reason)
        self._backlog.sleep(pod.key, backoff=True)

    async def _report_failure(self, pod: documents.Document, reason: str) -> None:
        await self._report(pod, reports.SCHEDULER_ERROR, reason)
        self._backlog.retry(pod.key)

    async def _report(self, pod: documents.Document, code: str, reason: str) -> None:
        stored = self._pods.get(pod.metadata.name, pod.metadata.namespace)
        if stored is not None and stored.metadata.uid == pod.metadata.uid:
            await self._reporter.report_failure(stored, code, reason)

    def _uses(self, pod: documents.Document) -> tuple[list[plan.Use], str]:
        uses = []
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
            uses.append(plan.Use(entry=entry, claim=claim))
        return uses, ""

    def _world(self) -> plan.World:
        return plan.World(
            nodes=tuple(self._views.values()),
            pods_on=self._ledger.pods_on,
            classes={item.metadata.name: item for item in self._classes},
            dialect=self._dialect,
            chance=self._chance,
        )

    def _mirror(
        self, kind: kinds.Kind, into: type[T], changed: Callable[[T | None, T | None], None]
    ) -> mirror.Mirror[T]:
        return mirror.Mirror(self._api, kind, into=into, changed=changed)

    def _anything_changed(self, _old: object, _new: object) -> None:
        self._backlog.wake_all()

    def _node_changed(self, old: documents.Document | None, new: documents.Document | None) -> None:
        node = new or old
        assert node is not None
        before = self._views.get(node.metadata.name)
        if new is None:
            self._views.pop(node.metadata.name, None)
        else:
            self._views[new.metadata.name] = nodes.view(new)
        # A node's heartbeat does not matter.
        if before != self._views.get(node.metadata.name):
            self._backlog.wake_all()

    def _claim_changed(self, old: documents.Document | None, new: documents.Document | None) -> None:
        if new is not None and hints.claim_changed(old, new):
            for key in tuple(self._users.for_claim(new.key)):
                self._backlog.wake(key)

    def _context_changed(self, old: documents.Document | None, new: documents.Document | None) -> None:
        if new is None:
            return
        pod = self._pods.get(new.metadata.name, new.metadata.namespace)
        uses, problem = self._uses(pod) if pod is not None else ([], "")
        if problem:
            return
        pending = [use.entry for use in uses if documents.allocation(use.claim) is None]
        try:
            news = hints.context_changed(pending, old, new)
        except msgspec.ValidationError:
            news = True
        if news:
            self._backlog.wake(new.key)

    def _pod_changed(self, old: documents.Document | None, new: documents.Document | None) -> None:
        self._ledger.pod_changed(old, new)
        self._users.pod_changed(old, new)
        if new is None:
            if old is not None:
                self._bound.pop(old.key, None)
                self._backlog.drop(old.key)
            return
        if self._bound.get(new.key) != new.metadata.uid or documents.node_name(new):
            self._bound.pop(new.key, None)
        if pods.wants_node(new) and pods.is_news(old, new):
            self._backlog.add(new.key)
