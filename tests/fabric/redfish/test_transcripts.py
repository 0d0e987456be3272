"""A transcript of a Redfish service has no secrets, and reads as the service did."""

import base64
import dataclasses
import re
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
import yarl
from tests.fabric.redfish.conftest import PASSWORD, USER
from tests.scenes import redfish_replay, waiting

from drawbar.fabric import contract, errors
from drawbar.fabric.redfish import fabrics, transcripts
from drawbar.fabric.redfish.adapter import RedfishAdapter
from drawbar.mocks.redfish import Fault, FaultKind, paths
from drawbar.mocks.redfish.configuration import Device, Enclosure, Host

TRANSCRIPTS = Path(__file__).parents[2] / "cases" / "redfish" / "transcripts"
REPORTED = sorted(TRANSCRIPTS.glob("*.json"))
# Of services that list no device, with the reason.
WITHOUT_DEVICES = {"dmtf_interface_emulator", "sushy_emulator"}
# Of services in `FORMS`, as `record_transcript` returns them.
EMULATED = [path for path in REPORTED if path.stem.startswith("emulator_")]
# Where the first device was attached to the first host.
WALKED = [*EMULATED, TRANSCRIPTS / "seagate_cfm_service.json"]
# Of the servers of others, recorded while a device was attached and detached: how many devices and hosts there are, the device,
# its host, and what its attach and its detach end with.
OTHERS = {
    "ofmf_reference": (3, 1, "CXL.T2", "CXL-System", "", ""),
    # It shows 7 of 9 endpoints. A zone has one device and one of the missing two, so that device is in doubt.
    "sunfish_alone": (4, 2, "CXL.T3", "Host1", "", ""),
    # The library of Sunfish (18f2fc8) fails to delete what an agent manages.
    "sunfish_with_agents": (11, 3, "CXL.T3", "CXL-System1", "", "HTTP_500"),
    # Recorded when the adapter sent no `@odata.type`.
    "sunfish_sc24_links_mended": (11, 3, "CXL.T2", "CXL-System1", "INVALID_ARGUMENT", None),
}
LOGIN = {"username": USER, "password": PASSWORD}
FORMS = {
    "a zone for each pair": LOGIN,
    "a zone for each pair, by tasks": LOGIN | {"task_seconds": 0.02},
    "a zone for each pair, without $expand": LOGIN | {"expand": False},
    "a zone for each host port": LOGIN | {"zones": "port", "product": "H3 Falcon"},
    "a connection for each pair": LOGIN | {"method": "connections"},
    "a connection without an initiator": LOGIN | {"method": "connections", "initiators": False},
    "composition by counts": LOGIN | {"method": "composition", "constrained": True},
    "composition by changed arrays": LOGIN | {"method": "composition"},
    "composition by actions": LOGIN | {"method": "composition", "actions": True},
    "a password in each request": LOGIN | {"quirks": ("basic-only",)},
}
UUID = "4f6a1c52-98b2-4f21-b3e4-1d07a1c3e5f6"


def make_sensitive_configuration(form):
    """Return hosts and devices of such a service, whose names tell much."""
    kinds = ("cxl-memory",) * 2 if form.get("method") == "connections" else ("gpu", "nvme")
    serials = ("SN-GPU-7731", "Q7")
    devices = [
        Device(id=name, kind=kind, serial=serial)
        for name, kind, serial in zip(("gpu-1", "disk-1"), kinds, serials, strict=True)
    ]
    return {
        "hosts": (Host(id="h1", uuid=UUID, serial="SN-HOST-8841"), Host(id="h2")),
        "enclosures": (Enclosure(id="e1", devices=tuple(devices)),),
    }


async def walk(adapter):
    """Attach a device and detach it, and return the inventory before, between and after, and the hosts."""
    before = (await adapter.devices()).devices
    host = (await adapter.hosts())[0].id
    is_exact = (await adapter.capabilities()).exact_device
    wanted = {"device_id": before[0].id} if is_exact else {"model": before[0].model}
    request = contract.AttachRequest(request_id="r1", host_id=host, mark="m", **wanted)
    attached = await wait_until_succeeded(adapter, await adapter.attach(request))
    between = (await adapter.devices()).devices
    name = attached.device.id
    request = contract.DetachRequest(request_id="r2", device_id=name, host_id=host, host_prepared=True)
    await wait_until_succeeded(adapter, await adapter.detach(request))
    return [before, between, (await adapter.devices()).devices], await adapter.hosts()


async def wait_until_succeeded(adapter, operation):
    """Return the operation at its end, which is a success."""
    operation = await waiting.until(
        lambda: adapter.operation(operation_id=operation.id), lambda operation: operation.done
    )
    assert operation.succeeded
    return operation


def make_config(redfish_lab, service, **changes):
    if service.configuration.constrained:
        changes["parameters"] = {"profile": "constrained"}
    return redfish_lab.config(service, **changes)


async def record_transcript(redfish_lab, service, **changes):
    config = make_config(redfish_lab, service, **changes)
    recorder = transcripts.Recorder(config)
    async with await RedfishAdapter.connect(config, recorder) as adapter:
        read = await walk(adapter)
    return transcripts.parse(msgspec.json.encode(recorder.transcript())), read


def shape(seen, hosts):
    """Return the unmasked part: the hosts' names are masked, and their order is not."""
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
    transcript, read = await record_transcript(redfish_lab, service)
    assert transcript.complete
    async with redfish_replay.replaying(transcript) as served:
        config = dataclasses.replace(make_config(redfish_lab, service), endpoint=served.url)
        async with await RedfishAdapter.connect(config) as adapter:
            assert shape(*await walk(adapter)) == shape(*read)
    assert served.left == []


@asynccontextmanager
async def replaying_file(path):
    """Return an adapter to the service of a transcript, and that service."""
    transcript = transcripts.parse(path.read_bytes())
    async with redfish_replay.replaying(transcript) as served:
        config = contract.AdapterConfig(
            name="reported",
            endpoint=served.url,
            timeout_seconds=10,
            credentials=contract.Credentials(username="drawbar", password=PASSWORD),
            parameters=transcript.parameters,
        )
        async with await RedfishAdapter.connect(config) as adapter:
            yield adapter, served


@pytest.mark.parametrize(
    "path", [path for path in REPORTED if path.stem not in WITHOUT_DEVICES], ids=lambda path: path.stem
)
async def test_a_reported_transcript_lists_hosts_and_devices(path):
    async with replaying_file(path) as (adapter, _):
        assert (await adapter.devices()).devices
        assert await adapter.hosts()


async def test_a_chunk_behind_the_manager_of_appliances_goes_to_ports_of_its_blade():
    async with replaying_file(WALKED[-1]) as (adapter, _):
        devices, hosts = (await adapter.devices()).devices, await adapter.hosts()
        reached = {
            device.id: {host.id for host in hosts if device.reach_groups & host.reach_groups}
            for device in devices
        }
    assert {len(ends) for ends in reached.values()} == {4}
    assert all(end.startswith(name.split(".")[1]) for name, ends in reached.items() for end in ends)


async def test_a_service_of_computer_systems_lists_hosts_and_says_that_it_has_no_devices():
    async with replaying_file(TRANSCRIPTS / "sushy_emulator.json") as (adapter, served):
        inventory = await adapter.devices()
        (host,) = await adapter.hosts()
    assert inventory.devices == inventory.unread == ()
    assert inventory.oddities == (fabrics.NO_DEVICES,)
    assert host.name == "fake"
    assert served.left == []


async def test_a_collection_in_the_form_before_redfish_1_0_is_no_empty_one():
    with pytest.raises(errors.Unavailable, match="ResourceBlocks and sent it without its array Members"):
        async with replaying_file(TRANSCRIPTS / "dmtf_interface_emulator.json"):
            pass


@pytest.mark.parametrize("path", WALKED, ids=lambda path: path.stem)
async def test_a_device_is_attached_and_detached_as_when_it_was_recorded(path):
    async with replaying_file(path) as (adapter, served):
        seen, hosts = await walk(adapter)
        connections = [[device.connection for device in devices if device.connection] for devices in seen]
        assert [len(listed) for listed in connections] == [0, 1, 0]
        assert connections[1][0].host_id == hosts[0].id
    assert served.left == []


async def test_the_blocks_of_necs_emulator_are_attached_as_when_it_was_recorded():
    path = TRANSCRIPTS / "nec_hw_emulator.json"
    async with replaying_file(path) as (adapter, _):
        listed = (await adapter.devices()).devices
        # Blocks 1 and 2 are of the hosts, though no type says so.
        assert {device.id: device.device_class for device in listed} == {
            "DeviceBlock-3": contract.DeviceClass.CXL_MEMORY,
            "DeviceBlock-4": contract.DeviceClass.OTHER,
            "DeviceBlock-5": contract.DeviceClass.NIC,
            "DeviceBlock-6": contract.DeviceClass.GPU,
            "DeviceBlock-7": contract.DeviceClass.GPU,
        }
        host = (await adapter.hosts())[0].id
        request = contract.AttachRequest(request_id="r1", host_id=host, device_id="DeviceBlock-6")
        attached = await wait_until_succeeded(adapter, await adapter.attach(request))
        assert attached.device.connection.host_id == host
        request = contract.DetachRequest(
            request_id="r2", device_id="DeviceBlock-6", host_id=host, host_prepared=True
        )
        await wait_until_succeeded(adapter, await adapter.detach(request))
        assert (await adapter.devices()).device("DeviceBlock-6").connection is None


@pytest.mark.parametrize("name", OTHERS)
async def test_a_server_of_others_lists_attaches_and_detaches_as_when_it_was_recorded(name):
    devices, hosts, device_id, host_id, attached, detached = OTHERS[name]
    path = TRANSCRIPTS / f"{name}.json"
    # The zone's description shows the request for which it was made.
    (request_id,) = set(re.findall(r"by-hand-[0-9a-f-]{36}", path.read_text())) or {"r1"}
    async with replaying_file(path) as (adapter, served):
        assert len((await adapter.devices()).devices) == devices
        assert len(await adapter.hosts()) == hosts
        request = contract.AttachRequest(request_id=request_id, device_id=device_id, host_id=host_id)
        assert await outcome(adapter, adapter.attach(request)) == attached
        if not attached:
            listed = {device.id: device for device in (await adapter.devices()).devices}
            assert listed[device_id].connection.host_id == host_id
            request = contract.DetachRequest(
                request_id="r2", device_id=device_id, host_id=host_id, host_prepared=True
            )
            assert await outcome(adapter, adapter.detach(request)) == detached
            listed = {device.id: device for device in (await adapter.devices()).devices}
            assert (listed[device_id].connection is None) == (not detached)
    assert served.left == []


async def outcome(adapter, beginning):
    """Return the reason for which an operation fails, or an empty text."""
    try:
        operation = await beginning
    except errors.FabricError as error:
        return error.reason
    operation = await waiting.until(
        lambda: adapter.operation(operation_id=operation.id), lambda operation: operation.done
    )
    return operation.error.reason if operation.error is not None else ""


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
async def test_no_secret_serial_number_address_or_name_of_a_user_is_in_a_transcript(redfish_lab, form):
    service = await redfish_lab.serve(
        **form | make_sensitive_configuration(form) | {"username": "rack-operator"}
    )
    transcript, _ = await record_transcript(redfish_lab, service)
    text = msgspec.json.encode(transcript).decode()
    basic = base64.b64encode(f"rack-operator:{PASSWORD}".encode()).decode()
    secrets = {PASSWORD, basic, "rack-operator", UUID, "SN-HOST-8841", "SN-GPU-7731", '"Q7"', "127.0.0.1"}
    if service.configuration.is_appliance:
        (port,) = service.tree[paths.endpoint("h1")]["Identifiers"]
        secrets.add(port["DurableName"])
    assert [value for value in secrets | set(service.issued) if value.lower() in text.lower()] == []
    assert "masked-serial-1" in text or service.configuration.is_appliance


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
        "iSCSIBoot": {"CHAPUsername": "yosemite", "PrimaryTargetName": "iqn.2005-03.com.acme:images"},
        "Link": "https://bmc7.rack.example:8443/redfish/v1",
        "Time": "2026-11-23T07:02:06+00:00",
        "FirmwareRevision": "1.15.0",
    }
    recorder.record_answer(
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
    assert answer["iSCSIBoot"] == {"CHAPUsername": "masked-user-1", "PrimaryTargetName": "masked-host-1"}
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
    async with redfish_replay.replaying(recorder.transcript()) as served:
        with pytest.raises(expected):
            await RedfishAdapter.connect(dataclasses.replace(config, endpoint=served.url))


def test_exchanges_beyond_the_bound_are_left_out(monkeypatch):
    monkeypatch.setattr(transcripts, "EXCHANGES", 2)
    recorder = transcripts.Recorder(contract.AdapterConfig(name="f", endpoint="http://127.0.0.1"))
    for _ in range(3):
        recorder.record_failure("GET", yarl.URL("http://127.0.0.1/redfish/v1"), None, "broken")
    transcript = recorder.transcript()
    assert not transcript.complete
    assert len(transcript.exchanges) == 2
