"""The control plane of the cluster: our controller on the QEMU fabric, and doubles of scheduler and claim controller.

The guest is a host of the fabric, and the lab's devices are its pool: what the controller does reaches a real kernel.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from drawbar.driver.controller import daemon, settings
from drawbar.driver.kube import config, kinds
from drawbar.fabric import contract
from drawbar.fabric.grpc import server as fabric_server
from drawbar.fabric.qemu import adapter as qemu
from drawbar.mocks import claims, eviction, scheduler
from lab import slotless, waiting, worker

FABRIC = "qemu"
ENCLOSURE = "shelf"
IMAGE_BYTES = 32 << 20
REGION_BYTES = 1 << 20


class Plane:
    """A cluster that gives out a pool of disks or accelerators. Make it with `giving_out`.

    Attributes:
        adapter: the fabric.
        images: the files of the disks by serial number.
    """

    def __init__(self, node: worker.Worker, adapter: contract.FabricAdapter, images: dict[str, Path]) -> None:
        self.node, self.cluster = node, node.cluster
        self.adapter, self.images = adapter, images

    async def pod(self, name: str, *, node: str | None = None, device_class: str = "nvme") -> None:
        """Make a pod with a claim to one device, for that node if one is named; the scheduler does the rest."""
        wanted = {"deviceClassName": f"{device_class}.drawbar.dev"}
        spec = {"devices": {"requests": [{"name": "device", "exactly": wanted}]}}
        await self.cluster.create(kinds.CLAIM_TEMPLATE, name, spec={"spec": spec})
        container = {"name": "main", "image": "none", "resources": {"claims": [{"name": "device"}]}}
        uses = [{"name": "device", "resourceClaimTemplateName": name}]
        chosen = {} if node is None else {"nodeSelector": {"kubernetes.io/hostname": node}}
        await self.cluster.create(
            kinds.POD, name, spec={"containers": [container], "resourceClaims": uses} | chosen
        )

    async def devices(self) -> dict[str, dict[str, Any]]:
        """Return the published devices of the pool by name."""
        listing = await self.cluster.api.list_all(kinds.SLICE, into=dict)
        slices = [
            published["spec"]
            for published in listing.items
            if published["spec"]["pool"]["name"].startswith(f"{FABRIC}/")
        ]
        return {device["name"]: device for spec in slices for device in spec.get("devices", ())}

    async def taints(self, device: str) -> set[str]:
        """Return the taints of a device, as `key=value:effect`."""
        taints = (await self.devices()).get(device, {}).get("taints", ())
        return {
            f"{taint['key'].partition('/')[2]}={taint.get('value', '')}:{taint['effect']}" for taint in taints
        }

    async def attachments(self) -> dict[str, dict[str, Any]]:
        """Return the DeviceAttachments by device."""
        listing = await self.cluster.api.list_all(kinds.ATTACHMENT, into=dict)
        return {attachment["spec"]["device"]: attachment for attachment in listing.items}


def first_line(image: Path) -> str:
    """Return the line that a disk begins with."""
    with image.open("rb") as file:
        return file.readline(IMAGE_BYTES).decode(errors="replace")


def _describe(
    nodes: Sequence[worker.Worker], folder: Path, images: dict[str, Path], regions: Sequence[Path]
) -> Path:
    """Make the devices, and write what the adapter reads."""
    devices = []
    for number, (serial, image) in enumerate(images.items()):
        _write(image, f"pooled disk {number}", IMAGE_BYTES)
        about = {"id": f"pool-{number}", "enclosure": ENCLOSURE, "model": "lab"}
        devices.append({"driver": "nvme", "serial": serial, "file": str(image)} | about)
    for number, region in enumerate(regions):
        _write(region, f"twin-{number}", REGION_BYTES)
        about = {"id": f"twin-{number}", "enclosure": ENCLOSURE, "model": "twin"}
        devices.append({"driver": "ivshmem-plain", "file": str(region)} | about)
    hosts = [
        {"id": node.name, "qmp": str(node.guest.paths.fabric), "ports": list(node.guest.machine.port_names)}
        for node in nodes
    ]
    path = folder / "fabric.json"
    path.write_text(json.dumps({"hosts": hosts, "devices": devices}))
    return path


def _write(path: Path, line: str, size_bytes: int) -> None:
    with path.open("wb") as file:
        file.write(f"{line}\n".encode())
        file.truncate(size_bytes)


@contextlib.asynccontextmanager
async def giving_out(
    node: worker.Worker,
    folder: Path,
    *,
    other_nodes: Sequence[worker.Worker] = (),
    disks: int = 2,
    twins: int = 0,
    names_slots: bool = True,
    withdrawn: bool = True,
) -> AsyncIterator[Plane]:
    """Publish a pool of devices for a node, or for several of one cluster, and yield the cluster's `Plane`.

    Args:
        node: the host of the fabric.
        other_nodes: further hosts.
        folder: of the disks, sockets and kubeconfigs.
        disks: how many.
        twins: how many accelerators without an identifier, all alike; the memory of each begins with its name.
        names_slots: the fabric names the slots of the nodes' ports.
        withdrawn: in the end the pool is withdrawn, which takes until all is given back; without it the cluster is
            left as it is, for who ends it anyway.
    """
    images = {f"POOL{number:04}": folder / f"pool-{number}.img" for number in range(disks)}
    regions = [folder / f"twin-{number}.region" for number in range(twins)]
    described = await asyncio.to_thread(_describe, (node, *other_nodes), folder, images, regions)
    server = node.cluster.server
    connection = config.from_kubeconfig(server.kubeconfig(folder / "plane.kubeconfig", "admin"))
    account = server.kubeconfig(folder / "controller.kubeconfig", "drawbar:drawbar-controller")
    adapter: contract.FabricAdapter = await qemu.QemuAdapter.connect(
        contract.AdapterConfig(name=FABRIC, endpoint=f"file:{described}")
    )
    if not names_slots:
        adapter = slotless.SlotlessAdapter(adapter)
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
        stack.push_async_callback(_cancel_task, controller)
        policy = {"probationSeconds": 0}
        spec = {"adapter": "grpc", "endpoint": endpoint, "policy": policy}
        await node.cluster.create(kinds.FABRIC, FABRIC, spec=spec)
        plane = Plane(node, adapter, images)
        await waiting.until(plane.devices, lambda devices: len(devices) == disks + twins)
        try:
            yield plane
        finally:
            if withdrawn:
                await node.cluster.api.delete(kinds.FABRIC, FABRIC)
                await waiting.until(plane.devices, lambda devices: not devices)


async def _cancel_task(task: "asyncio.Task[None]") -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
