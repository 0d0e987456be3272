"""The initial resources of a Redfish service."""

import itertools
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from drawbar.mocks.redfish import numbers
from drawbar.mocks.redfish.configuration import Configuration, Device, Enclosure, Host
from drawbar.mocks.redfish.tree import ROOT, Body, Tree, reference

FABRIC = f"{ROOT}/Fabrics/PCIe"
ENDPOINTS = f"{FABRIC}/Endpoints"
ZONES = f"{FABRIC}/Zones"
CONNECTIONS = f"{FABRIC}/Connections"
SYSTEMS = f"{ROOT}/Systems"
SWITCHES = f"{FABRIC}/Switches"
BLOCKS = f"{ROOT}/CompositionService/ResourceBlocks"
RESOURCE_ZONES = f"{ROOT}/CompositionService/ResourceZones"
DOMAIN = "1"
# Memory modules of a blade.
DIMMS = 4
SESSIONS = f"{ROOT}/SessionService/Sessions"
TASKS = f"{ROOT}/TaskService/Tasks"
CAPABILITIES = f"{ROOT}/CompositionService/ConstrainedCapabilities"
EVENTS = f"{ROOT}/EventService/SSE"
OK: Mapping[str, str] = MappingProxyType({"State": "Enabled", "Health": "OK"})


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


def create(configuration: Configuration) -> Tree:
    """Return the tree of a service that was just installed."""
    tree = Tree()
    _services(tree, configuration)
    tree.collection(SYSTEMS, "ComputerSystem", "Systems")
    tree.collection(f"{ROOT}/Chassis", "Chassis", "Chassis")
    if configuration.has_fabric:
        _fabric(tree, configuration)
    if configuration.has_blocks:
        tree.put(
            f"{ROOT}/CompositionService",
            {
                "@odata.type": "#CompositionService.v1_2_3.CompositionService",
                "Id": "CompositionService",
                "Name": "Composition Service",
                "Status": dict(OK),
                "ServiceEnabled": True,
                "ResourceBlocks": reference(BLOCKS),
            }
            | (
                {"ResourceZones": reference(RESOURCE_ZONES)}
                if configuration.is_divided and not configuration.has_fabric
                else {}
            ),
        )
        tree.collection(BLOCKS, "ResourceBlock", "Resource Blocks")
    if configuration.constrained:
        _capabilities(tree)
    for host in configuration.hosts:
        if configuration.is_appliance:
            _port(tree, host)
        else:
            _host(tree, host, configuration)
    for enclosure in configuration.enclosures:
        if configuration.is_appliance:
            _blade(tree, enclosure, configuration)
        else:
            _enclosure(tree, enclosure, configuration)
    if configuration.is_appliance and configuration.enclosures:
        # The blade's ports are on one switch, the first blade's.
        _switches(tree)
        ports = [(host.id, "UpstreamPort") for host in configuration.hosts]
        _switch(tree, configuration.enclosures[0].id, ports)
    if configuration.is_divided:
        _divide(tree, configuration)
    return tree


def _divide(tree: Tree, configuration: Configuration) -> None:
    """Add what keeps an enclosure from the hosts that it is not cabled to: a switch, or a resource zone."""
    ends = [(host.id, "UpstreamPort") for host in configuration.hosts]
    ends += [
        (device.id, "DownstreamPort")
        for enclosure in configuration.enclosures
        for device in enclosure.devices
    ]
    if configuration.has_fabric:
        _switches(tree)
    else:
        tree.collection(RESOURCE_ZONES, "Zone", "Resource Zones")
    for enclosure in configuration.enclosures:
        own = [(name, kind) for name, kind in ends if enclosure.id in configuration.enclosures_of(name)]
        if configuration.has_fabric:
            _switch(tree, enclosure.id, own)
        else:
            _resource_zone(tree, enclosure.id, [name for name, _ in own])


def _switches(tree: Tree) -> None:
    tree.update(FABRIC, Switches=reference(SWITCHES))
    tree.collection(SWITCHES, "Switch", "Switches")


def _switch(tree: Tree, name: str, ends: list[tuple[str, str]]) -> None:
    uri = f"{SWITCHES}/{name}"
    tree.put(
        uri,
        {
            "@odata.type": "#Switch.v1_9_3.Switch",
            "Id": name,
            "Name": f"Switch of {name}",
            "SwitchType": "PCIe",
            "Status": dict(OK),
            "Ports": reference(f"{uri}/Ports"),
        },
    )
    tree.collection(f"{uri}/Ports", "Port", "Ports")
    for end, kind in ends:
        port = f"{uri}/Ports/{end}"
        tree.put(
            port,
            {
                "@odata.type": "#Port.v1_18_0.Port",
                "Id": end,
                "Name": f"Port to {end}",
                "PortType": kind,
                "LinkStatus": "LinkUp",
                "Status": dict(OK),
                "Links": {"AssociatedEndpoints": [reference(endpoint(end))]},
            },
        )
        links = tree[endpoint(end)]["Links"]
        connected = {"ConnectedPorts": [*links.get("ConnectedPorts", ()), reference(port)]}
        tree.update(endpoint(end), Links=links | connected)


def _resource_zone(tree: Tree, name: str, ends: list[str]) -> None:
    tree.put(
        f"{RESOURCE_ZONES}/{name}",
        {
            "@odata.type": "#Zone.v1_6_3.Zone",
            "Id": name,
            "Name": f"Resource Zone {name}",
            "ZoneType": "ZoneOfResourceBlocks",
            "Status": dict(OK),
            "Links": {"ResourceBlocks": [reference(block(end)) for end in ends]},
        },
    )


def _compute_block(tree: Tree, host: Host) -> None:
    """Add the resource block that a machine is, which stays in its system."""
    tree.put(
        block(host.id),
        {
            "@odata.type": "#ResourceBlock.v1_4_3.ResourceBlock",
            "Id": host.id,
            "Name": f"Compute of {host.id}",
            "ResourceBlockType": ["Compute"],
            "Status": dict(OK),
            "CompositionStatus": {
                "CompositionState": "Composed",
                "Reserved": False,
                "MaxCompositions": 1,
                "NumberOfCompositions": 1,
                "SharingCapable": False,
            },
            "Links": {"ComputerSystems": [reference(f"{SYSTEMS}/{host.id}")]},
        },
    )


def _capabilities(tree: Tree) -> None:
    """Say which parts of a system are asked for by a count, and by which properties (DSP0266, "Constrained composition")."""
    counted = {"@Redfish.RequestedCountRequired": True, "Model@Redfish.RequiredOnCreate": True}
    processor = counted | {
        "@odata.type": "#Processor.v1_21_0.Processor",
        "ProcessorType@Redfish.RequiredOnCreate": True,
    }
    drive = counted | {"@odata.type": "#Drive.v1_21_0.Drive"}
    memory = counted | {"@odata.type": "#Memory.v1_22_0.Memory"}
    tree.put(
        CAPABILITIES,
        {
            "@odata.type": "#ComputerSystem.v1_24_0.ComputerSystem",
            "Id": "ConstrainedCapabilities",
            "Name": "Capabilities of compositions",
            "Processors@Redfish.OptionalOnCreate": True,
            "Processors": {"Members": [processor]},
            "Memory@Redfish.OptionalOnCreate": True,
            "Memory": {"Members": [memory]},
            "Storage@Redfish.OptionalOnCreate": True,
            "Storage": {"Members": [{"@Redfish.RequestedCountRequired": True, "Drives": [drive]}]},
        },
    )
    offered = {
        "CapabilitiesObject": reference(CAPABILITIES),
        "UseCase": "ComputerSystemConstrainedComposition",
        "Links": {"TargetCollection": reference(SYSTEMS)},
    }
    annotation = {
        "@odata.type": "#CollectionCapabilities.v1_4_1.CollectionCapabilities",
        "Capabilities": [offered],
    }
    tree.update(SYSTEMS, **{"@Redfish.CollectionCapabilities": annotation})


def device_name(enclosure: Enclosure, device: Device, configuration: Configuration) -> str:
    """Return how the adapter `redfish` names the device."""
    if configuration.is_appliance:
        return f"{enclosure.id}.{DOMAIN}.{device.id}"
    return f"{FABRIC.rpartition('/')[2]}.{device.id}" if configuration.has_fabric else device.id


def chunk_uri(enclosure_id: str, device_id: str, configuration: Configuration) -> str:
    """Return the URI of the memory chunk that a device is."""
    owner = "Systems" if configuration.is_appliance else "Chassis"
    return f"{ROOT}/{owner}/{enclosure_id}/MemoryDomains/{DOMAIN}/MemoryChunks/{device_id}"


def block(device_id: str) -> str:
    """Return the URI of a device's resource block."""
    return f"{BLOCKS}/{device_id}"


def pci_ids(device: Device) -> tuple[str, str]:
    """Return the vendor's and the device's PCI id, each as 0x and four digits."""
    kind = _KINDS[device.kind]
    return device.vendor_id or kind.vendor_id, device.device_id or kind.device_id


def endpoint(name: str) -> str:
    """Return the URI of the endpoint of a host or device."""
    return f"{ENDPOINTS}/{name}"


def _describe(configuration: Configuration) -> str:
    """Return the product and the ids of all parts, which another service of the same product has otherwise."""
    hosts, enclosures = configuration.hosts, configuration.enclosures
    ids = (*(host.id for host in hosts), *(enclosure.id for enclosure in enclosures))
    return " ".join((configuration.product, *ids))


def _services(tree: Tree, configuration: Configuration) -> None:
    connects: Body = {}
    if configuration.has_fabric:
        connects["Fabrics"] = reference(f"{ROOT}/Fabrics")
    if configuration.has_blocks:
        connects["CompositionService"] = reference(f"{ROOT}/CompositionService")
    has_sessions = bool(configuration.username)
    if has_sessions:
        connects["SessionService"] = reference(f"{ROOT}/SessionService")
    if configuration.events:
        connects["EventService"] = reference(f"{ROOT}/EventService")
    tree.put(
        ROOT,
        {
            "@odata.type": "#ServiceRoot.v1_18_0.ServiceRoot",
            "Id": "RootService",
            "Name": "Root Service",
            "RedfishVersion": "1.20.0",
            "UUID": str(uuid.uuid5(uuid.NAMESPACE_URL, _describe(configuration))),
            "Product": configuration.product,
            "ProtocolFeaturesSupported": {
                "ExpandQuery": {
                    "ExpandAll": False,
                    "Levels": configuration.expand,
                    "Links": False,
                    "NoLinks": configuration.expand,
                }
                | ({"MaxLevels": 4} if configuration.expand else {}),
                "SelectQuery": False,
                "FilterQuery": False,
                "OnlyMemberQuery": False,
            },
            "Systems": reference(SYSTEMS),
            "Chassis": reference(f"{ROOT}/Chassis"),
            "Tasks": reference(f"{ROOT}/TaskService"),
            **connects,
            "Links": {"Sessions": reference(SESSIONS)} if has_sessions else {},
        },
    )
    tree.put(
        f"{ROOT}/TaskService",
        {
            "@odata.type": "#TaskService.v1_2_1.TaskService",
            "Id": "TaskService",
            "Name": "Task Service",
            "ServiceEnabled": True,
            "Status": dict(OK),
            "Tasks": reference(TASKS),
        },
    )
    tree.collection(TASKS, "Task", "Tasks")
    if has_sessions:
        tree.put(
            f"{ROOT}/SessionService",
            {
                "@odata.type": "#SessionService.v1_1_9.SessionService",
                "Id": "SessionService",
                "Name": "Session Service",
                "ServiceEnabled": True,
                "SessionTimeout": 1800,
                "Status": dict(OK),
                "Sessions": reference(SESSIONS),
            },
        )
        tree.collection(SESSIONS, "Session", "Sessions")
    if configuration.events:
        tree.put(
            f"{ROOT}/EventService",
            {
                "@odata.type": "#EventService.v1_10_3.EventService",
                "Id": "EventService",
                "Name": "Event Service",
                "ServiceEnabled": True,
                "Status": dict(OK),
                "ServerSentEventUri": EVENTS,
            },
        )


def _fabric(tree: Tree, configuration: Configuration) -> None:
    uri, kind = (CONNECTIONS, "Connection") if configuration.method == "connections" else (ZONES, "Zone")
    tree.collection(f"{ROOT}/Fabrics", "Fabric", "Fabrics")
    tree.put(
        FABRIC,
        {
            "@odata.type": "#Fabric.v1_3_2.Fabric",
            "Id": "PCIe",
            "Name": "PCIe fabric",
            "FabricType": "PCIe",
            "Status": dict(OK),
            "Endpoints": reference(ENDPOINTS),
            f"{kind}s": reference(uri),
        },
    )
    tree.collection(ENDPOINTS, "Endpoint", "Endpoints")
    tree.collection(uri, kind, f"{kind}s")


def _host(tree: Tree, host: Host, configuration: Configuration) -> None:
    uri = f"{SYSTEMS}/{host.id}"
    body: Body = {
        "@odata.type": "#ComputerSystem.v1_24_0.ComputerSystem",
        "Id": host.id,
        "Name": f"Host {host.id}",
        "SystemType": "Physical",
        "HostName": host.id,
        "SerialNumber": host.serial or host.id.upper(),
        "UUID": host.uuid or str(uuid.uuid5(uuid.NAMESPACE_URL, f"host:{host.id}")),
        "PowerState": "On",
        "Status": dict(OK),
        "Links": {},
    }
    if configuration.method == "composition":
        body["SystemType"] = "Composed"
        body["Links"] = {"ResourceBlocks": [reference(block(host.id))] if configuration.is_divided else []}
        if configuration.actions:
            body["Actions"] = {
                f"#ComputerSystem.{name}": {"target": f"{uri}/Actions/ComputerSystem.{name}"}
                for name in ("AddResourceBlock", "RemoveResourceBlock")
            }
    tree.put(uri, body)
    if configuration.is_divided and not configuration.has_fabric:
        _compute_block(tree, host)
    if configuration.has_fabric:
        entity = {
            "EntityType": "RootComplex",
            "EntityRole": "Initiator",
            "EntityLink": reference(uri),
            "Identifiers": [{"DurableName": body["UUID"], "DurableNameFormat": "UUID"}],
        }
        _endpoint(tree, host.id, f"Port of {host.id}", [entity])
        if configuration.method == "zones" and configuration.zones == "port":
            tree.put(f"{ZONES}/{host.id}", zone(host.id, [endpoint(host.id)], configuration))


def _port(tree: Tree, host: Host) -> None:
    """Add the endpoint of the appliance's port with the host."""
    octets = uuid.uuid5(uuid.NAMESPACE_URL, f"port:{host.id}").bytes[:8].hex("-")
    gcxlid = {"DurableName": f"{octets}:0000", "DurableNameFormat": "GCXLID"}
    _endpoint(tree, host.id, f"Port of {host.id}", [])
    links = {"Connections": [], "Connections@odata.count": 0}
    tree.update(endpoint(host.id), Identifiers=[gcxlid], Links=links)


def zone(
    name: str, endpoints: list[str], configuration: Configuration, given: Mapping[str, Any] | None = None
) -> Body:
    """Return a zone of endpoints, with what a client has given besides."""
    uri = f"{ZONES}/{name}"
    body: Body = {
        "@odata.type": "#Zone.v1_6_3.Zone",
        "Id": name,
        "Name": f"Zone {name}",
        "ZoneType": "ZoneOfEndpoints",
        "Status": dict(OK),
        "Links": {
            "Endpoints": [reference(endpoint_uri) for endpoint_uri in endpoints],
            "Endpoints@odata.count": len(endpoints),
        },
    }
    if configuration.actions:
        body["Actions"] = {
            f"#Zone.{action}": {"target": f"{uri}/Actions/Zone.{action}"}
            for action in ("AddEndpoint", "RemoveEndpoint")
        }
    return body | dict(given or {})


def connection(
    name: str, initiators: list[str], targets: list[str], chunks: list[str], given: Mapping[str, Any]
) -> Body:
    """Return a connection of memory chunks, with what a client has given besides."""
    links = {"InitiatorEndpoints": initiators, "TargetEndpoints": targets}
    body: Body = {
        "@odata.type": "#Connection.v1_4_0.Connection",
        "Id": name,
        "Name": f"Connection {name}",
        "ConnectionType": "Memory",
        "Status": dict(OK),
        "MemoryChunkInfo": [
            {"AccessCapabilities": ["Read", "Write"], "MemoryChunk": reference(chunk)} for chunk in chunks
        ],
        "Links": {
            key: value
            for kind, uris in links.items()
            if uris
            for key, value in (
                (kind, [reference(uri) for uri in uris]),
                (f"{kind}@odata.count", len(uris)),
            )
        },
    }
    return body | dict(given)


def show_connection(tree: Tree, uri: str, *, is_made: bool) -> None:
    """Show an appliance's connection at its ports and chunks, or take it back before its end."""
    body = tree[uri]
    ports = [entry["@odata.id"] for entry in body["Links"].get("TargetEndpoints", ())]
    chunks = [information["MemoryChunk"]["@odata.id"] for information in body["MemoryChunkInfo"]]
    shown = [(port, "Connections", uri) for port in ports]
    shown += [(chunk, "Endpoints", port) for chunk in chunks for port in ports]
    for owner, name, target in shown:
        links = tree[owner]["Links"]
        listed = [entry for entry in links[name] if entry["@odata.id"] != target]
        listed += [reference(target)] if is_made else []
        tree.update(owner, Links=links | {name: listed, f"{name}@odata.count": len(listed)})


def ends(body: Mapping[str, Any]) -> list[str]:
    """Return the URIs of the endpoints in a zone or connection, and of the memory chunks of one without an initiator."""
    links = body["Links"]
    names = ("Endpoints", "InitiatorEndpoints", "TargetEndpoints")
    listed = [entry["@odata.id"] for name in names for entry in links.get(name, ())]
    if "MemoryChunkInfo" in body and "InitiatorEndpoints" not in links:
        listed += [information["MemoryChunk"]["@odata.id"] for information in body["MemoryChunkInfo"]]
    return listed


def _endpoint(tree: Tree, name: str, text: str, entities: list[Body]) -> None:
    tree.put(
        endpoint(name),
        {
            "@odata.type": "#Endpoint.v1_8_2.Endpoint",
            "Id": name,
            "Name": text,
            "EndpointProtocol": "PCIe",
            "ConnectedEntities": entities,
            "Status": dict(OK),
            "Links": {},
        },
    )


def _enclosure(tree: Tree, enclosure: Enclosure, configuration: Configuration) -> None:
    uri = f"{ROOT}/Chassis/{enclosure.id}"
    tree.put(
        uri,
        {
            "@odata.type": "#Chassis.v1_27_0.Chassis",
            "Id": enclosure.id,
            "Name": f"Enclosure {enclosure.id}",
            "ChassisType": "Expansion",
            "Status": dict(OK),
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
        _put_domains(tree, uri)
    for device in enclosure.devices:
        _device(tree, f"{uri}/PCIeDevices/{device.id}", device, configuration)


def _blade(tree: Tree, enclosure: Enclosure, configuration: Configuration) -> None:
    """Add the system of an appliance that has the memory."""
    uri = f"{SYSTEMS}/{enclosure.id}"
    tree.put(
        uri,
        {
            "@odata.type": "#ComputerSystem.v1_24_0.ComputerSystem",
            "Id": enclosure.id,
            "Name": f"Blade {enclosure.id}",
            "SystemType": "Physical",
            "Status": dict(OK),
            "Links": {},
        },
    )
    _put_domains(tree, uri)
    for device in enclosure.devices:
        chunk = chunk_uri(enclosure.id, device.id, configuration)
        tree.put(chunk, _chunk(device.id, f"Memory of {device.id}", device.memory_mib))
    _put_dimms(tree, enclosure)


def _put_dimms(tree: Tree, enclosure: Enclosure) -> None:
    """Add the memory modules of a blade, and the resource blocks in them: a chunk has one block of each module."""
    chassis = f"{ROOT}/Chassis/{enclosure.id}"
    modules = f"{chassis}/Memory"
    tree.put(
        chassis,
        {
            "@odata.type": "#Chassis.v1_26_0.Chassis",
            "Id": enclosure.id,
            "Name": f"Enclosure of blade {enclosure.id}",
            "ChassisType": "Enclosure",
            "SerialNumber": f"SN-{enclosure.id}".upper(),
            "Status": dict(OK),
            "Memory": reference(modules),
        },
    )
    tree.collection(modules, "Memory", "Memory")
    capacity = sum(device.memory_mib for device in enclosure.devices) // DIMMS
    for dimm in range(DIMMS):
        tree.put(f"{modules}/dimm{dimm}", _module(f"dimm{dimm}", capacity))
    for number, (device, dimm) in enumerate(itertools.product(enclosure.devices, range(DIMMS))):
        name = f"block{number // DIMMS}dimm{dimm}"
        tree.put(f"{modules}/{name}", _module(name, device.memory_mib // DIMMS))
        tree.put(
            f"{BLOCKS}/{enclosure.id}-resourceblock{number}",
            {
                "@odata.type": "#ResourceBlock.v1_4_3.ResourceBlock",
                "Id": f"{enclosure.id}-resourceblock{number}",
                "Name": f"Block {number} of {enclosure.id}",
                "ResourceBlockType": ["Memory"],
                "Status": dict(OK),
                "CompositionStatus": {"CompositionState": "Composed", "Reserved": True},
                "Memory": [reference(f"{modules}/{name}")],
            },
        )


def _module(name: str, capacity_mib: int) -> Body:
    return {
        "@odata.type": "#Memory.v1_22_0.Memory",
        "Id": name,
        "Name": f"Memory {name}",
        "MemoryType": "DRAM",
        "MemoryDeviceType": "DDR5",
        "CapacityMiB": capacity_mib,
        "DataWidthBits": 64,
        "OperatingSpeedMhz": 4800,
        "RankCount": 2,
        "Status": dict(OK),
    }


def _put_domains(tree: Tree, owner: str) -> None:
    """Add the memory domains of a system or chassis: the one whose chunks clients do not make."""
    tree.update(owner, MemoryDomains=reference(f"{owner}/MemoryDomains"))
    tree.collection(f"{owner}/MemoryDomains", "MemoryDomain", "Memory Domains")
    _put_domain(tree, f"{owner}/MemoryDomains/{DOMAIN}", {"AllowsMemoryChunkCreation": False})


def _device(tree: Tree, uri: str, device: Device, configuration: Configuration) -> None:
    kind = _KINDS[device.kind]
    common: Body = {
        "Id": device.id,
        "Name": f"{device.vendor} {device.model}",
        "Model": device.model,
        "Manufacturer": device.vendor,
        "Status": dict(OK),
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
            "Status": dict(OK),
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
            _put_domain(tree, _domain(uri, device), size | limits | links)
        elif configuration.method == "connections":
            chunk = chunk_uri(uri.split("/")[4], device.id, configuration)
            tree.put(chunk, _chunk(device.id, f"Memory of {device.id}", device.memory_mib, device.id))
            entities.append(
                {"EntityType": "MemoryChunk", "EntityRole": "Target", "EntityLink": reference(chunk)}
            )
        _endpoint(tree, device.id, f"{device.vendor} {device.model}", entities)
        return
    part = _put_part(tree, uri, device, common)
    name, _, block_type = _PARTS[kind.part]
    tree.put(
        block(device.id),
        {
            "@odata.type": "#ResourceBlock.v1_4_3.ResourceBlock",
            "Id": device.id,
            "Name": f"{device.vendor} {device.model}",
            "ResourceBlockType": [block_type],
            "Status": dict(OK),
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


def _domain(uri: str, device: Device) -> str:
    """Return the URI of the memory domain of a PCIe device whose memory is carved."""
    return f"{uri.removesuffix(f'/PCIeDevices/{device.id}')}/MemoryDomains/{device.id}"


def _put_fabric_adapter(tree: Tree, uri: str, device: Device) -> str:
    """Add what connects a memory device with the fabric, and return its URI."""
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
            "Status": dict(OK),
        },
    )
    return f"{collection}/{device.id}"


def _put_domain(tree: Tree, uri: str, properties: Body) -> None:
    """Add a memory domain without chunks."""
    name = uri.rpartition("/")[2]
    tree.put(
        uri,
        {
            "@odata.type": "#MemoryDomain.v1_5_1.MemoryDomain",
            "Id": name,
            "Name": f"Memory Domain {name}",
            "Status": dict(OK),
            "MemoryChunks": reference(f"{uri}/MemoryChunks"),
            **properties,
        },
    )
    tree.collection(f"{uri}/MemoryChunks", "MemoryChunks", "Memory Chunks")


def put_slice(tree: Tree, uri: str, size_mib: int, given: Mapping[str, Any]) -> None:
    """Add a memory chunk that a client requests, with the client's other values, and the endpoint of the chunk."""
    domain, number = uri.removesuffix("/MemoryChunks/" + uri.rpartition("/")[2]), uri.rpartition("/")[2]
    name = f"{domain.rpartition('/')[2]}-{number}"
    entity = {"EntityType": "MemoryChunk", "EntityRole": "Target", "EntityLink": reference(uri)}
    tree.put(uri, _chunk(number, f"Memory Chunk {number}", size_mib, name) | dict(given))
    _endpoint(tree, name, f"Memory of {name}", [entity])


def remove_slice(tree: Tree, uri: str) -> None:
    """Remove a memory chunk that a client made, and its endpoint."""
    for end in tree[uri]["Links"]["Endpoints"]:
        tree.remove(end["@odata.id"])
    tree.remove(uri)


def _chunk(name: str, text: str, size_mib: int, *endpoints: str) -> Body:
    return {
        "@odata.type": "#MemoryChunks.v1_6_2.MemoryChunks",
        "Id": name,
        "Name": text,
        "AddressRangeType": "Volatile",
        "MemoryChunkSizeMiB": size_mib,
        "Status": dict(OK),
        "Links": {
            "Endpoints": [reference(endpoint(each)) for each in endpoints],
            "Endpoints@odata.count": len(endpoints),
        },
    }


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
            "Status": dict(OK),
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
            "Status": dict(OK),
        },
    )
