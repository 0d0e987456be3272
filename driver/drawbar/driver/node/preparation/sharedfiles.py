"""Files that are replaced as a whole: a reader sees the old or the new content, and needs no lock."""

import contextlib
import os


def replace(path: str, raw: bytes, *, sync: bool = True) -> None:
    """Write the file, whole or not at all, for one writer at a time.

    With `sync`, and after `sync_directory`, the file survives a crash of the machine.

    Raises:
        OSError: the file cannot be written; the old file stays.
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
        finally:
            os.close(descriptor)
        os.rename(draft, path)  # noqa: PTH104 - see above
    except OSError:
        # On a full disk, the draft would take space from other files.
        with contextlib.suppress(OSError):
            os.unlink(draft)  # noqa: PTH108 - see above
        raise


def sync_directory(folder: str) -> None:
    """Make the names in the directory survive a crash of the machine.

    Raises:
        OSError: the directory cannot be opened or synced.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
