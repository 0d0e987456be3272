"""Updates of the page: what was shown, with the update, is what is to be shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drawbar.driver.api import fabrics, meta
from drawbar.driver.cli.status import observed, tree
from drawbar.driver.cli.ui import device_rows, model

ROWS = st.dictionaries(st.sampled_from("abcdefgh"), st.sampled_from(["Free", "Ready", "Failed"]))
SENTENCES = st.lists(st.sampled_from(["fabrics", "events"]), unique=True).map(tuple)
STALE = st.sampled_from([model.Stale(), model.Stale(kinds=("pods",), since="2026-01-01T00:00:00Z")])
PAGES = st.tuples(ROWS, SENTENCES, STALE)


def next_page(content, before):
    """Return a page in which a row that is equal to the one before is the same object."""
    states, unread, stale = content
    rows = {}
    for name, state in states.items():
        device = tree.Device(pool="p", name=name, state=state)
        row = device_rows.describe_row(device, fabric="f")
        old = before.rows.get(row.key) if before is not None else None
        rows[row.key] = old if old == row else row
    return model.Page(rows=rows, unread=unread, stale=stale)


@given(st.lists(PAGES, min_size=1, max_size=6))
def test_updates_one_after_the_other_give_the_last_page(contents):
    shown, unread, stale, before = {}, (), model.Stale(), None
    for content in contents:
        after = next_page(content, before)
        update = model.update(before, after)
        if update is None:
            assert before is not None
            assert before == after
        else:
            if update.is_whole:
                shown = {}
            for row in update.rows:
                shown[row.key] = row
            for key in update.gone:
                del shown[key]
            unread = update.unread if update.unread is not None else unread
            stale = update.stale if update.stale is not None else stale
            assert len(update.rows) <= len(after.rows)
        assert (shown, unread, stale) == (after.rows, after.unread, after.stale)
        before = after


@pytest.mark.parametrize(
    ("count", "parts"), [(model.FIRST_ROWS, [500]), (1203, [500, 703])], ids=["a screen", "a cluster"]
)
def test_a_long_page_is_sent_in_two_parts_and_the_first_says_so(count, parts):
    states = {f"gpu-{number:04}": "Free" for number in range(count)}
    page = next_page((states, (), model.Stale()), None)
    sent = model.split(model.update(None, page))
    assert [len(update.rows) for update in sent] == parts
    assert [update.is_partial for update in sent] == [True, False][-len(parts) :]
    assert [update.is_whole for update in sent] == [True, False][: len(parts)]
    assert [row.key for update in sent for row in update.rows] == list(page.rows)


def event(kind, name, note="gpu-1 is ready", at="2026-01-01T00:00:00Z", namespace="a", related=None):
    return observed.Event(
        metadata=meta.ObjectMeta(name=f"{name}.{note}"),
        type="Normal",
        reason="DevicesReady",
        note=note,
        event_time=at,
        regarding=observed.Regarding(kind=kind, name=name, namespace=namespace),
        related=related,
    )


def test_one_note_on_a_claim_its_pods_and_its_attachment_is_one_event():
    claim = observed.Regarding(kind="ResourceClaim", name="train", namespace="a")
    listed = model.list_events(
        [
            event("Pod", "train-0"),
            event("ResourceClaim", "train"),
            event("DeviceAttachment", "rack-1.gpu-1", namespace="", related=claim),
            event("Pod", "other", "gpu-2 is ready"),
        ]
    )
    assert [(each.note, [about.name for about in each.about]) for each in listed] == [
        ("gpu-1 is ready", ["train-0", "train", "rack-1.gpu-1"]),
        ("gpu-2 is ready", ["other"]),
    ]


def test_the_same_note_on_another_claim_later_is_an_event_of_its_own():
    later, earlier = event("Pod", "train-1", at="2026-01-01T00:01:00Z"), event("Pod", "train-0")
    assert [[about.name for about in each.about] for each in model.list_events([later, earlier])] == [
        ["train-1"],
        ["train-0"],
    ]


CONDITIONS = st.lists(
    st.tuples(st.sampled_from(sorted(fabrics.CONDITIONS)), st.sampled_from(["True", "False", "Unknown"])),
    unique_by=lambda each: each[0],
)
GOOD_IF_TRUE = {"Connected", "HostsMapped", "Published", "Ready", "Writable"}


@given(CONDITIONS)
def test_a_fabric_with_a_bad_condition_is_not_connected_only(conditions):
    status = fabrics.FabricStatus(
        conditions=tuple(
            meta.Condition(type=name, status=value, reason=f"Not{name}", message="why")
            for name, value in conditions
        )
    )
    item = fabrics.Fabric(
        metadata=meta.ObjectMeta(name="rack-1"),
        spec=fabrics.FabricSpec(adapter="grpc", endpoint="unix:/f"),
        status=status,
    )
    (shown,) = model.list_fabrics([item], [])
    bad = {name for name, value in conditions if (value == "True") != (name in GOOD_IF_TRUE)}
    # Ready sums up the others.
    assert {problem.type for problem in shown.problems} == (bad - {"Ready"} or bad)
    assert (shown.state == "Connected") == (("Connected", "True") in conditions and not bad)


def test_fabrics_that_only_devices_name_are_missing_or_unknown(fabric_object):
    row = device_rows.describe_row(tree.Device(pool="rack-9/e", name="d"), fabric="rack-9")
    listed = model.list_fabrics([fabric_object("rack-1")], [row])
    assert [(fabric.name, fabric.state) for fabric in listed] == [
        ("rack-1", "Pending"),
        ("rack-9", "Missing"),
    ]
    assert [fabric.state for fabric in model.list_fabrics([], [row])] == ["Missing"]
    unread = model.list_fabrics([], [row], is_listed=False)
    assert [fabric.state for fabric in unread] == ["Unknown"]
