"""The emulated memory appliance shows what the backend of its maker's manager reads, by the requests which that sends."""

import json
from contextlib import AsyncExitStack

import aiohttp
import msgspec
import pytest

from drawbar.mocks import redfish
from drawbar.mocks.redfish import paths, world
from drawbar.mocks.redfish.configuration import Device, Enclosure, Host

CONFIGURATION = redfish.Configuration(
    hosts=(Host(id="port0"), Host(id="port1")),
    enclosures=(
        Enclosure(
            id="blade1",
            devices=(
                Device(id="memorychunk1", kind="cxl-memory", memory_mib=32768),
                Device(id="memorychunk2", kind="cxl-memory", memory_mib=8192),
            ),
        ),
    ),
    method="connections",
    initiators=False,
)
ROOT = "/redfish/v1/"
CHUNK = "/redfish/v1/Systems/blade1/MemoryDomains/1/MemoryChunks/memorychunk1"


@pytest.fixture
async def backend():
    """Return a function that sends a request as the backend does, with the body `null` where it has none."""
    async with AsyncExitStack() as stack:
        service = await stack.enter_async_context(redfish.serving(CONFIGURATION))
        session = await stack.enter_async_context(aiohttp.ClientSession(service.url))

        async def query(method, path, body=None):
            content = json.dumps(body).encode()
            async with session.request(method, path, data=content) as answer:
                assert answer.status < 300, await answer.text()
                return await answer.json() if answer.status != 204 else {}

        yield query


async def find_first_member(query, uri):
    return (await query("GET", uri))["Members"][0]["@odata.id"]


async def test_each_port_of_the_switch_leads_to_its_endpoint(backend):
    root = await backend("GET", ROOT)
    fabric = await find_first_member(backend, root["Fabrics"]["@odata.id"])
    switch = await find_first_member(backend, f"{fabric}/Switches")
    ports = (await backend("GET", f"{switch}/Ports"))["Members"]
    assert [port["@odata.id"].rpartition("/")[2] for port in ports] == ["port0", "port1"]
    for entry in ports:
        port = await backend("GET", entry["@odata.id"])
        assert (port["Status"]["Health"], port["Status"]["State"]) == ("OK", "Enabled")
        (associated,) = port["Links"]["AssociatedEndpoints"]
        endpoint = await backend("GET", associated["@odata.id"])
        assert endpoint["Identifiers"][0]["DurableName"]
        assert endpoint["Links"]["ConnectedPorts"] == [entry]
        assert endpoint["Links"]["Connections"] == []


async def test_the_enclosure_has_four_modules_and_blocks_in_them(backend):
    root = await backend("GET", ROOT)
    chassis = await backend("GET", await find_first_member(backend, root["Chassis"]["@odata.id"]))
    modules = f"{chassis['@odata.id']}/Memory"
    dimms = [await backend("GET", f"{modules}/dimm{number}") for number in range(4)]
    assert [dimm["CapacityMiB"] for dimm in dimms] == [10240] * 4
    blocks = (await backend("GET", f"{ROOT}CompositionService/ResourceBlocks"))["Members"]
    total = 0
    for entry in blocks:
        block = await backend("GET", entry["@odata.id"])
        assert block["ResourceBlockType"] == ["Memory"]
        assert block["CompositionStatus"] == {"CompositionState": "Composed", "Reserved": True}
        (memory,) = block["Memory"]
        module = await backend("GET", memory["@odata.id"])
        number, _, dimm = module["Id"].removeprefix("block").partition("dimm")
        assert (number.isdigit(), dimm in {"0", "1", "2", "3"}) == (True, True)
        total += module["CapacityMiB"]
    assert (len(blocks), total) == (8, 40960)


async def test_memory_is_assigned_and_unassigned(backend):
    endpoint = paths.endpoint("port1")
    body = {
        "ConnectionType": "Memory",
        "MemoryChunkInfo": [{"MemoryChunk": {"@odata.id": CHUNK}}],
        "Links": {"TargetEndpoints": [{"@odata.id": endpoint}]},
    }
    made = (await backend("POST", paths.CONNECTIONS, body))["@odata.id"]
    assert (await backend("GET", CHUNK))["Links"]["Endpoints"] == [{"@odata.id": endpoint}]
    assert (await backend("GET", endpoint))["Links"]["Connections"] == [{"@odata.id": made}]
    await backend("DELETE", made)
    assert (await backend("GET", CHUNK))["Links"]["Endpoints"] == []
    assert (await backend("GET", endpoint))["Links"]["Connections"] == []


def test_two_appliances_of_one_product_have_two_uuids():
    """Seagate's cfm-service takes a second one with the same UUID for the first."""
    enclosures = tuple(msgspec.structs.replace(each, id="blade2") for each in CONFIGURATION.enclosures)
    trees = [
        world.create(each)
        for each in (CONFIGURATION, msgspec.structs.replace(CONFIGURATION, enclosures=enclosures))
    ]
    assert len({tree[paths.SYSTEMS.rpartition("/")[0]]["UUID"] for tree in trees}) == 2
