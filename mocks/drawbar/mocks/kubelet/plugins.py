"""The registered plugins of a node, their connections, and the choice of one to call.

Guarantees: the newest connected plugin of a driver is used, or the newest if none is connected. A broken connection is
restored. One driver and endpoint is registered only once. `wait_for_change` returns after every registration,
deregistration, connect and disconnect.

Source: pkg/kubelet/cm/dra/plugin of Kubernetes 1.36, as described by the fact pages.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import grpc
import grpc.aio

from drawbar.mocks.kubelet import errors, protocols

log = logging.getLogger(__name__)

# Otherwise a new plugin at an old path would wait for the back-off of the previous connection.
CHANNEL_OPTIONS = (("grpc.use_local_subchannel_pool", 1),)


@dataclass(slots=True, kw_only=True, eq=False)
class Plugin:
    """One registered plugin and the connection to its service socket, compared by identity.

    Attributes:
        driver: the driver's name.
        endpoint: path of the service socket.
        service: the service to call, such as `v1.DRAPlugin`.
        health_service: the health service to open a stream to, or None.
        channel: the connection.
        connected: true while the connection is up.
    """

    driver: str
    endpoint: str
    service: str
    health_service: str | None
    channel: grpc.aio.Channel
    connected: bool = False

    async def prepare(
        self, claims: Sequence[protocols.Claim], timeout_seconds: float
    ) -> dict[str, protocols.Answer]:
        """Prepare claims; return the answers by uid.

        Raises:
            errors.CallFailed: a call failed as a whole.
        """
        return await protocols.prepare(self.channel, self.service, claims, timeout_seconds)

    async def unprepare(
        self, claims: Sequence[protocols.Claim], timeout_seconds: float
    ) -> dict[str, protocols.Answer]:
        """Unprepare claims; return the answers by uid.

        Raises:
            errors.CallFailed: a call failed as a whole.
        """
        return await protocols.unprepare(self.channel, self.service, claims, timeout_seconds)


class Plugins:
    """All registered plugins of one node. Make it with `holding`.

    Each plugin has a task while it is registered: it follows the connection, and runs `live` in parallel.
    """

    def __init__(
        self,
        group: asyncio.TaskGroup,
        *,
        live: Callable[[Plugin], Awaitable[None]],
        usable: Callable[[str, bool], None],
    ) -> None:
        # After each change `usable` gets the driver, and true if one of its plugins is connected.
        self._group = group
        self._live = live
        self._usable = usable
        self._registered: list[Plugin] = []
        self._lives: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._changed = asyncio.Event()

    def plugin(self, driver: str) -> Plugin:
        """Return the plugin to call for a driver.

        Raises:
            errors.PrepareError: none is registered.
        """
        registered = [plugin for plugin in self._registered if plugin.driver == driver]
        if not registered:
            raise errors.PrepareError(f"DRA driver {driver} is not registered")
        return ([plugin for plugin in registered if plugin.connected] or registered)[-1]

    def drivers(self) -> list[str]:
        """Return the drivers with a registered plugin, oldest first; a driver may occur several times."""
        return [plugin.driver for plugin in self._registered]

    def list_connected_endpoints(self) -> list[str]:
        """Return the connected endpoints, oldest registration first."""
        return [plugin.endpoint for plugin in self._registered if plugin.connected]

    async def wait_for_change(self) -> None:
        """Return after the next registration, deregistration, connect or disconnect."""
        await self._changed.wait()

    def add(self, *, driver: str, endpoint: str, service: str, health_service: str | None) -> Plugin:
        """Register a plugin, start to connect, and return it.

        Raises:
            errors.EndpointTaken: this driver and endpoint are registered already.
        """
        if any((plugin.driver, plugin.endpoint) == (driver, endpoint) for plugin in self._registered):
            raise errors.EndpointTaken(
                f"endpoint {endpoint} already registered for DRA driver plugin {driver}"
            )
        channel = grpc.aio.insecure_channel(f"unix:{endpoint}", options=CHANNEL_OPTIONS)
        plugin = Plugin(
            driver=driver,
            endpoint=endpoint,
            service=service,
            health_service=health_service,
            channel=channel,
        )
        self._registered.append(plugin)
        life = self._group.create_task(self._run(plugin), name=f"plugin-{endpoint}")
        self._lives[driver, endpoint] = life
        log.info("plugin registered", extra={"driver": driver, "endpoint": endpoint})
        self._tell(driver)
        return plugin

    async def remove(self, plugin: Plugin) -> None:
        """Deregister a plugin and close its connection; ignore an unregistered one."""
        if plugin not in self._registered:
            return
        self._registered.remove(plugin)
        life = self._lives.pop((plugin.driver, plugin.endpoint))
        life.cancel()
        await asyncio.wait([life])
        plugin.connected = False
        await plugin.channel.close()
        log.info("plugin deregistered", extra={"driver": plugin.driver, "endpoint": plugin.endpoint})
        self._tell(plugin.driver)

    async def close(self) -> None:
        """Close all connections without deregistering the plugins, as a kubelet does at its end."""
        for life in self._lives.values():
            life.cancel()
        if self._lives:
            await asyncio.wait(self._lives.values())
        for plugin in self._registered:
            await plugin.channel.close()

    async def _run(self, plugin: Plugin) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow(plugin), name=f"plugin-connection-{plugin.endpoint}")
            await self._live(plugin)

    async def _follow(self, plugin: Plugin) -> None:
        """Keep the connection up, and `connected` up to date."""
        while True:
            state = plugin.channel.get_state(try_to_connect=True)
            connected = state is grpc.ChannelConnectivity.READY
            if connected is not plugin.connected:
                plugin.connected = connected
                self._tell(plugin.driver)
            await plugin.channel.wait_for_state_change(state)

    def _tell(self, driver: str) -> None:
        self._usable(driver, any(plugin.driver == driver and plugin.connected for plugin in self._registered))
        self._changed.set()
        self._changed = asyncio.Event()


@asynccontextmanager
async def holding(
    live: Callable[[Plugin], Awaitable[None]], usable: Callable[[str, bool], None]
) -> AsyncIterator[Plugins]:
    """Yield an empty set of plugins; at the end close all connections."""
    async with asyncio.TaskGroup() as group:
        held = Plugins(group, live=live, usable=usable)
        try:
            yield held
        finally:
            await held.close()
