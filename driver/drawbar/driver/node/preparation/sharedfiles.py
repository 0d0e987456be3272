"""A lock that one of the instances of a rolling update has: for a write of the checkpoint, and for acting on devices.

The lock is the kernel's (flock(2)): it goes when its process dies, however that dies. The file stays; what is in it
does not matter. While another instance has the lock it is asked for again and again, since a thread that waits in the
kernel could not be cancelled.
"""

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from drawbar.driver.node import errors

# A write takes milliseconds, and there are two instances at most.
POLL_SECONDS = 0.01
# An instance acts for as long as it lives.
POLL_UNBOUNDED_SECONDS = 0.1


@asynccontextmanager
async def held(
    path: Path, seconds: float | None, *, taken: Callable[[], None] | None = None
) -> AsyncIterator[None]:
    """Entered once no other process, and nobody else in this one, has the lock.

    Args:
        path: of the lock file.
        seconds: how long to wait for it at most; None: as long as it takes.
        taken: is called once if it has to be waited for.

    Raises:
        errors.CheckpointError: the file cannot be made, or another instance keeps the lock for longer than `seconds`.
    """
    descriptor = _opened(path)
    pause = POLL_UNBOUNDED_SECONDS if seconds is None else POLL_SECONDS
    try:
        try:
            async with asyncio.timeout(seconds):
                while not _taken(descriptor, path):
                    if taken is not None:
                        taken()
                        taken = None
                    await asyncio.sleep(pause)
        except TimeoutError as error:
            raise errors.CheckpointError(
                f"another instance has kept {path} locked for {seconds:g} s; look at its log, or end it"
            ) from error
        yield
    finally:
        # Closing is releasing.
        os.close(descriptor)


def _opened(path: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    try:
        try:
            return os.open(path, flags, 0o600)
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
            return os.open(path, flags, 0o600)
    except OSError as error:
        raise errors.CheckpointError(
            f"cannot make the lock file {path}: {error.strerror}; mount {path.parent} read-write"
        ) from error


def _taken(descriptor: int, path: Path) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise errors.CheckpointError(
            f"cannot lock {path}: {error.strerror}; put the kubelet's directory on a local file system"
        ) from error
    return True
