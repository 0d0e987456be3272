"""A refusal after which the call is made again stands on the DeviceAttachment, and costs few writes."""

import datetime

import msgspec
import pytest
from tests.scenes.attachmentplan import (
    ATTACH,
    ATTACHED,
    DETACH,
    FREE,
    NOW,
    attachment,
    call,
    demand,
    make_part_state,
)

from drawbar.driver.api import attachments, meta
from drawbar.driver.catalogue import reasons
from drawbar.driver.cli.doctor.plans import attachments as doctor
from drawbar.driver.controller.attachments import actions, calls, plan, statements
from drawbar.driver.controller.attachments.plans import steps
from drawbar.fabric import contract, errors

BUSY = attachments.Failure(reason=reasons.FABRIC_BUSY, message="423: the zone is locked", retryable=True)
UNREACHED = attachments.Failure(reason=reasons.FABRIC_UNREACHABLE, message="no route to host", retryable=True)
WORDS = "423: the zone is locked; tried again in at most 60 s"
LATE = demand(seen_at=NOW - datetime.timedelta(seconds=60))


def make_refused_call(state="failed", **changes):
    fields = {
        "failure": BUSY,
        "due": False,
        "retry_after_seconds": 3.0,
        "refused": BUSY,
    }
    return call(state, **(fields | changes))


def refusal(message=WORDS, reason=reasons.FABRIC_BUSY, kind="Attached"):
    return meta.Condition(type=kind, status="False", reason=reason, message=message)


def record(side, message=WORDS):
    return actions.RecordRefusal(side=side, reason=reasons.FABRIC_BUSY, words=BUSY.message, message=message)


@pytest.mark.parametrize(
    ("conditions", "changes", "is_written"),
    [
        ((), {}, True),
        ((refusal(),), {}, False),
        ((refusal(),), {"is_report_due": False}, False),
        ((refusal("other words"),), {}, True),
        ((refusal("other words"),), {"is_report_due": False}, False),
        ((refusal("other words", reason=reasons.FABRIC_UNREACHABLE),), {"refused": UNREACHED}, False),
        ((refusal(reason="AttachQueued"),), {"is_report_due": False}, True),
    ],
)
def test_the_refusal_of_an_attach_is_recorded_where_it_does_not_stand(conditions, changes, is_written):
    steps = plan.plan(
        make_part_state(attachment=attachment(*conditions), attach=make_refused_call(**changes)), NOW
    )
    expected = (record(ATTACH),) if is_written else ()
    assert steps == (*expected, actions.RequeueAfter(seconds=3.0))


def test_the_refusal_of_a_detach_is_a_condition_of_its_own():
    steps = plan.plan(
        make_part_state(attachment=FREE, host_id="h1", attach=call("succeeded"), detach=make_refused_call()),
        NOW,
    )
    assert steps[0] == record(DETACH)
    body = statements.build_refused(attachment(ATTACHED, deleting=True), record(DETACH), NOW)
    shown = {condition["type"]: condition["status"] for condition in body["status"]["conditions"]}
    assert shown == {"Attached": "True", "Detached": "False"}
    assert "refusal" not in body["status"]


def test_the_words_against_an_attach_are_recorded_for_the_next_process():
    body = statements.build_refused(attachment(), record(ATTACH), NOW)
    assert body["status"]["refusal"] == BUSY.message


# As the process before left it.
RECORDED = msgspec.structs.replace(
    attachment(refusal()), status=attachments.AttachmentStatus(refusal=BUSY.message)
)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"attach": make_refused_call()}, reasons.ATTACH_DEADLINE_EXCEEDED),
        ({"attach": make_refused_call("unknown")}, reasons.FABRIC_UNREACHABLE),
        ({"attachment": RECORDED, "attach": call("failed", failure=BUSY)}, reasons.ATTACH_DEADLINE_EXCEEDED),
    ],
)
def test_the_claim_fails_with_the_same_words(changes, reason):
    fields = {"attachment": attachment(), "demand": LATE} | changes
    failure = plan.plan(make_part_state(**fields), NOW)[0].failure
    assert failure.reason == reason
    assert failure.message.endswith("; it refused last: 423: the zone is locked")


def test_a_long_refusal_leaves_room_for_the_next_try():
    long = msgspec.structs.replace(BUSY, message="x" * 2000)
    (action,) = steps.record_refusal(attachment(), ATTACH, make_refused_call(refused=long))
    assert len(action.message) == meta.MESSAGE_CHARS
    assert action.message.endswith("x; tried again in at most 60 s")


@pytest.mark.parametrize(
    ("error", "is_reached", "reason"),
    [
        (errors.Unavailable("503"), True, reasons.FABRIC_BUSY),
        (errors.DeadlineExceeded("no answer"), True, reasons.FABRIC_BUSY),
        (errors.Unavailable("not connected"), False, reasons.FABRIC_UNREACHABLE),
        (errors.PermissionDenied("no"), True, reasons.FABRIC_CREDENTIALS_REFUSED),
        (errors.Aborted("busy", reason=errors.Reason.OPERATION_PENDING), True, reasons.OPERATION_PENDING),
        (errors.FailedPrecondition("the link is down"), True, "FabricError"),
    ],
)
def test_the_reason_is_the_kind_of_the_refusal(error, is_reached, reason):
    assert calls.refusal(error, is_reached=is_reached).reason == reason


def test_a_service_whose_words_change_at_each_try_costs_few_writes():
    known, current, now, writes = calls.Calls(), attachment(), 0.0, []
    for number in range(60):
        known.note_refusal("a1", ATTACH, errors.Unavailable(f"request {number} failed"))
        view = known.view("a1", ATTACH, now)
        for action in steps.record_refusal(current, ATTACH, view):
            writes.append(now)
            known.note_refusal_report("a1", ATTACH, now)
            current = attachment(refusal(action.message))
        now += 10.0
    assert len(writes) <= 1 + now / calls.REPORT_SECONDS
    assert writes[0] == 0.0


def test_a_success_forgets_the_refusal_and_a_new_attempt_keeps_it():
    known = calls.Calls()
    known.note_failure("a1", ATTACH, errors.Aborted("busy"), 0.0)
    known.next_attempt("a1", ATTACH)
    assert known.view("a1", ATTACH, 1.0).refused.message == "busy"
    done = contract.Operation(
        id="o", request_id="a1-a2", kind=contract.OperationKind.ATTACH, done=True, percent=100
    )
    known.settle("a1", ATTACH, done, 2.0)
    assert known.view("a1", ATTACH, 1.0).refused is None


@pytest.mark.parametrize(
    ("of", "words"),
    [
        (attachment(refusal()), f"is not attached yet (FabricBusy): {WORDS}"),
        (
            attachment(ATTACHED, refusal(kind="Detached"), deleting=True),
            f"is not detached yet (FabricBusy): {WORDS}",
        ),
        (
            attachment(
                meta.Condition(
                    type="Attached", status="True", reason=reasons.CONNECTION_NOT_SHOWN, message="it is free"
                )
            ),
            "is attached by its record, and it is free",
        ),
    ],
)
def test_doctor_and_explain_have_the_same_words(of, words):
    around = doctor.World(now=NOW, fabrics=None, nodes=None)
    assert words in [finding.message for finding in doctor.judge_attachment(around, of, of.spec.driver)]
