"""What the node owes one attachment, decided purely: arrival."""

import msgspec
import pytest
from tests.scenes.nodeplan import (
    ATTACHED,
    CARD,
    ELSEWHERE,
    HERE,
    SLOT,
    START,
    VISIBLE,
    again,
    attachment,
    brief,
    card,
    condition,
    make_attempt,
    make_match,
    make_observation,
    moment,
)

from drawbar.driver.api import attachments, parameters
from drawbar.driver.catalogue import reasons
from drawbar.driver.node.attachments import actions, context, matching, plan
from drawbar.driver.node.health import verdicts
from drawbar.driver.node.inventory import model
from drawbar.driver.node.treatment import plan as treatment_plan

OFF = msgspec.structs.replace(SLOT, powered=False)
EMPTY = msgspec.structs.replace(SLOT, present=False)
BARE = card(driver=None)
HOMELESS = card(driver=None, unassigned_bars=(0,))
DEAD = card(link=model.Link(max_speed_gts=16.0, max_width=4))
FAILED = condition(attachments.VISIBLE, holds=False, reason=reasons.DEVICE_LOST)
HOOK_FAILED = condition(attachments.VISIBLE, holds=False, reason=reasons.HOOK_FAILED)
BROKEN = attachments.Failure(reason="X", message="x")


def fails(reason):
    return [("ReportFailed", reason)]


READY = {"match": make_match(), "attempt": make_attempt()}
ILL = verdicts.Verdict(status=verdicts.Status.UNHEALTHY, message="its link is down")
WELL = verdicts.Verdict(status=verdicts.Status.HEALTHY)
REPORTED_ILL = msgspec.structs.replace(HERE, health="Unhealthy", health_message=ILL.message)
NARROW = verdicts.Verdict(
    status=ILL.status,
    message=ILL.message,
    taints=(verdicts.Taint(key="link-narrow", value="x1", effect=verdicts.Effect.NO_SCHEDULE),),
)
REPORTED_UNKNOWN = msgspec.structs.replace(
    HERE, health="Unknown", findings=(attachments.NodeFinding(name="link-narrow"),)
)
OLD = msgspec.structs.replace(HERE, claim_uid="claim-0")
CLEAN = msgspec.structs.replace(HERE, claim_uid="")
VISIBLE_HERE = attachment(ATTACHED, VISIBLE, node=HERE)
VISIBLE_SINCE_ANOTHER_ARRIVAL = attachment(ATTACHED, VISIBLE, node=msgspec.structs.replace(HERE, arrival=7))
USED = attachment(ATTACHED, VISIBLE, node=OLD)
GIVEN_UP = attachment(ATTACHED, FAILED, node=HERE, error=BROKEN)
UNPOWERED, WRONG = matching.Unpowered(slot=OFF), matching.Wrong(card=CARD, why="it has serial X")
BLOCKED = treatment_plan.Blocked(reason=reasons.IN_USE, message="busy", seconds=2)
BUSY = {"match": make_match(), "attempt": make_attempt(None, "busy", since=9), "treated": BLOCKED}


def observe_arrival(match=None, **changes):
    return make_observation(attachment(ATTACHED), match, **changes)


def make_memory_attachment(memory_mode):
    """Return an attachment whose claim makes that of the device's memory."""
    made = attachment(ATTACHED)
    claim = msgspec.structs.replace(made.spec.claim, memory_mode=memory_mode)
    return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, claim=claim))


def make_waiting_fields(*, last):
    """Return what is known of a long attached device whose last try was to wait for a member of its composite."""
    attempt = msgspec.structs.replace(make_attempt(missing="it waits", at=last, since=0), waited=moment(last))
    return {"match": make_match(), "attempt": attempt}


def make_unbound_fields(**when):
    """Return a match of a device without its driver, and the last try to bind one."""
    return {
        "match": make_match(BARE),
        "missing": "no driver",
        "attempt": make_attempt(BARE, "no driver", **when),
    }


def make_doubtful_observation(kind, **changes):
    """Return a device that is visible, and was recognised by this kind of witness; its driver may yet show its numbers."""
    node = msgspec.structs.replace(HERE, recognised_by=attachments.Recognition(kind=kind))
    fields = READY | {"match": make_match(by="record"), "lagging": True} | changes
    return make_observation(attachment(ATTACHED, VISIBLE, node=node), **fields)


ARRIVAL = {
    "here": (observe_arrival(make_match()), 0, [("Initialise", CARD)]),
    "here-and-ready": (observe_arrival(**READY), 0, [("ReportVisible", CARD)]),
    "here-before-the-controller-reports-attached": (
        make_observation(attachment(), **READY),
        0,
        [("ReportVisible", CARD)],
    ),
    "known-by-slot-before-the-controller-reports-attached": (
        make_observation(attachment(), make_match(by="slot")),
        0,
        [],
    ),
    "known-by-slot": (observe_arrival(make_match(by="slot")), 0, [("Initialise", CARD)]),
    "its-next-claim-makes-something-else-of-its-memory": (
        make_observation(make_memory_attachment("system-ram"), **READY),
        0,
        [("Initialise", CARD)],
    ),
    "its-memory-is-what-its-claim-wants": (
        make_observation(
            make_memory_attachment("system-ram"),
            make_match(),
            attempt=msgspec.structs.replace(make_attempt(), memory=parameters.Memory(mode="system-ram")),
        ),
        0,
        [("ReportVisible", CARD)],
    ),
    "waits-for-another-member-however-long": (
        observe_arrival(**make_waiting_fields(last=1000)),
        1001,
        [("Initialise", CARD)],
    ),
    "waits-for-another-member-and-looks-again": (
        observe_arrival(**make_waiting_fields(last=1000)),
        1000.5,
        again(1001),
    ),
    "its-own-time-begins-when-all-are-there": (
        observe_arrival(
            make_match(),
            attempt=msgspec.structs.replace(
                make_attempt(missing="no", at=1059, since=1001), waited=moment(1000)
            ),
        ),
        1060,
        fails(reasons.NOT_INITIALISED),
    ),
    "cannot-be-interleaved": (
        observe_arrival(
            make_match(), attempt=make_attempt(missing="why", reason=reasons.NOT_INTERLEAVED, final=True)
        ),
        0,
        fails(reasons.NOT_INTERLEAVED),
    ),
    "changed-since-it-was-ready": (
        observe_arrival(make_match(), attempt=make_attempt(BARE)),
        0,
        [("Initialise", CARD)],
    ),
    "reported-already": (make_observation(VISIBLE_HERE, **READY), 99, []),
    "reported-and-verified-by-a-new-daemon": (
        make_observation(VISIBLE_HERE, make_match()),
        99,
        [("Initialise", CARD)],
    ),
    "reported-before-a-reboot": (
        make_observation(VISIBLE_HERE, **READY, boot_id="boot-2"),
        99,
        [("ReportVisible", CARD)],
    ),
    "reported-at-another-address": (
        make_observation(VISIBLE_HERE, make_match(ELSEWHERE), attempt=make_attempt(ELSEWHERE)),
        99,
        [("ReportVisible", ELSEWHERE)],
    ),
    "held-by-hand": (
        make_observation(attachment(ATTACHED, claim=None), **READY),
        0,
        [("ReportVisible", CARD)],
    ),
    "held-by-hand-and-reported": (
        make_observation(attachment(ATTACHED, VISIBLE, node=CLEAN, claim=None), **READY),
        0,
        [],
    ),
    "comes-after-the-timeout": (
        make_observation(attachment(ATTACHED, FAILED), **READY),
        99,
        [("ReportVisible", CARD)],
    ),
    "comes-after-the-controller-gave-up": (
        make_observation(attachment(ATTACHED, error=BROKEN), **READY),
        99,
        [],
    ),
    "not-attached-yet": (make_observation(attachment()), 999, []),
    "attach-failed": (make_observation(attachment(condition(attachments.ATTACHED, holds=False))), 999, []),
    "controller-gave-up": (make_observation(attachment(ATTACHED, error=BROKEN)), 999, []),
    "awaited": (observe_arrival(), 59, again(60)),
    "awaited-in-a-slot": (observe_arrival(matching.Absent(slot=EMPTY)), 5, again(6)),
    "awaited-among-cards-that-show-more-without-an-event": (observe_arrival(lagging=True), 5, again(6)),
    "may-be-a-card-that-shows-more": (observe_arrival(matching.Absent(settles=True)), 5, again(6)),
    "came-back-and-may-show-more": (
        make_observation(VISIBLE_HERE, matching.Absent(slot=SLOT, settles=True)),
        99,
        again(100),
    ),
    "recognised-by-its-slot-and-may-show-another-number": (make_doubtful_observation("slot"), 99, again(109)),
    "recognised-by-its-arrival-and-may-show-another-number": (
        make_doubtful_observation("sole-arrival"),
        99,
        again(109),
    ),
    "recognised-by-its-slot-where-no-driver-is-late": (
        make_doubtful_observation("slot", lagging=False),
        99,
        [],
    ),
    "recognised-by-a-number": (make_doubtful_observation("nvme-serial"), 99, []),
    "never-came": (observe_arrival(), 60, fails(reasons.DEVICE_NOT_FOUND)),
    "its-link-never-came-up": (observe_arrival(matching.Absent(slot=SLOT)), 60, fails(reasons.LINK_DOWN)),
    "its-link-is-down": (observe_arrival(make_match(DEAD), attempt=make_attempt(DEAD)), 5, again(5.05)),
    "its-link-stays-down": (
        observe_arrival(make_match(DEAD), attempt=make_attempt(DEAD)),
        60,
        fails(reasons.LINK_DOWN),
    ),
    "it-answers-ones": (
        observe_arrival(make_match(), attempt=make_attempt(missing="ones", reason=reasons.LINK_DOWN)),
        60,
        fails(reasons.LINK_DOWN),
    ),
    "waits-for-power": (observe_arrival(UNPOWERED), 5, [("PowerSlot", "2"), *again(5.05)]),
    "was-powered-on": (observe_arrival(UNPOWERED, attempt=make_attempt(None, at=5)), 5.5, again(6)),
    "is-powered-on-again": (
        observe_arrival(UNPOWERED, attempt=make_attempt(None, at=5)),
        6,
        [("PowerSlot", "2"), *again(6.05)],
    ),
    "gets-no-power": (
        observe_arrival(UNPOWERED, attempt=make_attempt(None, "EPERM", at=59)),
        60,
        fails(reasons.SLOT_NOT_POWERED),
    ),
    "waits-for-power-before-the-controller-reports-attached": (
        make_observation(attachment(), UNPOWERED),
        5,
        [],
    ),
    "another-device-is-there": (observe_arrival(WRONG), 5, again(6)),
    "another-device-stays-there": (observe_arrival(WRONG), 60, fails(reasons.WRONG_DEVICE)),
    "two-have-its-serial": (
        observe_arrival(matching.Ambiguous(cards=(CARD, ELSEWHERE))),
        60,
        fails(reasons.SERIAL_NOT_UNIQUE),
    ),
    "came-without-driver": (observe_arrival(**make_unbound_fields(at=5)), 5.5, again(6)),
    "is-tried-again": (observe_arrival(**make_unbound_fields(at=5)), 6, [("Initialise", BARE)]),
    "no-addresses-for-its-memory": (
        observe_arrival(
            make_match(HOMELESS),
            missing="no addresses",
            attempt=make_attempt(HOMELESS, "no addresses", at=59),
        ),
        60,
        fails(reasons.RESOURCES_NOT_ASSIGNED),
    ),
    "driver-never-bound": (
        observe_arrival(**make_unbound_fields(at=59)),
        60,
        fails(reasons.DRIVER_NOT_BOUND),
    ),
    "driver-offers-nothing": (
        observe_arrival(make_match(), missing="no file", attempt=make_attempt(missing="no file", at=59)),
        60,
        fails(reasons.NO_DEVICE_FILES),
    ),
    "class-never-done": (
        observe_arrival(make_match(), attempt=make_attempt(missing="no memory", at=59)),
        60,
        fails(reasons.NOT_INITIALISED),
    ),
    "failed-and-not-tried-again": (
        make_observation(
            attachment(ATTACHED, condition(attachments.VISIBLE, holds=False)), **make_unbound_fields()
        ),
        99,
        [],
    ),
    "lost-its-driver-while-in-use": (
        make_observation(VISIBLE_HERE, **make_unbound_fields(at=900, since=900)),
        900.01,
        again(900.06),
    ),
    "never-got-its-driver-back": (
        make_observation(VISIBLE_HERE, **make_unbound_fields(at=959, since=900)),
        960,
        fails(reasons.DRIVER_NOT_BOUND),
    ),
    "lost": (make_observation(VISIBLE_HERE), 1, fails(reasons.DEVICE_LOST)),
    "lost-and-another-device-is-there": (
        make_observation(VISIBLE_HERE, matching.Wrong(card=ELSEWHERE, why="w")),
        1,
        fails(reasons.DEVICE_LOST),
    ),
    "pulled-and-not-powered-again": (
        make_observation(VISIBLE_HERE, UNPOWERED),
        1,
        fails(reasons.DEVICE_LOST),
    ),
    "the-claim-is-told-once-the-controller-has-tainted": (
        make_observation(GIVEN_UP),
        999,
        [("ReportToClaim", reasons.DEVICE_LOST)],
    ),
    "the-claim-was-told": (make_observation(GIVEN_UP, claim_notified=True), 999, []),
    "failure-was-reported": (make_observation(attachment(ATTACHED, FAILED, node=HERE)), 999, []),
    "not-back-yet-after-a-reboot": (
        make_observation(VISIBLE_HERE, boot_id="boot-2", since=moment(500)),
        510,
        again(560),
    ),
    "not-back-after-a-reboot": (
        make_observation(VISIBLE_HERE, boot_id="boot-2", since=moment(500)),
        560,
        fails(reasons.DEVICE_LOST),
    ),
    "powered-after-a-reboot": (
        make_observation(VISIBLE_HERE, UNPOWERED, boot_id="boot-2", since=moment(500)),
        510,
        [("PowerSlot", "2"), *again(510.05)],
    ),
    "a-restart-of-the-daemon-gives-no-more-time": (
        observe_arrival(since=moment(500)),
        510,
        fails(reasons.DEVICE_NOT_FOUND),
    ),
    "ill": (make_observation(VISIBLE_HERE, **READY, health=ILL), 1, [("ReportHealth", None)]),
    "unhealthy-and-reported": (
        make_observation(attachment(ATTACHED, VISIBLE, node=REPORTED_ILL), **READY, health=ILL),
        1,
        [],
    ),
    "ill-without-its-driver": (
        make_observation(
            VISIBLE_HERE, make_match(), health=ILL, attempt=make_attempt(missing="no driver", at=1)
        ),
        1,
        [("ReportHealth", None), *again(1.5)],
    ),
    "another-finding-of-the-same-words": (
        make_observation(attachment(ATTACHED, VISIBLE, node=REPORTED_ILL), **READY, health=NARROW),
        1,
        [("ReportHealth", None)],
    ),
    "not-known-yet-with-a-finding-of-before": (
        make_observation(
            attachment(ATTACHED, VISIBLE, node=REPORTED_UNKNOWN), **READY, health=verdicts.UNKNOWN
        ),
        1,
        [],
    ),
    "well-and-new": (make_observation(VISIBLE_HERE, **READY, health=WELL), 1, again(10)),
    "well-for-long": (make_observation(VISIBLE_HERE, **READY, health=WELL), 10, [("ReportHealth", None)]),
    "has-traces": (make_observation(USED, **READY), 1, [("Treat", CARD)]),
    "was-never-cleaned-elsewhere": (
        make_observation(attachment(ATTACHED, unclean=True), **READY),
        1,
        [("Treat", CARD)],
    ),
    "was-cleaned-on-arrival": (
        make_observation(attachment(ATTACHED, node=CLEAN, unclean=True), **READY),
        1,
        [("ReportVisible", CARD)],
    ),
    "has-traces-and-is-held": (make_observation(USED, **READY, held_by="claim-0"), 1, []),
    "has-traces-and-no-claim": (
        make_observation(attachment(ATTACHED, VISIBLE, node=HERE, claim=None), **READY),
        1,
        [("Treat", CARD)],
    ),
    "is-being-erased": (
        make_observation(USED, **READY | {"treated": treatment_plan.InProgress(seconds=1.0)}),
        900,
        again(901),
    ),
    "its-hook-failed": (
        make_observation(
            attachment(ATTACHED),
            match=make_match(),
            attempt=make_attempt(missing="it ended", reason="HookFailed", final=True),
        ),
        1,
        fails(reasons.HOOK_FAILED),
    ),
    "its-bitstream-is-not-loaded": (
        make_observation(
            attachment(ATTACHED),
            match=make_match(),
            attempt=make_attempt(missing="no port", reason="BitstreamNotLoaded", final=True),
        ),
        1,
        fails(reasons.BITSTREAM_NOT_LOADED),
    ),
    "its-hook-failed-and-is-reported": (
        make_observation(
            attachment(ATTACHED, HOOK_FAILED),
            match=make_match(),
            attempt=make_attempt(missing="it ended", final=True),
        ),
        1,
        [],
    ),
    "put-in-again-before-prepare": (
        make_observation(VISIBLE_HERE, make_match(), has_returned=True),
        1,
        [("Initialise", CARD)],
    ),
    "put-in-again-and-ready": (
        make_observation(VISIBLE_SINCE_ANOTHER_ARRIVAL, **READY, has_returned=True),
        1,
        [("ReportVisible", CARD)],
    ),
    "put-in-again-in-use": (
        make_observation(VISIBLE_HERE, make_match(), has_returned=True, held_by="claim-1"),
        1,
        fails(reasons.DEVICE_LOST),
    ),
    "put-in-again-in-use-and-reported": (
        make_observation(
            attachment(ATTACHED, FAILED, node=HERE), make_match(), has_returned=True, held_by="claim-1"
        ),
        1,
        [],
    ),
    "lost-and-back-with-its-hook-running": (
        make_observation(
            attachment(ATTACHED, FAILED, node=HERE),
            make_match(),
            attempt=make_attempt(missing="it runs", at=61, since=61),
        ),
        61,
        again(61.05),
    ),
    "was-cleaned": (
        make_observation(USED, **READY, treated=treatment_plan.Done()),
        1,
        [("ReportClean", CARD)],
    ),
    "clean-for-the-next-claim": (
        make_observation(attachment(ATTACHED, VISIBLE, node=CLEAN), **READY),
        1,
        [("ReportVisible", CARD)],
    ),
    "cannot-be-cleaned-yet": (make_observation(USED, **BUSY), 9, again(10)),
    "cannot-be-cleaned": (make_observation(USED, **BUSY), 69, fails(reasons.NOT_CLEANED)),
}


@pytest.mark.parametrize("case", ARRIVAL)
def test_each_arrival_has_its_next_steps(case):
    seen, seconds, expected = ARRIVAL[case]
    assert brief(plan.plan(seen, moment(seconds))) == expected


@pytest.mark.parametrize(
    "case", [name for name, row in ARRIVAL.items() if row[2][:1] and row[2][0][0] == "ReportFailed"]
)
def test_a_failure_names_the_device_or_where_it_should_be(case):
    seen, seconds, _ = ARRIVAL[case]
    (action,) = plan.plan(seen, moment(seconds))
    assert "SN1" in action.message or CARD.address in action.message
    assert not action.message.endswith(".")


def test_a_device_that_never_came_names_the_cards_that_hang():
    (failed,) = plan.plan(observe_arrival(hanging=("function 0000:09:00.0",)), moment(60))
    assert failed.reason == reasons.DEVICE_NOT_FOUND
    assert "does not finish reading function 0000:09:00.0" in failed.message


@pytest.mark.parametrize("skew_seconds", [-600, 600], ids=["behind", "ahead"])
def test_the_wait_for_a_device_ignores_the_controllers_clock(
    skew_seconds,
):
    attached = attachment(condition(attachments.ATTACHED, at=moment(skew_seconds)))
    waiting = make_observation(attached, attached_at=START)
    assert plan.plan(waiting, moment(59)) == (actions.LookAgain(at=moment(60)),)
    (failed,) = plan.plan(waiting, moment(60))
    assert failed.reason == reasons.DEVICE_NOT_FOUND


@pytest.mark.parametrize(
    "outcome",
    [None, BLOCKED, treatment_plan.InProgress(seconds=1.0), treatment_plan.Done()],
    ids=lambda outcome: type(outcome).__name__,
)
@pytest.mark.parametrize("claim", [{}, {"claim": None}], ids=["next claim", "no claim"])
def test_a_used_device_stays_hidden_until_its_treatment_is_done(outcome, claim):
    used = attachment(ATTACHED, VISIBLE, node=HERE, **claim) if claim else USED
    for seconds in (1, 60, 600):
        seen = make_observation(used, **READY | {"treated": outcome})
        planned = {type(action) for action in plan.plan(seen, moment(seconds))}
        assert actions.ReportVisible not in planned
        assert (actions.ReportClean in planned) == isinstance(outcome, treatment_plan.Done)


def test_a_daemon_notes_the_first_time_of_each_condition():
    memory = context.Memory(uid="a")
    for number, of in enumerate(
        (
            attachment(),
            attachment(ATTACHED),
            attachment(ATTACHED, VISIBLE),
            attachment(ATTACHED, deleting=True),
        )
    ):
        memory.see(of, moment(number))
    conditions = (attachments.ATTACHED, attachments.VISIBLE, context.DELETION)
    assert [memory.seen.since(condition) for condition in conditions] == [moment(1), None, moment(3)]


COMPOSITE = attachments.Composite(name="duo", devices=("d", "other"))


def member(*conditions, **changes):
    """Return a member of the composite, attached for the claim."""
    made = attachment(*conditions, **changes)
    return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, composite=COMPOSITE))


NEXT = attachments.ClaimReference(namespace="ns", name="c", uid="claim-2")


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        ({}, "f.other, which is not attached with it"),
        ({"attachment": member()}, "which is not attached with it"),
        ({"attachment": member(ATTACHED, deleting=True), "card": CARD}, "which is not attached with it"),
        ({"attachment": member(ATTACHED, claim=NEXT), "card": CARD}, "which is not attached with it"),
        ({"attachment": member(ATTACHED)}, "which this node does not show"),
        ({"attachment": member(ATTACHED, node=OLD), "card": CARD}, "which is not clean yet"),
        ({"attachment": member(ATTACHED), "card": BARE, "missing": "no driver"}, "f.other: no driver"),
        ({"attachment": member(ATTACHED), "card": CARD}, None),
        ({"attachment": member(ATTACHED, VISIBLE, node=HERE), "card": CARD}, None),
    ],
    ids=[
        *(
            "no attachment",
            "not attached",
            "leaving",
            "another claim's",
            "not here",
            "not clean",
            "no driver",
        ),
        *("here", "visible"),
    ],
)
def test_a_member_that_is_interleaved_waits_for_the_others(seen, words):
    reports = plan.find_awaited(member(ATTACHED), (actions.Member(name="f.other", **seen),))
    assert reports is None if words is None else words in reports


@pytest.mark.parametrize(("driver", "why"), [(None, "no driver is bound"), ("vfio-pci", "vfio-pci is bound")])
def test_the_failure_names_a_card_that_may_be_the_device_and_what_it_does_not_show(driver, why):
    identity = msgspec.structs.replace(
        attachment().identity,
        identifiers=(attachments.DeviceIdentifier(kind="nvme-serial", value="61x0a003tcd8"),),
    )
    wanted = attachment(ATTACHED)
    wanted = msgspec.structs.replace(wanted, spec=msgspec.structs.replace(wanted.spec, identity=identity))
    observed = make_observation(wanted, matching.Absent(silent=(card(driver=driver),)))
    (failed,) = plan.plan(observed, moment(60))
    assert failed.reason == reasons.DEVICE_NOT_FOUND
    assert f"Of its model is {CARD.address}, without its nvme-serial ({why})" in failed.message
