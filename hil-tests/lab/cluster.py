"""The rest of the cluster as tests play it: scheduler and controller by hand, on the API server double.

    claim = await cluster.claim("c1", disk, node="worker-1")      # allocated, as the scheduler does it
    await cluster.attach(claim, disk, ...)                        # the intent, and that the fabric has connected it

What the two daemons write to each other is what `docs/architecture.md` says.
"""

import contextlib
import datetime
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drawbar.driver.kube import client, config, errors, kinds
from drawbar.mocks import apiserver
from drawbar.mocks.cluster import deployment
from drawbar.mocks.testing import worlds
from lab import waiting

DRIVER = "drawbar.dev"
FABRIC = "lab"
POOL = "lab/chassis"
CONTROLLER = "drawbar-controller"
DEADLINE_SECONDS = waiting.DEADLINE_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device as its fabric describes it.

    Attributes:
        device: its DRA name.
        device_class: as in `drawbar.fabric.contract.DeviceClass`.
        slot: the hot-plug slot that the fabric connects it to; empty where it does not know.
        sole_arrival: its node can read no identifier of it, so it is the only card of its model that arrives.
    """

    device: str
    device_class: str = "nvme"
    serial: str = ""
    pci_id: str = ""
    slot: str = ""
    sole_arrival: bool = False

    @property
    def attachment(self) -> str:
        """Return the name of its DeviceAttachment."""
        return f"{FABRIC}.{self.device}"


class Cluster:
    """An API server with the deployed files, and what a test does with it."""

    def __init__(self, server: apiserver.ApiServer, api: client.Client, folder: Path) -> None:
        self.server, self.api, self._folder = server, api, folder

    @classmethod
    @contextlib.asynccontextmanager
    async def running(cls, folder: Path) -> AsyncIterator["Cluster"]:
        """Yield a cluster without nodes; its kubeconfigs go to the folder."""
        async with apiserver.serving() as server:
            connection = config.from_kubeconfig(server.kubeconfig(folder / "admin.kubeconfig", "admin"))
            async with client.connecting(connection) as api:
                await deployment.apply(api, policies=True)
                yield cls(server, api, folder)

    @property
    def port(self) -> int:
        """Return the API server's port on 127.0.0.1."""
        return int(self.server.url.rpartition(":")[2])

    def kubeconfig(self, name: str, *account: str, **more: Any) -> str:
        """Write a kubeconfig of an account, and return its text."""
        return self.server.kubeconfig(self._folder / f"{name}.kubeconfig", *account, **more).read_text()

    async def create(self, kind: kinds.Kind, name: str, **content: Any) -> dict[str, Any]:
        """Create an object, in the default namespace if it has one."""
        content["metadata"] = {"name": name} | content.pop("metadata", {})
        body = {"apiVersion": kind.api_version, "kind": kind.kind} | content
        return await self.api.create(kind, body, namespace=_namespace(kind), into=dict)

    async def read(self, kind: kinds.Kind, name: str) -> dict[str, Any] | None:
        """Read an object; return None where there is none."""
        try:
            return await self.api.read(kind, name, namespace=_namespace(kind), into=dict)
        except errors.NotFound:
            return None

    async def merge(
        self, kind: kinds.Kind, name: str, body: dict[str, Any], subresource: str | None = None
    ) -> None:
        """Change an object by a merge patch."""
        await self.api.patch(
            kind,
            name,
            body,
            content=client.Patch.MERGE,
            into=dict,
            namespace=_namespace(kind),
            subresource=subresource,
        )

    # -- the scheduler

    async def claim(self, name: str, *devices: Device, node: str) -> dict[str, Any]:
        """Create a claim to which these devices on a node are allocated, and return it."""
        requests = [
            {"name": f"r{number}", "exactly": {"deviceClassName": "any"}} for number in range(len(devices))
        ]
        claim = await self.create(kinds.CLAIM, name, spec={"devices": {"requests": requests}})
        results = [
            worlds.result(POOL, device.device, request=request["name"])
            for request, device in zip(requests, devices, strict=True)
        ]
        allocation = worlds.allocation(node, *results, at=_now())
        await self.merge(kinds.CLAIM, name, {"status": {"allocation": allocation}}, "status")
        stored = await self.read(kinds.CLAIM, name)
        assert stored is not None, claim
        return stored

    async def deallocate(self, name: str) -> None:
        """Take a claim's devices away from it, and delete the claim."""
        await self.merge(kinds.CLAIM, name, {"status": {"allocation": None, "reservedFor": None}}, "status")
        await self.api.delete(kinds.CLAIM, name, namespace="default")

    async def pod(self, name: str, *claims: str, node: str) -> dict[str, Any]:
        """Create a pod that is bound to a node, with its claims reserved for it, and return it."""
        container = {
            "name": "main",
            "image": "none",
            "resources": {"claims": [{"name": claim} for claim in claims]},
        }
        uses = [{"name": claim, "resourceClaimName": claim} for claim in claims]
        spec = {"nodeName": node, "containers": [container], "resourceClaims": uses}
        pod = await self.create(kinds.POD, name, spec=spec)
        consumer = {"resource": "pods", "name": name, "uid": pod["metadata"]["uid"]}
        for claim in claims:
            await self.merge(kinds.CLAIM, claim, {"status": {"reservedFor": [consumer]}}, "status")
        return pod

    async def running_pod(self, name: str, seconds: float = DEADLINE_SECONDS) -> dict[str, Any]:
        """Wait until the pod runs, and return it."""
        pod = await waiting.until(
            lambda: self.read(kinds.POD, name),
            lambda value: value is not None and value.get("status", {}).get("phase") == "Running",
            seconds,
        )
        assert pod is not None
        return pod

    async def end_pod(self, name: str, seconds: float = DEADLINE_SECONDS) -> None:
        """Delete a pod, and return when its node has let go of it."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 1}
        await self.api.request("DELETE", kinds.POD.path(namespace="default", name=name), body=body)
        await waiting.until(lambda: self.read(kinds.POD, name), lambda value: value is None, seconds)

    # -- the controller

    async def intend(
        self,
        claim: dict[str, Any] | None,
        device: Device,
        *,
        node: str,
        memory_mode: str = "",
        erase: bool = False,
        set_up: Mapping[str, object] | None = None,
        composite: Mapping[str, object] | None = None,
    ) -> None:
        """Create the DeviceAttachment that says that a device is to be on a node.

        Args:
            claim: None for by hand.
            device: which.
            node: the Node's name.
            memory_mode: what the claim makes of its memory.
            erase: its data are erased at the end; else they are kept, for devices of hardware are tested with.
            set_up: `initialise`, `cleanUp`, `virtualFunctions` and the like of its claim.
            composite: what it is attached as a member of; None for the device itself.
        """
        spec: dict[str, Any] = {
            "fabric": FABRIC,
            "deviceID": device.device,
            "driver": DRIVER,
            "pool": POOL,
            "device": device.device,
            "nodeName": node,
            "hostID": node,
            "identity": {
                **_without_empty(
                    deviceClass=device.device_class,
                    serial=device.serial,
                    pciID=device.pci_id,
                    slot=device.slot,
                ),
                "soleArrival": device.sole_arrival,
            },
        }
        if not erase:
            spec["clean"] = "reset"
        if composite is not None:
            spec["composite"] = composite
        if claim is not None:
            spec["claim"] = {
                "namespace": "default",
                "name": claim["metadata"]["name"],
                "uid": claim["metadata"]["uid"],
                **_without_empty(memoryMode=memory_mode),
                **(set_up or {}),
            }
            spec["allocationTimestamp"] = claim["status"]["allocation"]["allocationTimestamp"]
        labels = {"drawbar.dev/node": node}
        metadata = {"labels": labels, "finalizers": ["drawbar.dev/detach"]}
        await self.create(kinds.ATTACHMENT, device.attachment, metadata=metadata, spec=spec)

    async def say_attached(self, device: Device, *, port: str = "") -> None:
        """Report that the fabric has connected the device, as the controller does."""
        attached = {
            "type": "Attached",
            "status": "True",
            "reason": "Attached",
            "message": "",
            "lastTransitionTime": _now(),
        }
        connection = {"port": port, "slot": device.slot}
        await worlds.apply_status(
            self.api, device.attachment, CONTROLLER, conditions=[attached], connection=connection
        )

    async def attachment(self, device: Device) -> dict[str, Any]:
        """Return the DeviceAttachment; empty where there is none."""
        return await self.read(kinds.ATTACHMENT, device.attachment) or {}

    async def condition(self, device: Device, kind: str) -> dict[str, Any]:
        """Return a condition of the attachment; empty where it is not there."""
        listed = (await self.attachment(device)).get("status", {}).get("conditions", ())
        return next((condition for condition in listed if condition["type"] == kind), {})

    async def visible(self, device: Device, seconds: float = DEADLINE_SECONDS) -> dict[str, Any]:
        """Wait until the node shows the device, and return what the node says of it."""
        await waiting.until(
            lambda: self.condition(device, "Visible"),
            lambda condition: condition.get("status") == "True",
            seconds,
        )
        return (await self.attachment(device))["status"]["node"]

    async def begin_release(self, device: Device) -> None:
        """Delete the DeviceAttachment, which asks the node to let go of the device."""
        await self.api.delete(kinds.ATTACHMENT, device.attachment)

    async def wait_until_released(self, device: Device, seconds: float = DEADLINE_SECONDS) -> None:
        """Wait until the node has let go of the device."""
        await waiting.until(
            lambda: self.condition(device, "Released"),
            lambda condition: condition.get("status") == "True",
            seconds,
        )

    async def end_release(self, device: Device) -> None:
        """Remove the finalizer, as once the fabric reports the device as free; wait until the object is gone."""
        await self.merge(kinds.ATTACHMENT, device.attachment, {"metadata": {"finalizers": None}})
        await waiting.until(lambda: self.attachment(device), lambda attachment: not attachment)

    async def claim_condition(self, claim: str, kind: str) -> str | None:
        """Return the status of a condition of the claim's first device that has it; None without one."""
        stored = await self.read(kinds.CLAIM, claim) or {}
        for device in stored.get("status", {}).get("devices", ()):
            for condition in device.get("conditions", ()):
                if condition["type"] == f"{DRIVER}/{kind}":
                    return condition["status"]
        return None


def _namespace(kind: kinds.Kind) -> str | None:
    return "default" if kind.namespaced else None


def _without_empty(**values: str) -> dict[str, str]:
    return {key: value for key, value in values.items() if value}


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
