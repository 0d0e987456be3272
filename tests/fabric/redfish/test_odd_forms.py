"""Bodies, collections and properties in odd forms: what is harmless is understood."""

import gzip
import json

import pytest
from tests.scenes.redfish_servers import ROOT, adapting, link
from tests.scenes.redfish_services import (
    CARD,
    ENDPOINTS,
    GPU_1,
    GPU_2,
    ZONES,
    answer,
    attach,
    detach,
    service,
)

from drawbar.fabric import contract, errors
from drawbar.fabric.redfish import documents

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
        answer(body) if (method, path) == ("GET", ZONES) and is_unchanged(made) else None
    )


def is_unchanged(made):
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


def expanded_members_have_the_uri_of_their_collection(made):
    def content():
        collection = made.tree[ENDPOINTS]
        shown = [made.tree[each["@odata.id"]] | link(ENDPOINTS) for each in collection["Members"]]
        return answer({**collection, "Members": shown})

    expand(made, content)


def expansion_is_forbidden(made):
    expand(made, lambda: answer({}, 403))


def expanded_members_have_no_entities(made):
    def content():
        collection = made.tree[ENDPOINTS]
        shown = [made.tree[each["@odata.id"]] | {"ConnectedEntities": None} for each in collection["Members"]]
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
    expanded_members_have_the_uri_of_their_collection,
    expansion_is_forbidden,
    expanded_members_have_no_entities,
)


@pytest.mark.parametrize("change", HARMLESS, ids=lambda change: change.__name__)
async def test_harmless_deviations_are_understood(change):
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


async def test_a_member_twice_in_place_of_another_leaves_the_collection_in_doubt():
    """An endpoint that is made between the readings of two pages moves a member to the second one, too."""
    made = service()
    collection = made.tree[ENDPOINTS]
    first, second = collection["Members"][:2], collection["Members"][1:3]
    following = f"{ENDPOINTS}2"
    made.tree[ENDPOINTS] = collection | {"Members": first, "Members@odata.nextLink": following}
    made.tree[following] = collection | {"Members": second}
    async with adapting(made) as adapter:
        (sentence,) = (await adapter.devices()).unread
    assert "counts 4 members and shows 3" in sentence


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
