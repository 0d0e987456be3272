"""One run of the demo: start a stage, create pods, watch their devices, delete the pods."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from drawbar.mocks import controlloop, errors
from drawbar.mocks.claims import dialects
from drawbar.mocks.demo import observation, pods, progress, screens, stages, summary
from drawbar.mocks.demo.progress import Step
from drawbar.mocks.kube import client, kinds


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of a run.

    Attributes:
        deadline_seconds: the time limit of the run after set-up, in seconds.
        keep: leave everything running once all pods run.
        dialect: the API version of the claims.
    """

    deadline_seconds: float
    keep: bool = False
    dialect: dialects.Dialect = dialects.MODERN


class Demonstration:
    """One run of the demo.

    Attributes:
        kept: all pods run, and the cluster stays until Ctrl-C.
    """

    def __init__(
        self, stage: stages.Stage, options: Options, screen: screens.Screen, clock: Callable[[], float]
    ) -> None:
        self.kept = False
        self._stage = stage
        self._options = options
        self._screen = screen
        self._clock = clock
        self._reads = Step.READ in stage.steps
        self._awaited = Step.RUNNING

    async def run(self) -> bool:
        """Run to the end; return true if every pod used its device, every device came back and nothing leaked.

        Raises:
            errors.UsageError: this machine does not meet a requirement.
            cluster.ClusterError: a process ended, the stage did not start, or a container read wrong content.
            kube.errors.KubeError: the API server double refuses a request.
        """
        async with self._stage.running(self._screen.report_happening) as world:
            try:
                good = await self._show(world)
            except* errors.MockError as group:
                raise controlloop.first_error(group) from None
            world.keep_logs = not good
            return good

    async def _show(self, world: stages.World) -> bool:
        initial = progress.begin({name: kind.value for name, kind in self._stage.wanted.items()})
        observer = observation.Observer(initial, self._screen, self._clock, self._options.dialect)
        began = self._clock()
        self._screen.report_ready(began)
        async with asyncio.TaskGroup() as tasks:
            watches = (
                tasks.create_task(observer.run(world.api, world.journal), name="observer"),
                tasks.create_task(world.witness(observer.see), name="witness"),
            )
            try:
                async with asyncio.timeout(self._options.deadline_seconds) as limit:
                    await self._create(world.api)
                    await self._use(world, observer)
                    if self._options.keep:
                        limit.reschedule(None)
                        await self._keep(world)
                    await self._delete(world.api, observer)
                    await self._all(observer, Step.DETACHED)
            except TimeoutError:
                self._stuck(world, observer)
            for watch in watches:
                watch.cancel()
        leaked, seconds = await world.leaks(), self._clock() - began
        whole = summary.summarise(
            observer.views.values(),
            leaked=leaked,
            seconds=seconds,
            reads=self._reads,
            classic=self._options.dialect.context is not None,
        )
        self._screen.report_summary(whole)
        return whole.good

    async def _create(self, api: client.Client) -> None:
        dialect = self._options.dialect
        for device_class in dict.fromkeys(self._stage.wanted.values()):
            for kind, body in pods.prerequisites(device_class, dialect):
                await api.create(kind, body, namespace=pods.NAMESPACE, into=dict[str, Any])
        for name, device_class in self._stage.wanted.items():
            body = pods.pod(name, device_class, dialect)
            await api.create(kinds.POD, body, namespace=pods.NAMESPACE, into=dict[str, Any])

    async def _use(self, world: stages.World, observer: observation.Observer) -> None:
        """Wait until all pods run and, if there are containers, until each has read its device."""
        async with asyncio.TaskGroup() as containers:
            if self._reads:
                for pod in self._stage.wanted:
                    containers.create_task(self._read(world, observer, pod), name=f"container of {pod}")
            await self._all(observer, Step.RUNNING)
            if self._reads:
                await self._all(observer, Step.READ)

    async def _read(self, world: stages.World, observer: observation.Observer, pod: str) -> None:
        await observer.until(Step.RUNNING, (pod,))
        content = await world.read(observer.views[pod])
        observer.see(progress.ContentRead(pod=pod, content=content))

    async def _delete(self, api: client.Client, observer: observation.Observer) -> None:
        for name in self._stage.wanted:
            observer.see(progress.PodDeleted(pod=name))
            await api.delete(kinds.POD, name, namespace=pods.NAMESPACE)

    async def _all(self, observer: observation.Observer, step: Step) -> None:
        self._awaited = step
        await observer.until(step)

    async def _keep(self, world: stages.World) -> None:
        self.kept = True
        self._screen.report_whereabouts(world.where)
        await asyncio.get_running_loop().create_future()

    def _stuck(self, world: stages.World, observer: observation.Observer) -> None:
        sentences = [
            _stuck_sentence(view, self._awaited, self._options.deadline_seconds)
            for view in observer.views.values()
            if self._awaited not in view.steps
        ]
        self._screen.report_stuck([*sentences, f"logs: {world.where.logs}/*.log"])


def _stuck_sentence(view: progress.View, awaited: Step, seconds: float) -> str:
    reached = sorted(view.steps, key=view.steps.__getitem__)
    got = f"got as far as {reached[-1].value}" if reached else "was not even allocated a device"
    where = f", device {view.pool}/{view.device} on {view.node}" if view.device else ""
    return f"{view.pod} ({view.device_class}{where}) {got}; it was not {awaited.value} within {seconds:g} s"
