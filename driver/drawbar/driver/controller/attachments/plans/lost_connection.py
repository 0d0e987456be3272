"""An attached device whose connection the fabric manager does not show."""

import datetime

from drawbar.driver.api import attachments, meta
from drawbar.driver.catalogue import reasons
from drawbar.driver.controller import outcomes
from drawbar.driver.controller.attachments import actions, contradictions
from drawbar.driver.controller.attachments.plans import failed_claims, steps
from drawbar.driver.controller.attachments.plans.part_state import PartState
from drawbar.driver.controller.attachments.plans.steps import Steps

# A node's report that it finds no device waits this long for a listing that confirms the fabric manager's view.
CONFIRM_SECONDS = 3 * contradictions.APART_SECONDS
# The most repeated attaches of a device whose connection the fabric manager no longer shows.
RENEWALS = 3
FORGOTTEN = "the fabric manager no longer shows this connection"


def find_problem(observed: PartState, attachment: attachments.DeviceAttachment) -> attachments.Failure | None:
    """Return why the attachment fails; if the fabric connects nothing, the node finds nothing."""
    failure, shown = outcomes.problem(attachment), observed.contradiction
    if failure is not None and shown is not None and shown.is_confirmed:
        is_shown = observed.is_connected(attachment.spec.host_id)
        if _is_blind(attachment, failure) and not is_shown:
            return _not_shown(attachment, shown)
    return failure


def _is_blind(attachment: attachments.DeviceAttachment, failure: attachments.Failure) -> bool:
    """Return whether only the node reports the failure, and finds no device."""
    return attachment.status.error is None and failure.reason == reasons.DEVICE_NOT_FOUND


def is_unconfirmed(
    observed: PartState, attachment: attachments.DeviceAttachment, failure: attachments.Failure
) -> bool:
    """Return whether the next listing may show that the fabric manager, not the host, is the cause of the failure."""
    shown = observed.contradiction
    if shown is None or shown.is_over or shown.is_confirmed or observed.is_connected(attachment.spec.host_id):
        return False
    return _is_blind(attachment, failure) and shown.age_seconds < CONFIRM_SECONDS


def respond(
    observed: PartState,
    attachment: attachments.DeviceAttachment,
    contradiction: contradictions.Contradiction,
    now: datetime.datetime,
) -> Steps:
    """Return the steps after a contradiction: confirm it; then attach the device again, fail its claim, or report it.

    If the node has seen the device, or another client has it, the device is left as it is.
    """
    if not contradiction.is_confirmed:
        if contradiction.look_seconds <= 0:
            return (actions.ReadFabric(), actions.RequeueAfter(seconds=steps.READ_AGAIN_SECONDS))
        return steps.look_within(
            failed_claims.await_node(observed, attachment, now), contradiction.look_seconds
        )
    reason = reasons.CONNECTION_NOT_SHOWN if contradiction.host_id is None else reasons.CONNECTED_ELSEWHERE
    if _is_seen(observed, attachment):
        record = _record_contradiction(attachment, contradiction)
        message = _describe_seen(attachment, contradiction, record)
        reported = _report_contradiction(attachment, reason, message, record=record)
        return (*reported, *failed_claims.await_node(observed, attachment, now))
    # A fabric that chooses the device may give another one.
    is_renewed = (
        contradiction.host_id is None
        and observed.attach.renewals < RENEWALS
        and attachment.status.device is None
    )
    left = observed.seconds_left(now)
    if is_renewed and (left is None or left > 0):
        more = f"; attached again, {observed.attach.renewals + 1} of {RENEWALS} times"
        message = _not_shown(attachment, contradiction, more).message
        report = actions.RecordContradiction(reason=reason, message=message, is_attached=False, renews=True)
        return (report, actions.Retry(side=outcomes.Side.ATTACH))
    times = (
        f", {observed.attach.renewals} times after it was attached again" if observed.attach.renewals else ""
    )
    if observed.demand is not None:
        return (actions.RecordFailure(failure=_not_shown(attachment, contradiction, times)),)
    more = f"{times}; look at the fabric manager, then {_release_hint(attachment.spec)}"
    return _report_contradiction(attachment, reason, _not_shown(attachment, contradiction, more).message)


def _is_seen(observed: PartState, attachment: attachments.DeviceAttachment) -> bool:
    """Return whether the node has seen the device, so that a pod may be using it."""
    is_reported = observed.demand is not None and observed.demand.visible_reported
    return attachment.holds(attachments.VISIBLE) or attachment.status.node is not None or is_reported


def _not_shown(
    attachment: attachments.DeviceAttachment,
    contradiction: contradictions.Contradiction,
    more: str = "",
    *,
    since: str = "",
) -> attachments.Failure:
    """Return a contradiction as a failure: another client has the device, or it is free."""
    spec = attachment.spec
    begin = f"{FORGOTTEN}: since {since} it" if since else f"{FORGOTTEN}: it"
    if contradiction.host_id is None:
        message = f"{begin} lists {spec.device_id} as free, not at host {spec.host_id}{more}"
        return attachments.Failure(reason=reasons.CONNECTION_NOT_SHOWN, message=message)
    message = (
        f"{begin} lists {spec.device_id} at host {contradiction.host_id}, not at host {spec.host_id} by this cluster, so "
        f"another client of the manager moved it{more}"
    )
    return attachments.Failure(reason=reasons.DEVICE_IN_USE, message=message)


def _record_contradiction(
    attachment: attachments.DeviceAttachment, contradiction: contradictions.Contradiction
) -> attachments.ContradictionRecord:
    """Return the record of a contradiction; the existing one while the manager shows the same."""
    recorded, host_id = attachment.status.contradiction, contradiction.host_id or ""
    if recorded is not None and recorded.host_id == host_id:
        return recorded
    return attachments.ContradictionRecord(since=contradiction.since, host_id=host_id)


def _describe_seen(
    attachment: attachments.DeviceAttachment,
    contradiction: contradictions.Contradiction,
    record: attachments.ContradictionRecord,
) -> str:
    """Return the report on a device that its node has seen."""
    spec = attachment.spec
    more = (
        f"; node {spec.node_name} has seen the device, so nothing is changed under it; connect it to host {spec.host_id} again at "
        f"the fabric manager, or {_release_hint(spec)}"
    )
    return _not_shown(attachment, contradiction, more, since=record.since).message


def _release_hint(spec: attachments.AttachmentSpec) -> str:
    if spec.claim is None:
        return f"run drawbar fabric detach {spec.device_id} --fabric {spec.fabric}"
    return f"delete the pods of claim {spec.claim.namespace}/{spec.claim.name}"


def _report_contradiction(
    attachment: attachments.DeviceAttachment,
    reason: str,
    message: str,
    *,
    record: attachments.ContradictionRecord | None = None,
) -> Steps:
    """Return the report, or no step if it is already written. With a record the device stays attached."""
    condition = meta.find(attachment.status.conditions, attachments.ATTACHED)
    wanted, is_attached = meta.cut(message), record is not None
    if condition is not None and (condition.is_true, condition.reason, condition.message) == (
        is_attached,
        reason,
        wanted,
    ):
        return ()
    return (
        actions.RecordContradiction(reason=reason, message=message, is_attached=is_attached, record=record),
    )
