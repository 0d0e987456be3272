"""Judges requests and their outcomes, from what QEMU shows; pure.

The invariant: nothing begins for a device that is seen anywhere else, or that has an operation in flight, nor on a
port that is seen in use or is some operation's.
"""

import hashlib
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import TypeVar

from drawbar.fabric import contract, errors
from drawbar.fabric.qemu import sights

Request = contract.AttachRequest | contract.DetachRequest


def operation_id(request_id: str) -> str:
    """The id of the operation that a request begins: the same in every life of the adapter."""
    return f"qemu-{hashlib.sha256(request_id.encode()).hexdigest()[:24]}"


def finished(request_id: str, kind: contract.OperationKind, device: contract.Device) -> contract.Operation:
    """An operation that ended well, at once."""
    return contract.Operation(
        id=operation_id(request_id),
        request_id=request_id,
        kind=kind,
        done=True,
        percent=100,
        device=device,
    )


def names(request: contract.AttachRequest, device: contract.Device) -> bool:
    """Whether the request asks for this device, by id or by model."""
    return device.id == request.device_id or (request.device_id is None and device.model == request.model)


def used(request: Request) -> errors.AlreadyExists:
    """The request id stands for something else."""
    return errors.AlreadyExists(f'the request id "{request.request_id}" was used for another request')


def verified(
    request: Request, device: contract.Device, error: errors.FabricError | None
) -> errors.FabricError | None:
    """What the fabric shows counts more than what QEMU answered, either way."""
    connection = device.connection
    here = connection is not None and connection.host_id == request.host_id
    if isinstance(request, contract.DetachRequest):
        if not here:
            return None
        return error or errors.Unavailable(f"device {device.id} is still attached; try again")
    if here and connection is not None and connection.request_id == request.request_id:
        return None
    if here and connection is not None:
        return errors.FailedPrecondition(
            f"device {device.id} was attached to the same host by somebody else meanwhile",
            reason=errors.Reason.IN_USE,
            host_id=connection.host_id,
        )
    return error or errors.Unavailable(
        f"QEMU took device {device.id} and does not show it; read the fabric again", reason="NOT_SHOWN"
    )


def unknown(error: errors.FabricError) -> errors.FabricError:
    """The same error, saying that nobody knows what has happened."""
    return errors.BY_CODE[error.code](
        error.message,
        reason=error.reason,
        retryable=error.retryable,
        side_effects_unknown=True,
        host_id=error.host_id,
        vendor=error.vendor,
    )


Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stay:
    """There is nothing to do: the device is where it should be."""

    device_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """An operation begins.

    Attributes:
        device_id: the device, chosen if a model was asked for.
        port_id: the port that it goes to, or leaves.
    """

    device_id: str
    port_id: str


def judge_attach(
    request: contract.AttachRequest,
    devices: Mapping[str, contract.Device],
    hosts: Mapping[str, sights.Host],
    taken: Set[tuple[str, str]],
    *,
    cxl: Set[str],
    busy: Set[str],
) -> Stay | Begin:
    """What an attach comes to.

    Args:
        request: without problems of its own.
        devices: the whole pool as listed now.
        hosts: all virtual machines, as seen now.
        taken: host and port of the attaches in flight.
        cxl: the devices that need a CXL port.
        busy: the devices with an operation in flight.

    Raises:
        FabricError: it is refused, as `FabricAdapter.attach` says.
    """
    host = _known(hosts, request.host_id, "host")
    device = _selected(request, devices, busy)
    _check_idle(device.id, busy)
    if request.expected_etag not in {None, device.etag}:
        raise errors.Aborted(
            f"device {device.id} changed since it was read; read it again", reason=errors.Reason.STALE_ETAG
        )
    _check_running(host)
    port = None if request.port_id is None else host.port(request.port_id)
    if request.port_id is not None and port is None:
        raise errors.NotFound(f'host {host.id} has no port "{request.port_id}"')
    if (connection := device.connection) is not None:
        same = connection.host_id == host.id and request.port_id in {None, connection.port_id}
        if same and connection.mark in {None, request.mark}:
            return Stay(device_id=device.id)
        raise _in_use(device.id, connection)
    if port is None:
        port = _free_port(host, taken, cxl=device.id in cxl)
    _check_port(host, port, taken, device.id, cxl=device.id in cxl)
    return Begin(device_id=device.id, port_id=port.id)


def judge_detach(
    request: contract.DetachRequest,
    devices: Mapping[str, contract.Device],
    hosts: Mapping[str, sights.Host],
    *,
    busy: Set[str],
) -> Stay | Begin:
    """What a detach comes to; the arguments as in `judge_attach`.

    Raises:
        FabricError: it is refused, as `FabricAdapter.detach` says.
    """
    host = _known(hosts, request.host_id, "host")
    device = _known(devices, request.device_id, "device")
    _check_idle(device.id, busy)
    if request.force:
        raise errors.Unimplemented(
            "QEMU takes no device from a guest by force; stop the virtual machine instead"
        )
    if device.connection is None or device.connection.host_id != host.id:
        return Stay(device_id=device.id)
    if not request.host_prepared:
        raise errors.FailedPrecondition(
            f"host {host.id} has not let go of device {device.id}; prepare the host",
            reason=errors.Reason.NOT_PREPARED,
            host_id=host.id,
        )
    return Begin(device_id=device.id, port_id=device.connection.port_id or "")


def _known(values: Mapping[str, Value], name: str, kind: str) -> Value:
    if name not in values:
        raise errors.NotFound(f'the fabric has no {kind} "{errors.cut(name, contract.STRING_BYTES)}"')
    return values[name]


def _selected(
    request: contract.AttachRequest, devices: Mapping[str, contract.Device], busy: Set[str]
) -> contract.Device:
    """The device named, or the first free one of the model."""
    if request.device_id is not None:
        return _known(devices, request.device_id, "device")
    models = [device for device in devices.values() if device.model == request.model]
    if not models:
        raise errors.NotFound(f'the fabric has no device of the model "{request.model}"')
    for device in models:
        if device.connection is None and device.id not in busy:
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


def _check_running(host: sights.Host) -> None:
    if not host.running:
        raise errors.Unavailable(f"the virtual machine of host {host.id} does not run; start it")


def _in_use(device_id: str, connection: contract.Connection) -> errors.FailedPrecondition:
    return errors.FailedPrecondition(
        f"device {device_id} is attached to host {connection.host_id}, port {connection.port_id}; "
        "detach it there first",
        reason=errors.Reason.IN_USE,
        host_id=connection.host_id,
    )


def _free_port(host: sights.Host, taken: Set[tuple[str, str]], *, cxl: bool) -> sights.Port:
    for port in host.ports:
        if port.cxl == cxl and not port.occupants and (host.id, port.id) not in taken:
            return port
    kind = "CXL root port" if cxl else "PCIe root port"
    raise errors.ResourceExhausted(
        f"host {host.id} has no free {kind}; start its QEMU with more of them",
        reason=errors.Reason.NO_FREE_PORT,
        host_id=host.id,
    )


def _check_port(
    host: sights.Host, port: sights.Port, taken: Set[tuple[str, str]], device_id: str, *, cxl: bool
) -> None:
    if port.cxl != cxl:
        kind = "CXL" if cxl else "PCIe"
        raise errors.FailedPrecondition(
            f"device {device_id} needs a {kind} port, and port {port.id} of host {host.id} is none",
            reason=errors.Reason.INCOMPATIBLE,
        )
    if port.occupants or (host.id, port.id) in taken:
        raise errors.FailedPrecondition(
            f"port {port.id} of host {host.id} is in use; choose another, or none",
            reason=errors.Reason.PORT_IN_USE,
        )
