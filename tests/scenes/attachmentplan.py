"""What the plan of one attachment may observe, where its tests begin, and how they compare its steps."""

import datetime

import pytest
from tests.scenes import attachments as scenes

from drawbar.driver.api import attachments, meta
from drawbar.driver.controller import claims as claim_index
from drawbar.driver.controller import outcomes
from drawbar.driver.controller.attachments import plan
from drawbar.driver.controller.attachments.plans import part_state

NOW = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
CLAIM = attachments.ClaimReference(namespace="ns", name="c", uid="u")
ATTACHED = meta.Condition(type="Attached", status="True")
RELEASED = meta.Condition(type="Released", status="True")
INVISIBLE = meta.Condition(type="Visible", status="False", reason="DriverNotBound", message="no driver")


def demand(**changes):
    fields = {
        "claim": CLAIM,
        "node": "n1",
        "host_id": "h1",
        "pool": "f/e",
        "allocation_timestamp": "t",
        "seen_at": NOW,
        "attach_reported": False,
        "failure_reported": False,
    }
    return claim_index.Demand(**(fields | changes))


def attachment(*conditions, claim=CLAIM, finalizers=(attachments.FINALIZER,), forced=False, **changes):
    fields = {"uid": "a1", "fabric": "f", "pool": "f/e", "allocation_timestamp": "t" if claim else None}
    fields["annotations"] = {attachments.FORCE_ANNOTATION: "true"} if forced else {}
    return scenes.attachment(*conditions, claim=claim, finalizers=finalizers, **(fields | changes))


def call(state, **changes):
    return part_state.Call(state=part_state.CallState(state), **changes)


def make_part_state(**changes):
    fields = {
        "attachment": None,
        "demand": demand(),
        "present": True,
        "host_id": None,
        "attach": call("unasked"),
        "detach": call("unasked"),
        "tainted": False,
        "patience": datetime.timedelta(seconds=60),
        "ready_patience": datetime.timedelta(seconds=90),
        "binding_timeout": datetime.timedelta(seconds=120),
    }
    return part_state.PartState(**(fields | changes))


LONG_AGO = NOW - datetime.timedelta(seconds=60)
LATE = {"demand": demand(seen_at=LONG_AGO)}
OTHER = demand(allocation_timestamp="later")
ATTACH, DETACH = outcomes.Side.ATTACH, outcomes.Side.DETACH
GOING = attachment(deleting=True)
FREE = attachment(RELEASED, deleting=True)


def cases(table, **common):
    return [pytest.param(common | changes, steps, id=name) for name, (changes, steps) in table.items()]


def assert_next_steps(changes, steps):
    """Assert that the plan has these steps, each given as an action or its type."""
    planned = plan.plan(make_part_state(**changes), NOW)
    assert len(planned) == len(steps), planned
    for action, step in zip(planned, steps, strict=True):
        assert isinstance(action, step) if isinstance(step, type) else action == step, (action, step)
