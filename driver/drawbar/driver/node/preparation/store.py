"""The record of prepared claims on disk: one file for each claim, next to its CDI file.

The file `claims/UID.json`, in the driver's directory below the kubelet's `plugins`, contains
`{"version": 1, "crc32": N, "claim": {...}}`. The CRC covers the bytes of `claim`. A change is durable before it returns: each
file is written under a hidden name, synced and renamed, and then the directory is synced. A damaged file is renamed to
`claims/UID.json.corrupt-TIME`. Only its own claim is lost, and `restoring` rebuilds it from the claim's CDI file.

Invariant: a claim with a CDI file has a record. So the record is written before the CDI file and removed after it. A crash
between the two leaves a record without a CDI file, never the reverse.

Changes are made one at a time, among the tasks of this process and the two instances of a rolling update. Each change first
reads the other instance's changes. A change that has begun always completes, although the kubelet cancels a call after 45 s.

Each instance keeps a view of the record, which is current while the directory's modification time stays the same. Each change
sets that time, in nanoseconds. The kernel's own times advance in ticks of up to 10 ms, which hides a second change in a tick.
So the directory is read again until a time set by another is `SETTLED_SECONDS` old.
"""

import asyncio
import logging
import os
import stat
import threading
import time
import zlib
from collections.abc import Callable, Mapping
from concurrent import futures
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from drawbar.cdi import files, spec
from drawbar.driver.node import errors
from drawbar.driver.node.preparation import cdifiles, locks, records, restoring, sharedfiles

log = logging.getLogger(__name__)
T = TypeVar("T")

FOLDER = "claims"
LOCK = "claims.lock"
VERSION = 1
SUFFIX = ".json"
SETTLED_SECONDS = 0.1
_Identity = tuple[int, int, int]  # inode, modification time and size, which change with each replacement


class _View(msgspec.Struct, frozen=True, kw_only=True):
    """The record as this instance last read it.

    Attributes:
        claims: the recorded claims, by UID.
        identities: the inode, modification time and size of these claims' files, by UID.
        damaged: the errors of the record files that cannot be decoded, by UID.
        modified: the directory's modification time, if the view is current while it stays the same; else None.
    """

    claims: records.Claims = msgspec.field(default_factory=dict)
    identities: Mapping[str, _Identity] = msgspec.field(default_factory=dict)
    damaged: Mapping[str, errors.CorruptCheckpoint] = msgspec.field(default_factory=dict)
    modified: int | None = None


class _File(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    crc32: int = 0
    claim: msgspec.Raw = msgspec.Raw(b"{}")


class Store:
    """The record, and the changes to it.

    Args:
        cdi: the CDI files of the claims.
        directory: the driver's directory below the kubelet's `plugins`.
        lock_seconds: the longest wait of a change for another task or instance.
    """

    def __init__(self, cdi: cdifiles.CdiFiles, directory: Path, *, lock_seconds: float = 10.0) -> None:
        self.cdi = cdi
        self._folder = directory / FOLDER
        self._lock = locks.Lock(directory / LOCK)
        self._lock_seconds = lock_seconds
        self._view = _View()
        self._own_time = 0  # the modification time that this instance set last
        self._reading = threading.Lock()  # an older view must not replace a newer one
        # A thread of its own, so that a write does not queue behind reads of a slow sysfs.
        self._thread = futures.ThreadPoolExecutor(max_workers=1, thread_name_prefix="record")

    @property
    def claims(self) -> records.Claims:
        """Return the prepared claims of both instances; if reading fails, return the claims of the last reading."""
        try:
            return self._read().claims
        except errors.CheckpointError as error:
            log.warning("%s; using the claims that were read before", error)
            return self._view.claims

    async def restore(self, decide: Callable[[restoring.Found], restoring.Restored]) -> restoring.Restored:
        """Write the record and the CDI files that `decide` returns, and remove CDI files without a record.

        Raises:
            errors.NodeError: the record or the CDI directory cannot be used.
        """

        def restore() -> restoring.Restored:
            had_folder, found, view = self._folder.exists(), self.cdi.read(), self._read()
            # A record that an administrator removed ends its claim. A damaged record does not.
            lost = frozenset(
                uid
                for uid in found.keys() - view.claims.keys()
                if not had_folder or uid in view.damaged or any(self._folder.glob(f"{uid}{SUFFIX}.corrupt-*"))
            )
            restored = decide(restoring.Found(claims=view.claims, files=found, unrecorded=lost))
            self._change(lambda _: restored.claims)
            for draft in self._folder.glob(".*.tmp"):
                draft.unlink(missing_ok=True)
            unused = found.keys() - (restored.claims.keys() - restored.ended)
            self.cdi.restore(restored.specs, unused=unused)
            return restored

        return await self._run(restore)

    async def start(self, claim: records.PreparedClaim, content: spec.Spec) -> records.PreparedClaim | None:
        """Give the claim its devices: record it, then write its CDI file. An equal record stays.

        Returns:
            The claim's former record, by either instance.

        Raises:
            errors.NodeError: the claim cannot be recorded, or another claim has one of the devices. If the CDI file cannot
                be written, the record stays.
        """
        self.cdi.check(claim.uid)

        def start() -> records.PreparedClaim | None:
            claims = self._change(lambda claims: records.add_started(claims, claim))
            self.cdi.write(claim.uid, content)
            before = claims.get(claim.uid)
            if before is not None and before.state == records.STARTED:
                # The sweeper would drop the record that an earlier start left, once the claim is gone.
                self._change(lambda claims: records.add_completed(claims, before))
            return before

        return await self._run(start)

    async def drop(self, uid: str, *, states: tuple[str, ...] = ()) -> records.PreparedClaim | None:
        """Take the claim's devices from it: remove its CDI file, then its record. An unknown claim is success.

        Args:
            uid: the UID of the claim.
            states: the states of a record to drop; empty for any state.

        Returns:
            The claim's former record, by either instance, even if it stays.

        Raises:
            errors.NodeError: a file cannot be removed; the claim keeps its devices.
        """
        self.cdi.check(uid)

        def plan(claims: records.Claims) -> records.Claims:
            if states and (uid not in claims or claims[uid].state not in states):
                return claims
            self.cdi.remove(uid)
            return {key: claim for key, claim in claims.items() if key != uid}

        return (await self._run(lambda: self._change(plan))).get(uid)

    async def explain(self, claim: records.PreparedClaim) -> None:
        """Record a claim in place of its unexplained record. Any other record stays.

        Raises:
            errors.NodeError: the claim cannot be recorded.
        """
        await self._run(lambda: self._change(lambda claims: records.add_explained(claims, claim)))

    async def _run(self, change: Callable[[], T]) -> T:
        """Run the change to its end in the thread, with the lock held; raise a cancellation after that."""
        async with self._lock.hold(self._lock_seconds):
            job = asyncio.get_running_loop().run_in_executor(self._thread, change)
            cancelled: asyncio.CancelledError | None = None
            while not job.done():
                try:
                    await asyncio.wait([job])
                except asyncio.CancelledError as error:
                    cancelled = error
            if cancelled is not None:
                job.exception()
                raise cancelled
            return job.result()

    # The following methods block. Any thread may call `_read`; only a change calls the others.

    def _read(self, *, again: bool = False) -> _View:
        """Return the record as it is now. If a file is damaged, or the directory is missing, its claims stay as they were.

        Args:
            again: read the directory even if its modification time is the same.

        Raises:
            errors.CheckpointError: a newer Drawbar wrote a file, or a file cannot be read.
        """
        with self._reading:
            now = time.time_ns()
            try:
                modified = os.stat(self._folder).st_mtime_ns  # noqa: PTH116 - every look at a device does this
                if again or modified != self._view.modified:
                    is_settled = modified == self._own_time or now - modified > SETTLED_SECONDS * 1e9
                    self._view = self._scan(self._view, modified if is_settled else None)
            except FileNotFoundError:
                self._view = _View(claims=self._view.claims)
            except OSError as error:
                raise errors.CheckpointError(
                    f"cannot read the record in {self._folder}: {error.strerror}; run as the user that owns it"
                ) from error
            return self._view

    def _scan(self, before: _View, modified: int | None) -> _View:
        claims: dict[str, records.PreparedClaim] = {}
        identities: dict[str, _Identity] = {}
        damaged: dict[str, errors.CorruptCheckpoint] = {}
        with os.scandir(self._folder) as entries:
            for entry in entries:
                uid = entry.name.removesuffix(SUFFIX)
                if uid == entry.name or uid.startswith("."):
                    continue
                try:
                    status = entry.stat(follow_symlinks=False)
                    identity = (status.st_ino, status.st_mtime_ns, status.st_size)
                    is_same = before.identities.get(uid) == identity
                    claims[uid] = before.claims[uid] if is_same else _decode(Path(entry), uid)
                    identities[uid] = identity
                except FileNotFoundError:
                    continue  # the other instance has just removed it
                except errors.CorruptCheckpoint as error:
                    damaged[uid] = error
                    if uid in before.claims:
                        claims[uid] = before.claims[uid]
        return _View(claims=claims, identities=identities, damaged=damaged, modified=modified)

    def _change(self, plan: Callable[[records.Claims], records.Claims]) -> records.Claims:
        """Apply the plan to the recorded claims and record the result; return the claims from before."""
        view = self._read(again=True)  # damage to a file does not change the directory's time
        self._write(view, plan(view.claims))
        self._read()  # in this thread, to spare the event loop
        return view.claims

    def _write(self, before: _View, claims: records.Claims) -> None:
        """Write the claims to their files, durably. An equal file is not written again."""
        try:
            if not self._folder.exists():
                self._folder.mkdir()
                sharedfiles.sync_directory(str(self._folder.parent))
            for uid, error in before.damaged.items():
                # In nanoseconds: a second damaged file must not replace the first.
                aside = str(self._record(uid).rename(f"{self._record(uid)}.corrupt-{time.time_ns()}"))
                extra = {"uid": uid, "aside": aside}
                log.error("%s; it was moved aside, the other claims keep theirs", error, extra=extra)
            for uid in before.identities.keys() - claims.keys():
                self._record(uid).unlink(missing_ok=True)
            for uid, claim in claims.items():
                if uid not in before.identities or before.claims[uid] != claim:
                    sharedfiles.replace(str(self._record(uid)), _encode(claim))
            self._own_time = time.time_ns()
            os.utime(self._folder, ns=(self._own_time, self._own_time))
            # Even if no file changed: the sync of an earlier change may have failed.
            sharedfiles.sync_directory(str(self._folder))
        except OSError as error:
            raise errors.CheckpointError(
                f"cannot write the record in {self._folder}: {error.strerror}; mount {self._folder.parent} read-write, "
                f"with room on it"
            ) from error

    def _record(self, uid: str) -> Path:
        return self._folder / f"{uid}{SUFFIX}"


def _encode(claim: records.PreparedClaim) -> bytes:
    raw = msgspec.json.encode(claim.document())
    return msgspec.json.encode(_File(version=VERSION, crc32=zlib.crc32(raw), claim=msgspec.Raw(raw))) + b"\n"


def _decode(path: Path, uid: str) -> records.PreparedClaim:
    """Return the claim of a record file.

    Raises:
        errors.CorruptCheckpoint: the file is damaged.
        errors.CheckpointError: a newer Drawbar wrote it.
        OSError: the file cannot be read.
    """
    if not stat.S_ISREG(path.lstat().st_mode):
        raise errors.CorruptCheckpoint(f"the record {path} is damaged: it is not a regular file")
    try:
        file = msgspec.json.decode(files.read_regular(path, files.FILE_BYTES), type=_File)
        is_whole = zlib.crc32(bytes(file.claim)) == file.crc32
        claim = records.parse(msgspec.json.decode(file.claim, type=dict[str, Any])) if is_whole else None
    except (ValueError, RecursionError) as error:
        raise errors.CorruptCheckpoint(f"the record {path} is damaged: {error}") from error
    if file.version > VERSION:
        raise errors.CheckpointError(
            f"the record {path} has version {file.version}, this Drawbar knows {VERSION}: upgrade Drawbar on this node, or "
            f"drain the node and remove the file"
        )
    if claim is None:
        raise errors.CorruptCheckpoint(f"the record {path} is damaged: the CRC does not match")
    if claim.uid != uid:
        raise errors.CorruptCheckpoint(f"the record {path} is damaged: its claim has the uid {claim.uid}")
    return claim
