"""Values of the contract, events of a watch included, as messages of fabric.proto, and back.

Reading is strict where identity depends on it (ids, versions, kinds) and lenient where a newer plugin may know
more than this version (classes, health, states): an unknown value of those is read as the vaguest known one.
"""

from collections.abc import Mapping
from typing import assert_never

from drawbar.fabric import contract, errors
from drawbar.fabric.grpc import statuses
from drawbar.proto.fabric.v1alpha1 import fabric_pb2 as pb

MAP_BYTES = 4096

_CAPABILITIES: Mapping[str, pb.Capability.ValueType] = {
    "exact_device": pb.CAPABILITY_EXACT_DEVICE,
    "select_by_model": pb.CAPABILITY_SELECT_BY_MODEL,
    "slices": pb.CAPABILITY_SLICES,
    "force_detach": pb.CAPABILITY_FORCE_DETACH,
    "watch": pb.CAPABILITY_WATCH,
    "cancel": pb.CAPABILITY_CANCEL,
    "marks": pb.CAPABILITY_MARKS,
}


def _malformed(what: str) -> errors.Unavailable:
    return errors.Unavailable(
        f"the fabric plugin sent {what}; update the plugin", reason="MALFORMED_ANSWER", retryable=False
    )


def _name(value: str, what: str) -> str:
    """A required name as the plugin sent it."""
    if not value:
        raise _malformed(f"an empty {what}")
    if len(value.encode()) > contract.STRING_BYTES:
        raise _malformed(f'a {what} of more than {contract.STRING_BYTES} bytes ("{errors.cut(value, 40)}")')
    return value


def _map(values: Mapping[str, str], what: str) -> dict[str, str]:
    """A map as the plugin sent it."""
    if sum(len(key.encode()) + len(value.encode()) for key, value in values.items()) > MAP_BYTES:
        raise _malformed(f"{what} of more than {MAP_BYTES} bytes")
    return dict(values)


# --- credentials ---


def configure_message(credentials: contract.Credentials, tls: contract.Tls) -> pb.ConfigureRequest:
    """Credentials and settings of TLS on the wire; equal to an empty message where nothing is given."""
    return pb.ConfigureRequest(
        credentials=pb.Credentials(**{name: getattr(credentials, name) for name in credentials.given})
        if credentials.given
        else None,
        tls=pb.Tls(insecure=not tls.verify, server_name=tls.server_name) if tls != contract.Tls() else None,
    )


def credentials(message: pb.Credentials) -> contract.Credentials:
    """Credentials as a caller sent them; not yet judged."""
    return contract.Credentials(
        username=message.username,
        password=message.password,
        token=message.token,
        authority=message.authority,
        certificate=message.certificate,
        key=message.key,
    )


def tls(message: pb.Tls) -> contract.Tls:
    """Settings of TLS as a caller sent them."""
    return contract.Tls(verify=not message.insecure, server_name=message.server_name)


# --- inventory ---


def host_message(host: contract.Host) -> pb.Host:
    """A host on the wire."""
    return pb.Host(
        id=host.id,
        name=host.name,
        identifiers=host.identifiers,
        ports=[
            pb.Port(
                id=port.id,
                state=pb.PortState.Value(f"PORT_STATE_{port.state.name}"),
                device_id=port.device_id or "",
                slot_hint=port.slot_hint or "",
            )
            for port in host.ports
        ],
    )


def host(message: pb.Host) -> contract.Host:
    """A host as the plugin sent it; an unknown port state is a fault, so that nobody uses the port."""
    return contract.Host(
        id=_name(message.id, "host id"),
        name=message.name or message.id,
        identifiers=_map(message.identifiers, "host identifiers"),
        ports=tuple(
            contract.Port(
                id=_name(port.id, "port id"),
                state=_PORT_STATES.get(port.state, contract.PortState.FAULT),
                device_id=port.device_id or None,
                slot_hint=port.slot_hint or None,
            )
            for port in message.ports
        ),
    )


def device_message(device: contract.Device) -> pb.Device:
    """A device on the wire."""
    return pb.Device(
        id=device.id,
        device_class=_WIRE_CLASSES.get(device.device_class, pb.DEVICE_CLASS_OTHER),
        model=device.model,
        vendor=device.vendor,
        pci_vendor_id=device.pci_vendor_id or 0,
        pci_device_id=device.pci_device_id or 0,
        serial=device.serial or "",
        identifiers=device.identifiers,
        enclosure=device.enclosure,
        memory_bytes=device.memory_bytes,
        compute_capability=device.compute_capability,
        max_link_speed_mts=device.max_link_speed_mts,
        max_link_width=device.max_link_width,
        health=pb.Health.Value(f"HEALTH_{device.health.name}"),
        connection=_connection_message(device.connection),
        etag=device.etag or "",
    )


def _connection_message(connection: contract.Connection | None) -> pb.Connection | None:
    if connection is None:
        return None
    return pb.Connection(
        host_id=connection.host_id,
        port_id=connection.port_id or "",
        slot_hint=connection.slot_hint or "",
        address_hint=connection.address_hint or "",
        request_id=connection.request_id or "",
        mark=connection.mark or "",
    )


def device(message: pb.Device) -> contract.Device:
    """A device as the plugin sent it."""
    return contract.Device(
        id=_name(message.id, "device id"),
        device_class=_DEVICE_CLASSES.get(message.device_class, contract.DeviceClass.OTHER),
        model=message.model,
        vendor=message.vendor,
        pci_vendor_id=message.pci_vendor_id or None,
        pci_device_id=message.pci_device_id or None,
        serial=message.serial or None,
        identifiers=_map(message.identifiers, "device identifiers"),
        enclosure=message.enclosure,
        memory_bytes=message.memory_bytes,
        compute_capability=message.compute_capability,
        max_link_speed_mts=message.max_link_speed_mts,
        max_link_width=message.max_link_width,
        health=_HEALTHS.get(message.health, contract.Health.UNKNOWN),
        connection=_connection(message.connection) if message.HasField("connection") else None,
        etag=message.etag or None,
    )


def _connection(message: pb.Connection) -> contract.Connection:
    return contract.Connection(
        host_id=_name(message.host_id, "host id in a connection"),
        port_id=message.port_id or None,
        slot_hint=message.slot_hint or None,
        address_hint=message.address_hint or None,
        request_id=message.request_id or None,
        mark=message.mark or None,
    )


_PORT_STATES = {pb.PortState.Value(f"PORT_STATE_{state.name}"): state for state in contract.PortState}
_HEALTHS = {pb.Health.Value(f"HEALTH_{health.name}"): health for health in contract.Health}
# A class that the protocol does not have is another one on the wire.
_WIRE_CLASSES: dict[contract.DeviceClass, pb.DeviceClass.ValueType] = {
    kind: pb.DeviceClass.Value(name)
    for kind in contract.OFFERED_CLASSES
    if (name := f"DEVICE_CLASS_{kind.name}") in pb.DeviceClass.keys()  # noqa: SIM118 - an enum of protobuf is no mapping
}
_DEVICE_CLASSES = {number: kind for kind, number in _WIRE_CLASSES.items()}


# --- operations ---


def attach_message(request: contract.AttachRequest) -> pb.AttachDeviceRequest:
    """An attach on the wire."""
    message = pb.AttachDeviceRequest(
        request_id=request.request_id,
        host_id=request.host_id,
        port_id=request.port_id or "",
        expected_etag=request.expected_etag or "",
        mark=request.mark or "",
    )
    if request.device_id is not None:
        message.device_id = request.device_id
    if request.model is not None:
        message.model = request.model
    return message


def attach_request(message: pb.AttachDeviceRequest) -> contract.AttachRequest:
    """An attach as a caller sent it; not yet judged."""
    return contract.AttachRequest(
        request_id=message.request_id,
        device_id=message.device_id if message.HasField("device_id") else None,
        model=message.model if message.HasField("model") else None,
        host_id=message.host_id,
        port_id=message.port_id or None,
        expected_etag=message.expected_etag or None,
        mark=message.mark or None,
    )


def detach_message(request: contract.DetachRequest) -> pb.DetachDeviceRequest:
    """A detach on the wire."""
    return pb.DetachDeviceRequest(
        request_id=request.request_id,
        device_id=request.device_id,
        host_id=request.host_id,
        host_prepared=request.host_prepared,
        force=request.force,
    )


def detach_request(message: pb.DetachDeviceRequest) -> contract.DetachRequest:
    """A detach as a caller sent it; not yet judged."""
    return contract.DetachRequest(
        request_id=message.request_id,
        device_id=message.device_id,
        host_id=message.host_id,
        host_prepared=message.host_prepared,
        force=message.force,
    )


def operation_message(operation: contract.Operation) -> pb.Operation:
    """An operation on the wire."""
    failure = operation.failure()
    return pb.Operation(
        id=operation.id,
        request_id=operation.request_id,
        kind=pb.OperationKind.Value(f"OPERATION_KIND_{operation.kind.name}"),
        done=operation.done,
        percent=operation.percent,
        retry_after_seconds=operation.retry_after_seconds,
        device=None if operation.device is None else device_message(operation.device),
        error=None if failure is None else statuses.to_message(failure),
        side_effects_unknown=operation.side_effects_unknown,
        mark=operation.mark or "",
    )


def operation(message: pb.Operation) -> contract.Operation:
    """An operation as the plugin sent it."""
    kind = _OPERATION_KINDS.get(message.kind)
    if kind is None:
        raise _malformed(f'the operation "{message.id}" without a kind')
    failure = statuses.from_message(message.error) if message.HasField("error") else None
    return contract.Operation(
        id=_name(message.id, "operation id"),
        request_id=_name(message.request_id, "request id in an operation"),
        kind=kind,
        done=message.done,
        percent=min(message.percent, 100) if message.HasField("percent") else None,
        retry_after_seconds=(
            max(0.0, message.retry_after_seconds) if message.HasField("retry_after_seconds") else None
        ),
        device=device(message.device) if message.HasField("device") else None,
        error=None if failure is None else contract.OperationError.of(failure),
        side_effects_unknown=message.side_effects_unknown
        or (failure is not None and failure.side_effects_unknown),
        mark=message.mark or None,
    )


_OPERATION_KINDS = {
    pb.OperationKind.Value(f"OPERATION_KIND_{kind.name}"): kind for kind in contract.OperationKind
}


def capabilities_message(capabilities: contract.Capabilities) -> pb.Capabilities:
    """Capabilities on the wire."""
    scope = capabilities.serialization_scope
    return pb.Capabilities(
        capabilities=[value for name, value in _CAPABILITIES.items() if getattr(capabilities, name)],
        max_concurrent_operations=capabilities.max_concurrent_operations or 0,
        serialization_scope=pb.SerializationScope.Value(f"SERIALIZATION_SCOPE_{scope.name}"),
    )


def capabilities(message: pb.Capabilities) -> contract.Capabilities:
    """Capabilities as the plugin sent them; those that this version does not know are left out."""
    sent = set(message.capabilities)
    return contract.Capabilities(
        **{name: value in sent for name, value in _CAPABILITIES.items()},
        max_concurrent_operations=message.max_concurrent_operations or None,
        serialization_scope=_SCOPES.get(message.serialization_scope, contract.SerializationScope.DEVICE),
    )


_SCOPES = {
    pb.SerializationScope.Value(f"SERIALIZATION_SCOPE_{scope.name}"): scope
    for scope in contract.SerializationScope
}


def event_message(event: contract.WatchEvent) -> pb.WatchEvent:
    """An event on the wire."""
    match event:
        case contract.DeviceChanged(version=version, device=device):
            return pb.WatchEvent(version=version, device_changed=device_message(device))
        case contract.DeviceGone(version=version, device_id=device_id):
            return pb.WatchEvent(version=version, device_gone=device_id)
        case contract.HostChanged(version=version, host=host):
            return pb.WatchEvent(version=version, host_changed=host_message(host))
        case contract.OperationChanged(version=version, operation=operation):
            return pb.WatchEvent(version=version, operation_changed=operation_message(operation))
        case contract.Bookmark(version=version):
            return pb.WatchEvent(version=version, bookmark=pb.Bookmark())
        case contract.Resync():
            return pb.WatchEvent(resync=pb.Resync())
        case _:
            assert_never(event)


def event(message: pb.WatchEvent) -> contract.WatchEvent:
    """An event as the plugin sent it; one that this version does not know is a bookmark."""
    match message.WhichOneof("event"):
        case "device_changed":
            return contract.DeviceChanged(version=message.version, device=device(message.device_changed))
        case "device_gone":
            return contract.DeviceGone(version=message.version, device_id=message.device_gone)
        case "host_changed":
            return contract.HostChanged(version=message.version, host=host(message.host_changed))
        case "operation_changed":
            changed = operation(message.operation_changed)
            return contract.OperationChanged(version=message.version, operation=changed)
        case "resync":
            return contract.Resync()
        case "bookmark" | None:
            return contract.Bookmark(version=message.version)
