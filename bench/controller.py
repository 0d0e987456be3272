"""The controller under load: what it adds to an attach, and what an attach and detach costs it.

The real `drawbar controller` runs as a process of its own; the API server double, a simulated fabric without latency
and the load run in this one. The load allocates claims as a scheduler does and reports releases as a node daemon does,
so the numbers are the controller's share: from the allocation to `attached` on the claim, without the node's half.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import report
import world

from drawbar.driver.api import attachments, bindings, claims, meta, slices
from drawbar.driver.kube import client, config, kinds, mirror
from drawbar.fabric import contract
from drawbar.fabric.grpc import server as fabric_server
from drawbar.mocks import apiserver
from drawbar.mocks.cluster import deployment
from drawbar.mocks.fabric import configuration
from drawbar.mocks.fabric.simulation import SimulatedFabric
from drawbar.mocks.testing import worlds

DRIVER = "drawbar.dev"
FABRIC = "rack"
NODES = tuple(f"node-{number}" for number in range(8))
# Of what is asked: the last cycles end after the last was begun.
IN_TIME = 0.99
CONTROLLER = "system:serviceaccount:drawbar:drawbar-controller"


@dataclass(slots=True)
class Load:
    """Devices that are free, claims on their way, and what was seen of them."""

    api: client.Client
    free: asyncio.Queue[tuple[str, str]] = field(default_factory=asyncio.Queue)
    allocated: dict[str, float] = field(default_factory=dict)
    latencies: list[float] = field(default_factory=list)
    finished: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    attached: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    releasing: asyncio.Queue[str] = field(default_factory=asyncio.Queue)

    def claim_changed(self, _old: object, new: claims.ResourceClaim | None) -> None:
        """Record the moment at which a claim reports its device as attached."""
        name = new.metadata.name if new is not None else ""
        if new is None or name not in self.allocated:
            return
        kind = bindings.condition_type(DRIVER, bindings.ATTACHED)
        if any(meta.is_true(device.conditions, kind) for device in new.status.devices):
            self.latencies.append(time.perf_counter() - self.allocated.pop(name))
            self.attached.put_nowait(name)

    def attachment_changed(
        self, old: attachments.DeviceAttachment | None, new: attachments.DeviceAttachment | None
    ) -> None:
        """Queue a deleted attachment for its release once; count a finished one and free its device."""
        if new is None:
            assert old is not None
            self.finished += 1
            self.free.put_nowait((old.spec.pool, old.spec.device))
            self.changed.set()
        elif new.deleting and not (old is not None and old.deleting):
            self.releasing.put_nowait(new.metadata.name)

    async def allocate(self, number: int) -> None:
        """Allocate a free device to a new claim, as a scheduler does."""
        pool, device = await self.free.get()
        name, node = f"claim-{number}", NODES[number % len(NODES)]
        request = {"name": "r", "exactly": {"deviceClassName": "any"}}
        body: dict[str, Any] = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name},
            "spec": {"devices": {"requests": [request]}},
        }
        claim = await self.api.create(kinds.CLAIM, body, namespace="default", into=dict[str, Any])
        now = meta.timestamp(datetime.datetime.now(datetime.UTC))
        claim["status"] = {"allocation": worlds.allocation(node, worlds.result(pool, device), at=now)}
        self.allocated[name] = time.perf_counter()
        await self.api.replace(
            kinds.CLAIM, name, claim, namespace="default", subresource="status", into=dict[str, Any]
        )

    async def delete_attached(self) -> None:
        """Delete each claim as soon as its device is attached, as if its pod ended then."""
        while True:
            await self.api.delete(kinds.CLAIM, await self.attached.get(), namespace="default")

    async def release(self) -> None:
        """Report devices as released, as a node daemon does."""
        while True:
            name = await self.releasing.get()
            condition = meta.transition(
                (),
                attachments.RELEASED,
                status=True,
                reason="NotInUse",
                message="",
                now="2026-01-01T00:00:00Z",
            )
            await worlds.apply_status(
                self.api, name, "drawbar-node", conditions=[msgspec.to_builtins(condition)]
            )

    async def cycles(self, count: int, rate: float) -> float:
        """Run so many attaches and detaches, begun at that rate; return the seconds until the last is done."""
        began, before = time.perf_counter(), self.finished
        async with asyncio.TaskGroup() as tasks:
            for number in range(count):
                tasks.create_task(self.allocate(before + number))
                await asyncio.sleep(max(0.0, began + (number + 1) / rate - time.perf_counter()))
        while self.finished - before < count:
            self.changed.clear()
            await self.changed.wait()
        return time.perf_counter() - began


def _fabric(devices: int) -> configuration.Configuration:
    enclosures = tuple(
        configuration.EnclosureSpec(
            id=f"chassis-{first // 64}",
            devices=tuple(
                configuration.DeviceSpec(
                    id=f"gpu-{number}",
                    device_class=contract.DeviceClass.GPU,
                    serial=f"48-b0-2d-00-00-00-{number // 256:02x}-{number % 256:02x}",
                )
                for number in range(first, min(first + 64, devices))
            ),
        )
        for first in range(0, devices, 64)
    )
    hosts = tuple(configuration.HostSpec(id=name, name=name, ports=max(devices // 4, 4)) for name in NODES)
    return configuration.Configuration(hosts=hosts, enclosures=enclosures)


def _percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))] * 1000


async def _wait_for_devices(api: client.Client, devices: int) -> list[tuple[str, str]]:
    while True:
        published = (await api.list_all(kinds.SLICE, into=slices.ResourceSlice)).items
        offered = [
            (published_slice.spec.pool.name, device.name)
            for published_slice in published
            for device in published_slice.spec.devices
        ]
        if len(offered) >= devices:
            return offered
        await asyncio.sleep(0.1)


async def measure(count: int, devices: int) -> list[report.Measure]:
    """Run it at 20 and at 50 attaches a second."""
    folder = Path(tempfile.mkdtemp(prefix="bench-"))
    endpoint = f"unix:{folder / 'fabric.sock'}"
    async with (
        apiserver.serving() as server,
        SimulatedFabric.running(_fabric(devices)) as fabric,
        fabric_server.serving(fabric, endpoint, name="bench", version="1"),
    ):
        server.kubeconfig(folder / "admin", "admin")
        server.kubeconfig(folder / "controller", "drawbar:drawbar-controller")
        async with client.connecting(config.from_kubeconfig(folder / "admin")) as api:
            await deployment.apply(api)
            for name in NODES:
                body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
                await api.create(kinds.NODE, body, into=dict[str, Any])
            rack = {
                "apiVersion": kinds.FABRIC.api_version,
                "kind": kinds.FABRIC.kind,
                "metadata": {"name": FABRIC},
                "spec": {"adapter": "grpc", "endpoint": endpoint, "policy": world.HIGHEST_LIMITS},
            }
            await api.create(kinds.FABRIC, rack, into=dict[str, Any])
            async with world.controller(folder / "controller", folder / "log") as pid:
                return await _under_load(api, server, pid, count, devices)


async def _under_load(
    api: client.Client, server: apiserver.ApiServer, pid: int, count: int, devices: int
) -> list[report.Measure]:
    load = Load(api)
    for name in await _wait_for_devices(api, devices):
        load.free.put_nowait(name)
    measures: list[report.Measure] = []
    watches = (
        mirror.Mirror(api, kinds.CLAIM, into=claims.ResourceClaim, changed=load.claim_changed),
        mirror.Mirror(
            api, kinds.ATTACHMENT, into=attachments.DeviceAttachment, changed=load.attachment_changed
        ),
    )
    async with asyncio.TaskGroup() as tasks:
        work = [tasks.create_task(watch.run()) for watch in watches]
        work += [tasks.create_task(load.release()) for _ in range(4)]
        work += [tasks.create_task(load.delete_attached()) for _ in range(4)]
        for watch in watches:
            await watch.synced.wait()
        for rate in (20, 50):
            load.latencies.clear()
            used, writes = report.processor_seconds(pid), server.writes.count(user=CONTROLLER)
            seconds = await load.cycles(count, rate)
            under = f"{rate} attaches/s"
            measures += [
                _measure(f"attached p99, {under}", _percentile(load.latencies, 0.99), "ms", 100, goal=20),
                _measure(f"attached p50, {under}", statistics.median(load.latencies) * 1000, "ms"),
                _measure(
                    f"processor per cycle, {under}",
                    1000 * (report.processor_seconds(pid) - used) / count,
                    "ms",
                    10,
                    goal=3,
                ),
                _measure(
                    f"API writes per cycle, events and upkeep included, {under}",
                    (server.writes.count(user=CONTROLLER) - writes) / count,
                    "",
                    goal=6,
                ),
                report.Measure(
                    f"controller: cycles, {under} asked",
                    count / seconds,
                    "/s",
                    target=IN_TIME * rate if rate == 50 else None,
                    at_least=True,
                ),
            ]
        measures.append(_measure("memory", report.memory(pid)["VmRSS"], "MB"))
        for task in work:
            task.cancel()
    return measures


def _measure(
    name: str, value: float, unit: str, target: float | None = None, *, goal: float | None = None
) -> report.Measure:
    return report.Measure(f"controller: {name}", value, unit, target=target, goal=goal)


def main() -> int:
    """Run it; 1 if a target is missed."""
    parser = argparse.ArgumentParser(description="benchmark of the controller")
    parser.add_argument("--cycles", type=int, default=400, help="attaches and detaches per rate")
    parser.add_argument("--devices", type=int, default=128)
    parser.add_argument("--output", type=Path, default=report.LATEST, help="the JSON file to merge into")
    options = parser.parse_args()
    where = report.machine()
    title = f"Controller: {options.cycles} cycles per rate, {options.devices} devices, {len(NODES)} nodes"
    measures = asyncio.run(measure(options.cycles, options.devices))
    return 0 if report.publish(title, measures, where=where, path=options.output) else 1


if __name__ == "__main__":
    sys.exit(main())
