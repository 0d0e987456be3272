"""The record of prepared claims on disk: one file for each claim, beside its CDI file.

`claims/UID.json`, in the driver's directory below the kubelet's `plugins`, is
`{"version": 1, "crc32": N, "claim": {...}}`; the CRC is that of the bytes of `claim`. A write is durable before it
returns: a file is written under a hidden name, synced and renamed, and its directory is synced. A damaged file is moved to
`claims/UID.json.corrupt-TIME`. It costs the record of one claim, which is made again from its CDI file (`restoring`).

Invariant: a claim that has a CDI file has a record. So the record is written before the CDI file and removed after it. A
crash in between leaves a record without its CDI file, never a CDI file without a record.

One change at a time, among the tasks of this process and the two instances of a rolling update. Each change reads first
what the other instance wrote. A change that has begun is carried to its end, whoever is cancelled meanwhile: the kubelet
gives up a call after 45 s.
"""

import asyncio
import contextlib
import logging
import os
import zlib
from collections.abc import Callable, Mapping
from concurrent import futures
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from drawbar.cdi import errors as cdi_errors
from drawbar.cdi import files, spec
from drawbar.driver.catalogue import reasons
from drawbar.driver.node import errors
from drawbar.driver.node.preparation import records, sharedfiles

log = logging.getLogger(__name__)

T = TypeVar("T")

FOLDER = "claims"
LOCK = "claims.lock"
VERSION = 1
SUFFIX = ".json"

# Inode, time of change and size tell a file from one that replaced it.
_Identity = tuple[int, int, int]
_Plan = Callable[[records.Claims], records.Claims]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The state that the last instance left.

    Attributes:
        claims: the recorded claims.
        files: the names of the CDI devices, by the UID of the claim that has the CDI file.
        unrecorded: UIDs of the claims whose record was lost. Their CDI files are all that is left of them.
    """

    claims: records.Claims
    files: Mapping[str, tuple[str, ...]]
    unrecorded: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """The record and the CDI files to write at a start.

    Attributes:
        claims: the claims to record.
        specs: the CDI files to write again, by claim UID.
        ended: UIDs of the claims whose CDI file goes although they have a record.
    """

    claims: records.Claims
    specs: Mapping[str, spec.Spec]
    ended: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """The record as this instance last read or wrote it.

    Attributes:
        claims: the recorded claims, by UID.
        identities: the record files of these claims, by UID.
        damaged: UIDs of the record files that cannot be read.
    """

    claims: records.Claims = field(default_factory=dict)
    identities: Mapping[str, _Identity] = field(default_factory=dict)
    damaged: frozenset[str] = frozenset()


class _File(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    crc32: int = 0
    claim: msgspec.Raw = msgspec.Raw(b"{}")


class Store:
    """The record, and the changes to it. Nothing is read before `restore`.

    Args:
        driver: name of the DRA driver, with which the names of its CDI files begin.
        cdi_dir: directory of the CDI files.
        directory: the driver's directory below the kubelet's `plugins`.
        lock_seconds: how long a change waits for another task or instance at most.
    """

    def __init__(self, *, driver: str, cdi_dir: Path, directory: Path, lock_seconds: float = 10.0) -> None:
        self._driver = driver
        self._cdi_dir = cdi_dir
        self._folder = directory / FOLDER
        self._lock = directory / LOCK
        self._lock_seconds = lock_seconds
        self._seen = _Seen()
        self._is_restored = False
        self._writing = asyncio.Lock()
        # A thread of its own: a write does not queue behind reads of a slow sysfs.
        self._thread = futures.ThreadPoolExecutor(max_workers=1, thread_name_prefix="record")

    @property
    def last_read(self) -> records.Claims:
        """The prepared claims as this instance last read or wrote them."""
        return self._seen.claims

    @property
    def claims(self) -> records.Claims:
        """The prepared claims as they are recorded now by either instance; the last ones read if that fails."""
        if self._is_restored:
            # The thread alone keeps what it read: a reading that began before a change must not replace the one after it.
            try:
                return self._look(self._seen).claims
            except errors.CheckpointError as error:
                log.warning("%s; going on with the claims that were read before", error)
        return self._seen.claims

    @property
    def cdi_directories(self) -> tuple[Path, ...]:
        """The directories that the container runtimes read, from the lowest priority to the highest."""
        return files.read_by_runtimes(self._cdi_dir)

    def holder(self, pool: str, device: str) -> records.PreparedClaim | None:
        """Return the claim that has the device to itself now, or None."""
        return records.holder(self.claims, pool, device)

    def has_file(self, uid: str) -> bool:
        """Return whether the claim has its CDI file, which is written last: so it was prepared to the end."""
        return self._cdi_file(uid).exists()

    async def restore(self, decide: Callable[[Found], Restored]) -> Restored:
        """Take up what the last instance left, as `decide` says. CDI files without a record go.

        Raises:
            errors.NodeError: the record or the CDI directory cannot be used.
        """

        def make() -> Restored:
            self._seen, left = self._take_stock()
            restored = decide(left)
            self._restore(left, restored)
            return restored

        restored = await self._alone(make)
        self._is_restored = True
        return restored

    async def start(self, claim: records.PreparedClaim, content: spec.Spec) -> records.PreparedClaim | None:
        """Give the claim its devices: record it, then write its CDI file. An equal record stays.

        Returns:
            The claim's record before, whichever instance wrote it.

        Raises:
            errors.NodeError: it cannot be recorded, or another claim has one of the devices; or the CDI file cannot be
                written, then the record stays.
        """
        file = self._cdi_file(claim.uid)

        def make() -> records.PreparedClaim | None:
            before = self._change(lambda claims: _started(claims, claim))
            _write_cdi(file, content)
            recorded = self._seen.claims[claim.uid]
            if recorded is before.get(claim.uid) and recorded.state == records.STARTED:
                # Another start left it so, and would give it back once the claim is gone.
                completed = recorded.in_state(records.COMPLETED)
                self._change(lambda claims: {**claims, claim.uid: completed})
            return before.get(claim.uid)

        return await self._alone(make)

    async def drop(self, uid: str, *, states: tuple[str, ...] = ()) -> records.PreparedClaim | None:
        """Take the claim's devices from it: remove its CDI file, then its record. An unknown claim is success.

        Args:
            uid: the UID of the claim.
            states: a record in another state stays; empty for any state.

        Returns:
            The claim's record before, whichever instance wrote it.

        Raises:
            errors.NodeError: a file cannot be removed; the claim keeps its devices.
        """
        file = self._cdi_file(uid)

        def plan(claims: records.Claims) -> records.Claims:
            before = claims.get(uid)
            if states and (before is None or before.state not in states):
                return claims
            _remove_cdi(file)
            return {key: claim for key, claim in claims.items() if key != uid}

        return (await self._alone(lambda: self._change(plan))).get(uid)

    async def explain(self, claim: records.PreparedClaim) -> None:
        """Record a claim that only a CDI file named before. One that has another record by now keeps that.

        Raises:
            errors.NodeError: it cannot be recorded.
        """

        def plan(claims: records.Claims) -> records.Claims:
            before = claims.get(claim.uid)
            if before is None or before.state != records.UNEXPLAINED:
                return claims
            return {**claims, claim.uid: claim}

        await self._alone(lambda: self._change(plan))

    async def _alone(self, call: Callable[[], T]) -> T:
        """Run the call in the thread, while no other task or instance changes the record, and to its end."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + self._lock_seconds
        try:
            async with asyncio.timeout_at(ends):
                await self._writing.acquire()
        except TimeoutError as error:
            raise errors.CheckpointError(
                f"another instance has kept {self._lock} locked for too long, or the disk does not answer; "
                f"look at the log of that instance and at dmesg"
            ) from error
        try:
            async with sharedfiles.held(self._lock, ends - loop.time()):
                return await _to_its_end(loop.run_in_executor(self._thread, call))
        finally:
            self._writing.release()

    # Blocking, in the thread and with the lock held; `_look` without it, too.

    def _change(self, plan: _Plan) -> records.Claims:
        """Record the claims that the plan returns for those recorded now, and return these."""
        self._seen = self._look(self._seen)
        before = self._seen.claims
        try:
            self._seen = self._write(plan(before))
        except errors.CheckpointError:
            # A part of it may be written: a record that is gone is a device that is free.
            with contextlib.suppress(errors.CheckpointError):
                self._seen = self._look(self._seen)
            raise
        return before

    def _take_stock(self) -> tuple[_Seen, Found]:
        had_folder = self._folder.exists()
        seen = self._look(_Seen())
        try:
            files.sweep(self._cdi_dir, self._driver)
            cdi = {uid: self._names(uid) for uid in files.owners(self._cdi_dir, self._driver)}
        except cdi_errors.CdiError as error:
            raise errors.PrepareError(str(error), reason=reasons.CDI_FILE_FAILED) from error
        unrecorded = cdi.keys() - seen.claims.keys()
        if had_folder:
            # A record that was removed by hand ends its claim; one that is damaged, or was set aside, does not.
            unrecorded = {uid for uid in unrecorded if uid in seen.damaged or self._is_aside(uid)}
        return seen, Found(claims=seen.claims, files=cdi, unrecorded=frozenset(unrecorded))

    def _restore(self, left: Found, restored: Restored) -> None:
        self._seen = self._write(restored.claims)
        for draft in self._folder.glob(".*.tmp"):
            draft.unlink(missing_ok=True)
        try:
            for uid, content in restored.specs.items():
                try:
                    files.write(self._cdi_file(uid), content)
                except cdi_errors.InvalidSpec as error:
                    log.warning("cannot write the CDI file again: %s", error, extra={"uid": uid})
            for uid in left.files.keys() - (restored.claims.keys() - restored.ended):
                log.info("removing a CDI file that no container uses", extra={"uid": uid})
                files.remove(self._cdi_file(uid))
        except cdi_errors.UnwritableDir as error:
            raise errors.PrepareError(str(error), reason=reasons.CDI_FILE_FAILED) from error

    def _look(self, before: _Seen) -> _Seen:
        """Return what is recorded now. A claim whose file is damaged, or whose directory is gone, is as it was before.

        Raises:
            errors.CheckpointError: a newer Drawbar wrote a file, or one cannot be read.
        """
        claims: dict[str, records.PreparedClaim] = {}
        identities: dict[str, _Identity] = {}
        damaged = set()
        try:
            with os.scandir(self._folder) as entries:
                for entry in entries:
                    uid = entry.name.removesuffix(SUFFIX)
                    if uid == entry.name or uid.startswith("."):
                        continue
                    try:
                        identity = _identity(entry.stat())
                        is_same = before.identities.get(uid) == identity
                        claims[uid] = before.claims[uid] if is_same else _read(Path(entry), uid)
                        identities[uid] = identity
                    except FileNotFoundError:
                        continue  # the other instance has just removed it
                    except errors.CorruptCheckpoint:
                        damaged.add(uid)
                        if uid in before.claims:
                            claims[uid] = before.claims[uid]
        except FileNotFoundError:
            return _Seen(claims=before.claims)
        except OSError as error:
            raise errors.CheckpointError(
                f"cannot read the record in {self._folder}: {error.strerror}; run as the user that owns it"
            ) from error
        return _Seen(claims=claims, identities=identities, damaged=frozenset(damaged))

    def _write(self, claims: records.Claims) -> _Seen:
        """Make the files say these claims, durably. An equal file is not written again."""
        seen = self._seen
        identities = dict(seen.identities)
        created = []
        for uid in seen.damaged:
            self._set_aside(uid)
        try:
            for uid in identities.keys() - claims.keys():
                self._record(uid).unlink(missing_ok=True)
                del identities[uid]
            for uid, claim in claims.items():
                if uid in identities and seen.claims[uid] == claim:
                    continue
                if uid not in identities:
                    created.append(self._record(uid))
                identities[uid] = _identity(self._put(uid, claim))
            if identities != seen.identities:
                sharedfiles.sync_directory(str(self._folder))
        except OSError as error:
            # The next try must not take for recorded what a crash of the machine can undo.
            for path in created:
                with contextlib.suppress(OSError):
                    path.unlink()
            raise errors.CheckpointError(
                f"cannot write the record in {self._folder}: {error.strerror}; mount {self._folder.parent} read-write, "
                f"with room on it"
            ) from error
        return _Seen(claims=claims, identities=identities)

    def _put(self, uid: str, claim: records.PreparedClaim) -> os.stat_result:
        path, raw = str(self._record(uid)), _encode(claim)
        try:
            return sharedfiles.replace(path, raw)
        except FileNotFoundError:
            self._folder.mkdir(parents=True, exist_ok=True)
            sharedfiles.sync_directory(str(self._folder.parent))
            return sharedfiles.replace(path, raw)

    def _set_aside(self, uid: str) -> None:
        try:
            _read(self._record(uid), uid)
        except FileNotFoundError:
            return
        except errors.CorruptCheckpoint as error:
            aside = sharedfiles.set_aside(self._record(uid))
            # The sentence explains it, a traceback would not.
            extra = {"uid": uid, "aside": str(aside)}
            log.error("%s; it was moved aside, the other claims keep theirs", error, extra=extra)  # noqa: TRY400

    def _is_aside(self, uid: str) -> bool:
        return any(self._folder.glob(f"{uid}{SUFFIX}.corrupt-*"))

    def _names(self, uid: str) -> tuple[str, ...]:
        """Return the names of the devices in the claim's CDI file."""
        try:
            content = files.read(self._cdi_file(uid))
        except cdi_errors.CdiError as error:
            log.warning("a CDI file of this driver cannot be used: %s", error, extra={"uid": uid})
            return ()
        return tuple(device.name for device in content.devices) if content is not None else ()

    def _record(self, uid: str) -> Path:
        return self._folder / f"{uid}{SUFFIX}"

    def _cdi_file(self, uid: str) -> Path:
        """Return the claim's CDI file.

        Raises:
            errors.PrepareError: no file can have that uid in its name, so nothing is recorded for such a claim.
        """
        try:
            return files.path(self._cdi_dir, self._driver, uid)
        except cdi_errors.CdiError as error:
            raise errors.PrepareError(str(error), reason=reasons.CDI_FILE_FAILED) from error


def refuse_overlap(claims: records.Claims, pool: str, device: str, uid: str) -> None:
    """Check that no other claim has the device.

    Raises:
        errors.PrepareError: one has.
    """
    holder = records.holder(claims, pool, device)
    if holder is None or holder.uid == uid:
        return
    name = f"device {pool}/{device}"
    if holder.state == records.UNEXPLAINED:
        message = (
            f"{name} is in the CDI file of a claim with uid {holder.uid} that is not known here, so a container may "
            f"still use it; trying again once the API server has said what became of that claim"
        )
    else:
        message = (
            f"{name} is still in use by claim {holder.namespace}/{holder.name} on this node; trying again"
        )
    raise errors.PrepareError(message, reason=reasons.DEVICE_IN_USE)


def _started(claims: records.Claims, claim: records.PreparedClaim) -> records.Claims:
    """Return the claims with this one among them, which is left as it is if it has the same devices already."""
    for wanted in claim.devices:
        # Shares and admin access neither hold a device nor are they held off.
        if wanted.holds(wanted.pool, wanted.device):
            refuse_overlap(claims, wanted.pool, wanted.device, claim.uid)
    before = claims.get(claim.uid)
    replacing = claim.replacing(before)
    if (
        before is not None
        and before.state != records.UNEXPLAINED
        and replacing.in_state(before.state) == before
    ):
        return claims
    return {**claims, claim.uid: replacing}


async def _to_its_end(future: asyncio.Future[T]) -> T:
    """Return the result of the future, even if cancelled meanwhile; the cancellation is raised after that."""
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        future.exception()
        raise cancelled
    return future.result()


def _write_cdi(file: Path, content: spec.Spec) -> None:
    try:
        files.write(file, content)
    except cdi_errors.CdiError as error:
        raise errors.PrepareError(str(error), reason=reasons.CDI_FILE_FAILED) from error


def _remove_cdi(file: Path) -> None:
    try:
        files.remove(file)
    except cdi_errors.CdiError as error:
        raise errors.PrepareError(str(error), reason=reasons.CDI_FILE_FAILED) from error


def _encode(claim: records.PreparedClaim) -> bytes:
    raw = msgspec.json.encode(claim.document())
    return msgspec.json.encode(_File(version=VERSION, crc32=zlib.crc32(raw), claim=msgspec.Raw(raw))) + b"\n"


def _read(path: Path, uid: str) -> records.PreparedClaim:
    """Return the claim of a record file.

    Raises:
        errors.CorruptCheckpoint: the file is damaged.
        errors.CheckpointError: it is of a newer version.
        OSError: it cannot be read.
    """
    raw = path.read_bytes()
    try:
        file = msgspec.json.decode(raw, type=_File)
        whole = zlib.crc32(bytes(file.claim)) == file.crc32
        claim = records.parse(msgspec.json.decode(file.claim, type=dict[str, Any])) if whole else None
    except (ValueError, RecursionError) as error:
        raise errors.CorruptCheckpoint(f"the record {path} is damaged: {error}") from error
    if file.version > VERSION:
        raise errors.CheckpointError(
            f"the record {path} has version {file.version}, this Drawbar knows {VERSION}: "
            f"upgrade Drawbar on this node, or drain the node and remove the file"
        )
    if claim is None:
        raise errors.CorruptCheckpoint(f"the record {path} is damaged: the CRC does not match")
    if claim.uid != uid:
        raise errors.CorruptCheckpoint(f"the record {path} is damaged: it is of a claim with uid {claim.uid}")
    return claim


def _identity(status: os.stat_result) -> _Identity:
    return status.st_ino, status.st_mtime_ns, status.st_size
