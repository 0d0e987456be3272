"""The plugin as the kubelets of before 1.32 see it: each release's own calls, handles, restarts, a second instance."""

import asyncio
import contextlib
import tempfile
from pathlib import Path

import pytest
from tests.scenes.verdicts import Verdicts

from drawbar.driver.kube import config, kinds
from drawbar.driver.node.plugin import server, sockets
from drawbar.mocks import kubelet
from drawbar.mocks.kubelet import statuses

DRIVER = "drawbar.dev"
DEADLINE_SECONDS = 120
QUICK = {
    "watch_seconds": 0.02,
    "reconcile_seconds": 0.02,
    "registration_first_seconds": 0.02,
    "registration_max_seconds": 0.1,
    "retry_first_seconds": 0.05,
    "retry_max_seconds": 0.2,
}


class Node:
    """A kubelet of an old release, and the instances of the plugin that it may call."""

    def __init__(self, world, directory, classic):
        self.world, self.directory, self.classic = world, directory, classic
        world.cdi_dir = directory / "cdi"

    @contextlib.asynccontextmanager
    async def kubelets(self, release):
        spec = kubelet.NodeSpec(name="n", directory=self.directory)
        connection = config.from_kubeconfig(self.world.folder / "kubeconfig")
        settings = kubelet.Settings(release=release, **QUICK)
        async with kubelet.serving(connection, [spec], settings) as kubelets:
            yield kubelets

    @contextlib.asynccontextmanager
    async def instance(self, uid="", registered=None):
        preparer = await self.world.restart_preparer()
        where = sockets.paths(self.directory, DRIVER, uid)
        async with server.serving(DRIVER, where, preparer, Verdicts(), registered):
            yield where

    async def wait_until_connected(self, agent, *instances):
        wanted = [str(where.service) for where in instances]
        async with asyncio.timeout(DEADLINE_SECONDS):
            while agent.plugins.list_connected_endpoints() != wanted:
                await agent.plugins.wait_for_change()

    async def pod(self, name, device):
        """Create a scheduled pod whose claim has that device attached here; return the claim's uid."""
        api, classic = self.world.api, self.classic
        claim = await classic.claim(api, name)
        self.world.attached = [self.world.make_full_attachment(device, claim.uid)]
        reference = {"resourceClaimName": name}
        old = classic.version == "v1alpha2"
        claims = [{"name": "it"} | ({"source": reference} if old else reference)]
        container = {"name": "main", "image": "none", "resources": {"claims": [{"name": "it"}]}}
        spec = {"nodeName": "n", "containers": [container], "resourceClaims": claims}
        pod = await self.world.create(kinds.POD, name, spec=spec)
        consumer = {"resource": "pods", "name": name, "uid": pod["metadata"]["uid"]}
        await classic.say(api, name, classic.allocation(device) | {"reservedFor": [consumer]})
        return claim.uid

    async def runs(self, name):
        return await self.world.wait_for(kinds.POD, name, lambda pod: pod["status"].get("phase") == "Running")

    async def remove(self, name):
        await self.world.api.delete(kinds.POD, name, namespace="default")
        await self.world.wait_until_gone(kinds.POD, name)


@pytest.fixture
def node_of(world_of, classic):
    @contextlib.asynccontextmanager
    async def making(profile):
        api = classic("v1alpha2" if profile == "1.30-classic" else "v1alpha3")
        # A test's own directory is too deep for a socket.
        with tempfile.TemporaryDirectory(prefix="kubelet-") as folder:
            directory = Path(folder)
            (directory / "boot_id").write_text("3f0f8e1e-0000-4000-8000-000000000001\n")
            async with world_of(profile) as world:
                yield Node(world, directory, api)

    return making


@pytest.mark.parametrize(
    ("profile", "releases"), [("1.30-classic", ("1.27", "1.30")), ("1.31-classic", ("1.31",))]
)
async def test_every_release_prepares_and_unprepares_the_same_device(node_of, profile, releases):
    async with node_of(profile) as node:
        for release in releases:
            async with node.instance() as where, node.kubelets(release) as kubelets:
                await node.wait_until_connected(kubelets["n"], where)
                name = f"pod-{release.replace('.', '-')}"
                uid = await node.pod(name, "d1")
                pod = await node.runs(name)
                assert node.world.list_recorded_uids() == [uid]
                cdi = f"{DRIVER}/device={uid}-d1"
                assert cdi in pod["metadata"]["annotations"][statuses.PREPARED_ANNOTATION]
                (spec,) = (node.directory / "pods" / pod["metadata"]["uid"]).glob("*.json")
                assert "DRAWBAR_D1_SERIAL=SN1" in spec.read_text()
                await node.remove(name)
                assert (node.world.list_recorded_uids(), node.world.cdi()) == ([], {})


@pytest.mark.parametrize(
    ("profile", "release"), [("1.30-classic", "1.27"), ("1.30-classic", "1.30"), ("1.31-classic", "1.31")]
)
async def test_a_claim_prepared_before_both_sides_restart_is_unprepared(node_of, profile, release):
    async with node_of(profile) as node:
        async with node.instance() as where, node.kubelets(release) as kubelets:
            await node.wait_until_connected(kubelets["n"], where)
            uid = await node.pod("p1", "d1")
            await node.runs("p1")
        node.world.attached = []
        async with node.instance() as where, node.kubelets(release) as kubelets:
            await node.wait_until_connected(kubelets["n"], where)
            assert node.world.list_recorded_uids() == [uid]
            await node.remove("p1")
            assert (node.world.list_recorded_uids(), node.world.cdi()) == ([], {})


async def test_a_second_instance_is_registered_once_the_first_has_gone(node_of):
    """Kubelets up to 1.31 refuse it before; it waits, and takes over what is prepared."""
    answers, refused = [], asyncio.Event()

    def record(registered):
        answers.append(registered)
        refused.set()

    async with (
        node_of("1.30-classic") as node,
        node.kubelets("1.30") as kubelets,
        contextlib.AsyncExitStack() as old,
    ):
        first = await old.enter_async_context(node.instance("uid-old"))
        await node.wait_until_connected(kubelets["n"], first)
        await node.pod("p1", "d1")
        await node.runs("p1")
        async with node.instance("uid-new", record) as second:
            async with asyncio.timeout(DEADLINE_SECONDS):
                await refused.wait()
            assert not any(answers)
            await old.aclose()
            await node.wait_until_connected(kubelets["n"], second)
            await node.remove("p1")
            assert node.world.list_recorded_uids() == []
