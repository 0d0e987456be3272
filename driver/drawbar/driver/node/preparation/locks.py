"""The lock between two instances of the node daemon, which run side by side during a rolling update.

It uses the kernel's flock(2), so the kernel frees it when its process ends. The lock file stays, and its content is ignored.
"""

import asyncio
import contextlib
import fcntl
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from drawbar.driver.node import errors

# A thread that waits in the kernel cannot be cancelled, so the lock is polled.
POLL_SECONDS = 0.02


class Lock:
    """A lock among the tasks of this process and the processes of this host."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._tasks = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def hold(
        self, seconds: float | None, *, on_wait: Callable[[], None] = lambda: None
    ) -> AsyncIterator[None]:
        """Hold the lock inside the block.

        Args:
            seconds: the longest wait; None waits without a bound.
            on_wait: called once if another process has the lock.

        Raises:
            errors.CheckpointError: the lock file cannot be used, or the wait took longer than `seconds`.
        """
        async with contextlib.AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(seconds):
                    await stack.enter_async_context(self._tasks)
                    self._path.parent.mkdir(parents=True, exist_ok=True)
                    descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
                    stack.callback(os.close, descriptor)  # which frees the lock
                    is_locked = _try_lock(descriptor)
                    if not is_locked:
                        on_wait()
                    while not is_locked:
                        await asyncio.sleep(POLL_SECONDS)
                        is_locked = _try_lock(descriptor)
            except TimeoutError as error:
                raise errors.CheckpointError(
                    f"another instance has kept {self._path} locked for too long, or the disk does not answer; look at the "
                    f"log of that instance and at dmesg"
                ) from error
            except OSError as error:
                raise errors.CheckpointError(
                    f"cannot lock {self._path}: {error.strerror}; mount {self._path.parent} read-write, on a local file "
                    f"system"
                ) from error
            yield


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
