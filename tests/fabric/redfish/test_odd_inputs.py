"""Answers of real services in odd forms: what is harmless is understood, and what is not is told."""

import gzip
import json

import pytest
from aiohttp import web
from tests.scenes import redfish_servers
from tests.scenes.redfish_servers import ROOT, link, put_gpu, put_host, serving

from drawbar.fabric import contract, errors
from drawbar.fabric.redfish import changing
from drawbar.fabric.redfish.adapter import RedfishAdapter
from drawbar.fabric.redfish.documents import Document

FABRIC = f"{ROOT}/Fabrics/PCIe"
ENDPOINTS, ZONES = f"{FABRIC}/Endpoints", f"{FABRIC}/Zones"
CARD = f"{ROOT}/Chassis/c/PCIeDevices/gpu-1"
SESSIONS = f"{ROOT}/SessionService/Sessions"
MONITOR = f"{ROOT}/TaskService/TaskMonitors/1"
BLOCKS = f"{ROOT}/CompositionService/ResourceBlocks"
GPU_1, GPU_2 = "PCIe.gpu-1", "PCIe.gpu-2"


def service(zones=()):
    made = redfish_servers.Service()
    ends = {"h1": put_host(made, "h1"), "h2": put_host(made, "h2")}
    ends |= {"gpu-1": put_gpu(made), "gpu-2": put_gpu(made, "gpu-2", "S2")}
    made.put_fabric("PCIe", ends, zones)
    return made


def composition():
    made = redfish_servers.Service()

    def processor(block, kind):
        uri = f"{BLOCKS}/{block}/Processors/1"
        made.put(uri, **{"@odata.type": "#Processor.v1_20_0.Processor"}, ProcessorType=kind, Model=kind)
        return [link(uri)]

    blocks = {
        "device": {"ResourceBlockType": ["Processor"], "Processors": processor("device", "GPU")},
        "machine": {"ResourceBlockType": ["Compute"], "Processors": processor("machine", "CPU")},
    }
    made.put_blocks(blocks, {"s1": ["machine"]})
    return made


def answer(body, status=200, **headers):
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {name.replace("_", "-"): content for name, content in headers.items()}
    return web.Response(status=status, body=content, headers={"Content-Type": "application/json"} | named)


def attach(device_id=GPU_1, host_id="h1"):
    return contract.AttachRequest(request_id="r1", device_id=device_id, host_id=host_id)


def detach(device_id=GPU_1, host_id="h1"):
    return contract.DetachRequest(request_id="d1", device_id=device_id, host_id=host_id, host_prepared=True)


def adapting(made, **parameters):
    return redfish_servers.adapting(made, **parameters)


# --- collections and links ---


def members_are_uris(made):
    collection = made.tree[ENDPOINTS]
    collection["Members"] = [each["@odata.id"] for each in collection["Members"]]


def a_member_is_null(made):
    made.tree[ENDPOINTS]["Members"].insert(0, None)


def members_come_twice(made):
    made.tree[ENDPOINTS]["Members"] *= 2


def no_member_is_null(made):
    body = {**made.tree[ZONES], "Members": None}
    made.hook = lambda method, path, _: (
        answer(body) if (method, path) == ("GET", ZONES) and first(made) else None
    )


def first(made):
    """Return whether nothing was changed yet."""
    return not made.changes


def pages_lead_back(made):
    made.tree[ENDPOINTS]["Members@odata.nextLink"] = f"{ENDPOINTS}?$skip=0"


def the_next_page_is_named_as_by_odata(made):
    collection = made.tree[ENDPOINTS]
    made.tree[f"{ENDPOINTS}2"] = {**collection, "Members": collection["Members"][2:]}
    made.tree[ENDPOINTS] = {
        "@odata.id": ENDPOINTS,
        "Members": collection["Members"][:2],
        "@odata.nextLink": f"{ENDPOINTS}2",
    }


def the_next_page_is_a_link(made):
    the_next_page_is_named_as_by_odata(made)
    del made.tree[ENDPOINTS]["@odata.nextLink"]
    made.tree[ENDPOINTS]["Members@odata.nextLink"] = link(f"{ENDPOINTS}2")


def entities_are_one_object(made):
    endpoint = made.tree[f"{ENDPOINTS}/gpu-1"]
    (endpoint["ConnectedEntities"],) = endpoint["ConnectedEntities"]


def the_entity_is_linked_by_a_uri(made):
    (entity,) = made.tree[f"{ENDPOINTS}/gpu-1"]["ConnectedEntities"]
    entity["EntityLink"] = entity["EntityLink"]["@odata.id"]


def the_entity_is_linked_by_an_array(made):
    (entity,) = made.tree[f"{ENDPOINTS}/gpu-1"]["ConnectedEntities"]
    entity["EntityLink"] = [entity["EntityLink"]]


def roles_and_types_are_in_lower_case(made):
    for name in ("h1", "h2", "gpu-1", "gpu-2"):
        (entity,) = made.tree[f"{ENDPOINTS}/{name}"]["ConnectedEntities"]
        entity |= {key: entity[key].lower() for key in ("EntityRole", "EntityType")}


# --- bodies ---


def encode(made, content, **headers):
    """Answer each read with the content of the resource's JSON."""

    def hook(method, path, _):
        body = made.tree.get(path)
        return answer(content(json.dumps(body)), **headers) if method == "GET" and body else None

    made.hook = hook


def gzip_has_two_members(made):
    encode(
        made,
        lambda text: gzip.compress(text[:9].encode()) + gzip.compress(text[9:].encode()),
        Content_Encoding="gzip",
    )


def gzip_is_only_named(made):
    encode(made, str.encode, Content_Encoding="gzip")


def a_character_set_is_named_as_an_encoding(made):
    encode(made, str.encode, Content_Encoding="UTF-8")


def bodies_are_utf_16(made):
    encode(made, lambda text: text.encode("utf-16"), Content_Type="application/json; charset=utf-16")


def bodies_are_latin_1(made):
    made.tree[CARD]["Description"] = "Rechenbeschleuniger für 4°"
    encode(
        made,
        lambda text: json.dumps(json.loads(text), ensure_ascii=False).encode("latin-1"),
        Content_Type='application/json; charset="ISO-8859-1"',
    )


def bodies_end_with_a_null(made):
    encode(made, lambda text: text.encode() + b"\0\r\n")


def a_proxy_has_changed_the_bodies(made):
    def hook(method, path, _):
        body = made.tree.get(path)
        return answer(body, 203) if method == "GET" and body else None

    made.hook = hook


# --- expansion ---


def expand(made, content):
    """Announce expansion, and answer its query for endpoints with the content."""
    made.tree[ROOT]["ProtocolFeaturesSupported"] = {"ExpandQuery": {"NoLinks": True}}
    made.hook = lambda method, path, _: content() if path == ENDPOINTS and "$expand" in made.query else None


def expansion_is_not_found(made):
    expand(made, lambda: answer({}, 404))


def an_expanded_member_is_an_error(made):
    def content():
        collection = made.tree[ENDPOINTS]
        shown = [made.tree[each["@odata.id"]] for each in collection["Members"]]
        shown[0] = {"@odata.id": f"{ENDPOINTS}/h1", "error": {"code": "Base.1.0.InternalError"}}
        return answer({**collection, "Members": shown})

    expand(made, content)


def expanded_members_are_names_alone(made):
    def content():
        collection = made.tree[ENDPOINTS]
        shown = [
            {**each, "Id": each["@odata.id"].rpartition("/")[2], "Name": "E"}
            for each in collection["Members"]
        ]
        return answer({**collection, "Members": shown})

    expand(made, content)


HARMLESS = (
    members_are_uris,
    a_member_is_null,
    members_come_twice,
    no_member_is_null,
    pages_lead_back,
    the_next_page_is_named_as_by_odata,
    the_next_page_is_a_link,
    entities_are_one_object,
    the_entity_is_linked_by_a_uri,
    the_entity_is_linked_by_an_array,
    roles_and_types_are_in_lower_case,
    gzip_has_two_members,
    gzip_is_only_named,
    a_character_set_is_named_as_an_encoding,
    bodies_are_utf_16,
    bodies_are_latin_1,
    bodies_end_with_a_null,
    a_proxy_has_changed_the_bodies,
    expansion_is_not_found,
    an_expanded_member_is_an_error,
    expanded_members_are_names_alone,
)


@pytest.mark.parametrize("change", HARMLESS, ids=lambda change: change.__name__)
async def test_what_is_harmless_is_understood(change):
    made = service()
    change(made)
    async with adapting(made) as adapter:
        inventory = await adapter.devices()
        assert [(each.id, each.serial) for each in inventory.devices] == [(GPU_1, "S1"), (GPU_2, "S2")]
        assert inventory.unread == ()
        assert [host.id for host in await adapter.hosts()] == ["h1", "h2"]
        assert (await adapter.attach(attach())).succeeded
        assert (await adapter.detach(detach())).succeeded
    assert [method for method, *_ in made.changes] == ["POST", "DELETE"]


async def test_pages_that_lead_back_without_a_count_leave_the_collection_in_doubt():
    made = service()
    made.tree[ENDPOINTS]["Members@odata.nextLink"] = ENDPOINTS
    del made.tree[ENDPOINTS]["Members@odata.count"]
    async with adapting(made) as adapter:
        (sentence,) = (await adapter.devices()).unread
    assert "lead back" in sentence
    assert made.reads.count(ENDPOINTS) == 1


# --- connections ---


def endpoints_are_uris(zone):
    zone["Links"]["Endpoints"] = [each["@odata.id"] for each in zone["Links"]["Endpoints"]]


def endpoints_are_at_the_top(zone):
    zone["Endpoints"] = zone.pop("Links")["Endpoints"]


@pytest.mark.parametrize(
    "change", [endpoints_are_uris, endpoints_are_at_the_top], ids=lambda each: each.__name__
)
async def test_a_device_in_a_zone_of_another_form_is_not_free(change):
    """Or it would be offered, and attached a second time."""
    made = service([["h1", "gpu-1"]])
    change(made.tree[f"{ZONES}/0"])
    async with adapting(made) as adapter:
        (device, free) = (await adapter.devices()).devices
        assert (device.id, device.connection.host_id) == (GPU_1, "h1")
        assert free.connection is None
        with pytest.raises(errors.FailedPrecondition):
            await adapter.attach(attach(host_id="h2"))
    assert made.changes == []


async def test_a_device_at_two_hosts_is_told():
    made = service([["h1", "gpu-1"], ["h2", "gpu-1"]])
    async with adapting(made) as adapter:
        (sentence,) = (await adapter.devices()).oddities
    assert sentence.startswith(f"device {GPU_1} is connected to several hosts (h1, h2)")


async def test_an_endpoint_that_shows_nothing_behind_it_is_told():
    made = service()
    del made.tree[f"{ENDPOINTS}/gpu-1"]["ConnectedEntities"]
    async with adapting(made) as adapter:
        inventory = await adapter.devices()
    assert [device.id for device in inventory.devices] == [GPU_2]
    assert inventory.oddities == (
        f"the endpoint {ENDPOINTS}/gpu-1 shows no ConnectedEntities, so it is neither a host nor a device",
    )


@pytest.mark.parametrize(
    ("name", "properties"),
    [
        ("machine", {"ResourceBlockType": "Compute", "Processors": []}),
        ("machine", {"ResourceBlockType": ["COMPUTE"], "Processors": []}),
        ("device", {"CompositionStatus": {"Reserved": "true"}}),
        ("device", {"Status": {"State": "absent"}}),
    ],
    ids=["type as text", "type in capitals", "reserved as text", "state in lower case"],
)
async def test_a_block_that_may_not_be_moved_is_no_free_device(name, properties):
    made = composition()
    made.tree[f"{BLOCKS}/{name}"].update(properties)
    async with adapting(made) as adapter:
        assert name not in [device.id for device in (await adapter.devices()).devices]


async def test_a_cpu_in_lower_case_is_no_device():
    made = composition()
    made.tree[f"{BLOCKS}/machine"]["ResourceBlockType"] = []
    made.tree[f"{BLOCKS}/machine/Processors/1"]["ProcessorType"] = "cpu"
    async with adapting(made) as adapter:
        assert [device.id for device in (await adapter.devices()).devices] == ["device"]


# --- tasks ---


@pytest.mark.parametrize(
    ("begun", "headers", "shown"),
    [
        ({"Id": "1", "TaskState": "New", "TaskMonitor": MONITOR}, {}, {}),
        ({}, {"Location": MONITOR}, {"TaskState": "completed"}),
        ({}, {"Location": MONITOR.removeprefix("/")}, {"TaskState": "COMPLETED", "PercentComplete": "100"}),
    ],
    ids=["monitor in the body", "lower case", "without a slash"],
)
async def test_a_task_is_followed_to_its_end(begun, headers, shown):
    made = service()

    def hook(method, path, body):
        if (method, path) == ("POST", ZONES):
            made._default(method, path, body)
            return answer(begun, 202, **headers)
        return answer(shown) if path == MONITOR else None

    made.hook = hook
    async with adapting(made) as adapter:
        assert (await adapter.attach(attach())).succeeded
    assert made.reads.count(MONITOR) == 1


# --- properties ---


async def test_a_serial_number_that_is_a_number_is_one():
    made = service()
    made.tree[CARD].update(SerialNumber=1234567, Status={"State": "Enabled", "Health": "critical"})
    made.tree[f"{ROOT}/Systems/h1"]["SerialNumber"] = 17
    async with adapting(made) as adapter:
        device = (await adapter.devices()).device(GPU_1)
        (host, _) = await adapter.hosts()
    assert (device.serial, device.health) == ("1234567", contract.Health.CRITICAL)
    assert host.identifiers["serial"] == "17"


# --- sessions ---


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        ({"@odata.id": f"{SESSIONS}/7"}, {}),
        ({"Id": "7", "Name": "Session"}, {}),
        ({}, {"Location": f"https://10.1.2.3{SESSIONS}/7/"}),
        ({"Id": "other"}, {"Location": f"{SESSIONS}/7"}),
    ],
    ids=["URI in the body", "id in the body", "another authority", "Location first"],
)
async def test_no_session_is_left_behind(body, headers):
    made = service()
    made.tree[ROOT]["Links"] = {"Sessions": link(SESSIONS)}
    made.tree[f"{SESSIONS}/7"] = {"@odata.id": f"{SESSIONS}/7"}
    made.collect(SESSIONS, "7")
    made.hook = lambda method, path, _: (
        answer(body, 201, X_Auth_Token="token", **headers) if (method, path) == ("POST", SESSIONS) else None
    )
    async with serving(made):
        config = contract.AdapterConfig(
            name="fab",
            endpoint=made.url,
            timeout_seconds=60,
            credentials=contract.Credentials(username="user", password="a password"),
        )
        async with await RedfishAdapter.connect(config) as adapter:
            await adapter.devices()
    assert f"{SESSIONS}/7" not in made.tree


# --- refusals ---

WITH_ARGUMENTS = {"MessageId": "Acme.9.9.Mystery", "Message": "%1 is not %2", "MessageArgs": ["Zone", 3]}
IN_USE = {"MessageId": "Base.1.8.ResourceInUse", "Message": "the port is in use"}


@pytest.mark.parametrize(
    ("content", "kind", "words"),
    [
        (b'"no more lanes"', errors.InvalidArgument, '"no more lanes"'),
        (b"<html><TITLE lang=en>\n Lanes &amp; ports\n</TITLE>", errors.InvalidArgument, '"Lanes & ports"'),
        (b'[{"Message": "a reason"}]', errors.InvalidArgument, '"a reason"'),
        (b'{"errors": [{"message": "a reason"}]}', errors.InvalidArgument, '"a reason"'),
        (b'{"error": "a reason"}', errors.InvalidArgument, '"a reason"'),
        (
            b'{"error": {"message": {"lang": "en", "value": "a reason"}}}',
            errors.InvalidArgument,
            '"a reason"',
        ),
        (b'{"title": "Bad", "detail": "a reason"}', errors.InvalidArgument, '"a reason"'),
        (
            json.dumps({"error": {"@Message.ExtendedInfo": IN_USE}}).encode(),
            errors.Unavailable,
            "the port is in use",
        ),
        (
            json.dumps({"error": {"code": IN_USE["MessageId"], "message": "the port is in use"}}).encode(),
            errors.Unavailable,
            "the port is in use",
        ),
        (
            json.dumps({"error": {"@Message.ExtendedInfo": [WITH_ARGUMENTS]}}).encode(),
            errors.InvalidArgument,
            "Zone is not 3",
        ),
    ],
    ids=[
        "JSON string",
        "page",
        "array",
        "errors",
        "error as text",
        "OData 3",
        "problem details",
        "object in place of an array",
        "code alone",
        "arguments",
    ],
)
async def test_the_services_words_are_shown_in_each_form(content, kind, words):
    made = service()
    made.hook = lambda method, path, _: answer(content, 400) if (method, path) == ("POST", ZONES) else None
    async with adapting(made) as adapter:
        error = (await adapter.attach(attach())).error
    assert error.code == kind.code
    assert words in error.message


# --- arrays that are not whole, and endpoints that cannot be read ---


def endpoints_are_below_an_array(made, zone):
    zone["Links"] = [zone["Links"]]


def endpoints_are_in_a_collection(made, zone):
    uri = f"{ZONES}/0/Endpoints"
    made.tree[uri] = {"@odata.id": uri, "Members": zone.pop("Links")["Endpoints"], "Members@odata.count": 2}
    zone["Endpoints"] = link(uri)


def endpoints_have_other_spellings(made, zone):
    zone["Links"]["Endpoints"] = [
        link(f"https://manager.example:443{ENDPOINTS}/h1/?x=1"),
        link(f"{ENDPOINTS}/gpu%2D1"),
    ]


def the_type_is_in_lower_case(made, zone):
    zone["ZoneType"] = "zoneofendpoints"


@pytest.mark.parametrize(
    "change",
    [
        endpoints_are_below_an_array,
        endpoints_are_in_a_collection,
        endpoints_have_other_spellings,
        the_type_is_in_lower_case,
    ],
    ids=lambda change: change.__name__,
)
async def test_a_connection_of_another_form_is_shown_and_ended(change):
    made = service([["h1", "gpu-1"]])
    change(made, made.tree[f"{ZONES}/0"])
    async with adapting(made) as adapter:
        assert (await adapter.devices()).device(GPU_1).connection.host_id == "h1"
        assert (await adapter.detach(detach())).succeeded
    assert made.changes == [("DELETE", f"{ZONES}/0", None)]


@pytest.mark.parametrize(
    "links",
    [
        {"Endpoints": [link(f"{ENDPOINTS}/h1")], "Endpoints@odata.count": 2},
        {"Endpoints": [link(f"{ENDPOINTS}/h1")], "Endpoints@odata.nextLink": f"{ZONES}/0?$skip=1"},
    ],
    ids=["count", "next link"],
)
async def test_a_zone_that_shows_a_part_of_its_endpoints_leaves_free_devices_in_doubt(links):
    """Or the device that it does not show would be offered, and a detach of it would succeed."""
    made = service([["h1", "gpu-1"]])
    made.tree[f"{ZONES}/0"]["Links"] = links
    async with adapting(made) as adapter:
        inventory = await adapter.devices()
        assert inventory.devices == ()
        assert inventory.unread == (f"{ZONES}/0 shows only a part of its Endpoints",)
        with pytest.raises(errors.Unavailable, match="only a part"):
            await adapter.detach(detach())
    assert made.changes == []


async def test_a_system_that_shows_a_part_of_its_blocks_is_not_changed():
    """Or the change of the whole array would remove the others."""
    made = composition()
    made.tree[f"{ROOT}/Systems/s1"]["Links"]["ResourceBlocks@odata.count"] = 2
    async with adapting(made) as adapter:
        with pytest.raises(errors.Unavailable, match="only a part"):
            await adapter.attach(attach("device", "s1"))
    assert made.changes == []


async def test_a_device_is_not_free_while_the_other_endpoint_of_its_zone_cannot_be_read():
    made = service([["h1", "gpu-1"]])
    made.hook = lambda method, path, _: redfish_servers.BROKEN if path == f"{ENDPOINTS}/h1" else None
    async with adapting(made) as adapter:
        assert [device.id for device in (await adapter.devices()).devices] == [GPU_2]
        with pytest.raises(errors.Unavailable, match="not listed"):
            await adapter.attach(attach(host_id="h2"))
    assert made.changes == []


async def test_a_refusal_with_the_status_of_a_success_is_one():
    made = service()
    refusal = {
        "error": {"@Message.ExtendedInfo": [{"MessageId": "Base.1.8.ResourceExhaustion", "Message": "full"}]}
    }
    made.hook = lambda method, path, _: answer(refusal) if (method, path) == ("POST", ZONES) else None
    async with adapting(made) as adapter:
        operation = await adapter.attach(attach())
    assert (operation.error.code, operation.side_effects_unknown) == (errors.Code.RESOURCE_EXHAUSTED, True)
    assert "full" in operation.error.message


async def test_a_collection_of_a_service_that_is_busy_for_a_moment_is_asked_for_again():
    made = service()
    busy = [answer({}, 503), None]
    made.hook = lambda method, path, _: busy.pop(0) if path == ZONES and len(busy) > 1 else None
    async with adapting(made) as adapter:
        assert len((await adapter.devices()).devices) == 2


@pytest.mark.parametrize(
    ("shown", "property_shown", "taken"),
    [("abc", None, '"abc"'), ('"abc"', "abc", "abc"), ('""1""', '"1"', '"1"'), ('W/"1"', '"1"', '"1"')],
    ids=["without quotes", "property without quotes", "quoted twice", "weak"],
)
def test_another_form_of_a_refused_etag_is_tried_for_a_resource_that_is_unchanged(
    shown, property_shown, taken
):
    document = Document(uri="/z", body={"@odata.etag": property_shown} if property_shown else {}, etag=shown)
    assert changing.find_other_etag(document, shown) == taken
