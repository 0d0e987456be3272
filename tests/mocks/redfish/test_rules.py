"""What the emulated service refuses: bodies of any form, and changes that no service makes."""

import pytest

from drawbar.mocks import redfish
from drawbar.mocks.redfish import ends, paths, rules, world
from drawbar.mocks.redfish.configuration import Device, Enclosure, Host

HOST, OTHER_HOST = paths.endpoint("h1"), paths.endpoint("h2")
TARGET, OTHER_TARGET = paths.endpoint("m1"), paths.endpoint("m2")


def serve(*, kind="cxl-memory", **behaviour):
    configuration = redfish.Configuration(
        hosts=(Host(id="h1"), Host(id="h2")),
        enclosures=(Enclosure(id="e1", devices=(Device(id="m1", kind=kind), Device(id="m2", kind=kind))),),
        **behaviour,
    )
    tree = world.create(configuration)
    return rules.Rules(tree, configuration), tree


def links(*uris):
    return [{"@odata.id": uri} for uri in uris]


def catch_refusal(service, path, body, method="POST"):
    with pytest.raises(rules.Refused) as caught:
        service.change(method, path, body)
    return caught.value.status, caught.value.key.rpartition(".")[2]


# --- zones ---


@pytest.mark.parametrize(
    "listed",
    [
        {},
        {"Links": None},
        {"Links": []},
        {"Links": {"Endpoints": {"@odata.id": HOST}}},
        {"Links": {"Endpoints": [HOST]}},
        {"Links": {"Endpoints": [{"@odata.id": 7}]}},
        {"Links": {"Endpoints": [{}]}},
    ],
)
def test_a_zone_needs_an_array_of_links(listed):
    service, tree = serve(kind="gpu")
    assert catch_refusal(service, paths.ZONES, listed) == (400, "PropertyMissing")
    assert tree.list_members(paths.ZONES) == ()


@pytest.mark.parametrize("uri", [paths.endpoint("none"), f"{paths.SYSTEMS}/h1", paths.ENDPOINTS])
def test_a_zone_is_of_endpoints(uri):
    service, _ = serve(kind="gpu")
    assert catch_refusal(service, paths.ZONES, {"Links": {"Endpoints": links(uri)}}) == (
        400,
        "ResourceNotFound",
    )


def test_a_zone_has_one_host():
    service, _ = serve(kind="gpu")
    body = {"Links": {"Endpoints": links(HOST, OTHER_HOST)}}
    assert catch_refusal(service, paths.ZONES, body) == (409, "PropertyValueResourceConflict")


def test_an_action_needs_the_zones_own_etag_and_an_endpoint():
    service, tree = serve(kind="gpu", actions=True, zones="port")
    action = f"{paths.ZONES}/h1/Actions/Zone.AddEndpoint"
    added = {"Endpoint": {"@odata.id": TARGET}}
    for etag in ('"old"', ["odd"]):
        assert catch_refusal(service, action, added | {"ZoneETag": etag}) == (412, "PreconditionFailed")
    for odd in ({}, {"Endpoint": TARGET}, {"Endpoint": {"@odata.id": 7}}):
        assert catch_refusal(service, action, odd) == (400, "ActionParameterMissing")
    service.change("POST", action, added | {"ZoneETag": tree.etag(f"{paths.ZONES}/h1")})
    assert ends.ends(tree[f"{paths.ZONES}/h1"]) == [HOST, TARGET]


def test_a_zone_keeps_its_own_devices_and_gets_none_of_another():
    service, tree = serve(kind="gpu")
    zone = service.change("POST", paths.ZONES, {"Links": {"Endpoints": links(HOST, TARGET)}})
    service.change("POST", paths.ZONES, {"Links": {"Endpoints": links(OTHER_HOST, OTHER_TARGET)}})
    service.change("PATCH", zone, {"Links": {"Endpoints": links(TARGET, HOST)}})
    assert ends.ends(tree[zone]) == [TARGET, HOST]
    body = {"Links": {"Endpoints": links(HOST, TARGET, OTHER_TARGET)}}
    assert catch_refusal(service, zone, body, "PATCH") == (409, "PropertyValueResourceConflict")


def test_a_service_may_leave_it_to_its_clients_that_a_device_is_connected_once():
    service, tree = serve(kind="gpu", exclusive=False)
    for host in (HOST, OTHER_HOST):
        service.change("POST", paths.ZONES, {"Links": {"Endpoints": links(host, TARGET)}})
    assert len(tree.list_members(paths.ZONES)) == 2
    service, tree = serve(method="connections", initiators=False, exclusive=False)
    for _ in range(2):
        service.change("POST", paths.CONNECTIONS, port())
    assert len(tree.list_members(paths.CONNECTIONS)) == 2


# --- connections ---

ACCESS = {"AccessCapabilities": ["Read", "Write"]}


def chunk(name, owner="Chassis"):
    return f"/redfish/v1/{owner}/e1/MemoryDomains/1/MemoryChunks/{name}"


def pair(chunks=("m1",), initiators=(HOST,), targets=(TARGET,), **properties):
    return {
        "ConnectionType": "Memory",
        "MemoryChunkInfo": [{"MemoryChunk": {"@odata.id": chunk(name)}} for name in chunks],
        "Links": {"InitiatorEndpoints": links(*initiators), "TargetEndpoints": links(*targets)},
        **properties,
    }


CONFLICT = (400, "PropertyValueConflict")
PAIRS = {
    "another type": (pair(ConnectionType="Storage"), CONFLICT),
    "no type": (pair(ConnectionType=None), CONFLICT),
    "no chunks": (pair(chunks=()), CONFLICT),
    "no array of chunks": (pair(MemoryChunkInfo=None), CONFLICT),
    "chunks that are no array": (pair(MemoryChunkInfo={"MemoryChunk": {}}), CONFLICT),
    "a chunk that is no object": (pair(MemoryChunkInfo=[7]), CONFLICT),
    "a chunk without a link": (pair(MemoryChunkInfo=[{"MemoryChunk": "m1"}]), CONFLICT),
    "a link that is none": (pair(MemoryChunkInfo=[{"MemoryChunk": {"@odata.id": [1]}}]), CONFLICT),
    "half a chunk more": (pair(MemoryChunkInfo=[*pair()["MemoryChunkInfo"], ACCESS]), CONFLICT),
    "the chunk of another target": (pair(chunks=["m2"]), CONFLICT),
    "a chunk more than the target has": (pair(chunks=["m1", "m2"]), CONFLICT),
    "a target without its chunk": (pair(targets=[TARGET, OTHER_TARGET]), CONFLICT),
    "no memory at all": (pair(chunks=(), targets=()), CONFLICT),
    "no initiator": (pair(initiators=()), CONFLICT),
    "a device as the initiator": (pair(initiators=[OTHER_TARGET]), CONFLICT),
    "two hosts": (pair(initiators=[HOST, OTHER_HOST]), (409, "PropertyValueResourceConflict")),
    "no links": (pair(Links={}), (400, "PropertyMissing")),
    "no such target": (pair(targets=[paths.endpoint("none")]), (400, "ResourceNotFound")),
    "a target that is no endpoint": (pair(targets=[chunk("m1")]), (400, "ResourceNotFound")),
}


@pytest.mark.parametrize(("body", "expected"), PAIRS.values(), ids=PAIRS)
def test_a_connection_is_of_one_host_and_the_chunks_of_one_target(body, expected):
    service, tree = serve(method="connections")
    assert catch_refusal(service, paths.CONNECTIONS, body) == expected
    assert tree.list_members(paths.CONNECTIONS) == ()


def test_a_connection_keeps_client_properties_and_reserves_its_memory():
    service, tree = serve(method="connections")
    made = service.change("POST", paths.CONNECTIONS, pair(Name="mine", Description="text", Oem={"a": 1}))
    assert (tree[made]["Name"], tree[made]["Description"]) == ("mine", "text")
    assert "Oem" not in tree[made]
    body = pair(initiators=[OTHER_HOST])
    assert catch_refusal(service, paths.CONNECTIONS, body) == (409, "PropertyValueResourceConflict")
    assert catch_refusal(service, made, {}, "PATCH") == (405, "OperationNotAllowed")
    service.change("DELETE", made, {})
    service.change("POST", paths.CONNECTIONS, body)


# --- connections without an initiator ---


def port(chunks=("m1",), targets=(HOST,), **properties):
    return {
        "ConnectionType": "Memory",
        "MemoryChunkInfo": [{"MemoryChunk": {"@odata.id": chunk(name, "Systems")}} for name in chunks],
        "Links": {"TargetEndpoints": links(*targets)},
        **properties,
    }


PORTS = {
    "another type": (port(ConnectionType="Storage"), CONFLICT),
    "no chunks": (port(chunks=()), CONFLICT),
    "a chunk that is no object": (port(MemoryChunkInfo=[None]), CONFLICT),
    "no such chunk": (port(chunks=["none"]), (400, "ResourceNotFound")),
    "a chunk that is none": (
        port(MemoryChunkInfo=[{"MemoryChunk": {"@odata.id": HOST}}]),
        (400, "ResourceNotFound"),
    ),
    "no port": (port(targets=()), CONFLICT),
    "two ports": (port(targets=[HOST, OTHER_HOST]), (409, "PropertyValueResourceConflict")),
    "a port that is no endpoint": (port(targets=[f"{paths.SYSTEMS}/e1"]), (400, "ResourceNotFound")),
    "no links": (port(Links=[]), (400, "PropertyMissing")),
    "a text": (port(Description="mine"), (400, "PropertyUnknown")),
    "an initiator": (
        port(Links={"TargetEndpoints": links(HOST), "InitiatorEndpoints": links(OTHER_HOST)}),
        (400, "PropertyUnknown"),
    ),
}


@pytest.mark.parametrize(("body", "expected"), PORTS.values(), ids=PORTS)
def test_a_connection_of_an_appliance_is_of_chunks_and_one_port_and_has_nothing_else(body, expected):
    service, tree = serve(method="connections", initiators=False)
    assert catch_refusal(service, paths.CONNECTIONS, body) == expected
    assert tree.list_members(paths.CONNECTIONS) == ()


def test_a_port_and_a_chunk_have_one_connection():
    service, tree = serve(method="connections", initiators=False)
    made = service.change("POST", paths.CONNECTIONS, port())
    assert set(tree[made]["Links"]) == {"TargetEndpoints", "TargetEndpoints@odata.count"}
    assert catch_refusal(service, paths.CONNECTIONS, port(chunks=["m2"])) == (409, "ResourceInUse")
    again = port(targets=[OTHER_HOST])
    assert catch_refusal(service, paths.CONNECTIONS, again) == (409, "PropertyValueResourceConflict")
    service.change("DELETE", made, {})
    service.change("POST", paths.CONNECTIONS, port(chunks=["m1", "m2"]))


def test_a_connection_of_an_appliance_is_shown_at_its_port_and_chunk():
    service, tree = serve(method="connections", initiators=False)
    made = service.change("POST", paths.CONNECTIONS, port())
    memory = chunk("m1", "Systems")
    assert tree[HOST]["Links"]["Connections"] == links(made)
    assert tree[memory]["Links"]["Endpoints"] == links(HOST)
    service.change("DELETE", made, {})
    assert (tree[HOST]["Links"]["Connections"], tree[memory]["Links"]["Endpoints"]) == ([], [])


NAMED = {"@odata.id": "/c", "@odata.type": "#Connection.v1_3_0.Connection", "Id": "c", "Name": "C"}


@pytest.mark.parametrize("name", NAMED)
def test_a_manager_of_appliances_wants_connections_with_names(name):
    service, tree = serve(method="connections", initiators=False, named_connections=True)
    body = port(**NAMED | {"ConnectionType": "CXL"})
    without = {key: value for key, value in body.items() if key != name}
    assert catch_refusal(service, paths.CONNECTIONS, without) == (422, "PropertyMissing")
    assert catch_refusal(service, paths.CONNECTIONS, body | {"ConnectionType": "Memory"}) == CONFLICT
    assert tree[service.change("POST", paths.CONNECTIONS, body)]["Id"] == "1"


# --- composition ---


@pytest.mark.parametrize("uri", [paths.block("none"), paths.BLOCKS, f"{paths.SYSTEMS}/h2"])
def test_a_system_is_composed_of_blocks(uri):
    service, _ = serve(method="composition")
    body = {"Links": {"ResourceBlocks": links(uri)}}
    assert catch_refusal(service, f"{paths.SYSTEMS}/h1", body, "PATCH") == (400, "ResourceNotFound")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"Memory": []},
        {"Memory": {"Members": {}}},
        {"Memory": {"Members": [7]}},
        {"Memory": {"Members": [{}]}},
        {"Memory": {"Members": [{"@Redfish.RequestedCount": "1"}]}},
        {"Storage": {"Members": [7]}},
        {"Storage": {"Members": [{"Drives": 7}]}},
        {"Storage": {"Members": [{"Drives": [None]}]}},
    ],
)
def test_a_request_by_count_needs_members_with_counts(body):
    service, _ = serve(method="composition", constrained=True)
    assert catch_refusal(service, f"{paths.SYSTEMS}/h1", body, "PATCH") == (400, "PropertyMissing")


def test_a_request_beyond_the_free_blocks_takes_none():
    service, tree = serve(method="composition", constrained=True)
    body = {"Memory": {"Members": [{"@Redfish.RequestedCount": 3, "Model": "Model"}]}}
    assert catch_refusal(service, f"{paths.SYSTEMS}/h1", body, "PATCH") == (409, "NoResourceMatch")
    assert tree[f"{paths.SYSTEMS}/h1"]["Links"]["ResourceBlocks"] == []
