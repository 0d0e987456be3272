"""The blocks are those of the mockup public-composability (DMTF/Redfish-Publications), and odd ones."""

import time

import pytest
from tests.scenes import redfish_trees
from tests.scenes.redfish_trees import ROOT, block, composition, link, links, system

from drawbar.fabric import contract, errors
from drawbar.fabric.redfish import profiles
from drawbar.fabric.redfish.composition import Composition

PROFILE = profiles.PROFILES["composition"]
BLOCKS = f"{ROOT}/CompositionService/ResourceBlocks"
GPU_URI = f"{BLOCKS}/OffloadBlock9/Processors/Block9GPU"
GPU = {
    "@odata.id": GPU_URI,
    "@odata.type": "#Processor.v1_22_0.Processor",
    "ProcessorType": "GPU",
    "Manufacturer": "Contoso Graphics",
    "Model": "Contoso Workstation VID2000",
}
OFFLOAD = block("OffloadBlock9", "Processor", Processors=links(GPU_URI))
DRIVE = block("DriveBlock3", "Storage", CompositionStatus={"Reserved": False, "CompositionState": "Unused"})


async def _read(*resources):
    method = Composition(PROFILE)
    await method.read(composition(*resources))
    return method


def _attach(host_id="s1"):
    return contract.AttachRequest(request_id="r", device_id="DriveBlock3", host_id=host_id)


def _detach(host_id="s1"):
    return contract.DetachRequest(request_id="r", device_id="DriveBlock3", host_id=host_id)


async def test_a_block_is_a_device_described_by_its_parts():
    view = (await _read(OFFLOAD, GPU, DRIVE, system("s1", "DriveBlock3"))).view()
    device = view.devices["OffloadBlock9"]
    assert (device.device_class, device.vendor, device.model) == (
        contract.DeviceClass.GPU,
        "Contoso Graphics",
        "Contoso Workstation VID2000",
    )
    assert device.connection is None
    connection = view.devices["DriveBlock3"].connection
    assert (connection.host_id, connection.port_id) == ("s1", "s1/DriveBlock3")
    ports = view.hosts["s1"].ports
    assert [port.device_id for port in ports if port.state is contract.PortState.USED] == ["DriveBlock3"]
    assert len(ports) == PROFILE.ports


@pytest.mark.parametrize(
    "resource",
    [
        block("b", "Compute", "Network"),
        block("b", "ComputerSystem"),
        block("b", "Computer System"),
        block("b", "Storage", Status={"State": "Absent"}),
    ],
    ids=["a machine", "a system", "a system in two words", "absent"],
)
async def test_a_block_that_cannot_be_moved_is_no_device(resource):
    view = (await _read(resource, system("s1"))).view()
    assert (view.devices, view.oddities) == ({}, ())


CPU = {
    "@odata.id": f"{BLOCKS}/c/Processors/cpu",
    "@odata.type": "#Processor.v1_22_0.Processor",
    "ProcessorType": "CPU",
}


@pytest.mark.parametrize(
    "compute",
    [
        block("c", Processors=links(CPU["@odata.id"])),
        block("c", "Processor", Processors=links(GPU_URI, CPU["@odata.id"])),
        {"@odata.id": f"{BLOCKS}/c", "Id": "c", "Processors": [CPU]},
        block("c", ComputerSystems=links(f"{ROOT}/Systems/s1")),
    ],
    ids=["no type", "another type", "no property, and the CPU in the block", "a system"],
)
async def test_a_block_with_a_cpu_or_a_system_is_of_a_host(compute):
    """A detach of the block would take the CPU out of the host."""
    view = (await _read(compute, CPU, OFFLOAD, GPU, system("s1", "c"), system("s2"))).view()
    assert list(view.devices) == ["OffloadBlock9"]
    assert sorted(view.hosts) == ["s1", "s2"]


async def test_a_host_keeps_its_cpu_when_a_device_is_attached():
    method = await _read(block("c", Processors=links(CPU["@odata.id"])), CPU, DRIVE, system("s1", "c"))
    call = method.attach(_attach(), "DriveBlock3", "")
    assert call.body == {"Links": {"ResourceBlocks": links(f"{BLOCKS}/c", f"{BLOCKS}/DriveBlock3")}}


@pytest.mark.parametrize("array", ["Storage", "SimpleStorage"])
async def test_a_drive_behind_storage_describes_its_block(array):
    uri = f"{BLOCKS}/b/{array}/1"
    storage, drive = f"{ROOT}/Storage/1", f"{ROOT}/Storage/1/Drives/1"
    listed = [
        {"@odata.id": drive, "@odata.type": "#Drive.v1_21_0.Drive", "Protocol": "NVMe", "SerialNumber": "S9"},
        {"@odata.id": storage, "Id": "1", "Drives": links(drive)},
    ]
    behind = {"Links": {"Storage": link(storage)}} if array == "SimpleStorage" else {"Drives": links(drive)}
    part = {"@odata.id": uri, "@odata.type": f"#{array}.v1_3_0.{array}", "Id": "1", **behind}
    device = (await _read(block("b", "Storage", **{array: links(uri)}), part, *listed)).view().devices["b"]
    assert (device.device_class, device.serial) == (contract.DeviceClass.NVME, "S9")


async def test_a_block_that_another_client_has_reserved_is_left_out_and_named():
    reserved = block("b", "Storage", CompositionStatus={"Reserved": True})
    view = (await _read(reserved, system("s1"))).view()
    assert view.devices == {}
    assert "reserved" in view.oddities[0]
    assert (await _read(reserved, system("s1", "b"))).view().devices["b"].connection.host_id == "s1"


async def test_resources_without_a_usable_name_are_oddities():
    method = await _read(
        *(block("a", "Storage"), block("b", "Storage") | {"Id": "a"}, block("c", "Storage")),
        *(system("s1"), system("x" * 129), system("s2", "c") | {"Id": "s1"}),
    )
    assert len(method.view().oddities) == 5
    assert (method.view().devices, method.view().hosts) == ({}, {})


async def test_a_block_of_an_odd_type_is_a_device_of_some_class():
    view = (await _read(block("b") | {"ResourceBlockType": "Storage"}, system("s1"))).view()
    assert view.devices["b"].device_class is contract.DeviceClass.OTHER


@pytest.mark.parametrize(
    "resources",
    [
        [{"@odata.id": ROOT}],
        [{"@odata.id": ROOT, "CompositionService": link("/c")}, {"@odata.id": "/c"}],
    ],
    ids=["no service", "no blocks"],
)
async def test_a_service_without_blocks_is_refused(resources):
    with pytest.raises(errors.Unimplemented, match="no resource blocks"):
        await Composition(PROFILE).read(redfish_trees.Tree(*resources))


async def test_reading_the_connections_reads_no_blocks():
    tree = composition(OFFLOAD, GPU, system("s1"))
    method = Composition(PROFILE)
    await method.read_connections(tree)
    tree.reads.clear()
    await method.read_connections(tree)
    assert set(tree.reads) == {f"{ROOT}/Systems", f"{ROOT}/Systems/s1"}


async def test_a_service_without_systems_has_no_hosts():
    tree = composition(DRIVE)
    del tree.resources[ROOT]["Systems"]
    method = Composition(PROFILE)
    await method.read(tree)
    assert method.view().hosts == {}


async def test_uris_stand_for_blocks_and_for_those_of_a_system():
    method = await _read(OFFLOAD, GPU, DRIVE, system("s1", "DriveBlock3"))
    assert method.device_ids({f"{BLOCKS}/OffloadBlock9", "/else"}) == {"OffloadBlock9"}
    assert method.device_ids({f"{ROOT}/Systems/s1"}) == {"DriveBlock3"}


async def test_the_array_of_a_system_is_changed_as_it_was_read():
    method = await _read(OFFLOAD, DRIVE, system("s1", "OffloadBlock9"))
    call = method.attach(_attach(), "DriveBlock3", "s1/free-1")
    assert (call.method, call.uri, call.etag) == ("PATCH", f"{ROOT}/Systems/s1", '"s1"')
    assert call.body == {
        "Links": {"ResourceBlocks": links(f"{BLOCKS}/OffloadBlock9", f"{BLOCKS}/DriveBlock3")}
    }


async def test_a_block_is_taken_out_of_the_array():
    call = (await _read(OFFLOAD, DRIVE, system("s1", "DriveBlock3", "OffloadBlock9"))).detach(
        _detach(), "DriveBlock3"
    )
    assert call.body == {"Links": {"ResourceBlocks": links(f"{BLOCKS}/OffloadBlock9")}}
    assert call.etag == '"s1"'


@pytest.mark.parametrize("etag", ['"s1"', None])
async def test_an_action_is_used_where_it_is_offered(etag):
    names = ("AddResourceBlock", "RemoveResourceBlock")
    actions = {f"#ComputerSystem.{name}": {"target": f"/oem/{name}"} for name in names}
    expected = {"ResourceBlock": link(f"{BLOCKS}/DriveBlock3")} | (
        {"ComputerSystemETag": etag} if etag else {}
    )
    free = await _read(DRIVE, system("s1", Actions=actions) | {"@odata.etag": etag})
    call = free.attach(_attach(), "DriveBlock3", "")
    assert (call.method, call.uri, call.prepare_change(etag)) == (
        "POST",
        "/oem/AddResourceBlock",
        (expected, None),
    )
    used = await _read(DRIVE, system("s1", "DriveBlock3", Actions=actions) | {"@odata.etag": etag})
    call = used.detach(_detach(), "DriveBlock3")
    assert (call.method, call.uri, call.prepare_change(etag)) == (
        "POST",
        "/oem/RemoveResourceBlock",
        (expected, None),
    )


@pytest.mark.parametrize(
    ("device_id", "host_id"), [("DriveBlock3", "s2"), ("gone", "s1"), ("DriveBlock3", "gone")]
)
async def test_a_device_that_the_host_does_not_have_needs_no_detach(device_id, host_id):
    method = await _read(DRIVE, system("s1", "DriveBlock3"), system("s2"))
    assert method.detach(_detach(host_id), device_id) is None


@pytest.mark.parametrize(("device_id", "host_id"), [("gone", "s1"), ("DriveBlock3", "gone")])
async def test_a_device_or_host_removed_meanwhile_is_not_attached(device_id, host_id):
    method = await _read(DRIVE, system("s1"))
    with pytest.raises(errors.Aborted, match="gone was removed"):
        method.attach(_attach(host_id), device_id, "")


async def test_many_blocks_of_many_systems_are_looked_at_once_each():
    numbers = range(2500)
    resources = [block(f"b{number}") for number in numbers]
    resources += [system(f"s{number}", f"b{number}") for number in numbers]
    method = await _read(*resources)
    began = time.process_time()
    devices = method.view().devices
    assert time.process_time() - began < 1.0
    assert {devices[f"b{number}"].connection.host_id for number in numbers} == {
        f"s{number}" for number in numbers
    }


PART = f"{BLOCKS}/DriveBlock3/Parts/1"
CARD = f"{ROOT}/Chassis/c/PCIeDevices/1"
ADAPTER = f"{ROOT}/Chassis/c/NetworkAdapters/1"


def _part(schema, **properties):
    return {"@odata.id": PART, "@odata.type": f"#{schema}.v1_0_0.{schema}", **properties}


@pytest.mark.parametrize(
    ("name", "part", "further", "unread"),
    [
        pytest.param(
            "Processors",
            _part("Processor", ProcessorType="CPU", Links={"PCIeDevice": link(CARD)}),
            [{"@odata.id": CARD}],
            {CARD},
            id="the-card-of-a-cpu",
        ),
        pytest.param(
            "Drives",
            _part(
                "Drive",
                Protocol="SAS",
                SerialNumber="250001",
                Links={
                    "Storage": link(f"{ROOT}/Storage/1"),
                    "PCIeFunctions": links(f"{CARD}/PCIeFunctions/1"),
                },
            ),
            [
                {"@odata.id": f"{ROOT}/Storage/1", "@odata.type": "#Storage.v1_18_0.Storage"},
                {"@odata.id": f"{CARD}/PCIeFunctions/1", "ClassCode": "0x010802"},
            ],
            {f"{ROOT}/Storage/1"},
            id="the-storage-of-a-drive-with-a-number",
        ),
        pytest.param(
            "EthernetInterfaces",
            _part(
                "EthernetInterface",
                PermanentMACAddress="52:54:00:1c:96:5f",
                Links={"NetworkDeviceFunctions": links(f"{ADAPTER}/NetworkDeviceFunctions/1")},
            ),
            [
                {"@odata.id": f"{ADAPTER}/NetworkDeviceFunctions/1"},
                {
                    "@odata.id": ADAPTER,
                    "@odata.type": "#NetworkAdapter.v1_0_0.NetworkAdapter",
                    "Ports": link(f"{ADAPTER}/Ports"),
                },
                {"@odata.id": f"{ADAPTER}/Ports", "Members": []},
            ],
            {f"{ADAPTER}/NetworkDeviceFunctions/1", f"{ADAPTER}/Ports"},
            id="the-functions-and-ports-of-an-interface-with-its-address",
        ),
    ],
)
async def test_redundant_resources_are_not_read(name, part, further, unread):
    tree = composition(block("DriveBlock3", **{name: links(PART)}), part, *further, system("s1"))
    await Composition(PROFILE).read(tree)
    assert PART in tree.reads
    assert unread.isdisjoint(tree.reads)


async def test_an_ethernet_interface_has_the_model_and_number_of_its_adapter():
    part = _part(
        "EthernetInterface",
        PermanentMACAddress="52:54:00:1c:96:5f",
        Links={"NetworkDeviceFunctions": links(f"{ADAPTER}/NetworkDeviceFunctions/1")},
    )
    adapter = {
        "@odata.id": ADAPTER,
        "@odata.type": "#NetworkAdapter.v1_0_0.NetworkAdapter",
        "Model": "nic_1",
        "SerialNumber": "350001",
    }
    read = await _read(block("DriveBlock3", EthernetInterfaces=links(PART)), part, adapter, system("s1"))
    device = read.view().devices["DriveBlock3"]
    assert (device.device_class.value, device.model, device.serial) == ("nic", "nic_1", "350001")
