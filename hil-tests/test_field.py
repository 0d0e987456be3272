"""The way of a run on real hardware, on a guest: no part of it depends on the fabric being QEMU and the node its guest.

What cannot be shown so: a real manager's times and failures, real slots, links and drivers.
"""

import asyncio
import contextlib
import json
import os
import sys
from pathlib import Path

import pytest
import pytest_asyncio
from lab import errors

pytestmark = pytest.mark.asyncio(loop_scope="session")

CHECKOUT = Path(__file__).parents[1]
RUN_SECONDS = 500
IMAGE_BYTES = 32 << 20
DOOR = """
import json, os, socket, sys, threading
door = socket.socket(socket.AF_UNIX)
door.connect(sys.argv[1])
door.sendall(json.dumps(sys.argv[-1]).encode() + b"\\n")
def inwards():
    while data := os.read(0, 65536):
        door.sendall(data)
    door.shutdown(socket.SHUT_WR)
threading.Thread(target=inwards, daemon=True).start()
while data := door.recv(65536):
    os.write(1, data)
"""
"""Like ssh: runs its last argument over there, with standard input and output."""


@contextlib.asynccontextmanager
async def reachable(guest, path):
    """Let DOOR run commands in the guest while this lasts."""

    async def serve(reader, writer):
        line = json.loads(await reader.readline())
        stream = await guest._open(do="run", argv=["/bin/sh", "-c", line])

        async def inwards():
            while data := await reader.read(16384):
                await stream.send(b"i" + data)
            await stream.end()

        async with asyncio.TaskGroup() as tasks:
            upwards = tasks.create_task(inwards(), name="door-in")
            with contextlib.suppress(errors.LabError):
                while (message := await stream.receive()) is not None and message[:1] != b"x":
                    if message[:1] == b"o":
                        writer.write(message[1:])
                        await writer.drain()
            upwards.cancel()
        writer.close()

    async with await asyncio.start_unix_server(serve, path):
        yield


def write_site(guest, folder):
    """Write the fabric's file, and the file that a user of real hardware writes; return the latter."""
    devices = []
    for name in ("listed", "other"):
        with (folder / name).open("wb") as image:
            image.truncate(IMAGE_BYTES)
        devices.append({"driver": "nvme", "id": name, "serial": f"FIELD-{name}", "file": str(folder / name)})
    host = {"id": guest.machine.name, "qmp": str(guest.paths.fabric), "ports": ["port-2"]}
    (folder / "fabric.json").write_text(json.dumps({"hosts": [host], "devices": devices}))
    (folder / "door.py").write_text(DOOR)
    command = [sys.executable, str(folder / "door.py"), str(folder / "door")]
    node = {"name": "field-1", "host": guest.machine.name, "command": command, "checkout": str(CHECKOUT)}
    site = {
        "fabric": {"adapter": "qemu", "endpoint": f"file:{folder / 'fabric.json'}"},
        "node": node,
        "devices": [{"id": "listed", "class": "nvme", "contents": "lose"}],
    }
    (folder / "site.json").write_text(json.dumps(site))
    return folder / "site.json"


async def run(site, args):
    """Do what `make hil HIL_CONFIG=... HIL_YES=1` does, without make; return status, output and errors."""
    environment = os.environ | {"HIL_CONFIG": str(site), "HIL_YES": "1", "HIL_ARGS": args}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(CHECKOUT / "hil-tests/run.py"),
        "all",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment,
    )
    try:
        async with asyncio.timeout(RUN_SECONDS):
            output, reported = await process.communicate()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    return process.returncode, output.decode(), reported.decode()


@pytest_asyncio.fixture(loop_scope="session")
async def site(lab, guest):
    """Yield the path of the site's file; its folder has a short name, as sockets want it."""
    folder = lab.folder / "field"
    folder.mkdir(exist_ok=True)
    async with reachable(guest, folder / "door"):
        yield write_site(guest, folder)


async def test_the_same_tests_run_on_a_fabric_and_a_node_that_a_file_names(site, guest):
    status, output, reported = await run(site, "-k 'listed or mounted or read_through'")
    assert status == 0, output + reported
    assert "listed (nvme, qemu-nvme, serial FIELD-listed): attached and detached by 3 tests" in output
    assert "FIELD-other" not in output
    assert "3 passed" in output, output
    assert [name for name in await guest.names("/run") if name.startswith("drawbar-hil")] == []
    there = await guest.monitor.ask("qom-list", {"path": "/machine/peripheral"})
    assert not any("listed" in entry["name"] or "other" in entry["name"] for entry in there)
