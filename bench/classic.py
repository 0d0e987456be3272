"""Classic allocation under competition: 500 pods for 100 devices over 200 nodes, until every pod has had its turn.

The real `drawbar controller` and the doubles of the scheduler and of the claim controller are processes of their own;
the API server double, a fabric without latency, the node daemons (for which everything goes well at once) and the pods'
lives share a fourth, all on the same cores. The pods come all at once, each with a claim of its own from a template; a
pod that was given its node runs for a while and is deleted, so that the next one can have the device.

Writes are counted by who wrote them, Events apart. No target stands for them: they are stated.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lives
import msgspec
import report
import world
import yaml

from drawbar.driver.api import attachments
from drawbar.driver.kube import client, config, kinds, mirror
from drawbar.fabric import contract
from drawbar.fabric.grpc import server as fabric_server
from drawbar.mocks import apiserver, claims, scheduler
from drawbar.mocks.apiserver import profiles
from drawbar.mocks.cluster import deployment
from drawbar.mocks.fabric import configuration
from drawbar.mocks.fabric.simulation import SimulatedFabric
from drawbar.mocks.kube import connections

Json = dict[str, Any]
DRIVER = "drawbar.dev"
FABRIC = "rack"
EVENTS = "events"
WRITERS = ("controller", "scheduler", "claim-controller")
WORKERS = 8
START_SECONDS = 60.0
LOG_LINES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """What competes for what."""

    pods: int
    devices: int
    nodes: int
    run_seconds: float


def _fabric(size: Size) -> configuration.Configuration:
    def device(number: int) -> configuration.DeviceSpec:
        gpu = contract.DeviceClass.GPU
        return configuration.DeviceSpec(id=f"gpu-{number}", device_class=gpu, serial=f"serial-{number}")

    names = [node["metadata"]["name"] for node in world.nodes(size.nodes)]
    return world.fabric(names, [device(number) for number in range(size.devices)])


def _objects(version: str, size: Size, endpoint: str) -> Iterator[tuple[Any, str | None, Json]]:
    """Yield the cluster's objects before the first pod, as (kind, namespace or None, object)."""
    for file in sorted((deployment.folder() / "drawbar/definitions").glob("*.yaml")):
        yield kinds.CUSTOM_RESOURCE, None, yaml.safe_load(file.read_text(encoding="utf-8"))
    yield kinds.NAMESPACE, None, {"metadata": {"name": "drawbar"}}
    everything, binding = deployment.KINDS["ClusterRole"], deployment.KINDS["ClusterRoleBinding"]
    role = {"name": "everything", "apiGroup": everything.group, "kind": everything.kind}
    rule = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    yield everything, None, {"metadata": {"name": "everything"}, "rules": [rule]}
    subjects = [{"kind": "User", "name": name, "apiGroup": everything.group} for name in WRITERS]
    yield binding, None, {"metadata": {"name": "everything"}, "roleRef": role, "subjects": subjects}
    for node in world.nodes(size.nodes):
        yield kinds.NODE, None, node
    of_rack = {"adapter": "grpc", "endpoint": endpoint, "policy": world.HIGHEST_LIMITS}
    yield kinds.FABRIC, None, {"metadata": {"name": FABRIC}, "spec": of_rack}
    asked: Json
    if version == "v1alpha2":
        yield kinds.RESOURCE_CLASS, None, {"metadata": {"name": "gpu"}, "driverName": DRIVER}
        asked = {"resourceClassName": "gpu"}
    else:
        expression = f"device.attributes['{DRIVER}'].class == 'gpu'"
        spec = {"selectors": [{"cel": {"expression": expression}}]}
        yield kinds.CLASSIC_DEVICE_CLASS, None, {"metadata": {"name": "gpu"}, "spec": spec}
        request = {"name": "gpu", "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
        asked = {"controller": DRIVER, "devices": {"requests": [request]}}
    template = msgspec.structs.replace(kinds.CLAIM_TEMPLATE, version=version)
    yield template, "default", {"metadata": {"name": "gpu"}, "spec": {"spec": asked}}


def _pod(version: str, number: int) -> Json:
    named: Json = {"resourceClaimTemplateName": "gpu"}
    if version == "v1alpha2":
        named = {"source": named}
    container = {"name": "main", "image": "busybox", "resources": {"claims": [{"name": "device"}]}}
    spec = {"containers": [container], "resourceClaims": [{"name": "device", **named}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"pod-{number:04}"}, "spec": spec}


class Ended(Exception):
    """One of the processes ended by itself."""


@asynccontextmanager
async def _process(name: str, folder: Path, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a process until the block ends; cancel the block if the process ends by itself.

    Raises:
        Ended: the process ended by itself; in a group.
    """
    file = folder / f"{name}.log"
    with file.open("wb") as log:
        child = await asyncio.create_subprocess_exec(
            sys.executable, *arguments, stdout=asyncio.subprocess.PIPE, stderr=log
        )

    async def watch() -> None:
        status = await child.wait()
        last = file.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_LINES:]
        raise Ended("\n".join((f"the {name} ended with status {status}; its log ends so:", *last)))

    try:
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(watch(), name=name)
            yield child
            watching.cancel()
    finally:
        if child.returncode is None:
            child.terminate()
        await child.wait()


@asynccontextmanager
async def _controller(folder: Path) -> AsyncIterator[int]:
    """Run the controller; yield its process id."""
    words = ("-m", "drawbar.driver.main", "controller", "--kubeconfig", str(folder / WRITERS[0]))
    async with _process(WRITERS[0], folder, *words) as child:
        yield child.pid


@asynccontextmanager
async def _double(name: str, folder: Path) -> AsyncIterator[None]:
    """Run the double of the scheduler or of the claim controller; enter the block once it works."""
    words = (__file__, "--play", name, "--kubeconfig", str(folder / name))
    async with _process(name, folder, *words) as child:
        assert child.stdout is not None
        async with asyncio.timeout(START_SECONDS):
            if not await child.stdout.readline():
                # It ends, and `_process` gives this up.
                await asyncio.get_running_loop().create_future()
        yield


async def play(name: str, kubeconfig: Path) -> None:
    """Run one of the doubles until terminated."""
    connection = connections.from_kubeconfig(kubeconfig)
    serving = scheduler.serving(connection) if name == "scheduler" else claims.serving(connection)
    async with serving:
        print("ready", flush=True)
        await asyncio.get_running_loop().create_future()


async def _ready(api: client.Client, count: int) -> None:
    """Report all nodes as ready, as kubelets do; until then, the nodes are tainted."""
    for node in world.nodes(count):
        await api.patch(
            kinds.NODE,
            node["metadata"]["name"],
            {"status": node["status"]},
            content=client.Patch.MERGE,
            into=Json,
            subresource="status",
        )


async def _until_listed(api: client.Client, devices: int) -> None:
    """Wait until the controller knows the fabric's devices."""
    async with asyncio.timeout(lives.PATIENCE_SECONDS):
        while True:
            rack = await api.read(kinds.FABRIC, FABRIC, into=Json)
            if rack.get("status", {}).get("devices") == devices:
                return
            await asyncio.sleep(0.1)


async def measure(profile: str, size: Size) -> list[report.Measure]:
    """Measure one competition of pods for devices.

    Raises:
        TimeoutError: not every pod was served; perhaps in a group.
        Ended: a process ended by itself; in a group.
    """
    version = profiles.CLASSIC_VERSIONS[profile]
    with tempfile.TemporaryDirectory(prefix="drawbar-bench-") as name:
        folder = Path(name)
        endpoint = f"unix:{folder / 'fabric.sock'}"
        async with (
            apiserver.serving(profile=profile) as server,
            SimulatedFabric.running(_fabric(size)) as fabric,
            fabric_server.serving(fabric, endpoint, name="bench", version="1"),
        ):
            for user in ("admin", *WRITERS):
                server.kubeconfig(folder / user, user)
            async with (
                client.connecting(config.from_kubeconfig(folder / "admin")) as api,
                _controller(folder) as pid,
            ):
                for kind, namespace, body in _objects(version, size, endpoint):
                    document = {"apiVersion": kind.api_version, "kind": kind.kind} | body
                    await api.create(kind, document, namespace=namespace, into=Json)
                await _ready(api, size.nodes)
                await _until_listed(api, size.devices)
                async with _double("claim-controller", folder), _double("scheduler", folder):
                    return await _compete(api, server, pid, version, size)


async def _compete(
    api: client.Client, server: apiserver.ApiServer, pid: int, version: str, size: Size
) -> list[report.Measure]:
    life = lives.Life(api=api, run_seconds=size.run_seconds)
    watches = (
        mirror.Mirror(
            api, kinds.ATTACHMENT, into=attachments.DeviceAttachment, changed=life.attachment_changed
        ),
        mirror.Mirror(api, kinds.POD, into=lives.Pod, changed=life.pod_changed),
    )
    async with asyncio.TaskGroup() as tasks:
        work = [tasks.create_task(watch.run(), name="watch") for watch in watches]
        work += [tasks.create_task(life.speak(), name="nodes") for _ in range(WORKERS)]
        work += [tasks.create_task(life.end(), name="ends") for _ in range(size.devices)]
        for watch in watches:
            await watch.synced.wait()
        server.writes.clear()
        used, began = report.processor_seconds(pid), time.perf_counter()
        await asyncio.gather(
            *(_create(api, version, range(first, size.pods, WORKERS)) for first in range(WORKERS))
        )
        await life.wait_until_over(size.pods)
        took = time.perf_counter() - began
        for task in work:
            task.cancel()
    cost = report.processor_seconds(pid) - used
    last = max(life.served.values()) - began
    return [
        _measure("all pods had their turn after", last, "s"),
        _measure("all devices back after", took, "s"),
        _measure("pods a second", size.pods / last, "/s"),
        _measure("devices asked for at once, at most", life.most, ""),
        _measure("processor of the controller per pod", 1000 * cost / size.pods, "ms"),
        *_measure_writes(server, size.pods),
    ]


async def _create(api: client.Client, version: str, numbers: Iterable[int]) -> None:
    for number in numbers:
        await api.create(kinds.POD, _pod(version, number), namespace="default", into=Json)


def _measure_writes(server: apiserver.ApiServer, pods: int) -> Iterator[report.Measure]:
    """Yield how many writes there were per pod."""
    for user in WRITERS:
        yield _measure(f"writes per pod, {user}", _count(server, user=user) / pods, "")
    for user in WRITERS[:2]:
        of_contexts = _count(server, user=user, beginning="podschedulingcontexts")
        yield _measure(f"context writes per pod, {user}", of_contexts / pods, "")
    events = sum(number for (_, what, _), number in server.writes.totals.items() if what == EVENTS)
    yield _measure("Events per pod, all", events / pods, "")


def _count(server: apiserver.ApiServer, *, user: str, beginning: str = "") -> int:
    return sum(
        number
        for (_, what, who), number in server.writes.totals.items()
        if who == user and what != EVENTS and what.startswith(beginning)
    )


def _measure(name: str, value: float, unit: str) -> report.Measure:
    return report.Measure(name, value, unit)


def _leaves(group: BaseExceptionGroup[Ended]) -> Iterator[Ended]:
    for error in group.exceptions:
        if isinstance(error, Ended):
            yield error
        else:
            yield from _leaves(error)


def main() -> int:
    """Run it; 1 if not all are served."""
    parser = argparse.ArgumentParser(description="benchmark of classic allocation")
    parser.add_argument("--profile", choices=sorted(profiles.CLASSIC_VERSIONS), default="1.31-classic")
    parser.add_argument("--pods", type=int, default=500)
    parser.add_argument("--devices", type=int, default=100)
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--run-seconds", type=float, default=1.0, help="how long a pod runs")
    parser.add_argument("--output", type=Path, default=report.LATEST, help="the JSON file to merge into")
    parser.add_argument("--play", choices=WRITERS[1:], help="be that double, for the benchmark itself")
    parser.add_argument("--kubeconfig", type=Path, help="with --play: how to reach the API server")
    options = parser.parse_args()
    if options.play:
        asyncio.run(play(options.play, options.kubeconfig))
        return 0
    size = Size(
        pods=options.pods, devices=options.devices, nodes=options.nodes, run_seconds=options.run_seconds
    )
    where = report.machine()
    title = (
        f"Classic, {options.profile}: {size.pods} pods that run {size.run_seconds:g} s each compete for "
        f"{size.devices} devices over {size.nodes} nodes"
    )
    measures: list[report.Measure] = []
    try:
        measures = asyncio.run(measure(options.profile, size))
    except* Ended as group:
        print(*_leaves(group), sep="\n", file=sys.stderr)
    except* TimeoutError:
        print(f"not all pods were served within {lives.PATIENCE_SECONDS:.0f} s", file=sys.stderr)
    if not measures:
        return 1
    named = [
        msgspec.structs.replace(measure, name=f"{options.profile}: {measure.name}") for measure in measures
    ]
    return 0 if report.publish(title, named, where=where, path=options.output) else 1


if __name__ == "__main__":
    sys.exit(main())
