"""Memory domains with memory chunks on request: the carved devices and their slices (MemoryDomain 1.5).

A domain is a pool of memory if it allows the creation of chunks and is behind a fabric adapter; each of its chunks is
a slice. A POST to the domain's collection makes a chunk across all of its memory, and a DELETE returns it. A chunk
keeps its request if the service keeps a client's text.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from drawbar.fabric import contract, notes
from drawbar.fabric.redfish import calls, documents, entities, parts
from drawbar.fabric.redfish.documents import Document
from drawbar.fabric.redfish.profiles import NoteProperty
from drawbar.fabric.redfish.reading import Reader


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """A memory domain that allows chunks.

    Attributes:
        chunks_uri: of the collection of its chunks.
        chunks: by device id.
        parts: its memory and CXL logical devices.
    """

    document: Document
    chunks_uri: str
    chunks: Mapping[str, Document]
    parts: tuple[Document, ...]

    @property
    def device_id(self) -> str:
        """Return the id of the carved device."""
        return f"{entities.chassis(self.document.uri)}.{self.document.id}"

    @property
    def step_bytes(self) -> int:
        """Return the least size of a chunk, of which every size is a multiple; it fits both values of the service."""
        step = self.document.number("MemoryChunkIncrementMiB") or 1
        least = self.document.number("MinMemoryChunkSizeMiB") or step
        return -(-least // step) * step * entities.MIB

    @property
    def bytes(self) -> int:
        """Return the size of the memory; 0 if it is not shown."""
        mib = self.document.number("MemorySizeMiB")
        return (mib or sum(part.number("CapacityMiB") for part in self.parts)) * entities.MIB


async def read(reader: Reader) -> tuple[Domain, ...]:
    """Return the domains of all chassis that allow chunks.

    Raises:
        FabricError: the service cannot be read now.
    """
    uri = reader.root.link("Chassis")
    collections = [
        domains
        for chassis in (await reader.available_members(uri) if uri is not None else ())
        if (domains := chassis.link("MemoryDomains")) is not None
    ]
    documents_read = [
        document
        for collection in collections
        for document in await reader.available_members(collection)
        if documents.is_true(document.value("AllowsMemoryChunkCreation"))
        and document.link("MemoryChunks") is not None
        and document.links("Links", "FabricAdapters")
    ]
    behind = await parts.read(reader, [uri for document in documents_read for uri in _part_uris(document)])
    listed = []
    for document in documents_read:
        chunks_uri = document.link("MemoryChunks") or ""
        origin = f"{entities.chassis(document.uri)}.{document.id}"
        with reader.noticing() as find_unread:
            there = [
                chunk for chunk in await reader.available_members(chunks_uri) if not entities.is_gone(chunk)
            ]
            chunks = {f"{origin}.{chunk.id}": chunk for chunk in there}
            if len(chunks) < len(there):
                reader.note(chunks_uri, f"{chunks_uri} has chunks with one Id, so none of them can be named")
        # The memory of a chunk that cannot be read or named would count as free.
        if find_unread() or not reader.unread.keys().isdisjoint(_part_uris(document)):
            continue
        listed.append(
            Domain(
                document=document,
                chunks_uri=chunks_uri,
                chunks=chunks,
                parts=tuple(behind[uri] for uri in _part_uris(document) if uri in behind),
            )
        )
    return tuple(listed)


def devices(domain: Domain, note_property: NoteProperty) -> tuple[contract.Device, ...]:
    """Return a domain's pool of memory and its slices; none of them attached."""
    held = 0
    slices = []
    for device_id, chunk in domain.chunks.items():
        note = notes.Note.from_text(chunk.value(note_property), prefix=notes.PREFIX)
        device = entities.device(device_id, chunk, (chunk, *domain.parts))
        made = contract.Slice(origin_id=domain.device_id, request_id=note.request_id, mark=note.mark)
        held += device.memory_bytes
        slices.append(replace(device, device_class=contract.DeviceClass.CXL_MEMORY, slice_of=made))
    pool = replace(
        entities.device(domain.device_id, domain.document, domain.parts),
        device_class=contract.DeviceClass.CXL_MEMORY,
        memory_bytes=domain.bytes,
        carving=contract.Carving(
            free_bytes=max(domain.bytes - held, 0), step_bytes=domain.step_bytes, is_pool=True
        ),
    )
    return (pool, *slices)


def find_endpoint(domain: Domain, chunk: Document, endpoints: Mapping[str, Document]) -> str | None:
    """Return the URI of the endpoint through which hosts reach a chunk, or None.

    It links to the chunk, or to memory of the chunk: a CXL logical device, its PCIe device, or a memory module. The
    chunk's links come before the domain's.

    Args:
        domain: of the chunk.
        chunk: of the domain.
        endpoints: of devices, by URI.
    """
    linked = {uri: frozenset(entities.links(endpoint)) for uri, endpoint in sorted(endpoints.items())}

    def find_referrers(uris: Iterable[str]) -> Iterator[str]:
        wanted = frozenset(uris)
        return (uri for uri, ends in linked.items() if not wanted.isdisjoint(ends))

    own, all_parts = _memory_uris(chunk), _part_uris(domain.document)
    shown = [uri for part in (chunk, *domain.parts) for uri in part.links("Links", "Endpoints")]
    candidates = (
        *find_referrers((chunk.uri,)),
        *(uri for uri in chunk.links("Links", "Endpoints") if uri in endpoints),
        *find_referrers((*own, *map(_card, own))),
        *find_referrers((*all_parts, *map(_card, all_parts))),
        *(uri for uri in shown if uri in endpoints),
    )
    return next(iter(candidates), None)


def create(
    domain: Domain, request: contract.CreateSliceRequest, note_property: NoteProperty
) -> calls.Call | None:
    """Return the request that makes a slice, or None if its chunk exists."""
    note = notes.Note.from_request(request)
    content = note.text(prefix=notes.PREFIX)
    if any(chunk.value(note_property) == content for chunk in domain.chunks.values()):
        return None
    body = {
        documents.TYPE: "#MemoryChunks.v1_5_0.MemoryChunks",
        "Name": f"Slice of {domain.device_id}",
        "AddressRangeType": "Volatile",
        "MemoryChunkSizeMiB": request.memory_bytes // entities.MIB,
        str(note_property): content,
    }
    return calls.Call(method="POST", uri=domain.chunks_uri, body=body)


def _memory_uris(chunk: Document) -> tuple[str, ...]:
    """Return the URIs of a chunk's memory."""
    interleaved = (
        documents.link(documents.value(entry, "Memory")) for entry in chunk.objects("InterleaveSets")
    )
    return (*chunk.links("Links", "CXLLogicalDevices"), *(uri for uri in interleaved if uri))


def _card(uri: str) -> str:
    """Return the URI of a CXL logical device's PCIe device, else the same URI."""
    return uri.partition("/CXLLogicalDevices/")[0]


def _part_uris(document: Document) -> tuple[str, ...]:
    sets = document.objects("InterleavableMemorySets")
    memory = (documents.link(entry) for listed in sets for entry in documents.objects(listed, "MemorySet"))
    return (*document.links("Links", "CXLLogicalDevices"), *(uri for uri in memory if uri))
