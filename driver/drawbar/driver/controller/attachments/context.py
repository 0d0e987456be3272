"""The context of the reconciliation of attachments, and one observed part of an offer."""

import datetime
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from drawbar.driver import sightings
from drawbar.driver.api import attachments, claims
from drawbar.driver.catalogue import reasons
from drawbar.driver.controller import claims as claim_index
from drawbar.driver.controller import cluster, names, outcomes
from drawbar.driver.controller.attachments import calls, contradictions, identities, statements
from drawbar.driver.controller.attachments.plans import part_state
from drawbar.driver.controller.fabrics.session import Session
from drawbar.driver.controller.offers import offer
from drawbar.driver.controller.operation import latency
from drawbar.driver.kube import mirror
from drawbar.driver.operation import readiness
from drawbar.fabric import contract
from drawbar.fabric import errors as fabric_errors

OtherDemand = Callable[
    [names.DeviceKey, attachments.DeviceAttachment | None, Mapping[str, str], datetime.datetime],
    claim_index.Demand | None,
]
"""A function that finds the demand of a claim that the scheduler does not allocate.

Its arguments are the device, its attachment, the fabric's host by node, and the time since when the attachment has been for
its claim.
"""


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """The context of the reconciliation of attachments, with the cluster.

    Attributes:
        patience: the time from the first sight of an allocation to giving up, shorter than the scheduler's.
        binding_timeout: the scheduler's own wait.
        intended: node and model of the attachments that are being created at this moment.
        other_demand: finds the demand of a claim that the scheduler does not allocate; None if it allocates all claims.
        claim_mirrors: the claims, with those of classic allocation.
        orphans: memory chunks of ours without an attachment, with their ids.
        contradicted: attached devices whose connections the fabric managers do not show.
        ignored: devices whose attachments were reported to have no Fabric, with the attachments' UIDs.
    """

    cluster: cluster.Cluster
    patience: datetime.timedelta
    binding_timeout: datetime.timedelta
    calls: calls.Calls
    latency: latency.Latency
    watchdog: readiness.Watchdog = msgspec.field(default_factory=readiness.Watchdog)
    intended: dict[names.DeviceKey, tuple[str, str]] = msgspec.field(default_factory=dict)
    other_demand: OtherDemand | None = None
    claim_mirrors: tuple[mirror.Mirror[Any], ...] = ()
    orphans: sightings.Sightings[names.DeviceKey] = msgspec.field(default_factory=sightings.Sightings)
    contradicted: contradictions.Contradictions = msgspec.field(default_factory=contradictions.Contradictions)
    ignored: dict[names.DeviceKey, str] = msgspec.field(default_factory=dict)


def ahead_of(context: Context, attachment: attachments.DeviceAttachment) -> str:
    """Return an attachment of the node whose card could be taken for this device; empty for none.

    Only a device that is recognised by its arrival waits. The check is repeated right before the call to the fabric,
    so two such devices never begin together.
    """
    if not identities.is_awaiting_arrival(attachment):
        return ""
    others = (
        other.metadata.name
        for other in context.cluster.placed.list_on(attachment.spec.node_name)
        if other.metadata.uid != attachment.metadata.uid
        and identities.could_be_mistaken(attachment, other)
        and identities.awaits_recognition(
            other, begun=context.calls.is_begun(other.metadata.uid, outcomes.Side.ATTACH)
        )
    )
    return min(others, default="")


class ObservedPart(msgspec.Struct, frozen=True, kw_only=True):
    """A part at one moment.

    Attributes:
        observed: the whole input of the plan.
        session: the session with its fabric manager; None if there is no such Fabric.
        attachment: its DeviceAttachment, if there is one.
        device: the device in the fabric manager's last report; None if it is not listed.
    """

    context: Context
    key: names.DeviceKey
    observed: part_state.PartState
    session: Session | None
    attachment: attachments.DeviceAttachment | None
    device: contract.Device | None
    realisation: offer.Realisation

    @property
    def cluster(self) -> cluster.Cluster:
        """Return the observed cluster."""
        return self.context.cluster

    @property
    def part(self) -> offer.Part:
        """Return the attachment's part."""
        return offer.Part.from_attachment(self.existing)

    @property
    def existing(self) -> attachments.DeviceAttachment:
        """Return the attachment; the action's plan has seen it."""
        assert self.attachment is not None
        return self.attachment

    @property
    def opened(self) -> Session:
        """Return the session; raise `errors.Unavailable` if there is none."""
        if self.session is None:
            raise fabric_errors.Unavailable(f"there is no Fabric {self.key.fabric}")
        return self.session

    @property
    def namespace(self) -> str:
        """Return the namespace of the attachment's claim; empty without one."""
        claim = self.existing.spec.claim
        return claim.namespace if claim is not None else ""

    @property
    def unclean(self) -> tuple[str, ...]:
        """Return the ids of the fabric's devices that left a node without being erased."""
        fabric = self.cluster.fabrics.get(self.key.fabric)
        return fabric.status.unclean if fabric is not None else ()

    def request_id(self, side: outcomes.Side) -> str:
        """Return the request id of the current attempt."""
        return self.context.calls.request_id(self.existing.metadata.uid, side)

    def claim(self, demand: claim_index.Demand) -> claims.ResourceClaim | None:
        """Return the claim of a demand, or None if it no longer exists."""
        claim = self.cluster.claims.get(demand.claim.name, demand.claim.namespace)
        return claim if claim is not None and claim.metadata.uid == demand.claim.uid else None

    async def is_confirmed(self) -> bool:
        """Read the fabric again; return whether it still shows the device as in the plan.

        A watch may report the connection of an earlier attachment after that was detached and its record is gone.
        """
        seen = self.device
        await self.opened.read()
        return self.opened.device(self.key.device) == seen

    async def is_outdated(self, failure: attachments.Failure) -> bool:
        """Read the fabric again; return whether the failure is about a connection that it no longer shows.

        If the fabric cannot be read, its last report counts.
        """
        if failure.reason != reasons.DEVICE_IN_USE or self.observed.host_id is None:
            return False
        try:
            return not await self.is_confirmed()
        except fabric_errors.FabricError:
            return False

    async def record(self, body: object) -> None:
        """Apply the controller's part of the attachment's status."""
        await self.cluster.attachments.apply(
            self.existing, body, manager=self.cluster.manager, subresource="status"
        )

    def contents(self, claim: claims.ResourceClaim) -> statements.Contents:
        """Return the devices in the claim's model offers, for fabrics that choose the device."""
        devices = {}
        for key in claim_index.devices(claim, self.cluster.driver):
            opened, attachment = (
                self.cluster.sessions.get(key.fabric),
                self.cluster.attachments.get(key.attachment),
            )
            recorded = attachment.status.device if attachment is not None else None
            seen = (
                opened.inventory.parts.find_device(key.device)
                if opened is not None and attachment is not None
                else None
            )
            device = recorded or statements.device_record(seen)
            if device is not None:
                devices[key] = device
        return devices

    def where(self) -> str:
        """Return the host, fabric and port of the device's connection, for a message."""
        connection = self.device.connection if self.device else None
        port = f", port {connection.port_id}" if connection and connection.port_id else ""
        chosen_device = (
            self.session.inventory.parts.find_device(self.key.device) if self.session is not None else None
        )
        device = f" as device {chosen_device.id}" if chosen_device is not None else ""
        return f"connected to host {self.existing.spec.host_id} of fabric {self.key.fabric}{port}{device}"

    def extras(self) -> dict[str, str]:
        """Return the fields of a log entry."""
        extras = {"attachment": self.key.attachment}
        return extras | ({"node": self.attachment.spec.node_name} if self.attachment else {})

    def emit(self, claim: claims.ResourceClaim, *, warning: bool, reason: str, message: str) -> None:
        """Emit an Event about the part on a claim and on the part's DeviceAttachment."""
        statements.emit(
            self.cluster.recorder,
            claim,
            self.key,
            self.attachment,
            warning=warning,
            reason=reason,
            message=message,
        )
