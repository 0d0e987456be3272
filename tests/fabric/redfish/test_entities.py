"""The shapes are those of the mockups public-cxl and public-composability (DMTF/Redfish-Publications), and of vendors."""

import pytest

from drawbar.fabric import witnesses
from drawbar.fabric.contract import DeviceClass, Health
from drawbar.fabric.redfish import entities
from drawbar.fabric.redfish.documents import Document

CHASSIS = "/redfish/v1/Chassis/PooledCXLType2"
GPU = {
    "@odata.type": "#Processor.v1_22_0.Processor",
    "@odata.id": f"{CHASSIS}/Processors/GPU",
    "ProcessorType": "GPU",
    "Status": {"State": "Enabled", "Health": "OK", "HealthRollup": "OK"},
    "MemorySummary": {"TotalMemorySizeMiB": 16384, "TotalCacheSizeMiB": 64},
}
FPGA = GPU | {"ProcessorType": "FPGA", "MemorySummary": {"TotalMemorySizeMiB": 0}}
CHUNK = {
    "@odata.type": "#MemoryChunks.v1_6_2.MemoryChunks",
    "@odata.id": f"{CHASSIS}/MemoryDomains/1/MemoryChunks/1",
    "MemoryChunkSizeMiB": 4096,
    "AddressRangeType": "Volatile",
}
FUNCTION = {
    "@odata.type": "#PCIeFunction.v1_7_0.PCIeFunction",
    "@odata.id": f"{CHASSIS}/PCIeDevices/1/PCIeFunctions/1",
    "DeviceClass": "ProcessingAccelerators",
    "DeviceId": "0xABCD",
    "VendorId": "0x10DE",
    "ClassCode": "0x120000",
}
CARD = {
    "@odata.type": "#PCIeDevice.v1_21_0.PCIeDevice",
    "@odata.id": f"{CHASSIS}/PCIeDevices/1",
    "Model": "A100 ",
    "Manufacturer": "Contoso",
    "SerialNumber": "S-1",
    "PCIeInterface": {"PCIeType": "Gen4", "MaxPCIeType": "Gen5", "LanesInUse": 4, "MaxLanes": 8},
    "Status": {"Health": "Warning"},
}
LOGICAL_DEVICE = {
    "@odata.type": "#CXLLogicalDevice.v1_3_0.CXLLogicalDevice",
    "@odata.id": f"{CHASSIS}/PCIeDevices/1/CXLLogicalDevices/1",
    "SemanticsSupported": ["CXLio", "CXLmem"],
    "MemorySizeMiB": 8192,
}
DRIVE = {
    "@odata.type": "#Drive.v1_22_0.Drive",
    "@odata.id": "/redfish/v1/CompositionService/ResourceBlocks/DriveBlock3/Drives/Block3Slot0",
    "Protocol": "NVMe",
    "MediaType": "SSD",
}


MEMORY = {
    "@odata.type": "#Memory.v1_21_0.Memory",
    "@odata.id": "/redfish/v1/Chassis/c/Memory/1",
    "MemoryType": "DRAM",
    "MemoryDeviceType": "DDR5",
    "CapacityMiB": 4096,
}


def _endpoint(*entities_, **properties):
    return Document(
        uri="/redfish/v1/Fabrics/CXL/Endpoints/T2",
        body={
            "Id": "T2",
            "Name": "CXL Device Type 2 endpoint",
            "ConnectedEntities": list(entities_),
            **properties,
        },
    )


def _entity(kind="CXLDevice", role="Target", **properties):
    return {"EntityType": kind, "EntityRole": role, **properties}


def _device(*parts, origin=None):
    return entities.device("d", origin or _endpoint(), [Document.from_json(part) for part in parts])


@pytest.mark.parametrize(
    ("endpoint", "is_initiator", "is_target"),
    [
        (_endpoint(_entity("Processor", "Initiator"), _entity("Memory", "Initiator")), True, False),
        (_endpoint(_entity(), _entity("Processor"), _entity("MemoryChunk")), False, True),
        (_endpoint(_entity("Processor", "Both")), False, True),
        (_endpoint({"EntityType": "RootComplex"}), True, False),
        (_endpoint({"EntityType": "ComputerSystem"}), True, False),
        (_endpoint({"EntityType": "Root Complex"}), True, False),
        (_endpoint({"EntityType": "Drive"}), False, True),
        (_endpoint(_entity("Switch")), False, False),
        (_endpoint(_entity("Switch"), _entity("Drive")), False, True),
        (_endpoint(), False, False),
        (_endpoint(ConnectedEntities="odd"), False, False),
    ],
)
def test_an_endpoint_is_of_a_host_or_of_a_device(endpoint, is_initiator, is_target):
    assert (entities.is_initiator(endpoint), entities.is_target(endpoint)) == (is_initiator, is_target)


@pytest.mark.parametrize(
    ("uri", "system", "chassis"),
    [
        ("/redfish/v1/Systems/CXL-System/Processors/CPU", "/redfish/v1/Systems/CXL-System", ""),
        ("/redfish/v1/Systems/1", "/redfish/v1/Systems/1", ""),
        ("/redfish/v1/Systems", None, ""),
        ("/redfish/v1/Systems/", None, ""),
        (f"{CHASSIS}/PCIeDevices/1", None, "PooledCXLType2"),
        ("", None, ""),
        ("//elsewhere", None, ""),
    ],
)
def test_a_uri_shows_the_system_or_chassis_that_it_is_a_part_of(uri, system, chassis):
    assert (entities.system(uri), entities.chassis(uri)) == (system, chassis)


@pytest.mark.parametrize(
    ("ports", "switch"),
    [
        (["Fabrics/CXL/Switches/SW-1/Ports/3"], "CXL.SW-1"),
        (["Fabrics/CXL/Switches/SW-1/Ports/3", "Fabrics/CXL/Switches/SW-1/Ports/4"], "CXL.SW-1"),
        (["Fabrics/CXL/Switches/SW-1/Ports/3", "Fabrics/CXL/Switches/SW-2/Ports/3"], ""),
        (["Fabrics/CXL/Switches/SW-1/Ports/3", "Systems/1/Ports/4"], ""),
        (["Fabrics/CXL/Switches/SW-1"], ""),
        (["Fabrics/CXL/Switches/SW%201/Ports/3"], ""),
        ([f"Fabrics/CXL/Switches/{'S' * 64}/Ports/3"], ""),
        ([], ""),
    ],
)
def test_a_device_hangs_at_the_switch_that_all_its_ports_are_on(ports, switch):
    connected = [{"@odata.id": f"/redfish/v1/{port}"} for port in ports]
    origin = _endpoint(_entity(), Links={"ConnectedPorts": connected})
    assert _device(GPU, origin=origin).switch == switch


@pytest.mark.parametrize(
    ("state", "is_gone"),
    [("Absent", True), ("UnavailableOffline", True), ("Enabled", False), (None, False), (7, False)],
)
def test_an_absent_resource_is_no_device(state, is_gone):
    assert entities.is_gone(_endpoint(Status={"State": state})) is is_gone


@pytest.mark.parametrize(
    ("origin", "parts", "device_class"),
    [
        (_endpoint(_entity()), [GPU, FUNCTION], DeviceClass.GPU),
        (_endpoint(_entity()), [CHUNK, FPGA], DeviceClass.FPGA),
        (_endpoint(_entity("Processor")), [GPU | {"ProcessorType": "DSP"}], DeviceClass.ACCELERATOR),
        (_endpoint(_entity()), [FUNCTION], DeviceClass.ACCELERATOR),
        (_endpoint(_entity(EntityPciId={"ClassCode": "0x030200"})), [FUNCTION], DeviceClass.GPU),
        (_endpoint(), [FUNCTION | {"ClassCode": "010802"}], DeviceClass.NVME),
        (_endpoint(), [FUNCTION | {"ClassCode": "0x050210"}], DeviceClass.CXL_MEMORY),
        (_endpoint(), [FUNCTION | {"ClassCode": "0x020700"}], DeviceClass.NIC),
        (_endpoint(), [FUNCTION | {"ClassCode": "0x0C0330"}], DeviceClass.OTHER),
        (_endpoint(), [CARD | {"CXLDevice": {"DeviceType": "Type3"}}], DeviceClass.CXL_MEMORY),
        (_endpoint(), [CARD | {"CXLDevice": {"DeviceType": "Type1"}}], DeviceClass.OTHER),
        (_endpoint(), [CARD | {"CXLDevice": {"DeviceType": "type3"}}], DeviceClass.CXL_MEMORY),
        (_endpoint(), [LOGICAL_DEVICE | {"SemanticsSupported": ["CXL.mem"]}], DeviceClass.CXL_MEMORY),
        (_endpoint(), [LOGICAL_DEVICE | {"SemanticsSupported": "CXLmem"}], DeviceClass.CXL_MEMORY),
        (_endpoint(_entity(EntityPciId=[{"ClassCode": "0x030200"}])), [], DeviceClass.GPU),
        (_endpoint(_entity(EntityPciId={"classCode": "0x030200"})), [], DeviceClass.GPU),
        (_endpoint(_entity()), [LOGICAL_DEVICE], DeviceClass.CXL_MEMORY),
        (_endpoint(_entity()), [LOGICAL_DEVICE, GPU], DeviceClass.GPU),
        (
            _endpoint(_entity()),
            [LOGICAL_DEVICE | {"SemanticsSupported": ["CXLio", "CXLcache", "CXLmem"]}],
            DeviceClass.OTHER,
        ),
        (_endpoint(_entity()), [LOGICAL_DEVICE | {"SemanticsSupported": 7}], DeviceClass.OTHER),
        (_endpoint(_entity(), _entity("MemoryChunk")), [], DeviceClass.CXL_MEMORY),
        (_endpoint(_entity("AccelerationFunction")), [], DeviceClass.ACCELERATOR),
        (_endpoint(_entity("NetworkController")), [], DeviceClass.NIC),
        (_endpoint(), [DRIVE], DeviceClass.NVME),
        (_endpoint(_entity("Volume")), [], DeviceClass.OTHER),
        (_endpoint(_entity("Drive")), [], DeviceClass.NVME),
        (_endpoint(_entity("Drive"), EndpointProtocol="SAS"), [], DeviceClass.OTHER),
        (_endpoint(_entity("Drive")), [DRIVE | {"Protocol": "SAS"}], DeviceClass.OTHER),
        (_endpoint(), [DRIVE | {"Protocol": "SATA"}], DeviceClass.OTHER),
        (_endpoint(), [DRIVE | {"Protocol": "NVMeOverFabrics"}], DeviceClass.OTHER),
        (_endpoint(), [DRIVE | {"Protocol": "PCIe"}], DeviceClass.NVME),
        (_endpoint(), [DRIVE | {"Protocol": None}], DeviceClass.NVME),
        (_endpoint(), [DRIVE | {"Protocol": None, "MediaType": "HDD"}], DeviceClass.OTHER),
        (_endpoint(), [DRIVE | {"Protocol": None, "MediaType": "Hdd"}], DeviceClass.OTHER),
        (_endpoint(), [DRIVE | {"@odata.type": "#drive.v1_0_0.drive"}], DeviceClass.NVME),
        (_endpoint(), [DRIVE | {"@odata.type": "/redfish/v1/$metadata#Drive.Drive"}], DeviceClass.NVME),
        (
            _endpoint(_entity("StorageController")),
            [{"SupportedDeviceProtocols": "nvme"}],
            DeviceClass.NVME,
        ),
        (_endpoint(), [MEMORY], DeviceClass.OTHER),
        (_endpoint(_entity("Memory")), [MEMORY], DeviceClass.OTHER),
        (_endpoint(_entity("Memory")), [], DeviceClass.OTHER),
        (_endpoint(_entity("Memory"), EndpointProtocol="CXL"), [MEMORY], DeviceClass.CXL_MEMORY),
        (_endpoint(), [MEMORY | {"MemoryDeviceType": "CXL"}], DeviceClass.CXL_MEMORY),
        (_endpoint(), [MEMORY | {"CXL": {}}], DeviceClass.OTHER),
        (_endpoint(), [MEMORY | {"CXL": {"LabelStorageSizeBytes": 1}}], DeviceClass.CXL_MEMORY),
        (_endpoint(), [MEMORY, LOGICAL_DEVICE], DeviceClass.CXL_MEMORY),
        (_endpoint({"EntityPciId": 7, "EntityType": []}), [{"ProcessorType": {}}], DeviceClass.OTHER),
    ],
)
def test_the_class_of_an_endpoint_follows_from_its_parts(origin, parts, device_class):
    assert _device(*parts, origin=origin).device_class is device_class


def test_a_device_has_all_that_its_parts_say():
    gcxlid = {"DurableName": "4C-1D-96-FF-FE-DD-D8-35:0001", "DurableNameFormat": "GCXLID"}
    odd = {"DurableName": "x", "DurableNameFormat": "Other"}
    origin = _endpoint(_entity(Identifiers=[gcxlid, odd, 7]))
    device = _device(
        GPU | {"UUID": "8D3AB7C0-14FE-9C02-6B1D-70A2E94F0C55"}, CARD, FUNCTION, CHUNK, origin=origin
    )
    assert (device.model, device.vendor, device.serial) == ("A100", "Contoso", "S-1")
    assert (device.pci_vendor_id, device.pci_device_id) == (0x10DE, 0xABCD)
    assert (device.max_link_speed_mts, device.max_link_width) == (32000, 8)
    assert device.memory_bytes == 16384 * 1024 * 1024
    assert device.enclosure == "PooledCXLType2"
    assert [(each.kind, each.value) for each in device.identifiers] == [
        (witnesses.Kind.PCIE_DSN, "4c-1d-96-ff-fe-dd-d8-35"),
        (witnesses.Kind.GPU_UUID, "8d3ab7c0-14fe-9c02-6b1d-70a2e94f0c55"),
        (witnesses.Kind.BOARD_SERIAL, "s-1"),
    ]
    assert device.health is Health.WARNING
    assert device.connection is None


@pytest.mark.parametrize(
    ("gcxlid", "serial"),
    [
        ("4C-1D-96-FF-FE-DD-D8-35:0001", "4c-1d-96-ff-fe-dd-d8-35"),
        ("4C-1D-96-FF-FE-DD-D8-35", "4c-1d-96-ff-fe-dd-d8-35"),
        ("4C1D96FFFEDDD835:0001", "4c-1d-96-ff-fe-dd-d8-35"),
    ],
)
def test_a_device_without_a_serial_number_has_that_in_its_gcxlid(gcxlid, serial):
    origin = _endpoint(_entity(Identifiers=[{"DurableName": gcxlid, "DurableNameFormat": "GCXLID"}]))
    assert entities.device("d", origin, ()).serial == serial
    assert entities.device("d", origin, [Document(uri="/c", body=CARD)]).serial == "S-1"


def test_a_device_without_parts_has_the_name_of_its_endpoint():
    device = _device()
    assert (device.model, device.vendor, device.serial) == ("CXL Device Type 2 endpoint", "", None)
    assert (device.pci_vendor_id, device.memory_bytes, device.max_link_width) == (None, 0, 0)
    assert device.health is Health.UNKNOWN


@pytest.mark.parametrize(
    ("part", "size_mib"),
    [
        (CHUNK, 4096),
        ({"CapacityMiB": 512}, 512),
        (FPGA, 0),
        ({"MemoryChunkSizeMiB": "many"}, 0),
        (LOGICAL_DEVICE, 8192),
    ],
)
def test_memory_is_that_of_the_first_part_that_has_some(part, size_mib):
    assert _device({"Id": "x"}, part).memory_bytes == size_mib * 1024 * 1024


def test_a_logical_devices_endpoint_has_the_memory_of_its_chunk():
    assert _device(LOGICAL_DEVICE, CHUNK).memory_bytes == 4096 * 1024 * 1024


@pytest.mark.parametrize("text", ["0xABCDE", "xyz", "", None, 7, "0x"])
def test_a_pci_id_that_is_none_is_left_out(text):
    assert _device(FUNCTION | {"VendorId": text}).pci_vendor_id is None


def test_a_link_that_is_wider_than_pcie_allows_is_left_out():
    assert _device(CARD | {"PCIeInterface": {"MaxLanes": 65, "MaxPCIeType": "Gen9"}}).max_link_width == 0


@pytest.mark.parametrize("name", ["Gen5", "GEN5", "PCIe Gen 5"])
def test_the_generation_of_pcie_is_read_in_any_form(name):
    assert _device(CARD | {"PCIeInterface": {"MaxPCIeType": name}}).max_link_speed_mts == 32000


@pytest.mark.parametrize(
    ("listed", "health"),
    [(["OK", "Critical", "Warning"], Health.CRITICAL), (["OK", None], Health.OK), (["Fine"], Health.UNKNOWN)],
)
def test_the_worst_health_counts(listed, health):
    assert _device(*({"Status": {"Health": state}} for state in listed)).health is health


def test_the_health_of_all_parts_stands_in_for_a_missing_one():
    shown = [
        {"Status": {"HealthRollup": "Critical"}},
        {"Status": {"Health": "OK", "HealthRollup": "Warning"}},
    ]
    assert _device(*shown).health is Health.CRITICAL
    assert _device(shown[1]).health is Health.OK
    assert _device({"Status": "Critical"}).health is Health.CRITICAL


def test_a_host_has_the_identifiers_of_its_system():
    system = Document(
        uri="/redfish/v1/Systems/1",
        body={
            "Name": "System",
            "UUID": "68D5E212-165B-4CA0-909B-C86B9CEE0112",
            "SerialNumber": "S",
            "HostName": "node-1",
        },
    )
    host = entities.host("1", system, ())
    assert (host.id, host.name, host.ports) == ("1", "node-1", ())
    assert host.identifiers == {
        "system-uuid": "68d5e212-165b-4ca0-909b-c86b9cee0112",
        "serial": "S",
        "hostname": "node-1",
    }


def test_a_host_without_a_system_has_the_uuid_of_its_endpoint():
    uuid = {"DurableName": "86D53A7B-D29A-3287-BA23-EF43A27BC6B9", "DurableNameFormat": "UUID"}
    initiator = _endpoint(_entity("Processor", "Initiator", Identifiers=[{"DurableNameFormat": "NQN"}, uuid]))
    host = entities.host("I1", Document(uri="/e"), [initiator])
    assert host.name == "I1"
    assert host.identifiers == {"system-uuid": "86d53a7b-d29a-3287-ba23-ef43a27bc6b9"}


@pytest.mark.parametrize(
    ("placement", "expected", "refused"),
    [
        pytest.param(
            {"Rack": "r7", "Row": "3", "RackOffset": 12},
            {"rack": "r7", "row": "3", "rackOffset": 12},
            0,
            id="all",
        ),
        pytest.param({"Rack": "r7", "RackOffset": "12"}, {"rack": "r7"}, 0, id="an offset that is no number"),
        pytest.param({"RackOffset": 12}, {}, 0, id="no rack"),
        pytest.param({"Rack": "r" * 65, "Row": "3"}, {"row": "3"}, 1, id="a text without room"),
        pytest.param("r7", {}, 0, id="no object"),
    ],
)
def test_the_position_in_a_rack_is_an_attribute(placement, expected, refused):
    part = Document(uri="/redfish/v1/Chassis/c/PCIeDevices/1", body={"Location": {"Placement": placement}})
    device = entities.device("d", _endpoint(), [Document(uri="/x", body={}), part])
    attributes = {each.name.removeprefix("redfish.dmtf.org/"): each.value for each in device.attributes}
    assert (attributes, len(device.refused_attributes)) == (expected, refused)
