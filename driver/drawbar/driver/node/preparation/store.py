"""The record of prepared claims on disk: for each claim a file, and its CDI file.

`claims/UID.json`, in the driver's directory below the kubelet's `plugins`, is
`{"version": 1, "crc32": N, "claim": {...}}`; the CRC is that of the bytes of `claim`. A write is durable before it returns: the file is written under a hidden name and
renamed, and file and directory are synced; a file that replaces another is synced first. A file that is damaged all the same is set aside as
`claims/UID.json.corrupt-TIME` and costs the record of one claim, which is made again from its CDI file (`restoring`).

Invariant: a claim that has a CDI file has a record. So the record is written before the CDI file and removed after it,
and a crash in between leaves a record without its CDI file, never a CDI file without a record.

One write at a time, among the tasks of this process and the instances of a rolling update. Each looks first at what the
other instance wrote. Changes that wait for a write are written together by the next one, which syncs the directory once
for all of them; a change that is refused, or whose CDI file cannot be written, fails alone. A write that has begun is
carried to its end, whoever is cancelled meanwhile (the kubelet gives up a call after 45 s).
"""

import asyncio
import contextlib
import logging
import os
import time
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent import futures
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from drawbar.cdi import errors as cdi_errors
from drawbar.cdi import files, spec
from drawbar.driver.node import errors
from drawbar.driver.node.preparation import checkpointlog, records, sharedfiles

log = logging.getLogger(__name__)

T = TypeVar("T")

FOLDER = "claims"
# Versions before the record files take the same one.
LOCK = "checkpoint.json.lock"
VERSION = 1
SUFFIX = ".json"

# Inode, time of change and size tell a file from one that replaced it.
_Identity = tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What the last instance left.

    Attributes:
        claims: as recorded.
        files: the names of the CDI devices by the uid of the claim that has the CDI file.
        unrecorded: uids of the claims whose record was lost, so that their CDI files are all there is of them.
    """

    claims: records.Claims
    files: Mapping[str, tuple[str, ...]]
    unrecorded: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """What the record and the CDI files are to be at a start.

    Attributes:
        claims: to be recorded.
        specs: by claim uid the CDI files to write again.
        ended: uids of the claims whose CDI file goes although they have a record.
    """

    claims: records.Claims
    specs: Mapping[str, spec.Spec]
    ended: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """The record as this instance last read or wrote it.

    Attributes:
        claims: as recorded.
        files: by uid the record files, each with its claim.
        damaged: uids of the record files that cannot be read.
        changed_ns: when the directory of the record files was changed.
        line: of the file that versions before the record files wrote.
    """

    claims: records.Claims = field(default_factory=dict)
    files: Mapping[str, tuple[_Identity, records.PreparedClaim]] = field(default_factory=dict)
    damaged: frozenset[str] = frozenset()
    changed_ns: int | None = None
    line: checkpointlog.Line | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class _Change:
    """A change that waits for its write.

    Attributes:
        uid: of the claim that it is of; one write makes one change of a claim at most.
        plan: returns the claims to be recorded in place of those that are. What raises is left out of the write.
        finish: returns what is to be recorded after that; called once those are recorded.
        done: set once the write that makes it is over.
        is_begun: whether a write has begun that makes it.
        is_made: whether it was made.
        before: the claims that it found.
        error: why it was not made, or not finished.
    """

    uid: str
    plan: Callable[[records.Claims], records.Claims]
    finish: Callable[[records.Claims], records.Claims] = lambda claims: claims
    done: asyncio.Event = field(default_factory=asyncio.Event)
    is_begun: bool = False
    is_made: bool = False
    before: records.Claims = field(default_factory=dict)
    error: errors.NodeError | None = None


class _File(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    crc32: int = 0
    claim: msgspec.Raw = msgspec.Raw(b"{}")


class Store:
    """The record as this instance knows it, and the changes to it. Nothing is read before `restore`."""

    def __init__(self, *, driver: str, cdi_dir: Path, directory: Path, lock_seconds: float = 10.0) -> None:
        # `directory` is the driver's, at the kubelet; another instance may keep the lock for `lock_seconds`.
        self._driver = driver
        self._cdi_dir = cdi_dir
        self._folder = directory / FOLDER
        self._log = directory / checkpointlog.FILE
        self._lock = directory / LOCK
        self._lock_seconds = lock_seconds
        self._known = _Known()
        self._spares = sharedfiles.Spares()
        self._restored = False
        self._writing = asyncio.Lock()
        self._waiting: list[_Change] = []
        # A thread of its own: a write does not queue behind reads of a slow sysfs.
        self._thread = futures.ThreadPoolExecutor(max_workers=1, thread_name_prefix="record")

    @property
    def last_read(self) -> records.Claims:
        """The prepared claims as this instance last read or wrote them; a change reads them again."""
        return self._known.claims

    @property
    def claims(self) -> records.Claims:
        """The prepared claims as they are recorded now, whichever instance wrote them.

        If they cannot be read, those that were known.
        """
        if self._restored:
            try:
                self._known = self._look(self._known)
            except errors.CheckpointError as error:
                log.warning("%s; going on with what was known", error)
        return self._known.claims

    @property
    def cdi_directories(self) -> tuple[Path, ...]:
        """Where the container runtimes look, from the lowest priority to the highest."""
        return files.read_by_runtimes(self._cdi_dir)

    def holder(self, pool: str, device: str) -> records.PreparedClaim | None:
        """Return the claim that alone has the device now, or None."""
        return records.holder(self.claims, pool, device)

    def has_file(self, uid: str) -> bool:
        """Return whether the claim has its CDI file, which is written last: so it was prepared to the end."""
        return self._cdi_file(uid).exists()

    async def restore(self, decide: Callable[[Found], Restored]) -> Restored:
        """Take up what the last instance left, as `decide` says. CDI files without a record go.

        Raises:
            errors.NodeError: the record or the CDI directory cannot be used.
        """
        async with self._turn() as ends, self._locked(ends):
            current, left = await self._finish(self._found, lambda _: None)
            restored = decide(left)
            await self._finish(lambda: self._restore(current, left, restored), self._learn)
        self._restored = True
        return restored

    async def start(self, claim: records.PreparedClaim, content: spec.Spec) -> records.PreparedClaim | None:
        """Give the claim its devices: record it, then write its CDI file. A record that says the same stays.

        Returns:
            the claim's record before, whichever instance wrote it.

        Raises:
            errors.NodeError: it cannot be recorded, or another claim has one of the devices; or the CDI file cannot be
                written, then the record stays.
        """
        file = self._cdi_file(claim.uid)
        is_recorded = False

        def plan(claims: records.Claims) -> records.Claims:
            nonlocal is_recorded
            planned = _started(claims, claim)
            is_recorded = planned is claims
            return planned

        def finish(claims: records.Claims) -> records.Claims:
            _write_cdi(file, content)
            if is_recorded and claims[claim.uid].state == records.STARTED:
                # Another start found it so, and would give it back once the claim is gone.
                return {**claims, claim.uid: claims[claim.uid].in_state(records.COMPLETED)}
            return claims

        return (await self._change(_Change(uid=claim.uid, plan=plan, finish=finish))).get(claim.uid)

    async def drop(self, uid: str, *, states: tuple[str, ...] = ()) -> records.PreparedClaim | None:
        """Take the claim's devices from it: remove its CDI file, then its record. An unknown claim is success.

        Args:
            uid: of the claim.
            states: the record must be in one of them, or else nothing happens; empty for any.

        Returns:
            the claim's record before, whichever instance wrote it.

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

        return (await self._change(_Change(uid=uid, plan=plan))).get(uid)

    async def explain(self, claim: records.PreparedClaim) -> None:
        """Record a claim of which only its CDI file was known. One that has another record by now keeps that.

        Raises:
            errors.NodeError: it cannot be recorded.
        """

        def plan(claims: records.Claims) -> records.Claims:
            before = claims.get(claim.uid)
            if before is None or before.state != records.UNEXPLAINED:
                return claims
            return {**claims, claim.uid: claim}

        await self._change(_Change(uid=claim.uid, plan=plan))

    # Writes, one at a time.

    async def _change(self, change: _Change) -> records.Claims:
        """Make the change to what is recorded now, with all that wait, and return the claims before."""
        self._waiting.append(change)
        try:
            async with self._turn() as ends:
                if not change.is_begun:
                    async with self._locked(ends):
                        while not change.is_begun:
                            await self._commit()
        except (asyncio.CancelledError, errors.CheckpointError) as error:
            if not change.is_begun:
                self._waiting.remove(change)
                raise
            await _to_its_end(change.done)
            if isinstance(error, asyncio.CancelledError):
                raise
        if change.error is not None:
            raise change.error
        if not change.is_made:
            raise errors.CheckpointError(
                f"the write to {self._folder} that this change was part of failed; the log of this daemon tells why"
            )
        return change.before

    async def _commit(self) -> None:
        """Make the first waiting change of each claim."""
        first = {change.uid: change for change in reversed(self._waiting)}
        changes = tuple(change for change in self._waiting if first[change.uid] is change)
        for change in changes:
            self._waiting.remove(change)
            change.is_begun = True
        try:
            await self._finish(lambda: self._make(changes), self._learn)
        finally:
            for change in changes:
                change.done.set()

    @contextlib.asynccontextmanager
    async def _turn(self) -> AsyncIterator[float]:
        """Entered once no other task writes, or not at all: all who wait give up in time.

        Yields:
            the time of the event loop at which to give up waiting for another instance.
        """
        ends = asyncio.get_running_loop().time() + self._lock_seconds
        try:
            async with asyncio.timeout_at(ends):
                await self._writing.acquire()
        except TimeoutError as error:
            raise errors.CheckpointError(
                f"another instance has kept {self._lock} locked for too long, or the disk does not answer; "
                f"look at the log of that instance and at dmesg"
            ) from error
        try:
            yield ends
        finally:
            self._writing.release()

    def _locked(self, ends: float) -> contextlib.AbstractAsyncContextManager[None]:
        return sharedfiles.held(self._lock, ends - asyncio.get_running_loop().time())

    async def _finish(self, call: Callable[[], T], learn: Callable[[T], None]) -> T:
        """Run a call in the thread to its end and hand the result to `learn`, even if cancelled meanwhile."""
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        future = self._thread.submit(call)
        future.add_done_callback(lambda _: loop.call_soon_threadsafe(ended.set))
        try:
            await _to_its_end(ended)
        finally:
            result = future.result()
            learn(result)
        return result

    def _learn(self, current: _Known) -> None:
        self._known = current

    # Blocking, with the lock held; `_look` without it, too.

    def _make(self, changes: tuple[_Change, ...]) -> _Known:
        """Make the changes in one write, or note why not, and return what is recorded then."""
        made = []
        current = self._known
        try:
            current = self._look(current)
            claims = current.claims
            for change in changes:
                change.before = claims
                try:
                    claims = change.plan(claims)
                    made.append(change)
                except errors.NodeError as error:
                    change.error = error
            current = self._write(current, claims)
            for change in made:
                try:
                    claims = change.finish(claims)
                except errors.NodeError as error:
                    change.error = error
            if claims is not current.claims:
                current = self._write(current, claims)
        except errors.CheckpointError as error:
            for change in changes:
                change.error = change.error or error
            # A part of it may be written: what is gone is to be reported as released.
            with contextlib.suppress(errors.CheckpointError):
                current = self._look(current)
            return current
        for change in made:
            change.is_made = True
        return current

    def _found(self) -> tuple[_Known, Found]:
        had_folder = self._folder.exists()
        try:
            current = self._look(_Known())
        except errors.CorruptCheckpoint as error:
            aside = sharedfiles.set_aside(self._log)
            log.error("checkpoint is corrupt, moved aside: %s", error, extra={"aside": str(aside)})  # noqa: TRY400 - the sentence explains it
            current = self._look(_Known())
        try:
            files.sweep(self._cdi_dir, self._driver)
            cdi = {uid: self._names(uid) for uid in files.owners(self._cdi_dir, self._driver)}
        except cdi_errors.CdiError as error:
            raise errors.PrepareError(str(error), reason=errors.CDI_FAILED) from error
        claims = current.claims
        unrecorded = cdi.keys() - claims.keys()
        if current.line is not None:
            # An instance that was killed between setting a record aside and making it again left it aside.
            unrecorded = {uid for uid in unrecorded if uid in current.damaged or self._is_aside(uid)}
        elif had_folder:
            claims = {
                uid: claim if uid in cdi else claim.in_state(records.STARTED) for uid, claim in claims.items()
            }
        return current, Found(claims=claims, files=cdi, unrecorded=frozenset(unrecorded))

    def _restore(self, current: _Known, left: Found, restored: Restored) -> _Known:
        now = self._write(current, restored.claims)
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
            raise errors.PrepareError(str(error), reason=errors.CDI_FAILED) from error
        return now

    def _look(self, former: _Known) -> _Known:
        """Return what is recorded now. What was lost since, or is damaged, is as it was known.

        Raises:
            errors.CheckpointError: a newer Drawbar wrote, or something cannot be read.
        """
        try:
            line = checkpointlog.read(self._log, former.line)
        except errors.CorruptCheckpoint:
            if not self._restored:
                raise
            line = None
        changed_ns = self._changed_ns()
        if changed_ns is not None and changed_ns == former.changed_ns and line is former.line:
            return former
        record_files, damaged = self._scan(former)
        claims = {uid: claim for uid, (_, claim) in record_files.items()}
        if line is not None and (not line.marked or not self._folder.exists()):
            claims = dict(line.claims)
        elif not self._folder.exists():
            claims = dict(former.claims)
        for uid in damaged & former.claims.keys():
            claims.setdefault(uid, former.claims[uid])
        return _Known(claims=claims, files=record_files, damaged=damaged, changed_ns=changed_ns, line=line)

    def _changed_ns(self) -> int | None:
        try:
            return os.stat(self._folder).st_mtime_ns  # noqa: PTH116 - every Prepare does this several times
        except OSError:
            return None

    def _scan(
        self, former: _Known
    ) -> tuple[dict[str, tuple[_Identity, records.PreparedClaim]], frozenset[str]]:
        """Return the record files by uid, and the uids of those that are damaged."""
        record_files, damaged = {}, set()
        try:
            with os.scandir(self._folder) as entries:
                listed = list(entries)
            for entry in listed:
                uid = entry.name.removesuffix(SUFFIX)
                if uid == entry.name or uid.startswith("."):
                    continue
                try:
                    identity = _identity(entry.stat())
                    before = former.files.get(uid)
                    is_same = before is not None and before[0] == identity
                    record_files[uid] = (
                        before if before is not None and is_same else (identity, _read(Path(entry), uid))
                    )
                except FileNotFoundError:
                    # The other instance has just removed it.
                    continue
                except errors.CorruptCheckpoint:
                    damaged.add(uid)
        except FileNotFoundError:
            return {}, frozenset()
        except OSError as error:
            raise errors.CheckpointError(
                f"cannot read the record in {self._folder}: {error.strerror}; run as the user that owns it"
            ) from error
        return record_files, frozenset(damaged)

    def _write(self, former: _Known, claims: records.Claims) -> _Known:
        """Make the record say these claims, durably. What is recorded already is not written again."""
        record_files = dict(former.files)
        for uid in former.damaged:
            self._set_aside(uid)
        created: dict[str, int] = {}
        try:
            if former.changed_ns is None:
                self._folder.mkdir(parents=True, exist_ok=True)
                sharedfiles.sync_directory(str(self._folder.parent))
            # First, since a claim of the same write may have got the device of one that goes.
            for uid in record_files.keys() - claims.keys():
                self._spares.keep(str(self._record(uid)))
                del record_files[uid]
            for uid, claim in claims.items():
                path = str(self._record(uid))
                if uid not in record_files:
                    created[path] = self._spares.create(path, _encode(claim))
                    record_files[uid] = _identity(os.fstat(created[path])), claim
                elif record_files[uid][1] != claim:
                    record_files[uid] = _identity(sharedfiles.replace(path, _encode(claim))), claim
            changed_ns = former.changed_ns
            if record_files != former.files:
                # The kernel's own clock has ticks of 4 ms, in which another instance could write as well.
                changed_ns = time.time_ns()
                os.utime(self._folder, ns=(changed_ns, changed_ns))
                sharedfiles.sync(created.values())
                sharedfiles.sync_directory(str(self._folder))
            line = checkpointlog.write(self._log, claims, former.line)
        except OSError as error:
            # What is not on the disk must not be regarded as recorded by the next try.
            for path in created:
                with contextlib.suppress(OSError):
                    os.unlink(path)  # noqa: PTH108 - as in `sharedfiles`
            raise errors.CheckpointError(
                f"cannot write the record in {self._folder}: {error.strerror}; mount {self._folder.parent} read-write, "
                f"with room on it"
            ) from error
        finally:
            for descriptor in created.values():
                os.close(descriptor)
        return _Known(claims=claims, files=record_files, changed_ns=changed_ns, line=line)

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
            raise errors.PrepareError(str(error), reason=errors.CDI_FAILED) from error


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
    raise errors.PrepareError(message, reason=errors.IN_USE)


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


async def _to_its_end(event: asyncio.Event) -> None:
    """Wait for the event, even if cancelled meanwhile; the cancellation is raised after that."""
    cancelled: asyncio.CancelledError | None = None
    while not event.is_set():
        try:
            await event.wait()
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


def _write_cdi(file: Path, content: spec.Spec) -> None:
    try:
        files.write(file, content)
    except cdi_errors.CdiError as error:
        raise errors.PrepareError(str(error), reason=errors.CDI_FAILED) from error


def _remove_cdi(file: Path) -> None:
    try:
        files.remove(file)
    except cdi_errors.CdiError as error:
        raise errors.PrepareError(str(error), reason=errors.CDI_FAILED) from error


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
