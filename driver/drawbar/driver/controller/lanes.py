"""A queue and a few workers per fabric, so that one slow or broken fabric never delays another."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from drawbar.driver.controller import names
from drawbar.driver.kube import errors as kube_errors
from drawbar.driver.kube import queue
from drawbar.fabric import errors as fabric_errors

log = logging.getLogger(__name__)

WORKERS = 4
_SOMEBODY_MUST_ACT = (kube_errors.Denied, kube_errors.Invalid, fabric_errors.Misconfigured)
Reconcile = Callable[[names.DeviceKey], Awaitable[float | None]]


class Lanes:
    """Devices that want attention, by fabric. Keys may be added before `start`."""

    def __init__(self, reconcile: Reconcile) -> None:
        self._reconcile = reconcile
        self._queues: dict[str, queue.WorkQueue[names.DeviceKey]] = {}
        self._tasks: asyncio.TaskGroup | None = None

    def add(self, key: names.DeviceKey) -> None:
        """Asks for attention now."""
        if key.fabric not in self._queues:
            self._queues[key.fabric] = queue.WorkQueue()
            self._begin(key.fabric)
        self._queues[key.fabric].add(key)

    def waiting(self, fabric: str) -> int:
        """How many devices of the fabric wait to be looked at."""
        return len(self._queues[fabric]) if fabric in self._queues else 0

    def failing(self, fabric: str) -> int:
        """How many devices of the fabric failed the last time, and come back after a pause."""
        return self._queues[fabric].failing if fabric in self._queues else 0

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Begins to work; the workers run until the group is cancelled."""
        self._tasks = tasks
        for fabric in self._queues:
            self._begin(fabric)

    def stop(self) -> None:
        """The workers have ended with their group; keys are kept for the next start."""
        self._tasks = None

    def _begin(self, fabric: str) -> None:
        if self._tasks is not None:
            for number in range(WORKERS):
                self._tasks.create_task(self._work(self._queues[fabric]), name=f"lane-{fabric}-{number}")

    async def _work(self, lane: queue.WorkQueue[names.DeviceKey]) -> None:
        while True:
            key = await lane.take()
            try:
                again = await self._reconcile(key)
            except (kube_errors.KubeError, fabric_errors.FabricError) as error:
                pause = lane.retry(key)
                extra = {"attachment": key.attachment, "seconds": round(pause, 2)}
                level = logging.WARNING if isinstance(error, _SOMEBODY_MUST_ACT) else logging.INFO
                log.log(level, "will try again: %s", error, extra=extra)
            else:
                lane.forget(key)
                if again == 0.0:
                    lane.add(key)
                elif again is not None:
                    lane.add_after(key, again)
            finally:
                lane.done(key)
