"""A controller, the API server double and the simulated fabric in one process, as fixtures."""

import asyncio
import contextlib
import functools
import json
import subprocess
from pathlib import Path

import pytest
import yaml
from tests.scenes import attachments as scenes
from tests.scenes import clusters, waiting

from drawbar.driver import clocks
from drawbar.driver.controller import daemon, settings, watches
from drawbar.driver.controller.operation import instrumentation
from drawbar.driver.kube import client, config, kinds
from drawbar.fabric.grpc import server as fabric_server
from drawbar.mocks import apiserver
from drawbar.mocks.apiserver import profiles
from drawbar.mocks.cluster import deployment
from drawbar.mocks.fabric import configuration
from drawbar.mocks.fabric.simulation import SimulatedFabric
from drawbar.mocks.testing import worlds

DRIVER = "drawbar.dev"
NODES = ("node-1", "node-2")
POOL = "fab/enc-1"
ROOT = Path(__file__).parents[2]


def fabric_file(path, **changes):
    described = {
        "hosts": [{"id": f"host-{name}", "name": name, "ports": 2} for name in NODES],
        "enclosures": [
            {
                "id": "enc-1",
                "devices": [
                    {"id": "disk-0", "class": "nvme", "model": "M1", "serial": "SN0", "memoryBytes": 0},
                    {"id": "gpu-0", "class": "gpu", "serial": "48-b0-2d-00-00-00-00-01"},
                    {"id": "GPU/1", "class": "gpu", "serial": "48-b0-2d-00-00-00-00-02"},
                ],
            }
        ],
        "attachSeconds": 0.0,
        "detachSeconds": 0.0,
    }
    path.write_text(json.dumps(described | changes))
    return configuration.load(path)


class World(clusters.Cluster):
    """The cluster as a test sees it: everything through the API server and the fabric."""

    def __init__(self, server, api, path, fabric):
        super().__init__(api, server=server)
        self.path, self.fabric = path, fabric
        self.controllers, self.namespaces = [], {}

    @property
    def journal(self):
        lines = (self.path / "journal").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def calls(self, kind):
        return [line["device"] for line in self.journal if (line["event"], line["kind"]) == ("started", kind)]

    def start(self, **changes):
        # Several controllers live in one process, and several tests on one machine.
        usual = {"http": settings.Http(address="off"), "kubeconfig": str(self.path / "controller")}
        # Doubles of fabric managers are on this machine.
        usual |= {"fabric_networks": ("127.0.0.0/8",)}
        options = settings.Settings(**usual | changes)
        self.controllers.append(asyncio.Task(daemon.run(options)))

    async def controller(self, measured=None, *, around=None, **changes):
        """Start a controller; return it, so that a test may look at its parts."""
        path = str(self.path / "controller")
        options = settings.Settings(**{"kubeconfig": path, "leader_election": False} | changes)
        made = asyncio.get_running_loop().create_future()

        async def run():
            async with client.connecting(config.load(path)) as api, asyncio.TaskGroup() as tasks:
                parts = measured or instrumentation.Instrumentation(options)
                basis = daemon.collect_basis(
                    options, api, around or daemon.Surroundings(), parts, watches.Served()
                )
                controller = daemon.Controller(basis)
                made.set_result(controller)
                await controller.serve(tasks)

        task = asyncio.Task(run())
        self.controllers.append(task)
        await asyncio.wait({task, made}, return_when=asyncio.FIRST_COMPLETED)
        return made.result() if made.done() else task.result()

    async def stop(self):
        """End the controller that was started first."""
        task = self.controllers.pop(0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    async def make_fabric(self, name="fab", **spec):
        usual = {"adapter": "grpc", "endpoint": f"unix:{self.path / 'f.sock'}"}
        await self.create(kinds.FABRIC, name, spec=usual | spec)

    async def fabric_condition(self, kind, name="fab"):
        fabric = await self.api.read(kinds.FABRIC, name, into=dict)
        conditions = fabric.get("status", {}).get("conditions", ())
        return next((condition for condition in conditions if condition["type"] == kind), {})

    async def slices(self):
        return [resource_slice["spec"] for resource_slice in await self.list(kinds.SLICE)]

    async def wait_for_slices(self):
        return await waiting.until(self.slices, bool)

    async def allocate(
        self,
        *devices,
        name="c1",
        node=NODES[0],
        pod="pod-1",
        pool=POOL,
        at="",
        by_class=None,
        namespace="default",
        **result,
    ):
        """Allocate as a scheduler does.

        `at` is the timestamp, now unless it is given, and None for none; `by_class` are parameters of the DeviceClass.
        """
        self.namespaces[name] = namespace
        requests = [
            {"name": f"r{number}", "exactly": {"deviceClassName": "any"}} for number in range(len(devices))
        ]
        body = {"apiVersion": kinds.CLAIM.api_version, "kind": kinds.CLAIM.kind, "metadata": {"name": name}}
        body["spec"] = {"devices": {"requests": requests}}
        claim = await self.api.create(kinds.CLAIM, body, into=dict, namespace=namespace)
        results = [
            worlds.result(pool, device, request=f"r{number}") | result
            for number, device in enumerate(devices)
        ]
        parameters = {"apiVersion": "drawbar.dev/v1alpha1", "kind": "DeviceParameters", **(by_class or {})}
        config = [{"source": "FromClass", "opaque": {"driver": DRIVER, "parameters": parameters}}]
        now = clocks.time_of_day().strftime("%Y-%m-%dT%H:%M:%SZ")
        claim["status"] = {
            "allocation": worlds.allocation(node, *results, at=None if at is None else at or now),
            "reservedFor": [{"resource": "pods", "name": pod, "uid": pod}],
        }
        if by_class:
            claim["status"]["allocation"]["devices"]["config"] = config
        return await self.api.replace(
            kinds.CLAIM, name, claim, namespace=namespace, subresource="status", into=dict
        )

    async def device_conditions(self, name="c1"):
        """Return the claim's true conditions by device, with their reasons."""
        claim = await self.api.read(kinds.CLAIM, name, namespace=self._namespace(name), into=dict)
        return {
            device["device"]: {
                condition["type"].removeprefix(f"{DRIVER}/"): condition["reason"]
                for condition in device["conditions"]
                if condition["status"] == "True"
            }
            for device in claim["status"].get("devices", ())
        }

    async def attachments(self):
        return {
            attachment["metadata"]["name"]: attachment for attachment in await self.list(kinds.ATTACHMENT)
        }

    async def node_says(self, name, condition, status="True", reason="Said"):
        """Apply a condition as the node daemon does."""
        applied = scenes.condition(condition, status, reason)
        await worlds.apply_status(self.api, name, "drawbar-node", conditions=[applied])

    @contextlib.asynccontextmanager
    async def listing_nodes(self):
        """Have the nodes list their cards for each device that is recognised by its arrival."""

        async def acknowledge():
            while True:
                for name, attachment in (await self.attachments()).items():
                    is_new = attachment["status"].keys() == {"phase"}
                    if attachment["spec"]["identity"].get("soleArrival") and is_new:
                        listed = {"bootID": "boot-1"}
                        await worlds.apply_status(self.api, name, "drawbar-node", baseline=listed)
                await asyncio.sleep(0.05)

        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(acknowledge())
            yield
            task.cancel()

    async def wait_until_attached(self, device, claim="c1"):
        """Wait until the claim's status has the device as attached; return its conditions by device."""
        return await waiting.until(
            lambda: self.device_conditions(claim),
            lambda device_conditions: "attached" in device_conditions.get(device, {}),
        )

    async def wait_until_failed(self, device, claim="c1"):
        """Wait until the claim's status has the attach as failed; return its conditions by device."""
        return await waiting.until(
            lambda: self.device_conditions(claim),
            lambda device_conditions: "attach-failed" in device_conditions.get(device, {}),
        )

    async def wait_until_deleting(self, attachment):
        """Wait until the DeviceAttachment is being deleted; return all by name."""
        return await waiting.until(
            self.attachments,
            lambda attachments: "deletionTimestamp" in attachments.get(attachment, {}).get("metadata", {}),
        )

    async def release_attachments(self, *attachments):
        """Report the release of the last DeviceAttachments as their nodes do; wait until they are gone."""
        for name in attachments:
            await self.node_says(name, "Released")
        await waiting.until(self.attachments, lambda remaining: not remaining)

    async def condition(self, kind, name="fab", **expected):
        """Wait until the Fabric's condition has these fields; return it."""
        return await waiting.until(
            lambda: self.fabric_condition(kind, name), lambda condition: expected.items() <= condition.items()
        )

    async def wait_until_called(self, kind):
        """Wait until the fabric was called so."""
        await waiting.eventually(lambda: self.calls(kind))

    async def labels(self, node):
        """Return the labels of the Node."""
        return (await self.api.read(kinds.NODE, node, into=dict))["metadata"].get("labels", {})

    async def taints(self, device):
        """Return the taints of the device, in whichever form, keys without the driver's name; None if it is not published."""
        specs = await self.slices()
        if not any(entry["name"] == device for spec in specs for entry in spec.get("devices", ())):
            return None
        taints = [
            taint
            for spec in specs
            for entry in spec.get("devices", ())
            if entry["name"] == device
            for taint in entry.get("taints", ())
        ]
        taints += [
            entry["taint"] for spec in specs for entry in spec.get("taints", ()) if entry["device"] == device
        ]
        return [taint | {"key": taint["key"].removeprefix(f"{DRIVER}/")} for taint in taints]

    async def marks(self, device):
        """Return key, value and effect of each taint of the device; None if it is not published."""
        taints = await self.taints(device)
        return taints and [(taint["key"], taint.get("value", ""), taint["effect"]) for taint in taints]

    async def events(self, kind, name):
        """Return the Events on one object as type, reason and note, the oldest first."""
        events = (await self.api.list_all(kinds.EVENT, into=dict)).items
        mine = [
            event
            for event in events
            if (event["regarding"]["kind"], event["regarding"]["name"]) == (kind, name)
        ]
        mine.sort(key=lambda event: event["eventTime"])
        return [(event["type"], event["reason"], event["note"]) for event in mine]

    async def deallocate(self, name="c1"):
        namespace = self._namespace(name)
        claim = await self.api.read(kinds.CLAIM, name, namespace=namespace, into=dict)
        claim["status"] = {}
        # The controller may write its conditions in between.
        del claim["metadata"]["resourceVersion"]
        await self.api.replace(kinds.CLAIM, name, claim, namespace=namespace, subresource="status", into=dict)

    def _namespace(self, claim):
        return self.namespaces.get(claim, "default")


@contextlib.asynccontextmanager
async def world(tmp_path, profile="1.36", **fabric_changes):
    described = fabric_file(tmp_path / "fabric.json", **fabric_changes)
    async with (
        apiserver.serving(profile=profile) as server,
        SimulatedFabric.running(described, journal=tmp_path / "journal") as fabric,
        fabric_server.serving(
            fabric, f"unix:{tmp_path / 'f.sock'}", name="sim", version="1", configure=fabric.configure
        ),
    ):
        server.kubeconfig(tmp_path / "admin", "admin")
        server.kubeconfig(tmp_path / "controller", "drawbar:drawbar-controller")
        async with client.connecting(config.from_kubeconfig(tmp_path / "admin")) as api:
            await deployment.apply(api, version=profiles.profile(profile).dynamic_version)
            for name in NODES:
                body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
                await api.create(kinds.NODE, body, into=dict)
            cluster = World(server, api, tmp_path, fabric)
            try:
                yield cluster
            finally:
                while cluster.controllers:
                    await cluster.stop()


SECOND = "gpu.example.com"


async def deploy_second(api):
    """Apply the documented files for a second driver in the cluster."""
    page = (ROOT / "docs" / "controller.md").read_text()
    (command,) = [line for line in page.splitlines() if line.startswith("for file in deploy/manifests/")]
    run = functools.partial(subprocess.run, shell=True, cwd=ROOT, capture_output=True, text=True, check=True)
    printed = await asyncio.to_thread(run, command, timeout=60)
    for document in yaml.safe_load_all(printed.stdout):
        if document:
            kind, namespace = deployment.KINDS[document["kind"]], document["metadata"].get("namespace")
            # Real components have what both drivers share from another test.
            await api.patch(
                kind,
                document["metadata"]["name"],
                document,
                content=client.Patch.APPLY,
                into=dict,
                namespace=namespace,
                manager="administrator",
            )


@pytest.fixture
def second_driver():
    """Return the name of a second driver and `await deploy(api)`, which deploys its daemons' permissions."""
    return SECOND, deploy_second


@pytest.fixture(name="until")
def _until():
    """Return `await waiting.until(read, holds)`, which waits for a condition that can only be read."""
    return waiting.until


@pytest.fixture
def controller_world(tmp_path):
    """Return a context manager: `async with controller_world(**changes) as cluster`; see `World`."""
    return functools.partial(world, tmp_path)


@pytest.fixture
def served_world(controller_world):
    """Return a context manager: `async with served_world(spec={}, **changes) as cluster`.

    The cluster's controller has published a Fabric with this spec."""

    @contextlib.asynccontextmanager
    async def serving(*profile, spec=None, **changes):
        async with controller_world(*profile, **changes) as cluster:
            cluster.start()
            await cluster.make_fabric(**(spec or {}))
            await cluster.wait_for_slices()
            yield cluster

    return serving
