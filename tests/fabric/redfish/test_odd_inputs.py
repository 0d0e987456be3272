"""Answers of real services in odd forms: what is harmless is understood, and what is not is told."""

import gzip
import json
from dataclasses import replace

import pytest
from aiohttp import web
from tests.scenes import redfish_servers
from tests.scenes.redfish_servers import ROOT, link, put_gpu, put_host, serving

from drawbar.fabric import contract, errors
from drawbar.fabric.redfish import changing, documents
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
        ({}, {"Location": "../../TaskService/TaskMonitors/1"}, {"TaskState": "Completed"}),
    ],
    ids=["monitor in the body", "lower case", "without a slash", "relative"],
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
        ({"Name": "Session"}, {"Location": "Sessions/7"}),
        ({"Id": "7"}, {"Location": "7"}),
        ({"Id": "7"}, {"Location": "/SessionService/Sessions/7"}),
        ({"Id": "7"}, {"Location": "https://10.1.2.3/sessions/7"}),
        ({"@odata.id": f"{SESSIONS}/7"}, {"Location": "http://["}),
    ],
    ids=[
        "URI in the body",
        "id in the body",
        "another authority",
        "Location first",
        "relative",
        "number",
        "another place",
        "elsewhere",
        "no URI",
    ],
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


@pytest.mark.parametrize("status", [412, 428])
async def test_an_etag_that_an_expanded_collection_hides_is_read_once_it_is_asked_for(status):
    made = service([["h1", "gpu-1"], ["h2", "gpu-2"]])
    made.tree[ROOT]["ProtocolFeaturesSupported"] = {"ExpandQuery": {"NoLinks": True}}
    inner = made.answer

    async def respond(request):
        body = made.tree.get(request.path.rstrip("/"), {})
        if request.method == "GET" and "$expand" in request.query_string and "Members" in body:
            return answer({**body, "Members": [made.tree[each["@odata.id"]] for each in body["Members"]]})
        if request.method == "DELETE" and request.headers.get("If-Match") != '"5"':
            return answer({}, status)
        response = await inner(request)
        response.headers["ETag"] = '"5"'
        return response

    made.answer = respond
    async with adapting(made) as adapter:
        assert (await adapter.detach(detach())).succeeded
        other = replace(detach(GPU_2, "h2"), request_id="d2")
        assert (await adapter.detach(other)).succeeded
    assert [method for method, *_ in made.changes] == ["DELETE", "DELETE"]


# --- members that are not shown ---


def a_zone_has_no_uri(made):
    made.tree[ZONES]["Members"] = [{"Id": "0"}]
    del made.tree[ZONES]["Members@odata.count"]


def a_zone_is_a_number(made):
    made.tree[ZONES] = {"@odata.id": ZONES, "Members": [17]}


def a_zone_is_listed_and_not_found(made):
    del made.tree[f"{ZONES}/0"]


def the_next_page_is_not_found(made):
    made.tree[ZONES] = {"@odata.id": ZONES, "Members": [], "Members@odata.nextLink": f"{ZONES}/2"}


def the_next_page_is_a_number(made):
    made.tree[ZONES] = {"@odata.id": ZONES, "Members": [], "Members@odata.nextLink": 17}


def its_links_are_missing(made):
    del made.tree[f"{ZONES}/0"]["Links"]


def a_zone_redirects_to_nothing(made):
    made.hook = lambda method, path, _: answer({}, 302, Location="nothing") if path == f"{ZONES}/0" else None


def its_endpoints_have_no_uri(made):
    made.tree[f"{ZONES}/0"]["Links"]["Endpoints"] = [{"Id": "h1"}, {"Id": "gpu-1"}]


def its_endpoints_are_a_text(made):
    made.tree[f"{ZONES}/0"]["Links"]["Endpoints"] = "h1, gpu-1"


def its_endpoints_at_the_top_are_cut(made):
    zone = made.tree[f"{ZONES}/0"]
    zone |= {"Endpoints": zone.pop("Links")["Endpoints"][:1], "Endpoints@odata.count": 2}


def its_host_is_not_listed(made):
    made.tree[ENDPOINTS]["Members"].remove(link(f"{ENDPOINTS}/h1"))
    made.tree[ENDPOINTS]["Members@odata.count"] = 3


def its_host_is_in_a_collection_that_is_cut(made):
    made.tree[ENDPOINTS]["Members"].remove(link(f"{ENDPOINTS}/h1"))


def its_host_shows_nothing(made):
    del made.tree[f"{ENDPOINTS}/h1"]["ConnectedEntities"]


def its_host_has_another_protocol(made):
    made.tree[f"{ENDPOINTS}/h1"]["EndpointProtocol"] = "Ethernet"


def its_host_is_a_root_complex_as_a_target(made):
    made.tree[f"{ENDPOINTS}/h1"]["ConnectedEntities"][0]["EntityRole"] = "Target"


def its_host_is_a_cpu(made):
    uri = f"{ROOT}/Systems/h1/Processors/1"
    made.put(uri, **{"@odata.type": "#Processor.v1_20_0.Processor"}, ProcessorType="CPU")
    entity = {"EntityType": "Processor", "EntityRole": "Target", "EntityLink": link(uri)}
    made.tree[f"{ENDPOINTS}/h1"]["ConnectedEntities"] = [entity]


@pytest.mark.parametrize(
    "change",
    [
        a_zone_has_no_uri,
        a_zone_is_a_number,
        a_zone_is_listed_and_not_found,
        a_zone_redirects_to_nothing,
        its_links_are_missing,
        its_endpoints_have_no_uri,
        its_endpoints_are_a_text,
        its_endpoints_at_the_top_are_cut,
        its_host_is_not_listed,
        its_host_is_in_a_collection_that_is_cut,
        its_host_shows_nothing,
        its_host_has_another_protocol,
        its_host_is_a_root_complex_as_a_target,
        its_host_is_a_cpu,
    ],
    ids=lambda change: change.__name__,
)
async def test_a_device_whose_zone_is_not_shown_whole_is_not_free(change):
    """Or it would be offered, and attached to a second host."""
    made = service([["h1", "gpu-1"]])
    change(made)
    async with adapting(made) as adapter:
        inventory = await adapter.devices()
        assert not {GPU_1, "PCIe.h1"} & {device.id for device in inventory.devices}
        assert inventory.unread or inventory.oddities
        with pytest.raises(errors.FabricError):
            await adapter.attach(attach(host_id="h2"))
    assert made.changes == []


@pytest.mark.parametrize("change", [the_next_page_is_not_found, the_next_page_is_a_number])
async def test_zones_without_their_next_page_are_no_empty_collection(change):
    """Or all devices would be free."""
    made = service([["h1", "gpu-1"]])
    change(made)
    with pytest.raises(errors.Unavailable, match=r"next page|no page"):
        async with adapting(made):
            pass


# --- connections of other forms ---


def they_are_in_a_collection_below_links(made, zone):
    uri = f"{ZONES}/0/Endpoints"
    made.tree[uri] = {"@odata.id": uri, "Members": zone["Links"]["Endpoints"]}
    zone["Links"]["Endpoints"] = link(uri)


def they_have_needless_slashes(made, zone):
    zone["Links"]["Endpoints"] = [link(f"{FABRIC}//Endpoints/./{name}") for name in ("h1", "gpu-1")]


def they_name_another_authority_without_a_scheme(made, zone):
    zone["Links"]["Endpoints"] = [link(f"//manager.example{ENDPOINTS}/{name}") for name in ("h1", "gpu-1")]


def the_host_has_both_roles(made, zone):
    made.tree[f"{ENDPOINTS}/h1"]["ConnectedEntities"][0]["EntityRole"] = "Both"


def the_host_has_no_role_and_another_type(made, zone):
    made.tree[f"{ENDPOINTS}/h1"]["ConnectedEntities"][0] |= {"EntityRole": None, "EntityType": "Processor"}


def the_type_is_unknown(made, zone):
    zone["ZoneType"] = "Zone of endpoints"


def it_redirects_relatively(made, zone):
    def hook(method, path, _):
        is_first = (method, path) == ("GET", f"{ZONES}/0") and not made.query
        return answer(b"<html>", 307, Location="0?moved=1") if is_first else None

    made.hook = hook


def the_next_page_is_relative(made, zone):
    pages = {"": {"Members": [], "Members@odata.nextLink": "?$skip=0"}}
    made.hook = lambda method, path, _: (
        answer(pages[made.query]) if (method, path) == ("GET", ZONES) and made.query in pages else None
    )


def an_expanded_zone_has_no_links(made, zone):
    made.tree[ROOT]["ProtocolFeaturesSupported"] = {"ExpandQuery": {"NoLinks": True}}
    shown = {"@odata.id": f"{ZONES}/0", "Id": "0", "ZoneType": "ZoneOfEndpoints", "Status": {}}
    made.hook = lambda method, path, _: (
        answer({"Members": [shown]}) if path == ZONES and made.query and not made.changes else None
    )


@pytest.mark.parametrize(
    "change",
    [
        they_are_in_a_collection_below_links,
        they_have_needless_slashes,
        they_name_another_authority_without_a_scheme,
        the_host_has_both_roles,
        the_host_has_no_role_and_another_type,
        the_type_is_unknown,
        it_redirects_relatively,
        the_next_page_is_relative,
        an_expanded_zone_has_no_links,
    ],
    ids=lambda change: change.__name__,
)
async def test_a_connection_that_is_told_in_another_way_is_ended(change):
    made = service([["h1", "gpu-1"]])
    change(made, made.tree[f"{ZONES}/0"])
    async with adapting(made) as adapter:
        assert (await adapter.devices()).device(GPU_1).connection.host_id == "h1"
        assert (await adapter.detach(detach())).succeeded
    assert [(method, path) for method, path, _ in made.changes] == [("DELETE", f"{ZONES}/0")]


async def test_a_zone_that_names_itself_as_another_one_is_ended_itself():
    """Or the connection of another host would be ended."""
    made = service([["h1", "gpu-1"], ["h2", "gpu-2"]])
    made.tree[f"{ZONES}/0"]["@odata.id"] = f"{ZONES}/1"
    async with adapting(made) as adapter:
        assert (await adapter.detach(detach())).succeeded
        assert (await adapter.devices()).device(GPU_2).connection.host_id == "h2"
    assert made.changes == [("DELETE", f"{ZONES}/0", None)]


async def test_a_host_whose_system_is_missing_for_a_while_keeps_its_id():
    made = service([["h1", "gpu-1"]])
    made.tree[f"{ENDPOINTS}/h1"]["Id"] = "port-9"
    del made.tree[f"{ROOT}/Systems/h1"]
    async with adapting(made) as adapter:
        assert (await adapter.devices()).device(GPU_1).connection.host_id == "h1"


# --- ids ---


def two_fabrics(made):
    made.put_fabric("other", {"gpu-9": put_gpu(made, "gpu-9", "S9")}, Id="PCIe")


def two_endpoints(made):
    made.tree[f"{ENDPOINTS}/gpu-2"]["Id"] = "gpu-1"


@pytest.mark.parametrize("change", [two_fabrics, two_endpoints])
async def test_of_several_resources_with_one_id_none_is_used(change):
    """Or an attach would take the other one, as soon as the first is not listed any more."""
    made = service([["h1", "gpu-1"]])
    change(made)
    async with adapting(made) as adapter:
        inventory = await adapter.devices()
    assert inventory.devices == ()
    assert sum("not unique" in sentence for sentence in inventory.oddities) == 2


async def test_of_two_systems_with_one_id_none_is_a_host():
    """Or the devices of one would be shown at the other, as the service lists them."""
    made = composition()
    blocks = [link(f"{BLOCKS}/device")]
    made.put(f"{ROOT}/Systems/s2", Id="s1", Links={"ResourceBlocks": blocks})
    made.collect(f"{ROOT}/Systems", "s1", "s2")
    async with adapting(made) as adapter:
        assert ((await adapter.devices()).devices, await adapter.hosts()) == ((), ())
        made.tree[f"{ROOT}/Systems"]["Members"].reverse()
        assert ((await adapter.devices()).devices, await adapter.hosts()) == ((), ())


async def test_a_device_and_a_host_with_slashes_in_their_ids_are_connected():
    made = service()
    for uri in (f"{ENDPOINTS}/h1", f"{ENDPOINTS}/gpu-1", f"{ROOT}/Systems/h1"):
        made.tree[uri]["Id"] = f"a/{made.tree[uri]['Id']}"
    async with adapting(made) as adapter:
        assert (await adapter.attach(attach("PCIe.a/gpu-1", "a/h1"))).succeeded
        assert (await adapter.detach(detach("PCIe.a/gpu-1", "a/h1"))).succeeded


# --- names of properties, and prefixes of URIs ---


def rename(body):
    """Return a body whose properties begin with a small letter."""
    if isinstance(body, list):
        return [rename(each) for each in body]
    if not isinstance(body, dict):
        return body
    return {f"{name[:1].lower()}{name[1:]}": rename(content) for name, content in body.items()}


def the_properties_begin_with_small_letters(made):
    encode(made, lambda text: json.dumps(rename(json.loads(text))).encode())


def links_are_in_small_letters(made):
    encode(made, lambda text: text.replace('"Links"', '"links"').encode())


def the_prefix_has_a_capital(made):
    encode(made, lambda text: text.replace('"/redfish/v1/', '"/Redfish/v1/').encode())


def the_prefix_has_a_capital_in_some_links(made):
    for body in (made.tree[f"{ZONES}/0"]["Links"], made.tree[f"{ENDPOINTS}/h1"]):
        body.update(json.loads(json.dumps(body).replace("/redfish/v1/", "/REDFISH/v1/")))


@pytest.mark.parametrize(
    "change",
    [
        the_properties_begin_with_small_letters,
        links_are_in_small_letters,
        the_prefix_has_a_capital,
        the_prefix_has_a_capital_in_some_links,
    ],
    ids=lambda change: change.__name__,
)
async def test_another_case_hides_no_connection(change):
    """Or the attached device would be offered, and attached to a second host."""
    made = service([["h1", "gpu-1"]])
    made.tree[f"{ENDPOINTS}/h1"]["Id"] = "port-1"
    inner = made._default
    made._default = lambda method, path, body: inner(method, path.replace("/Redfish/", "/redfish/"), body)
    change(made)
    async with adapting(made) as adapter:
        inventory = await adapter.devices()
        assert inventory.device(GPU_1).connection.host_id == "h1"
        assert inventory.device(GPU_2).connection is None
        with pytest.raises(errors.FailedPrecondition):
            await adapter.attach(attach(host_id="h2"))


async def test_a_service_that_serves_its_own_prefix_alone_is_read():
    made = service([["h1", "gpu-1"]])

    def hook(method, path, _):
        if path == ROOT:
            return answer(json.loads(json.dumps(made.tree[ROOT]).replace("/redfish/v1/", "/Redfish/v1/")))
        body = made.tree.get(path.replace("/Redfish/", "/redfish/")) if path.startswith("/Redfish/") else None
        written = json.dumps(body).replace("/redfish/v1/", "/Redfish/v1/").encode()
        return answer({}, 404) if body is None else answer(written)

    made.hook = hook
    async with adapting(made) as adapter:
        assert (await adapter.devices()).device(GPU_1).connection.host_id == "h1"


@pytest.mark.parametrize(
    ("uri", "written"),
    [("%64%2D1", "d-1"), ("/d-1", "d-1"), ("./d-1", "d-1"), ("a%2fb", "a%2Fb"), ("ä", "%C3%A4")],
)
def test_resources_are_compared_by_the_normal_form_of_their_uris(uri, written):
    assert documents.path(f"/redfish/v1/Chassis/{uri}") == f"/redfish/v1/Chassis/{written}"


@pytest.mark.parametrize(
    "uri", ["/redfish//v1/Systems/%681", f"{ROOT}/Systems/h1?x=1"], ids=["path", "query"]
)
async def test_a_system_that_its_endpoint_names_in_another_spelling_is_the_host(uri):
    made = service([["h1", "gpu-1"]])
    (entity,) = made.tree[f"{ENDPOINTS}/h1"]["ConnectedEntities"]
    entity["EntityLink"] = link(uri)
    made.tree[f"{ROOT}/Systems/h1"]["Id"] = "host-1"
    async with adapting(made) as adapter:
        assert (await adapter.devices()).device(GPU_1).connection.host_id == "host-1"


# --- devices that are one ---


@pytest.mark.parametrize(
    ("zones", "shown"),
    [([], {GPU_1: None}), ([["h1", "gpu-2"]], {GPU_2: "h1"}), ([["h9", "gpu-2"]], {})],
    ids=["free", "attached", "hidden"],
)
async def test_a_card_with_two_endpoints_is_offered_once(zones, shown):
    """Or it would be free at the second while it is attached by the first."""
    made = service(zones)
    made.put(f"{ENDPOINTS}/gpu-2", ConnectedEntities=made.tree[f"{ENDPOINTS}/gpu-1"]["ConnectedEntities"])
    async with adapting(made) as adapter:
        inventory = await adapter.devices()
    assert {
        each.id: each.connection.host_id if each.connection else None for each in inventory.devices
    } == shown
    assert "has the parts of" in inventory.oddities[0]


async def test_two_blocks_of_one_processor_are_offered_once():
    made = composition()
    made.put(
        f"{BLOCKS}/a", ResourceBlockType=["Processor"], Processors=made.tree[f"{BLOCKS}/device"]["Processors"]
    )
    made.collect(BLOCKS, "a", "device", "machine")
    async with adapting(made) as adapter:
        assert [device.id for device in (await adapter.devices()).devices] == ["a"]
        made.tree[f"{ROOT}/Systems/s1"]["Links"]["ResourceBlocks"].append(link(f"{BLOCKS}/device"))
        assert [device.id for device in (await adapter.devices()).devices] == ["device"]


# --- zones with several hosts ---


@pytest.mark.parametrize("profile", ["generic", "h3"])
@pytest.mark.parametrize("other", ["another host", "a host without a name"])
async def test_a_device_in_a_zone_of_two_hosts_is_not_detached(profile, other):
    """Or the other host would lose it too."""
    made = service([["h2", "h1", "gpu-1"]])
    if other != "another host":
        made.tree[f"{ROOT}/Systems/h2"]["Id"] = "x" * 200
    async with adapting(made, profile=profile) as adapter:
        operation = await adapter.detach(detach())
    assert (operation.error.code, operation.error.reason) == (errors.Code.FAILED_PRECONDITION, "INCOMPATIBLE")
    assert made.changes == []


async def test_a_device_is_not_put_into_a_zone_of_two_hosts():
    """Or both would have it."""
    made = service([["h2", "h1"]])
    async with adapting(made, profile="h3") as adapter:
        assert "one for all" in (await adapter.attach(attach())).error.message
        assert made.changes == []
    made = service([["h2", "h1"], ["h1"]])
    async with adapting(made, profile="h3") as adapter:
        assert (await adapter.attach(attach())).succeeded
    assert [path for _, path, _ in made.changes] == [f"{ZONES}/1"]


async def test_the_host_of_a_zone_does_not_follow_the_order_of_its_endpoints():
    made = service([["h2", "h1", "gpu-1"]])
    async with adapting(made) as adapter:
        assert (await adapter.devices()).device(GPU_1).connection.host_id == "h1"
        made.tree[f"{ZONES}/0"]["Links"]["Endpoints"].reverse()
        assert (await adapter.devices()).device(GPU_1).connection.host_id == "h1"


# --- shared arrays ---


@pytest.mark.parametrize("odd", [{"Endpoints@odata.count": 3}, {}], ids=["count", "no URI"])
async def test_a_zone_of_a_port_that_is_not_shown_whole_is_not_changed(odd):
    """Or the detach would drop the devices that are not shown."""
    made = service([["h1", "gpu-1"]])
    links = made.tree[f"{ZONES}/0"]["Links"]
    links |= odd or {"Endpoints": [*links["Endpoints"], {"Id": "gpu-3"}]}
    async with adapting(made, profile="h3") as adapter:
        assert "would drop the others" in (await adapter.detach(detach())).error.message
    assert made.changes == []


async def test_a_system_that_shows_a_part_of_its_blocks_loses_none():
    made = composition()
    made.tree[f"{ROOT}/Systems/s1"]["Links"] = {
        "ResourceBlocks": [link(f"{BLOCKS}/machine"), link(f"{BLOCKS}/device")],
        "ResourceBlocks@odata.count": 3,
    }
    async with adapting(made) as adapter:
        assert "would drop the others" in (await adapter.detach(detach("device", "s1"))).error.message
    assert made.changes == []


async def test_the_zone_of_a_port_with_endpoints_at_the_top_is_changed_there():
    made = service([["h1", "gpu-1"]])
    endpoints_are_at_the_top(made.tree[f"{ZONES}/0"])
    async with adapting(made, profile="h3") as adapter:
        assert (await adapter.attach(attach(GPU_2))).succeeded
        assert (await adapter.detach(detach())).succeeded
    ends = [[each["@odata.id"].rpartition("/")[2] for each in body["Endpoints"]] for *_, body in made.changes]
    assert ends == [["h1", "gpu-1", "gpu-2"], ["h1", "gpu-2"]]


# --- resource blocks ---


@pytest.mark.parametrize(
    "uri",
    [f"{BLOCKS}/%64evice", f"{BLOCKS}/device?x=1", f"{BLOCKS}//device"],
    ids=["percent", "query", "slash"],
)
async def test_a_block_in_another_spelling_is_not_free(uri):
    """Or it would be taken from its host."""
    made = composition()
    made.tree[f"{ROOT}/Systems/s1"]["Links"]["ResourceBlocks"].append(link(uri))
    async with adapting(made) as adapter:
        assert (await adapter.devices()).device("device").connection.host_id == "s1"


@pytest.mark.parametrize(
    "properties",
    [
        {"CompositionStatus": {"CompositionState": "Composed"}},
        {"CompositionStatus": {"CompositionState": "Composing"}},
        {"CompositionStatus": {"CompositionState": "ComposedAndAvailable"}},
        {"CompositionStatus": {"CompositionState": "Unused", "NumberOfCompositions": 1}},
        {"Links": {"ComputerSystems": [link(f"{ROOT}/Systems/s9")]}},
        {"Links": {"ComputerSystems": [link(f"{ROOT}/Systems/s1")]}},
    ],
    ids=["state", "composing", "shared", "count", "link", "link to a system without it"],
)
async def test_a_block_of_a_system_that_is_not_listed_is_not_free(properties):
    made = composition()
    made.tree[f"{BLOCKS}/device"].update(properties)
    async with adapting(made) as adapter:
        inventory = await adapter.devices()
    assert inventory.devices == ()
    assert inventory.oddities == (
        f"the resource block {BLOCKS}/device is composed or being composed, and no listed system has it",
    )


@pytest.mark.parametrize("state", ["Failed", "Unavailable"])
async def test_an_attached_block_that_cannot_be_composed_is_shown(state):
    """Or its detach would count as done."""
    made = composition()
    made.tree[f"{ROOT}/Systems/s1"]["Links"]["ResourceBlocks"].append(link(f"{BLOCKS}/device"))
    made.tree[f"{BLOCKS}/device"]["CompositionStatus"] = {"CompositionState": state}
    async with adapting(made) as adapter:
        assert (await adapter.devices()).device("device").connection.host_id == "s1"
        assert (await adapter.detach(detach("device", "s1"))).succeeded
        assert (await adapter.devices()).devices == ()


async def test_a_system_that_is_listed_and_not_found_leaves_free_blocks_in_doubt():
    made = composition()
    del made.tree[f"{ROOT}/Systems/s1"]
    async with adapting(made) as adapter:
        inventory = await adapter.devices()
    assert inventory.devices == ()
    assert "not found" in inventory.unread[0]


# --- tasks of other forms ---


@pytest.mark.parametrize("status", [200, 201, 202])
@pytest.mark.parametrize(
    "shown", [{"TaskState": "Canceled"}, {"TaskState": "Done", "EndTime": "2026-01-01T00:00:00Z"}]
)
async def test_the_fabric_tells_the_outcome_of_a_task_with_an_end_of_its_own(status, shown):
    made = service()
    bodies = []

    def hook(method, path, body):
        if (method, path) == ("POST", ZONES):
            bodies.append(body)
            return answer({"@odata.id": MONITOR, "TaskState": "Running"}, status)
        if path == MONITOR and made.reads.count(MONITOR) == 2:
            made._default("POST", ZONES, bodies[0])
        return (
            answer(shown if made.reads.count(MONITOR) > 1 else {"TaskState": "Running"})
            if path == MONITOR
            else None
        )

    made.hook = hook
    async with adapting(made) as adapter:
        assert (await adapter.attach(attach())).succeeded
    assert len(bodies) == 1


@pytest.mark.parametrize(
    "shown",
    [
        {"TaskState": "Completed", "TaskStatus": "Critical", "Messages": [{"Message": "no lanes"}]},
        {"TaskState": "Failed", "EndTime": "2026-01-01T00:00:00Z", "Messages": [{"Message": "no lanes"}]},
        {"error": {"message": "no lanes"}},
    ],
    ids=["critical", "vendor's", "refusal"],
)
async def test_the_reason_of_a_task_without_effect_is_told(shown):
    made = service()

    def hook(method, path, _):
        if (method, path) == ("POST", ZONES):
            return answer({}, 202, Location=MONITOR)
        return answer(shown) if path == MONITOR else None

    made.hook = hook
    async with adapting(made) as adapter:
        assert "no lanes" in (await adapter.attach(attach())).error.message
