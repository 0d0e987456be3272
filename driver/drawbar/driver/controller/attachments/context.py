"""The context of the reconciliation of attachments, apart from the part."""

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from drawbar.driver import sightings
from drawbar.driver.api import attachments
from drawbar.driver.controller import claims as claim_index
from drawbar.driver.controller import cluster, names, outcomes
from drawbar.driver.controller.attachments import calls, contradictions, identities
from drawbar.driver.controller.operation import latency
from drawbar.driver.kube import mirror
from drawbar.driver.operation import readiness

OtherDemand = Callable[
    [names.DeviceKey, attachments.DeviceAttachment | None, Mapping[str, str], datetime.datetime],
    claim_index.Demand | None,
]
"""A function that finds the demand of a claim that the scheduler does not allocate.

Its arguments are the device, its attachment, the fabric's host by node, and the time since when the attachment has been for
its claim.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
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
    watchdog: readiness.Watchdog = field(default_factory=readiness.Watchdog)
    intended: dict[names.DeviceKey, tuple[str, str]] = field(default_factory=dict)
    other_demand: OtherDemand | None = None
    claim_mirrors: tuple[mirror.Mirror[Any], ...] = ()
    orphans: sightings.Sightings[names.DeviceKey] = field(default_factory=sightings.Sightings)
    contradicted: contradictions.Contradictions = field(default_factory=contradictions.Contradictions)
    ignored: dict[names.DeviceKey, str] = field(default_factory=dict)


def ahead_of(context: Context, attachment: attachments.DeviceAttachment) -> str:
    """Return an attachment of the node whose card could be taken for this device; empty for none.

    Only a device that is recognised by its arrival waits. Of two such devices, one always begins first, since this is
    checked again right before the call to the fabric.
    """
    if not identities.is_awaiting_arrival(attachment):
        return ""
    rivals = (
        other.metadata.name
        for other in context.cluster.placed.on(attachment.spec.node_name)
        if other.metadata.uid != attachment.metadata.uid
        and identities.could_be_mistaken(attachment, other)
        and identities.awaits_recognition(
            other, begun=context.calls.is_begun(other.metadata.uid, outcomes.Side.ATTACH)
        )
    )
    return min(rivals, default="")
