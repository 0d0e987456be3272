"""The plugin watcher: it finds sockets in the registration directory and registers the plugin of each.

Guarantees: names that start with '.' and files other than sockets are ignored, in all folders. A removed socket is
deregistered. A replaced one (another inode) is registered again. A failed registration is tried again with growing
pauses; if its endpoint is taken, it waits until its socket is replaced. A silent plugin does not delay others.

Limits: no inotify (the directory is listed in short steps, so a socket that exists only between two of them is
missed), no plugin types other than DRA, and, as in every release up to 1.36, no notice of a stale socket.

Source: pkg/kubelet/pluginmanager of Kubernetes 1.36, as described by the fact pages.
"""

import asyncio
import contextlib
import logging
import os
import stat
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import grpc.aio

from drawbar.mocks.kubelet import errors, plugins, settings, versions
from drawbar.proto.kubelet.pluginregistration.v1 import api_pb2, api_pb2_grpc

log = logging.getLogger(__name__)

SOCKET_PATH_LIMIT_BYTES = 107
Identity = tuple[int, int]


@dataclass(slots=True, kw_only=True)
class _Entry:
    """The state of one registration socket."""

    identity: Identity
    plugin: plugins.Plugin | None = None
    failures: int = 0
    next_try: float = 0.0
    trying: asyncio.Task[None] | None = None
    refused: bool = False


class PluginWatcher:
    """A watcher that keeps `held` in step with the directory. Make it with `watching`."""

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
        """Watch until cancelled."""
        loop = asyncio.get_running_loop()
        reconciled = float("-inf")
        while True:
            self._found = sockets(self._directory)
            if loop.time() >= reconciled + self._times.reconcile_seconds:
                reconciled = loop.time()
                await self._reconcile()
            # Not every platform of this double has events for directories.
            await asyncio.sleep(min(self._times.watch_seconds, self._times.reconcile_seconds))

    def close(self) -> None:
        """Cancel the running registrations."""
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
            entry.plugin = await register(path, self._held, self._times)
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


@contextlib.asynccontextmanager
async def watching(directory: Path, held: plugins.Plugins, times: settings.Settings) -> AsyncIterator[None]:
    """Watch the directory until the block ends."""
    async with asyncio.TaskGroup() as group:
        watcher = PluginWatcher(directory, held, times, group)
        task = group.create_task(watcher.run(), name=f"plugin-watcher-{directory}")
        try:
            yield
        finally:
            task.cancel()
            watcher.close()


def sockets(directory: Path) -> dict[Path, Identity]:
    """Return the sockets by path, with an identity that differs for a replaced socket."""
    identities: dict[Path, Identity] = {}
    for folder, subfolders, files in os.walk(directory):
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        for name in sorted(files):
            path = Path(folder, name)
            try:
                status = path.lstat()
            except FileNotFoundError:
                continue
            if not name.startswith(".") and stat.S_ISSOCK(status.st_mode):
                identities[path] = (status.st_ino, status.st_ctime_ns)
    return identities


async def register(path: Path, held: plugins.Plugins, times: settings.Settings) -> plugins.Plugin:
    """Register the plugin behind a registration socket, and return it.

    The plugin receives the outcome. If it does not confirm a success (an error, or no answer in time), it is
    deregistered again.

    Raises:
        errors.RegistrationError: the plugin is refused, or the path is too long.
        grpc.aio.AioRpcError: the plugin did not answer.
        TimeoutError: no process listens.
    """
    if len(os.fsencode(path)) > SOCKET_PATH_LIMIT_BYTES:
        raise errors.RegistrationError(
            f"{path} is longer than {SOCKET_PATH_LIMIT_BYTES} bytes: use a shorter directory or driver name"
        )
    async with grpc.aio.insecure_channel(f"unix:{path}", options=plugins.CHANNEL_OPTIONS) as channel:
        async with asyncio.timeout(times.dial_timeout_seconds):
            await channel.channel_ready()
        stub = api_pb2_grpc.RegistrationStub(channel)
        info = await stub.GetInfo(api_pb2.InfoRequest(), timeout=times.info_timeout_seconds)
        try:
            plugin = _take_in(path, info, held, times.release)
        except errors.RegistrationError as error:
            refusal = api_pb2.RegistrationStatus(plugin_registered=False, error=str(error))
            await stub.NotifyRegistrationStatus(refusal, timeout=times.notify_timeout_seconds)
            raise
        async with contextlib.AsyncExitStack() as untold:
            # On any failure of the notification: a plugin without it is not used.
            untold.push_async_callback(held.remove, plugin)
            accepted = api_pb2.RegistrationStatus(plugin_registered=True)
            await stub.NotifyRegistrationStatus(accepted, timeout=times.notify_timeout_seconds)
            untold.pop_all()
    return plugin


def _take_in(path: Path, info: api_pb2.PluginInfo, held: plugins.Plugins, release: str) -> plugins.Plugin:
    if info.type != versions.PLUGIN_TYPE:
        raise errors.RegistrationError(
            f"RegisterPlugin error -- no handler registered for plugin type: {info.type} at socket {path}"
        )
    endpoint = info.endpoint or str(path)
    supported = tuple(info.supported_versions)
    try:
        service = versions.service(release, info.name, endpoint, supported)
    except errors.RegistrationError as error:
        raise errors.RegistrationError(
            f"RegisterPlugin error -- plugin validation failed with err: {error}"
        ) from error
    if versions.is_classic(release) and info.name in held.drivers():
        # The second instance would need a higher version than the first.
        raise errors.RegistrationError(
            f"RegisterPlugin error -- plugin validation failed with err: invalid versions of plugin {info.name}: another "
            f"plugin instance is already registered with a higher supported version"
        )
    try:
        return held.add(
            driver=info.name,
            endpoint=endpoint,
            service=service,
            health_service=versions.health_service(release, supported),
        )
    except errors.EndpointTaken as error:
        raise errors.EndpointTaken(
            f"RegisterPlugin error -- plugin registration failed with err: {error}"
        ) from error
