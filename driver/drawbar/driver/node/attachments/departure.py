"""What the node owes an attachment that is being deleted, decided purely: to let go of the device. See `plan`.

Order, with the reason: the claim first, for a container may still use the device; then one release step after the other,
each of which looks at the kernel anew; then the word that the fabric may take it. A device that only shows up after that
word is released all the same, without another word, where its serial number tells that it is the device: from then on its
slot may hold another one.
"""

import datetime

from drawbar.driver.api import attachments, meta
from drawbar.driver.node.attachments import failures, matching
from drawbar.driver.node.attachments.actions import (
    Action,
    LookAgain,
    Observed,
    RecordPlace,
    Release,
    ReportBlocked,
    ReportReleased,
)
from drawbar.driver.node.inventory import model
from drawbar.driver.node.release import outcomes

PREPARED = "Prepared"
PREPARED_AFTER_SECONDS = 5.0
"""The kubelet unprepares a claim a moment before or after its devices are detached; only what lasts is said."""
_COUNTING = frozenset({outcomes.SILENT, outcomes.STUCK})


def plan(observed: Observed, now: datetime.datetime) -> tuple[Action, ...]:
    """The next safe steps; empty when there is nothing to do until something changes."""
    if observed.attachment.holds(attachments.RELEASED):
        return _stragglers(observed, now)
    if observed.held_by is not None:
        return _held(observed, now)
    match observed.released:
        case None:
            return _begin(observed)
        case outcomes.Working(seconds=seconds):
            return (LookAgain(at=now + _seconds(seconds)),)
        case outcomes.Blocked(reason=reason, message=message, seconds=seconds):
            return (*_blocked(observed, reason, message), LookAgain(at=now + _seconds(seconds)))
        case outcomes.Released():
            return (ReportReleased(),)


def _begin(observed: Observed) -> tuple[Action, ...]:
    node = observed.attachment.status.node
    card = leaving(observed)
    if isinstance(observed.match, matching.Ambiguous) and card is None:
        failure = failures.late(observed)
        return _blocked(observed, failure.reason, failure.message)
    if card is None:
        here = node is not None and node.boot_id == observed.boot_id
        return (Release(card=None, slot=node.slot),) if node is not None and here else (ReportReleased(),)
    if node is None or node.boot_id != observed.boot_id:
        # A disk without its driver shows no serial number: by then its slot must be on record.
        return (RecordPlace(card=card),)
    return (Release(card=card, slot=card.first.slot or node.slot),)


def leaving(observed: Observed) -> model.Card | None:
    """The card to release; None when the kernel shows none that is known to be the device."""
    node = observed.attachment.status.node
    match observed.match:
        case matching.Found(card=card, by=by):
            # What is in the slot that the fabric only meant to connect need not be the device.
            sure = by == "serial" or node is not None or observed.attachment.holds(attachments.ATTACHED)
            return card if sure else None
        case matching.Ambiguous(cards=cards):
            here = node.slot if node is not None and node.boot_id == observed.boot_id else ""
            return next((card for card in cards if here and card.first.slot == here), None)
        case _:
            return observed.leaving


def _stragglers(observed: Observed, now: datetime.datetime) -> tuple[Action, ...]:
    """The device shows up, or is still there, though it was given back."""
    match = observed.match
    # What is released already is known by no serial number any more.
    card = match.card if isinstance(match, matching.Found) and match.by == "serial" else observed.leaving
    if observed.held_by is not None or (card is None and observed.released is None):
        return ()
    match observed.released:
        case None:
            return (Release(card=card, slot=(card.first.slot or "") if card is not None else ""),)
        case outcomes.Working(seconds=seconds) | outcomes.Blocked(seconds=seconds):
            return (LookAgain(at=now + _seconds(seconds)),)
        case outcomes.Released():
            return ()


def _held(observed: Observed, now: datetime.datetime) -> tuple[Action, ...]:
    said = (observed.leaving_at or now) + _seconds(PREPARED_AFTER_SECONDS)
    if now < said:
        return (LookAgain(at=said),)
    message = f"the kubelet has the device prepared for the claim of uid {observed.held_by}; delete the pods that use it"
    return _blocked(observed, PREPARED, message)


def _blocked(observed: Observed, reason: str, message: str) -> tuple[Action, ...]:
    """Says why, unless that is what was said last. A text that only counts seconds on is the same."""
    known = meta.find(observed.attachment.status.conditions, attachments.RELEASED)
    said = known is not None and (known.status, known.reason) == ("False", reason)
    if known is not None and said and (reason in _COUNTING or known.message == message):
        return ()
    return (ReportBlocked(reason=reason, message=message),)


def _seconds(amount: float) -> datetime.timedelta:
    return datetime.timedelta(seconds=amount)
