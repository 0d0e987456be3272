"""Running a daemon until it is told to stop.

SIGTERM and SIGINT cancel the daemon's task; everything it started ends with it, as its task groups unwind. A second
signal cuts the clean-up short.
"""

import asyncio
import logging
import signal
from collections.abc import Coroutine, Iterator
from typing import Any

from drawbar.driver import errors

log = logging.getLogger(__name__)

STOPPED = 0
BUG = 1


def run(daemon: Coroutine[Any, Any, None]) -> int:
    """Runs to the end or to a signal; gives the exit status.

    What nobody foresaw is logged with its traceback and gives status 1.

    Raises:
        errors.DrawbarError: the first one that ended the daemon, out of whatever group it came in, if it ended of
            nothing else.
    """
    try:
        return asyncio.run(_until_signal(daemon))
    except Exception as error:
        causes = tuple(_leaves(error))
        known = [cause for cause in causes if isinstance(cause, errors.DrawbarError)]
        if len(known) == len(causes):
            raise known[0] from None
        log.critical("ended by an unforeseen error", exc_info=error)
        return BUG


async def _until_signal(daemon: Coroutine[Any, Any, None]) -> int:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    try:
        await daemon
    except asyncio.CancelledError:
        return STOPPED
    return STOPPED


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error
