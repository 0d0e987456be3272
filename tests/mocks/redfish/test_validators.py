"""The validators of the DMTF judge the emulator, and two clients of other people read it; run by `make redfish`."""

import asyncio
import csv
import os
import re
import shutil
import ssl
import sys
import sysconfig
from collections import Counter
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme

from drawbar.fabric import contract
from drawbar.fabric.redfish.adapter import RedfishAdapter
from drawbar.mocks import redfish
from drawbar.mocks.redfish.configuration import Device, Enclosure, Host

PROGRAMS = os.pathsep.join((sysconfig.get_path("scripts"), str(Path(sys.executable).parent)))
SERVICE_VALIDATOR = shutil.which("rf_service_validator", path=PROGRAMS)
PROTOCOL_VALIDATOR = shutil.which("rf_protocol_validator", path=PROGRAMS)
SCHEMAS = os.environ.get("SCHEMAS", "")
VALIDATOR_SECONDS = 240
USER, PASSWORD = "drawbar", "Correct-Horse-1"
DEVICES = (
    Device(id="gpu-1", kind="gpu", model="A100", vendor="N", serial="S1", memory_mib=81920),
    Device(id="fpga-1", kind="fpga"),
    Device(id="disk-1", kind="nvme"),
    Device(id="memory-1", kind="cxl-memory", serial="0x3091117810000a27", memory_mib=65536),
)
NIC = Device(id="nic-1", kind="nic")
# Connections are of memory alone.
MEMORY = (
    Device(id="memory-1", kind="cxl-memory", serial="S1", memory_mib=65536),
    Device(id="memory-2", kind="cxl-memory", serial="0x3091117810000a28", memory_mib=65536),
    Device(id="pool-1", kind="cxl-memory", memory_mib=65536, slice_mib=1024),
)
FORMS = {
    "a zone for each pair, by tasks": {"task_seconds": 0.02},
    "a zone for each host port, by actions": {"zones": "port", "product": "H3 Falcon", "actions": True},
    "a connection for each pair": {"method": "connections"},
    "a connection without an initiator": {"method": "connections", "initiators": False},
    "composition by changed arrays, without $expand and events": {
        "method": "composition",
        "expand": False,
        "events": False,
    },
    "composition by actions and tasks": {"method": "composition", "actions": True, "task_seconds": 0.02},
    "composition by counts": {"method": "composition", "constrained": True},
}
# What the service validator may find, which finds it in the DMTF's own mock-up as well.
CAPABILITIES = re.compile(
    r"ERROR - FAIL - /(Processors|Memory|Storage) \(\[Object\]\): Reference Object Error: "
    r"The navigation property '\1' does not contain '@odata.id'."
)
# What the protocol validator may find, with the reason.
ACCEPTED = {
    "PROTO_HTTP_UNSUPPORTED_METHODS": "the HTTP parser refuses an unknown method with 400, before the service",
    "SEC_PRIV_SUPPORT_PREDEFINED_ROLES": "the emulator has one user, and neither accounts nor roles",
    "SEC_NO_PRIV_INFO_IN_MSGS": "the emulator quotes the password that it refuses, so that tests see it masked",
}
# Without TLS besides.
ACCEPTED_IN_THE_CLEAR = {
    "SEC_BASIC_AUTH_OVER_HTTPS": "the emulator takes a password over HTTP, since it serves on loopback only",
}

# Their sockets are closed by the garbage collector.
pytestmark = [pytest.mark.timeout(2 * VALIDATOR_SECONDS), pytest.mark.filterwarnings("default")]


def devices(form):
    match form.get("method"):
        case "connections":
            return MEMORY
        case "composition":
            return DEVICES
        case _:
            # No resource block consists of a network card.
            return (*DEVICES, NIC)


class Judged:
    """A service with a device attached, and a slice made where slices are.

    Attributes:
        url: of the service, by name, as certificates have it.
        authority: file of the authority that signed its certificate.
    """

    def __init__(self, url, authority):
        self.url = url
        self.authority = authority


@asynccontextmanager
async def serving_folder(folder, *, is_secure=True, **changes):
    configuration = redfish.Configuration(
        hosts=(Host(id="h1"), Host(id="h2")),
        enclosures=(Enclosure(id="e1", devices=devices(changes)),),
        username=USER,
        password=PASSWORD,
        **changes,
    )
    authority, file = trustme.CA(), folder / "authority.pem"
    authority.cert_pem.write_to_path(file)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(tls)
    profile = "cma" if configuration.is_appliance else "constrained" if configuration.constrained else ""
    parameters = {"profile": profile} if profile else {}
    async with redfish.serving(configuration, tls=tls if is_secure else None) as service:
        config = contract.AdapterConfig(
            name="fabric",
            endpoint=service.url.replace("127.0.0.1", "localhost"),
            timeout_seconds=30,
            credentials=contract.Credentials(
                username=USER, password=PASSWORD, authority=authority.cert_pem.bytes().decode()
            ),
            parameters=parameters,
        )
        async with await RedfishAdapter.connect(config) as adapter:
            device = next(
                device
                for device in (await adapter.devices()).devices
                # The chunks of an appliance show no serial number.
                if device.serial == "S1" or configuration.is_appliance
            )
            wanted = {"model": device.model} if configuration.constrained else {"device_id": device.id}
            request = contract.AttachRequest(request_id="r1", host_id="h1", **wanted)
            operation = await adapter.attach(request)
            while not operation.done:
                operation = await adapter.operation(operation_id=operation.id)
            assert operation.succeeded
            if (await adapter.capabilities()).slices:
                slice_request = contract.CreateSliceRequest(
                    request_id="r2", device_id="e1.pool-1", memory_bytes=1 << 30
                )
                assert (await adapter.create_slice(slice_request)).succeeded
            yield Judged(config.endpoint, file)


async def output(*words, authority):
    """Return the exit status and what the program writes; it trusts the authority, whatever the environment has."""
    process = await asyncio.create_subprocess_exec(
        *map(str, words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "REQUESTS_CA_BUNDLE": str(authority)},
    )
    try:
        async with asyncio.timeout(VALIDATOR_SECONDS):
            written, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode, written.decode(errors="replace")


@pytest.mark.tool("validators", "schemas")
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
async def test_every_resource_is_as_its_schema_says(tmp_path, form):
    async with serving_folder(tmp_path, **form) as service:
        status, written = await output(
            *(
                SERVICE_VALIDATOR,
                "-u",
                USER,
                "-p",
                PASSWORD,
                "-r",
                service.url,
                "--logdir",
                tmp_path / "logs",
            ),
            *("--schema_directory", SCHEMAS, "--skipschema"),
            authority=service.authority,
        )
    log = "\n".join(path.read_text() for path in (tmp_path / "logs").rglob("*.log"))
    findings = re.findall(r"(?:ERROR|WARNING) - .*", log)
    accepted = [
        finding for finding in findings if form.get("constrained") and CAPABILITIES.fullmatch(finding)
    ]
    assert findings == accepted
    assert (status == 0) == (not findings), written[-2000:]
    judged = re.findall(r"Pass: (\d+), Warn: 0, Fail: 0", written)
    assert len(judged) > 20


@pytest.mark.tool("validators")
@pytest.mark.parametrize("is_secure", [True, False], ids=["https", "http"])
@pytest.mark.parametrize("form", [FORMS["a zone for each pair, by tasks"]], ids=["zones"])
async def test_the_protocol_is_as_the_specification_says(tmp_path, form, is_secure):
    async with serving_folder(tmp_path, is_secure=is_secure, **form) as service:
        _, written = await output(
            *(PROTOCOL_VALIDATOR, "-u", USER, "-p", PASSWORD, "-r", service.url, "--avoid-http-redirect"),
            *("--report-type", "tsv", "--report-dir", tmp_path / "report"),
            authority=service.authority,
        )
    reports = list((tmp_path / "report").glob("*.tsv"))
    assert reports, written[-2000:]
    with reports[0].open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    accepted = ACCEPTED if is_secure else {**ACCEPTED, **ACCEPTED_IN_THE_CLEAR}
    failed = {row["Assertion"] for row in rows if row["Result"] == "FAIL"}
    assert [row for row in rows if row["Result"] == "FAIL" and row["Assertion"] not in accepted] == []
    assert failed == set(accepted), "an exception that is not needed any more"
    assert Counter(row["Result"] for row in rows)["PASS"] > 150


@pytest.mark.tool("sushy")
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
async def test_sushy_reads_endpoints_and_resource_blocks(tmp_path, form):
    import sushy
    from sushy.resources.compositionservice import resourceblock

    def read(service):
        root = sushy.Sushy(service.url, USER, PASSWORD, verify=str(service.authority))
        systems = {system.identity for system in root.get_system_collection().get_members()}
        if form.get("method") == "composition":
            # Not `resource_blocks` of the service: sushy 5.14 uses the function for the path in place of the path.
            path = root.get_composition_service().json["ResourceBlocks"]["@odata.id"]
            blocks = resourceblock.ResourceBlockCollection(root._conn, path).get_members()
            return systems, {
                block.identity: block.composition_status.composition_state.value for block in blocks
            }
        (fabric,) = root.get_fabric_collection().get_members()
        return systems, {
            endpoint.identity: [entity.entity_role.value for entity in endpoint.connected_entities][:1]
            for endpoint in fabric.endpoints.get_members()
        }

    async with serving_folder(tmp_path, **form) as service:
        systems, listed = await asyncio.to_thread(read, service)
    is_appliance = form.get("initiators") is False
    assert systems == ({"e1"} if is_appliance else {"h1", "h2"})
    ids = {device.id for device in devices(form)}
    if form.get("method") == "connections" and not is_appliance:
        # The endpoint of the slice.
        ids.add("pool-1-2")
    if form.get("method") == "composition":
        assert listed == dict.fromkeys(ids, "Unused") | {"gpu-1": "Composed"}
    elif is_appliance:
        assert listed == {"h1": [], "h2": []}
    else:
        roles = {name: ["Target"] for name in ids} | {name: ["Initiator"] for name in ("h1", "h2")}
        assert listed == roles


@pytest.mark.tool("redfish")
async def test_redfish_reads_zones_and_follows_links(tmp_path):
    import redfish as library

    def read(service):
        client = library.redfish_client(
            base_url=service.url, username=USER, password=PASSWORD, cafile=str(service.authority)
        )
        client.login(auth=library.AuthMethod.SESSION)
        try:
            fabrics = client.get(client.root["Fabrics"]["@odata.id"]).dict
            fabric = client.get(fabrics["Members"][0]["@odata.id"]).dict
            zones = client.get(fabric["Zones"]["@odata.id"]).dict
            zone = client.get(zones["Members"][0]["@odata.id"]).dict
            endpoints = [client.get(link["@odata.id"]).dict for link in zone["Links"]["Endpoints"]]
        finally:
            client.logout()
        return [endpoint["Id"] for endpoint in endpoints]

    async with serving_folder(tmp_path) as service:
        assert await asyncio.to_thread(read, service) == ["h1", "gpu-1"]


@pytest.mark.tool("redfish")
async def test_redfish_reads_a_composition(tmp_path):
    import redfish as library

    def read(service):
        client = library.redfish_client(
            base_url=service.url, username=USER, password=PASSWORD, cafile=str(service.authority)
        )
        client.login(auth=library.AuthMethod.BASIC)
        system = client.get("/redfish/v1/Systems/h1").dict
        (block,) = [client.get(link["@odata.id"]).dict for link in system["Links"]["ResourceBlocks"]]
        return client.get(block["Processors"][0]["@odata.id"]).dict["SerialNumber"]

    async with serving_folder(tmp_path, method="composition") as service:
        assert await asyncio.to_thread(read, service) == "S1"
