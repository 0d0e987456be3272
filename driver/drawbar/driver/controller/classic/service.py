"""Classic allocation: the rounds of observe, plan and act.

A round follows any change a moment later, or without a change at the time from the last plan. Rounds run one at a time:
the next one observes the writes of the last.
"""

import asyncio
import datetime
import logging
from collections.abc import Callable, Mapping, Set

import msgspec

from drawbar.driver import backoff, containment, evaluation
from drawbar.driver.api import attachments, classic
from drawbar.driver.catalogue import reasons
from drawbar.driver.controller import change_kinds, jobs, names
from drawbar.driver.controller import claims as claim_index
from drawbar.driver.controller.allocation import interface, inventory, matching, selectors
from drawbar.driver.controller.attachments.context import Context
from drawbar.driver.controller.classic import (
    actions,
    claim_requests,
    claim_watch,
    executor,
    history,
    negotiation,
    observation,
)
from drawbar.driver.controller.cluster import Cluster
from drawbar.driver.kube import client, events
from drawbar.driver.watching import watch

log = logging.getLogger(__name__)

ROUND = "round"
"""The only key of all watches, since a round looks at everything."""

# Simultaneous changes are decided together; with many waiting pods, a round costs more.
GATHER_SECONDS = 0.02
GATHER_SECONDS_PER_POD = 0.0005
# Seconds of processor time in one round; expressions that cost nothing have as many tries.
EVALUATION_SECONDS = 1.0
EVALUATION_SECONDS_MIN = 0.005
# The pause after a failed round; a permanent failure must not delay the others for long.
RETRY_FIRST_SECONDS = 0.5
RETRY_MAX_SECONDS = 5.0


class ClassicAllocation(interface.Allocation):
    """Classic allocation of one controller, in a cluster that serves a version of it."""

    worker = "classic"
    watches = (
        watch("attachment: classic", change_kinds.AttachmentChange, lambda _: [ROUND]),
        watch("device: classic", change_kinds.DeviceChange, lambda _: [ROUND]),
        watch(
            "node lost or found: classic",
            change_kinds.NodeChange,
            lambda _: [ROUND],
            when=lambda c: c.is_lost_or_found,
        ),
        watch("supply: classic", jobs.JobDone, lambda _: [ROUND], when=lambda c: c.renews_supply),
    )

    def __init__(
        self,
        api: client.Client,
        driver: str,
        versions: frozenset[classic.Version],
        evaluator: evaluation.Evaluator,
        gone: Callable[[str], None],
        *,
        contained: containment.Containment | None = None,
        recorder: events.Recorder | None = None,
    ) -> None:
        """Prepare the mirrors.

        Args:
            api: the client of the API server.
            driver: the driver's name.
            versions: the served versions.
            evaluator: evaluates selectors.
            gone: called with the UID of a deleted claim.
            contained: the unexpected errors of this controller.
            recorder: the recorder of Events.
        """
        self._judge = selectors.Judge(driver, evaluator)
        self._changed = asyncio.Event()
        self._watched = claim_watch.ClaimWatch(
            api,
            driver=driver,
            versions=versions,
            fault=self._judge.fault,
            changed=self._changed.set,
            gone=gone,
            contained=contained,
            recorder=recorder,
        )
        self.mirrors = self._watched.mirrors
        self.claim_mirrors = tuple(self._watched.claim_mirrors.values())

    def demand(
        self,
        key: names.DeviceKey,
        attachment: attachments.DeviceAttachment | None,
        host_of: Mapping[str, str],
        seen_at: datetime.datetime,
    ) -> claim_index.Demand | None:
        """Return the demand of the claim that has the device."""
        return self._watched.demand(key, attachment, host_of, seen_at)

    def wake(self, key: str) -> None:
        """Have a round follow; it looks at all claims."""
        del key
        self._changed.set()

    async def run(self, context: Context) -> None:
        """Run the rounds until cancelled."""
        await Rounds(context, self._watched, self._judge, self._changed).run()


class Rounds:
    """The rounds of one term of leadership. Run `run()` as a task; the mirrors of `watch` run in parallel.

    Attributes:
        changed: set after a change that may affect a decision.
    """

    def __init__(
        self,
        context: Context,
        watch: claim_watch.ClaimWatch,
        judge: selectors.Judge,
        changed: asyncio.Event,
    ) -> None:
        self._context = context
        self._watch = watch
        self._judge = judge
        self._executor = executor.Executor(context=context, watch=watch)
        self._history = history.History()
        self.changed = changed
        self._budget = selectors.Budget()
        # UIDs of the claims with an Event about their namespace's exhausted budget.
        self._postponed: frozenset[str] = frozenset()

    async def run(self) -> None:
        """Decide and act until cancelled."""
        pauses = backoff.Backoff(RETRY_FIRST_SECONDS, RETRY_MAX_SECONDS)
        while True:
            self.changed.clear()
            now = self._context.cluster.clock()
            decision = await self._decide(now)
            self._history = decision.history
            if not await self._executor.carry_out(decision.actions):
                await asyncio.sleep(pauses.count_failure())
                continue
            pauses.reset()
            try:
                async with asyncio.timeout(max(0.0, (decision.look_again - now).total_seconds())):
                    await self.changed.wait()
            except TimeoutError:
                continue
            await asyncio.sleep(GATHER_SECONDS + GATHER_SECONDS_PER_POD * len(self._watch.contexts))

    async def _decide(self, now: datetime.datetime) -> negotiation.Decision:
        """Return a plan after the evaluation of its expressions, as far as one round has time for them."""
        left = EVALUATION_SECONDS
        while True:
            self._judge.begin()
            observed = self.observe()
            decision = negotiation.plan(observed, self._history, now)
            payers = _payers(observed, self._judge.pending)
            pauses = {
                expression: min(self._budget.wait(namespace) for namespace in namespaces)
                for expression, namespaces in payers.items()
            }
            deferred = {expression: seconds for expression, seconds in pauses.items() if seconds > 0}
            if not self._judge.pending - deferred.keys():
                return self._postpone(decision, observed, deferred, now)
            if left <= 0:
                # An expression without an evaluation counts as not met until the next round.
                self.changed.set()
                return decision
            changed, used = await self._judge.settle(left, without=deferred)
            for expression, seconds in used.items():
                # All users of an expression pay a part, since many may share a class.
                for namespace in payers.get(expression, ()):
                    self._budget.use(namespace, seconds / len(payers[expression]))
            left -= max(sum(used.values()), EVALUATION_SECONDS_MIN)
            if changed:
                self._watch.forget_requests()

    def _postpone(
        self,
        decision: negotiation.Decision,
        observed: observation.Round,
        deferred: Mapping[str, float],
        now: datetime.datetime,
    ) -> negotiation.Decision:
        """Return the decision with a complaint for each claim whose selectors are deferred, and another round in time.

        Args:
            decision: the decision without the deferred expressions.
            observed: the observed state behind it.
            deferred: by expression, the seconds until one of its namespaces has time left.
            now: the time of the decision.
        """
        waiting = {
            claim.uid: claim
            for claim in observed.claims.values()
            if not deferred.keys().isdisjoint(_selectors(observed.requests[claim.uid]))
        }
        complaints = tuple(
            actions.Complain(
                claim=claim,
                reason=reasons.SELECTORS_TOO_EXPENSIVE,
                message=selectors.too_expensive(claim.name.namespace),
            )
            for claim in waiting.values()
            if claim.uid not in self._postponed
        )
        self._postponed = frozenset(waiting)
        again = [now + datetime.timedelta(seconds=seconds) for seconds in deferred.values()]
        return msgspec.structs.replace(
            decision,
            actions=(*decision.actions, *complaints),
            look_again=min((decision.look_again, *again)),
        )

    def observe(self) -> observation.Round:
        """Return the observed state for a plan."""
        context, claims = self._context, self._watch.claims()
        gone_at, seen = {}, {}
        for attachment in context.cluster.attachments:
            name = attachment.metadata.name
            moment = context.cluster.absences.gone_at(attachment.spec.node_name, (attachment.spec.fabric,))
            if moment is not None:
                gone_at[name] = moment
            since = context.cluster.placed.find_claim_time(name)
            if since is not None:
                seen[name] = since
        return observation.Round(
            claims=claims,
            requests=self._watch.find_requests(claims),
            contexts=dict(self._watch.contexts),
            pods=dict(self._watch.pods),
            nodes={node.metadata.name: node for node in context.cluster.nodes},
            gone_at=gone_at,
            attachments=tuple(context.cluster.attachments),
            inventory=_inventory(context.cluster),
            judge=self._judge.meets,
            patience=context.patience,
            seen=seen,
            date=context.cluster.time_of_day(),
        )


def _inventory(cluster: Cluster) -> matching.Inventory:
    """Return all Fabrics that were listed at least once, with their published devices."""
    reached: dict[str, matching.Fabric] = {}
    devices: dict[names.DeviceKey, matching.Device] = {}
    for fabric, opened in inventory.find_listed(cluster):
        reached[opened.name] = inventory.fabric_of(cluster, fabric, opened)
        for published in cluster.pools.in_fabric(opened.name):
            for shown in published.spec.devices:
                key = names.DeviceKey(fabric=opened.name, device=shown.name)
                device = opened.device(shown.name)
                is_free = device is not None and device.connection is None
                devices[key] = matching.Device(
                    key=key,
                    pool=published.spec.pool.name,
                    shown=shown,
                    free=is_free and cluster.attachments.get(key.attachment) is None,
                )
    return matching.Inventory(fabrics=reached, devices=devices)


def _payers(observed: observation.Round, expressions: Set[str]) -> dict[str, set[str]]:
    """Return, by expression, the namespaces of the claims that use it."""
    payers: dict[str, set[str]] = {}
    for claim in observed.claims.values() if expressions else ():
        for expression in expressions & _selectors(observed.requests[claim.uid]):
            payers.setdefault(expression, set()).add(claim.name.namespace)
    return payers


def _selectors(requests: claim_requests.ClaimRequests) -> frozenset[str]:
    return frozenset(expression for request in requests.requests for expression in request.selectors)
