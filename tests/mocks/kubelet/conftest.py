"""A world around the kubelet double: API server, node folder, pods."""

import asyncio
import json
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.mocks.kubelet import plugins
from tests.scenes import clusters

from drawbar.driver.kube import client, config, kinds
from drawbar.mocks import apiserver, kubelet

QUICK = kubelet.Settings(
    watch_seconds=0.02,
    reconcile_seconds=0.02,
    registration_first_seconds=0.02,
    registration_max_seconds=0.1,
    retry_first_seconds=0.05,
    retry_max_seconds=0.2,
    health_reconnect_seconds=0.05,
)
CDI = {
    "cdiVersion": "0.5.0",
    "kind": "drawbar.dev/claim",
    "containerEdits": {"env": ["DRAWBAR=1"]},
    "devices": [
        {
            "name": "slot-1",
            "containerEdits": {
                "env": ["DEVICE=slot-1"],
                "deviceNodes": [{"path": "/dev/nvme9n1", "type": "b", "major": 259, "minor": 3}],
                "mounts": [{"hostPath": "/srv/a", "containerPath": "/a", "options": ["ro"]}],
                "hooks": [{"hookName": "createContainer", "path": "/bin/true"}],
            },
        },
        {"name": "slot-2", "containerEdits": {"env": ["SECOND=slot-2"]}},
    ],
}


class KubeletCluster(clusters.Cluster):
    """One node `node-a` and an API server."""

    DRIVER = plugins.DRIVER
    device = staticmethod(plugins.device)
    all_prepared = staticmethod(plugins.all_prepared)

    def __init__(self, api, kubeconfig, directory):
        super().__init__(api, config.from_kubeconfig(kubeconfig))
        self.kubeconfig = kubeconfig
        self.directory = directory

    def plugin(self, *answers, name="1", health=None, folder="", listening=True, **options):
        """Run a plugin that gives these answers until the block ends."""
        made = plugins.Plugin(*answers, **options)
        return plugins.running(made, self.directory, name, health=health, folder=folder, listening=listening)

    def health(self):
        return plugins.HealthService()

    @staticmethod
    def times(**changes):
        return kubelet.Settings(**{name: getattr(QUICK, name) for name in QUICK.__slots__} | changes)

    @asynccontextmanager
    async def kubelets(self, **changes):
        node = kubelet.NodeSpec(name="node-a", directory=self.directory, labels={"rack": "1"})
        async with kubelet.serving(self.connection, [node], self.times(**changes)) as kubelets:
            yield kubelets

    @asynccontextmanager
    async def kubelet(self, **changes):
        async with self.kubelets(**changes) as kubelets:
            yield kubelets["node-a"]

    async def drivers(self, node, *expected):
        """Wait until exactly these drivers are registered."""
        await self.plugins_until(node, lambda: node.plugins.drivers() == list(expected))

    async def wait_until_connected(self, node, *endpoints):
        """Wait until exactly these endpoints are connected, in that order."""
        await self.plugins_until(node, lambda: node.plugins.list_connected_endpoints() == list(endpoints))

    async def plugins_until(self, node, holds):
        async with asyncio.timeout(plugins.DEADLINE_SECONDS):
            while not holds():
                await node.plugins.wait_for_change()

    async def wait_for_containers(self, node, pod):
        """Wait until the pod's containers run; the first one shows it for all."""
        async with asyncio.timeout(plugins.DEADLINE_SECONDS):
            while not (self.directory / "pods" / pod["metadata"]["uid"] / "config.json").exists():
                await node.wait_for_sync()

    async def pod(self, name, *claims, reserve=True, containers=None, **spec):
        """Create a pod as the scheduler leaves it: bound, with all its claims allocated and reserved."""
        used = [{"name": claim} for claim in claims]
        container = {"name": "main", "image": "none", "resources": {"claims": used}}
        pod = await self.create(
            kinds.POD,
            name,
            spec={
                "nodeName": "node-a",
                "containers": containers or [container],
                "resourceClaims": [
                    {"name": claim_name, "resourceClaimName": claim_name} for claim_name in claims
                ],
            }
            | spec,
        )
        existing = {item["metadata"]["name"] for item in await self.list(kinds.CLAIM)}
        for claim in claims:
            if claim not in existing:
                await self.claim(claim)
            if reserve:
                await self.reserve(claim, pod)
        return pod

    async def claim(self, name):
        """Create an allocated claim with the requests `one` and `two`."""
        requests = [{"name": request, "exactly": {"deviceClassName": "any"}} for request in ("one", "two")]
        await self.create(kinds.CLAIM, name, spec={"devices": {"requests": requests}})
        result = {"driver": plugins.DRIVER, "pool": "chassis-1"}
        results = [result | {"request": request, "device": f"{name}-{request}"} for request in ("one", "two")]
        await self.patch(
            kinds.CLAIM, name, {"status": {"allocation": {"devices": {"results": results}}}}, "status"
        )

    async def reserve(self, claim, pod):
        current = await self.api.read(kinds.CLAIM, claim, into=dict, namespace="default")
        consumer = {
            "resource": "pods",
            "name": pod["metadata"]["name"],
            "uid": pod["metadata"]["uid"],
        }
        reserved = [*current["status"].get("reservedFor", ()), consumer]
        await self.patch(kinds.CLAIM, claim, {"status": {"reservedFor": reserved}}, "status")

    async def delete(self, kind, name, grace=None):
        body = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if grace is not None:
            body["gracePeriodSeconds"] = grace
        await self.api.request("DELETE", kind.path(namespace="default", name=name), body=body)

    async def pod_that(self, holds, name="p1"):
        return await self.wait_for(kinds.POD, name, holds)

    async def runs(self, name="p1"):
        return await self.pod_that(lambda pod: pod["status"].get("phase") == "Running", name)

    async def wait_until_pod_gone(self, name="p1"):
        await super().wait_until_gone(kinds.POD, name)

    def runtime_spec(self, pod, name="config.json"):
        return json.loads((self.directory / "pods" / pod["metadata"]["uid"] / name).read_text())

    def write_cdi(self, content=CDI):
        (self.directory / "cdi" / "claim.json").write_text(json.dumps(content))

    def state(self):
        """Return the content of `dra_manager_state`."""
        return json.loads(json.loads((self.directory / "dra_manager_state").read_text())["Data"])["Entries"]


@asynccontextmanager
async def _world(tmp_path, profile):
    # Sockets need a short path.
    with tempfile.TemporaryDirectory(prefix="kubelet-") as folder:
        directory = Path(folder)
        for name in ("plugins", "plugins_registry", "cdi"):
            (directory / name).mkdir()
        # The node has booted before the test, or its CDI specs would go.
        (directory / "boot_id").write_text("3f0f8e1e-0000-4000-8000-000000000001\n")
        async with apiserver.serving(profile=profile) as server:
            kubeconfig = server.kubeconfig(tmp_path / "kubeconfig")
            async with client.connecting(config.from_kubeconfig(kubeconfig)) as api:
                made = KubeletCluster(api, kubeconfig, directory)
                made.write_cdi()
                yield made


@pytest.fixture
async def world(tmp_path):
    async with _world(tmp_path, "1.36") as made:
        yield made


@pytest.fixture
async def classic_world(tmp_path):
    """Yield a world with an API server of 1.30, whose claims are allocated by handles."""
    async with _world(tmp_path, "1.30-classic") as made:
        yield made
