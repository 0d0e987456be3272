"""The versions of `resource.k8s.io` that the doubles support, and the differences between their claims. Pure.

In `v1` the scheduler itself allocates. In `v1alpha2` (1.27 to 1.30) and `v1alpha3` (1.31) the controller of a resource
driver may do so instead, directed by a PodSchedulingContext ("classic" DRA).

Source: Kubernetes API reference of 1.30 and 1.31; KEP-3063.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from drawbar.mocks.claims import documents
from drawbar.mocks.kube import kinds


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One version.

    Attributes:
        version: its name.
        claim: ResourceClaim.
        template: ResourceClaimTemplate.
        context: PodSchedulingContext; None where the scheduler alone allocates.
        class_kind: ResourceClass, or DeviceClass.
        class_words: the name of the class in the scheduler's messages.
    """

    version: str
    claim: kinds.Kind
    template: kinds.Kind
    class_kind: kinds.Kind
    class_words: str = "device class"
    context: kinds.Kind | None = None


MODERN = Dialect(
    version="v1", claim=kinds.CLAIM, template=kinds.CLAIM_TEMPLATE, class_kind=kinds.DEVICE_CLASS
)
V1ALPHA3 = Dialect(
    version="v1alpha3",
    claim=kinds.CLASSIC_CLAIMS["v1alpha3"],
    template=dataclasses.replace(kinds.CLAIM_TEMPLATE, version="v1alpha3"),
    class_kind=kinds.CLASSIC_DEVICE_CLASS,
    context=kinds.SCHEDULING_CONTEXTS["v1alpha3"],
)
V1ALPHA2 = Dialect(
    version="v1alpha2",
    claim=kinds.CLASSIC_CLAIMS["v1alpha2"],
    template=dataclasses.replace(kinds.CLAIM_TEMPLATE, version="v1alpha2"),
    class_kind=kinds.RESOURCE_CLASS,
    class_words="resource class",
    context=kinds.SCHEDULING_CONTEXTS["v1alpha2"],
)
CLASSIC = (V1ALPHA3, V1ALPHA2)


def is_delayed(claim: documents.Document) -> bool:
    """Return whether the claim is allocated when a pod uses it, instead of immediately (`v1alpha2` only)."""
    return claim.spec.get("allocationMode") != "Immediate"


def is_allocated_by_scheduler(claim: documents.Document, dialect: Dialect) -> bool:
    """Return whether the scheduler, and no driver's controller, made the allocation of an allocated claim.

    The sign is the finalizer in `v1alpha2`, and the allocation itself in `v1alpha3`.
    """
    if dialect.version == "v1alpha2":
        return documents.PROTECTION_FINALIZER in claim.metadata.finalizers
    return not (documents.allocation(claim) or {}).get("controller")


def is_open(claim: documents.Document, dialect: Dialect) -> bool:
    """Return whether a further pod may reserve an allocated claim."""
    if dialect.version != "v1alpha2":
        return True
    return bool((documents.allocation(claim) or {}).get("shareable")) or not documents.reserved_for(claim)


def is_to_be_deallocated(claim: documents.Document) -> bool:
    """Return whether the claim's driver was requested to deallocate it."""
    return bool(claim.status.get("deallocationRequested"))


def usable_on(claim: documents.Document) -> dict[str, Any] | None:
    """Return the node selector of an allocated claim; None if it is usable on every node."""
    allocation = documents.allocation(claim) or {}
    return allocation.get("availableOnNodes") or allocation.get("nodeSelector")


def classes_of(claim: documents.Document) -> Sequence[tuple[str, str]]:
    """Return the requested classes of a claim, each with the name of its request (empty in `v1alpha2`)."""
    if "resourceClassName" in claim.spec:
        return (("", str(claim.spec["resourceClassName"])),)
    requests = (claim.spec.get("devices") or {}).get("requests") or ()
    return tuple((str(request["name"]), str(request.get("deviceClassName") or "")) for request in requests)


def context_body(pod: documents.Document, kind: kinds.Kind, spec: dict[str, Any]) -> dict[str, Any]:
    """Return a new PodSchedulingContext for a pod; `kind` is that of the dialect."""
    owner = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": pod.metadata.name,
        "uid": pod.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {
            "name": pod.metadata.name,
            "namespace": pod.metadata.namespace,
            "ownerReferences": [owner],
        },
        "spec": spec,
    }
