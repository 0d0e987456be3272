"""Classic dynamic resource allocation of Kubernetes 1.31.

Source: `resource.k8s.io/v1alpha3` DeviceClass, ResourceClaim, PodSchedulingContext.
"""

from typing import Any

import msgspec

from drawbar.driver.api import claims, classic, demands, handles, meta, parameters

ALL_DEVICES = "All"


class ClassSpec(demands.ClassSpec, frozen=True):
    """The definition of a class."""

    suitable_nodes: claims.NodeSelector | None = None


class DeviceClass(meta.Struct, frozen=True):
    """A class as it is served."""

    metadata: meta.ObjectMeta
    spec: ClassSpec = ClassSpec()


class DeviceClaim(meta.Struct, frozen=True):
    """The requests."""

    requests: tuple[demands.Way, ...] = ()
    constraints: tuple[Any, ...] = ()
    config: tuple[claims.AllocatedConfiguration, ...] = ()


class ClaimSpec(meta.Struct, frozen=True):
    """The requests, and the driver of the allocating controller."""

    devices: DeviceClaim = DeviceClaim()
    controller: str = ""


class AllocationResult(meta.Struct, frozen=True):
    """The allocation, and the driver of its controller."""

    devices: claims.DeviceAllocation = claims.DeviceAllocation()
    node_selector: claims.NodeSelector | None = None
    controller: str = ""


class ClaimStatus(meta.Struct, frozen=True):
    """The outcome."""

    allocation: AllocationResult | None = None
    reserved_for: tuple[claims.Consumer, ...] = ()
    deallocation_requested: bool = False


class ResourceClaim(meta.Struct, frozen=True):
    """A claim as it is served."""

    metadata: meta.ObjectMeta
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()


def claim(document: ResourceClaim, driver: str) -> classic.Claim:
    """Read a claim; one without a controller is the scheduler's."""
    spec, status, metadata = document.spec, document.status, document.metadata
    return classic.Claim(
        version=classic.Version.V1ALPHA3,
        name=classic.Name(namespace=metadata.namespace, name=metadata.name),
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        finalizer=classic.finalizer(driver),
        created=metadata.creation_timestamp or "",
        finalizers=metadata.finalizers,
        deleting=metadata.deletion_timestamp is not None,
        owner_uids=tuple(owner.uid for owner in metadata.owner_references),
        controller=spec.controller,
        requests=tuple(_request(request) for request in spec.devices.requests),
        config=_config(spec.devices.config, driver),
        unsupported=tuple(_list_unsupported(spec.devices)),
        allocation=_allocation(status.allocation, driver),
        reserved_for=status.reserved_for,
        deallocation_requested=status.deallocation_requested,
    )


def device_class(document: DeviceClass, driver: str) -> classic.Class:
    """Read a class."""
    return classic.Class(
        name=document.metadata.name,
        suitable_nodes=document.spec.suitable_nodes,
        selectors=demands.expressions(document.spec.selectors),
        config=_config(document.spec.config, driver),
    )


def build_allocation(
    handle: handles.Handle,
    driver: str,
    nothing: tuple[tuple[str, str, str], ...] = (),
    config: tuple[claims.AllocatedConfiguration, ...] = (),
) -> dict[str, Any]:
    """Return the allocation, as part of a claim's status.

    Args:
        handle: the devices.
        driver: its name.
        nothing: request, pool and name of the null device of those requests that go without.
        config: of class and claim, for the node.

    Raises:
        handles.TooLarge: there is no room for so many devices.
    """
    handles.encode(handle)
    allocated = [(device.request, device.pool, device.device) for device in handle.devices]
    allocation: dict[str, Any] = {
        "controller": driver,
        "devices": {
            "results": [
                {"request": request, "driver": driver, "pool": pool, "device": device}
                for request, pool, device in (*allocated, *nothing)
            ],
            "config": [
                {
                    "source": parameters.Source.CLAIM.value,
                    "opaque": {"driver": driver, "parameters": handles.document(handle)},
                },
                *msgspec.to_builtins(config),
            ],
        },
    }
    if handle.node:
        allocation["nodeSelector"] = msgspec.to_builtins(claims.one_node(handle.node))
    return {"allocation": allocation}


def build_deallocation() -> dict[str, Any]:
    """Return the part of a claim's status without an allocation, for a merge patch."""
    return {"allocation": None, "deallocationRequested": None}


def _request(way: demands.Way) -> classic.DeviceRequest:
    return classic.DeviceRequest(
        name=way.name,
        class_name=way.device_class_name,
        selectors=demands.expressions(way.selectors),
        count=way.count,
    )


def _config(config: tuple[claims.AllocatedConfiguration, ...], driver: str) -> tuple[classic.Opaque, ...]:
    return tuple(
        classic.Opaque(parameters=opaque.parameters, requests=entry.requests)
        for entry, opaque in claims.find_own(config, driver)
    )


def _list_unsupported(claim: DeviceClaim) -> list[str]:
    problems = []
    if claim.constraints:
        problems.append("it has constraints between devices")
    if any(request.allocation_mode == ALL_DEVICES for request in claim.requests):
        problems.append("it asks for all devices (allocationMode: All)")
    if any(request.admin_access for request in claim.requests):
        problems.append("it asks for admin access")
    return problems


def _allocation(result: AllocationResult | None, driver: str) -> classic.Allocation | None:
    if result is None:
        return None
    ours = (
        entry.opaque.parameters
        for entry in result.devices.config
        if entry.opaque is not None
        and entry.opaque.driver == driver
        and handles.is_handle(entry.opaque.parameters)
    )
    content = next(ours, None)
    try:
        handle = handles.from_document(content) if content is not None else None
    except handles.InvalidHandle:
        handle = None
    return classic.Allocation(
        driver=result.controller,
        handle=handle,
        node=claims.Allocation(node_selector=result.node_selector).node,
    )
