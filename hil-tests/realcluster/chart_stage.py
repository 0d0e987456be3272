"""The stage `chart`: the chart, installed by Helm's engine on a node with containerd and runc, as users have it.

Controller and node daemon are pods, with the chart's probes, policies, security contexts, volumes and tokens; the
kubelet, the runtime and CDI are real. Doubles are the fabric behind the controller's socket, and the node's /sys.
"""

import asyncio
import contextlib
import dataclasses
import ipaddress
import json
import os
import shutil
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

from drawbar.driver.kube import client, config, kinds
from drawbar.driver.kube import errors as kube_errors
from drawbar.mocks import sysfs
from drawbar.mocks.testing import helm, worlds
from realcluster import container_node, control_plane, errors, images, processes, programs, stages

CONTAINERD = "CONTAINERD"
RUNC = "RUNC"
CNI = "CNI_BIN"
NODE = "chart-1"
NAMESPACE = "drawbar"
RELEASE = "drawbar"
FABRIC = "rack"
SLOTS = 4
MODERN_SINCE = 34
READY_SECONDS = 240.0
"""Pods that start one after the other."""
POLL_SECONDS = 0.5
SERVICE = str(next(ipaddress.ip_network(programs.SERVICE_RANGE).hosts()))
"""Of the Service `kubernetes`."""
CHART = images.CHECKOUT / "deploy" / "drawbar"
TREE = "/run/tree"
"""Where the node and its daemon's pod find the mocked /sys."""
DEPLOYMENT = kinds.Kind(group="apps", version="v1", kind="Deployment", plural="deployments")
SERVICE_ACCOUNT = kinds.Kind(group="", version="v1", kind="ServiceAccount", plural="serviceaccounts")
ROLE_BINDING = kinds.Kind(
    group="rbac.authorization.k8s.io",
    version="v1",
    kind="ClusterRoleBinding",
    plural="clusterrolebindings",
    namespaced=False,
)
DAEMON_SET = kinds.Kind(group="apps", version="v1", kind="DaemonSet", plural="daemonsets")
READS = (
    "env; echo devices: $(ls /dev /dev/dri); cat /var/run/kubernetes.io/dra-device-attributes/*/*/*/*.json; "
    "exec sleep 3600"
)
"""What a container prints: all that it sees of a device."""

READER = "reader"
READS_PAGE = """
import json, ssl, sys, urllib.error, urllib.request

def ask(**headers):
    request = urllib.request.Request(f"https://{sys.argv[1]}:8443/updates", headers=headers)
    return urllib.request.urlopen(request, context=ssl._create_unverified_context(), timeout=60)

try:
    ask()
except urllib.error.HTTPError as error:
    print("without a token:", error.code)
token = open("/var/run/secrets/kubernetes.io/serviceaccount/token").read()
with ask(Authorization=f"Bearer {token}") as answer:
    page = json.loads(answer.readline().removeprefix(b"data: "))
print("reader:", page["about"]["reader"])
for row in page["rows"]:
    print(row["device"]["name"], row["device"]["state"])
"""
"""What a reader's container prints: the page as the chart serves it, which has a certificate that signs itself."""


def run(context: stages.Context) -> stages.Outcome:
    """Install, use, upgrade, roll back and uninstall the chart."""
    if context.installed.release.minor < MODERN_SINCE:
        return stages.Outcome(
            skipped=True, text=f"{context.installed.release.name} has no resource.k8s.io/v1"
        )
    node = make_node(context.folder / "node")
    if (outcome := unavailable(node)) is not None:
        return outcome
    node.path.mkdir()
    context.say("making images")
    archive, image = images.drawbar(context.folder)
    node = dataclasses.replace(
        node, images=(str(images.busybox(context.folder / "busybox.tar")), str(archive))
    )
    with context.plane(nodes=(NODE,)) as plane:
        try:
            asyncio.run(_try(context, plane, node, image))
        except (helm.HelmError, kube_errors.KubeError) as error:
            return stages.Outcome(failed=True, text=str(error))
    return stages.Outcome(text="installed, used, upgraded, rolled back and uninstalled in real containers")


def unavailable(node: container_node.Node) -> stages.Outcome | None:
    """Return the outcome of a stage that lacks Helm's engine or a program of the node; None where nothing is missing."""
    try:
        if helm.program() is None:
            return stages.Outcome(skipped=True, text="the Helm engine is not there: make chart installs it")
    except helm.HelmError as error:
        return stages.Outcome(failed=True, text=str(error))
    missing = container_node.describe_missing(node)
    return stages.Outcome(skipped=True, text=missing) if missing else None


def make_node(folder: Path) -> container_node.Node:
    """Return a node below a folder, by what CONTAINERD, RUNC and CNI_BIN name; without images and kubelet."""
    return container_node.Node(
        folder=str(folder),
        containerd=os.environ.get(CONTAINERD) or shutil.which("containerd") or "containerd",
        runc=os.environ.get(RUNC) or shutil.which("runc") or "runc",
        cni=os.environ.get(CNI) or "/usr/lib/cni",
        images=(),
        pause=images.BUSYBOX,
        kubelet=(),
    )


async def _try(
    context: stages.Context, plane: control_plane.ControlPlane, node: container_node.Node, image: str
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        api = await stack.enter_async_context(client.connecting(config.from_kubeconfig(plane.admin)))
        tree = sysfs.SysfsTree.create(
            node.path / "tree" / "sys", slots=SLOTS, uevent_socket=node.path / "tree" / "uevents"
        )
        await stack.enter_async_context(tree.reacting())
        fabric = await stack.enter_async_context(_fabric(node.path, tree))
        machine = component(plane, node, binds={TREE: str(node.path / "tree"), "/run/rack": str(fabric)})
        machine.start()
        stack.callback(machine.stop)
        engine = await stack.enter_async_context(
            helm.Helm.running(kubeconfig=plane.admin, call_seconds=2 * READY_SECONDS)
        )
        made = Release(api, engine, machine, node, image, context.say)
        await made.node_is_ready()
        await made.whole_life()


def component(
    plane: control_plane.ControlPlane, node: container_node.Node, *, binds: dict[str, str]
) -> processes.Component:
    """Write the node's configuration, and return the node as a process."""
    installed = plane.settings.binaries
    content = programs.kubelet_configuration(
        runtime=node.endpoint,
        port=10250,
        gates=programs.kubelet_gates(installed.release, plane.settings.gates),
    )
    content |= {**programs.kubelet_extras(installed.release), "oomScoreAdj": 0}
    (node.path / "kubelet.yaml").write_text(programs.as_json(content))
    kubelet = programs.kubelet(
        installed,
        node=NODE,
        folder=node.path,
        kubeconfig=plane.kubeconfig(programs.NODE_PREFIX + NODE),
        root=Path("/var/lib/kubelet"),
    )
    kubelet.append(f"--node-ip={container_node.ADDRESS}")
    whole = dataclasses.replace(
        node, kubelet=tuple(kubelet), apiserver=plane.settings.ports.apiserver, service=SERVICE, binds=binds
    )
    file = node.path / "node.json"
    file.write_text(container_node.as_json(whole))
    argv = [sys.executable, "-I", "-S", str(container_node.__file__), str(file)]
    return processes.Component(f"node {NODE}", argv, node.path / "node.log")


@contextlib.asynccontextmanager
async def _fabric(folder: Path, tree: sysfs.SysfsTree) -> AsyncIterator[Path]:
    """Run a simulated fabric, and yield the folder of its socket, which the controller may open."""
    directory = folder / "rack"
    directory.mkdir()
    gpus = [
        {"id": f"gpu-{number}", "class": "gpu", "model": "G1", "serial": f"48-b0-2d-00-00-00-00-0{number}"}
        | {"pciVendor": 0x1002, "pciDevice": 0x740F}
        for number in range(2)
    ]
    described = {
        "hosts": [{"id": "host-1", "name": NODE, "ports": SLOTS, "sysfs": str(tree.root)}],
        "enclosures": [{"id": "shelf", "devices": [*gpus, worlds.disk(0)]}],
        "attachSeconds": 0.5,
    }
    file = folder / "fabric.json"
    file.write_text(json.dumps(described))
    socket = directory / "f.sock"
    program = str(Path(sys.executable).with_name("drawbar"))
    argv = [program, "mock", "fabric", "--config", str(file), "--listen", f"unix:{socket}"]
    component = processes.Component("fabric", argv, folder / "fabric.log")
    component.start()
    try:
        await asyncio.to_thread(component.until, socket.exists, READY_SECONDS)
        for path in (folder, directory, socket):
            path.chmod(0o777)
        yield directory
    finally:
        component.stop()


class Cluster:
    """A cluster with one node in real containers, and the pods that a stage runs in it.

    Attributes:
        api: the administrator's client.
        say: prints a line of progress.
    """

    ready_seconds, pause_seconds = READY_SECONDS, POLL_SECONDS

    def __init__(
        self, api: client.Client, say: Callable[[str], None], node: processes.Component | None = None
    ) -> None:
        self.api, self.say, self._node = api, say, node

    async def objects(self, kind: kinds.Kind, namespace: str = "default") -> Sequence[dict[str, Any]]:
        """Return the objects of a kind; of that namespace where it has any."""
        where = namespace if kind.namespaced else None
        return (await self.api.list_all(kind, into=dict, namespace=where)).items

    async def list_leftovers(self, *wanted: kinds.Kind) -> list[str]:
        """Return a sentence for each object of these kinds."""
        return [
            f"{kind.kind} {item['metadata']['name']} is still there"
            for kind in wanted
            for item in await self.objects(kind)
        ]

    async def create(self, kind: kinds.Kind, name: str, spec: dict[str, Any]) -> None:
        """Create an object with that spec."""
        body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}, "spec": spec}
        await self.api.create(kind, body, namespace="default" if kind.namespaced else None, into=dict)

    async def pod(self, name: str, device_class: str, command: str, **spec: Any) -> None:
        """Create a pod with a device of that class, and the template of its claim.

        Args:
            name: of both.
            device_class: such as `nvme`.
            command: of its container, for the shell of BusyBox.
            spec: more of the pod's spec.
        """
        exactly = {"deviceClassName": f"{device_class}.drawbar.dev"}
        devices = {"requests": [{"name": "it", "exactly": exactly}]}
        await self.create(kinds.CLAIM_TEMPLATE, name, {"spec": {"devices": devices}})
        container = {
            "name": "main",
            "image": images.BUSYBOX,
            "imagePullPolicy": "Never",
            "command": ["/bin/sh", "-c", command],
            "resources": {"claims": [{"name": "it"}]},
        }
        claims = [{"name": "it", "resourceClaimTemplateName": name}]
        common = {"containers": [container], "resourceClaims": claims, "terminationGracePeriodSeconds": 1}
        await self.create(kinds.POD, name, common | spec)

    async def phase(self, pod: str) -> str:
        """Return the pod's phase, `None` before its kubelet has reported one."""
        stored = await self.api.read(kinds.POD, pod, namespace="default", into=dict)
        return str(stored.get("status", {}).get("phase"))

    async def settle(self, problems: Callable[[], Awaitable[list[str]]]) -> None:
        """Return when there are no problems any more; see `stages.settle`."""
        await stages.settle(
            problems, self.ready_seconds, pause_seconds=self.pause_seconds, depends=self._node
        )

    def expect(self, holds: bool, what: str) -> None:
        """Check one thing.

        Raises:
            errors.RealClusterError: it does not hold.
        """
        if not holds:
            raise errors.RealClusterError(f"not so: {what}")


class Release(Cluster):
    """A release of the chart on a node."""

    def __init__(
        self,
        api: client.Client,
        engine: helm.Helm,
        node: processes.Component,
        about: container_node.Node,
        image: str,
        say: Callable[[str], None],
    ) -> None:
        super().__init__(api, say, node)
        self._engine, self._about = engine, about
        repository, _, tag = image.rpartition(":")
        self._image = {"repository": repository, "tag": tag, "pullPolicy": "Never"}

    async def whole_life(self) -> None:
        """Do all that users do with a release."""
        await self._helm("install", chart=str(CHART), values=self._values(100), create_namespace=True)
        await self.settle(self._not_rolled_out)
        self.say("controller and node daemon are ready")
        spec = {"adapter": "grpc", "endpoint": "unix:/run/rack/f.sock", "policy": {"probationSeconds": 0}}
        await self.create(kinds.FABRIC, FABRIC, spec)
        await self._use("first", "gpu")
        await self._use("second", "nvme")
        await self._read_page()
        await self._helm("upgrade", chart=str(CHART), values=self._values(200))
        await self.settle(self._not_rolled_out)
        # The pods that were there have run on, and the new daemons serve another one.
        await self._use("third", "gpu")
        for pod in ("first", "second"):
            self.expect((await self.phase(pod)) == "Running", f"pod {pod} runs after the upgrade")
        await self._helm("rollback", revision=1)
        await self.settle(self._not_rolled_out)
        self.say("upgraded and rolled back with three pods running")
        try:
            await self._helm("uninstall")
        except helm.HelmError as error:
            # Of the two policies that refuse, an API server names either.
            self.expect(" is still " in str(error), f"the refusal names what is still there: {error}")
        else:
            self.expect(False, "helm uninstall is refused while devices are attached")
        for pod in ("first", "second", "third"):
            await self.api.begin_delete(kinds.POD, pod, namespace="default", into=dict)
        await self.settle(lambda: self.list_leftovers(kinds.POD, kinds.CLAIM, kinds.ATTACHMENT))
        await self.api.begin_delete(kinds.FABRIC, FABRIC, into=dict)
        await self.settle(lambda: self.list_leftovers(kinds.FABRIC))
        await self._helm("uninstall")
        await self.settle(self._not_uninstalled)

    async def node_is_ready(self) -> None:
        """Wait for the Node, and give it the label by which the chart finds hosts of a fabric."""
        await self.settle(self._node_unready)
        label = yaml.safe_load((CHART / "values.yaml").read_text())["node"]["hostLabels"][0]
        change = {"metadata": {"labels": {label: "true"}}}
        await self.api.patch(kinds.NODE, NODE, change, content=client.Patch.MERGE, into=dict)

    def _values(self, burst: int) -> dict[str, Any]:
        return {
            "image": self._image,
            "ui": {"enabled": True},
            "controller": {
                # In the node's network one controller at most runs on a node, and here is one node.
                **({"hostNetwork": True, "replicas": 1} if burst > 100 else {}),
                "config": {"apiWritesBurst": burst, "log": {"level": "DEBUG"}},
                "extraVolumes": [{"name": "rack", "hostPath": {"path": "/run/rack"}}],
                "extraVolumeMounts": [{"name": "rack", "mountPath": "/run/rack"}],
            },
            "node": {
                "extraVolumes": [{"name": "tree", "hostPath": {"path": TREE}}],
                "extraVolumeMounts": [{"name": "tree", "mountPath": TREE}],
                "config": {
                    "sysfs": f"{TREE}/sys",
                    "uevents": f"unix:{TREE}/uevents",
                    "deviceMetadata": True,
                    "log": {"level": "DEBUG" if burst > 100 else "INFO"},
                },
            },
        }

    async def _use(self, name: str, device_class: str) -> None:
        """Make a pod with a device, and wait until it runs and its container sees the device."""
        await self.pod(name, device_class, READS)

        async def unready() -> list[str]:
            phase = await self.phase(name)
            if phase != "Running":
                return [f"pod {name} is {phase}"]
            reports = self._read_log(name)
            file = "renderD" if device_class == "gpu" else "nvme0n1"
            wanted = ["_PCI_ADDRESS=0000:", file, '"DeviceMetadata"']
            return [f"the container of {name} does not see {word}" for word in wanted if word not in reports]

        await self.settle(unready)
        self.say(f"pod {name} runs, and its container sees its {device_class}")

    async def _read_page(self) -> None:
        """Check that a reader's account sees the page in the cluster, and nobody without a token."""
        page = next(
            pod
            for pod in await self.objects(kinds.POD, NAMESPACE)
            if pod["metadata"]["labels"].get("app.kubernetes.io/component") == "ui"
        )
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "drawbar-viewer"}
        subject = {"kind": "ServiceAccount", "name": READER, "namespace": "default"}
        binding = {"roleRef": role, "subjects": [subject]}
        for kind, content in ((SERVICE_ACCOUNT, {}), (ROLE_BINDING, binding)):
            await self.api.create(
                kind,
                {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": READER}, **content},
                namespace="default" if kind.namespaced else None,
                into=dict,
            )
        repository, tag = self._image["repository"], self._image["tag"]
        container = {
            "name": "main",
            "image": f"{repository}:{tag}",
            "imagePullPolicy": "Never",
            "command": ["python3", "-c", READS_PAGE, page["status"]["podIP"]],
        }
        spec = {"serviceAccountName": READER, "restartPolicy": "OnFailure", "containers": [container]}
        await self.create(kinds.POD, READER, spec)
        wanted = (
            "without a token: 401",
            f"reader: system:serviceaccount:default:{READER}",
            "disk-0 Ready",
        )

        async def list_missing_words() -> list[str]:
            printed = self._read_log(READER)
            return [f"the page does not show {words!r}" for words in wanted if words not in printed]

        await self.settle(list_missing_words)
        for kind in (kinds.POD, SERVICE_ACCOUNT, ROLE_BINDING):
            await self.api.begin_delete(
                kind, READER, namespace="default" if kind.namespaced else None, into=dict
            )
        self.say("a reader's pod sees the page")

    def _read_log(self, pod: str) -> str:
        files = sorted((self._about.path / "log" / "pods").glob(f"default_{pod}_*/main/*.log"))
        return files[-1].read_text(errors="replace") if files else ""

    async def _node_unready(self) -> list[str]:
        try:
            stored = await self.api.read(kinds.NODE, NODE, into=dict)
        except kube_errors.NotFound:
            return ["there is no Node"]
        conditions = stored.get("status", {}).get("conditions", ())
        return [
            f"{condition['type']}: {condition['message']}"
            for condition in conditions
            if condition["type"] == "Ready" and condition["status"] != "True"
        ]

    async def _not_rolled_out(self) -> list[str]:
        problems = []
        for kind, wanted, counts in (
            (DEPLOYMENT, "replicas", ("updatedReplicas", "availableReplicas", "replicas")),
            (DAEMON_SET, "desiredNumberScheduled", ("updatedNumberScheduled", "numberAvailable")),
        ):
            for workload in await self.objects(kind, NAMESPACE):
                status, name = workload.get("status", {}), workload["metadata"]["name"]
                number = workload["spec"].get("replicas", status.get(wanted, 0))
                current = status.get("observedGeneration") == workload["metadata"]["generation"]
                if not current or not number or any(status.get(count, 0) != number for count in counts):
                    problems.append(f"{kind.kind} {name} is not rolled out: {status}")
        return problems

    async def _not_uninstalled(self) -> list[str]:
        problems = await self.list_leftovers(kinds.DEVICE_CLASS, kinds.SLICE)
        for kind in (kinds.POD, DEPLOYMENT, DAEMON_SET, kinds.CONFIG_MAP):
            # Kubernetes keeps certificates in each namespace.
            names = [item["metadata"]["name"] for item in await self.objects(kind, NAMESPACE)]
            problems += [
                f"{kind.kind} {name} is still there" for name in names if not name.endswith("ca.crt")
            ]
        return problems

    async def _helm(self, verb: str, **arguments: Any) -> str:
        return await self._engine.call(
            f"helm_{verb}",
            namespace=NAMESPACE,
            release_name=RELEASE,
            timeout=f"{READY_SECONDS:.0f}s",
            **arguments,
        )
