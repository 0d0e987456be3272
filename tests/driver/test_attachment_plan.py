"""The controller's state machine of one device: from any state, the next safe steps."""

import datetime

import pytest

from drawbar.driver.api import attachments, meta
from drawbar.driver.controller.attachments import plan

NOW = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
CLAIM = attachments.ClaimReference(namespace="ns", name="c", uid="u")
FAILURE = attachments.Failure(reason="FabricError", message="the link did not come up")
PASSING = attachments.Failure(reason="FabricError", message="busy", retryable=True)
ATTACHED = meta.Condition(type="Attached", status="True")
RELEASED = meta.Condition(type="Released", status="True")
INVISIBLE = meta.Condition(type="Visible", status="False", reason="DriverNotBound", message="no driver")


def wish(**changes):
    known = {
        "claim": CLAIM,
        "node": "n1",
        "host_id": "h1",
        "pool": "f/e",
        "allocation_timestamp": "t",
        "allocated_at": NOW,
        "attached_said": False,
        "failed_said": False,
    }
    return plan.Wish(**(known | changes))


def attachment(*conditions, deleting=False, claim=CLAIM, finalizers=(attachments.FINALIZER,), error=None):
    return attachments.DeviceAttachment(
        metadata=meta.ObjectMeta(
            name="f.d", uid="a1", finalizers=finalizers, deletion_timestamp="now" if deleting else None
        ),
        spec=attachments.AttachmentSpec(
            fabric="f",
            device_id="d",
            driver="drawbar.dev",
            pool="f/e",
            device="d",
            node_name="n1",
            host_id="h1",
            identity=attachments.Identity(device_class="gpu"),
            claim=claim,
            allocation_timestamp="t" if claim else None,
        ),
        status=attachments.AttachmentStatus(conditions=conditions, error=error),
    )


def call(state, **changes):
    return plan.Call(state=state, **changes)


def observed(**changes):
    known = {
        "attachment": None,
        "wish": wish(),
        "present": True,
        "host_id": None,
        "attach": call("unasked"),
        "detach": call("unasked"),
        "tainted": False,
        "node_gone": False,
        "patience": datetime.timedelta(seconds=60),
    }
    return plan.Observed(**(known | changes))


LATE = {"wish": wish(allocated_at=NOW - datetime.timedelta(seconds=60))}
OTHER = wish(allocation_timestamp="later")
ATTACH, DETACH = plan.Side.ATTACH, plan.Side.DETACH

BEGIN = {
    "nothing is asked": ({"wish": None}, []),
    "the intent is stored before the fabric is called": ({}, [plan.Create]),
    "a failure that was said is not said again": ({"wish": wish(failed_said=True)}, []),
    "a device that is gone": ({"present": False}, [plan.SayFailed]),
    "a node that is no host": ({"wish": wish(host_id=None)}, [plan.SayFailed]),
    "a device that another host has": ({"host_id": "h9"}, [plan.SayFailed]),
    "a device that this host has already": ({"host_id": "h1"}, [plan.Create]),
    "too late": (LATE, [plan.SayFailed]),
    "a silent fabric is waited for": ({"present": None}, [plan.LookAgain]),
    "a silent fabric is waited for until the deadline": ({"present": None} | LATE, [plan.SayFailed]),
    "a silent fabric knows no hosts": ({"present": None, "wish": wish(host_id=None)}, [plan.LookAgain]),
}

ATTACHING = {
    "another claim wants it": ({"wish": OTHER}, [plan.Delete]),
    "nobody wants it": ({"wish": None}, [plan.Delete]),
    "held by hand": ({"wish": None, "attachment": attachment(claim=None)}, [plan.Ask(side=ATTACH)]),
    "made by hand without the finalizer": (
        {"wish": None, "attachment": attachment(claim=None, finalizers=())},
        [plan.Adopt],
    ),
    "after a restart the fabric is asked first": ({}, [plan.Ask(side=ATTACH)]),
    "the fabric knows nothing": ({"attach": call("unknown")}, [plan.CallFabric(side=ATTACH)]),
    "under way": ({"attach": call("running", retry_after_seconds=5.0)}, [plan.LookAgain(seconds=5.0)]),
    "under way near the deadline": (
        {
            "attach": call("running", retry_after_seconds=5.0),
            "wish": wish(allocated_at=NOW - datetime.timedelta(seconds=59)),
        },
        [plan.LookAgain(seconds=1.0)],
    ),
    "under way and shown already is not yet done": (
        {"attach": call("running"), "host_id": "h1"},
        [plan.LookAgain(seconds=1.0)],
    ),
    "done": ({"attach": call("succeeded"), "host_id": "h1"}, [plan.SayAttached, plan.RecordAttached]),
    "done before we came": (
        {"attach": call("unknown"), "host_id": "h1"},
        [plan.SayAttached, plan.RecordAttached],
    ),
    "done and said on the claim": (
        {"attach": call("succeeded"), "host_id": "h1", "wish": wish(attached_said=True)},
        [plan.RecordAttached],
    ),
    "done, but the fabric does not show it": (
        {"attach": call("succeeded")},
        [plan.ReadFabric, plan.LookAgain(seconds=1.0)],
    ),
    "recorded, and the claim does not say so": (
        {"attachment": attachment(ATTACHED), "host_id": "h1"},
        [plan.SayAttached],
    ),
    "all said": ({"attachment": attachment(ATTACHED), "host_id": "h1", "wish": wish(attached_said=True)}, []),
    "it was there and is not: never again by itself": ({"attachment": attachment(ATTACHED)}, []),
    "too late": (LATE, [plan.RecordFailure]),
    "gone meanwhile": ({"present": False}, [plan.RecordFailure]),
    "refused": ({"attach": call("failed", failure=FAILURE)}, [plan.RecordFailure(failure=FAILURE)]),
    "failed in passing": ({"attach": call("failed", failure=PASSING)}, [plan.Retry(side=ATTACH)]),
    "failed in passing, a moment ago": (
        {"attach": call("failed", failure=PASSING, due=False, retry_after_seconds=2.0)},
        [plan.LookAgain(seconds=2.0)],
    ),
    "the fabric has been silent since the start": ({"present": None}, [plan.LookAgain(seconds=60.0)]),
}

FAILED = {
    "the taint comes first": ({"attachment": attachment(error=FAILURE)}, [plan.Taint(failure=FAILURE)]),
    "then the claims": ({"attachment": attachment(error=FAILURE), "tainted": True}, [plan.SayFailed]),
    "then nothing until the claim lets go": (
        {"attachment": attachment(error=FAILURE), "tainted": True, "wish": wish(failed_said=True)},
        [],
    ),
    "what the node could not initialise": ({"attachment": attachment(ATTACHED, INVISIBLE)}, [plan.Taint]),
    "the node hears of the taint by the record": (
        {"attachment": attachment(ATTACHED, INVISIBLE), "tainted": True},
        [plan.RecordFailure, plan.SayFailed],
    ),
    "a full host is not the device's fault": (
        {"attachment": attachment(error=attachments.Failure(reason=plan.NO_FREE_PORT, message=""))},
        [plan.SayFailed],
    ),
    "a device that is gone has no slice to taint": (
        {"attachment": attachment(error=FAILURE), "present": False},
        [plan.SayFailed],
    ),
    "by hand: nobody to tell": ({"attachment": attachment(claim=None, error=FAILURE), "wish": None}, []),
}

GOING = attachment(deleting=True)
FREE = attachment(RELEASED, deleting=True)
RELEASING = {
    "the node still has it": ({"attachment": GOING, "host_id": "h1"}, []),
    "the node is gone": ({"attachment": GOING, "host_id": "h1", "node_gone": True}, [plan.Ask(side=DETACH)]),
    "after a restart the fabric is asked first": (
        {"attachment": FREE, "host_id": "h1"},
        [plan.Ask(side=DETACH)],
    ),
    "the fabric knows nothing": (
        {"attachment": FREE, "host_id": "h1", "detach": call("unknown")},
        [plan.CallFabric(side=DETACH)],
    ),
    "under way": ({"attachment": FREE, "detach": call("running")}, [plan.LookAgain(seconds=1.0)]),
    "done, but the fabric does not show it": (
        {"attachment": FREE, "host_id": "h1", "detach": call("succeeded")},
        [plan.ReadFabric, plan.LookAgain],
    ),
    "free": ({"attachment": FREE, "detach": call("succeeded")}, [plan.RemoveFinalizer]),
    "somebody else has it now": (
        {"attachment": FREE, "host_id": "h9", "detach": call("succeeded")},
        [plan.RemoveFinalizer],
    ),
    "the device is gone": ({"attachment": FREE, "present": False}, [plan.RemoveFinalizer]),
    "a silent fabric says nothing of free": ({"attachment": FREE, "present": None}, []),
    "refused: tried until it is free": (
        {"attachment": FREE, "host_id": "h1", "detach": call("failed", failure=FAILURE)},
        [plan.Retry(side=DETACH)],
    ),
    "refused a moment ago": (
        {"attachment": FREE, "host_id": "h1", "detach": call("failed", failure=FAILURE, due=False)},
        [plan.LookAgain],
    ),
    "another's finalizer is none of our business": (
        {"attachment": attachment(RELEASED, deleting=True, finalizers=("other",))},
        [],
    ),
}


def cases(table, **common):
    return [pytest.param(common | changes, steps, id=name) for name, (changes, steps) in table.items()]


@pytest.mark.parametrize(
    ("changes", "steps"),
    cases(BEGIN)
    + cases(ATTACHING, attachment=attachment())
    + cases(FAILED, host_id="h1")
    + cases(RELEASING, wish=None),
)
def test_the_next_steps(changes, steps):
    planned = plan.plan(observed(**changes), NOW)
    assert len(planned) == len(steps), planned
    for action, step in zip(planned, steps, strict=True):
        assert isinstance(action, step) if isinstance(step, type) else action == step
