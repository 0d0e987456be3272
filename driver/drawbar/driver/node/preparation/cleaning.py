"""The cleaning of the node's own devices between two claims, and the refusal of other claims until then.

Before the record of a claim is removed, each of its devices in the node's pool gets a mark. This is the file
`unclean/DEVICE.json` in the driver's directory at the kubelet. The mark stays until the device is clean, over restarts,
reboots and failures. A device with a mark is prepared only for the claim of the mark. While that claim keeps its allocation,
the data are its own, even between two of its pods.

A device that is made ready for a claim (`attachments.local`) gets its mark before the first step. An interrupted step leaves a
trace, too.

The device is treated (`treatment`) once the claim or its allocation is gone. From then on its mark belongs to no claim. Memory
that an administrator has set up is not treated.

Only the instance that acts on the node's devices cleans. Every instance sets and obeys marks.
"""

import asyncio
import functools
import logging
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from drawbar.driver import backoff, containment
from drawbar.driver.api import attachments, dnsnames, nodepools, parameters, references
from drawbar.driver.catalogue import taints
from drawbar.driver.kube import errors as kube_errors
from drawbar.driver.kube import workers
from drawbar.driver.node import claim_versions, errors, treatment
from drawbar.driver.node.health import verdicts
from drawbar.driver.node.inventory import model
from drawbar.driver.node.local import demands, nulls, residents, selections
from drawbar.driver.node.preparation import records, sharedfiles
from drawbar.driver.node.treatment import hooks
from drawbar.driver.node.treatment.plan import says_the_same
from drawbar.fabric.classes import DeviceClass

log = logging.getLogger(__name__)

FOLDER = "unclean"
SUFFIX = ".json"
FILE_BYTES = 64 * 1024
LOOK_SECONDS = 1.0
"""The longest pause between two looks at a treatment, such as an erase or a device in use."""
GONE_FIRST_SECONDS = 0.5
GONE_MAX_SECONDS = 60.0
"""The longest pause between two looks at a claim. Most claims are deleted with their pod."""


class Marks:
    """The marks of this node, on disk. All methods block; `put` and `remove` write."""

    def __init__(self, directory: Path) -> None:
        """Read nothing yet; `directory` is the driver's directory at the kubelet."""
        self._folder = directory / FOLDER

    def all(self) -> dict[str, demands.Mark]:
        """Return every mark by device. An unreadable mark belongs to no claim."""
        try:
            names = os.listdir(self._folder)  # noqa: PTH208 - names alone
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise errors.CheckpointError(
                f"cannot read {self._folder}: {error.strerror}; run as the user that owns it"
            ) from error
        devices = (name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX))
        marks = ((device, self.get(device)) for device in devices if dnsnames.is_label(device))
        return {device: mark for device, mark in marks if mark is not None}

    def get(self, device: str) -> demands.Mark | None:
        """Return the mark of a device, or None. An unreadable mark belongs to no claim."""
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
            errors.CheckpointError: a mark cannot be written.
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
"""Called once the allocation of a mark has ended."""


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """The surroundings of a cleaner.

    Attributes:
        card: returns a device as it is now, by pool and name; None while it is absent.
        reader: reads claims.
        holder: returns the UID of the claim that holds the device or is about to get it, by pool and name.
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
        looks: the pauses between two looks at the claim.
        begun: whether the treatment has begun, and the device belongs to no claim.
        blocked: the last obstacle to the treatment, until the device is clean.
    """

    looks: backoff.Backoff = field(
        default_factory=lambda: backoff.Backoff(GONE_FIRST_SECONDS, GONE_MAX_SECONDS)
    )
    progress: treatment.Progress = field(default_factory=treatment.Progress)
    begun: bool = False
    blocked: treatment.Blocked | None = None

    @property
    def why(self) -> str:
        """Return the obstacle, in a clause; empty without one."""
        return self.blocked.message if self.blocked is not None else ""


class Works(dict[str, _Work]):
    """The cleanings in progress, by device."""

    def taint(self, device: str) -> verdicts.Taint | None:
        """Return the taint of a device that is not clean yet, or None."""
        work = self.get(device)
        if work is None or not work.begun:
            return None
        row = taints.NOT_CLEANED if work.why else taints.CLEANING
        return verdicts.Taint(key=row.key, value="", effect=verdicts.Effect.NO_SCHEDULE, message=work.why)


class Cleaner:
    """The cleaner of the devices of a node's own pool."""

    def __init__(
        self,
        marks: Marks,
        works: Works,
        around: Surroundings,
        *,
        clean: selections.Clean = selections.Clean.BY_CLASS,
        contained: containment.Containment | None = None,
    ) -> None:
        """Read and clean nothing yet. If `clean` is none, claims leave no marks, and marks are removed without a cleaning."""
        self._contained = contained
        self._marks = marks
        self._around = around
        self._way = clean.way
        self._queue: workers.WorkQueue[str] = workers.WorkQueue()
        self._work = works

    async def mark_for_cleaning(self, claim: records.PreparedClaim) -> None:
        """Mark the devices that a claim is about to release.

        Raises:
            errors.CheckpointError: a mark cannot be written; the claim keeps its devices.
        """
        devices = [device for device in claim.devices if self._is_cleaned(device)]
        if devices:
            await asyncio.to_thread(self._mark, claim, devices)

    def _mark(self, claim: records.PreparedClaim, devices: Iterable[records.PreparedDevice]) -> None:
        """Give each device a mark of the claim, unless it has one already."""
        marks = []
        for device in devices:
            before = self._marks.get(device.device)
            if before is None or before.over or before.uid != claim.uid:
                device_parameters = parameters.from_record(device.parameters)
                mark = demands.Mark(
                    pool=device.pool,
                    device=device.device,
                    namespace=claim.namespace,
                    name=claim.name,
                    uid=claim.uid,
                    drain=references.hook(device_parameters.drain),
                    clean_up=references.hook(device_parameters.clean_up),
                )
                marks.append(mark)
        if marks:
            self._marks.put(marks)

    def start_cleaning(self, pool: str, device: str) -> None:
        """Have a device cleaned once the allocation of its last claim has ended."""
        if nodepools.is_pool(pool, self._around.node_name):
            self._queue.add(device)

    def refusal(
        self, pool: str, device: str, uid: str | None, allocation_timestamp: str | None = None
    ) -> str | None:
        """Return the reason that the claim cannot have the device now, in a clause; None if it can.

        Args:
            pool: the device's pool.
            device: the device's name.
            uid: the claim's UID; None for admin access, which is refused only once the allocation of the mark has ended.
            allocation_timestamp: the time of the claim's allocation; None or empty if unknown.
        """
        mark = self._marks.get(device)
        if mark is None or not nodepools.is_pool(pool, self._around.node_name):
            return None
        if not mark.over and (uid is None or mark.is_of(uid, allocation_timestamp)):
            return None
        work = self._work.get(device)
        if not mark.over:
            # A device is allocated to one claim at a time, so the former allocation has ended.
            self._queue.add(device)
        if work is not None and work.why:
            return f"its last user's data cannot be removed: {work.why}"
        return "its last user's data are being removed"

    def failure(self, device: str) -> str:
        """Return the obstacle to the cleaning of a device, in a clause; empty without one."""
        work = self._work.get(device)
        return work.why if work is not None else ""

    async def run(self, over: Over) -> None:
        """Clean until cancelled, beginning with the marks of the last instance.

        Args:
            over: called once the allocation of a mark has ended.
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

    def look(self) -> None:
        """Look at the devices again: the kernel shows something new."""
        for device in self._work:
            self._queue.add(device)

    def _is_cleaned(self, device: records.PreparedDevice) -> bool:
        """Return whether a device is cleaned after its claim."""
        around = self._around
        if (
            self._way is attachments.Clean.NONE
            or device.admin
            or not nodepools.is_pool(device.pool, around.node_name)
        ):
            return False
        if nulls.is_null(device.device) or not dnsnames.is_label(device.device):
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
            # While a pod of the claim has the device, the claim need not be read.
            if around.holder(pool, device) == mark.uid:
                return None
            if not await self._is_over(mark):
                return work.looks.count_failure()
            await asyncio.to_thread(self._marks.put, [msgspec.structs.replace(mark, over=True)])
            over(mark)
        if not work.begun:
            if around.holder(pool, device) == mark.uid:
                # The same claim has just got the device again. Other claims are refused.
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
        """Log an obstacle and have it published, unless it equals the last one."""
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
        """Take one step of the treatment of a device after its claim's end; return the outcome."""
        if self._way is attachments.Clean.NONE or card.first.device_class is DeviceClass.CXL_MEMORY:
            return treatment.Done()
        around, attachment = self._around, demands.build_attachment(mark, card)
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
            # The claim is allocated, even if its handle cannot be used.
            return False
        if claim.metadata.uid != mark.uid or claim.status.allocation is None:
            return True
        if not mark.is_of(mark.uid, claim.status.allocation.allocation_timestamp):
            return True
        results = claim.status.allocation.devices.results
        return all((result.pool, result.device) != (mark.pool, mark.device) for result in results)
