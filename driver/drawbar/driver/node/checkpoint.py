"""What this node has prepared, kept across restarts.

Unprepare gets only a claim's uid, and the claim may be gone by then, so what was prepared must be known here alone.

The file is lines of JSON: {"version": 1, "serial": N, "crc32": N, "data": "<JSON text>"}, each the whole content, and
the last whole one counts. The CRC covers the bytes of `data`, so that a newer Drawbar may add fields without breaking
the check. Fields that this version does not know, in `data`, in a claim or in a device, are kept when it writes, so that
a newer Drawbar finds them again after a downgrade. A file that cannot be read is moved aside, never deleted.

A write is durable before it returns. Most add a line within the blocks that the file has already, which are written
full of empty lines when it is made: that takes one fdatasync, where a new file takes an fsync of it and another of its
directory. A line that a crash cut short is none, and what it would have said was never answered; the next write makes
a new file, as it does when there is no room.

A claim is `started` in the write that comes before its CDI file, and `completed` in a later one. What `started` means
at the next start the CDI file decides, see `preparation.restoring`.
"""

import logging
import os
import time
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from drawbar.driver.node import errors
from drawbar.driver.node.preparation import records

log = logging.getLogger(__name__)

VERSION = 1
# A line for sixteen claims has some 5 kB, so a new file is made for one write of a hundred.
ROOM_BYTES = 512 * 1024
# Holds the serial of the first line, which no two files share.
HEAD_BYTES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """Tells what was read or written from what another instance wrote since.

    Attributes:
        head: how the file begins.
        end: where the line ends that counts, in bytes.
        serial: of that line.
    """

    head: bytes
    end: int
    serial: int


class _Line(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    serial: int = 0
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
        raw = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise errors.CheckpointError(
            f"cannot read the checkpoint {path}: {error.strerror}; run as the user that owns it"
        ) from error
    try:
        return _last(raw, path)
    except (msgspec.MsgspecError, ValueError) as error:
        raise errors.CorruptCheckpoint(f"the checkpoint {path} is corrupt: {error}") from error


def is_current(path: Path, stamp: Stamp) -> bool:
    """Whether nothing was written since; False also when nobody can tell."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return _is_last(file, stamp)
    except OSError:
        return False
    finally:
        os.close(file)


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


def save(path: Path, content: records.Content, after: Stamp | None = None) -> Stamp:
    """Makes it the content, durably and whole; gives what tells it from another. One writer at a time.

    Args:
        path: the file.
        content: all of it.
        after: of the content that this one follows, if that is known; with it the write can be a short one.

    Raises:
        errors.CheckpointError: the directory cannot be written.
    """
    data = msgspec.json.encode(content.document())
    # Whoever remembers an earlier file must not take this one for it.
    serial = after.serial + 1 if after is not None else time.time_ns()
    found = _Line(version=VERSION, serial=serial, crc32=zlib.crc32(data), data=data.decode())
    line = msgspec.json.encode(found) + b"\n"
    try:
        if after is not None and after.end + len(line) < ROOM_BYTES and _appended(path, line, after):
            return Stamp(head=after.head, end=after.end + len(line), serial=serial)
        try:
            _replace(path, line)
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
            _replace(path, line)
    except OSError as error:
        raise errors.CheckpointError(
            f"cannot write the checkpoint {path}: {error.strerror}; mount {path.parent} read-write, with room on it"
        ) from error
    return Stamp(head=line[:HEAD_BYTES], end=len(line), serial=serial)


def _appended(path: Path, line: bytes, after: Stamp) -> bool:
    """Adds the line where the last one ends; False, and nothing done, where another one stands there."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        if not _is_last(file, after):
            return False
        os.lseek(file, after.end, os.SEEK_SET)
        _write_all(file, line)
        # The blocks are there and the length stays, so this is all that there is to sync.
        os.fdatasync(file)
    finally:
        os.close(file)
    return True


def _is_last(file: int, stamp: Stamp) -> bool:
    return os.pread(file, HEAD_BYTES, 0) == stamp.head and os.pread(file, 1, stamp.end) in (b"\n", b"")


def _replace(path: Path, line: bytes) -> None:
    # Plain calls: this is on the way of every Prepare.
    folder, name = os.path.split(path)
    draft = f"{folder}/.{name}.tmp"
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        _write_all(file, line + b"\n" * max(0, ROOM_BYTES - len(line)))
        os.fsync(file)
    finally:
        os.close(file)
    os.rename(draft, path)  # noqa: PTH104 - see above
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _write_all(descriptor: int, raw: bytes) -> None:
    while raw:
        raw = raw[os.write(descriptor, raw) :]


def _last(raw: bytes, path: Path) -> tuple[records.Content, Stamp]:
    """The last line that is whole.

    Raises:
        errors.CheckpointError: it is of a newer version.
        msgspec.MsgspecError, ValueError: none is; why not the last one.
    """
    problem: Exception = ValueError("it is empty")
    end = len(raw.rstrip(b"\n"))
    while end > 0:
        begin = raw.rfind(b"\n", 0, end) + 1
        try:
            content, serial = _decoded(raw[begin:end], path)
        except (msgspec.MsgspecError, ValueError) as error:
            problem = error if end == len(raw.rstrip(b"\n")) else problem
            end = begin - 1
        else:
            # Without an end of line there is nothing to add to.
            after = end + 1 if end < len(raw) else ROOM_BYTES
            return content, Stamp(head=raw[:HEAD_BYTES], end=after, serial=serial)
    raise problem


def _decoded(line: bytes, path: Path) -> tuple[records.Content, int]:
    file = msgspec.json.decode(line, type=_Line)
    if file.version > VERSION:
        raise errors.CheckpointError(
            f"the checkpoint {path} has version {file.version}, this Drawbar knows {VERSION}: "
            f"upgrade Drawbar on this node, or drain the node and remove the file"
        )
    data = file.data.encode()
    if zlib.crc32(data) != file.crc32:
        raise ValueError("the CRC does not match")
    return records.content(msgspec.json.decode(data, type=dict[str, Any])), file.serial
