"""What this node has prepared, kept across restarts.

Unprepare gets only a claim's uid, and the claim may be gone by then, so what was prepared must be known here alone.

The file is JSON: {"version": 1, "crc32": N, "data": "<JSON text>"}; the CRC covers the bytes of `data`, so that a
newer Drawbar may add fields without breaking the check. A write is durable (fsync of file and directory) before it
returns. A file that cannot be read is moved aside, never deleted, and what it said is rebuilt from the CDI files.
"""

import logging
import os
import time
import zlib
from pathlib import Path

import msgspec

from drawbar.driver.node import errors

log = logging.getLogger(__name__)

VERSION = 1


class PreparedDevice(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One device handed to a claim. `requests` is empty when it was rebuilt from a CDI file."""

    pool: str
    device: str
    cdi_id: str = msgspec.field(name="cdiID")
    requests: tuple[str, ...] = ()


class PreparedClaim(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One claim that the kubelet may use."""

    namespace: str
    name: str
    uid: str
    devices: tuple[PreparedDevice, ...]


class Content(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Everything the file says."""

    boot_id: str = msgspec.field(default="", name="bootID")
    claims: dict[str, PreparedClaim] = {}

    def with_claim(self, claim: PreparedClaim) -> "Content":
        """The content after a Prepare."""
        return Content(boot_id=self.boot_id, claims={**self.claims, claim.uid: claim})

    def without_claim(self, uid: str) -> "Content":
        """The content after an Unprepare."""
        return Content(
            boot_id=self.boot_id, claims={key: value for key, value in self.claims.items() if key != uid}
        )

    def holder(self, pool: str, device: str) -> PreparedClaim | None:
        """The claim that the device was handed to, if any."""
        for claim in self.claims.values():
            if any((held.pool, held.device) == (pool, device) for held in claim.devices):
                return claim
        return None


class _File(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    crc32: int
    data: str


def load(path: Path) -> Content | None:
    """What the file says; None when there is none yet, or when it was corrupt and has been moved aside.

    Raises:
        errors.CheckpointError: it is of a newer, unknown version, cannot be read for lack of permission, or is
            corrupt and cannot be moved aside.
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
        return _decode(raw, path)
    except (msgspec.MsgspecError, ValueError) as error:
        aside = _move_aside(path)
        log.error(  # noqa: TRY400 - the sentence explains it; a traceback would not
            "checkpoint is corrupt, moved aside and rebuilt from the CDI files",
            extra={"path": str(path), "aside": str(aside), "reason": str(error)},
        )
        return None


def _move_aside(path: Path) -> Path:
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


def save(path: Path, content: Content) -> None:
    """Replaces the file, durably and whole.

    Raises:
        errors.CheckpointError: the directory cannot be written.
    """
    data = msgspec.json.encode(content).decode()
    raw = msgspec.json.encode(_File(version=VERSION, crc32=zlib.crc32(data.encode()), data=data))
    draft = path.with_name(f".{path.name}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with draft.open("wb") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        draft.rename(path)
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError as error:
        raise errors.CheckpointError(
            f"cannot write the checkpoint {path}: {error.strerror}; mount {path.parent} read-write"
        ) from error


def _decode(raw: bytes, path: Path) -> Content:
    file = msgspec.json.decode(raw, type=_File)
    if file.version > VERSION:
        raise errors.CheckpointError(
            f"the checkpoint {path} has version {file.version}, this Drawbar knows {VERSION}: "
            f"upgrade Drawbar on this node, or drain the node and remove the file"
        )
    if zlib.crc32(file.data.encode()) != file.crc32:
        raise ValueError("the CRC does not match")
    return msgspec.json.decode(file.data, type=Content)
