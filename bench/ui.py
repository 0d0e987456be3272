"""How fast the page of `drawbar ui` is with 10,000 devices: ``python bench/ui.py`` (``make bench``).

The world is that of bench/status.py. `drawbar ui`, the API server and Chromium are processes of their own. The first numbers are
the times from asking for the page until the overview, the table's first rows, and all its rows are drawn. The others are the times from
sending a change to the API server until the table and the overview have drawn it. Without Chromium nothing is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
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
# A device with an attachment; in the table by class it is in sight, since the nodes' own devices come after.
DEVICE = 1


@asynccontextmanager
async def serving(kubeconfig: Path) -> AsyncIterator[str]:
    """Run `drawbar ui`; yield its URL."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "drawbar.driver.main", "ui", "--no-open", "--driver-name", scale.DRIVER),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "KUBECONFIG": str(kubeconfig)},
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(60):
            page = (await process.stdout.readline()).decode().strip()
        yield page
    finally:
        process.terminate()
        await process.wait()


async def change(api: apiserver.Api, tab: browser.Tab, number: int, shown: str) -> float:
    """Return the seconds from sending a change of one device until the page shows it.

    Args:
        api: the API server.
        tab: of the page.
        number: of the change; the device's health alternates.
        shown: an expression that is true while the device is shown as unhealthy.
    """
    name = attachments.name(scale.FABRIC, scale.device_id(DEVICE))
    is_ill = bool(number % 2)
    body = {"status": {"node": {"health": "Unhealthy" if is_ill else "Healthy"}}}
    began = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(api.send("PATCH", f"{scale.ATTACHMENTS_PATH}/{name}/status", body, MERGE))
        await tab.until(shown if is_ill else f"!({shown})")
        return time.perf_counter() - began


def in_table(device: str) -> str:
    """Return an expression that is true while the table shows the device as unhealthy."""
    row = f"[...document.querySelectorAll('#rows [role=row]')].find((row) => row.querySelector('.device')?.textContent === '{device}')"
    return f"{row}?.querySelector('.health')?.textContent === 'Unhealthy'"


def in_overview(device: str) -> str:
    """Return an expression that is true while the map shows the device as unhealthy."""
    key = f"{scale.FABRIC}/chassis-0 {device}"
    return f"document.querySelector('.cell[data-key=\"{key}\"]').classList.contains('ill')"


async def measure(options: argparse.Namespace) -> list[report.Measure]:
    """Measure everything in one run."""
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
            device = scale.device_id(DEVICE)
            async with serving(kubeconfig) as page:
                (drawn,), overview = await watch(api, page, ("drawn",), in_overview(device))
                (rows, all_rows), table = await watch(
                    api, f"{page}#/devices?group=class", ("rows", "all-rows"), in_table(device)
                )
    return [
        report.Measure("ui: overview drawn", drawn, "s", 2.0),
        report.Measure("ui: first rows drawn", rows, "s", 0.5),
        report.Measure("ui: all rows drawn", all_rows, "s", 2.0),
        report.Measure("ui: a change on the overview, median", overview[len(overview) // 2], "s", 0.3),
        report.Measure("ui: a change drawn, median", table[len(table) // 2], "s", 0.2),
        report.Measure("ui: a change drawn, slowest", table[-1], "s", 0.3),
    ]


async def watch(
    api: apiserver.Api, url: str, marks: Sequence[str], shown: str
) -> tuple[list[float], list[float]]:
    """Return the seconds until each mark of a view, and the sorted seconds of its changes."""
    async with browser.opening(url, width=2200) as tab:
        drawn = []
        for mark in marks:
            entries = f"performance.getEntriesByName('{mark}')"
            await tab.until(f"{entries}.length")
            drawn.append(await tab.evaluate(f"{entries}[0].startTime") / 1000)
        for number in (1, 0):
            await change(api, tab, number, shown)
        times = sorted([await change(api, tab, number + 1, shown) for number in range(CHANGES)])
    return drawn, times


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
