"""QMP server for a virtual machine, like QEMU's: it serves one client at a time; others wait for a greeting."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drawbar.mocks.qemu.machine import Refusal, VirtualMachine

GREETING = {"QMP": {"version": {"qemu": {"major": 7, "minor": 2, "micro": 22}}, "capabilities": ["oob"]}}


@dataclass(kw_only=True)
class Stumble:
    """An error that occurs once, at the next command of that name.

    Attributes:
        command: the command; None: no stumble.
        does: the command is executed nevertheless.
        answer: the message of the error in the answer; None: it hangs up without an answer.
        hangs: it never answers, and does not hang up either.
    """

    command: str | None = None
    does: bool = False
    answer: str | None = None
    hangs: bool = False


@contextlib.asynccontextmanager
async def serving(machine: VirtualMachine, path: Path, stumble: Stumble | None = None) -> AsyncIterator[None]:
    """Serve on a UNIX socket while the block lasts; at its end clients lose their connection."""
    alone, writers = asyncio.Lock(), set[asyncio.StreamWriter]()
    trouble = stumble or Stumble()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.add(writer)
        try:
            async with alone:
                await _converse(machine, trouble, reader, writer)
        except (ConnectionError, asyncio.CancelledError):
            # The loop would log a handler that was cancelled, and a client that hangs up is no defect.
            pass
        finally:
            writers.discard(writer)
            writer.close()

    server = await asyncio.start_unix_server(serve, path)
    try:
        yield
    finally:
        server.close()
        for writer in tuple(writers):
            writer.transport.abort()
        await server.wait_closed()
        await asyncio.to_thread(path.unlink, missing_ok=True)


async def _converse(
    machine: VirtualMachine, trouble: Stumble, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    def send(message: Mapping[str, Any]) -> None:
        writer.write(json.dumps(message).encode() + b"\r\n")

    def tell(name: str, data: Mapping[str, Any]) -> None:
        send({"timestamp": {"seconds": 0, "microseconds": 0}, "event": name, "data": data})

    send(GREETING)
    machine.listen(tell)
    try:
        while line := await reader.readline():
            message = json.loads(line)
            answer = _answer(machine, trouble, message["execute"], message.get("arguments", {}))
            if answer is None:
                return
            if answer:
                send(answer | {"id": message["id"]})
            await writer.drain()
    finally:
        machine.unlisten(tell)


def _answer(
    machine: VirtualMachine, trouble: Stumble, command: str, arguments: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Return the answer; empty for no answer, None to hang up."""
    stumbles = trouble.command == command
    if stumbles:
        trouble.command = None
    try:
        done = {} if stumbles and not trouble.does else {"return": machine.execute(command, arguments)}
    except Refusal as refusal:
        done = {"error": {"class": refusal.kind, "desc": refusal.description}}
    if not stumbles:
        return done
    if trouble.hangs:
        return {}
    return None if trouble.answer is None else {"error": {"class": "GenericError", "desc": trouble.answer}}
