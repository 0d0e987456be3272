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
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
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

    One writer at a time. After a crash of the machine the new content is there if `sync` and `sync_directory` were
    asked for.

    Raises:
        OSError: it cannot be written; the file before stays.
    """
    with _draft(path, raw) as descriptor:
        if sync:
            os.fsync(descriptor)
        return os.fstat(descriptor)


class Spares:
    """Files of a directory whose content is no longer needed, to be written again under other names.

    To make a file and to remove it costs a file system three times as much as to rename it. What is kept here counts for
    nothing: it has the name of a draft, so whoever removes drafts removes it.
    """

    LIMIT = 64
    # A block, so that what is written over it needs no further one.
    BYTES_MAX = 4096

    def __init__(self) -> None:
        self._paths: list[str] = []

    def keep(self, path: str) -> None:
        """Take the file from its name, as its removal would; one that is gone already is success.

        Raises:
            OSError: it cannot be renamed or removed.
        """
        folder, name = os.path.split(path)
        spare = f"{folder}/.{name}.spare.tmp"
        with contextlib.suppress(FileNotFoundError):
            if len(self._paths) < self.LIMIT and os.stat(path).st_size <= self.BYTES_MAX:  # noqa: PTH116 - as below
                os.rename(path, spare)  # noqa: PTH104 - as below
                self._paths.append(spare)
            else:
                os.unlink(path)  # noqa: PTH108 - as below

    def create(self, path: str, raw: bytes) -> int:
        """Make a file with these bytes, whole or not at all, and return its descriptor, to be synced and closed.

        What is left of a spare file's own content is made line ends. One writer at a time. The file is there after a crash
        of the machine once the descriptor and then the directory were synced. A file that is renamed before it is synced
        costs one transaction of the file system's journal, not two; a crash in between can leave any content under the
        name, so this is for names at which nothing stands.

        Raises:
            OSError: it cannot be written.
        """
        while self._paths:
            spare = self._paths.pop()
            try:
                # In place, for a file that is cut to nothing gets its room anew.
                descriptor = os.open(spare, os.O_WRONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                continue  # another instance removes drafts when it starts
            with _renamed(descriptor, spare, path, raw.ljust(os.fstat(descriptor).st_size, b"\n")):
                return os.dup(descriptor)
        with _draft(path, raw) as descriptor:
            return os.dup(descriptor)


def sync(descriptors: Iterable[int]) -> None:
    """Make the content of files last through a crash of the machine: all of it is on its way before the first is waited for.

    Raises:
        OSError: one cannot be synced.
    """
    descriptors = tuple(descriptors)
    for descriptor in descriptors:
        # Only a wish, which the kernel fulfils by beginning to write (mm/fadvise.c).
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    for descriptor in descriptors:
        os.fsync(descriptor)


@contextlib.contextmanager
def _draft(path: str, raw: bytes) -> Iterator[int]:
    """`with`: yield a descriptor of a file with the bytes, which is then renamed to `path`."""
    # Plain calls: every Prepare does this.
    folder, name = os.path.split(path)
    draft = f"{folder}/.{name}.tmp"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with _renamed(descriptor, draft, path, raw):
        yield descriptor


@contextlib.contextmanager
def _renamed(descriptor: int, draft: str, path: str, raw: bytes) -> Iterator[None]:
    """`with`: write the bytes into the open draft, close it after the block and rename it to `path`, or remove it."""
    try:
        try:
            while raw:
                raw = raw[os.write(descriptor, raw) :]
            yield
        finally:
            os.close(descriptor)
        os.rename(draft, path)  # noqa: PTH104 - see above
    except OSError:
        # On a full disk the rest of the draft would take the room that others need.
        with contextlib.suppress(OSError):
            os.unlink(draft)  # noqa: PTH108 - see above
        raise


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
