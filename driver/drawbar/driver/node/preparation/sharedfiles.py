"""Files that the instances of a rolling update share: a lock, and files that are replaced whole.

The lock is the kernel's (flock(2)): it is free once its process ends, however that ends. The lock file stays; its
content does not matter. While another instance has the lock it is tried again and again, since a thread that waits in
the kernel cannot be cancelled.
"""

import asyncio
import contextlib
import fcntl
import os
import time
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
    """Entered once no other process, and no other task of this one, has the lock.

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
                f"another instance has kept {path} locked for too long; look at its log, or end it"
            ) from error
        yield
    finally:
        # Closing is releasing.
        os.close(descriptor)


def replace(path: str, raw: bytes, *, sync: bool = True) -> os.stat_result:
    """Put the bytes in place of the file, whole or not at all, and return the status of the new file.

    One writer at a time. With `sync` the content, and after `sync_directory` the name, outlast a crash of the machine.

    Raises:
        OSError: it cannot be written; the file before stays.
    """
    # Plain calls: every Prepare does this.
    folder, name = os.path.split(path)
    draft = f"{folder}/.{name}.tmp"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        try:
            while raw:
                raw = raw[os.write(descriptor, raw) :]
            if sync:
                os.fsync(descriptor)
            status = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        os.rename(draft, path)  # noqa: PTH104 - see above
    except OSError:
        # On a full disk the rest of the draft would take the room that others need.
        with contextlib.suppress(OSError):
            os.unlink(draft)  # noqa: PTH108 - see above
        raise
    return status


def sync_directory(folder: str) -> None:
    """Make the names in the directory last through a crash of the machine.

    Raises:
        OSError: it cannot be opened or synced.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def set_aside(path: Path) -> Path:
    """Keep a damaged file under another name, and return that.

    Raises:
        errors.CheckpointError: the directory cannot be written.
    """
    # In nanoseconds: a second damaged file must not replace the first.
    aside = path.with_name(f"{path.name}.corrupt-{time.time_ns()}")
    try:
        path.rename(aside)
    except OSError as error:
        raise errors.CheckpointError(
            f"{path} is damaged and cannot be moved aside: {error.strerror}; mount {path.parent} read-write, or move "
            f"the file away"
        ) from error
    return aside


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
