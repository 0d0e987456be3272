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
    wish,
)

from drawbar.driver.api import attachments, meta
from drawbar.driver.catalogue import reasons
from drawbar.driver.controller.attachments import actions

STUCK = meta.Condition(type="Released", status="False", reason="InUse", message="held by pid 4711")
WAITING = {
    "the next claim waits for a device that is being released": (
        {"attachment": GOING, "host_id": "h1"},
        [actions.LookAgain(seconds=60.0)],
    ),
    "and while that goes on": (
        {"attachment": FREE, "host_id": "h1", "detach": call("unknown")},
        [actions.CallFabric(side=DETACH)],
    ),
    "not for ever, and it gets the reason": (
        LATE | {"attachment": attachment(STUCK, deleting=True), "host_id": "h1"},
        [
            actions.SayFailed(
                wish=LATE["wish"],
                failure=attachments.Failure(
                    reason=reasons.ATTACH_DEADLINE_EXCEEDED,
                    message="the device is still being released from node n1: held by pid 4711",
                ),
            )
        ],
    ),
    "once": (
        {"attachment": GOING, "host_id": "h1", "wish": wish(seen_at=LONG_AGO, failed_said=True)},
        [],
    ),
    "the claim that has the device gets no failure": (
        {"attachment": GOING, "host_id": "h1", "wish": wish(seen_at=LONG_AGO, attached_said=True)},
        [],
    ),
    "a second claim that was given the device is refused": (
        {"attachment": attachment(ATTACHED), "host_id": "h1"}
        | {"wish": wish(attached_said=True, visible_said=True)}
        | {"rivals": (LATE["wish"],)},
        [
            actions.SayFailed(
                wish=LATE["wish"],
                failure=attachments.Failure(
                    reason=reasons.DEVICE_IN_USE, message="the device was given to claim ns/c already"
                ),
            )
        ],
    ),
    "unless the two only overlap for a moment": (
        {"rivals": (OTHER,), "attachment": attachment(), "attach": call("running", retry_after_seconds=60.0)},
        [actions.LookAgain(seconds=5.0)],
    ),
    "and the first goes on": ({"rivals": (LATE["wish"],)}, [actions.SayFailed, actions.Create]),
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
    "the next claim on the node takes it over": (HERE | {"wish": OTHER}, [actions.TakeOver(wish=OTHER)]),
    "a claim on another node does not": (
        HERE | {"wish": wish(allocation_timestamp="later", node="n2", host_id="h2")},
        [actions.Delete],
    ),
    "a claim that failed already does not": (
        HERE | {"wish": wish(allocation_timestamp="later", failed_said=True)},
        [actions.Delete],
    ),
    "a device that is not attached yet is not taken over": (
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
    "nothing is kept where the policy of the Fabric forbids it": (HERE | {"wish": None}, [actions.Delete]),
    "without a claim it is kept": (HERE | KEEP | {"wish": None}, [actions.KeepIdle]),
    "on a node that is gone nothing is kept": (
        HERE | KEEP | {"wish": None, "node_gone_at": NOW},
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
    "a claim that was given it gets a failure, and is never reported as attached": (
        {"attachment": BY_HAND, "host_id": "h1"},
        [actions.SayFailed],
    ),
    "with the failure it is left alone": (
        {"attachment": BY_HAND, "host_id": "h1", "wish": wish(failed_said=True)},
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
