"""The node's next steps for one DeviceAttachment; pure.

Invariants:

- `ReportVisible` is planned only while the kernel shows the device itself (see `matching`) and it is ready. `ReportFailed` is
  planned only while it is not.
- `ReportReleased` is planned only while no claim holds the device on this node. A release step of the same round must have
  completed, or the device was never here.
- A slot is powered only for a device that the fabric has connected and the controller has not given up. It is never powered for
  a device that was here in this boot, so a pulled device does not come back by itself.
- A used device is reported as clean only after its treatment was Done, and as visible only after that report.
- From any observation, once the plan is carried out, there is nothing more to report until something changes. From any state
  that a crash leaves, the next plan goes on.

A failure is reported once, with a reason of `catalogue.attachment_conditions`. The controller acts on the condition
`Visible: False`, and only the device's arrival replaces it. The claim gets the failure after the controller has tainted the
device and recorded the error. Otherwise the scheduler could pick the device again before the taint. After a reboot the devices
arrive again, and have the same time as after an attach. Actions on the device (`PowerSlot`, `Initialise`, `Treat`, `Release`)
precede the reports; their result is observed, and the plan is made again.

An attachment in deletion has an order of steps. First the claims end, because a container may still use the device or one of
its virtual functions. Then the node's pool withdraws these functions, so that no further claim gets one. Then come the release
steps, each after a fresh look at the kernel, and last the report that the fabric may take the device. If a device appears
after that report, it is released only by proof of an identifier, because its slot may contain another device. It gets no further
report.

An interleaved member of a composite waits for the others without a deadline. If a member does not come, its own attachment
reports that, and no healthy device is blamed. The time of the waiting member begins once all are present.

Times count from the first sight by this daemon, because the timestamps in objects come from the clocks of other machines.

Source: design of the hand-over, `docs/architecture.md`; KEP-5007.
"""

import datetime
from collections.abc import Iterable

import msgspec

from drawbar.driver.api import attachments, meta
from drawbar.driver.catalogue import reasons
from drawbar.driver.node.attachments import actions, failures, matching
from drawbar.driver.node.health import verdicts
from drawbar.driver.node.inventory import model
from drawbar.driver.node.treatment import plan as treatment_plan

FINDING_MESSAGE_CHARS = 256
"""The limit of the DeviceAttachment's schema for one finding; `healthMessage` contains all findings."""

PREPARED_AFTER_SECONDS = 5.0
"""The time before a prepared claim is reported as an obstacle. The kubelet may unprepare a claim shortly after the deletion."""


def plan_departure(observed: actions.Observed, now: datetime.datetime) -> tuple[actions.Action, ...]:
    """Return the next safe steps for an attachment in deletion; none if there is nothing to do before a change."""
    if observed.attachment.holds(attachments.RELEASED):
        return _release_again(observed, now)
    if observed.held_by is not None:
        return _wait_for_holder(observed, now)
    if observed.sharers:
        message = f"{treatment_plan.message(observed.sharers)}; delete the pods that use it"
        return (
            *_report_blocked(observed, reasons.IN_USE, message),
            actions.LookAgain(at=now + _seconds(LOOK_SECONDS)),
        )
    match observed.treated:
        case None if observed.offered:
            return (actions.LookAgain(at=now + _seconds(LOOK_FIRST_SECONDS)),)
        case None:
            return _begin_release(observed)
        case treatment_plan.InProgress(seconds=seconds, message=message):
            erasing = _report_blocked(observed, reasons.CLEANING, message) if message else ()
            return (*erasing, actions.LookAgain(at=now + _seconds(seconds)))
        case treatment_plan.Blocked(reason=reason, message=message, seconds=seconds):
            return (
                *_report_blocked(observed, reason, message),
                actions.LookAgain(at=now + _seconds(seconds)),
            )
        case treatment_plan.Done():
            return (actions.ReportReleased(),)


def _begin_release(observed: actions.Observed) -> tuple[actions.Action, ...]:
    node = observed.attachment.status.node
    card = find_leaving_card(observed)
    if isinstance(observed.match, matching.Ambiguous) and card is None:
        failure = failures.build_late(observed)
        return _report_blocked(observed, failure.reason, failure.message)
    if card is None:
        here = node is not None and node.boot_id == observed.boot_id
        return (
            (actions.Release(card=None, slot=node.slot),)
            if node is not None and here
            else (actions.ReportReleased(),)
        )
    if node is None or node.boot_id != observed.boot_id:
        # A disk without its driver shows no serial number, so its slot must be on record before.
        return (actions.RecordLocation(card=card),)
    return (actions.Release(card=card, slot=card.first.slot or node.slot),)


def find_leaving_card(observed: actions.Observed) -> model.Card | None:
    """Return the card to release, or None if no card is known to be the device."""
    node = observed.attachment.status.node
    match observed.match:
        case matching.Found(card=card, by=by):
            # Before the fabric has connected the slot, its card may be another device.
            sure = (
                by in ("identifier", "record")
                or node is not None
                or observed.attachment.holds(attachments.ATTACHED)
            )
            return card if sure else None
        case matching.Ambiguous(cards=cards):
            here = node.slot if node is not None and node.boot_id == observed.boot_id else ""
            return next((card for card in cards if here and card.first.slot == here), None)
        case matching.Wrong(card=card, was_recognised=True):
            # It was used as the device, so it has to be released as the device.
            return card
        case _:
            return observed.leaving


def _release_again(observed: actions.Observed, now: datetime.datetime) -> tuple[actions.Action, ...]:
    """Return the steps to release a device that appears, or is still present, after the report of its release."""
    match = observed.match
    # A device in release may show no serial number any more.
    card = match.card if isinstance(match, matching.Found) and match.is_proved else observed.leaving
    if observed.held_by is not None or (card is None and observed.treated is None):
        return ()
    match observed.treated:
        case None:
            return (actions.Release(card=card, slot=(card.first.slot or "") if card is not None else ""),)
        case treatment_plan.InProgress(seconds=seconds) | treatment_plan.Blocked(seconds=seconds):
            return (actions.LookAgain(at=now + _seconds(seconds)),)
        case treatment_plan.Done():
            return ()


def _wait_for_holder(observed: actions.Observed, now: datetime.datetime) -> tuple[actions.Action, ...]:
    reported_at = (observed.leaving_at or now) + _seconds(PREPARED_AFTER_SECONDS)
    if now < reported_at:
        return (actions.LookAgain(at=reported_at),)
    message = (
        f"the kubelet has the device prepared for the claim of uid {observed.held_by}; delete the pods that use it; if no pod "
        "does, the kubelet has lost the claim: restart the node"
    )
    return _report_blocked(observed, reasons.PREPARED, message)


def _report_blocked(observed: actions.Observed, reason: str, message: str) -> tuple[actions.Action, ...]:
    """Return the report of the obstacle; nothing if it equals the last report."""
    last = meta.find(observed.attachment.status.conditions, attachments.RELEASED)
    is_blocked = last is not None and last.status == "False"
    if (
        last is not None
        and is_blocked
        and treatment_plan.says_the_same((last.reason, last.message), (reason, message))
    ):
        return ()
    return (actions.ReportBlocked(reason=reason, message=message),)


LOOK_FIRST_SECONDS = 0.05
LOOK_SECONDS = 1.0
"""The pause between two looks at a state without events: an empty slot, or a refusal by the kernel. The first looks follow closely,
because the kernel completes most requests at once."""
DOUBT_SECONDS = 10.0
"""The pause between two looks at a card that was recognised without an identifier, if its driver may show one without an event."""
HEALTHY_AFTER_SECONDS = 10.0
"""The time before a new device is reported as healthy. A device that leaves earlier costs no write for it."""


def plan(observed: actions.Observed, now: datetime.datetime) -> tuple[actions.Action, ...]:
    """Return the next safe steps; none if there is nothing to do before a change."""
    if observed.attachment.deleting:
        return plan_departure(observed, now)
    if observed.attachment.status.error is not None:
        return _report_to_claim(observed)
    if observed.awaits_baseline:
        return (actions.ListCards(),)
    if observed.card is None or not matching.is_expected(observed.match, observed.attachment):
        return _wait(observed, now)
    if observed.attachment.has_traces:
        return _treat(observed, observed.card, now)
    return _make_ready(observed, observed.card, now)


def find_awaited(attachment: attachments.DeviceAttachment, members: Iterable[actions.Member]) -> str | None:
    """Return the first other member that is not ready for interleaving yet, in a clause, or None."""
    for member in members:
        theirs = member.attachment
        if theirs is None or not attachment.is_used_with(theirs, attachments.ATTACHED):
            return f"it waits for {member.name}, which is not attached with it"
        if member.card is None:
            return f"it waits for {member.name}, which this node does not show"
        if theirs.has_traces:
            return f"it waits for {member.name}, which is not clean yet"
        if member.missing is not None:
            return f"it waits for {member.name}: {member.missing}"
    return None


def _report_to_claim(observed: actions.Observed) -> tuple[actions.Action, ...]:
    """Return the report to the claim of a device that the controller has given up; nothing if the claim has it."""
    visible = meta.find(observed.attachment.status.conditions, attachments.VISIBLE)
    if visible is None or visible.status != "False" or observed.claim_notified:
        return ()
    return (actions.ReportToClaim(reason=visible.reason, message=visible.message),)


def _make_ready(
    observed: actions.Observed, card: model.Card, now: datetime.datetime
) -> tuple[actions.Action, ...]:
    if observed.has_returned and observed.held_by is not None:
        # Its users have lost it, even if another card is in its place now. It is made ready again once they have ended.
        lost = failures.build_loss(observed.attachment, has_returned=True)
        return () if _is_failed(observed) else (lost,)
    if observed.is_recognition_new:
        # A card without an identifier is recorded before the first step, because a restarted daemon did not see it arrive.
        return (actions.RecordLocation(card=card),)
    if not observed.ready:
        attempt = observed.attempt
        if attempt is not None and attempt.final and not _has_final_failure(observed):
            return (failures.build_not_ready(observed, card),)
        if _is_due(observed, now):
            return (actions.Initialise(card=card),)
        # A ready device may have lost its driver. Its health is reported during the wait.
        news = _report_health(observed, now) if _is_reported(observed, card) else ()
        return (
            *(report for report in news if isinstance(report, actions.ReportHealth)),
            *_await(observed, now),
        )
    if _is_reported(observed, card):
        look = actions.LookAgain(at=now + _seconds(DOUBT_SECONDS))
        return _report_health(observed, now) or (
            (look,) if observed.lagging and observed.may_be_disproved else ()
        )
    if failures.find_dead_link(card) is not None:
        return _await(observed, now)
    return (actions.ReportVisible(card=card),)


def _is_due(observed: actions.Observed, now: datetime.datetime) -> bool:
    """Return whether to try again: at once after a change of the device, else at intervals until the deadline."""
    attempt = observed.attempt
    if attempt is None or attempt.card != observed.card:
        return True
    if attempt.memory != observed.attachment.spec.memory:
        return True
    if attempt.final:
        return False
    return not _has_final_failure(observed) and _next_attempt(attempt) <= now < _deadline(observed, now)


def _next_attempt(attempt: actions.Attempt) -> datetime.datetime:
    """Return the time of the next attempt: after half of the time spent so far, within limits."""
    taken = (attempt.at - attempt.since).total_seconds() / 2
    return attempt.at + _seconds(max(LOOK_FIRST_SECONDS, min(LOOK_SECONDS, taken)))


def _is_reported(observed: actions.Observed, card: model.Card) -> bool:
    """Return whether the report matches the card. After a reboot, a move or a change of claims it does not."""
    node, claim = observed.attachment.status.node, observed.attachment.spec.claim
    if node is None or not observed.attachment.holds(attachments.VISIBLE):
        return False
    if claim is not None and node.claim_uid != claim.uid:
        return False
    is_same_address = (node.boot_id, node.pci_address) == (observed.boot_id, card.address)
    return is_same_address and card.has_stayed(node.pci_address, node.arrival)


def update_verdict(
    attachment: attachments.DeviceAttachment, verdict: verdicts.Verdict
) -> attachments.NodeReport:
    """Return the report with a new verdict. If the verdict is Unknown, the former findings stay."""
    former = attachment.status.node or attachments.NodeReport()
    unknown = verdict.status is verdicts.Status.UNKNOWN
    findings = tuple(
        attachments.NodeFinding(
            name=taint.key,
            value=taint.value,
            effect=taint.effect.value,
            message=taint.message[:FINDING_MESSAGE_CHARS],
        )
        for taint in verdict.taints[: attachments.FINDINGS_MAX]
    )
    return msgspec.structs.replace(
        former,
        health=verdict.status.value,
        health_message=meta.cut(verdict.message),
        findings=former.findings if unknown else findings,
    )


def _report_health(observed: actions.Observed, now: datetime.datetime) -> tuple[actions.Action, ...]:
    node, verdict = observed.attachment.status.node, observed.health
    reported = node.health if node is not None else ""
    if node == update_verdict(observed.attachment, verdict):
        return ()
    if not reported and verdict.status is verdicts.Status.UNKNOWN:
        return ()
    if not reported and verdict.status is verdicts.Status.HEALTHY:
        settled = (observed.visible_at or now) + _seconds(HEALTHY_AFTER_SECONDS)
        if now < settled:
            return (actions.LookAgain(at=settled),)
    return (actions.ReportHealth(verdict=verdict),)


def _treat(
    observed: actions.Observed, card: model.Card, now: datetime.datetime
) -> tuple[actions.Action, ...]:
    """Return the steps to treat a used device, before it goes to the next claim or to none."""
    if observed.held_by is not None:
        return ()
    if observed.sharers or observed.offered:
        # The former claim has lent them. A claim that waits for the device gives up by itself.
        return (actions.LookAgain(at=now + _seconds(LOOK_SECONDS)),)
    match observed.treated:
        case None:
            return (actions.Treat(card=card),)
        case treatment_plan.Done():
            return (actions.ReportClean(card=card),)
        case treatment_plan.InProgress(seconds=seconds):
            # Without a deadline, because a claim that waits for the device gives up by itself.
            return (actions.LookAgain(at=now + _seconds(seconds)),)
        case treatment_plan.Blocked(message=why):
            attempt = observed.attempt
            begun = attempt.since if attempt is not None else now
            if _is_failed(observed):
                return ()
            if now < begun + observed.patience:
                return (actions.LookAgain(at=now + _seconds(LOOK_SECONDS)),)
            message = f"{card.address} cannot be handed on, for its last user's data are left: {why}"
            return (actions.ReportFailed(reason=reasons.NOT_CLEANED, message=message),)


def _wait(observed: actions.Observed, now: datetime.datetime) -> tuple[actions.Action, ...]:
    """Return the steps while the device is absent."""
    status = observed.attachment.status
    if not observed.attachment.holds(attachments.ATTACHED) or _is_failed(observed):
        return ()
    was_here = status.node is not None and status.node.boot_id == observed.boot_id
    if was_here and isinstance(observed.match, matching.Absent) and observed.match.settles:
        return (actions.LookAgain(at=now + _seconds(LOOK_SECONDS)),)
    if was_here and is_another(observed.match):
        return (failures.build_late(observed),)
    if was_here and not isinstance(observed.match, matching.Ambiguous):
        return (failures.build_loss(observed.attachment),)
    waiting = _await(observed, now)
    if isinstance(observed.match, matching.Unpowered) and isinstance(waiting[0], actions.LookAgain):
        attempt = observed.attempt
        if attempt is None or now >= _next_attempt(attempt):
            return (
                actions.PowerSlot(slot=observed.match.slot.name),
                actions.LookAgain(at=now + _seconds(LOOK_FIRST_SECONDS)),
            )
    return waiting


def is_another(match: matching.Match) -> bool:
    """Return whether the formerly recognised card is not the device, or can no longer be."""
    return isinstance(match, matching.Unrecognised) or (
        isinstance(match, matching.Wrong) and match.was_recognised
    )


def _await(observed: actions.Observed, now: datetime.datetime) -> tuple[actions.Action, ...]:
    """Return the next look at a device that is not ready, or its failure after the deadline."""
    if not observed.attachment.holds(attachments.ATTACHED) or _has_final_failure(observed):
        return ()
    deadline = _deadline(observed, now)
    if now < deadline:
        return (actions.LookAgain(at=min(deadline, _next_look(observed, now))),)
    is_lost = (
        _was_reported(observed)
        and observed.card is None
        and not isinstance(observed.match, matching.Ambiguous)
        and not is_another(observed.match)
    )
    return (failures.build_loss(observed.attachment) if is_lost else failures.build_late(observed),)


def _next_look(observed: actions.Observed, now: datetime.datetime) -> datetime.datetime:
    """Return the time of the next look at a device or slot that may change without an event."""
    match observed.match:
        case matching.Absent(slot=None, settles=False) if not observed.lagging:
            return _deadline(observed, now)
        case matching.Found() | matching.Unpowered() if observed.attempt is not None:
            return max(_next_attempt(observed.attempt), now + _seconds(LOOK_FIRST_SECONDS))
        case _:
            return now + _seconds(LOOK_SECONDS)


def _deadline(observed: actions.Observed, now: datetime.datetime) -> datetime.datetime:
    """Return the deadline by which the device has to be ready."""
    status = observed.attachment.status
    begun = observed.attached_at or now
    if status.node is not None and status.node.boot_id != observed.boot_id:
        begun = max(begun, observed.since)
    elif observed.attempt is not None and (
        observed.attachment.holds(attachments.VISIBLE) or _is_back(observed)
    ):
        # A device that is no longer ready, or was lost, has the same time to become ready again.
        begun = max(begun, observed.attempt.since)
    if observed.attempt is not None and observed.attempt.waited is not None:
        # Another device was missing, and its own attachment reports that.
        begun = max(begun, observed.attempt.waited)
    return begun + observed.patience


def _was_reported(observed: actions.Observed) -> bool:
    return meta.find(observed.attachment.status.conditions, attachments.VISIBLE) is not None


def _is_failed(observed: actions.Observed) -> bool:
    return _failure_reason(observed) is not None


def _has_final_failure(observed: actions.Observed) -> bool:
    """Return whether a failure is reported that the device's return does not end."""
    return _is_failed(observed) and not _is_back(observed)


def _is_back(observed: actions.Observed) -> bool:
    return observed.card is not None and _failure_reason(observed) == reasons.DEVICE_LOST


def _failure_reason(observed: actions.Observed) -> str | None:
    visible = meta.find(observed.attachment.status.conditions, attachments.VISIBLE)
    return visible.reason if visible is not None and visible.status == "False" else None


def _seconds(amount: float) -> datetime.timedelta:
    return datetime.timedelta(seconds=amount)
