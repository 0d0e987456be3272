"""Quirks of parts: processors and disks among the devices, other fabrics, other links, and identifiers that identify nothing."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from drawbar.mocks.redfish import ends, paths
from drawbar.mocks.redfish.configuration import Configuration
from drawbar.mocks.redfish.exchange import Answer, Asked
from drawbar.mocks.redfish.quirks.quirk import (
    LINK,
    WITH_BLOCKS,
    WITH_FABRIC,
    WITH_ZONES,
    Form,
    Forward,
    Quirk,
    Setting,
    is_of_schema,
    map_objects,
)
from drawbar.mocks.redfish.tree import ROOT, Body, Tree, reference

CPU = "#Processor.v1_20_0.Processor"


def _put_block(tree: Tree, name: str, array: str, part: Mapping[str, Any], **properties: Any) -> None:
    """Add a resource block with one part, in no system."""
    uri = paths.block(name)
    tree.put(f"{uri}/{array}/1", {"Id": "1", "Name": name, "Status": dict(paths.OK), **part})
    tree.put(
        uri,
        {
            "@odata.type": "#ResourceBlock.v1_4_3.ResourceBlock",
            "Id": name,
            "Name": name,
            "ResourceBlockType": [],
            "Status": dict(paths.OK),
            "CompositionStatus": {"CompositionState": "Unused", "Reserved": False},
            array: [reference(f"{uri}/{array}/1")],
            "Links": {"ComputerSystems": []},
            **properties,
        },
    )


def _add_cpu_blocks(tree: Tree, configuration: Configuration) -> None:
    """Give each system a block with its processor, and add one that is in no system."""
    cpu = {"@odata.type": CPU, "ProcessorType": "CPU", "Model": "Xeon", "SerialNumber": "CPU-1"}
    for host in configuration.hosts:
        system = reference(f"{paths.SYSTEMS}/{host.id}")
        # Also where it has one without parts.
        if paths.block(host.id) in tree:
            tree.remove(paths.block(host.id))
        composed = {"CompositionState": "Composed", "Reserved": False}
        _put_block(
            tree,
            host.id,
            "Processors",
            cpu,
            CompositionStatus=composed,
            Links={"ComputerSystems": [system]},
        )
        tree.update(system[LINK], Links={"ResourceBlocks": [reference(paths.block(host.id))]})
    _put_block(tree, "spare-cpu", "Processors", cpu)


def _add_dimm(tree: Tree, _configuration: Configuration) -> None:
    dimm = {"MemoryType": "DRAM", "MemoryDeviceType": "DDR4", "CapacityMiB": 4096, "SerialNumber": "150001"}
    _put_block(tree, "dimm", "Memory", {"@odata.type": "#Memory.v1_20_0.Memory", **dimm})


def _add_sas_drive(tree: Tree, _configuration: Configuration) -> None:
    drive = {"Protocol": "SAS", "MediaType": "HDD", "Model": "AL14SEB030NY", "SerialNumber": "67N0A0FHFL5E"}
    _put_block(tree, "sas-drive", "Drives", {"@odata.type": "#Drive.v1_21_0.Drive", **drive})


def _add_network_block(tree: Tree, _configuration: Configuration) -> None:
    functions = {"Links": {"NetworkDeviceFunctions": [reference(f"{paths.block('network')}/none")]}}
    interface = {"MACAddress": "52:54:00:1c:96:5f", **functions}
    kind = {"@odata.type": "#EthernetInterface.v1_12_0.EthernetInterface"}
    _put_block(tree, "network", "EthernetInterfaces", {**kind, **interface}, ResourceBlockType=["Network"])


def _add_storage_blocks(tree: Tree, _configuration: Configuration) -> None:
    for name, array in (("storage", "Storage"), ("simple-storage", "SimpleStorage")):
        storage = f"{paths.block(name)}/Storages/1"
        drive = {"Protocol": "NVMe", "MediaType": "SSD", "Model": "PM1733", "SerialNumber": f"SN-{name}"}
        tree.put(
            f"{storage}/Drives/1",
            {"@odata.type": "#Drive.v1_21_0.Drive", "Id": "1", "Name": "Drive", **drive},
        )
        tree.put(
            storage,
            {
                "@odata.type": "#Storage.v1_17_0.Storage",
                "Id": "1",
                "Name": "Storage",
                "Drives": [reference(f"{storage}/Drives/1")],
            },
        )
        simple = {"@odata.type": "#SimpleStorage.v1_3_2.SimpleStorage", "Devices": [{"Name": "disk"}]}
        _put_block(
            tree,
            name,
            array,
            {**simple, "Links": {"Storage": reference(storage)}},
            ResourceBlockType=["Storage"],
        )
        if array == "Storage":
            tree.update(paths.block(name), Storage=[reference(storage)])


def _add_fabrics(tree: Tree, _configuration: Configuration) -> None:
    for kind, types in (("Ethernet", ("NetworkController",) * 2), ("SAS", ("StorageInitiator", "Drive"))):
        fabric = f"{ROOT}/Fabrics/{kind}"
        links = {name: reference(f"{fabric}/{name}") for name in ("Endpoints", "Zones")}
        described = {"Id": kind, "Name": kind, "FabricType": kind, **links}
        tree.put(fabric, {"@odata.type": "#Fabric.v1_3_2.Fabric", **described})
        tree.collection(f"{fabric}/Endpoints", "Endpoint", "Endpoints")
        tree.collection(f"{fabric}/Zones", "Zone", "Zones")
        for role, entity_type in zip(("Initiator", "Target"), types, strict=True):
            entity = {"EntityType": entity_type, "EntityRole": role}
            shown = {"Id": role, "Name": role, "EndpointProtocol": kind, "ConnectedEntities": [entity]}
            tree.put(
                f"{fabric}/Endpoints/{role}",
                {"@odata.type": "#Endpoint.v1_8_2.Endpoint", **shown, "Links": {}},
            )


def _put_device(tree: Tree, name: str) -> None:
    """Add the endpoint of a device that nothing else describes."""
    ends.put_endpoint(tree, name, name, [{"EntityType": "Processor", "EntityRole": "Target"}])


def _add_twins(tree: Tree, _configuration: Configuration) -> None:
    for name in ("twin-1", "twin-2"):
        _put_device(tree, name)
        tree.update(paths.endpoint(name), Id="twin")


def _share_zone(tree: Tree, configuration: Configuration) -> None:
    _put_device(tree, "shared")
    members = [paths.endpoint(name) for name in (*(host.id for host in configuration.hosts), "shared")]
    tree.put(f"{paths.ZONES}/shared", ends.zone("shared", members, configuration))


async def _show_placeholders(asked: Asked, forward: Forward, _setting: Setting) -> Answer:
    none = {"UUID": "00000000-0000-0000-0000-000000000000", "SerialNumber": "To be filled by O.E.M."}
    return await _show(
        asked,
        forward,
        lambda body: {**body, **none} if is_of_schema(body, "ComputerSystem") else body,
    )


async def _show_one_identity(asked: Asked, forward: Forward, _setting: Setting) -> Answer:
    same = {
        "UUID": "38947555-7742-3448-3784-823347823834",
        "SerialNumber": "437XR1138R2",
        "HostName": "web483",
    }
    return await _show(
        asked,
        forward,
        lambda body: {**body, **same} if is_of_schema(body, "ComputerSystem") else body,
    )


async def _show_pci_id(asked: Asked, forward: Forward, _setting: Setting) -> Answer:
    def change(body: Body) -> Body:
        entities = body.get("ConnectedEntities")
        if not is_of_schema(body, "Endpoint") or not isinstance(entities, list):
            return body
        ids = [each["EntityPciId"] for each in entities if "EntityPciId" in each]
        rest = [{name: value for name, value in each.items() if name != "EntityPciId"} for each in entities]
        return {**body, "ConnectedEntities": rest} | ({"PciId": ids[0]} if ids else {})

    return await _show(asked, forward, change)


async def _show_ports(asked: Asked, forward: Forward, _setting: Setting) -> Answer:
    def change(body: Body) -> Body:
        links = body.get("Links")
        if not is_of_schema(body, "Endpoint") or not isinstance(links, dict) or "ConnectedPorts" not in links:
            return body
        rest = {name: value for name, value in links.items() if name != "ConnectedPorts"}
        return {**body, "Links": {**rest, "Ports": links["ConnectedPorts"]}}

    return await _show(asked, forward, change)


async def _show_untyped_blocks(asked: Asked, forward: Forward, _setting: Setting) -> Answer:
    def change(body: Body) -> Body:
        return {**body, "ResourceBlockType": []} if is_of_schema(body, "ResourceBlock") else body

    return await _show(asked, forward, change)


async def _show(asked: Asked, forward: Forward, change: Any) -> Answer:
    """Return the answer with each resource in it changed."""
    answer = await forward(asked)
    return replace(answer, body=map_objects(answer.body, change))


QUIRKS = (
    Quirk(
        name="cpu-blocks",
        text="Each host has an untyped block with its CPU; another is free.",
        seen="NEC hw-emulator-reference, DMTF Redfish-Interface-Emulator",
        forms=WITH_BLOCKS,
        furnish=_add_cpu_blocks,
    ),
    Quirk(
        name="untyped-blocks",
        text="Resource blocks have no type.",
        seen="NEC hw-emulator-reference",
        forms=WITH_BLOCKS,
        wrap=_show_untyped_blocks,
    ),
    Quirk(
        name="dimm-block",
        text="A resource block has a DIMM.",
        seen="NEC hw-emulator-reference",
        forms=WITH_BLOCKS,
        furnish=_add_dimm,
    ),
    Quirk(
        name="sas-block",
        text="A resource block has a SAS disk.",
        seen="DMTF `public-compose-action`",
        forms=WITH_BLOCKS,
        furnish=_add_sas_drive,
    ),
    Quirk(
        name="network-block",
        text="A block has only an EthernetInterface, with a link to a missing function.",
        seen="NEC hw-emulator-reference",
        forms=WITH_BLOCKS,
        furnish=_add_network_block,
    ),
    Quirk(
        name="storage-blocks",
        text="Two blocks have their drives behind a Storage and a SimpleStorage.",
        seen="DMTF `public-compose-action`, `public-composability`",
        forms=frozenset({Form.COMPOSITION}),
        furnish=_add_storage_blocks,
    ),
    Quirk(
        name="other-fabrics",
        text="There are also an Ethernet and a SAS fabric.",
        seen="SNIA Swordfish-API-Emulator, DMTF `public-sasfabric`",
        forms=frozenset({Form.PAIR, Form.PORT}),
        furnish=_add_fabrics,
    ),
    Quirk(
        name="pci-id",
        text="Endpoints have PciId in place of EntityPciId.",
        seen="Intel's PNC simulator, DMTF `public-cxl`",
        forms=WITH_FABRIC - {Form.APPLIANCE},
        wrap=_show_pci_id,
    ),
    Quirk(
        name="links-ports",
        text="Endpoints have Ports in place of ConnectedPorts.",
        seen="Intel's PNC simulator, Sunfish",
        forms=WITH_FABRIC,
        wrap=_show_ports,
    ),
    Quirk(
        name="twin-ids",
        text="Two further endpoints share an Id.",
        seen="",
        forms=WITH_ZONES,
        furnish=_add_twins,
    ),
    Quirk(
        name="shared-zone",
        text="A further device is in a zone with all hosts.",
        seen="",
        forms=frozenset({Form.PAIR}),
        furnish=_share_zone,
    ),
    Quirk(
        name="host-placeholders",
        text="Hosts have a UUID of zeros and a placeholder serial number.",
        seen="NEC hw-emulator-reference",
        wrap=_show_placeholders,
    ),
    Quirk(
        name="one-identity",
        text="All hosts share one UUID, serial number and host name.",
        seen="DMTF `public-compose-action`, `public-cxl-multiswitch`",
        wrap=_show_one_identity,
    ),
)
