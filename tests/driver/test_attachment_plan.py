"""The controller's state machine of one device."""

import datetime

from drawbar.driver.api import attachments
from drawbar.driver.controller.attachments import plan

NOW = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)


def wish(**changes):
    claim = attachments.ClaimReference(namespace="ns", name="c", uid="u")
    known = {"host_id": "h1", "pool": "f/e", "attached_said": False, "failed_said": False} | changes
    return plan.Wish(claim=claim, node="n1", allocation_timestamp="t", allocated_at=NOW, **known)


def observed(**changes):
    known = {
        "attachment": None,
        "wish": wish(),
        "present": True,
        "host_id": None,
        "attach": plan.Call(state="unasked"),
        "detach": plan.Call(state="unasked"),
        "tainted": False,
        "node_gone": False,
        "patience": datetime.timedelta(seconds=60),
    }
    return plan.Observed(**(known | changes))


def test_the_intent_is_stored_before_the_fabric_is_called():
    assert plan.plan(observed(), NOW) == (plan.Create(wish=wish()),)


def test_a_claim_for_a_device_that_is_gone_fails_with_its_reason():
    (action,) = plan.plan(observed(present=False), NOW)
    assert isinstance(action, plan.SayFailed)
    assert action.failure.reason == plan.GONE


def test_a_device_that_another_host_has_is_not_touched():
    (action,) = plan.plan(observed(host_id="h9"), NOW)
    assert isinstance(action, plan.SayFailed)
    assert action.failure.reason == plan.IN_USE
