"""Administrators' programs: run without a shell, bounded in time, memory and output.

A program has an environment of its own: no input, and only the caller's variables. No process remains after its end,
beyond a bound, or if the caller is cancelled: its process group is killed, and also every process with its mark. The
mark is a variable of this run only, so it finds processes that have left the group. A child that has replaced its
environment as well is not found.

Sources: setrlimit(2) `RLIMIT_DATA`; killpg(3); proc(5) `environ`.
"""

import asyncio
import contextlib
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import msgspec

from drawbar.driver import errors

MARK = "DRAWBAR_RUN"
"""The variable that marks the processes of a run."""
WORDS_CHARS = 200
"""The length of its last output in a message."""
_DRAIN_SECONDS = 1.0
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PROC = Path("/proc")
# A process may fork during the search, so each round kills the processes missed by the previous one.
_ROUNDS_MAX = 16
# Limits set before the program begins hold for all of it; prlimit(2) would come after its first forks.
_LIMITED = """\
import os, resource, sys
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.setrlimit(resource.RLIMIT_DATA, (int(sys.argv[1]),) * 2)
try:
    os.execv(sys.argv[2], sys.argv[2:])
except OSError as error:
    sys.exit(f"cannot be executed: {error.strerror}")
"""


class Failed(errors.DrawbarError):
    """The program did not end with status 0 within its bounds; the message has its last output."""


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a run.

    Attributes:
        timeout_seconds: from its start to its end.
        memory_bytes: of data, for each of its processes.
        output_bytes: on stdout and stderr each.
    """

    timeout_seconds: float
    memory_bytes: int
    output_bytes: int


async def output(path: Path, bounds: Bounds, variables: Mapping[str, str] | None = None) -> bytes:
    """Return the program's output on stdout.

    Args:
        path: of the program, absolute.
        bounds: of the run.
        variables: its environment, beside `PATH`, `LC_ALL` and `MARK`.

    Raises:
        Failed: it cannot be executed, ends with another status than 0, or is beyond a bound.
    """
    if not _is_executable(path):
        raise Failed(f"cannot run {path}: is it an executable file?")
    mark = secrets.token_hex(16)
    late = False
    async with _pipe(bounds.output_bytes) as stdout, _pipe(bounds.output_bytes) as stderr:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", "-c", _LIMITED, str(bounds.memory_bytes), str(path)),
            stdin=subprocess.DEVNULL,
            stdout=stdout.writer,
            stderr=stderr.writer,
            env={**(variables or {}), "PATH": _PATH, "LC_ALL": "C.UTF-8", MARK: mark},
            start_new_session=True,
            cwd="/",
        )
        stdout.watch(process.pid)
        stderr.watch(process.pid)
        try:
            async with asyncio.timeout(bounds.timeout_seconds):
                await process.wait()
        except TimeoutError:
            late = True
        finally:
            await asyncio.to_thread(_kill, process.pid, mark)
            status = await process.wait()
            # A pipe without a writer ends after its content is read; but a process that was not found may
            # still hold it.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_DRAIN_SECONDS):
                    await stdout.ended.wait()
                    await stderr.ended.wait()
    written, reported = stdout.written, stderr.written
    words = _words(reported or written)
    if late:
        raise Failed(f"{path} was killed after {bounds.timeout_seconds:g} s{words}")
    if max(len(written), len(reported)) > bounds.output_bytes:
        raise Failed(f"{path} wrote more than {bounds.output_bytes} bytes, and was killed{words}")
    if status < 0:
        raise Failed(f"{path} was ended by signal {-status}{words}")
    if status != 0:
        raise Failed(f"{path} ended with status {status}{words}")
    return bytes(written)


def _is_executable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


class _Pipe(asyncio.Protocol):
    """The reading end of a pipe, with the received output: at most one chunk above the limit.

    Attributes:
        writer: the descriptor of the other end.
        written: the received output.
        ended: set when the reading has ended.
    """

    def __init__(self, writer: int, bytes_max: int) -> None:
        self.writer = writer
        self.written = bytearray()
        self.ended = asyncio.Event()
        self._bytes_max = bytes_max
        self._group: int | None = None

    def watch(self, group: int) -> None:
        """Leave the writing end to a process group, and kill that when it writes too much."""
        self.close_writer()
        self._group = group
        self._enforce()

    def data_received(self, data: bytes) -> None:
        """Keep it, unless there is too much."""
        if len(self.written) <= self._bytes_max:
            self.written += data
            self._enforce()

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that the pipe has no writer any more, or was closed."""
        del exc
        self.ended.set()

    def close_writer(self) -> None:
        """Close this process's descriptor of the writing end; idempotent."""
        if self.writer >= 0:
            os.close(self.writer)
            self.writer = -1

    def _enforce(self) -> None:
        if self._group is not None and len(self.written) > self._bytes_max:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._group, signal.SIGKILL)


@contextlib.asynccontextmanager
async def _pipe(bytes_max: int) -> AsyncIterator[_Pipe]:
    """Open a pipe, and close both of its ends at the exit, even if another process holds the writing end."""
    reader, writer = os.pipe()
    pipe = _Pipe(writer, bytes_max)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: pipe, os.fdopen(reader, "rb", 0)
    )
    try:
        yield pipe
    finally:
        pipe.close_writer()
        transport.close()


def _kill(group: int, mark: str) -> None:
    """Kill the process group, and the processes that have the mark."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
    for _ in range(_ROUNDS_MAX):
        marked = tuple(_find_marked(mark))
        for pid in marked:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not marked:
            return


def _find_marked(mark: str) -> Iterator[int]:
    """Yield the ids of running processes with the mark; a zombie has no environment, so it is not found."""
    wanted = f"{MARK}={mark}".encode()
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    yield int(entry.name)


def _words(written: bytes | bytearray) -> str:
    """Return the end of the program's output as a clause on one line, or an empty string without output."""
    text = bytes(written[-4 * WORDS_CHARS :]).decode("utf-8", "replace")
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return f"; it wrote last: {line[-WORDS_CHARS:]}" if line else ""
