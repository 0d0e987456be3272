"""How fast claims are prepared: ``python bench/prepare.py`` (``make bench``).

The kubelet's side is this process, the node daemon's is another one on the same cores: the real gRPC service on its UNIX
socket, the real record files with their fsyncs on the file system of ``--folder``, the real CDI files (on a tmpfs, as on a
node, where there is one).  The attachments record which claim may use which device, so no API server is asked, as on a node.  A
call is timed from the request to the answer, on the socket: the kubelet's client is written in Go, and Python's takes
time of its own on the same cores, which is measured beside.

How long the disk takes for a file that is replaced and for one that is written in place, both synced, is measured
beside, too.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import grpc
import report
import socketclient

from drawbar.proto.kubelet.dra.v1 import api_pb2, api_pb2_grpc

DRIVER = "drawbar.dev"
SERVICE = "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
PARALLEL = 64
MEMORY = Path("/dev/shm")
ALLOCATED_AT = "2026-01-01T00:00:00Z"
BOOT_ID = "b"


def uid(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012d}"


def claim(number: int) -> api_pb2.Claim:
    return api_pb2.Claim(namespace="bench", name=f"claim-{number}", uid=uid(number))


async def serve(folder: Path, cdi: Path) -> None:
    """Run the daemon's side until the other side closes standard input."""
    from drawbar.driver.api import attachments, meta
    from drawbar.driver.node import claim_versions, classes
    from drawbar.driver.node.discovery import reader
    from drawbar.driver.node.health import verdicts
    from drawbar.driver.node.plugin import server, sockets
    from drawbar.driver.node.preparation import cdifiles, holders, lookup, metadata, preparer, store
    from drawbar.fabric.contract import DeviceClass
    from drawbar.mocks import sysfs

    disk = sysfs.MockDevice(device_class=DeviceClass.NVME, vendor=0x1B36, device=0x10, serial="SN1")
    tree = sysfs.SysfsTree.create(folder / "sys")
    tree.attach(1, disk)
    discovered = reader.read(folder / "sys")
    card = next(card for card in discovered.cards if card.first.serial)

    def attachment(number: int) -> attachments.DeviceAttachment:
        reference = attachments.ClaimReference(
            namespace="bench", name=f"claim-{number}", uid=uid(number), requests=("gpu",), devices=1
        )
        return attachments.DeviceAttachment(
            metadata=meta.ObjectMeta(name=f"fab.device-{number}"),
            spec=attachments.AttachmentSpec(
                fabric="fab",
                device_id=str(number),
                driver=DRIVER,
                pool="fab/enc",
                device=f"device-{number}",
                node_name="n",
                host_id="h",
                identity=attachments.Identity(device_class="nvme", serial="SN1"),
                claim=reference,
                allocation_timestamp=ALLOCATED_AT,
            ),
            status=attachments.AttachmentStatus(
                conditions=tuple(
                    meta.Condition(type=kind, status="True", reason="Ready")
                    for kind in (attachments.ATTACHED, attachments.VISIBLE)
                ),
                node=attachments.NodeReport(
                    pci_address=card.address,
                    boot_id=BOOT_ID,
                    claim_uid=uid(number),
                    allocation_timestamp=ALLOCATED_AT,
                ),
            ),
        )

    class Healthy:
        def all(self) -> dict[verdicts.Key, verdicts.Verdict]:
            return {}

        def verdict(self, key: verdicts.Key) -> verdicts.Verdict:
            del key
            return verdicts.UNKNOWN

        def subscribe(self, changed: Any) -> Any:
            del changed
            return lambda: None

    stored = [attachment(number) for number in range(PARALLEL)]
    finder = lookup.Finder(
        driver=DRIVER,
        node_name="n",
        boot_id=BOOT_ID,
        attached=lambda: stored,
        card=lambda _: card,
        host=classes.Host.from_sysfs(folder / "sys"),
    )
    files = store.Store(cdifiles.CdiFiles(cdi, DRIVER), folder)
    api: Any = None
    versions = claim_versions.Served(api)
    versions.known.set()
    versions.modern.set()
    prepared = preparer.Preparer(
        reader=claim_versions.Reader(api, driver=DRIVER, node_name="n", versions=versions),
        finder=finder,
        held_by=holders.Holders(files),
        described=metadata.Files(folder, DRIVER, enabled=False),
        boot_id=BOOT_ID,
        released=lambda _pool, _device: None,
    )
    await prepared.restore()
    where = sockets.paths(folder, DRIVER, "")
    async with server.serving(DRIVER, where, prepared, Healthy()):
        print(where.service, flush=True)
        await asyncio.to_thread(sys.stdin.read)


@asynccontextmanager
async def daemon(folder: Path, cdi: Path) -> AsyncIterator[str]:
    """Run the daemon's side in a process of its own; yield its socket."""
    command = (sys.executable, __file__, "--serve", str(folder), "--cdi", str(cdi))
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(30):
            path = (await process.stdout.readline()).decode().strip()
        yield path
    finally:
        process.stdin.close()
        await process.wait()


async def time_call(call: Any, request: Any) -> tuple[float, Any]:
    """Return the duration of a call in milliseconds, and its answer; exit if a claim failed."""
    began = time.perf_counter()
    answer = await call(request, timeout=45)
    took = (time.perf_counter() - began) * 1e3
    check(request, answer)
    return took, answer


def check(request: Any, answer: Any) -> None:
    """Exit if a claim of the request failed or is absent from the answer."""
    wrong = [result.error for result in answer.claims.values() if result.error]
    if wrong or len(answer.claims) != len(request.claims):
        raise SystemExit(f"{len(wrong)} of {len(request.claims)} claims failed, first: {wrong[:1]}")


def prepare(client: socketclient.Client, claims: list[api_pb2.Claim]) -> float:
    """Prepare the claims; return the milliseconds that it took."""
    request = api_pb2.NodePrepareResourcesRequest(claims=claims)
    return _time_request(client, "NodePrepareResources", request, api_pb2.NodePrepareResourcesResponse)


def unprepare(client: socketclient.Client, claims: list[api_pb2.Claim]) -> float:
    """Unprepare the claims; return the milliseconds that it took."""
    request = api_pb2.NodeUnprepareResourcesRequest(claims=claims)
    return _time_request(client, "NodeUnprepareResources", request, api_pb2.NodeUnprepareResourcesResponse)


def _time_request(client: socketclient.Client, method: str, request: Any, answer: Any) -> float:
    began = time.perf_counter()
    response = client.call(f"/{SERVICE}/{method}", request, answer)
    took = (time.perf_counter() - began) * 1e3
    check(request, response)
    return took


def one_by_one(path: str, count: int) -> tuple[list[float], list[float], list[float]]:
    """Prepare and Unprepare of one claim at a time, with as many prepared claims beside as a node has devices.

    The third list is of calls that ask for nothing.
    """
    beside = [claim(number) for number in range(16, 31)]
    prepares: list[float] = []
    unprepares: list[float] = []
    nothing: list[float] = []
    with socketclient.Client(path) as client:
        prepare(client, beside)
        for number in range(-20, count):
            names = [claim(number % 16)]
            took = prepare(client, names), unprepare(client, names), prepare(client, [])
            if number >= 0:
                for each, milliseconds in zip((prepares, unprepares, nothing), took, strict=True):
                    each.append(milliseconds)
        unprepare(client, beside)
    return prepares, unprepares, nothing


async def by_library(stub: Any, count: int) -> tuple[list[float], list[float]]:
    """Prepare of one claim at a time and calls that ask for nothing, through Python's gRPC."""
    prepares, nothing = [], []
    for number in range(count):
        names = [claim(number % 16)]
        took, _ = await time_call(
            stub.NodePrepareResources, api_pb2.NodePrepareResourcesRequest(claims=names)
        )
        prepares.append(took)
        await time_call(stub.NodeUnprepareResources, api_pb2.NodeUnprepareResourcesRequest(claims=names))
        took, _ = await time_call(stub.NodePrepareResources, api_pb2.NodePrepareResourcesRequest())
        nothing.append(took)
    return prepares, nothing


async def at_once(stub: Any, rounds: int) -> tuple[list[float], list[float]]:
    """Make 64 calls at the same moment; return the duration of each call and of each round as a whole."""
    each: list[float] = []
    whole: list[float] = []
    names = [[claim(number)] for number in range(PARALLEL)]
    for _ in range(rounds):
        began = time.perf_counter()
        answers = await asyncio.gather(
            *(
                time_call(stub.NodePrepareResources, api_pb2.NodePrepareResourcesRequest(claims=claims))
                for claims in names
            )
        )
        whole.append((time.perf_counter() - began) * 1e3)
        each += [took for took, _ in answers]
        await asyncio.gather(
            *(
                time_call(stub.NodeUnprepareResources, api_pb2.NodeUnprepareResourcesRequest(claims=claims))
                for claims in names
            )
        )
    return each, whole


def disk(folder: Path, count: int) -> tuple[list[float], list[float]]:
    """Write 5 kB to the disk; return the milliseconds for replacing a file and for writing within a file."""
    replaced, within = [], []
    with (folder / "there").open("wb", buffering=0) as there:
        there.write(b"x" * 512 * 1024)
        os.fsync(there.fileno())
        for number in range(count):
            began = time.perf_counter()
            with (folder / "draft").open("wb", buffering=0) as file:
                file.write(b"x" * 5000)
                os.fsync(file.fileno())
            (folder / "draft").rename(folder / "file")
            directory = os.open(folder, os.O_RDONLY)
            os.fsync(directory)
            os.close(directory)
            replaced.append((time.perf_counter() - began) * 1e3)
            began = time.perf_counter()
            os.pwrite(there.fileno(), b"y" * 5000, number % 100 * 5000)
            os.fdatasync(there.fileno())
            within.append((time.perf_counter() - began) * 1e3)
    return replaced, within


@contextmanager
def folders(parent: Path | None) -> Iterator[tuple[Path, Path]]:
    """Create a directory for the record and one for the CDI files; remove both at the end."""
    with (
        tempfile.TemporaryDirectory(prefix="drawbar-bench-", dir=parent) as folder,
        tempfile.TemporaryDirectory(prefix="drawbar-cdi-", dir=MEMORY if MEMORY.is_dir() else None) as cdi,
    ):
        yield Path(folder), Path(cdi)


async def measure(options: argparse.Namespace) -> list[report.Measure]:
    """Measure everything in one run."""
    with folders(options.folder) as (folder, cdi):
        replaced, within = disk(folder, options.count)
        async with daemon(folder, cdi) as path:
            prepares, unprepares, nothing = await asyncio.to_thread(one_by_one, path, options.count)
            async with grpc.aio.insecure_channel(f"unix:{path}") as channel:
                stub = api_pb2_grpc.DRAPluginStub(channel)
                library, library_nothing = await by_library(stub, options.count)
                each, whole = await at_once(stub, options.rounds)
    single, many = "prepare: one claim, durable", f"prepare: {PARALLEL} claims at once, durable"

    def median(name: str, values: list[float], target: float | None = None) -> report.Measure:
        return report.Measure(name, statistics.median(values), "ms", target=target)

    return [
        median(f"{single}, p50", prepares, 3),
        report.Measure(f"{single}, p99", report.p99(prepares), "ms", target=10),
        median("prepare: unprepare, p50", unprepares, 2),
        report.Measure("prepare: unprepare, p99", report.p99(unprepares), "ms", target=10),
        median("prepare: a call for no claim, p50", nothing),
        median(f"{single}, by Python's gRPC client, p50", library),
        median("prepare: a call for no claim, by Python's gRPC client, p50", library_nothing),
        report.Measure(f"{many}, per claim", statistics.median(whole) / PARALLEL, "ms", target=3),
        median(f"{many}, a call's p50", each),
        report.Measure(f"{many}, a call's p99", report.p99(each), "ms"),
        median("prepare: the disk alone, a file replaced, p50", replaced),
        median("prepare: the disk alone, within a file, p50", within),
        report.Measure("prepare: the disk alone, within a file, p99", report.p99(within), "ms"),
    ]


def main() -> int:
    """Run it; 1 if a target is missed."""
    parser = argparse.ArgumentParser(description="benchmark of Prepare and Unprepare")
    parser.add_argument("--count", type=int, default=500, help="claims that are prepared one by one")
    parser.add_argument("--rounds", type=int, default=20, help=f"how often {PARALLEL} are prepared at once")
    parser.add_argument(
        "--folder", type=Path, help="a folder on the disk to measure (default: the temporary one)"
    )
    parser.add_argument("--output", type=Path, default=report.LATEST, help="the JSON file to merge into")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--cdi", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is not None:
        asyncio.run(serve(options.serve, options.cdi))
        return 0
    where = report.machine()
    measures = asyncio.run(measure(options))
    return 0 if report.publish("Prepare and Unprepare", measures, where=where, path=options.output) else 1


if __name__ == "__main__":
    sys.exit(main())
