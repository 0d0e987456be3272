"""What the node owes one attachment, decided purely."""

import dataclasses
import datetime

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drawbar.driver.api import attachments, meta
from drawbar.driver.node.attachments import plan

START = datetime.datetime(2026, 1, 2, 3, 0, 0, tzinfo=datetime.UTC)
PATIENCE = datetime.timedelta(seconds=60)
READY = plan.Arrival(address="0000:01:00.0", driver="nvme", initialised=True)
BARE = plan.Arrival(address="0000:01:00.0", driver="", initialised=False)
FILELESS = plan.Arrival(address="0000:01:00.0", driver="nvme", initialised=False)


def condition(kind, *, holds=True, reason="R", at=START):
    return meta.Condition(
        type=kind,
        status="True" if holds else "False",
        reason=reason,
        last_transition_time=meta.timestamp(at),
    )


ATTACHED = condition(attachments.ATTACHED)
VISIBLE = condition(attachments.VISIBLE)
HERE = attachments.NodeReport(pci_address=READY.address, kernel_driver="nvme", boot_id="boot-1")


def attachment(*conditions, deleting=False, error=None, node=None):
    return attachments.DeviceAttachment(
        metadata=meta.ObjectMeta(
            name="fab.d", deletion_timestamp="2026-01-02T03:00:00Z" if deleting else None
        ),
        spec=attachments.AttachmentSpec(
            fabric="fab",
            device_id="d",
            driver="drawbar.dev",
            pool="p",
            device="d",
            node_name="n",
            host_id="h1",
            identity=attachments.Identity(device_class="nvme", serial="SN1"),
        ),
        status=attachments.AttachmentStatus(conditions=conditions, error=error, node=node),
    )


def observed(found, arrival=None, **changes):
    known = {
        "held_by": None,
        "boot_id": "boot-1",
        "since": START,
        "patience": PATIENCE,
        "told": False,
    } | changes
    return plan.Observed(attachment=found, arrival=arrival, **known)


def at(seconds):
    return START + datetime.timedelta(seconds=seconds)


def brief(actions):
    """An action as its name, with what tells it apart."""
    return [(type(one).__name__, getattr(one, "reason", None) or getattr(one, "at", None)) for one in actions]


FAILED = condition(attachments.VISIBLE, holds=False, reason=plan.LOST)
BROKEN = attachments.Failure(reason="X", message="x")
MOVED = msgspec.structs.replace(HERE, pci_address="0000:09:00.0")
VISIBLE_ACTION = [("ReportVisible", None)]

CASES = {
    "here-and-ready": (observed(attachment(ATTACHED), READY), 0, VISIBLE_ACTION),
    "here-before-the-controller-said-attached": (observed(attachment(), READY), 0, VISIBLE_ACTION),
    "reported-already": (observed(attachment(ATTACHED, VISIBLE, node=HERE), READY), 99, []),
    "reported-before-a-reboot": (
        observed(attachment(ATTACHED, VISIBLE, node=HERE), READY, boot_id="boot-2"),
        99,
        VISIBLE_ACTION,
    ),
    "reported-at-another-address": (
        observed(attachment(ATTACHED, VISIBLE, node=MOVED), READY),
        99,
        VISIBLE_ACTION,
    ),
    "comes-after-it-was-given-up": (observed(attachment(ATTACHED, FAILED), READY), 99, VISIBLE_ACTION),
    "not-attached-yet": (observed(attachment()), 999, []),
    "attach-failed": (observed(attachment(condition(attachments.ATTACHED, holds=False))), 999, []),
    "controller-gave-up": (observed(attachment(ATTACHED, error=BROKEN)), 999, []),
    "awaited": (observed(attachment(ATTACHED)), 59, [("LookAgain", at(60))]),
    "never-came": (observed(attachment(ATTACHED)), 60, [("ReportFailed", plan.NOT_FOUND)]),
    "came-without-driver": (observed(attachment(ATTACHED), BARE), 59, [("LookAgain", at(60))]),
    "driver-never-bound": (observed(attachment(ATTACHED), BARE), 60, [("ReportFailed", plan.NO_DRIVER)]),
    "driver-offers-nothing": (
        observed(attachment(ATTACHED), FILELESS),
        60,
        [("ReportFailed", plan.NO_FILES)],
    ),
    "lost": (observed(attachment(ATTACHED, VISIBLE, node=HERE)), 1, [("ReportFailed", plan.LOST)]),
    "the-claim-is-told-once-the-controller-has-tainted": (
        observed(attachment(ATTACHED, FAILED, node=HERE, error=BROKEN)),
        999,
        [("TellClaim", plan.LOST)],
    ),
    "the-claim-was-told": (
        observed(attachment(ATTACHED, FAILED, node=HERE, error=BROKEN), told=True),
        999,
        [],
    ),
    "failure-was-reported": (observed(attachment(ATTACHED, FAILED, node=HERE)), 999, []),
    "not-back-yet-after-a-reboot": (
        observed(attachment(ATTACHED, VISIBLE, node=HERE), boot_id="boot-2", since=at(500)),
        510,
        [("LookAgain", at(560))],
    ),
    "not-back-after-a-reboot": (
        observed(attachment(ATTACHED, VISIBLE, node=HERE), boot_id="boot-2", since=at(500)),
        560,
        [("ReportFailed", plan.LOST)],
    ),
    "a-restart-of-the-daemon-gives-no-more-time": (
        observed(attachment(ATTACHED), since=at(500)),
        510,
        [("ReportFailed", plan.NOT_FOUND)],
    ),
    "let-go": (observed(attachment(ATTACHED, deleting=True), READY), 0, [("ReportReleased", None)]),
    "let-go-though-gone": (observed(attachment(ATTACHED, deleting=True)), 0, [("ReportReleased", None)]),
    "held-while-deleting": (observed(attachment(ATTACHED, deleting=True), READY, held_by="u"), 0, []),
    "released-already": (
        observed(attachment(condition(attachments.RELEASED), deleting=True), READY),
        0,
        [],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_each_observation_has_its_next_steps(case):
    seen, seconds, expected = CASES[case]
    assert brief(plan.plan(seen, at(seconds))) == expected


@pytest.mark.parametrize("case", [name for name, row in CASES.items() if row[2][:1] and row[2][0][1]])
def test_a_failure_names_the_device(case):
    seen, seconds, _ = CASES[case]
    for action in plan.plan(seen, at(seconds)):
        if isinstance(action, plan.ReportFailed):
            assert "SN1" in action.message


def carried_out(seen, actions, now):
    """The next observation after the executor did its work."""
    found = seen.attachment
    for action in actions:
        match action:
            case plan.ReportVisible(arrival=arrival):
                node = attachments.NodeReport(
                    pci_address=arrival.address, kernel_driver=arrival.driver, boot_id=seen.boot_id
                )
                found = said(found, condition(attachments.VISIBLE, at=now), node=node)
            case plan.ReportFailed(reason=reason):
                found = said(found, condition(attachments.VISIBLE, holds=False, reason=reason, at=now))
            case plan.TellClaim():
                seen = dataclasses.replace(seen, told=True)
            case plan.ReportReleased():
                found = said(found, condition(attachments.RELEASED, at=now))
    return dataclasses.replace(seen, attachment=found)


def said(found, fresh, **more):
    others = tuple(one for one in found.status.conditions if one.type != fresh.type)
    status = msgspec.structs.replace(found.status, conditions=(*others, fresh), **more)
    return msgspec.structs.replace(found, status=status)


moments = st.integers(min_value=0, max_value=400).map(at)
boots = st.sampled_from(["boot-1", "boot-2"])


@st.composite
def observations(draw):
    """Any observation; mostly of an attachment that the fabric has connected, as that is where decisions are."""
    kinds = (attachments.ATTACHED, attachments.VISIBLE, attachments.RELEASED)
    states = [draw(st.sampled_from([True, True, False, None]))]
    states += [draw(st.sampled_from([None, True, False])) for _ in kinds[1:]]
    conditions = tuple(
        condition(kind, holds=state, at=draw(moments))
        for kind, state in zip(kinds, states, strict=True)
        if state is not None
    )
    node = attachments.NodeReport(pci_address=draw(st.sampled_from(["a", "b"])), boot_id=draw(boots))
    arrival = plan.Arrival(
        address=draw(st.sampled_from(["a", "b"])),
        driver=draw(st.sampled_from(["", "nvme"])),
        initialised=draw(st.booleans()),
    )
    found = attachment(
        *conditions,
        deleting=draw(st.sampled_from([False, False, True])),
        error=draw(st.sampled_from([None, None, BROKEN])),
        node=draw(st.sampled_from([None, node])),
    )
    return observed(
        found,
        draw(st.sampled_from([None, arrival])),
        held_by=draw(st.sampled_from([None, "u"])),
        boot_id=draw(boots),
        since=draw(moments),
        told=draw(st.booleans()),
    )


@settings(max_examples=300)
@given(observations(), moments)
def test_whatever_is_observed_the_invariants_hold(seen, now):
    ready = seen.arrival is not None and seen.arrival.initialised
    for action in plan.plan(seen, now):
        match action:
            case plan.ReportVisible(arrival=arrival):
                assert ready
                assert arrival == seen.arrival
                assert not seen.attachment.deleting
            case plan.ReportFailed():
                assert not ready
                assert seen.attachment.holds(attachments.ATTACHED)
                assert not seen.attachment.deleting
            case plan.TellClaim():
                assert not ready
                assert seen.attachment.status.error is not None
            case plan.ReportReleased():
                assert seen.held_by is None
                assert seen.attachment.deleting
            case plan.LookAgain(at=moment):
                assert moment > now


@settings(max_examples=300)
@given(observations(), moments)
def test_what_was_carried_out_leaves_nothing_to_report(seen, now):
    again = carried_out(seen, plan.plan(seen, now), now)
    left = plan.plan(again, now)
    assert all(isinstance(action, plan.LookAgain) for action in left), left


@settings(max_examples=300)
@given(observations(), moments)
def test_the_moment_to_look_again_brings_a_decision(seen, now):
    for action in plan.plan(seen, now):
        if isinstance(action, plan.LookAgain):
            assert not any(isinstance(later, plan.LookAgain) for later in plan.plan(seen, action.at))
