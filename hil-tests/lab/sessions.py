"""Runs of pytest on the lab: which tests, with what at hand, and beside what.

Two processor cores are enough for a guest and the other tests side by side: the lab gives way (`NICE`), and most of what
the others do is waiting.
"""

import asyncio
import contextlib
import os
import shlex
import shutil
import signal
import sys
import tempfile
import textwrap
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from lab import errors, packages

CHECKOUT = Path(__file__).parents[2]
HIL_TESTS = CHECKOUT / "hil-tests"
INSTALL = HIL_TESTS / "install"
LOGS = "DRAWBAR_HIL_LOGS"
GUEST_TESTS = "tests/fabric/test_qemu_guest.py"
OFF = "off"
NICE = 5
LIMIT_SECONDS = 900.0
"""Of the short set beside other tests: 250 s alone, twice that where every core is taken."""
STOP_SECONDS = 15.0
INSTALL_SECONDS = 1500.0
_SECOND_HALF = ("test_field.py", "test_node_cycles.py", "test_node_kills.py")
_PYTEST = (str(Path(sys.executable).parent / "pytest"), "-q", "-p", "no:cacheprovider")
_SOURCES = (
    "driver/drawbar",
    "fabric/drawbar",
    "cdi/drawbar",
    "proto/drawbar",
    "mocks/drawbar",
    "hil-tests/lab",
)
SHORT = ("-m", "short", "hil-tests")
NOTICE_CHARACTERS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Stock:
    """What the lab needs of this host, at hand."""

    kernel: packages.Kernel
    busybox: Path

    @property
    def environment(self) -> dict[str, str]:
        """Find the kernel before the tests, so that none of them skips."""
        return {
            "DRAWBAR_HIL": "required",
            "DRAWBAR_KERNEL": str(self.kernel.image),
            "DRAWBAR_BUSYBOX": str(self.busybox),
        }


async def prepare_stock() -> Stock:
    """Install and download what is missing.

    Raises:
        errors.Unavailable: that cannot be done; the message names what to do by hand.
    """
    try:
        async with (
            _process([str(INSTALL)], output=asyncio.subprocess.PIPE) as process,
            asyncio.timeout(INSTALL_SECONDS),
        ):
            reported, _ = await process.communicate()
    except TimeoutError as error:
        raise errors.Unavailable(
            f"{INSTALL} took more than {INSTALL_SECONDS:.0f} s: is the package mirror reachable?"
        ) from error
    text = reported.decode(errors="replace")
    if process.returncode != 0:
        last = (text.strip().splitlines() or [f"{INSTALL} failed and printed nothing"])[-1]
        raise errors.Unavailable(last.removeprefix("error: "))
    sys.stderr.write(text)
    packages.qemu()
    packages.tools()
    await _compile_modules()
    cache = packages.cache()
    return Stock(
        kernel=await asyncio.to_thread(packages.kernel, cache),
        busybox=await asyncio.to_thread(packages.busybox, cache),
    )


async def _compile_modules() -> None:
    """Compile this checkout's modules: a guest sees the files, and would take a minute for it."""
    command = [sys.executable, "-m", "compileall", "-q", "-j", "2", *_SOURCES]
    async with _process(command) as process:
        await process.wait()


async def short() -> int:
    """Run the short set; return pytest's status.

    Raises:
        errors.Unavailable: this host lacks something.
    """
    stock = await prepare_stock()
    return await pytest(SHORT, stock.environment)


async def run_all_tests() -> int:
    """Run all tests of the lab, and the qemu adapter's that want a guest; return the first status that is not 0.

    Two halves side by side, each with guests of its own: a guest keeps one core busy, and there are two.

    Raises:
        errors.Unavailable: this host lacks something.
    """
    environment = (await prepare_stock()).environment
    await asyncio.to_thread(packages.newer, packages.cache())
    first, second = halves(sorted(path.name for path in HIL_TESTS.glob("test_*.py")))
    with tempfile.NamedTemporaryFile(prefix="drawbar-hil-", suffix=".log") as output:
        sys.stderr.write(f"== {len(second)} files of tests run beside the others, see {output.name}\n")
        async with asyncio.TaskGroup() as tasks:
            other = tasks.create_task(_second_half(second, environment, output.file), name="second half")
            status = await pytest(first, environment)
            if not other.done():
                sys.stderr.write("== waiting for the tests beside\n")
        text = await asyncio.to_thread(Path(output.name).read_text, errors="replace")
    sys.stderr.write(f"== the tests beside ended with status {other.result()}:\n{text}")
    return status or other.result()


async def _second_half(files: Sequence[str], environment: Mapping[str, str], output: IO[bytes]) -> int:
    status = await pytest(files, environment, output=output)
    return status or await pytest([GUEST_TESTS], environment, output=output)


def halves(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the files with tests, in two halves that take about as long."""
    first = [f"hil-tests/{name}" for name in names if name not in _SECOND_HALF]
    second = [f"hil-tests/{name}" for name in names if name in _SECOND_HALF]
    return first, second


async def run_commands_and_tests(
    commands: Sequence[str], tests: Sequence[str] = SHORT, *, folder: Path | None = None
) -> int:
    """Run commands one after the other, and tests of the lab beside them; return the first status that is not 0.

    A command that fails is the last, and the lab is stopped then. What the lab says is in a file of `folder`, or where
    temporary files are; it is kept where the lab fails.
    """
    descriptor, name = tempfile.mkstemp(prefix="drawbar-hil-", suffix=".log", dir=folder)
    with os.fdopen(descriptor, "wb") as output:
        sys.stderr.write(f"== the lab's short set runs beside the tests, see {name}\n")
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(_short_set(tests, output, Path(name)), name="short set")
            status = await _in_order(commands)
            if status != 0:
                running.cancel()
            elif not running.done():
                sys.stderr.write("== waiting for the lab's short set\n")
    if running.cancelled():
        sys.stderr.write("== the lab's short set was stopped\n")
        await asyncio.to_thread(Path(name).unlink)
        return status
    outcome = running.result()
    if outcome.reason is not None:
        sys.stderr.write(not_tested(outcome.reason))
    return status or outcome.status


def box(lines: Sequence[str], width: int = NOTICE_CHARACTERS) -> str:
    """Return the lines wrapped in a frame, with a line's end."""
    inner = width - 4
    wrapped = [
        piece
        for line in lines
        for piece in textwrap.wrap(line, inner, break_on_hyphens=False, break_long_words=True) or [""]
    ]
    edge = f"+{'-' * (width - 2)}+"
    return "\n".join([edge, *(f"| {piece:<{inner}} |" for piece in wrapped), edge, ""])


def not_tested(reason: str) -> str:
    """Return the notice that the short set was not run; `reason` is one sentence with the remedy."""
    return box(
        [
            "NOT TESTED: the node daemon on a real kernel with real hot-plug (the lab's short set, docs/lab.md).",
            reason,
            "Afterwards `make test` runs it again, and `make hil-short` it alone (5 minutes).",
        ]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """How the short set ended.

    Attributes:
        status: of pytest.
        reason: why nothing was tried on a guest; None where it was.
    """

    status: int
    reason: str | None


async def _short_set(tests: Sequence[str], output: IO[bytes], log: Path) -> _Outcome:
    begun, reason, environment = time.monotonic(), None, {"DRAWBAR_HIL": OFF}
    if os.environ.get("DRAWBAR_HIL") == OFF:
        reason = f"DRAWBAR_HIL={OFF} is set: unset it."
    else:
        try:
            environment = (await prepare_stock()).environment
        except errors.Unavailable as error:
            reason = f"{error}."
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            status = await pytest(
                ("--color=no", *tests), environment, output=output, nice=NICE, folder=log.parent
            )
        reported = f"ended with status {status}"
    except TimeoutError:
        status, reported = 124, f"took more than {LIMIT_SECONDS:.0f} s and was stopped"
    text = await asyncio.to_thread(log.read_text, errors="replace")
    # Between the dots of the other tests, so it begins and ends with a line of its own.
    took = time.monotonic() - begun
    sys.stderr.write(f"\n== the lab's short set {reported} after {took:.0f} s:\n{text}==\n")
    if status == 0:
        await asyncio.to_thread(log.unlink)
    return _Outcome(status=status, reason=reason)


async def _in_order(commands: Sequence[str]) -> int:
    for command in commands:
        sys.stderr.write(f"== {command}\n")
        async with _process(shlex.split(command)) as process:
            if (status := await process.wait()) != 0:
                return status
    return 0


async def pytest(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    *,
    output: IO[bytes] | None = None,
    nice: int = 0,
    folder: Path | None = None,
) -> int:
    """Run pytest in the checkout; return its status.

    Consoles and logs are kept where tests fail: in a new folder within `folder`, or where temporary files are.
    """
    own = {name: value for name, value in os.environ.items() if name != "HIL_CONFIG"}
    command = ["nice", "-n", str(nice), *_PYTEST, *arguments]
    status = None
    logs = None if LOGS in own else Path(tempfile.mkdtemp(prefix="drawbar-hil-logs-", dir=folder))
    environment = own | ({} if logs is None else {LOGS: str(logs)}) | dict(environment)
    try:
        async with _process(command, output=output, environment=environment) as process:
            status = await process.wait()
    finally:
        if logs is not None:
            _settle(logs, keep=status is not None and status != 0)
    return status


def _settle(logs: Path, *, keep: bool) -> None:
    if keep and any(logs.iterdir()):
        sys.stderr.write(f"\n== consoles and logs of what failed are in {logs}\n")
    else:
        shutil.rmtree(logs, ignore_errors=True)


@contextlib.asynccontextmanager
async def _process(
    command: Sequence[str],
    *,
    output: IO[bytes] | int | None = None,
    environment: Mapping[str, str] | None = None,
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start a process, and stop it if it has not ended when the context ends."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=CHECKOUT,
            env=environment,
            stdout=output,
            stderr=None if output is None else asyncio.subprocess.STDOUT,
        )
    except FileNotFoundError as error:
        raise errors.Unavailable(f"{command[0]} is not there: run `make venv`") from error
    try:
        yield process
    finally:
        await _stop_process(process)


async def _stop_process(process: asyncio.subprocess.Process) -> None:
    # As Ctrl-C does, so that pytest takes its guests down.
    for number in (signal.SIGINT, signal.SIGKILL):
        if process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                await process.wait()
