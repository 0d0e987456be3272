"""A transcript of a Redfish service has no secrets, and reads as the service did."""

import base64
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import yarl
from tests.fabric.redfish.conftest import PASSWORD, USER
from tests.scenes import waiting

from drawbar.fabric import contract, errors
from drawbar.fabric.redfish import transcripts
from drawbar.fabric.redfish.adapter import RedfishAdapter
from drawbar.mocks.redfish import Fault, FaultKind, replay
from drawbar.mocks.redfish.configuration import Device, Enclosure, Host

REPORTED = sorted((Path(__file__).parent / "transcripts").glob("*.json"))
LOGIN = {"username": USER, "password": PASSWORD}
FORMS = {
    "a zone for each pair": LOGIN,
    "a zone for each pair, by tasks": LOGIN | {"task_seconds": 0.02},
    "a zone for each pair, without $expand": LOGIN | {"expand": False},
    "a zone for each host port": LOGIN | {"zones": "port", "product": "H3 Falcon"},
    "composition by changed arrays": LOGIN | {"method": "composition"},
    "composition by actions": LOGIN | {"method": "composition", "actions": True},
    "a password in each request": LOGIN | {"sessions": False},
}
UUID = "4f6a1c52-98b2-4f21-b3e4-1d07a1c3e5f6"
SENSITIVE = {
    "hosts": (Host(id="h1", uuid=UUID, serial="SN-HOST-8841"), Host(id="h2")),
    "enclosures": (
        Enclosure(
            id="e1",
            devices=(Device(id="gpu-1", kind="gpu", serial="SN-GPU-7731"), Device(id="disk-1", serial="Q7")),
        ),
    ),
}


async def walk(adapter):
    """Attach a device and detach it, and return the inventory before, between and after, and the hosts."""
    before = await adapter.devices()
    device, host = before.devices[0].id, (await adapter.hosts())[0].id
    seen = [before.devices]
    for number, request in enumerate(
        (
            contract.AttachRequest(request_id="r1", device_id=device, host_id=host, mark="m"),
            contract.DetachRequest(request_id="r2", device_id=device, host_id=host, host_prepared=True),
        )
    ):
        operation = await (adapter.detach if number else adapter.attach)(request)

        async def read(operation=operation):
            return await adapter.operation(operation_id=operation.id)

        assert (await waiting.until(read, lambda operation: operation.done)).succeeded
        seen.append((await adapter.devices()).devices)
    return seen, await adapter.hosts()


async def recorded(redfish_lab, service, **changes):
    config = redfish_lab.config(service, **changes)
    recorder = transcripts.Recorder(config)
    async with await RedfishAdapter.connect(config, recorder) as adapter:
        read = await walk(adapter)
    return transcripts.parse(msgspec.json.encode(recorder.transcript())), read


def shape(seen, hosts):
    """Return what masks do not change: the names of hosts are masked, and their order is not."""
    numbers = {host.id: number for number, host in enumerate(hosts)}
    return (
        [
            [
                (
                    device.id,
                    device.model,
                    device.device_class,
                    device.connection and numbers[device.connection.host_id],
                )
                for device in devices
            ]
            for devices in seen
        ],
        [[port.state for port in host.ports] for host in hosts],
    )


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
async def test_a_transcript_reads_as_the_service_did(redfish_lab, form):
    service = await redfish_lab.serve(**form)
    transcript, read = await recorded(redfish_lab, service)
    assert transcript.complete
    async with replay.replaying(transcript) as served:
        config = replace(redfish_lab.config(service), endpoint=served.url)
        async with await RedfishAdapter.connect(config) as adapter:
            assert shape(*await walk(adapter)) == shape(*read)
    assert served.left == []


@pytest.mark.parametrize("path", REPORTED, ids=lambda path: path.stem)
async def test_a_reported_transcript_lists_hosts_and_devices(path):
    async with replay.replaying(transcripts.parse(path.read_bytes())) as served:
        config = contract.AdapterConfig(
            name="reported",
            endpoint=served.url,
            timeout_seconds=10,
            credentials=contract.Credentials(username="drawbar", password=PASSWORD),
        )
        async with await RedfishAdapter.connect(config) as adapter:
            assert (await adapter.devices()).devices
            assert await adapter.hosts()


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
async def test_no_secret_serial_number_address_or_name_of_a_user_is_in_a_transcript(redfish_lab, form):
    service = await redfish_lab.serve(**form | SENSITIVE | {"username": "rack-operator"})
    transcript, _ = await recorded(redfish_lab, service)
    text = msgspec.json.encode(transcript).decode()
    basic = base64.b64encode(f"rack-operator:{PASSWORD}".encode()).decode()
    sensitive = {PASSWORD, basic, "rack-operator", UUID, "SN-HOST-8841", "SN-GPU-7731", '"Q7"', "127.0.0.1"}
    assert [value for value in sensitive | set(service.issued) if value in text] == []
    assert "masked-serial-1" in text


async def test_a_masked_value_is_the_same_wherever_it_stands(redfish_lab):
    config = contract.AdapterConfig(name="f", endpoint="https://bmc7.rack.example:8443")
    recorder = transcripts.Recorder(config)
    url = yarl.URL("https://bmc7.rack.example:8443/redfish/v1/Systems/CZJ8120")
    body = {
        "SerialNumber": "CZJ8120",
        "UUID": "4F6A1C52-98B2-4F21-B3E4-1D07A1C3E5F6",
        "@odata.id": "/redfish/v1/Systems/CZJ8120",
        "Boot": f"urn:uuid:{'4f6a1c52-98b2-4f21-b3e4-1d07a1c3e5f6'}",
        "GCXLID": "4C-1D-96-FF-FE-DD-D8-35:0001",
        "Address": ["10.1.2.3", "fe80::1:2", "aa:bb:cc:00:11:22"],
        "Keys": {"AccessToken": "tok", "Passcode": 1234},
        "Link": "https://bmc7.rack.example:8443/redfish/v1",
        "Time": "2026-11-23T07:02:06+00:00",
        "FirmwareRevision": "1.15.0",
    }
    recorder.answered(
        "GET", url, None, status=200, headers={"Set-Cookie": "a=b"}, raw=msgspec.json.encode(body)
    )
    (exchange,) = recorder.transcript().exchanges
    answer = exchange.answer
    assert exchange.uri == answer["@odata.id"] == f"/redfish/v1/Systems/{answer['SerialNumber']}"
    assert answer["SerialNumber"] == "masked-serial-1"
    assert answer["Boot"] == f"urn:uuid:{answer['UUID']}"
    assert answer["UUID"] == "00000000-0000-0000-0000-000000000001"
    assert answer["GCXLID"] == "00-00-00-00-00-00-00-00:0002"
    assert answer["Address"] == ["198.18.0.1", "2001:db8::1", "00:00:00:00:00:03"]
    assert answer["Keys"] == {"AccessToken": "masked-secret-1", "Passcode": 0}
    assert answer["Link"] == "https://manager.invalid/redfish/v1"
    assert (answer["Time"], answer["FirmwareRevision"]) == (body["Time"], body["FirmwareRevision"])
    assert exchange.headers == {}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (FaultKind.HTML, errors.Unavailable),
        (FaultKind.HALF_BODY, errors.Unavailable),
        (FaultKind.FORBIDDEN, errors.PermissionDenied),
        (FaultKind.STALL, errors.DeadlineExceeded),
    ],
)
async def test_an_odd_answer_is_odd_again_when_it_is_replayed(redfish_lab, kind, expected):
    service = await redfish_lab.serve(**LOGIN)
    service.faults.add(Fault(kind=kind, methods=("GET",), path="/Fabrics", times=None))
    config = redfish_lab.config(service, timeout_seconds=2)
    recorder = transcripts.Recorder(config)
    with pytest.raises(expected):
        await RedfishAdapter.connect(config, recorder)
    text = msgspec.json.encode(recorder.transcript()).decode()
    assert [secret for secret in (PASSWORD, *service.issued) if secret in text] == []
    async with replay.replaying(recorder.transcript()) as served:
        with pytest.raises(expected):
            await RedfishAdapter.connect(replace(config, endpoint=served.url))


def test_what_comes_after_the_bound_is_left_out(monkeypatch):
    monkeypatch.setattr(transcripts, "EXCHANGES", 2)
    recorder = transcripts.Recorder(contract.AdapterConfig(name="f", endpoint="http://127.0.0.1"))
    for _ in range(3):
        recorder.failed("GET", yarl.URL("http://127.0.0.1/redfish/v1"), None, "broken")
    transcript = recorder.transcript()
    assert not transcript.complete
    assert len(transcript.exchanges) == 2
