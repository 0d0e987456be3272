"""The run of a daemon until a signal to stop, with a bounded end.

SIGTERM and SIGINT cancel the daemon's task; all its task groups end with it. A second signal cuts the clean-up short.
`STOP_SECONDS` after the first signal (or after the daemon ended by itself), the process ends in any case. The log
then names the remaining tasks and threads.
"""

import asyncio
import ctypes
import gc
import logging
import os
import signal
import threading
from collections.abc import Callable, Coroutine
from concurrent import futures
from typing import Any

from drawbar.driver import errors

log = logging.getLogger(__name__)

STOPPED = 0
BUG = 1
CUT_SHORT = 1
# A daemon may take 5 s to end; the rest of them is for writing the log and the exit.
STOP_SECONDS = 3.5
LAST_WORD_SECONDS = 0.3
NAMES_LIMIT = 20
# Python's own default grows with the processors (32 on a big host), and each thread keeps memory to itself.
THREADS_LIMIT = 8
# Less than a huge page of x86-64: kernels that use these by default (Debian's does) give each thread 2 MiB.
STACK_BYTES = 1 << 20
# <linux/prctl.h>
PR_SET_THP_DISABLE = 41


def refuse_huge_pages() -> None:
    """Make the kernel give this process, and those that it starts, no transparent huge pages from now on.

    Where these are the default (Debian, RHEL), the kernel replaces sparsely used pages of 4 KiB with pages of 2 MiB
    little by little. A daemon that runs on each node pays for this with memory and gains nothing. A kernel that
    refuses is left as it is.

    Source: prctl(2), `PR_SET_THP_DISABLE`.
    """
    ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)


def run(daemon: Coroutine[Any, Any, None], *, stop_seconds: float = STOP_SECONDS) -> int:
    """Run the daemon until it ends or a signal arrives, and return the exit status.

    An unforeseen error is logged with its traceback and gives status 1. If clean-up takes longer than `stop_seconds`,
    the function does not return: the process ends with status 1.

    Raises:
        errors.DrawbarError: the first error of the daemon, taken out of its group, if there are no other errors.
    """
    deadline = _Deadline(stop_seconds)
    threading.stack_size(STACK_BYTES)
    try:
        # This waits for the threads of the loop's executor too, so the deadline is around all of it.
        return asyncio.run(_run_until_signal(daemon, deadline))
    except Exception as error:
        causes = tuple(errors.find_leaves(error))
        drawbar_errors = [cause for cause in causes if isinstance(cause, errors.DrawbarError)]
        if len(drawbar_errors) == len(causes):
            raise drawbar_errors[0] from None
        log.critical("ended by an unforeseen error", exc_info=error)
        return BUG
    finally:
        deadline.lift()


async def _run_until_signal(daemon: Coroutine[Any, Any, None], deadline: "_Deadline") -> int:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    loop.set_default_executor(futures.ThreadPoolExecutor(THREADS_LIMIT, thread_name_prefix="blocking"))

    def stop() -> None:
        deadline.begin(lambda: _names(loop))
        task.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    # Modules live as long as the process; without this, each full collection looks at all of their objects.
    gc.freeze()
    try:
        await daemon
    except asyncio.CancelledError:
        return STOPPED
    except Exception as error:
        deadline.begin(lambda: _names(loop), cause=error)
        raise
    return STOPPED


class _Deadline:
    """A deadline that ends the process unless it is lifted; in a thread of its own, since the loop may hang."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._lifted = threading.Event()
        self._begun = False

    def begin(self, still_running: Callable[[], list[str]], cause: Exception | None = None) -> None:
        """Start the countdown, unless it has started."""
        if not self._begun:
            self._begun = True
            threading.Thread(
                target=self._wait, args=(still_running, cause), name="deadline", daemon=True
            ).start()

    def lift(self) -> None:
        """Cancel the deadline after clean-up."""
        self._lifted.set()

    def _wait(self, still_running: Callable[[], list[str]], cause: Exception | None) -> None:
        if self._lifted.wait(self._seconds):
            return
        # The log itself may hang, so the wait for the last message is bounded.
        last_word = threading.Thread(target=_say, args=(still_running, cause, self._seconds), daemon=True)
        last_word.start()
        last_word.join(LAST_WORD_SECONDS)
        os._exit(CUT_SHORT)


def _say(still_running: Callable[[], list[str]], cause: Exception | None, seconds: float) -> None:
    why = (
        {"cause": "; ".join(str(leaf) or repr(leaf) for leaf in errors.find_leaves(cause))}
        if cause is not None
        else {}
    )
    extra = {"seconds": seconds, "hanging": still_running()[:NAMES_LIMIT], **why}
    log.critical("clean-up hangs, ending without it", extra=extra)


def _names(loop: asyncio.AbstractEventLoop) -> list[str]:
    """Return the names of the running tasks and of the threads that Python waits for."""
    tasks = [f"task {task.get_name()}" for task in asyncio.all_tasks(loop)]
    threads = [
        thread
        for thread in threading.enumerate()
        if thread is not threading.main_thread() and not thread.daemon
    ]
    return sorted(tasks) + sorted(f"thread {thread.name}" for thread in threads)
