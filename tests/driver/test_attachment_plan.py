"""The controller's state machine of one device: from any state, the next safe steps."""

import datetime

import pytest

from drawbar.driver.api import attachments, meta
from drawbar.driver.controller.attachments import actions, plan

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
    return actions.Wish(**(known | changes))


def attachment(
    *conditions,
    deleting=False,
    claim=CLAIM,
    finalizers=(attachments.FINALIZER,),
    error=None,
    idle_since=None,
    forced=False,
    node=None,
):
    return attachments.DeviceAttachment(
        metadata=meta.ObjectMeta(
            name="f.d",
            uid="a1",
            finalizers=finalizers,
            deletion_timestamp="now" if deleting else None,
            annotations={attachments.FORCE_ANNOTATION: "true"} if forced else {},
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
            idle_since=idle_since,
        ),
        status=attachments.AttachmentStatus(conditions=conditions, error=error, node=node),
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


LONG_AGO = NOW - datetime.timedelta(seconds=60)
LATE = {"wish": wish(allocated_at=LONG_AGO)}
OTHER = wish(allocation_timestamp="later")
ATTACH, DETACH = actions.Side.ATTACH, actions.Side.DETACH

TOO_LATE = attachments.Failure(
    reason=plan.DEADLINE,
    message="not attached within 60 s of the allocation; see the Fabric's conditions",
)
NOT_TAKEN = attachments.Failure(
    reason=plan.UNREACHABLE,
    message="the fabric manager did not take the request within 60 s of the allocation",
)

BEGIN = {
    "nothing is asked": ({"wish": None}, []),
    "the intent is stored before the fabric is called": ({}, [actions.Create]),
    "a failure that was said is not said again": ({"wish": wish(failed_said=True)}, []),
    "a device that is gone": ({"present": False}, [actions.SayFailed]),
    "a node that is no host": ({"wish": wish(host_id=None)}, [actions.SayFailed]),
    "a device that another host has": ({"host_id": "h9"}, [actions.SayFailed]),
    "a device that this host has already": ({"host_id": "h1"}, [actions.Create]),
    "too late": (LATE, [actions.SayFailed]),
    "a silent fabric is waited for": ({"present": None}, [actions.LookAgain]),
    "a silent fabric is waited for until the deadline": ({"present": None} | LATE, [actions.SayFailed]),
    "a silent fabric knows no hosts": ({"present": None, "wish": wish(host_id=None)}, [actions.LookAgain]),
}

ATTACHING = {
    "another claim wants it": ({"wish": OTHER}, [actions.Delete]),
    "nobody wants it": ({"wish": None}, [actions.Delete]),
    "held by hand": ({"wish": None, "attachment": attachment(claim=None)}, [actions.Ask(side=ATTACH)]),
    "made by hand without the finalizer": (
        {"wish": None, "attachment": attachment(claim=None, finalizers=())},
        [actions.Adopt],
    ),
    "after a restart the fabric is asked first": ({}, [actions.Ask(side=ATTACH)]),
    "the fabric knows nothing": ({"attach": call("unknown")}, [actions.CallFabric(side=ATTACH)]),
    "under way": ({"attach": call("running", retry_after_seconds=5.0)}, [actions.LookAgain(seconds=5.0)]),
    "under way near the deadline": (
        {
            "attach": call("running", retry_after_seconds=5.0),
            "wish": wish(allocated_at=NOW - datetime.timedelta(seconds=59)),
        },
        [actions.LookAgain(seconds=1.0)],
    ),
    "under way and shown already is not yet done": (
        {"attach": call("running"), "host_id": "h1"},
        [actions.LookAgain(seconds=1.0)],
    ),
    "done": ({"attach": call("succeeded"), "host_id": "h1"}, [actions.SayAttached, actions.RecordAttached]),
    "done before we came": (
        {"attach": call("unknown"), "host_id": "h1"},
        [actions.SayAttached, actions.RecordAttached],
    ),
    "done and said on the claim": (
        {"attach": call("succeeded"), "host_id": "h1", "wish": wish(attached_said=True)},
        [actions.RecordAttached],
    ),
    "done, but the fabric does not show it": (
        {"attach": call("succeeded")},
        [actions.ReadFabric, actions.LookAgain(seconds=1.0)],
    ),
    "done, and its news may still come": (
        {"attach": call("succeeded", due=False, retry_after_seconds=0.5)},
        [actions.LookAgain(seconds=0.5)],
    ),
    "recorded, and the claim does not say so": (
        {"attachment": attachment(ATTACHED), "host_id": "h1"},
        [actions.SayAttached],
    ),
    "all said": ({"attachment": attachment(ATTACHED), "host_id": "h1", "wish": wish(attached_said=True)}, []),
    "it was there and is not: never again by itself": ({"attachment": attachment(ATTACHED)}, []),
    "too late": (LATE | {"attach": call("running")}, [actions.RecordFailure(failure=TOO_LATE)]),
    "too late, and the fabric never took the request": (LATE, [actions.RecordFailure(failure=NOT_TAKEN)]),
    "gone meanwhile": ({"present": False}, [actions.RecordFailure]),
    "refused": ({"attach": call("failed", failure=FAILURE)}, [actions.RecordFailure(failure=FAILURE)]),
    "failed in passing": ({"attach": call("failed", failure=PASSING)}, [actions.Retry(side=ATTACH)]),
    "failed in passing, a moment ago": (
        {"attach": call("failed", failure=PASSING, due=False, retry_after_seconds=2.0)},
        [actions.LookAgain(seconds=2.0)],
    ),
    "the fabric has been silent since the start": ({"present": None}, [actions.LookAgain(seconds=60.0)]),
}

FAILED = {
    "the taint comes first": ({"attachment": attachment(error=FAILURE)}, [actions.Taint(failure=FAILURE)]),
    "then the claims": ({"attachment": attachment(error=FAILURE), "tainted": True}, [actions.SayFailed]),
    "then nothing until the claim lets go": (
        {"attachment": attachment(error=FAILURE), "tainted": True, "wish": wish(failed_said=True)},
        [],
    ),
    "what the node could not initialise": ({"attachment": attachment(ATTACHED, INVISIBLE)}, [actions.Taint]),
    "the node hears of the taint by the record": (
        {"attachment": attachment(ATTACHED, INVISIBLE), "tainted": True},
        [actions.RecordFailure, actions.SayFailed],
    ),
    "a full host is not the device's fault": (
        {"attachment": attachment(error=attachments.Failure(reason=plan.NO_FREE_PORT, message=""))},
        [actions.SayFailed],
    ),
    "a device that is gone has no slice to taint": (
        {"attachment": attachment(error=FAILURE), "present": False},
        [actions.SayFailed],
    ),
    "a silent manager is not the device's fault": (
        {"attachment": attachment(error=NOT_TAKEN)},
        [actions.SayFailed],
    ),
    "by hand: nobody to tell": ({"attachment": attachment(claim=None, error=FAILURE), "wish": None}, []),
}

GOING = attachment(deleting=True)
FREE = attachment(RELEASED, deleting=True)
RELEASING = {
    "the node still has it": ({"attachment": GOING, "host_id": "h1"}, []),
    "the node is gone": (
        {"attachment": GOING, "host_id": "h1", "node_gone": True},
        [actions.Ask(side=DETACH)],
    ),
    "after a restart the fabric is asked first": (
        {"attachment": FREE, "host_id": "h1"},
        [actions.Ask(side=DETACH)],
    ),
    "the fabric knows nothing": (
        {"attachment": FREE, "host_id": "h1", "detach": call("unknown")},
        [actions.CallFabric(side=DETACH)],
    ),
    "under way": ({"attachment": FREE, "detach": call("running")}, [actions.LookAgain(seconds=1.0)]),
    "done, but the fabric does not show it": (
        {"attachment": FREE, "host_id": "h1", "detach": call("succeeded")},
        [actions.ReadFabric, actions.LookAgain],
    ),
    "done, and its news may still come": (
        {
            "attachment": FREE,
            "host_id": "h1",
            "detach": call("succeeded", due=False, retry_after_seconds=0.5),
        },
        [actions.LookAgain(seconds=0.5)],
    ),
    "an attach that may be under way is asked for first": (
        {"attachment": FREE, "attach": call("unasked"), "detach": call("unknown")},
        [actions.Ask(side=ATTACH)],
    ),
    "an attach that is under way is given up": (
        {"attachment": FREE, "attach": call("running"), "detach": call("unknown")},
        [actions.Cancel(side=ATTACH), actions.LookAgain],
    ),
    "a detach that never ends is given up": (
        {"attachment": FREE, "host_id": "h1", "detach": call("running", age_seconds=301.0)},
        [actions.Cancel(side=DETACH), actions.LookAgain],
    ),
    "free": ({"attachment": FREE, "detach": call("succeeded")}, [actions.RemoveFinalizer]),
    "somebody else has it now": (
        {"attachment": FREE, "host_id": "h9", "detach": call("succeeded")},
        [actions.RemoveFinalizer],
    ),
    "the device is gone": ({"attachment": FREE, "present": False}, [actions.RemoveFinalizer]),
    "a silent fabric says nothing of free": ({"attachment": FREE, "present": None}, []),
    "refused: tried until it is free": (
        {"attachment": FREE, "host_id": "h1", "detach": call("failed", failure=FAILURE)},
        [actions.Retry(side=DETACH)],
    ),
    "refused a moment ago": (
        {"attachment": FREE, "host_id": "h1", "detach": call("failed", failure=FAILURE, due=False)},
        [actions.LookAgain],
    ),
    "another's finalizer is none of our business": (
        {"attachment": attachment(RELEASED, deleting=True, finalizers=("other",))},
        [],
    ),
}


STUCK = meta.Condition(type="Released", status="False", reason="InUse", message="held by pid 4711")
WAITING = {
    "the next claim waits for a device that is being released": (
        {"attachment": GOING, "host_id": "h1"},
        [actions.LookAgain(seconds=60.0)],
    ),
    "and while that goes on": (
        {"attachment": FREE, "host_id": "h1", "detach": call("unknown")},
        [actions.LookAgain(seconds=60.0), actions.CallFabric(side=DETACH)],
    ),
    "not for ever, and it hears why": (
        LATE | {"attachment": attachment(STUCK, deleting=True), "host_id": "h1"},
        [
            actions.SayFailed(
                wish=LATE["wish"],
                failure=attachments.Failure(
                    reason=plan.DEADLINE,
                    message="the device is still being released from node n1: held by pid 4711",
                ),
            )
        ],
    ),
    "once": (
        {"attachment": GOING, "host_id": "h1", "wish": wish(allocated_at=LONG_AGO, failed_said=True)},
        [],
    ),
    "whoever has the device is told nothing": (
        {"attachment": GOING, "host_id": "h1", "wish": wish(allocated_at=LONG_AGO, attached_said=True)},
        [],
    ),
    "a second claim that was given the device is refused": (
        {"attachment": attachment(ATTACHED), "host_id": "h1", "wish": wish(attached_said=True)}
        | {"rivals": (LATE["wish"],)},
        [
            actions.SayFailed(
                wish=LATE["wish"],
                failure=attachments.Failure(
                    reason=plan.IN_USE, message="the device was given to claim ns/c already"
                ),
            )
        ],
    ),
    "unless the two only overlap for a moment": (
        {"rivals": (OTHER,), "attachment": attachment(), "attach": call("running", retry_after_seconds=60.0)},
        [actions.LookAgain(seconds=5.0), actions.LookAgain(seconds=5.0)],
    ),
    "and the first goes on": ({"rivals": (LATE["wish"],)}, [actions.SayFailed, actions.Create]),
}

READY = attachments.NodeReport(claim_uid="u")
HERE = {"attachment": attachment(ATTACHED, node=READY), "host_id": "h1"}
KEEP = {"keep": datetime.timedelta(seconds=60)}
IDLE = KEEP | {
    "attachment": attachment(ATTACHED, claim=None, idle_since="2026-01-01T23:59:30Z"),
    "host_id": "h1",
}
CHANGING_HANDS = {
    "the next claim on the node takes it over": (HERE | {"wish": OTHER}, [actions.TakeOver(wish=OTHER)]),
    "a claim on another node does not": (
        HERE | {"wish": wish(allocation_timestamp="later", node="n2", host_id="h2")},
        [actions.Delete],
    ),
    "a claim that failed already does not": (
        HERE | {"wish": wish(allocation_timestamp="later", failed_said=True)},
        [actions.Delete],
    ),
    "a device that is not attached yet is nobody's to take over": (
        {"attachment": attachment(node=READY), "wish": OTHER},
        [actions.Delete],
    ),
    "a device with a problem is not handed on": (
        {"attachment": attachment(ATTACHED, INVISIBLE, node=READY), "host_id": "h1", "wish": OTHER},
        [actions.Delete],
    ),
    "a device that vanished is not handed on": (
        {"attachment": attachment(ATTACHED, node=READY), "host_id": None, "wish": OTHER},
        [actions.Delete],
    ),
    "a device that its node has not made ready is not handed on": (
        {"attachment": attachment(ATTACHED), "host_id": "h1", "wish": OTHER},
        [actions.Delete],
    ),
    "nothing is kept where the Fabric says so": (HERE | {"wish": None}, [actions.Delete]),
    "without a claim it is kept": (HERE | KEEP | {"wish": None}, [actions.KeepIdle]),
    "on a node that is gone nothing is kept": (
        HERE | KEEP | {"wish": None, "node_gone": True},
        [actions.Delete],
    ),
    "idle": (IDLE | {"wish": None}, [actions.LookAgain(seconds=30.0)]),
    "idle for too long": (IDLE | {"wish": None, "keep": datetime.timedelta(seconds=30)}, [actions.Delete]),
    "idle, and the Fabric keeps nothing any more": (
        IDLE | {"wish": None, "keep": datetime.timedelta()},
        [actions.Delete],
    ),
    "one of the least number of its model is idle for ever": (IDLE | {"wish": None, "keep": None}, []),
    "the next claim ends the timer": (IDLE, [actions.TakeOver]),
    "a claim elsewhere ends the wait": (IDLE | {"wish": wish(node="n2", host_id="h2")}, [actions.Delete]),
    "the operator's force goes first": (
        {"attachment": attachment(ATTACHED, forced=True), "host_id": "h1"},
        [actions.Delete],
    ),
    "forced, it needs no word of the node": (
        {"attachment": attachment(deleting=True, forced=True), "host_id": "h1", "wish": None},
        [actions.Ask(side=DETACH)],
    ),
}

BY_HAND = attachment(ATTACHED, claim=None)
HELD = {
    "a claim that was given it is told, and never that it is attached": (
        {"attachment": BY_HAND, "host_id": "h1"},
        [actions.SayFailed],
    ),
    "told, it is left alone": (
        {"attachment": BY_HAND, "host_id": "h1", "wish": wish(failed_said=True)},
        [],
    ),
    "without a finalizer that comes first": (
        {"attachment": attachment(claim=None, finalizers=()), "host_id": "h1"},
        [actions.Adopt],
    ),
}


def cases(table, **common):
    return [pytest.param(common | changes, steps, id=name) for name, (changes, steps) in table.items()]


@pytest.mark.parametrize(
    ("changes", "steps"),
    cases(BEGIN)
    + cases(ATTACHING, attachment=attachment())
    + cases(FAILED, host_id="h1")
    + cases(RELEASING, wish=None, attach=call("succeeded"))
    + cases(WAITING)
    + cases(CHANGING_HANDS)
    + cases(HELD),
)
def test_the_next_steps(changes, steps):
    planned = plan.plan(observed(**changes), NOW)
    assert len(planned) == len(steps), planned
    for action, step in zip(planned, steps, strict=True):
        assert isinstance(action, step) if isinstance(step, type) else action == step
