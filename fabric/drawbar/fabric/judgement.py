"""Decisions about requests and their outcomes, from a fabric's current state; pure.

They serve adapters that read back their changes. The invariant: no operation begins for a device at another host or
with an operation in flight, nor on a port in use; and no memory is in two slices.
"""

import hashlib
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from typing import TypeVar

from drawbar.fabric import contract, errors

Connecting = contract.AttachRequest | contract.DetachRequest
Slicing = contract.CreateSliceRequest | contract.DeleteSliceRequest
Request = Connecting | Slicing
Value = TypeVar("Value")
Host = TypeVar("Host")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stay:
    """No operation: the device is where it should be, or gone if it should be."""

    device_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """A new operation.

    Attributes:
        device_id: the device, chosen if the request names a model. If the fabric chooses, a free device of the model
            that is reserved for the operation. For a creation, the carved device.
        port_id: the port to connect or free; empty for hosts without ports and for slices.
        fabric_chooses: whether the device becomes known only at the end.
    """

    device_id: str
    port_id: str = ""
    fabric_chooses: bool = False


def operation_id(request_id: str, *, prefix: str) -> str:
    """Return the id of the operation that a request begins: the same in every life of the adapter."""
    return f"{prefix}-{hashlib.sha256(request_id.encode()).hexdigest()[:24]}"


def is_for(request: contract.AttachRequest, device: contract.Device) -> bool:
    """Return whether the request asks for this device, by id or by model; a model never matches a slice."""
    if request.device_id is None:
        return device.model == request.model and device.slice_of is None
    return device.id == request.device_id


def has_made(request: Request, device: contract.Device) -> bool:
    """Return whether the device's current state is the result of the request with this id."""
    match request:
        case contract.AttachRequest():
            connection = device.connection
            return (
                connection is not None
                and connection.request_id == request.request_id
                and connection.host_id == request.host_id
                and is_for(request, device)
            )
        case contract.CreateSliceRequest():
            made = device.slice_of
            return (
                made is not None
                and made.request_id == request.request_id
                and made.origin_id == request.device_id
                and device.memory_bytes == request.memory_bytes
            )
    return False


def build_reuse_error(request: Request) -> errors.AlreadyExists:
    """Return the error of a request id that was used for another request."""
    return errors.AlreadyExists(f'the request id "{request.request_id}" was used for another request')


def unknown(error: errors.FabricError) -> errors.FabricError:
    """Return the same error with `side_effects_unknown`."""
    return errors.BY_CODE[error.code](
        error.message,
        reason=error.reason,
        retryable=error.retryable,
        side_effects_unknown=True,
        host_id=error.host_id,
        vendor=error.vendor,
    )


def attach(
    request: contract.AttachRequest,
    devices: Mapping[str, contract.Device],
    hosts: Mapping[str, Host],
    *,
    busy: Set[str],
    choose_port: Callable[[contract.Device, Host], str],
    reaches: Callable[[Host, contract.Device], bool] | None = None,
    fabric_chooses: bool = False,
) -> Stay | Begin:
    """Return the decision on an attach.

    Args:
        request: without problems of its own.
        devices: all of the fabric, as listed now.
        hosts: all of the fabric, by id, in their current state.
        busy: the devices with an operation in flight.
        choose_port: returns the id of the port for a free device, or raises; such as `free_port`.
        reaches: returns whether the device can go to the host; None for `contract.Host.reaches`.
        fabric_chooses: whether the fabric takes no device by name.

    Raises:
        FabricError: it is refused, as `FabricAdapter.attach` says.
    """
    host = _entry(hosts, request.host_id, "host")
    if fabric_chooses and request.device_id is not None:
        raise errors.Unimplemented("the fabric chooses the device itself; attach by model")
    has_way = reaches or _reaches
    device = _select_device(request, devices, busy, lambda device: has_way(host, device))
    _check_idle(device.id, busy)
    if request.expected_etag not in {None, device.etag}:
        raise errors.Aborted(
            f"device {device.id} changed since it was read; read it again", reason=errors.Reason.STALE_ETAG
        )
    connection = device.connection
    if connection is None:
        if not has_way(host, device):
            raise unreachable(device.id, request.host_id)
        if device.id in contract.find_carved(devices.values()):
            raise errors.FailedPrecondition(
                f"device {device.id} is attached only in chunks; attach one of these",
                reason=errors.Reason.CARVED,
            )
        port_id = choose_port(device, host)
        return Begin(device_id=device.id, port_id=port_id, fabric_chooses=fabric_chooses)
    if connection.host_id == request.host_id and connection.mark in {None, request.mark}:
        return Stay(device_id=device.id)
    port = f", port {connection.port_id}" if connection.port_id else ""
    raise errors.FailedPrecondition(
        f"device {device.id} is attached to host {connection.host_id}{port}; detach it there first",
        reason=errors.Reason.IN_USE,
        host_id=connection.host_id,
    )


def _reaches(host: object, device: contract.Device) -> bool:
    return not isinstance(host, contract.Host) or host.reaches(device)


def unreachable(device_id: str, host_id: str) -> errors.FailedPrecondition:
    """Return the error of an attach to a host without a common reachability group."""
    return errors.FailedPrecondition(
        f"host {host_id} cannot have device {device_id}: the fabric does not connect them; choose another host",
        reason=errors.Reason.INCOMPATIBLE,
        host_id=host_id,
    )


def free_port(device: contract.Device, host: contract.Host) -> str:
    """Return the first free port of the host; empty if the host lists none.

    A port of an operation in flight must be listed as used.

    Raises:
        ResourceExhausted: NO_FREE_PORT.
    """
    if not host.ports:
        return ""
    free = next((port.id for port in host.ports if port.state is contract.PortState.FREE), None)
    if free is None:
        raise errors.ResourceExhausted(
            f"host {host.id} has no free port for device {device.id}; detach another device there first",
            reason=errors.Reason.NO_FREE_PORT,
            host_id=host.id,
        )
    return free


def detach(
    request: contract.DetachRequest,
    devices: Mapping[str, contract.Device],
    hosts: Mapping[str, object],
    *,
    busy: Set[str],
) -> Stay | Begin:
    """Return the decision on a detach, for an adapter without `force_detach`; the arguments as in `attach`.

    Raises:
        FabricError: it is refused, as `FabricAdapter.detach` says.
    """
    _entry(hosts, request.host_id, "host")
    device = _entry(devices, request.device_id, "device")
    _check_idle(device.id, busy)
    if request.force:
        raise errors.Unimplemented(
            "this fabric takes no device from a host by force; power the host off instead"
        )
    if device.connection is None or device.connection.host_id != request.host_id:
        return Stay(device_id=device.id)
    if not request.host_prepared:
        raise errors.FailedPrecondition(
            f"host {request.host_id} has not released device {device.id}; prepare the host",
            reason=errors.Reason.NOT_PREPARED,
            host_id=request.host_id,
        )
    return Begin(device_id=device.id, port_id=device.connection.port_id or "")


def create_slice(
    request: contract.CreateSliceRequest, devices: Mapping[str, contract.Device], *, busy: Set[str]
) -> Begin:
    """Return the decision on a creation without a visible slice; the arguments as in `attach`.

    Raises:
        FabricError: it is refused, as `FabricAdapter.create_slice` says.
    """
    origin = _entry(devices, request.device_id, "device")
    _check_idle(origin.id, busy)
    if origin.carving is None:
        raise errors.InvalidArgument(f"device {origin.id} cannot be carved; name one that can")
    if request.memory_bytes % origin.carving.step_bytes:
        raise errors.InvalidArgument(
            f"a slice of device {origin.id} has a multiple of {origin.carving.step_bytes} bytes, "
            f"and not {request.memory_bytes}"
        )
    _check_free(origin)
    if request.memory_bytes > origin.carving.free_bytes:
        raise errors.ResourceExhausted(
            f"device {origin.id} has {origin.carving.free_bytes} bytes left, and {request.memory_bytes} were asked for",
            reason=errors.Reason.NO_CAPACITY,
        )
    return Begin(device_id=origin.id)


def delete_slice(
    request: contract.DeleteSliceRequest, devices: Mapping[str, contract.Device], *, busy: Set[str]
) -> Stay | Begin:
    """Return the decision on a deletion; the arguments as in `attach`.

    Raises:
        FabricError: it is refused, as `FabricAdapter.delete_slice` says.
    """
    device = devices.get(request.device_id)
    if device is None:
        return Stay(device_id=request.device_id)
    _check_idle(device.id, busy)
    if device.slice_of is None:
        raise errors.InvalidArgument(f"device {device.id} is no slice, so it cannot be deleted")
    _check_free(device)
    return Begin(device_id=device.id)


def verify(
    request: Request,
    device: contract.Device | None,
    error: errors.FabricError | None,
    *,
    shows_requests: bool = False,
    is_whole: bool = True,
) -> errors.FabricError | None:
    """Return the error of a finished operation, or None. The fabric's state counts more than its answer, either way.

    If every connection shows its request, one without a request belongs to another client. If a part of the fabric
    could not be read, a missing device may be attached: then the answer counts.

    Args:
        request: of the operation.
        device: the operation's device in its current state; None if it is not listed. For a creation, the slice with
            the request.
        error: of the answer.
        shows_requests: see `works.Works`.
        is_whole: see `History`.
    """
    is_hidden = device is None and not is_whole
    if error is not None and (error.reason == errors.Reason.OTHERS_LOST or is_hidden):
        # The other outcomes of this device, also those that cannot be seen.
        return error
    missing = _not_read if is_hidden else _not_shown
    connection = None if device is None else device.connection
    match request:
        case contract.AttachRequest():
            if device is not None and connection is not None and connection.host_id == request.host_id:
                is_unsigned = connection.request_id is None and not shows_requests
                if is_unsigned or connection.request_id == request.request_id:
                    return None
                return errors.FailedPrecondition(
                    f"device {device.id} was attached to the same host by another request meanwhile",
                    reason=errors.Reason.IN_USE,
                    host_id=connection.host_id,
                )
            return error or missing(f"device {request.device_id or request.model}")
        case contract.DetachRequest():
            if connection is None or connection.host_id != request.host_id:
                return None
            return error or _stays(f"device {request.device_id} is still attached")
        case contract.CreateSliceRequest():
            return None if device is not None else error or missing(f"the slice of {request.device_id}")
        case contract.DeleteSliceRequest():
            return None if device is None else error or _stays(f"the slice {device.id} is still there")


def _not_shown(what: str) -> errors.Unavailable:
    return errors.Unavailable(
        f"the fabric accepted {what} and does not show it; read the fabric again, and if it stays so, ask the "
        f"fabric manager's operator",
        reason="NOT_SHOWN",
    )


def _not_read(what: str) -> errors.Unavailable:
    return errors.Unavailable(
        f"the fabric accepted {what}, and a part of it that cannot be read may hide the result; see the oddities of the fabric "
        "(drawbar fabric check), then list the devices",
        reason="NOT_READ",
        side_effects_unknown=True,
    )


def _stays(what: str) -> errors.Unavailable:
    return errors.Unavailable(
        f"the fabric accepted the request, and {what}; try again, and if it stays so, ask the fabric manager's operator"
    )


def _entry(values: Mapping[str, Value], name: str, kind: str) -> Value:
    if name not in values:
        raise errors.NotFound(f'the fabric has no {kind} "{errors.cut(name, contract.STRING_BYTES)}"')
    return values[name]


def _select_device(
    request: contract.AttachRequest,
    devices: Mapping[str, contract.Device],
    busy: Set[str],
    is_reached: Callable[[contract.Device], bool],
) -> contract.Device:
    """Return the named device, or the first free one of the model that the host can reach."""
    if request.device_id is not None:
        return _entry(devices, request.device_id, "device")
    models = [device for device in devices.values() if is_for(request, device)]
    if not models:
        raise errors.NotFound(f'the fabric has no device of the model "{request.model}"')
    reached = [device for device in models if is_reached(device)]
    if not reached:
        raise unreachable(f"of the model {request.model}", request.host_id)
    kept = busy | contract.find_carved(devices.values())
    for device in reached:
        if device.connection is None and device.id not in kept:
            return device
    raise errors.ResourceExhausted(
        f'no device of the model "{request.model}" is free', reason=errors.Reason.NO_DEVICE
    )


def _check_idle(device_id: str, busy: Set[str]) -> None:
    if device_id in busy:
        raise errors.Aborted(
            f"device {device_id} has an operation in flight; wait for its end",
            reason=errors.Reason.OPERATION_PENDING,
        )


def _check_free(device: contract.Device) -> None:
    if device.connection is not None:
        raise errors.FailedPrecondition(
            f"device {device.id} is attached to host {device.connection.host_id}; detach it there first",
            reason=errors.Reason.IN_USE,
            host_id=device.connection.host_id,
        )
