"""Hooks: an administrator's programs to drain, initialise or clean a device.

The programs are in a directory of the host, named by the daemon's settings. Classes and claims name files in it. Because hooks
run as root, only files that no other user than root or the daemon's can write are run.

A run ends with its program, at its deadline, or with the daemon. Unless it succeeded, it is repeated, and so it is after a
reboot. A hook must be idempotent.
"""

import asyncio
import functools
import os
import stat
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import msgspec

from drawbar.driver import containment, programs
from drawbar.driver.api import attachments, parameters
from drawbar.driver.node import errors, kernel
from drawbar.driver.node.classes import generic
from drawbar.driver.node.inventory import model
from drawbar.driver.node.treatment import plan

OUTPUT_BYTES = 64 << 10
MEMORY_BYTES = 1 << 30
"""The memory limit for each process of a hook."""
DRAIN_AGAIN_SECONDS = 30.0
"""The pause between the end of a drain hook and its next run, while the device is still in use."""
Work = Callable[[], Coroutine[Any, Any, None]]
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
    """Return one sentence for each wrong value."""
    return [
        f"{field.name} {path} is not an absolute path"
        for field in fields(settings)
        if not (path := getattr(settings, field.name)).is_absolute()
    ]


class Drain(msgspec.Struct, frozen=True, kw_only=True):
    """The hook that makes other programs close a device.

    Attributes:
        hook: the name of the hook.
        begin: begins a run for a card; the future returns the reason of a failure, or an empty text.
    """

    hook: str
    begin: Callable[[model.Card], asyncio.Future[str]]


class Draining:
    """The runs of one device's drain hook: one at a time, with pauses of `DRAIN_AGAIN_SECONDS`."""

    def __init__(self) -> None:
        self._run: asyncio.Future[str] | None = None
        self._ended_at: float | None = None
        self._why = ""

    def observe(self, drain: Drain | None, now: float) -> plan.Draining:
        """Return the state of the hook; `now` is in seconds on a monotonic clock."""
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
    """The runner of hooks and other work on devices, each in a task of its own.

    Attributes:
        settings: the directories of hooks and bitstreams.
        kernel: writes to sysfs.
        tasks: the group of the tasks, which end with the group. The daemon sets it before the first start.
    """

    def __init__(
        self, settings: Settings, kernel: kernel.Kernel, contained: containment.Containment | None = None
    ) -> None:
        self._contained = contained or containment.Uncontained()
        self.settings = settings
        self.kernel = kernel
        self.tasks: asyncio.TaskGroup | None = None

    def drain(
        self, attachment: attachments.DeviceAttachment, request: attachments.Hook | None
    ) -> Drain | None:
        """Return the demanded drain hook of the device, or None without a demand."""
        if request is None:
            return None
        return Drain(hook=request.hook, begin=functools.partial(self._begin_drain, attachment, request))

    def _begin_drain(
        self, attachment: attachments.DeviceAttachment, request: attachments.Hook, card: model.Card
    ) -> asyncio.Task[str]:
        environment = variables(attachment, card, None, self.kernel.sysfs)
        return self.start(
            "drain hook", attachment, functools.partial(run, self.settings, request, environment)
        )

    def start(self, what: str, attachment: attachments.DeviceAttachment, work: Work) -> asyncio.Task[str]:
        """Start work on a device. Return its task, which returns the reason of a failure, or an empty text."""
        assert self.tasks is not None
        name = attachment.metadata.name
        return self.tasks.create_task(self._attempt(name, work), name=f"{what} of {name}")

    async def _attempt(self, attachment: str, work: Work) -> str:
        """Return the reason of an expected or unexpected failure of the work, or an empty text."""
        attempt = self._contained.attempt("hooks", attachment, extra=lambda: {"attachment": attachment})
        with attempt:
            try:
                await work()
            except (errors.HookFailed, errors.BitstreamNotLoaded, errors.KernelRefused) as failed:
                return str(failed)
        return attempt.failure

    def clean_up(
        self, attachment: attachments.DeviceAttachment, request: attachments.Hook | None
    ) -> Callable[[model.Card], generic.Eraser] | None:
        """Return the eraser of a card by the demanded clean-up hook, or None without a demand."""
        return None if request is None else functools.partial(self._eraser, attachment, request)

    def _eraser(
        self, attachment: attachments.DeviceAttachment, request: attachments.Hook, card: model.Card
    ) -> generic.Eraser:
        def clean(report: generic.Report) -> None:
            report(f"hook {request.hook} cleans {card.address}")
            environment = variables(attachment, card, None, self.kernel.sysfs)
            try:
                asyncio.run(run(self.settings, request, environment))
            except errors.HookFailed as failed:
                raise errors.NotCleaned(
                    f"{card.address} is not clean, so no other user gets it: {failed}"
                ) from failed

        return clean


def variables(
    attachment: attachments.DeviceAttachment, card: model.Card, bitstream: Path | None, sysfs: Path
) -> dict[str, str]:
    """Return the environment variables of a hook."""
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
    request: attachments.Initialisation | attachments.Hook,
    environment: Mapping[str, str],
) -> None:
    """Run a hook.

    Args:
        settings: the directory of hooks.
        request: the demanded hook, with its time limit; the caller checks its bitstream.
        environment: the environment; see `variables`.

    Raises:
        errors.HookFailed: the hook cannot be run, or did not succeed.
    """
    path = await asyncio.to_thread(find_trusted_file, settings.hooks, request.hook, "hook")
    bounds = programs.Bounds(
        timeout_seconds=request.timeout_seconds,
        memory_bytes=MEMORY_BYTES,
        output_bytes=OUTPUT_BYTES,
    )
    try:
        await programs.output(path, bounds, environment)
    except programs.Failed as failed:
        raise errors.HookFailed(str(failed)) from failed


def find_trusted_file(directory: Path, name: str, what: str) -> Path:
    """Return the path of the file of that name, writable only by root or this user.

    Raises:
        errors.HookFailed: the file is absent, is not a regular file, or others can write it.
    """
    if not parameters.FILE_NAME.fullmatch(name):
        raise errors.HookFailed(f"{what} {name!r} is not the name of a file: see the parameters of its class")
    path = directory / name
    for checked in (directory, path):
        try:
            facts = checked.lstat()
        except OSError as error:
            raise errors.HookFailed(
                f"there is no {what} {path} on this node ({error.strerror}): put it there, or correct the parameters of its "
                "class or claim"
            ) from error
        if facts.st_uid not in (0, os.geteuid()) or facts.st_mode & _FOREIGN_WRITES:
            raise errors.HookFailed(
                f"{checked} may be written by others than root: chown root and chmod go-w it"
            )
    if not stat.S_ISREG(path.lstat().st_mode):
        raise errors.HookFailed(f"{what} {path} is not a regular file: put the file itself there, no link")
    return path
