"""Conversion of the contract's values, including a watch's events, to messages of fabric.proto and back.

Reading is strict for identity (ids, versions, kinds). It is lenient for values that a newer plugin may extend
(classes, health, states): an unknown value is read as the least specific known one.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, assert_never

from drawbar.fabric import attributes, contract, errors, witnesses
from drawbar.fabric.grpc import statuses
from drawbar.proto.fabric.v1alpha1 import fabric_pb2 as pb

MAP_BYTES = 4096
PORTS_KEPT = 4096
DEVICES_KEPT = 1024
DEVICE_KEPT_BYTES = 4096

_CAPABILITIES: Mapping[str, pb.Capability.ValueType] = {
    "exact_device": pb.CAPABILITY_EXACT_DEVICE,
    "select_by_model": pb.CAPABILITY_SELECT_BY_MODEL,
    "slices": pb.CAPABILITY_SLICES,
    "force_detach": pb.CAPABILITY_FORCE_DETACH,
    "watch": pb.CAPABILITY_WATCH,
    "cancel": pb.CAPABILITY_CANCEL,
    "marks": pb.CAPABILITY_MARKS,
}


def _build_malformed(what: str) -> errors.Unavailable:
    return errors.Unavailable(
        f"the fabric plugin sent {what}; update the plugin", reason="MALFORMED_ANSWER", retryable=False
    )


def _name(value: str, what: str) -> str:
    """Return a required name as the plugin sent it."""
    if not value:
        raise _build_malformed(f"an empty {what}")
    return _check_length(value, what)


def _check_length(value: str, what: str) -> str:
    if len(value.encode()) > contract.STRING_BYTES:
        raise _build_malformed(
            f'a {what} of more than {contract.STRING_BYTES} bytes ("{errors.cut(value, 40)}")'
        )
    return value


def _map(values: Mapping[str, str], what: str) -> dict[str, str]:
    """Return a map as the plugin sent it."""
    if sum(len(key.encode()) + len(value.encode()) for key, value in values.items()) > MAP_BYTES:
        raise _build_malformed(f"{what} of more than {MAP_BYTES} bytes")
    return dict(values)


# Fields of the same name and meaning in a value and in its message.
_DEVICE = (
    "model",
    "vendor",
    "enclosure",
    "switch",
    "memory_bytes",
    "compute_capability",
    "max_link_speed_mts",
    "max_link_width",
)
_DEVICE_OPTIONAL = ("pci_vendor_id", "pci_device_id", "serial", "etag")
_CONNECTION_OPTIONAL = ("port_id", "slot_hint", "request_id", "mark")
_SLICE_OPTIONAL = ("request_id", "mark")
_CARVING = ("free_bytes", "step_bytes", "is_pool")
_PORT_OPTIONAL = ("device_id", "slot_hint")
_ATTACH_OPTIONAL = ("expected_etag", "mark")
_CREATE = ("request_id", "device_id", "memory_bytes")
_DELETE = ("request_id", "device_id")
_DETACH = ("request_id", "device_id", "host_id", "host_prepared", "force")
_CREDENTIALS = tuple(field.name for field in fields(contract.Credentials))


def _copy_fields(source: object, *names: str) -> dict[str, Any]:
    """Return fields by name; in a message, None leaves a field out."""
    return {name: getattr(source, name) for name in names}


def _optional(message: object, *names: str) -> dict[str, Any]:
    """Return fields of a message by name, None for each that is empty."""
    return {name: getattr(message, name) or None for name in names}


def _cut_fields(values: dict[str, Any]) -> dict[str, Any]:
    """Return a plugin's fields, each text cut to the protocol's limit, because they are kept."""
    return {
        name: errors.cut(value, contract.STRING_BYTES) if isinstance(value, str) else value
        for name, value in values.items()
    }


def configure_message(credentials: contract.Credentials, tls: contract.Tls) -> pb.ConfigureRequest:
    """Write credentials and settings of TLS; equal to an empty message where nothing is given."""
    return pb.ConfigureRequest(
        credentials=pb.Credentials(**_copy_fields(credentials, *credentials.present_parts))
        if credentials.present_parts
        else None,
        tls=pb.Tls(insecure=not tls.verify, server_name=tls.server_name) if tls != contract.Tls() else None,
    )


def credentials(message: pb.Credentials) -> contract.Credentials:
    """Read credentials of a caller, unchecked."""
    return contract.Credentials(**_copy_fields(message, *_CREDENTIALS))


def tls(message: pb.Tls) -> contract.Tls:
    """Read settings of TLS of a caller."""
    return contract.Tls(verify=not message.insecure, server_name=message.server_name)


def host_message(host: contract.Host) -> pb.Host:
    """Write a host."""
    ports = [
        pb.Port(
            id=port.id,
            state=pb.PortState.Value(f"PORT_STATE_{port.state.name}"),
            **_copy_fields(port, *_PORT_OPTIONAL),
        )
        for port in host.ports
    ]
    return pb.Host(
        id=host.id,
        name=host.name,
        identifiers=host.identifiers,
        ports=ports,
        reach_groups=sorted(host.reach_groups),
    )


def host(message: pb.Host) -> contract.Host:
    """Read a host; an unknown port state is a fault, so that the port is not used."""
    ports = tuple(_port(port.id, port.state, port.device_id, port.slot_hint) for port in message.ports)
    return contract.Host(
        id=_name(message.id, "host id"),
        name=errors.cut(message.name or message.id, contract.STRING_BYTES),
        identifiers=_map(message.identifiers, "host identifiers"),
        ports=ports,
        reach_groups=contract.bound_groups(message.reach_groups, most=contract.HOST_GROUPS_MAX),
    )


# A host is sent whole whenever one of its ports changes. The kept host is bounded, as is each of its strings.
@functools.lru_cache(PORTS_KEPT)
def _port(name: str, state: pb.PortState.ValueType, device_id: str, slot_hint: str) -> contract.Port:
    return contract.Port(
        id=_name(name, "port id"),
        state=_PORT_STATES.get(state, contract.PortState.FAULT),
        device_id=_check_length(device_id, "device id of a port") or None,
        slot_hint=_check_length(slot_hint, "slot hint of a port") or None,
    )


def device_message(device: contract.Device) -> pb.Device:
    """Write a device."""
    return pb.Device(
        id=device.id,
        device_class=_WIRE_CLASSES.get(device.device_class, pb.DEVICE_CLASS_OTHER),
        identifiers=[
            pb.Identifier(kind=_WIRE_KINDS[each.kind], value=each.value, source=each.source)
            for each in device.identifiers
        ],
        reach_groups=sorted(device.reach_groups),
        health=pb.Health.Value(f"HEALTH_{device.health.name}"),
        connection=None
        if device.connection is None
        else pb.Connection(**_copy_fields(device.connection, "host_id", *_CONNECTION_OPTIONAL)),
        slice_of=None
        if device.slice_of is None
        else pb.Slice(**_copy_fields(device.slice_of, "origin_id", *_SLICE_OPTIONAL)),
        carving=None if device.carving is None else pb.Carving(**_copy_fields(device.carving, *_CARVING)),
        attributes=[_attribute_message(each) for each in device.attributes],
        **_copy_fields(device, *_DEVICE, *_DEVICE_OPTIONAL),
    )


def device(message: pb.Device) -> contract.Device:
    """Read a device; the same one is read once for its operation, its event and the answer."""
    content = message.SerializeToString()
    return (_read_kept_device if len(content) <= DEVICE_KEPT_BYTES else _read_device)(content)


def _read_device(content: bytes) -> contract.Device:
    message = pb.Device.FromString(content)
    collected = attributes.collect((each.name, _attribute_value(each)) for each in message.attributes)
    return contract.Device(
        id=_name(message.id, "device id"),
        device_class=_DEVICE_CLASSES.get(message.device_class, contract.DeviceClass.OTHER),
        identifiers=_identifiers(message.identifiers, message.serial),
        reach_groups=contract.bound_groups(message.reach_groups, most=contract.DEVICE_GROUPS_MAX),
        health=_HEALTHS.get(message.health, contract.Health.UNKNOWN),
        connection=_connection(message.connection) if message.HasField("connection") else None,
        slice_of=_slice(message.slice_of) if message.HasField("slice_of") else None,
        carving=_read_carving(message.carving) if message.HasField("carving") else None,
        attributes=collected.kept,
        refused_attributes=collected.refused,
        **_cut_fields(_copy_fields(message, *_DEVICE)),
        **_cut_fields(_optional(message, *_DEVICE_OPTIONAL)),
    )


_read_kept_device = functools.lru_cache(DEVICES_KEPT)(_read_device)


def _attribute_message(attribute: attributes.Attribute) -> pb.Attribute:
    match attribute.value:
        case bool():
            return pb.Attribute(name=attribute.name, bool_value=attribute.value)
        case int():
            return pb.Attribute(name=attribute.name, int_value=attribute.value)
        case attributes.Version(text=text):
            return pb.Attribute(name=attribute.name, version_value=text)
        case str():
            return pb.Attribute(name=attribute.name, string_value=attribute.value)
        case _:
            assert_never(attribute.value)


def _attribute_value(message: pb.Attribute) -> attributes.Value | None:
    """Return the value; None where there is none, or one of a type of later releases."""
    match message.WhichOneof("value"):
        case "string_value":
            return message.string_value
        case "int_value":
            return message.int_value
        case "bool_value":
            return message.bool_value
        case "version_value":
            return attributes.Version(message.version_value)
        case _:
            return None


def _identifiers(messages: Sequence[pb.Identifier], serial: str) -> tuple[witnesses.Identifier, ...]:
    """Return the identifiers in their normal forms, without placeholders, unknown kinds and surplus ones.

    A serial number counts if its form shows its kind.
    """
    made = (
        witnesses.identifier(_KINDS[each.kind], each.value, errors.cut(each.source, contract.STRING_BYTES))
        for each in messages[: witnesses.IDENTIFIERS_MAX]
        if each.kind in _KINDS
    )
    declared = tuple(dict.fromkeys(each for each in made if each is not None))
    by_form = witnesses.from_form(serial, "Device.serial")
    is_new = by_form is not None and (by_form.kind, by_form.value) not in {
        (each.kind, each.value) for each in declared
    }
    return (*declared, by_form)[: witnesses.IDENTIFIERS_MAX] if by_form is not None and is_new else declared


def _connection(message: pb.Connection) -> contract.Connection:
    host_id = _name(message.host_id, "host id in a connection")
    return contract.Connection(host_id=host_id, **_cut_fields(_optional(message, *_CONNECTION_OPTIONAL)))


def _slice(message: pb.Slice) -> contract.Slice:
    origin_id = _name(message.origin_id, "origin id of a slice")
    return contract.Slice(origin_id=origin_id, **_cut_fields(_optional(message, *_SLICE_OPTIONAL)))


def _read_carving(message: pb.Carving) -> contract.Carving:
    return contract.Carving(
        free_bytes=message.free_bytes, step_bytes=message.step_bytes or 1, is_pool=message.is_pool
    )


_WIRE_KINDS = {kind: pb.IdentifierKind.Value(f"IDENTIFIER_KIND_{kind.name}") for kind in witnesses.Kind}
_KINDS = {wire: kind for kind, wire in _WIRE_KINDS.items()}
_PORT_STATES = {pb.PortState.Value(f"PORT_STATE_{state.name}"): state for state in contract.PortState}
_HEALTHS = {pb.Health.Value(f"HEALTH_{health.name}"): health for health in contract.Health}
# A class that the protocol does not have is another one on the wire.
_WIRE_CLASSES: dict[contract.DeviceClass, pb.DeviceClass.ValueType] = {
    kind: pb.DeviceClass.Value(name)
    for kind in contract.OFFERED_CLASSES
    if (name := f"DEVICE_CLASS_{kind.name}") in pb.DeviceClass.keys()  # noqa: SIM118 - an enum of protobuf is no mapping
}
_DEVICE_CLASSES = {number: kind for kind, number in _WIRE_CLASSES.items()}


def attach_message(request: contract.AttachRequest) -> pb.AttachDeviceRequest:
    """Write an attach."""
    names = ("request_id", "host_id", "device_id", "model", *_ATTACH_OPTIONAL)
    return pb.AttachDeviceRequest(**_copy_fields(request, *names))


def attach_request(message: pb.AttachDeviceRequest) -> contract.AttachRequest:
    """Read an attach of a caller, unchecked."""
    return contract.AttachRequest(
        request_id=message.request_id,
        device_id=message.device_id if message.HasField("device_id") else None,
        model=message.model if message.HasField("model") else None,
        host_id=message.host_id,
        **_optional(message, *_ATTACH_OPTIONAL),
    )


def detach_message(request: contract.DetachRequest) -> pb.DetachDeviceRequest:
    """Write a detach."""
    return pb.DetachDeviceRequest(**_copy_fields(request, *_DETACH))


def detach_request(message: pb.DetachDeviceRequest) -> contract.DetachRequest:
    """Read a detach of a caller, unchecked."""
    return contract.DetachRequest(**_copy_fields(message, *_DETACH))


def create_slice_message(request: contract.CreateSliceRequest) -> pb.CreateSliceRequest:
    """Write a creation of a slice."""
    return pb.CreateSliceRequest(**_copy_fields(request, *_CREATE, "mark"))


def create_slice_request(message: pb.CreateSliceRequest) -> contract.CreateSliceRequest:
    """Read a creation of a slice of a caller, unchecked."""
    return contract.CreateSliceRequest(**_copy_fields(message, *_CREATE), **_optional(message, "mark"))


def delete_slice_message(request: contract.DeleteSliceRequest) -> pb.DeleteSliceRequest:
    """Write a deletion of a slice."""
    return pb.DeleteSliceRequest(**_copy_fields(request, *_DELETE))


def delete_slice_request(message: pb.DeleteSliceRequest) -> contract.DeleteSliceRequest:
    """Read a deletion of a slice of a caller, unchecked."""
    return contract.DeleteSliceRequest(**_copy_fields(message, *_DELETE))


def operation_message(operation: contract.Operation) -> pb.Operation:
    """Write an operation."""
    failure = operation.failure()
    names = (
        "id",
        "request_id",
        "done",
        "percent",
        "retry_after_seconds",
        "side_effects_unknown",
        "mark",
    )
    return pb.Operation(
        kind=pb.OperationKind.Value(f"OPERATION_KIND_{operation.kind.name}"),
        device=None if operation.device is None else device_message(operation.device),
        error=None if failure is None else statuses.to_message(failure),
        **_copy_fields(operation, *names),
    )


def operation(message: pb.Operation) -> contract.Operation:
    """Read an operation."""
    kind = _OPERATION_KINDS.get(message.kind)
    if kind is None:
        raise _build_malformed(f'the operation "{message.id}" without a kind')
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
        error=None if failure is None else contract.OperationError.from_error(failure),
        side_effects_unknown=message.side_effects_unknown
        or (failure is not None and failure.side_effects_unknown),
        mark=message.mark or None,
    )


_OPERATION_KINDS = {
    pb.OperationKind.Value(f"OPERATION_KIND_{kind.name}"): kind for kind in contract.OperationKind
}


def capabilities_message(capabilities: contract.Capabilities) -> pb.Capabilities:
    """Write capabilities."""
    scope = capabilities.serialization_scope
    return pb.Capabilities(
        capabilities=[value for name, value in _CAPABILITIES.items() if getattr(capabilities, name)],
        max_concurrent_operations=capabilities.max_concurrent_operations or 0,
        serialization_scope=pb.SerializationScope.Value(f"SERIALIZATION_SCOPE_{scope.name}"),
    )


def capabilities(message: pb.Capabilities) -> contract.Capabilities:
    """Read capabilities; unknown ones are omitted."""
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
    """Write an event."""
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
    """Read an event; an unknown one becomes a bookmark."""
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
