"""The parts of slices and claims that decide the effects of a DeviceTaintRule.

Tolerations are read from the allocation, as in the cluster's eviction controller.

Source: `resource.k8s.io/v1` ResourceClaim; pkg/controller/devicetainteviction of Kubernetes 1.36.
"""

from collections.abc import Iterable

import msgspec

from drawbar.driver.api import claims, meta, slices
from drawbar.driver.cli import podgroups

EXTENDED_RESOURCE = "resource.kubernetes.io/extended-resource-claim"
"""The annotation of a claim that the scheduler made for a pod with an extended resource."""


class Toleration(meta.Struct, frozen=True):
    """A taint that a request tolerates."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class Result(meta.Struct, frozen=True):
    """One allocated device."""

    driver: str
    pool: str
    device: str
    tolerations: tuple[Toleration, ...] = ()


class Devices(meta.Struct, frozen=True):
    """The devices of an allocation."""

    results: tuple[Result, ...] = ()


class Allocation(meta.Struct, frozen=True):
    """The scheduler's decision."""

    devices: Devices = Devices()


class ClaimStatus(meta.Struct, frozen=True):
    """The status of a claim."""

    allocation: Allocation | None = None
    reserved_for: tuple[claims.Consumer, ...] = ()


class Claim(meta.Struct, frozen=True):
    """A ResourceClaim."""

    metadata: meta.ObjectMeta
    status: ClaimStatus = ClaimStatus()

    @property
    def results(self) -> tuple[Result, ...]:
        """Return the allocated devices."""
        return self.status.allocation.devices.results if self.status.allocation is not None else ()

    @property
    def pods(self) -> tuple[claims.Consumer, ...]:
        """Return the pods that the claim is reserved for."""
        return tuple(consumer for consumer in self.status.reserved_for if consumer.resource == "pods")

    @property
    def is_of_extended_resource(self) -> bool:
        """Return whether the scheduler made the claim for an extended resource."""
        return EXTENDED_RESOURCE in self.metadata.annotations


class Pod(meta.Struct, frozen=True):
    """A pod with its PodGroup."""

    metadata: meta.ObjectMeta
    spec: podgroups.Grouped = podgroups.Grouped()


def resolve_pods(claim: Claim, pods: Iterable[Pod]) -> Claim:
    """Return the claim with the pods of its PodGroups in place of the groups."""
    reserved = claim.status.reserved_for
    groups = [consumer for consumer in reserved if consumer.resource == podgroups.RESOURCE]
    if not groups:
        return claim
    members = [
        claims.Consumer(resource="pods", name=pod.metadata.name, uid=pod.metadata.uid)
        for pod in pods
        if pod.metadata.namespace == claim.metadata.namespace
        and any(podgroups.is_user(group, pod.metadata, pod.spec) for group in groups)
    ]
    rest = [consumer for consumer in reserved if consumer not in groups]
    return msgspec.structs.replace(
        claim, status=msgspec.structs.replace(claim.status, reserved_for=(*rest, *members))
    )


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """All slices and all claims of the cluster, at about the same moment.

    Attributes:
        unread: the number of slices and claims that cannot be read.
    """

    slices: tuple[slices.ResourceSlice, ...]
    claims: tuple[Claim, ...]
    unread: int = 0
