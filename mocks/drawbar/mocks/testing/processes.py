"""A double (`drawbar mock NAME`) as a child process of a test run; the kernel ends it with the test run."""

import contextlib
import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import drawbar.mocks

TETHERED = Path(drawbar.mocks.__path__[0], "cluster", "tethered.py")
DOUBLES = "drawbar.mocks.command"
READY_SECONDS = 150.0
STOP_SECONDS = 30.0


class NotReady(Exception):
    """A double did not start; the message contains the end of its log."""


@contextlib.contextmanager
def running(name: str, log: Path, *arguments: str) -> Iterator[dict[str, Any]]:
    """Run a double until the block ends, and yield its ready line.

    Args:
        name: the double's name on the command line.
        log: the file for its stderr.
        arguments: the command line after the name.

    Raises:
        NotReady: it ended, or printed nothing within `READY_SECONDS`.
    """
    with log.open("ab") as errors:
        process = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-P", str(TETHERED), str(os.getpid()), DOUBLES, name, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
    with process:
        try:
            yield _ready(process, name, log)
        finally:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def _ready(process: subprocess.Popen[bytes], name: str, log: Path) -> dict[str, Any]:
    assert process.stdout is not None
    readable, _, _ = select.select([process.stdout], [], [], READY_SECONDS)
    line = process.stdout.readline() if readable else b""
    if not line:
        words = log.read_text(encoding="utf-8", errors="replace").strip()[-500:]
        raise NotReady(f"drawbar mock {name} did not start: {words or 'it printed nothing'} (its log: {log})")
    ready: dict[str, Any] = json.loads(line)
    return ready
