"""The release of a device: its node ends the use, then the fabric detaches it."""

import datetime

from drawbar.driver.api import attachments, meta
from drawbar.driver.catalogue import reasons
from drawbar.driver.controller import outcomes
from drawbar.driver.controller.attachments import actions
from drawbar.driver.controller.attachments.plans import failed_claims, steps
from drawbar.driver.controller.attachments.plans.part_state import CallState, PartState
from drawbar.driver.controller.attachments.plans.steps import Steps

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
