"""What the executor of attachments works with."""

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from drawbar.driver.api import attachments, claims, drivers, nodes
from drawbar.driver.controller import absences, names, refusals
from drawbar.driver.controller import claims as claim_index
from drawbar.driver.controller.attachments import actions, calls
from drawbar.driver.controller.attachments import index as attachment_index
from drawbar.driver.controller.fabrics import session
from drawbar.driver.controller.operation import latency
from drawbar.driver.controller.pools import publisher
from drawbar.driver.kube import client, events, mirror

MANAGER = "drawbar-controller"


class Fabrics(Protocol):
    """The sessions, by the name of their Fabric."""

    def get(self, name: str, /) -> session.Session | None:
        """The session, if there is such a Fabric."""
        ...


class Borrowers(Protocol):
    """Who has devices attached by another way than an allocation of the scheduler: claims of classic allocation."""

    def wish(
        self,
        key: names.DeviceKey,
        attachment: attachments.DeviceAttachment | None,
        host_of: Mapping[str, str],
        seen_at: datetime.datetime,
    ) -> actions.Wish | None:
        """Who wants the device, if somebody does.

        Args:
            key: the device.
            attachment: its record, if there is one.
            host_of: by node the fabric's name of it.
            seen_at: when this process first saw that the device is for whom it is.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What the executor works with.

    Attributes:
        patience: from an allocation that was first seen to giving up, shorter than the scheduler's.
        binding_timeout: how long the scheduler itself waits.
        placed: the same attachments, by fabric and by node.
        intended: node and model of the attachments that are being created at this moment.
        absences: which nodes count as gone, and from when on.
        borrowers: who else has devices attached; None where nobody can.
    """

    api: client.Client
    driver: str
    patience: datetime.timedelta
    binding_timeout: datetime.timedelta
    fabrics: Fabrics
    attachments: mirror.Mirror[attachments.DeviceAttachment]
    placed: attachment_index.Index
    claims: mirror.Mirror[claims.ResourceClaim]
    nodes: mirror.Mirror[nodes.Node]
    index: claim_index.Index
    pools: publisher.Publisher
    refusals: refusals.Refusals
    calls: calls.Calls
    recorder: events.Recorder
    latency: latency.Latency
    clock: Callable[[], datetime.datetime]
    absences: absences.Absences
    intended: dict[names.DeviceKey, tuple[str, str]] = field(default_factory=dict)
    borrowers: Borrowers | None = None

    @property
    def manager(self) -> str:
        """The field manager of what is written."""
        return drivers.manager(MANAGER, self.driver)
