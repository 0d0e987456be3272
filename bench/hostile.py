"""Memory of the controller while a tenant fills the cluster with the largest claims that the API server stores.

The real `drawbar controller` is a process of its own; the API server double is in this one and is given the claims behind
its interface, since it is not what is measured. The claims come once by a list, when the controller starts, and once by its watch.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import report

from drawbar.driver.kube import client, config, kinds
from drawbar.mocks import apiserver
from drawbar.mocks.cluster import deployment

Json = dict[str, Any]
CLAIMS = 100
STORED_BYTES = 1_400_000
LEVELS = 4_500
MEMORY_MB = 256
QUIET_SECONDS = 2.0
START_SECONDS = 120.0


def make_escapes() -> Json:
    """Return selectors of `<`, which takes six bytes in every answer: 8.4 MB in all."""
    requests, selectors = 5, 32
    expression = f'"{"<" * (STORED_BYTES // requests // selectors)}" != ""'
    way = {"deviceClassName": "any", "selectors": [{"cel": {"expression": expression}}] * selectors}
    return {
        "spec": {
            "devices": {"requests": [{"name": f"r{number}", "exactly": way} for number in range(requests)]}
        }
    }


def make_labels() -> Json:
    """Return labels with short names; each takes a hundred bytes in a program."""
    return {"metadata": {"labels": {f"l{number}": "" for number in range(STORED_BYTES // 12)}}, "spec": {}}


def make_nesting() -> Json:
    """Return parameters of as many levels as 10 KiB hold, 32 times, among labels, and null for the empty list."""
    # As text, since no encoder in Python goes as deep.
    parameters = msgspec.Raw(b"[" * LEVELS + b"]" * LEVELS)
    config = [{"opaque": {"driver": "any", "parameters": parameters}}] * 32
    labels = {f"l{number}": "" for number in range((STORED_BYTES - 64 * LEVELS) // 12)}
    return {"metadata": {"labels": labels}, "spec": {"devices": {"requests": None, "config": config}}}


KINDS = {"escapes": make_escapes, "labels": make_labels, "nested": make_nesting}


def fill(server: apiserver.ApiServer, body: Json, count: int) -> None:
    """Store the claims, or a new version of each."""
    where = server.registry.catalogue.get(kinds.CLAIM.group, kinds.CLAIM.plural).where
    for number in range(count):
        name = f"hostile-{number}"
        metadata = body.get("metadata", {}) | {"name": name, "namespace": "default", "uid": name}
        server.store.put(where, body | {"metadata": metadata})


@asynccontextmanager
async def controller(folder: Path) -> AsyncIterator[int]:
    """Run the controller; yield its process id once it has read everything."""
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "drawbar.driver.main",
        *("controller", "--kubeconfig", str(folder / "controller"), "--http-address", "off"),
        stderr=asyncio.subprocess.PIPE,
    )
    assert child.stderr is not None
    try:
        async with asyncio.timeout(START_SECONDS):
            while b"controller is ready" not in (line := await child.stderr.readline()):
                if not line:
                    raise RuntimeError("the controller ended")
        yield child.pid
    finally:
        child.terminate()
        await child.communicate()


async def quiet(pid: int) -> None:
    """Wait until the process uses almost no processor time."""
    used = -1.0
    while True:
        now = report.processor_seconds(pid)
        if now - used < 0.05:
            return
        used = now
        await asyncio.sleep(QUIET_SECONDS)


async def measure(count: int) -> list[report.Measure]:
    """Run it with each kind of claim."""
    measures: list[report.Measure] = []
    for kind, make in KINDS.items():
        folder = Path(tempfile.mkdtemp(prefix="bench-"))
        async with apiserver.serving() as server:
            server.kubeconfig(folder / "admin", "admin")
            server.kubeconfig(folder / "controller", "drawbar:drawbar-controller")
            async with client.connecting(config.from_kubeconfig(folder / "admin")) as api:
                await deployment.apply(api)
            fill(server, make(), count)
            async with controller(folder) as pid:
                listed = report.memory(pid)["VmHWM"]
                fill(server, make(), count)
                await quiet(pid)
                sizes = report.memory(pid)
                watched, rest = sizes["VmHWM"], sizes["VmRSS"]
        what = f"hostile: memory, {count} claims of {kind}"
        for name, value in (("after a list", listed), ("after a watch", watched)):
            measures.append(report.Measure(f"{what}, largest {name}", value, "MB", target=MEMORY_MB))
        measures.append(report.Measure(f"{what}, at rest", rest, "MB"))
    return measures


def main() -> int:
    """Measure, print, and return whether all targets are met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--claims", type=int, default=CLAIMS)
    arguments = parser.parse_args()
    where = report.machine()
    measures = asyncio.run(measure(arguments.claims))
    return 0 if report.publish("Hostile claims", measures, where=where) else 1


if __name__ == "__main__":
    sys.exit(main())
