"""How fast the page of `drawbar ui` is with 10,000 devices: ``python bench/ui.py`` (``make bench``).

The world is that of bench/status.py. `drawbar ui`, the API server and Chromium are processes of their own. The first number is the
time from asking for the page until its first rows are drawn; the second the time from sending a change to the API server until the
page has drawn it. Without Chromium nothing is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import apiserver
import report
import scale
import status
import world

from drawbar.driver.api import attachments
from drawbar.driver.kube import client, config
from drawbar.mocks.cluster import deployment
from drawbar.mocks.testing import browser

CHANGES = 30
MERGE = "application/merge-patch+json"
# The first device in sight that has an attachment.
DEVICE = 1


@asynccontextmanager
async def served(kubeconfig: Path) -> AsyncIterator[str]:
    """Run `drawbar ui`; yield its URL."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "drawbar.driver.main", "ui", "--driver-name", scale.DRIVER),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "KUBECONFIG": str(kubeconfig)},
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(60):
            yield (await process.stdout.readline()).decode().strip()
    finally:
        process.terminate()
        await process.wait()


async def change(api: apiserver.Api, tab: browser.Tab, number: int) -> float:
    """Return the seconds from sending a change of one device until the page shows it."""
    name = attachments.name(scale.FABRIC, scale.device_id(DEVICE))
    body = {"status": {"node": {"health": "Unhealthy" if number % 2 else "Healthy"}}}
    text = body["status"]["node"]["health"]
    row = f"[...document.querySelectorAll('#rows [role=row]')].find((row) => row.firstChild.textContent === '{scale.device_id(DEVICE)}')"
    began = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(api.send("PATCH", f"{scale.ATTACHMENTS_PATH}/{name}/status", body, MERGE))
        await tab.until(f"{row}?.children[4].textContent === '{text}'")
        return time.perf_counter() - began


async def measure(options: argparse.Namespace) -> list[report.Measure]:
    """Everything, in one run."""
    with tempfile.TemporaryDirectory(prefix="drawbar-bench-") as name:
        kubeconfig = Path(name) / "admin.kubeconfig"
        async with (
            apiserver.server(Path(name)) as (_, url, token),
            aiohttp.ClientSession() as session,
            client.connecting(config.from_kubeconfig(kubeconfig)) as admin,
        ):
            api = apiserver.Api(session, url, token)
            await deployment.apply(admin)
            await scale.load(api, options)
            for item in status.slices(options.devices):
                await api.send("POST", world.SLICES_PATH, item)
            async with served(kubeconfig) as page, browser.opened(page) as tab:
                await tab.until("performance.getEntriesByName('rows').length")
                first = await tab.evaluate("performance.getEntriesByName('rows')[0].startTime")
                await change(api, tab, 1)
                times = sorted([await change(api, tab, number) for number in range(CHANGES)])
    return [
        report.Measure("ui: first rows drawn", first / 1000, "s", 2.0),
        report.Measure("ui: a change drawn, median", times[len(times) // 2], "s", 0.2),
        report.Measure("ui: a change drawn, slowest", times[-1], "s", 0.2),
    ]


def main() -> int:
    """Run it; 1 if a target is missed."""
    parser = argparse.ArgumentParser(description="benchmark of the page of drawbar ui")
    parser.add_argument("--nodes", type=int, default=scale.NODES)
    parser.add_argument("--devices", type=int, default=scale.DEVICES)
    parser.add_argument("--claims", type=int, default=scale.CLAIMS, help="half of them have a fabric device")
    parser.add_argument("--output", type=Path, default=report.LATEST, help="the JSON file to merge into")
    options = parser.parse_args()
    if browser.PROGRAM is None:
        print(f"ui: not measured: {browser.MISSING}")
        return 0
    where = report.machine()
    title = f"Page: {options.nodes} nodes, {options.devices} devices, {options.claims} claims"
    return 0 if report.publish(title, asyncio.run(measure(options)), where=where, path=options.output) else 1


if __name__ == "__main__":
    sys.exit(main())
