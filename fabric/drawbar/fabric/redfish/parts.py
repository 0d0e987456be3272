"""What endpoints and resource blocks link to: PCIe devices, processors, memory, drives, computer systems."""

from collections.abc import Iterable, Mapping

from drawbar.fabric import errors
from drawbar.fabric.redfish import documents
from drawbar.fabric.redfish.documents import Document
from drawbar.fabric.redfish.reading import Reader

# Below a collection of PCIe devices: the devices, the collections of their functions, the functions.
LEVELS = 3
# So few members of one collection are read one by one.
READ_SINGLY = 1


async def read(reader: Reader, uris: Iterable[str]) -> Mapping[str, Document]:
    """Return the resources by URI: whole collections where the service expands them; one that is gone is left out.

    Raises:
        FabricError: a resource cannot be read.
    """
    wanted: dict[str, set[str]] = {}
    for uri in uris:
        wanted.setdefault(uri.rpartition("/")[0], set()).add(uri)
    parts: dict[str, Document] = {}
    for collection, members in sorted(wanted.items()):
        listed: tuple[Document, ...] = ()
        if len(members) > READ_SINGLY and reader.expands:
            try:
                listed = await reader.members(collection, levels=LEVELS)
            except errors.Refused:
                # Not a collection after all.
                listed = ()
        parts |= {document.uri: document for document in listed}
        rest = tuple(Document(uri=uri, body={documents.ID: uri}) for uri in sorted(members - parts.keys()))
        parts |= {document.uri: document for document in await reader.resolved(rest)}
    return parts


def functions(devices: Iterable[Document]) -> tuple[Document, ...]:
    """Return the PCIe functions of these PCIe devices, where they came with them."""
    return tuple(
        Document.from_json(function)
        for device in devices
        for function in device.objects("PCIeFunctions", "Members")
    )
