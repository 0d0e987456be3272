"""The controller's state machine of one device: from any state, the next safe steps."""

import datetime

import msgspec
import pytest
from tests.scenes.attachmentplan import (
    ATTACH,
    ATTACHED,
    DETACH,
    FREE,
    GOING,
    INVISIBLE,
    LATE,
    NOW,
    OTHER,
    RELEASED,
    assert_next_steps,
    attachment,
    call,
    cases,
    demand,
)

from drawbar.driver.api import attachments, meta
from drawbar.driver.catalogue import reasons
from drawbar.driver.controller import marks
from drawbar.driver.controller.attachments import actions

FAILURE = attachments.Failure(reason="FabricError", message="the link did not come up")
NO_DEVICE = attachments.Failure(reason=reasons.DEVICE_GONE, message="no such device")
REFUSED = attachments.Failure(reason=reasons.DEVICE_INCOMPATIBLE, message="not in one fabric")
SOON = NOW + datetime.timedelta(seconds=7)
UNFIT = demand(failure=attachments.Failure(reason="InvalidParameters", message="x"))
PENDING = attachments.Failure(
    reason=reasons.OPERATION_PENDING, message="operation o1 is in flight", retryable=True
)
PASSING = attachments.Failure(reason="FabricError", message="busy", retryable=True)

TOO_LATE = attachments.Failure(
    reason=reasons.ATTACH_DEADLINE_EXCEEDED,
    message="not attached within 60 s of the allocation; see the Fabric's conditions",
)
NOT_TAKEN = attachments.Failure(
    reason=reasons.FABRIC_UNREACHABLE,
    message="the fabric manager did not take the request within 60 s of the allocation",
)

MISFIT = attachments.Failure(
    reason=reasons.ATTACHMENT_MISMATCH, message="spec.deviceID is a, and device d is b"
)
OWNER = meta.OwnerReference(api_version="v1", kind="ConfigMap", name="c", uid="c")


def with_metadata(changed=None, **changes):
    """An attachment whose metadata were changed."""
    changed = changed or attachment()
    metadata = msgspec.structs.replace(changed.metadata, **changes)
    return msgspec.structs.replace(changed, metadata=metadata)


AN_HOUR_AGO = NOW - datetime.timedelta(hours=1)
READY = demand(attach_reported=True, visible_reported=True)
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
    "then it is given up, whatever the node reports": (
        {"host_id": "h1"} | SILENT_FOR_TOO_LONG,
        [actions.RecordFailure(failure=SILENT)],
    ),
    "also where the fabric does not show it any more": (
        SILENT_FOR_TOO_LONG,
        [actions.RecordFailure(failure=SILENT)],
    ),
    "the device is tainted first": (
        {"host_id": "h1", "attachment": attachment(ATTACHED, error=SILENT)} | SILENT_FOR_TOO_LONG,
        [actions.Taint(failure=SILENT)],
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

BEGIN = {
    "nothing is asked": ({"demand": None}, []),
    "the intent is stored before the fabric is called": ({}, [actions.Create]),
    "a failure that was said is not said again": ({"demand": demand(failure_reported=True)}, []),
    "a device that is gone": ({"present": False}, [actions.ReportFailed]),
    "a node that is no host": ({"demand": demand(host_id=None)}, [actions.ReportFailed]),
    "a device that another host has": ({"host_id": "h9"}, [actions.ReportFailed]),
    "a device that this host has already": ({"host_id": "h1"}, [actions.Create]),
    "too late": (LATE, [actions.ReportFailed]),
    "a silent fabric is waited for": ({"present": None}, [actions.RequeueAfter]),
    "a silent fabric is waited for until the deadline": ({"present": None} | LATE, [actions.ReportFailed]),
    "a claim that failed a moment ago waits": ({"attaches_at": SOON}, [actions.RequeueAfter(seconds=7.0)]),
    "and then begins": ({"attaches_at": NOW}, [actions.Create]),
    "neither does it fail again before": (
        {"attaches_at": SOON, "forbidden": REFUSED},
        [actions.RequeueAfter(seconds=7.0)],
    ),
    "for whatever reason": (
        {"attaches_at": SOON, "demand": demand(host_id=None)},
        [actions.RequeueAfter(seconds=7.0)],
    ),
    "nor for its parameters": ({"attaches_at": SOON, "demand": UNFIT}, [actions.RequeueAfter(seconds=7.0)]),
    "which it then fails for": ({"attaches_at": NOW, "demand": UNFIT}, [actions.ReportFailed]),
    "a pair that the manager refused fails at once": (
        {"forbidden": REFUSED},
        [actions.ReportFailed(demand=demand(), failure=REFUSED)],
    ),
    "a connection without a record is taken back before the pause is over": (
        {"attaches_at": SOON, "host_id": "h9", "owner": marks.Owner.OURS, "node": "n9"},
        [actions.Restore],
    ),
    "a silent fabric knows no hosts": (
        {"present": None, "demand": demand(host_id=None)},
        [actions.RequeueAfter],
    ),
}

ATTACHING = {
    "another claim wants it": ({"demand": OTHER}, [actions.Delete]),
    "no claim wants it": ({"demand": None}, [actions.Delete]),
    "its node is mapped to another host meanwhile": ({"demand": demand(host_id="h2")}, [actions.Delete]),
    "its node is mapped to another host, and the fabric has just connected it to the first": (
        {
            "attachment": attachment(ATTACHED),
            "host_id": "h1",
            "attach": call("succeeded"),
            "demand": demand(host_id="h2", attach_reported=True),
        },
        [actions.Delete],
    ),
    "its node is mapped to another host while a pod may be using it": (
        {
            "attachment": attachment(ATTACHED),
            "host_id": "h1",
            "attach": call("succeeded"),
            "demand": demand(host_id="h2", attach_reported=True, visible_reported=True),
        },
        [],
    ),
    "its node is mapped to no host for the moment": (
        {
            "attachment": attachment(ATTACHED),
            "host_id": "h1",
            "attach": call("succeeded"),
            "demand": demand(host_id=None, attach_reported=True, visible_reported=True),
        },
        [],
    ),
    "held by hand": (
        {"demand": None, "attachment": attachment(claim=None)},
        [actions.QueryOperation(side=ATTACH)],
    ),
    "made by hand without the finalizer": (
        {"demand": None, "attachment": attachment(claim=None, finalizers=())},
        [actions.Adopt],
    ),
    "made by hand for another device": (
        {"demand": None, "attachment": attachment(claim=None), "misfit": MISFIT},
        [actions.RecordFailure(failure=MISFIT)],
    ),
    "what did not fit is not tried": (
        {"demand": None, "attachment": attachment(claim=None, error=MISFIT), "misfit": MISFIT},
        [],
    ),
    **{
        f"changed by hand: {what}": ({"attachment": changed}, [actions.Adopt])
        for what, changed in {
            "the label is gone": with_metadata(labels={}),
            "the label of another node": with_metadata(labels={attachments.NODE_LABEL: "other"}),
            "the label, while it is being released": with_metadata(
                labels={}, deletion_timestamp="2026-01-01T00:00:00Z"
            ),
            "the finalizer is gone": with_metadata(finalizers=()),
            "an owner": with_metadata(owner_references=(OWNER,)),
        }.items()
    },
    "the owner of what an operator attached": (
        {"demand": None, "attachment": with_metadata(attachment(claim=None), owner_references=(OWNER,))},
        [actions.QueryOperation(side=ATTACH)],
    ),
    "after a restart the fabric is asked first": ({}, [actions.QueryOperation(side=ATTACH)]),
    "the fabric has no operation": ({"attach": call("unknown")}, [actions.CallFabric(side=ATTACH)]),
    "under way": ({"attach": call("running", retry_after_seconds=5.0)}, [actions.RequeueAfter(seconds=5.0)]),
    "under way near the deadline": (
        {
            "attach": call("running", retry_after_seconds=5.0),
            "demand": demand(seen_at=NOW - datetime.timedelta(seconds=59)),
        },
        [actions.RequeueAfter(seconds=1.0)],
    ),
    "under way and shown already is not yet done": (
        {"attach": call("running"), "host_id": "h1"},
        [actions.RequeueAfter(seconds=1.0)],
    ),
    "done": (
        {"attach": call("succeeded"), "host_id": "h1"},
        [actions.ReportAttached, actions.RecordAttached, actions.RequeueAfter(seconds=90.0)],
    ),
    "done before we came": (
        {"attach": call("unknown"), "host_id": "h1"},
        [actions.ReportAttached, actions.RecordAttached, actions.RequeueAfter],
    ),
    "done and said on the claim": (
        {"attach": call("succeeded"), "host_id": "h1", "demand": demand(attach_reported=True)},
        [actions.RecordAttached, actions.RequeueAfter],
    ),
    "done, but the fabric does not show it": (
        {"attach": call("succeeded")},
        [actions.ReadFabric, actions.RequeueAfter(seconds=1.0)],
    ),
    "done, and its news may still come": (
        {"attach": call("succeeded", due=False, retry_after_seconds=0.5)},
        [actions.RequeueAfter(seconds=0.5)],
    ),
    "recorded, and not in the status of the claim": (
        {"attachment": attachment(ATTACHED), "host_id": "h1"},
        [actions.ReportAttached, actions.RequeueAfter],
    ),
    "all said": ({"attachment": attachment(ATTACHED), "host_id": "h1", "demand": READY}, []),
    "it was there and is not: never again by itself": (
        {"attachment": attachment(ATTACHED), "demand": READY},
        [],
    ),
    "too late": (LATE | {"attach": call("running")}, [actions.RecordFailure(failure=TOO_LATE)]),
    "too late, when a running operation is to be asked for again": (
        LATE | {"attach": call("unasked", age_seconds=59.0)},
        [actions.RecordFailure(failure=TOO_LATE)],
    ),
    "too late, and the fabric never took the request": (LATE, [actions.RecordFailure(failure=NOT_TAKEN)]),
    "gone meanwhile": ({"present": False}, [actions.RecordFailure]),
    "refused": ({"attach": call("failed", failure=FAILURE)}, [actions.RecordFailure(failure=FAILURE)]),
    "failed in passing": ({"attach": call("failed", failure=PASSING)}, [actions.Retry(side=ATTACH)]),
    "another operation is in flight": (
        {"attach": call("failed", failure=PENDING)},
        [actions.EndBlocker(), actions.Retry(side=ATTACH)],
    ),
    "too late, and another operation is in flight": (
        LATE | {"attach": call("failed", failure=PENDING)},
        [actions.RecordFailure(failure=PENDING)],
    ),
    "failed in passing, a moment ago": (
        {"attach": call("failed", failure=PASSING, due=False, retry_after_seconds=2.0)},
        [actions.RequeueAfter(seconds=2.0)],
    ),
    "the fabric has been silent since the start": ({"present": None}, [actions.RequeueAfter(seconds=60.0)]),
}

FAILED = {
    "the taint comes first": ({"attachment": attachment(error=FAILURE)}, [actions.Taint(failure=FAILURE)]),
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

RELEASING = {
    "the node still has it": ({"attachment": GOING, "host_id": "h1"}, []),
    "the node is gone, and may come back": (
        {"attachment": GOING, "host_id": "h1", "node_gone_at": NOW + datetime.timedelta(seconds=7)},
        [actions.RequeueAfter(seconds=7.0)],
    ),
    "the fabric is given up, and the node still has it": (
        {"attachment": GOING, "present": None, "given_up": True},
        [],
    ),
    "the fabric is given up": (
        {"attachment": FREE, "present": None, "given_up": True},
        [actions.RemoveFinalizer],
    ),
    "the node is gone": (
        {"attachment": GOING, "host_id": "h1", "node_gone_at": NOW},
        [actions.QueryOperation(side=DETACH)],
    ),
    "after a restart the fabric is asked first": (
        {"attachment": FREE, "host_id": "h1"},
        [actions.QueryOperation(side=DETACH)],
    ),
    "the fabric has no operation": (
        {"attachment": FREE, "host_id": "h1", "detach": call("unknown")},
        [actions.CallFabric(side=DETACH)],
    ),
    "under way": ({"attachment": FREE, "detach": call("running")}, [actions.RequeueAfter(seconds=1.0)]),
    "done, but the fabric does not show it": (
        {"attachment": FREE, "host_id": "h1", "detach": call("succeeded")},
        [actions.ReadFabric, actions.RequeueAfter],
    ),
    "done, and a minute later the device is connected again, without a mark": (
        {"attachment": FREE, "host_id": "h1", "detach": call("succeeded", age_seconds=61.0)},
        [actions.Retry(side=DETACH)],
    ),
    "done, and its news may still come": (
        {
            "attachment": FREE,
            "host_id": "h1",
            "detach": call("succeeded", due=False, retry_after_seconds=0.5),
        },
        [actions.RequeueAfter(seconds=0.5)],
    ),
    "an attach that may be under way is asked for first": (
        {"attachment": FREE, "attach": call("unasked"), "detach": call("unknown")},
        [actions.QueryOperation(side=ATTACH)],
    ),
    "an attach that is under way is given up": (
        {"attachment": FREE, "attach": call("running"), "detach": call("unknown")},
        [actions.Cancel(side=ATTACH), actions.RequeueAfter],
    ),
    "a detach that never ends is given up": (
        {"attachment": FREE, "host_id": "h1", "detach": call("running", age_seconds=301.0)},
        [actions.Cancel(side=DETACH), actions.RequeueAfter],
    ),
    "free": ({"attachment": FREE, "detach": call("succeeded")}, [actions.RemoveFinalizer]),
    "another host has it now": (
        {"attachment": FREE, "host_id": "h9", "detach": call("succeeded")},
        [actions.RemoveFinalizer],
    ),
    "the device is not listed: a detach is asked for all the same": (
        {"attachment": FREE, "present": False, "attach": call("unknown"), "detach": call("unknown")},
        [actions.CallFabric(side=DETACH)],
    ),
    "the device is not listed, and the detach confirmed": (
        {"attachment": FREE, "present": False, "attach": call("unknown"), "detach": call("succeeded")},
        [actions.RemoveFinalizer],
    ),
    "there is no such device any more": (
        {
            "attachment": FREE,
            "present": False,
            "attach": call("unknown"),
            "detach": call("failed", failure=NO_DEVICE, due=False),
        },
        [actions.RemoveFinalizer],
    ),
    "the fabric refuses a device that it lists": (
        {
            "attachment": FREE,
            "host_id": "h1",
            "attach": call("unknown"),
            "detach": call("failed", failure=NO_DEVICE),
        },
        [actions.Retry(side=DETACH)],
    ),
    "a silent fabric says nothing of free": ({"attachment": FREE, "present": None}, []),
    "refused: tried until it is free": (
        {"attachment": FREE, "host_id": "h1", "detach": call("failed", failure=FAILURE)},
        [actions.Retry(side=DETACH)],
    ),
    "another operation is in flight": (
        {"attachment": FREE, "host_id": "h1", "detach": call("failed", failure=PENDING)},
        [actions.EndBlocker(), actions.Retry(side=DETACH)],
    ),
    "refused a moment ago": (
        {"attachment": FREE, "host_id": "h1", "detach": call("failed", failure=FAILURE, due=False)},
        [actions.RequeueAfter],
    ),
    "another's finalizer keeps the attachment of a free device": (
        {"attachment": attachment(RELEASED, deleting=True, finalizers=("other",))},
        [actions.ReportKept],
    ),
    "a device whose finalizer was taken off is detached all the same": (
        {"attachment": attachment(RELEASED, deleting=True, finalizers=("other",)), "host_id": "h1"},
        [actions.QueryOperation(side=DETACH)],
    ),
    "nothing is taken from a node without its word, finalizer or not": (
        {"attachment": attachment(deleting=True, finalizers=("other",)), "host_id": "h1"},
        [],
    ),
}


@pytest.mark.parametrize(
    ("changes", "steps"),
    cases(BEGIN)
    + cases(ATTACHING, attachment=attachment())
    + cases(SILENT_NODE, attachment=attachment(ATTACHED), attach=call("succeeded"))
    + cases(FAILED, host_id="h1")
    + cases(ABANDONED, host_id="h1")
    + cases(RELEASING, demand=None, attach=call("succeeded")),
)
def test_the_next_steps(changes, steps):
    assert_next_steps(changes, steps)
