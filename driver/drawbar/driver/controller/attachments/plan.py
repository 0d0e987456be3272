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

import dataclasses
import datetime

from drawbar.driver.api import attachments
from drawbar.driver.catalogue import reasons
from drawbar.driver.controller import claims as claim_index
from drawbar.driver.controller import marks, outcomes
from drawbar.driver.controller.attachments import actions
from drawbar.driver.controller.attachments.plans import attach, failed_claims, ready, release, steps
from drawbar.driver.controller.attachments.plans.part_state import PartState
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
    refusals, seconds = failed_claims.refuse_rivals(demand, observed.competing_demands, now)
    return steps.look_within((*refusals, *_next_steps(observed, now)), seconds)


def _next_steps(observed: PartState, now: datetime.datetime) -> Steps:
    attachment = observed.attachment
    if attachment is None:
        return _begin(observed, now)
    if not _is_marked(attachment):
        return (actions.Adopt(),)
    if attachment.deleting:
        refusal, seconds = release.refuse_next_claim(observed, attachment, now)
        return steps.look_within((*refusal, *release.release(observed, attachment, now)), seconds)
    if attachment.forced:
        return (actions.Delete(),)
    if attachment.held_by_hand:
        return _hold(observed, attachment, now)
    if not _is_for(attachment, observed.demand):
        # An unreadable claim may still have the device.
        return () if observed.is_claim_unreadable else _change_hands(observed, attachment, now)
    return ready.make_ready(observed, attachment, now)


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


def _hold(observed: PartState, attachment: attachments.DeviceAttachment, now: datetime.datetime) -> Steps:
    """Return the steps that keep an operator's attachment by hand; a claim of its device fails."""
    if observed.demand is not None and not observed.demand.failure_reported:
        message = f"an operator holds the device with DeviceAttachment {attachment.metadata.name}"
        return failed_claims.fail_claim(observed.demand, reasons.DEVICE_IN_USE, message)
    if observed.misfit is not None and attachment.status.error is None:
        return (actions.RecordFailure(failure=observed.misfit),)
    return ready.make_ready(dataclasses.replace(observed, demand=None), attachment, now)


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
        same_place = (demand.node, demand.host_id, demand.pool) == (spec.node_name, spec.host_id, spec.pool)
        return (actions.TakeOver(demand=demand),) if usable and same_place else (actions.Delete(),)
    if not usable or observed.keep == datetime.timedelta():
        return (actions.Delete(),)
    if spec.idle_since is None:
        return (actions.KeepIdle(),)
    if observed.keep is None:
        return ()
    left = ((observed.idle_at or now) + observed.keep - now).total_seconds()
    return (actions.RequeueAfter(seconds=left),) if left > 0 else (actions.Delete(),)


def _is_vouched_for(attachment: attachments.DeviceAttachment, demand: claim_index.Demand | None) -> bool:
    """Return whether the node has recorded whose data it has to clean; it does once the device is ready for a claim.

    A claim that has the device by the node's record gets it back, even after changes of the attachment by hand.
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
