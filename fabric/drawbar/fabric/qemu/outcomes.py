"""What has become of a request; pure."""

import hashlib

from drawbar.fabric import contract, errors

Request = contract.AttachRequest | contract.DetachRequest


def operation_id_of(request_id: str) -> str:
    """The id of the operation that a request begins: the same in every life of the adapter."""
    return f"qemu-{hashlib.sha256(request_id.encode()).hexdigest()[:24]}"


def finished(request_id: str, kind: contract.OperationKind, device: contract.Device) -> contract.Operation:
    """An operation that ended well, at once."""
    return contract.Operation(
        id=operation_id_of(request_id),
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
