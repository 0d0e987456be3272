"""The executor of the actions of `attachments.plan`, with one side effect each.

An action on the device changes the observation, so the plan is made again in the same call, at most `ROUNDS_MAX` times. Then
the key is queued again. On an error the executor stops, the key is queued again after a pause, and everything is observed
again.
"""

import datetime
from dataclasses import dataclass
from typing import assert_never

from drawbar.driver.api import attachments
from drawbar.driver.node import errors, treatment
from drawbar.driver.node.attachments import actions, initialisation, observation, plan, reporting
from drawbar.driver.node.attachments.context import Context
from drawbar.driver.node.inventory import model

ROUNDS_MAX = 8
"""The greatest number of plans in one call. An arrival takes two, each step of a treatment one."""
AGAIN_SECONDS = 0.05
"""The pause after so many rounds, in which other attachments are reconciled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Effect:
    """The effect of an action on the rest of the round.

    Attributes:
        again: whether to plan again; otherwise the round ends.
        treated: the outcome of a treatment step; None without one.
    """

    again: bool = False
    treated: treatment.Outcome | None = None


async def reconcile(context: Context, attachment: attachments.DeviceAttachment) -> float | None:
    """Make one round for one attachment; return the seconds until the next look, or None if only a change needs one.

    Raises:
        kube_errors.KubeError: a write failed; observe and plan again.
    """
    acting, effect = _Acting(context, attachment), _Effect()
    for _ in range(ROUNDS_MAX):
        observed = await observation.observe(context, attachment, effect.treated)
        now = context.clock()
        moment: datetime.datetime | None = None
        effect = _Effect()
        for action in plan.plan(observed, now):
            if isinstance(action, actions.LookAgain):
                moment = action.at
            else:
                effect = await acting.carry_out(action, now)
        if not effect.again:
            return None if moment is None else max(0.0, (moment - now).total_seconds())
    return AGAIN_SECONDS


class _Acting:
    """The execution of one round's actions, on the attachment as it was at the beginning."""

    def __init__(self, context: Context, attachment: attachments.DeviceAttachment) -> None:
        self._context = context
        self._attachment = attachment
        self._memory = context.memory(attachment)

    async def carry_out(
        self, action: actions.DeviceAction | actions.Report, now: datetime.datetime
    ) -> _Effect:
        """Execute one action; return its effect on the round."""
        match action:
            case actions.PowerSlot(slot=slot):
                return await self._power(slot, now)
            case actions.Initialise(card=card):
                await initialisation.Initialisation(self._context, self._attachment).run(card, now)
                return _Effect(again=True)
            case actions.Treat(card=card):
                return await self._treat(card, now)
            case actions.Release(card=card, slot=slot):
                return await self._release(card, slot)
            case _:
                await self._report(action)
                return _Effect()

    async def _report(self, action: actions.Report) -> None:
        reporter, attachment, now = self._context.reporter, self._attachment, self._context.time_of_day()
        match action:
            case actions.ReportVisible(card=card):
                await reporter.visible(attachment, self._recognise(card), now)
            case actions.ReportFailed(reason=reason, message=message):
                await reporter.report_failure(attachment, reason, message, now)
            case actions.ReportToClaim(reason=reason, message=message):
                await reporter.report_to_claim(attachment, reason, message, now)
                self._memory.claim_notified = True
            case actions.ListCards():
                self._memory.baseline = self._context.ledger.baseline()
                await reporter.report_remembered(attachment)
            case actions.ReportClean(card=card):
                await reporter.clean(attachment, self._recognise(card))
            case actions.RecordPlace(card=card):
                await reporter.record_place(attachment, self._recognise(card))
            case actions.ReportHealth(verdict=verdict):
                await reporter.health(attachment, verdict)
            case actions.ReportBlocked(reason=reason, message=message):
                await reporter.report_obstacle(attachment, reason, message, now)
            case actions.ReportReleased():
                await reporter.report_release(attachment, now)
            case _:
                assert_never(action)

    def _recognise(self, card: model.Card) -> reporting.RecognisedDevice:
        return reporting.recognise(self._attachment, card, self._memory.match)

    async def _power(self, slot: str, now: datetime.datetime) -> _Effect:
        """Power a slot on; return the effect on the round. An event reports the card that arrives."""
        missing = "it was switched on, and stays off"
        try:
            await self._context.kernel.power_slot(slot, on=True)
        except errors.KernelRefused as refused:
            missing = str(refused)
        initialisation.remember(self._memory, self._attachment, None, missing, now)
        return _Effect()

    async def _treat(self, card: model.Card, now: datetime.datetime) -> _Effect:
        outcome = await self._context.treatment.step(self._make_order(card), self._memory.progress)
        if isinstance(outcome, treatment.Done):
            self._memory.progress = treatment.Progress()
        why = outcome.message if isinstance(outcome, treatment.Blocked) else ""
        initialisation.remember(self._memory, self._attachment, None, why, now)
        return _Effect(again=True, treated=outcome)

    async def _release(self, card: model.Card | None, slot: str) -> _Effect:
        self._memory.leaving = card
        outcome = await self._context.treatment.step(
            self._make_order(card, slot, leaves=True), self._memory.progress
        )
        if isinstance(outcome, treatment.Done):
            self._memory.leaving = None
        return _Effect(again=True, treated=outcome)

    def _make_order(
        self, card: model.Card | None, slot: str = "", *, leaves: bool = False
    ) -> treatment.Order:
        """Return the order for the treatment of the device, with the hooks of its last user's claim."""
        attachment, runner = self._attachment, self._context.hooks
        node = attachment.status.node or attachments.NodeReport()
        return treatment.Order(
            card=card,
            slot=slot,
            leaves=leaves,
            device_class=attachment.identity.device_class,
            companions=self._context.companions(attachment),
            is_used=attachment.is_used,
            clean=attachment.spec.clean,
            drain=runner.drain(attachment, node.drain) if leaves else None,
            clean_up=runner.clean_up(attachment, node.clean_up),
        )
