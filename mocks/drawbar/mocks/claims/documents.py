"""Pods, claims and claim templates as the doubles store them: metadata typed, the rest as decoded JSON.

A double writes whole objects back, as the real components do, so no field may be lost: `spec` and `status` stay plain
mappings, and the metadata has every field that an update must contain. Only the functions here know the position of a
value in such a mapping.

Source: Kubernetes API reference, `core/v1` Pod and `resource.k8s.io/v1` ResourceClaim.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from drawbar.mocks.kube import meta

Key = tuple[str, str]
DeviceID = tuple[str, str, str]

PROTECTION_FINALIZER = "resource.kubernetes.io/delete-protection"
POD_CLAIM_ANNOTATION = "resource.kubernetes.io/pod-claim-name"


class Document(meta.Struct, frozen=True, kw_only=True):
    """One API object. `spec` and `status` are as the API server sent them; treat them as read-only."""

    api_version: str = ""
    kind: str = ""
    metadata: meta.ObjectMeta
    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def key(self) -> Key:
        """Return namespace and name."""
        return self.metadata.namespace, self.metadata.name

    @property
    def full_name(self) -> str:
        """Return `namespace/name`, or the name of a cluster-scoped object."""
        return "/".join(part for part in self.key if part)


def is_deleting(document: Document) -> bool:
    """Return whether the object's deletion was requested."""
    return document.metadata.deletion_timestamp is not None


def node_name(pod: Document) -> str:
    """Return the node that the pod is bound to; empty while it is not bound."""
    return str(pod.spec.get("nodeName") or "")


def is_finished(pod: Document) -> bool:
    """Return whether all containers of the pod have ended."""
    return pod.status.get("phase") in {"Succeeded", "Failed"}


def is_done(pod: Document) -> bool:
    """Return whether no container of the pod runs or ever will: it is finished, or was deleted before it was bound."""
    return is_finished(pod) or (is_deleting(pod) and not node_name(pod))


def allocation(claim: Document) -> dict[str, Any] | None:
    """Return `status.allocation`, or None."""
    return claim.status.get("allocation") or None


def results(claim: Document) -> list[dict[str, Any]]:
    """Return the allocated devices, in the order of the allocation."""
    devices: dict[str, Any] = (allocation(claim) or {}).get("devices") or {}
    return list(devices.get("results") or ())


def devices(claim: Document) -> Iterator[DeviceID]:
    """Yield the devices that the claim holds exclusively; devices with admin access are left out."""
    for result in results(claim):
        if not result.get("adminAccess"):
            yield result["driver"], result["pool"], result["device"]


def reserved_for(claim: Document) -> list[dict[str, Any]]:
    """Return `status.reservedFor`."""
    return list(claim.status.get("reservedFor") or ())


def is_reserved_for(claim: Document, pod: Document) -> bool:
    """Return whether the claim is reserved for the pod, by uid."""
    return any(consumer.get("uid") == pod.metadata.uid for consumer in reserved_for(claim))


def pod_claims(pod: Document) -> Iterator[tuple[str, str | None, str | None]]:
    """Yield for each entry of `spec.resourceClaims`: its name, the claim's name, the template's name.

    The claim's name is None while no claim was made from a template yet, and the empty string if the claim controller
    recorded that none is needed. Until 1.30 an entry has the two names in `source`.
    """
    recorded = {
        status["name"]: str(status.get("resourceClaimName") or "")
        for status in pod.status.get("resourceClaimStatuses") or ()
    }
    for entry in pod.spec.get("resourceClaims") or ():
        source = entry.get("source") or entry
        template = source.get("resourceClaimTemplateName")
        name = recorded.get(entry["name"]) if template else source.get("resourceClaimName")
        yield entry["name"], name, template


def extended_claim(pod: Document) -> tuple[str, list[dict[str, str]]]:
    """Return the name of the claim for the pod's extended resources, empty if it has none, and its request mappings."""
    recorded = pod.status.get("extendedResourceClaimStatus") or {}
    return str(recorded.get("resourceClaimName") or ""), list(recorded.get("requestMappings") or ())


def owning_pod(claim: Document) -> meta.OwnerReference | None:
    """Return the owner reference of the pod that controls a claim made from a template, or None."""
    owners = (owner for owner in claim.metadata.owner_references if owner.kind == "Pod" and owner.controller)
    return next(owners, None)


def is_owned_by(claim: Document, pod: Document) -> bool:
    """Return whether the claim was made for this pod (by uid)."""
    owner = owning_pod(claim)
    return owner is not None and owner.uid == pod.metadata.uid


def with_finalizers(document: Document, finalizers: tuple[str, ...]) -> dict[str, Any]:
    """Return the merge patch that gives just this object other finalizers.

    Nothing else is written: opaque parameters may hold text that only an API server in Go writes as it reads it.
    """
    metadata = document.metadata
    version = {"uid": metadata.uid, "resourceVersion": metadata.resource_version}
    return {"metadata": version | {"finalizers": list(finalizers)}}


def with_spec(document: Document, spec: dict[str, Any]) -> Document:
    """Return the object with another `spec`."""
    return msgspec.structs.replace(document, spec=spec)


def with_status(document: Document, **changes: Any) -> Document:
    """Return the object with some fields of `status` replaced; None removes a field."""
    status = {**document.status, **changes}
    kept = {name: value for name, value in status.items() if value is not None}
    return msgspec.structs.replace(document, status=kept)
