"""A client of QEMU's monitor (QMP): commands, and events as they come.

Source: docs/interop/qmp-spec.txt of QEMU.
"""

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from lab import errors, waiting

ANSWER_SECONDS = 30.0
EVENTS_MAX = 1024
_LINE_BYTES = 4 * 1024 * 1024


class Monitor:
    """A connection to one QEMU. Make it with `connected`; commands may come from several tasks."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._next = 0
        self._ended = False
        self._seen: deque[tuple[int, dict[str, Any]]] = deque(maxlen=EVENTS_MAX)
        self._count = 0
        self._changed = asyncio.Event()

    @property
    def now(self) -> int:
        """A mark in the stream of events: `event(..., after=mark)` looks at later ones alone."""
        return self._count

    async def ask(self, command: str, arguments: dict[str, Any] | None = None) -> Any:
        """Send a command, and return its answer.

        Raises:
            errors.MonitorRefusal: QEMU says no.
            errors.GuestSilent: it does not say anything, or has ended.
        """
        if self._ended:
            raise errors.GuestSilent(f"QEMU has ended, so it cannot do {command}")
        self._next += 1
        number = self._next
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        line = json.dumps({"execute": command, "arguments": arguments or {}, "id": number})
        try:
            self._writer.write(line.encode() + b"\n")
            async with asyncio.timeout(ANSWER_SECONDS):
                reported = await answer
        except (TimeoutError, ConnectionError) as error:
            raise errors.GuestSilent(
                f"QEMU did not answer {command} within {ANSWER_SECONDS:.0f} s"
            ) from error
        finally:
            self._answers.pop(number, None)
        if "error" in reported:
            raise errors.MonitorRefusal(command, reported["error"]["class"], reported["error"]["desc"])
        return reported["return"]

    async def event(
        self,
        name: str,
        *,
        after: int = 0,
        seconds: float = 30,
        where: Callable[[dict[str, Any]], bool] = lambda data: True,
    ) -> dict[str, Any]:
        """Wait for an event; return its data.

        Raises:
            errors.GuestSilent: it did not come.
        """
        try:
            async with asyncio.timeout(seconds):
                while True:
                    for number, event in self._seen:
                        if number >= after and event["event"] == name and where(event.get("data", {})):
                            data: dict[str, Any] = event.get("data", {})
                            return data
                    if self._ended:
                        raise errors.GuestSilent(f"QEMU ended before {name} came")
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError as error:
            raise errors.GuestSilent(f"QEMU did not say {name} within {seconds:.0f} s") from error

    async def _follow(self) -> None:
        try:
            while line := await self._reader.readline():
                reported = json.loads(line)
                if "event" in reported:
                    self._seen.append((self._count, reported))
                    self._count += 1
                    self._changed.set()
                elif (answer := self._answers.get(reported.get("id", 0))) is not None and not answer.done():
                    answer.set_result(reported)
        except ConnectionError:
            pass  # QEMU ended: all waiting requests are told below
        finally:
            self._ended = True
            self._changed.set()
            for answer in self._answers.values():
                if not answer.done():
                    answer.set_exception(ConnectionResetError("QEMU ended"))


@contextlib.asynccontextmanager
async def connecting(path: Path) -> AsyncIterator[Monitor]:
    """Connect to a monitor, and yield it once its greeting has come.

    Raises:
        errors.GuestSilent: no greeting arrives at this socket.
    """
    reader, writer = await asyncio.open_unix_connection(str(path), limit=_LINE_BYTES)
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            await reader.readline()
        connection = Monitor(reader, writer)
        async with waiting.tasks() as tasks:
            follower = tasks.create_task(connection._follow(), name=f"monitor-{path.name}")
            await connection.ask("qmp_capabilities")
            try:
                yield connection
            finally:
                follower.cancel()
    except TimeoutError as error:
        raise errors.GuestSilent(
            f"no greeting arrives at {path}: QEMU hangs, or another client has its monitor"
        ) from error
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
