"""Runs an administrator's programs: to make a device ready, to make others let go of it, and to clean it.

The program and the bitstream lie in directories of the host that the daemon's settings name; classes and claims give names
of files in them. What another user than root or the daemon's own could have written is not run, since it runs as root.

A run ends with its program, its deadline, or the daemon. It is made again after each of these but success, and after a
reboot: a hook has to be idempotent.
"""

import asyncio
import hashlib
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from drawbar.driver import programs
from drawbar.driver.api import attachments, parameters
from drawbar.driver.node import erasing, errors
from drawbar.driver.node.classes import fpga
from drawbar.driver.node.inventory import model, pci

OUTPUT_BYTES = 64 << 10
MEMORY_BYTES = 1 << 30
"""Of data, for each process of a hook."""
DRAIN_AGAIN_SECONDS = 30.0
"""Between the end of a drain hook and its next run, while the device is still in use."""
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


class Draining:
    """The runs of the hook that makes others let go of one device: again every `DRAIN_AGAIN_SECONDS` while they have not."""

    def __init__(self) -> None:
        self._run: asyncio.Future[str] | None = None
        self._ended_at: float | None = None
        self._why = ""

    def step(self, hook: str, begin: Callable[[], asyncio.Future[str]], now: float, *, used: bool) -> str:
        """Have the hook run while the device is in use, unless it did a moment ago; return in a clause what to wait for.

        Args:
            hook: its name.
            begin: begins a run, which returns why it failed, empty where it did not.
            now: in seconds, on any clock that goes forward.
            used: the device is in use.
        """
        if self._run is not None and self._run.done():
            self._why, self._run, self._ended_at = self._run.result(), None, now
        is_due = self._ended_at is None or now - self._ended_at >= DRAIN_AGAIN_SECONDS
        if used and self._run is None and is_due:
            self._run = begin()
        if self._run is not None:
            return f"hook {hook} is draining the device"
        if not used:
            return ""
        return self._why or f"hook {hook} has run and will run again"

    def end(self) -> None:
        """End the run, if there is one."""
        if self._run is not None:
            self._run.cancel()
            self._run = None


class Runner:
    """Runs hooks, each in a task of its own.

    Attributes:
        tasks: where they run; they end with it. The daemon sets it before the first is begun.
    """

    def __init__(self, settings: Settings, sysfs: Path) -> None:
        self._settings = settings
        self._sysfs = sysfs
        self.tasks: asyncio.TaskGroup | None = None

    def begin(
        self, attachment: attachments.DeviceAttachment, asked: attachments.Initialisation, card: model.Card
    ) -> asyncio.Task[str]:
        """Begin to make a device ready; the task returns why it is not, empty where it is."""
        assert self.tasks is not None
        run = self._run(attachment, asked, card)
        return self.tasks.create_task(run, name=f"hook of {attachment.metadata.name}")

    def begin_draining(
        self, attachment: attachments.DeviceAttachment, asked: attachments.Hook, card: model.Card
    ) -> asyncio.Task[str]:
        """Begin to make others let go of a device; the task returns why that failed, empty where it did not."""
        assert self.tasks is not None
        run = self._drain(asked, variables(attachment, card, None, self._sysfs))
        return self.tasks.create_task(run, name=f"drain hook of {attachment.metadata.name}")

    async def _drain(self, asked: attachments.Hook, environment: Mapping[str, str]) -> str:
        try:
            await run(self._settings, asked, environment)
        except errors.HookFailed as failed:
            return str(failed)
        return ""

    def eraser(
        self, attachment: attachments.DeviceAttachment, asked: attachments.Hook, card: model.Card
    ) -> erasing.Eraser:
        """Return what cleans a device after its use, in a thread without a loop."""

        def clean(report: erasing.Report) -> None:
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
    ) -> str:
        try:
            path = await bitstream(self._settings, asked)
            await run(self._settings, asked, variables(attachment, card, path, self._sysfs))
        except errors.HookFailed as failed:
            return str(failed)
        return await asyncio.to_thread(not_loaded, asked, card, self._sysfs) if path is not None else ""


def not_loaded(asked: attachments.Initialisation, card: model.Card, sysfs: Path) -> str:
    """Return what the kernel reports of a bitstream that a hook has not loaded, in a clause; empty where it did. Reads files.

    Most cards have no `fpga_manager`, and then the hook's word is all there is.
    """
    paths = [manager.path for function in card.functions for manager in function.fpga_managers]
    for manager in pci.read_fpga_managers(str(sysfs), paths):
        if manager.state is not None and (manager.state in fpga.LOADING or manager.state.endswith("error")):
            return (
                f"hook {asked.hook} ended with status 0, and {manager.name} of the card shows {manager.state!r}: {asked.bitstream} is "
                "not loaded; look at the kernel's log"
            )
    return ""


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
    digest = await asyncio.to_thread(_digest, path)
    if digest != asked.sha256:
        raise errors.HookFailed(
            f"bitstream {path} has the SHA-256 {digest}, and {asked.sha256} is asked for: put the right file there, or "
            "mend fpga.sha256"
        )
    return path


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
