"""Takes the pictures of docs/ui.md, docs/status.md, docs/doctor.md and docs/first-pod.md:
``python -m tests.driver.cli.ui.pictures docs``.

A mock cluster runs with the product's own daemons. Its pods get devices; one attach fails, one claim asks for more devices
than there are, one device is in maintenance, and one attach is under way.
"""

import asyncio
import contextlib
import datetime
import io
import json
import os
import pty
import re
import sys
import tempfile
import termios
from pathlib import Path

from rich import console, text

from drawbar.driver.api import drivers, maintenances
from drawbar.driver.cli.terminal import screen
from drawbar.driver.cli.ui import following, server
from drawbar.driver.kube import client, config, kinds
from drawbar.mocks.testing import browser

SECONDS = 180.0
NODES = 4
SIZES = {
    "light": (1440, 1000),
    "dark": (1440, 1000),
    "390": (390, 844),
    "800": (800, 1100),
    "2200": (2200, 1100),
}
COLUMNS, LINES = 120, 40
FAILING = "fpga-1"
PARTS = (
    ("chassis-1", "gpu", "H200", 8, "0x10de", "0x2335"),
    ("chassis-2", "nvme", "PM1743", 8, "0x144d", "0xa826"),
    ("chassis-3", "fpga", "U55C", 3, "0x10ee", "0x505c"),
)
ATTACH_SECONDS = 8.0
NAMESPACE = "team-a"


def describe_fabric():
    """Return the fabric's file."""
    enclosures = [
        {
            "id": enclosure,
            "devices": [
                {
                    "id": f"{device_class}-{number}",
                    "class": device_class,
                    "model": model_name,
                    "serial": f"16544220{index}{number:05}",
                    "pciVendor": vendor,
                    "pciDevice": pci_device,
                }
                for number in range(1, count + 1)
            ],
        }
        for index, (enclosure, device_class, model_name, count, vendor, pci_device) in enumerate(PARTS)
    ]
    return {
        "enclosures": enclosures,
        "attachSeconds": ATTACH_SECONDS,
        "attachFails": [{"device": FAILING, "times": 50}],
    }


@contextlib.asynccontextmanager
async def cluster(folder):
    """Run the mock cluster with the daemons, and yield its kubeconfig."""
    file = folder / "fabric.json"
    file.write_text(json.dumps(describe_fabric()))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "drawbar.driver.main", "mock", "cluster", "--daemons"),
        *("--nodes", str(NODES), "--slots", "8", "--fabric", str(file), "--poll-seconds", "1"),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(SECONDS):
            line = await process.stdout.readline()
        yield Path(json.loads(line)["kubeconfig"])
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


def make_object(kind, name, **content):
    metadata = {"name": name} | ({"namespace": NAMESPACE} if kind.namespaced else {})
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **content}


async def create_pod(api, name, device_class, count=1):
    """Create a claim of `count` devices, and its pod."""
    exactly = {"deviceClassName": f"{device_class}.{drivers.DEFAULT}", "count": count}
    requests = [{"name": "device", "exactly": exactly}]
    claim = make_object(kinds.CLAIM, name, spec={"devices": {"requests": requests}})
    await api.create(kinds.CLAIM, claim, into=dict, namespace=NAMESPACE)
    container = {"name": "main", "image": "pause", "resources": {"claims": [{"name": "device"}]}}
    spec = {
        "containers": [container],
        "resourceClaims": [{"name": "device", "resourceClaimName": name}],
    }
    await api.create(
        kinds.POD, make_object(kinds.POD, f"{name}-pod", spec=spec), into=dict, namespace=NAMESPACE
    )


async def until(latest, holds):
    """Return once the page has it."""
    async with asyncio.timeout(SECONDS):
        while not holds(latest.page):
            await latest.wait_for_newer(latest.page)


def states(page):
    return {row.device.name: row.device.state for row in page.rows.values()}


async def arrange(api, latest):
    """Bring the cluster into the state of the pictures."""
    await until(latest, lambda page: len(page.rows) == sum(part[3] for part in PARTS))
    await api.create(
        kinds.NAMESPACE,
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        into=dict,
    )
    for number in range(1, 6):
        await create_pod(api, f"train-{number}", "gpu")
    for number in range(1, 5):
        await create_pod(api, f"scratch-{number}", "nvme")
    await create_pod(api, "evaluate-all", "gpu", 8)
    await until(latest, lambda page: list(states(page).values()).count("Ready") == 9)
    (fabric,) = latest.page.fabrics
    spec = {"fabric": fabric.name, "devices": ["nvme-8"], "reason": "OPS-1187: new firmware"}
    maintenance = {
        "apiVersion": maintenances.API_VERSION,
        "kind": maintenances.KIND,
        "metadata": {"name": "firmware"},
        "spec": spec,
    }
    await api.create(kinds.MAINTENANCE, maintenance, into=dict)
    await create_pod(api, "infer-1", "fpga")
    await until(latest, lambda page: any(event.type == "Warning" for event in page.events))
    await create_pod(api, "train-6", "gpu")
    await until(
        latest,
        lambda page: (
            "Pending" in states(page).values()
            and any(row.device.taints for row in page.rows.values())
            # The reasons are computed every few seconds.
            and any("1 Pending" in claim.waits_for for claim in page.claims)
        ),
    )


async def _take(folder):
    with tempfile.TemporaryDirectory(prefix="drawbar-pictures-") as name:
        async with (
            cluster(Path(name)) as kubeconfig,
            client.connecting(config.from_kubeconfig(kubeconfig)) as api,
            following.following(api, driver=drivers.DEFAULT, cluster_name="mock-cluster") as latest,
        ):
            with server.listening() as bound:
                async with server.serving(latest, bound) as url, contextlib.AsyncExitStack() as tabs:
                    opened = {
                        title: await tabs.enter_async_context(
                            browser.opening(url, width=width, height=height, is_dark=title == "dark")
                        )
                        for title, (width, height) in SIZES.items()
                    }
                    await arrange(api, latest)
                    for title, tab in opened.items():
                        await tab.until("document.querySelector('.cell.moving')")
                        (folder / f"ui-{title}.png").write_bytes(await tab.picture())
                    _draw_screen(latest.page, folder / "status-watch.svg")
            await _draw_verb(folder / "doctor.svg", "doctor", "--brief", kubeconfig=kubeconfig)
    await _draw_verb(folder / "demo.svg", "demo")


def _draw_screen(page, file):
    state = screen.State()
    lines = screen.arrange(page, state)
    now = datetime.datetime.now(datetime.UTC)
    rendered = screen.render(state, page, lines, now=now, width=COLUMNS, height=LINES)
    _draw_terminal(rendered, "drawbar status --watch", file)


async def _draw_verb(file, *words, kubeconfig=None):
    """Draw what a verb prints in a terminal."""
    near, far = pty.openpty()
    termios.tcsetwinsize(far, (LINES, COLUMNS))
    env = os.environ | {"TERM": "xterm-256color", **({"KUBECONFIG": str(kubeconfig)} if kubeconfig else {})}
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "drawbar.driver.main", *words),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=far,
        stderr=asyncio.subprocess.DEVNULL,
        env=env,
    )
    os.close(far)
    printed = await asyncio.to_thread(_read_all, near)
    await program.wait()
    # What was there before is erased, and the cursor is hidden meanwhile.
    last = re.sub(r"\x1b\[\?\d+[hl]", "", printed.rpartition("\x1b[2K")[2])
    _draw_terminal(text.Text.from_ansi(last), f"drawbar {' '.join(words)}", file)


def _read_all(terminal):
    parts = []
    # A terminal that its last program has left gives EIO.
    with contextlib.suppress(OSError):
        while part := os.read(terminal, 65536):
            parts.append(part)
    os.close(terminal)
    return b"".join(parts).decode().replace("\r\n", "\n")


def _draw_terminal(shown, title, file):
    out = console.Console(
        width=COLUMNS,
        height=LINES,
        record=True,
        force_terminal=True,
        color_system="truecolor",
        file=io.StringIO(),
    )
    out.print(shown)
    # A picture asks nobody for a font.
    picture = re.sub(r"@font-face \{.*?\}", "", out.export_svg(title=title), flags=re.DOTALL)
    file.write_text("\n".join(line.rstrip() for line in picture.splitlines()) + "\n")


if __name__ == "__main__":
    asyncio.run(_take(Path(sys.argv[1])))
