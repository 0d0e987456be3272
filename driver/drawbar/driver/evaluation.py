"""Evaluation of tenants' CEL in a process with limits, so that it can neither delay nor end a daemon.

The library that evaluates CEL (`drawbar.driver.expressions`) has no limits: 6 kB of CEL can compute for hours, take
any amount of memory, or crash the interpreter. So the evaluating process is killed after `CHUNK_SECONDS` of computing
on some devices, or beyond `MEMORY_BYTES`, and the next question starts another one. The process starts with the first
question, ends after a quiet minute, and ends with its parent, which closes its input.

An expression that exceeded a limit is remembered for a while and refused without another attempt.
"""

import asyncio
import contextlib
import hashlib
import logging
import os
import signal
import sys
import time
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from drawbar.driver import expressions
from drawbar.driver.api import slices

log = logging.getLogger(__name__)

# The API server allows a device's selector a tenth of a second. An ordinary one takes a millisecond.
CHUNK_DEVICES = 128
CHUNK_SECONDS = 1.0
"""The processor time for `CHUNK_DEVICES` devices."""
TOTAL_SECONDS = 5.0
"""The processor time for all devices."""
# Includes the start of the process. On a busy machine, a second of processor time takes longer.
PATIENCE_SECONDS = 30.0
MEMORY_BYTES = 128 * 1024 * 1024
IDLE_SECONDS = 60.0
REFUSED_SECONDS = 600.0
FAILED_SECONDS = 30.0
REFUSED_MAX = 1024
FAULT_CHARS = 300
REPLY_BYTES = 4 * 1024 * 1024
TOO_EXPENSIVE = f"it takes more than {CHUNK_SECONDS:g} s of processor time, or crashes; make it simpler"


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whether one device meets an expression; with a fault if that is unknown."""

    met: bool = False
    fault: str = ""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an expression.

    Attributes:
        answers: for each device, in their order; empty with a fault.
        fault: the reason why the expression cannot be evaluated at all.
        again_seconds: the time until another attempt may succeed; None for a permanent fault.
        seconds: the used processor time.
    """

    answers: tuple[Answer, ...] = ()
    fault: str = ""
    again_seconds: float | None = None
    seconds: float = 0.0


class Evaluator(Protocol):
    """An evaluator of CEL. Each call ends, for any expression, and does not affect other calls."""

    async def evaluate(self, expression: str, driver: str, devices: Sequence[slices.Device]) -> Outcome:
        """Return the outcome for these devices; without devices, only whether the expression compiles.

        It never raises.
        """
        ...


class Inline:
    """An evaluator in this process, without limits: for trusted expressions, and for tests."""

    async def evaluate(self, expression: str, driver: str, devices: Sequence[slices.Device]) -> Outcome:
        """Return the outcome at once; see `Evaluator`."""
        return evaluate(expression, driver, devices)


def evaluate(expression: str, driver: str, devices: Sequence[slices.Device]) -> Outcome:
    """Evaluate the expression in this process and return the outcome."""
    began = time.process_time()
    fault = expressions.fault(expression)
    if fault is not None:
        return Outcome(fault=fault[:FAULT_CHARS])
    answers = tuple(_answer(expression, driver, device) for device in devices)
    return Outcome(answers=answers, seconds=time.process_time() - began)


def _answer(expression: str, driver: str, device: slices.Device) -> Answer:
    try:
        return Answer(met=expressions.matches(expression, driver, device))
    except expressions.SelectorError as error:
        return Answer(fault=str(error)[:FAULT_CHARS])


class _Question(msgspec.Struct, frozen=True):
    expression: str
    driver: str
    devices: tuple[slices.Device, ...]


class _Over(Exception):
    """The process ended instead of an answer."""


class _Late(Exception):
    """No answer came in time."""


class Process:
    """An evaluator in a process of its own. `aclose` it at the end."""

    def __init__(self) -> None:
        self._child: asyncio.subprocess.Process | None = None
        # One question at a time, so that a kill concerns the expression at fault.
        self._lock = asyncio.Lock()
        self._idle: asyncio.TimerHandle | None = None
        # The end of each refusal on the loop's clock, by digest.
        self._refused: OrderedDict[bytes, float] = OrderedDict()

    @property
    def pid(self) -> int | None:
        """Return the evaluator's PID, or None if it is not running."""
        return self._child.pid if self._child is not None else None

    async def evaluate(self, expression: str, driver: str, devices: Sequence[slices.Device]) -> Outcome:
        """Return the outcome; see `Evaluator`. After each `CHUNK_DEVICES` devices, other callers get their turn."""
        digest = hashlib.sha256(expression.encode(errors="replace")).digest()
        left = self._refused.get(digest, 0.0) - asyncio.get_running_loop().time()
        if left > 0:
            return Outcome(fault=TOO_EXPENSIVE, again_seconds=left)
        answers: list[Answer] = []
        seconds = 0.0
        for first in range(0, max(len(devices), 1), CHUNK_DEVICES):
            try:
                outcome = await self._ask(expression, driver, tuple(devices[first : first + CHUNK_DEVICES]))
            except OSError as error:
                log.warning("cannot start the process that evaluates selectors: %s", error)
                text = f"selectors cannot be evaluated now: {error.strerror}"
                return Outcome(fault=text, again_seconds=FAILED_SECONDS)
            except _Late:
                text = f"it was not evaluated within {PATIENCE_SECONDS:g} s: the machine is too busy"
                used = seconds + CHUNK_SECONDS
                return Outcome(fault=text, again_seconds=FAILED_SECONDS, seconds=used)
            except _Over:
                return self._refuse(digest, seconds + CHUNK_SECONDS)
            seconds += outcome.seconds
            if outcome.fault:
                return outcome
            if seconds > TOTAL_SECONDS:
                return self._refuse(digest, seconds)
            answers += outcome.answers
        return Outcome(answers=tuple(answers), seconds=seconds)

    async def aclose(self) -> None:
        """End the process."""
        async with self._lock:
            await self._end()

    def _refuse(self, digest: bytes, seconds: float) -> Outcome:
        self._refused[digest] = asyncio.get_running_loop().time() + REFUSED_SECONDS
        if len(self._refused) > REFUSED_MAX:
            self._refused.popitem(last=False)
        return Outcome(fault=TOO_EXPENSIVE, again_seconds=REFUSED_SECONDS, seconds=seconds)

    async def _ask(self, expression: str, driver: str, devices: tuple[slices.Device, ...]) -> Outcome:
        async with self._lock:
            if self._idle is not None:
                self._idle.cancel()
            if self._child is not None and self._child.returncode is not None:
                self._child = None
            child = self._child = self._child or await _start()
            question = _Question(expression=expression, driver=driver, devices=devices)
            answered = False
            try:
                outcome = await _exchange(child, msgspec.json.encode(question))
                answered = True
            finally:
                # Also if this task is cancelled: a late answer must not count as the next one's.
                if not answered:
                    await self._end()
            self._idle = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._kill)
            return outcome

    async def _end(self) -> None:
        child = self._kill()
        if child is not None:
            await child.wait()

    def _kill(self) -> asyncio.subprocess.Process | None:
        if self._idle is not None:
            self._idle.cancel()
        child, self._child = self._child, None
        if child is not None:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
        return child


async def _start() -> asyncio.subprocess.Process:
    # The parent's path, since the starter of the daemon may have put Drawbar on it. No other variable is
    # needed.
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-m",
        __name__,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        limit=REPLY_BYTES,
    )


async def _exchange(child: asyncio.subprocess.Process, question: bytes) -> Outcome:
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            child.stdin.write(question + b"\n")
            await child.stdin.drain()
            return msgspec.json.decode(await child.stdout.readuntil(b"\n"), type=Outcome)
    except TimeoutError as error:
        raise _Late from error
    except (
        ConnectionError,
        EOFError,
        asyncio.LimitOverrunError,
        ValueError,
    ) as error:
        raise _Over from error


def main() -> None:
    """Answer questions from standard input until it ends."""
    import resource  # Windows has no such module, and the program imports this one there

    # The parent handles a user's Ctrl-C; this process ends with it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    for line in sys.stdin.buffer:
        question = msgspec.json.decode(line, type=_Question)
        # The signal ends the process at any point, including the library's own code.
        signal.setitimer(signal.ITIMER_PROF, CHUNK_SECONDS)
        outcome = evaluate(question.expression, question.driver, question.devices)
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        sys.stdout.buffer.write(msgspec.json.encode(outcome) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
