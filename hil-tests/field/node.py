"""A real node, reached by a command such as ssh: the lab's agent runs there on its standard input and output.

Nothing is installed over there, and nothing stays: the agent ends with the command, and all that it started with it.
"""

import asyncio
import contextlib
import shlex
from collections.abc import AsyncIterator
from pathlib import Path

from lab import errors, reached, waiting, worker

from field import configuration

CONNECT_SECONDS = 120.0
VERSION = "from importlib import metadata; print(metadata.version('drawbar'))"
STOP_SECONDS = 10.0
WORDS_KEPT = 2000


class Node(reached.Reached):
    """The node, once its agent has answered. Make it with `connected`."""

    def __init__(self, about: configuration.Node, tasks: asyncio.TaskGroup, log: Path) -> None:
        super().__init__(about.name, tasks)
        self._about, self._log = about, log

    def last_words(self) -> str:
        """Return the end of the command's standard error."""
        errors_shown = (
            self._log.read_text(errors="replace").strip()[-WORDS_KEPT:] if self._log.exists() else ""
        )
        return f": {errors_shown}" if errors_shown else " (the command printed nothing)"

    def module(self, name: str, *arguments: str) -> tuple[str, ...]:
        """Return the command that runs a module of the lab over there."""
        path = f"PYTHONPATH={self._about.checkout}/hil-tests"
        return "/usr/bin/env", path, self._about.python, "-m", name, *arguments

    async def wait_for_hello(self, process: asyncio.subprocess.Process) -> None:
        """Carry the agent's messages, and wait for its hello.

        Raises:
            errors.Unavailable: it does not come; the message quotes the command's output.
        """
        assert process.stdout is not None and process.stdin is not None  # noqa: PT018  (narrows types)
        self._tasks.create_task(self._carry(process.stdout, process.stdin), name="agent")
        hello = self._tasks.create_task(self._hello.wait(), name="hello")
        ended = self._tasks.create_task(process.wait(), name="ended")
        done, _ = await asyncio.wait(
            {hello, ended}, timeout=CONNECT_SECONDS, return_when=asyncio.FIRST_COMPLETED
        )
        hello.cancel()
        ended.cancel()
        if hello not in done:
            how = (
                f"ended with {process.returncode}"
                if ended in done
                else f"did not answer in {CONNECT_SECONDS:.0f} s"
            )
            raise errors.Unavailable(
                f"the agent on {self.name} {how}{self.last_words()}; look at node.command and node.checkout"
            )


def command(about: configuration.Node) -> list[str]:
    """Return the whole command: that of the file, and one more argument, a line for the node's shell."""
    path = f"PATH=/usr/sbin:/usr/bin:/sbin:/bin PYTHONPATH={shlex.quote(about.checkout)}/hil-tests"
    return [*about.command, f"{path} exec {shlex.quote(about.python)} -m lab.agent --stdio"]


@contextlib.asynccontextmanager
async def connecting(about: configuration.Node, log: Path) -> AsyncIterator[Node]:
    """Connect to the node, and yield it; `log` gets the standard error of the command.

    Raises:
        errors.Unavailable: it is not reached; says why.
    """
    with log.open("ab") as errors_shown:
        try:
            process = await asyncio.create_subprocess_exec(
                *command(about),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors_shown,
            )
        except OSError as error:
            raise errors.Unavailable(f"{about.command[0]} cannot be started: {error.strerror}") from error
        try:
            async with waiting.tasks() as tasks:
                node = Node(about, tasks, log)
                await node.wait_for_hello(process)
                yield node
                assert process.stdin is not None
                process.stdin.close()
        finally:
            await _stop_agent(process)


async def _stop_agent(process: asyncio.subprocess.Process) -> None:
    """Wait for the agent, whose end is the end of its input; kill one that does not take the hint."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(STOP_SECONDS):
            await process.wait()
    if process.returncode is None:
        process.kill()
        await process.wait()


async def facts(node: Node, about: configuration.Node) -> str:
    """Check that the node is fit for the tests, and return a line about it.

    Raises:
        errors.Unavailable: it will not; says why.
    """
    if (await node.output("id", "-u")).strip() != "0":
        raise errors.Unavailable(f"{about.name} is reached, but not as root: change node.command")
    done = await node.run(about.python, "-c", VERSION)
    if done.status != 0:
        raise errors.Unavailable(
            f"{about.python} on {about.name} knows no drawbar: run `make venv` in the checkout there"
        )
    return f"Linux {(await node.output('uname', '-r')).strip()}, drawbar {done.output.strip()}"


def layout(about: configuration.Node, folder: str) -> worker.Layout:
    """Return where the daemons keep their files: all below one folder, apart from the real kubelet's."""
    return worker.Layout(
        program=f"{about.checkout}/.venv/bin/drawbar",
        kubelet=f"{folder}/kubelet",
        cdi=f"{folder}/kubelet/cdi",
        configuration=f"{folder}/configuration",
        flags=(
            "--cdi-dir",
            f"{folder}/kubelet/cdi",
            "--kubelet-dir",
            f"{folder}/kubelet",
            "--no-local-pool-enabled",
        ),
    )
