"""ResourceClaims from the driver's view: the devices of each claim, their node, and the time of the allocation.

Source: `resource.k8s.io/v1` ResourceClaimStatus.
"""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

import msgspec

from drawbar.driver.api import meta

# A claim's request for immediate allocation, and its preferred node, if any.
MODE_ANNOTATION = "drawbar.dev/allocation-mode"
NODE_ANNOTATION = "drawbar.dev/node"
# The pod's name for a claim made from a template.
POD_CLAIM_ANNOTATION = "resource.kubernetes.io/pod-claim-name"
# The scheduler adds it to the claims it allocates; then these belong to it and to the claim controller.
SCHEDULED = "resource.kubernetes.io/delete-protection"
# Of opaque parameters. Python compares and writes objects of less than about 900 levels.
LEVELS_MAX = 500
NAME_CHARS_MAX = 253
"""The most characters of an object's name, and so of the annotations above."""


class AllocationResult(meta.Struct, frozen=True):
    """One device given to one request.

    Attributes:
        share_id: of a share of the device; None for the whole device.
        consumed_capacity: of such a share, quantities by the name of the capacity.
    """

    request: str
    driver: str
    pool: str
    device: str
    share_id: str | None = msgspec.field(default=None, name="shareID")
    consumed_capacity: dict[str, str] = {}
    admin_access: bool | None = None
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()


class OpaqueConfiguration(meta.Struct, frozen=True):
    """Parameters that only their driver understands; see `api.parameters`.

    Attributes:
        parameters: None if they have more than `LEVELS_MAX` levels.
    """

    driver: str = ""
    parameters: Any = None

    def __post_init__(self) -> None:
        """Leave out an object that was read, but could not be compared or written a few calls deeper."""
        values, levels = [self.parameters], -1
        while values:
            levels += 1
            if levels > LEVELS_MAX:
                msgspec.structs.force_setattr(self, "parameters", None)
                return
            boxes = [
                child.values() if isinstance(child, dict) else child
                for child in values
                if isinstance(child, dict | list)
            ]
            values = list(itertools.chain.from_iterable(boxes))


class AllocatedConfiguration(meta.Struct, frozen=True):
    """Configuration that came with an allocation.

    Attributes:
        source: `FromClass` or `FromClaim`.
        requests: the concerned requests; empty for all of the claim.
    """

    source: str = ""
    requests: tuple[str, ...] = ()
    opaque: OpaqueConfiguration | None = None


def find_own(
    config: Iterable[AllocatedConfiguration], driver: str
) -> Iterator[tuple[AllocatedConfiguration, OpaqueConfiguration]]:
    """Yield the entries for the driver, each with its opaque configuration."""
    for entry in config:
        if entry.opaque is not None and entry.opaque.driver == driver:
            yield entry, entry.opaque


class DeviceAllocation(meta.Struct, frozen=True):
    """The devices of an allocation, in the scheduler's order."""

    results: tuple[AllocationResult, ...] = ()
    config: tuple[AllocatedConfiguration, ...] = ()


class FieldRequirement(meta.Struct, frozen=True):
    """One requirement of a node selector term."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class NodeSelectorTerm(meta.Struct, frozen=True):
    """One alternative of a node selector."""

    match_fields: tuple[FieldRequirement, ...] = ()
    match_expressions: tuple[FieldRequirement, ...] = ()


class NodeSelector(meta.Struct, frozen=True):
    """The allowed nodes of an allocation."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


def one_node(name: str) -> NodeSelector:
    """Return the selector of one node."""
    requirement = FieldRequirement(key="metadata.name", operator="In", values=(name,))
    return NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(requirement,)),))


class Allocation(meta.Struct, frozen=True):
    """The scheduler's decision."""

    devices: DeviceAllocation = DeviceAllocation()
    node_selector: NodeSelector | None = None
    allocation_timestamp: str | None = None

    @property
    def node(self) -> str | None:
        """Return the only node of a `bindsToNode` device, or None if the selector allows several."""
        terms = self.node_selector.node_selector_terms if self.node_selector else ()
        if len(terms) != 1:
            return None
        for requirement in terms[0].match_fields:
            if (requirement.key, requirement.operator) == ("metadata.name", "In") and len(
                requirement.values
            ) == 1:
                return requirement.values[0]
        return None


class Consumer(meta.Struct, frozen=True):
    """The user of a reserved claim."""

    resource: str = ""
    name: str = ""
    uid: str = ""


class AllocatedDevice(meta.Struct, frozen=True):
    """The drivers' reports on one allocated device."""

    driver: str
    pool: str
    device: str
    share_id: str | None = msgspec.field(default=None, name="shareID")
    conditions: tuple[meta.Condition, ...] = ()


class ClaimStatus(meta.Struct, frozen=True):
    """The part of the status that drivers read."""

    allocation: Allocation | None = None
    reserved_for: tuple[Consumer, ...] = ()
    devices: tuple[AllocatedDevice, ...] = ()


class ResourceClaim(meta.Struct, frozen=True):
    """A request for devices and its result.

    Of the metadata, only the fields that Drawbar reads are kept: all claims of the cluster are held in memory, and a
    claim of 1.5 MB can have labels that take 25 MB there.
    """

    ANNOTATIONS: ClassVar[tuple[str, ...]] = (MODE_ANNOTATION, NODE_ANNOTATION)

    metadata: meta.ObjectMeta
    status: ClaimStatus = ClaimStatus()

    @property
    def pod_claim(self) -> str:
        """Return the name of the `PodClaim` in the pod, if the claim was made from a template; else an empty string."""
        return self.metadata.annotations.get(POD_CLAIM_ANNOTATION, "")

    def __post_init__(self) -> None:
        kept = self.metadata
        if kept.labels or kept.annotations or kept.owner_references or kept.finalizers:
            annotations = {
                key: kept.annotations[key][:NAME_CHARS_MAX]
                for key in self.ANNOTATIONS
                if key in kept.annotations
            }
            scheduled = SCHEDULED in kept.finalizers
            bare = msgspec.structs.replace(
                kept,
                labels={},
                annotations=annotations,
                owner_references=(),
                finalizers=(SCHEDULED,) if scheduled else (),
            )
            msgspec.structs.force_setattr(self, "metadata", bare)

    def results(self, driver: str) -> tuple[AllocationResult, ...]:
        """Return the allocated devices of `driver` to attach. Devices with admin access are never attached."""
        if self.status.allocation is None:
            return ()
        return tuple(
            result
            for result in self.status.allocation.devices.results
            if result.driver == driver and not result.admin_access
        )

    def conditions(self, result: AllocationResult) -> tuple[meta.Condition, ...]:
        """Return the current conditions of that device in the claim's status."""
        for device in self.status.devices:
            named = (device.driver, device.pool, device.device, device.share_id)
            if named == (result.driver, result.pool, result.device, result.share_id):
                return device.conditions
        return ()


class PodClaim(ResourceClaim, frozen=True):
    """A claim with its name in the pod."""

    ANNOTATIONS: ClassVar[tuple[str, ...]] = (*ResourceClaim.ANNOTATIONS, POD_CLAIM_ANNOTATION)
