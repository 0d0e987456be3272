"""The steps from an attached device to a ready claim: record it, report it, and await the node's report."""

import datetime

from drawbar.driver.api import attachments
from drawbar.driver.controller import outcomes
from drawbar.driver.controller.attachments import actions
from drawbar.driver.controller.attachments.plans import attach, failed_claims, lost_connection, steps
from drawbar.driver.controller.attachments.plans.part_state import CallState, PartState
from drawbar.driver.controller.attachments.plans.steps import Steps


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
    said = (actions.ReportAttached(demand=demand),) if demand is not None and is_due else ()
    rest = failed_claims.await_node(observed, attachment, now)
    if attachment.holds(attachments.ATTACHED):
        if shown is not None and shown.is_over:
            return steps.look_within((*said, *rest), shown.look_seconds)
        if outcomes.contradiction(attachment) is None:
            return (*said, *rest)
    return (*said, actions.RecordAttached(), *rest)
