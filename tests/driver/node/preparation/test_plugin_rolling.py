"""The plugin as a kubelet sees it: two instances of a rolling update, every release's services, stale sockets, health."""

import asyncio
import contextlib
import socket
import tempfile
from pathlib import Path

import pytest
from tests.scenes.verdicts import Verdicts

from drawbar.driver.kube import config, kinds
from drawbar.driver.node.health import verdicts
from drawbar.driver.node.plugin import server, sockets
from drawbar.mocks import kubelet

DRIVER = "drawbar.dev"
DEADLINE_SECONDS = 120
QUICK = {
    "watch_seconds": 0.02,
    "reconcile_seconds": 0.02,
    "registration_first_seconds": 0.02,
    "registration_max_seconds": 0.1,
    "retry_first_seconds": 0.05,
    "retry_max_seconds": 0.2,
    "health_reconnect_seconds": 0.05,
}


class Node:
    """A kubelet, and the instances of the plugin that it may call."""

    def __init__(self, world, directory):
        self.world, self.directory, self.judged = world, directory, Verdicts()
        world.cdi_dir = directory / "cdi"

    def judge(self, status, message=""):
        """Judge d1."""
        verdict = verdicts.Verdict(status=status, message=message)
        self.judged.judge(verdicts.Key(pool="p", device="d1"), verdict)

    @contextlib.asynccontextmanager
    async def kubelet(self, **changes):
        spec = kubelet.NodeSpec(name="n", directory=self.directory)
        connection = config.from_kubeconfig(self.world.folder / "kubeconfig")
        settings = kubelet.Settings(**QUICK | changes)
        async with kubelet.serving(connection, [spec], settings) as kubelets:
            yield kubelets["n"]

    @contextlib.asynccontextmanager
    async def instance(self, uid):
        """Run one instance that serves; yield where."""
        preparer = await self.world.restart_preparer()
        where = sockets.paths(self.directory, DRIVER, uid)
        sockets.sweep(self.directory, DRIVER)
        async with server.serving(DRIVER, where, preparer, self.judged):
            yield where

    async def pod(self, name, claim, device):
        """Create a pod as the scheduler leaves it, with a claim of its own."""
        await self.world.claim(claim, results=(self.world.result(device),))
        current = await self.world.api.read(kinds.CLAIM, claim, into=dict, namespace="default")
        self.world.attached.append(self.world.make_full_attachment(device, current["metadata"]["uid"]))
        container = {"name": "main", "image": "none", "resources": {"claims": [{"name": "it"}]}}
        used = [{"name": "it", "resourceClaimName": claim}]
        spec = {"nodeName": "n", "containers": [container], "resourceClaims": used}
        pod = await self.world.create(kinds.POD, name, spec=spec)
        consumer = {"resource": "pods", "name": name, "uid": pod["metadata"]["uid"]}
        await self.world.set_status(kinds.CLAIM, claim, {"reservedFor": [consumer]})
        return current["metadata"]["uid"]

    async def runs(self, name, holds=lambda status: status.get("phase") == "Running"):
        """Wait until the pod's status is as wanted; return the status."""
        pod = await self.world.wait_for(kinds.POD, name, lambda pod: holds(pod["status"]))
        return pod["status"]

    async def remove(self, name):
        """Delete the pod, and wait until it is gone."""
        await self.world.api.delete(kinds.POD, name, namespace="default")
        await self.world.wait_until_gone(kinds.POD, name)


async def wait_until_connected(agent, *instances):
    """Wait until exactly these instances are connected, the oldest first."""
    wanted = [str(where.service) for where in instances]
    async with asyncio.timeout(DEADLINE_SECONDS):
        while agent.plugins.list_connected_endpoints() != wanted:
            await agent.plugins.wait_for_change()


@pytest.fixture
async def node(world):
    # A test's own directory is too deep for a socket.
    with tempfile.TemporaryDirectory(prefix="kubelet-") as folder:
        directory = Path(folder)
        (directory / "boot_id").write_text("3f0f8e1e-0000-4000-8000-000000000001\n")
        yield Node(world, directory)


async def test_the_new_instance_unprepares_claims_of_the_old_without_a_gap(node):
    async with contextlib.AsyncExitStack() as old, node.kubelet() as agent:
        first = await old.enter_async_context(node.instance("uid-old"))
        await wait_until_connected(agent, first)
        uid_1 = await node.pod("p1", "c1", "d1")
        await node.runs("p1")
        async with node.instance("uid-new") as second:
            await wait_until_connected(agent, first, second)
            uid_2 = await node.pod("p2", "c2", "d2")
            await node.runs("p2")
            assert node.world.list_recorded_uids() == sorted([uid_1, uid_2])
            await old.aclose()
            assert not first.registration.exists()
            assert not first.service.exists()
            await wait_until_connected(agent, second)
            await node.remove("p1")
            assert node.world.list_recorded_uids() == [uid_2]
            node.world.attached = [
                attachment for attachment in node.world.attached if attachment.spec.device != "d1"
            ]
            uid_3 = await node.pod("p3", "c3", "d1")
            await node.runs("p3")
            assert node.world.list_recorded_uids() == sorted([uid_2, uid_3])


async def test_the_socket_of_a_killed_instance_is_swept_before_the_next_one_is_registered(node):
    dead = sockets.paths(node.directory, DRIVER, "uid-dead")
    dead.registration.parent.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as left:
        left.bind(str(dead.registration))
    async with node.instance("uid-new") as living, node.kubelet() as agent:
        await wait_until_connected(agent, living)
        assert list(living.registration.parent.iterdir()) == [living.registration]


@pytest.mark.parametrize("release", ["1.32", "1.33", "1.34", "1.35", "1.36", "1.37"])
async def test_every_release_prepares_and_unprepares(node, release):
    async with node.instance("") as where, node.kubelet(release=release) as agent:
        await wait_until_connected(agent, where)
        uid = await node.pod("p1", "c1", "d1")
        await node.runs("p1")
        assert node.world.list_recorded_uids() == [uid]
        await node.remove("p1")
        assert (node.world.list_recorded_uids(), node.world.cdi()) == ([], {})


def device_health(status):
    """Return the health of the pod's device from the pod's status, if it has one."""
    for container in status.get("containerStatuses", ()):
        for resource in container.get("allocatedResourcesStatus", ()):
            for entry in resource["resources"]:
                return entry["health"]
    return None


@pytest.mark.parametrize("release", ["1.36", "1.37"])
async def test_the_health_of_a_device_shows_in_the_status_of_its_pod_and_follows_it(node, release):
    node.judge(verdicts.Status.HEALTHY)
    async with node.instance("") as where, node.kubelet(release=release) as agent:
        await wait_until_connected(agent, where)
        await node.pod("p1", "c1", "d1")
        await node.runs("p1", lambda status: device_health(status) == "Healthy")
        node.judge(verdicts.Status.UNHEALTHY, "the link is narrow")
        await node.runs("p1", lambda status: device_health(status) == "Unhealthy")
        node.judge(verdicts.Status.HEALTHY)
        await node.runs("p1", lambda status: device_health(status) == "Healthy")
