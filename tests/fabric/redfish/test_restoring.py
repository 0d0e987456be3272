"""The decision what to put back after a change of a shared array took others with it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drawbar.fabric.redfish import documents, restoring
from drawbar.fabric.redfish.profiles import ZoneBody
from drawbar.fabric.redfish.restoring import Leave

ENDPOINTS, LINKS = ZoneBody.ENDPOINTS, ZoneBody.LINKS
OTHERS_DOING = "another client may have removed them at the same moment"


def array(members, *, etag=None, is_shown=True):
    links = {"Endpoints": documents.references(tuple(members))} if is_shown else {}
    return documents.Document(uri="/zone", body={"Id": "1", "Links": links}, etag=etag)


def plan(
    after,
    *,
    answer=None,
    taken="",
    before="hxy",
    wanted="hxyd",
    own="h",
    etag=None,
    form=LINKS,
    etag_after=None,
):
    """Return the outcome of an attach of d to the host h with x and y: the members and the form, or the reason."""
    change = restoring.Change(
        name="Endpoints",
        before=tuple(before),
        wanted=tuple(wanted),
        own=frozenset(own),
        etag=etag,
        zone_body=form,
    )
    decision = restoring.plan(change, answer, array(after, etag=etag_after), frozenset(taken))
    if isinstance(decision, Leave):
        return decision.reason
    return "".join(decision.wanted), decision.zone_body


ROWS = {
    # The host itself is lost: no client that detaches devices does that.
    "emptied": (plan(""), ("hxyd", ENDPOINTS)),
    "emptied, in the other form": (plan("", form=ENDPOINTS), ("hxyd", LINKS)),
    "emptied by a detach": (plan("", before="hxyd", wanted="hxy"), ("hxy", ENDPOINTS)),
    "emptied but for the device": (plan("d"), ("hxyd", LINKS)),
    "one is at another host by now": (plan("", taken="x"), ("hyd", ENDPOINTS)),
    "a system of blocks": (plan("", form=None), ("hxyd", None)),
    # The answer shows the array as it is now.
    "replaced, and the answer shows it": (plan("hd", answer=array("hd")), ("hxyd", LINKS)),
    "replaced in a host without own members": (plan("d", own="", answer=array("d")), ("hxyd", LINKS)),
    "all are in use elsewhere": (
        plan("hd", answer=array("hd"), taken="xy"),
        "they are in use elsewhere, or not listed any more",
    ),
    # The answer shows another array: they were removed afterwards.
    "removed after the answer": (plan("hd", answer=array("hxyd")), OTHERS_DOING),
    "emptied after the answer": (plan("", answer=array("hxyd")), OTHERS_DOING),
    # Nothing tells whose doing it is.
    "replaced, without an answer": (plan("hd"), OTHERS_DOING),
    "one is lost": (plan("hxd", answer=array("", is_shown=False)), OTHERS_DOING),
    # ETags tell more than the array in the answer, which may be that of the request.
    "the same ETag": (plan("hd", etag="1", answer=array("hxyd", etag="2"), etag_after="2"), ("hxyd", LINKS)),
    "another ETag": (plan("hd", etag="1", answer=array("hd", etag="2"), etag_after="3"), OTHERS_DOING),
    "an ETag that never changes": (
        plan("hd", etag="1", answer=array("hxyd", etag="1"), etag_after="1"),
        OTHERS_DOING,
    ),
    "another client added one": (
        plan("hdz", answer=array("hdz")),
        "another client changed the resource meanwhile",
    ),
}


@pytest.mark.parametrize(("got", "right"), ROWS.values(), ids=ROWS)
def test_members_are_put_back_where_their_loss_is_the_doing_of_the_change(got, right):
    assert got == right


def test_the_request_carries_the_etag_of_the_reading_after_the_loss():
    change = restoring.Change(name="Endpoints", before=("h", "x"), wanted=("h", "x", "d"), own=frozenset("h"))
    decision = restoring.plan(change, None, array("", etag="7"), frozenset())
    assert (decision.etag, decision.body()) == (
        "7",
        {"Links": {"Endpoints": documents.references(("h", "x", "d"))}},
    )


MEMBERS = st.frozensets(st.sampled_from("hxyzd"))


@given(before=MEMBERS, wanted=MEMBERS, after=MEMBERS, taken=MEMBERS, answered=st.none() | MEMBERS)
def test_nothing_is_put_back_that_was_not_asked_for_or_is_taken(before, wanted, after, taken, answered):
    change = restoring.Change(
        name="Endpoints", before=tuple(before), wanted=tuple(wanted), own=before & {"h"}, zone_body=LINKS
    )
    answer = None if answered is None else array(answered)
    decision = restoring.plan(change, answer, array(after), taken)
    if not isinstance(decision, Leave):
        assert after <= before | wanted
        assert set(decision.wanted) <= wanted - (taken - after)
        assert set(decision.wanted) - after
        assert answered == after or (answered is None and "h" in before - after)
