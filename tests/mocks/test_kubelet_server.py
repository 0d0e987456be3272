"""The kubelet double with a real plugin over UNIX sockets and the API server double over HTTP."""

import asyncio
import json
import socket
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from drawbar.driver.kube import client, config, kinds
from drawbar.mocks import apiserver, kubelet
from drawbar.mocks.kubelet import plugins
from drawbar.proto.kubelet.dra.v1 import api_pb2, api_pb2_grpc
from drawbar.proto.kubelet.dra.v1beta1 import api_pb2 as beta_pb2
from drawbar.proto.kubelet.dra.v1beta1 import api_pb2_grpc as beta_pb2_grpc
from drawbar.proto.kubelet.pluginregistration.v1 import api_pb2 as registration_pb2
from drawbar.proto.kubelet.pluginregistration.v1 import api_pb2_grpc as registration_pb2_grpc

DRIVER = "drawbar.dev"
QUICK = kubelet.Settings(watch_seconds=0.02, retry_first_seconds=0.05, retry_max_seconds=0.2)
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
        }
    ],
}
Json = dict[str, Any]
Answer = Callable[[list[api_pb2.Claim]], dict[str, api_pb2.NodePrepareResourceResponse]]


def prepared(*ids: str) -> api_pb2.NodePrepareResourceResponse:
    device = api_pb2.Device(
        request_names=["one"], pool_name="chassis-1", device_name="slot-1", cdi_device_ids=ids
    )
    return api_pb2.NodePrepareResourceResponse(devices=[device])


def all_prepared(claims: list[api_pb2.Claim]) -> dict[str, api_pb2.NodePrepareResourceResponse]:
    return {claim.uid: prepared("drawbar.dev/claim=slot-1") for claim in claims}


class Plugin(
    registration_pb2_grpc.RegistrationServicer,
    api_pb2_grpc.DRAPluginServicer,
    beta_pb2_grpc.DRAPluginServicer,
):
    """A plugin that answers Prepare with its `answers` in turn, the last one for ever."""

    def __init__(self, *answers: Answer, versions: tuple[str, ...] = ("v1.DRAPlugin",)) -> None:
        self.answers = list(answers) or [all_prepared]
        self.versions = versions
        self.endpoint = ""
        self.prepares: list[list[str]] = []
        self.unprepares: list[list[str]] = []
        self.statuses: asyncio.Queue[registration_pb2.RegistrationStatus] = asyncio.Queue()
        self.service = ""
        self.called: asyncio.Queue[list[str]] = asyncio.Queue()

    async def GetInfo(self, request: Any, context: Any) -> Any:  # noqa: N802 - the name is the wire's
        return registration_pb2.PluginInfo(
            type="DRAPlugin", name=DRIVER, endpoint=self.endpoint, supported_versions=self.versions
        )

    async def NotifyRegistrationStatus(self, request: Any, context: Any) -> Any:  # noqa: N802 - the name is the wire's
        self.statuses.put_nowait(request)
        return registration_pb2.RegistrationStatusResponse()

    async def NodePrepareResources(self, request: Any, context: Any) -> Any:  # noqa: N802 - the name is the wire's
        self.service = type(request).__module__
        self.prepares.append([claim.name for claim in request.claims])
        self.called.put_nowait(self.prepares[-1])
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        response = api_pb2.NodePrepareResourcesResponse(claims=answer(list(request.claims)))
        if isinstance(request, beta_pb2.NodePrepareResourcesRequest):
            return beta_pb2.NodePrepareResourcesResponse.FromString(response.SerializeToString())
        return response

    async def NodeUnprepareResources(self, request: Any, context: Any) -> Any:  # noqa: N802 - the name is the wire's
        self.unprepares.append([claim.name for claim in request.claims])
        empty = api_pb2.NodeUnprepareResourceResponse()
        return api_pb2.NodeUnprepareResourcesResponse(claims={claim.uid: empty for claim in request.claims})

    async def registered(self) -> registration_pb2.RegistrationStatus:
        async with asyncio.timeout(20):
            return await self.statuses.get()


@asynccontextmanager
async def running(plugin: Plugin, directory: Path, name: str = "1") -> AsyncIterator[Plugin]:
    """The plugin with its service socket first and its registration socket second."""
    service, registrar = grpc.aio.server(), grpc.aio.server()
    api_pb2_grpc.add_DRAPluginServicer_to_server(plugin, service)
    beta_pb2_grpc.add_DRAPluginServicer_to_server(plugin, service)
    registration_pb2_grpc.add_RegistrationServicer_to_server(plugin, registrar)
    plugin.endpoint = str(directory / "plugins" / f"dra-{name}.sock")
    service.add_insecure_port(f"unix:{plugin.endpoint}")
    await service.start()
    registrar.add_insecure_port(f"unix:{directory / 'plugins_registry' / f'{DRIVER}-{name}-reg.sock'}")
    await registrar.start()
    try:
        yield plugin
    finally:
        await registrar.stop(None)
        await service.stop(None)


class Cluster:
    def __init__(self, api: client.Client, connection: config.Connection, directory: Path):
        self.api = api
        self.connection = connection
        self.directory = directory

    async def create(self, kind: kinds.Kind, name: str, spec: Json) -> Json:
        body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}, "spec": spec}
        return await self.api.create(kind, body, into=dict[str, Any], namespace="default")

    async def pod(self, name: str, *claims: str, reserve: bool = True) -> Json:
        """A pod as the scheduler leaves it: bound, with all its claims allocated and reserved."""
        spec = {
            "nodeName": "node-a",
            "containers": [
                {"name": "main", "image": "none", "resources": {"claims": [{"name": one} for one in claims]}}
            ],
            "resourceClaims": [{"name": one, "resourceClaimName": one} for one in claims],
        }
        for one in claims:
            await self.create(
                kinds.CLAIM,
                one,
                {"devices": {"requests": [{"name": "one", "exactly": {"deviceClassName": "any"}}]}},
            )
        pod = await self.create(kinds.POD, name, spec)
        consumer = {"resource": "pods", "name": name, "uid": pod["metadata"]["uid"]}
        for one in claims:
            result = {"request": "one", "driver": DRIVER, "pool": "chassis-1", "device": f"{one}-slot"}
            status = {
                "allocation": {"devices": {"results": [result]}},
                "reservedFor": [consumer] if reserve else [],
            }
            await self.api.patch(
                kinds.CLAIM,
                one,
                {"status": status},
                content=client.Patch.MERGE,
                into=dict[str, Any],
                namespace="default",
                subresource="status",
            )
        return pod

    async def until(self, kind: kinds.Kind, holds: Callable[[Json], Any]) -> Json:
        """The first object for which this holds."""
        async with asyncio.timeout(20):
            while True:
                listing = await self.api.list_all(kind, into=dict[str, Any], namespace="default")
                for item in listing.items:
                    if holds(item):
                        return item
                version = listing.resource_version
                changes = self.api.watch(
                    kind, into=dict[str, Any], resource_version=version, namespace="default"
                )
                async for event in changes:
                    if event.item is not None:
                        break

    async def event(self, reason: str, words: str) -> Json:
        return await self.until(kinds.EVENT, lambda one: one["reason"] == reason and words in one["note"])

    async def gone(self, name: str) -> None:
        async with asyncio.timeout(20):
            while True:
                listing = await self.api.list_all(kinds.POD, into=dict[str, Any], namespace="default")
                if all(item["metadata"]["name"] != name for item in listing.items):
                    return
                version = listing.resource_version
                changes = self.api.watch(
                    kinds.POD, into=dict[str, Any], resource_version=version, namespace="default"
                )
                async for event in changes:
                    if event.type == "DELETED":
                        break

    @asynccontextmanager
    async def kubelet(self, times: kubelet.Settings = QUICK) -> AsyncIterator[kubelet.Kubelet]:
        node = kubelet.NodeSpec(name="node-a", directory=self.directory, labels={"rack": "1"})
        async with kubelet.serving(self.connection, [node], times) as kubelets:
            yield kubelets["node-a"]

    def runtime_spec(self, pod: Json) -> Json:
        file = self.directory / "pods" / pod["metadata"]["uid"] / "config.json"
        spec: Json = json.loads(file.read_text())
        return spec


def runs(pod: Json) -> bool:
    return bool(pod["status"].get("phase") == "Running")


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    # Sockets need a short path.
    with tempfile.TemporaryDirectory(prefix="kubelet-") as folder:
        directory = Path(folder)
        for name in ("plugins", "plugins_registry", "cdi"):
            (directory / name).mkdir()
        # The node has booted before the test, or its CDI specs would go.
        (directory / "boot_id").write_text("3f0f8e1e-0000-4000-8000-000000000001\n")
        (directory / "cdi" / "claim.json").write_text(json.dumps(CDI))
        async with apiserver.serving(profile="1.36") as server:
            connection = config.from_kubeconfig(server.kubeconfig(tmp_path / "kubeconfig"))
            async with client.connecting(connection) as api:
                yield Cluster(api, connection, directory)


async def test_the_node_is_ready_with_its_labels_and_ids(cluster: Cluster) -> None:
    async with cluster.kubelet():
        node = await cluster.api.read(kinds.NODE, "node-a", into=dict[str, Any])
    assert node["metadata"]["labels"] == {"kubernetes.io/hostname": "node-a", "rack": "1"}
    assert [(one["type"], one["status"]) for one in node["status"]["conditions"]] == [("Ready", "True")]
    assert node["status"]["nodeInfo"]["bootID"] == "3f0f8e1e-0000-4000-8000-000000000001"
    assert node["status"]["nodeInfo"]["systemUUID"]


async def test_a_pod_runs_with_the_cdi_edits_of_its_devices(cluster: Cluster) -> None:
    async with cluster.kubelet(), running(Plugin(), cluster.directory) as plugin:
        assert (await plugin.registered()).plugin_registered
        await cluster.pod("p1", "c1")
        pod = await cluster.until(kinds.POD, runs)
        spec = cluster.runtime_spec(pod)
    assert spec["process"]["env"] == ["DRAWBAR=1", "DEVICE=slot-1"]
    assert spec["linux"]["devices"] == [{"path": "/dev/nvme9n1", "type": "b", "major": 259, "minor": 3}]
    (mount,) = spec["mounts"]
    assert (mount["source"], mount["destination"]) == ("/srv/a", "/a")
    assert spec["hooks"] == {"createContainer": [{"path": "/bin/true"}]}
    annotation = json.loads(pod["metadata"]["annotations"]["mocks.drawbar.dev/prepared"])
    assert annotation == [
        {"claim": "c1", "device": "drawbar.dev/chassis-1/slot-1", "cdi": ["drawbar.dev/claim=slot-1"]}
    ]
    assert pod["status"]["containerStatuses"][0]["state"]["running"]


async def test_one_call_carries_all_claims_of_the_pod(cluster: Cluster) -> None:
    async with cluster.kubelet(), running(Plugin(), cluster.directory) as plugin:
        await plugin.registered()
        await cluster.pod("p1", "c1", "c2")
        await cluster.until(kinds.POD, runs)
    assert plugin.prepares == [["c1", "c2"]]


async def test_a_claim_error_is_an_event_and_the_next_try_succeeds(cluster: Cluster) -> None:
    def refuse(claims: list[api_pb2.Claim]) -> dict[str, api_pb2.NodePrepareResourceResponse]:
        return {claim.uid: api_pb2.NodePrepareResourceResponse(error="not visible yet") for claim in claims}

    async with cluster.kubelet(), running(Plugin(refuse, all_prepared), cluster.directory) as plugin:
        await plugin.registered()
        await cluster.pod("p1", "c1")
        await cluster.event(
            "FailedPrepareDynamicResources",
            "NodePrepareResources failed for ResourceClaim c1: not visible yet",
        )
        await cluster.until(kinds.POD, runs)
    assert plugin.prepares == [["c1"], ["c1"]]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        pytest.param(lambda claims: {}, "NodePrepareResources skipped 1 ResourceClaims", id="missing-uid"),
        pytest.param(
            lambda claims: all_prepared(claims) | {"x": prepared()}, "unknown claim UID x", id="unknown-uid"
        ),
    ],
)
async def test_an_answer_with_the_wrong_claims_is_an_event(
    cluster: Cluster, answer: Answer, words: str
) -> None:
    async with cluster.kubelet(), running(Plugin(answer, all_prepared), cluster.directory) as plugin:
        await plugin.registered()
        await cluster.pod("p1", "c1")
        await cluster.event("FailedPrepareDynamicResources", words)
        await cluster.until(kinds.POD, runs)


async def test_a_pod_of_an_unregistered_driver_waits_until_the_plugin_comes(cluster: Cluster) -> None:
    async with cluster.kubelet():
        await cluster.pod("p1", "c1")
        await cluster.event("FailedPrepareDynamicResources", f"DRA driver {DRIVER} is not registered")
        async with running(Plugin(), cluster.directory):
            await cluster.until(kinds.POD, runs)


async def test_a_plugin_that_comes_again_is_registered_again(cluster: Cluster) -> None:
    async with cluster.kubelet() as node:
        async with running(Plugin(), cluster.directory) as first:
            assert (await first.registered()).plugin_registered
        async with asyncio.timeout(20):
            while node.plugins.drivers():
                await node.plugins.changed()
        async with running(Plugin(), cluster.directory) as second:
            assert (await second.registered()).plugin_registered
            await cluster.pod("p1", "c1")
            await cluster.until(kinds.POD, runs)
    assert (first.prepares, second.prepares) == ([], [["c1"]])


async def test_of_two_plugins_of_a_driver_the_newest_is_called(cluster: Cluster) -> None:
    async with cluster.kubelet(), running(Plugin(), cluster.directory, "old") as old:
        await old.registered()
        async with running(Plugin(), cluster.directory, "new") as new:
            await new.registered()
            await cluster.pod("p1", "c1")
            await cluster.until(kinds.POD, runs)
    assert (old.prepares, new.prepares) == ([], [["c1"]])


async def test_an_older_kubelet_takes_the_version_it_knows(cluster: Cluster) -> None:
    versions = ("v1.DRAPlugin", "v1beta1.DRAPlugin", "v1.DRAResourceHealth")
    older = kubelet.Settings(release="1.33", watch_seconds=0.02)
    async with cluster.kubelet(older), running(Plugin(versions=versions), cluster.directory) as plugin:
        await plugin.registered()
        await cluster.pod("p1", "c1")
        await cluster.until(kinds.POD, runs)
    assert plugin.service == beta_pb2.NodePrepareResourcesRequest.__module__


async def test_a_plugin_without_a_known_version_is_told_so(cluster: Cluster) -> None:
    async with cluster.kubelet() as node, running(Plugin(versions=("1.0.0",)), cluster.directory) as plugin:
        status = await plugin.registered()
        assert node.plugins.drivers() == []
    assert not status.plugin_registered
    assert "1.0.0" in status.error


async def test_hidden_names_and_files_that_are_no_sockets_are_ignored(cluster: Cluster) -> None:
    registry = cluster.directory / "plugins_registry"
    (registry / "plain-file").touch()
    with socket.socket(socket.AF_UNIX) as hidden:
        hidden.bind(str(registry / ".hidden.sock"))
        assert list(plugins.sockets(registry)) == []
        async with running(Plugin(), cluster.directory):
            assert [path.name for path in plugins.sockets(registry)] == [f"{DRIVER}-1-reg.sock"]


async def test_a_cdi_id_that_no_spec_defines_is_an_event(cluster: Cluster) -> None:
    (cluster.directory / "cdi" / "claim.json").unlink()
    async with cluster.kubelet(), running(Plugin(), cluster.directory) as plugin:
        await plugin.registered()
        await cluster.pod("p1", "c1")
        await cluster.event("Failed", "unresolvable CDI devices drawbar.dev/claim=slot-1")
        (cluster.directory / "cdi" / "claim.json").write_text(json.dumps(CDI))
        await cluster.until(kinds.POD, runs)
    assert plugin.prepares == [["c1"]]


async def test_a_pod_for_which_the_claim_is_not_reserved_is_refused(cluster: Cluster) -> None:
    async with cluster.kubelet(), running(Plugin(), cluster.directory) as plugin:
        await plugin.registered()
        await cluster.pod("p1", "c1", reserve=False)
        await cluster.event("FailedPrepareDynamicResources", "is not allowed to use ResourceClaim c1")
    assert plugin.prepares == []


async def test_a_deleted_pod_is_unprepared_and_then_removed(cluster: Cluster) -> None:
    async with cluster.kubelet(), running(Plugin(), cluster.directory) as plugin:
        await plugin.registered()
        pod = await cluster.pod("p1", "c1")
        await cluster.until(kinds.POD, runs)
        await cluster.api.delete(kinds.POD, "p1", namespace="default")
        await cluster.gone("p1")
        assert plugin.unprepares == [["c1"]]
    assert not (cluster.directory / "pods" / pod["metadata"]["uid"]).exists()


async def test_a_deleted_pod_stays_while_its_driver_is_gone(cluster: Cluster) -> None:
    async with cluster.kubelet() as node:
        async with running(Plugin(), cluster.directory) as plugin:
            await plugin.registered()
            await cluster.pod("p1", "c1")
            await cluster.until(kinds.POD, runs)
        async with asyncio.timeout(20):
            while node.plugins.drivers():
                await node.plugins.changed()
        await cluster.api.delete(kinds.POD, "p1", namespace="default")
        pod = await cluster.until(kinds.POD, lambda pod: pod["metadata"].get("deletionTimestamp"))
        assert runs(pod)
        async with running(Plugin(), cluster.directory) as second:
            await cluster.gone("p1")
            assert second.unprepares == [["c1"]]


async def test_a_restarted_kubelet_unprepares_what_the_one_before_prepared(cluster: Cluster) -> None:
    async with running(Plugin(), cluster.directory) as plugin:
        async with cluster.kubelet():
            await cluster.pod("p1", "c1")
            await cluster.until(kinds.POD, runs)
        async with cluster.kubelet():
            await cluster.api.delete(kinds.POD, "p1", namespace="default")
            await cluster.gone("p1")
    assert plugin.prepares == [["c1"]]
    assert plugin.unprepares == [["c1"]]


async def test_a_rebooted_node_prepares_the_pod_again(cluster: Cluster) -> None:
    def write_again(claims: list[api_pb2.Claim]) -> dict[str, api_pb2.NodePrepareResourceResponse]:
        (cluster.directory / "cdi" / "claim.json").write_text(json.dumps(CDI))
        return all_prepared(claims)

    async with running(Plugin(write_again), cluster.directory) as plugin:
        async with cluster.kubelet():
            await cluster.pod("p1", "c1")
            await cluster.until(kinds.POD, runs)
            await plugin.called.get()
        (cluster.directory / "boot_id").unlink()
        async with cluster.kubelet(), asyncio.timeout(20):
            await plugin.called.get()
    assert plugin.prepares == [["c1"], ["c1"]]
