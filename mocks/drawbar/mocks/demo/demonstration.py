"""The run itself: a cluster, some pods, and what becomes of them."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from drawbar.driver import errors
from drawbar.driver.kube import client, kinds
from drawbar.mocks import cluster
from drawbar.mocks.cluster import pool
from drawbar.mocks.demo import observation, pods, progress, screens, summary
from drawbar.mocks.demo.progress import Step

MOST_PODS = 96  # with the spare devices two enclosures hold them, and a node has slots for all
LEAST_SLOTS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What to show.

    Attributes:
        deadline_seconds: for the run, after set-up.
        keep: leave everything running once all pods run.
    """

    pods: int = 4
    nodes: int = 3
    attach_seconds: float = 2.0
    detach_seconds: float = 1.0
    deadline_seconds: float = 120.0
    keep: bool = False


def validate(options: Options) -> None:
    """Checks what the cluster does not.

    Raises:
        errors.UsageError: something is wrong.
    """
    problems = []
    if not 1 <= options.pods <= MOST_PODS:
        problems.append(f"--pods {options.pods} is not possible: the demo runs 1 to {MOST_PODS} pods")
    if not 1 <= options.nodes <= cluster.MOST_NODES:
        problems.append(
            f"--nodes {options.nodes} is not possible: the demo runs 1 to {cluster.MOST_NODES} nodes"
        )
    for option, seconds in (
        ("--attach-seconds", options.attach_seconds),
        ("--detach-seconds", options.detach_seconds),
    ):
        if not 0 <= seconds <= options.deadline_seconds:
            problems.append(f"{option} {seconds:g} is not between 0 and the deadline")
    if options.deadline_seconds <= 0:
        problems.append(f"--deadline {options.deadline_seconds:g} is not a positive number of seconds")
    if problems:
        raise errors.UsageError("; ".join(problems))


class Demonstration:
    """One run.

    Attributes:
        kept: it has come to the point where only Ctrl-C ends it, and all is well.
    """

    def __init__(self, options: Options, screen: screens.Screen, clock: Callable[[], float]) -> None:
        self.kept = False
        self._options = options
        self._screen = screen
        self._clock = clock
        self._wanted = pods.wanted(options.pods)
        self._awaited = Step.RUNNING

    async def run(self) -> bool:
        """Runs to the end; True if every pod ran, every device came back and nothing is left.

        Raises:
            cluster.ClusterError: a process ended, or the cluster did not start.
            kube.errors.KubeError: the API server double refuses something.
        """
        options = self._options
        settings = cluster.Settings(
            nodes=tuple(f"node-{number + 1}" for number in range(options.nodes)),
            enclosures=pool.mixed(pods.amounts(options.pods)),
            slots=max(LEAST_SLOTS, options.pods),
            attach_seconds=options.attach_seconds,
            detach_seconds=options.detach_seconds,
        )
        async with cluster.Cluster.running(settings, self._screen.happening) as world:
            good = await self._show(world)
            world.keep_logs = not good
            return good

    async def _show(self, world: cluster.Cluster) -> bool:
        known = progress.begin({name: kind.value for name, kind in self._wanted.items()})
        observer = observation.Observer(known, self._screen, self._clock)
        began = self._clock()
        self._screen.running(began)
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(observer.run(world.api, world.places.journal))
            try:
                async with asyncio.timeout(self._options.deadline_seconds) as limit:
                    await self._create(world.api)
                    await self._all(observer, Step.RUNNING)
                    if self._options.keep:
                        limit.reschedule(None)
                        await self._keep(world)
                    await self._delete(world.api, observer)
                    await self._all(observer, Step.DETACHED)
            except TimeoutError:
                self._stuck(world, observer)
            watching.cancel()
        leaks = await world.leaks()
        whole = summary.summarise(observer.views.values(), leaked=leaks.total, seconds=self._clock() - began)
        self._screen.summary(whole)
        return whole.good

    async def _create(self, api: client.Client) -> None:
        for device_class in dict.fromkeys(self._wanted.values()):
            body = pods.template(device_class)
            await api.create(kinds.CLAIM_TEMPLATE, body, namespace=pods.NAMESPACE, into=dict[str, Any])
        for name, device_class in self._wanted.items():
            body = pods.pod(name, device_class)
            await api.create(kinds.POD, body, namespace=pods.NAMESPACE, into=dict[str, Any])

    async def _delete(self, api: client.Client, observer: observation.Observer) -> None:
        for name in self._wanted:
            observer.see(progress.PodDeleted(pod=name))
            await api.delete(kinds.POD, name, namespace=pods.NAMESPACE)

    async def _all(self, observer: observation.Observer, step: Step) -> None:
        self._awaited = step
        await observer.until(step)

    async def _keep(self, world: cluster.Cluster) -> None:
        self.kept = True
        self._screen.kept(world.places)
        await asyncio.get_running_loop().create_future()

    def _stuck(self, world: cluster.Cluster, observer: observation.Observer) -> None:
        sentences = [
            _stuck_sentence(view, self._awaited, self._options.deadline_seconds)
            for view in observer.views.values()
            if self._awaited not in view.steps
        ]
        self._screen.stuck([*sentences, f"logs: {world.log('controller')} and others beside it"])


def _stuck_sentence(view: progress.View, awaited: Step, seconds: float) -> str:
    reached = list(view.steps)
    got = f"got as far as {reached[-1].value}" if reached else "was not even allocated a device"
    where = f", device {view.pool}/{view.device} on {view.node}" if view.device else ""
    return f"{view.pod} ({view.device_class}{where}) {got}; it was not {awaited.value} within {seconds:g} s"
