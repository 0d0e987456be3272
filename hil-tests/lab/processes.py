"""Programs that run in a guest."""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab import errors, link

RUN_SECONDS = 60.0
PIECES_MAX = 4096
"""Of a program's output, of 16 KiB at most each, that are kept; logs have all."""
LOST = -255
"""The status of a program whose end was not reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A program that has ended."""

    status: int
    output: str
    errors: str


class Process:
    """A program that runs in a guest. Made by `Guest.process`.

    Attributes:
        status: how it ended, negative by a signal; None while it runs.
        pid: in the guest; 0 until it has started.
    """

    def __init__(self, stream: link.Stream, argv: Sequence[str]) -> None:
        self._stream, self.argv = stream, argv
        self.status: int | None = None
        self.pid = 0
        self._output: dict[bytes, list[bytes]] = {b"o": [], b"e": []}
        self.changed = asyncio.Event()

    @property
    def output(self) -> str:
        """Return its output on stdout so far."""
        return b"".join(self._output[b"o"]).decode(errors="replace")

    @property
    def errors(self) -> str:
        """Return its output on stderr so far."""
        return b"".join(self._output[b"e"]).decode(errors="replace")

    async def signal(self, number: signal.Signals) -> None:
        """Send a signal to it and its children."""
        await self._stream.send(b"s" + str(int(number)).encode())

    async def write(self, data: bytes) -> None:
        """Write to its stdin."""
        for start in range(0, len(data), link.MESSAGE_BYTES - 1):
            await self._stream.send(b"i" + data[start : start + link.MESSAGE_BYTES - 1])

    async def wait(self, seconds: float = RUN_SECONDS) -> Done:
        """Wait until it has ended; return its status and output.

        Raises:
            errors.GuestSilent: it has not ended by then.
        """
        await self._until(lambda: self.status is not None, seconds, "did not end")
        assert self.status is not None
        return Done(status=self.status, output=self.output, errors=self.errors)

    async def says(self, text: str, seconds: float = RUN_SECONDS) -> None:
        """Wait until its output or errors contain a text.

        Raises:
            errors.GuestSilent: they do not by then, or it has ended.
        """
        await self._until(
            lambda: text in self.output or text in self.errors, seconds, f"did not say {text!r}"
        )

    async def _until(self, holds: Callable[[], bool], seconds: float, what: str) -> None:
        try:
            async with asyncio.timeout(seconds):
                while not holds():
                    if self.status is not None:
                        raise errors.GuestFailure(
                            f"{' '.join(self.argv)[:200]} {what} and ended with {self.status}: {self._tail()}"
                        )
                    self.changed.clear()
                    await self.changed.wait()
        except TimeoutError as error:
            raise errors.GuestSilent(
                f"{' '.join(self.argv)[:200]} {what} within {seconds:.0f} s: {self._tail()}"
            ) from error

    def _tail(self) -> str:
        return (self.output + self.errors)[-2000:]

    def lose(self, why: str) -> None:
        """Note that nothing more will be heard of it, and why."""
        if self.status is None:
            self.status = LOST
            self._keep(b"e", f"\n[lab: {why}]\n".encode())
        self.changed.set()

    def _keep(self, mark: bytes, data: bytes) -> None:
        """Keep the last of its output."""
        kept = self._output[mark]
        kept.append(data)
        while len(kept) > PIECES_MAX:
            del kept[0]

    async def follow(self, log: Path | None) -> None:
        """Receive its output until it has ended."""
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(log.open("ab", buffering=0)) if log is not None else None
            while (message := await self._stream.receive()) is not None:
                mark, data = message[:1], message[1:]
                if mark == b"p":
                    self.pid = int(data)
                elif mark == b"x":
                    self.status = int(data)
                else:
                    self._keep(mark, data)
                    if file is not None:
                        file.write(data)
                self.changed.set()
        self.changed.set()
