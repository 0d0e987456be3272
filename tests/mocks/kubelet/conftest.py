"""A node plugin that answers as told, and a world around the kubelet double: API server, node folder, pods."""

import asyncio
import json
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path

import grpc.aio
import pytest

from drawbar.driver.kube import client, config, kinds
from drawbar.mocks import apiserver, kubelet
from drawbar.proto.kubelet.dra.v1 import api_pb2, api_pb2_grpc
from drawbar.proto.kubelet.dra.v1beta1 import api_pb2 as beta_pb2
from drawbar.proto.kubelet.dra.v1beta1 import api_pb2_grpc as beta_pb2_grpc
from drawbar.proto.kubelet.drahealth.v1 import api_pb2 as health_pb2
from drawbar.proto.kubelet.drahealth.v1 import api_pb2_grpc as health_pb2_grpc
from drawbar.proto.kubelet.drahealth.v1alpha1 import api_pb2 as alpha_pb2
from drawbar.proto.kubelet.drahealth.v1alpha1 import api_pb2_grpc as alpha_pb2_grpc
from drawbar.proto.kubelet.pluginregistration.v1 import api_pb2 as registration_pb2
from drawbar.proto.kubelet.pluginregistration.v1 import api_pb2_grpc as registration_pb2_grpc

DRIVER = "drawbar.dev"
DEADLINE_SECONDS = 20
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
STATUSES = {"Unknown": 0, "Healthy": 1, "Unhealthy": 2}


def device(name="slot-1", *requests, cdi=None):
    ids = [f"drawbar.dev/claim={name}"] if cdi is None else cdi
    return api_pb2.Device(
        request_names=requests or ["one"], pool_name="chassis-1", device_name=name, cdi_device_ids=ids
    )


def all_prepared(claims):
    return {claim.uid: api_pb2.NodePrepareResourceResponse(devices=[device()]) for claim in claims}


class Plugin(
    registration_pb2_grpc.RegistrationServicer,
    api_pb2_grpc.DRAPluginServicer,
    beta_pb2_grpc.DRAPluginServicer,
):
    """Answers each call with the next of its answers, the last one for ever. An answer that is an exception aborts.

    `calls` holds (method, claim names); `blocked` holds calls up while it is cleared.
    """

    def __init__(self, *answers, versions=("v1.DRAPlugin",), kind="DRAPlugin", driver=DRIVER, endpoint=""):
        self.answers = list(answers) or [all_prepared]
        self.unprepare_answers = [lambda claims: {claim.uid: "" for claim in claims}]
        self.notify_answers = [None]
        self.info_answers = [None]
        self.versions = versions
        self.kind = kind
        self.driver = driver
        self.endpoint = endpoint
        self.calls = []
        self.called = asyncio.Queue()
        self.entered = asyncio.Queue()
        self.statuses = asyncio.Queue()
        self.told = []
        self.blocked = asyncio.Event()
        self.blocked.set()
        self.unprepare_hook = None
        self.services = []

    @property
    def prepares(self):
        return [names for method, names in self.calls if method == "prepare"]

    @property
    def unprepares(self):
        return [names for method, names in self.calls if method == "unprepare"]

    async def GetInfo(self, request, context):  # noqa: N802 - the name is the wire's
        await _turn(self.info_answers, context)
        return registration_pb2.PluginInfo(
            type=self.kind, name=self.driver, endpoint=self.endpoint, supported_versions=self.versions
        )

    async def NotifyRegistrationStatus(self, request, context):  # noqa: N802 - the name is the wire's
        self.told.append(request)
        self.statuses.put_nowait(request)
        await _turn(self.notify_answers, context)
        return registration_pb2.RegistrationStatusResponse()

    async def NodePrepareResources(self, request, context):  # noqa: N802 - the name is the wire's
        names = self._note("prepare", request)
        await self.blocked.wait()
        answer = await _turn(self.answers, context)
        response = api_pb2.NodePrepareResourcesResponse(claims=answer(list(request.claims)))
        self.called.put_nowait(("prepare", names))
        if isinstance(request, beta_pb2.NodePrepareResourcesRequest):
            return beta_pb2.NodePrepareResourcesResponse.FromString(response.SerializeToString())
        return response

    async def NodeUnprepareResources(self, request, context):  # noqa: N802 - the name is the wire's
        names = self._note("unprepare", request)
        if self.unprepare_hook is not None:
            await self.unprepare_hook()
        answer = await _turn(self.unprepare_answers, context)
        outcomes = {
            uid: api_pb2.NodeUnprepareResourceResponse(error=error)
            for uid, error in answer(list(request.claims)).items()
        }
        self.called.put_nowait(("unprepare", names))
        return api_pb2.NodeUnprepareResourcesResponse(claims=outcomes)

    def _note(self, method, request):
        self.services.append(type(request).__module__)
        names = [claim.name for claim in request.claims]
        self.calls.append((method, names))
        self.entered.put_nowait((method, names))
        return names

    async def registered(self):
        async with asyncio.timeout(DEADLINE_SECONDS):
            return await self.statuses.get()

    async def entering(self):
        """The next call that began."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            return await self.entered.get()

    async def next_call(self):
        """The next call that was answered."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            return await self.called.get()


async def _turn(answers, context):
    answer = answers.pop(0) if len(answers) > 1 else answers[0]
    if isinstance(answer, Exception):
        await context.abort(grpc.StatusCode.INTERNAL, str(answer))
    if answer == "silence":
        await asyncio.Event().wait()
    return answer


class HealthService(health_pb2_grpc.DRAResourceHealthServicer, alpha_pb2_grpc.DRAResourceHealthServicer):
    """Sends what `say` gives it to every stream; `end` ends the streams that are open."""

    def __init__(self):
        self.opened = asyncio.Queue()
        self.streams = []
        self.refusals = 0

    def say(self, **devices):
        """`name=status` or `name=(status, timeout, message)`: one complete list."""
        for stream in self.streams:
            stream.put_nowait(devices)

    def end(self):
        for stream in self.streams:
            stream.put_nowait(None)

    async def NodeWatchResources(self, request, context):  # noqa: N802 - the name is the wire's
        messages = alpha_pb2 if isinstance(request, alpha_pb2.NodeWatchResourcesRequest) else health_pb2
        if self.refusals:
            self.refusals -= 1
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "unknown service")
        stream = asyncio.Queue()
        self.streams.append(stream)
        self.opened.put_nowait(messages.DESCRIPTOR.package)
        try:
            while (devices := await stream.get()) is not None:
                reports = [_report(messages, name, said) for name, said in devices.items()]
                yield messages.NodeWatchResourcesResponse(devices=reports)
        finally:
            self.streams.remove(stream)

    async def open(self):
        """The package of the next stream's service."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            return await self.opened.get()


def _report(messages, name, said):
    status, timeout, message = said if isinstance(said, tuple) else (said, 0, "")
    return messages.DeviceHealth(
        device=messages.DeviceIdentifier(pool_name="chassis-1", device_name=name.replace("_", "-")),
        health=STATUSES[status],
        health_check_timeout_seconds=timeout,
        message=message,
        last_updated_time=1,
    )


@asynccontextmanager
async def running(plugin, directory, name="1", *, health=None, folder="", listening=True):
    """The plugin with its service socket first and its registration socket second."""
    service, registrar = grpc.aio.server(), grpc.aio.server()
    api_pb2_grpc.add_DRAPluginServicer_to_server(plugin, service)
    beta_pb2_grpc.add_DRAPluginServicer_to_server(plugin, service)
    registration_pb2_grpc.add_RegistrationServicer_to_server(plugin, registrar)
    if health is not None:
        health_pb2_grpc.add_DRAResourceHealthServicer_to_server(health, service)
        alpha_pb2_grpc.add_DRAResourceHealthServicer_to_server(health, service)
    plugin.endpoint = plugin.endpoint or str(directory / "plugins" / f"dra-{name}.sock")
    plugin.service = service
    if listening:
        service.add_insecure_port(f"unix:{plugin.endpoint}")
        await service.start()
    plugin.registration = directory / "plugins_registry" / folder / f"{plugin.driver}-{name}-reg.sock"
    registrar.add_insecure_port(f"unix:{plugin.registration}")
    await registrar.start()
    try:
        yield plugin
    finally:
        await registrar.stop(None)
        await service.stop(None)


class World:
    """One node `node-a` and an API server."""

    DRIVER = DRIVER
    device = staticmethod(device)
    all_prepared = staticmethod(all_prepared)

    def __init__(self, api, kubeconfig, directory):
        self.api = api
        self.kubeconfig = kubeconfig
        self.connection = config.from_kubeconfig(kubeconfig)
        self.directory = directory

    def plugin(self, *answers, name="1", health=None, folder="", listening=True, **options):
        """`async with`: a plugin that answers so."""
        made = Plugin(*answers, **options)
        return running(made, self.directory, name, health=health, folder=folder, listening=listening)

    def health(self):
        return HealthService()

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
        """Returns once exactly these drivers are registered."""
        await self.plugins_until(node, lambda: node.plugins.drivers() == list(expected))

    async def connected(self, node, *endpoints):
        """Returns once exactly these endpoints are connected, in that order."""
        await self.plugins_until(node, lambda: node.plugins.connected() == list(endpoints))

    async def plugins_until(self, node, holds):
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not holds():
                await node.plugins.changed()

    async def contained(self, node, pod):
        """Returns once the first container of the pod runs, and so all others."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not (self.directory / "pods" / pod["metadata"]["uid"] / "config.json").exists():
                await node.worked()

    async def create(self, kind, name, spec, **metadata):
        body = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": name} | metadata,
            "spec": spec,
        }
        namespace = "default" if kind.namespaced else None
        return await self.api.create(kind, body, into=dict, namespace=namespace)

    async def pod(self, name, *claims, reserve=True, containers=None, **spec):
        """A pod as the scheduler leaves it: bound, with all its claims made, allocated and reserved."""
        one = {"name": "main", "image": "none", "resources": {"claims": [{"name": one} for one in claims]}}
        pod = await self.create(
            kinds.POD,
            name,
            {
                "nodeName": "node-a",
                "containers": containers or [one],
                "resourceClaims": [{"name": one, "resourceClaimName": one} for one in claims],
            }
            | spec,
        )
        known = {item["metadata"]["name"] for item in await self.list(kinds.CLAIM)}
        for claim in claims:
            if claim not in known:
                await self.claim(claim)
            if reserve:
                await self.reserve(claim, pod)
        return pod

    async def claim(self, name):
        """An allocated claim with the requests `one` and `two`."""
        requests = [{"name": one, "exactly": {"deviceClassName": "any"}} for one in ("one", "two")]
        await self.create(kinds.CLAIM, name, {"devices": {"requests": requests}})
        result = {"driver": DRIVER, "pool": "chassis-1"}
        results = [result | {"request": one, "device": f"{name}-{one}"} for one in ("one", "two")]
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

    async def patch(self, kind, name, body, subresource=None):
        return await self.api.patch(
            kind,
            name,
            body,
            content=client.Patch.MERGE,
            into=dict,
            namespace="default",
            subresource=subresource,
        )

    async def delete(self, kind, name, grace=None):
        body = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if grace is not None:
            body["gracePeriodSeconds"] = grace
        await self.api.request("DELETE", kind.path(namespace="default", name=name), body=body)

    async def list(self, kind):
        namespace = "default" if kind.namespaced else None
        return (await self.api.list_all(kind, into=dict, namespace=namespace)).items

    async def until(self, kind, holds):
        """The collection's items, once this holds of them."""
        namespace = "default" if kind.namespaced else None
        async with asyncio.timeout(DEADLINE_SECONDS):
            while True:
                listing = await self.api.list_all(kind, into=dict, namespace=namespace)
                if holds(listing.items):
                    return listing.items
                version = listing.resource_version
                changes = self.api.watch(kind, into=dict, resource_version=version, namespace=namespace)
                async for event in changes:
                    if event.item is not None:
                        break

    async def pod_that(self, holds, name="p1"):
        def found(items):
            return [pod for pod in items if pod["metadata"]["name"] == name and holds(pod)]

        return found(await self.until(kinds.POD, found))[0]

    async def runs(self, name="p1"):
        return await self.pod_that(lambda pod: pod["status"].get("phase") == "Running", name)

    async def gone(self, name="p1"):
        await self.until(kinds.POD, lambda items: all(one["metadata"]["name"] != name for one in items))

    async def event(self, reason, words):
        def found(items):
            return [one for one in items if one["reason"] == reason and words in one["note"]]

        return found(await self.until(kinds.EVENT, found))[0]

    def runtime_spec(self, pod, name="config.json"):
        return json.loads((self.directory / "pods" / pod["metadata"]["uid"] / name).read_text())

    def write_cdi(self, content=CDI):
        (self.directory / "cdi" / "claim.json").write_text(json.dumps(content))

    def state(self):
        """What is in `dra_manager_state`."""
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
                made = World(api, kubeconfig, directory)
                made.write_cdi()
                yield made


@pytest.fixture
async def world(tmp_path):
    async with _world(tmp_path, "1.36") as made:
        yield made


@pytest.fixture
async def classic_world(tmp_path):
    """The same beside an API server of 1.30, whose claims are allocated by handles."""
    async with _world(tmp_path, "1.30-classic") as made:
        yield made
