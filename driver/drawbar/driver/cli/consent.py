"""The question before a change."""

import asyncio
import sys

from drawbar.driver import errors


class Declined(errors.DrawbarError):
    """The operator answered no, and nothing was changed."""


async def ask(question: str, *, assumed: bool) -> None:
    """Return once the operator has agreed on the terminal, or at once if agreement is assumed.

    Raises:
        UsageError: there is no terminal to ask on.
        Declined: the answer is no.
    """
    if assumed:
        return
    if not sys.stdin.isatty():
        raise errors.UsageError(
            "nothing was changed, because there is no terminal for the question; add --yes to answer it"
        )
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    loop, readable = asyncio.get_running_loop(), asyncio.Event()
    # No thread waits here, so the deadline and an interrupt can end the wait.
    loop.add_reader(sys.stdin.fileno(), readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(sys.stdin.fileno())
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Declined("nothing was changed")
