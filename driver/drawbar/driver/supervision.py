"""Running a daemon until it gets a signal to stop, and not much longer.

SIGTERM and SIGINT cancel the daemon's task; everything it started ends with it, as its task groups unwind. A second
signal cuts the clean-up short. Clean-up is bounded: whatever still hangs `STOP_SECONDS` after the first signal (or after
the daemon ended by itself), be it a task that does not let go or a thread that the kernel does not answer, is named
in the log and the process ends without it.
"""

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent import futures
from typing import Any

from drawbar.driver import errors

log = logging.getLogger(__name__)

STOPPED = 0
BUG = 1
CUT_SHORT = 1
# Within the 5 s that a daemon may take to end; the rest is for writing the log and leaving.
STOP_SECONDS = 3.5
LAST_WORD_SECONDS = 0.3
NAMES_LIMIT = 20
# Python's own default grows with the processors (32 on a big host), and each thread keeps memory to itself.
THREADS_LIMIT = 8
# Less than a huge page of x86-64: where the kernel gives those to whoever asks not (Debian's does), a thread takes 2 MiB.
STACK_BYTES = 1 << 20


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
        # This waits for the threads of the loop's executor too, hence the deadline around all of it.
        return asyncio.run(_until_signal(daemon, deadline))
    except Exception as error:
        causes = tuple(_leaves(error))
        drawbar_errors = [cause for cause in causes if isinstance(cause, errors.DrawbarError)]
        if len(drawbar_errors) == len(causes):
            raise drawbar_errors[0] from None
        log.critical("ended by an unforeseen error", exc_info=error)
        return BUG
    finally:
        deadline.lift()


async def _until_signal(daemon: Coroutine[Any, Any, None], deadline: "_Deadline") -> int:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    loop.set_default_executor(futures.ThreadPoolExecutor(THREADS_LIMIT, thread_name_prefix="blocking"))

    def stop() -> None:
        deadline.begin(lambda: _names(loop))
        task.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    try:
        await daemon
    except asyncio.CancelledError:
        return STOPPED
    except Exception as error:
        deadline.begin(lambda: _names(loop), cause=error)
        raise
    return STOPPED


class _Deadline:
    """Ends the process unless lifted in time; a thread of its own, since the loop may be what hangs."""

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
        # What hangs may be the writing of the log itself, so the last word is not waited for without end.
        last_word = threading.Thread(target=_say, args=(still_running, cause, self._seconds), daemon=True)
        last_word.start()
        last_word.join(LAST_WORD_SECONDS)
        os._exit(CUT_SHORT)


def _say(still_running: Callable[[], list[str]], cause: Exception | None, seconds: float) -> None:
    why = (
        {"cause": "; ".join(str(leaf) or repr(leaf) for leaf in _leaves(cause))} if cause is not None else {}
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


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error
