"""How fast the API server double is with a large cluster in it: ``python bench/apiserver.py`` (``make bench``).

The server is a process of its own over plain HTTP, the watchers are a second, the writer and reader a third, all on
the same cores.  A list is timed from the request to the last byte of the body, uncompressed; a watch event from just
before the write request is sent to its last byte at a watcher, so the write itself is in it.  A third of the writes
applies a condition to a claim's status, a third merges a label into a claim, a third replaces a claim it has read
before (the read is not counted as a write).
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import report
import world

Json = dict[str, Any]
LOADERS = 8
READS = 3


class Api:
    """The writer's client."""

    def __init__(self, session: aiohttp.ClientSession, url: str, token: str) -> None:
        self._session, self.url, self.token = session, url, token

    async def send(
        self, method: str, path: str, body: Json | None, kind: str = "application/json", **query: str
    ) -> bytes:
        """Send one request that must succeed; return the answer's body, undecoded."""
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": kind}
        data = None if body is None else json.dumps(body).encode()
        async with self._session.request(
            method, self.url + path, data=data, headers=headers, params=query
        ) as answer:
            raw = await answer.read()
            if answer.status >= 300:
                raise SystemExit(f"{method} {path} was answered {answer.status}: {raw[:500].decode()}")
            return raw


@asynccontextmanager
async def server(folder: Path, *arguments: str) -> AsyncIterator[tuple[int, str, str]]:
    """Run the server in a process of its own; yield its process id, its URL and the administrator's token."""
    command = (sys.executable, "-m", "drawbar.driver.main", "mock", "apiserver", "--plain-http")
    process = await asyncio.create_subprocess_exec(
        *command, "--kubeconfig-dir", str(folder), *arguments, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(30):
            ready = json.loads(await process.stdout.readline())
        yield process.pid, ready["url"], token_in(Path(ready["kubeconfig"]))
    finally:
        process.terminate()
        await process.wait()


def token_in(kubeconfig: Path) -> str:
    """Return the token of a kubeconfig's only user."""
    token: str = json.loads(kubeconfig.read_bytes())["users"][0]["user"]["token"]
    return token


async def load(api: Api, size: float) -> int:
    """Create the world; how many writes that took."""
    count = 0

    async def work(jobs: Iterator[tuple[str, str, Json]]) -> None:
        nonlocal count
        for method, path, body in jobs:
            await api.send(method, path, body)
            count += 1

    jobs = _jobs(size)
    async with asyncio.TaskGroup() as group:
        for _ in range(LOADERS):
            group.create_task(work(jobs))
    return count


def _jobs(size: float) -> Iterator[tuple[str, str, Json]]:
    for item in world.nodes(int(world.NODES * size)):
        yield "POST", world.NODES_PATH, item
    for item in world.pool_slices(int(world.POOLS * size)):
        yield "POST", world.SLICES_PATH, item
    for item in world.node_slices(int(world.NODES * size)):
        yield "POST", world.SLICES_PATH, item
    for index, item in enumerate(world.claims(int(world.CLAIMS * size))):
        yield "POST", world.CLAIMS_PATH, {**item, "status": {}}
        status = {"metadata": item["metadata"], "spec": item["spec"], "status": world.allocation(index)}
        yield "PUT", f"{world.CLAIMS_PATH}/{item['metadata']['name']}/status", status


async def lists(api: Api) -> list[report.Measure]:
    """Measure the slowest of a few full lists of each kind."""
    measures = []
    paths = {"nodes": world.NODES_PATH, "slices": world.SLICES_PATH, "claims": world.CLAIMS_PATH}
    for name, path in paths.items():
        times = []
        for _ in range(READS):
            began = time.monotonic()
            raw = await api.send("GET", path, None)
            times.append(time.monotonic() - began)
        megabytes = len(raw) / 1e6
        measures.append(report.Measure(f"apiserver: full list of {name}", max(times), "s", target=3))
        measures.append(report.Measure(f"apiserver: size of that list of {name}", megabytes, "MB"))
    return measures


async def write_steadily(api: Api, *, rate: float, seconds: float, claims: int) -> list[float]:
    """Write at a fixed pace, late or not; the duration of each write in milliseconds."""
    stored = json.loads(await api.send("GET", world.CLAIMS_PATH, None))["items"]
    took: list[float] = []
    gc.collect()
    gc.freeze()  # the claims read above are not to slow down the instrument
    began = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for number in range(int(rate * seconds)):
            await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
            group.create_task(_write(api, number, stored[number * 7 % claims], took))
    return took


async def _write(api: Api, number: int, held: Json, took: list[float]) -> None:
    name = held["metadata"]["name"]
    path = f"{world.CLAIMS_PATH}/{name}"
    sent = time.monotonic_ns()
    stamp = f"sent={sent}"
    match number % 3:
        case 0:
            body = world.conditions(int(name.removeprefix("claim-")), stamp)
            query = {"fieldManager": "bench", "force": "true"}
            await api.send("PATCH", f"{path}/status", body, "application/apply-patch+yaml", **query)
        case 1:
            change = {"metadata": {"annotations": {"bench": stamp}}}
            await api.send("PATCH", path, change, "application/merge-patch+json")
        case _:
            metadata = {
                k: v for k, v in held["metadata"].items() if k not in ("resourceVersion", "managedFields")
            }
            await api.send("PUT", path, {**held, "metadata": {**metadata, "annotations": {"bench": stamp}}})
    took.append((time.monotonic_ns() - sent) / 1e6)


@asynccontextmanager
async def watchers(api: Api, count: int) -> AsyncIterator[Callable[[], Any]]:
    """Open watches on all claims; yield a function to end them that returns the latencies in ms."""
    version = json.loads(await api.send("GET", world.CLAIMS_PATH, None, limit="1"))["metadata"][
        "resourceVersion"
    ]
    script = str(Path(__file__).with_name("watchers.py"))
    arguments = (api.url.rpartition(":")[2], api.token, world.CLAIMS_PATH, version, str(count))
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, script, *arguments, stdin=pipe, stdout=pipe, limit=1 << 27
    )
    written, printed = process.stdin, process.stdout
    assert written is not None
    assert printed is not None

    async def finish() -> list[float]:
        written.close()
        latencies: list[float] = json.loads(await printed.readline())["latencies"]
        return latencies

    try:
        async with asyncio.timeout(30):
            await printed.readline()
        yield finish
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def measure(options: argparse.Namespace) -> list[report.Measure]:
    """Measure everything in one run."""
    with tempfile.TemporaryDirectory(prefix="drawbar-bench-") as folder:
        async with server(Path(folder)) as (pid, url, token), aiohttp.ClientSession() as session:
            api = Api(session, url, token)
            began = time.monotonic()
            count = await load(api, options.size)
            loaded = count / (time.monotonic() - began)
            resident = report.memory(pid)["VmRSS"]
            of_lists = await lists(api)
            peak = report.memory(pid)["VmHWM"]
            async with watchers(api, options.watchers) as finish:
                used = report.processor_seconds(pid)
                took = await write_steadily(
                    api, rate=options.rate, seconds=options.seconds, claims=int(world.CLAIMS * options.size)
                )
                used = (report.processor_seconds(pid) - used) / options.seconds
                await asyncio.sleep(1)  # what is on its way arrives
                latencies = await finish()
    expected = len(took) * options.watchers
    under = f"{options.rate:g} writes/s, {options.watchers} watchers"
    return [
        *of_lists,
        report.Measure(f"apiserver: watch event p99 ({under})", report.p99(latencies), "ms", target=20),
        report.Measure(f"apiserver: watch event p50 ({under})", statistics.median(latencies), "ms"),
        report.Measure(f"apiserver: watch event slowest ({under})", max(latencies), "ms"),
        report.Measure(
            "apiserver: events delivered of those expected",
            100 * len(latencies) / expected,
            "%",
            target=100,
            at_least=True,
        ),
        report.Measure(f"apiserver: write p99 ({under})", report.p99(took), "ms"),
        report.Measure(f"apiserver: processor used ({under})", 100 * used, "% of a core"),
        report.Measure("apiserver: memory with the world loaded", resident, "MB"),
        report.Measure("apiserver: memory at its largest during lists", peak, "MB"),
        report.Measure("apiserver: writes while loading the world", loaded, "/s"),
    ]


def main() -> int:
    """Run it; 1 if a target is missed."""
    parser = argparse.ArgumentParser(description="benchmark of the API server double")
    parser.add_argument("--size", type=float, default=1.0, help="fraction of the world to load")
    parser.add_argument("--rate", type=float, default=200, help="writes per second")
    parser.add_argument("--watchers", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=20, help="how long to write")
    parser.add_argument("--output", type=Path, default=report.LATEST, help="the JSON file to merge into")
    options = parser.parse_args()
    where = report.machine()
    title = f"API server double: {world.NODES} nodes, {world.POOLS} pool slices, {world.CLAIMS} claims"
    if options.size != 1.0:
        title += f", of which a fraction of {options.size:g}"
    return 0 if report.publish(title, asyncio.run(measure(options)), where=where, path=options.output) else 1


if __name__ == "__main__":
    sys.exit(main())
