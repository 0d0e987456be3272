"""The state machine of one fabric device.

Invariants, after every prefix of every plan:

- the fabric is called only for a device that has a DeviceAttachment, whose name is the lock;
- `ReportAttached` is planned only when the fabric reports the device on the host of this attachment;
- `RemoveFinalizer` is planned only in these cases: the fabric has confirmed a detach, refuses it because the device no
  longer exists, or shows the device connected by another owner; or an administrator has given the fabric up;
- people's changes of an attachment's labels, finalizers and owners are corrected before anything else is planned;
- a connection with another owner's mark is never reported as ours, and never ended;
- `ReportAttached` about a composite is planned only when all its members are attached;
- no claim waits longer than the scheduler does without a condition that says why;
- a device whose connection the fabric manager no longer shows is attached again only while it is free and no node has
  seen it, and at most `lost_connection.RENEWALS` times;
- nothing is begun for a claim, and it does not fail again, during the pause after its last failure.

For every observation the plan holds the next safe steps. A call to the fabric is always the last step of a plan:
its effect is observed, never assumed.

Source: KEP-5007; `docs/architecture.md`.
"""

import datetime

import msgspec

from drawbar.driver.api import attachments, meta
from drawbar.driver.catalogue import reasons
from drawbar.driver.controller import claims as claim_index
from drawbar.driver.controller import marks, outcomes
from drawbar.driver.controller.attachments import actions
from drawbar.driver.controller.attachments.plans import attach, failed_claims, lost_connection, steps
from drawbar.driver.controller.attachments.plans.part_state import CallState, PartState
from drawbar.driver.controller.attachments.plans.steps import Steps

# A host of ours that is no node may become one meanwhile.
UNMAPPED_SECONDS = 60.0
# The record of a new memory chunk may be on its way.
ORPHAN_SECONDS = 5.0


def plan(observed: PartState, now: datetime.datetime) -> Steps:
    """Return the next safe steps; none if there is nothing to do until something changes."""
    demand, attachment = observed.demand, observed.attachment
    # Nothing is attached for a claim with invalid parameters.
    is_served = attachment is not None and _is_for(attachment, demand)
    if demand is not None and demand.failure is not None and not demand.failure_reported and not is_served:
        return failed_claims.await_pause(observed, now) or (
            actions.ReportFailed(demand=demand, failure=demand.failure),
        )
    refusals, seconds = failed_claims.refuse_competitors(demand, observed.competing_demands, now)
    return steps.look_within((*refusals, *_next_steps(observed, now)), seconds)


def _next_steps(observed: PartState, now: datetime.datetime) -> Steps:
    attachment = observed.attachment
    if attachment is None:
        return _begin(observed, now)
    if not _is_marked(attachment):
        return (actions.Adopt(),)
    if attachment.deleting:
        refusal, seconds = refuse_next_claim(observed, attachment, now)
        return steps.look_within((*refusal, *release(observed, attachment, now)), seconds)
    if attachment.forced:
        return (actions.Delete(),)
    if attachment.held_by_hand:
        return _keep_by_hand(observed, attachment, now)
    if not _is_for(attachment, observed.demand):
        # An unreadable claim may still have the device.
        return () if observed.is_claim_unreadable else _change_hands(observed, attachment, now)
    return make_ready(observed, attachment, now)


def _is_marked(attachment: attachments.DeviceAttachment) -> bool:
    """Return whether the metadata is complete; an object that is being deleted takes no finalizer."""
    metadata, spec = attachment.metadata, attachment.spec
    is_held = attachment.deleting or attachments.FINALIZER in metadata.finalizers
    is_labelled = metadata.labels.get(attachments.NODE_LABEL) == attachments.node_label(spec.node_name)
    # An operator's attachment may go with another object of the operator.
    is_owned = bool(metadata.owner_references) and not attachment.held_by_hand
    return is_held and is_labelled and not is_owned


def _is_for(attachment: attachments.DeviceAttachment, demand: claim_index.Demand | None) -> bool:
    spec = attachment.spec
    return (
        demand is not None
        and spec.claim is not None
        and (spec.claim.uid, spec.allocation_timestamp, spec.node_name)
        == (demand.claim.uid, demand.allocation_timestamp, demand.node)
        and not _is_misdirected(attachment, demand)
    )


def _is_misdirected(attachment: attachments.DeviceAttachment, demand: claim_index.Demand) -> bool:
    """Return whether the claim's node is mapped to another host by now; a device that a pod may be using stays on its host."""
    in_use = attachment.holds(attachments.VISIBLE) or demand.visible_reported
    return not in_use and demand.host_id not in (None, attachment.spec.host_id)


def _keep_by_hand(
    observed: PartState, attachment: attachments.DeviceAttachment, now: datetime.datetime
) -> Steps:
    """Return the steps that keep an operator's attachment by hand; a claim of its device fails."""
    if observed.demand is not None and not observed.demand.failure_reported:
        message = f"an operator holds the device with DeviceAttachment {attachment.metadata.name}"
        return failed_claims.fail_claim(observed.demand, reasons.DEVICE_IN_USE, message)
    if observed.misfit is not None and attachment.status.error is None:
        return (actions.RecordFailure(failure=observed.misfit),)
    return make_ready(msgspec.structs.replace(observed, demand=None), attachment, now)


def _change_hands(
    observed: PartState, attachment: attachments.DeviceAttachment, now: datetime.datetime
) -> Steps:
    """Return the steps for a device whose claim no longer has it: hand it on, keep it idle, or detach it."""
    spec, demand = attachment.spec, observed.demand
    usable = (
        observed.is_connected(spec.host_id)
        and attachment.holds(attachments.ATTACHED)
        and outcomes.problem(attachment) is None
        and observed.node_gone_at is None
        and _is_vouched_for(attachment, demand)
    )
    if demand is not None and not demand.failure_reported:
        is_same_target = (demand.node, demand.host_id, demand.pool) == (
            spec.node_name,
            spec.host_id,
            spec.pool,
        )
        return (actions.TakeOver(demand=demand),) if usable and is_same_target else (actions.Delete(),)
    if not usable or observed.keep == datetime.timedelta():
        return (actions.Delete(),)
    if spec.idle_since is None:
        return (actions.KeepIdle(),)
    if observed.keep is None:
        return ()
    left = ((observed.idle_at or now) + observed.keep - now).total_seconds()
    return (actions.RequeueAfter(seconds=left),) if left > 0 else (actions.Delete(),)


def _is_vouched_for(attachment: attachments.DeviceAttachment, demand: claim_index.Demand | None) -> bool:
    """Return whether the node has recorded the claim whose data it must clean; it does so when the device is ready.

    If the node's record names a claim, that claim gets the device back, even if somebody changed the attachment by
    hand.
    """
    spec, node = attachment.spec, attachment.status.node
    recorded = {claim.uid for claim in (spec.claim, demand.claim if demand is not None else None) if claim}
    return spec.claim is None or (node is not None and node.claim_uid in recorded)


def _begin(observed: PartState, now: datetime.datetime) -> Steps:
    demand = observed.demand
    if observed.orphaned_at is not None:
        left = ORPHAN_SECONDS - (now - observed.orphaned_at).total_seconds()
        return (actions.RequeueAfter(seconds=left),) if left > 0 else (actions.ReleaseMemory(),)
    if observed.owner is marks.Owner.OURS and not _is_reported_there(observed, demand):
        # A connection of ours without a record is restored for no claim and then detached, since its last user is
        # unknown.
        if observed.node is None or observed.host_id is None:
            return (actions.RequeueAfter(seconds=UNMAPPED_SECONDS),)
        return (actions.Restore(node=observed.node, host_id=observed.host_id),)
    if demand is None or demand.failure_reported:
        return ()
    if pause := failed_claims.await_pause(observed, now):
        return pause
    failure = attach.find_obstacle(observed, demand, now) or observed.forbidden
    if failure is not None:
        return (actions.ReportFailed(demand=demand, failure=failure),)
    return (
        attach.await_deadline(observed, now) if observed.present is None else (actions.Create(demand=demand),)
    )


def _is_reported_there(observed: PartState, demand: claim_index.Demand | None) -> bool:
    """Return whether the device is where its claim's status reports it; then the claim may be using it, and keeps it."""
    return (
        demand is not None
        and demand.attach_reported
        and not demand.failure_reported
        and observed.host_id == demand.host_id
        and observed.node == demand.node
    )


def make_ready(
    observed: PartState, attachment: attachments.DeviceAttachment, now: datetime.datetime
) -> Steps:
    """Return the next steps for an attachment with its demand, or of an operator: connect, report, or give up."""
    demand, contradiction = observed.demand, observed.contradiction
    failure = lost_connection.find_problem(observed, attachment)
    if demand is None and attachment.status.error is None:
        # An operator keeps a device that its node does not find.
        failure = None
    if failure is not None and lost_connection.is_unconfirmed(observed, attachment, failure):
        assert contradiction is not None
        return lost_connection.respond(observed, attachment, contradiction, now)
    if failure is not None and not failed_claims.is_ready_after_all(demand, failure):
        return failed_claims.give_up(observed, attachment, failure, now)
    if demand is not None and demand.failed_at is not None:
        return failed_claims.roll_back(observed, demand, now)
    if failure is not None:
        return (actions.RecordAttached(),)
    attached = attachment.holds(attachments.ATTACHED)
    settled = observed.attach.state in (CallState.SUCCEEDED, CallState.UNKNOWN)
    if observed.is_connected(attachment.spec.host_id) and (settled or attached):
        return _report_attached(observed, attachment, now)
    if contradiction is not None and not contradiction.is_over:
        return lost_connection.respond(observed, attachment, contradiction, now)
    if attached:
        # Not known, or to be confirmed: the device does not come back by itself, and the node reports its own view.
        return failed_claims.await_node(observed, attachment, now)
    return attach.connect(observed, now)


def _report_attached(
    observed: PartState, attachment: attachments.DeviceAttachment, now: datetime.datetime
) -> Steps:
    """Return the steps to record that the device is attached: the claim first, since the scheduler waits for it."""
    demand, shown = observed.demand, observed.contradiction
    is_due = demand is not None and not demand.attach_reported and observed.is_whole
    reports = (actions.ReportAttached(demand=demand),) if demand is not None and is_due else ()
    rest = failed_claims.await_node(observed, attachment, now)
    if attachment.holds(attachments.ATTACHED):
        if shown is not None and shown.is_over:
            return steps.look_within((*reports, *rest), shown.look_seconds)
        if outcomes.contradiction(attachment) is None:
            return (*reports, *rest)
    return (*reports, actions.RecordAttached(), *rest)


# A detach that takes longer is cancelled and tried again.
DETACH_PATIENCE_SECONDS = 300.0
# After this time, a device that is still connected was connected again, or never detached.
RECONNECTED_SECONDS = 60.0


def refuse_next_claim(
    observed: PartState, attachment: attachments.DeviceAttachment, now: datetime.datetime
) -> tuple[Steps, float | None]:
    """Return the failure of the next claim for a device in release, once its time is over, with the blocker of the release.

    Returns:
        the steps, and the seconds until the claim fails. A claim whose status has the device attached has it itself.
    """
    demand, left = observed.demand, observed.seconds_left(now)
    if demand is None or left is None or demand.failure_reported or demand.attach_reported:
        return (), None
    if left > 0:
        return (), left
    released = meta.find(attachment.status.conditions, attachments.RELEASED)
    why = f": {released.message}" if released is not None and released.message else ""
    message = f"the device is still being released from node {attachment.spec.node_name}{why}"
    return failed_claims.fail_claim(demand, reasons.ATTACH_DEADLINE_EXCEEDED, message), None


def release(observed: PartState, attachment: attachments.DeviceAttachment, now: datetime.datetime) -> Steps:
    """Return the detach once the node has released the device; a failed detach is repeated until the fabric reports it free."""
    is_ours = attachments.FINALIZER in attachment.metadata.finalizers
    if not is_ours and not observed.is_connected(attachment.spec.host_id):
        return (actions.ReportKept(),)
    if not (attachment.holds(attachments.RELEASED) or attachment.forced):
        if observed.node_gone_at is None:
            return ()
        if now < observed.node_gone_at:
            return (actions.RequeueAfter(seconds=(observed.node_gone_at - now).total_seconds()),)
    if observed.given_up:
        return (actions.RemoveFinalizer(),) if is_ours else (actions.ReportKept(),)
    return _detach(observed, attachment) if observed.present is not None else ()


def _detach(observed: PartState, attachment: attachments.DeviceAttachment) -> Steps:
    attach, call, host_id = observed.attach, observed.detach, attachment.spec.host_id
    # An unfinished attach goes first: it would undo the detach.
    if attach.state is CallState.UNASKED and not observed.is_connected(host_id):
        return (actions.QueryOperation(side=outcomes.Side.ATTACH),)
    if attach.state is CallState.RUNNING:
        return steps.cancel(outcomes.Side.ATTACH, attach)
    gone = (
        observed.present is False and call.failure is not None and call.failure.reason == reasons.DEVICE_GONE
    )
    detached = call.state is CallState.SUCCEEDED and observed.host_id != host_id
    if observed.foreign or detached or (call.state is CallState.FAILED and gone):
        return (actions.RemoveFinalizer(),)
    if call.state is CallState.SUCCEEDED and call.age_seconds > RECONNECTED_SECONDS:
        return steps.retry(outcomes.Side.DETACH, call)
    if call.state is CallState.RUNNING and call.age_seconds > DETACH_PATIENCE_SECONDS:
        return steps.cancel(outcomes.Side.DETACH, call)
    return steps.pursue(attachment, outcomes.Side.DETACH, call)
