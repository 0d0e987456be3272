"""The class and PCI ids of a device, from the resources of a Redfish service; pure.

Managers write PCI ids in hexadecimal with or without 0x, or in decimal (HPE). They write class codes with swapped
bytes (Dell) or only a base class (HPE). Ids of zeros or ones, and class codes outside the specification (Supermicro's
0x888888), are ignored.

Sources: PCI Code and ID Assignment Specification 1.15; PCIeFunction 1.6 (`DeviceClass`), Endpoint 1.8
(`EntityPciId`), and the deprecated `PciId` and `PciClassCode` of Endpoint 1.2; NVIDIA's part numbers of GPUs
(`2330-885-A1` is of 10de:2330).
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from drawbar.fabric import contract
from drawbar.fabric.redfish import documents
from drawbar.fabric.redfish.documents import Document, Json

_CONTROLLER = "#StorageController.v1_0_0.StorageController"

AMD, HABANA, NVIDIA = 0x1002, 0x1DA3, 0x10DE
# Makers of cards that fabrics hold, and of switches in them: with them four digits are decimal or hexadecimal.
_VENDORS = frozenset(
    {
        *(0x1000, 0x1002, 0x1014, 0x1022, 0x1028, 0x103C, 0x1077, 0x10B5, 0x10DE, 0x10DF, 0x10EE, 0x1137),
        *(0x11F8, 0x1172, 0x1179, 0x117C, 0x1344, 0x1414, 0x144D, 0x14E4, 0x1425, 0x15B3, 0x15B7, 0x1590),
        *(0x1924, 0x193D, 0x19E5, 0x1A03, 0x1AF4, 0x1B00, 0x1B36, 0x1B4B, 0x1BB1, 0x1C58, 0x1C5C, 0x1C5F),
        *(0x1CC4, 0x1D0F, 0x1D78, 0x1DA3, 0x1DD8, 0x1DF4, 0x1E0F, 0x1E36, 0x1F24, 0x1F3F, 0x1FC9, 0x8086),
    }
)
# The highest base class that is assigned to a kind of function.
_BASE_MAX = 0x13
_HEXADECIMAL = re.compile(r"[0-9a-f]+")
_DECIMAL = re.compile(r"[0-9]+")
_GPU_PART = re.compile(r"([0-9A-F]{4})-[0-9]{3}-[0-9A-Z]{2}")

_BY_PROCESSOR: Mapping[str, contract.DeviceClass] = MappingProxyType(
    {
        "GPU": contract.DeviceClass.GPU,
        "FPGA": contract.DeviceClass.FPGA,
        "Accelerator": contract.DeviceClass.ACCELERATOR,
        "DSP": contract.DeviceClass.ACCELERATOR,
    }
)
# By `DeviceClass` of a PCIeFunction, in lower case: the base class.
_BASES: Mapping[str, int] = MappingProxyType(
    {
        "massstoragecontroller": 0x01,
        "networkcontroller": 0x02,
        "displaycontroller": 0x03,
        "memorycontroller": 0x05,
        "processingaccelerators": 0x12,
    }
)
_BY_BASE: Mapping[int, contract.DeviceClass] = MappingProxyType(
    {
        0x02: contract.DeviceClass.NIC,
        0x03: contract.DeviceClass.GPU,
        0x12: contract.DeviceClass.ACCELERATOR,
    }
)
_BY_SUBCLASS: Mapping[tuple[int, int], contract.DeviceClass] = MappingProxyType(
    {
        (0x01, 0x08): contract.DeviceClass.NVME,
        (0x05, 0x02): contract.DeviceClass.CXL_MEMORY,
    }
)
# The class that a vendor's displays and accelerators have, with any class code: compute GPUs of AMD have that of
# accelerators, and some managers call a Gaudi a GPU.
_BY_VENDOR: Mapping[int, contract.DeviceClass] = MappingProxyType(
    {
        AMD: contract.DeviceClass.GPU,
        HABANA: contract.DeviceClass.ACCELERATOR,
    }
)
_OF_VENDORS = (contract.DeviceClass.ACCELERATOR, contract.DeviceClass.GPU)
# By the type of an entity, and by the name of a schema.
_BY_ENTITY: Mapping[str, contract.DeviceClass] = MappingProxyType(
    {
        "AccelerationFunction": contract.DeviceClass.ACCELERATOR,
        "DisplayController": contract.DeviceClass.GPU,
        "EthernetInterface": contract.DeviceClass.NIC,
        "MemoryChunk": contract.DeviceClass.CXL_MEMORY,
        "MemoryChunks": contract.DeviceClass.CXL_MEMORY,
        "NetworkAdapter": contract.DeviceClass.NIC,
        "NetworkController": contract.DeviceClass.NIC,
        "NetworkDeviceFunction": contract.DeviceClass.NIC,
        "NetworkInterface": contract.DeviceClass.NIC,
    }
)
# Names in the schema's case, by those in lower case: some services write others.
_ENTITY_TYPES: Mapping[str, str] = MappingProxyType(
    {
        name.casefold(): name
        for name in (
            *_BY_ENTITY,
            *("Bridge", "CXLDevice", "ComputerSystem", "Drive", "FabricBridge", "Manager", "Memory"),
            *("PCIeDevice", "Processor", "RootComplex", "Storage", "StorageController", "Switch"),
        )
    }
)
_SCHEMAS: Mapping[str, str] = MappingProxyType(
    {
        **_ENTITY_TYPES,
        **{
            name.casefold(): name
            for name in ("Assembly", "CXLLogicalDevice", "NetworkPort", "PCIeFunction", "Port", "ServiceRoot")
        },
    }
)
# By the name of a collection, for services that show no `@odata.type`.
_BY_COLLECTION: Mapping[str, str] = MappingProxyType(
    {
        "CXLLogicalDevices": "CXLLogicalDevice",
        "Controllers": "StorageController",
        "Drives": "Drive",
        "EthernetInterfaces": "EthernetInterface",
        "Memory": "Memory",
        "NetworkAdapters": "NetworkAdapter",
        "NetworkDeviceFunctions": "NetworkDeviceFunction",
        "PCIeDevices": "PCIeDevice",
        "PCIeFunctions": "PCIeFunction",
        "Processors": "Processor",
    }
)
_PROCESSOR_TYPES: Mapping[str, str] = MappingProxyType(
    {name.casefold(): name for name in (*_BY_PROCESSOR, "CPU")}
)
# Of `Protocol` (Drive) and `EndpointProtocol`, in lower case: drives that are functions of PCIe. Empty: not given.
_NVME_PROTOCOLS = frozenset({"", "cxl", "multiprotocol", "nvme", "pcie"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PciIds:
    """The PCI ids of a device; None for an unknown one."""

    vendor: int | None = None
    device: int | None = None


def pci_ids(origin: Document, parts: Iterable[Document]) -> PciIds:
    """Return the PCI ids of the device, from one function or from the part number of a GPU."""
    listed = tuple(parts)
    shown = [ids for each in _functions(origin, listed) if (ids := _ids(each)).vendor is not None]
    complete = next((ids for ids in shown if ids.device is not None), None)
    if complete is not None:
        return complete
    return next((PciIds(vendor=NVIDIA, device=number) for number in _part_numbers(listed)), None) or next(
        iter(shown), PciIds()
    )


def device_class(origin: Document, parts: Iterable[Document]) -> contract.DeviceClass:
    """Return the class of the device. Vendor and processor count first, the kind of its resources last."""
    listed = tuple(parts)
    shown = _class_by_resources(origin, listed)
    vendor = pci_ids(origin, listed).vendor
    return _BY_VENDOR.get(vendor or 0, shown) if shown in _OF_VENDORS else shown


def schema(document: Document) -> str:
    """Return the name of the resource's schema: `#Drive.v1_21_0.Drive` is a Drive; that of its place for a type of the vendor's own."""
    name = document.text("@odata.type").rpartition("#")[2].partition(".")[0]
    collection = document.uri.rpartition("/")[0].rpartition("/")[2]
    return _SCHEMAS.get(name.casefold()) or _BY_COLLECTION.get(collection, name)


def entity_types(origin: Document) -> tuple[str, ...]:
    """Return the types of the entities behind an endpoint, in the schema's case."""
    entities = origin.objects("ConnectedEntities")
    return tuple(
        _ENTITY_TYPES.get(documents.word(entity, "EntityType"), documents.text(entity, "EntityType"))
        for entity in entities
    )


def processor_type(part: Document) -> str:
    """Return the type of a processor in the schema's case; empty if it is not shown."""
    name = part.text("ProcessorType")
    return _PROCESSOR_TYPES.get(name.casefold(), name)


def _class_by_resources(origin: Document, parts: tuple[Document, ...]) -> contract.DeviceClass:
    for part in parts:
        if (by_processor := _BY_PROCESSOR.get(processor_type(part))) is not None:
            return by_processor
    if (by_function := next(_classes_of_functions(origin, parts), None)) is not None:
        return by_function
    if any(
        documents.word(part.body, "CXLDevice", "DeviceType") == "type3" or _is_type_3(part) for part in parts
    ):
        return contract.DeviceClass.CXL_MEMORY
    for kind in (*entity_types(origin), *map(schema, parts)):
        if kind == "Drive" and _is_nvme(origin, parts):
            return contract.DeviceClass.NVME
        if kind in ("Storage", "StorageController") and any(map(is_nvme_controller, parts)):
            return contract.DeviceClass.NVME
        if kind == "Memory" and _is_cxl(origin, parts):
            return contract.DeviceClass.CXL_MEMORY
        if kind in _BY_ENTITY:
            return _BY_ENTITY[kind]
    return contract.DeviceClass.GPU if any(_part_numbers(parts)) else contract.DeviceClass.OTHER


def is_nvme_controller(part: Document) -> bool:
    """Return whether the part is a storage controller with NVMe."""
    protocols = documents.words(part.body, "SupportedControllerProtocols") | documents.words(
        part.body, "SupportedDeviceProtocols"
    )
    is_controller = schema(part) in ("", "StorageController")
    return is_controller and ("nvme" in protocols or bool(part.value("NVMeControllerProperties")))


def _is_nvme(origin: Document, parts: tuple[Document, ...]) -> bool:
    """Return whether a drive has NVMe as far as is known: not SAS or SATA, and no rotating disk."""
    drives = [part for part in parts if schema(part) == "Drive"]
    protocols = {drive.text("Protocol").lower() for drive in drives} or {
        origin.text("EndpointProtocol").lower()
    }
    return protocols <= _NVME_PROTOCOLS and all(
        documents.word(drive.body, "MediaType") != "hdd" for drive in drives
    )


def _is_cxl(origin: Document, parts: tuple[Document, ...]) -> bool:
    """Return whether memory shows that it is behind CXL; a DIMM is memory too."""
    kinds = {schema(part) for part in parts} | set(entity_types(origin))
    if (
        not kinds.isdisjoint({"CXLLogicalDevice", "CXLDevice"})
        or origin.text("EndpointProtocol").upper() == "CXL"
    ):
        return True
    return any(
        bool(part.value("CXL"))
        or "CXL" in f"{part.text('MemoryType')} {part.text('MemoryDeviceType')}".upper()
        or part.link("Links", "CXLLogicalDevice") is not None
        or bool(part.links("Links", "CXLLogicalDevices"))
        for part in parts
        if schema(part) in ("", "Memory")
    )


def _classes_of_functions(origin: Document, parts: tuple[Document, ...]) -> Iterator[contract.DeviceClass]:
    """Yield the classes of PCIe functions, the most specific first.

    A class code in its due form is first, since `DeviceClass` has neither NVMe nor CXL memory. Otherwise
    `DeviceClass` comes before a class code in another form, and the two have to agree.
    """
    functions = [
        (each, _class_code(documents.value(each, "ClassCode"))) for each in _functions(origin, parts)
    ]
    classes = [_class_of(code) for _, code in functions if code is not None]
    rest = [each for each, code in functions if code is None]
    bases = {_BASES[name] for each in rest if (name := documents.word(each, "DeviceClass")) in _BASES}
    classes += [_BY_BASE.get(base) for base in sorted(bases)]
    for each in rest:
        codes = _odd_class_codes(documents.value(each, "ClassCode"))
        readings = {_class_of(code) for code in codes if not bases or code >> 16 in bases} - {None}
        classes += readings if len(readings) == 1 else ()
    return (each for each in classes if each is not None)


def _class_of(code: int) -> contract.DeviceClass | None:
    """Return the class of a device with this class code of 24 bits."""
    base, subclass = code >> 16, code >> 8 & 0xFF
    return _BY_SUBCLASS.get((base, subclass)) or _BY_BASE.get(base)


def _class_code(content: Any) -> int | None:
    """Return a class code in its due form, which has a base class and a subclass."""
    number, digits = _number(content, base=16)
    if number is None or digits < 3:
        return None
    code = number << 8 if digits < 5 else number
    return code if 0 < code >> 16 <= _BASE_MAX else None


def _odd_class_codes(content: Any) -> tuple[int, ...]:
    """Return the readings of a class code with leading zeros, or with only a base class.

    0x000003 and 0x000203 have the bytes of a little-endian field, 0x000108 has no programming interface, and 2 is a
    base class.
    """
    number, digits = _number(content, base=16)
    if number is None or number >> 16:
        return ()
    if digits == 2 and number > 9 and isinstance(content, str) and content.strip().isdecimal():
        # 12 is a base class in hexadecimal and another one in decimal.
        return ()
    swapped = int.from_bytes(number.to_bytes(3, "little"), "big")
    return (swapped, number << 8) if number >> 8 else (number << 16,)


def _functions(origin: Document, parts: tuple[Document, ...]) -> Iterator[Json]:
    """Yield the objects with the properties of PCIe functions: of the endpoint's entities, then of the parts.

    Virtual functions come last, since their device ids are others than the card's.
    """
    for entity in origin.objects("ConnectedEntities"):
        for name in ("EntityPciId", "PciId"):
            yield from documents.objects(entity, name)
        if isinstance(entity.get("PciClassCode"), str):
            yield {"ClassCode": entity["PciClassCode"]}
    yield from origin.objects("PciId")
    yield from sorted(
        (part.body for part in parts), key=lambda body: documents.word(body, "FunctionType") == "virtual"
    )


def _ids(function: Json) -> PciIds:
    """Return the ids of one function, read in one notation."""
    # The second names are those of HPE's own schema.
    texts = [
        next((shown for name in names if (shown := documents.value(function, name)) is not None), None)
        for names in (("VendorId", "VendorID"), ("DeviceId", "DeviceID"))
    ]
    base = _notation(texts[0])
    if base is None:
        return PciIds()
    numbers = [_number(content, base=base)[0] for content in texts]
    vendor, device = (number if number and number < 0xFFFF else None for number in numbers)
    return PciIds(vendor=vendor, device=device if vendor is not None else None)


def _notation(vendor: Any) -> int | None:
    """Return 16 or 10 for the notation of a vendor id; None where both are possible."""
    if isinstance(vendor, int):
        return 10 if vendor in _VENDORS else None
    digits = vendor.strip().lower() if isinstance(vendor, str) else ""
    if digits.startswith("0x") or _DECIMAL.fullmatch(digits) is None:
        return 16
    if len(digits) == 5:
        return 10
    readings = {base for base in (10, 16) if int(digits, base) in _VENDORS}
    return readings.pop() if len(readings) == 1 and len(digits) <= 4 else None


def _number(content: Any, *, base: int) -> tuple[int | None, int]:
    """Return an unsigned number of at most 32 bits with the count of its digits; None for anything else."""
    if isinstance(content, int) and not isinstance(content, bool):
        is_short = 0 <= content < 1 << 32
        return (content, len(f"{content:x}")) if is_short else (None, 0)
    text = content.strip().lower() if isinstance(content, str) else ""
    base = 16 if text.startswith("0x") else base
    digits = text.removeprefix("0x")
    pattern = _HEXADECIMAL if base == 16 else _DECIMAL
    if len(digits) > 8 or pattern.fullmatch(digits) is None:
        return None, 0
    return int(digits, base), len(digits)


def _part_numbers(parts: Iterable[Document]) -> Iterator[int]:
    """Yield the PCI device ids in the part numbers of NVIDIA's GPUs."""
    for part in parts:
        match = _GPU_PART.fullmatch(part.text("PartNumber").strip().upper())
        if match is not None and "nvidia" in part.text("Manufacturer").lower():
            yield int(match[1], 16)


def _is_type_3(part: Document) -> bool:
    """Return whether the part is a CXL logical device of type 3, which provides memory and caches none."""
    semantics = {name.replace(".", "") for name in documents.words(part.body, "SemanticsSupported")}
    return "cxlmem" in semantics and "cxlcache" not in semantics


def functions(devices: Iterable[Document]) -> tuple[Document, ...]:
    """Return the PCIe functions of these PCIe devices and the NVMe controllers of these storages.

    Only those that were read together with their owners are returned.
    """
    listed = tuple(devices)
    shown = [
        Document.from_json(function)
        for device in listed
        for function in device.objects("PCIeFunctions", "Members")
    ]
    # A storage with drives is told by these: its controllers may be those of a chassis.
    return (*shown, *(each for part in listed if not part.links("Drives") for each in _controllers(part)))


def _controllers(storage: Document) -> Iterator[Document]:
    """Yield the NVMe controllers in the storage itself, their place before Storage 1.9."""
    for shown in storage.objects("StorageControllers"):
        controller = Document.from_json({**shown, documents.TYPE: _CONTROLLER})
        if is_nvme_controller(controller):
            yield controller
