"""The administrator's command: run now and then, without a shell, bounded in time and in output.

It runs with an almost empty environment and no input, in a process group of its own that is killed at the deadline. What fails
is no statement about any device: nothing is tainted and nothing is freed because of it.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
from pathlib import Path

from drawbar.driver import errors

OUTPUT_BYTES = 1 << 20
_CHUNK_BYTES = 1 << 16
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Failed(errors.DrawbarError):
    """The command did not give an output that counts."""


async def output(path: Path, *, timeout_seconds: float) -> bytes:
    """Return what the command writes on stdout.

    Raises:
        Failed: it cannot be run, ends with another status than 0, takes too long, or writes too much.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            path,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"PATH": _PATH, "LC_ALL": "C.UTF-8"},
            start_new_session=True,
        )
    except OSError as error:
        raise Failed(f"cannot run {path}: {error.strerror or error}; is it an executable file?") from error
    try:
        async with asyncio.timeout(timeout_seconds):
            written = await _read(process)
            status = await process.wait()
    except TimeoutError as error:
        raise Failed(
            f"{path} was killed after {timeout_seconds:g} s; --command-timeout allows more"
        ) from error
    finally:
        # Whatever it left behind goes with it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    if len(written) > OUTPUT_BYTES:
        raise Failed(f"{path} wrote more than {OUTPUT_BYTES} bytes; report fewer devices or labels")
    if status != 0:
        raise Failed(f"{path} ended with status {status}; run it by hand to see why")
    return bytes(written)


async def _read(process: asyncio.subprocess.Process) -> bytearray:
    """Return the output, at most a chunk more than allowed."""
    assert process.stdout is not None
    written = bytearray()
    while len(written) <= OUTPUT_BYTES and (chunk := await process.stdout.read(_CHUNK_BYTES)):
        written += chunk
    if len(written) > OUTPUT_BYTES:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return written
