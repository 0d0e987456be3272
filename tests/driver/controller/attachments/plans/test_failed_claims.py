"""The end of a claim that does not get its device, or not in time."""

import datetime

import pytest
from tests.scenes.attachmentplan import (
    ATTACHED,
    INVISIBLE,
    NOW,
    assert_next_steps,
    attachment,
    call,
    cases,
    demand,
)

from drawbar.driver.api import attachments
from drawbar.driver.catalogue import reasons
from drawbar.driver.controller.attachments import actions

FAILURE = attachments.Failure(reason="FabricError", message="the link did not come up")

REFUSED = attachments.Failure(reason=reasons.DEVICE_INCOMPATIBLE, message="not in one fabric")

NOT_TAKEN = attachments.Failure(
    reason=reasons.FABRIC_UNREACHABLE,
    message="the fabric manager did not take the request within 60 s of the allocation",
)

AN_HOUR_AGO = NOW - datetime.timedelta(hours=1)

SILENT_FOR_TOO_LONG = {"demand": demand(attach_reported=True, seen_at=NOW - datetime.timedelta(seconds=90))}

SILENT = attachments.Failure(
    reason=reasons.NODE_NOT_RESPONDING,
    message="node n1 did not report the device as ready within 90 s of the allocation; look at its node daemon",
)

HALF = {"host_id": "h1", "is_whole": False}

NOT_WHOLE = attachments.Failure(
    reason=reasons.ATTACH_DEADLINE_EXCEEDED,
    message="the other devices of composite d were not attached within 90 s of the allocation",
)

COMPOSITE = {
    "of a composite it is recorded, and the claim waits for the other devices": (
        HALF | {"attachment": attachment(), "attach": call("succeeded"), "demand": demand()},
        [actions.RecordAttached(), actions.RequeueAfter(seconds=90.0)],
    ),
    "they have time until the deadline": (
        HALF | {"demand": demand(seen_at=NOW - datetime.timedelta(seconds=90))},
        [actions.RecordFailure(failure=NOT_WHOLE)],
    ),
}


@pytest.mark.parametrize(("changes", "steps"), cases(COMPOSITE, attachment=attachment(ATTACHED)))
def test_of_a_composite_whose_devices_are_not_all_attached(changes, steps):
    assert_next_steps(changes, steps)


SILENT_NODE = {
    "its node has time until the deadline": (
        {
            "host_id": "h1",
            "demand": demand(attach_reported=True, seen_at=NOW - datetime.timedelta(seconds=89)),
        },
        [actions.RequeueAfter(seconds=1.0)],
    ),
    "then it is abandoned despite the node's report": (
        {"host_id": "h1"} | SILENT_FOR_TOO_LONG,
        [actions.RecordFailure(failure=SILENT)],
    ),
    "also where the fabric does not show it any more": (
        SILENT_FOR_TOO_LONG,
        [actions.RecordFailure(failure=SILENT)],
    ),
    "the device is tainted first": (
        {"host_id": "h1", "attachment": attachment(ATTACHED, error=SILENT)} | SILENT_FOR_TOO_LONG,
        [actions.Taint()],
    ),
    "then the claim gets the failure": (
        {"host_id": "h1", "attachment": attachment(ATTACHED, error=SILENT), "tainted": True}
        | SILENT_FOR_TOO_LONG,
        [actions.ReportFailed],
    ),
    "a node that reports it on the claim before that keeps it": (
        {"host_id": "h1", "attachment": attachment(ATTACHED, error=SILENT), "tainted": True}
        | {"demand": demand(attach_reported=True, visible_reported=True, seen_at=AN_HOUR_AGO)},
        [actions.RecordAttached],
    ),
    "and after that it does not": (
        {"host_id": "h1", "attachment": attachment(ATTACHED, error=SILENT), "tainted": True}
        | {"demand": demand(visible_reported=True, failure_reported=True, failed_at=NOW)},
        [actions.RequeueAfter(seconds=120.0)],
    ),
    "a device that is in use has no deadline": (
        {"host_id": "h1", "demand": demand(attach_reported=True, visible_reported=True, seen_at=AN_HOUR_AGO)},
        [],
    ),
}

FAILED_LONG_AGO = demand(failure_reported=True, failed_at=NOW - datetime.timedelta(seconds=120))

ABANDONED = {
    "a failed claim has the scheduler's time to be deallocated": (
        {"attachment": attachment(error=FAILURE), "tainted": True}
        | {"demand": demand(failure_reported=True, failed_at=NOW - datetime.timedelta(seconds=119))},
        [actions.RequeueAfter(seconds=1.0)],
    ),
    "then its attach is rolled back": (
        {"attachment": attachment(error=FAILURE), "tainted": True, "demand": FAILED_LONG_AGO},
        [actions.Delete(abandoned=FAILED_LONG_AGO)],
    ),
    "with that of the claim's other devices": (
        {"attachment": attachment(ATTACHED), "demand": FAILED_LONG_AGO},
        [actions.Delete(abandoned=FAILED_LONG_AGO)],
    ),
    "but for a claim that a pod may be using": (
        {"attachment": attachment(ATTACHED, INVISIBLE, error=FAILURE), "tainted": True}
        | {"demand": demand(failure_reported=True, visible_reported=True)},
        [],
    ),
    "and nothing is begun again for it": (
        {"attachment": None, "host_id": None, "demand": FAILED_LONG_AGO},
        [],
    ),
}

FAILED = {
    "the taint comes first": ({"attachment": attachment(error=FAILURE)}, [actions.Taint()]),
    "then the claims": ({"attachment": attachment(error=FAILURE), "tainted": True}, [actions.ReportFailed]),
    "then nothing until the claim lets go": (
        {"attachment": attachment(error=FAILURE), "tainted": True, "demand": demand(failure_reported=True)},
        [],
    ),
    "what the node could not initialise": ({"attachment": attachment(ATTACHED, INVISIBLE)}, [actions.Taint]),
    "the node learns of the taint from the record": (
        {"attachment": attachment(ATTACHED, INVISIBLE), "tainted": True},
        [actions.RecordFailure, actions.ReportFailed],
    ),
    "a full host is not the device's fault": (
        {"attachment": attachment(error=attachments.Failure(reason=reasons.NO_FREE_PORT, message=""))},
        [actions.ReportFailed],
    ),
    "a device that is gone has no slice to taint": (
        {"attachment": attachment(error=FAILURE), "present": False},
        [actions.ReportFailed],
    ),
    "a device that is incompatible with the host works with others": (
        {"attachment": attachment(error=REFUSED)},
        [actions.ReportFailed(demand=demand(), failure=REFUSED)],
    ),
    "a silent manager is not the device's fault": (
        {"attachment": attachment(error=NOT_TAKEN)},
        [actions.ReportFailed],
    ),
    "by hand: no claim to report it to": (
        {"attachment": attachment(claim=None, error=FAILURE), "demand": None},
        [],
    ),
}


@pytest.mark.parametrize(
    ("changes", "steps"),
    cases(SILENT_NODE, attachment=attachment(ATTACHED), attach=call("succeeded"))
    + cases(FAILED, host_id="h1")
    + cases(ABANDONED, host_id="h1"),
)
def test_the_steps_for_a_claim_that_fails(changes, steps):
    assert_next_steps(changes, steps)
