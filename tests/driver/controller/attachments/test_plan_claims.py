"""The controller's state machine of one device that changes hands: who waits for it, takes it over or is refused."""

import datetime

import pytest
from tests.scenes.attachmentplan import (
    ATTACHED,
    DETACH,
    FREE,
    GOING,
    INVISIBLE,
    LATE,
    LONG_AGO,
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

STUCK = meta.Condition(type="Released", status="False", reason="InUse", message="held by pid 4711")
WAITING = {
    "the next claim waits for a device that is being released": (
        {"attachment": GOING, "host_id": "h1"},
        [actions.RequeueAfter(seconds=60.0)],
    ),
    "and while that goes on": (
        {"attachment": FREE, "host_id": "h1", "detach": call("unknown")},
        [actions.CallFabric(side=DETACH)],
    ),
    "not forever, and it gets the reason": (
        LATE | {"attachment": attachment(STUCK, deleting=True), "host_id": "h1"},
        [
            actions.ReportFailed(
                demand=LATE["demand"],
                failure=attachments.Failure(
                    reason=reasons.ATTACH_DEADLINE_EXCEEDED,
                    message="the device is still being released from node n1: held by pid 4711",
                ),
            )
        ],
    ),
    "once": (
        {"attachment": GOING, "host_id": "h1", "demand": demand(seen_at=LONG_AGO, failure_reported=True)},
        [],
    ),
    "the claim that has the device gets no failure": (
        {"attachment": GOING, "host_id": "h1", "demand": demand(seen_at=LONG_AGO, attach_reported=True)},
        [],
    ),
    "a second claim with the device is refused": (
        {"attachment": attachment(ATTACHED), "host_id": "h1"}
        | {"demand": demand(attach_reported=True, visible_reported=True)}
        | {"competing_demands": (LATE["demand"],)},
        [
            actions.ReportFailed(
                demand=LATE["demand"],
                failure=attachments.Failure(
                    reason=reasons.DEVICE_IN_USE, message="the device was given to claim ns/c already"
                ),
            )
        ],
    ),
    "unless the two only overlap for a moment": (
        {
            "competing_demands": (OTHER,),
            "attachment": attachment(),
            "attach": call("running", retry_after_seconds=60.0),
        },
        [actions.RequeueAfter(seconds=5.0)],
    ),
    "and the first goes on": (
        {"competing_demands": (LATE["demand"],)},
        [actions.ReportFailed, actions.Create],
    ),
}

READY = attachments.NodeReport(claim_uid="u")
HERE = {"attachment": attachment(ATTACHED, node=READY), "host_id": "h1"}
KEEP = {"keep": datetime.timedelta(seconds=60)}
IDLE = KEEP | {
    "idle_at": NOW - datetime.timedelta(seconds=30),
    "attachment": attachment(ATTACHED, claim=None, idle_since="2026-01-01T23:59:30Z"),
    "host_id": "h1",
}
CHANGING_HANDS = {
    "the next claim on the node takes it over": (HERE | {"demand": OTHER}, [actions.TakeOver(demand=OTHER)]),
    "a claim on another node does not": (
        HERE | {"demand": demand(allocation_timestamp="later", node="n2", host_id="h2")},
        [actions.Delete],
    ),
    "a claim that failed already does not": (
        HERE | {"demand": demand(allocation_timestamp="later", failure_reported=True)},
        [actions.Delete],
    ),
    "a device that is not attached yet is not taken over": (
        {"attachment": attachment(node=READY), "demand": OTHER},
        [actions.Delete],
    ),
    "a device with a problem is not handed on": (
        {"attachment": attachment(ATTACHED, INVISIBLE, node=READY), "host_id": "h1", "demand": OTHER},
        [actions.Delete],
    ),
    "a device that vanished is not handed on": (
        {"attachment": attachment(ATTACHED, node=READY), "host_id": None, "demand": OTHER},
        [actions.Delete],
    ),
    "a device that its node has not made ready is not handed on": (
        {"attachment": attachment(ATTACHED), "host_id": "h1", "demand": OTHER},
        [actions.Delete],
    ),
    "nothing is kept where the policy of the Fabric forbids it": (HERE | {"demand": None}, [actions.Delete]),
    "without a claim it is kept": (HERE | KEEP | {"demand": None}, [actions.KeepIdle]),
    "on a node that is gone nothing is kept": (
        HERE | KEEP | {"demand": None, "node_gone_at": NOW},
        [actions.Delete],
    ),
    "idle": (IDLE | {"demand": None}, [actions.RequeueAfter(seconds=30.0)]),
    "idle for too long": (IDLE | {"demand": None, "keep": datetime.timedelta(seconds=30)}, [actions.Delete]),
    "idle, and the Fabric keeps nothing any more": (
        IDLE | {"demand": None, "keep": datetime.timedelta()},
        [actions.Delete],
    ),
    "one of the least number of its model is idle forever": (IDLE | {"demand": None, "keep": None}, []),
    "the next claim ends the timer": (IDLE, [actions.TakeOver]),
    "a claim elsewhere ends the wait": (IDLE | {"demand": demand(node="n2", host_id="h2")}, [actions.Delete]),
    "the operator's force goes first": (
        {"attachment": attachment(ATTACHED, forced=True), "host_id": "h1"},
        [actions.Delete],
    ),
    "forced, it needs no word of the node": (
        {"attachment": attachment(deleting=True, forced=True), "host_id": "h1", "demand": None},
        [actions.QueryOperation(side=DETACH)],
    ),
}

BY_HAND = attachment(ATTACHED, claim=None)
HELD = {
    "a claim with the device gets a failure and no report of an attach": (
        {"attachment": BY_HAND, "host_id": "h1"},
        [actions.ReportFailed],
    ),
    "with the failure it is left alone": (
        {"attachment": BY_HAND, "host_id": "h1", "demand": demand(failure_reported=True)},
        [],
    ),
    "without a finalizer that comes first": (
        {"attachment": attachment(claim=None, finalizers=()), "host_id": "h1"},
        [actions.Adopt],
    ),
}


@pytest.mark.parametrize(("changes", "steps"), cases(WAITING) + cases(CHANGING_HANDS) + cases(HELD))
def test_the_next_steps(changes, steps):
    assert_next_steps(changes, steps)
