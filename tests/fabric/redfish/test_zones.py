import pytest
from tests.scenes import redfish_trees
from tests.scenes.redfish_trees import FABRIC, ROOT, initiator, link, links, target, zone

from drawbar.fabric import contract, errors, notes
from drawbar.fabric.redfish import appliance, connections, fabrics, profiles, zones

PAIR = profiles.PROFILES["generic"]
PORT = profiles.PROFILES["h3"]
METHODS = {"generic": zones.Zones, "connections": connections.Connections, "cma": appliance.Appliance}
NOTE = notes.Note(request_id="r1", mark="m1")


async def _read(tree, profile=PAIR, **arguments):
    method = zones.Zones(profile, **arguments)
    await method.read(tree)
    return method


def _attach(device_id="F.d1", host_id="h1", **changes):
    return contract.AttachRequest(request_id="r1", device_id=device_id, host_id=host_id, mark="m1", **changes)


def _detach(device_id="F.d1", host_id="h1"):
    return contract.DetachRequest(request_id="r2", device_id=device_id, host_id=host_id)


def _ends(*names):
    return {"Links": {"Endpoints": links(*(f"{FABRIC}/Endpoints/{name}" for name in names))}}


# --- what is read ---


async def test_a_zone_with_an_initiator_is_a_connection_and_its_note_shows_whose():
    tree = redfish_trees.fabric(
        initiator("h1"),
        target("d1"),
        target("d2"),
        zone("z", "h1", "d1", Description=NOTE.text(prefix=notes.PREFIX)),
    )
    view = (await _read(tree)).view()
    connection = view.devices["F.d1"].connection
    assert (connection.host_id, connection.port_id) == ("h1", "F.h1/F.d1")
    assert (connection.request_id, connection.mark) == ("r1", "m1")
    assert view.devices["F.d2"].connection is None
    used = [port for port in view.hosts["h1"].ports if port.state is contract.PortState.USED]
    assert [(port.id, port.device_id) for port in used] == [("F.h1/F.d1", "F.d1")]
    assert len(view.hosts["h1"].ports) == PAIR.ports


async def test_a_zone_with_a_note_counts_before_one_without():
    tree = redfish_trees.fabric(
        *(initiator("h1"), initiator("h2"), target("d1"), zone("a", "h2", "d1")),
        zone("b", "h1", "d1", Description=NOTE.text(prefix=notes.PREFIX)),
    )
    assert (await _read(tree)).view().devices["F.d1"].connection.host_id == "h1"


@pytest.mark.parametrize(
    "resource",
    [
        zone("z", "d1"),
        zone("z", "h1"),
        zone("z", "h1", "d1", ZoneType="Default"),
        zone("z", "h1", "elsewhere"),
        zone("z", "h1", "d1", Links=[]),
    ],
    ids=["no initiator", "no device", "another type", "an unknown endpoint", "no links"],
)
async def test_a_zone_of_another_form_connects_nothing(resource):
    tree = redfish_trees.fabric(initiator("h1"), target("d1"), resource)
    assert (await _read(tree)).view().devices["F.d1"].connection is None


async def test_initiators_of_one_system_are_ports_of_one_host():
    system = {"@odata.id": f"{ROOT}/Systems/1", "Id": "1", "UUID": "ABC"}
    tree = redfish_trees.fabric(initiator("i1", "1"), initiator("i2", "1"), target("d1"), system)
    (host,) = (await _read(tree)).view().hosts.values()
    assert (host.id, host.identifiers) == ("1", {"system-uuid": "abc"})
    assert {port.id.partition("/")[0] for port in host.ports} == {"F.i1", "F.i2"}
    assert tree.reads.count(f"{ROOT}/Systems/1") == 1


async def test_functions_that_came_with_the_device_describe_it():
    uri = f"{ROOT}/Chassis/1/PCIeDevices/1"
    function = {"@odata.id": f"{uri}/PCIeFunctions/1", "ClassCode": "0x010802", "VendorId": "0x1b36"}
    card = {"@odata.id": uri, "Id": "1", "Model": "P5", "PCIeFunctions": {"Members": [function]}}
    device = (await _read(redfish_trees.fabric(target("d1", uri), card))).view().devices["F.d1"]
    assert (device.model, device.device_class) == ("P5", contract.DeviceClass.NVME)
    assert device.pci_vendor_id == 0x1B36


@pytest.mark.parametrize("state", ["Absent", "UnavailableOffline"])
async def test_an_empty_slot_is_no_device(state):
    uri = f"{ROOT}/Chassis/1/PCIeDevices/1"
    tree = redfish_trees.fabric(target("d1", uri), {"@odata.id": uri, "Id": "1", "Status": {"State": state}})
    assert (await _read(tree)).view().devices == {}
    tree = redfish_trees.fabric(target("d1") | {"Status": {"State": state}})
    assert (await _read(tree)).view().devices == {}


async def test_resources_without_a_usable_name_are_oddities():
    long = "x" * 127
    tree = redfish_trees.fabric(
        *(target("d1"), initiator("h1"), target(long)),
        *(redfish_trees.endpoint(name) for name in ("nothing",)),
        initiator("i2", "a"),
        initiator("i3", "b"),
        {"@odata.id": f"{ROOT}/Systems/a", "Id": "same"},
        {"@odata.id": f"{ROOT}/Systems/b", "Id": "same"},
        *(target("d2"), zone("z", "i3", "d2")),
    )
    view = (await _read(tree)).view()
    assert list(view.devices) == ["F.d1"]
    assert sorted(view.hosts) == ["h1"]
    assert len(view.oddities) == 4


async def test_only_the_fabrics_that_are_named_are_read():
    tree = redfish_trees.fabric(initiator("h1"), target("d1"))
    tree.resources[f"{ROOT}/Fabrics"]["Members"] += links(f"{ROOT}/Fabrics/G", f"{ROOT}/Fabrics/H")
    for name in ("G", "H"):
        tree.resources[f"{ROOT}/Fabrics/{name}"] = {
            "@odata.id": f"{ROOT}/Fabrics/{name}",
            "Id": name,
            "FabricType": "SAS",
        }
    assert list((await _read(tree)).view().devices) == ["F.d1"]
    assert list((await _read(tree, fabrics=frozenset({"F"}))).view().devices) == ["F.d1"]
    with pytest.raises(errors.NotFound, match='no fabric "G"'):
        await _read(tree, fabrics=frozenset({"F", "G"}))


@pytest.mark.parametrize("kind", ["Ethernet", "SAS", "NVMeOverFabrics", "InfiniBand", "FC"])
async def test_networks_and_storage_are_left_out_unless_they_are_named(kind):
    tree = redfish_trees.fabric(initiator("h1"), target("d1"))
    tree.resources[f"{ROOT}/Fabrics/F"]["FabricType"] = kind
    view = (await _read(tree)).view()
    assert (view.devices, view.hosts) == ({}, {})
    (sentence,) = view.oddities
    assert f"the fabric F is of the type {kind}" in sentence
    assert "fabrics: F" in sentence
    view = (await _read(tree, fabrics=frozenset({"F"}))).view()
    assert (list(view.devices), view.oddities) == (["F.d1"], ())


@pytest.mark.parametrize("named", [frozenset(), frozenset({"F"})], ids=["not named", "named"])
async def test_a_storage_fabric_of_connections_has_no_parameter_that_would_list_it(named):
    tree = redfish_trees.fabric(initiator("h1"), target("d1"))
    fabric = tree.resources[f"{ROOT}/Fabrics/F"]
    fabric |= {"FabricType": "NVMeOverFabrics", "Connections": fabric.pop("Zones")}
    if named:
        with pytest.raises(errors.FabricError, match="attaches nothing by its Connections"):
            await _read(tree, fabrics=named)
        return
    (sentence,) = (await _read(tree)).view().oddities
    assert sentence.endswith("Drawbar attaches nothing by its Connections")


@pytest.mark.parametrize(
    "kind", ["PCIe", "CXL", "MultiProtocol", None, "GenZ", "NVLink", "UALink", "Memory Appliance"]
)
async def test_fabrics_of_devices_are_read(kind):
    tree = redfish_trees.fabric(initiator("h1"), target("d1", kind="Drive"))
    tree.resources[f"{ROOT}/Fabrics/F"]["FabricType"] = kind
    device = (await _read(tree)).view().devices["F.d1"]
    is_link = kind in ("GenZ", "NVLink", "UALink")
    assert device.device_class is (contract.DeviceClass.OTHER if is_link else contract.DeviceClass.NVME)


async def test_endpoints_of_a_network_or_of_storage_are_left_out_unless_the_fabric_is_named():
    tree = redfish_trees.fabric(
        initiator("h1"),
        *(target(name) | {"EndpointProtocol": kind} for name, kind in (("d1", "PCIe"), ("d2", "NVMe"))),
        target("d3") | {"EndpointProtocol": "SAS"},
    )
    view = (await _read(tree)).view()
    assert list(view.devices) == ["F.d1", "F.d2"]
    assert "endpoints of the protocol SAS" in view.oddities[0]
    assert len((await _read(tree, fabrics=frozenset({"F"}))).view().devices) == 3


async def test_the_cpu_of_a_host_is_no_device():
    uri = f"{ROOT}/Systems/1/Processors/1"
    cpu = {"@odata.id": uri, "Id": "1", "ProcessorType": "CPU"}
    view = (await _read(redfish_trees.fabric(target("d1", uri, kind="Processor"), cpu))).view()
    assert view.devices == {}
    assert "host's CPU" in view.oddities[0]


@pytest.mark.parametrize("name", ["ConnectedPorts", "Ports"])
async def test_the_switch_is_shown_by_either_name_of_the_ports(name):
    port = f"{ROOT}/Fabrics/F/Switches/SW1/Ports/3"
    tree = redfish_trees.fabric(target("d1") | {"Links": {name: links(port)}})
    assert (await _read(tree)).view().devices["F.d1"].switch == "F.SW1"


def machines(*names):
    """Return a service with computer systems, and without fabrics."""
    systems = f"{ROOT}/Systems"
    return redfish_trees.Tree(
        {"@odata.id": ROOT, "Systems": link(systems)},
        redfish_trees.collection(systems, *names),
        *({"@odata.id": f"{systems}/{name}", "Id": name, "UUID": f"u-{name}"} for name in names),
    )


@pytest.mark.parametrize("name", ["generic", "connections", "cma"])
async def test_a_service_without_fabrics_lists_its_hosts_and_says_that_it_has_no_devices(name):
    method = METHODS[name](profiles.PROFILES[name])
    await method.read(machines("s1", "s2"))
    view = method.view()
    assert {host.id: host.identifiers["system-uuid"] for host in view.hosts.values()} == {
        "s1": "u-s1",
        "s2": "u-s2",
    }
    assert view.devices == {}
    assert view.oddities == (fabrics.NO_DEVICES,)


async def test_fabrics_that_a_service_shows_later_are_listed():
    tree, method = machines("s1"), zones.Zones(PAIR)
    await method.read(tree)
    later = redfish_trees.fabric(initiator("h1"), target("d1")).resources
    tree.resources |= {uri: later[uri] for uri in later if uri != ROOT}
    await method.read_connections(tree)
    view = method.view()
    assert list(view.devices) == ["F.d1"]
    assert view.oddities == ()


async def test_a_named_fabric_of_a_service_without_fabrics_is_refused():
    with pytest.raises(errors.Unimplemented, match="no fabrics"):
        await zones.Zones(PAIR, fabrics=frozenset({"F"})).read(machines("s1"))


async def test_a_service_without_fabrics_and_systems_is_refused():
    with pytest.raises(errors.Unimplemented, match="no fabrics"):
        await _read(redfish_trees.Tree({"@odata.id": ROOT}))


async def test_reading_the_connections_reads_no_devices():
    tree = redfish_trees.fabric(initiator("h1"), target("d1"))
    method = zones.Zones(PAIR)
    await method.read_connections(tree)
    tree.reads.clear()
    await method.read_connections(tree)
    assert tree.reads == [f"{FABRIC}/Zones"]


async def test_uris_stand_for_devices_and_for_those_in_a_zone():
    tree = redfish_trees.fabric(
        *(initiator("h1"), target("d1"), target("d2"), target("d3")),
        zone("z", "h1", "d1", "d2"),
    )
    method = await _read(tree)
    assert method.device_ids({f"{FABRIC}/Endpoints/d3", f"{FABRIC}/Endpoints/h1", "/else"}) == {"F.d3"}
    assert method.device_ids({f"{FABRIC}/Zones/z"}) == {"F.d1", "F.d2"}


# --- what is sent ---


async def test_a_pair_is_connected_by_a_zone_of_its_own_with_a_note():
    call = (await _read(redfish_trees.fabric(initiator("h1"), target("d1")))).attach(
        _attach(), "F.d1", "F.h1/free-1"
    )
    assert (call.method, call.uri, call.etag) == ("POST", f"{FABRIC}/Zones", None)
    assert call.body["Links"] == _ends("h1", "d1")["Links"]
    assert call.body["ZoneType"] == "ZoneOfEndpoints"
    assert notes.Note.from_text(call.body["Description"], prefix=notes.PREFIX) == NOTE


async def test_the_port_that_is_asked_for_chooses_the_initiator():
    tree = redfish_trees.fabric(
        initiator("i1", "1"),
        initiator("i2", "1"),
        target("d1"),
        {"@odata.id": f"{ROOT}/Systems/1", "Id": "1"},
    )
    call = (await _read(tree)).attach(_attach(host_id="1"), "F.d1", "F.i2/free-3")
    assert call.body["Links"] == _ends("i2", "d1")["Links"]


async def test_a_zone_of_a_port_is_changed_as_it_was_read():
    tree = redfish_trees.fabric(*(initiator("h1"), target("d1"), target("d2")), zone("z", "h1", "d2"))
    call = (await _read(tree, PORT)).attach(_attach(), "F.d1", "F.h1/free-1")
    assert (call.method, call.uri, call.etag) == ("PATCH", f"{FABRIC}/Zones/z", '"z"')
    assert call.body == _ends("h1", "d2", "d1")


async def test_a_port_without_a_zone_gets_one_without_a_note():
    call = (await _read(redfish_trees.fabric(initiator("h1"), target("d1")), PORT)).attach(
        _attach(), "F.d1", ""
    )
    assert (call.method, call.uri) == ("POST", f"{FABRIC}/Zones")
    assert "Description" not in call.body


@pytest.mark.parametrize("etag", ['"z"', None])
async def test_an_action_is_used_where_it_is_offered(etag):
    names = ("AddEndpoint", "RemoveEndpoint")
    actions = {f"#Zone.{name}": {"target": f"/oem/{name}"} for name in names}
    resource = zone("z", "h1", "d2", Actions=actions) | {"@odata.etag": etag}
    method = await _read(redfish_trees.fabric(*(initiator("h1"), target("d1"), target("d2")), resource), PORT)
    expected = {"ZoneETag": etag} if etag else {}
    call = method.attach(_attach(), "F.d1", "")
    assert (call.method, call.uri) == ("POST", "/oem/AddEndpoint")
    assert call.prepare_change(call.etag) == ({"Endpoint": link(f"{FABRIC}/Endpoints/d1"), **expected}, None)
    assert method.detach(_detach("F.d2"), "F.d2").uri == "/oem/RemoveEndpoint"


async def test_a_pair_is_disconnected_by_the_end_of_its_zone():
    tree = redfish_trees.fabric(*(initiator("h1"), target("d1")), zone("z", "h1", "d1"))
    call = (await _read(tree)).detach(_detach(), "F.d1")
    assert (call.method, call.uri, call.body, call.etag) == ("DELETE", f"{FABRIC}/Zones/z", None, '"z"')


@pytest.mark.parametrize("profile", [PAIR, PORT], ids=["pair", "port"])
async def test_a_zone_with_other_devices_is_changed_and_not_ended(profile):
    tree = redfish_trees.fabric(*(initiator("h1"), target("d1"), target("d2")), zone("z", "h1", "d1", "d2"))
    call = (await _read(tree, profile)).detach(_detach(), "F.d1")
    assert (call.method, call.body, call.etag) == ("PATCH", _ends("h1", "d2"), '"z"')


@pytest.mark.parametrize("other", ["switch", "elsewhere"])
async def test_a_zone_with_more_than_endpoints_of_the_host_is_not_ended(other):
    switch = redfish_trees.endpoint("switch", {"EntityType": "Switch", "EntityRole": "Target"})
    tree = redfish_trees.fabric(
        *(initiator("h1"), initiator("h2"), target("d1"), switch), zone("z", "h1", other, "d1")
    )
    call = (await _read(tree)).detach(_detach(), "F.d1")
    assert (call.method, call.uri, call.body) == ("PATCH", f"{FABRIC}/Zones/z", _ends("h1", other))


async def test_a_zone_with_all_initiators_of_the_host_is_ended():
    system = {"@odata.id": f"{ROOT}/Systems/1", "Id": "1"}
    tree = redfish_trees.fabric(
        *(initiator("i1", "1"), initiator("i2", "1"), target("d1"), system), zone("z", "i1", "i2", "d1")
    )
    assert (await _read(tree)).detach(_detach(host_id="1"), "F.d1").method == "DELETE"


async def test_the_zone_of_a_port_stays_without_devices():
    tree = redfish_trees.fabric(*(initiator("h1"), target("d1")), zone("z", "h1", "d1"))
    assert (await _read(tree, PORT)).detach(_detach(), "F.d1").body == _ends("h1")


@pytest.mark.parametrize(
    ("device_id", "host_id"), [("F.d1", "h2"), ("F.d2", "h1"), ("F.gone", "h1"), ("F.d1", "gone")]
)
async def test_a_device_that_the_host_does_not_have_needs_no_detach(device_id, host_id):
    tree = redfish_trees.fabric(
        *(initiator("h1"), initiator("h2"), target("d1"), target("d2")), zone("z", "h1", "d1")
    )
    assert (await _read(tree)).detach(_detach(device_id, host_id), device_id) is None


@pytest.mark.parametrize(("device_id", "host_id"), [("F.gone", "h1"), ("F.d1", "gone")])
async def test_a_device_or_host_removed_meanwhile_is_not_attached(device_id, host_id):
    method = await _read(redfish_trees.fabric(initiator("h1"), target("d1")))
    with pytest.raises(errors.Aborted, match="gone was removed"):
        method.attach(_attach(device_id, host_id), device_id, "")


async def test_a_host_of_another_fabric_is_refused():
    tree = redfish_trees.fabric(initiator("h1"), target("d1"))
    other = f"{ROOT}/Fabrics/G"
    tree.resources[f"{ROOT}/Fabrics"]["Members"] += links(other)
    tree.resources |= {
        other: {"@odata.id": other, "Id": "G", "Endpoints": link(f"{other}/E"), "Zones": link(f"{other}/Z")},
        f"{other}/E": redfish_trees.collection(f"{other}/E", "h9"),
        f"{other}/Z": redfish_trees.collection(f"{other}/Z"),
        f"{other}/E/h9": initiator("h9") | {"@odata.id": f"{other}/E/h9"},
    }
    method = await _read(tree)
    with pytest.raises(errors.FailedPrecondition) as caught:
        method.attach(_attach(host_id="h9"), "F.d1", "")
    assert caught.value.reason == errors.Reason.INCOMPATIBLE
