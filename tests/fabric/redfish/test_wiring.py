"""Which hosts of a Redfish service can have which devices: by fabrics, by switches, and by resource zones."""

import pytest
from tests.scenes import redfish_trees
from tests.scenes.redfish_trees import (
    FABRIC,
    ROOT,
    block,
    collection,
    composition,
    initiator,
    link,
    links,
    system,
    target,
)

from drawbar.fabric import conformance, contract, errors
from drawbar.fabric.redfish import composition as blocks
from drawbar.fabric.redfish import profiles, zones
from drawbar.mocks.redfish.configuration import Device, Enclosure, Host

SECOND = f"{ROOT}/Fabrics/G"
SWITCHES = f"{FABRIC}/Switches"


async def view_of(tree):
    method = zones.Zones(profiles.PROFILES["generic"])
    await method.read(tree)
    return method.view()


def groups(view):
    """Return by id the groups of all devices and hosts."""
    return {name: set(item.reach_groups) for name, item in {**view.devices, **view.hosts}.items()}


def in_second(resource):
    """Return an endpoint of the scene's fabric as one of a second fabric."""
    return {**resource, "@odata.id": resource["@odata.id"].replace(FABRIC, SECOND)}


def two_fabrics(*resources):
    """Return a service with the scene's fabric `F` and a second one, `G`."""
    tree = redfish_trees.fabric(*resources)
    names = [each["Id"] for each in resources if each["@odata.id"].startswith(SECOND)]
    further = (
        collection(f"{ROOT}/Fabrics", "F", "G"),
        {
            "@odata.id": SECOND,
            "Id": "G",
            "Endpoints": link(f"{SECOND}/Endpoints"),
            "Zones": link(f"{SECOND}/Zones"),
        },
        collection(f"{SECOND}/Endpoints", *names),
        collection(f"{SECOND}/Zones"),
    )
    tree.resources |= {each["@odata.id"]: each for each in further}
    return tree


async def test_a_device_goes_to_the_hosts_of_its_own_fabric():
    both = in_second(initiator("port-2", "both")), initiator("port-1", "both"), system("both")
    view = await view_of(
        two_fabrics(initiator("h1"), target("d1"), in_second(target("d2")), in_second(initiator("h2")), *both)
    )
    assert groups(view) == {"F.d1": {"F"}, "G.d2": {"G"}, "h1": {"F"}, "h2": {"G"}, "both": {"F", "G"}}
    assert [host for host in view.hosts if view.hosts[host].reaches(view.devices["F.d1"])] == ["h1", "both"]


async def test_a_single_fabric_makes_no_groups():
    view = await view_of(redfish_trees.fabric(initiator("h1"), target("d1")))
    assert groups(view) == {"F.d1": set(), "h1": set()}


def port(switch, name, **properties):
    return {"@odata.id": f"{SWITCHES}/{switch}/Ports/{name}", "Id": name, **properties}


def leads_to(name, kind="DownstreamPort"):
    """Return the properties of a port with an endpoint behind it."""
    return {
        "PortType": kind,
        "LinkStatus": "LinkUp",
        "Links": {"AssociatedEndpoints": links(f"{FABRIC}/Endpoints/{name}")},
    }


def make_switched_fabric(*further):
    """Return a fabric of two switches, each with a host and a device, and further ports."""
    ports = (
        port("S1", "1", **leads_to("h1", "UpstreamPort")),
        port("S1", "2", **leads_to("d1")),
        port("S2", "1", **leads_to("h2", "UpstreamPort")),
        port("S2", "2", **leads_to("d2")),
        *further,
    )
    tree = redfish_trees.fabric(initiator("h1"), initiator("h2"), target("d1"), target("d2"), target("d3"))
    tree.resources[FABRIC]["Switches"] = link(SWITCHES)
    shown = [collection(SWITCHES, "S1", "S2")]
    for name in ("S1", "S2"):
        uri = f"{SWITCHES}/{name}"
        of_switch = [each for each in ports if each["@odata.id"].startswith(f"{uri}/")]
        shown.append({"@odata.id": uri, "Id": name, "Ports": link(f"{uri}/Ports")})
        shown.append(collection(f"{uri}/Ports", *(each["Id"] for each in of_switch)))
        shown += of_switch
    tree.resources |= {each["@odata.id"]: each for each in shown}
    return tree


SPLIT = {
    "F.d1": {"F/S1"},
    "F.d2": {"F/S2"},
    # No port leads to it, so it may be behind any.
    "F.d3": {"F/S1", "F/S2"},
    "h1": {"F/S1"},
    "h2": {"F/S2"},
}
WHOLE = {name: set() for name in SPLIT}


@pytest.mark.parametrize(
    ("further", "expected"),
    [
        ((), SPLIT),
        ((port("S1", "9", PortType="UnconfiguredPort"), port("S2", "9", LinkStatus="LinkDown")), SPLIT),
        ((port("S1", "9", PortType="unconfiguredport"), port("S2", "9", LinkStatus="Link Down")), SPLIT),
        ((port("S1", "9", PortType="BidirectionalPort", InterfaceEnabled=False),), SPLIT),
        ((port("S1", "9", Links={"ConnectedSwitches": links(f"{SWITCHES}/S2")}),), WHOLE),
        ((port("S2", "9", Links={"ConnectedSwitchPorts": links(f"{SWITCHES}/S1/Ports/9")}),), WHOLE),
        ((port("S2", "9", PortType="InterswitchPort", LinkStatus="LinkUp"),), WHOLE),
        ((port("S1", "9"),), WHOLE),
    ],
    ids=[
        "no link",
        "ports without a link",
        "the same in another case",
        "a port that is off",
        "a link to a switch",
        "a link to a port",
        "a link to somewhere",
        "a port that tells nothing",
    ],
)
async def test_switches_without_a_link_make_groups_if_all_links_are_shown(further, expected):
    assert groups(await view_of(make_switched_fabric(*further))) == expected


async def test_the_endpoints_may_name_the_ports_instead():
    tree = make_switched_fabric()
    for uri, resource in tree.resources.items():
        if "/Ports/" in uri:
            resource["Links"] = {}
    for name, uri in (("h1", "S1/Ports/1"), ("d1", "S1/Ports/2"), ("h2", "S2/Ports/1"), ("d2", "S2/Ports/2")):
        ends = {"ConnectedPorts": links(f"{SWITCHES}/{uri}")}
        tree.resources[f"{FABRIC}/Endpoints/{name}"]["Links"] = ends
    assert groups(await view_of(tree)) == SPLIT


async def test_switches_that_cannot_be_read_hide_nothing():
    tree = make_switched_fabric()
    del tree.resources[f"{SWITCHES}/S2/Ports"]
    assert groups(await view_of(tree)) == WHOLE


ZONES = f"{ROOT}/CompositionService/ResourceZones"
CHASSIS = [f"{ROOT}/CompositionService/ResourceBlocks/{name}" for name in ("c1", "c2", "g1", "g2", "g3")]


def make_zoned_composition(*named, zone_names=("1", "2")):
    """Return a service of two machines and three blocks, of which zones with these names and blocks are shown."""
    tree = composition(
        *(block("c1", "Compute"), block("c2", "ComputerSystem")),
        *(block(name, "Processor") for name in ("g1", "g2", "g3")),
        *(system("s1", "c1"), system("s2", "c2"), system("s3")),
    )
    tree.resources[f"{ROOT}/CompositionService"]["ResourceZones"] = link(ZONES)
    shown = [collection(ZONES, *zone_names)]
    for name in zone_names:
        own = [f"{ROOT}/CompositionService/ResourceBlocks/{each}" for zone, each in named if zone == name]
        shown.append(
            {
                "@odata.id": f"{ZONES}/{name}",
                "Id": name,
                "ZoneType": "ZoneOfResourceBlocks",
                "Links": {"ResourceBlocks": links(*own)},
            }
        )
    tree.resources |= {each["@odata.id"]: each for each in shown}
    return tree


async def read_groups(tree):
    method = blocks.Composition(profiles.PROFILES["composition"])
    await method.read(tree)
    return groups(method.view())


BOUND = (("1", "c1"), ("2", "c2"), ("1", "g1"), ("2", "g2"), ("1", "g3"), ("2", "g3"))
IN_ZONES = {"g1": {"1"}, "g2": {"2"}, "g3": {"1", "2"}, "s1": {"1"}, "s2": {"2"}, "s3": set()}


async def test_a_block_goes_to_the_machines_of_its_resource_zones():
    assert await read_groups(make_zoned_composition(*BOUND)) == IN_ZONES


@pytest.mark.parametrize("has_collection", [True, False])
async def test_the_blocks_may_name_the_zones_instead(has_collection):
    tree = make_zoned_composition()
    if not has_collection:
        del tree.resources[f"{ROOT}/CompositionService"]["ResourceZones"]
    for zone, name in BOUND:
        resource = tree.resources[f"{ROOT}/CompositionService/ResourceBlocks/{name}"]
        resource.setdefault("Links", {}).setdefault("Zones", []).extend(links(f"{ZONES}/{zone}"))
    assert await read_groups(tree) == IN_ZONES


async def test_a_single_resource_zone_makes_no_groups():
    assert set(map(len, (await read_groups(make_zoned_composition(*BOUND, zone_names=("1",)))).values())) == {
        0
    }


async def test_resource_zones_that_cannot_be_read_hide_nothing():
    tree = make_zoned_composition(*BOUND)
    del tree.resources[ZONES]
    assert set(map(len, (await read_groups(tree)).values())) == {0}


DIVIDED = {
    "hosts": (Host(id="h1"), Host(id="h2"), Host(id="h3")),
    "enclosures": (
        Enclosure(
            id="e1",
            hosts=("h1", "h2"),
            devices=tuple(Device(id=f"disk-{number}", model="P5") for number in range(3)),
        ),
        Enclosure(id="e2", hosts=("h3",), devices=(Device(id="disk-9", model="P6"),)),
    ),
}
FORMS = {
    "a zone for each pair": {},
    "a zone for each host port": {"zones": "port", "product": "H3 Falcon"},
    "composition by changed arrays": {"method": "composition"},
    "composition by actions": {"method": "composition", "actions": True},
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
async def test_a_divided_service_keeps_the_contract(redfish_lab, form):
    service = await redfish_lab.serve(**DIVIDED, **form)
    adapter = await redfish_lab.connect(service)
    report = await conformance.check(adapter, check_seconds=30)
    assert [(outcome.name, outcome.detail) for outcome in report.failed] == []
    assert not [outcome for outcome in report.skipped if "reachability" in outcome.detail]


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
async def test_an_attach_to_a_host_of_another_group_is_not_sent(redfish_lab, form):
    service = await redfish_lab.serve(**DIVIDED, **form)
    adapter = await redfish_lab.connect(service)
    device = next(each for each in (await adapter.devices()).devices if each.model == "P6")
    request = contract.AttachRequest(request_id="r", device_id=device.id, host_id="h1")
    with pytest.raises(errors.FailedPrecondition) as caught:
        await adapter.attach(request)
    assert (caught.value.reason, caught.value.host_id) == (errors.Reason.INCOMPATIBLE, "h1")
    assert not any(service.connections().values())
