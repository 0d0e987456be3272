"""The ways of allocation of a controller, made by its settings and by the versions that the API server serves.

This is the only module that names them; the others know the interface.
"""

import asyncio
import datetime
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from drawbar.driver import containment, evaluation, watching
from drawbar.driver.api import attachments
from drawbar.driver.api import classic as classic_api
from drawbar.driver.controller import claims, names, settings
from drawbar.driver.controller.allocation import interface
from drawbar.driver.controller.attachments.context import Context
from drawbar.driver.controller.classic import service as classic
from drawbar.driver.controller.immediate import service as immediate
from drawbar.driver.kube import client, events, mirror


@dataclass(frozen=True, slots=True)
class Allocators:
    """All ways of allocation of one controller."""

    ways: tuple[interface.Allocation, ...]

    @property
    def mirrors(self) -> dict[str, mirror.Mirror[Any]]:
        """All collections that they follow, by name."""
        return {name: followed for way in self.ways for name, followed in way.mirrors.items()}

    @property
    def claim_mirrors(self) -> tuple[mirror.Mirror[Any], ...]:
        """The mirrors among them that hold claims."""
        return tuple(followed for way in self.ways for followed in way.claim_mirrors)

    @property
    def reconcilers(self) -> tuple[watching.Reconciler, ...]:
        """The ways as reconcilers of changes."""
        return tuple(watching.Reconciler(way.watches, way.wake) for way in self.ways)

    def demand(
        self,
        key: names.DeviceKey,
        attachment: attachments.DeviceAttachment | None,
        host_of: Mapping[str, str],
        seen_at: datetime.datetime,
    ) -> claims.Demand | None:
        """Return the demand of a claim that the scheduler does not allocate; see `Allocation.demand`."""
        demands = (way.demand(key, attachment, host_of, seen_at) for way in self.ways)
        return next((demand for demand in demands if demand is not None), None)

    def start(self, tasks: asyncio.TaskGroup, context: Context) -> None:
        """Start all of them in the group."""
        for way in self.ways:
            context.cluster.contained.start(tasks, way.worker, functools.partial(way.run, context))


def allocators(
    options: settings.Settings,
    api: client.Client,
    versions: frozenset[classic_api.Version],
    evaluator: evaluation.Evaluator,
    gone: Callable[[str], None],
    *,
    contained: containment.Containment | None = None,
    recorder: events.Recorder | None = None,
) -> Allocators:
    """Return the ways of allocation.

    Args:
        options: of the controller.
        api: to the API server.
        versions: of classic allocation, that the cluster serves.
        evaluator: of selectors.
        gone: called with the uid of each deleted claim that the scheduler did not allocate.
        contained: the unexpected errors of this controller.
        recorder: of Events.
    """
    ways: list[interface.Allocation] = [
        immediate.ImmediateAllocation(enabled=options.immediate_allocation, evaluator=evaluator)
    ]
    if versions:
        ways.append(
            classic.ClassicAllocation(
                api, options.driver, versions, evaluator, gone, contained=contained, recorder=recorder
            )
        )
    return Allocators(tuple(ways))
