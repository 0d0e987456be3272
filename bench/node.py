"""The node daemon on a node with 16 devices: its memory and processor time when idle, and from a uevent to `visible`.

The real `drawbar node` runs as a process of its own, with the API server double (over TLS, as the daemon's
permissions have it) as a second, and the load in this one, all on the same cores. Idle means: 16 devices attached,
visible and prepared for 16 claims, and the kubelet's health stream open.

A device arrives in a mocked tree, whose datagrams go through this process on their way to the daemon, so that the
moment of each is known. The clock starts with the last one before the device is visible, since only then the kernel has it
complete, and stops when a watch tells of the condition `visible` on its claim: the daemon's own waiting for further
events, the reading of sysfs, a read and a write at the API server, and the watch are in it.

The daemon's modules are compiled before it is measured, as they are in an image: compiling them takes memory.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import json
import os
import socket
import statistics
import sys
import tempfile
import threading
import time
import urllib.parse
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import msgspec
import report
import yaml

from drawbar.driver.api import attachments, bindings, claims, meta
from drawbar.driver.kube import client, config, kinds, mirror
from drawbar.driver.node import settings
from drawbar.driver.operation import address as http_address
from drawbar.fabric.contract import DeviceClass
from drawbar.fabric.witnesses import Identifier, Kind
from drawbar.mocks import sysfs
from drawbar.mocks.cluster import deployment
from drawbar.mocks.testing import worlds
from drawbar.proto.kubelet.dra.v1 import api_pb2, api_pb2_grpc
from drawbar.proto.kubelet.drahealth.v1 import api_pb2 as health_pb2
from drawbar.proto.kubelet.drahealth.v1 import api_pb2_grpc as health_pb2_grpc
from drawbar.proto.kubelet.pluginregistration.v1 import api_pb2 as registration_pb2
from drawbar.proto.kubelet.pluginregistration.v1 import api_pb2_grpc as registration_pb2_grpc

Json = dict[str, Any]
NODE = "node-1"
DRIVER = "drawbar.dev"
ACCOUNT = f"drawbar:drawbar-node:{NODE}"
DEVICES = 16
STAMP = "2026-01-02T03:04:05Z"
# Settings of the caller that would change the daemon.
UNWANTED = {"NODE_NAME", "POD_UID", "KUBECONFIG"}
COMPILED = Path(tempfile.gettempdir()) / "drawbar-bench-compiled"
POD = """
import functools, pathlib, sys
from drawbar.driver import main
from drawbar.driver.kube import config
config.load = functools.partial(config.load, account=pathlib.Path(sys.argv.pop(1)))
sys.exit(main.main())
"""
"""Starts the program with the mounted service account in another folder than a pod's."""
MEMORY_MB = 64
VISIBLE_MS = 50


def device(number: int) -> sysfs.MockDevice:
    """Return a disk for an odd number and a GPU for an even one, with an identity of its own."""
    if number % 2:
        serial = f"SN{number:08}"
        return sysfs.MockDevice(
            device_class=DeviceClass.NVME,
            vendor=0x1B36,
            device=0x0010,
            serial=serial,
            identifiers=(Identifier(kind=Kind.NVME_SERIAL, value=serial),),
        )
    pairs = "-".join(f"{byte:02x}" for byte in (0x48B02D005A3C9000 + number).to_bytes(8, "big"))
    return sysfs.MockDevice(
        device_class=DeviceClass.GPU,
        vendor=0x1002,
        device=0x73BF,
        identifiers=(Identifier(kind=Kind.PCIE_DSN, value=pairs),),
    )


class Relay:
    """Passes the tree's datagrams on to the daemon, and keeps when the first of each device came."""

    def __init__(self, receiver: socket.socket, daemon: Path) -> None:
        self._receiver = receiver
        self._daemon = daemon
        self.times: list[float] = []

    def find_first_and_last(self, moment: float) -> tuple[float, float]:
        """Return when the first datagram since the last clearing came, and the last one before that moment."""
        return self.times[0], max(sent for sent in self.times if sent <= moment)

    def run(self) -> None:
        """Forward each datagram and record its time, until an empty datagram comes."""
        while True:
            datagram = self._receiver.recv(1 << 16)
            if not datagram:
                return
            self.times.append(time.perf_counter())
            with contextlib.suppress(OSError):
                self._receiver.sendto(datagram, str(self._daemon))


@contextmanager
def relaying(where: Path, daemon: Path) -> Iterator[Relay]:
    """Run a relay in a thread."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(where))
        relay = Relay(receiver, daemon)
        thread = threading.Thread(target=relay.run, daemon=True)
        thread.start()
        yield relay
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as last:
            last.sendto(b"", str(where))
        thread.join()


@dataclass(slots=True)
class Load:
    """What a scheduler and the controller write, and what the daemon says to it."""

    api: client.Client
    visible: dict[str, float] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def claim_changed(self, _old: object, new: claims.ResourceClaim | None) -> None:
        """Record when a claim first shows its device as visible."""
        kind = bindings.condition_type(DRIVER, bindings.VISIBLE)
        if new is not None and any(meta.is_true(status.conditions, kind) for status in new.status.devices):
            self.visible.setdefault(new.metadata.name, time.perf_counter())
            self.changed.set()

    async def until_visible(self, *names: str) -> None:
        """Wait for all of them."""
        async with asyncio.timeout(60):
            while not self.visible.keys() >= set(names):
                self.changed.clear()
                await self.changed.wait()

    async def attach(self, number: int) -> str:
        """Create a claim with a device, and its attachment; return the claim's uid."""
        name, added = f"device-{number}", device(number)
        claim = await self._allocate(name)
        uid: str = claim["metadata"]["uid"]
        reference = {"namespace": "default", "name": name, "uid": uid, "requests": ["r"], "devices": 1}
        body = {
            "apiVersion": attachments.API_VERSION,
            "kind": attachments.KIND,
            "metadata": {"name": f"fab.{name}", "labels": {attachments.NODE_LABEL: NODE}},
            "spec": {
                "fabric": "fab",
                "deviceID": name,
                "driver": DRIVER,
                "pool": "fab/enc",
                "device": name,
                "nodeName": NODE,
                "hostID": "h1",
                "identity": {
                    "deviceClass": str(added.device_class),
                    "identifiers": [
                        {"kind": str(each.kind), "value": each.value} for each in added.identifiers or ()
                    ],
                },
                "claim": reference,
                "allocationTimestamp": STAMP,
            },
        }
        await self.api.create(kinds.ATTACHMENT, body, into=Json)
        condition = meta.transition(
            (), attachments.ATTACHED, status=True, reason="Attached", message="", now=STAMP
        )
        condition = msgspec.to_builtins(condition)
        await worlds.apply_status(self.api, f"fab.{name}", "drawbar-controller", conditions=[condition])
        return uid

    async def _allocate(self, name: str) -> Json:
        request = {"name": "r", "exactly": {"deviceClassName": "any"}}
        body = {
            "apiVersion": kinds.CLAIM.api_version,
            "kind": kinds.CLAIM.kind,
            "metadata": {"name": name},
            "spec": {"devices": {"requests": [request]}},
        }
        claim = await self.api.create(kinds.CLAIM, body, namespace="default", into=Json)
        claim["status"] = {"allocation": worlds.allocation(NODE, worlds.result("fab/enc", name), at=STAMP)}
        return await self.api.replace(
            kinds.CLAIM, name, claim, namespace="default", subresource="status", into=Json
        )

    async def drop(self, number: int) -> None:
        """Delete the attachment and the claim, as when the device goes to another claim."""
        await self.api.delete(kinds.ATTACHMENT, f"fab.device-{number}")
        await self.api.delete(kinds.CLAIM, f"device-{number}", namespace="default")


@asynccontextmanager
async def process(
    *arguments: str, start: Sequence[str] = ("-m", "drawbar.driver.main"), **options: Any
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run `drawbar` in a process of its own until the block ends."""
    environment = {name: value for name, value in os.environ.items() if name not in UNWANTED}
    environment["SSL_CERT_FILE"] = os.devnull  # as the chart has it
    running = await asyncio.create_subprocess_exec(
        *(sys.executable, *start, *arguments), env=environment, **options
    )
    try:
        yield running
    finally:
        with contextlib.suppress(ProcessLookupError):
            running.terminate()
        await running.wait()


async def compile_modules() -> None:
    """Compile the daemon's modules beforehand, as in an image."""
    os.environ.setdefault("PYTHONPYCACHEPREFIX", str(COMPILED))
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    compiling = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "import drawbar.driver.node.daemon"
    )
    await compiling.wait()


@asynccontextmanager
async def cluster(folder: Path) -> AsyncIterator[client.Client]:
    """Run the API server double with our files applied; yield the administrator's client."""
    words = ("mock", "apiserver", "--kubeconfig-dir", str(folder / "kube"), "--service-account", ACCOUNT)
    async with process(*words, stdout=asyncio.subprocess.PIPE) as server:
        assert server.stdout is not None
        async with asyncio.timeout(30):
            ready = json.loads(await server.stdout.readline())
        (account,) = [path for path in (folder / "kube").iterdir() if "drawbar-node" in path.name]
        mount(account, folder / "account")
        async with client.connecting(config.from_kubeconfig(Path(ready["kubeconfig"]))) as api:
            await deployment.apply(api)
            node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}
            await api.create(kinds.NODE, node, into=Json)
            yield api


def mount(kubeconfig: Path, folder: Path) -> None:
    """Write the files of a service account as a pod has them, and set the variables: a pod has no kubeconfig."""
    content = yaml.safe_load(kubeconfig.read_text())
    server = content["clusters"][0]["cluster"]
    folder.mkdir()
    (folder / "token").write_text(content["users"][0]["user"]["token"])
    (folder / "ca.crt").write_bytes(base64.b64decode(server["certificate-authority-data"]))
    address = urllib.parse.urlsplit(server["server"])
    os.environ["KUBERNETES_SERVICE_HOST"] = str(address.hostname)
    os.environ["KUBERNETES_SERVICE_PORT"] = str(address.port)


@asynccontextmanager
async def daemon(folder: Path) -> AsyncIterator[int]:
    """Run the node daemon; yield its process id once it serves the kubelet."""
    words = [
        *("node", "--node-name", NODE),
        *("--kubelet-dir", str(folder / "k"), "--cdi-dir", str(folder / "cdi")),
        *("--sysfs", str(folder / "sys"), "--uevents", f"unix:{folder / 'uevents'}"),
    ]
    async with process(
        *words, start=("-c", POD, str(folder / "account")), stderr=asyncio.subprocess.PIPE
    ) as running:
        assert running.stderr is not None
        reported = deque[str](maxlen=20)
        async with asyncio.timeout(30):
            while "node daemon is ready" not in (line := (await running.stderr.readline()).decode()):
                reported.append(line)
        async with asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(_read(running.stderr, reported), name="log")
            try:
                yield running.pid
            except BaseException:
                sys.stderr.writelines(reported)
                raise
            finally:
                reading.cancel()


async def _read(stream: asyncio.StreamReader, reported: deque[str]) -> None:
    async for line in stream:
        reported.append(line.decode())


async def use(folder: Path, uids: list[str]) -> grpc.aio.Channel:
    """Act as a kubelet: register the driver, prepare all claims, open a health stream, return the channel."""
    registration = folder / "k" / "plugins_registry" / f"{DRIVER}-reg.sock"
    async with grpc.aio.insecure_channel(f"unix:{registration}") as channel:
        stub = registration_pb2_grpc.RegistrationStub(channel)
        await stub.NotifyRegistrationStatus(registration_pb2.RegistrationStatus(plugin_registered=True))
    channel = grpc.aio.insecure_channel(f"unix:{folder / 'k' / 'plugins' / DRIVER / 'dra.sock'}")
    named = [api_pb2.Claim(namespace="default", name=f"device-{n}", uid=uid) for n, uid in enumerate(uids)]
    answer = await api_pb2_grpc.DRAPluginStub(channel).NodePrepareResources(
        api_pb2.NodePrepareResourcesRequest(claims=named)
    )
    failed = [result.error for result in answer.claims.values() if result.error]
    if failed:
        raise SystemExit(f"a claim was not prepared: {failed[0]}")
    stream = health_pb2_grpc.DRAResourceHealthStub(channel).NodeWatchResources(
        health_pb2.NodeWatchResourcesRequest()
    )
    await stream.read()
    return channel


async def idle(folder: Path, pid: int, seconds: float) -> list[report.Measure]:
    """Measure the memory and processor time of an idle daemon."""
    endpoint = settings.parse_endpoint("auto", folder / "k" / "plugins" / DRIVER, "")
    assert endpoint is not None
    await asyncio.sleep(5)  # what was begun ends
    used = report.processor_seconds(pid)
    await asyncio.sleep(seconds)
    used = (report.processor_seconds(pid) - used) / seconds
    scrape = await asyncio.to_thread(http_address.ask, endpoint, "/metrics")
    memory = report.memory(pid) | report.memory(pid, "smaps_rollup")
    plain = {
        f"node: share of memory (PSS), idle, {DEVICES} devices": (memory["Pss"], "MB"),
        f"node: memory that is no file, idle, {DEVICES} devices": (memory["RssAnon"], "MB"),
        "node: memory at its largest": (memory["VmHWM"], "MB"),
        f"node: processor used, idle, {DEVICES} devices": (100 * used, "% of a core"),
        "node: size of the metrics": (len(scrape.text) / 1000, "kB"),
    }
    name = f"node: memory, idle, {DEVICES} devices"
    return [
        report.Measure(name, memory["VmRSS"], "MB", target=MEMORY_MB, goal=50),
        *(report.Measure(name, value, unit) for name, (value, unit) in plain.items()),
    ]


async def arrivals(
    load: Load, tree: sysfs.SysfsTree, relay: Relay, rounds: int
) -> tuple[list[float], list[float]]:
    """Let one device after the other arrive and go.

    Return the milliseconds from its last and from its first event to the condition."""
    took, whole = [], []
    for number in range(DEVICES, DEVICES + rounds):
        await load.attach(number)
        await asyncio.sleep(0.05)  # the daemon has heard of the attachment
        relay.times.clear()
        await asyncio.to_thread(tree.attach, DEVICES + 1, device(number))
        await load.until_visible(f"device-{number}")
        seen = load.visible[f"device-{number}"]
        first, last = relay.find_first_and_last(seen)
        took.append(1000 * (seen - last))
        whole.append(1000 * (seen - first))
        await load.drop(number)
        await asyncio.to_thread(tree.detach, DEVICES + 1)
        await asyncio.sleep(0.05)
    return took, whole


async def measure(options: argparse.Namespace) -> list[report.Measure]:
    """Measure everything in one run."""
    await compile_modules()
    with tempfile.TemporaryDirectory(prefix="drawbar-bench-") as name:
        folder = Path(name)
        tree = sysfs.SysfsTree.create(folder / "sys", slots=DEVICES + 1, uevent_socket=folder / "relay")
        with relaying(folder / "relay", folder / "uevents") as relay:
            async with cluster(folder) as api, daemon(folder) as pid, asyncio.TaskGroup() as tasks:
                started = report.memory(pid)["VmRSS"]
                load = Load(api=api)
                watch = mirror.Mirror(api, kinds.CLAIM, into=claims.ResourceClaim, changed=load.claim_changed)
                watching = tasks.create_task(watch.run(), name="claims")
                await watch.synced.wait()
                uids = [await load.attach(number) for number in range(DEVICES)]
                for number in range(DEVICES):
                    await asyncio.to_thread(tree.attach, number + 1, device(number))
                await load.until_visible(*(f"device-{number}" for number in range(DEVICES)))
                channel = await use(folder, uids)
                idle_measures = await idle(folder, pid, options.seconds)
                took, whole = await arrivals(load, tree, relay, options.rounds)
                after = report.memory(pid)["VmRSS"]
                await channel.close()
                watching.cancel()
    plain = {
        "node: memory at the start, no devices": (started, "MB"),
        f"node: memory after {options.rounds} more devices": (after, "MB"),
        "node: uevent to visible p50": (statistics.median(took), "ms"),
        "node: uevent to visible slowest": (max(took), "ms"),
        "node: first uevent of a device to visible p50": (statistics.median(whole), "ms"),
    }
    return [
        *idle_measures,
        report.Measure("node: uevent to visible p99", report.p99(took), "ms", target=VISIBLE_MS, goal=20),
        *(report.Measure(name, value, unit) for name, (value, unit) in plain.items()),
    ]


def main() -> int:
    """Run it; 1 if a target is missed."""
    parser = argparse.ArgumentParser(description="benchmark of the node daemon")
    parser.add_argument("--seconds", type=float, default=20, help="how long it is idle")
    parser.add_argument("--rounds", type=int, default=200, help="how many devices arrive")
    parser.add_argument("--output", type=Path, default=report.LATEST, help="the JSON file to merge into")
    options = parser.parse_args()
    where = report.machine()
    title = f"node daemon: {DEVICES} devices, then {options.rounds} that come and go"
    return 0 if report.publish(title, asyncio.run(measure(options)), where=where, path=options.output) else 1


if __name__ == "__main__":
    sys.exit(main())
