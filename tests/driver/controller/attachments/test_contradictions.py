"""Attached devices that the fabric manager does not show: confirmed, then attached again, reported, or given up."""

import msgspec
import pytest
from tests.scenes.attachmentplan import (
    ATTACH,
    ATTACHED,
    NOW,
    assert_next_steps,
    attachment,
    call,
    cases,
    demand,
    make_part_state,
)

from drawbar.driver.api import attachments, meta
from drawbar.driver.catalogue import reasons
from drawbar.driver.controller import damping, names, outcomes
from drawbar.driver.controller.attachments import actions, contradictions, plan, statements
from drawbar.driver.controller.attachments.plans import lost_connection
from drawbar.driver.controller.fabrics import losses

KEY = names.DeviceKey(fabric="f", device="d")
FREE = contradictions.Contradiction(is_confirmed=True, since="2026-01-02T03:04:05Z")
MOVED = contradictions.Contradiction(is_confirmed=True, host_id="h9", since="2026-01-02T03:04:05Z")
OVER = contradictions.Contradiction(is_over=True, look_seconds=7.0)
SEEN = meta.Condition(type="Visible", status="True", reason="DeviceReady")
BLIND = meta.Condition(type="Visible", status="False", reason="DeviceNotFound", message="look at the slot")
NOT_SHOWN = meta.Condition(type="Attached", status="True", reason=reasons.CONNECTION_NOT_SHOWN, message="x")
MINE, BY_HAND = attachment(ATTACHED), attachment(ATTACHED, claim=None)
USED = demand(attach_reported=True, visible_reported=True)


TABLE = {
    "one listing proves nothing": (
        {"contradiction": contradictions.Contradiction(look_seconds=8.0)},
        [actions.RequeueAfter(seconds=8.0)],
    ),
    "the fabric is listed again": (
        {"contradiction": contradictions.Contradiction()},
        [actions.ReadFabric, actions.RequeueAfter],
    ),
    "a free device that no node has seen is attached again": (
        {"contradiction": FREE},
        [actions.RecordContradiction, actions.Retry(side=ATTACH)],
    ),
    "by hand as well": (
        {"contradiction": FREE, "attachment": BY_HAND, "demand": None},
        [actions.RecordContradiction, actions.Retry(side=ATTACH)],
    ),
    "but only so often": (
        {"contradiction": FREE, "attach": call("succeeded", renewals=lost_connection.RENEWALS)},
        [actions.RecordFailure],
    ),
    "by hand it is reported then": (
        {
            "contradiction": FREE,
            "attach": call("succeeded", renewals=lost_connection.RENEWALS),
            "attachment": BY_HAND,
            "demand": None,
        },
        [actions.RecordContradiction],
    ),
    "one that another host has is never attached": ({"contradiction": MOVED}, [actions.RecordFailure]),
    "nor by hand": (
        {"contradiction": MOVED, "attachment": BY_HAND, "demand": None},
        [actions.RecordContradiction],
    ),
    "nothing is changed under a device that its node has seen": (
        {"contradiction": FREE, "attachment": attachment(ATTACHED, SEEN), "demand": USED},
        [actions.RecordContradiction],
    ),
    "nor where somebody moved it": (
        {"contradiction": MOVED, "attachment": attachment(ATTACHED, SEEN), "demand": USED},
        [actions.RecordContradiction],
    ),
    "nor while its claim has it by its status alone": (
        {"contradiction": FREE, "demand": USED},
        [actions.RecordContradiction],
    ),
    "it is recorded as attached once it is shown again": (
        {"attachment": attachment(NOT_SHOWN, SEEN), "demand": USED, "host_id": "h1"},
        [actions.RecordAttached],
    ),
    "and that has held": (
        {"attachment": attachment(NOT_SHOWN, SEEN), "demand": USED, "host_id": "h1", "contradiction": OVER},
        [actions.RequeueAfter(seconds=7.0)],
    ),
    "a node that finds nothing is not to blame": (
        {"contradiction": FREE, "attachment": attachment(ATTACHED, BLIND), "tainted": True},
        [actions.RecordFailure, actions.ReportFailed],
    ),
    "a node's report that it finds nothing waits for the listing that confirms": (
        {
            "contradiction": contradictions.Contradiction(look_seconds=8.0),
            "attachment": attachment(ATTACHED, BLIND),
            "tainted": True,
        },
        [actions.RequeueAfter(seconds=8.0)],
    ),
    "but not forever": (
        {
            "contradiction": contradictions.Contradiction(
                look_seconds=8.0, age_seconds=lost_connection.CONFIRM_SECONDS
            ),
            "attachment": attachment(ATTACHED, BLIND),
            "tainted": True,
        },
        [actions.RecordFailure, actions.ReportFailed],
    ),
    "nor once the manager shows it again": (
        {
            "contradiction": OVER,
            "attachment": attachment(ATTACHED, BLIND),
            "tainted": True,
            "host_id": "h1",
        },
        [actions.RecordFailure, actions.ReportFailed],
    ),
    "one by hand that its node does not find is attached again": (
        {"contradiction": FREE, "attachment": attachment(ATTACHED, BLIND, claim=None), "demand": None},
        [actions.RecordContradiction, actions.Retry(side=ATTACH)],
    ),
    "or reported": (
        {
            "contradiction": FREE,
            "attach": call("succeeded", renewals=lost_connection.RENEWALS),
            "attachment": attachment(ATTACHED, BLIND, claim=None),
            "demand": None,
        },
        [actions.RecordContradiction],
    ),
    "until the manager shows it": (
        {"attachment": attachment(NOT_SHOWN, BLIND, claim=None), "demand": None, "host_id": "h1"},
        [actions.RecordAttached],
    ),
}


@pytest.mark.parametrize(("changes", "steps"), cases(TABLE, attachment=MINE, attach=call("succeeded")))
def test_of_a_connection_that_the_manager_does_not_show(changes, steps):
    assert_next_steps(changes, steps)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"contradiction": FREE, "attach": call("succeeded", renewals=3)},
            "lists d as free, not at host h1, 3 times after",
        ),
        ({"contradiction": MOVED}, "lists d at host h9, not at host h1 by this cluster"),
        ({"contradiction": FREE, "attachment": attachment(ATTACHED, BLIND), "tainted": True}, "as free"),
    ],
)
def test_the_claim_fails_with_the_sentence(changes, words):
    fields = {"attachment": MINE, "attach": call("succeeded")} | changes
    failure = plan.plan(make_part_state(**fields), NOW)[0].failure
    assert failure.message.startswith("the fabric manager no longer shows this connection: it ")
    assert words in failure.message.replace(attachment().spec.device_id, "d")
    assert failure.reason in outcomes.FAILURES


def test_an_existing_condition_is_not_written_again():
    (record,) = plan.plan(
        plan_observed(attachment(ATTACHED, SEEN), contradiction=FREE, demand=USED),
        NOW,
    )
    assert record.is_attached
    reports = meta.Condition(type="Attached", status="True", reason=record.reason, message=record.message)
    assert plan.plan(plan_observed(attachment(reports, SEEN), contradiction=FREE, demand=USED), NOW) == ()


@pytest.mark.parametrize(
    ("claim", "hint"),
    [
        (None, "run drawbar fabric detach d --fabric f"),
        (attachment().spec.claim, "delete the pods of claim "),
    ],
)
def test_a_seen_device_is_reported_with_date_and_remedy(claim, hint):
    held = attachment(ATTACHED, SEEN, claim=claim)
    changes = {"demand": USED if claim is not None else None}
    (record,) = plan.plan(plan_observed(held, contradiction=FREE, **changes), NOW)
    assert record.message.startswith(f"{lost_connection.FORGOTTEN}: since 2026-01-02T03:04:05Z it lists ")
    device = held.spec.device_id
    assert hint.replace(" d ", f" {device} ").replace(" f", f" {held.spec.fabric}") in record.message


@pytest.mark.parametrize(
    ("shown", "date"),
    [
        (contradictions.Contradiction(is_confirmed=True, since="2026-05-05T05:05:05Z"), None),
        (
            contradictions.Contradiction(is_confirmed=True, since="2026-05-05T05:05:05Z", host_id="h9"),
            "2026-05-05T05:05:05Z",
        ),
    ],
)
def test_the_date_stays_while_the_manager_shows_the_same(shown, date):
    (first,) = plan.plan(plan_observed(attachment(ATTACHED, SEEN), contradiction=FREE, demand=USED), NOW)
    # As a controller that was restarted sees it for the first time.
    steps = plan.plan(plan_observed(record_contradiction(first), contradiction=shown, demand=USED), NOW)
    assert [f"since {date} it lists" in step.message for step in steps] == ([True] if date else [])
    assert [step.record.since for step in steps] == ([date] if date else [])


def record_contradiction(action):
    """Return an attachment with the status that this report writes."""
    body = statements.build_contradicted(attachment(ATTACHED, SEEN), action, NOW)
    status = msgspec.convert(body["status"], attachments.AttachmentStatus)
    return msgspec.structs.replace(
        attachment(),
        status=msgspec.structs.replace(status, conditions=(*status.conditions, SEEN)),
    )


@pytest.mark.parametrize("side", outcomes.Side)
def test_the_record_goes_with_the_condition_that_has_its_reason(side):
    (first,) = plan.plan(plan_observed(attachment(ATTACHED, SEEN), contradiction=FREE, demand=USED), NOW)
    refusal = actions.RecordRefusal(side=side, reason=reasons.FABRIC_BUSY, words="busy", message="busy")
    body = statements.build_refused(record_contradiction(first), refusal, NOW)
    assert ("contradiction" in body["status"]) == (side is outcomes.Side.DETACH)


def plan_observed(of, **changes):
    return make_part_state(attachment=of, attach=call("succeeded"), **changes)


def look(known, now, *, shown=(None,), last=None, complete=None, request="a1"):
    listings = losses.Listings(last=last, complete=complete)
    return known.see(KEY, shown, call=request, now=now, date=f"at {now:.0f}", listings=listings)


def test_a_contradiction_needs_a_second_complete_listing_that_began_ten_seconds_later():
    known = contradictions.Contradictions()
    assert look(known, 100.0, last=99.0, complete=99.0).look_seconds == 10.0
    assert look(known, 110.0, last=99.0, complete=99.0).look_seconds == 0.0
    assert not look(known, 110.5, last=109.0, complete=109.0).is_confirmed
    doubtful = look(known, 111.0, last=111.0, complete=99.0)
    assert not doubtful.is_confirmed
    assert doubtful.look_seconds == 10.0
    confirmed = look(known, 122.0, last=121.0, complete=121.0)
    assert confirmed.is_confirmed
    assert (confirmed.since, confirmed.age_seconds) == ("at 100", 22.0)


@pytest.mark.parametrize("changes", [{"shown": ("h9",)}, {"request": "a2"}])
def test_another_contradiction_or_attach_starts_the_count_again(changes):
    known = contradictions.Contradictions()
    look(known, 100.0)
    assert look(known, 111.0, last=110.0, complete=110.0).is_confirmed
    assert not look(known, 112.0, last=111.0, complete=111.0, **changes).is_confirmed


def test_a_manager_that_changes_its_mind_again_and_again_has_to_hold_for_longer():
    known, now, over = contradictions.Contradictions(), 0.0, []
    for _ in range(8):
        look(known, now)
        assert look(known, now + 11, last=now + 10, complete=now + 10).is_confirmed
        over.append(look(known, now + 12, shown=None))
        now += 13
    assert over[0] is None
    assert over[-1].is_over
    assert over[-1].look_seconds == damping.HOLD_DOWN_FIRST_SECONDS
    known.forget(KEY)
    assert look(known, now, shown=None) is None


def test_the_node_of_a_forgotten_device_has_seen_it_once_it_reports_anything():
    report = attachments.NodeReport(pci_address="0000:01:00.0")
    of = attachment(ATTACHED, node=report)
    (record, *_) = plan.plan(plan_observed(of, contradiction=FREE, demand=demand(attach_reported=True)), NOW)
    assert isinstance(record, actions.RecordContradiction)
    assert record.is_attached
