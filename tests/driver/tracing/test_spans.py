"""The ids of a trace, which both daemons derive without a word to each other."""

from tests.scenes import attachments as scenes

from drawbar.driver.api import attachments
from drawbar.driver.tracing import spans

UID = "b1ed5591-21bd-430d-9196-02f05fbb2955"


def attachment(uid=UID, claim="c1"):
    return scenes.attachment(
        uid=uid, claim=attachments.ClaimReference(namespace="team", name="train", uid=claim)
    )


def test_the_trace_has_the_uid_of_the_attachment():
    assert f"{spans.trace_id(attachment()):032x}" == UID.replace("-", "")


def test_a_uid_of_another_form_gives_an_id_too():
    assert 0 < spans.trace_id(attachment(uid="u1")) < 2**128
    assert spans.trace_id(attachment(uid="u1")) != spans.trace_id(attachment(uid="u2"))


def test_each_claim_of_an_attachment_has_a_root_of_its_own():
    first, same, other = (spans.root_id(attachment(claim=claim)) for claim in ("c1", "c1", "c2"))
    assert first == same != other
    assert 0 < first < 2**64


def test_an_attachment_without_a_claim_has_a_root_and_no_attributes_of_one():
    kept = scenes.attachment(uid=UID)
    assert spans.root_id(kept)
    assert "drawbar.claim" not in spans.attributes(kept)
    assert spans.attributes(attachment())["drawbar.claim"] == "train"
