"""Answers that are not whole: what they leave in doubt is not offered."""

import dataclasses

import pytest
from tests.scenes import redfish_servers
from tests.scenes.redfish_servers import ROOT, adapting, link
from tests.scenes.redfish_services import ENDPOINTS, GPU_1, GPU_2, ZONES, answer, attach, detach, service

from drawbar.fabric import errors
from drawbar.fabric.redfish import changing
from drawbar.fabric.redfish.documents import Document

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
    """Otherwise the absent device would be offered, and a detach of it would succeed."""
    made = service([["h1", "gpu-1"]])
    made.tree[f"{ZONES}/0"]["Links"] = links
    async with adapting(made) as adapter:
        inventory = await adapter.devices()
        assert inventory.devices == ()
        assert inventory.unread == (f"{ZONES}/0 shows only a part of its Endpoints",)
        with pytest.raises(errors.Unavailable, match="only a part"):
            await adapter.detach(detach())
    assert made.changes == []


async def test_a_device_is_not_free_while_the_other_endpoint_of_its_zone_cannot_be_read():
    made = service([["h1", "gpu-1"]])
    made.hook = lambda method, path, _: redfish_servers.BROKEN if path == f"{ENDPOINTS}/h1" else None
    async with adapting(made) as adapter:
        assert [device.id for device in (await adapter.devices()).devices] == [GPU_2]
        with pytest.raises(errors.Unavailable, match="not listed"):
            await adapter.attach(attach(host_id="h2"))
    assert made.changes == []


@pytest.mark.parametrize("uri", [f"{ENDPOINTS}/gpu-1", f"{ROOT}/Fabrics/other"], ids=["endpoint", "fabric"])
async def test_what_stays_listed_and_is_not_found_is_in_doubt(uri):
    """Otherwise its devices would count as gone, and nothing would be said."""
    made = service()
    made.put_fabric("other", {})
    del made.tree[uri]
    async with adapting(made) as adapter:
        inventory = await adapter.devices()
        collection = uri.rpartition("/")[0]
        assert inventory.unread == (f"{uri} cannot be read: {collection} lists it, and it is not found",)
        assert inventory.device(GPU_2).connection is None


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
    ("shown", "property_shown", "forms"),
    [
        ("abc", None, ("abc", '"abc"')),
        ('"abc"', "abc", ('"abc"', "abc")),
        ('""1""', '"1"', ('""1""', '"1"', "1")),
        ('W/"1"', '"1"', ('W/"1"', '"1"', "1")),
        ('W/"1"', None, ('W/"1"', '"1"', "1")),
        ('"1-gzip"', None, ('"1-gzip"', '"1"', "1")),
        ('"1;gzip"', 7, ('"1;gzip"', "7", '"1"', "1")),
        (r'"\"1\""', None, (r'"\"1\""', '"1"', "1")),
    ],
    ids=["bare", "bare property", "quoted twice", "weak", "made weak", "compressed", "number", "escaped"],
)
def test_the_forms_of_an_etag_are_those_that_services_compare_it_with(shown, property_shown, forms):
    document = Document(uri="/z", body={"@odata.etag": property_shown} if property_shown else {}, etag=shown)
    assert changing.list_etags(document) == forms


@pytest.mark.parametrize("taken", ['"1"', "1"], ids=["strong", "bare"])
async def test_each_form_of_a_refused_etag_is_tried_for_a_resource_that_is_unchanged(taken):
    made = service([["h1", "gpu-2"]])
    made.tree[f"{ZONES}/0"]["@odata.etag"] = taken
    made.show_etag = lambda _: 'W/"1"'
    # The property is hidden, as by a service that shows the header alone.
    made.hook = lambda method, path, _: (
        answer({name: each for name, each in made.tree[path].items() if name != "@odata.etag"}, ETag='W/"1"')
        if (method, path) == ("GET", f"{ZONES}/0")
        else None
    )
    async with adapting(made, profile="h3") as adapter:
        assert (await adapter.attach(attach())).succeeded
    assert [method for method, *_ in made.changes] == ["PATCH"] * (2 if taken == '"1"' else 3)


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
        other = dataclasses.replace(detach(GPU_2, "h2"), request_id="d2")
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
