"""The attach of a device to the host of its claim, or the obstacle.

Devices that are recognised by their arrival alone are attached to a node one after the other.
"""

import datetime

from drawbar.driver.api import attachments, meta
from drawbar.driver.catalogue import reasons
from drawbar.driver.controller import claims as claim_index
from drawbar.driver.controller import outcomes
from drawbar.driver.controller.attachments import actions
from drawbar.driver.controller.attachments.plans import steps
from drawbar.driver.controller.attachments.plans.part_state import UNBEGUN, CallState, PartState
from drawbar.driver.controller.attachments.plans.steps import Steps

# A node lists its cards within a moment; after this time, its daemon does not run.
LISTING_SECONDS = 15.0
QUEUE_LOOK_SECONDS = 1.0
SEE_FABRIC = "; see the Fabric's conditions"


def connect(observed: PartState, now: datetime.datetime) -> Steps:
    """Return the steps that attach the device, or the record of the obstacle; a silent fabric is waited for."""
    obstacle = find_obstacle(observed, observed.demand, now) if observed.demand is not None else None
    if obstacle is not None:
        return (actions.RecordFailure(failure=obstacle),)
    if observed.present is None:
        return await_deadline(observed, now)
    return _attach(observed, now)


def find_obstacle(
    observed: PartState, demand: claim_index.Demand, now: datetime.datetime
) -> attachments.Failure | None:
    """Return why an attach cannot succeed, or not in time, or None if it may."""
    if observed.present is False:
        return attachments.Failure(
            reason=reasons.DEVICE_GONE, message="the fabric manager no longer lists the device"
        )
    if observed.present and demand.host_id is None:
        message = f"node {demand.node} is not a host of the fabric; map it in the Fabric's spec.hosts"
        return attachments.Failure(reason=reasons.NODE_NOT_ON_FABRIC, message=message)
    if observed.foreign or observed.host_id not in (None, demand.host_id):
        owner = (
            "and not by this cluster" if observed.foreign else "by this cluster, for an earlier allocation"
        )
        message = f"the device is attached to host {observed.host_id}, {owner}"
        return attachments.Failure(reason=reasons.DEVICE_IN_USE, message=message)
    if now < demand.seen_at + observed.patience:
        return None
    seconds, refused = observed.patience.total_seconds(), observed.attach.failure
    if observed.ahead and observed.attachment is not None and observed.attach.state is CallState.UNKNOWN:
        message = f"not attached within {seconds:.0f} s of the allocation: it {describe_queue(observed.attachment, observed.ahead)}"
        return attachments.Failure(reason=reasons.DEVICE_NOT_RECOGNISED, message=message)
    words = _describe_refusal(observed)
    if refused is not None and refused.reason in (
        reasons.FABRIC_CREDENTIALS_REFUSED,
        reasons.OPERATION_PENDING,
        reasons.NO_CAPACITY,
    ):
        return refused
    if observed.attach.state in UNBEGUN and not observed.attach.age_seconds:
        # A call that ran is only due to be asked for again.
        return _fail_unbegun(observed, words)
    message = f"not attached within {seconds:.0f} s of the allocation{words or SEE_FABRIC}"
    return attachments.Failure(reason=reasons.ATTACH_DEADLINE_EXCEEDED, message=message)


def _fail_unbegun(observed: PartState, words: str) -> attachments.Failure:
    """Return the failure of an attach that never began; neither device nor port is to blame."""
    seconds = observed.patience.total_seconds()
    if observed.queue:
        message = f"not attached within {seconds:.0f} s of the allocation: {observed.queue}"
        return attachments.Failure(reason=reasons.ATTACH_NOT_BEGUN, message=message)
    message = f"the fabric manager did not take the request within {seconds:.0f} s of the allocation{words}"
    return attachments.Failure(reason=reasons.FABRIC_UNREACHABLE, message=message)


def _describe_refusal(observed: PartState) -> str:
    """Return the fabric's latest refusal of the attach as the end of a sentence; empty without any."""
    if observed.attach.refused is not None:
        return f"; it refused last: {observed.attach.refused.message}"
    # Else the words recorded by the process before.
    recorded = observed.attachment.status.refusal if observed.attachment is not None else ""
    return f"; it refused last: {recorded}" if recorded else ""


def await_deadline(observed: PartState, now: datetime.datetime) -> Steps:
    """Return the wait until the attach is given up; empty without a demand."""
    left = observed.seconds_left(now)
    return (actions.RequeueAfter(seconds=max(0.0, left)),) if left is not None else ()


def _attach(observed: PartState, now: datetime.datetime) -> Steps:
    call = observed.attach
    if call.state is CallState.FAILED and call.failure is not None and not call.failure.retryable:
        return (actions.RecordFailure(failure=call.failure),)
    wanted = _await_arrival(observed, now) if call.state is CallState.UNKNOWN else ()
    if not wanted:
        wanted = steps.pursue(observed.attachment, outcomes.Side.ATTACH, call)
    return steps.look_within(wanted, observed.seconds_left(now))


def _await_arrival(observed: PartState, now: datetime.datetime) -> Steps:
    """Return the wait until nothing else can be taken for a device that is recognised by its arrival; empty if nothing can."""
    attachment = observed.attachment
    if attachment is None:
        return ()
    if observed.ahead:
        condition = meta.find(attachment.status.conditions, attachments.ATTACHED)
        is_reported = condition is not None and condition.message == describe_queue(
            attachment, observed.ahead
        )
        recorded = () if is_reported else (actions.RecordQueued(ahead=observed.ahead),)
        return (*recorded, actions.RequeueAfter(seconds=QUEUE_LOOK_SECONDS))
    if observed.is_acknowledged:
        return ()
    left = (
        (observed.listed_since or now) + datetime.timedelta(seconds=LISTING_SECONDS) - now
    ).total_seconds()
    if left > 0:
        return (actions.RequeueAfter(seconds=left),)
    message = (
        f"node {attachment.spec.node_name} did not list its cards within {LISTING_SECONDS:.0f} s, and the device shows no "
        "identifier by which it could be recognised without that; look at its node daemon"
    )
    failure = attachments.Failure(reason=reasons.DEVICE_NOT_RECOGNISED, message=message)
    return (actions.RecordFailure(failure=failure),)


def describe_queue(attachment: attachments.DeviceAttachment, ahead: str) -> str:
    """Return the message of an attachment that waits for another."""
    return (
        f"waits until node {attachment.spec.node_name} has recognised the device of DeviceAttachment {ahead}: both are recognised "
        "by their arrival alone, so only one at a time is attached to a node; see docs/recognition.md"
    )
