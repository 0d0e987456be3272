"""The question before a change."""

import asyncio
import sys

from drawbar.driver import errors


class Declined(errors.DrawbarError):
    """A change without the operator's agreement; nothing was changed."""


async def settle(question: str, *, assumed: bool, dry_run: bool) -> bool:
    """Ask as `ask` does and return True; in a dry run, print the question and return False."""
    if dry_run:
        sys.stderr.write(f"dry run: {question}\n")
        return False
    await ask(question, assumed=assumed)
    return True


async def ask(question: str, *, assumed: bool) -> None:
    """Return once the operator has agreed on the terminal, or at once if agreement is assumed.

    Raises:
        Declined: the answer is no, or there is no terminal to ask on.
    """
    if assumed:
        return
    if not sys.stdin.isatty():
        raise Declined(
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
