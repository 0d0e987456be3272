"""Classic dynamic resource allocation of Kubernetes 1.27 to 1.30.

Source: `resource.k8s.io/v1alpha2` ResourceClass, ResourceClaim, PodSchedulingContext.
"""

from typing import Any

import msgspec

from drawbar.driver.api import claims, classic, handles, meta

IMMEDIATE = "Immediate"


class Reference(meta.Struct, frozen=True):
    """The place of parameters; those of a claim are in its own namespace."""

    api_group: str = ""
    kind: str = ""
    name: str = ""
    namespace: str = ""


class ResourceClass(meta.Struct, frozen=True):
    """The driver of the allocating controller, the parameters, and the nodes of a class."""

    metadata: meta.ObjectMeta
    driver_name: str = ""
    parameters_ref: Reference | None = None
    suitable_nodes: claims.NodeSelector | None = None
    structured_parameters: bool | None = None


class ClaimSpec(meta.Struct, frozen=True):
    """The request."""

    resource_class_name: str = ""
    parameters_ref: Reference | None = None
    allocation_mode: str = ""


class ResourceHandle(meta.Struct, frozen=True):
    """The data for one driver's kubelet plugin."""

    driver_name: str = ""
    data: str = ""


class AllocationResult(meta.Struct, frozen=True):
    """The allocation."""

    resource_handles: tuple[ResourceHandle, ...] = ()
    available_on_nodes: claims.NodeSelector | None = None


class ClaimStatus(meta.Struct, frozen=True):
    """The outcome."""

    driver_name: str = ""
    allocation: AllocationResult | None = None
    reserved_for: tuple[claims.Consumer, ...] = ()
    deallocation_requested: bool = False


class ResourceClaim(meta.Struct, frozen=True):
    """A claim as it is served."""

    metadata: meta.ObjectMeta
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()


def claim(document: ResourceClaim, driver: str) -> classic.Claim:
    """Read a claim; its class names the driver that it is for."""
    spec, status, metadata = document.spec, document.status, document.metadata
    return classic.Claim(
        version=classic.Version.V1ALPHA2,
        name=classic.Name(namespace=metadata.namespace, name=metadata.name),
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        finalizer=classic.finalizer(driver),
        created=metadata.creation_timestamp or "",
        finalizers=metadata.finalizers,
        deleting=metadata.deletion_timestamp is not None,
        owner_uids=tuple(owner.uid for owner in metadata.owner_references),
        class_name=spec.resource_class_name,
        parameters=_reference(spec.parameters_ref, metadata.namespace),
        immediate=spec.allocation_mode == IMMEDIATE,
        allocation=_allocation(status, driver),
        reserved_for=status.reserved_for,
        deallocation_requested=status.deallocation_requested,
    )


def resource_class(document: ResourceClass) -> classic.Class:
    """Read a class; one with structured parameters is allocated by the scheduler, and so no driver's."""
    return classic.Class(
        name=document.metadata.name,
        driver="" if document.structured_parameters else document.driver_name,
        parameters=_reference(document.parameters_ref, document.parameters_ref.namespace)
        if document.parameters_ref is not None
        else None,
        suitable_nodes=document.suitable_nodes,
    )


def build_allocation(handle: handles.Handle, driver: str, *, shareable: bool) -> dict[str, Any]:
    """Return the allocation, as part of a claim's status.

    Raises:
        handles.TooLarge: there is no room for so many devices.
    """
    allocation: dict[str, Any] = {
        "resourceHandles": [{"driverName": driver, "data": handles.encode(handle)}],
        "shareable": shareable,
    }
    if handle.node:
        allocation["availableOnNodes"] = msgspec.to_builtins(claims.one_node(handle.node))
    return {"driverName": driver, "allocation": allocation}


def build_deallocation() -> dict[str, Any]:
    """Return the part of a claim's status without an allocation, for a merge patch."""
    return {"driverName": None, "allocation": None, "deallocationRequested": None}


def _reference(reference: Reference | None, namespace: str) -> classic.ParametersReference | None:
    if reference is None:
        return None
    return classic.ParametersReference(
        api_group=reference.api_group, kind=reference.kind, name=reference.name, namespace=namespace
    )


def _allocation(status: ClaimStatus, driver: str) -> classic.Allocation | None:
    if status.allocation is None:
        return None
    result = status.allocation
    data = next((handle.data for handle in result.resource_handles if handle.driver_name == driver), None)
    try:
        handle = handles.decode(data) if data else None
    except handles.InvalidHandle:
        handle = None
    return classic.Allocation(
        driver=status.driver_name,
        handle=handle,
        node=claims.Allocation(node_selector=result.available_on_nodes).node,
    )
