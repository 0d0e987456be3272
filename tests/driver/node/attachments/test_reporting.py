"""What a node applies to an attachment's status is what the admission policy lets a node write."""

import datetime

import pytest
from tests.scenes import attachments as scenes
from tests.scenes import cards

from drawbar.driver.api import attachments, meta
from drawbar.driver.node.attachments import reporting
from drawbar.driver.node.inventory import model

CLAIM = attachments.ClaimReference(namespace="n", name="c", uid="claim-1")
NOW = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)


def attachment(phase):
    return scenes.attachment(
        uid="u",
        phase=phase,
        operation=attachments.OperationRecord(request_id="r"),
        connection=attachments.ConnectionRecord(port="p"),
        error=attachments.Failure(reason="r", message="m"),
    )


@pytest.mark.parametrize(
    ("phase", "requested", "applied"),
    [
        ("", None, None),
        ("Attaching", None, None),
        ("Detaching", None, None),
        ("Ready", None, "Ready"),
        ("Attached", reporting.READY, "Ready"),
        ("Ready", reporting.RELEASED, "Released"),
    ],
)
def test_a_phase_of_the_controllers_is_not_applied_by_the_node(phase, requested, applied):
    body = reporting.build_apply(attachment(phase), phase=requested)
    assert body["status"].get("phase") == applied


def test_nothing_of_the_controllers_is_applied_by_the_node():
    fresh = meta.transition((), "Visible", status=True, reason="R", message="", now=meta.timestamp(NOW))
    attached = attachment("Attached")
    body = reporting.build_apply(attached, fresh=fresh, node=attachments.NodeReport(), phase=reporting.READY)
    assert body["status"].keys() == {"conditions", "node", "phase"}


@pytest.mark.parametrize(
    ("spec", "former", "user"),
    [
        ({"claim": CLAIM}, None, "claim-1"),
        (
            {"claim": None, "idle_since": "2026-01-01T00:00:00Z"},
            attachments.NodeReport(claim_uid="before"),
            "before",
        ),
        ({"claim": None, "idle_since": "2026-01-01T00:00:00Z"}, None, reporting.UNKNOWN_USER),
        ({"claim": None}, None, ""),
    ],
    ids=["a claim's", "idle, used before", "its record was lost", "by hand"],
)
def test_who_used_a_device_stays_on_record_until_it_is_clean(spec, former, user):
    seen = scenes.attachment(node=former, **spec)
    card = model.Card(functions=(cards.function(),))
    report = reporting.report(seen, reporting.RecognisedDevice(card=card), "boot", used=True)
    assert report.claim_uid == user
    assert scenes.attachment(node=report, **spec).is_used
    assert reporting.report(seen, reporting.RecognisedDevice(card=card), "boot", used=False).claim_uid == ""


def test_the_hooks_that_are_to_drain_and_clean_a_device_stay_on_record_until_it_is_clean():
    drain, blank = attachments.Hook(hook="drain"), attachments.Hook(hook="blank")
    claim = attachments.ClaimReference(namespace="n", name="c", uid="claim-1", drain=drain, clean_up=blank)
    card = model.Card(functions=(cards.function(),))
    used = reporting.report(
        scenes.attachment(claim=claim), reporting.RecognisedDevice(card=card), "boot", used=True
    )
    assert (used.drain, used.clean_up) == (drain, blank)
    idle = scenes.attachment(claim=None, idle_since="2026-01-01T00:00:00Z", node=used)
    kept = reporting.report(idle, reporting.RecognisedDevice(card=card), "boot", used=True)
    assert (kept.drain, kept.clean_up) == (drain, blank), "though its claim is gone"
    cleaned = reporting.report(idle, reporting.RecognisedDevice(card=card), "boot", used=False)
    assert (cleaned.drain, cleaned.clean_up) == (None, None)
