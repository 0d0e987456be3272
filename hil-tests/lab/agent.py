"""The lab's hand in a guest: runs programs, reads and writes files, carries connections. Standard library only.

It is the only thing that the lab starts there. Its channel is a virtio serial port, or with `--stdio` its standard input
and output. One request is one stream (`link`); it ends when the host closes the
channel, and the machine with it.

| request | the stream carries |
|---|---|
| run: argv, env, cwd | to the guest: i = input, s = a signal's number; from it: p = its process id, o = output, e = errors, x = status |
| read: path | the content |
| write: path, mode | to the guest: the content |
| list: path | from the guest: the names, as JSON |
| link: path | from the guest: where a symbolic link leads |
| make: path | nothing; the folder is there when it ends |
| connect: path or port | a connection to a socket in the guest, both ways |
| listen: path or port, service | from the guest: one message when it listens; then a stream `to: service` per connection |
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, BinaryIO

from lab import errors, link

PORTS = Path("/sys/class/virtio-ports")
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
CHANNEL = "drawbar.lab"
READ_BYTES = 16 * 1024
STDIO = "--stdio"


class Agent:
    """Answers the host's requests."""

    def __init__(self) -> None:
        self.host: link.Link | None = None
        self._answers: dict[str, Callable[[dict[str, Any], link.Stream], Awaitable[None]]] = {
            "run": self._run,
            "read": self._read,
            "write": self._write,
            "list": self._list,
            "link": self._link,
            "make": self._make,
            "connect": self._connect,
            "listen": self._listen,
        }

    async def handle(self, request: dict[str, Any], stream: link.Stream) -> None:
        """Answer a request."""
        await self._answers[request["do"]](request, stream)

    async def _read(self, request: dict[str, Any], stream: link.Stream) -> None:
        await stream.send_all(await asyncio.to_thread(Path(request["path"]).read_bytes))

    async def _write(self, request: dict[str, Any], stream: link.Stream) -> None:
        content = await stream.all()
        await asyncio.to_thread(_write, request["path"], content, request.get("mode"))

    async def _list(self, request: dict[str, Any], stream: link.Stream) -> None:
        names = await asyncio.to_thread(os.listdir, request["path"])
        await stream.send_all(json.dumps(sorted(names)).encode())

    async def _link(self, request: dict[str, Any], stream: link.Stream) -> None:
        await stream.send_all((await asyncio.to_thread(os.readlink, request["path"])).encode())

    async def _make(self, request: dict[str, Any], stream: link.Stream) -> None:
        await asyncio.to_thread(os.makedirs, request["path"], exist_ok=True)

    async def _run(self, request: dict[str, Any], stream: link.Stream) -> None:
        process = await asyncio.create_subprocess_exec(
            *request["argv"],
            env=os.environ | (request.get("env") or {}),
            cwd=request.get("cwd") or "/",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        try:
            await stream.send(b"p" + str(process.pid).encode())
            async with asyncio.TaskGroup() as tasks:
                commands = tasks.create_task(_obey(stream, process), name="commands")
                tasks.create_task(_tell(process.stdout, stream, b"o"), name="stdout")
                tasks.create_task(_tell(process.stderr, stream, b"e"), name="stderr")
                status = await process.wait()
                commands.cancel()
            await stream.send(b"x" + str(status).encode())
        except* errors.LabError:
            pass  # the host gave up on it, so no process waits for its status
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    async def _connect(self, request: dict[str, Any], stream: link.Stream) -> None:
        await link.relay(stream, *await _dial_service(request))

    async def _listen(self, request: dict[str, Any], stream: link.Stream) -> None:
        async def forward_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            assert self.host is not None
            try:
                onwards = await self.host.open({"to": request["service"]})
            except errors.LabError:
                writer.close()
                return
            await link.relay(onwards, reader, writer)

        if "port" in request:
            server = await asyncio.start_server(forward_connection, "127.0.0.1", request["port"])
        else:
            server = await asyncio.start_unix_server(forward_connection, request["path"])
        async with server:
            await stream.send(b"listening")
            await stream.receive()  # until the host ends it


async def _dial_service(request: dict[str, Any]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if "port" in request:
        return await asyncio.open_connection("127.0.0.1", request["port"])
    return await asyncio.open_unix_connection(request["path"])


async def _obey(stream: link.Stream, process: asyncio.subprocess.Process) -> None:
    assert process.stdin is not None
    with contextlib.suppress(ConnectionError, ProcessLookupError):
        while (message := await stream.receive()) is not None:
            if message[:1] == b"s":
                os.killpg(process.pid, int(message[1:]))
            else:
                process.stdin.write(message[1:])
                await process.stdin.drain()
        process.stdin.close()


async def _tell(source: asyncio.StreamReader | None, stream: link.Stream, mark: bytes) -> None:
    assert source is not None
    while data := await source.read(READ_BYTES):
        await stream.send(mark + data)


def _write(path: str, content: bytes, mode: int | None) -> None:
    # Not through a buffer: what sysfs takes is one write, and its errno is the answer.
    flags = os.O_WRONLY | os.O_TRUNC | (0 if path.startswith("/sys/") else os.O_CREAT)
    descriptor = os.open(path, flags, 0o644)
    try:
        os.write(descriptor, content) if path.startswith("/sys/") else _write_whole(descriptor, content)
        if mode is not None:
            os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)


def _write_whole(descriptor: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]


def _open_channel(*, stdio: bool) -> tuple[BinaryIO, BinaryIO]:
    """Open the virtio serial port, or standard input and output, once to read and once to write."""
    if stdio:
        source, sink = os.dup(0), os.dup(1)
        # Nothing that is printed by mistake gets into the channel.
        os.dup2(2, 1)
        return os.fdopen(source, "rb", buffering=0), os.fdopen(sink, "wb", buffering=0)
    device = next(port.name for port in PORTS.iterdir() if (port / "name").read_text().strip() == CHANNEL)
    # A port can be opened once.
    port = os.open(f"/dev/{device}", os.O_RDWR | os.O_CLOEXEC)
    return os.fdopen(port, "rb", buffering=0), os.fdopen(os.dup(port), "wb", buffering=0)


@contextlib.asynccontextmanager
async def _channel() -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    loop = asyncio.get_running_loop()
    source, sink = await asyncio.to_thread(_open_channel, stdio=STDIO in sys.argv)
    reader = asyncio.StreamReader()
    incoming, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), source)
    outgoing, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, sink)
    try:
        yield reader, asyncio.StreamWriter(outgoing, protocol, None, loop)
    finally:
        incoming.close()
        outgoing.close()


async def _serve() -> None:
    agent = Agent()
    boot_id = await asyncio.to_thread(BOOT_ID.read_text)
    async with (
        _channel() as (reader, writer),
        link.linking(reader, writer, first=2, handler=agent.handle) as host,
    ):
        agent.host = host
        hello = await host.open({"to": "hello", "boot": boot_id.strip()})
        await hello.end()
        await host.ended.wait()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asyncio.run(_serve())
    sys.exit(0)
