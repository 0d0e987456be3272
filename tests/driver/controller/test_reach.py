"""Which nodes can have which devices: pools, their selectors, and the labels of nodes."""

import dataclasses
import datetime
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.scenes import pools as scenes
from tests.scenes.pools import NOW, device, make_fabric_state, publish_slices, update_slices

from drawbar.driver.api import core, fabrics, meta
from drawbar.driver.controller import labels, names, reach
from drawbar.driver.controller.pools import desired
from drawbar.driver.slices import pool_writes
from drawbar.fabric import contract

LABEL = re.compile(r"(?:[a-z0-9.-]{1,253}/)[a-z0-9](?:[a-z0-9._-]{0,61}[a-z0-9])?")
MINUTE = datetime.timedelta(minutes=1)


def groups(text):
    return frozenset(text)


def host(name, of="", **changes):
    return contract.Host(id=name, name=name, reach_groups=groups(of), **changes)


def node(name, held):
    return core.Node(metadata=meta.ObjectMeta(name=name, labels=dict(held)))


def plan_labels(devices, hosts, *, refused=(), published_slices=(), with_room=None):
    """Return the labels of each node, which has the name of its host, as the controller sets them."""
    node_of = {each.id: each.id for each in hosts}
    related = reach.node_labels(
        "f",
        [each.reach_groups for each in devices],
        hosts,
        node_of,
        refusing=reach.refusing_hosts(refused).values(),
        published=[each.spec.pool.name for each in published_slices],
    )
    further = {
        name: related.reached.get(name, frozenset()) | related.closed.get(name, frozenset())
        for name in node_of
    }
    reached = {"f": set(node_of) if with_room is None else with_room}
    changes = labels.plan([node(name, {}) for name in node_of], reached, further)
    return {name: {} for name in node_of} | {change.node: dict(change.labels) for change in changes}


def select_nodes(selector, by_node):
    """Return the nodes that the selector of a slice selects, as the scheduler reads it."""
    (term,) = selector.node_selector_terms
    return {
        name
        for name, held in by_node.items()
        if all(
            (
                held.get(requirement.key) in requirement.values
                if requirement.operator == "In"
                else requirement.key not in held
            )
            for requirement in term.match_expressions
        )
    }


def read_offers(slices_, by_node):
    """Return by the name of each published device its pool, and the nodes that it is offered to."""
    return {
        entry.name: (each.spec.pool.name, select_nodes(each.spec.node_selector, by_node))
        for each in slices_
        for entry in each.spec.devices
    }


def nodes_of(devices, hosts, *, refused=(), **changes):
    stored = publish_slices(*devices, refused=refused, **changes)
    by_node = plan_labels(devices, hosts, refused=refused, published_slices=stored)
    return {name: nodes for name, (_, nodes) in read_offers(stored, by_node).items()}


HOSTS = (host("h1", "a"), host("h2", "b"), host("h3", "ab"))


@pytest.mark.parametrize(
    ("devices", "refused", "expected"),
    [
        ([device("d")], (), {"d": {"h1", "h2", "h3"}}),
        ([device("d", reach_groups=groups("a"))], (), {"d": {"h1", "h3"}}),
        ([device("d", reach_groups=groups("ab"))], (), {"d": {"h1", "h2", "h3"}}),
        ([device("d", reach_groups=groups("c"))], (), {"d": set()}),
        ([device("d"), device("e")], [("d", "h1")], {"d": {"h2", "h3"}, "e": {"h1", "h2", "h3"}}),
        (
            [device("d", reach_groups=groups("a")), device("e", reach_groups=groups("a"))],
            [("d", "h1"), ("d", "h3"), ("e", "h3")],
            {"d": set(), "e": {"h1"}},
        ),
        ([device("d")], [("other", "h1"), ("d", "elsewhere")], {"d": {"h1", "h2", "h3"}}),
    ],
    ids=[
        "no groups",
        "one group",
        "two groups",
        "a group of no host",
        "a refused pair",
        "refused pairs within a group",
        "pairs of others",
    ],
)
def test_a_device_is_offered_to_the_nodes_that_reach_it_and_did_not_refuse_it(devices, refused, expected):
    assert nodes_of(devices, HOSTS, refused=refused) == expected


def test_a_host_without_groups_is_offered_everything():
    devices = [device("d", reach_groups=groups("a")), device("e", reach_groups=groups("b"))]
    assert nodes_of(devices, [host("h1"), host("h2", "a")]) == {"d": {"h1", "h2"}, "e": {"h1"}}


def test_without_groups_and_refusals_pools_and_labels_are_as_ever():
    (slice_,) = publish_slices(device("d"))
    assert slice_.spec.pool.name == "f/e"
    (term,) = slice_.spec.node_selector.node_selector_terms
    assert [requirement.key for requirement in term.match_expressions] == ["fabric.drawbar.dev/f"]
    assert plan_labels([device("d")], HOSTS) == {each.id: {"fabric.drawbar.dev/f": "true"} for each in HOSTS}


def pools(slices_):
    return {entry.name: each.spec.pool.name for each in slices_ for entry in each.spec.devices}


def test_a_device_in_other_groups_moves_once_no_claim_has_it():
    before = publish_slices(device("d", reach_groups=groups("a")), device("e", reach_groups=groups("a")))
    home = pools(before)["d"]
    moved = (device("d", reach_groups=groups("b")), device("e", reach_groups=groups("a")))
    held = update_slices(before, *moved, allocated_pools={"d": home})
    assert pools(held) == {"d": home, "e": home}
    attached = update_slices(before, *moved, ours=["d"])
    assert pools(attached) == {"d": home, "e": home}
    assert pools(update_slices(held, *moved)) == {
        "d": names.pool("f", "e", reach=names.reach_key("b")),
        "e": home,
    }


def test_a_refused_device_moves_once_its_claim_lets_go_of_it_and_returns_when_the_pair_may_be_tried():
    both, refused = (device("d"), device("e")), [("d", "h1")]
    before = publish_slices(*both)
    failing = update_slices(before, *both, allocated_pools={"d": "f/e"}, refused=refused)
    assert pools(failing) == {"d": "f/e", "e": "f/e"}
    apart = update_slices(failing, *both, refused=refused)
    assert pools(apart) == {"d": names.pool("f", "e", refusing=["h1"]), "e": "f/e"}
    assert pools(update_slices(apart, *both)) == {"d": "f/e", "e": "f/e"}
    (again,) = [
        action
        for action in desired.plan(
            make_fabric_state(*both, published=apart, refused=refused, refused_until=NOW + MINUTE), NOW
        )
        if isinstance(action, desired.LookAgain)
    ]
    assert again.at == NOW + MINUTE


def test_a_refused_device_has_no_taint():
    slices_ = publish_slices(device("d"), refused=[("d", "h1")])
    assert [entry.taints for each in slices_ for entry in each.spec.devices] == [()]


def test_a_composite_is_refused_where_one_of_its_members_is():
    assert reach.refusing_hosts([("a", "h1"), ("b", "h2")], {"duo": ("a", "b"), "other": ("c", "d")}) == {
        "a": {"h1"},
        "b": {"h2"},
        "duo": {"h1", "h2"},
    }


def test_there_are_few_pools_for_refused_devices_and_the_others_stay_where_they_were():
    listed = [device(f"d{number:02}") for number in range(40)]
    refused = [(each.id, f"h{number:02}") for number, each in enumerate(listed)]
    kept = pools(publish_slices(*listed, refused=refused))
    assert len(set(kept.values())) == reach.REFUSING_POOLS_MAX + 1
    assert len(kept) == len(listed)


def test_pools_for_refused_devices_leave_room_for_all_others():
    listed = [device(f"d{number}", f"e{number}") for number in range(4)]
    refused = [(each.id, "h") for each in listed]
    limits = fabrics.Limits(slices=5)
    kept = pools(publish_slices(*listed, refused=refused, limits=limits))
    assert sum("refused" in pool for pool in kept.values()) == 1
    grown = [*listed, *(device(f"n{number}", f"n{number}") for number in range(3))]
    beyond = [
        action
        for action in desired.plan(make_fabric_state(*grown, refused=refused, limits=limits), NOW)
        if isinstance(action, desired.Withheld)
    ]
    assert all("refused" not in pool for pool in kept.values() if pool.startswith("f/n"))
    assert [action.devices for action in beyond] == [2]


def test_the_pools_that_are_there_keep_their_room():
    listed = [device(f"d{number:02}") for number in range(reach.REFUSING_POOLS_MAX + 1)]
    last = listed[-1].id
    before = publish_slices(*listed, refused=[(last, "h-last")])
    refused = [(last, "h-last"), *((each.id, f"h-{each.id}") for each in listed[:-1])]
    assert pools(update_slices(before, *listed, refused=refused))[last] == pools(before)[last]


def test_a_node_has_a_bounded_number_of_labels():
    many = [frozenset({f"g{number}"}) for number in range(reach.LABELS_MAX + 1)]
    every = host("h", (), identifiers={})
    crowded = reach.node_labels("f", many, [every, host("i", ["g1", "g2"])], {"h": "n", "i": "m"})
    assert (len(crowded.reached["n"]), len(crowded.reached["m"])) == (reach.LABELS_MAX, 2)
    assert crowded.crowded == ("n",)
    assert "n reach more than 256 reachability groups" in reach.describe_crowded(crowded.crowded)
    pairs = [frozenset({"h", f"other-{number}"}) for number in range(100)]
    closed = reach.node_labels("f", (), [every], {"h": "n"}, refusing=pairs).closed
    assert len(closed["n"]) == reach.REFUSALS_LABELLED_MAX


@pytest.mark.parametrize(
    ("reached", "held", "changes"),
    [
        ({"f": {"n"}}, {"fabric.drawbar.dev/f": "true", "reach.drawbar.dev/f.old": "true"}, {"old"}),
        ({"f": None}, {"reach.drawbar.dev/f.old": "true"}, set()),
        ({}, {"reach.drawbar.dev/gone.old": "true"}, {"old"}),
        ({"f": {"n"}}, {"fabric.drawbar.dev/f": "true", "reach.drawbar.dev/f.old": "other"}, set()),
    ],
    ids=["left over", "the fabric was never listed", "the fabric is gone", "another driver's"],
)
def test_labels_of_groups_come_and_go_as_those_of_the_fabric(reached, held, changes):
    planned = labels.plan([node("n", held)], reached)
    taken = {
        key.rpartition(".")[2] for change in planned for key, value in change.labels.items() if value is None
    }
    assert taken == changes


def test_a_fabric_shows_its_groups_and_the_devices_that_no_host_reaches():
    devices = [device("d", reach_groups=groups("a")), device("e", reach_groups=groups("ac"))]
    lone = device("x", reach_groups=groups("z"))
    assert reach.summarise([*devices, lone], HOSTS, {"h1": "n1"}) == (
        fabrics.ReachGroup(id="a", devices=2, hosts=2, nodes=1),
        fabrics.ReachGroup(id="c", devices=1, hosts=0, nodes=0),
        fabrics.ReachGroup(id="z", devices=1, hosts=0, nodes=0),
    )
    assert reach.find_stranded([*devices, device("free")], HOSTS) == ""
    assert reach.find_stranded([lone], HOSTS).startswith("no host reaches x: ")
    assert reach.find_stranded([lone], [*HOSTS, host("unknown")]) == ""
    assert reach.find_stranded([lone], []) == ""


free_text = st.text(max_size=200)


@given(free_text.filter(bool), free_text, free_text, st.frozensets(free_text, max_size=3), st.data())
def test_names_are_valid_for_any_ids(enclosure, model, fabric_text, ids, data):
    fabric = names.label(fabric_text or "f")
    hosts = data.draw(st.frozensets(free_text, max_size=3))
    pool = names.pool(fabric, enclosure, model, reach=names.reach_key(ids), refusing=hosts)
    assert len(f"{pool}/99") <= 253
    assert all(re.fullmatch(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", part) for part in pool.split("/"))
    assert names.fabric_of(pool) == fabric
    assert names.reach_of(pool) == names.reach_key(ids)
    assert names.enclosure_of(pool) == names.label(enclosure)
    closed = names.list_closed_labels(pool)
    assert closed[len(closed) - bool(hosts) :] == ((names.refusal_label(fabric, hosts),) if hosts else ())
    label = names.reach_label(fabric, names.reach_key(ids) or "x")
    for text in (*closed, label):
        assert LABEL.fullmatch(text)
        assert len(text.partition("/")[2]) <= 63
    assert names.is_reach_label(label, fabric)
    assert not names.is_reach_label(label, f"{fabric[:50]}x")


@given(st.frozensets(free_text, max_size=3), st.frozensets(free_text, max_size=3))
def test_other_groups_have_another_key(first, second):
    assert (names.reach_key(first) == names.reach_key(second)) == (first == second)
    assert (names.refusal_key(first) == names.refusal_key(second)) == (first == second)


some_groups = st.frozensets(st.sampled_from("abc"), max_size=2)
some_hosts = st.lists(some_groups, min_size=1, max_size=4).map(
    lambda of: tuple(host(f"h{number}", groups_) for number, groups_ in enumerate(of))
)
some_devices = st.lists(st.tuples(st.sampled_from("xy"), some_groups), min_size=1, max_size=6).map(
    lambda of: tuple(
        device(f"d{number}", enclosure, reach_groups=groups_)
        for number, (enclosure, groups_) in enumerate(of)
    )
)
some_pairs = st.sets(st.tuples(st.integers(0, 5), st.integers(0, 3)), max_size=8).map(
    lambda of: [(f"d{number}", f"h{host_}") for number, host_ in sorted(of)]
)


@settings(max_examples=300, deadline=None)
@given(some_hosts, st.lists(st.tuples(some_devices, some_pairs, st.booleans()), min_size=1, max_size=4))
def test_each_published_device_is_offered_to_exactly_the_nodes_that_can_have_it(hosts, steps):
    """Groups, refusals and claims come and go; only a claimed device may stay in its old pool."""
    stored = ()
    for devices, refused, is_claimed in steps:
        claimed = pools(stored) if is_claimed else {}
        facts = {"refused": refused, "allocated_pools": claimed}
        # Where two pools exchange devices, one of them has to wait for the next round.
        for _ in range(3):
            actions = desired.plan(make_fabric_state(*devices, **facts | {"published": stored}), NOW)
            for state in scenes.carried_out(stored, actions):
                listed = [entry.name for each in state for entry in each.spec.devices]
                assert len(listed) == len(set(listed))
                stored = state
        assert desired.plan(make_fabric_state(*devices, **facts | {"published": stored}), NOW) == ()
        assert all(len(each.spec.devices) <= pool_writes.DEVICES_MAX for each in stored)
        by_node = plan_labels(devices, hosts, refused=refused, published_slices=stored)
        shown = read_offers(stored, by_node)
        assert shown.keys() == {each.id for each in devices} or is_claimed
        for each in devices:
            pool, nodes = shown[each.id]
            if each.id in claimed:
                assert pool == claimed[each.id]
                continue
            refusing = [host_ for name, host_ in refused if name == each.id]
            reach_key = names.reach_key(each.reach_groups)
            assert pool == names.pool("f", each.enclosure, reach=reach_key, refusing=refusing)
            assert nodes == {
                other.id
                for other in hosts
                if contract.reaches(each.reach_groups, other.reach_groups)
                and (each.id, other.id) not in refused
            }


@given(some_hosts, some_devices, some_pairs, st.integers(0, 5))
def test_a_refusal_changes_nothing_for_any_other_pair(hosts, devices, refused, number):
    """Tenants who pin pods to hosts take no device from anybody."""
    one_more = (f"d{number % len(devices)}", hosts[number % len(hosts)].id)
    before = nodes_of(devices, hosts, refused=refused)
    now = nodes_of(devices, hosts, refused=[*refused, one_more])
    lost = {(name, node_) for name in before for node_ in before[name] - now[name]}
    assert lost <= {one_more}
    assert {name: now[name] - before[name] for name in now} == {name: set() for name in now}


def test_a_reach_that_changes_reaches_no_further_than_its_device():
    before = publish_slices(device("d", reach_groups=groups("a")), device("e", reach_groups=groups("a")))
    changed = dataclasses.replace(device("d"), reach_groups=groups("b"))
    moved = update_slices(before, changed, device("e", reach_groups=groups("a")))
    assert pools(moved)["e"] == pools(before)["e"]
