"""What this node has prepared, kept across restarts.

Unprepare gets only a claim's uid, and the claim may be gone by then, so what was prepared must be known here alone.

The file is JSON: {"version": 1, "crc32": N, "data": "<JSON text>"}; the CRC covers the bytes of `data`, so that a
newer Drawbar may add fields without breaking the check. Fields that this version does not know, in `data`, in a claim
or in a device, are kept when it writes, so that a newer Drawbar finds them again after a downgrade. A write is durable
(fsync of file and directory) before it returns. A file that cannot be read is moved aside, never deleted.

A claim is `started` in the write that comes before its CDI file, and `completed` in a later one. What `started` means
at the next start the CDI file decides, see `preparation.restoring`.
"""

import logging
import os
import time
import zlib
from pathlib import Path
from typing import Any

import msgspec

from drawbar.driver.node import errors
from drawbar.driver.node.preparation import records

log = logging.getLogger(__name__)

VERSION = 1
# Tells a file from one that another instance wrote: inode, time of the write in nanoseconds, bytes.
Stamp = tuple[int, int, int]


class _File(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    crc32: int
    data: str


def load(path: Path) -> records.Content | None:
    """What the file says; None when there is none yet, or when it was corrupt and has been moved aside.

    Raises:
        errors.CheckpointError: it is of a newer, unknown version, cannot be read for lack of permission, or is
            corrupt and cannot be moved aside.
    """
    try:
        found = read(path)
    except errors.CorruptCheckpoint as error:
        aside = move_aside(path)
        log.error(  # noqa: TRY400 - the sentence explains it; a traceback would not
            "checkpoint is corrupt, moved aside and rebuilt from the CDI files",
            extra={"path": str(path), "aside": str(aside), "reason": str(error)},
        )
        return None
    return found[0] if found is not None else None


def read(path: Path) -> tuple[records.Content, Stamp] | None:
    """What the file says, and which file it was; None when there is none.

    Raises:
        errors.CorruptCheckpoint: nothing can be made of it.
        errors.CheckpointError: it is of a newer version, or cannot be read.
    """
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            raw = file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise errors.CheckpointError(
            f"cannot read the checkpoint {path}: {error.strerror}; run as the user that owns it"
        ) from error
    try:
        return _decoded(raw, path), _stamp(status)
    except (msgspec.MsgspecError, ValueError) as error:
        raise errors.CorruptCheckpoint(f"the checkpoint {path} is corrupt: {error}") from error


def stamp(path: Path) -> Stamp | None:
    """Which file is there now; None when there is none, or nobody can tell."""
    try:
        return _stamp(path.stat())
    except OSError:
        return None


def move_aside(path: Path) -> Path:
    """Keeps a corrupt file for people to look at; gives where.

    Raises:
        errors.CheckpointError: the directory cannot be written.
    """
    # In nanoseconds: a second corrupt file must not replace the first.
    aside = path.with_name(f"{path.name}.corrupt-{time.time_ns()}")
    try:
        path.rename(aside)
    except OSError as error:
        raise errors.CheckpointError(
            f"the checkpoint {path} is corrupt and cannot be moved aside: {error.strerror}; "
            f"mount {path.parent} read-write, or move the file away"
        ) from error
    return aside


def save(path: Path, content: records.Content) -> Stamp:
    """Replaces the file, durably and whole; gives what tells it from another. One writer at a time.

    Raises:
        errors.CheckpointError: the directory cannot be written.
    """
    data = msgspec.json.encode(content.document())
    raw = msgspec.json.encode(_File(version=VERSION, crc32=zlib.crc32(data), data=data.decode()))
    try:
        try:
            status = _replaced(path, raw)
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
            status = _replaced(path, raw)
    except OSError as error:
        raise errors.CheckpointError(
            f"cannot write the checkpoint {path}: {error.strerror}; mount {path.parent} read-write, with room on it"
        ) from error
    return _stamp(status)


def _replaced(path: Path, raw: bytes) -> os.stat_result:
    # Plain calls: this is on the way of every Prepare.
    folder, name = os.path.split(path)
    draft = f"{folder}/.{name}.tmp"
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        _write_all(file, raw)
        os.fsync(file)
        status = os.fstat(file)
    finally:
        os.close(file)
    os.rename(draft, path)  # noqa: PTH104 - see above
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
    return status


def _write_all(descriptor: int, raw: bytes) -> None:
    while raw:
        raw = raw[os.write(descriptor, raw) :]


def _stamp(status: os.stat_result) -> Stamp:
    return status.st_ino, status.st_mtime_ns, status.st_size


def _decoded(raw: bytes, path: Path) -> records.Content:
    file = msgspec.json.decode(raw, type=_File)
    if file.version > VERSION:
        raise errors.CheckpointError(
            f"the checkpoint {path} has version {file.version}, this Drawbar knows {VERSION}: "
            f"upgrade Drawbar on this node, or drain the node and remove the file"
        )
    data = file.data.encode()
    if zlib.crc32(data) != file.crc32:
        raise ValueError("the CRC does not match")
    return records.content(msgspec.json.decode(data, type=dict[str, Any]))
