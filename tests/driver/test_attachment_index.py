"""The index of attachments says what a walk through all of them would say."""

from hypothesis import given
from hypothesis import strategies as st

from drawbar.driver.api import attachments, meta
from drawbar.driver.controller.attachments import index

FABRICS, NODES = ("f", "g"), ("n1", "n2")


def attachment(name, fabric, node, attached):
    spec = attachments.AttachmentSpec(
        fabric=fabric,
        device_id=name,
        driver="d",
        pool="p",
        device=name,
        node_name=node,
        host_id="h",
        identity=attachments.Identity(device_class="gpu"),
    )
    said = meta.Condition(type=attachments.ATTACHED, status="True" if attached else "False")
    return attachments.DeviceAttachment(
        metadata=meta.ObjectMeta(name=name),
        spec=spec,
        status=attachments.AttachmentStatus(conditions=(said,)),
    )


CHANGES = st.lists(
    st.tuples(
        st.sampled_from("abcd"), st.none() | st.tuples(*map(st.sampled_from, (FABRICS, NODES, (True, False))))
    ),
    max_size=15,
)


def by_name(found):
    return sorted((one.metadata.name, one.spec.fabric, one.spec.node_name) for one in found)


@given(CHANGES)
def test_the_index_agrees_with_a_walk_after_every_change(changes):
    known, found = {}, index.Index()
    for name, place in changes:
        new = attachment(name, *place) if place else None
        found.change(known.get(name), new)
        known = {other: one for other, one in known.items() if other != name} | ({name: new} if new else {})
        for fabric in FABRICS:
            mine = [one for one in known.values() if one.spec.fabric == fabric]
            assert by_name(found.of(fabric)) == by_name(mine)
            assert found.has(fabric) == bool(mine)
            assert found.attached(fabric) == sum(one.holds(attachments.ATTACHED) for one in mine)
        for node in NODES:
            there = (one for one in known.values() if one.spec.node_name == node)
            assert by_name(found.on(node)) == by_name(there)
