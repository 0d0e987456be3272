"""The fabrics of a Redfish service: their endpoints, switches and collections of zones, as the service shows them."""

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace

from drawbar.fabric import budget, errors
from drawbar.fabric.redfish import documents, ends, entities, parts, profiles, reading, views, wiring
from drawbar.fabric.redfish.documents import ID, Document
from drawbar.fabric.redfish.reading import Reader

NO_DEVICES = (
    "the Redfish service has computer systems, and neither Fabrics nor a CompositionService: it has no devices that can be "
    "attached; if another service manages the fabric, give the endpoint of that one"
)
# Of a Connection.
_GROUPS = ("InitiatorEndpoints", "TargetEndpoints")
_ENTITIES = "ConnectedEntities"
_OTHER = {"Zones": "Connections", "Connections": "Zones"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The fabrics to read.

    Attributes:
        collection: the property of a fabric that links to the resources that connect endpoints.
        ids: of the fabrics; empty for all.
    """

    collection: str
    ids: frozenset[str] = frozenset()

    def find_problem(self, document: Document) -> str:
        """Return a sentence with the reason why a fabric's devices are not listed; empty if they are."""
        is_of_devices = entities.has_devices(document)
        unlisted = f"the fabric {document.id} is of the type {document.text('FabricType')}, so its devices are not listed"
        # A connection of another fabric is one of volumes or ports.
        if not is_of_devices and document.link("Connections") and not document.link("Zones"):
            return f"{unlisted}; Drawbar attaches nothing by its Connections"
        if not self.ids and not is_of_devices:
            return f"{unlisted}; set the parameter `fabrics: {document.id}` if they should be"
        other = _OTHER[self.collection]
        if document.link(self.collection) is not None or document.link(other) is None:
            return ""
        profile = "connections" if other == "Connections" else profiles.GENERIC
        return (
            f"the fabric {document.id} has {other} and no {self.collection}, so its devices are not listed; set the parameter "
            f"`profile: {profile}` if they should be"
        )


async def read_documents(reader: Reader) -> tuple[Document, ...] | None:
    """Return the fabrics of a service, or None if it has no collection of them.

    Raises:
        Unimplemented: the service root links to one that is not there.
        FabricError: the collection cannot be read.
    """
    if reader.root.link("Fabrics") is not None:
        return await reading.read_linked(reader.root, "Fabrics", reader.current_members)
    try:
        # A service that has just started may show them later.
        return await reader.current_members(f"{reader.root.uri}/Fabrics")
    except (errors.NotFound, errors.Unimplemented):
        return None


async def read(
    reader: Reader, listed: Iterable[Document], wanted: Wanted
) -> tuple[dict[str, ends.Fabric], list[str]]:
    """Return the usable fabrics by id, and a sentence for each of the others.

    A fabric that cannot be read is noted in `Reader.unread`.

    Raises:
        NotFound: a wanted fabric is not there.
        FabricError: no fabric can be read.
    """
    fabrics: dict[str, ends.Fabric] = {}
    oddities: list[str] = []
    # Dangling links are excepted: a service with these answers, and will not change soon.
    failures: list[errors.FabricError] = []
    listed = tuple(listed)
    usable_ids = views.find_usable_ids(document.id for document in listed)
    for document in listed:
        if wanted.ids and document.id not in wanted.ids:
            continue
        if document.id not in usable_ids:
            oddities.append(views.explain_unusable_id(f"the fabric {document.uri}", document.id))
            continue
        if problem := wanted.find_problem(document):
            oddities.append(problem)
            continue
        try:
            fabrics[document.id] = await _read_fabric(reader, document, wanted)
        except errors.FabricError as error:
            is_missing = isinstance(error, errors.NotFound)
            if is_missing and document.link("Endpoints") is None:
                oddities.append(f"the fabric {document.id} has no Endpoints, so no device of it is listed")
                continue
            reader.note_unread(_find_uris(document, "Endpoints")[0], error)
            if not is_missing:
                failures.append(error)
    if failures and not fabrics:
        raise failures[0]
    if not reader.unread and (missing := wanted.ids - fabrics.keys()):
        problem = (
            "; ".join(oddities)
            or f"look at its fabrics, then at `fabrics` and `profile` ({wanted.collection})"
        )
        raise errors.NotFound(
            f'the Redfish service has no fabric "{min(missing)}" that can be used: {problem}'
        )
    return fabrics, oddities


async def _read_fabric(reader: Reader, document: Document, wanted: Wanted) -> ends.Fabric:
    """Read a fabric's endpoints and switches.

    Raises:
        FabricError: its endpoints cannot be read.
    """
    listed = await _read_endpoints(reader, document)
    endpoints = tuple(each for each in listed if wanted.ids or entities.is_of_device_protocol(each))
    protocols = {each.text("EndpointProtocol") for each in listed if each not in endpoints}
    return ends.Fabric(
        id=document.id,
        zones_uris=_find_uris(document, wanted.collection),
        endpoints={endpoint.uri: endpoint for endpoint in endpoints},
        spelled=documents.index_spellings(endpoint.uri for endpoint in endpoints),
        others=frozenset(each.uri for each in listed if each not in endpoints),
        ports=await _read_ports(reader, document.link("Switches")),
        is_between_devices=document.text("FabricType").lower() in entities.LINK_FABRICS,
        oddities=tuple(
            f"the fabric {document.id} has endpoints of the protocol {protocol}, whose devices are not listed; set the "
            f"parameter `fabrics: {document.id}` if they should be"
            for protocol in sorted(protocols)
        ),
    )


async def _read_ports(reader: Reader, switches_uri: str | None) -> wiring.Ports:
    """Read the ports of a fabric's switches; none of a fabric with less than two, or whose switches cannot be read.

    Raises:
        FabricError: the service lists more than it may.
    """
    if switches_uri is None:
        return {}
    try:
        with reader.noticing() as find_unread:
            switches = await reader.members(switches_uri, may_be_remembered=True)
            ports = {
                switch.uri: await reader.members(uri, may_be_remembered=True)
                if (uri := switch.link("Ports")) is not None
                else ()
                for switch in switches
                if len(switches) > 1
            }
    except errors.FabricError as error:
        # Switches that cannot be read are no reason to hide their fabric.
        if budget.is_exceeded(error):
            raise
        return {}
    unread = find_unread()
    reader.forget_unread(unread)
    return {} if unread else ports


async def _read_endpoints(reader: Reader, document: Document) -> tuple[Document, ...]:
    """Return the endpoints of a fabric.

    Raises:
        FabricError: their collection cannot be read, or found.
    """
    linked, *fallback = _find_uris(document, "Endpoints")
    try:
        return await reader.current_members(linked, may_be_remembered=True, needs=_ENTITIES)
    except errors.NotFound:
        if not fallback:
            raise
    return await reader.current_members(fallback[0], may_be_remembered=True, needs=_ENTITIES)


async def read_zones(reader: Reader, fabric: ends.Fabric) -> tuple[str, tuple[Document, ...]]:
    """Return the URI of a fabric's collection of zones, and its members.

    Some services make the collection with its first member.

    Raises:
        FabricError: the collection cannot be read.
    """
    for uri in fabric.zones_uris:
        try:
            listed = await reader.current_members(uri, needs="Links")
            return uri, await reading.read_in_parallel(listed, lambda zone: _complete(reader, zone))
        except errors.NotFound:
            continue
    return fabric.zones_uris[-1], ()


async def _complete(reader: Reader, zone: Document) -> Document:
    """Return a zone with its endpoints, which some services show in a collection below it alone.

    A zone that shows only a part of its endpoints is noted in `Reader.unread`.

    Raises:
        FabricError: the service cannot be read now.
    """
    names = zone.find_links_path("Endpoints")
    shown = zone.links(*names) or ((zone.link("Endpoints") or "",) if names[1:] else ())
    if len(shown) == 1 and shown[0].endswith("/Endpoints"):
        listed = await reader.available_members(shown[0])
        return replace(zone, body={**zone.body, "Links": {"Endpoints": [{ID: each.uri} for each in listed]}})
    is_missing = zone.value("Links") is None and zone.value("Endpoints") is None
    groups = (zone.find_links_path(name) for name in _GROUPS)
    is_cut = any(zone.is_cut(*each) for each in (names, *groups)) or (
        is_missing and zone.text("ZoneType").casefold() == "zoneofendpoints"
    )
    if is_cut:
        reader.note(zone.uri, f"{zone.uri} shows only a part of its Endpoints")
    return zone


async def read_parts(reader: Reader, endpoints: Iterable[Document]) -> Mapping[str, Document]:
    """Return the resources behind endpoints by URI.

    Raises:
        FabricError: the service cannot be read now.
    """
    uris: set[str] = set()
    for endpoint in endpoints:
        links = entities.links(endpoint)
        if entities.is_initiator(endpoint):
            links = tuple(uri for link in links if (uri := entities.system(link)))
        uris.update(links)
    return await parts.read(reader, uris)


async def read_hosts_alone(reader: Reader, ids: Set[str]) -> ends.Read:
    """Return the computer systems of a service without fabrics.

    Raises:
        Unimplemented: it has none of these either, or fabrics are named.
    """
    is_linked = reader.root.link("Systems") is not None
    if not is_linked or ids or reader.root.link("CompositionService") is not None:
        raise errors.Unimplemented(
            "the Redfish service has no fabrics; look at the endpoint, or at `profile`"
        )
    systems = await reading.read_linked(reader.root, "Systems", reader.current_members)
    hosts = ends.from_ends({}, {}, targets=(), initiators=((system.uri, system) for system in systems))
    return replace(
        hosts,
        initiators=dict.fromkeys(hosts.hosts, ()),
        host_ids={},
        oddities=(NO_DEVICES, *hosts.oddities),
        unread=dict(reader.unread),
    )


def describe_dangling(reader: Reader, fabrics: Mapping[str, ends.Fabric]) -> Iterator[str]:
    """Yield a sentence for each device whose endpoint links to a missing resource."""
    for fabric in fabrics.values():
        for endpoint in fabric.endpoints.values():
            missing = [uri for uri in entities.links(endpoint) if uri in reader.dangling]
            if missing and entities.is_target(endpoint):
                yield (
                    f"device {fabric.id}.{endpoint.id} is listed without its details: the fabric manager has no "
                    f"{missing[0]}, which its endpoint links to; tell the vendor"
                )


def _find_uris(document: Document, collection: str) -> tuple[str, ...]:
    """Return the possible URIs of a fabric's collection: the link, then the schema's place."""
    linked = document.link(collection)
    return tuple(dict.fromkeys((*((linked,) if linked is not None else ()), f"{document.uri}/{collection}")))
