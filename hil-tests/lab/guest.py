"""A running guest, as tests use it."""

import asyncio
import contextlib

from lab import errors, machine, monitor, processes, reached

BOOT_SECONDS = 300.0
"""From power on to the agent: 10 s on an idle machine, 120 s where four others want each of its two cores."""
RUN_SECONDS = processes.RUN_SECONDS
CONSOLE_LINES = 15


class Guest(reached.Reached):
    """A guest whose agent answers. Made by `Lab.guest`.

    Attributes:
        machine: its hardware.
        monitor: QEMU's monitor: what a chassis and its operator do.
        paths: its sockets and logs.
    """

    def __init__(
        self,
        made: machine.Machine,
        paths: machine.MachinePaths,
        connection: monitor.Monitor,
        tasks: asyncio.TaskGroup,
    ) -> None:
        super().__init__(made.name, tasks)
        self.machine, self.paths, self.monitor = made, paths, connection
        self._connection: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Wait for the agent; what it needs of the host's sockets may be offered afterwards.

        Raises:
            errors.GuestSilent: it does not come up.
        """
        self._hello.clear()
        self._connection = self._tasks.create_task(self._connect(), name=f"link-{self.machine.name}")
        try:
            async with asyncio.timeout(BOOT_SECONDS):
                await self._hello.wait()
        except TimeoutError as error:
            raise errors.GuestSilent(
                f"{self.machine.name} did not come up within {BOOT_SECONDS:.0f} s{self.last_words()}"
            ) from error

    async def reset(self) -> None:
        """Press the reset button: a new boot without a shutdown. What listened or ran is gone.

        Raises:
            errors.GuestSilent: it does not come up again.
        """
        # In this order: an agent that still lives would take the closed channel for the end.
        await self.monitor.ask("system_reset")
        await self._disconnect()
        await self.start()

    async def cut_power(self) -> None:
        """End QEMU at once, as a power cut does; nothing in the guest can react. `Lab.guest` switches it on again."""
        with contextlib.suppress(errors.GuestSilent):  # its answer may get lost on the way
            await self.monitor.ask("quit")
        await self._disconnect()

    async def _connect(self) -> None:
        reader, writer = await asyncio.open_unix_connection(str(self.paths.channel))
        try:
            await self._carry(reader, writer)
        finally:
            writer.close()

    async def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.cancel()
            await asyncio.wait({self._connection}, timeout=5)

    async def close(self) -> None:
        """Let go of the agent."""
        await self._disconnect()

    def last_words(self) -> str:
        """Return the end of its console, as a part of an error message."""
        return f"; its console ends with:\n{self.console_tail()}"

    def console_tail(self) -> str:
        """Return the last lines of its console."""
        try:
            lines = self.paths.log.read_text(errors="replace").splitlines()
        except FileNotFoundError:
            return "(nothing)"
        return "\n".join(lines[-CONSOLE_LINES:])
