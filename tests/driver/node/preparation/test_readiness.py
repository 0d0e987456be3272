"""Which claim may have a fabric's device now: every combination of the conditions, and each reason."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.scenes import attachments as scenes
from tests.scenes import cards

from drawbar.driver.api import attachments, meta
from drawbar.driver.catalogue import reasons
from drawbar.driver.node.inventory import model
from drawbar.driver.node.preparation import readiness

AT, BOOT, ADDRESS, ARRIVAL = "2026-01-01T00:00:00Z", "boot-1", "0000:01:00.0", 7
# By condition of a first Prepare the change to a ready attachment that breaks it, the change to the claim's use, and the reason.
BREAKS = {
    "not-going": ({"deleting": True}, {}, reasons.DEVICE_DETACHING),
    "for-this-claim": ({"uid": "another"}, {}, reasons.DEVICE_NOT_ATTACHED),
    "for-this-allocation": (
        {"at": "2026-01-01T00:00:09Z"},
        {"allocation_timestamp": AT},
        reasons.DEVICE_NOT_ATTACHED,
    ),
    "no-error": ({"error": True}, {}, reasons.DEVICE_FAILED),
    "not-failed": ({"visible": "False"}, {}, reasons.DEVICE_FAILED),
    "attached": ({"attached": False}, {}, reasons.DEVICE_NOT_ATTACHED),
    "here": ({"address": None}, {}, reasons.DEVICE_NOT_VISIBLE),
    "no-traces": ({"user": ("last", AT)}, {}, reasons.NOT_CLEANED),
    "made-ready": ({"user": ("", "")}, {}, reasons.DEVICE_NOT_READY),
    "in-this-boot": ({"boot": "boot-0"}, {}, reasons.DEVICE_NOT_READY),
    "visible": ({"visible": None}, {}, reasons.DEVICE_NOT_READY),
    "visible-known": ({"visible": "Unknown"}, {}, reasons.DEVICE_NOT_READY),
    "where-it-was-made-ready": ({"address": "0000:02:00.0"}, {}, reasons.DEVICE_NOT_READY),
    "not-put-in-again": ({"arrival": 8}, {}, reasons.DEVICE_NOT_READY),
    "reported": ({"report": False}, {}, reasons.DEVICE_NOT_READY),
    "clean-on-arrival": ({"report": False, "unclean": True}, {}, reasons.NOT_CLEANED),
}
# What a claim that was prepared in this boot keeps its device through.
FORGIVEN = {"no-error", "not-failed", "attached", "visible", "visible-known"}
# What admin access does not ask: it is another claim's device.
OF_THE_HOLDER = {"for-this-claim", "for-this-allocation"}


def find_refusal(
    *,
    deleting=False,
    uid="u",
    at=AT,
    error=False,
    visible="True",
    attached=True,
    address=ADDRESS,
    arrival=ARRIVAL,
    user=None,
    boot=BOOT,
    report=True,
    unclean=False,
    **use,
):
    conditions = [attachments.ATTACHED] if attached else []
    if visible is not None:
        conditions.append(meta.Condition(type=attachments.VISIBLE, status=visible, message="it fell out"))
    claim_uid, timestamp = (uid, at) if user is None else user
    node = attachments.NodeReport(
        pci_address=ADDRESS,
        arrival=ARRIVAL,
        boot_id=boot,
        claim_uid=claim_uid,
        allocation_timestamp=timestamp,
    )
    attachment = scenes.attachment(
        *conditions,
        deleting=deleting,
        claim=attachments.ClaimReference(namespace="ns", name="c", uid=uid),
        allocation_timestamp=at,
        unclean=unclean,
        error=attachments.Failure(reason="R", message="it does not fit") if error else None,
        node=node if report else None,
    )
    card = None if address is None else model.Card(functions=(cards.function(address, arrival=arrival),))
    return readiness.find_missing(
        attachment, readiness.Use(**{"claim_uid": "u"} | use), boot_id=BOOT, card=card
    )


def test_a_device_ready_for_its_claim_is_not_refused():
    assert find_refusal() is None
    assert find_refusal(allocation_timestamp=AT) is None


@pytest.mark.parametrize("name", BREAKS)
def test_each_condition_that_does_not_hold_is_reported_with_its_reason(name):
    changes, use, reason = BREAKS[name]
    refusal = find_refusal(**changes, **use)
    assert refusal.reason == reason
    assert refusal.may_come is (reason not in (reasons.DEVICE_DETACHING, reasons.DEVICE_FAILED))


@given(st.sets(st.sampled_from(sorted(BREAKS))), st.booleans(), st.booleans())
def test_a_claim_has_the_device_if_and_only_if_all_conditions_hold(broken, admin, prepared):
    changes, use = {}, {}
    for name in sorted(broken):
        changes |= BREAKS[name][0]
        use |= BREAKS[name][1]
    # Two breaks of one thing are the later one.
    broken = {name for name in broken if BREAKS[name][0].items() <= changes.items()}
    if "report" in changes:
        # Of what the node never reported nothing else is known.
        broken -= {"no-traces", "made-ready", "in-this-boot"}
    asked = broken - (OF_THE_HOLDER if admin else set())
    allowed = not asked or (prepared and asked <= FORGIVEN)
    assert (find_refusal(**changes, **use, admin=admin, prepared=prepared) is None) is allowed


def test_no_two_failures_hide_each_other():
    for first, second in itertools.combinations(BREAKS, 2):
        changes = BREAKS[first][0] | BREAKS[second][0]
        assert find_refusal(**changes, **BREAKS[first][1], **BREAKS[second][1]) is not None, (first, second)


@pytest.mark.parametrize("user", [("", ""), ("last", AT)], ids=["clean", "traces"])
def test_admin_access_gets_an_idle_device_only_without_traces(user):
    node = attachments.NodeReport(
        pci_address=ADDRESS, boot_id=BOOT, claim_uid=user[0], allocation_timestamp=user[1]
    )
    idle = scenes.attachment(attachments.ATTACHED, attachments.VISIBLE, idle_since=AT, node=node)
    use = readiness.Use(claim_uid="u", admin=True)
    card = model.Card(functions=(cards.function(ADDRESS),))
    refusal = readiness.find_missing(idle, use, boot_id=BOOT, card=card)
    assert (refusal and refusal.reason) == (reasons.NOT_CLEANED if user[0] else None)


def test_the_sentence_quotes_the_recorded_failure():
    assert find_refusal(error=True).clause == "cannot be used on this node: it does not fit"
    assert find_refusal(visible="False").clause == "cannot be used on this node: it fell out"
