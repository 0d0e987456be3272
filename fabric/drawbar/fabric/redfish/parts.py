"""Linked resources of endpoints and resource blocks: PCIe devices, processors, memory, drives, computer systems."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from drawbar.fabric import errors
from drawbar.fabric.redfish import identities, models, reading
from drawbar.fabric.redfish.documents import Document
from drawbar.fabric.redfish.reading import Reader

# Below a collection of PCIe devices: the devices, the collections of their functions, the functions.
LEVELS = 3
# Up to this number, the members of one collection are read one by one.
READ_SINGLY = 1
# The longest chain of links from an endpoint to identifiers: a PCIe device, its processor, its assembly.
ROUNDS = 2


async def read(reader: Reader, uris: Iterable[str]) -> Mapping[str, Document]:
    """Return the resources by URI, without those that are gone; whole collections if the service expands them.

    Raises:
        FabricError: the service cannot be read now.
    """
    wanted: dict[str, set[str]] = {}
    for uri in uris:
        wanted.setdefault(uri.rpartition("/")[0], set()).add(uri)
    shared = [uri for uri, members in sorted(wanted.items()) if len(members) > READ_SINGLY and reader.expands]
    listed = await reading.read_in_parallel(shared, lambda uri: _expand(reader, uri))
    parts = {document.uri: document for documents in listed for document in documents}
    rest = set[str]().union(*wanted.values()) - parts.keys()
    return parts | {document.uri: document for document in await reader.details(rest)}


async def _expand(reader: Reader, collection: str) -> tuple[Document, ...]:
    """Return the members of a collection; none if it is no collection, or fails because of a faulty member."""
    try:
        with reader.noticing() as find_unread:
            members = await reader.members(collection, levels=LEVELS)
    except errors.FabricError as error:
        if not reading.is_of_resource(error):
            raise
        return ()
    # If a collection is incomplete, the wanted members are read one by one.
    reader.forget_unread(find_unread() & {collection})
    return members


async def read_identifying(
    reader: Reader, described: Iterable[tuple[Document, tuple[Document, ...]]]
) -> Mapping[str, tuple[Document, ...]]:
    """Return further resources with identifiers of devices, by the URI of the endpoint or resource block.

    Only for devices without a sufficient identifier: at most one collection or resource in each round, and none that
    the service refuses to show. Without `$expand` a collection takes a second request, for its first member.

    Args:
        reader: of this listing.
        described: endpoints and resource blocks, each with the resources that describe the device.

    Raises:
        FabricError: a resource cannot be read now.
    """
    devices = {origin.uri: (origin, parts) for origin, parts in described}
    further: dict[str, tuple[Document, ...]] = dict.fromkeys(devices, ())
    for _ in range(ROUNDS):
        wanted = {
            uri: more
            for uri, (origin, parts) in devices.items()
            if (more := _find_more(origin, (*parts, *further[uri]), expands=reader.expands))
            != identities.More()
        }
        read_now = await _read_if_shown(reader, {uri for more in wanted.values() for uri in more.resources})
        collections = tuple(dict.fromkeys(more.collection for more in wanted.values() if more.collection))
        listed = await reading.read_in_parallel(collections, lambda uri: _members(reader, uri))
        members = dict(zip(collections, listed, strict=True))
        for uri, more in wanted.items():
            resources = tuple(read_now[each] for each in more.resources if each in read_now)
            further[uri] += (*resources, *models.functions(resources), *members.get(more.collection, ()))
    return further


def _find_more(origin: Document, parts: tuple[Document, ...], *, expands: bool) -> identities.More:
    device_class = models.device_class(origin, parts)
    shown = identities.from_documents(device_class, origin, parts)
    is_enough = identities.is_proven(device_class, shown) and identities.is_named(device_class, parts)
    more = identities.More() if is_enough else identities.find_more(device_class, parts)
    # Each would be a request.
    return more if expands else replace(more, resources=more.resources[:READ_SINGLY])


async def _read_if_shown(reader: Reader, uris: Iterable[str]) -> Mapping[str, Document]:
    """Return the resources by URI without those that the service refuses to show."""
    listed = tuple(uris)
    resources = await read(reader, listed)
    reader.forget_unread(listed)
    return resources


async def _members(reader: Reader, collection: str) -> tuple[Document, ...]:
    """Return the members of a collection, or only the first one if the service does not expand them."""
    try:
        with reader.noticing() as unread:
            if reader.expands:
                listed = await reader.members(collection)
            else:
                page = await reader.get_detail(collection)
                listed = await reader.details(page.links("Members")[:1])
    except errors.FabricError as error:
        if not reading.is_of_resource(error):
            raise
        return ()
    reader.forget_unread(unread())
    return listed
