"""What the endpoints and resource blocks of a Redfish service are: devices and hosts of the contract; pure.

The properties are those of the schemas Endpoint 1.8, PCIeDevice 1.21, PCIeFunction 1.6, CXLLogicalDevice 1.3, Processor 1.22,
Memory 1.21, MemoryChunks 1.6, Drive 1.21 and ComputerSystem 1.24 (DMTF/Redfish-Publications).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from drawbar.fabric import attributes, contract, witnesses
from drawbar.fabric.redfish import documents
from drawbar.fabric.redfish.documents import Document

MIB = 1024 * 1024
# What is not there any more is listed by some services, in the state that its place has.
_GONE_STATES = {"Absent", "Deferring", "UnavailableOffline"}

_BY_PROCESSOR: Mapping[str, contract.DeviceClass] = MappingProxyType(
    {
        "GPU": contract.DeviceClass.GPU,
        "FPGA": contract.DeviceClass.FPGA,
        "Accelerator": contract.DeviceClass.ACCELERATOR,
        "DSP": contract.DeviceClass.ACCELERATOR,
    }
)
# The first digits of a PCI class code (PCI Code and ID Assignment Specification), the longest first.
_BY_CLASS_CODE: Mapping[str, contract.DeviceClass] = MappingProxyType(
    {
        "0108": contract.DeviceClass.NVME,
        "0502": contract.DeviceClass.CXL_MEMORY,
        "02": contract.DeviceClass.NIC,
        "03": contract.DeviceClass.GPU,
        "12": contract.DeviceClass.ACCELERATOR,
    }
)
_BY_ENTITY: Mapping[str, contract.DeviceClass] = MappingProxyType(
    {
        "AccelerationFunction": contract.DeviceClass.ACCELERATOR,
        "Drive": contract.DeviceClass.NVME,
        "Memory": contract.DeviceClass.CXL_MEMORY,
        "MemoryChunk": contract.DeviceClass.CXL_MEMORY,
        # The name of its schema.
        "MemoryChunks": contract.DeviceClass.CXL_MEMORY,
        "NetworkController": contract.DeviceClass.NIC,
    }
)
# Of `EntityType` (Endpoint): what a fabric is made of.
_FABRIC_TYPES = {"Bridge", "FabricBridge", "Manager", "Switch"}
# By `DurableNameFormat` (Resource 1.15). A GCXLID is the PCIe Device Serial Number, then the logical device.
_KINDS: Mapping[str, witnesses.Kind] = MappingProxyType(
    {
        "GCXLID": witnesses.Kind.PCIE_DSN,
        "UUID": witnesses.Kind.GPU_UUID,
        "NGUID": witnesses.Kind.NGUID,
        "EUI": witnesses.Kind.EUI64,
    }
)
# Transfer rate in MT/s by the names of `PCIeTypes` (PCIeDevice).
DOMAIN = "redfish.dmtf.org"
"""Of the attributes that the standard itself names."""
_SPEEDS_MTS: Mapping[str, int] = MappingProxyType(
    {"Gen1": 2500, "Gen2": 5000, "Gen3": 8000, "Gen4": 16000, "Gen5": 32000, "Gen6": 64000}
)
_HEALTH: Mapping[str, contract.Health] = MappingProxyType(
    {"OK": contract.Health.OK, "Warning": contract.Health.WARNING, "Critical": contract.Health.CRITICAL}
)


def is_initiator(endpoint: Document) -> bool:
    """Return whether a host is behind the endpoint."""
    roles = _roles(endpoint)
    if roles:
        return "Initiator" in roles
    return bool({"RootComplex", "ComputerSystem"} & set(_types(endpoint)))


def is_target(endpoint: Document) -> bool:
    """Return whether a device is behind the endpoint, and neither a host nor a part of the fabric itself."""
    return not is_initiator(endpoint) and bool(set(_types(endpoint)) - _FABRIC_TYPES)


def is_part_of_fabric(endpoint: Document) -> bool:
    """Return whether behind the endpoint is a part of the fabric itself, such as a switch."""
    return not _FABRIC_TYPES.isdisjoint(_types(endpoint))


def links(endpoint: Document) -> tuple[str, ...]:
    """Return the URIs of what is behind the endpoint."""
    entities = endpoint.objects("ConnectedEntities")
    uris = (documents.link(entity.get("EntityLink")) for entity in entities)
    return tuple(dict.fromkeys(uri for uri in uris if uri))


def chunks(endpoint: Document) -> tuple[str, ...]:
    """Return the URIs of the memory chunks behind the endpoint."""
    entities = endpoint.objects("ConnectedEntities")
    uris = (
        documents.link(entity.get("EntityLink"))
        for entity in entities
        if documents.text(entity, "EntityType") == "MemoryChunk"
    )
    return tuple(dict.fromkeys(uri for uri in uris if uri))


def system(uri: str) -> str | None:
    """Return the URI of the computer system that a resource is a part of, or None."""
    parts = uri.split("/")
    is_part = len(parts) > 4 and parts[1] == "redfish" and parts[3] == "Systems" and parts[4]
    return "/".join(parts[:5]) if is_part else None


def chassis(uri: str) -> str:
    """Return the id of the chassis that a resource is a part of, or an empty one."""
    parts = uri.split("/")
    return parts[4] if len(parts) > 4 and parts[3] == "Chassis" else ""


def switch(endpoint: Document) -> str:
    """Return the switch that all connected ports of an endpoint are on, as `FABRIC.SWITCH`; empty where that is not one."""
    parts = [uri.split("/") for uri in endpoint.links("Links", "ConnectedPorts")]
    switches = {
        f"{port[4]}.{port[6]}" if len(port) > 7 and (port[3], port[5]) == ("Fabrics", "Switches") else ""
        for port in parts
    }
    name = switches.pop() if len(switches) == 1 else ""
    return name if contract.SWITCH.fullmatch(name) else ""


def is_gone(document: Document) -> bool:
    """Return whether the service lists a place in which there is nothing."""
    return document.text("Status", "State") in _GONE_STATES


def device(device_id: str, origin: Document, parts: Iterable[Document]) -> contract.Device:
    """Return the device behind an endpoint or in a resource block, not attached.

    Args:
        device_id: of the device.
        origin: the endpoint or resource block.
        parts: what it links to: PCIe devices, their functions, processors, memory, drives; the most telling first.
    """
    made = contract.Device(id=device_id, device_class=_class(origin, parts := tuple(parts)))
    first = next(iter(parts), origin)
    card = next((part for part in parts if part.value("PCIeInterface") is not None), first)
    lanes = card.number("PCIeInterface", "MaxLanes")
    identifiers = _identifiers(origin, parts)
    number = next((each.value for each in identifiers if each.kind is witnesses.Kind.PCIE_DSN), None)
    placed = attributes.collect(_placement((*parts, origin)))
    return replace(
        made,
        attributes=placed.kept,
        refused_attributes=placed.refused,
        model=_first(parts, "Model") or origin.text("Model") or origin.text("Name"),
        vendor=_first(parts, "Manufacturer") or origin.text("Manufacturer"),
        pci_vendor_id=_pci_id(origin, parts, "VendorId"),
        pci_device_id=_pci_id(origin, parts, "DeviceId"),
        serial=_first(parts, "SerialNumber") or number,
        identifiers=identifiers,
        enclosure=next((name for part in parts if (name := chassis(part.uri))), ""),
        switch=switch(origin),
        memory_bytes=_memory_bytes(parts),
        max_link_speed_mts=_SPEEDS_MTS.get(card.text("PCIeInterface", "MaxPCIeType"), 0),
        max_link_width=lanes if lanes <= 64 else 0,
        health=_worst((origin, *parts)),
    )


def _placement(parts: Iterable[Document]) -> Iterator[tuple[str, object]]:
    """Yield where the device is, as the first part that tells has it: DMTF Resource, `Location.Placement`."""
    for part in parts:
        texts = {name: part.text("Location", "Placement", name) for name in ("Row", "Rack")}
        offset = part.value("Location", "Placement", "RackOffset")
        if any(texts.values()):
            yield from ((f"{DOMAIN}/{name.lower()}", text) for name, text in texts.items() if text)
            if isinstance(offset, int) and not isinstance(offset, bool):
                yield f"{DOMAIN}/rackOffset", offset
            return


def host(host_id: str, system_document: Document, initiators: Iterable[Document]) -> contract.Host:
    """Return the host that a computer system is, without its ports."""
    identifiers = {
        "system-uuid": system_document.text("UUID").lower(),
        "serial": system_document.text("SerialNumber"),
        "hostname": system_document.text("HostName"),
    }
    for endpoint in initiators:
        for entity in endpoint.objects("ConnectedEntities"):
            for identifier in documents.objects(entity, "Identifiers"):
                if (
                    documents.text(identifier, "DurableNameFormat") == "UUID"
                    and not identifiers["system-uuid"]
                ):
                    identifiers["system-uuid"] = documents.text(identifier, "DurableName").lower()
        for identifier in endpoint.objects("Identifiers"):
            if documents.text(identifier, "DurableNameFormat") == "GCXLID":
                identifiers.setdefault("gcxlid", documents.text(identifier, "DurableName"))
    return contract.Host(
        id=host_id,
        name=system_document.text("HostName") or system_document.text("Name") or host_id,
        identifiers={name: content for name, content in identifiers.items() if content},
    )


def _roles(endpoint: Document) -> set[str]:
    return {
        role
        for entity in endpoint.objects("ConnectedEntities")
        if (role := documents.text(entity, "EntityRole"))
    }


def _types(endpoint: Document) -> tuple[str, ...]:
    return tuple(documents.text(entity, "EntityType") for entity in endpoint.objects("ConnectedEntities"))


def _first(parts: Iterable[Document], name: str) -> str:
    return next((content for part in parts if (content := part.text(name).strip())), "")


def _class(origin: Document, parts: tuple[Document, ...]) -> contract.DeviceClass:
    for part in parts:
        if (by_processor := _BY_PROCESSOR.get(part.text("ProcessorType"))) is not None:
            return by_processor
    codes = [
        documents.text(entity, "EntityPciId", "ClassCode") for entity in origin.objects("ConnectedEntities")
    ]
    codes += [part.text("ClassCode") for part in parts]
    for code in codes:
        digits = code.lower().removeprefix("0x")
        for prefix, by_code in _BY_CLASS_CODE.items():
            if digits.startswith(prefix):
                return by_code
    if any(part.text("CXLDevice", "DeviceType") == "Type3" or _is_type_3(part) for part in parts):
        return contract.DeviceClass.CXL_MEMORY
    for kind in (*_types(origin), *(_resource(part) for part in parts)):
        if kind in _BY_ENTITY:
            return _BY_ENTITY[kind]
    return contract.DeviceClass.OTHER


def _is_type_3(part: Document) -> bool:
    """Return whether the part is a CXL logical device that gives memory and caches none: one of type 3."""
    semantics = part.value("SemanticsSupported")
    return isinstance(semantics, list) and "CXLmem" in semantics and "CXLcache" not in semantics


def _resource(document: Document) -> str:
    """Return the name of the resource's schema: `#Drive.v1_21_0.Drive` is a Drive."""
    return document.text("@odata.type").removeprefix("#").partition(".")[0]


def _pci_id(origin: Document, parts: tuple[Document, ...], name: str) -> int | None:
    texts = [documents.text(entity, "EntityPciId", name) for entity in origin.objects("ConnectedEntities")]
    texts += [part.text(name) for part in parts]
    for content in texts:
        digits = content.lower().removeprefix("0x")
        if len(digits) == 4 and all(digit in "0123456789abcdef" for digit in digits):
            return int(digits, 16)
    return None


def _identifiers(origin: Document, parts: tuple[Document, ...]) -> tuple[witnesses.Identifier, ...]:
    listed = [
        identifier
        for entity in origin.objects("ConnectedEntities")
        for identifier in documents.objects(entity, "Identifiers")
    ]
    for part in parts:
        listed += part.objects("Identifiers")
    made = [
        witnesses.identifier(kind, documents.text(each, "DurableName"), "Identifiers")
        for each in listed
        if (kind := _KINDS.get(documents.text(each, "DurableNameFormat"))) is not None
    ]
    made += [
        witnesses.identifier(witnesses.Kind.GPU_UUID, part.text("UUID"), "Processor.UUID")
        for part in parts
        if _resource(part) == "Processor"
    ]
    return tuple(dict.fromkeys(each for each in made if each is not None))


def _memory_bytes(parts: tuple[Document, ...]) -> int:
    for part in parts:
        mib = (
            part.number("MemorySummary", "TotalMemorySizeMiB")
            or part.number("MemoryChunkSizeMiB")
            or part.number("CapacityMiB")
        )
        if mib:
            return mib * MIB
    # A logical device is what chunks and processors are made of: its size counts where they show none.
    return next((mib * MIB for part in parts if (mib := part.number("MemorySizeMiB"))), 0)


def _worst(listed: Iterable[Document]) -> contract.Health:
    """Return the worst health that a resource reports, or UNKNOWN."""
    order = (contract.Health.CRITICAL, contract.Health.WARNING, contract.Health.OK)
    reported = {_HEALTH.get(document.text("Status", "Health")) for document in listed}
    return next((health for health in order if health in reported), contract.Health.UNKNOWN)
