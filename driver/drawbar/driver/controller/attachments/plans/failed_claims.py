"""The end of a claim that does not get its device: deadlines, pauses, the report, and the roll-back."""

import datetime
import itertools
from collections.abc import Iterable

from drawbar.driver.api import attachments
from drawbar.driver.catalogue import reasons
from drawbar.driver.controller import claims as claim_index
from drawbar.driver.controller import outcomes
from drawbar.driver.controller.attachments import actions
from drawbar.driver.controller.attachments.plans.part_state import PartState
from drawbar.driver.controller.attachments.plans.steps import Steps

# The longest overlap of the claim that releases a device and the next one that gets it.
OVERLAP_SECONDS = 5.0


def fail_claim(demand: claim_index.Demand, reason: str, message: str) -> Steps:
    """Return the report of a failure on its claim."""
    return (actions.ReportFailed(demand=demand, failure=attachments.Failure(reason=reason, message=message)),)


def refuse_competitors(
    demand: claim_index.Demand | None, competing: Iterable[claim_index.Demand], now: datetime.datetime
) -> tuple[Steps, float | None]:
    """Return the failures of other claims for a device that was given to several by mistake; it stays with the first.

    Returns:
        the steps, and the seconds until a competitor fails that may only overlap for a moment.
    """
    if demand is None:
        return (), None
    message = f"the device was given to claim {demand.claim.namespace}/{demand.claim.name} already"
    left = [
        (competitor, OVERLAP_SECONDS - (now - competitor.seen_at).total_seconds()) for competitor in competing
    ]
    refused = (
        fail_claim(competitor, reasons.DEVICE_IN_USE, message) for competitor, seconds in left if seconds <= 0
    )
    return tuple(itertools.chain(*refused)), min((sec for _, sec in left if sec > 0), default=None)


def await_pause(observed: PartState, now: datetime.datetime) -> Steps:
    """Return the wait during the pause after the claim's failures; without it, the claim would fail as fast as it is allocated."""
    seconds = observed.pause_seconds(now)
    return (actions.RequeueAfter(seconds=seconds),) if seconds > 0 else ()


def await_node(
    observed: PartState, attachment: attachments.DeviceAttachment, now: datetime.datetime
) -> Steps:
    """Return the wait for a silent node, with a deadline; a node with a report has its own deadline."""
    demand = observed.demand
    if demand is None or demand.visible_reported or demand.failure_reported:
        return ()
    left = (demand.seen_at + observed.ready_patience - now).total_seconds()
    if left > 0:
        return (actions.RequeueAfter(seconds=left),)
    within = f"within {observed.ready_patience.total_seconds():.0f} s of the allocation"
    if observed.is_whole:
        reason = reasons.NODE_NOT_RESPONDING
        message = f"node {attachment.spec.node_name} did not report the device as ready {within}; look at its node daemon"
    else:
        reason = reasons.ATTACH_DEADLINE_EXCEEDED
        message = f"the other devices of composite {attachment.spec.allocated} were not attached {within}"
    return (actions.RecordFailure(failure=attachments.Failure(reason=reason, message=message)),)


def is_ready_after_all(demand: claim_index.Demand | None, failure: attachments.Failure) -> bool:
    """Return whether the node reported the device on the claim after the attach was given up, and in time for the claim."""
    return (
        failure.reason == reasons.NODE_NOT_RESPONDING
        and demand is not None
        and demand.visible_reported
        and not demand.failure_reported
    )


def give_up(
    observed: PartState,
    attachment: attachments.DeviceAttachment,
    failure: attachments.Failure,
    now: datetime.datetime,
) -> Steps:
    """Return the steps to give up. The taint comes first, or the scheduler would select the same device again.

    The node's report is recorded after the taint: the record permits the node to write to the claim.
    """
    demand = observed.demand
    if demand is None:
        return ()
    if observed.present and not observed.tainted and outcomes.taints_device(attachment, failure.reason):
        return (actions.Taint(),)
    recorded = () if attachment.status.error is not None else (actions.RecordFailure(failure=failure),)
    reports = () if demand.failure_reported else (actions.ReportFailed(demand=demand, failure=failure),)
    return (*recorded, *reports) or roll_back(observed, demand, now)


def roll_back(observed: PartState, demand: claim_index.Demand, now: datetime.datetime) -> Steps:
    """Return the steps if nobody takes a failed allocation back: first the wait, then the detach.

    If the claim was ready before it failed, a pod may be using it, and nothing is detached.
    """
    if demand.failed_at is None:
        return ()
    left = (demand.failed_at + observed.binding_timeout - now).total_seconds()
    return (actions.RequeueAfter(seconds=left),) if left > 0 else (actions.Delete(abandoned=demand),)
