"""A running guest, as tests use it."""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from lab import errors, link, machine, monitor, processes

BOOT_SECONDS = 120.0
"""From power on to the agent: 10 s on an idle machine."""
RUN_SECONDS = processes.RUN_SECONDS
CONSOLE_LINES = 15
HIL_TESTS = Path(__file__).parents[1]


class Guest:
    """A guest whose agent answers. Made by `Lab.guest`.

    Attributes:
        machine: its hardware.
        monitor: QEMU's monitor: what a chassis and its operator do.
        places: its sockets and logs.
    """

    def __init__(
        self, made: machine.Machine, places: machine.Places, found: monitor.Monitor, tasks: asyncio.TaskGroup
    ) -> None:
        self.machine, self.places, self.monitor = made, places, found
        self._tasks = tasks
        self._link: link.Link | None = None
        self._services: dict[str, tuple[str, str | int]] = {}
        self._hello = asyncio.Event()
        self.boot_id = ""
        self._connection: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Waits for the agent; what it needs of the host's sockets may be offered afterwards.

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
                f"{self.machine.name} did not come up within {BOOT_SECONDS:.0f} s; its console ends with:\n"
                f"{self.console_tail()}"
            ) from error

    async def reset(self) -> None:
        """Presses the reset button: a new boot without a shutdown. What listened or ran is gone.

        Raises:
            errors.GuestSilent: it does not come up again.
        """
        # In this order: an agent that still lives would take the closed channel for the end.
        await self.monitor.ask("system_reset")
        await self._disconnect()
        await self.start()

    async def _connect(self) -> None:
        reader, writer = await asyncio.open_unix_connection(str(self.places.channel))
        try:
            async with link.linked(reader, writer, first=1, handler=self._serve) as made:
                self._link = made
                await made.ended.wait()
        finally:
            writer.close()

    async def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.cancel()
            await asyncio.wait({self._connection}, timeout=5)

    async def close(self) -> None:
        """Lets go of the agent."""
        await self._disconnect()

    async def _serve(self, request: dict[str, Any], stream: link.Stream) -> None:
        if request["to"] == "hello":
            self.boot_id = request["boot"]
            self._hello.set()
            return
        kind, where = self._services[request["to"]]
        if kind == "unix":
            reader, writer = await asyncio.open_unix_connection(str(where))
        else:
            reader, writer = await asyncio.open_connection("127.0.0.1", where)
        await link.relay(stream, reader, writer)

    async def _open(self, **request: Any) -> link.Stream:
        if self._link is None:
            raise errors.GuestSilent(f"{self.machine.name} has no agent yet")
        return await self._link.open(request)

    # -- files

    async def read(self, path: str) -> str:
        """A file's content.

        Raises:
            errors.GuestFailure: it cannot be read.
        """
        stream = await self._open(do="read", path=path)
        await stream.end()
        return (await self._within(stream.all())).decode(errors="replace")

    async def write(self, path: str, content: str | bytes, *, mode: int | None = None) -> None:
        """Writes a file; below /sys in a single write, and a file there is never made.

        Raises:
            errors.GuestFailure: the kernel says no; its errno is in the text.
        """
        stream = await self._open(do="write", path=path, mode=mode)
        await stream.send_all(content.encode() if isinstance(content, str) else content)
        await stream.end()
        await self._within(stream.all())

    async def names(self, path: str) -> list[str]:
        """What is in a folder; nothing where there is none."""
        stream = await self._open(do="list", path=path)
        await stream.end()
        try:
            return list(json.loads(await self._within(stream.all())))
        except errors.GuestFailure:
            return []

    async def leads_to(self, path: str) -> str | None:
        """Where a symbolic link leads; None where there is none."""
        stream = await self._open(do="link", path=path)
        await stream.end()
        try:
            return (await self._within(stream.all())).decode()
        except errors.GuestFailure:
            return None

    async def make_folder(self, path: str) -> None:
        """Makes a folder and those above it."""
        stream = await self._open(do="make", path=path)
        await stream.end()
        await self._within(stream.all())

    # -- programs

    @contextlib.asynccontextmanager
    async def process(
        self, *argv: str, env: dict[str, str] | None = None, log: Path | None = None
    ) -> AsyncIterator[processes.Process]:
        """A program that runs while the context lasts; it is killed then if it has not ended. `log` gets all it says."""
        stream = await self._open(do="run", argv=list(argv), env=env)
        found = processes.Process(stream, argv)
        follower = self._tasks.create_task(self._follow(found, log), name=f"process-{argv[0]}")
        try:
            yield found
        finally:
            if found.status is None:
                with contextlib.suppress(errors.LabError):
                    await stream.reset("the host is done with it")
            follower.cancel()

    async def _follow(self, found: processes.Process, log: Path | None) -> None:
        try:
            await found.follow(log)
        except errors.LabError as error:
            found.lose(str(error))

    async def run(
        self, *argv: str, seconds: float = RUN_SECONDS, env: dict[str, str] | None = None
    ) -> processes.Done:
        """Runs a program to its end."""
        async with self.process(*argv, env=env) as found:
            return await found.wait(seconds)

    async def output(self, *argv: str, seconds: float = RUN_SECONDS) -> str:
        """What a program writes to stdout.

        Raises:
            errors.GuestFailure: it fails.
        """
        done = await self.run(*argv, seconds=seconds)
        if done.status != 0:
            raise errors.GuestFailure(
                f"{' '.join(argv)[:200]} ended with {done.status}: {done.errors[-2000:]}"
            )
        return done.output

    def module(self, name: str, *arguments: str) -> tuple[str, ...]:
        """The command that runs a module of the lab in the guest."""
        return "/usr/bin/env", f"PYTHONPATH={HIL_TESTS}", sys.executable, "-m", name, *arguments

    # -- sockets

    @contextlib.asynccontextmanager
    async def offering(
        self, name: str, *, to_port: int | None = None, to_path: Path | None = None, path: str | None = None
    ) -> AsyncIterator[None]:
        """Lets programs in the guest reach a loopback port or UNIX socket of the host.

        Args:
            name: of this service.
            to_port: the host's port on 127.0.0.1; in the guest it is the same port, so addresses and names fit.
            to_path: or the host's socket.
            path: the socket in the guest, for `to_path`.
        """
        if to_port is not None:
            self._services[name] = ("tcp", to_port)
            stream = await self._open(do="listen", service=name, port=to_port)
        else:
            self._services[name] = ("unix", str(to_path))
            stream = await self._open(do="listen", service=name, path=path)
        await self._within(stream.receive())
        try:
            yield
        finally:
            with contextlib.suppress(errors.LabError):
                await stream.reset("the host takes it back")

    async def connect(self, path: str) -> link.Stream:
        """A connection to a UNIX socket in the guest."""
        return await self._open(do="connect", path=path)

    def console_tail(self) -> str:
        """The last lines of its console."""
        try:
            lines = self.places.log.read_text(errors="replace").splitlines()
        except FileNotFoundError:
            return "(nothing)"
        return "\n".join(lines[-CONSOLE_LINES:])

    async def _within(self, waiting: Any, seconds: float = RUN_SECONDS) -> Any:
        try:
            async with asyncio.timeout(seconds):
                return await waiting
        except TimeoutError as error:
            raise errors.GuestSilent(
                f"the agent of {self.machine.name} did not answer within {seconds:.0f} s; its console ends with:\n"
                f"{self.console_tail()}"
            ) from error
