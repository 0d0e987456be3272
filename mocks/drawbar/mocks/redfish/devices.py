"""Enclosures with their devices: PCIe devices, their parts, and the endpoint or resource block of each."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from drawbar.mocks.redfish import ends, memory, numbers, paths
from drawbar.mocks.redfish.configuration import Configuration, Device, Enclosure
from drawbar.mocks.redfish.tree import ROOT, Body, Tree, reference


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """The texts and numbers in resources of a kind of device.

    Attributes:
        class_code: the PCI class code.
        vendor_id: the PCI vendor id.
        device_id: the PCI device id.
        device_class: the class of its PCIe function.
        entity_type: the entity type of its endpoint.
        part: the schema of a resource, besides the PCIe device, to which its endpoint and its resource block link.
        processor_type: the type of a part that is a processor.
    """

    class_code: str
    vendor_id: str
    device_id: str
    device_class: str
    entity_type: str
    part: str
    processor_type: str = ""


_KINDS: Mapping[str, _Kind] = MappingProxyType(
    {
        "gpu": _Kind(
            class_code="0x030200",
            vendor_id="0x10de",
            device_id="0x2330",
            device_class="DisplayController",
            entity_type="AccelerationFunction",
            part="Processor",
            processor_type="GPU",
        ),
        "accelerator": _Kind(
            class_code="0x120000",
            vendor_id="0x1da3",
            device_id="0x1020",
            device_class="ProcessingAccelerators",
            entity_type="AccelerationFunction",
            part="Processor",
            processor_type="Accelerator",
        ),
        "fpga": _Kind(
            class_code="0x120000",
            vendor_id="0x10ee",
            device_id="0x5005",
            device_class="ProcessingAccelerators",
            entity_type="AccelerationFunction",
            part="Processor",
            processor_type="FPGA",
        ),
        "nvme": _Kind(
            class_code="0x010802",
            vendor_id="0x1b36",
            device_id="0x0010",
            device_class="MassStorageController",
            entity_type="Drive",
            part="Drive",
        ),
        "cxl-memory": _Kind(
            class_code="0x050210",
            vendor_id="0x8086",
            device_id="0x0d93",
            device_class="MemoryController",
            entity_type="CXLDevice",
            part="Memory",
        ),
        "nic": _Kind(
            class_code="0x020000",
            vendor_id="0x15b3",
            device_id="0x1021",
            device_class="NetworkController",
            entity_type="NetworkController",
            part="NetworkAdapter",
        ),
    }
)
# By the schema of a part: the property of chassis and resource blocks, its version, and the type of such a block.
_PARTS: Mapping[str, tuple[str, str, str]] = MappingProxyType(
    {
        "Processor": ("Processors", "v1_21_0", "Processor"),
        "Memory": ("Memory", "v1_22_0", "Memory"),
        "Drive": ("Drives", "v1_21_0", "Storage"),
        "NetworkAdapter": ("NetworkAdapters", "v1_14_0", ""),
    }
)
# By the schema of a part: the type of its entity, where that has another name.
_ENTITY_TYPES: Mapping[str, str] = MappingProxyType({"NetworkAdapter": "NetworkController"})


def pci_ids(device: Device) -> tuple[str, str]:
    """Return the vendor's and the device's PCI id, each as 0x and four digits."""
    kind = _KINDS[device.kind]
    return device.vendor_id or kind.vendor_id, device.device_id or kind.device_id


def put_enclosure(tree: Tree, enclosure: Enclosure, configuration: Configuration) -> None:
    """Add a chassis with its devices."""
    uri = f"{ROOT}/Chassis/{enclosure.id}"
    tree.put(
        uri,
        {
            "@odata.type": "#Chassis.v1_27_0.Chassis",
            "Id": enclosure.id,
            "Name": f"Enclosure {enclosure.id}",
            "ChassisType": "Expansion",
            "Status": dict(paths.OK),
            "PCIeDevices": reference(f"{uri}/PCIeDevices"),
        },
    )
    tree.collection(f"{uri}/PCIeDevices", "PCIeDevice", "PCIe Devices")
    unused = "Memory" if configuration.has_fabric else "NetworkAdapter"
    for kind, (name, _, _) in _PARTS.items():
        if kind == unused:
            continue
        tree.update(uri, **{name: reference(f"{uri}/{name}")})
        tree.collection(f"{uri}/{name}", kind, name)
    if configuration.method == "connections":
        memory.put_domains(tree, uri)
    for device in enclosure.devices:
        _device(tree, f"{uri}/PCIeDevices/{device.id}", device, configuration)


def _device(tree: Tree, uri: str, device: Device, configuration: Configuration) -> None:
    kind = _KINDS[device.kind]
    common: Body = {
        "Id": device.id,
        "Name": f"{device.vendor} {device.model}",
        "Model": device.model,
        "Manufacturer": device.vendor,
        "Status": dict(paths.OK),
    }
    shown = numbers.numbers(device)
    body: Body = {
        "@odata.type": "#PCIeDevice.v1_21_0.PCIeDevice",
        **common,
        "DeviceType": "SingleFunction",
        "PCIeInterface": {"MaxPCIeType": "Gen4", "PCIeType": "Gen4", "MaxLanes": 16, "LanesInUse": 16},
        "PCIeFunctions": reference(f"{uri}/PCIeFunctions"),
    }
    if device.kind != "nvme":
        body["SerialNumber"] = shown.printed
    if device.kind == "cxl-memory":
        body["CXLDevice"] = {"DeviceType": "Type3"}
        if shown.gcxlid:
            body["CXLLogicalDevices"] = reference(f"{uri}/CXLLogicalDevices")
    tree.put(uri, numbers.card(body, device.kind, configuration.manners))
    if shown.gcxlid:
        _put_logical_device(tree, uri, device, shown)
    tree.collection(f"{uri}/PCIeFunctions", "PCIeFunction", "PCIe Functions")
    ids: Body = {
        "VendorId": pci_ids(device)[0],
        "DeviceId": pci_ids(device)[1],
        "ClassCode": kind.class_code,
    }
    ids = numbers.function(ids, configuration.manners)
    tree.put(
        f"{uri}/PCIeFunctions/0",
        {
            "@odata.type": "#PCIeFunction.v1_6_0.PCIeFunction",
            "Id": "0",
            "Name": "Function 0",
            "FunctionId": 0,
            "FunctionType": "Physical",
            "DeviceClass": kind.device_class,
            **ids,
            "Status": dict(paths.OK),
        },
    )
    if configuration.has_fabric:
        entity: Body = {"EntityRole": "Target", "EntityPciId": ids | {"FunctionNumber": 0}}
        if shown.gcxlid:
            entity["Identifiers"] = [{"DurableName": shown.gcxlid, "DurableNameFormat": "GCXLID"}]
        entities = [{**entity, "EntityType": kind.entity_type, "EntityLink": reference(uri)}]
        if kind.part != "Memory":
            link = reference(_put_part(tree, uri, device, common))
            described = _ENTITY_TYPES.get(kind.part, kind.part)
            entities.append({"EntityType": described, "EntityRole": "Target", "EntityLink": link})
        if configuration.method == "connections" and device.slice_mib:
            limits = {"MinMemoryChunkSizeMiB": device.slice_mib, "MemoryChunkIncrementMiB": device.slice_mib}
            size = {"AllowsMemoryChunkCreation": True, "MemorySizeMiB": device.memory_mib}
            links = {"Links": {"FabricAdapters": [reference(_put_fabric_adapter(tree, uri, device))]}}
            memory.put_domain(tree, memory.domain_uri(uri, device), size | limits | links)
        elif configuration.method == "connections":
            chunk = paths.chunk_uri(uri.split("/")[4], device.id, configuration)
            tree.put(chunk, memory.chunk(device.id, f"Memory of {device.id}", device.memory_mib, device.id))
            entities.append(
                {"EntityType": "MemoryChunk", "EntityRole": "Target", "EntityLink": reference(chunk)}
            )
        ends.put_endpoint(tree, device.id, f"{device.vendor} {device.model}", entities)
        return
    part = _put_part(tree, uri, device, common)
    name, _, block_type = _PARTS[kind.part]
    tree.put(
        paths.block(device.id),
        {
            "@odata.type": "#ResourceBlock.v1_4_3.ResourceBlock",
            "Id": device.id,
            "Name": f"{device.vendor} {device.model}",
            "ResourceBlockType": [block_type],
            "Status": dict(paths.OK),
            "CompositionStatus": {
                "CompositionState": "Unused",
                "Reserved": False,
                "MaxCompositions": 1,
                "NumberOfCompositions": 0,
                "SharingCapable": False,
            },
            name: [reference(part)],
            "Links": {"ComputerSystems": []},
        },
    )


def _put_fabric_adapter(tree: Tree, uri: str, device: Device) -> str:
    """Add the connection of a memory device with the fabric, and return its URI."""
    chassis = uri.removesuffix(f"/PCIeDevices/{device.id}")
    collection = f"{chassis}/FabricAdapters"
    if collection not in tree:
        tree.update(chassis, FabricAdapters=reference(collection))
        tree.collection(collection, "FabricAdapter", "Fabric Adapters")
    tree.put(
        f"{collection}/{device.id}",
        {
            "@odata.type": "#FabricAdapter.v1_5_3.FabricAdapter",
            "Id": device.id,
            "Name": f"Fabric adapter of {device.id}",
            "Status": dict(paths.OK),
        },
    )
    return f"{collection}/{device.id}"


def _put_part(tree: Tree, uri: str, device: Device, common: Body) -> str:
    """Add the processor, drive or memory that a PCIe device is, and return its URI."""
    kind = _KINDS[device.kind]
    name, version, _ = _PARTS[kind.part]
    part = f"{uri.removesuffix(f'/PCIeDevices/{device.id}')}/{name}/{device.id}"
    shown = numbers.numbers(device)
    body = {"@odata.type": f"#{kind.part}.{version}.{kind.part}", **common, "SerialNumber": shown.printed}
    match kind.part:
        case "Processor":
            if shown.gpu_uuid:
                body["UUID"] = shown.gpu_uuid
            body |= {
                "ProcessorType": kind.processor_type,
                "Links": {"PCIeDevice": reference(uri)},
                "MemorySummary": {"TotalMemorySizeMiB": device.memory_mib},
            }
        case "Drive":
            body |= {"Protocol": "NVMe", "MediaType": "SSD"}
        case "NetworkAdapter":
            body["NetworkDeviceFunctions"] = reference(f"{part}/NetworkDeviceFunctions")
        case _:
            # This property tells memory behind CXL from a DIMM (Memory 1.18).
            body |= {"CapacityMiB": device.memory_mib, "CXL": {"LabelStorageSizeBytes": 0}}
    tree.put(part, body)
    if kind.part == "NetworkAdapter":
        _put_network_function(tree, part, uri, shown)
    return part


def _put_network_function(tree: Tree, adapter: str, card: str, shown: numbers.Numbers) -> None:
    """Add the one network function of a card, which has its permanent MAC address."""
    collection = f"{adapter}/NetworkDeviceFunctions"
    tree.collection(collection, "NetworkDeviceFunction", "Network Device Functions")
    tree.put(
        f"{collection}/0",
        {
            "@odata.type": "#NetworkDeviceFunction.v1_11_1.NetworkDeviceFunction",
            "Id": "0",
            "Name": "Network function 0",
            "NetDevFuncType": "Ethernet",
            "Ethernet": {"MACAddress": shown.mac, "PermanentMACAddress": shown.mac},
            "Status": dict(paths.OK),
        },
    )
    links = {
        "NetworkDeviceFunctions": [reference(f"{collection}/0")],
        "NetworkDeviceFunctions@odata.count": 1,
    }
    tree.update(f"{card}/PCIeFunctions/0", Links=links)


def _put_logical_device(tree: Tree, card: str, device: Device, shown: numbers.Numbers) -> None:
    """Add the one logical device of CXL memory, which has its GCXLID."""
    collection = f"{card}/CXLLogicalDevices"
    tree.collection(collection, "CXLLogicalDevice", "CXL Logical Devices")
    tree.put(
        f"{collection}/0",
        {
            "@odata.type": "#CXLLogicalDevice.v1_3_0.CXLLogicalDevice",
            "Id": "0",
            "Name": "CXL Logical Device 0",
            "Identifiers": [{"DurableName": shown.gcxlid, "DurableNameFormat": "GCXLID"}],
            "MemorySizeMiB": device.memory_mib,
            "SemanticsSupported": ["CXLio", "CXLmem"],
            "Status": dict(paths.OK),
        },
    )
