"""The observation of an attachment, and the executor of the plan's actions, with one side effect each.

An action on the device changes the observation, so the plan is made again in the same call, at most `ROUNDS_MAX` times. Then
the key is queued again. On an error the executor stops, the key is queued again after a pause, and everything is observed
again.
"""

import datetime
import functools
from collections.abc import Awaitable, Callable
from typing import assert_never

import msgspec

from drawbar.driver.api import attachments
from drawbar.driver.node import classes, errors, treatment
from drawbar.driver.node.attachments import actions, failures, initialisation, matching, plan, reporting
from drawbar.driver.node.attachments.context import DELETION, Context, Sharing
from drawbar.driver.node.discovery import devices
from drawbar.driver.node.health import verdicts
from drawbar.driver.node.inventory import model

ROUNDS_MAX = 8
"""The greatest number of plans in one call. An arrival takes two, each step of a treatment one."""
AGAIN_SECONDS = 0.05
"""The pause after so many rounds, in which other attachments are reconciled."""


class _Effect(msgspec.Struct, frozen=True, kw_only=True):
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
        observed = await observe(context, attachment, effect.treated)
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
            case actions.RecordLocation(card=card):
                await reporter.record_location(attachment, self._recognise(card))
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


async def observe(
    context: Context, attachment: attachments.DeviceAttachment, treated: treatment.Outcome | None
) -> actions.Observed:
    """Return the input of the plan. If slots and links matter, read them, because they have no events."""
    memory = context.memory(attachment)
    memory.see(attachment, context.clock())
    seen = memory.seen
    match = context.match(attachment)
    refresh = _find_refresh(context, attachment, match)
    if refresh is not None:
        await refresh()
        match = context.match(attachment)
    if isinstance(match, matching.Found):
        memory.see_card(match.card)
    memory.match = match
    memory.attempt = actions.keep_attempt(memory.attempt, match)
    spec = attachment.spec
    card = match.card if isinstance(match, matching.Found) else None
    key = verdicts.Key(pool=spec.pool, device=spec.device)
    ends = attachment.deleting or attachment.has_traces
    sharing = context.sharing(attachment) if ends else Sharing()
    return actions.Observed(
        attachment=attachment,
        match=match,
        missing=classes.by_name(attachment.identity.device_class).missing_requirements(card)
        if card is not None
        else None,
        attempt=memory.attempt,
        held_by=context.holder(spec.pool, spec.device),
        sharers=sharing.claims,
        offered=sharing.offered,
        boot_id=context.boot_id,
        since=context.since,
        patience=_patience(context, attachment),
        claim_notified=memory.claim_notified,
        attached_at=seen.since(attachments.ATTACHED),
        visible_at=seen.since(attachments.VISIBLE),
        leaving_at=seen.since(DELETION),
        health=context.node_verdicts.verdict(key) if context.node_verdicts is not None else verdicts.UNKNOWN,
        leaving=memory.leaving,
        treated=treated,
        lagging=context.arrivals.is_lagging,
        hanging=context.arrivals.hanging,
        has_returned=card is not None and _has_returned(context, attachment, card),
    )


def _has_returned(context: Context, attachment: attachments.DeviceAttachment, card: model.Card) -> bool:
    record = context.record(attachment)
    return record is not None and not card.has_stayed(record.pci_address, record.arrival)


def _patience(context: Context, attachment: attachments.DeviceAttachment) -> datetime.timedelta:
    """Return the time for the device to become ready, including the time of its hook."""
    hook = attachment.spec.initialise
    seconds = hook.timeout_seconds if hook is not None else 0
    return context.patience + datetime.timedelta(seconds=seconds)


def _find_refresh(
    context: Context, attachment: attachments.DeviceAttachment, match: matching.Match
) -> Callable[[], Awaitable[object]] | None:
    """Return the read to make before the plan, or None."""
    memory, arrivals = context.memory(attachment), context.arrivals
    if isinstance(match, matching.Found):
        gone = attachment.deleting and attachment.holds(attachments.RELEASED)
        arriving = not attachment.deleting and not attachment.holds(attachments.VISIBLE)
        # The card from before the attach may be gone, and the event of its removal still on its way.
        unseen = arriving and attachment.holds(attachments.ATTACHED) and not memory.looked
        if gone or unseen or (arriving and failures.find_dead_link(match.card) is not None):
            memory.looked |= unseen
            return functools.partial(arrivals.refresh, match.card.address)
        is_doubtful = not attachment.deleting and match.by == "record"
        is_late = is_doubtful and matching.can_tell_more(attachment.identity, match.card)
        return arrivals.refresh_lagging if is_late else None
    slot = matching.find_expected_slot(attachment, context.boot_id)
    waited_for = attachment.holds(attachments.ATTACHED) and not attachment.deleting
    if waited_for and attachment.status.error is None:
        return functools.partial(_look_again, arrivals, slot)
    return None


async def _look_again(arrivals: devices.Devices, slot: str) -> None:
    """Read the state without events: the slot, if known, and the cards with a late initialisation by their drivers."""
    if slot:
        await arrivals.refresh_slot(slot)
    await arrivals.refresh_lagging()
