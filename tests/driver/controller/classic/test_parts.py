"""The small parts of classic allocation: discovery, the watches, the slices kept in memory, selectors, and the search for devices."""

import asyncio

import pytest

from drawbar.driver.api import claims, classic, fabrics, meta, nodes, slices
from drawbar.driver.controller import names, watches
from drawbar.driver.controller.allocation import matching
from drawbar.driver.controller.classic import observation
from drawbar.driver.kube import client, config, discovery, kinds, mirror
from drawbar.driver.slices import publisher as slice_publisher
from drawbar.mocks import apiserver

V1ALPHA2, V1ALPHA3 = classic.Version.V1ALPHA2, classic.Version.V1ALPHA3
CONTEXTS = frozenset({"podschedulingcontexts", "resourceclaims"})


@pytest.mark.parametrize(
    ("resources", "modern", "versions"),
    [
        ({}, True, set()),
        ({"v1": frozenset({"resourceclaims"})}, True, set()),
        ({"v1alpha2": CONTEXTS}, False, {V1ALPHA2}),
        ({"v1alpha3": CONTEXTS}, False, {V1ALPHA3}),
        ({"v1alpha2": CONTEXTS, "v1alpha3": CONTEXTS}, False, {V1ALPHA2, V1ALPHA3}),
        ({"v1": frozenset(), "v1alpha3": frozenset({"devicetaintrules"})}, True, set()),
    ],
)
def test_what_is_served_decides_which_negotiation_runs(resources, modern, versions):
    found = watches.served(resources)
    assert (found.modern, found.versions) == (modern, versions)
    assert found.selects_fields is (V1ALPHA2 not in versions)


@pytest.mark.parametrize(
    ("profile", "versions"), [("1.30-classic", {V1ALPHA2}), ("1.31-classic", {V1ALPHA3}), ("1.36", set())]
)
async def test_discovery_finds_the_classic_versions_of_a_release(tmp_path, profile, versions):
    async with apiserver.serving(profile=profile) as server:
        server.kubeconfig(tmp_path / "admin", "admin")
        async with client.connecting(config.from_kubeconfig(tmp_path / "admin")) as api:
            resources = await discovery.settled(api, discovery.RESOURCE_GROUP)
            assert watches.served(resources).versions == versions
            assert await discovery.resources(api, "no.such.group") == {}


async def test_a_reflector_keeps_only_what_it_is_told_to_keep(tmp_path):
    async with apiserver.serving() as server:
        server.kubeconfig(tmp_path / "admin", "admin")
        async with client.connecting(config.from_kubeconfig(tmp_path / "admin")) as api:
            for name in ("a1", "b1"):
                await _make_node(api, name)
            seen = asyncio.Event()
            found = mirror.Mirror(
                api,
                kinds.NODE,
                into=nodes.Node,
                changed=lambda old, new: seen.set() if new.metadata.name == "a2" else None,
                keep=lambda node: node.metadata.name.startswith("a"),
            )
            async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
                running = tasks.create_task(found.run())
                await found.synced.wait()
                await _make_node(api, "b2")
                await _make_node(api, "a2")
                await seen.wait()
                running.cancel()
            assert sorted(node.metadata.name for node in found) == ["a1", "a2"]


async def _make_node(api, name):
    await api.create(kinds.NODE, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}, into=dict)


async def test_a_slice_kept_in_memory_gets_a_uid_and_ever_newer_versions():
    store = slice_publisher.Memory()
    pool = slices.Pool(name="p", generation=1, resource_slice_count=1)
    wanted = slices.ResourceSlice(
        metadata=meta.ObjectMeta(name="s"), spec=slices.SliceSpec(driver="drawbar.dev", pool=pool)
    )
    first = await store.create(wanted)
    second = await store.replace(first)
    assert first.metadata.uid == second.metadata.uid != ""
    assert int(second.metadata.resource_version) > int(first.metadata.resource_version)
    assert (await store.kept("drawbar.dev")).conditions


# Node selectors.

NODE = nodes.Node(metadata=meta.ObjectMeta(name="n1", labels={"zone": "a", "size": "3"}))


@pytest.mark.parametrize(
    ("key", "operator", "values", "holds"),
    [
        ("zone", "In", ("a", "b"), True),
        ("zone", "In", ("b",), False),
        ("zone", "NotIn", ("b",), True),
        ("gone", "NotIn", ("b",), True),
        ("zone", "Exists", (), True),
        ("gone", "Exists", (), False),
        ("gone", "DoesNotExist", (), True),
        ("size", "Gt", ("2",), True),
        ("size", "Gt", ("3",), False),
        ("size", "Lt", ("4",), True),
        ("zone", "Lt", ("4",), False),
        ("size", "Gt", (), False),
        ("zone", "Resembles", ("a",), False),
    ],
)
def test_a_requirement_of_a_node_selector(key, operator, values, holds):
    requirement = claims.FieldRequirement(key=key, operator=operator, values=values)
    term = claims.NodeSelectorTerm(match_expressions=(requirement,))
    assert observation.selects(claims.NodeSelector(node_selector_terms=(term,)), NODE) is holds


def test_a_term_without_requirements_takes_no_node_and_a_field_is_the_name():
    empty = claims.NodeSelectorTerm()
    field = claims.FieldRequirement(key="metadata.name", operator="In", values=("n1",))
    named = claims.NodeSelectorTerm(match_fields=(field,))
    assert not observation.selects(claims.NodeSelector(node_selector_terms=(empty,)), NODE)
    assert observation.selects(claims.NodeSelector(node_selector_terms=(empty, named)), NODE)


# The search.


def left(models, *, ports=None, rules=(), has=None):
    devices = {}
    for number, model in enumerate(models):
        key = names.DeviceKey(fabric="f", device=f"d{number}")
        shown = slices.Device(name=key.device, attributes={"model": slices.Attribute(string=model)})
        devices[key] = matching.Device(key=key, pool="f", shown=shown, free=True)
    fabric = matching.Fabric(
        name="f", hosts={"n1": "h1"}, ports={"n1": ports}, rules=rules, models={"n1": has or {}}
    )
    inventory = matching.Inventory(fabrics={"f": fabric}, devices=devices)
    return matching.Stock(inventory, lambda device, expression: device.key.device == expression)


def search(stock_, *wanted, node="n1"):
    given = matching.Search(stock_, wanted).on(node)
    return None if given is None else [sorted(key.device for key in keys) for keys in given]


def test_a_request_leaves_the_device_to_the_one_that_has_no_other():
    any_ = matching.Request(name="any")
    picky = matching.Request(name="picky", selectors=("d0",))
    assert search(left("ab"), any_, picky) == [["d1"], ["d0"]]


def test_what_cannot_be_had_together_is_not_given_in_part():
    one = matching.Request(name="one", selectors=("d0",))
    assert search(left("ab"), one, one) is None


def test_ports_and_nodes_out_of_reach_limit_the_search():
    both = matching.Request(name="both", count=2)
    assert search(left("ab", ports=1), both) is None
    assert search(left("ab", ports=2), both) == [["d0", "d1"]]
    assert search(left("ab"), both, node="n2") is None


def test_the_rules_of_a_fabric_limit_the_search():
    rule = fabrics.ModelRule(model="a", max_per_node=1)
    both = matching.Request(name="both", count=2)
    assert search(left("aab", rules=(rule,)), both) == [["d0", "d2"]]
    assert search(left("aa", rules=(rule,)), both) is None
    one = matching.Request(name="one")
    assert search(left("ab", rules=(rule,), has={"a": 1}), one) == [["d1"]]


def test_a_search_without_end_ends_without_an_answer():
    rule = fabrics.ModelRule(model="m0", not_with=tuple(f"m{number}" for number in range(1, 12)))
    wanted = [matching.Request(name=f"r{number}") for number in range(12)]
    stock_ = left([f"m{number}" for number in range(12)], rules=(rule,))
    assert search(stock_, *wanted) is None
