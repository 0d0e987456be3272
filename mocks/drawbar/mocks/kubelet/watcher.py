"""The plugin watcher: which sockets lie in the registration directory, and which of them are registered.

Guarantees: names that start with '.' and what is no socket are ignored, in all folders; a socket that goes away is
deregistered; one that comes again (another inode) is registered again; a failed registration is tried again with
growing pauses, except one whose endpoint is taken, which waits until its socket is made anew; a silent plugin holds up
no other.

Not emulated: inotify (the directory is looked at in short steps, so a socket that comes and goes within one is never
seen).

Source: pkg/kubelet/pluginmanager of Kubernetes 1.36, as described by the fact pages.
"""

import asyncio
import logging
import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc.aio

from drawbar.mocks.kubelet import errors, plugins, registration, settings

log = logging.getLogger(__name__)

Identity = tuple[int, int]


@dataclass(slots=True, kw_only=True)
class _Entry:
    """What is known of one registration socket."""

    identity: Identity
    plugin: plugins.Plugin | None = None
    failures: int = 0
    next_try: float = 0.0
    trying: asyncio.Task[None] | None = None
    refused: bool = False


class PluginWatcher:
    """Keeps `held` in step with the directory. Make it with `watching`."""

    def __init__(
        self, directory: Path, held: plugins.Plugins, times: settings.Settings, group: asyncio.TaskGroup
    ) -> None:
        self._directory = directory
        self._held = held
        self._times = times
        self._group = group
        self._found: dict[Path, Identity] = {}
        self._entries: dict[Path, _Entry] = {}

    async def run(self) -> None:
        """Watches until cancelled."""
        loop = asyncio.get_running_loop()
        reconciled = float("-inf")
        while True:
            self._found = sockets(self._directory)
            if loop.time() >= reconciled + self._times.reconcile_seconds:
                reconciled = loop.time()
                await self._reconcile()
            # A directory has no event that this double could wait for everywhere it runs.
            await asyncio.sleep(min(self._times.watch_seconds, self._times.reconcile_seconds))

    def close(self) -> None:
        """Ends the registrations that are under way."""
        for entry in self._entries.values():
            if entry.trying is not None:
                entry.trying.cancel()

    async def _reconcile(self) -> None:
        for path, entry in list(self._entries.items()):
            if self._found.get(path) != entry.identity:
                del self._entries[path]
                await self._forget(entry)
        now = asyncio.get_running_loop().time()
        for path, identity in self._found.items():
            entry = self._entries.setdefault(path, _Entry(identity=identity))
            waits = entry.trying is not None or entry.refused or entry.next_try > now
            if entry.plugin is None and not waits:
                entry.trying = self._group.create_task(
                    self._try(path, entry), name=f"registration-{path.name}"
                )

    async def _forget(self, entry: _Entry) -> None:
        if entry.trying is not None:
            entry.trying.cancel()
            await asyncio.wait([entry.trying])
        if entry.plugin is not None:
            await self._held.remove(entry.plugin)

    async def _try(self, path: Path, entry: _Entry) -> None:
        try:
            entry.plugin = await registration.register(path, self._held, self._times)
            entry.failures = 0
        except errors.EndpointTaken as error:
            entry.refused = True
            log.warning("plugin refused: %s", error, extra={"socket": str(path)})
        except (grpc.aio.AioRpcError, TimeoutError, errors.RegistrationError) as error:
            entry.failures += 1
            pause = self._times.registration_pause_seconds(entry.failures)
            entry.next_try = asyncio.get_running_loop().time() + pause
            reason = error.details() if isinstance(error, grpc.aio.AioRpcError) else str(error) or "timeout"
            log.warning(
                "plugin not registered: %s", reason, extra={"socket": str(path), "pause_seconds": pause}
            )
        finally:
            entry.trying = None


@asynccontextmanager
async def watching(directory: Path, held: plugins.Plugins, times: settings.Settings) -> AsyncIterator[None]:
    """Watches for as long as the block lasts."""
    async with asyncio.TaskGroup() as group:
        watcher = PluginWatcher(directory, held, times, group)
        task = group.create_task(watcher.run(), name=f"plugin-watcher-{directory}")
        try:
            yield
        finally:
            task.cancel()
            watcher.close()


def sockets(directory: Path) -> dict[Path, Identity]:
    """The sockets to look at, with what tells a new one of the same path from the old one."""
    found: dict[Path, Identity] = {}
    for folder, subfolders, files in os.walk(directory):
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        for name in sorted(files):
            path = Path(folder, name)
            try:
                status = path.lstat()
            except FileNotFoundError:
                continue
            if not name.startswith(".") and stat.S_ISSOCK(status.st_mode):
                found[path] = (status.st_ino, status.st_ctime_ns)
    return found
