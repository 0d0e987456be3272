"""What a memory appliance is read as, whose connections name chunks and the endpoint of a port, and what it is sent."""

import pytest
from tests.scenes.redfish_trees import (
    FABRIC,
    ROOT,
    appliance,
    chunk,
    collection,
    connection,
    endpoint,
    initiator,
    link,
    links,
)

from drawbar.fabric import contract, errors
from drawbar.fabric.redfish import profiles
from drawbar.fabric.redfish.appliance import Appliance

BLADE = "Systems/blade"
PORTS = (endpoint("p1"), endpoint("p2"))
CHUNKS = (chunk("c1", BLADE), chunk("c2", BLADE))


def uri(name):
    return chunk(name, BLADE)["@odata.id"]


async def read(*resources, tree=None, **arguments):
    method = Appliance(profiles.PROFILES["cma"], **arguments)
    await method.read(tree or appliance(*PORTS, *CHUNKS, *resources))
    return method


def attach(device_id="blade.d.c1", host_id="p1"):
    return contract.AttachRequest(request_id="r1", device_id=device_id, host_id=host_id, mark="m1")


def detach(device_id="blade.d.c1", host_id="p1"):
    return contract.DetachRequest(request_id="r2", device_id=device_id, host_id=host_id)


def locate_devices(method):
    """Return where the devices are that are listed."""
    devices = method.view().devices.values()
    return {device.id: device.connection and device.connection.host_id for device in devices}


# --- what is read ---


@pytest.mark.parametrize("owner", [BLADE, "Chassis/blade"])
async def test_chunks_of_domains_are_devices(owner):
    tree = appliance(*PORTS, chunk("c1", owner), chunk("c2", owner), owner=owner)
    devices = (await read(tree=tree)).view().devices
    assert list(devices) == ["blade.d.c1", "blade.d.c2"]
    device = devices["blade.d.c1"]
    assert (device.device_class, device.memory_bytes) == (contract.DeviceClass.CXL_MEMORY, 1 << 30)
    assert (device.model, device.serial, device.connection) == ("Chunk c1", None, None)


async def test_the_logical_device_of_a_chunk_describes_it():
    logical = f"{ROOT}/Chassis/e/PCIeDevices/1/CXLLogicalDevices/6"
    identifier = {"DurableName": "4C-1D-96-FF-FE-DD-D8-35:0006", "DurableNameFormat": "GCXLID"}
    described = chunk("c1", BLADE, Links={"CXLLogicalDevices": links(logical)})
    resource = {"@odata.id": logical, "Id": "6", "Identifiers": [identifier], "MemorySizeMiB": 9}
    device = (await read(described, resource)).view().devices["blade.d.c1"]
    assert [each.value for each in device.identifiers] == ["4c-1d-96-ff-fe-dd-d8-35"]
    assert device.serial == "4c-1d-96-ff-fe-dd-d8-35"
    assert (device.enclosure, device.memory_bytes) == ("e", 1 << 30)


async def test_a_chunk_of_a_chassis_is_in_this_enclosure_wherever_its_logical_device_is():
    logical = f"{ROOT}/Chassis/e/PCIeDevices/1/CXLLogicalDevices/6"
    described = chunk("c1", "Chassis/blade", Links={"CXLLogicalDevices": links(logical)})
    tree = appliance(*PORTS, described, {"@odata.id": logical, "Id": "6"}, owner="Chassis/blade")
    assert (await read(tree=tree)).view().devices["blade.d.c1"].enclosure == "blade"


async def test_a_domain_without_chunks_has_no_devices():
    tree = appliance(*PORTS, *CHUNKS)
    del tree.resources[f"{ROOT}/{BLADE}/MemoryDomains/d"]["MemoryChunks"]
    assert locate_devices(await read(tree=tree)) == {}


async def test_a_chunk_that_a_chassis_links_to_as_well_is_one_device():
    tree = appliance(*PORTS, *CHUNKS)
    tree.resources[ROOT]["Chassis"] = link(f"{ROOT}/Chassis")
    tree.resources[f"{ROOT}/Chassis"] = collection(f"{ROOT}/Chassis", "e")
    domains = link(f"{ROOT}/{BLADE}/MemoryDomains")
    tree.resources[f"{ROOT}/Chassis/e"] = {
        "@odata.id": f"{ROOT}/Chassis/e",
        "Id": "e",
        "MemoryDomains": domains,
    }
    assert list(locate_devices(await read(tree=tree))) == ["blade.d.c1", "blade.d.c2"]


async def test_a_chunk_that_is_gone_is_no_device():
    assert list(locate_devices(await read(chunk("c1", BLADE, Status={"State": "Absent"})))) == ["blade.d.c2"]


async def test_each_endpoint_of_a_port_is_a_host_with_one_port():
    identifier = {"DurableName": "4C-1D-96-FF-FE-DD-D8-35:0000", "DurableNameFormat": "GCXLID"}
    own = {"DurableName": "ABC", "DurableNameFormat": "UUID"}
    named = endpoint("p3", Identifiers=[own, identifier], Name="Port 3")
    method = await read(
        named,
        endpoint("gone", Status={"State": "Absent"}),
        endpoint("switch", {"EntityType": "Switch", "EntityRole": "Target"}),
    )
    hosts = method.view().hosts
    assert list(hosts) == ["p1", "p2", "p3"]
    assert (hosts["p3"].name, hosts["p3"].identifiers) == ("Port 3", {"gcxlid": identifier["DurableName"]})
    ports = [(port.id, port.state) for port in hosts["p3"].ports]
    assert ports == [("F.p3/free-1", contract.PortState.FREE)]


async def test_a_port_with_a_chunk_stays_a_host_of_its_own():
    entity = {"EntityType": "MemoryChunk", "EntityRole": "Target", "EntityLink": link(uri("c1"))}
    method = await read(endpoint("p1", entity), connection("n", targets=["p1"], chunks=[uri("c1")]))
    assert locate_devices(method) == {"blade.d.c1": "p1", "blade.d.c2": None}
    ports = {host.id: [(port.state, port.device_id) for port in host.ports] for host in _hosts(method)}
    assert ports == {
        "p1": [(contract.PortState.USED, "blade.d.c1")],
        "p2": [(contract.PortState.FREE, None)],
    }


def _hosts(method):
    return method.view().hosts.values()


async def test_endpoints_that_name_a_system_as_initiator_are_ports_of_it_and_its_own_memory_is_no_device():
    tree = appliance(*CHUNKS, initiator("i1", "h1"), initiator("i2", "h1"))
    systems = f"{ROOT}/Systems"
    tree.resources[systems] = collection(systems, "blade", "h1")
    own = {"@odata.id": f"{systems}/h1", "Id": "h1", "UUID": "ABC"}
    tree.resources[f"{systems}/h1"] = own | {"MemoryDomains": link(f"{systems}/h1/MemoryDomains")}
    method = await read(tree=tree)
    (host,) = _hosts(method)
    assert (host.id, host.identifiers) == ("h1", {"system-uuid": "abc"})
    assert [port.id for port in host.ports] == ["F.i1/free-1", "F.i2/free-1"]
    assert list(locate_devices(method)) == ["blade.d.c1", "blade.d.c2"]
    assert f"{systems}/h1/MemoryDomains" not in tree.reads


READ = {
    "a port": (
        connection("n", targets=["p2"], chunks=[uri("c1")]),
        {"blade.d.c1": "p2", "blade.d.c2": None},
    ),
    "a manager's type": (
        connection("n", targets=["p2"], chunks=[uri("c1")]) | {"ConnectionType": "CXL"},
        {"blade.d.c1": "p2", "blade.d.c2": None},
    ),
    "several chunks": (
        connection("n", targets=["p2"], chunks=[uri("c1"), uri("c2")]),
        {"blade.d.c1": "p2", "blade.d.c2": "p2"},
    ),
    "a chunk in another spelling": (
        connection("n", targets=["p1"], chunks=[f"{uri('c1')}/?x=1"]),
        {"blade.d.c1": "p1", "blade.d.c2": None},
    ),
    "several ports": (
        connection("n", targets=["p2", "p1"], chunks=[uri("c1")]),
        {"blade.d.c1": "p1", "blade.d.c2": None},
    ),
    "an initiator": (
        connection("n", initiators=["p1"], targets=["p2"], chunks=[uri("c1")]),
        {"blade.d.c1": "p1", "blade.d.c2": None},
    ),
    "no port": (connection("n", chunks=[uri("c1")]), {"blade.d.c2": None}),
    "an unknown port": (connection("n", targets=["p9"], chunks=[uri("c1")]), {"blade.d.c2": None}),
    "another type": (
        connection("n", targets=["p1"], chunks=[uri("c1")]) | {"ConnectionType": "Storage"},
        {"blade.d.c1": None, "blade.d.c2": None},
    ),
    "odd information": (
        connection("n", targets=["p1"])
        | {"MemoryChunkInfo": [7, {}, {"MemoryChunk": 7}, {"MemoryChunk": link(uri("c2"))}]},
        {"blade.d.c1": None, "blade.d.c2": "p1"},
    ),
    "no chunk": (connection("n", targets=["p1"]), {"blade.d.c1": None, "blade.d.c2": None}),
}


@pytest.mark.parametrize(("resource", "expected"), READ.values(), ids=READ)
async def test_the_devices_of_a_connection_are_located(resource, expected):
    assert locate_devices(await read(resource)) == expected


async def test_of_two_chunks_that_would_have_one_id_none_is_listed():
    tree = appliance(*PORTS, chunk("c1", BLADE), chunk("again", BLADE, Id="c1"))
    collection_uri = f"{ROOT}/{BLADE}/MemoryDomains/d/MemoryChunks"
    tree.resources[collection_uri] = collection(collection_uri, "c1", "again")
    view = (await read(tree=tree)).view()
    assert view.devices == {}
    assert [sentence for sentence in view.oddities if "MemoryChunks/again" in sentence]


# --- what is sent ---


async def test_a_chunk_is_connected_with_the_endpoint_of_a_port_and_nothing_else_is_sent():
    call = (await read()).attach(attach(host_id="p2"), "blade.d.c1", "F.p2/free-1")
    assert (call.method, call.uri, call.etag) == ("POST", f"{FABRIC}/Connections", None)
    assert call.body == {
        "ConnectionType": "Memory",
        "MemoryChunkInfo": [{"MemoryChunk": link(uri("c1"))}],
        "Links": {"TargetEndpoints": links(f"{FABRIC}/Endpoints/p2")},
    }


MANAGER = "Memory Appliance Composer & Fabric Manager Redfish Service"


async def test_the_manager_of_appliances_gets_a_connection_of_its_type_with_a_name():
    tree = appliance(*PORTS, *CHUNKS)
    tree.resources[ROOT]["Product"] = MANAGER
    call = (await read(tree=tree)).attach(attach(host_id="p2"), "blade.d.c1", "F.p2/free-1")
    assert call.body == {
        "@odata.id": f"{FABRIC}/Connections/c1-p2",
        "@odata.type": "#Connection.v1_3_0.Connection",
        "Id": "c1-p2",
        "Name": "blade.d.c1 at p2",
        "ConnectionType": "CXL",
        "MemoryChunkInfo": [{"MemoryChunk": link(uri("c1"))}],
        "Links": {"TargetEndpoints": links(f"{FABRIC}/Endpoints/p2")},
    }


def groups(method):
    view = method.view()
    return {each.id: set(each.reach_groups) for each in (*view.devices.values(), *view.hosts.values())}


def port_of(switch, name):
    return endpoint(name, Links={"ConnectedPorts": links(f"{FABRIC}/Switches/{switch}/Ports/{name}")})


def blades(*ports):
    """Return a manager's service: the blades d and e of the appliance F."""
    tree = appliance(*ports, chunk("c1", "Systems/F"), owner="Systems/F")
    domains = f"{ROOT}/Systems/F/MemoryDomains"
    other = f"{domains}/e/MemoryChunks"
    tree.resources[domains] = collection(domains, "d", "e")
    tree.resources[f"{domains}/e"] = {"@odata.id": f"{domains}/e", "Id": "e", "MemoryChunks": link(other)}
    tree.resources[other] = collection(other, "c1")
    tree.resources[f"{other}/c1"] = chunk("c1") | {"@odata.id": f"{other}/c1"}
    return tree


async def test_a_chunk_goes_to_the_ports_of_its_own_blade():
    tree = blades(port_of("d", "p1"), port_of("e", "p2"))
    assert groups(await read(tree=tree)) == {
        "F.d.c1": {"F/d"},
        "F.e.c1": {"F/e"},
        "p1": {"F/d"},
        "p2": {"F/e"},
    }


@pytest.mark.parametrize(
    "ports",
    [
        (port_of("d", "p1"), endpoint("p2")),
        (port_of("d", "p1"), port_of("d", "p2")),
        (port_of("x", "p1"), port_of("y", "p2")),
    ],
    ids=["a port without a switch", "no port of a blade", "switches of other names"],
)
async def test_blades_that_are_not_known_make_no_groups(ports):
    assert set().union(*groups(await read(tree=blades(*ports))).values()) == set()


async def test_a_connection_is_ended_under_its_etag():
    method = await read(connection("n", targets=["p1"], chunks=[uri("c1")]))
    call = method.detach(detach(), "blade.d.c1")
    assert (call.method, call.uri, call.body, call.etag) == ("DELETE", f"{FABRIC}/Connections/n", None, '"n"')
    assert method.detach(detach(host_id="p2"), "blade.d.c1") is None
    assert method.detach(detach("blade.d.c2"), "blade.d.c2") is None


@pytest.mark.parametrize(
    "ends",
    [{"targets": ["p1", "p2"], "chunks": [uri("c1")]}, {"targets": ["p1"], "chunks": [uri("c1"), uri("c2")]}],
    ids=["another port", "another chunk"],
)
async def test_a_connection_that_has_more_is_not_ended(ends):
    method = await read(connection("n", **ends))
    with pytest.raises(errors.FailedPrecondition, match="other memory or hosts"):
        method.detach(detach(), "blade.d.c1")


async def test_uris_of_chunks_and_connections_stand_for_devices():
    method = await read(connection("n", targets=["p1"], chunks=[uri("c1")]))
    assert method.device_ids({f"{FABRIC}/Connections/n"}) == {"blade.d.c1"}
    assert method.device_ids({uri("c2"), f"{FABRIC}/Endpoints/p1"}) == {"blade.d.c2"}


@pytest.mark.parametrize(
    ("device_id", "host_id"), [("blade.d.gone", "p1"), ("blade.d.c1", "gone")], ids=["chunk", "port"]
)
async def test_a_device_or_host_removed_meanwhile_is_not_attached(device_id, host_id):
    method = await read()
    with pytest.raises(errors.Aborted, match="gone was removed"):
        method.attach(attach(device_id, host_id), device_id, "")
