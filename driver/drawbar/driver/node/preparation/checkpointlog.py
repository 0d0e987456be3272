"""The record of prepared claims as versions before the record files keep it, `checkpoint.json`. For one release only.

To be deleted in the next release, with its uses in `store`; that release removes the file at its start.

In this release the daemon writes the file beside the record files, so that a daemon of the version before finds what is
prepared, whether it runs at the same moment (a rolling update) or later (a rollback). And it reads the file, since such
a daemon may have written it. Which of the two records is the newer one is in the last line of the file: this version
marks its lines with `recordFiles`, which the version before neither writes nor copies. It writes the mark after the
record files, under the lock that both versions take. So a last line with the mark means that the record files say what
is prepared, and one without it that a daemon of the version before wrote after them: then that line has them.

The file is lines of JSON, `{"version": 1, "serial": N, "crc32": N, "data": "<JSON text>"}`, each of all claims, and the
last whole one counts; empty lines may follow. It is synced only when a line with the mark follows one without: after
that a crash of the machine leaves some line with the mark, so the record files decide.
"""

import os
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from drawbar.driver.node import errors
from drawbar.driver.node.preparation import records, sharedfiles

FILE = "checkpoint.json"
VERSION = 1
# The version before compares so many bytes; the serial in them is in no other file.
HEAD_BYTES = 64
# As large as the version before makes the file.
ROOM_BYTES = 512 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """The last whole line.

    Attributes:
        head: how the file begins.
        end: where the line ends, in bytes.
        marked: whether this version wrote it.
        data: what it says, as text.
        boot_id: of the boot in which it was written; empty where that is not known.
        claims: what it says of claims.
        documents: the text of those that this version wrote.
        unknown: what it says besides, in fields of a newer version.
    """

    head: bytes
    end: int
    marked: bool
    data: str
    boot_id: str
    claims: records.Claims
    unknown: records.Json
    documents: Mapping[str, msgspec.Raw] = field(default_factory=dict)


class _Json(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    version: int
    serial: int = 0
    crc32: int
    data: str
    record_files: bool = False


def read(path: Path, before: Line | None = None) -> Line | None:
    """Return the last whole line, which is `before` if it has not been written since; None when there is no file.

    Raises:
        errors.CorruptCheckpoint: no line is whole.
        errors.CheckpointError: the line is of a newer version, or the file cannot be read.
    """
    try:
        if before is not None and _is_last(path, before):
            return before
        raw = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise errors.CheckpointError(
            f"cannot read the checkpoint {path}: {error.strerror}; run as the user that owns it"
        ) from error
    problem: Exception = ValueError("it is empty")
    end = last = len(raw.rstrip(b"\n"))
    while end > 0:
        begin = raw.rfind(b"\n", 0, end) + 1
        try:
            return _parse(raw, begin, end, path)
        except (ValueError, RecursionError) as error:
            problem = error if end == last else problem
            end = begin - 1
    raise errors.CorruptCheckpoint(f"the checkpoint {path} is corrupt: {problem}") from problem


def write(path: Path, claims: records.Claims, before: Line | None) -> Line:
    """Make the file say these claims, and return its line, which is `before` if that has them already.

    The caller has the lock, and has read `before` since it has.

    Raises:
        OSError: the file cannot be written.
    """
    unknown = before.unknown if before is not None else {}
    # The claims have it, all the same one after a start; the version before reads it here.
    boot_ids = {claim.boot_id for claim in claims.values()} - {""}
    boot_id = max(boot_ids, default=before.boot_id if before is not None else "")
    documents = {uid: _document(claim, before) for uid, claim in claims.items()}
    data = msgspec.json.encode({**unknown, "bootID": boot_id, "claims": documents})
    text = data.decode()
    if before is not None and before.marked and before.data == text:
        return before
    line = _Json(version=VERSION, serial=time.time_ns(), crc32=zlib.crc32(data), data=text, record_files=True)
    raw = msgspec.json.encode(line) + b"\n"
    head, end = raw[:HEAD_BYTES], len(raw)
    if before is not None and before.marked and _append(path, raw, before.end):
        head, end = before.head, before.end + len(raw)
    else:
        takes_over = before is None or not before.marked
        sharedfiles.replace(str(path), raw, sync=takes_over)
        if takes_over:
            sharedfiles.sync_directory(str(path.parent))
    return Line(
        head=head,
        end=end,
        marked=True,
        data=text,
        boot_id=boot_id,
        claims=claims,
        unknown=unknown,
        documents=documents,
    )


def _document(claim: records.PreparedClaim, before: Line | None) -> msgspec.Raw:
    is_same = before is not None and before.claims.get(claim.uid) is claim
    document = before.documents.get(claim.uid) if before is not None and is_same else None
    return document or msgspec.Raw(msgspec.json.encode(claim.document()))


def _append(path: Path, raw: bytes, end: int) -> bool:
    """Add the line where the last one ends, unless something stands there or the file would be too large."""
    if end + len(raw) > ROOM_BYTES:
        return False
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    try:
        if os.fstat(descriptor).st_size != end:
            return False
        while raw:
            raw = raw[os.write(descriptor, raw) :]
    finally:
        os.close(descriptor)
    return True


def _is_last(path: Path, line: Line) -> bool:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        head, after = os.pread(descriptor, HEAD_BYTES, 0), os.pread(descriptor, 1, line.end)
    finally:
        os.close(descriptor)
    return head == line.head and after in (b"\n", b"")


def _parse(raw: bytes, begin: int, end: int, path: Path) -> Line:
    line = msgspec.json.decode(raw[begin:end], type=_Json)
    if line.version > VERSION:
        raise errors.CheckpointError(
            f"the checkpoint {path} has version {line.version}, this Drawbar knows {VERSION}: "
            f"upgrade Drawbar on this node, or drain the node and remove the file"
        )
    if zlib.crc32(line.data.encode()) != line.crc32:
        raise ValueError("the CRC does not match")
    content = msgspec.json.decode(line.data, type=dict[str, Any])
    boot_id = msgspec.convert(content.pop("bootID", ""), str)
    documents = msgspec.convert(content.pop("claims", {}), dict[str, dict[str, Any]])
    return Line(
        head=raw[:HEAD_BYTES],
        end=end + 1,
        marked=line.record_files,
        data=line.data,
        boot_id=boot_id,
        claims={uid: records.parse({**document, "bootID": boot_id}) for uid, document in documents.items()},
        unknown=content,
    )
