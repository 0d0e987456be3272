"""The child processes of a cluster: start, watch, restart and ordered stop.

Guarantees: after `stop` no child is left. Children have process groups of their own, so Ctrl-C in a terminal reaches
only the parent. The parent then stops them in order. If the parent is killed, the kernel kills them (Linux).
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from drawbar.mocks.cluster import errors

TETHERED = Path(__file__).with_name("tethered.py")
DOUBLES, DAEMONS = "drawbar.mocks.command", "drawbar.driver.main"
"""The modules of the doubles' program and of Drawbar's own."""
STOP_SECONDS = 5.0
MOST_RESTARTS = 5
FIRST_PAUSE_SECONDS = 0.2
# A child gets these on its command line; the caller's environment is meant for other programs.
FOREIGN_VARIABLES = frozenset({"KUBECONFIG", "NODE_NAME", "POD_UID"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One process to run.

    Attributes:
        name: the name for people and for the log file.
        arguments: its module, and the command line.
        double: true for a double: it prints a ready line on stdout, and its end ends the cluster. False for a
            daemon: it is restarted when it ends, as by a Deployment or DaemonSet.
    """

    name: str
    arguments: Sequence[str]
    double: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A process started; `restarted` is true after its first start."""

    name: str
    pid: int
    restarted: bool


class Children:
    """All child processes. `run` runs one child until cancelled; `stop` ends them all."""

    def __init__(self, logs: Path, report: Callable[[Started], None]) -> None:
        self._logs = logs
        self._report = report
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._daemons: set[str] = set()
        self._ready: dict[str, asyncio.Event] = {}
        self._answers: dict[str, Any] = {}

    @property
    def pids(self) -> dict[str, int]:
        """Return the running processes by name, in the order of their first start."""
        return {name: child.pid for name, child in self._processes.items() if child.returncode is None}

    @property
    def answers(self) -> dict[str, Any]:
        """Return the ready lines of the doubles, by name."""
        return dict(self._answers)

    def log(self, name: str) -> Path:
        """Return the path of a child's log file."""
        return self._logs / f"{name}.log"

    async def ready(self, name: str) -> Any:
        """Wait until a double serves; return its ready line."""
        await self._ready.setdefault(name, asyncio.Event()).wait()
        return self._answers[name]

    async def run(self, program: Program) -> None:
        """Run a program until cancelled.

        Raises:
            errors.ChildEnded: a double ended, or a daemon ended too often.
        """
        for lives in range(MOST_RESTARTS + 1):
            if lives:
                await asyncio.sleep(FIRST_PAUSE_SECONDS * 2.0 ** (lives - 1))
            status = await self._live(program, restarted=lives > 0)
            if program.double:
                when = "" if program.name in self._answers else " before it was ready"
                raise errors.ChildEnded(program.name, status, self.log(program.name), when=when)
        raise errors.ChildEnded(
            program.name, status, self.log(program.name), when=f", after {MOST_RESTARTS} restarts"
        )

    async def _live(self, program: Program, *, restarted: bool) -> int:
        with self.log(program.name).open("ab", buffering=0) as log:
            child = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",
                str(TETHERED),
                str(os.getpid()),
                *program.arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE if program.double else log,
                stderr=log,
                env={name: value for name, value in os.environ.items() if name not in FOREIGN_VARIABLES},
                process_group=0,
            )
            self._processes[program.name] = child
            if not program.double:
                self._daemons.add(program.name)
            self._report(Started(name=program.name, pid=child.pid, restarted=restarted))
            if child.stdout is not None:
                await self._listen(program.name, child.stdout, log)
            return await child.wait()

    async def _listen(self, name: str, stdout: asyncio.StreamReader, log: BinaryIO) -> None:
        """Read stdout to its end, because a full pipe would stop the child. The first line is the ready line."""
        async for line in stdout:
            if name in self._answers:
                log.write(line)
                continue
            try:
                self._answers[name] = json.loads(line)
            except ValueError as error:
                raise errors.ClusterError(
                    f"{name} printed {line[:80]!r} in place of its ready line (its log: {self.log(name)})"
                ) from error
            self._ready.setdefault(name, asyncio.Event()).set()

    async def stop(self) -> None:
        """End all children, daemons before doubles, in bounded time.

        `run` must have ended for all of them.
        """
        daemons = [child for name, child in self._processes.items() if name in self._daemons]
        doubles = [child for name, child in self._processes.items() if name not in self._daemons]
        for tier in (daemons, doubles):
            await asyncio.gather(*(_end(child) for child in tier))


async def _end(child: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        child.send_signal(signal.SIGTERM)
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await child.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await child.wait()
    if child.stdout is not None:
        await child.stdout.read()  # to its end, which closes our side of the pipe
