"""The initial resources of a Redfish service."""

import uuid

from drawbar.mocks.redfish import devices, ends, memory, paths
from drawbar.mocks.redfish.configuration import Configuration, Host
from drawbar.mocks.redfish.tree import ROOT, Body, Tree, reference


def create(configuration: Configuration) -> Tree:
    """Return the tree of a service that was just installed."""
    tree = Tree()
    _services(tree, configuration)
    tree.collection(paths.SYSTEMS, "ComputerSystem", "Systems")
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
                "Status": dict(paths.OK),
                "ServiceEnabled": True,
                "ResourceBlocks": reference(paths.BLOCKS),
            }
            | (
                {"ResourceZones": reference(paths.RESOURCE_ZONES)}
                if configuration.is_divided and not configuration.has_fabric
                else {}
            ),
        )
        tree.collection(paths.BLOCKS, "ResourceBlock", "Resource Blocks")
    if configuration.constrained:
        _capabilities(tree)
    for host in configuration.hosts:
        if configuration.is_appliance:
            _port(tree, host)
        else:
            _host(tree, host, configuration)
    for enclosure in configuration.enclosures:
        if configuration.is_appliance:
            memory.put_blade(tree, enclosure, configuration)
        else:
            devices.put_enclosure(tree, enclosure, configuration)
    if configuration.is_appliance and configuration.enclosures:
        # The blade's ports are on one switch, the first blade's.
        _switches(tree)
        ports = [(host.id, "UpstreamPort") for host in configuration.hosts]
        _switch(tree, configuration.enclosures[0].id, ports)
    if configuration.is_divided:
        _divide(tree, configuration)
    return tree


def _divide(tree: Tree, configuration: Configuration) -> None:
    """Keep an enclosure apart from hosts without a cable to it: by a switch, or a resource zone."""
    members = [(host.id, "UpstreamPort") for host in configuration.hosts]
    members += [
        (device.id, "DownstreamPort")
        for enclosure in configuration.enclosures
        for device in enclosure.devices
    ]
    if configuration.has_fabric:
        _switches(tree)
    else:
        tree.collection(paths.RESOURCE_ZONES, "Zone", "Resource Zones")
    for enclosure in configuration.enclosures:
        own = [(name, kind) for name, kind in members if enclosure.id in configuration.enclosures_of(name)]
        if configuration.has_fabric:
            _switch(tree, enclosure.id, own)
        else:
            _resource_zone(tree, enclosure.id, [name for name, _ in own])


def _switches(tree: Tree) -> None:
    tree.update(paths.FABRIC, Switches=reference(paths.SWITCHES))
    tree.collection(paths.SWITCHES, "Switch", "Switches")


def _switch(tree: Tree, name: str, members: list[tuple[str, str]]) -> None:
    uri = f"{paths.SWITCHES}/{name}"
    tree.put(
        uri,
        {
            "@odata.type": "#Switch.v1_9_3.Switch",
            "Id": name,
            "Name": f"Switch of {name}",
            "SwitchType": "PCIe",
            "Status": dict(paths.OK),
            "Ports": reference(f"{uri}/Ports"),
        },
    )
    tree.collection(f"{uri}/Ports", "Port", "Ports")
    for end, kind in members:
        port = f"{uri}/Ports/{end}"
        tree.put(
            port,
            {
                "@odata.type": "#Port.v1_18_0.Port",
                "Id": end,
                "Name": f"Port to {end}",
                "PortType": kind,
                "LinkStatus": "LinkUp",
                "Status": dict(paths.OK),
                "Links": {"AssociatedEndpoints": [reference(paths.endpoint(end))]},
            },
        )
        links = tree[paths.endpoint(end)]["Links"]
        connected = {"ConnectedPorts": [*links.get("ConnectedPorts", ()), reference(port)]}
        tree.update(paths.endpoint(end), Links=links | connected)


def _resource_zone(tree: Tree, name: str, members: list[str]) -> None:
    tree.put(
        f"{paths.RESOURCE_ZONES}/{name}",
        {
            "@odata.type": "#Zone.v1_6_3.Zone",
            "Id": name,
            "Name": f"Resource Zone {name}",
            "ZoneType": "ZoneOfResourceBlocks",
            "Status": dict(paths.OK),
            "Links": {"ResourceBlocks": [reference(paths.block(end)) for end in members]},
        },
    )


def _compute_block(tree: Tree, host: Host) -> None:
    """Add the resource block that a machine is, which stays in its system."""
    tree.put(
        paths.block(host.id),
        {
            "@odata.type": "#ResourceBlock.v1_4_3.ResourceBlock",
            "Id": host.id,
            "Name": f"Compute of {host.id}",
            "ResourceBlockType": ["Compute"],
            "Status": dict(paths.OK),
            "CompositionStatus": {
                "CompositionState": "Composed",
                "Reserved": False,
                "MaxCompositions": 1,
                "NumberOfCompositions": 1,
                "SharingCapable": False,
            },
            "Links": {"ComputerSystems": [reference(f"{paths.SYSTEMS}/{host.id}")]},
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
        paths.CAPABILITIES,
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
        "CapabilitiesObject": reference(paths.CAPABILITIES),
        "UseCase": "ComputerSystemConstrainedComposition",
        "Links": {"TargetCollection": reference(paths.SYSTEMS)},
    }
    annotation = {
        "@odata.type": "#CollectionCapabilities.v1_4_1.CollectionCapabilities",
        "Capabilities": [offered],
    }
    tree.update(paths.SYSTEMS, **{"@Redfish.CollectionCapabilities": annotation})


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
            "Systems": reference(paths.SYSTEMS),
            "Chassis": reference(f"{ROOT}/Chassis"),
            "Tasks": reference(f"{ROOT}/TaskService"),
            **connects,
            "Links": {"Sessions": reference(paths.SESSIONS)} if has_sessions else {},
        },
    )
    tree.put(
        f"{ROOT}/TaskService",
        {
            "@odata.type": "#TaskService.v1_2_1.TaskService",
            "Id": "TaskService",
            "Name": "Task Service",
            "ServiceEnabled": True,
            "Status": dict(paths.OK),
            "Tasks": reference(paths.TASKS),
        },
    )
    tree.collection(paths.TASKS, "Task", "Tasks")
    if has_sessions:
        tree.put(
            f"{ROOT}/SessionService",
            {
                "@odata.type": "#SessionService.v1_1_9.SessionService",
                "Id": "SessionService",
                "Name": "Session Service",
                "ServiceEnabled": True,
                "SessionTimeout": 1800,
                "Status": dict(paths.OK),
                "Sessions": reference(paths.SESSIONS),
            },
        )
        tree.collection(paths.SESSIONS, "Session", "Sessions")
    if configuration.events:
        tree.put(
            f"{ROOT}/EventService",
            {
                "@odata.type": "#EventService.v1_10_3.EventService",
                "Id": "EventService",
                "Name": "Event Service",
                "ServiceEnabled": True,
                "Status": dict(paths.OK),
                "ServerSentEventUri": paths.EVENTS,
            },
        )


def _fabric(tree: Tree, configuration: Configuration) -> None:
    uri, kind = (
        (paths.CONNECTIONS, "Connection") if configuration.method == "connections" else (paths.ZONES, "Zone")
    )
    tree.collection(f"{ROOT}/Fabrics", "Fabric", "Fabrics")
    tree.put(
        paths.FABRIC,
        {
            "@odata.type": "#Fabric.v1_3_2.Fabric",
            "Id": "PCIe",
            "Name": "PCIe fabric",
            "FabricType": "PCIe",
            "Status": dict(paths.OK),
            "Endpoints": reference(paths.ENDPOINTS),
            f"{kind}s": reference(uri),
        },
    )
    tree.collection(paths.ENDPOINTS, "Endpoint", "Endpoints")
    tree.collection(uri, kind, f"{kind}s")


def _host(tree: Tree, host: Host, configuration: Configuration) -> None:
    uri = f"{paths.SYSTEMS}/{host.id}"
    body: Body = {
        "@odata.type": "#ComputerSystem.v1_24_0.ComputerSystem",
        "Id": host.id,
        "Name": f"Host {host.id}",
        "SystemType": "Physical",
        "HostName": host.id,
        "SerialNumber": host.serial or host.id.upper(),
        "UUID": host.uuid or str(uuid.uuid5(uuid.NAMESPACE_URL, f"host:{host.id}")),
        "PowerState": "On",
        "Status": dict(paths.OK),
        "Links": {},
    }
    if configuration.method == "composition":
        body["SystemType"] = "Composed"
        body["Links"] = {
            "ResourceBlocks": [reference(paths.block(host.id))] if configuration.is_divided else []
        }
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
        ends.put_endpoint(tree, host.id, f"Port of {host.id}", [entity])
        if configuration.method == "zones" and configuration.zones == "port":
            tree.put(f"{paths.ZONES}/{host.id}", ends.zone(host.id, [paths.endpoint(host.id)], configuration))


def _port(tree: Tree, host: Host) -> None:
    """Add the endpoint of the appliance's port with the host."""
    octets = uuid.uuid5(uuid.NAMESPACE_URL, f"port:{host.id}").bytes[:8].hex("-")
    gcxlid = {"DurableName": f"{octets}:0000", "DurableNameFormat": "GCXLID"}
    ends.put_endpoint(tree, host.id, f"Port of {host.id}", [])
    links = {"Connections": [], "Connections@odata.count": 0}
    tree.update(paths.endpoint(host.id), Identifiers=[gcxlid], Links=links)
