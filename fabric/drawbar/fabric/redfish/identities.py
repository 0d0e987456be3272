"""The identifiers of a Redfish service's devices, by which a node can recognise them; pure.

One property holds numbers of different kinds: the SerialNumber of a Drive is the NVMe controller's, that of a GPU or
a network adapter is printed on the board. Each number is declared with its kind. A number of an unknown kind is not
declared. `docs/redfish.md` has the list.

Sources: Resource 1.15 (`DurableNameFormat`), Drive 1.21, Processor 1.22, PCIeDevice 1.21, NetworkAdapter 1.13,
NetworkDeviceFunction 1.11, EthernetInterface 1.12, Port 1.16, Assembly 1.5 (DMTF/Redfish-Publications); real services
in NVIDIA/libredfish, `tests/mockups`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from drawbar.fabric import contract, errors, identifiers, witnesses
from drawbar.fabric.contract import DeviceClass
from drawbar.fabric.redfish import documents, models
from drawbar.fabric.redfish.documents import Document, Json
from drawbar.fabric.witnesses import Identifier, Kind

_ACCELERATORS = frozenset({DeviceClass.ACCELERATOR, DeviceClass.FPGA, DeviceClass.GPU})
_PROCESSORS = frozenset({"Accelerator", "DSP", "FPGA", "GPU"})
# Resources with the serial number of an NVMe controller.
_DISKS = frozenset({"Drive", "StorageController"})
# Resources that show a card's printed serial number, the nearest to the card first.
_BOARDS = ("Processor", "NetworkAdapter", "PCIeDevice", "Memory")
# By the number of hexadecimal digits: an EUI of 128 bits has the format `EUI` too.
_EUIS: Mapping[int, Kind] = MappingProxyType({16: Kind.EUI64, 32: Kind.NGUID})
# The format of a durable name by its beginning, which some services contradict or leave alone.
_BY_PREFIX: Mapping[str, str] = MappingProxyType({"eui.": "EUI", "ngui": "NGUID", "nqn.": "NQN"})
# A resource below a network adapter, by the places of the schema.
_OF_ADAPTER = re.compile(r"(/redfish/v1/.{1,512}/NetworkAdapters/[^/]+)/")
_OTHER_MAKERS = re.compile(r"\b(?:amd|advanced micro|intel|habana)\b", re.IGNORECASE)
_PADDING = re.compile(r"[-: ]")
# The most resources followed for one device, and the most addresses of one port.
_LISTED_MAX = 16

# Kinds that identify a device without another one.
_PROVING = frozenset(Kind) - {Kind.PART_NUMBER, Kind.SERIAL, Kind.VENDOR}
# Of classes whose nodes do not read every printed serial number.
_PROVING_OF: Mapping[DeviceClass, frozenset[Kind]] = MappingProxyType(
    {
        DeviceClass.CXL_MEMORY: frozenset({Kind.PCIE_DSN}),
        DeviceClass.FPGA: frozenset({Kind.MAC}),
        DeviceClass.GPU: frozenset({Kind.GPU_UNIQUE_ID, Kind.GPU_UUID, Kind.PCIE_DSN}),
        DeviceClass.NIC: frozenset({Kind.MAC, Kind.NODE_GUID}),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class More:
    """The resources that are read for further identifiers of a device.

    Attributes:
        resources: their URIs.
        collection: the URI of a collection of such resources; empty where `resources` are known.
    """

    resources: tuple[str, ...] = ()
    collection: str = ""


def from_documents(
    device_class: contract.DeviceClass, origin: Document, parts: Iterable[Document]
) -> tuple[Identifier, ...]:
    """Return the identifiers of a device, those from its durable names first, each kind and value once.

    Args:
        device_class: of the device.
        origin: its endpoint or resource block.
        parts: the resources that describe it, in any order.
    """
    listed = tuple(parts)
    made = [*_durable_names(device_class, origin, listed)]
    for part in sorted(listed, key=_rank):
        made += _read_part(device_class, part, listed)
    unique: dict[tuple[Kind, str], Identifier] = {}
    for each in made:
        if each is not None:
            unique.setdefault((each.kind, each.value), each)
    return tuple(unique.values())[: witnesses.IDENTIFIERS_MAX]


def find_printed_serial(parts: Iterable[Document]) -> str | None:
    """Return the serial number for people; None for placeholders.

    A Drive's comes before that of its PCIe device, in any order of the links. Memory has its own if it is the first
    link of the service.
    """
    listed = tuple(parts)
    memory = [part for part in listed if models.schema(part) == "Memory"]
    is_of_memory = len(memory) == 1 and memory[0] is listed[0]
    for part in (*(memory if is_of_memory else ()), *sorted(listed, key=_rank)):
        shown = _serial(part)
        if not shown and models.schema(part) == "Assembly":
            shown = _assembly_serial(part, listed)
        if shown:
            return errors.cut(shown.strip(), documents.TEXT_BYTES)
    return None


def is_proven(device_class: contract.DeviceClass, shown: Iterable[Identifier]) -> bool:
    """Return whether the identifiers are enough for a node, so that nothing more has to be read for them."""
    return not _PROVING_OF.get(device_class, _PROVING).isdisjoint(each.kind for each in shown)


def is_named(device_class: contract.DeviceClass, parts: Iterable[Document]) -> bool:
    """Return whether the parts show a model, or it is at none of the resources in which identifiers are looked for.

    An Ethernet interface has none: its network adapter has it.
    """
    return device_class is not DeviceClass.NIC or any(part.text("Model").strip() for part in parts)


def find_more(device_class: contract.DeviceClass, parts: Iterable[Document]) -> More:
    """Return resources with more identifiers of the device: of one kind, and none of the parts."""
    listed = tuple(parts)
    read = {part.uri for part in listed}
    for more in _more_by_kind(device_class, listed):
        resources = tuple(uri for uri in more.resources if uri not in read)
        if resources or more.collection:
            return More(resources=resources[:_LISTED_MAX], collection=more.collection)
    return More()


def _more_by_kind(device_class: DeviceClass, parts: tuple[Document, ...]) -> Iterator[More]:
    """Yield the possible resources, the most specific first."""
    is_unknown = device_class is DeviceClass.OTHER
    if is_unknown:
        # Their class code shows the device's class.
        yield from _more_of_functions(parts)
    if device_class is DeviceClass.NIC or is_unknown:
        yield from _more_of_network(parts)
    if device_class is DeviceClass.NVME or is_unknown:
        # With the serial number of a drive, the controllers of its storage are those of a chassis.
        if not any(models.schema(part) == "Drive" and _serial(part) for part in parts):
            yield _find_linked(parts, "Links", "Storage")
        yield _find_linked(parts, "Links", "Drives")
        yield _find_linked(parts, "Drives")
        yield _find_linked(parts, "Links", "StorageControllers")
        yield _find_collection(parts, "Controllers")
    if device_class in _ACCELERATORS or is_unknown:
        yield _find_linked(parts, "Links", "Processors")
        yield _find_linked(parts, "Links", "Processor")
    if device_class is DeviceClass.CXL_MEMORY:
        yield _find_linked(parts, "Links", "CXLLogicalDevice")
        yield _find_linked(parts, "Links", "CXLLogicalDevices")
        yield _find_collection(parts, "CXLLogicalDevices")
    if device_class is not DeviceClass.NVME:
        yield _find_linked(parts, "Assembly")
        yield _find_linked(parts, "Links", "PCIeDevice")
    if device_class in _ACCELERATORS:
        # Their vendor id tells whether nodes read the printed serial number.
        yield from _more_of_functions(parts)


def _more_of_functions(parts: tuple[Document, ...]) -> Iterator[More]:
    """Yield the PCIe functions of a device, unless one is known already."""
    if not any(models.schema(part) == "PCIeFunction" for part in parts):
        yield _find_collection(parts, "PCIeFunctions")
        # The first one, such as a GPU before its audio, shows the card's class.
        yield More(resources=tuple(sorted(_find_linked(parts, "Links", "PCIeFunctions").resources)))


def _more_of_network(parts: tuple[Document, ...]) -> Iterator[More]:
    """Yield the resources of a network card: with addresses, unless one is known already, and with its model and number."""
    # Functions and interfaces of one card show the same permanent addresses.
    has_address = any(map(_permanent_address, parts))
    if not has_address:
        yield _find_linked(parts, "Links", "NetworkDeviceFunctions")
        yield _find_linked(parts, "Links", "NetworkDeviceFunction")
        yield _find_collection(parts, "NetworkDeviceFunctions")
        yield _find_linked(_controllers(parts), "Links", "NetworkDeviceFunctions")
        yield _find_linked(parts, "Links", "EthernetInterfaces")
    yield _find_linked(parts, "Links", "NetworkAdapter")
    has_adapter = any(models.schema(part) == "NetworkAdapter" for part in parts)
    if not has_adapter:
        yield More(resources=_adapters(parts))
    elif not has_address:
        yield _find_collection(parts, "Ports")
        # The name before NetworkAdapter 1.5.
        yield _find_collection(parts, "NetworkPorts")
    if not has_address:
        # They link to their network functions.
        yield from _more_of_functions(parts)


def _controllers(parts: tuple[Document, ...]) -> tuple[Document, ...]:
    """Return the controllers of network adapters, which are objects in these."""
    return tuple(Document.from_json(each) for part in parts for each in part.objects("Controllers"))


def _find_linked(parts: tuple[Document, ...], *names: str) -> More:
    """Return the resources that these properties of the parts link to."""
    listed = (uri for part in parts for uri in (*part.links(*names), part.link(*names) or ""))
    return More(resources=tuple(dict.fromkeys(filter(None, listed))))


def _find_collection(parts: tuple[Document, ...], name: str) -> More:
    """Return the first collection by this name of which no member is among the parts."""
    uris = filter(None, (part.link(name) for part in parts))
    return More(collection=next((uri for uri in uris if not _is_in(uri, parts)), ""))


def _adapters(parts: tuple[Document, ...]) -> tuple[str, ...]:
    """Return the URIs of the network adapters of these parts, which are or link to functions or ports."""
    uris = [part.uri for part in parts]
    for part in parts:
        uris += [uri for name in ("NetworkDeviceFunctions", "Ports") for uri in part.links("Links", name)]
    matches = (_OF_ADAPTER.match(uri) for uri in uris)
    return tuple(dict.fromkeys(match[1] for match in matches if match is not None))


def _is_in(collection: str, parts: tuple[Document, ...]) -> bool:
    """Return whether a member of the collection is among the parts."""
    return any(part.uri.rpartition("/")[0] == collection for part in parts)


def _rank(part: Document) -> int:
    """Return the place of a resource in the order of trust in its serial number."""
    schema = models.schema(part)
    if schema in _DISKS:
        return 0
    return _BOARDS.index(schema) + 1 if schema in _BOARDS else len(_BOARDS) + 1


def _durable_names(
    device_class: DeviceClass, origin: Document, parts: tuple[Document, ...]
) -> Iterator[Identifier | None]:
    listed = [("Endpoint", each) for each in origin.objects("Identifiers")]
    for entity in origin.objects("ConnectedEntities"):
        listed += [("ConnectedEntities", each) for each in documents.objects(entity, "Identifiers")]
    for part in parts:
        listed += [(models.schema(part), each) for each in part.objects("Identifiers")]
    for owner, each in listed:
        text = _text(each, "DurableName")
        kind = _kind(device_class, owner, documents.text(each, "DurableNameFormat").upper(), text)
        if kind is Kind.VENDOR:
            plain = text.strip().casefold().removeprefix("urn:uuid:").strip("{}")
            text = f"nvme-uuid={plain}" if identifiers.system_uuid(text) else ""
        if kind is not None:
            yield _declare_kind(device_class, kind, text, f"{owner}.Identifiers")


def _kind(device_class: DeviceClass, owner: str, name_format: str, text: str) -> Kind | None:
    """Return the kind of a durable name by its format; None if it names no device of this class."""
    is_disk = device_class is DeviceClass.NVME
    plain = text.strip().casefold()
    match _BY_PREFIX.get(plain[:4], name_format):
        case "GCXLID":
            return Kind.PCIE_DSN
        case "EUI" if is_disk:
            return _EUIS.get(len(_PADDING.sub("", plain.removeprefix("eui.").removeprefix("0x"))))
        case "NGUID" if is_disk:
            return Kind.NGUID
        case "NQN" if is_disk:
            return Kind.NVME_NQN
        case "UUID" if is_disk and owner == "Drive":
            return Kind.VENDOR
        case "UUID" if device_class is DeviceClass.GPU and owner != "Endpoint":
            return Kind.GPU_UUID
        case _:
            return None


def _read_part(
    device_class: DeviceClass, part: Document, parts: tuple[Document, ...]
) -> Iterator[Identifier | None]:
    schema = models.schema(part)
    kind = _serial_kind(device_class, part)
    if kind is not None:
        yield _declare_kind(device_class, kind, _serial(part), f"{schema}.SerialNumber")
    if _shows_uuid(device_class, part):
        # Another maker's UUID is no number of its driver's, unless its form tells so.
        is_of_gpu = device_class is DeviceClass.GPU and not _OTHER_MAKERS.search(part.text("Manufacturer"))
        declare = _declare_uuid if is_of_gpu else witnesses.from_form
        yield declare(_text(part.body, "UUID"), f"{schema}.UUID")
    if schema in _BOARDS and not _is_cpu(part):
        yield witnesses.identifier(Kind.PART_NUMBER, _text(part.body, "PartNumber"), f"{schema}.PartNumber")
    if schema == "Assembly" and device_class is not DeviceClass.NVME:
        yield witnesses.identifier(Kind.BOARD_SERIAL, _assembly_serial(part, parts), "Assembly.SerialNumber")
    for each, text, field in _addresses(part):
        yield witnesses.identifier(each, text, f"{schema}.{field}")


def _serial_kind(device_class: DeviceClass, part: Document) -> Kind | None:
    """Return the kind of a resource's serial number; None if it is unknown or belongs to another thing."""
    schema = models.schema(part)
    if schema in _DISKS:
        is_nvme = documents.word(part.body, "Protocol") in {"", "nvme", "nvmeoverfabrics", "pcie"}
        return Kind.NVME_SERIAL if device_class is DeviceClass.NVME and is_nvme else None
    if schema not in _BOARDS or _is_cpu(part):
        return None
    match device_class:
        case DeviceClass.NVME:
            # A drive's PCIe device has a piece of the label (Dell), or the drive's own number.
            return None
        case DeviceClass.CXL_MEMORY:
            return Kind.BOARD_SERIAL
        case DeviceClass.OTHER:
            # A switch or bridge, or a device of which the service shows no kind; its form may tell the number's.
            return Kind.BOARD_SERIAL if schema in ("NetworkAdapter", "Processor") else Kind.SERIAL
        case _:
            # The memory of an accelerator is not the accelerator.
            return Kind.BOARD_SERIAL if schema != "Memory" else None


def _shows_uuid(device_class: DeviceClass, part: Document) -> bool:
    """Return whether a resource's UUID is the device's own. That of an FPGA names its image, and NVSwitches have one as well."""
    is_gpu = device_class in (DeviceClass.ACCELERATOR, DeviceClass.GPU)
    match models.schema(part):
        case "Processor":
            return is_gpu and models.processor_type(part) in ("", "Accelerator", "GPU")
        case "PCIeDevice":
            return is_gpu
        case _:
            return False


def _is_cpu(part: Document) -> bool:
    """Return whether the resource is a processor of the host, and no accelerator."""
    kind = models.processor_type(part)
    return models.schema(part) == "Processor" and bool(kind) and kind not in _PROCESSORS


def _declare_kind(device_class: DeviceClass, kind: Kind, text: str, source: str) -> Identifier | None:
    """Return the identifier, with another kind if the text has that kind's form."""
    if device_class is not DeviceClass.NVME:
        if (by_form := witnesses.from_form(text, source)) is not None:
            return by_form
        if text.strip().casefold().startswith("mig-"):
            return None
    return witnesses.identifier(kind, text, source) if kind is not Kind.SERIAL else None


def _declare_uuid(text: str, source: str) -> Identifier | None:
    return _declare_kind(DeviceClass.GPU, Kind.GPU_UUID, text, source)


def _serial(part: Document) -> str:
    """Return the serial number of a resource; empty for a placeholder, and for one that is its model's (Lenovo)."""
    shown = _text(part.body, "SerialNumber")
    compared = identifiers.serial(shown)
    of_model = {identifiers.serial(_text(part.body, name)) for name in ("Model", "PartNumber", "SKU")}
    return shown if compared and compared not in of_model else ""


def _assembly_serial(assembly: Document, parts: tuple[Document, ...]) -> str:
    """Return the serial number of the board itself among those of an assembly: the sole one, or the one with the part's name."""
    listed = [
        each for each in assembly.objects("Assemblies") if identifiers.serial(_text(each, "SerialNumber"))
    ]
    if len(listed) > 1:
        names = {part.id for part in parts} | {assembly.uri.rpartition("/")[0].rpartition("/")[2]}
        listed = [
            each for each in listed if any(f"<{name}>" in documents.text(each, "Name") for name in names)
        ]
    serials = {_text(each, "SerialNumber") for each in listed}
    return serials.pop() if len(serials) == 1 else ""


def _addresses(part: Document) -> Iterator[tuple[Kind, str, str]]:
    """Yield the MAC addresses and node GUIDs of a network function, interface or port, with their properties.

    Those that are set now count where the permanent ones are missing.
    """
    body = part.body
    match models.schema(part):
        case "NetworkDeviceFunction":
            yield (
                Kind.MAC,
                _permanent(Kind.MAC, body, "MACAddress", "Ethernet"),
                "Ethernet.PermanentMACAddress",
            )
            guid = _permanent(Kind.NODE_GUID, body, "NodeGUID", "InfiniBand")
            yield Kind.NODE_GUID, guid, "InfiniBand.PermanentNodeGUID"
        case "EthernetInterface":
            yield Kind.MAC, _permanent(Kind.MAC, body, "MACAddress"), "PermanentMACAddress"
        case "Port":
            for text in _texts(body, "Ethernet", "AssociatedMACAddresses"):
                yield Kind.MAC, text, "Ethernet.AssociatedMACAddresses"
            for text in _texts(body, "InfiniBand", "AssociatedNodeGUIDs"):
                yield Kind.NODE_GUID, text, "InfiniBand.AssociatedNodeGUIDs"
        case "NetworkPort":
            for text in _texts(body, "AssociatedNetworkAddresses"):
                yield Kind.MAC, text, "AssociatedNetworkAddresses"
        case _:
            pass


def _permanent_address(part: Document) -> str:
    """Return the permanent address that a network function or interface shows, also one that no node recognises; else an empty one."""
    match models.schema(part):
        case "NetworkDeviceFunction":
            ethernet = _text(part.body, "Ethernet", "PermanentMACAddress")
            return ethernet or _text(part.body, "InfiniBand", "PermanentNodeGUID")
        case "EthernetInterface":
            return _text(part.body, "PermanentMACAddress")
        case _:
            return ""


def _permanent(kind: Kind, body: Json, name: str, *above: str) -> str:
    """Return the permanent address; the current one if there is none, or a placeholder."""
    shown = _text(body, *above, f"Permanent{name}")
    return shown if witnesses.identifier(kind, shown, name) is not None else _text(body, *above, name)


def _texts(body: Json, *names: str) -> Iterator[str]:
    """Yield the texts in the array below these properties; a text in place of the array is its only one."""
    shown: Any = documents.value(body, *names)
    listed = shown if isinstance(shown, list) else [shown]
    return (text for text in listed[:_LISTED_MAX] if isinstance(text, str))


def _text(body: Json, *names: str) -> str:
    """Return the text below these properties uncut, since a cut identifier would be another one."""
    content = documents.as_text(documents.value(body, *names))
    return content if len(content) <= 4 * witnesses.VALUE_MAX else ""
