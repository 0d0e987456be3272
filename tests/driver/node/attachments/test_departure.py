"""What the node owes one attachment, decided purely: giving a device back."""

import pytest
from tests.scenes.nodeplan import (
    ATTACHED,
    CARD,
    ELSEWHERE,
    HERE,
    VISIBLE,
    again,
    attachment,
    brief,
    condition,
    make_match,
    make_observation,
    moment,
)

from drawbar.driver.api import attachments
from drawbar.driver.catalogue import reasons
from drawbar.driver.node.attachments import matching, plan
from drawbar.driver.node.treatment import plan as treatment_plan

RELEASED = condition(attachments.RELEASED)
GOING = attachment(ATTACHED, VISIBLE, node=HERE, deleting=True)
NEVER_HERE = attachment(ATTACHED, deleting=True)
GIVEN_BACK = attachment(ATTACHED, RELEASED, node=HERE, deleting=True)
BUSY = treatment_plan.Blocked(reason=reasons.IN_USE, message="held by pid 1", seconds=2)
STUCK = treatment_plan.Blocked(reason=reasons.NO_PROGRESS, message="not for 12 s", seconds=2)
WORKING = treatment_plan.InProgress(seconds=0.5)
ERASING = treatment_plan.InProgress(seconds=1.0, message="sanitizing, 10 % done")
GONE = treatment_plan.Done()


def make_leaving_attachment(reason, message):
    reports = condition(attachments.RELEASED, holds=False, reason=reason, message=message)
    return attachment(ATTACHED, VISIBLE, reports, node=HERE, deleting=True)


DEPARTURE = {
    "let-go": (make_observation(GOING, make_match()), 0, [("Release", "2")]),
    "let-go-though-gone": (make_observation(GOING), 0, [("Release", "2")]),
    "a-step-was-made": (make_observation(GOING, make_match(), treated=WORKING), 1, again(1.5)),
    "is-being-erased": (
        make_observation(GOING, make_match(), treated=ERASING),
        1,
        [("ReportBlocked", reasons.CLEANING), *again(2)],
    ),
    "is-being-erased-as-reported": (
        make_observation(
            make_leaving_attachment(reasons.CLEANING, ERASING.message), make_match(), treated=ERASING
        ),
        1,
        again(2),
    ),
    "released": (make_observation(GOING, treated=GONE), 0, [("ReportReleased", None)]),
    "released-already": (make_observation(GIVEN_BACK), 0, []),
    "shows-up-though-released": (make_observation(GIVEN_BACK, make_match()), 0, [("Release", "2")]),
    "going-again-and-not-recognised": (make_observation(GIVEN_BACK, leaving=CARD), 0, [("Release", "2")]),
    "another-in-its-slot": (make_observation(GIVEN_BACK, make_match(by="slot")), 0, []),
    "back-and-without-a-driver": (
        make_observation(GIVEN_BACK, make_match(by="slot"), leaving=CARD),
        0,
        [("Release", "2")],
    ),
    "gone-again": (make_observation(GIVEN_BACK, make_match(), treated=GONE), 0, []),
    "going-again": (make_observation(GIVEN_BACK, make_match(), treated=WORKING), 0, again(0.5)),
    "another-is-in-its-slot": (make_observation(GIVEN_BACK, matching.Wrong(card=CARD, why="w")), 0, []),
    "never-arrived": (make_observation(NEVER_HERE), 0, [("ReportReleased", None)]),
    "never-attached": (make_observation(attachment(deleting=True)), 0, [("ReportReleased", None)]),
    "never-arrived-and-another-device-is-there": (
        make_observation(NEVER_HERE, matching.Wrong(card=CARD, why="w")),
        0,
        [("ReportReleased", None)],
    ),
    "in-the-slot-that-was-only-meant": (
        make_observation(attachment(deleting=True), make_match(by="slot")),
        0,
        [("ReportReleased", None)],
    ),
    "arrived-and-was-never-reported": (
        make_observation(NEVER_HERE, make_match()),
        0,
        [("RecordLocation", CARD)],
    ),
    "not-recognised-any-more": (make_observation(GOING, leaving=CARD), 0, [("Release", "2")]),
    "moved-with-a-reboot": (
        make_observation(GOING, make_match(ELSEWHERE), boot_id="boot-2"),
        0,
        [("RecordLocation", ELSEWHERE)],
    ),
    "gone-with-a-reboot": (make_observation(GOING, boot_id="boot-2"), 0, [("ReportReleased", None)]),
    "one-of-two": (
        make_observation(GOING, matching.Ambiguous(cards=(CARD, ELSEWHERE))),
        0,
        [("Release", "2")],
    ),
    "either-of-two": (
        make_observation(NEVER_HERE, matching.Ambiguous(cards=(CARD, ELSEWHERE))),
        0,
        [("ReportBlocked", reasons.SERIAL_NOT_UNIQUE)],
    ),
    "held": (make_observation(GOING, make_match(), held_by="u"), 1, again(5)),
    "a-claim-has-a-virtual-function": (
        make_observation(GOING, make_match(), sharers=("claim ns/c has nic-1-vf0",), offered=True),
        5,
        [("ReportBlocked", reasons.IN_USE), *again(6)],
    ),
    "a-virtual-function-is-still-offered": (
        make_observation(GOING, make_match(), offered=True),
        5,
        again(5.05),
    ),
    "held-for-long": (
        make_observation(GOING, make_match(), held_by="u"),
        5,
        [("ReportBlocked", reasons.PREPARED)],
    ),
    "blocked": (
        make_observation(GOING, make_match(), treated=BUSY),
        1,
        [("ReportBlocked", reasons.IN_USE), *again(3)],
    ),
    "blocked-and-reported": (
        make_observation(make_leaving_attachment(BUSY.reason, BUSY.message), make_match(), treated=BUSY),
        1,
        again(3),
    ),
    "blocked-by-another": (
        make_observation(make_leaving_attachment(BUSY.reason, "held by pid 2"), make_match(), treated=BUSY),
        1,
        [("ReportBlocked", reasons.IN_USE), *again(3)],
    ),
    "stuck-for-longer": (
        make_observation(make_leaving_attachment(STUCK.reason, "not for 10 s"), make_match(), treated=STUCK),
        1,
        again(3),
    ),
}


@pytest.mark.parametrize("case", DEPARTURE)
def test_each_departure_has_its_next_steps(case):
    seen, seconds, expected = DEPARTURE[case]
    assert [
        (name, value.address if name == "RecordLocation" else value)
        for name, value in brief(plan.plan(seen, moment(seconds)))
    ] == [(name, value.address if name == "RecordLocation" else value) for name, value in expected]
