"""Node daemons that come and go: killed at a moment, and started again within a second.

A daemon that `Worker` starts takes 10 s and more to import; these are forked off a process that has (`lab.forkserver`), and
are the same in everything else.
"""

import contextlib
import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from lab import processes, waiting, worker

READY_SECONDS = 120.0
REGISTERED = "the kubelet registered the driver"


class Daemons:
    """The node daemons of one worker, one at a time. Make it with `raised`."""

    def __init__(self, node: worker.Worker, forkserver: processes.Process) -> None:
        self._node, self._forkserver = node, forkserver
        self._begun = 0
        self.pid: int | None = None

    async def start(self, *flags: str) -> None:
        """Start one, and return when the kubelet has registered it."""
        self._begun = len(self._forkserver.errors)
        count = len(self._records())
        line = json.dumps(self._node.arguments(*flags)).encode() + b"\n"
        await self._forkserver.write(line)

        async def pid() -> int | None:
            return next((record["pid"] for record in self._records()[count:]), None)

        self.pid = await waiting.until(pid)
        await waiting.until(self._read_log, lambda reported: REGISTERED in reported, READY_SECONDS)

    async def end(self, number: signal.Signals = signal.SIGKILL) -> int:
        """End it; return its status."""
        await self._node.guest.output("/bin/kill", f"-{int(number)}", str(self.pid))
        return await self.wait_for_exit()

    async def wait_for_exit(self) -> int:
        """Wait until it has ended; return its status."""

        async def status() -> int | None:
            mine = (record for record in self._records() if record.get("pid") == self.pid)
            return next((record["status"] for record in mine if "status" in record), None)

        ended = await waiting.until(status, lambda value: value is not None)
        assert ended is not None
        self.pid = None
        return ended

    @contextlib.asynccontextmanager
    async def killing(self, *moment: str) -> AsyncIterator[None]:
        """Expect that the daemon is killed within the context, at a moment of `lab.kernel_probe kill`."""
        guest = self._node.guest
        async with guest.process(*guest.module("lab.kernel_probe", "kill", str(self.pid), *moment)) as killer:
            await killer.says("set")
            yield
            assert (await killer.wait()).output == "set\ncaught\n"
        assert await self.wait_for_exit() == -signal.SIGKILL

    async def _read_log(self) -> str:
        return self._forkserver.errors[self._begun :]

    def _records(self) -> list[dict[str, Any]]:
        whole, _, _ = self._forkserver.output.rpartition("\n")
        return [json.loads(line) for line in whole.splitlines()]


@contextlib.asynccontextmanager
async def raising(node: worker.Worker, log: Path) -> AsyncIterator[Daemons]:
    """Yield daemons in place of the node's own daemon, which is started again afterwards."""
    await node.end_daemon()
    guest = node.guest
    async with guest.process(*guest.module("lab.forkserver"), log=log) as forkserver:
        await forkserver.says("{}", worker.READY_SECONDS)
        made = Daemons(node, forkserver)
        try:
            yield made
        finally:
            if made.pid is not None:
                await made.end()
    await node.start_daemon()
    await node.ready()
