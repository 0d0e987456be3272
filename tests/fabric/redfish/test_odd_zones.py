"""Connections in odd forms: an attached device is never offered, and no device of another host is detached."""

import pytest
from tests.scenes.redfish_servers import ROOT, adapting, link, put_gpu
from tests.scenes.redfish_services import (
    CARD,
    ENDPOINTS,
    FABRIC,
    GPU_1,
    GPU_2,
    ZONES,
    answer,
    attach,
    detach,
    service,
)

from drawbar.fabric import errors

# --- connections ---


def endpoints_are_uris(zone):
    zone["Links"]["Endpoints"] = [each["@odata.id"] for each in zone["Links"]["Endpoints"]]


def endpoints_are_at_the_top(zone):
    zone["Endpoints"] = zone.pop("Links")["Endpoints"]


def write(zone, change):
    for each in zone["Links"]["Endpoints"]:
        each["@odata.id"] = change(each["@odata.id"])


def endpoints_are_in_lower_case(zone):
    write(zone, str.lower)


def endpoints_have_no_first_slash(zone):
    write(zone, lambda uri: uri.removeprefix("/"))


def uris_have_no_first_slash(zone):
    endpoints_have_no_first_slash(zone)
    endpoints_are_uris(zone)


@pytest.mark.parametrize(
    "change",
    [
        endpoints_are_uris,
        endpoints_are_at_the_top,
        endpoints_are_in_lower_case,
        endpoints_have_no_first_slash,
        uris_have_no_first_slash,
    ],
    ids=lambda each: each.__name__,
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


@pytest.mark.parametrize(
    "uri",
    [f"{ROOT}/Endpoints/", "../Endpoints/", "/fabrics/1/endpoints/"],
    ids=["place", "relative", "other"],
)
async def test_devices_are_in_doubt_while_the_zones_name_no_endpoint_of_their_fabric(uri):
    made = service([["h1", "gpu-1"]])
    write(made.tree[f"{ZONES}/0"], lambda own: f"{uri}{own.rpartition('/')[2]}")
    async with adapting(made) as adapter:
        inventory = await adapter.devices()
        assert inventory.devices == ()
        assert f"{ZONES} names {uri}h1, and no endpoint of the fabric" in inventory.unread
        with pytest.raises(errors.Unavailable, match="not listed"):
            await adapter.attach(attach(host_id="h2"))
    assert made.changes == []


async def test_endpoints_that_differ_in_case_alone_are_several():
    made = service([["h1", "gpu-1"]])
    for name in ("H1", "GPU-1"):
        made.tree[f"{ENDPOINTS}/{name}"] = {
            **made.tree[f"{ENDPOINTS}/{name.lower()}"],
            "@odata.id": f"{ENDPOINTS}/{name}",
            "Id": name,
        }
    made.tree[ENDPOINTS]["Members"] += [link(f"{ENDPOINTS}/H1"), link(f"{ENDPOINTS}/GPU-1")]
    async with adapting(made) as adapter:
        inventory = await adapter.devices()
    assert inventory.device(GPU_1).connection.host_id == "h1"


async def test_zones_of_endpoints_of_another_protocol_leave_no_doubt():
    made = service([["n1", "n2"]])
    for name in ("n1", "n2"):
        made.put(f"{ENDPOINTS}/{name}", EndpointProtocol="FC", ConnectedEntities=[])
        made.tree[ENDPOINTS]["Members"].append(link(f"{ENDPOINTS}/{name}"))
    async with adapting(made) as adapter:
        inventory = await adapter.devices()
    assert [device.id for device in inventory.devices] == [GPU_1, GPU_2]
    assert inventory.unread == ()


async def test_a_device_at_two_hosts_is_told():
    made = service([["h1", "gpu-1"], ["h2", "gpu-1"]])
    async with adapting(made) as adapter:
        (sentence,) = (await adapter.devices()).oddities
    assert sentence.startswith(f"device {GPU_1} is connected to several hosts (h1, h2)")


async def test_an_endpoint_of_a_host_and_a_device_is_told():
    made = service()
    entities = made.tree[f"{ENDPOINTS}/gpu-1"]["ConnectedEntities"]
    entities.append(made.tree[f"{ENDPOINTS}/h2"]["ConnectedEntities"][0])
    async with adapting(made) as adapter:
        inventory = await adapter.devices()
    assert [device.id for device in inventory.devices] == [GPU_2]
    assert inventory.oddities == (
        f"the endpoint {ENDPOINTS}/gpu-1 shows a host and a device, so the device is not listed",
    )


async def test_an_endpoint_that_shows_nothing_behind_it_is_told():
    made = service()
    del made.tree[f"{ENDPOINTS}/gpu-1"]["ConnectedEntities"]
    async with adapting(made) as adapter:
        inventory = await adapter.devices()
    assert [device.id for device in inventory.devices] == [GPU_2]
    assert inventory.oddities == (
        f"the endpoint {ENDPOINTS}/gpu-1 shows no ConnectedEntities, so it is neither a host nor a device",
    )


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


async def test_a_device_and_a_host_with_slashes_in_their_ids_are_connected():
    made = service()
    for uri in (f"{ENDPOINTS}/h1", f"{ENDPOINTS}/gpu-1", f"{ROOT}/Systems/h1"):
        made.tree[uri]["Id"] = f"a/{made.tree[uri]['Id']}"
    async with adapting(made) as adapter:
        assert (await adapter.attach(attach("PCIe.a/gpu-1", "a/h1"))).succeeded
        assert (await adapter.detach(detach("PCIe.a/gpu-1", "a/h1"))).succeeded


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


@pytest.mark.parametrize(
    "order", [("gpu-1", "gpu-2"), ("gpu-2", "gpu-1")], ids=["card first", "processor first"]
)
@pytest.mark.parametrize("is_attached", [False, True])
async def test_an_endpoint_of_a_processor_and_one_of_its_card_are_one_device(order, is_attached):
    made = service([["h1", "gpu-2"]] if is_attached else [])
    of_card, of_processor = (f"{ENDPOINTS}/{name}" for name in order)
    uri = f"{ROOT}/Systems/hgx/Processors/GPU_0"
    processor = {"@odata.type": "#Processor.v1_20_0.Processor", "ProcessorType": "GPU", "Model": "H100"}
    made.put(uri, **processor, Links={"PCIeDevice": link(CARD)})
    made.tree[of_card]["ConnectedEntities"][0]["EntityLink"] = link(CARD)
    made.tree[of_processor]["ConnectedEntities"][0]["EntityLink"] = link(uri)
    async with adapting(made) as adapter:
        inventory = await adapter.devices()
    assert [(each.id, each.connection is not None) for each in inventory.devices] == [
        (GPU_2, True) if is_attached else (GPU_1, False)
    ]


@pytest.mark.parametrize(
    ("kinds", "is_virtual", "listed"),
    [
        (("0x020000", "0x020000"), False, [GPU_1]),
        (("0x040300", "0x030200"), False, [GPU_2]),
        (("0x020000", "0x020000"), True, [GPU_1, GPU_2]),
    ],
    ids=["two ports", "audio before its GPU", "a virtual function"],
)
async def test_the_endpoints_of_a_cards_functions_are_one_device(kinds, is_virtual, listed):
    made = service()
    for number, (name, class_code) in enumerate(zip(("gpu-1", "gpu-2"), kinds, strict=True)):
        uri = f"{CARD}/PCIeFunctions/{number}"
        kind = "Virtual" if is_virtual and number else "Physical"
        made.put(uri, ClassCode=class_code, FunctionType=kind, Links={"PCIeDevice": link(CARD)})
        entity = {"EntityType": "PCIeDevice", "EntityRole": "Target", "EntityLink": link(uri)}
        made.tree[f"{ENDPOINTS}/{name}"]["ConnectedEntities"] = [entity]
    async with adapting(made) as adapter:
        assert [device.id for device in (await adapter.devices()).devices] == listed


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


async def test_the_zone_of_a_port_with_endpoints_at_the_top_is_changed_there():
    made = service([["h1", "gpu-1"]])
    endpoints_are_at_the_top(made.tree[f"{ZONES}/0"])
    async with adapting(made, profile="h3") as adapter:
        assert (await adapter.attach(attach(GPU_2))).succeeded
        assert (await adapter.detach(detach())).succeeded
    ends = [[each["@odata.id"].rpartition("/")[2] for each in body["Endpoints"]] for *_, body in made.changes]
    assert ends == [["h1", "gpu-1", "gpu-2"], ["h1", "gpu-2"]]
