"""What the node owes one DeviceAttachment, decided purely.

Invariants: `ReportVisible` is planned only while the kernel shows the device itself (see `matching`) and it is ready;
`ReportFailed` only while it is not; `ReportReleased` only while no claim holds the device on this node, and after a
release step of this very round found nothing left of it, or if it was never here. A slot is powered only for a device
that the fabric has connected and the controller has not given up, and never for one that was here in this boot: so what
was pulled does not come back by itself. Whatever is observed, once the plan is carried out there is nothing more to
report until something changes, and from whatever a crash left the next plan goes on.

A failure is reported once: the record `Visible: False` is what the controller acts on, and only the device's arrival
replaces it. The claim is told after the controller has tainted the device, which it says by recording the error: else
the scheduler could pick the device again before the taint. After a reboot the devices come anew, so they have as long
as after an attach. What the device is made to do (`PowerSlot`, `Initialise`, `Clean`, `Release`) comes before what is
said of it; what came of it is observed, and the plan is made again.

Times count from when this daemon first saw something: the timestamps in objects are of other machines' clocks.

Source: design of the hand-over, `docs/architecture.md`; KEP-5007.
"""

import datetime

from drawbar.driver.api import attachments, meta
from drawbar.driver.node.attachments import departure, failures, matching, statements
from drawbar.driver.node.attachments.actions import (
    Action,
    Attempt,
    Clean,
    Initialise,
    LookAgain,
    Observed,
    PowerSlot,
    ReportClean,
    ReportFailed,
    ReportHealth,
    ReportVisible,
    TellClaim,
)
from drawbar.driver.node.health import verdicts
from drawbar.driver.node.inventory import model

LOOK_FIRST_SECONDS = 0.05
LOOK_SECONDS = 1.0
"""Between two looks at what tells nothing: a slot that a card may come into, a kernel that may change its mind. The first
follow closely, for most of what a kernel is asked is done at once."""
HEALTHY_AFTER_SECONDS = 10.0
"""That a new device is healthy is what everybody expects: one that goes again soon costs no write for it."""


def plan(observed: Observed, now: datetime.datetime) -> tuple[Action, ...]:
    """The next safe steps; empty when there is nothing to do until something changes."""
    if observed.attachment.deleting:
        return departure.plan(observed, now)
    if observed.attachment.status.error is not None:
        return _tell(observed)
    if observed.card is None or not matching.is_expected(observed.match, observed.attachment):
        return _wait(observed, now)
    if has_traces(observed.attachment):
        return _clean(observed, observed.card, now)
    return _make_ready(observed, observed.card, now)


def has_traces(attachment: attachments.DeviceAttachment) -> bool:
    """Whether the device was used for another allocation than the one it is attached for now."""
    node, spec = attachment.status.node, attachment.spec
    if node is None or not node.claim_uid:
        return False
    now = (spec.claim.uid, spec.allocation_timestamp or "") if spec.claim is not None else None
    return (node.claim_uid, node.allocation_timestamp) != now


def _tell(observed: Observed) -> tuple[Action, ...]:
    """The controller has given the device up: what the node found out is said on the claim."""
    visible = meta.find(observed.attachment.status.conditions, attachments.VISIBLE)
    if visible is None or visible.status != "False" or observed.told:
        return ()
    return (TellClaim(reason=visible.reason, message=visible.message),)


def _make_ready(observed: Observed, card: model.Card, now: datetime.datetime) -> tuple[Action, ...]:
    if not observed.ready:
        if _is_due(observed, now):
            return (Initialise(card=card),)
        # What was ready may have lost its driver: that is reported while the device is waited for.
        news = _health(observed, now) if _is_reported(observed, card) else ()
        return (*(one for one in news if isinstance(one, ReportHealth)), *_await(observed, now))
    if _is_reported(observed, card):
        return _health(observed, now)
    if failures.dead_link(card) is not None:
        return _await(observed, now)
    return (ReportVisible(card=card),)


def _is_due(observed: Observed, now: datetime.datetime) -> bool:
    """Whether to try again: at once when the device has changed, else now and then until it is given up."""
    attempt = observed.attempt
    if attempt is None or attempt.card != observed.card:
        return True
    return not _is_failed(observed) and _next(attempt) <= now < _deadline(observed, now)


def _next(attempt: Attempt) -> datetime.datetime:
    """When to try again: after half the time that it has taken already, within limits."""
    taken = (attempt.at - attempt.since).total_seconds() / 2
    return attempt.at + _seconds(max(LOOK_FIRST_SECONDS, min(LOOK_SECONDS, taken)))


def _is_reported(observed: Observed, card: model.Card) -> bool:
    """Whether what is recorded is what is seen. After a reboot, a move or a hand-over it is not."""
    node, claim = observed.attachment.status.node, observed.attachment.spec.claim
    if node is None or not observed.attachment.holds(attachments.VISIBLE):
        return False
    if claim is not None and node.claim_uid != claim.uid:
        return False
    return (node.boot_id, node.pci_address) == (observed.boot_id, card.address)


def _health(observed: Observed, now: datetime.datetime) -> tuple[Action, ...]:
    node, verdict = observed.attachment.status.node, observed.health
    said = node.health if node is not None else ""
    if node == statements.judged(observed.attachment, verdict):
        return ()
    if not said and verdict.status is verdicts.Status.UNKNOWN:
        return ()
    if not said and verdict.status is verdicts.Status.HEALTHY:
        settled = (observed.visible_at or now) + _seconds(HEALTHY_AFTER_SECONDS)
        if now < settled:
            return (LookAgain(at=settled),)
    return (ReportHealth(verdict=verdict),)


def _clean(observed: Observed, card: model.Card, now: datetime.datetime) -> tuple[Action, ...]:
    """Before the next claim, or none, gets a device that one has used."""
    if observed.held_by is not None:
        return ()
    match observed.cleaned:
        case None:
            return (Clean(card=card),)
        case "":
            return (ReportClean(card=card),)
        case why:
            attempt = observed.attempt
            begun = attempt.since if attempt is not None else now
            if _is_failed(observed):
                return ()
            if now < begun + observed.patience:
                return (LookAgain(at=now + _seconds(LOOK_SECONDS)),)
            message = f"{card.address} cannot be handed on, for traces of its last use are left: {why}"
            return (ReportFailed(reason=failures.NOT_CLEANED, message=message),)


def _wait(observed: Observed, now: datetime.datetime) -> tuple[Action, ...]:
    """The device is not here."""
    status = observed.attachment.status
    if not observed.attachment.holds(attachments.ATTACHED) or _is_failed(observed):
        return ()
    was_here = status.node is not None and status.node.boot_id == observed.boot_id
    if was_here and not isinstance(observed.match, matching.Ambiguous):
        return (_failed(failures.lost(observed.attachment)),)
    waiting = _await(observed, now)
    if isinstance(observed.match, matching.Unpowered) and isinstance(waiting[0], LookAgain):
        attempt = observed.attempt
        if attempt is None or now >= _next(attempt):
            return (
                PowerSlot(slot=observed.match.slot.name),
                LookAgain(at=now + _seconds(LOOK_FIRST_SECONDS)),
            )
    return waiting


def _await(observed: Observed, now: datetime.datetime) -> tuple[Action, ...]:
    """Waits for a device that is not ready, until it has had its time."""
    if not observed.attachment.holds(attachments.ATTACHED) or _is_failed(observed):
        return ()
    deadline = _deadline(observed, now)
    if now < deadline:
        return (LookAgain(at=min(deadline, _next_look(observed, now))),)
    lost = (
        _was_reported(observed)
        and observed.card is None
        and not isinstance(observed.match, matching.Ambiguous)
    )
    return (_failed(failures.lost(observed.attachment) if lost else failures.late(observed)),)


def _next_look(observed: Observed, now: datetime.datetime) -> datetime.datetime:
    """When something can have changed without an event: the device, or the slot that it is to come into."""
    match observed.match:
        case matching.Absent(slot=None):
            return _deadline(observed, now)
        case matching.Found() | matching.Unpowered() if observed.attempt is not None:
            return max(_next(observed.attempt), now + _seconds(LOOK_FIRST_SECONDS))
        case _:
            return now + _seconds(LOOK_SECONDS)


def _deadline(observed: Observed, now: datetime.datetime) -> datetime.datetime:
    """Until when the device has time to become ready."""
    status = observed.attachment.status
    begun = observed.attached_at or now
    if status.node is not None and status.node.boot_id != observed.boot_id:
        begun = max(begun, observed.since)
    elif observed.attachment.holds(attachments.VISIBLE) and observed.attempt is not None:
        # It was ready and is not any more: it has as long to become so again.
        begun = max(begun, observed.attempt.since)
    return begun + observed.patience


def _was_reported(observed: Observed) -> bool:
    return meta.find(observed.attachment.status.conditions, attachments.VISIBLE) is not None


def _is_failed(observed: Observed) -> bool:
    visible = meta.find(observed.attachment.status.conditions, attachments.VISIBLE)
    return visible is not None and visible.status == "False"


def _failed(failure: failures.Failure) -> ReportFailed:
    return ReportFailed(reason=failure.reason, message=failure.message)


def _seconds(amount: float) -> datetime.timedelta:
    return datetime.timedelta(seconds=amount)
