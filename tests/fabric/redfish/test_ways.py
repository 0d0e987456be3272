"""Every way in which the schemas tell class, serial number and identifiers of a device, over small documents."""

import pytest
from tests.scenes import redfish_servers
from tests.scenes.redfish_servers import ROOT, adapting, link

CHASSIS = f"{ROOT}/Chassis/c"


def typed(schema, **properties):
    return {"@odata.type": f"#{schema}.v1_0_0.{schema}", **properties}


DRIVE = typed("Drive", Protocol="NVMe", MediaType="SSD", SerialNumber="S9", Model="PM1733")
ADAPTER = typed("NetworkAdapter", SerialNumber="N7", Model="CX7")
FUNCTION = typed("NetworkDeviceFunction", Ethernet={"PermanentMACAddress": "B8:59:9F:00:00:01"})
GPU_CARD = typed("PCIeDevice", SerialNumber="G5", Model="A100")
GPU_IDS = {"VendorId": "0x10de", "DeviceId": "0x2330", "ClassCode": "0x030200"}
NVME_CODE = {"VendorId": "0x144d", "DeviceId": "0xa824", "ClassCode": "0x010802"}


def to(name, path=""):
    """Return a link to a resource below the chassis, and to more of its resources."""
    return link(f"{CHASSIS}/{name}{path}")


def members(*names):
    return {"Members": [to(name) for name in names], "Members@odata.count": len(names)}


# Entities of an endpoint or arrays of a block; the resources below the chassis; class, serial number, kinds of identifiers.
BLOCKS = {
    "Drives": ({"Drives": [to("d")]}, {"d": DRIVE}, ("nvme", "S9", {"nvme-serial"})),
    "Storage, Drives": (
        {"Storage": [to("s")]},
        {"s": typed("Storage", Drives=[to("d")]), "d": DRIVE},
        ("nvme", "S9", {"nvme-serial"}),
    ),
    "SimpleStorage, Links.Storage, Drives": (
        {"SimpleStorage": [to("x")]},
        {
            "x": typed("SimpleStorage", Links={"Storage": to("s")}),
            "s": typed("Storage", Drives=[to("d")]),
            "d": DRIVE,
        },
        ("nvme", "S9", {"nvme-serial"}),
    ),
    "Storage, StorageControllers": (
        {"Storage": [to("s")]},
        {
            "s": typed(
                "Storage",
                StorageControllers=[
                    {"MemberId": "0", "SerialNumber": "S9", "SupportedDeviceProtocols": ["NVMe"]}
                ],
            )
        },
        ("nvme", "S9", {"nvme-serial"}),
    ),
    "SimpleStorage, Links.Storage, StorageControllers": (
        {"SimpleStorage": [to("x")]},
        {
            "x": typed("SimpleStorage", Links={"Storage": to("s")}),
            "s": typed(
                "Storage",
                StorageControllers=[
                    {
                        "@odata.type": "#Storage.v1_7_0.StorageController",
                        "SerialNumber": "S9",
                        "SupportedControllerProtocols": ["NVMe"],
                    }
                ],
            ),
        },
        ("nvme", "S9", {"nvme-serial"}),
    ),
    "a RAID controller": (
        {"Storage": [to("s")]},
        {
            "s": typed(
                "Storage",
                StorageControllers=[{"SerialNumber": "R1", "SupportedDeviceProtocols": ["SAS", "SATA"]}],
            )
        },
        ("other", None, set()),
    ),
    "the drive of a controller": (
        {"Storage": [to("s")]},
        {
            "s": typed(
                "Storage",
                Drives=[to("d")],
                StorageControllers=[{"SerialNumber": "R1", "SupportedDeviceProtocols": ["NVMe"]}],
            ),
            "d": DRIVE,
        },
        ("nvme", "S9", {"nvme-serial"}),
    ),
    "Storage, Controllers": (
        {"Storage": [to("s")]},
        {
            "s": typed("Storage", Controllers=to("cs")),
            "cs": members("k"),
            "k": typed("StorageController", SerialNumber="S9", SupportedDeviceProtocols=["NVMe"]),
        },
        ("nvme", "S9", {"nvme-serial"}),
    ),
    "NetworkInterfaces, Links.NetworkAdapter": (
        {"NetworkInterfaces": [to("n")]},
        {"n": typed("NetworkInterface", Links={"NetworkAdapter": to("a")}), "a": ADAPTER},
        ("nic", "N7", {"board-serial"}),
    ),
    "NetworkInterfaces, NetworkDeviceFunctions": (
        {"NetworkInterfaces": [to("n")]},
        {
            "n": typed("NetworkInterface", NetworkDeviceFunctions=to("fs")),
            "fs": members("f"),
            "f": FUNCTION,
        },
        ("nic", None, {"mac"}),
    ),
    "EthernetInterfaces, Links.NetworkDeviceFunctions": (
        {"EthernetInterfaces": [to("e")]},
        {"e": typed("EthernetInterface", Links={"NetworkDeviceFunctions": [to("f")]}), "f": FUNCTION},
        ("nic", None, {"mac"}),
    ),
    "EthernetInterfaces, Links.NetworkDeviceFunction": (
        {"EthernetInterfaces": [to("e")]},
        {"e": typed("EthernetInterface", Links={"NetworkDeviceFunction": to("f")}), "f": FUNCTION},
        ("nic", None, {"mac"}),
    ),
    "EthernetInterfaces, the adapter above Links.NetworkDeviceFunctions": (
        {"EthernetInterfaces": [to("e")]},
        {
            "e": typed(
                "EthernetInterface",
                PermanentMACAddress="B8:59:9F:00:00:01",
                Links={"NetworkDeviceFunctions": [to("NetworkAdapters/a/NetworkDeviceFunctions/f")]},
            ),
            "NetworkAdapters/a": ADAPTER,
        },
        ("nic", "N7", {"mac", "board-serial"}),
    ),
    "Processors, Links.PCIeDevice": (
        {"Processors": [to("p")]},
        {"p": typed("Processor", ProcessorType="GPU", Links={"PCIeDevice": to("g")}), "g": GPU_CARD},
        ("gpu", "G5", {"board-serial"}),
    ),
    "Processors, Assembly": (
        {"Processors": [to("p")]},
        {
            "p": typed("Processor", ProcessorType="FPGA", Assembly=to("y")),
            "y": typed("Assembly", Assemblies=[{"Name": "Board", "SerialNumber": "F3"}]),
        },
        ("fpga", "F3", {"board-serial"}),
    ),
    "Memory, MemoryType": (
        {"Memory": [to("m")]},
        {"m": typed("Memory", MemoryType="DRAM", MemoryDeviceType="CXL", SerialNumber="M2")},
        ("cxl-memory", "M2", {"board-serial"}),
    ),
    "Memory on a PCIe device that shows another number": (
        {"Memory": [to("m")]},
        {
            "m": typed("Memory", MemoryDeviceType="CXL", SerialNumber="M2", Links={"PCIeDevice": to("g")}),
            "g": GPU_CARD,
        },
        ("cxl-memory", "M2", {"board-serial"}),
    ),
    "Memory, Assembly": (
        {"Memory": [to("m")]},
        {
            "m": typed("Memory", MemoryDeviceType="CXL", Assembly=to("y")),
            "y": typed("Assembly", Assemblies=[{"Name": "Board", "SerialNumber": "M2"}]),
        },
        ("cxl-memory", "M2", {"board-serial"}),
    ),
    "a DIMM": (
        {"Memory": [to("m")]},
        {"m": typed("Memory", MemoryType="DRAM", MemoryDeviceType="DDR5", SerialNumber="M2")},
        ("other", "M2", set()),
    ),
    "a SAS disk": (
        {"Drives": [to("d")]},
        {"d": typed("Drive", Protocol="SAS", MediaType="HDD", SerialNumber="S9")},
        ("other", "S9", set()),
    ),
}
ENDPOINTS = {
    "PCIeFunction, Links.PCIeDevice": (
        {"EntityType": "PCIeFunction", "EntityLink": to("f")},
        {"f": typed("PCIeFunction", **GPU_IDS, Links={"PCIeDevice": to("g")}), "g": GPU_CARD},
        ("gpu", "G5", {"board-serial"}),
    ),
    "PCIeFunction, Links.Drives": (
        {"EntityType": "PCIeFunction", "EntityLink": to("f")},
        {"f": typed("PCIeFunction", **NVME_CODE, Links={"Drives": [to("d")]}), "d": DRIVE},
        ("nvme", "S9", {"nvme-serial"}),
    ),
    "PCIeFunction, Links.StorageControllers": (
        {"EntityType": "PCIeFunction", "EntityLink": to("f")},
        {
            "f": typed("PCIeFunction", **NVME_CODE, Links={"StorageControllers": [to("k")]}),
            "k": typed("StorageController", SerialNumber="S9"),
        },
        ("nvme", "S9", {"nvme-serial"}),
    ),
    "PCIeFunction, Links.NetworkDeviceFunctions": (
        {"EntityType": "PCIeFunction", "EntityLink": to("f")},
        {
            "f": typed(
                "PCIeFunction", DeviceClass="NetworkController", Links={"NetworkDeviceFunctions": [to("n")]}
            ),
            "n": FUNCTION,
        },
        ("nic", None, {"mac"}),
    ),
    "PCIeDevice, PCIeFunctions": (
        {"EntityType": "Processor", "EntityLink": to("g")},
        {
            "g": {**GPU_CARD, "PCIeFunctions": to("fs")},
            "fs": members("f"),
            "f": typed("PCIeFunction", **GPU_IDS),
        },
        ("gpu", "G5", {"board-serial"}),
    ),
    "PCIeDevice, Links.PCIeFunctions": (
        {"EntityType": "Processor", "EntityLink": to("g")},
        {"g": {**GPU_CARD, "Links": {"PCIeFunctions": [to("f")]}}, "f": typed("PCIeFunction", **GPU_IDS)},
        ("gpu", "G5", {"board-serial"}),
    ),
    "EntityPciId": (
        {"EntityType": "Processor", "EntityPciId": GPU_IDS, "EntityLink": to("g")},
        {"g": GPU_CARD},
        ("gpu", "G5", {"board-serial"}),
    ),
    "PciId": (
        {"EntityType": "Processor", "PciId": GPU_IDS, "EntityLink": to("g")},
        {"g": GPU_CARD},
        ("gpu", "G5", {"board-serial"}),
    ),
    "PciClassCode": (
        {"EntityType": "Drive", "PciClassCode": "0x010802", "EntityLink": to("d")},
        {"d": {**DRIVE, "Protocol": None}},
        ("nvme", "S9", {"nvme-serial"}),
    ),
    "DisplayController": (
        {"EntityType": "DisplayController", "EntityLink": to("g")},
        {"g": GPU_CARD},
        ("gpu", "G5", {"board-serial"}),
    ),
    "NetworkController": (
        {"EntityType": "NetworkController", "EntityLink": to("a")},
        {"a": {**ADAPTER, "NetworkDeviceFunctions": to("fs")}, "fs": members("f"), "f": FUNCTION},
        ("nic", "N7", {"board-serial", "mac"}),
    ),
    "StorageController": (
        {"EntityType": "StorageController", "EntityLink": to("k")},
        {"k": typed("StorageController", SerialNumber="S9", SupportedDeviceProtocols=["NVMe"])},
        ("nvme", "S9", {"nvme-serial"}),
    ),
    "Storage": (
        {"EntityType": "StorageSubsystem", "EntityLink": to("s")},
        {"s": typed("Storage", Drives=[to("d")]), "d": DRIVE},
        ("nvme", "S9", {"nvme-serial"}),
    ),
}


async def listed(made):
    """Return the one device of the service."""
    async with adapting(made) as adapter:
        (device,) = (await adapter.devices()).devices
    return device


def put(made, resources):
    for name, properties in resources.items():
        made.put(f"{CHASSIS}/{name}", **properties)


def shown(device):
    kinds = {each.kind.value for each in device.identifiers} - {"part-number"}
    return device.device_class.value, device.serial, kinds


@pytest.mark.parametrize(("arrays", "resources", "right"), BLOCKS.values(), ids=BLOCKS)
async def test_a_block_is_followed_to_what_its_device_is(arrays, resources, right):
    made = redfish_servers.Service()
    made.put_blocks({"B": arrays}, {"host1": []})
    put(made, resources)
    assert shown(await listed(made)) == right


@pytest.mark.parametrize(("entity", "resources", "right"), ENDPOINTS.values(), ids=ENDPOINTS)
async def test_an_endpoint_is_followed_to_what_its_device_is(entity, resources, right):
    made = redfish_servers.Service()
    made.put_fabric("F", {"T": {"EntityRole": "Target", **entity}})
    put(made, resources)
    assert shown(await listed(made)) == right
