"""Every source of taints, and the rule that lifts each; both forms in which an API server takes them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.scenes.pools import (
    HOUR,
    NOW,
    carried_out,
    device,
    make_fabric_state,
    publish_slices,
    update_slices,
)

from drawbar.driver.api import slices
from drawbar.driver.controller import names
from drawbar.driver.controller.pools import causes, desired
from drawbar.driver.slices import encoding, pool_writes
from drawbar.fabric import contract

DRIVER = "drawbar.dev"
HANGING = contract.Connection(host_id="h")
TAINT_SLICE = encoding.Encoding.TAINT_SLICE


def make_finding(name, *, value="", effect="NoSchedule"):
    return causes.Finding(name=name, value=value, effect=effect, message="seen")


def marks(slices_, name="a"):
    """Return the device's taints as key, value and effect."""
    taints = encoding.decode(slices_)[name]
    return [(taint.key.removeprefix(f"{DRIVER}/"), taint.value, taint.effect) for taint in taints]


@pytest.mark.parametrize("form", [encoding.Encoding.PER_DEVICE, TAINT_SLICE])
@pytest.mark.parametrize(
    ("listed", "changes", "expected"),
    [
        (device("a"), {"failing": {"a": "LinkDown"}}, ("attach-failed", "LinkDown", "NoSchedule")),
        (device("a"), {"lost": {"a"}, "ours": {"a"}}, ("device-lost", "", "NoExecute")),
        (device("a", connection=HANGING), {}, ("in-use", "", "NoSchedule")),
        (device("a"), {"held": {"a"}}, ("in-use", "manual", "NoSchedule")),
        (
            device("a", connection=HANGING),
            {"stuck": {"a"}, "ours": {"a"}},
            ("in-use", "releasing", "NoSchedule"),
        ),
        (device("a", health=contract.Health.CRITICAL), {}, ("fabric-health", "critical", "NoSchedule")),
        (device("a", health=contract.Health.WARNING), {}, ("fabric-health", "warning", "None")),
        (device("a"), {"unhealthy": {"a"}, "ours": {"a"}}, ("node-unhealthy", "", "NoSchedule")),
        *(
            (
                device("a"),
                {"findings": {"a": (make_finding("link-narrow", value="x4-of-x16", effect=effect),)}},
                ("link-narrow", "x4-of-x16", effect),
            )
            for effect in ("None", "NoSchedule", "NoExecute")
        ),
        (device("a"), {"unreachable": True}, ("fabric-unreachable", "", "NoSchedule")),
        (device("a"), {"maintenance": {"a"}}, ("maintenance", "", "NoSchedule")),
        (device("a"), {"maintenance": {"*"}}, ("maintenance", "", "NoSchedule")),
        (device("a"), {"worn": {"a": NOW + HOUR}}, ("wear-limited", "", "NoSchedule")),
    ],
)
def test_each_source_marks_the_device_and_lifts_its_mark(form, listed, changes, expected):
    changes = {key: frozenset(value) if key == "maintenance" else value for key, value in changes.items()}
    clean = publish_slices(device("a"), device("b"), form=form)
    assert marks(clean) == []
    marked = update_slices(clean, listed, device("b"), form=form, **changes)
    assert marks(marked) == [expected]
    much_later = NOW + 30 * HOUR
    assert marks(update_slices(marked, device("a"), device("b"), form=form, now=much_later)) == []


def test_each_finding_of_a_node_is_a_taint_in_place_of_the_one_that_only_says_unhealthy():
    findings = (make_finding("nvme-dead", value="dead"), make_finding("link-slow", effect="None"))
    marked = update_slices(
        publish_slices(device("a")), device("a"), unhealthy=frozenset({"a"}), findings={"a": findings}
    )
    assert marks(marked) == [("nvme-dead", "dead", "NoSchedule"), ("link-slow", "", "None")]
    one_left = update_slices(marked, device("a"), findings={"a": findings[1:]}, now=NOW + HOUR)
    assert marks(one_left) == [("link-slow", "", "None")]
    (left,) = encoding.decode(one_left)["a"]
    assert left.time_added == "2026-01-02T00:00:00Z", "it has been there all the time"


def test_a_finding_with_the_key_of_another_source_is_no_taint_and_a_loss_is_one_taint():
    keys = (
        "attach-failed",
        "in-use",
        "fabric-health",
        "node-unhealthy",
        "maintenance",
        "reserved",
        "not-offered",
        "wear-limited",
    )
    posing = tuple(make_finding(name) for name in (*keys, "fabric-unreachable"))
    assert marks(update_slices(publish_slices(device("a")), device("a"), findings={"a": posing})) == []
    lost = {"a": (make_finding("device-lost", effect="NoExecute"),)}
    marked = update_slices(publish_slices(device("a")), device("a"), findings=lost)
    assert marks(marked) == [("device-lost", "", "NoExecute")]
    ours = frozenset({"a"})
    marked = update_slices(publish_slices(device("a")), device("a"), findings=lost, lost=ours, ours=ours)
    assert marks(marked) == [("device-lost", "", "NoExecute")]


def test_a_device_that_is_in_use_for_several_reasons_says_one_that_an_operator_can_end_first():
    hanging = device("a", connection=HANGING)
    clean = publish_slices(device("a"))
    assert marks(update_slices(clean, hanging, held={"a"}, stuck={"a"})) == [
        ("in-use", "manual", "NoSchedule")
    ]
    assert marks(update_slices(clean, hanging, stuck={"a"})) == [("in-use", "releasing", "NoSchedule")]


def test_where_no_taints_are_kept_a_device_that_should_have_one_is_withdrawn_until_it_needs_none():
    form = encoding.Encoding.WITHDRAWN
    ill, warned = (
        device(name, health=health)
        for name, health in (("a", contract.Health.CRITICAL), ("b", contract.Health.WARNING))
    )
    (left,) = update_slices(publish_slices(device("a"), device("b"), form=form), ill, warned, form=form)
    assert [(device.name, device.taints) for device in left.spec.devices] == [("b", ())]
    assert desired.plan(make_fabric_state(ill, warned, published=(left,), form=form), NOW) == ()
    (back,) = update_slices((left,), device("a"), device("b"), form=form)
    assert [device.name for device in back.spec.devices] == ["a", "b"]


def test_all_sources_together_come_worst_first_and_keep_their_time():
    ours = frozenset({"a"})
    ill = device("a", health=contract.Health.WARNING, connection=HANGING)
    first = update_slices(publish_slices(ill), ill, ours=ours, lost=ours, failing={"a": "DeviceLost"})
    assert [mark[0] for mark in marks(first)] == ["device-lost", "attach-failed", "fabric-health"]
    second = update_slices(first, ill, ours=ours, lost=ours, unhealthy=ours, now=NOW + HOUR)
    times = {taint.key: taint.time_added for taint in encoding.decode(second)["a"]}
    assert times[f"{DRIVER}/device-lost"] == "2026-01-02T00:00:00Z"
    assert times[f"{DRIVER}/node-unhealthy"] == "2026-01-02T01:00:00Z"


def test_a_claims_device_that_vanished_stays_tainted_until_the_claim_lets_go():
    before = publish_slices(device("a"), device("b"))
    gone = update_slices(before, device("b"), ours=frozenset({"a"}))
    assert marks(gone) == [("device-lost", "", "NoExecute")]
    assert set(encoding.decode(update_slices(gone, device("b")))) == {"b"}


def test_the_devices_of_a_fabric_that_goes_are_withdrawn_with_their_claims_on_them():
    before = publish_slices(device("a"))
    assert update_slices(before, ours=frozenset({"a"}), going=True) == ()


def test_a_fabric_that_is_silent_since_the_start_has_its_published_free_devices_marked():
    before = publish_slices(device("a"), device("b"))
    marked = update_slices(before, devices=None, unreachable=True, ours=frozenset({"b"}))
    assert marks(marked) == [("fabric-unreachable", "", "NoSchedule")]
    assert marks(marked, "b") == []
    assert desired.plan(make_fabric_state(devices=None, published=before), NOW) == ()


def test_a_device_fails_for_as_long_as_its_own_probation_says():
    failed = publish_slices(device("a"), failing={"a": "LinkDown"})
    (again,) = desired.plan(
        make_fabric_state(device("a"), published=failed, probations={"a": 3 * HOUR}), NOW + HOUR
    )
    assert again == desired.LookAgain(at=NOW + 3 * HOUR)
    assert marks(update_slices(failed, device("a"), probations={"a": 0 * HOUR})) == []


@pytest.mark.parametrize("form", [encoding.Encoding.PER_DEVICE, TAINT_SLICE])
def test_a_probation_ends_by_when_the_taint_was_first_seen_and_not_by_another_machines_clock(form):
    failed = publish_slices(device("a"), failing={"a": "LinkDown"}, form=form)
    assert {name for slice_ in failed for name in causes.failures(DRIVER, slice_)} == {"a"}
    seen = {"failed_since": {"a": NOW + 10 * HOUR}, "form": form}
    (again,) = desired.plan(make_fabric_state(device("a"), published=failed, **seen), NOW + 10 * HOUR)
    assert again == desired.LookAgain(at=NOW + 11 * HOUR)
    assert marks(update_slices(failed, device("a"), now=NOW + 11 * HOUR, **seen)) == []


def test_a_taint_slice_is_published_even_when_empty_and_changed_in_place():
    clean = publish_slices(device("a"), form=TAINT_SLICE)
    assert [slice_.spec.pool.resource_slice_count for slice_ in clean] == [2, 2]
    assert {slice_.metadata.name for slice_ in clean} == {
        names.resource_slice(DRIVER, "f/e"),
        f"{names.resource_slice(DRIVER, 'f/e')}-taints",
    }
    (action,) = desired.plan(
        make_fabric_state(device("a"), failing={"a": "LinkDown"}, published=clean, form=TAINT_SLICE), NOW
    )
    assert isinstance(action, pool_writes.Replace)
    assert action.slice.spec.pool.generation == 1
    assert action.slice.spec.devices == ()
    assert [entry.device for entry in action.slice.spec.taints] == ["a"]


def test_where_devices_and_taints_change_together_the_generation_tells():
    clean = publish_slices(device("a"), form=TAINT_SLICE)
    actions = desired.plan(
        make_fabric_state(
            device("a"), device("b"), failing={"a": "LinkDown"}, published=clean, form=TAINT_SLICE
        ),
        NOW,
    )
    assert [type(action) for action in actions] == [pool_writes.Replace, pool_writes.Replace]
    assert {action.slice.spec.pool.generation for action in actions} == {2}


def test_an_api_server_that_changes_its_form_gets_the_other_one():
    failing = {"failing": {"a": "LinkDown"}}
    per_device = publish_slices(device("a"), **failing)
    apart = update_slices(per_device, device("a"), form=TAINT_SLICE, **failing)
    assert marks(apart) == marks(per_device)
    assert all(not device.taints for slice_ in apart for device in slice_.spec.devices)
    back = update_slices(apart, device("a"), **failing)
    assert marks(back) == marks(per_device)
    assert len(back) == 1


def test_of_too_many_taints_the_worst_are_kept_and_this_is_reported():
    many = [slices.Taint(key=f"{DRIVER}/k{number:02}", effect="None") for number in range(16)]
    worst = [slices.Taint(key=f"{DRIVER}/z", effect="NoExecute"), slices.Taint(key="y", effect="NoSchedule")]
    full = slices.Device(name="a", taints=tuple(sorted([*many, *worst], key=encoding.rank)))
    content = encoding.encode(encoding.Encoding.PER_DEVICE, [full, slices.Device(name="b")])
    kept = {device.name: device.taints for device in content.devices}
    assert len(kept["a"]) == 16
    assert list(kept["a"][:2]) == worst
    assert content.left_out == ("a",)


def test_where_a_taint_slice_is_full_the_worst_stand_and_no_device_is_offered_without_its_taint():
    listed = [
        device(f"d{number:02}", health=contract.Health.WARNING, connection=HANGING if number % 2 else None)
        for number in range(60)
    ]
    failing = {f"d{number:02}": "LinkDown" for number in range(4)}
    actions = desired.plan(make_fabric_state(*listed, failing=failing, form=TAINT_SLICE), NOW)
    (omission,) = [action for action in actions if isinstance(action, desired.LeftOut)]
    *_, stored = carried_out((), actions)
    assert sum(len(slice_.spec.taints) for slice_ in stored) == encoding.TAINTS_PER_SLICE
    marked = encoding.decode(stored)
    assert failing.keys() <= marked.keys()
    assert omission.devices
    for name in marked:
        bad = name in failing or int(name[1:]) % 2
        assert encoding.keeps_away(marked[name]) == bool(bad)


@given(
    form=st.sampled_from(encoding.Encoding),
    before_form=st.sampled_from(encoding.Encoding),
    first=st.sets(st.integers(0, 80), max_size=80),
    second=st.sets(st.integers(0, 80), max_size=80),
    foreign=st.sets(st.integers(0, 80), max_size=80),
    failing=st.sets(st.integers(0, 80), max_size=20),
    ours=st.sets(st.integers(0, 80), max_size=20),
)
@settings(deadline=None, max_examples=60)
def test_no_marked_device_is_ever_offered_unmarked(form, before_form, first, second, foreign, failing, ours):
    stored = publish_slices(*(device(f"d{number}") for number in sorted(first)), form=before_form)
    listed = [
        device(f"d{number}", connection=HANGING if number in foreign else None) for number in sorted(second)
    ]
    facts = {
        "failing": {f"d{number}": "LinkDown" for number in failing},
        "ours": frozenset(f"d{number}" for number in ours),
        "form": form,
    }
    stored = update_slices(stored, *listed, **facts)
    for name, marked in encoding.decode(stored).items():
        number = int(name[1:])
        missing = number not in second
        bad = number in failing or missing or (number in foreign and number not in ours)
        assert encoding.keeps_away(marked) == bad
    if form is encoding.Encoding.WITHDRAWN:
        assert not any(encoding.decode(stored).values())
    for slice_ in stored:
        assert len(slice_.spec.devices) <= pool_writes.DEVICES_MAX
        assert len(slice_.spec.taints) <= encoding.TAINTS_PER_SLICE
        pool = [other for other in stored if other.spec.pool.name == slice_.spec.pool.name]
        assert slice_.spec.pool.resource_slice_count == len(pool)
        assert len({other.spec.pool.generation for other in pool}) == 1
    rest = desired.plan(make_fabric_state(*listed, published=stored, **facts), NOW)
    assert not [action for action in rest if not isinstance(action, desired.LeftOut)]
