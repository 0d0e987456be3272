"""The run of a class's hook, or the load of a bitstream by the driver of a DFL card.

A kernel that loads a bitstream cannot be stopped. Until it has finished, no other is loaded into the same card. The loaded bytes
are the checked bytes in this process's memory, even if the file changes.
"""

import asyncio
import functools
import hashlib
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from drawbar.driver.api import attachments
from drawbar.driver.node import errors
from drawbar.driver.node.classes import dfl, fpga
from drawbar.driver.node.classes.users import Host
from drawbar.driver.node.inventory import model, pci
from drawbar.driver.node.treatment import hooks

BITSTREAM_BYTES = 64 << 20
"""The greatest size of a bitstream that the daemon loads itself, from memory. The largest for DFL cards have half that size."""
LOADS_MAX = 2
"""The greatest number of bitstreams in memory. The chart's memory limit is 256 MiB."""
_LOADS = threading.BoundedSemaphore(LOADS_MAX)


def begin(
    runner: hooks.Runner,
    attachment: attachments.DeviceAttachment,
    request: attachments.Initialisation,
    card: model.Card,
) -> asyncio.Task[str]:
    """Begin the hook or the load. Return its task, which returns the reason of a failure, or an empty text."""
    work = _run if request.hook else _load
    return runner.start(
        "initialisation", attachment, functools.partial(work, runner, attachment, request, card)
    )


async def _run(
    runner: hooks.Runner,
    attachment: attachments.DeviceAttachment,
    request: attachments.Initialisation,
    card: model.Card,
) -> None:
    path = await bitstream(runner.settings, request)
    await hooks.run(runner.settings, request, hooks.variables(attachment, card, path, runner.kernel.sysfs))
    why = (
        await asyncio.to_thread(find_load_failure, request, card, runner.kernel.sysfs)
        if path is not None
        else ""
    )
    if why:
        raise errors.HookFailed(why)


async def _load(
    runner: hooks.Runner,
    attachment: attachments.DeviceAttachment,
    request: attachments.Initialisation,
    card: model.Card,
) -> None:
    claim = attachment.spec.claim
    whose = f" for claim {claim.namespace}/{claim.name}" if claim is not None else ""
    ends = time.monotonic() + request.timeout_seconds
    ended = threading.Event()
    load = functools.partial(
        _load_now, runner, request, card, lambda: time.monotonic() < ends and not ended.is_set()
    )
    try:
        # A load that hangs in the kernel blocks the next one into the same card.
        await runner.kernel.run(
            f"the design of {card.address}",
            f"to load bitstream {request.bitstream} into {card.address}{whose}",
            load,
            seconds=request.timeout_seconds,
        )
    finally:
        ended.set()


def _load_now(
    runner: hooks.Runner, request: attachments.Initialisation, card: model.Card, is_wanted: Callable[[], bool]
) -> None:
    host = Host.from_sysfs(runner.kernel.sysfs)
    engine = dfl.await_engine(host.sysfs, card, is_wanted)
    if engine is None:
        raise errors.BitstreamNotLoaded(
            f"{card.address} is not a DFL card, so its bitstream is loaded by a hook, and its DeviceClass names none: have an "
            "administrator set initialise.hook of the class's parameters"
        )
    if not _LOADS.acquire(timeout=request.timeout_seconds):
        raise errors.BitstreamNotLoaded(
            f"{request.bitstream} was not loaded within {request.timeout_seconds} s, for {LOADS_MAX} others of this node do not "
            "end; look at the kernel's log"
        )
    try:
        content = _read_bitstream(runner.settings, request)
        dfl.load(host, engine, memoryview(content), request.bitstream, is_wanted=is_wanted)
    finally:
        _LOADS.release()
    shown = fpga.find_load_failure(dfl.managers(host.sysfs, engine))
    if shown is not None:
        raise errors.BitstreamNotLoaded(
            f"the kernel took {request.bitstream}, and {shown}: it is not loaded; look at the kernel's log"
        )


def find_load_failure(request: attachments.Initialisation, card: model.Card, sysfs: Path) -> str:
    """Return the kernel's report that a hook has not loaded the bitstream, in a clause, or an empty text. It reads files.

    Most cards have no `fpga_manager`. Then only the hook's exit status counts.
    """
    paths = [manager.path for function in card.functions for manager in function.fpga_managers]
    shown = fpga.find_load_failure(pci.read_fpga_managers(str(sysfs), paths))
    if shown is None:
        return ""
    return (
        f"hook {request.hook} ended with status 0, and {shown}: {request.bitstream} is not loaded; look at the "
        "kernel's log"
    )


async def bitstream(settings: hooks.Settings, request: attachments.Initialisation) -> Path | None:
    """Check the demanded bitstream; return its path, or None if there is no demand.

    Raises:
        errors.HookFailed: the file is absent, or has other content.
    """
    if not request.bitstream:
        return None
    path = await asyncio.to_thread(
        hooks.find_trusted_file, settings.bitstreams, request.bitstream, "bitstream"
    )
    _check(path, await asyncio.to_thread(_digest, path), request)
    return path


def _read_bitstream(settings: hooks.Settings, request: attachments.Initialisation) -> bytearray:
    """Check the demanded bitstream as `bitstream` does; return its content. It blocks."""
    path = hooks.find_trusted_file(settings.bitstreams, request.bitstream, "bitstream")
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
    _check(path, hashlib.sha256(view[:done]).hexdigest(), request)
    return content


def _check(path: Path, digest: str, request: attachments.Initialisation) -> None:
    if digest != request.sha256:
        raise errors.HookFailed(
            f"bitstream {path} has the SHA-256 {digest}, and {request.sha256} is asked for: put the right file there, or "
            "correct fpga.sha256"
        )


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise errors.HookFailed(f"cannot read bitstream {path}: {error.strerror}") from error
