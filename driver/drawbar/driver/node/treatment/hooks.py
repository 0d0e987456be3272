"""Makes devices ready for a claim, has others let go of them, and cleans them: by an administrator's programs, or a DFL card's driver.

The program and the bitstream lie in directories of the host that the daemon's settings name; classes and claims give names
of files in them. What another user than root or the daemon's own could have written is not run, since it runs as root.

A run ends with its program, its deadline, or the daemon. It is made again after each of these but success, and after a
reboot: a hook has to be idempotent. A kernel that is loading a bitstream cannot be stopped: until it is done, none is loaded into
the same card.

What is loaded is what was checked: the bytes in this process's memory.
"""

import asyncio
import functools
import hashlib
import os
import stat
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from drawbar.driver import containment, programs
from drawbar.driver.api import attachments, parameters
from drawbar.driver.node import errors, kernel
from drawbar.driver.node.classes import dfl, fpga, generic
from drawbar.driver.node.classes.users import Host
from drawbar.driver.node.inventory import model, pci
from drawbar.driver.node.treatment import plan

OUTPUT_BYTES = 64 << 10
MEMORY_BYTES = 1 << 30
"""Of data, for each process of a hook."""
DRAIN_AGAIN_SECONDS = 30.0
"""Between the end of a drain hook and its next run, while the device is still in use."""
BITSTREAM_BYTES = 64 << 20
"""Of a bitstream that the daemon loads itself, which it has in memory; the largest for DFL cards have half as many."""
LOADS_MAX = 2
"""Bitstreams in memory at once: the chart's limit is 256 MiB."""
_FOREIGN_WRITES = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Where hooks and bitstreams lie.

    Attributes:
        hooks: the directory of hooks.
        bitstreams: the directory of bitstreams.
    """

    hooks: Path = Path("/etc/drawbar/hooks")
    bitstreams: Path = Path("/etc/drawbar/bitstreams")


def problems(settings: Settings) -> list[str]:
    """One sentence per wrong value."""
    return [
        f"{field.name} {path} is not an absolute path"
        for field in fields(settings)
        if not (path := getattr(settings, field.name)).is_absolute()
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """The hook that makes other programs close a device.

    Attributes:
        hook: its name.
        begin: begins a run for a card; the result is why it failed, and empty if it did not.
    """

    hook: str
    begin: Callable[[model.Card], asyncio.Future[str]]


class Draining:
    """The runs of the drain hook of one device: one at a time, and again every `DRAIN_AGAIN_SECONDS`."""

    def __init__(self) -> None:
        self._run: asyncio.Future[str] | None = None
        self._ended_at: float | None = None
        self._why = ""

    def observe(self, drain: Drain | None, now: float) -> plan.Draining:
        """Return the state of the hook; `now` is in seconds, on any clock that goes forward."""
        if drain is None:
            return plan.NO_DRAINING
        if self._run is not None and self._run.done():
            self._why, self._run, self._ended_at = self._run.result(), None, now
        if self._run is not None:
            return plan.Draining(is_running=True, message=f"hook {drain.hook} is draining the device")
        is_due = self._ended_at is None or now - self._ended_at >= DRAIN_AGAIN_SECONDS
        return plan.Draining(
            is_due=is_due, message=self._why or f"hook {drain.hook} has run and will run again"
        )

    def begin(self, drain: Drain, card: model.Card) -> None:
        """Begin a run."""
        self._run = drain.begin(card)

    def end(self) -> None:
        """End the run, if there is one."""
        if self._run is not None:
            self._run.cancel()
            self._run = None


class Runner:
    """Runs hooks and loads bitstreams, each in a task of its own.

    Attributes:
        tasks: where they run; they end with it. The daemon sets it before the first is begun.
    """

    def __init__(
        self, settings: Settings, kernel: kernel.Kernel, contained: containment.Containment | None = None
    ) -> None:
        self._contained = contained or containment.Uncontained()
        self._settings = settings
        self._kernel = kernel
        self._sysfs = kernel.sysfs
        self._loads = threading.BoundedSemaphore(LOADS_MAX)
        self.tasks: asyncio.TaskGroup | None = None

    def begin(
        self, attachment: attachments.DeviceAttachment, asked: attachments.Initialisation, card: model.Card
    ) -> asyncio.Task[str]:
        """Begin to make a device ready; the task returns why it is not, empty if it is."""
        run = self._run if asked.hook else self._load
        return self._start("initialisation", attachment, run(attachment, asked, card))

    def drain(self, attachment: attachments.DeviceAttachment, asked: attachments.Hook | None) -> Drain | None:
        """Return the hook that makes other programs close the device, or None if none is asked for."""
        if asked is None:
            return None
        return Drain(hook=asked.hook, begin=functools.partial(self._begin_drain, attachment, asked))

    def _begin_drain(
        self, attachment: attachments.DeviceAttachment, asked: attachments.Hook, card: model.Card
    ) -> asyncio.Task[str]:
        environment = variables(attachment, card, None, self._sysfs)
        return self._start("drain hook", attachment, run(self._settings, asked, environment))

    def _start(
        self, what: str, attachment: attachments.DeviceAttachment, work: Coroutine[Any, Any, None]
    ) -> asyncio.Task[str]:
        assert self.tasks is not None
        name = attachment.metadata.name
        return self.tasks.create_task(self._attempt(name, work), name=f"{what} of {name}")

    async def _attempt(self, attachment: str, work: Coroutine[Any, Any, None]) -> str:
        """Return why the work failed, also unexpectedly; empty if it did not."""
        attempt = self._contained.attempt("hooks", attachment, extra=lambda: {"attachment": attachment})
        with attempt:
            try:
                await work
            except (errors.HookFailed, errors.BitstreamNotLoaded, errors.KernelRefused) as failed:
                return str(failed)
        return attempt.failure

    def clean_up(
        self, attachment: attachments.DeviceAttachment, asked: attachments.Hook | None
    ) -> Callable[[model.Card], generic.Eraser] | None:
        """Return the hook that cleans a card after its use, or None if none is asked for."""
        return None if asked is None else functools.partial(self._eraser, attachment, asked)

    def _eraser(
        self, attachment: attachments.DeviceAttachment, asked: attachments.Hook, card: model.Card
    ) -> generic.Eraser:
        def clean(report: generic.Report) -> None:
            report(f"hook {asked.hook} cleans {card.address}")
            environment = variables(attachment, card, None, self._sysfs)
            try:
                asyncio.run(run(self._settings, asked, environment))
            except errors.HookFailed as failed:
                raise errors.NotCleaned(
                    f"{card.address} is not clean, so no other user gets it: {failed}"
                ) from failed

        return clean

    async def _run(
        self, attachment: attachments.DeviceAttachment, asked: attachments.Initialisation, card: model.Card
    ) -> None:
        path = await bitstream(self._settings, asked)
        await run(self._settings, asked, variables(attachment, card, path, self._sysfs))
        why = await asyncio.to_thread(not_loaded, asked, card, self._sysfs) if path is not None else ""
        if why:
            raise errors.HookFailed(why)

    async def _load(
        self, attachment: attachments.DeviceAttachment, asked: attachments.Initialisation, card: model.Card
    ) -> None:
        claim = attachment.spec.claim
        whose = f" for claim {claim.namespace}/{claim.name}" if claim is not None else ""
        ends = time.monotonic() + asked.timeout_seconds
        given_up = threading.Event()
        load = functools.partial(
            self._load_now, asked, card, lambda: time.monotonic() < ends and not given_up.is_set()
        )
        try:
            # A load that a kernel does not end keeps the next one from the same card.
            await self._kernel.run(
                f"the design of {card.address}",
                f"to load bitstream {asked.bitstream} into {card.address}{whose}",
                load,
                seconds=asked.timeout_seconds,
            )
        finally:
            given_up.set()

    def _load_now(
        self, asked: attachments.Initialisation, card: model.Card, is_wanted: Callable[[], bool]
    ) -> None:
        host = Host.from_sysfs(self._sysfs)
        engine = dfl.settled(host.sysfs, card, is_wanted)
        if engine is None:
            raise errors.BitstreamNotLoaded(
                f"{card.address} is no DFL card, so its bitstream is loaded by a hook, and its DeviceClass names none: have an "
                "administrator set initialise.hook of the class's parameters"
            )
        if not self._loads.acquire(timeout=asked.timeout_seconds):
            raise errors.BitstreamNotLoaded(
                f"{asked.bitstream} was not loaded within {asked.timeout_seconds} s, for {LOADS_MAX} others of this node do not "
                "end; look at the kernel's log"
            )
        try:
            content = _read_bitstream(self._settings, asked)
            dfl.load(host, engine, memoryview(content), asked.bitstream, is_wanted=is_wanted)
        finally:
            self._loads.release()
        shown = fpga.unloaded(dfl.managers(host.sysfs, engine))
        if shown is not None:
            raise errors.BitstreamNotLoaded(
                f"the kernel took {asked.bitstream}, and {shown}: it is not loaded; look at the kernel's log"
            )


def not_loaded(asked: attachments.Initialisation, card: model.Card, sysfs: Path) -> str:
    """Return what the kernel reports of a bitstream that a hook has not loaded, in a clause; empty where it did. Reads files.

    Most cards have no `fpga_manager`, and then the hook's word is all there is.
    """
    paths = [manager.path for function in card.functions for manager in function.fpga_managers]
    shown = fpga.unloaded(pci.read_fpga_managers(str(sysfs), paths))
    if shown is None:
        return ""
    return (
        f"hook {asked.hook} ended with status 0, and {shown}: {asked.bitstream} is not loaded; look at the "
        "kernel's log"
    )


def variables(
    attachment: attachments.DeviceAttachment, card: model.Card, bitstream: Path | None, sysfs: Path
) -> dict[str, str]:
    """Return the hook's environment."""
    return {
        "DRAWBAR_DEVICE": attachment.spec.device,
        "DRAWBAR_FABRIC": attachment.spec.fabric,
        "DRAWBAR_CLASS": attachment.identity.device_class,
        "DRAWBAR_PCI_ADDRESS": card.address,
        "DRAWBAR_SERIAL": card.serial or attachment.identity.serial,
        "DRAWBAR_SYSFS": str(sysfs),
        **({"DRAWBAR_BITSTREAM": str(bitstream)} if bitstream is not None else {}),
    }


async def run(
    settings: Settings,
    asked: attachments.Initialisation | attachments.Hook,
    environment: Mapping[str, str],
) -> None:
    """Run the hook.

    Args:
        settings: where it lies.
        asked: which, with its bitstream, whose content is checked by the caller.
        environment: see `variables`.

    Raises:
        errors.HookFailed: it cannot be run, or did not succeed.
    """
    path = await asyncio.to_thread(_trusted, settings.hooks, asked.hook, "hook")
    bounds = programs.Bounds(
        timeout_seconds=asked.timeout_seconds,
        memory_bytes=MEMORY_BYTES,
        output_bytes=OUTPUT_BYTES,
    )
    try:
        await programs.output(path, bounds, environment)
    except programs.Failed as failed:
        raise errors.HookFailed(str(failed)) from failed


async def bitstream(settings: Settings, asked: attachments.Initialisation) -> Path | None:
    """Return the path of the bitstream that is asked for, once its content is as asked; None where none is.

    Raises:
        errors.HookFailed: there is none of that name, or it has other content.
    """
    if not asked.bitstream:
        return None
    path = await asyncio.to_thread(_trusted, settings.bitstreams, asked.bitstream, "bitstream")
    _check(path, await asyncio.to_thread(_digest, path), asked)
    return path


def _read_bitstream(settings: Settings, asked: attachments.Initialisation) -> bytearray:
    """Return the content of the bitstream that is asked for; otherwise as `bitstream`. Blocks."""
    path = _trusted(settings.bitstreams, asked.bitstream, "bitstream")
    try:
        with path.open("rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            if size > BITSTREAM_BYTES:
                raise errors.HookFailed(
                    f"bitstream {path} has {size} bytes, and {BITSTREAM_BYTES} are the most that the daemon loads itself: load it "
                    "by a hook"
                )
            content = bytearray(size)
            view = memoryview(content)
            done = 0
            while done < size and (count := file.readinto(view[done:])):
                done += count
    except OSError as error:
        raise errors.HookFailed(f"cannot read bitstream {path}: {error.strerror}") from error
    _check(path, hashlib.sha256(view[:done]).hexdigest(), asked)
    return content


def _check(path: Path, digest: str, asked: attachments.Initialisation) -> None:
    if digest != asked.sha256:
        raise errors.HookFailed(
            f"bitstream {path} has the SHA-256 {digest}, and {asked.sha256} is asked for: put the right file there, or "
            "mend fpga.sha256"
        )


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise errors.HookFailed(f"cannot read bitstream {path}: {error.strerror}") from error


def _trusted(directory: Path, name: str, what: str) -> Path:
    """Return the file of that name, which only root or this user can have written."""
    if not parameters.FILE_NAME.fullmatch(name):
        raise errors.HookFailed(f"{what} {name!r} is no name of a file: see the parameters of its class")
    path = directory / name
    for place in (directory, path):
        try:
            facts = place.lstat()
        except OSError as error:
            raise errors.HookFailed(
                f"there is no {what} {path} on this node ({error.strerror}): put it there, or mend the parameters of its "
                "class or claim"
            ) from error
        if facts.st_uid not in (0, os.geteuid()) or facts.st_mode & _FOREIGN_WRITES:
            raise errors.HookFailed(
                f"{place} may be written by others than root: chown root and chmod go-w it"
            )
    if not stat.S_ISREG(path.lstat().st_mode):
        raise errors.HookFailed(f"{what} {path} is no regular file: put the file itself there, no link")
    return path
