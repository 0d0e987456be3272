"""What a Redfish service costs: ``python bench/redfish.py`` (``make bench``).

The emulator is a process of its own, with 256 devices in four enclosures and 32 hosts, by zones for each connection and by
composition. Measured are a whole listing (seconds and requests, where `$expand` is served and where not), how long it takes
until a watch shows what another client connected (by events, and by polling every two seconds without), and how much memory a
controller with such a Fabric has more than the same one before.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import apiserver
import msgspec
import report
import scale
import world

from drawbar.driver.kube import client, config, kinds
from drawbar.fabric import contract
from drawbar.fabric.redfish.adapter import RedfishAdapter
from drawbar.mocks.cluster import deployment

Json = dict[str, Any]
FABRIC = "rack"
DEVICES, HOSTS = 256, 32
POLL_SECONDS = 2
ZONES, ENDPOINTS = "/redfish/v1/Fabrics/PCIe/Zones", "/redfish/v1/Fabrics/PCIe/Endpoints"
PATIENCE_SECONDS = 60.0


def build_config(method: str, *, expand: bool, events: bool) -> Json:
    """Return the emulator's configuration."""
    enclosures = [
        {
            "id": f"chassis-{first // world.POOL_DEVICES}",
            "devices": [
                {
                    "id": f"gpu-{number:03}",
                    "kind": "gpu",
                    "model": "H200",
                    "vendor": "NVIDIA",
                    "serial": f"48-b0-2d-00-00-00-00-{number:02x}",
                    "memoryMib": 144384,
                }
                for number in range(first, first + world.POOL_DEVICES)
            ],
        }
        for first in range(0, DEVICES, world.POOL_DEVICES)
    ]
    hosts = [{"id": f"node-{number:05}"} for number in range(HOSTS)]
    return {
        "hosts": hosts,
        "enclosures": enclosures,
        "method": method,
        "expand": expand,
        "events": events,
        "username": "drawbar",
        "password": "secret",
    }


@contextlib.asynccontextmanager
async def emulator(folder: Path, configuration: Json) -> AsyncIterator[str]:
    """Run the emulator while the context lasts; yield its URL."""
    file = folder / "redfish.json"
    file.write_text(json.dumps(configuration), encoding="utf-8")
    words = ("-m", "drawbar.driver.main", "mock", "redfish", "--config", str(file))
    child = await asyncio.create_subprocess_exec(sys.executable, *words, stdout=asyncio.subprocess.PIPE)
    assert child.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            ready = msgspec.json.decode(await child.stdout.readline(), type=dict[str, Any])
        yield ready["endpoint"]
    finally:
        child.terminate()
        await child.wait()


def adapter_config(url: str, **parameters: str) -> contract.AdapterConfig:
    """Return how the service is reached."""
    secret = contract.Credentials(username="drawbar", password="secret")
    return contract.AdapterConfig(name=FABRIC, endpoint=url, credentials=secret, parameters=parameters)


@contextlib.contextmanager
def counting() -> Iterator[list[str]]:
    """Yield a list that gets an entry for each request that is sent meanwhile."""
    sent: list[str] = []
    send = aiohttp.ClientSession._request  # noqa: SLF001 - all requests go through it

    async def request(session: aiohttp.ClientSession, method: str, *words: Any, **options: Any) -> Any:
        sent.append(method)
        return await send(session, method, *words, **options)

    aiohttp.ClientSession._request = request  # type: ignore[method-assign,assignment] # noqa: SLF001
    try:
        yield sent
    finally:
        aiohttp.ClientSession._request = send  # type: ignore[method-assign] # noqa: SLF001


async def measure_listing(folder: Path, method: str, *, expand: bool, rounds: int) -> list[report.Measure]:
    """Measure the seconds and the requests of a whole listing, with the login before it."""
    seconds, requests = [], 0
    async with emulator(folder, build_config(method, expand=expand, events=False)) as url:
        for _ in range(rounds):
            with counting() as sent:
                began = time.perf_counter()
                async with await RedfishAdapter.connect(adapter_config(url)) as adapter:
                    listed, hosts = await adapter.devices(), await adapter.hosts()
                    seconds.append(time.perf_counter() - began)
                    requests = len(sent)
            if (len(listed.devices), len(hosts)) != (DEVICES, HOSTS):
                raise SystemExit(f"{len(listed.devices)} devices and {len(hosts)} hosts were listed")
    what = f"redfish: listing by {method}, {'with' if expand else 'without'} $expand"
    most = (2.0, 40.0) if expand else (None, None)
    return [
        report.Measure(what, statistics.median(seconds), "s", target=most[0]),
        report.Measure(f"{what}, requests", requests, "requests", target=most[1]),
    ]


async def measure_watch(folder: Path, *, events: bool, rounds: int) -> list[report.Measure]:
    """Measure how long a watch takes to show another client's connection."""
    took = []
    async with (
        emulator(folder, build_config("zones", expand=True, events=events)) as url,
        aiohttp.ClientSession(
            url, headers={"Authorization": aiohttp.encode_basic_auth("drawbar", "secret")}
        ) as outside,
        await RedfishAdapter.connect(adapter_config(url, pollSeconds=str(POLL_SECONDS))) as adapter,
    ):
        version = (await adapter.devices()).version
        async with adapter.watch(version) as changes:
            for number in range(rounds):
                names = (f"node-{number % HOSTS:05}", f"gpu-{number:03}")
                links = {"Endpoints": [{"@odata.id": f"{ENDPOINTS}/{name}"} for name in names]}
                async with outside.post(ZONES, json={"Links": links}) as answer:
                    answer.raise_for_status()
                began = time.perf_counter()
                async with asyncio.timeout(PATIENCE_SECONDS):
                    async for change in changes:
                        if _shows(change, f"PCIe.{names[1]}"):
                            break
                took.append(time.perf_counter() - began)
    how = "by events" if events else f"by polling every {POLL_SECONDS} s"
    # What happens right after a poll is seen by the next one.
    target = 1.0 if events else POLL_SECONDS + 1.0
    return [
        report.Measure(f"redfish: a connection is shown {how}, p50", statistics.median(took), "s"),
        report.Measure(f"redfish: a connection is shown {how}, slowest", max(took), "s", target=target),
    ]


def _shows(change: contract.WatchEvent, device_id: str) -> bool:
    device = getattr(change, "device", None)
    return device is not None and device.id == device_id and device.connection is not None


async def memory(folder: Path) -> list[report.Measure]:
    """Measure how much memory a Fabric of this size adds to the controller."""
    kubeconfig, log = folder / "drawbar-controller.kubeconfig", folder / "log"
    async with (
        emulator(folder, build_config("zones", expand=True, events=True) | {"username": ""}) as url,
        apiserver.server(folder, "--service-account", "drawbar:drawbar-controller") as (_, where, token),
        aiohttp.ClientSession() as session,
        client.connecting(config.from_kubeconfig(folder / "admin.kubeconfig")) as admin,
    ):
        await deployment.apply(admin)
        api = apiserver.Api(session, where, token)
        for node in world.nodes(HOSTS):
            await api.send("POST", world.NODES_PATH, node)
        async with world.controller(kubeconfig, log) as pid:
            await scale.rest(pid, _always)
            before = report.memory(pid)["VmRSS"]
            await _declare(admin, url)

            async def is_done() -> bool:
                rack = await admin.read(kinds.FABRIC, FABRIC, into=Json)
                slices = await admin.list_all(kinds.SLICE, into=Json, fields=f"spec.driver={scale.DRIVER}")
                published = sum(len(listed["spec"]["devices"]) for listed in slices.items)
                counting: int = rack.get("status", {}).get("devices", 0)
                return counting == published == DEVICES

            await scale.rest(pid, is_done)
            after = report.memory(pid)
    return [
        report.Measure("redfish: memory of the controller without a Fabric", before, "MB"),
        report.Measure("redfish: memory that the Fabric adds", after["VmRSS"] - before, "MB", target=20),
        report.Measure("redfish: memory of the controller at its largest", after["VmHWM"], "MB"),
    ]


async def _always() -> bool:
    return True


async def _declare(admin: client.Client, url: str) -> None:
    rack = {"apiVersion": kinds.FABRIC.api_version, "kind": "Fabric", "metadata": {"name": FABRIC}}
    await admin.create(kinds.FABRIC, rack | {"spec": {"adapter": "redfish", "endpoint": url}}, into=Json)


async def measure(options: argparse.Namespace) -> list[report.Measure]:
    """Measure everything in one run."""
    measures: list[report.Measure] = []
    with tempfile.TemporaryDirectory(prefix="drawbar-bench-") as name:
        folder = Path(name)
        for method in ("zones", "composition"):
            for expand in (True, False):
                measures += await measure_listing(folder, method, expand=expand, rounds=options.rounds)
        for events in (True, False):
            measures += await measure_watch(folder, events=events, rounds=2 * options.rounds)
        measures += await memory(folder)
    return measures


def main() -> int:
    """Run it; 1 if a target is missed."""
    parser = argparse.ArgumentParser(description="benchmark of the redfish adapter")
    parser.add_argument("--rounds", type=int, default=10, help="listings of each kind")
    parser.add_argument("--output", type=Path, default=report.LATEST, help="the JSON file to merge into")
    options = parser.parse_args()
    where = report.machine()
    title = f"Redfish: {DEVICES} devices, {HOSTS} hosts"
    return 0 if report.publish(title, asyncio.run(measure(options)), where=where, path=options.output) else 1


if __name__ == "__main__":
    sys.exit(main())
