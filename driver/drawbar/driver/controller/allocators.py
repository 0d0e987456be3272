"""The controller's methods of allocation, by its settings and by the versions that the API server serves.

Only this module names them; the others know the interface.
"""

import asyncio
import datetime
import functools
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from drawbar.driver import containment, evaluation, watching
from drawbar.driver.api import attachments
from drawbar.driver.api import classic as classic_api
from drawbar.driver.controller import claims, names, settings
from drawbar.driver.controller.allocation import interface
from drawbar.driver.controller.attachments.context import Context
from drawbar.driver.controller.classic import service as classic
from drawbar.driver.controller.immediate import service as immediate
from drawbar.driver.kube import client, events, mirror


class Allocators(msgspec.Struct, frozen=True):
    """All methods of allocation of one controller."""

    ways: tuple[interface.Allocation, ...]

    @property
    def mirrors(self) -> dict[str, mirror.Mirror[Any]]:
        """Return all collections that the methods follow, by name."""
        return {name: followed for way in self.ways for name, followed in way.mirrors.items()}

    @property
    def claim_mirrors(self) -> tuple[mirror.Mirror[Any], ...]:
        """Return the methods' mirrors with claims."""
        return tuple(followed for way in self.ways for followed in way.claim_mirrors)

    @property
    def reconcilers(self) -> tuple[watching.Reconciler, ...]:
        """Return the methods as reconcilers of changes."""
        return tuple(watching.Reconciler(way.watches, way.wake) for way in self.ways)

    def demand(
        self,
        key: names.DeviceKey,
        attachment: attachments.DeviceAttachment | None,
        host_of: Mapping[str, str],
        seen_at: datetime.datetime,
    ) -> claims.Demand | None:
        """Return the demand of a claim that the scheduler does not allocate, or None; see `Allocation.demand`."""
        demands = (way.demand(key, attachment, host_of, seen_at) for way in self.ways)
        return next((demand for demand in demands if demand is not None), None)

    def start(self, tasks: asyncio.TaskGroup, context: Context) -> None:
        """Start all methods in the group."""
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
    """Return the methods of allocation.

    Args:
        options: the controller's settings.
        api: the client of the API server.
        versions: the served versions of classic allocation.
        evaluator: evaluates selectors.
        gone: called with the UID of each deleted claim that the scheduler did not allocate.
        contained: the unexpected errors of this controller.
        recorder: the recorder of Events.
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
