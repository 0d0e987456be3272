"""What the controller watches of every cluster, and what only of those whose scheduler gives devices out itself.

Where `resource.k8s.io` is served in a version that only knows classic allocation, there are no claims and slices that the
scheduler would understand; those watches rest there, and everything that reads them finds nothing.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from drawbar.driver import errors as driver_errors
from drawbar.driver.api import attachments, claims, classic, core, drivers, fabrics, meta, slices
from drawbar.driver.kube import client, discovery, errors, kinds, mirror

log = logging.getLogger(__name__)

CONTEXTS = "podschedulingcontexts"
ASK_AGAIN_SECONDS = 120.0
"""An upgrade of a control plane takes minutes, and each of its API servers answers for itself meanwhile."""


class Upgraded(driver_errors.DrawbarError):
    """The API server serves other versions than it did at the start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What the API server serves of dynamic resource allocation.

    Attributes:
        modern: claims and slices of `v1`.
        versions: those in which a driver's controller can allocate.
    """

    modern: bool = True
    versions: frozenset[classic.Version] = frozenset()

    @property
    def words(self) -> str:
        """For people."""
        found = [*(["v1"] if self.modern else []), *sorted(one.value for one in self.versions)]
        return f"{discovery.RESOURCE_GROUP}/{' and '.join(found)}"

    @property
    def selects_fields(self) -> bool:
        """Whether it selects our own objects by a field: since 1.31, which serves v1alpha3."""
        return classic.Version.V1ALPHA2 not in self.versions


def served(resources: Mapping[str, frozenset[str]]) -> Served:
    """From what discovery tells of `resource.k8s.io`; a group that is not there at all may come as `v1`."""
    found = frozenset(one for one in classic.Version if CONTEXTS in resources.get(one.value, ()))
    return Served(modern=kinds.CLAIM.version in resources or not found, versions=found)


async def offered(api: client.Client, tasks: asyncio.TaskGroup) -> Served:
    """What is served now. Where that passes with an upgrade, the tasks end once it has, see `until_upgraded`."""
    found = served(await discovery.settled(api, discovery.RESOURCE_GROUP))
    if found.versions:
        tasks.create_task(until_upgraded(api, found), name="served versions")
    return found


async def until_upgraded(
    api: client.Client, known: Served, *, every_seconds: float = ASK_AGAIN_SECONDS
) -> None:
    """Asks now and then what is served; what is not answered counts as no change.

    Raises:
        Upgraded: it is something else by now, so this process watches what is not there any more.
    """
    while True:
        await asyncio.sleep(every_seconds * random.uniform(0.8, 1.2))  # noqa: S311 - spreads questions, guards nothing
        try:
            now = served(await discovery.resources(api, discovery.RESOURCE_GROUP))
        except errors.KubeError as error:
            log.debug("cannot learn what the API server serves: %s", error)
            continue
        if now != known:
            raise Upgraded(
                f"the API server serves {now.words} now, and {known.words} at the start; ending, to be started anew for that"
            )


class Listener(Protocol):
    """Called for every change, with what was and what is."""

    def fabric_changed(self, old: fabrics.Fabric | None, new: fabrics.Fabric | None) -> None:
        """A Fabric of this driver."""
        ...

    def attachment_changed(
        self, old: attachments.DeviceAttachment | None, new: attachments.DeviceAttachment | None
    ) -> None:
        """A DeviceAttachment of this driver."""
        ...

    def claim_changed(self, old: claims.ResourceClaim | None, new: claims.ResourceClaim | None) -> None:
        """Any claim."""
        ...

    def claim_too_large(self, metadata: meta.ObjectMeta) -> None:
        """A claim that is there and is too large to be read."""
        ...

    def node_changed(self, old: core.Node | None, new: core.Node | None) -> None:
        """Any node."""
        ...

    def daemon_changed(self, old: core.Pod | None, new: core.Pod | None) -> None:
        """A pod of a node daemon."""
        ...

    def slice_changed(self, old: slices.ResourceSlice | None, new: slices.ResourceSlice | None) -> None:
        """A slice of this driver."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonPods:
    """Where the pods of the node daemons are found: a namespace, and a label selector."""

    namespace: str
    labels: str


class Watches:
    """The watches; those of `running` are to be run."""

    def __init__(
        self,
        api: client.Client,
        driver: str,
        offered: Served,
        *,
        daemons: DaemonPods | None = None,
    ) -> None:
        own = drivers.selector(driver) if offered.selects_fields else ""

        def ours(found: Any) -> bool:
            return bool(found.spec.driver == driver)

        keep: Callable[[Any], bool] | None = None if offered.selects_fields else ours
        self.fabrics: mirror.Mirror[fabrics.Fabric] = mirror.Mirror(
            api, kinds.FABRIC, into=fabrics.Fabric, fields=own, keep=keep
        )
        self.attachments: mirror.Mirror[attachments.DeviceAttachment] = mirror.Mirror(
            api,
            kinds.ATTACHMENT,
            into=attachments.DeviceAttachment,
            fields=own,
            keep=keep,
        )
        self.nodes: mirror.Mirror[core.Node] = mirror.Mirror(api, kinds.NODE, into=core.Node)
        self.claims: mirror.Mirror[claims.ResourceClaim] = mirror.Mirror(
            api,
            kinds.CLAIM,
            into=claims.ResourceClaim,
        )
        self.slices: mirror.Mirror[slices.ResourceSlice] = mirror.Mirror(
            api,
            kinds.SLICE,
            into=slices.ResourceSlice,
            fields=drivers.selector(driver),
        )
        self.daemons: mirror.Mirror[core.Pod] | None = None
        if daemons is not None:
            self.daemons = mirror.Mirror(
                api,
                kinds.POD,
                into=core.Pod,
                namespace=daemons.namespace,
                labels=daemons.labels,
            )
        self.running: dict[str, mirror.Mirror[Any]] = {
            kinds.FABRIC.plural: self.fabrics,
            kinds.ATTACHMENT.plural: self.attachments,
            kinds.NODE.plural: self.nodes,
        }
        if self.daemons is not None:
            self.running |= {"pods of node daemons": self.daemons}
        if offered.modern:
            self.running |= {kinds.CLAIM.plural: self.claims, kinds.SLICE.plural: self.slices}

    def follow(self, listener: Listener) -> None:
        """Have a listener called for every change."""
        self.fabrics.follow(listener.fabric_changed)
        self.attachments.follow(listener.attachment_changed)
        self.nodes.follow(listener.node_changed)
        self.claims.follow(listener.claim_changed, listener.claim_too_large)
        self.slices.follow(listener.slice_changed)
        if self.daemons is not None:
            self.daemons.follow(listener.daemon_changed)
