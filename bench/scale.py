"""The controller in a large cluster: memory, how long it takes to come to rest, and what it costs at rest.

5,000 nodes, a fabric of 10,000 devices with a host per node, and 10,000 allocated claims: half of them have a fabric
device, which is attached, and half a device of the nodes' own pools, which is none of the controller's business. API
server double and controller are processes of their own; the fabric, over gRPC, and this measurement share a third.

The controller is started twice. At first nothing is published and no node has its label, so all of that has to be
written; then everything stands already, as after an update of the controller. It has come to rest once the Fabric's
status is right, the labels and pools are there, and it has used less than 5 % of a core for three seconds. At rest
every node's status changes once in five minutes, as kubelets do it.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import apiserver
import msgspec
import report
import world

from drawbar.driver.api import attachments, bindings
from drawbar.driver.kube import client, config, kinds
from drawbar.fabric import contract
from drawbar.fabric.grpc import server as fabric_server
from drawbar.mocks.cluster import deployment
from drawbar.mocks.fabric import configuration
from drawbar.mocks.fabric.simulation import SimulatedFabric
from drawbar.mocks.testing import worlds

Json = dict[str, Any]
DRIVER = "drawbar.dev"
FABRIC = "rack"
NODES, DEVICES, CLAIMS = 5_000, 10_000, 10_000
LOADERS = 8
CALM_SECONDS = 3.0
CALM_SHARE = 0.05
PATIENCE_SECONDS = 300.0
HEARTBEAT_SECONDS = 300.0
ATTACHMENTS_PATH = "/apis/drawbar.dev/v1alpha1/deviceattachments"


def fabric_of(devices: int, nodes: int) -> configuration.Configuration:
    """Return a fabric of enclosures of 64 devices each, with a host per node."""
    described = [
        configuration.DeviceSpec(
            id=device_id(number),
            device_class=contract.DeviceClass.GPU,
            model="H200",
            vendor="NVIDIA",
            memory_bytes=141 << 30,
            serial=f"48-b0-2d-00-00-00-{number // 256:02x}-{number % 256:02x}",
        )
        for number in range(devices)
    ]
    return world.fabric([node_name(number) for number in range(nodes)], described)


def device_id(number: int) -> str:
    """Return the id of a device of the fabric, which is a DNS label already."""
    return f"gpu-{number:05}"


def node_name(number: int) -> str:
    """Return the name of a node, which is also its host's name."""
    return f"node-{number:05}"


def status(number: int, *, attached: bool, nodes: int) -> Json:
    """Return the status of an allocated claim, with the conditions of its fabric device if it has one."""
    node = node_name(number % nodes)
    pool = f"{FABRIC}/chassis-{number // world.POOL_DEVICES}" if attached else node
    device = device_id(number) if attached else f"gpu-{number // nodes}"
    where = {"driver": DRIVER, "pool": pool, "device": device}
    result: Json = {"request": "gpu", **where}
    if attached:
        result = worlds.result(pool, device, request="gpu")
    user = {"resource": "pods", "name": f"pod-{number}", "uid": f"00000000-0000-4000-8000-{number:012}"}
    written: Json = {"allocation": worlds.allocation(node, result, at=world.STAMP), "reservedFor": [user]}
    if attached:
        reported = [_condition(kind, node) for kind in bindings.binding_conditions(DRIVER)]
        written["devices"] = [{**where, "conditions": reported}]
    return written


def attachment(number: int, uid: str, nodes: int) -> tuple[Json, Json]:
    """Return an attachment of a device in use, and the attachment's status."""
    node = node_name(number % nodes)
    spec = attachments.AttachmentSpec(
        fabric=FABRIC,
        device_id=device_id(number),
        driver=DRIVER,
        pool=f"{FABRIC}/chassis-{number // world.POOL_DEVICES}",
        device=device_id(number),
        node_name=node,
        host_id=f"host-{number % nodes}",
        identity=attachments.Identity(device_class="gpu", serial=f"serial-{number}"),
        model="H200",
        claim=attachments.ClaimReference(
            namespace="default", name=world.claim_name(number), uid=uid, requests=("gpu",), devices=1
        ),
        allocation_timestamp=world.STAMP,
    )
    metadata = {
        "name": attachments.name(FABRIC, device_id(number)),
        "labels": {attachments.NODE_LABEL: attachments.node_label(node)},
        "finalizers": [attachments.FINALIZER],
    }
    head = {"apiVersion": attachments.API_VERSION, "kind": attachments.KIND, "metadata": metadata}
    report_of_node = {
        "pciAddress": "0000:41:00.0",
        "kernelDriver": "nvidia",
        "health": "Healthy",
        "claimUID": uid,
    }
    done = {
        "phase": "Ready",
        "conditions": [_condition(kind, node) for kind in (attachments.ATTACHED, attachments.VISIBLE)],
        "connection": {"port": "1", "slot": "1"},
        "node": {**report_of_node, "allocationTimestamp": world.STAMP},
    }
    return {**head, "spec": msgspec.to_builtins(spec)}, done


def _condition(kind: str, node: str) -> Json:
    message = f"connected to the host of {node}, fabric {FABRIC}, port 1"
    stamps = {"lastTransitionTime": world.STAMP}
    return {"type": kind, "status": "True", "reason": "DeviceReady", "message": message, **stamps}


async def load(api: apiserver.Api, options: argparse.Namespace) -> None:
    """Create nodes, claims and attachments, several at a time."""

    async def node(item: Json) -> None:
        await api.send("POST", world.NODES_PATH, item)

    async def claim(number: int) -> None:
        item = next(world.claims(1)) | {"metadata": {"name": world.claim_name(number)}}
        stored = msgspec.json.decode(await api.send("POST", world.CLAIMS_PATH, item))
        attached = number < options.claims // 2
        stored["status"] = status(number, attached=attached, nodes=options.nodes)
        await api.send("PUT", f"{world.CLAIMS_PATH}/{world.claim_name(number)}/status", stored)
        if attached:
            body, done = attachment(number, stored["metadata"]["uid"], options.nodes)
            made = msgspec.json.decode(await api.send("POST", ATTACHMENTS_PATH, body))
            path = f"{ATTACHMENTS_PATH}/{body['metadata']['name']}/status"
            await api.send("PUT", path, made | {"status": done})

    await _all_of(node(item) for item in world.nodes(options.nodes))
    await _all_of(claim(number) for number in range(options.claims))


async def _all_of(jobs: Iterable[Awaitable[None]]) -> None:
    line: Iterator[Awaitable[None]] = iter(jobs)

    async def work() -> None:
        for job in line:
            await job

    async with asyncio.TaskGroup() as group:
        for _ in range(LOADERS):
            group.create_task(work())


async def rest(pid: int, is_done: Callable[[], Awaitable[bool]]) -> float:
    """Wait until all is done and the process has been calm for a while; return the seconds until the calm began.

    Raises:
        SystemExit: it does not come to rest.
    """
    began = time.monotonic()
    since, used = began, report.processor_seconds(pid)
    while time.monotonic() - began < PATIENCE_SECONDS:
        await asyncio.sleep(0.25)
        now, fresh = time.monotonic(), report.processor_seconds(pid)
        if fresh - used > CALM_SHARE * CALM_SECONDS:
            since, used = now, fresh
        elif now - since >= CALM_SECONDS:
            if await is_done():
                return since - began
            since, used = now, fresh
    raise SystemExit(f"the controller did not come to rest within {PATIENCE_SECONDS:.0f} s")


def _build_done_check(api: client.Client, options: argparse.Namespace) -> Callable[[], Awaitable[bool]]:
    async def is_done() -> bool:
        rack = await api.read(kinds.FABRIC, FABRIC, into=Json)
        slices = await api.list_all(kinds.SLICE, into=Json, fields=f"spec.driver={DRIVER}")
        labelled = await api.list_all(kinds.NODE, into=Json, labels=f"fabric.drawbar.dev/{FABRIC}=true")
        published = sum(len(listed["spec"]["devices"]) for listed in slices.items)
        state = rack.get("status", {})
        attached, devices = state.get("attached"), state.get("devices")
        return (attached, devices, published, len(labelled.items)) == (
            options.claims // 2,
            options.devices,
            options.devices,
            options.nodes,
        )

    return is_done


async def heartbeats(api: apiserver.Api, nodes: int) -> None:
    """Report the nodes as ready one after another, as kubelets do."""
    for number in range(1_000_000_000):
        stamp = {
            "type": "Ready",
            "status": "True",
            "lastHeartbeatTime": f"2026-01-02T00:00:{number % 60:02}Z",
        }
        body = {"status": {"conditions": [stamp]}}
        path = f"{world.NODES_PATH}/{node_name(number % nodes)}/status"
        await api.send("PATCH", path, body, "application/strategic-merge-patch+json")
        await asyncio.sleep(HEARTBEAT_SECONDS / nodes)


async def at_rest(pid: int, api: apiserver.Api, options: argparse.Namespace) -> float:
    """Measure the controller's share of a core while the kubelets report, in percent."""
    async with asyncio.TaskGroup() as group:
        beats = group.create_task(heartbeats(api, options.nodes), name="heartbeats")
        used, began = report.processor_seconds(pid), time.monotonic()
        await asyncio.sleep(options.seconds)
        share = (report.processor_seconds(pid) - used) / (time.monotonic() - began)
        beats.cancel()
    return 100 * share


async def measure(options: argparse.Namespace) -> list[report.Measure]:
    """Measure everything in one run."""
    with tempfile.TemporaryDirectory(prefix="drawbar-bench-") as name:
        folder = Path(name)
        endpoint = f"unix:{folder / 'fabric.sock'}"
        kubeconfig, log = folder / "drawbar-controller.kubeconfig", folder / "log"
        account = ("--service-account", "drawbar:drawbar-controller")
        async with (
            apiserver.server(folder, *account) as (_, url, token),
            aiohttp.ClientSession() as session,
            SimulatedFabric.running(fabric_of(options.devices, options.nodes)) as fabric,
            fabric_server.serving(fabric, endpoint, name="bench", version="1"),
            client.connecting(config.from_kubeconfig(folder / "admin.kubeconfig")) as admin,
        ):
            api = apiserver.Api(session, url, token)
            await deployment.apply(admin)
            await load(api, options)
            for number in range(options.claims // 2):
                host = f"host-{number % options.nodes}"
                await fabric.attach(
                    contract.AttachRequest(
                        request_id=f"r-{number}", device_id=device_id(number), host_id=host
                    )
                )
            limits = {"devices": 16_384, "hosts": 8_192, "slices": 512}
            spec = {"adapter": "grpc", "endpoint": endpoint, "policy": {"limits": limits}}
            rack = {"apiVersion": kinds.FABRIC.api_version, "kind": "Fabric", "metadata": {"name": FABRIC}}
            await admin.create(kinds.FABRIC, rack | {"spec": spec}, into=Json)
            is_done = _build_done_check(admin, options)
            async with world.controller(kubeconfig, log) as pid:
                first = await rest(pid, is_done)
                peak = report.memory(pid)["VmHWM"]
            async with world.controller(kubeconfig, log) as pid:
                again = await rest(pid, is_done)
                share = await at_rest(pid, api, options)
                sizes = report.memory(pid)
    return [
        _measure("start to rest, everything to be written", first, "s", 60, goal=10),
        _measure("start to rest, everything written already", again, "s", 60, goal=10),
        _measure("memory at rest", sizes["VmRSS"], "MB", 256, goal=160),
        _measure("memory at its largest", max(peak, sizes["VmHWM"]), "MB", 256),
        _measure("processor at rest", share, "% of a core", 2, goal=0.5),
    ]


def _measure(
    name: str, value: float, unit: str, target: float, *, goal: float | None = None
) -> report.Measure:
    return report.Measure(f"scale: {name}", value, unit, target=target, goal=goal)


def main() -> int:
    """Run it; 1 if a target is missed."""
    parser = argparse.ArgumentParser(description="benchmark of the controller in a large cluster")
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--devices", type=int, default=DEVICES)
    parser.add_argument(
        "--claims", type=int, default=CLAIMS, help="half of them have an attached fabric device"
    )
    parser.add_argument("--seconds", type=float, default=60, help="how long to look on at rest")
    parser.add_argument("--output", type=Path, default=report.LATEST, help="the JSON file to merge into")
    options = parser.parse_args()
    where = report.machine()
    title = (
        f"Scale: {options.nodes} nodes, {options.devices} fabric devices, {options.claims} allocated claims, "
        f"{options.claims // 2} devices attached"
    )
    return 0 if report.publish(title, asyncio.run(measure(options)), where=where, path=options.output) else 1


if __name__ == "__main__":
    sys.exit(main())
