"""The attach of a device that has its attachment: asked for, followed, reported, or given up."""

import datetime

import msgspec
import pytest
from tests.scenes.attachmentplan import (
    ATTACH,
    ATTACHED,
    LATE,
    NOW,
    OTHER,
    assert_next_steps,
    attachment,
    call,
    cases,
    demand,
)

from drawbar.driver.api import attachments, meta
from drawbar.driver.catalogue import reasons
from drawbar.driver.controller.attachments import actions

FAILURE = attachments.Failure(reason="FabricError", message="the link did not come up")

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

NOT_BEGUN = attachments.Failure(
    reason=reasons.ATTACH_NOT_BEGUN,
    message="not attached within 60 s of the allocation: namespace ns has begun 120 attaches",
)

MISFIT = attachments.Failure(
    reason=reasons.ATTACHMENT_MISMATCH, message="spec.deviceID is a, and device d is b"
)

OWNER = meta.OwnerReference(api_version="v1", kind="ConfigMap", name="c", uid="c")


def with_metadata(changed=None, **changes):
    """Return an attachment with changed metadata."""
    changed = changed or attachment()
    metadata = msgspec.structs.replace(changed.metadata, **changes)
    return msgspec.structs.replace(changed, metadata=metadata)


READY = demand(attach_reported=True, visible_reported=True)

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
    "done and reported on the claim": (
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
    "all reported": ({"attachment": attachment(ATTACHED), "host_id": "h1", "demand": READY}, []),
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
    "too late, and its namespace was at its limit": (
        LATE | {"queue": "namespace ns has begun 120 attaches"},
        [actions.RecordFailure(failure=NOT_BEGUN)],
    ),
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


@pytest.mark.parametrize(("changes", "steps"), cases(ATTACHING, attachment=attachment()))
def test_the_steps_of_an_attach(changes, steps):
    assert_next_steps(changes, steps)
