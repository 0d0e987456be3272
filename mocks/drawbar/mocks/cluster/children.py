"""The processes of a cluster: started, watched, restarted where a Deployment would, and stopped in order.

Guarantees: after `stop` no child is left. Children are in process groups of their own, so that Ctrl-C in a terminal
reaches only the parent, which then stops them in order; and when the parent is killed the kernel kills them (Linux).
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
STOP_SECONDS = 5.0
MOST_RESTARTS = 5
FIRST_PAUSE_SECONDS = 0.2
# A child takes these from its command line; what the caller's environment says is meant for others.
FOREIGN_VARIABLES = frozenset({"KUBECONFIG", "NODE_NAME", "POD_UID"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One process to run.

    Attributes:
        name: for people, and of the log file.
        arguments: what follows `drawbar` on its command line.
        double: it prints a ready line on stdout; its end is the end of the cluster. Otherwise it is a daemon, which is
            restarted when it ends, as a Deployment or DaemonSet does.
    """

    name: str
    arguments: Sequence[str]
    double: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A process runs; `restarted` if it is not its first."""

    name: str
    pid: int
    restarted: bool


class Children:
    """All of them. `run` is one child's life; `stop` ends them all."""

    def __init__(self, logs: Path, report: Callable[[Started], None]) -> None:
        self._logs = logs
        self._report = report
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._daemons: set[str] = set()
        self._ready: dict[str, asyncio.Event] = {}
        self._answers: dict[str, Any] = {}

    @property
    def pids(self) -> dict[str, int]:
        """The processes that run now, by name, in the order in which they were first started."""
        return {name: child.pid for name, child in self._processes.items() if child.returncode is None}

    @property
    def answers(self) -> dict[str, Any]:
        """The ready lines of the doubles, by name."""
        return dict(self._answers)

    def log(self, name: str) -> Path:
        """The log file of a child."""
        return self._logs / f"{name}.log"

    async def ready(self, name: str) -> Any:
        """Waits until a double serves; gives its ready line."""
        await self._ready.setdefault(name, asyncio.Event()).wait()
        return self._answers[name]

    async def run(self, program: Program) -> None:
        """Runs a program until cancelled.

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
        """Read to the end, lest a full pipe stop the child; the first line reports that it is ready."""
        async for line in stdout:
            if name in self._answers:
                log.write(line)
                continue
            try:
                self._answers[name] = json.loads(line)
            except ValueError as error:
                raise errors.ClusterError(
                    f"{name} said {line[:80]!r} instead of that it is ready (its log: {self.log(name)})"
                ) from error
            self._ready.setdefault(name, asyncio.Event()).set()

    async def stop(self) -> None:
        """Ends all children, the daemons before the doubles that they talk to. Takes bounded time.

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
