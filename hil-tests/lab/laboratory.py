"""The lab itself: what all guests share, and the processes behind them.

Nothing outlives it. QEMU is killed with this process, however that ends (`setpriv --pdeathsig`), and the folder of
sockets and disks is deleted at the end. A folder whose process was killed is deleted by the next lab: it holds a lock
file that no process holds any more.
"""

import asyncio
import contextlib
import fcntl
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab import errors, firmware, guest, initrd, machine, monitor, packages, waiting

CHECKOUT = Path(__file__).parents[2]
PREFIX = "drawbar-lab-"
GUESTS_MAX = 2
SOCKET_SECONDS = 20.0
STOP_SECONDS = 10.0
DISK_BYTES = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Kit:
    """What a guest is started from: a QEMU, a kernel, and an initrd of it."""

    qemu: packages.Qemu
    kernel: packages.Kernel
    image: Path


class Lab:
    """A folder, and what guests are started from. Make it with `running`.

    Attributes:
        folder: sockets and disks; gone with the lab.
        logs: consoles and logs of programs; kept.
        kit: of the guests that want no newer one.
    """

    def __init__(self, folder: Path, logs: Path, kit: Kit) -> None:
        self.folder, self.logs = folder, logs
        self.kit = kit
        self._room = asyncio.Semaphore(GUESTS_MAX)

    @classmethod
    @contextlib.asynccontextmanager
    async def running(cls, logs: Path) -> AsyncIterator["Lab"]:
        """Yield a lab with nothing in it.

        Args:
            logs: the folder for everything that guests say.

        Raises:
            errors.Unavailable: this host lacks something; the message names what to install.
        """
        qemu = packages.qemu()
        packages.tools()
        cache = packages.cache()
        kernel = await asyncio.to_thread(packages.kernel, cache)
        busybox = await asyncio.to_thread(packages.busybox, cache)
        image = await asyncio.to_thread(initrd.ensure_archive, cache, kernel, busybox)
        await asyncio.to_thread(logs.mkdir, parents=True, exist_ok=True)
        with _folder() as folder:
            yield cls(folder, logs, Kit(qemu=qemu, kernel=kernel, image=image))

    @contextlib.asynccontextmanager
    async def guest(
        self, made: machine.Machine, *, plugged: Sequence[str] | None = None
    ) -> AsyncIterator[guest.Guest]:
        """Boot a guest, and yield it. It is switched off at the end, whatever it does then.

        Args:
            made: its hardware.
            plugged: where a guest of that name was here before and is switched on again: what is in its ports
                (`chassis.build_disk_arguments`). It has its disk then; None: a new guest with a new disk.

        Raises:
            errors.GuestSilent: it does not come up.
            errors.GuestFailure: QEMU does not run it.
            errors.Unavailable: it wants a newer QEMU and kernel, and they cannot be had.
        """
        kit = await asyncio.to_thread(_newer) if made.newer else self.kit
        paths = machine.MachinePaths.from_folders(self.folder, self.logs, made.name)
        if plugged is None:
            await asyncio.to_thread(packages.file_system, paths.disk, DISK_BYTES)
        if made.paired_ports:
            table = firmware.slots_of_two_ports(machine.PAIRED_DEVICE, machine.PAIRED_SLOTS)
            await asyncio.to_thread(paths.firmware.write_bytes, table)
        # A QEMU that is killed leaves its sockets behind.
        paths.channel.unlink(missing_ok=True)
        arguments = machine.command(
            made,
            paths,
            qemu=kit.qemu,
            kernel=kit.kernel,
            initrd=kit.image,
            agent=machine.agent_command(CHECKOUT, Path(sys.executable)),
        ) + list(plugged or ())
        async with self._room, self._process(arguments, paths) as process, waiting.tasks() as tasks:
            await self._sockets(process, paths)
            async with monitor.connecting(paths.monitor) as connection:
                running = guest.Guest(made, paths, connection, tasks)
                try:
                    await running.start()
                    yield running
                finally:
                    await running.close()

    @contextlib.asynccontextmanager
    async def _process(
        self, arguments: list[str], paths: machine.MachinePaths
    ) -> AsyncIterator[asyncio.subprocess.Process]:
        with paths.errors.open("ab") as log:
            # In a group of its own: Ctrl-C in a terminal reaches this process alone, which stops it in order.
            process = await asyncio.create_subprocess_exec(
                *arguments, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, process_group=0
            )
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            async with asyncio.timeout(STOP_SECONDS):
                await process.wait()

    async def _sockets(self, process: asyncio.subprocess.Process, paths: machine.MachinePaths) -> None:
        """Wait until QEMU serves its sockets."""
        async with asyncio.timeout(SOCKET_SECONDS):
            while not paths.channel.exists():
                if process.returncode is not None:
                    log = paths.errors.read_text(errors="replace").strip()[-500:]
                    raise errors.GuestFailure(
                        f"QEMU ended with {process.returncode}: {log or 'it printed nothing'}"
                    )
                await asyncio.sleep(0.02)


def _newer() -> Kit:
    cache = packages.cache()
    qemu, kernel = packages.newer(cache)
    wanted = (*initrd.MODULES, *initrd.NEWER)
    return Kit(
        qemu=qemu, kernel=kernel, image=initrd.ensure_archive(cache, kernel, packages.busybox(cache), wanted)
    )


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """Yield a folder with a short name, since the names of UNIX sockets have at most 107 bytes."""
    base = Path(tempfile.gettempdir())
    for old in base.glob(f"{PREFIX}*"):
        _delete_if_abandoned(old)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _delete_if_abandoned(folder: Path) -> None:
    with contextlib.suppress(OSError), (folder / "lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
