"""Classic dynamic resource allocation as Kubernetes 1.31 has it.

Source: `resource.k8s.io/v1alpha3` DeviceClass, ResourceClaim, PodSchedulingContext.
"""

from typing import Any

import msgspec

from drawbar.driver.api import claims, classic, demands, handles, meta, parameters

ALL_DEVICES = "All"


class ClassSpec(demands.ClassSpec, frozen=True):
    """What a class stands for."""

    suitable_nodes: claims.NodeSelector | None = None


class DeviceClass(meta.Struct, frozen=True):
    """A class as it is served."""

    metadata: meta.ObjectMeta
    spec: ClassSpec = ClassSpec()


class DeviceClaim(meta.Struct, frozen=True):
    """What is asked for."""

    requests: tuple[demands.Way, ...] = ()
    constraints: tuple[Any, ...] = ()
    config: tuple[claims.AllocatedConfiguration, ...] = ()


class ClaimSpec(meta.Struct, frozen=True):
    """What is asked for, and of whom."""

    devices: DeviceClaim = DeviceClaim()
    controller: str = ""


class AllocationResult(meta.Struct, frozen=True):
    """What was allocated, and by whom."""

    devices: claims.DeviceAllocation = claims.DeviceAllocation()
    node_selector: claims.NodeSelector | None = None
    controller: str = ""


class ClaimStatus(meta.Struct, frozen=True):
    """What became of it."""

    allocation: AllocationResult | None = None
    reserved_for: tuple[claims.Consumer, ...] = ()
    deallocation_requested: bool = False


class ResourceClaim(meta.Struct, frozen=True):
    """A claim as it is served."""

    metadata: meta.ObjectMeta
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()


def claim(found: ResourceClaim, driver: str) -> classic.Claim:
    """The claim; one without a controller is the scheduler's."""
    spec, status, metadata = found.spec, found.status, found.metadata
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
        requests=tuple(_request(one) for one in spec.devices.requests),
        config=_config(spec.devices.config, driver),
        unsupported=tuple(_unsupported(spec.devices)),
        allocation=_allocation(status.allocation, driver),
        reserved_for=status.reserved_for,
        deallocation_requested=status.deallocation_requested,
    )


def device_class(found: DeviceClass, driver: str) -> classic.Class:
    """The class."""
    return classic.Class(
        name=found.metadata.name,
        suitable_nodes=found.spec.suitable_nodes,
        selectors=demands.expressions(found.spec.selectors),
        config=_config(found.spec.config, driver),
    )


def allocated(
    handle: handles.Handle,
    driver: str,
    nothing: tuple[tuple[str, str, str], ...] = (),
    config: tuple[claims.AllocatedConfiguration, ...] = (),
) -> dict[str, Any]:
    """The part of a claim's status that says what it got.

    Args:
        handle: the devices.
        driver: whose.
        nothing: request, pool and name of the null device of those requests that go without.
        config: what class and claim say of the devices, for the node.

    Raises:
        handles.TooLarge: there is no room for so many devices.
    """
    handles.encode(handle)
    given = [(one.request, one.pool, one.device) for one in handle.devices]
    allocation: dict[str, Any] = {
        "controller": driver,
        "devices": {
            "results": [
                {"request": request, "driver": driver, "pool": pool, "device": device}
                for request, pool, device in (*given, *nothing)
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


def freed() -> dict[str, Any]:
    """The part of a claim's status that says that it has nothing, for a merge patch."""
    return {"allocation": None, "deallocationRequested": None}


def _request(found: demands.Way) -> classic.DeviceRequest:
    return classic.DeviceRequest(
        name=found.name,
        class_name=found.device_class_name,
        selectors=demands.expressions(found.selectors),
        count=found.count,
    )


def _config(found: tuple[claims.AllocatedConfiguration, ...], driver: str) -> tuple[classic.Opaque, ...]:
    return tuple(
        classic.Opaque(parameters=one.opaque.parameters, requests=one.requests)
        for one in found
        if one.opaque is not None and one.opaque.driver == driver
    )


def _unsupported(found: DeviceClaim) -> list[str]:
    problems = []
    if found.constraints:
        problems.append("it has constraints between devices")
    if any(request.allocation_mode == ALL_DEVICES for request in found.requests):
        problems.append("it asks for all devices (allocationMode: All)")
    if any(request.admin_access for request in found.requests):
        problems.append("it asks for admin access")
    return problems


def _allocation(found: AllocationResult | None, driver: str) -> classic.Allocation | None:
    if found is None:
        return None
    ours = (
        one.opaque.parameters
        for one in found.devices.config
        if one.opaque is not None and one.opaque.driver == driver and handles.is_handle(one.opaque.parameters)
    )
    content = next(ours, None)
    try:
        handle = handles.recorded(content) if content is not None else None
    except handles.InvalidHandle:
        handle = None
    return classic.Allocation(
        driver=found.controller,
        handle=handle,
        node=claims.Allocation(node_selector=found.node_selector).node,
    )
