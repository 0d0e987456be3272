"""`docs/redfish.md` has every profile, and no other, and its commands run."""

import asyncio
import os
import re
import socket
import sys
from pathlib import Path

import pytest

from drawbar.fabric.redfish import profiles

PAGE = (Path(__file__).parents[3] / "docs/redfish.md").read_text()


def rows(heading):
    """Return the names in the first column of the table with this heading."""
    lines = PAGE[PAGE.index(f"| {heading} |") :].split("\n\n")[0].splitlines()
    return [re.match(r"\| `([^`]+)` \|", line)[1] for line in lines[2:]]


def test_the_page_lists_every_profile():
    assert sorted(rows("profile")) == sorted(profiles.PROFILES)


def block(kind, port):
    (content,) = re.findall(rf"```sh {kind}\n(.*?)```", PAGE, re.DOTALL)
    return content.replace("8000", str(port))


async def run(script, folder):
    """Return the script as a process, in which `drawbar` is this very code."""
    program = folder / "bin" / "drawbar"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m drawbar.driver.main "$@"\n')
    program.chmod(0o755)
    return await asyncio.create_subprocess_exec(
        *("bash", "-euc", script),
        cwd=folder,
        env={**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}", "COLUMNS": "160"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )


@pytest.mark.sockets
async def test_from_the_page_alone_a_device_is_attached_on_the_emulator(tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    files = await run(block("files", port), tmp_path)
    assert await files.wait() == 0
    manager = await run(f"exec {block('serve', port)}", tmp_path)
    try:
        assert b'"ready": true' in await manager.stdout.readline()
        tried = await run(block("try", port), tmp_path)
        printed, _ = await tried.communicate()
        assert tried.returncode == 0, printed.decode()
        attached = [line for line in printed.decode().splitlines() if "gpu-1" in line and "host-1" in line]
        assert attached, printed.decode()
        assert "secret" not in printed.decode()
        assert '"secret"' not in (tmp_path / "transcript.json").read_text()
    finally:
        manager.terminate()
        await manager.communicate()
