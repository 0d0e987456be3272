"""The controller's state machine of one device: from any state, the next safe steps."""

import datetime

import pytest
from tests.scenes.attachmentplan import (
    LATE,
    NOW,
    assert_next_steps,
    cases,
    demand,
)

from drawbar.driver.api import attachments
from drawbar.driver.catalogue import reasons
from drawbar.driver.controller import marks
from drawbar.driver.controller.attachments import actions

REFUSED = attachments.Failure(reason=reasons.DEVICE_INCOMPATIBLE, message="not in one fabric")

SOON = NOW + datetime.timedelta(seconds=7)

INVALID = demand(failure=attachments.Failure(reason="InvalidParameters", message="x"))

BEGIN = {
    "nothing is asked": ({"demand": None}, []),
    "the intent is stored before the fabric is called": ({}, [actions.Create]),
    "a reported failure is not reported again": ({"demand": demand(failure_reported=True)}, []),
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
    "for any reason": (
        {"attaches_at": SOON, "demand": demand(host_id=None)},
        [actions.RequeueAfter(seconds=7.0)],
    ),
    "nor for its parameters": ({"attaches_at": SOON, "demand": INVALID}, [actions.RequeueAfter(seconds=7.0)]),
    "which it then fails for": ({"attaches_at": NOW, "demand": INVALID}, [actions.ReportFailed]),
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


@pytest.mark.parametrize(("changes", "steps"), cases(BEGIN))
def test_the_steps_before_there_is_an_attachment(changes, steps):
    assert_next_steps(changes, steps)
