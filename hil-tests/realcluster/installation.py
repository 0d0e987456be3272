"""Drawbar on a real control plane and real kubelets, every daemon a process, and a simulated fabric below.

Two controllers wait for one lease, and each node has a daemon under a token that is bound to its Node. Roles, policies
and classes are those of deploy/. Everything can be killed and started again by name; `Installation` finds out what is
left of claims and devices.
"""

import asyncio
import contextlib
import functools
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from drawbar.driver.kube import client, config, kinds
from drawbar.driver.kube import errors as kube_errors
from drawbar.fabric import contract, registry
from drawbar.fabric import errors as fabric_errors
from drawbar.mocks import sysfs
from drawbar.mocks.claims import dialects
from drawbar.mocks.cluster import deployment
from drawbar.mocks.testing import worlds
from realcluster import control_plane, errors, kubelets, processes, programs, stages

NAMESPACE = "drawbar"
CONTROLLERS = ("controller-1", "controller-2")
LEASE = "drawbar-controller"
FABRIC = "rack"
SLOTS = 6
ATTACH_SECONDS = 1.0
DETACH_SECONDS = 0.5
POLL_SECONDS = 0.5
START_SECONDS = 180.0
"""Everything is started at once, on two cores."""
FLAPPING_SECONDS = 45.0
CLAIM_IN_POD = "resource.kubernetes.io/pod-claim-name"
"""The annotation of a claim that kube-controller-manager has made for a pod: its name there."""
REQUEST_SECONDS = 90.0
"""How long a request is tried again while the API server is down."""

DIALECTS = {dialect.version: dialect for dialect in (dialects.MODERN, *dialects.CLASSIC)}

T = TypeVar("T")


class Installation:
    """A cluster with Drawbar; make it with `running`.

    Attributes:
        plane: the control plane.
        nodes: the kubelets by the name of their node.
        daemons: the controllers, the node daemons (by the name of their node) and `fabric`.
        api: with all rights.
        dialect: what of `resource.k8s.io` has which version.
    """

    def __init__(
        self,
        plane: control_plane.ControlPlane,
        nodes: dict[str, kubelets.Kubelet],
        folder: Path,
        api: client.Client,
        devices: int,
    ) -> None:
        self.plane, self.nodes, self.folder, self.api = plane, nodes, folder, api
        self._devices = devices
        self.dialect = DIALECTS[programs.resource_version(plane.settings.binaries.release)]
        self.daemons: dict[str, processes.Component] = {}
        # By name of the pod, since when, on the monotonic clock.
        self._flapping: dict[str, float] = {}
        self.trees = {
            name: sysfs.SysfsTree.create(
                folder / name / "sys", slots=SLOTS, uevent_socket=folder / name / "uevents"
            )
            for name in nodes
        }

    @classmethod
    @contextlib.asynccontextmanager
    async def running(
        cls,
        plane: control_plane.ControlPlane,
        nodes: Sequence[kubelets.Kubelet],
        folder: Path,
        *,
        devices: int,
    ) -> AsyncIterator["Installation"]:
        """Run Drawbar for as long as the block lasts; once entered, pods can have all devices.

        Args:
            plane: the control plane.
            nodes: kubelets that are Ready.
            folder: for state, logs and sockets, so with a short path.
            devices: how many NVMe disks the fabric has.

        Raises:
            errors.ComponentFailed: a daemon ends, or pods cannot have the devices in time.
        """
        async with contextlib.AsyncExitStack() as stack:
            api = await stack.enter_async_context(client.connecting(config.from_kubeconfig(plane.admin)))
            made = cls(plane, {kubelet.node: kubelet for kubelet in nodes}, folder, api, devices)
            stack.callback(made.stop)
            for tree in made.trees.values():
                await stack.enter_async_context(tree.reacting())
            await deployment.apply(api, policies=True, version=made.dialect.version)
            await made._start()
            yield made

    @property
    def journal(self) -> Path:
        """Return the fabric's operations."""
        return self.folder / "journal"

    def stop(self) -> None:
        """End all of our daemons, and then the fabric."""
        for daemon in reversed(self.daemons.values()):
            daemon.stop()

    async def leader(self) -> str:
        """Return the controller that holds the lease; the first one while none does."""
        lease = await self.insist(lambda: self.api.read(kinds.LEASE, LEASE, namespace=NAMESPACE, into=dict))
        holder = str(lease["spec"].get("holderIdentity") or "")
        return holder if holder in CONTROLLERS else CONTROLLERS[0]

    async def insist(self, request: Callable[[], Awaitable[T]]) -> T:
        """Make a request until the API server answers it.

        Raises:
            errors.RealClusterError: it does not by then.
        """
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                while True:
                    try:
                        return await request()
                    except (kube_errors.Conflict, kube_errors.NotFound):
                        raise
                    except kube_errors.KubeError as error:
                        reported = str(error)
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError as error:
            raise errors.RealClusterError(
                f"the API server does not answer for {REQUEST_SECONDS:.0f} s: {reported}"
            ) from error

    async def objects(self, kind: Any) -> list[dict[str, Any]]:
        """Return all objects of a kind; in the default namespace where the kind has any."""
        namespace = "default" if kind.namespaced else None
        listing = await self.insist(lambda: self.api.list_all(kind, into=dict, namespace=namespace))
        return list(listing.items)

    async def create_pod(self, name: str, claims: int) -> None:
        """Make a pod with claims to one disk each, from a template of its name."""
        exactly = {"deviceClassName": "nvme.drawbar.dev"}
        wanted: dict[str, Any] = {"devices": {"requests": [{"name": "disk", "exactly": exactly}]}}
        if self._allocates:
            wanted = {"controller": "drawbar.dev", "devices": {"requests": [{"name": "disk"} | exactly]}}
        uses = [f"disk-{number}" for number in range(claims)]
        container = {
            "name": "main",
            "image": "localhost/none:1",
            "imagePullPolicy": "IfNotPresent",
            "resources": {"claims": [{"name": use} for use in uses]},
        }
        spec = {
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
            "resourceClaims": [{"name": use, "resourceClaimTemplateName": name} for use in uses],
        }
        await self._create(self.dialect.template, name, {"spec": wanted})
        await self._create(kinds.POD, name, spec)

    async def delete_pod(self, name: str) -> None:
        """Delete a pod and its template, with what grace the pod has."""
        for kind in (kinds.POD, self.dialect.template):

            async def delete_object(kind: Any = kind) -> None:
                with contextlib.suppress(kube_errors.NotFound):
                    await self.api.begin_delete(kind, name, namespace="default", into=dict)

            await self.insist(delete_object)

    async def mend_flapping_pods(self) -> list[str]:
        """Write all claims of a pod into its status that was seen for `FLAPPING_SECONDS` with a part of them; return its name.

        kube-controller-manager applies the claims that are not in the status, and takes those out by that which are, without an
        end (kubernetes/kubernetes#138407): an accident at the right moment begins it. No scheduler places such a pod, and no
        kubelet lets one end. What an operator writes, it does not take out.
        """
        now, pods = time.monotonic(), {pod["metadata"]["name"]: pod for pod in await self.objects(kinds.POD)}
        flapping = {name for name, pod in pods.items() if _lists_a_part(pod)}
        self._flapping = {name: self._flapping.get(name, now) for name in flapping}
        lasting = [name for name, since in self._flapping.items() if now - since >= FLAPPING_SECONDS]
        claims = await self.objects(self.dialect.claim) if lasting else []
        for name in lasting:
            await self.insist(functools.partial(self._write_claims, pods[name], claims))
            del self._flapping[name]
        return lasting

    async def _write_claims(self, pod: dict[str, Any], claims: Sequence[dict[str, Any]]) -> None:
        made = [claim["metadata"] for claim in claims if _owner(claim) == pod["metadata"]["uid"]]
        listed = [
            {"name": claim["annotations"][CLAIM_IN_POD], "resourceClaimName": claim["name"]} for claim in made
        ]
        with contextlib.suppress(kube_errors.NotFound):
            await self.api.patch(
                kinds.POD,
                pod["metadata"]["name"],
                {"status": {"resourceClaimStatuses": listed}},
                content=client.Patch.MERGE,
                subresource="status",
                namespace="default",
                into=dict,
            )

    async def list_connections(self) -> dict[str, str]:
        """Return by id of the device the host that the fabric has connected it to.

        Raises:
            errors.RealClusterError: the fabric does not answer.
        """
        where = contract.AdapterConfig(name=FABRIC, endpoint=self._endpoint, timeout_seconds=10)
        try:
            async with await registry.adapter_class("grpc").connect(where) as adapter:
                inventory = await adapter.devices()
        except fabric_errors.FabricError as error:
            raise errors.RealClusterError(f"the simulated fabric does not answer: {error}") from error
        return {
            device.id: device.connection.host_id
            for device in inventory.devices
            if device.connection is not None
        }

    async def list_offered_devices(self) -> list[str]:
        """Return the devices that are offered to anybody, which means published and without a taint."""
        slices = [published["spec"] for published in await self.objects(kinds.SLICE)]
        tainted = {taint["device"] for spec in slices for taint in spec.get("taints", ())}
        return sorted(
            device["name"]
            for spec in slices
            if spec["pool"]["name"].startswith(f"{FABRIC}/")
            for device in spec.get("devices", ())
            if not device.get("taints") and device["name"] not in tainted
        )

    async def list_leftovers(self) -> list[str]:
        """Return what is not as it was before the first pod, one sentence each."""
        problems = [
            f"{kind.kind} {stored['metadata']['name']} is still there"
            for kind in (kinds.POD, self.dialect.claim, kinds.ATTACHMENT)
            for stored in await self.objects(kind)
        ]
        problems += [
            f"{device} is still attached to {host}"
            for device, host in (await self.list_connections()).items()
        ]
        for name, kubelet in self.nodes.items():
            problems += [
                f"{name} has the CDI file {file.name}" for file in (kubelet.root / "cdi").glob("*.json")
            ]
            problems += [
                f"{name} has a device in slot {slot}" for slot in self.trees[name].list_attached_cards()
            ]
        return problems + await self.list_offer_problems()

    async def untrue(self) -> list[str]:
        """Return one sentence for each running pod's device that is claimed twice or is not attached."""
        names = {
            attachment["spec"]["device"]: attachment["spec"]["deviceID"]
            for attachment in await self.objects(kinds.ATTACHMENT)
        }
        pods = {pod["metadata"]["name"]: pod for pod in await self.objects(kinds.POD)}
        connected, problems, holders = await self.list_connections(), [], dict[str, str]()
        for claim in await self.objects(self.dialect.claim):
            name = claim["metadata"]["name"]
            owner = next(
                iter(reference["name"] for reference in claim["metadata"].get("ownerReferences", ())), ""
            )
            if phase(pods.get(owner)) != "Running":
                continue
            host = f"host-{pods[owner]['spec']['nodeName']}"
            for result in claim["status"]["allocation"]["devices"]["results"]:
                device = result["device"]
                if device in holders:
                    problems.append(f"claims {holders[device]} and {name} both have {device}")
                holders[device] = name
                if connected.get(names.get(device, "")) != host:
                    problems.append(f"pod {owner} runs, and its {device} is not attached to {host}")
        return problems

    def tracebacks(self) -> list[str]:
        """Return one sentence for each of our daemons that logged a traceback."""
        return [
            f"{name} logged a traceback: see {daemon.log}"
            for name, daemon in self.daemons.items()
            if daemon.log.exists() and "Traceback" in daemon.log.read_text(errors="replace")
        ]

    @property
    def _endpoint(self) -> str:
        return f"unix:{self.folder / 'f.sock'}"

    async def _start(self) -> None:
        self._add("fabric", "mock", "fabric", *self._fabric())
        account = self.plane.service_account_kubeconfig(
            self.folder / "controller.kubeconfig", f"{NAMESPACE}:drawbar-controller"
        )
        for name in CONTROLLERS:
            self._add(
                name,
                *("controller", "--kubeconfig", str(account), "--identity", name),
                *("--lease-namespace", NAMESPACE, "--http-address", "off"),
            )
        for name, kubelet in self.nodes.items():
            token = self.plane.service_account_kubeconfig(
                self.folder / f"{name}.kubeconfig", f"{NAMESPACE}:drawbar-node", node=name
            )
            self._add(
                name,
                *("node", "--node-name", name, "--kubeconfig", str(token)),
                *("--kubelet-dir", str(kubelet.root), "--cdi-dir", str(kubelet.root / "cdi")),
                *(
                    "--sysfs",
                    str(self.trees[name].root),
                    "--uevents",
                    f"unix:{self.folder / name / 'uevents'}",
                ),
            )
        for daemon in self.daemons.values():
            daemon.start()
        # A device that failed once is wanted again soon: what has failed here is not the device.
        spec = {"adapter": "grpc", "endpoint": self._endpoint, "policy": {"probationSeconds": 1}}
        await self._create(kinds.FABRIC, FABRIC, spec)
        await stages.settle(self.list_offer_problems, START_SECONDS)

    @property
    def _allocates(self) -> bool:
        """Return whether Drawbar's controller allocates, and so publishes nothing."""
        return self.dialect.context is not None

    async def list_offer_problems(self) -> list[str]:
        """Return how many devices are not offered, or that the Fabric's hosts are not mapped; empty: pods can have all."""
        if self._allocates:
            conditions = [
                condition
                for fabric in await self.objects(kinds.FABRIC)
                for condition in fabric.get("status", {}).get("conditions", ())
            ]
            mapped = any(
                (condition["type"], condition["status"]) == ("HostsMapped", "True")
                for condition in conditions
            )
            return [] if mapped else ["the Fabric's hosts are not mapped"]
        offered = len(await self.list_offered_devices())
        return [] if offered == self._devices else [f"{offered} of {self._devices} devices are offered"]

    def _fabric(self) -> tuple[str, ...]:
        hosts = [
            {"id": f"host-{name}", "name": name, "ports": SLOTS, "sysfs": str(tree.root)}
            for name, tree in self.trees.items()
        ]
        disks = [worlds.disk(number) for number in range(self._devices)]
        described = {
            "hosts": hosts,
            "enclosures": [{"id": "shelf", "devices": disks}],
            "attachSeconds": ATTACH_SECONDS,
            "detachSeconds": DETACH_SECONDS,
        }
        file = self.folder / "fabric.json"
        file.write_text(json.dumps(described))
        return (
            *("--config", str(file), "--listen", self._endpoint),
            *("--journal", str(self.journal), "--state", str(self.folder / "state")),
        )

    def _add(self, name: str, *arguments: str) -> None:
        program = str(Path(sys.executable).with_name("drawbar"))
        self.daemons[name] = processes.Component(name, [program, *arguments], self.folder / f"{name}.log")

    async def _create(self, kind: Any, name: str, spec: dict[str, Any]) -> None:
        body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}, "spec": spec}
        namespace = "default" if kind.namespaced else None

        async def create() -> None:
            # The answer to an earlier try may have been lost.
            with contextlib.suppress(kube_errors.AlreadyExists):
                await self.api.create(kind, body, namespace=namespace, into=dict)

        await self.insist(create)


def _lists_a_part(pod: dict[str, Any]) -> bool:
    shown = pod.get("status", {}).get("resourceClaimStatuses") or ()
    return 0 < len(shown) < len(pod["spec"].get("resourceClaims") or ())


def _owner(claim: dict[str, Any]) -> str:
    owners = claim["metadata"].get("ownerReferences") or ()
    return next((str(owner["uid"]) for owner in owners if owner.get("controller")), "")


def phase(pod: dict[str, Any] | None) -> str:
    """Return a pod's phase; empty for no pod, or for one that is being deleted."""
    if pod is None or "deletionTimestamp" in pod["metadata"]:
        return ""
    return str(pod.get("status", {}).get("phase", ""))
