"""The negotiation as a part of the controller: rounds of observe, plan and act, while this controller leads.

A round follows whatever changed a moment before; without any change, the moment that the last plan named. One round at a
time: what it wrote is known before the next one looks.
"""

import asyncio
import datetime
import logging
from collections.abc import Mapping, Set
from dataclasses import replace

from drawbar.driver import backoff
from drawbar.driver.api import attachments, classic, handles
from drawbar.driver.controller import names
from drawbar.driver.controller.allocation import inventory, selectors
from drawbar.driver.controller.attachments import actions as attachment_actions
from drawbar.driver.controller.attachments import context as attachment_context
from drawbar.driver.controller.classic import (
    actions,
    claim_requests,
    executor,
    history,
    lookout,
    observation,
    plan,
)

log = logging.getLogger(__name__)

# What changes together is decided together; with many pods that wait, a round costs more.
GATHER_SECONDS = 0.02
GATHER_SECONDS_PER_POD = 0.0005
# In one round, of processor time; expressions that cost nothing have as many tries.
EVALUATION_SECONDS = 1.0
EVALUATION_SECONDS_MIN = 0.005
# After a round in which something failed; one that goes on failing must not keep the others waiting for long.
RETRY_FIRST_SECONDS = 0.5
RETRY_MAX_SECONDS = 5.0


class Service:
    """Run `run()` as a task; the watches of `known` run beside it."""

    def __init__(
        self,
        context: attachment_context.Context,
        known: lookout.Lookout,
        view: inventory.View,
        judge: selectors.Judge,
    ) -> None:
        self._context = context
        self._known = known
        self._view = view
        self._judge = judge
        self._executor = executor.Executor(context=context, known=known)
        self._history = history.History()
        self._news = asyncio.Event()
        self._budget = selectors.Budget()
        # Uids of claims that were told that their namespace has used its budget.
        self._told_expensive: frozenset[str] = frozenset()

    def look_again(self) -> None:
        """Something changed that a decision may rest on."""
        self._news.set()

    async def run(self) -> None:
        """Decides and acts until cancelled."""
        self._history = history.History()
        pauses = backoff.Backoff(RETRY_FIRST_SECONDS, RETRY_MAX_SECONDS)
        while True:
            self._news.clear()
            now = self._context.clock()
            decision = await self._decide(now)
            self._history = decision.history
            if not await self._executor.carry_out(decision.actions):
                await asyncio.sleep(pauses.failed())
                continue
            pauses.reset()
            await self._rest((decision.look_again - now).total_seconds())

    async def _decide(self, now: datetime.datetime) -> plan.Decision:
        """A plan with all expressions evaluated that it asks for, as far as there is time for that in one round."""
        left = EVALUATION_SECONDS
        while True:
            self._judge.begin()
            observed = self.observed()
            decision = plan.plan(observed, self._history, now)
            payers = _payers(observed, self._judge.pending)
            deferred = self._deferred(payers)
            if not self._judge.pending - deferred.keys():
                return self._postponed(decision, observed, deferred, now)
            if left <= 0:
                # What was not evaluated counts as not met until the next round.
                self._news.set()
                return decision
            changed, used = await self._judge.settle(left, without=deferred)
            for expression, seconds in used.items():
                # Who pays are those who ask, each a part: an expression of a class may be everybody's.
                for namespace in payers.get(expression, ()):
                    self._budget.use(namespace, seconds / len(payers[expression]))
            left -= max(sum(used.values()), EVALUATION_SECONDS_MIN)
            if changed:
                self._known.forget_wanted()

    def _deferred(self, payers: Mapping[str, Set[str]]) -> dict[str, float]:
        """Return by expression, of those for which nobody has time left, the seconds until somebody has."""
        waits = {
            expression: min(self._budget.wait(namespace) for namespace in namespaces)
            for expression, namespaces in payers.items()
        }
        return {expression: seconds for expression, seconds in waits.items() if seconds > 0}

    def _postponed(
        self,
        decision: plan.Decision,
        observed: observation.Observed,
        deferred: Mapping[str, float],
        now: datetime.datetime,
    ) -> plan.Decision:
        """The decision, with a word to the claims whose selectors are not evaluated now, and another look when they can be."""
        if not deferred:
            self._told_expensive = frozenset()
            return decision
        waiting = [
            claim
            for claim in observed.claims.values()
            if not deferred.keys().isdisjoint(_selectors(observed.wanted[claim.uid]))
        ]
        complaints = [
            actions.Complain(
                claim=claim,
                reason=selectors.EXPENSIVE,
                message=selectors.too_expensive(claim.name.namespace),
            )
            for claim in waiting
            if claim.uid not in self._told_expensive
        ]
        self._told_expensive = frozenset(claim.uid for claim in waiting)
        again = now + datetime.timedelta(seconds=min(deferred.values()))
        return replace(
            decision,
            actions=(*decision.actions, *complaints),
            look_again=min(decision.look_again, again),
        )

    async def _rest(self, seconds: float) -> None:
        """Until there is news, or that time is over."""
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await self._news.wait()
        except TimeoutError:
            return
        await asyncio.sleep(GATHER_SECONDS + GATHER_SECONDS_PER_POD * len(self._known.contexts))

    def observed(self) -> observation.Observed:
        """Everything that the plan rests on."""
        claims = self._known.claims()
        return observation.Observed(
            driver=self._context.driver,
            claims=claims,
            wanted=self._known.wanted(claims),
            contexts=dict(self._known.contexts),
            pods=dict(self._known.pods),
            nodes={node.metadata.name: node for node in self._context.nodes},
            gone_at=self._gone_at(),
            attachments=tuple(self._context.attachments),
            inventory=inventory.inventory(self._view),
            judge=self._judge.meets,
            patience=self._context.patience,
            seen=self._seen(),
        )

    def _gone_at(self) -> dict[str, datetime.datetime]:
        """Return by the name of an attachment from when on its node counts as gone, of nodes that are not there."""
        absences = self._context.absences
        moments = {
            one.metadata.name: absences.gone_at(one.spec.node_name, (one.spec.fabric,))
            for one in self._context.attachments
        }
        return {name: moment for name, moment in moments.items() if moment is not None}

    def _seen(self) -> dict[str, datetime.datetime]:
        """Return by the name of an attachment when it was first seen to be for its claim."""
        found = {}
        for one in self._context.attachments:
            since = self._context.placed.held_since(one.metadata.name)
            if since is not None:
                found[one.metadata.name] = since
        return found


def _payers(observed: observation.Observed, expressions: Set[str]) -> dict[str, set[str]]:
    """Return by expression, of these, the namespaces of the claims that have it."""
    found: dict[str, set[str]] = {}
    for claim in observed.claims.values() if expressions else ():
        for expression in expressions & _selectors(observed.wanted[claim.uid]):
            found.setdefault(expression, set()).add(claim.name.namespace)
    return found


def _selectors(wanted: claim_requests.Wanted) -> frozenset[str]:
    return frozenset(expression for request in wanted.requests for expression in request.selectors)


class Borrowers:
    """Which classic claim wants a device, for the machinery of attachments."""

    def __init__(self, known: lookout.Lookout) -> None:
        self._known = known

    def wish(
        self,
        key: names.DeviceKey,
        attachment: attachments.DeviceAttachment | None,
        host_of: Mapping[str, str],
        seen_at: datetime.datetime,
    ) -> attachment_actions.Wish | None:
        """That of the claim that the attachment names, while the claim is there; else of one that was given the device."""
        if attachment is not None:
            return self._of_attempt(attachment, host_of, seen_at)
        for claim in self._known.holders(key):
            handle = claim.allocation.handle if claim.allocation is not None else None
            for device in handle.devices if handle is not None and not claim.going else ():
                if (device.fabric, device.device) == (key.fabric, key.device):
                    assert handle is not None
                    return _of_allocation(claim, handle, device, host_of, seen_at)
        return None

    def _of_attempt(
        self,
        attachment: attachments.DeviceAttachment,
        host_of: Mapping[str, str],
        seen_at: datetime.datetime,
    ) -> attachment_actions.Wish | None:
        spec = attachment.spec
        if spec.claim is None or not spec.allocation_timestamp:
            return None
        name = classic.Name(namespace=spec.claim.namespace, name=spec.claim.name)
        if self._known.claim(name, spec.claim.uid) is None:
            return None
        return attachment_actions.Wish(
            claim=spec.claim,
            node=spec.node_name,
            host_id=host_of.get(spec.node_name),
            pool=spec.pool,
            allocation_timestamp=spec.allocation_timestamp,
            seen_at=seen_at,
            attached_said=True,
            failed_said=attachment.status.error is not None,
            visible_said=True,
        )


def _of_allocation(
    claim: classic.Claim,
    handle: handles.Handle,
    device: handles.HandleDevice,
    host_of: Mapping[str, str],
    seen_at: datetime.datetime,
) -> attachment_actions.Wish | None:
    """The record of the attachment is lost: it is written anew for the claim that has the device."""
    if not handle.allocated_at:
        return None
    return attachment_actions.Wish(
        claim=attachments.ClaimReference(
            namespace=claim.name.namespace,
            name=claim.name.name,
            uid=claim.uid,
            requests=(device.request,),
            devices=len(handle.devices),
        ),
        node=handle.node,
        host_id=host_of.get(handle.node),
        pool=device.pool,
        allocation_timestamp=handle.allocated_at,
        seen_at=seen_at,
        attached_said=True,
        failed_said=False,
        visible_said=True,
    )
