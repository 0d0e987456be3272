from dataclasses import replace

import pytest

from drawbar.fabric import contract, errors, judgement

FREE = contract.Device(id="d1", device_class=contract.DeviceClass.NVME, model="M", etag="e1")
HELD = replace(FREE, id="d2", connection=contract.Connection(host_id="h1", port_id="p1", mark="m"))
DEVICES = {device.id: device for device in (HELD, FREE)}
HOSTS = {
    "h1": contract.Host(
        id="h1",
        name="h1",
        ports=(
            contract.Port(id="p1", state=contract.PortState.USED),
            contract.Port(id="p2", state=contract.PortState.FREE),
        ),
    ),
    "full": contract.Host(
        id="full", name="full", ports=(contract.Port(id="p1", state=contract.PortState.FAULT),)
    ),
    "portless": contract.Host(id="portless", name="portless"),
}
Stay, Begin, Reason = judgement.Stay, judgement.Begin, errors.Reason


def outcome(judge):
    """Return the decision, or the code and reason of the refusal."""
    try:
        return judge()
    except errors.FabricError as error:
        return error.code, error.reason


@pytest.mark.parametrize(
    ("fields", "busy", "expected"),
    [
        ({"device_id": "d1"}, (), Begin(device_id="d1", port_id="p2")),
        ({"model": "M"}, (), Begin(device_id="d1", port_id="p2")),
        ({"model": "M"}, ("d1",), (errors.Code.RESOURCE_EXHAUSTED, Reason.NO_DEVICE)),
        ({"device_id": "d1"}, ("d1",), (errors.Code.ABORTED, Reason.OPERATION_PENDING)),
        ({"device_id": "d1", "expected_etag": "e0"}, (), (errors.Code.ABORTED, Reason.STALE_ETAG)),
        ({"device_id": "d1", "port_id": "p1"}, (), (errors.Code.FAILED_PRECONDITION, Reason.PORT_IN_USE)),
        ({"device_id": "d1", "host_id": "full"}, (), (errors.Code.RESOURCE_EXHAUSTED, Reason.NO_FREE_PORT)),
        ({"device_id": "d1", "host_id": "portless"}, (), Begin(device_id="d1", port_id="")),
        ({"device_id": "d2", "mark": "m"}, (), Stay(device_id="d2")),
        ({"device_id": "d2", "mark": "other"}, (), (errors.Code.FAILED_PRECONDITION, Reason.IN_USE)),
        ({"device_id": "d2", "host_id": "full"}, (), (errors.Code.FAILED_PRECONDITION, Reason.IN_USE)),
    ],
    ids=str,
)
def test_an_attach_is_judged_by_what_the_fabric_shows(fields, busy, expected):
    request = contract.AttachRequest(**{"request_id": "r", "host_id": "h1"} | fields)
    judged = outcome(
        lambda: judgement.attach(request, DEVICES, HOSTS, busy=set(busy), choose_port=judgement.free_port)
    )
    assert judged == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"host_prepared": True}, Begin(device_id="d2", port_id="p1")),
        ({}, (errors.Code.FAILED_PRECONDITION, Reason.NOT_PREPARED)),
        ({"host_id": "full"}, Stay(device_id="d2")),
        ({"device_id": "d1"}, Stay(device_id="d1")),
    ],
    ids=str,
)
def test_a_detach_is_judged_by_what_the_fabric_shows(fields, expected):
    request = contract.DetachRequest(**{"request_id": "r", "device_id": "d2", "host_id": "h1"} | fields)
    assert outcome(lambda: judgement.detach(request, DEVICES, HOSTS, busy=set())) == expected
