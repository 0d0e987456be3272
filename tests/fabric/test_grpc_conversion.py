"""Values survive the wire; what a plugin must not send is refused."""

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drawbar.fabric import attributes, contract, errors, witnesses
from drawbar.fabric.grpc import conversion, statuses
from drawbar.proto.fabric.v1alpha1 import fabric_pb2 as pb

names = st.text(min_size=1, max_size=30)
texts = st.text(max_size=30)
maybe = st.none() | names
maps = st.dictionaries(names, texts, max_size=4)

ports = st.builds(
    contract.Port, id=names, state=st.sampled_from(contract.PortState), device_id=maybe, slot_hint=maybe
)
reach_groups = st.frozensets(names, max_size=3)
hosts = st.builds(
    contract.Host,
    id=names,
    name=names,
    identifiers=maps,
    ports=st.lists(ports, max_size=3).map(tuple),
    reach_groups=reach_groups,
)
CONNECTION = ("port_id", "slot_hint", "request_id", "mark")
connections = st.builds(contract.Connection, host_id=names, **dict.fromkeys(CONNECTION, maybe))
number = st.builds(
    witnesses.Identifier,
    kind=st.just(witnesses.Kind.PCIE_DSN),
    value=st.integers(1 << 32, (1 << 56) - 2)
    .map(lambda number: number.to_bytes(8, "big").hex("-"))
    .filter(lambda value: witnesses.normal(witnesses.Kind.PCIE_DSN, value)),
    source=texts,
)
numbers = st.lists(number, max_size=3, unique=True).map(tuple)
pci_ids = st.none() | st.integers(1, 0xFFFF)
devices = st.builds(
    contract.Device,
    id=names,
    device_class=st.sampled_from(contract.OFFERED_CLASSES),
    model=texts,
    vendor=texts,
    pci_vendor_id=pci_ids,
    pci_device_id=pci_ids,
    serial=maybe.filter(lambda text: not witnesses.from_form(text or "")),
    identifiers=numbers,
    enclosure=texts,
    switch=texts,
    reach_groups=reach_groups,
    memory_bytes=st.integers(0, 2**64 - 1),
    compute_capability=texts,
    max_link_speed_mts=st.integers(0, 2**32 - 1),
    max_link_width=st.integers(0, 2**32 - 1),
    health=st.sampled_from(contract.Health),
    connection=st.none() | connections,
    attributes=st.dictionaries(
        st.from_regex(r"[a-z]{1,8}\.com/[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True),
        st.text("ab1 -", min_size=1, max_size=64)
        | st.integers(-(1 << 63), (1 << 63) - 1)
        | st.booleans()
        | st.sampled_from([attributes.Version("1.2.3"), attributes.Version("0.0.0-rc.1+b")]),
        max_size=4,
    ).map(lambda values: attributes.collect(values.items()).kept),
    etag=maybe,
)
failures = st.builds(
    contract.OperationError,
    code=st.sampled_from(errors.Code),
    reason=names,
    message=texts,
    retryable=st.booleans(),
    host_id=maybe,
    vendor=st.dictionaries(st.text(min_size=1, max_size=10), texts, max_size=4),
)
operations = st.builds(
    contract.Operation,
    id=names,
    request_id=names,
    kind=st.sampled_from(contract.OperationKind),
    done=st.booleans(),
    percent=st.none() | st.integers(0, 100),
    retry_after_seconds=st.none() | st.floats(0, 1e6),
    device=st.none() | devices,
    error=st.none() | failures,
    side_effects_unknown=st.booleans(),
    mark=maybe,
)
capabilities = st.builds(
    contract.Capabilities,
    exact_device=st.booleans(),
    select_by_model=st.booleans(),
    **dict.fromkeys(("slices", "force_detach", "watch", "cancel", "marks"), st.booleans()),
    max_concurrent_operations=st.none() | st.integers(1, 1000),
    serialization_scope=st.sampled_from(contract.SerializationScope),
)
attaches = st.builds(
    contract.AttachRequest,
    request_id=names,
    device_id=maybe,
    model=st.none(),
    host_id=names,
    expected_etag=maybe,
    mark=maybe,
) | st.builds(contract.AttachRequest, request_id=names, model=names, host_id=names)
detaches = st.builds(
    contract.DetachRequest,
    request_id=names,
    device_id=names,
    host_id=names,
    host_prepared=st.booleans(),
    force=st.booleans(),
)
events = st.one_of(
    st.builds(contract.DeviceChanged, version=names, device=devices),
    st.builds(contract.DeviceGone, version=names, device_id=names),
    st.builds(contract.HostChanged, version=names, host=hosts),
    st.builds(contract.OperationChanged, version=names, operation=operations),
    st.builds(contract.Bookmark, version=names),
    st.just(contract.Resync()),
)


def transmit_message(message):
    """Return the message as the other side receives it."""
    return type(message).FromString(message.SerializeToString())


@given(hosts)
def test_a_host_survives_the_wire(host):
    assert conversion.host(transmit_message(conversion.host_message(host))) == host


@given(devices)
def test_a_device_survives_the_wire(device):
    assert conversion.device(transmit_message(conversion.device_message(device))) == device


@given(operations)
def test_an_operation_survives_the_wire(operation):
    assert conversion.operation(transmit_message(conversion.operation_message(operation))) == operation


@given(capabilities)
def test_capabilities_survive_the_wire(value):
    assert conversion.capabilities(transmit_message(conversion.capabilities_message(value))) == value


@given(attaches)
def test_an_attach_survives_the_wire(request):
    assert conversion.attach_request(transmit_message(conversion.attach_message(request))) == request


@given(detaches)
def test_a_detach_survives_the_wire(request):
    assert conversion.detach_request(transmit_message(conversion.detach_message(request))) == request


@given(events)
def test_an_event_survives_the_wire(event):
    assert conversion.event(transmit_message(conversion.event_message(event))) == event


def test_every_capability_of_the_contract_is_on_the_wire():
    flags = {field.name for field in fields(contract.Capabilities) if field.type is bool}
    wire = {name.removeprefix("CAPABILITY_").lower() for name in pb.Capability.DESCRIPTOR.values_by_name}
    assert flags == wire - {"unspecified"}


@pytest.mark.parametrize(
    ("read", "message"),
    [
        pytest.param(conversion.device, pb.Device(), id="device without id"),
        pytest.param(conversion.device, pb.Device(id="x" * 129), id="long device id"),
        pytest.param(
            conversion.device, pb.Device(id="d", connection=pb.Connection()), id="connected nowhere"
        ),
        pytest.param(conversion.host, pb.Host(id="h", ports=[pb.Port()]), id="port without id"),
        pytest.param(
            conversion.host,
            pb.Host(id="h", ports=[pb.Port(id="1", slot_hint="x" * 129)]),
            id="long slot hint",
        ),
        pytest.param(conversion.operation, pb.Operation(id="o", request_id="r"), id="operation without kind"),
        pytest.param(
            conversion.operation,
            pb.Operation(request_id="r", kind=pb.OPERATION_KIND_ATTACH),
            id="operation without id",
        ),
    ],
)
def test_a_message_without_identity_is_a_malformed_answer(read, message):
    with pytest.raises(errors.Unavailable) as caught:
        read(message)
    assert caught.value.reason == "MALFORMED_ANSWER"
    assert not caught.value.retryable


def test_unknown_values_of_a_newer_plugin_get_a_default():
    device = conversion.device(pb.Device(id="d", device_class=99, health=99))
    assert (device.device_class, device.health) == (contract.DeviceClass.OTHER, contract.Health.UNKNOWN)
    host = conversion.host(pb.Host(id="h", ports=[pb.Port(id="1", state=99)]))
    assert host.ports[0].state is contract.PortState.FAULT
    assert host.name == "h"
    read = conversion.capabilities(pb.Capabilities(capabilities=[99, pb.CAPABILITY_WATCH]))
    assert (read.watch, read.exact_device) == (True, False)
    assert conversion.event(pb.WatchEvent(version="7")) == contract.Bookmark(version="7")


def test_an_error_without_details_takes_the_defaults_of_its_code():
    error = statuses.from_message(pb.FabricError(code=pb.ERROR_CODE_DEADLINE_EXCEEDED))
    assert isinstance(error, errors.DeadlineExceeded)
    assert error.retryable
    assert error.side_effects_unknown


def test_an_error_code_from_the_future_is_unavailable():
    assert isinstance(statuses.from_message(pb.FabricError(code=77)), errors.Unavailable)


def test_identifiers_of_no_use_are_left_out():
    sent = [
        pb.Identifier(kind=pb.IDENTIFIER_KIND_BOARD_SERIAL, value=" ABC-1 ", source="Processor.SerialNumber"),
        pb.Identifier(kind=pb.IDENTIFIER_KIND_BOARD_SERIAL, value="To Be Filled By O.E.M."),
        pb.Identifier(kind=pb.IDENTIFIER_KIND_PCIE_DSN, value="not a number"),
        pb.Identifier(kind=99, value="x"),
    ]
    device = conversion.device(pb.Device(id="d", identifiers=sent * 40))
    assert device.identifiers == (
        witnesses.Identifier(
            kind=witnesses.Kind.BOARD_SERIAL, value="abc-1", source="Processor.SerialNumber"
        ),
    )


def test_a_device_that_is_sent_again_is_read_once():
    message = pb.Device(id="read-once", model="H200")
    operation = pb.Operation(id="o", request_id="r", kind=pb.OPERATION_KIND_ATTACH, device=message)
    event = pb.WatchEvent(version="1", device_changed=message)
    assert conversion.operation(operation).device is conversion.event(event).device


def test_a_huge_device_is_not_kept():
    message = pb.Device(id="huge", model="x" * conversion.DEVICE_KEPT_BYTES)
    first, second = conversion.device(message), conversion.device(message)
    assert first == second
    assert first is not second
    assert len(first.model.encode()) == contract.STRING_BYTES
