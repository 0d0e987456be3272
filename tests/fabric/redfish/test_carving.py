"""Memory domains of which chunks can be made, in the form of the mockup public-cxl and in odd ones."""

import pytest
from tests.scenes.redfish_trees import FABRIC, ROOT, Tree, collection, initiator, link, links, target

from drawbar.fabric import contract, errors
from drawbar.fabric.redfish import connections, profiles

GIB = 1 << 30
DOMAIN = f"{ROOT}/Chassis/C/MemoryDomains/D"
POOL = {
    "AllowsMemoryChunkCreation": True,
    "MemorySizeMiB": 8192,
    "MemoryChunkIncrementMiB": 1024,
    "Links": {"FabricAdapters": links(f"{ROOT}/Chassis/C/FabricAdapters/1")},
}
CREATE = contract.CreateSliceRequest(request_id="r1", device_id="C.D", memory_bytes=2 * GIB, mark="m")


def chunk(name, **properties):
    return {
        "@odata.id": f"{DOMAIN}/MemoryChunks/{name}",
        "@odata.etag": f'"{name}"',
        "Id": name,
        "MemoryChunkSizeMiB": 2048,
        **properties,
    }


def connection(name, *chunks, targets=(), initiators=("h1",)):
    return {
        "@odata.id": f"{FABRIC}/Connections/{name}",
        "@odata.etag": f'"{name}"',
        "Id": name,
        "ConnectionType": "Memory",
        "MemoryChunkInfo": [{"MemoryChunk": link(f"{DOMAIN}/MemoryChunks/{entry}")} for entry in chunks],
        "Links": {
            "InitiatorEndpoints": links(*(f"{FABRIC}/Endpoints/{end}" for end in initiators)),
            "TargetEndpoints": links(*(f"{FABRIC}/Endpoints/{end}" for end in targets)),
        },
    }


def end(name, *chunks):
    return target(name, *(f"{DOMAIN}/MemoryChunks/{entry}" for entry in chunks), kind="MemoryChunk")


async def read(*resources, domain=POOL, profile="connections"):
    """Return the method after a reading of a service with one domain, one host, and these resources."""

    def names(uri):
        return [entry["Id"] for entry in resources if entry["@odata.id"].startswith(f"{uri}/")]

    listed = {uri: names(uri) for uri in (f"{DOMAIN}/MemoryChunks", f"{FABRIC}/Connections")}
    tree = Tree(
        {"@odata.id": ROOT, "Fabrics": link(f"{ROOT}/Fabrics"), "Chassis": link(f"{ROOT}/Chassis")},
        collection(f"{ROOT}/Chassis", "C"),
        {
            "@odata.id": f"{ROOT}/Chassis/C",
            "Id": "C",
            "MemoryDomains": link(f"{ROOT}/Chassis/C/MemoryDomains"),
        },
        collection(f"{ROOT}/Chassis/C/MemoryDomains", "D"),
        {"@odata.id": DOMAIN, "Id": "D", "MemoryChunks": link(f"{DOMAIN}/MemoryChunks"), **domain},
        collection(f"{ROOT}/Fabrics", "F"),
        {
            "@odata.id": FABRIC,
            "Id": "F",
            "Endpoints": link(f"{FABRIC}/Endpoints"),
            "Connections": link(f"{FABRIC}/Connections"),
        },
        collection(f"{FABRIC}/Endpoints", "h1", *names(f"{FABRIC}/Endpoints")),
        initiator("h1"),
        *(collection(uri, *entries) for uri, entries in listed.items()),
        *resources,
    )
    method = connections.Connections(profiles.PROFILES[profile])
    await method.read(tree)
    return method


async def test_a_domain_is_a_pool_and_its_chunks_are_slices_with_their_requests():
    note = 'drawbar:{"request":"r1","mark":"m"}'
    method = await read(
        chunk("1", Description=note), chunk("2", Description="mine"), end("T1", "1"), end("T2", "2")
    )
    devices = method.view().devices
    assert sorted(devices) == ["C.D", "C.D.1", "C.D.2"]
    pool, made, foreign = (devices[name] for name in sorted(devices))
    assert pool.carving == contract.Carving(free_bytes=4 * GIB, step_bytes=GIB, is_pool=True)
    assert (pool.memory_bytes, pool.device_class) == (8 * GIB, "cxl-memory")
    assert made.slice_of == contract.Slice(origin_id="C.D", request_id="r1", mark="m")
    assert (made.memory_bytes, made.device_class, made.carving) == (2 * GIB, "cxl-memory", None)
    assert foreign.slice_of == contract.Slice(origin_id="C.D")
    assert method.carves


async def test_the_size_of_a_domain_that_does_not_tell_it_is_that_of_its_memory():
    memory = f"{ROOT}/Chassis/C/Memory/M"
    sets = {"InterleavableMemorySets": [{"MemorySet": links(memory)}], "MemorySizeMiB": None}
    part = {"@odata.id": memory, "CapacityMiB": 4096, "SerialNumber": "S7", "Manufacturer": "V"}
    method = await read(part, domain=POOL | sets)
    pool = method.view().devices["C.D"]
    assert (pool.carving.free_bytes, pool.serial, pool.vendor) == (4 * GIB, "S7", "V")


@pytest.mark.parametrize(
    ("least", "increment", "step"),
    [(None, None, 1), (256, None, 256), (None, 512, 512), (256, 512, 512), (700, 512, 1024)],
)
async def test_the_step_fits_the_least_size_and_the_increment(least, increment, step):
    limits = {"MinMemoryChunkSizeMiB": least, "MemoryChunkIncrementMiB": increment}
    method = await read(domain=POOL | limits)
    assert method.view().devices["C.D"].carving.step_bytes == step << 20


NO_POOLS = {
    "not allowed": {"AllowsMemoryChunkCreation": False},
    "not told": {"AllowsMemoryChunkCreation": None},
    "another type": {"AllowsMemoryChunkCreation": "yes"},
    "memory of a host": {"Links": {}},
}


@pytest.mark.parametrize("changed", NO_POOLS.values(), ids=NO_POOLS)
async def test_a_domain_without_a_memory_pool_is_not_carved(changed):
    method = await read(chunk("1"), end("T1", "1"), domain=POOL | changed)
    assert [device.id for device in method.view().devices.values()] == ["F.T1"]
    assert not method.carves


async def test_a_service_that_keeps_no_text_is_not_carved():
    assert list((await read(chunk("1"), end("T1", "1"), profile="h3")).view().devices) == ["F.T1"]


async def test_a_slice_is_made_by_a_post_with_its_note_and_once():
    call = (await read()).create_slice(CREATE)
    assert (call.method, call.uri) == ("POST", f"{DOMAIN}/MemoryChunks")
    note = 'drawbar:{"request":"r1","mark":"m"}'
    assert call.body == {
        "@odata.type": "#MemoryChunks.v1_5_0.MemoryChunks",
        "Name": "Slice of C.D",
        "AddressRangeType": "Volatile",
        "MemoryChunkSizeMiB": 2048,
        "Description": note,
    }
    assert (await read(chunk("1", Description=note))).create_slice(CREATE) is None


async def test_a_slice_is_deleted_under_its_etag_and_never_while_it_is_connected():
    delete = contract.DeleteSliceRequest(request_id="x", device_id="C.D.1")
    call = (await read(chunk("1"), end("T1", "1"))).delete_slice(delete)
    assert (call.method, call.uri, call.etag) == ("DELETE", f"{DOMAIN}/MemoryChunks/1", '"1"')
    assert (await read()).delete_slice(delete) is None
    with pytest.raises(errors.Aborted):
        (await read(chunk("1"), end("T1", "1"), connection("9", "1"))).delete_slice(delete)


TARGETS = {"named": ("T",), "not named": ()}


@pytest.mark.parametrize("targets", TARGETS.values(), ids=TARGETS)
async def test_slices_behind_one_endpoint_are_connected_and_ended_one_by_one(targets):
    method = await read(chunk("1"), chunk("2"), end("T", "1", "2"), connection("9", "1", targets=targets))
    devices = method.view().devices
    assert sorted(devices) == ["C.D", "C.D.1", "C.D.2"]
    assert devices["C.D.1"].connection.host_id == "h1"
    assert devices["C.D.2"].connection is None
    attach = contract.AttachRequest(request_id="r", device_id="C.D.2", host_id="h1")
    body = method.attach(attach, "C.D.2", "").body
    assert [info["MemoryChunk"] for info in body["MemoryChunkInfo"]] == links(f"{DOMAIN}/MemoryChunks/2")
    assert body["Links"]["TargetEndpoints"] == links(f"{FABRIC}/Endpoints/T")
    detach = contract.DetachRequest(request_id="r", device_id="C.D.1", host_id="h1")
    call = method.detach(detach, "C.D.1")
    assert (call.method, call.uri, call.etag) == ("DELETE", f"{FABRIC}/Connections/9", '"9"')
    assert method.device_ids({f"{FABRIC}/Connections/9"}) == {"C.D.1"}
    assert method.device_ids({f"{DOMAIN}/MemoryChunks"}) == {"C.D"}


async def test_a_connection_of_two_slices_is_shown_and_not_ended():
    method = await read(chunk("1"), chunk("2"), end("T", "1", "2"), connection("9", "1", "2"))
    assert {device.id for device in method.view().devices.values() if device.connection} == {"C.D.1", "C.D.2"}
    with pytest.raises(errors.FailedPrecondition, match="has other memory"):
        method.detach(contract.DetachRequest(request_id="r", device_id="C.D.1", host_id="h1"), "C.D.1")


CARD = f"{ROOT}/Chassis/C/PCIeDevices/1"
LOGICAL = f"{CARD}/CXLLogicalDevices/1"
MODULE = f"{ROOT}/Chassis/C/Memory/M"
MADE = {"Description": 'drawbar:{"request":"r1"}'}
ATTACH = contract.AttachRequest(request_id="r", device_id="C.D.1", host_id="h1")
OF_LOGICAL = {"Links": {**POOL["Links"], "CXLLogicalDevices": links(LOGICAL)}}
OF_MODULE = {"InterleavableMemorySets": [{"MemorySet": links(MODULE)}]}
# The service's resources, the properties of the domain, and the endpoint by which a host has the slice.
ENDPOINTS_OF_SLICES = {
    "it links to the chunk": ([chunk("1", **MADE), end("T", "1"), target("U", LOGICAL)], OF_LOGICAL, "T"),
    "the chunk links to it": (
        [
            chunk("1", **MADE, Links={"Endpoints": links(f"{FABRIC}/Endpoints/T")}),
            target("T"),
            target("A", LOGICAL),
        ],
        OF_LOGICAL,
        "T",
    ),
    "of the domain's logical device": ([chunk("1", **MADE), target("T", LOGICAL)], OF_LOGICAL, "T"),
    "of the chunk's own logical device": (
        [
            chunk("1", **MADE, Links={"CXLLogicalDevices": links(f"{LOGICAL}1")}),
            target("A", LOGICAL),
            target("T", f"{LOGICAL}1"),
        ],
        {"Links": {**POOL["Links"], "CXLLogicalDevices": links(LOGICAL, f"{LOGICAL}1")}},
        "T",
    ),
    "of the logical device's card": ([chunk("1", **MADE), target("T", CARD)], OF_LOGICAL, "T"),
    "of the domain's memory": ([chunk("1", **MADE), target("T", MODULE)], OF_MODULE, "T"),
    "of the chunk's interleaved memory": (
        [chunk("1", **MADE, InterleaveSets=[{"Memory": link(MODULE)}]), target("T", MODULE)],
        {},
        "T",
    ),
    "the logical device links to it": (
        [
            {"@odata.id": LOGICAL, "Id": "1", "Links": {"Endpoints": links(f"{FABRIC}/Endpoints/T")}},
            chunk("1", **MADE),
            target("T"),
        ],
        OF_LOGICAL,
        "T",
    ),
    "none": ([chunk("1", **MADE), target("U", f"{ROOT}/Chassis/C/PCIeDevices/2")], OF_LOGICAL, None),
    "an initiator is none": ([chunk("1", **MADE), initiator("I", LOGICAL)], OF_LOGICAL, None),
}


@pytest.mark.parametrize(
    ("resources", "domain", "name"), ENDPOINTS_OF_SLICES.values(), ids=ENDPOINTS_OF_SLICES
)
async def test_a_slice_is_connected_by_the_endpoint_of_its_memory(resources, domain, name):
    method = await read(*resources, domain=POOL | domain)
    call = method.attach(ATTACH, "C.D.1", "")
    right = links(f"{FABRIC}/Endpoints/{name}") if name else None
    assert call.body["Links"].get("TargetEndpoints") == right
    assert call.body["MemoryChunkInfo"][0]["MemoryChunk"] == link(f"{DOMAIN}/MemoryChunks/1")
    assert bool(call.hint) == (name is None)


async def test_the_endpoint_of_a_domain_is_that_of_all_its_slices():
    listed = [chunk("1", **MADE), chunk("2"), target("T", LOGICAL), connection("9", "2", targets=("T",))]
    method = await read(*listed, domain=POOL | OF_LOGICAL)
    devices = method.view().devices
    assert {name for name, device in devices.items() if device.connection} == {"C.D.2"}
    assert set(devices) == {"C.D", "C.D.1", "C.D.2"}


async def test_the_refusal_of_a_slice_without_an_endpoint_says_so():
    method = await read(chunk("1", **MADE), chunk("2"))
    assert "C.D.2" not in method.view().devices
    assert any("MemoryChunks/2 has no endpoint" in oddity for oddity in method.view().oddities)
    assert method.attach(ATTACH, "C.D.1", "").hint == f"chunk {DOMAIN}/MemoryChunks/1 has no endpoint"


async def test_a_slice_without_an_endpoint_goes_to_no_fabric_among_several():
    other = f"{ROOT}/Fabrics/G"
    links = {name: link(f"{other}/{name}") for name in ("Endpoints", "Connections")}
    method = await read(
        chunk("1", **MADE),
        collection(f"{ROOT}/Fabrics", "F", "G"),
        {"@odata.id": other, "Id": "G", **links},
        *(collection(f"{other}/{name}") for name in links),
    )
    with pytest.raises(errors.FailedPrecondition, match=r"chunk .*/1 has no endpoint") as caught:
        method.attach(ATTACH, "C.D.1", "")
    assert caught.value.reason == errors.Reason.INCOMPATIBLE


async def test_a_name_that_is_too_long_is_left_out_and_reported():
    method = await read(chunk("x" * 200))
    assert list(method.view().devices) == ["C.D"]
    assert any("longer than 128 bytes" in oddity for oddity in method.view().oddities)
