"""Progress on the terminal, for work that takes longer than a second."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator

PROGRESS_AFTER_SECONDS = 1.0
PROGRESS_EVERY_SECONDS = 5.0


@contextlib.asynccontextmanager
async def show_activity(activity: str) -> AsyncIterator[None]:
    """Report `activity` on stderr after a second and then every five seconds, if stderr is a terminal.

    A file or a pipe gets errors only. So a script that reads stderr does not depend on the cluster's speed.
    """
    if not sys.stderr.isatty():
        yield
        return
    loop = asyncio.get_running_loop()
    began = loop.time()
    timer: asyncio.TimerHandle

    def report() -> None:
        nonlocal timer
        sys.stderr.write(f"{activity} ... {loop.time() - began:.0f} s\n")
        sys.stderr.flush()
        timer = loop.call_later(PROGRESS_EVERY_SECONDS, report)

    timer = loop.call_later(PROGRESS_AFTER_SECONDS, report)
    try:
        yield
    finally:
        timer.cancel()
