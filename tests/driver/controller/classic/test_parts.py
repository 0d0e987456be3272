"""The small parts of classic allocation: discovery, the watches, and the slices kept in memory."""

import asyncio

import pytest

from drawbar.driver.api import classic, meta, nodes, slices
from drawbar.driver.controller import watches
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
