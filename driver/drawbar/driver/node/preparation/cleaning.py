"""Decides when a device that lives in the node is treated after its claim, and keeps other claims from it until then.

Before the record of a claim goes, each of its devices here gets a mark, `unclean/DEVICE.json` in the driver's directory
at the kubelet, and keeps it until nothing of the claim is left on the device: over a restart, a reboot, a failure. A
device with a mark is prepared for no other claim than that of the mark. For that one it is: as long as the claim keeps
its allocation, the data are its own, also between two of its pods.

A device that is made ready for a claim (`attachments.local`) has its mark before the first step of that, so a step that was left
half done is a trace, too.

It is treated (`treatment`) once the claim or its allocation is gone. From then on its mark is of no claim. Memory that an
administrator has set up stays as it is.

Only the instance that acts on the node's devices cleans; every instance sets marks and respects them.
"""

import asyncio
import functools
import logging
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from drawbar.driver import backoff, containment
from drawbar.driver.api import attachments, nodepools, parameters, references
from drawbar.driver.catalogue import taints
from drawbar.driver.kube import errors as kube_errors
from drawbar.driver.kube import workers
from drawbar.driver.node import claim_versions, errors, treatment
from drawbar.driver.node.health import verdicts
from drawbar.driver.node.inventory import model
from drawbar.driver.node.local import demands, nulls, residents
from drawbar.driver.node.preparation import records, sharedfiles
from drawbar.driver.node.treatment import hooks
from drawbar.driver.node.treatment.plan import says_the_same
from drawbar.fabric.classes import DeviceClass

log = logging.getLogger(__name__)

FOLDER = "unclean"
SUFFIX = ".json"
FILE_BYTES = 64 * 1024
LOOK_SECONDS = 1.0
"""Between two looks at an erase, or at who still uses the device."""
GONE_FIRST_SECONDS = 0.5
GONE_MAX_SECONDS = 60.0
"""Between two looks at a claim: most are deleted with their pod."""
_DEVICE = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


class Marks:
    """The marks of this node, on disk. Every method but `get` blocks for a write."""

    def __init__(self, directory: Path) -> None:
        """Read nothing yet; `directory` is the driver's directory at the kubelet."""
        self._folder = directory / FOLDER

    def all(self) -> dict[str, demands.Mark]:
        """Return every mark by device. One that cannot be read is of an unknown claim."""
        try:
            names = os.listdir(self._folder)  # noqa: PTH208 - names alone
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise errors.CheckpointError(
                f"cannot read {self._folder}: {error.strerror}; run as the user that owns it"
            ) from error
        devices = (name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX))
        marks = ((device, self.get(device)) for device in devices if _DEVICE.fullmatch(device))
        return {device: mark for device, mark in marks if mark is not None}

    def get(self, device: str) -> demands.Mark | None:
        """Return the mark of a device, or None."""
        try:
            with self._file(device).open("rb") as opened:
                raw = opened.read(FILE_BYTES)
        except FileNotFoundError:
            return None
        except OSError:
            raw = b""
        try:
            return msgspec.json.decode(raw, type=demands.Mark)
        except (ValueError, RecursionError):
            return demands.Mark(pool="", device=device, over=True)

    def put(self, marks: Iterable[demands.Mark]) -> None:
        """Write marks, durably.

        Raises:
            errors.CheckpointError: one cannot be written.
        """
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            for mark in marks:
                sharedfiles.replace(str(self._file(mark.device)), msgspec.json.encode(mark))
            sharedfiles.sync_directory(str(self._folder))
        except OSError as error:
            raise errors.CheckpointError(
                f"cannot write to {self._folder}: {error.strerror}; mount {self._folder.parent} read-write, with room on it"
            ) from error

    def remove(self, device: str) -> None:
        """Remove the mark of a clean device.

        Raises:
            errors.CheckpointError: the mark cannot be removed.
        """
        try:
            self._file(device).unlink(missing_ok=True)
        except OSError as error:
            raise errors.CheckpointError(
                f"cannot remove {self._file(device)}: {error.strerror}; mount {self._folder.parent} read-write"
            ) from error

    def _file(self, device: str) -> Path:
        return self._folder / f"{device}{SUFFIX}"


Over = Callable[[demands.Mark], None]
"""Called when the allocation of a mark is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The surroundings of a cleaner.

    Attributes:
        card: returns a device as it is now, by pool and name; None while it is not here.
        holder: the uid of the claim that has the device on this node, or is about to get it; by pool and device.
        hooks: runs the programs that drain and clean devices.
        changed: called after the state of a device changed.
    """

    node_name: str
    treatment: treatment.Executor
    card: Callable[[str, str], model.Card | None]
    reader: claim_versions.Reader
    holder: Callable[[str, str], str | None]
    hooks: hooks.Runner
    changed: Callable[[], None]


@dataclass(slots=True, kw_only=True)
class _Work:
    """The cleaning of one device.

    Attributes:
        looks: the pauses between two looks at its claim.
        begun: it is of no claim any more.
        blocked: the last obstacle to its treatment, until it is clean.
    """

    looks: backoff.Backoff = field(
        default_factory=lambda: backoff.Backoff(GONE_FIRST_SECONDS, GONE_MAX_SECONDS)
    )
    progress: treatment.Progress = field(default_factory=treatment.Progress)
    begun: bool = False
    blocked: treatment.Blocked | None = None

    @property
    def why(self) -> str:
        """The obstacle, in a clause; empty without one."""
        return self.blocked.message if self.blocked is not None else ""


class Works(dict[str, _Work]):
    """The cleanings that are under way, by device."""

    def taint(self, device: str) -> verdicts.Taint | None:
        """Return the taint of a device that is not clean yet, or None."""
        work = self.get(device)
        if work is None or not work.begun:
            return None
        row = taints.NOT_CLEANED if work.why else taints.CLEANING
        return verdicts.Taint(key=row.key, value="", effect=verdicts.Effect.NO_SCHEDULE, message=work.why)


class Cleaner:
    """Cleans the devices of a node's own pool between two claims."""

    def __init__(
        self,
        marks: Marks,
        works: Works,
        around: Surroundings,
        *,
        clean: residents.Clean = residents.Clean.BY_CLASS,
        contained: containment.Containment | None = None,
    ) -> None:
        """Nothing is read or cleaned yet. With `clean` none a claim's end leaves no mark, and marks go without a cleaning."""
        self._contained = contained
        self._marks = marks
        self._around = around
        self._way = clean.way
        self._queue: workers.WorkQueue[str] = workers.WorkQueue()
        self._work = works

    async def mark_for_cleaning(self, claim: records.PreparedClaim) -> None:
        """Mark the devices that a claim is about to release.

        Raises:
            errors.CheckpointError: a mark cannot be written, so the claim keeps its devices.
        """
        devices = [device for device in claim.devices if self._is_cleaned(device)]
        if devices:
            await asyncio.to_thread(self._mark, claim, devices)

    def _mark(self, claim: records.PreparedClaim, devices: Iterable[records.PreparedDevice]) -> None:
        """Give each device a mark of the claim, unless it has one that tells more."""
        marks = []
        for device in devices:
            before = self._marks.get(device.device)
            if before is None or before.over or before.uid != claim.uid:
                said = parameters.from_record(device.parameters)
                mark = demands.Mark(
                    pool=device.pool,
                    device=device.device,
                    namespace=claim.namespace,
                    name=claim.name,
                    uid=claim.uid,
                    drain=references.hook(said.drain),
                    clean_up=references.hook(said.clean_up),
                )
                marks.append(mark)
        if marks:
            self._marks.put(marks)

    def start_cleaning(self, pool: str, device: str) -> None:
        """Have a device cleaned once the allocation of its last claim is over."""
        if nodepools.is_pool(pool, self._around.node_name):
            self._queue.add(device)

    def refusal(
        self, pool: str, device: str, uid: str | None, allocation_timestamp: str | None = None
    ) -> str | None:
        """Return in a clause why the claim cannot have the device now; None if it can.

        Args:
            pool: of the device.
            device: its name.
            uid: of the claim; None for admin access, which any claim's device allows until its cleaning has begun.
            allocation_timestamp: of its allocation; None or empty where it is not known.
        """
        mark = self._marks.get(device)
        if mark is None or not nodepools.is_pool(pool, self._around.node_name):
            return None
        if not mark.over and (uid is None or mark.is_of(uid, allocation_timestamp)):
            return None
        work = self._work.get(device)
        if not mark.over:
            # Two claims do not have one device: the former allocation is over, whatever was seen of it.
            self._queue.add(device)
        if work is not None and work.why:
            return f"its last user's data cannot be removed: {work.why}"
        return "its last user's data are being removed"

    def failure(self, device: str) -> str:
        """Return why a device could not be cleaned the last time, in a clause; empty where it could, or is clean."""
        work = self._work.get(device)
        return work.why if work is not None else ""

    async def run(self, over: Over) -> None:
        """Clean until cancelled, beginning with what the last instance left.

        Args:
            over: called when the allocation of a mark is over.
        """
        for device in await asyncio.to_thread(self._marks.all):
            self._queue.add(device)
        await self._queue.run(
            functools.partial(self._reconcile, over),
            lambda device: {"device": device},
            retried=(kube_errors.KubeError, errors.NodeError),
            level=lambda _: logging.WARNING,
            worker="local-cleaning",
            contained=self._contained,
        )

    def changed(self) -> None:
        """Look at the devices again: the kernel shows something new."""
        for device in self._work:
            self._queue.add(device)

    def _is_cleaned(self, device: records.PreparedDevice) -> bool:
        """Return whether a device of a claim is cleaned after it."""
        around = self._around
        if (
            self._way is attachments.Clean.NONE
            or device.admin
            or not nodepools.is_pool(device.pool, around.node_name)
        ):
            return False
        if nulls.is_null(device.device) or _DEVICE.fullmatch(device.device) is None:
            return False
        return residents.class_of(device.device) is not DeviceClass.CXL_MEMORY

    async def _reconcile(self, over: Over, device: str) -> float | None:
        around = self._around
        mark = await asyncio.to_thread(self._marks.get, device)
        if mark is None:
            self._forget(device)
            return None
        pool = mark.pool or nodepools.pool(around.node_name)
        work = self._work.setdefault(device, _Work())
        if not mark.over:
            # While another pod of the same claim has it, nothing is asked.
            if around.holder(pool, device) == mark.uid:
                return None
            if not await self._is_over(mark):
                return work.looks.failed()
            await asyncio.to_thread(self._marks.put, [msgspec.structs.replace(mark, over=True)])
            over(mark)
        if not work.begun:
            if around.holder(pool, device) == mark.uid:
                # The same claim was just given it again. Any other claim waits.
                return LOOK_SECONDS
            work.begun = True
            log.info(
                "a device is being cleaned after its claim", extra={"device": device, "claim": mark.name}
            )
            around.changed()
        card = around.card(pool, device)
        if card is None:
            return None
        match await self._treat(card, mark, work):
            case treatment.InProgress(seconds=seconds):
                return min(seconds, LOOK_SECONDS)
            case treatment.Blocked() as blocked:
                self._report(device, mark, work, blocked)
                return LOOK_SECONDS
            case treatment.Done():
                pass
        await asyncio.to_thread(self._marks.remove, device)
        self._forget(device)
        log.info("a device of this node is clean", extra={"device": device})
        around.changed()
        return None

    def _report(self, device: str, mark: demands.Mark, work: _Work, blocked: treatment.Blocked) -> None:
        """Log an obstacle and have it published, unless the last one says the same."""
        last = work.blocked
        if last is not None and says_the_same((last.reason, last.message), (blocked.reason, blocked.message)):
            return
        work.blocked = blocked
        node = self._around.node_name
        message = (
            f"device {device} of node {node} is not clean, and no other claim gets it: {blocked.message}"
        )
        log.warning(message, extra={"device": device, "claim": mark.name})
        self._around.changed()

    async def _treat(self, card: model.Card, mark: demands.Mark, work: _Work) -> treatment.Outcome:
        """Take one step of the treatment of a device whose claim is over."""
        if self._way is attachments.Clean.NONE or card.first.device_class is DeviceClass.CXL_MEMORY:
            return treatment.Done()
        around, attachment = self._around, demands.marked(mark, card)
        order = treatment.Order(
            card=card,
            leaves=False,
            is_used=True,
            clean=self._way,
            drain=around.hooks.drain(attachment, mark.drain),
            clean_up=around.hooks.clean_up(attachment, mark.clean_up),
            keeps_functions=not mark.makes_functions,
        )
        return await around.treatment.step(order, work.progress)

    def _forget(self, device: str) -> None:
        work = self._work.pop(device, None)
        if work is not None:
            work.progress.draining.end()

    async def _is_over(self, mark: demands.Mark) -> bool:
        """Return whether the claim or its allocation is gone."""
        try:
            claim = await self._around.reader.read(mark.name, mark.namespace)
        except kube_errors.NotFound:
            return True
        except errors.PrepareError:
            # It is allocated, by whatever that is.
            return False
        if claim.metadata.uid != mark.uid or claim.status.allocation is None:
            return True
        if not mark.is_of(mark.uid, claim.status.allocation.allocation_timestamp):
            return True
        given = claim.status.allocation.devices.results
        return all((result.pool, result.device) != (mark.pool, mark.device) for result in given)
