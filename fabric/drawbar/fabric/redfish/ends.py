"""The ends of connections: hosts behind initiators and devices behind targets, of one reading; pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from drawbar.fabric import contract, notes
from drawbar.fabric.redfish import documents, entities, models, profiles, views, wiring
from drawbar.fabric.redfish.documents import Document


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """One fabric of the service.

    Attributes:
        zones_uris: possible URIs of its collection of zones or connections: the link, then the schema's place.
        endpoints: of the fabric, by URI.
        spelled: the URIs of its endpoints by key; see `documents.index_spellings`.
        others: the URIs of its endpoints of other protocols.
        ports: of its switches; see `wiring`.
        is_between_devices: whether it connects devices with each other, as NVLink does.
        oddities: see `views.View`.
    """

    id: str
    zones_uris: tuple[str, ...]
    endpoints: Mapping[str, Document]
    spelled: Mapping[str, str] = field(default_factory=dict)
    others: frozenset[str] = frozenset()
    ports: wiring.Ports = field(default_factory=dict)
    is_between_devices: bool = False
    oddities: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Zone:
    """A zone of endpoints, or a connection.

    Attributes:
        fabric: the id of its fabric.
        document: of the resource.
        endpoints: the URIs of all its endpoints.
        note: its request and owner.
    """

    fabric: str
    document: Document
    endpoints: tuple[str, ...]
    note: notes.Note


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """The zone of a connected target.

    Attributes:
        initiator: the URI of the host's endpoint in it.
    """

    zone: Zone
    initiator: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """The last reading, with derived tables.

    Attributes:
        fabrics: by id.
        zones: of endpoints, of all fabrics.
        devices: not attached, by id.
        targets: the endpoint or memory chunk of each device, by device id.
        cards: the URIs of the PCIe devices of each device's parts, by device id.
        owners: the URI of the PCIe device of each physical PCIe function behind an endpoint, by the function's URI.
        hosts: without ports, by id.
        initiators: the URIs of each host's endpoints, by host id.
        host_ids: by the URI of an initiator.
        endpoint_ids: the id of each endpoint among those of all fabrics, by URI.
        unnamed: the URIs of endpoints whose host cannot be read, or named; also those of a CPU, and of nothing shown.
        oddities: see `views.View`.
        unread: see `views.View`; without zones.
        unread_zones: the same for zones and their collections.
        unlisted: a sentence for each zone whose host may be an endpoint that cannot be read, by URI.
        collections: the URI of each fabric's collection of zones, by the fabric's id.
        doubtful: the ids of fabrics with unreadable zones: a device in no zone may be attached.
    """

    fabrics: Mapping[str, Fabric] = field(default_factory=dict)
    zones: tuple[Zone, ...] = ()
    devices: Mapping[str, contract.Device] = field(default_factory=dict)
    targets: Mapping[str, Document] = field(default_factory=dict)
    cards: Mapping[str, frozenset[str]] = field(default_factory=dict)
    owners: Mapping[str, str] = field(default_factory=dict)
    hosts: Mapping[str, contract.Host] = field(default_factory=dict)
    initiators: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    host_ids: Mapping[str, str] = field(default_factory=dict)
    endpoint_ids: Mapping[str, str] = field(default_factory=dict)
    unnamed: frozenset[str] = frozenset()
    oddities: tuple[str, ...] = ()
    unread: Mapping[str, str] = field(default_factory=dict)
    unread_zones: Mapping[str, str] = field(default_factory=dict)
    unlisted: Mapping[str, str] = field(default_factory=dict)
    collections: Mapping[str, str] = field(default_factory=dict)
    doubtful: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Devices:
    """Devices that are not attached, with their endpoint or memory chunk, by id; and the endpoints of CPUs."""

    devices: Mapping[str, contract.Device]
    targets: Mapping[str, Document]
    cpus: frozenset[str]
    oddities: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hosts:
    """Hosts without ports, with the URIs of their endpoints, by id; and the endpoints of hosts that cannot be named."""

    hosts: Mapping[str, contract.Host]
    initiators: Mapping[str, tuple[str, ...]]
    unnamed: frozenset[str]
    oddities: tuple[str, ...]


def from_ends(
    fabrics: Mapping[str, Fabric],
    behind: Mapping[str, Document],
    *,
    further: Mapping[str, tuple[Document, ...]] = MappingProxyType({}),
    targets: Iterable[tuple[str, Document, tuple[str, ...]]],
    initiators: Iterable[tuple[str, Document]],
    unread: Set[str] = frozenset(),
) -> Read:
    """Return devices and hosts, without zones.

    Args:
        fabrics: by id.
        behind: the resources behind endpoints, by URI.
        further: by the URI of an endpoint, resources with more identifiers of its device.
        targets: device ids, with the endpoint or memory chunk, and the URIs of the describing resources.
        initiators: endpoints, with the URI of the host.
        unread: the URIs that the service failed to show; devices and hosts that depend on them are left out.
    """
    shown = _name_devices(fabrics, behind, further, targets, unread)
    named = _name_hosts(behind, initiators, unread)
    all_endpoints = {uri: each for fabric in fabrics.values() for uri, each in fabric.endpoints.items()}
    return Read(
        fabrics=fabrics,
        devices=shown.devices,
        targets=shown.targets,
        cards={
            device_id: entities.cards(behind[uri] for uri in entities.links(target) if uri in behind)
            for device_id, target in shown.targets.items()
        },
        owners={uri: owner for uri, part in behind.items() if (owner := entities.owner(part)) is not None},
        hosts=named.hosts,
        initiators=named.initiators,
        host_ids={uri: host_id for host_id, listed in named.initiators.items() for uri in listed},
        endpoint_ids={
            uri: f"{fabric.id}.{endpoint.id}"
            for fabric in fabrics.values()
            for uri, endpoint in fabric.endpoints.items()
        },
        unnamed=named.unnamed
        | shown.cpus
        | {uri for uri, each in all_endpoints.items() if entities.is_unclear(each)},
        oddities=(*shown.oddities, *named.oddities),
    )


def _name_devices(
    fabrics: Mapping[str, Fabric],
    behind: Mapping[str, Document],
    further: Mapping[str, tuple[Document, ...]],
    targets: Iterable[tuple[str, Document, tuple[str, ...]]],
    unread: Set[str],
) -> _Devices:
    """Return the devices that can be named, are there and can be read; see `from_ends`."""
    devices: dict[str, contract.Device] = {}
    named: dict[str, Document] = {}
    cpus: set[str] = set()
    oddities = []
    of_no_class = {
        uri for fabric in fabrics.values() if fabric.is_between_devices for uri in fabric.endpoints
    }
    there = [
        (device_id, target, links)
        for device_id, target, links in targets
        if not any(map(entities.is_gone, (target, *(behind[uri] for uri in links if uri in behind))))
    ]
    usable_ids = views.find_usable_ids(device_id for device_id, *_ in there)
    for device_id, target, links in there:
        linked = [behind[uri] for uri in links if uri in behind]
        if not unread.isdisjoint(links):
            continue
        if device_id not in usable_ids:
            oddities.append(views.explain_unusable_id(f"the device {target.uri}", device_id))
            continue
        if entities.is_cpu(linked):
            oddities.append(f"the endpoint {target.uri} is a host's CPU, so it is no device")
            cpus.add(target.uri)
            continue
        device = entities.device(device_id, target, (*describe(behind, links), *further.get(target.uri, ())))
        if target.uri in of_no_class:
            device = replace(device, device_class=contract.DeviceClass.OTHER)
        devices[device_id] = device
        named[device_id] = target
    return _Devices(devices=devices, targets=named, cpus=frozenset(cpus), oddities=tuple(oddities))


def _name_hosts(
    behind: Mapping[str, Document], initiators: Iterable[tuple[str, Document]], unread: Set[str]
) -> _Hosts:
    """Return the hosts; one that cannot be read, or has no usable Id, is unnamed; see `from_ends`."""
    by_system: dict[str, list[Document]] = {}
    for uri, endpoint in initiators:
        by_system.setdefault(uri, []).append(endpoint)
    hosts: dict[str, contract.Host] = {}
    uris: dict[str, tuple[str, ...]] = {}
    unnamed: set[str] = set()
    oddities = []
    # The id of a system that is missing for a while stays the same.
    systems = {
        uri: behind.get(uri, listed[0] if uri == listed[0].uri else Document(uri=uri))
        for uri, listed in by_system.items()
    }
    usable_ids = views.find_usable_ids(system.id for system in systems.values())
    for uri, listed in sorted(by_system.items()):
        system = systems[uri]
        host_id = system.id
        if uri in unread or host_id not in usable_ids:
            unnamed |= {endpoint.uri for endpoint in listed}
            if uri not in unread:
                oddities.append(views.explain_unusable_id(f"the host {uri}", host_id))
            continue
        hosts[host_id] = entities.host(host_id, system, listed)
        uris[host_id] = tuple(endpoint.uri for endpoint in listed)
    return _Hosts(hosts=hosts, initiators=uris, unnamed=frozenset(unnamed), oddities=tuple(oddities))


def describe(behind: Mapping[str, Document], links: Iterable[str]) -> tuple[Document, ...]:
    """Return the resources that describe a device: the links of its endpoint, and the PCIe functions in them."""
    linked = tuple(behind[uri] for uri in links if uri in behind)
    return (*linked, *models.functions(linked))


def system_uri(initiator: Document) -> str:
    """Return the URI of the initiator's computer system, or its own where it names none."""
    return next((uri for link in entities.links(initiator) if (uri := entities.system(link))), initiator.uri)


def spell(uris: Iterable[str], fabric: Fabric) -> tuple[str, ...]:
    """Return the URIs of endpoints in the spelling of the fabric, each once."""
    spelled = (
        uri if uri in fabric.endpoints else fabric.spelled.get(documents.build_key(uri), uri) for uri in uris
    )
    return tuple(dict.fromkeys(spelled))


def describe_unlisted(read: Read) -> dict[str, str]:
    """Return a sentence for each zone with a device, without a known host, and with an unknown endpoint, by URI.

    That endpoint may be a host's, so the devices of the zone may be attached.
    """
    targets = {target.uri for target in read.targets.values()}
    known = targets | read.endpoint_ids.keys()
    sentences = {}
    for zone in read.zones:
        unknown = next((uri for uri in zone.endpoints if uri not in known), "")
        if (
            unknown
            and not targets.isdisjoint(zone.endpoints)
            and read.host_ids.keys().isdisjoint(zone.endpoints)
        ):
            why = "cannot be read" if unknown in read.unread else "the fabric does not list"
            sentences[zone.document.uri] = f"{zone.document.uri} has the endpoint {unknown}, which {why}"
    return sentences


def describe_unknown(read: Read) -> dict[str, str]:
    """Return a sentence for each fabric whose zones name none of its endpoints, by its id.

    The service spells them in another way, so any device may be attached.
    """
    known = {target.uri for target in read.targets.values()} | read.endpoint_ids.keys() | read.unread.keys()
    sentences = {}
    for fabric in read.fabrics.values():
        named = [uri for zone in read.zones if zone.fabric == fabric.id for uri in zone.endpoints]
        if named and known.isdisjoint(named) and fabric.others.isdisjoint(named):
            sentences[fabric.id] = f"{fabric.zones_uris[0]} names {named[0]}, and no endpoint of the fabric"
    return sentences


def build_zones(
    fabric: Fabric,
    listed: Iterable[tuple[Document, tuple[str, ...] | None]],
    note_property: profiles.NoteProperty,
) -> Iterator[Zone]:
    """Yield the zones and connections of a fabric.

    Args:
        fabric: of the zones.
        listed: resources, each with the URIs of its endpoints; None for a resource of another kind.
        note_property: the property with a client's text.
    """
    for document, endpoints in listed:
        if endpoints is None:
            continue
        note = notes.Note()
        if note_property:
            note = notes.Note.from_text(document.value(note_property), prefix=notes.PREFIX)
        yield Zone(fabric=fabric.id, document=document, endpoints=spell(endpoints, fabric), note=note)


def describe_nameless(endpoints: Iterable[Document]) -> Iterator[str]:
    """Yield a sentence for each endpoint that shows neither a host nor a device behind it, or both."""
    for endpoint in endpoints:
        if entities.is_mixed(endpoint):
            yield f"the endpoint {endpoint.uri} shows a host and a device, so the device is not listed"
        if entities.is_unclear(endpoint) and not entities.is_gone(endpoint):
            shown = "a host as a device" if endpoint.objects("ConnectedEntities") else "no ConnectedEntities"
            yield f"the endpoint {endpoint.uri} shows {shown}, so it is neither a host nor a device"


def find_memberships(read: Read) -> dict[str, Membership]:
    """Return the membership of each connected target, by URI; a zone with a note comes before one without."""
    memberships: dict[str, Membership] = {}
    for zone in sorted(read.zones, key=lambda zone: zone.note.request_id is None):
        # Some services list them in another order each time.
        initiator = min((uri for uri in zone.endpoints if uri in read.host_ids), default=None)
        if initiator is None:
            continue
        for uri in zone.endpoints:
            if uri not in read.host_ids:
                memberships.setdefault(uri, Membership(zone=zone, initiator=initiator))
    return memberships


def find_device_ids(read: Read, uris: Set[str]) -> frozenset[str]:
    """Return the ids of the devices of these endpoints and zones."""
    ends = set(uris)
    for zone in read.zones:
        if zone.document.uri in uris:
            ends |= set(zone.endpoints)
    return frozenset(device_id for device_id, target in read.targets.items() if target.uri in ends)


def find_initiator(
    read: Read, host_id: str, initiator_id: str, reaches: Callable[[Fabric], bool]
) -> str | None:
    """Return the initiator of the host by that id, or the first one in a fabric of the target; else None.

    Args:
        read: of the service.
        host_id: of a host in it.
        initiator_id: of the endpoint; empty for any.
        reaches: returns whether a fabric connects the target.
    """
    for uri in read.initiators[host_id]:
        is_same_fabric = any(uri in fabric.endpoints and reaches(fabric) for fabric in read.fabrics.values())
        if is_same_fabric and initiator_id in {"", read.endpoint_ids[uri]}:
            return uri
    return None


def group(read: Read, groups: wiring.Groups, find_endpoint: Callable[[str], str]) -> Read:
    """Return the reading with the reachability groups of devices and hosts.

    Args:
        read: without them.
        groups: of each endpoint, by its URI.
        find_endpoint: returns the URI of the endpoint by which a target is connected.
    """
    targets = {device_id: find_endpoint(target.uri) for device_id, target in read.targets.items()}
    related = wiring.relate(groups, targets, read.initiators)
    return replace(
        read,
        devices={
            device_id: replace(device, reach_groups=related.get(device_id, frozenset()))
            for device_id, device in read.devices.items()
        },
        hosts={
            host_id: replace(host, reach_groups=related.get(host_id, frozenset()))
            for host_id, host in read.hosts.items()
        },
    )


def view(
    read: Read, *, ports: int, hides: Callable[[Zone], bool], is_in_doubt: Callable[[str], bool]
) -> views.View:
    """Return the devices with their connections, and the hosts with their ports.

    Args:
        read: with zones.
        ports: the most devices of one host port.
        hides: returns whether the devices of a zone are at a host that cannot be named.
        is_in_doubt: returns whether a target in no zone may be in one that cannot be read.
    """
    memberships = find_memberships(read)
    devices = {}
    used: dict[str, list[str]] = {}
    # Connected to a host that cannot be named: neither free nor to be shown.
    unreachable = {uri for zone in read.zones if hides(zone) for uri in zone.endpoints}
    for device_id, device in read.devices.items():
        uri = read.targets[device_id].uri
        membership = memberships.get(uri)
        if membership is None:
            if uri not in unreachable and not is_in_doubt(uri):
                devices[device_id] = device
            continue
        used.setdefault(membership.initiator, []).append(device_id)
        connection = contract.Connection(
            host_id=read.host_ids[membership.initiator],
            port_id=views.port_id(read.endpoint_ids[membership.initiator], device_id),
            request_id=membership.zone.note.request_id,
            mark=membership.zone.note.mark,
        )
        devices[device_id] = replace(device, connection=connection)
    parts = {
        device_id: frozenset(read.owners.get(uri, uri) for uri in entities.links(target))
        for device_id, target in read.targets.items()
    }
    devices, twins = views.drop_twins(devices, parts, read.cards)
    hosts = {
        host_id: replace(host, ports=_ports(read, host_id, used, most=ports))
        for host_id, host in read.hosts.items()
    }
    kind = "fabric" if len(read.fabrics) > 1 else "part of the fabric"
    oddities = (
        *read.oddities,
        *twins,
        *_describe_shared(read),
        *views.describe_unreached(devices, hosts, kind),
    )
    unread = {**read.unread, **read.unread_zones, **read.unlisted}
    return views.View(devices=devices, hosts=hosts, oddities=oddities, unread=unread)


def _describe_shared(read: Read) -> Iterator[str]:
    """Yield a sentence for each device that is connected to several hosts."""
    hosts_of: dict[str, set[str]] = {}
    for zone in read.zones:
        hosts = {read.host_ids[uri] for uri in zone.endpoints if uri in read.host_ids}
        for uri in zone.endpoints:
            hosts_of.setdefault(uri, set()).update(hosts)
    for device_id, target in read.targets.items():
        hosts = hosts_of.get(target.uri, set())
        if len(hosts) > 1:
            yield views.describe_shared(device_id, hosts)


def _ports(
    read: Read, host_id: str, used: Mapping[str, list[str]], *, most: int
) -> tuple[contract.Port, ...]:
    """Return the ports of a host, below each of its initiators."""
    return tuple(
        port
        for uri in read.initiators[host_id]
        for port in views.ports(read.endpoint_ids[uri], used.get(uri, ()), most=most)
    )
