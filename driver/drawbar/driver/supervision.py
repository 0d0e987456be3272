"""Running a daemon until it is told to stop.

SIGTERM and SIGINT cancel the daemon's task; everything it started ends with it, as its task groups unwind.
"""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any

from drawbar.driver import errors


def run(daemon: Coroutine[Any, Any, None]) -> int:
    """Runs to the end or to a signal; gives the exit status.

    Raises:
        errors.DrawbarError: the first one that ended the daemon, out of whatever group it came in.
    """
    try:
        return asyncio.run(_until_signal(daemon))
    except* errors.DrawbarError as group:
        raise _first(group) from None


async def _until_signal(daemon: Coroutine[Any, Any, None]) -> int:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    try:
        await daemon
    except asyncio.CancelledError:
        return 0
    return 0


def _first(group: BaseExceptionGroup[errors.DrawbarError]) -> errors.DrawbarError:
    inner: BaseException = group
    while isinstance(inner, BaseExceptionGroup):
        inner = inner.exceptions[0]
    assert isinstance(inner, errors.DrawbarError)
    return inner
