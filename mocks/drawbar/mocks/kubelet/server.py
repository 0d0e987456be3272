"""The kubelet doubles of any number of nodes in one process; each can be restarted.

    async with server.serving(connection, nodes) as kubelets:
        kubelets["node-a"].plugins.drivers()
        await kubelets.restart("node-a")

The same state survives a restart as the end of the process: the files of the node. So a kill of the process and a new
start are the same as `restart`, except for the connections, which a killed process does not close in order.

A start loads the state file (or refuses), lists the pods, makes the Node Ready and wipes the node's ResourceSlices.
Then it looks for plugins and works on pods.
"""

import asyncio
import datetime
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager

from drawbar.mocks import controlloop
from drawbar.mocks import errors as mock_errors
from drawbar.mocks.kube import client, connections, meta
from drawbar.mocks.kubelet import (
    agent,
    claiminfo,
    health,
    healthstream,
    node,
    plugins,
    settings,
    slices,
    statuses,
    watcher,
)

PREPARED_ANNOTATION = statuses.PREPARED_ANNOTATION


def utc_now() -> datetime.datetime:
    """Return the time of day in UTC."""
    return datetime.datetime.now(datetime.UTC)


class Kubelets(Mapping[str, agent.Kubelet]):
    """The running kubelets by node name; a restarted one is another object. Make it with `serving`."""

    def __init__(
        self,
        api: client.Client,
        nodes: Sequence[node.NodeSpec],
        *,
        times: settings.Settings,
        clock: Callable[[], datetime.datetime],
        group: asyncio.TaskGroup,
    ) -> None:
        self._api = api
        self._specs = {spec.name: spec for spec in nodes}
        self._times = times
        self._clock = clock
        self._group = group
        self._running: dict[str, agent.Kubelet] = {}
        self._stops: dict[str, asyncio.Event] = {}
        self._lives: dict[str, asyncio.Task[None]] = {}

    def __getitem__(self, name: str) -> agent.Kubelet:
        return self._running[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._running)

    def __len__(self) -> int:
        return len(self._running)

    async def start(self, name: str) -> None:
        """Start the kubelet of a stopped node; return once its node is Ready.

        Raises:
            errors.StateError: its state file is broken.
            kube_errors.KubeError: the API server refuses the node.
            KeyError: there is no such node, or it runs.
        """
        spec = self._specs[name]
        if name in self._lives:
            raise KeyError(f"the kubelet of {name} runs already")
        started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._stops[name] = asyncio.Event()
        self._lives[name] = self._group.create_task(self._live(spec, started), name=f"kubelet-{name}")
        await started

    async def stop(self, name: str) -> None:
        """Stop the kubelet of a node. Its containers and its Node object stay.

        Raises:
            KeyError: it does not run.
        """
        self._stops[name].set()
        await self._lives[name]

    async def restart(self, name: str) -> agent.Kubelet:
        """Stop the kubelet of a node and start it again; return the new one. Raises as `start` does."""
        await self.stop(name)
        await self.start(name)
        return self[name]

    def close(self) -> None:
        """Let all kubelets end."""
        for stop in self._stops.values():
            stop.set()

    async def _live(self, spec: node.NodeSpec, started: asyncio.Future[None]) -> None:
        """Run one kubelet until its stop. Errors during the start go to its starter."""
        try:
            async with _running(self._api, spec, self._times, self._clock) as kubelet:
                self._running[spec.name] = kubelet
                started.set_result(None)
                await self._stops[spec.name].wait()
        except* mock_errors.MockError as group:
            if started.done():
                raise
            started.set_exception(controlloop.first_error(group))
        finally:
            self._running.pop(spec.name, None)
            del self._lives[spec.name]
            del self._stops[spec.name]


@asynccontextmanager
async def serving(
    connection: connections.Connection,
    nodes: Sequence[node.NodeSpec],
    times: settings.Settings | None = None,
    *,
    clock: Callable[[], datetime.datetime] = utc_now,
) -> AsyncIterator[Kubelets]:
    """Run kubelets until the block ends, and yield them by node name once their nodes are Ready.

    Raises:
        errors.StateError: a node's state file is broken.
        kube_errors.KubeError: the API server refuses a node.
    """
    failure: mock_errors.MockError | None = None
    async with client.connecting(connection) as api, asyncio.TaskGroup() as group:
        kubelets = Kubelets(api, nodes, times=times or settings.Settings(), clock=clock, group=group)
        try:
            for spec in nodes:
                await kubelets.start(spec.name)
        except mock_errors.MockError as error:
            failure = error
        else:
            yield kubelets
        finally:
            kubelets.close()
    if failure is not None:
        raise failure


@asynccontextmanager
async def _running(
    api: client.Client,
    spec: node.NodeSpec,
    times: settings.Settings,
    clock: Callable[[], datetime.datetime],
) -> AsyncIterator[agent.Kubelet]:
    boot_id = node.prepare_directory(spec)
    infos = claiminfo.ClaimInfos(spec.directory)
    healths = health.Healths(default_timeout_seconds=times.health_timeout_seconds, clock=clock)

    async def listen(plugin: plugins.Plugin) -> None:
        await healthstream.follow(plugin, healths, times, kubelet.health_changed)

    async with (
        slices.wiping(api, spec.name, times) as wiper,
        plugins.holding(listen, wiper.usable) as held,
        asyncio.TaskGroup() as group,
    ):
        kubelet = agent.Kubelet(api, spec, held=held, infos=infos, healths=healths, times=times, clock=clock)
        tasks = [group.create_task(kubelet.follow(), name=f"kubelet-pods-{spec.name}")]
        try:
            await kubelet.wait_until_listed()
            now = meta.timestamp(clock())
            await node.register(api, spec, boot_id=boot_id, release=times.release, now=now)
            await wiper.wipe()
            async with watcher.watching(spec.registry, held, times):
                tasks.append(group.create_task(kubelet.run(), name=f"kubelet-work-{spec.name}"))
                yield kubelet
        finally:
            for task in tasks:
                task.cancel()
