"""How long `drawbar status` takes in a large cluster: ``python bench/status.py`` (``make bench``).

5,000 nodes, 10,000 fabric devices in 157 slices, 10,000 allocated claims, half of them with an attached device; the API
server is the double, a process of its own. Timed is the whole program, from its start to its end, its output into a pipe.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import apiserver
import report
import scale
import world

from drawbar.driver.kube import client, config
from drawbar.mocks.cluster import deployment

RUNS = 5


def slices(devices: int) -> Iterator[apiserver.Json]:
    """Return the slices of the fabric, of 64 devices each."""
    for first in range(0, devices, world.POOL_DEVICES):
        enclosure = f"chassis-{first // world.POOL_DEVICES}"
        names = [scale.device_id(number) for number in range(first, min(first + world.POOL_DEVICES, devices))]
        texts = {"class": "gpu", "model": "H200", "fabric": scale.FABRIC, "enclosure": enclosure}
        attributes = {name: {"string": text} for name, text in texts.items()}
        yield {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"{scale.FABRIC}-{enclosure}"},
            "spec": {
                "driver": scale.DRIVER,
                "pool": {
                    "name": f"{scale.FABRIC}/{enclosure}",
                    "generation": 1,
                    "resourceSliceCount": 1,
                },
                "allNodes": True,
                "devices": [{"name": name, "attributes": attributes} for name in names],
            },
        }


async def time_status(kubeconfig: Path, *words: str) -> float:
    """Return the seconds that the program takes."""
    began = time.perf_counter()
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "drawbar.driver.main", "status", *words),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "KUBECONFIG": str(kubeconfig)},
    )
    out, _ = await child.communicate()
    if child.returncode or not out:
        raise SystemExit(f"drawbar status {' '.join(words)} ended with {child.returncode}")
    return time.perf_counter() - began


async def measure(options: argparse.Namespace) -> list[report.Measure]:
    """Measure everything in one run."""
    with tempfile.TemporaryDirectory(prefix="drawbar-bench-") as name:
        folder = Path(name)
        async with (
            apiserver.server(folder) as (_, url, token),
            aiohttp.ClientSession() as session,
            client.connecting(config.from_kubeconfig(folder / "admin.kubeconfig")) as admin,
        ):
            api = apiserver.Api(session, url, token)
            await deployment.apply(admin)
            await scale.load(api, options)
            for item in slices(options.devices):
                await api.send("POST", world.SLICES_PATH, item)
            driver = ("--driver-name", scale.DRIVER)
            measures = []
            for label, target, words in (
                ("the whole cluster as a tree", 1.5, ()),
                ("the whole cluster as JSON", 1.5, ("-o", "json")),
                ("one claim", 0.6, (f"claim/{world.claim_name(1)}",)),
                ("one node", 0.6, (f"node/{scale.node_name(1)}",)),
            ):
                runs = [await time_status(folder / "admin.kubeconfig", *words, *driver) for _ in range(RUNS)]
                measures.append(report.Measure(f"status: {label}", statistics.median(runs), "s", target))
    return measures


def main() -> int:
    """Run it; 1 if a target is missed."""
    parser = argparse.ArgumentParser(description="benchmark of drawbar status in a large cluster")
    parser.add_argument("--nodes", type=int, default=scale.NODES)
    parser.add_argument("--devices", type=int, default=scale.DEVICES)
    parser.add_argument("--claims", type=int, default=scale.CLAIMS, help="half of them have a fabric device")
    parser.add_argument("--output", type=Path, default=report.LATEST, help="the JSON file to merge into")
    options = parser.parse_args()
    where = report.machine()
    title = f"Status: {options.nodes} nodes, {options.devices} devices, {options.claims} claims"
    return 0 if report.publish(title, asyncio.run(measure(options)), where=where, path=options.output) else 1


if __name__ == "__main__":
    sys.exit(main())
