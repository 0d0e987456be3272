"""Takes away what a claim left on a device that lives in the node, before another claim gets it.

Before the record of a claim goes, each of its devices here gets a mark, `unclean/DEVICE.json` in the driver's directory
at the kubelet, and keeps it until nothing of the claim is left on the device: over a restart, a reboot, a failure. A
device with a mark is prepared for no other claim than that of the mark. For that one it is: as long as the claim keeps
its allocation, the data are its own, also between two of its pods.

It is cleaned once the claim, or its allocation, is gone. From then on its mark is of no claim. Data are erased where the
class of device has a way to, and a virtual function is reset. A card of the node is not reset: its driver stays bound,
and not every driver stands that. Memory that an administrator has set up stays as it is.

Only the instance that acts on the node's devices cleans; every instance sets marks and respects them.
"""

import asyncio
import logging
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import msgspec

from drawbar.driver import backoff, containment
from drawbar.driver.api import nodepools
from drawbar.driver.kube import errors as kube_errors
from drawbar.driver.kube import workers
from drawbar.driver.node import claim_versions, classes, erasing, errors, kernel
from drawbar.driver.node.health import verdicts
from drawbar.driver.node.inventory import model
from drawbar.driver.node.local import nulls, residents
from drawbar.driver.node.preparation import records, sharedfiles
from drawbar.driver.node.release import plan as release_plan
from drawbar.fabric.classes import DeviceClass

log = logging.getLogger(__name__)

FOLDER = "unclean"
SUFFIX = ".json"
FILE_BYTES = 64 * 1024
CLEANING = "cleaning"
NOT_CLEANED = "not-cleaned"
LOOK_SECONDS = 1.0
"""Between two looks at an erase, or at who still uses the device."""
GONE_FIRST_SECONDS = 0.5
GONE_MAX_SECONDS = 60.0
"""Between two looks at a claim: most are deleted with their pod."""
_DEVICE = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """Whose data are on a device.

    Attributes:
        uid: of the claim; empty where it is not known.
        over: the claim, or its allocation, is gone.
    """

    pool: str
    device: str
    namespace: str = ""
    name: str = ""
    uid: str = ""
    over: bool = False


class Marks:
    """The marks of this node, on disk. Every method but `get` blocks for a write."""

    def __init__(self, directory: Path) -> None:
        """Nothing is read yet.

        Args:
            directory: the driver's, at the kubelet.
        """
        self._folder = directory / FOLDER

    def all(self) -> dict[str, Mark]:
        """Every mark, by device. One that cannot be read is of an unknown claim."""
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

    def get(self, device: str) -> Mark | None:
        """The mark of a device; None without one."""
        try:
            with self._file(device).open("rb") as opened:
                raw = opened.read(FILE_BYTES)
        except FileNotFoundError:
            return None
        except OSError:
            raw = b""
        try:
            return msgspec.json.decode(raw, type=Mark)
        except (ValueError, RecursionError):
            return Mark(pool="", device=device, over=True)

    def put(self, marks: Iterable[Mark]) -> None:
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
        """The device is clean.

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


class Devices(Protocol):
    """The part of `pool.LocalPool` that this needs."""

    def card(self, pool: str, device: str) -> model.Card | None:
        """The device as it is now, or None while it is not here."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a cleaner works with.

    Attributes:
        holder: the uid of the claim that has the device on this node, or is about to get it; by pool and device.
        changed: called after the state of a device changed.
    """

    node_name: str
    kernel: kernel.Kernel
    host: classes.Host
    devices: Devices
    reader: claim_versions.Reader
    holder: Callable[[str, str], str | None]
    changed: Callable[[], None]


@dataclass(slots=True, kw_only=True)
class _Work:
    """The cleaning of one device.

    Attributes:
        looks: the pauses between two looks at its claim.
        begun: it is of no claim any more.
        why: why it could not be cleaned the last time, in a clause.
    """

    looks: backoff.Backoff = field(
        default_factory=lambda: backoff.Backoff(GONE_FIRST_SECONDS, GONE_MAX_SECONDS)
    )
    erasure: erasing.Erasure = field(default_factory=erasing.Erasure)
    begun: bool = False
    why: str = ""


class Cleaner:
    """Cleans the devices of a node's own pool between two claims."""

    def __init__(
        self,
        marks: Marks,
        around: Surroundings,
        *,
        enabled: bool,
        contained: containment.Containment | None = None,
    ) -> None:
        """Nothing is read or cleaned yet. Without `enabled` no device gets a mark; those that have one are cleaned."""
        self._contained = contained
        self._marks = marks
        self._around = around
        self._enabled = enabled
        self._queue: workers.WorkQueue[str] = workers.WorkQueue()
        self._work: dict[str, _Work] = {}

    async def leave(self, claim: records.PreparedClaim) -> None:
        """A claim is about to let go of its devices.

        Raises:
            errors.CheckpointError: that cannot be noted, so it has to keep them.
        """
        marks = [
            Mark(
                pool=device.pool,
                device=device.device,
                namespace=claim.namespace,
                name=claim.name,
                uid=claim.uid,
            )
            for device in claim.devices
            if self._is_cleaned(device)
        ]
        if marks:
            await asyncio.to_thread(self._marks.put, marks)

    def left(self, pool: str, device: str) -> None:
        """A claim has let go of a device."""
        if nodepools.is_pool(pool, self._around.node_name):
            self._queue.add(device)

    def refusal(self, pool: str, device: str, uid: str | None) -> str | None:
        """Return in a clause why the claim cannot have the device now; None if it can.

        Args:
            pool: of the device.
            device: its name.
            uid: of the claim; None for admin access, which any claim's device allows until its cleaning has begun.
        """
        mark = self._marks.get(device)
        if mark is None or not nodepools.is_pool(pool, self._around.node_name):
            return None
        if uid in (None, mark.uid) and not mark.over:
            return None
        work = self._work.get(device)
        if not mark.over:
            # Two claims do not have one device: the former allocation is over, whatever was seen of it.
            self._queue.add(device)
        if work is not None and work.why:
            return f"what its last user left on it cannot be taken away: {work.why}"
        return "what its last user left on it is being taken away"

    def taint(self, device: str) -> verdicts.Taint | None:
        """What keeps claims from a device that is not clean yet."""
        work = self._work.get(device)
        if work is None or not work.begun:
            return None
        key = NOT_CLEANED if work.why else CLEANING
        return verdicts.Taint(key=key, value="", effect=verdicts.Effect.NO_SCHEDULE, message=work.why)

    async def run(self) -> None:
        """Clean until cancelled, beginning with what the last instance left."""
        for device in await asyncio.to_thread(self._marks.all):
            self._queue.add(device)
        await self._queue.run(
            self._reconcile,
            lambda device: {"device": device},
            retried=(kube_errors.KubeError, errors.NodeError),
            level=lambda _: logging.WARNING,
            worker="local-cleaning",
            contained=self._contained,
        )

    def changed(self) -> None:
        """The kernel shows something new."""
        for device in self._work:
            self._queue.add(device)

    def _is_cleaned(self, device: records.PreparedDevice) -> bool:
        """Whether a device of a claim is one to clean after it."""
        around = self._around
        if not self._enabled or device.admin or not nodepools.is_pool(device.pool, around.node_name):
            return False
        if nulls.is_null(device.device) or _DEVICE.fullmatch(device.device) is None:
            return False
        return residents.class_of(device.device) is not DeviceClass.CXL_MEMORY

    async def _reconcile(self, device: str) -> float | None:
        around = self._around
        mark = await asyncio.to_thread(self._marks.get, device)
        if mark is None:
            self._work.pop(device, None)
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
        if not work.begun:
            if around.holder(pool, device) == mark.uid:
                # The same claim was given it anew in this moment. Any other one waits.
                return LOOK_SECONDS
            work.begun = True
            log.info(
                "taking away what a claim left on a device", extra={"device": device, "claim": mark.name}
            )
            around.changed()
        card = around.devices.card(pool, device)
        if card is None:
            return None
        why = await self._clean(card, work.erasure)
        if why is None:
            return LOOK_SECONDS
        if why != work.why:
            work.why = why
            if why:
                message = f"device {device} of node {around.node_name} is given to no other claim, for it is not clean: {why}"
                log.warning(message, extra={"device": device, "claim": mark.name})
                around.changed()
        if why:
            return LOOK_SECONDS
        await asyncio.to_thread(self._marks.remove, device)
        self._work.pop(device, None)
        log.info("a device of this node is clean", extra={"device": device})
        around.changed()
        return None

    async def _clean(self, card: model.Card, erasure: erasing.Erasure) -> str | None:
        """One step: why it cannot be done now, in a clause; empty when it is done, None while it goes on."""
        host, operations = self._around.host, classes.by_name(card.first.device_class.value)
        match erasure.state():
            case erasing.Running():
                return None
            case erasing.Failed(why=why):
                return why
            case erasing.Due():
                users = await asyncio.to_thread(operations.users, host, card)
                if users:
                    return release_plan.message(users)
                eraser = await asyncio.to_thread(operations.eraser, host, card)
                if eraser is not None:
                    erasure.begin(card.address, eraser)
                    return None
            case erasing.Done():
                pass
        try:
            for function in card.functions:
                if function.physical_function is not None:
                    await self._around.kernel.reset(function.address)
        except errors.KernelRefused as refused:
            return str(refused)
        return ""

    async def _is_over(self, mark: Mark) -> bool:
        """Whether the claim, or its allocation, is gone."""
        try:
            claim = await self._around.reader.read(mark.name, mark.namespace)
        except kube_errors.NotFound:
            return True
        except errors.PrepareError:
            # It is allocated, by whatever that is.
            return False
        if claim.metadata.uid != mark.uid or claim.status.allocation is None:
            return True
        given = claim.status.allocation.devices.results
        return all((result.pool, result.device) != (mark.pool, mark.device) for result in given)
