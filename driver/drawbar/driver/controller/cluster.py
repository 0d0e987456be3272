"""The cluster as the controller has observed it, and its UID."""

import logging
from typing import Any

import msgspec

from drawbar.driver import backoff, clocks, containment
from drawbar.driver.api import attachments, claims, core, drivers, fabrics, maintenances, meta
from drawbar.driver.controller import (
    absences,
    attachment_index,
    daemons,
    maintenance,
    names,
    refusals,
    retries,
)
from drawbar.driver.controller import claims as claim_index
from drawbar.driver.controller.fabrics import sessions
from drawbar.driver.controller.offers import group, holdings, offer, table
from drawbar.driver.controller.pools import publisher
from drawbar.driver.kube import claimstatus, client, errors, events, kinds, mirror

log = logging.getLogger(__name__)

MANAGER = "drawbar-controller"
NAMESPACE = "kube-system"
PAUSE_FIRST_SECONDS = 1.0
_Claim = claims.ResourceClaim
_Attachment = attachments.DeviceAttachment


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """The mirrors of the API server, their indexes and the fabrics' sessions, for all parts of the controller.

    Attributes:
        api: the client for writes that do not go through a mirror.
        driver: the DRA driver's name.
        clock: a steady clock, for spans.
        time_of_day: the clock for dates in objects.
        placed: the attachments by fabric and by node.
        maintenance: the devices and nodes in maintenance, by fabric.
        allocated: the claims by their fabric devices.
        observers: the claims by the devices that they have admin access to.
        unattached: the claims by their devices without binding conditions.
        sessions: the sessions with the fabric managers, by the name of their Fabric.
        pools: the fabrics' slices as published.
        daemons: the nodes with a live node daemon.
        absences: the nodes that count as gone, and from when on.
        refusals: the writes that the API server refuses now.
        retries: the waits of failed claims before their next attach.
        contained: the unexpected errors of this controller.
        arranged: for each fabric with composites, the last arrangement and the stock behind it.
    """

    api: client.Client
    driver: str
    clock: clocks.Clock
    time_of_day: clocks.Clock
    fabrics: mirror.Mirror[fabrics.Fabric]
    attachments: mirror.Mirror[attachments.DeviceAttachment]
    claims: mirror.Mirror[claims.ResourceClaim]
    nodes: mirror.Mirror[core.Node]
    maintenances: mirror.Mirror[maintenances.Maintenance]
    maintenance: maintenance.Index
    placed: attachment_index.Index
    allocated: claim_index.Index
    observers: claim_index.Index
    unattached: claim_index.Index
    sessions: sessions.Sessions
    pools: publisher.Publisher
    daemons: daemons.Daemons
    absences: absences.Absences
    refusals: refusals.Refusals
    retries: retries.Retries
    recorder: events.Recorder
    contained: containment.Containment = msgspec.field(default_factory=containment.Uncontained)
    arranged: dict[str, tuple[offer.Stock, offer.Arrangement]] = msgspec.field(default_factory=dict)

    def composites(self, fabric: str) -> offer.Arrangement | None:
        """Return the arrangement of a Fabric that has or had composites, or None. Other parts are known by their attachments."""
        opened = self.sessions.get(fabric)
        if (
            opened is None
            or not opened.has_listing
            or not (self.pools.has_composites(fabric) or table.groups(opened.spec))
        ):
            self.arranged.pop(fabric, None)
            return None
        attached = [attachment for attachment in self.placed.in_fabric(fabric) if not attachment.held_by_hand]
        stock = offer.Stock(
            spec=opened.spec,
            devices=self.pools.find_offered(fabric),
            held=group.find_held_members(attached),
            in_use={*(attachment.spec.device for attachment in attached), *self.allocated.pools(fabric)},
            published=self.pools.composites(fabric),
            missing=opened.missing,
            chooses=opened.inventory.parts.are_chosen,
            maintenance=self.maintenance.scope(fabric),
        )
        before = self.arranged.get(fabric)
        # This is asked for every device, and an arrangement costs much more than a comparison.
        if before is not None and before[0] == stock:
            return before[1]
        arranged = table.arrange(stock)
        self.arranged[fabric] = (stock, arranged)
        return arranged

    def members(self, key: names.DeviceKey) -> tuple[names.DeviceKey, ...]:
        """Return the members of a composite; empty for any other device."""
        attached = self.placed.composite(key.fabric, key.device)
        arranged = self.composites(key.fabric) if attached is None else None
        devices = attached.devices if attached is not None else ()
        if arranged is not None:
            devices = arranged.members.get(key.device, ())
        return tuple(names.DeviceKey(fabric=key.fabric, device=device) for device in devices)

    def realisation(self, part: names.DeviceKey, attachment: _Attachment | None) -> offer.Realisation:
        """Return the realisation with a part: by its DeviceAttachment, else by the fabric's arrangement."""
        if attachment is not None:
            return offer.Realisation.from_composite(part, attachment.spec.composite)
        arranged = self.composites(part.fabric)
        composite = arranged.composite_of(part.device) if arranged is not None else None
        return offer.Realisation.from_composite(part, composite)

    def holdings(self, fabric: str) -> holdings.Holdings:
        """Return the cluster's holdings of a fabric."""
        parts = tuple(map(holdings.Holding.from_attachment, self.placed.in_fabric(fabric)))
        gone = {node: self.absences.gone_at(node, (fabric,)) for node in {part.node for part in parts}}
        return holdings.Holdings(
            parts={part.name: part for part in parts},
            gone_at={node: moment for node, moment in gone.items() if moment is not None},
            claimed=frozenset(self.allocated.pools(fabric)),
            published={each.metadata.name: holdings.names_in(each) for each in self.pools.in_fabric(fabric)},
        )

    @property
    def manager(self) -> str:
        """Return the field manager of the controller's writes."""
        return drivers.manager(MANAGER, self.driver)

    async def apply_to_claim(
        self, claim: _Claim, body: dict[str, Any], *, manager: str | None = None
    ) -> None:
        """Apply to a claim's status, as `claimstatus.apply` does; the mirror has the stored claim at once."""
        stored = await claimstatus.apply(self.api, claim, body, manager=manager or self.manager)
        self.claims.learn(stored)


class _Namespace(meta.Struct, frozen=True):
    metadata: meta.ObjectMeta


async def identity(api: client.Client) -> str:
    """Return the UID of the namespace `kube-system`, which is unique to the cluster and never changes.

    It is empty if the namespace may not be read. Then no connection is marked, and none is taken back.
    """
    loop = backoff.build_retrying(errors.Unreachable, first_seconds=PAUSE_FIRST_SECONDS)
    try:
        return (await loop(api.read, kinds.NAMESPACE, NAMESPACE, into=_Namespace)).metadata.uid
    except (errors.Denied, errors.NotFound) as error:
        log.warning(
            "connections of this cluster are not marked, so lost ones are not found; "
            "let the controller read the namespace kube-system: %s",
            error,
        )
        return ""
