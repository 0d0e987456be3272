"""Plugin registration: watches the registration directory, and calls the plugins that registered.

Guarantees: names that start with '.' and what is no socket are ignored; a socket that goes away is deregistered; one
that comes again (another inode) is registered again; a failed registration is tried again with growing pauses; the
newest plugin of a driver is used, unless its connection is broken and an older one's is not.

Not emulated: inotify (the directory is polled), plugin types other than DRA, and the wiping of ResourceSlices after
the last plugin went away.

Source: pkg/kubelet/pluginmanager and pkg/kubelet/cm/dra/plugin of Kubernetes 1.36, as described by the fact pages.
"""

import asyncio
import logging
import os
import stat
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import grpc.aio

from drawbar.mocks.kubelet import errors, settings
from drawbar.proto.kubelet.dra.v1 import api_pb2, api_pb2_grpc
from drawbar.proto.kubelet.dra.v1beta1 import api_pb2 as beta_pb2
from drawbar.proto.kubelet.dra.v1beta1 import api_pb2_grpc as beta_pb2_grpc
from drawbar.proto.kubelet.pluginregistration.v1 import api_pb2 as registration_pb2
from drawbar.proto.kubelet.pluginregistration.v1 import api_pb2_grpc as registration_pb2_grpc

log = logging.getLogger(__name__)

PLUGIN_TYPE = "DRAPlugin"
SOCKET_PATH_LIMIT_BYTES = 107
Identity = tuple[int, int]


@dataclass(slots=True, kw_only=True)
class Plugin:
    """One registered plugin and the connection to its service socket."""

    driver: str
    endpoint: str
    service: str
    channel: grpc.aio.Channel

    async def prepare(
        self, claims: Sequence[api_pb2.Claim], timeout_seconds: float
    ) -> api_pb2.NodePrepareResourcesResponse:
        """One NodePrepareResources call. Raises grpc.aio.AioRpcError."""
        if self.service == "v1.DRAPlugin":
            request = api_pb2.NodePrepareResourcesRequest(claims=claims)
            stub = api_pb2_grpc.DRAPluginStub(self.channel)
            return await stub.NodePrepareResources(request, timeout=timeout_seconds)
        beta = beta_pb2.NodePrepareResourcesRequest.FromString(
            api_pb2.NodePrepareResourcesRequest(claims=claims).SerializeToString()
        )
        answer = await beta_pb2_grpc.DRAPluginStub(self.channel).NodePrepareResources(
            beta, timeout=timeout_seconds
        )
        # The messages of the two versions are the same on the wire.
        return api_pb2.NodePrepareResourcesResponse.FromString(answer.SerializeToString())

    async def unprepare(
        self, claims: Sequence[api_pb2.Claim], timeout_seconds: float
    ) -> api_pb2.NodeUnprepareResourcesResponse:
        """One NodeUnprepareResources call. Raises grpc.aio.AioRpcError."""
        if self.service == "v1.DRAPlugin":
            request = api_pb2.NodeUnprepareResourcesRequest(claims=claims)
            stub = api_pb2_grpc.DRAPluginStub(self.channel)
            return await stub.NodeUnprepareResources(request, timeout=timeout_seconds)
        beta = beta_pb2.NodeUnprepareResourcesRequest.FromString(
            api_pb2.NodeUnprepareResourcesRequest(claims=claims).SerializeToString()
        )
        answer = await beta_pb2_grpc.DRAPluginStub(self.channel).NodeUnprepareResources(
            beta, timeout=timeout_seconds
        )
        return api_pb2.NodeUnprepareResourcesResponse.FromString(answer.SerializeToString())


@dataclass(slots=True, kw_only=True)
class _Entry:
    """What is known of one registration socket."""

    identity: Identity
    plugin: Plugin | None = None
    failures: int = 0
    next_try: float = 0.0
    busy: bool = False
    gone: bool = False


@dataclass(slots=True, kw_only=True)
class PluginWatcher:
    """The registered plugins of one node. Make it with `watching`."""

    directory: Path
    times: settings.Settings
    _entries: dict[Path, _Entry] = field(default_factory=dict)
    _registered: list[Plugin] = field(default_factory=list)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def plugin(self, driver: str) -> Plugin:
        """The plugin to call for a driver.

        Raises:
            errors.PrepareError: none is registered.
        """
        known = [plugin for plugin in self._registered if plugin.driver == driver]
        if not known:
            raise errors.PrepareError(f"DRA driver {driver} is not registered")
        ready = grpc.ChannelConnectivity.READY
        connected = [plugin for plugin in known if plugin.channel.get_state(try_to_connect=True) is ready]
        return (connected or known)[-1]

    def drivers(self) -> list[str]:
        """Drivers with a registered plugin, oldest first; one may come several times."""
        return [plugin.driver for plugin in self._registered]

    async def changed(self) -> None:
        """Returns after the next registration or deregistration."""
        await self._changed.wait()

    async def run(self) -> None:
        """Watches until cancelled, then closes all connections."""
        try:
            async with asyncio.TaskGroup() as group:
                await self._watch(group)
        finally:
            for plugin in self._registered:
                await plugin.channel.close()

    async def _watch(self, group: asyncio.TaskGroup) -> None:
        while True:
            await self._look(group)
            # A directory has no event that this double could wait for everywhere it runs.
            await asyncio.sleep(self.times.watch_seconds)

    async def _look(self, group: asyncio.TaskGroup) -> None:
        found = sockets(self.directory)
        for path, entry in list(self._entries.items()):
            if found.get(path) != entry.identity:
                del self._entries[path]
                entry.gone = True
                if entry.plugin is not None:
                    await self._deregister(entry.plugin)
        now = asyncio.get_running_loop().time()
        for path, identity in found.items():
            entry = self._entries.setdefault(path, _Entry(identity=identity))
            if entry.plugin is None and not entry.busy and entry.next_try <= now:
                entry.busy = True
                # One silent plugin must not hold up the others.
                group.create_task(self._try(path, entry), name=f"plugin-registration-{path.name}")

    async def _try(self, path: Path, entry: _Entry) -> None:
        try:
            plugin = await self._register(path)
            if entry.gone:
                await self._deregister(plugin)
            else:
                entry.plugin, entry.failures = plugin, 0
        except (grpc.aio.AioRpcError, TimeoutError, errors.PrepareError) as error:
            entry.failures += 1
            pause = self.times.pause_seconds(entry.failures)
            entry.next_try = asyncio.get_running_loop().time() + pause
            reason = error.details() if isinstance(error, grpc.aio.AioRpcError) else str(error) or "timeout"
            log.warning(
                "plugin not registered", extra={"socket": str(path), "reason": reason, "pause": pause}
            )
        finally:
            entry.busy = False

    async def _register(self, path: Path) -> Plugin:
        if len(os.fsencode(path)) > SOCKET_PATH_LIMIT_BYTES:
            raise errors.PrepareError(
                f"{path} is longer than {SOCKET_PATH_LIMIT_BYTES} bytes: use a shorter directory or driver name"
            )
        async with grpc.aio.insecure_channel(f"unix:{path}") as channel:
            async with asyncio.timeout(self.times.dial_timeout_seconds):
                await channel.channel_ready()
            stub = registration_pb2_grpc.RegistrationStub(channel)
            info = await stub.GetInfo(registration_pb2.InfoRequest(), timeout=self.times.info_timeout_seconds)
            try:
                plugin = self._accept(path, info)
            except errors.PrepareError as error:
                refusal = registration_pb2.RegistrationStatus(plugin_registered=False, error=str(error))
                await stub.NotifyRegistrationStatus(refusal, timeout=self.times.notify_timeout_seconds)
                raise
            try:
                accepted = registration_pb2.RegistrationStatus(plugin_registered=True)
                await stub.NotifyRegistrationStatus(accepted, timeout=self.times.notify_timeout_seconds)
            except grpc.aio.AioRpcError:
                await self._deregister(plugin)
                raise
        log.info("plugin registered", extra={"driver": plugin.driver, "endpoint": plugin.endpoint})
        self._tell()
        return plugin

    def _accept(self, path: Path, info: registration_pb2.PluginInfo) -> Plugin:
        if info.type != PLUGIN_TYPE:
            raise errors.PrepareError(f"plugin type {info.type!r} has no handler")
        endpoint = info.endpoint or str(path)
        spoken = settings.SERVICES_BY_RELEASE[self.times.release]
        service = next((version for version in info.supported_versions if version in spoken), None)
        if service is None:
            raise errors.PrepareError(
                f"none of the plugin's versions {list(info.supported_versions)} is supported by this kubelet"
            )
        if any((known.driver, known.endpoint) == (info.name, endpoint) for known in self._registered):
            raise errors.PrepareError(f"plugin {info.name} with endpoint {endpoint} is already registered")
        channel = grpc.aio.insecure_channel(f"unix:{endpoint}")
        channel.get_state(try_to_connect=True)
        plugin = Plugin(driver=info.name, endpoint=endpoint, service=service, channel=channel)
        self._registered.append(plugin)
        return plugin

    async def _deregister(self, plugin: Plugin) -> None:
        self._registered.remove(plugin)
        await plugin.channel.close()
        log.info("plugin deregistered", extra={"driver": plugin.driver, "endpoint": plugin.endpoint})
        self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


@asynccontextmanager
async def watching(directory: Path, times: settings.Settings) -> AsyncIterator[PluginWatcher]:
    """A watcher at work for as long as the block lasts."""
    watcher = PluginWatcher(directory=directory, times=times)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(watcher.run(), name=f"plugin-watcher-{directory}")
        try:
            yield watcher
        finally:
            task.cancel()


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
