"""Every way in which the schemas tell class, serial number and identifiers of a device, over small documents."""

import pytest
from tests.scenes import redfish_servers
from tests.scenes.redfish_servers import ROOT, adapting, link

CHASSIS = f"{ROOT}/Chassis/c"


def make_resource(schema, **properties):
    return {"@odata.type": f"#{schema}.v1_0_0.{schema}", **properties}


DRIVE = make_resource("Drive", Protocol="NVMe", MediaType="SSD", SerialNumber="S9", Model="PM1733")
ADAPTER = make_resource("NetworkAdapter", SerialNumber="N7", Model="CX7")
FUNCTION = make_resource("NetworkDeviceFunction", Ethernet={"PermanentMACAddress": "B8:59:9F:00:00:01"})
GPU_CARD = make_resource("PCIeDevice", SerialNumber="G5", Model="A100")
GPU_IDS = {"VendorId": "0x10de", "DeviceId": "0x2330", "ClassCode": "0x030200"}
NVME_CODE = {"VendorId": "0x144d", "DeviceId": "0xa824", "ClassCode": "0x010802"}


def link_to(name, path=""):
    """Return a link to a resource below the chassis, and to more of its resources."""
    return link(f"{CHASSIS}/{name}{path}")


def members(*names):
    return {"Members": [link_to(name) for name in names], "Members@odata.count": len(names)}


# Entities of an endpoint or arrays of a block; the resources below the chassis; class, serial number, kinds of identifiers.
BLOCKS = {
    "Drives": ({"Drives": [link_to("d")]}, {"d": DRIVE}, ("nvme", "S9", {"nvme-serial"})),
    "Storage, Drives": (
        {"Storage": [link_to("s")]},
        {"s": make_resource("Storage", Drives=[link_to("d")]), "d": DRIVE},
        ("nvme", "S9", {"nvme-serial"}),
    ),
    "SimpleStorage, Links.Storage, Drives": (
        {"SimpleStorage": [link_to("x")]},
        {
            "x": make_resource("SimpleStorage", Links={"Storage": link_to("s")}),
            "s": make_resource("Storage", Drives=[link_to("d")]),
            "d": DRIVE,
        },
        ("nvme", "S9", {"nvme-serial"}),
    ),
    "Storage, StorageControllers": (
        {"Storage": [link_to("s")]},
        {
            "s": make_resource(
                "Storage",
                StorageControllers=[
                    {"MemberId": "0", "SerialNumber": "S9", "SupportedDeviceProtocols": ["NVMe"]}
                ],
            )
        },
        ("nvme", "S9", {"nvme-serial"}),
    ),
    "SimpleStorage, Links.Storage, StorageControllers": (
        {"SimpleStorage": [link_to("x")]},
        {
            "x": make_resource("SimpleStorage", Links={"Storage": link_to("s")}),
            "s": make_resource(
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
        {"Storage": [link_to("s")]},
        {
            "s": make_resource(
                "Storage",
                StorageControllers=[{"SerialNumber": "R1", "SupportedDeviceProtocols": ["SAS", "SATA"]}],
            )
        },
        ("other", None, set()),
    ),
    "the drive of a controller": (
        {"Storage": [link_to("s")]},
        {
            "s": make_resource(
                "Storage",
                Drives=[link_to("d")],
                StorageControllers=[{"SerialNumber": "R1", "SupportedDeviceProtocols": ["NVMe"]}],
            ),
            "d": DRIVE,
        },
        ("nvme", "S9", {"nvme-serial"}),
    ),
    "Storage, Controllers": (
        {"Storage": [link_to("s")]},
        {
            "s": make_resource("Storage", Controllers=link_to("cs")),
            "cs": members("k"),
            "k": make_resource("StorageController", SerialNumber="S9", SupportedDeviceProtocols=["NVMe"]),
        },
        ("nvme", "S9", {"nvme-serial"}),
    ),
    "NetworkInterfaces, Links.NetworkAdapter": (
        {"NetworkInterfaces": [link_to("n")]},
        {"n": make_resource("NetworkInterface", Links={"NetworkAdapter": link_to("a")}), "a": ADAPTER},
        ("nic", "N7", {"board-serial"}),
    ),
    "NetworkInterfaces, NetworkDeviceFunctions": (
        {"NetworkInterfaces": [link_to("n")]},
        {
            "n": make_resource("NetworkInterface", NetworkDeviceFunctions=link_to("fs")),
            "fs": members("f"),
            "f": FUNCTION,
        },
        ("nic", None, {"mac"}),
    ),
    "EthernetInterfaces, Links.NetworkDeviceFunctions": (
        {"EthernetInterfaces": [link_to("e")]},
        {
            "e": make_resource("EthernetInterface", Links={"NetworkDeviceFunctions": [link_to("f")]}),
            "f": FUNCTION,
        },
        ("nic", None, {"mac"}),
    ),
    "EthernetInterfaces, Links.NetworkDeviceFunction": (
        {"EthernetInterfaces": [link_to("e")]},
        {
            "e": make_resource("EthernetInterface", Links={"NetworkDeviceFunction": link_to("f")}),
            "f": FUNCTION,
        },
        ("nic", None, {"mac"}),
    ),
    "EthernetInterfaces, the adapter above Links.NetworkDeviceFunctions": (
        {"EthernetInterfaces": [link_to("e")]},
        {
            "e": make_resource(
                "EthernetInterface",
                PermanentMACAddress="B8:59:9F:00:00:01",
                Links={"NetworkDeviceFunctions": [link_to("NetworkAdapters/a/NetworkDeviceFunctions/f")]},
            ),
            "NetworkAdapters/a": ADAPTER,
        },
        ("nic", "N7", {"mac", "board-serial"}),
    ),
    "Processors, Links.PCIeDevice": (
        {"Processors": [link_to("p")]},
        {
            "p": make_resource("Processor", ProcessorType="GPU", Links={"PCIeDevice": link_to("g")}),
            "g": GPU_CARD,
        },
        ("gpu", "G5", {"board-serial"}),
    ),
    "Processors, Assembly": (
        {"Processors": [link_to("p")]},
        {
            "p": make_resource("Processor", ProcessorType="FPGA", Assembly=link_to("y")),
            "y": make_resource("Assembly", Assemblies=[{"Name": "Board", "SerialNumber": "F3"}]),
        },
        ("fpga", "F3", {"board-serial"}),
    ),
    "Memory, MemoryType": (
        {"Memory": [link_to("m")]},
        {"m": make_resource("Memory", MemoryType="DRAM", MemoryDeviceType="CXL", SerialNumber="M2")},
        ("cxl-memory", "M2", {"board-serial"}),
    ),
    "Memory on a PCIe device that shows another number": (
        {"Memory": [link_to("m")]},
        {
            "m": make_resource(
                "Memory", MemoryDeviceType="CXL", SerialNumber="M2", Links={"PCIeDevice": link_to("g")}
            ),
            "g": GPU_CARD,
        },
        ("cxl-memory", "M2", {"board-serial"}),
    ),
    "Memory, Assembly": (
        {"Memory": [link_to("m")]},
        {
            "m": make_resource("Memory", MemoryDeviceType="CXL", Assembly=link_to("y")),
            "y": make_resource("Assembly", Assemblies=[{"Name": "Board", "SerialNumber": "M2"}]),
        },
        ("cxl-memory", "M2", {"board-serial"}),
    ),
    "a DIMM": (
        {"Memory": [link_to("m")]},
        {"m": make_resource("Memory", MemoryType="DRAM", MemoryDeviceType="DDR5", SerialNumber="M2")},
        ("other", "M2", set()),
    ),
    "a SAS disk": (
        {"Drives": [link_to("d")]},
        {"d": make_resource("Drive", Protocol="SAS", MediaType="HDD", SerialNumber="S9")},
        ("other", "S9", set()),
    ),
}
ENDPOINTS = {
    "PCIeFunction, Links.PCIeDevice": (
        {"EntityType": "PCIeFunction", "EntityLink": link_to("f")},
        {"f": make_resource("PCIeFunction", **GPU_IDS, Links={"PCIeDevice": link_to("g")}), "g": GPU_CARD},
        ("gpu", "G5", {"board-serial"}),
    ),
    "PCIeFunction, Links.Drives": (
        {"EntityType": "PCIeFunction", "EntityLink": link_to("f")},
        {"f": make_resource("PCIeFunction", **NVME_CODE, Links={"Drives": [link_to("d")]}), "d": DRIVE},
        ("nvme", "S9", {"nvme-serial"}),
    ),
    "PCIeFunction, Links.StorageControllers": (
        {"EntityType": "PCIeFunction", "EntityLink": link_to("f")},
        {
            "f": make_resource("PCIeFunction", **NVME_CODE, Links={"StorageControllers": [link_to("k")]}),
            "k": make_resource("StorageController", SerialNumber="S9"),
        },
        ("nvme", "S9", {"nvme-serial"}),
    ),
    "PCIeFunction, Links.NetworkDeviceFunctions": (
        {"EntityType": "PCIeFunction", "EntityLink": link_to("f")},
        {
            "f": make_resource(
                "PCIeFunction",
                DeviceClass="NetworkController",
                Links={"NetworkDeviceFunctions": [link_to("n")]},
            ),
            "n": FUNCTION,
        },
        ("nic", None, {"mac"}),
    ),
    "PCIeDevice, PCIeFunctions": (
        {"EntityType": "Processor", "EntityLink": link_to("g")},
        {
            "g": {**GPU_CARD, "PCIeFunctions": link_to("fs")},
            "fs": members("f"),
            "f": make_resource("PCIeFunction", **GPU_IDS),
        },
        ("gpu", "G5", {"board-serial"}),
    ),
    "PCIeDevice, Links.PCIeFunctions": (
        {"EntityType": "Processor", "EntityLink": link_to("g")},
        {
            "g": {**GPU_CARD, "Links": {"PCIeFunctions": [link_to("f")]}},
            "f": make_resource("PCIeFunction", **GPU_IDS),
        },
        ("gpu", "G5", {"board-serial"}),
    ),
    "EntityPciId": (
        {"EntityType": "Processor", "EntityPciId": GPU_IDS, "EntityLink": link_to("g")},
        {"g": GPU_CARD},
        ("gpu", "G5", {"board-serial"}),
    ),
    "PciId": (
        {"EntityType": "Processor", "PciId": GPU_IDS, "EntityLink": link_to("g")},
        {"g": GPU_CARD},
        ("gpu", "G5", {"board-serial"}),
    ),
    "PciClassCode": (
        {"EntityType": "Drive", "PciClassCode": "0x010802", "EntityLink": link_to("d")},
        {"d": {**DRIVE, "Protocol": None}},
        ("nvme", "S9", {"nvme-serial"}),
    ),
    "DisplayController": (
        {"EntityType": "DisplayController", "EntityLink": link_to("g")},
        {"g": GPU_CARD},
        ("gpu", "G5", {"board-serial"}),
    ),
    "NetworkController": (
        {"EntityType": "NetworkController", "EntityLink": link_to("a")},
        {"a": {**ADAPTER, "NetworkDeviceFunctions": link_to("fs")}, "fs": members("f"), "f": FUNCTION},
        ("nic", "N7", {"board-serial", "mac"}),
    ),
    "StorageController": (
        {"EntityType": "StorageController", "EntityLink": link_to("k")},
        {"k": make_resource("StorageController", SerialNumber="S9", SupportedDeviceProtocols=["NVMe"])},
        ("nvme", "S9", {"nvme-serial"}),
    ),
    "Storage": (
        {"EntityType": "StorageSubsystem", "EntityLink": link_to("s")},
        {"s": make_resource("Storage", Drives=[link_to("d")]), "d": DRIVE},
        ("nvme", "S9", {"nvme-serial"}),
    ),
}


async def read_device(made):
    """Return the one device of the service."""
    async with adapting(made) as adapter:
        (device,) = (await adapter.devices()).devices
    return device


def put(made, resources):
    for name, properties in resources.items():
        made.put(f"{CHASSIS}/{name}", **properties)


def describe_device(device):
    kinds = {each.kind.value for each in device.identifiers} - {"part-number"}
    return device.device_class.value, device.serial, kinds


@pytest.mark.parametrize(("arrays", "resources", "right"), BLOCKS.values(), ids=BLOCKS)
async def test_a_block_is_followed_to_its_device(arrays, resources, right):
    made = redfish_servers.Service()
    made.put_blocks({"B": arrays}, {"host1": []})
    put(made, resources)
    assert describe_device(await read_device(made)) == right


@pytest.mark.parametrize(("entity", "resources", "right"), ENDPOINTS.values(), ids=ENDPOINTS)
async def test_an_endpoint_is_followed_to_its_device(entity, resources, right):
    made = redfish_servers.Service()
    made.put_fabric("F", {"T": {"EntityRole": "Target", **entity}})
    put(made, resources)
    assert describe_device(await read_device(made)) == right
