"""The observation of one attachment, as the input of `plan`."""

import datetime
import functools
from collections.abc import Awaitable, Callable

from drawbar.driver.api import attachments
from drawbar.driver.node import classes, treatment
from drawbar.driver.node.attachments import actions, matching, plan
from drawbar.driver.node.attachments.context import DELETION, Context, Sharing
from drawbar.driver.node.discovery import devices
from drawbar.driver.node.health import verdicts


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
    memory.match = match
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
    )


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
        if gone or unseen or (arriving and plan.dead_link(match.card) is not None):
            memory.looked |= unseen
            return functools.partial(arrivals.refresh, match.card.address)
        is_doubtful = not attachment.deleting and match.by == "record"
        is_late = is_doubtful and matching.can_tell_more(attachment.identity, match.card)
        return arrivals.refresh_lagging if is_late else None
    slot = matching.expected_slot(attachment, context.boot_id)
    waited_for = attachment.holds(attachments.ATTACHED) and not attachment.deleting
    if waited_for and attachment.status.error is None:
        return functools.partial(_look_again, arrivals, slot)
    return None


async def _look_again(arrivals: devices.Devices, slot: str) -> None:
    """Read the state without events: the slot, if known, and the cards with a late initialisation by their drivers."""
    if slot:
        await arrivals.refresh_slot(slot)
    await arrivals.refresh_lagging()
