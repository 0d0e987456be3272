"""The index of attachments gives what a walk through all of them gives."""

import datetime

from hypothesis import given
from hypothesis import strategies as st
from tests.scenes import attachments as scenes

from drawbar.driver.api import attachments, meta
from drawbar.driver.controller import attachment_index

NOW = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
FABRICS, NODES, CLAIMS = ("f", "g"), ("n1", "n2"), ("c", "d")


def attachment(name, fabric, node, attached, claim=None):
    reference = attachments.ClaimReference(namespace="ns", name="c", uid=claim) if claim else None
    status = meta.Condition(type=attachments.ATTACHED, status="True" if attached else "False")
    return scenes.attachment(status, name=name, device=name, fabric=fabric, node_name=node, claim=reference)


CHANGES = st.lists(
    st.tuples(
        st.sampled_from("abcd"),
        st.none() | st.tuples(*map(st.sampled_from, (FABRICS, NODES, (True, False), (None, *CLAIMS)))),
    ),
    max_size=15,
)


def by_name(listed):
    return sorted(
        (attachment.metadata.name, attachment.spec.fabric, attachment.spec.node_name) for attachment in listed
    )


@given(CHANGES)
def test_the_index_agrees_with_a_walk_after_every_change(changes):
    stored, index = {}, attachment_index.Index()
    for name, fields in changes:
        new = attachment(name, *fields) if fields else None
        index.change(stored.get(name), new, NOW)
        stored = {other: kept for other, kept in stored.items() if other != name} | (
            {name: new} if new else {}
        )
        for fabric in FABRICS:
            mine = [attachment for attachment in stored.values() if attachment.spec.fabric == fabric]
            assert by_name(index.in_fabric(fabric)) == by_name(mine)
            assert index.has(fabric) == bool(mine)
            assert index.count_attached(fabric) == sum(
                attachment.holds(attachments.ATTACHED) for attachment in mine
            )
        for node in NODES:
            there = (attachment for attachment in stored.values() if attachment.spec.node_name == node)
            assert by_name(index.list_on(node)) == by_name(there)
        for uid in CLAIMS:
            mine = [
                attachment
                for attachment in stored.values()
                if attachment.spec.claim is not None and attachment.spec.claim.uid == uid
            ]
            assert by_name(index.for_claim(uid)) == by_name(mine)


def make_deleting_attachment(name, uid="u"):
    stored = attachment(name, "f", "n1", True)
    metadata = meta.ObjectMeta(name=name, uid=uid, deletion_timestamp="2020-01-01T00:00:00Z")
    return attachments.DeviceAttachment(metadata=metadata, spec=stored.spec, status=stored.status)


def time_after(seconds):
    return NOW + datetime.timedelta(seconds=seconds)


def test_a_release_is_overdue_30_seconds_after_its_deletion_was_first_seen():
    index = attachment_index.Index()
    index.change(None, make_deleting_attachment("a"), NOW)
    index.change(make_deleting_attachment("a"), make_deleting_attachment("a"), time_after(10))
    assert (index.overdue("f", time_after(29)), index.overdue_after("f", time_after(29))) == (
        frozenset(),
        1.0,
    )
    assert (index.overdue("f", time_after(30)), index.overdue_after("f", time_after(30))) == (
        frozenset("a"),
        None,
    )
    index.change(make_deleting_attachment("a"), None, time_after(31))
    assert (index.overdue("f", time_after(99)), index.overdue_after("f", time_after(99))) == (
        frozenset(),
        None,
    )


def test_another_attachment_of_the_same_name_starts_the_count_again():
    index = attachment_index.Index()
    index.change(None, make_deleting_attachment("a"), NOW)
    index.change(make_deleting_attachment("a"), make_deleting_attachment("a", uid="v"), time_after(60))
    assert index.overdue("f", time_after(60)) == frozenset()
    assert index.find_claim_time("a") == time_after(60)


def test_a_device_awaits_its_node_while_it_is_attached_and_neither_visible_nor_going():
    index = attachment_index.Index()
    stored = None

    def names_after(*conditions, **changes):
        nonlocal stored
        listed = [meta.Condition(type=kind, status="True") for kind in conditions]
        new = scenes.attachment(*listed, name="a", device="a", **changes)
        index.change(stored, new, NOW)
        stored = new
        return [attachment.metadata.name for attachment in index.awaiting_nodes()]

    assert names_after() == []
    assert names_after(attachments.ATTACHED) == ["a"]
    assert names_after(attachments.ATTACHED, attachments.VISIBLE) == []
    assert names_after(attachments.ATTACHED) == ["a"]
    index.change(stored, None, NOW)
    assert list(index.awaiting_nodes()) == []
