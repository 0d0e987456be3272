"""The files behind a Prepare: one checkpoint, and a CDI file for each claim. Blocking, so for a thread.

Invariant: whatever has a CDI file is in the checkpoint. So the record is written before the file and dropped after it,
and a crash in between leaves a record without its file, which costs nobody a device, never a file that no record
explains. All changes that wait at one moment are carried by one durable write.

The caller has the lock between instances. What another instance wrote is read again before anything is changed.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

from drawbar.cdi import errors as cdi_errors
from drawbar.cdi import files, spec
from drawbar.driver.node import checkpoint, errors
from drawbar.driver.node.preparation import records

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The claim gets its devices: the record, then the CDI file. A record that says the same stays."""

    claim: records.PreparedClaim
    content: spec.Spec


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """The claim has nothing any more: the CDI file goes, then the record. An unknown claim is success.

    Attributes:
        states: the record must be in one of them, or else nothing happens; empty for any.
    """

    uid: str
    states: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Explain:
    """The record of a claim that only its CDI file told of. One that is explained already stays."""

    claim: records.PreparedClaim


Change = Start | Drop | Explain


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """The checkpoint as an instance knows it.

    Attributes:
        stamp: of the file that said so; None before the first.
        completed: claims whose CDI file was written since, each as its record is; the next write says so.
    """

    content: records.Content
    stamp: checkpoint.Stamp | None = None
    completed: Mapping[str, records.PreparedClaim]


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What became of some changes.

    Attributes:
        before: what the checkpoint said until then.
        known: what it says now.
        outcomes: in the order of the changes None, or why it was not made.
    """

    before: records.Content
    known: Known
    outcomes: tuple[errors.NodeError | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What there is at the start.

    Attributes:
        content: None where there is no checkpoint, or none that could be read.
        files: the names of the CDI devices by the uid of the claim that has the file.
    """

    content: records.Content | None
    files: Mapping[str, tuple[str, ...]]


class Store:
    """The directory of CDI files and the checkpoint."""

    def __init__(self, *, driver: str, cdi_dir: Path, checkpoint_path: Path) -> None:
        self._driver = driver
        self._cdi_dir = cdi_dir
        self.checkpoint = checkpoint_path

    def carry_out(self, known: Known, changes: Sequence[Change]) -> Round:
        """Carries all of it out, with one write of the checkpoint at most.

        A change that cannot be made says so in its outcome, and the others are made.
        """
        try:
            before = self.fresh(known)
        except errors.CheckpointError as error:
            return Round(before=known.content, known=known, outcomes=tuple(error for _ in changes))
        outcomes: list[errors.NodeError | None] = [None] * len(changes)
        # That alone is not worth a write, but what is written says it.
        base = content = before.content.with_completed(before.completed.values())
        for number, change in enumerate(changes):
            try:
                content = self._changed(content, change)
            except errors.NodeError as error:
                outcomes[number] = error
        after = before
        if content is not base or before.stamp is None:
            try:
                stamp = checkpoint.save(self.checkpoint, content, before.stamp)
            except errors.CheckpointError as error:
                failed = tuple(one or error for one in outcomes)
                return Round(before=before.content, known=before, outcomes=failed)
            after = Known(content=content, stamp=stamp, completed={})
        completed = dict(after.completed)
        for number, change in enumerate(changes):
            if isinstance(change, Start) and outcomes[number] is None:
                outcomes[number] = self._written(change)
                if outcomes[number] is None:
                    completed[change.claim.uid] = after.content.claims[change.claim.uid]
        return Round(
            before=before.content,
            known=Known(content=after.content, stamp=after.stamp, completed=completed),
            outcomes=tuple(outcomes),
        )

    def fresh(self, known: Known) -> Known:
        """The same if no other instance wrote since, else what that wrote.

        A file that went or broke meanwhile changes nothing: what this instance knows is written again.

        Raises:
            errors.CheckpointError: a newer Drawbar wrote, or the file cannot be read.
        """
        if known.stamp is not None and checkpoint.is_current(self.checkpoint, known.stamp):
            return known
        try:
            found = checkpoint.read(self.checkpoint)
        except errors.CorruptCheckpoint as error:
            log.error("%s; writing it again", error)  # noqa: TRY400 - the sentence explains it
            checkpoint.move_aside(self.checkpoint)
            found = None
        if found is None:
            return Known(content=known.content, completed=known.completed)
        return Known(content=found[0], stamp=found[1], completed=known.completed)

    def found(self) -> Found:
        """What the last instance left.

        Raises:
            errors.CheckpointError: the checkpoint is of a newer version, or cannot be read or moved aside.
            errors.PrepareError: the CDI directory cannot be read.
        """
        content = checkpoint.load(self.checkpoint)
        try:
            files.sweep(self._cdi_dir, self._driver)
            owners = files.owners(self._cdi_dir, self._driver)
        except cdi_errors.CdiError as error:
            raise errors.PrepareError(str(error), reason=errors.CDI_FAILED) from error
        return Found(content=content, files={uid: self._names(uid) for uid in owners})

    def replace(
        self, content: records.Content, *, specs: Mapping[str, spec.Spec], strays: frozenset[str]
    ) -> Known:
        """Makes the start's decision true: the record, the CDI files that are written again, those that go.

        Raises:
            errors.CheckpointError: the checkpoint cannot be written.
            errors.PrepareError: the CDI directory cannot be written.
        """
        try:
            found = checkpoint.read(self.checkpoint)
        except errors.CorruptCheckpoint:
            found = None
        if found is not None and found[0] == content:
            stamp = found[1]
        else:
            stamp = checkpoint.save(self.checkpoint, content, found[1] if found is not None else None)
        try:
            for uid, written in specs.items():
                self._write(uid, written)
            for uid in strays:
                log.info("removing the CDI file of no claim", extra={"uid": uid})
                files.remove(self._file(uid))
        except cdi_errors.UnwritableDir as error:
            raise errors.PrepareError(str(error), reason=errors.CDI_FAILED) from error
        return Known(content=content, stamp=stamp, completed={})

    def _changed(self, content: records.Content, change: Change) -> records.Content:
        match change:
            case Start(claim=claim):
                self._require_file(claim.uid)
                return _started(content, claim)
            case Drop(uid=uid, states=states):
                return self._dropped(content, uid, states)
            case Explain(claim=claim):
                before = content.claims.get(claim.uid)
                stays = before is None or before.state != records.UNEXPLAINED
                return content if stays else content.with_claim(claim)
            case _:
                assert_never(change)

    def _dropped(self, content: records.Content, uid: str, states: tuple[str, ...]) -> records.Content:
        before = content.claims.get(uid)
        if states and (before is None or before.state not in states):
            return content
        try:
            files.remove(self._file(uid))
        except cdi_errors.CdiError as error:
            raise errors.PrepareError(str(error), reason=errors.CDI_FAILED) from error
        return content if before is None else content.without_claim(uid)

    def _written(self, change: Start) -> errors.NodeError | None:
        try:
            files.write(self._file(change.claim.uid), change.content)
        except cdi_errors.CdiError as error:
            return errors.PrepareError(str(error), reason=errors.CDI_FAILED)
        return None

    def _write(self, uid: str, content: spec.Spec) -> None:
        try:
            files.write(self._file(uid), content)
        except cdi_errors.InvalidSpec as error:
            log.warning("cannot write the CDI file again: %s", error, extra={"uid": uid})

    def _names(self, uid: str) -> tuple[str, ...]:
        try:
            content = files.read(self._file(uid))
        except cdi_errors.CdiError as error:
            log.warning("a CDI file of ours tells nothing: %s", error, extra={"uid": uid})
            return ()
        return tuple(device.name for device in content.devices) if content is not None else ()

    def _require_file(self, uid: str) -> None:
        """Sees to it that nothing is recorded for a claim that can have no CDI file."""
        try:
            self._file(uid)
        except cdi_errors.CdiError as error:
            raise errors.PrepareError(str(error), reason=errors.CDI_FAILED) from error

    def _file(self, uid: str) -> Path:
        return files.path(self._cdi_dir, self._driver, uid)


def refuse_overlap(content: records.Content, pool: str, device: str, uid: str) -> None:
    """Sees to it that no other claim has the device.

    Raises:
        errors.PrepareError: one has.
    """
    holder = content.holder(pool, device)
    if holder is not None and holder.uid != uid:
        raise errors.PrepareError(_in_use(f"device {pool}/{device}", holder), reason=errors.IN_USE)


def _started(content: records.Content, claim: records.PreparedClaim) -> records.Content:
    for wanted in claim.devices:
        # Shares and admin access neither hold a device nor are they held off.
        if wanted.holds(wanted.pool, wanted.device):
            refuse_overlap(content, wanted.pool, wanted.device, claim.uid)
    before = content.claims.get(claim.uid)
    replacing = claim.replacing(before)
    if (
        before is not None
        and before.state != records.UNEXPLAINED
        and replacing.in_state(before.state) == before
    ):
        return content
    return content.with_claim(replacing)


def _in_use(name: str, holder: records.PreparedClaim) -> str:
    if holder.state == records.UNEXPLAINED:
        return (
            f"{name} is in the CDI file of a claim with uid {holder.uid} that is not known here, so a container may "
            f"still use it; trying again once the API server has said what became of that claim"
        )
    return f"{name} is still in use by claim {holder.namespace}/{holder.name} on this node; trying again"
