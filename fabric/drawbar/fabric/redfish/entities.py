"""Endpoints and resource blocks of a Redfish service as devices and hosts of the contract; pure.

The properties are those of the schemas Endpoint 1.8, PCIeDevice 1.21, PCIeFunction 1.6, CXLLogicalDevice 1.3,
Processor 1.22, Memory 1.21, MemoryChunks 1.6, Drive 1.21 and ComputerSystem 1.24 (DMTF/Redfish-Publications).
"""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from drawbar.fabric import attributes, contract, identifiers, witnesses
from drawbar.fabric.redfish import documents, identities, models
from drawbar.fabric.redfish.documents import Document

MIB = 1024 * 1024
# Some services still list an absent resource, in the state of its place.
_GONE_STATES = {"absent", "deferring", "unavailableoffline"}

# Of `FabricType`, in lower case: fabrics whose devices are functions of PCIe; empty: not given.
_DEVICE_FABRICS = frozenset({"", "cxl", "multiprotocol", "pcie"})
# Fabrics between the devices themselves: they are listed, but have no class for claims.
LINK_FABRICS = frozenset({"genz", "nvlink", "ualink"})
# The other types of the schema: networks, storage and buses. A type that the schema does not have tells nothing.
_OTHER_FABRICS = frozenset(
    {
        *(
            "ahci",
            "displayport",
            "dvi",
            "emmc",
            "ethernet",
            "fc",
            "fcoe",
            "fcp",
            "ficon",
            "ftp",
            "hdmi",
            "http",
        ),
        *("https", "i2c", "infiniband", "iscsi", "iwarp", "nfsv3", "nfsv4", "nvme", "nvmeoverfabrics", "oem"),
        *("roce", "rocev2", "sas", "sata", "sftp", "smb", "tcp", "tftp", "udp", "uet", "ufs", "uhci", "usb"),
        "vga",
    }
)
# Of `EndpointProtocol`, in lower case.
_DEVICE_PROTOCOLS = _DEVICE_FABRICS | LINK_FABRICS | {"nvme"}

# Of `EntityType` (Endpoint): the fabric's own parts.
_FABRIC_TYPES = {"Bridge", "FabricBridge", "Manager", "Switch"}
_HOST_TYPES = {"ComputerSystem", "RootComplex"}
# Transfer rate in MT/s by the names of `PCIeTypes` (PCIeDevice).
DOMAIN = "redfish.dmtf.org"
"""Of the attributes that the standard itself names."""
_SPEEDS_MTS: Mapping[str, int] = MappingProxyType(
    {"Gen1": 2500, "Gen2": 5000, "Gen3": 8000, "Gen4": 16000, "Gen5": 32000, "Gen6": 64000}
)
_HEALTH: Mapping[str, contract.Health] = MappingProxyType(
    {"ok": contract.Health.OK, "warning": contract.Health.WARNING, "critical": contract.Health.CRITICAL}
)


def is_initiator(endpoint: Document) -> bool:
    """Return whether a host is behind the endpoint."""
    roles = _roles(endpoint) - {"both"}
    if roles:
        return "initiator" in roles
    is_linked = any(system(uri) == uri for uri in links(endpoint))
    return is_linked or not _HOST_TYPES.isdisjoint(models.entity_types(endpoint))


def is_target(endpoint: Document) -> bool:
    """Return whether a device is behind the endpoint, and neither a host nor a part of the fabric itself."""
    return not is_initiator(endpoint) and bool(
        set(models.entity_types(endpoint)) - _FABRIC_TYPES - _HOST_TYPES
    )


def is_mixed(endpoint: Document) -> bool:
    """Return whether the endpoint shows both a host and a device; it counts as the host's."""
    return {"initiator", "target"} <= _roles(endpoint)


def is_part_of_fabric(endpoint: Document) -> bool:
    """Return whether behind the endpoint is a part of the fabric itself, such as a switch."""
    return not _FABRIC_TYPES.isdisjoint(models.entity_types(endpoint))


def is_unclear(endpoint: Document) -> bool:
    """Return whether the endpoint shows neither a host nor a device, nor a part of the fabric; it may be a host's."""
    return not (is_initiator(endpoint) or is_target(endpoint) or is_part_of_fabric(endpoint))


def has_devices(fabric: Document) -> bool:
    """Return whether the fabric is of a type that connects devices, and no network or storage."""
    return fabric.text("FabricType").lower() not in _OTHER_FABRICS


def is_of_device_protocol(endpoint: Document) -> bool:
    """Return whether the endpoint is of a protocol that connects devices."""
    return endpoint.text("EndpointProtocol").lower() in _DEVICE_PROTOCOLS


def is_cpu(parts: Iterable[Document]) -> bool:
    """Return whether the only processors among these parts are CPUs: they belong to a host."""
    types = {models.processor_type(part) for part in parts} - {""}
    return types == {"CPU"}


def ports(endpoint: Document) -> tuple[str, ...]:
    """Return the URIs of the ports that the endpoint is connected to; `Ports` is the name before Endpoint 1.4."""
    return (*endpoint.links("Links", "ConnectedPorts"), *endpoint.links("Links", "Ports"))


def links(endpoint: Document) -> tuple[str, ...]:
    """Return the URIs of the resources behind the endpoint."""
    entities = endpoint.objects("ConnectedEntities")
    uris = (documents.link(documents.value(entity, "EntityLink")) for entity in entities)
    return tuple(dict.fromkeys(uri for uri in uris if uri))


def cards(parts: Iterable[Document]) -> frozenset[str]:
    """Return the URIs of the parts' PCIe devices, and of the drives of a storage; a virtual function is a device of its own."""
    listed = (
        uri
        for part in parts
        if not _is_virtual(part)
        for uri in (part.link("Links", "PCIeDevice"), *part.links("Drives"))
    )
    return frozenset(filter(None, listed))


def owner(part: Document) -> str | None:
    """Return the URI of a physical PCIe function's PCIe device, which changes hosts as a whole; None for any other part."""
    is_function = models.schema(part) == "PCIeFunction" and not _is_virtual(part)
    return part.link("Links", "PCIeDevice") if is_function else None


def _is_virtual(function: Document) -> bool:
    return documents.word(function.body, "FunctionType") == "virtual"


def chunks(endpoint: Document) -> tuple[str, ...]:
    """Return the URIs of the memory chunks behind the endpoint, of the type or at the place of one."""
    entities = endpoint.objects("ConnectedEntities")
    uris = (
        (documents.word(entity, "EntityType"), documents.link(documents.value(entity, "EntityLink")))
        for entity in entities
    )
    chunks = (uri for kind, uri in uris if uri and (kind == "memorychunk" or "/MemoryChunks/" in uri))
    return tuple(dict.fromkeys(map(documents.plain, chunks)))


def system(uri: str) -> str | None:
    """Return the URI of a resource's computer system, or None."""
    parts = documents.plain(uri).split("/")
    is_part = len(parts) > 4 and parts[1] == "redfish" and parts[3].lower() == "systems" and parts[4]
    return "/".join(parts[:5]) if is_part else None


def chassis(uri: str) -> str:
    """Return the id of a resource's chassis, or an empty one."""
    parts = uri.split("/")
    return parts[4] if len(parts) > 4 and parts[3] == "Chassis" else ""


def switch(endpoint: Document) -> str:
    """Return the common switch of an endpoint's connected ports, as `FABRIC.SWITCH`.

    Return an empty text if there is not exactly one.
    """
    parts = [uri.split("/") for uri in ports(endpoint)]
    switches = {
        f"{port[4]}.{port[6]}" if len(port) > 7 and (port[3], port[5]) == ("Fabrics", "Switches") else ""
        for port in parts
    }
    name = switches.pop() if len(switches) == 1 else ""
    return name if contract.SWITCH.fullmatch(name) else ""


def is_gone(document: Document) -> bool:
    """Return whether the service lists an empty place."""
    return document.text("Status", "State").casefold() in _GONE_STATES


def device(device_id: str, origin: Document, parts: Iterable[Document]) -> contract.Device:
    """Return the device behind an endpoint or in a resource block, not attached.

    Args:
        device_id: of the device.
        origin: the endpoint or resource block.
        parts: its linked PCIe devices, their functions, processors, memory, drives; the most specific first.
    """
    parts = tuple(parts)
    device_class = models.device_class(origin, parts)
    pci_ids = models.pci_ids(origin, parts)
    first = next(iter(parts), origin)
    card = next((part for part in parts if part.value("PCIeInterface") is not None), first)
    lanes = card.number("PCIeInterface", "MaxLanes")
    shown = identities.from_documents(device_class, origin, parts)
    number = next((each.value for each in shown if each.kind is witnesses.Kind.PCIE_DSN), None)
    placed = attributes.collect(_placement((*parts, origin)))
    return contract.Device(
        id=device_id,
        device_class=device_class,
        attributes=placed.kept,
        refused_attributes=placed.refused,
        model=_first(parts, "Model") or origin.text("Model") or origin.text("Name"),
        vendor=_first(parts, "Manufacturer") or origin.text("Manufacturer"),
        pci_vendor_id=pci_ids.vendor,
        pci_device_id=pci_ids.device,
        serial=identities.find_printed_serial(parts) or number,
        identifiers=shown,
        enclosure=next((name for part in parts if (name := chassis(part.uri))), ""),
        switch=switch(origin),
        memory_bytes=_memory_bytes(parts),
        max_link_speed_mts=_SPEEDS_MTS.get(_generation(card), 0),
        max_link_width=lanes if lanes <= 64 else 0,
        health=_worst((origin, *parts)),
    )


def _generation(card: Document) -> str:
    return documents.word(card.body, "PCIeInterface", "MaxPCIeType").removeprefix("pcie").capitalize()


def _placement(parts: Iterable[Document]) -> Iterator[tuple[str, object]]:
    """Yield the device's location from the first part that has one: DMTF Resource, `Location.Placement`."""
    for part in parts:
        texts = {name: part.text("Location", "Placement", name) for name in ("Row", "Rack")}
        offset = part.value("Location", "Placement", "RackOffset")
        if any(texts.values()):
            yield from ((f"{DOMAIN}/{name.lower()}", text) for name, text in texts.items() if text)
            if isinstance(offset, int) and not isinstance(offset, bool):
                yield f"{DOMAIN}/rackOffset", offset
            return


def host(host_id: str, system_document: Document, initiators: Iterable[Document]) -> contract.Host:
    """Return the host of a computer system, without its ports."""
    shown = {
        "system-uuid": system_document.text("UUID").lower(),
        "serial": system_document.text("SerialNumber"),
        "hostname": system_document.text("HostName"),
    }
    for endpoint in initiators:
        for entity in endpoint.objects("ConnectedEntities"):
            for identifier in documents.objects(entity, "Identifiers"):
                if documents.word(identifier, "DurableNameFormat") == "uuid" and not shown["system-uuid"]:
                    shown["system-uuid"] = documents.text(identifier, "DurableName").lower()
        for identifier in endpoint.objects("Identifiers"):
            if documents.word(identifier, "DurableNameFormat") == "gcxlid":
                shown.setdefault("gcxlid", documents.text(identifier, "DurableName"))
    return contract.Host(
        id=host_id,
        name=system_document.text("HostName") or system_document.text("Name") or host_id,
        identifiers={name: content for name, content in shown.items() if content},
    )


def _roles(endpoint: Document) -> set[str]:
    return {
        role
        for entity in endpoint.objects("ConnectedEntities")
        if (role := documents.text(entity, "EntityRole").casefold())
    }


def _first(parts: Iterable[Document], name: str) -> str:
    """Return the first text of that name which is no placeholder, such as Lenovo's "N/A"."""
    shown = (part.text(name).strip() for part in parts)
    return next((content for content in shown if identifiers.serial(content)), "")


def _memory_bytes(parts: tuple[Document, ...]) -> int:
    for part in parts:
        mib = (
            part.number("MemorySummary", "TotalMemorySizeMiB")
            or part.number("MemoryChunkSizeMiB")
            or part.number("CapacityMiB")
        )
        if mib:
            return mib * MIB
    # Chunks and processors are made of logical devices, whose size counts if they show none.
    return next((mib * MIB for part in parts if (mib := part.number("MemorySizeMiB"))), 0)


def _worst(listed: Iterable[Document]) -> contract.Health:
    """Return the worst health that a resource reports, of its own or else with its parts; or UNKNOWN."""
    order = (contract.Health.CRITICAL, contract.Health.WARNING, contract.Health.OK)
    reported = {
        _HEALTH.get(
            documents.word(document.body, "Status", "Health")
            or documents.word(document.body, "Status", "HealthRollup")
            # Some services write the health in place of the object.
            or documents.word(document.body, "Status")
        )
        for document in listed
    }
    return next((health for health in order if health in reported), contract.Health.UNKNOWN)
