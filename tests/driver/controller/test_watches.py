"""What the controller finds served, and that it ends when a cluster was upgraded under it."""

import asyncio

import pytest

from drawbar.driver import containment
from drawbar.driver.api import classic
from drawbar.driver.controller import watches
from drawbar.driver.kube import client, config, discovery, errors
from drawbar.mocks import apiserver

OLD = watches.Served(modern=False, versions=frozenset({classic.Version.V1ALPHA2}))
NEW = watches.Served(modern=False, versions=frozenset({classic.Version.V1ALPHA3}))
TASK = "served-versions"
V1ALPHA2, V1ALPHA3 = classic.Version.V1ALPHA2, classic.Version.V1ALPHA3
CONTEXTS = frozenset({"podschedulingcontexts", "resourceclaims"})


@pytest.fixture
def connect_admin(tmp_path):
    def connect(server):
        server.kubeconfig(tmp_path / "admin", "admin")
        return client.connecting(config.from_kubeconfig(tmp_path / "admin"))

    return connect


async def test_a_controller_ends_once_the_cluster_serves_another_version(connect_admin):
    async with apiserver.serving(profile="1.31-classic") as server, connect_admin(server) as api:
        async with asyncio.timeout(120):
            with pytest.raises(watches.Upgraded, match=r"v1alpha3 now, and .*v1alpha2 at the start"):
                await watches.until_upgraded(api, OLD, every_seconds=0.01)


class Untold(client.Client):
    """Answers like a server that is restarted again and again, and counts the questions."""

    def __init__(self, api, enough):
        self.api, self.enough, self.asked = api, enough, 0

    async def request(self, method, path, query=None, **options):
        self.asked += 1
        if self.asked == self.enough:
            raise asyncio.CancelledError
        if self.asked % 2:
            raise errors.Unreachable("connection refused")
        return await self.api.request(method, path, query, **options)


async def test_it_goes_on_while_nothing_changed_or_no_server_answers(connect_admin):
    async with apiserver.serving(profile="1.31-classic") as server, connect_admin(server) as api:
        untold = Untold(api, enough=12)
        with pytest.raises(asyncio.CancelledError):
            await watches.until_upgraded(untold, NEW, every_seconds=0.01)
        assert untold.asked == 12


@pytest.mark.parametrize(
    ("profile", "expected", "followed"),
    [
        pytest.param("1.31-classic", NEW, True, id="a driver's controller allocates"),
        pytest.param("1.36", watches.Served(), False, id="the scheduler allocates"),
    ],
)
async def test_only_versions_that_pass_are_followed(connect_admin, profile, expected, followed):
    async with apiserver.serving(profile=profile) as server, connect_admin(server) as api:
        async with asyncio.TaskGroup() as tasks:
            assert await watches.discover_versions(api, tasks, containment.Containment()) == expected
            running = [task for task in asyncio.all_tasks() if task.get_name() == TASK]
            for task in running:
                task.cancel()
        assert len(running) == followed


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
def test_the_served_versions_decide_the_negotiation(resources, modern, versions):
    served = watches.find_served_versions(resources)
    assert (served.modern, served.versions) == (modern, versions)
    assert served.selects_fields is (V1ALPHA2 not in versions)


@pytest.mark.parametrize(
    ("profile", "versions"), [("1.30-classic", {V1ALPHA2}), ("1.31-classic", {V1ALPHA3}), ("1.36", set())]
)
async def test_discovery_finds_the_classic_versions_of_a_release(tmp_path, profile, versions):
    async with apiserver.serving(profile=profile) as server:
        server.kubeconfig(tmp_path / "admin", "admin")
        async with client.connecting(config.from_kubeconfig(tmp_path / "admin")) as api:
            resources = await discovery.await_resources(api, discovery.RESOURCE_GROUP)
            assert watches.find_served_versions(resources).versions == versions
            assert await discovery.resources(api, "no.such.group") == {}
