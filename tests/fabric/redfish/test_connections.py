"""What connections of memory chunks are read as and what is sent, with services that do it in an unusual way."""

import time

import pytest
from tests.scenes.redfish_trees import (
    FABRIC,
    chunk,
    connection,
    fabric,
    initiator,
    link,
    links,
    memory,
    target,
)

from drawbar.fabric import contract, errors, notes
from drawbar.fabric.redfish import connections, profiles

NOTE = notes.Note(request_id="r1", mark="m1")
ENDS = (initiator("h1"), initiator("h2"), memory("d1", "c1"), memory("d2", "c2"))


def uri(name):
    return chunk(name)["@odata.id"]


async def read(*resources):
    method = connections.Connections(profiles.PROFILES["connections"])
    await method.read(fabric(*ENDS, *resources, connects="Connections"))
    return method


def attach(device_id="F.d1", host_id="h1"):
    return contract.AttachRequest(request_id="r1", device_id=device_id, host_id=host_id, mark="m1")


def detach(device_id="F.d1", host_id="h1"):
    return contract.DetachRequest(request_id="r2", device_id=device_id, host_id=host_id)


def locate_devices(method):
    """Return where the devices are that are listed."""
    devices = method.view().devices.values()
    return {device.id: device.connection and device.connection.host_id for device in devices}


async def test_only_an_endpoint_of_a_memory_chunk_is_a_device():
    method = await read(target("gpu"), target("card", "/redfish/v1/Chassis/c/PCIeDevices/1"))
    assert locate_devices(method) == {"F.d1": None, "F.d2": None}


async def test_a_connection_shows_whose_it_is():
    whole = connection("n", initiators=["h2"], targets=["d1"], chunks=[uri("c1")])
    method = await read(whole | {"Description": NOTE.text(prefix=notes.PREFIX)})
    attached = method.view().devices["F.d1"].connection
    assert (attached.host_id, attached.request_id, attached.mark) == ("h2", "r1", "m1")
    assert method.view().devices["F.d2"].connection is None


READ = {
    "no chunks": (connection("n", initiators=["h1"], targets=["d1"]), {"F.d1": "h1", "F.d2": None}),
    "chunks alone": (connection("n", initiators=["h1"], chunks=[uri("c1")]), {"F.d1": "h1", "F.d2": None}),
    "a chunk of no endpoint beside one": (
        connection("n", initiators=["h1"], chunks=[uri("elsewhere"), uri("c2")]),
        {"F.d1": None, "F.d2": "h1"},
    ),
    "a chunk of no endpoint": (
        connection("n", initiators=["h1"], chunks=[uri("elsewhere")]),
        {"F.d1": None, "F.d2": None},
    ),
    "a chunk in another spelling": (
        connection("n", initiators=["h1"], chunks=[f"{uri('c1')}/?x=1"]),
        {"F.d1": "h1", "F.d2": None},
    ),
    "a chunk in lower case": (
        connection("n", initiators=["h1"], chunks=[uri("c1").lower()]),
        {"F.d1": "h1", "F.d2": None},
    ),
    "ends at the top": (
        connection("n")
        | {
            "Links": {},
            "InitiatorEndpoints": links(f"{FABRIC}/Endpoints/h1"),
            "TargetEndpoints": links(f"{FABRIC}/Endpoints/d1"),
        },
        {"F.d1": "h1", "F.d2": None},
    ),
    "several chunks": (
        connection("n", initiators=["h1"], chunks=[uri("c1"), uri("c2")]),
        {"F.d1": "h1", "F.d2": "h1"},
    ),
    "one of several chunks of a device": (
        connection("n", initiators=["h2"], chunks=[uri("c4")]),
        {"F.d1": None, "F.d2": None, "F.both": "h2"},
    ),
    "several targets": (
        connection("n", initiators=["h1"], targets=["d1", "d2"]),
        {"F.d1": "h1", "F.d2": "h1"},
    ),
    "a target, and the chunk of another": (
        connection("n", initiators=["h1"], targets=["d1"], chunks=[uri("c2")]),
        {"F.d1": "h1", "F.d2": "h1"},
    ),
    "no type": (
        connection("n", initiators=["h1"], targets=["d1"]) | {"ConnectionType": None},
        {"F.d1": "h1", "F.d2": None},
    ),
    "another type": (
        connection("n", initiators=["h1"], targets=["d1"]) | {"ConnectionType": "Storage"},
        {"F.d1": None, "F.d2": None},
    ),
    "no initiator": (connection("n", targets=["d1"], chunks=[uri("c1")]), {"F.d2": None}),
    "an initiator of another fabric": (connection("n", initiators=["h9"], targets=["d1"]), {"F.d2": None}),
    "no links": (connection("n", chunks=[uri("c1")]) | {"Links": None}, {"F.d2": None}),
    "odd information": (
        connection("n", initiators=["h1"], targets=["d1"])
        | {"MemoryChunkInfo": [7, {}, {"MemoryChunk": 7}, {"MemoryChunk": link(uri("c2"))}]},
        {"F.d1": "h1", "F.d2": "h1"},
    ),
}


@pytest.mark.parametrize(("resource", "expected"), READ.values(), ids=READ)
async def test_the_devices_of_a_connection_are_located(resource, expected):
    also = [memory("both", "c3", "c4")] if "F.both" in expected else []
    assert locate_devices(await read(*also, resource)) == expected


async def test_a_chunk_is_known_by_its_place():
    method = await read(target("d3", uri("c3"), kind="Memory"))
    assert "F.d3" in locate_devices(method)


async def test_a_device_of_several_chunks_is_connected_with_all_of_them():
    method = await read(memory("both", "c3", "c4"))
    call = method.attach(attach("F.both", "h2"), "F.both", "")
    assert (call.method, call.uri, call.etag) == ("POST", f"{FABRIC}/Connections", None)
    text = call.body.pop("Description")
    assert notes.Note.from_text(text, prefix=notes.PREFIX) == NOTE
    access = {"AccessCapabilities": ["Read", "Write"]}
    assert call.body == {
        "@odata.type": "#Connection.v1_3_0.Connection",
        "Name": "F.both at h2",
        "ConnectionType": "Memory",
        "MemoryChunkInfo": [access | {"MemoryChunk": link(uri(name))} for name in ("c3", "c4")],
        "Links": {
            "InitiatorEndpoints": links(f"{FABRIC}/Endpoints/h2"),
            "TargetEndpoints": links(f"{FABRIC}/Endpoints/both"),
        },
    }


@pytest.mark.parametrize(
    "ends",
    [{"targets": ["d1"]}, {"chunks": [uri("c1")]}, {"targets": ["d1"], "chunks": [uri("c1")]}],
    ids=["target", "chunk", "both"],
)
async def test_a_connection_is_ended_as_it_was_read(ends):
    method = await read(connection("n", initiators=["h1"], **ends))
    call = method.detach(detach(), "F.d1")
    assert (call.method, call.uri, call.body, call.etag) == ("DELETE", f"{FABRIC}/Connections/n", None, '"n"')
    assert method.detach(detach(host_id="h2"), "F.d1") is None
    assert method.detach(detach("F.d2"), "F.d2") is None


@pytest.mark.parametrize(
    "ends",
    [
        {"initiators": ["h1"], "targets": ["d1", "d2"]},
        {"initiators": ["h1"], "targets": ["d1"], "chunks": [uri("c1"), uri("c2")]},
        {"initiators": ["h1", "h2"], "targets": ["d1"]},
        {"initiators": ["h1", "h9"], "targets": ["d1"]},
    ],
    ids=["other memory", "another chunk", "another host", "an unknown initiator"],
)
async def test_a_connection_that_has_more_is_not_ended(ends):
    method = await read(connection("n", **ends))
    with pytest.raises(errors.FailedPrecondition, match="Connections/n has other memory or hosts too"):
        method.detach(detach(), "F.d1")


async def test_uris_of_endpoints_and_connections_stand_for_devices():
    method = await read(connection("n", initiators=["h1"], chunks=[uri("c1")]))
    assert method.device_ids({f"{FABRIC}/Connections/n"}) == {"F.d1"}
    assert method.device_ids({f"{FABRIC}/Endpoints/d2"}) == {"F.d2"}


async def test_many_connections_of_many_chunks_are_looked_at_once_each():
    numbers = range(1000)
    ends = [initiator("host"), *(memory(f"m{number}", f"k{number}") for number in numbers)]
    made = [connection(f"x{number}", initiators=("host",), chunks=(uri(f"k{number}"),)) for number in numbers]
    method = connections.Connections(profiles.PROFILES["connections"])
    tree = fabric(*ends, *made, connects="Connections")
    await method.read(tree)
    began = time.process_time()
    await method.read_connections(tree)
    assert time.process_time() - began < 1.0
    assert set(locate_devices(method).values()) == {"host"}
