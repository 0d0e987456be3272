"""The control plane of the cluster: our controller on the QEMU fabric, and doubles of scheduler and claim controller.

The guest is a host of the fabric, and the lab's disks are its pool: what the controller does reaches a real kernel.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from drawbar.driver.controller import daemon, settings
from drawbar.driver.kube import config, kinds
from drawbar.fabric import contract
from drawbar.fabric.grpc import server as fabric_server
from drawbar.fabric.qemu import adapter as qemu
from drawbar.mocks import claims, eviction, scheduler
from lab import polling, worker

FABRIC = "qemu"
ENCLOSURE = "shelf"
IMAGE_BYTES = 32 << 20


class Plane:
    """A cluster that gives out a pool of disks. Make it with `giving_out`."""

    def __init__(self, node: worker.Worker) -> None:
        self.node, self.cluster = node, node.cluster

    async def pod(self, name: str) -> None:
        """Makes a pod with a claim to one disk; the scheduler does the rest."""
        spec = {
            "devices": {"requests": [{"name": "disk", "exactly": {"deviceClassName": "nvme.drawbar.dev"}}]}
        }
        await self.cluster.create(kinds.CLAIM_TEMPLATE, name, spec={"spec": spec})
        container = {"name": "main", "image": "none", "resources": {"claims": [{"name": "disk"}]}}
        uses = [{"name": "disk", "resourceClaimTemplateName": name}]
        await self.cluster.create(kinds.POD, name, spec={"containers": [container], "resourceClaims": uses})

    async def devices(self) -> dict[str, dict[str, Any]]:
        """The published devices of the pool by name."""
        listing = await self.cluster.api.list_all(kinds.SLICE, into=dict)
        slices = [
            one["spec"] for one in listing.items if one["spec"]["pool"]["name"].startswith(f"{FABRIC}/")
        ]
        return {device["name"]: device for spec in slices for device in spec.get("devices", ())}

    async def taints(self, device: str) -> set[str]:
        """The taints of a device, as `key=value:effect`."""
        found = (await self.devices()).get(device, {}).get("taints", ())
        return {f"{one['key'].partition('/')[2]}={one.get('value', '')}:{one['effect']}" for one in found}

    async def attachments(self) -> dict[str, dict[str, Any]]:
        """The DeviceAttachments by device."""
        listing = await self.cluster.api.list_all(kinds.ATTACHMENT, into=dict)
        return {one["spec"]["device"]: one for one in listing.items}


def _describe(node: worker.Worker, folder: Path, disks: int) -> Path:
    """Makes the disks, and writes what the adapter reads."""
    devices = []
    for number in range(disks):
        image = folder / f"pool-{number}.img"
        with image.open("wb") as file:
            file.write(f"pooled disk {number}\n".encode())
            file.truncate(IMAGE_BYTES)
        serial = f"POOL{number:04}"
        about = {"id": f"pool-{number}", "enclosure": ENCLOSURE, "model": "lab"}
        devices.append({"driver": "nvme", "serial": serial, "file": str(image)} | about)
    machine = node.guest.machine
    host = {"id": machine.name, "qmp": str(node.guest.places.fabric), "ports": list(machine.port_names)}
    path = folder / "fabric.json"
    path.write_text(json.dumps({"hosts": [host], "devices": devices}))
    return path


@contextlib.asynccontextmanager
async def giving_out(node: worker.Worker, folder: Path, *, disks: int = 2) -> AsyncIterator[Plane]:
    """A pool of disks that is published for a node."""
    described = await asyncio.to_thread(_describe, node, folder, disks)
    server = node.cluster.server
    connection = config.from_kubeconfig(server.kubeconfig(folder / "plane.kubeconfig", "admin"))
    account = server.kubeconfig(folder / "controller.kubeconfig", "drawbar:drawbar-controller")
    adapter = await qemu.QemuAdapter.connect(
        contract.AdapterConfig(name=FABRIC, endpoint=f"file:{described}")
    )
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(adapter.close)
        enter = stack.enter_async_context
        endpoint = f"unix:{folder / 'fabric.sock'}"
        await enter(fabric_server.serving(adapter, endpoint, name="qemu", version="1"))
        await enter(claims.serving(connection))
        await enter(eviction.serving(connection, eviction.Settings(status_seconds=0.5)))
        await enter(scheduler.serving(connection, scheduler.Settings(poll_seconds=0.5)))
        options = settings.Settings(
            kubeconfig=str(account), leader_election=False, http=settings.Http(address="off")
        )
        controller = asyncio.Task(daemon.run(options), name="controller")
        stack.push_async_callback(_stopped, controller)
        policy = {"probationSeconds": 0}
        spec = {"adapter": "grpc", "endpoint": endpoint, "policy": policy}
        await node.cluster.create(kinds.FABRIC, FABRIC, spec=spec)
        plane = Plane(node)
        await polling.until(plane.devices, lambda found: len(found) == disks)
        try:
            yield plane
        finally:
            await node.cluster.api.delete(kinds.FABRIC, FABRIC)
            await polling.until(plane.devices, lambda found: not found)


async def _stopped(task: "asyncio.Task[None]") -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
