"""The state read from the cluster, as values."""

import re

import msgspec

from drawbar.driver.api import meta
from drawbar.driver.api.attachments import DeviceAttachment
from drawbar.driver.api.claims import ResourceClaim
from drawbar.driver.api.fabrics import Fabric
from drawbar.driver.api.maintenances import Maintenance
from drawbar.driver.api.slices import ResourceSlice
from drawbar.driver.api.taintrules import DeviceTaintRule

_PREEMPTION = re.compile(
    r"\.?( (still not schedulable|no new claims to deallocate|deallocation of ResourceClaim completed),)? preemption: "
)


class PodClaim(meta.Struct, frozen=True):
    """A claim that a pod names, and its ResourceClaim; that name is empty until a template's ResourceClaim exists."""

    name: str = ""
    resource_claim_name: str = ""
    resource_claim_template_name: str = ""


class PodClaims(meta.Struct, frozen=True):
    """The claims in a pod's spec or status."""

    resource_claims: tuple[PodClaim, ...] = ()
    resource_claim_statuses: tuple[PodClaim, ...] = ()


class Pod(meta.Struct, frozen=True):
    """A pod with its claims."""

    metadata: meta.ObjectMeta
    spec: PodClaims = PodClaims()
    status: PodClaims = PodClaims()

    @property
    def claim_names(self) -> tuple[str, ...]:
        """Return the names of the pod's existing ResourceClaims."""
        named = (*self.spec.resource_claims, *self.status.resource_claim_statuses)
        return tuple(dict.fromkeys(claim.resource_claim_name for claim in named if claim.resource_claim_name))


class UnscheduledStatus(PodClaims, frozen=True):
    """The status of a pod without a node."""

    conditions: tuple[meta.Condition, ...] = ()


class UnscheduledPod(Pod, frozen=True):
    """A pod without a node, with the scheduler's reason."""

    status: UnscheduledStatus = UnscheduledStatus()

    @property
    def reason(self) -> str:
        """Return the scheduler's message; empty before it has tried."""
        scheduled = meta.find(self.status.conditions, "PodScheduled")
        if scheduled is None or scheduled.is_true:
            return ""
        return cut_preemption(scheduled.message)


def cut_preemption(message: str) -> str:
    """Return the scheduler's message without its part about preemption, which never frees a device."""
    return _PREEMPTION.split(message, maxsplit=1)[0]


class Regarding(meta.Struct, frozen=True):
    """The object of an Event."""

    kind: str = ""
    name: str = ""
    namespace: str = ""


class Event(meta.Struct, frozen=True):
    """An Event; `type` is `Normal` or `Warning`."""

    metadata: meta.ObjectMeta
    type: str = ""
    reason: str = ""
    note: str = ""
    event_time: str | None = None
    regarding: Regarding = Regarding()
    related: Regarding | None = None

    @property
    def namespace(self) -> str:
        """Return the namespace of the object; of a DeviceAttachment's Event, that of its claim."""
        return (self.related or self.regarding).namespace

    @property
    def at(self) -> str:
        """Return the time of the Event, RFC 3339."""
        return self.event_time or self.metadata.creation_timestamp or ""


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """The state read from the cluster. A collection that was not requested, or could not be read, is empty.

    Attributes:
        driver: the name of the DRA driver of the devices.
        wanted: the requested claims, shown even without a device.
        rules: the DeviceTaintRules of any version and driver.
        pods: the pods without a node.
        unlisted: the plural names of the collections that could not be read.
        unread: one sentence with the remedy for each reading that failed.
    """

    driver: str
    fabrics: tuple[Fabric, ...] = ()
    maintenances: tuple[Maintenance, ...] = ()
    slices: tuple[ResourceSlice, ...] = ()
    attachments: tuple[DeviceAttachment, ...] = ()
    claims: tuple[ResourceClaim, ...] = ()
    wanted: tuple[ResourceClaim, ...] = ()
    rules: tuple[DeviceTaintRule, ...] = ()
    pods: tuple[UnscheduledPod, ...] = ()
    unlisted: frozenset[str] = frozenset()
    unread: tuple[str, ...] = ()
