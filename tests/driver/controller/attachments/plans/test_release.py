"""The release of a device: its node lets it go, then the fabric detaches it."""

import datetime

import pytest
from tests.scenes.attachmentplan import (
    ATTACH,
    DETACH,
    FREE,
    GOING,
    NOW,
    RELEASED,
    assert_next_steps,
    attachment,
    call,
    cases,
)

from drawbar.driver.api import attachments
from drawbar.driver.catalogue import reasons
from drawbar.driver.controller.attachments import actions

FAILURE = attachments.Failure(reason="FabricError", message="the link did not come up")

NO_DEVICE = attachments.Failure(reason=reasons.DEVICE_GONE, message="no such device")

PENDING = attachments.Failure(
    reason=reasons.OPERATION_PENDING, message="operation o1 is in flight", retryable=True
)

RELEASING = {
    "the node still has it": ({"attachment": GOING, "host_id": "h1"}, []),
    "the node is gone, and may come back": (
        {"attachment": GOING, "host_id": "h1", "node_gone_at": NOW + datetime.timedelta(seconds=7)},
        [actions.RequeueAfter(seconds=7.0)],
    ),
    "the fabric is abandoned, and the node still has it": (
        {"attachment": GOING, "present": None, "given_up": True},
        [],
    ),
    "the fabric is abandoned": (
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
    "a running attach is cancelled": (
        {"attachment": FREE, "attach": call("running"), "detach": call("unknown")},
        [actions.Cancel(side=ATTACH), actions.RequeueAfter],
    ),
    "an endless detach is cancelled": (
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


@pytest.mark.parametrize(("changes", "steps"), cases(RELEASING, demand=None, attach=call("succeeded")))
def test_the_steps_of_a_release(changes, steps):
    assert_next_steps(changes, steps)
