"""Memory that is shared in chunks: the domains of chassis and blades, their modules and their chunks."""

import itertools
from collections.abc import Mapping
from typing import Any

from drawbar.mocks.redfish import ends, paths
from drawbar.mocks.redfish.configuration import Configuration, Device, Enclosure
from drawbar.mocks.redfish.tree import ROOT, Body, Tree, reference

# Memory modules of a blade.
DIMMS = 4


def put_blade(tree: Tree, enclosure: Enclosure, configuration: Configuration) -> None:
    """Add the system of an appliance that has the memory."""
    uri = f"{paths.SYSTEMS}/{enclosure.id}"
    tree.put(
        uri,
        {
            "@odata.type": "#ComputerSystem.v1_24_0.ComputerSystem",
            "Id": enclosure.id,
            "Name": f"Blade {enclosure.id}",
            "SystemType": "Physical",
            "Status": dict(paths.OK),
            "Links": {},
        },
    )
    put_domains(tree, uri)
    for device in enclosure.devices:
        uri_of_chunk = paths.chunk_uri(enclosure.id, device.id, configuration)
        tree.put(uri_of_chunk, chunk(device.id, f"Memory of {device.id}", device.memory_mib))
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
            "Status": dict(paths.OK),
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
            f"{paths.BLOCKS}/{enclosure.id}-resourceblock{number}",
            {
                "@odata.type": "#ResourceBlock.v1_4_3.ResourceBlock",
                "Id": f"{enclosure.id}-resourceblock{number}",
                "Name": f"Block {number} of {enclosure.id}",
                "ResourceBlockType": ["Memory"],
                "Status": dict(paths.OK),
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
        "Status": dict(paths.OK),
    }


def put_domains(tree: Tree, owner: str) -> None:
    """Add the memory domains of a system or chassis: the one whose chunks clients do not make."""
    tree.update(owner, MemoryDomains=reference(f"{owner}/MemoryDomains"))
    tree.collection(f"{owner}/MemoryDomains", "MemoryDomain", "Memory Domains")
    put_domain(tree, f"{owner}/MemoryDomains/{paths.DOMAIN}", {"AllowsMemoryChunkCreation": False})


def domain_uri(uri: str, device: Device) -> str:
    """Return the URI of the memory domain of a PCIe device whose memory is carved."""
    return f"{uri.removesuffix(f'/PCIeDevices/{device.id}')}/MemoryDomains/{device.id}"


def put_domain(tree: Tree, uri: str, properties: Body) -> None:
    """Add a memory domain without chunks."""
    name = uri.rpartition("/")[2]
    tree.put(
        uri,
        {
            "@odata.type": "#MemoryDomain.v1_5_1.MemoryDomain",
            "Id": name,
            "Name": f"Memory Domain {name}",
            "Status": dict(paths.OK),
            "MemoryChunks": reference(f"{uri}/MemoryChunks"),
            **properties,
        },
    )
    tree.collection(f"{uri}/MemoryChunks", "MemoryChunks", "Memory Chunks")


def put_slice(tree: Tree, uri: str, size_mib: int, properties: Mapping[str, Any]) -> None:
    """Add a memory chunk that a client requests, with the client's other values, and the endpoint of the chunk."""
    domain, number = uri.removesuffix("/MemoryChunks/" + uri.rpartition("/")[2]), uri.rpartition("/")[2]
    name = f"{domain.rpartition('/')[2]}-{number}"
    entity = {"EntityType": "MemoryChunk", "EntityRole": "Target", "EntityLink": reference(uri)}
    tree.put(uri, chunk(number, f"Memory Chunk {number}", size_mib, name) | dict(properties))
    ends.put_endpoint(tree, name, f"Memory of {name}", [entity])


def remove_slice(tree: Tree, uri: str) -> None:
    """Remove a memory chunk that a client made, and its endpoint."""
    for end in tree[uri]["Links"]["Endpoints"]:
        tree.remove(end["@odata.id"])
    tree.remove(uri)


def chunk(name: str, text: str, size_mib: int, *endpoints: str) -> Body:
    """Return a memory chunk with these endpoints."""
    return {
        "@odata.type": "#MemoryChunks.v1_6_2.MemoryChunks",
        "Id": name,
        "Name": text,
        "AddressRangeType": "Volatile",
        "MemoryChunkSizeMiB": size_mib,
        "Status": dict(paths.OK),
        "Links": {
            "Endpoints": [reference(paths.endpoint(each)) for each in endpoints],
            "Endpoints@odata.count": len(endpoints),
        },
    }
