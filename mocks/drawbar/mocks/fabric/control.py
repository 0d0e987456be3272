"""The control socket of a simulated fabric, for changes by other processes while it runs.

It is a UNIX socket. The client sends one JSON object a line, and the fabric answers each with one: `{"ok": true}`, or
`{"ok": false, "code": ..., "reason": ..., "message": ...}` with the words of the fabric's errors. It answers once the
command is carried out. Access is controlled by the socket file's permissions only.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from drawbar.fabric import errors
from drawbar.fabric.grpc import endpoints
from drawbar.mocks.fabric import commands
from drawbar.mocks.fabric.console import Console

LINE_BYTES = 64 * 1024
ANSWER_SECONDS = 30.0


@asynccontextmanager
async def serving(console: Console, endpoint: str) -> AsyncIterator[None]:
    """Accept commands at `unix:/absolute/path` until the block ends.

    Raises:
        InvalidConfiguration: the endpoint is invalid, or the socket cannot be made.
    """
    if problems := endpoints.socket_problems(endpoint):
        raise errors.InvalidConfiguration(problems)
    path = endpoints.socket_path(endpoint)
    connections: set[asyncio.Task[None]] = set()

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections.add(task)
        try:
            await _converse(console, reader, writer)
        finally:
            connections.discard(task)
            writer.close()

    try:
        if path.is_socket():
            path.unlink()  # left behind by a fabric that was killed
        server = await asyncio.start_unix_server(converse, path, limit=LINE_BYTES)
    except OSError as error:
        raise errors.InvalidConfiguration([f"cannot listen at {endpoint}: {error.strerror}"]) from error
    try:
        async with server:
            yield
    finally:
        for task in connections:
            task.cancel()
        path.unlink(missing_ok=True)


async def _converse(console: Console, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the lines of one client until its end."""
    with contextlib.suppress(ConnectionError):
        while line := await _line(reader):
            writer.write(msgspec.json.encode(await _answer(console, line)) + b"\n")
            await writer.drain()


async def _line(reader: asyncio.StreamReader) -> bytes:
    """Return the next line; empty at the end, and for a line too long for a command."""
    try:
        return await reader.readline()
    except ValueError:
        return b""


async def _answer(console: Console, line: bytes) -> dict[str, Any]:
    try:
        await commands.carry_out(console, commands.parse(line))
    except errors.FabricError as error:
        return {"ok": False, "code": error.code, "reason": error.reason, "message": error.message}
    return {"ok": True}


async def tell(endpoint: str, line: bytes) -> dict[str, Any]:
    """Send one line to a fabric's control socket; return its answer.

    Raises:
        InvalidConfiguration: the endpoint is invalid.
        Unavailable: no fabric listens there, or it does not answer.
    """
    if problems := endpoints.socket_problems(endpoint):
        raise errors.InvalidConfiguration(problems)
    path = endpoints.socket_path(endpoint)
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            reader, writer = await asyncio.open_unix_connection(path)
            try:
                writer.write(line)
                answer = await reader.readline()
            finally:
                writer.close()
                await writer.wait_closed()
    except (TimeoutError, OSError) as error:
        raise errors.Unavailable(
            f"no simulated fabric answers at {endpoint} ({error}): is it running?"
        ) from error
    if not answer:
        raise errors.Unavailable(f"the simulated fabric at {endpoint} ended without an answer")
    document: dict[str, Any] = json.loads(answer)
    return document
