"""What a handle allocates, as the allocation that every other part of the node daemon knows; pure.

The kubelets of 1.26 to 1.30 pass the handle with a call, and a claim of `v1alpha2` holds it; nothing else says which
devices there are. A request that goes without a device has the null device of the node, which is nobody's alone.
"""

import msgspec

from drawbar.driver.api import claims, handles, meta, nodepools
from drawbar.driver.node import errors


def decoded(data: str, where: str) -> handles.Handle:
    """The handle that a controller wrote.

    Args:
        data: as it wrote it.
        where: the claim, for people.

    Raises:
        errors.PrepareError: it is none.
    """
    size = len(data.encode())
    if size > handles.DATA_BYTES:
        raise _wrong(where, f"it has {size} bytes, and an allocation has room for {handles.DATA_BYTES}")
    if not data:
        raise _wrong(where, "it is empty")
    try:
        return handles.decode(data)
    except handles.InvalidHandle as error:
        raise _wrong(where, str(error)) from error


def for_node(handle: handles.Handle, where: str, node_name: str) -> handles.Handle:
    """The same, if it is for this node, or for any.

    Raises:
        errors.PrepareError: it is for another.
    """
    if handle.node and handle.node != node_name:
        raise _wrong(where, f"it is for node {handle.node}, and this is {node_name}")
    return handle


def allocation(handle: handles.Handle, driver: str, node_name: str) -> claims.Allocation:
    """The devices of the handle, and those requests that go without one."""
    given = [(one.request, one.pool, one.device, None) for one in handle.devices]
    # Nobody's alone, so each has a share of it.
    without = [(*one, one[0]) for one in nodepools.without(handle.without, node_name)]
    return claims.Allocation(
        devices=claims.DeviceAllocation(
            results=tuple(
                claims.AllocationResult(
                    request=request, driver=driver, pool=pool, device=device, share_id=share
                )
                for request, pool, device, share in (*given, *without)
            )
        ),
        allocation_timestamp=handle.allocated_at or None,
    )


def claim(
    metadata: meta.ObjectMeta, handle: handles.Handle, driver: str, node_name: str
) -> claims.ResourceClaim:
    """A claim that is allocated so."""
    return claims.ResourceClaim(
        metadata=metadata, status=claims.ClaimStatus(allocation=allocation(handle, driver, node_name))
    )


def understood(found: claims.ResourceClaim, node_name: str) -> claims.ResourceClaim:
    """A claim of `v1alpha3` as one of `v1` would be.

    The handle among its configuration says what its results say, and is no parameter. The null device has shares.
    """
    allocation = found.status.allocation
    if allocation is None:
        return found
    devices = claims.DeviceAllocation(
        results=tuple(_shared(one, node_name) for one in allocation.devices.results),
        config=tuple(
            one
            for one in allocation.devices.config
            if one.opaque is None or not handles.is_handle(one.opaque.parameters)
        ),
    )
    status = msgspec.structs.replace(
        found.status, allocation=msgspec.structs.replace(allocation, devices=devices)
    )
    return msgspec.structs.replace(found, status=status)


def _shared(result: claims.AllocationResult, node_name: str) -> claims.AllocationResult:
    if result.device != nodepools.NULL_DEVICE or not nodepools.is_pool(result.pool, node_name):
        return result
    return msgspec.structs.replace(result, share_id=result.share_id or result.request)


def _wrong(where: str, why: str) -> errors.PrepareError:
    return errors.PrepareError(
        f"the resource handle of {where} cannot be used: {why}; delete the pod, and let the claim be allocated anew by "
        f"a controller of this driver",
        reason=errors.HANDLE_WRONG,
    )
