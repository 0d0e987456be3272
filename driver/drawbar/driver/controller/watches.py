"""The controller's watches of every cluster, and those of clusters whose scheduler allocates devices itself.

If `resource.k8s.io` is served in a version that only knows classic allocation, there are no claims and slices that the
scheduler would understand. Then those watches rest, and their readers find nothing.
"""

import asyncio
import functools
import logging
import random
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from drawbar.driver import containment
from drawbar.driver import errors as driver_errors
from drawbar.driver.api import attachments, claims, classic, core, drivers, fabrics, maintenances, slices
from drawbar.driver.kube import client, discovery, errors, events, kinds, mirror

log = logging.getLogger(__name__)

CONTEXTS = "podschedulingcontexts"
ASK_AGAIN_SECONDS = 120.0
"""An upgrade of a control plane takes minutes, and its API servers may answer differently until its end."""


class Upgraded(driver_errors.DrawbarError):
    """The API server serves other versions than it did at the start."""


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """The served versions of dynamic resource allocation.

    Attributes:
        modern: whether claims and slices of `v1` are served.
        versions: the versions in which a driver's controller can allocate.
    """

    modern: bool = True
    versions: frozenset[classic.Version] = frozenset()

    @property
    def words(self) -> str:
        """Return the versions for logs and errors."""
        versions = [*(["v1"] if self.modern else []), *sorted(version.value for version in self.versions)]
        return f"{discovery.RESOURCE_GROUP}/{' and '.join(versions)}"

    @property
    def selects_fields(self) -> bool:
        """Return whether the API server selects our own objects by a field: since 1.31, which serves v1alpha3."""
        return classic.Version.V1ALPHA2 not in self.versions


def find_served_versions(resources: Mapping[str, frozenset[str]]) -> Served:
    """Return the served versions of `resource.k8s.io`; a missing group counts as `v1`, since it may come."""
    versions = frozenset(
        version for version in classic.Version if CONTEXTS in resources.get(version.value, ())
    )
    return Served(modern=kinds.CLAIM.version in resources or not versions, versions=versions)


async def discover_versions(
    api: client.Client, tasks: asyncio.TaskGroup, contained: containment.Containment
) -> Served:
    """Return the served versions; if an upgrade can change them, it ends the task group, see `until_upgraded`."""
    current = find_served_versions(await discovery.await_resources(api, discovery.RESOURCE_GROUP))
    if current.versions:
        contained.start(tasks, "served-versions", functools.partial(until_upgraded, api, current))
    return current


async def until_upgraded(
    api: client.Client, at_start: Served, *, every_seconds: float = ASK_AGAIN_SECONDS
) -> None:
    """Ask for the served versions at intervals; no answer counts as no change.

    Raises:
        Upgraded: other versions are served by now, so this process watches kinds that are gone.
    """
    while True:
        await asyncio.sleep(every_seconds * random.uniform(0.8, 1.2))  # noqa: S311 - spreads questions, guards nothing
        try:
            now = find_served_versions(await discovery.resources(api, discovery.RESOURCE_GROUP))
        except errors.KubeError as error:
            log.debug("cannot list the API server's resources: %s", error)
            continue
        if now != at_start:
            raise Upgraded(
                f"the API server serves {now.words} now, and {at_start.words} at the start; ending, to be started again for that"
            )


class DaemonPods(msgspec.Struct, frozen=True, kw_only=True):
    """The place of the node daemons' pods: a namespace, and a label selector."""

    namespace: str
    labels: str


class Watches:
    """The watches; run those of `running`."""

    def __init__(
        self,
        api: client.Client,
        driver: str,
        offered: Served,
        *,
        daemons: DaemonPods | None = None,
        contained: containment.Containment | None = None,
        recorder: events.Recorder | None = None,
    ) -> None:
        watch = functools.partial(mirror.Mirror, api, contained=contained, recorder=recorder)
        own = drivers.selector(driver) if offered.selects_fields else ""

        def ours(item: Any) -> bool:
            return bool(item.spec.driver == driver)

        keep: Callable[[Any], bool] | None = None if offered.selects_fields else ours
        self.fabrics: mirror.Mirror[fabrics.Fabric] = watch(
            kinds.FABRIC, into=fabrics.Fabric, fields=own, keep=keep
        )
        self.attachments: mirror.Mirror[attachments.DeviceAttachment] = watch(
            kinds.ATTACHMENT, into=attachments.DeviceAttachment, fields=own, keep=keep
        )
        self.maintenances: mirror.Mirror[maintenances.Maintenance] = watch(
            kinds.MAINTENANCE, into=maintenances.Maintenance, fields=own, keep=keep
        )
        self.nodes: mirror.Mirror[core.Node] = watch(kinds.NODE, into=core.Node)
        self.claims: mirror.Mirror[claims.ResourceClaim] = watch(kinds.CLAIM, into=claims.ResourceClaim)
        self.slices: mirror.Mirror[slices.ResourceSlice] = watch(
            kinds.SLICE, into=slices.ResourceSlice, fields=drivers.selector(driver)
        )
        self.daemons: mirror.Mirror[core.Pod] | None = None
        if daemons is not None:
            self.daemons = watch(kinds.POD, into=core.Pod, namespace=daemons.namespace, labels=daemons.labels)
        self.running: dict[str, mirror.Mirror[Any]] = {
            kinds.FABRIC.plural: self.fabrics,
            kinds.ATTACHMENT.plural: self.attachments,
            kinds.MAINTENANCE.plural: self.maintenances,
            kinds.NODE.plural: self.nodes,
        }
        if self.daemons is not None:
            self.running |= {"pods of node daemons": self.daemons}
        if offered.modern:
            self.running |= {kinds.CLAIM.plural: self.claims, kinds.SLICE.plural: self.slices}
