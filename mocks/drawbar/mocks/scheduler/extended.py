"""Extended resources of a DeviceClass: the scheduler's claim for a pod with such limits. Pure.

The claim has one request for each resource of each container. It is made when the pod has a node, and deleted if the
binding fails; unlike other claims it is not deallocated and reused.

Source: KEP-5004, and pkg/scheduler/framework/plugins/dynamicresources/extendeddynamicresources.go of Kubernetes 1.36.
Limits: no nodes with a device plugin for the resource, no init containers, no implicit resource of each class.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from drawbar.mocks.claims import documents
from drawbar.mocks.kube import meta
from drawbar.mocks.scheduler import objects

ANNOTATION = "resource.kubernetes.io/extended-resource-claim"


def claim_for(pod: documents.Document, classes: Iterable[objects.DeviceClass]) -> documents.Document | None:
    """Return the new claim for the pod's extended resources, without a name and with the pod's UID.

    Return None for a pod without resources of a DeviceClass.

    Raises:
        msgspec.ValidationError: an amount is not a number.
    """
    requests = [
        {"name": name, "exactly": {"deviceClassName": owner, "allocationMode": "ExactCount", "count": count}}
        for name, _, _, owner, count in _list_requested_resources(pod, classes)
    ]
    if not requests:
        return None
    owner = meta.OwnerReference(
        api_version="v1", kind="Pod", name=pod.metadata.name, uid=pod.metadata.uid, controller=True
    )
    metadata = meta.ObjectMeta(
        namespace=pod.metadata.namespace,
        uid=pod.metadata.uid,
        annotations={ANNOTATION: "true"},
        owner_references=(owner,),
    )
    return documents.Document(metadata=metadata, spec={"devices": {"requests": requests}})


def body(claim: documents.Document) -> dict[str, Any]:
    """Return the body to create a claim of `claim_for`."""
    (owner,) = claim.metadata.owner_references
    metadata = {
        "generateName": f"{owner.name}-extended-resources-",
        "namespace": claim.metadata.namespace,
        "annotations": claim.metadata.annotations,
        "ownerReferences": [msgspec.to_builtins(owner)],
    }
    return {"metadata": metadata, "spec": claim.spec}


def status(pod: documents.Document, claim: str, classes: Iterable[objects.DeviceClass]) -> dict[str, Any]:
    """Return `status.extendedResourceClaimStatus` of a pod with a claim of that name."""
    mappings = [
        {"containerName": container, "resourceName": resource, "requestName": request}
        for request, container, resource, _, _ in _list_requested_resources(pod, classes)
    ]
    return {"resourceClaimName": claim, "requestMappings": mappings}


def is_for(claim: documents.Document, pod: documents.Document) -> bool:
    """Return true if the claim was made for the extended resources of this pod."""
    return claim.metadata.annotations.get(ANNOTATION) == "true" and documents.is_owned_by(claim, pod)


def _list_requested_resources(
    pod: documents.Document, classes: Iterable[objects.DeviceClass]
) -> list[tuple[str, str, str, str, int]]:
    """Return the request, the container, the resource, the class and the count of each resource of a class."""
    # Of several classes with one resource the newest is used.
    by_age = sorted(classes, key=lambda item: item.metadata.creation_timestamp or "")
    backed = {item.spec.extended_resource_name: item.metadata.name for item in by_age}
    return [
        (f"container-{index}-request-{number}", container["name"], resource, backed[resource], count)
        for index, container in enumerate(pod.spec.get("containers") or ())
        for number, (resource, amount) in enumerate(sorted(_requests(container).items()))
        if resource and resource in backed and (count := msgspec.convert(amount, int, strict=False))
    ]


def _requests(container: dict[str, Any]) -> dict[str, Any]:
    resources = container.get("resources") or {}
    # The API server's defaults.
    return {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
