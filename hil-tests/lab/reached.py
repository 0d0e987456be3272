"""A machine with the lab's agent on it, as tests use it: files, programs, sockets.

What carries the channel is the business of those who derive from it: a virtio serial port of a guest, the pipes of an
ssh to a real node.
"""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from lab import errors, link, processes

RUN_SECONDS = processes.RUN_SECONDS
HIL_TESTS = Path(__file__).parents[1]


class Reached:
    """A machine whose agent answers.

    Attributes:
        name: for messages.
        boot_id: of its kernel, from the agent.
    """

    def __init__(self, name: str, tasks: asyncio.TaskGroup) -> None:
        self.name = name
        self.boot_id = ""
        self._tasks = tasks
        self._link: link.Link | None = None
        self._services: dict[str, tuple[str, str | int]] = {}
        self._hello = asyncio.Event()

    def last_words(self) -> str:
        """Return what an error message says of a machine that does not answer."""
        return ""

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Exchange requests with the agent until the channel closes."""
        async with link.linking(reader, writer, first=1, handler=self._serve) as made:
            self._link = made
            await made.ended.wait()

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
            raise errors.GuestSilent(f"{self.name} has no agent yet")
        return await self._link.open(request)

    # -- files

    async def read(self, path: str) -> str:
        """Return a file's content.

        Raises:
            errors.GuestFailure: it cannot be read.
        """
        stream = await self._open(do="read", path=path)
        await stream.end()
        return bytes(await self._wait_within(stream.all())).decode(errors="replace")

    async def write(self, path: str, content: str | bytes, *, mode: int | None = None) -> None:
        """Write a file; below /sys in a single write, and a file there is never made.

        Raises:
            errors.GuestFailure: the kernel says no; its errno is in the text.
        """
        stream = await self._open(do="write", path=path, mode=mode)
        await stream.send_all(content.encode() if isinstance(content, str) else content)
        await stream.end()
        await self._wait_within(stream.all())

    async def names(self, path: str) -> list[str]:
        """Return the names in a folder; none where there is no folder."""
        stream = await self._open(do="list", path=path)
        await stream.end()
        try:
            return list(json.loads(await self._wait_within(stream.all())))
        except errors.GuestFailure:
            return []

    async def leads_to(self, path: str) -> str | None:
        """Return the target of a symbolic link; None where there is no link."""
        stream = await self._open(do="link", path=path)
        await stream.end()
        try:
            return bytes(await self._wait_within(stream.all())).decode()
        except errors.GuestFailure:
            return None

    async def make_folder(self, path: str) -> None:
        """Make a folder and those above it."""
        stream = await self._open(do="make", path=path)
        await stream.end()
        await self._wait_within(stream.all())

    # -- programs

    @contextlib.asynccontextmanager
    async def process(
        self, *argv: str, env: dict[str, str] | None = None, log: Path | None = None
    ) -> AsyncIterator[processes.Process]:
        """Run a program while the context lasts; kill it then if it has not ended. `log` gets all it says."""
        stream = await self._open(do="run", argv=list(argv), env=env)
        process = processes.Process(stream, argv)
        follower = self._tasks.create_task(self._follow(process, log), name=f"process-{argv[0]}")
        try:
            yield process
        finally:
            with contextlib.suppress(errors.LabError):
                if process.status is None:
                    await stream.reset("the host is done with it")
                else:
                    await stream.end()  # of its stdin: only what both sides have ended is forgotten
            follower.cancel()

    async def _follow(self, process: processes.Process, log: Path | None) -> None:
        try:
            await process.follow(log)
        except errors.LabError as error:
            process.lose(str(error))

    async def run(
        self, *argv: str, seconds: float = RUN_SECONDS, env: dict[str, str] | None = None
    ) -> processes.Done:
        """Run a program to its end."""
        async with self.process(*argv, env=env) as process:
            return await process.wait(seconds)

    async def output(self, *argv: str, seconds: float = RUN_SECONDS) -> str:
        """Run a program, and return what it writes to stdout.

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
        """Return the command that runs a module of the lab there: the same checkout is at the same path."""
        return "/usr/bin/env", f"PYTHONPATH={HIL_TESTS}", sys.executable, "-m", name, *arguments

    # -- sockets

    @contextlib.asynccontextmanager
    async def offering(
        self, name: str, *, to_port: int | None = None, to_path: Path | None = None, path: str | None = None
    ) -> AsyncIterator[None]:
        """Let programs over there reach a loopback port or UNIX socket of this host.

        Args:
            name: of this service.
            to_port: this host's port on 127.0.0.1; over there it is the same port, so addresses and names fit.
            to_path: or this host's socket.
            path: the socket over there, for `to_path`.
        """
        if to_port is not None:
            self._services[name] = ("tcp", to_port)
            stream = await self._open(do="listen", service=name, port=to_port)
        else:
            self._services[name] = ("unix", str(to_path))
            stream = await self._open(do="listen", service=name, path=path)
        await self._wait_within(stream.receive())
        try:
            yield
        finally:
            with contextlib.suppress(errors.LabError):
                await stream.reset("the host takes it back")

    async def connect(self, path: str) -> link.Stream:
        """Connect to a UNIX socket over there, and return the stream."""
        return await self._open(do="connect", path=path)

    async def _wait_within(self, waiting: Any, seconds: float = RUN_SECONDS) -> Any:
        try:
            async with asyncio.timeout(seconds):
                return await waiting
        except TimeoutError as error:
            raise errors.GuestSilent(
                f"the agent of {self.name} did not answer within {seconds:.0f} s{self.last_words()}"
            ) from error
