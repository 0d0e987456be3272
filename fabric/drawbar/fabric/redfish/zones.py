"""Connections by zones of endpoints: devices and hosts of one zone see each other (Zone 1.6, Endpoint 1.8).

A device belongs to the host with an initiator in its zone. In the style `pair` a zone is one connection, made by POST
and ended by DELETE. In the style `port` a zone is a host port with all its devices. Its array of endpoints is
changed, always from an array and an ETag of the same reading, so that another client's change is not lost.
"""

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from drawbar.fabric import contract, errors, notes
from drawbar.fabric.redfish import documents, entities, methods, parts, profiles, reading, restoring, wiring
from drawbar.fabric.redfish.documents import TYPE, Document
from drawbar.fabric.redfish.reading import Reader

NO_DEVICES = (
    "the Redfish service has computer systems, and neither Fabrics nor a CompositionService: it has no devices that can be "
    "attached; if another service manages the fabric, give the endpoint of that one"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """One fabric of the service.

    Attributes:
        id: of the fabric.
        zones_uris: possible URIs of its collection of zones or connections: the link, then the schema's place.
        endpoints: of the fabric, by URI.
        ports: of its switches; see `wiring`.
        is_between_devices: whether it connects devices with each other, as NVLink does.
        oddities: see `methods.View`.
    """

    id: str
    zones_uris: tuple[str, ...]
    endpoints: Mapping[str, Document]
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
class _Place:
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
        hosts: without ports, by id.
        initiators: the URIs of each host's endpoints, by host id.
        host_ids: by the URI of an initiator.
        endpoint_ids: the id of each endpoint among those of all fabrics, by URI.
        unnamed: the URIs of initiators whose host cannot be read, or has an Id that is too long or not unique.
        oddities: see `methods.View`.
        unread: see `methods.View`; without zones.
        unread_zones: the same for zones and their collections.
        collections: the URI of each fabric's collection of zones, by the fabric's id.
        doubtful: the ids of fabrics with unreadable zones: a device in no zone may be attached.
    """

    fabrics: Mapping[str, Fabric] = field(default_factory=dict)
    zones: tuple[Zone, ...] = ()
    devices: Mapping[str, contract.Device] = field(default_factory=dict)
    targets: Mapping[str, Document] = field(default_factory=dict)
    hosts: Mapping[str, contract.Host] = field(default_factory=dict)
    initiators: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    host_ids: Mapping[str, str] = field(default_factory=dict)
    endpoint_ids: Mapping[str, str] = field(default_factory=dict)
    unnamed: frozenset[str] = frozenset()
    oddities: tuple[str, ...] = ()
    unread: Mapping[str, str] = field(default_factory=dict)
    unread_zones: Mapping[str, str] = field(default_factory=dict)
    collections: Mapping[str, str] = field(default_factory=dict)
    doubtful: frozenset[str] = frozenset()


class Zones:
    """The method `zones`; see `methods.Method`.

    Attributes:
        collection: the property of a fabric that links to what connects endpoints.
    """

    collection = "Zones"

    def __init__(self, profile: profiles.Profile, *, fabrics: frozenset[str] = frozenset()) -> None:
        # Only the fabrics of these ids are used; all where none is named.
        self._profile = profile
        self._wanted = fabrics
        self._read = Read()

    async def read(self, reader: Reader) -> None:
        """Read all resources; see `methods.Method`."""
        documents_read = await _fabrics(reader)
        if documents_read is None:
            self._read = await self._hosts_alone(reader)
            return
        fabrics: dict[str, Fabric] = {}
        oddities: list[str] = []
        # Dangling links are excepted: a service with these answers, and will not change soon.
        failures: list[errors.FabricError] = []
        for document in documents_read:
            if self._wanted and document.id not in self._wanted:
                continue
            if problem := self._unusable(document):
                oddities.append(problem)
                continue
            try:
                fabrics[document.id] = await self._fabric(reader, document)
            except errors.FabricError as error:
                if isinstance(error, errors.NotFound) and document.link("Endpoints") is None:
                    oddities.append(
                        f"the fabric {document.id} has no Endpoints, so no device of it is listed"
                    )
                    continue
                reader.note_unread(_places(document, "Endpoints")[0], error)
                if not isinstance(error, errors.NotFound):
                    failures.append(error)
        if failures and not fabrics:
            raise failures[0]
        if not reader.unread and (missing := self._wanted - fabrics.keys()):
            problem = (
                "; ".join(oddities)
                or f"look at its fabrics, then at `fabrics` and `profile` ({self.collection})"
            )
            raise errors.NotFound(
                f'the Redfish service has no fabric "{min(missing)}" that can be used: {problem}'
            )
        read = await self._ends(reader, fabrics)
        unread = dict(reader.unread)
        oddities += [sentence for fabric in fabrics.values() for sentence in fabric.oddities]
        read = replace(read, oddities=(*oddities, *read.oddities, *_dangling(reader, fabrics)), unread=unread)
        self._read = self._grouped(await self._with_zones(reader, read))

    async def _hosts_alone(self, reader: Reader) -> Read:
        """Return the computer systems of a service without fabrics.

        Raises:
            Unimplemented: it has none of these either, or fabrics are named.
        """
        is_linked = reader.root.link("Systems") is not None
        if not is_linked or self._wanted or reader.root.link("CompositionService") is not None:
            raise errors.Unimplemented(
                "the Redfish service has no fabrics; look at the endpoint, or at `profile`"
            )
        systems = await reading.read_linked(reader.root, "Systems", reader.members)
        read = from_ends({}, {}, targets=(), initiators=((system.uri, system) for system in systems))
        return replace(
            read,
            initiators=dict.fromkeys(read.hosts, ()),
            host_ids={},
            oddities=(NO_DEVICES, *read.oddities),
            unread=dict(reader.unread),
        )

    def _unusable(self, document: Document) -> str:
        """Return a sentence with the reason why a fabric's devices are not listed; empty if they are."""
        if not self._wanted and not entities.has_devices(document):
            return (
                f"the fabric {document.id} is of the type {document.text('FabricType')}, so its devices are not listed; set the "
                f"parameter `fabrics: {document.id}` if they should be"
            )
        other = {"Zones": "Connections", "Connections": "Zones"}[self.collection]
        if document.link(self.collection) is not None or document.link(other) is None:
            return ""
        profile = "connections" if other == "Connections" else profiles.GENERIC
        return (
            f"the fabric {document.id} has {other} and no {self.collection}, so its devices are not listed; set the parameter "
            f"`profile: {profile}` if they should be"
        )

    async def _fabric(self, reader: Reader, document: Document) -> Fabric:
        """Read a fabric's endpoints and switches.

        Raises:
            FabricError: its endpoints cannot be read.
        """
        listed = await _endpoints(reader, document)
        endpoints = tuple(each for each in listed if self._wanted or entities.is_of_device_protocol(each))
        protocols = {each.text("EndpointProtocol") for each in listed if each not in endpoints}
        return Fabric(
            id=document.id,
            zones_uris=_places(document, self.collection),
            endpoints={endpoint.uri: endpoint for endpoint in endpoints},
            ports=await wiring.read(reader, document.link("Switches")),
            is_between_devices=document.text("FabricType").lower() in entities.LINK_FABRICS,
            oddities=tuple(
                f"the fabric {document.id} has endpoints of the protocol {protocol}, whose devices are not listed; set the "
                f"parameter `fabrics: {document.id}` if they should be"
                for protocol in sorted(protocols)
            ),
        )

    async def read_connections(self, reader: Reader) -> None:
        """Read the connections again; see `methods.Method`."""
        if not self._read.fabrics:
            await self.read(reader)
            return
        self._read = await self._with_zones(reader, self._read)

    def view(self) -> methods.View:
        """Return the devices and hosts of the last reading; see `methods.Method`."""
        read = self._read
        places = self._places()
        devices = {}
        used: dict[str, list[str]] = {}
        # Connected to a host that cannot be named: neither free nor to be shown.
        unreachable = {uri for zone in read.zones if self._hides(zone) for uri in zone.endpoints}
        for device_id, device in read.devices.items():
            uri = read.targets[device_id].uri
            place = places.get(uri)
            if place is None:
                if uri not in unreachable and not self._is_in_doubt(uri):
                    devices[device_id] = device
                continue
            host_id = read.host_ids[place.initiator]
            used.setdefault(place.initiator, []).append(device_id)
            connection = contract.Connection(
                host_id=host_id,
                port_id=methods.port_id(read.endpoint_ids[place.initiator], device_id),
                request_id=place.zone.note.request_id,
                mark=place.zone.note.mark,
            )
            devices[device_id] = replace(device, connection=connection)
        hosts = {
            host_id: replace(
                host,
                ports=tuple(
                    port
                    for uri in read.initiators[host_id]
                    for port in methods.ports(
                        read.endpoint_ids[uri],
                        used.get(uri, ()),
                        most=self._profile.ports,
                    )
                ),
            )
            for host_id, host in read.hosts.items()
        }
        unread = {**read.unread, **read.unread_zones}
        kind = "fabric" if len(read.fabrics) > 1 else "part of the fabric"
        oddities = (*read.oddities, *methods.describe_unreached(devices, hosts, kind))
        return methods.View(devices=devices, hosts=hosts, oddities=oddities, unread=unread)

    def _is_in_doubt(self, target: str) -> bool:
        """Return whether a target in no zone may be in one that cannot be read."""
        fabrics = self._read.fabrics
        return any(self._reaches(fabrics[fabric_id], target) for fabric_id in self._read.doubtful)

    def device_ids(self, uris: Set[str]) -> frozenset[str]:
        """Return the ids of the devices of these resources; see `methods.Method`."""
        ends = set(uris)
        for zone in self._read.zones:
            if zone.document.uri in uris:
                ends |= set(zone.endpoints)
        return frozenset(device_id for device_id, target in self._read.targets.items() if target.uri in ends)

    def attach(self, request: contract.AttachRequest, device_id: str, port_id: str) -> methods.Call:
        """Return the request of an attach; see `methods.Method`."""
        target = self._read.targets.get(device_id)
        if target is None:
            raise methods.build_gone_error("device", device_id)
        initiator = self._initiator(request.host_id, port_id.partition("/")[0], target.uri)
        note = notes.Note.from_request(request)
        if self._profile.zone_style is profiles.ZoneStyle.PORT:
            zone = next((zone for zone in self._read.zones if initiator in zone.endpoints), None)
            if zone is not None:
                return self._changed(zone, target.uri, (*zone.endpoints, target.uri), "#Zone.AddEndpoint")
        fabric = next(fabric for fabric in self._read.fabrics.values() if initiator in fabric.endpoints)
        body = self._body(f"{device_id} at {request.host_id}", initiator, target)
        if self._profile.note_place:
            body[self._profile.note_place] = note.text(prefix=notes.PREFIX)
        return methods.Call(
            method="POST", uri=self._read.collections[fabric.id], body=body, hint=self._hint(target)
        )

    def detach(self, request: contract.DetachRequest, device_id: str) -> methods.Call | None:
        """Return the request of a detach, or None if there is nothing to do; see `methods.Method`."""
        target = self._read.targets.get(device_id)
        place = self._places().get(target.uri) if target is not None else None
        if target is None or place is None or self._read.host_ids[place.initiator] != request.host_id:
            return None
        zone = place.zone
        rest = tuple(uri for uri in zone.endpoints if uri != target.uri)
        is_pair = all(self._read.host_ids.get(uri) == request.host_id for uri in rest)
        if is_pair and self._profile.zone_style is profiles.ZoneStyle.PAIR:
            return methods.Call(method="DELETE", uri=zone.document.uri, etag=zone.document.etag)
        return self._without(zone, target.uri, rest)

    async def _ends(self, reader: Reader, fabrics: Mapping[str, Fabric]) -> Read:
        """Return devices and hosts, without zones."""
        endpoints = [
            (fabric, endpoint)
            for fabric in fabrics.values()
            for endpoint in sorted(fabric.endpoints.values(), key=lambda endpoint: endpoint.uri)
        ]
        behind = await _parts(reader, [endpoint for _, endpoint in endpoints])
        targets = [
            (f"{fabric.id}.{endpoint.id}", endpoint, entities.links(endpoint))
            for fabric, endpoint in endpoints
            if entities.is_target(endpoint) and self._is_device(endpoint)
        ]
        return from_ends(
            fabrics,
            behind,
            further=await parts.read_identifying(
                reader, ((endpoint, _describing(behind, links)) for _, endpoint, links in targets)
            ),
            targets=targets,
            initiators=[
                (system_uri(endpoint), endpoint)
                for _, endpoint in endpoints
                if entities.is_initiator(endpoint)
            ],
            unread=reader.unread.keys(),
        )

    def _groups(self, read: Read) -> wiring.Groups:
        """Return the reachability groups of each endpoint, by its URI."""
        return {
            uri: of_endpoint
            for fabric in read.fabrics.values()
            for uri, of_endpoint in wiring.divide(fabric.id, fabric.endpoints, fabric.ports).items()
        }

    def _grouped(self, read: Read) -> Read:
        """Return the reading with the reachability groups of devices and hosts."""
        groups = self._groups(read)
        targets = {device_id: self._endpoint(target.uri) for device_id, target in read.targets.items()}
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

    def _endpoint(self, target: str) -> str:
        """Return the URI of the endpoint by which the target is connected."""
        return target

    def _is_device(self, _endpoint: Document) -> bool:
        """Return whether the target endpoint is a device that this method connects."""
        return True

    def _hides(self, zone: Zone) -> bool:
        """Return whether the devices of the zone are at a host that cannot be named."""
        return not self._read.unnamed.isdisjoint(zone.endpoints)

    def _body(self, name: str, initiator: str, target: Document) -> dict[str, object]:
        """Return the properties of the resource that connects the two, without a note."""
        return {
            TYPE: "#Zone.v1_6_0.Zone",
            "Name": name,
            "ZoneType": "ZoneOfEndpoints",
            "Links": {"Endpoints": documents.references((initiator, target.uri))},
        }

    def _without(self, zone: Zone, target: str, rest: tuple[str, ...]) -> methods.Call:
        """Return the request that takes the target out of a zone which has to stay."""
        return self._changed(zone, target, rest, "#Zone.RemoveEndpoint")

    def _endpoints(self, document: Document, _fabric: Fabric) -> tuple[str, ...] | None:
        """Return the URIs of the endpoints that the resource connects; None for one of another kind."""
        is_of_endpoints = document.text("ZoneType") in {"", "ZoneOfEndpoints"}
        return document.links("Links", "Endpoints") if is_of_endpoints else None

    def _changed(self, zone: Zone, target: str, endpoints: tuple[str, ...], action: str) -> methods.Call:
        """Return the change of a zone's endpoints: by an action where it offers one, else of the whole array."""
        document = zone.document
        offered = document.action(action)
        if offered is not None:
            named: dict[str, object] = {"Endpoint": {documents.ID: target}}
            named_by = methods.Action(resource_uri=document.uri, etag_parameter="ZoneETag")
            return methods.Call(
                method="POST", uri=offered, body=named, etag=document.etag, is_shared=True, action=named_by
            )
        change = restoring.Change(
            name="Endpoints",
            before=zone.endpoints,
            wanted=endpoints,
            own=frozenset(self._read.host_ids.keys() & set(zone.endpoints)),
            etag=document.etag,
            zone_body=self._profile.zone_body,
        )
        return methods.set_array(document, change)

    async def _with_zones(self, reader: Reader, read: Read) -> Read:
        """Return the reading with the current zones."""
        listed: list[Zone] = []
        unread: dict[str, str] = {}
        collections: dict[str, str] = {}
        doubtful: set[str] = set()
        failures: list[errors.FabricError] = []
        for fabric in read.fabrics.values():
            with reader.noticing() as find_unread:
                try:
                    collections[fabric.id], documents_read = await _zones(reader, fabric)
                except errors.FabricError as error:
                    reader.note_unread(fabric.zones_uris[0], error)
                    failures.append(error)
                    collections[fabric.id], documents_read = fabric.zones_uris[0], ()
            listed += self._zones_of(fabric, documents_read)
            if sick := find_unread():
                doubtful.add(fabric.id)
                unread |= {uri: reader.unread[uri] for uri in sick}
        if failures and len(failures) == len(read.fabrics):
            raise failures[0]
        return replace(
            read,
            zones=tuple(sorted(listed, key=lambda zone: zone.document.uri)),
            unread_zones=unread,
            collections=collections,
            doubtful=frozenset(doubtful),
        )

    def _zones_of(self, fabric: Fabric, listed: Iterable[Document]) -> Iterator[Zone]:
        for document in listed:
            endpoints = self._endpoints(document, fabric)
            if endpoints is None:
                continue
            place = self._profile.note_place
            note = notes.Note.from_text(document.value(place), prefix=notes.PREFIX) if place else notes.Note()
            yield Zone(fabric=fabric.id, document=document, endpoints=endpoints, note=note)

    def _places(self) -> dict[str, _Place]:
        """Return the place of each connected target; a zone with a note comes before one without."""
        places: dict[str, _Place] = {}
        for zone in sorted(self._read.zones, key=lambda zone: zone.note.request_id is None):
            initiator = next((uri for uri in zone.endpoints if uri in self._read.host_ids), None)
            if initiator is None:
                continue
            for uri in zone.endpoints:
                if uri not in self._read.host_ids:
                    places.setdefault(uri, _Place(zone=zone, initiator=initiator))
        return places

    def _reaches(self, fabric: Fabric, target: str) -> bool:
        """Return whether the fabric connects the target."""
        return target in fabric.endpoints

    def _initiator(self, host_id: str, initiator_id: str, target: str) -> str:
        """Return the initiator of the host by that id, or the first one in a fabric of the target."""
        if host_id not in self._read.initiators:
            raise methods.build_gone_error("host", host_id)
        for uri in self._read.initiators[host_id]:
            is_same_fabric = any(
                uri in fabric.endpoints and self._reaches(fabric, target)
                for fabric in self._read.fabrics.values()
            )
            if is_same_fabric and initiator_id in {"", self._read.endpoint_ids[uri]}:
                return uri
        raise self._unreached(host_id, target)

    def _unreached(self, host_id: str, _target: str) -> errors.FabricError:
        """Return the error of a host without an initiator in a fabric of the target."""
        return errors.FailedPrecondition(
            f"host {host_id} is not in the fabric of the device", reason=errors.Reason.INCOMPATIBLE
        )

    def _hint(self, _target: Document) -> str:
        """Return the probable reason if the service refuses to connect the target; empty if unknown."""
        return ""


async def _fabrics(reader: Reader) -> tuple[Document, ...] | None:
    """Return the fabrics of a service, or None if it has no collection of them.

    Raises:
        Unimplemented: the service root links to one that is not there.
        FabricError: the collection cannot be read.
    """
    if reader.root.link("Fabrics") is not None:
        return await reading.read_linked(reader.root, "Fabrics", reader.members)
    try:
        # A service that has just started may show them later.
        return await reader.members(f"{reader.root.uri}/Fabrics")
    except (errors.NotFound, errors.Unimplemented):
        return None


def _places(document: Document, collection: str) -> tuple[str, ...]:
    """Return the possible URIs of a fabric's collection: the link, then the schema's place."""
    linked = document.link(collection)
    return tuple(dict.fromkeys((*((linked,) if linked is not None else ()), f"{document.uri}/{collection}")))


async def _endpoints(reader: Reader, document: Document) -> tuple[Document, ...]:
    """Return the endpoints of a fabric.

    Raises:
        FabricError: their collection cannot be read, or found.
    """
    linked, *fallback = _places(document, "Endpoints")
    try:
        return await reader.members(linked, by_turns=True)
    except errors.NotFound:
        if not fallback:
            raise
    return await reader.members(fallback[0], by_turns=True)


async def _zones(reader: Reader, fabric: Fabric) -> tuple[str, tuple[Document, ...]]:
    """Return a fabric's collection of zones, and its members; some services make the collection with its first member.

    Raises:
        FabricError: the collection cannot be read.
    """
    for uri in fabric.zones_uris:
        try:
            return uri, await reader.members(uri)
        except errors.NotFound:
            continue
    return fabric.zones_uris[-1], ()


def _dangling(reader: Reader, fabrics: Mapping[str, Fabric]) -> Iterator[str]:
    """Yield a sentence for each device whose endpoint links to what the service does not have."""
    for fabric in fabrics.values():
        for endpoint in fabric.endpoints.values():
            missing = [uri for uri in entities.links(endpoint) if uri in reader.dangling]
            if missing and entities.is_target(endpoint):
                yield (
                    f"device {fabric.id}.{endpoint.id} is listed without its details: the fabric manager has no "
                    f"{missing[0]}, which its endpoint links to; tell the vendor"
                )


async def _parts(reader: Reader, endpoints: Iterable[Document]) -> Mapping[str, Document]:
    """Return what is behind endpoints by URI."""
    uris: set[str] = set()
    for endpoint in endpoints:
        links = entities.links(endpoint)
        if entities.is_initiator(endpoint):
            links = tuple(uri for link in links if (uri := entities.system(link)))
        uris.update(links)
    return await parts.read(reader, uris)


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
        behind: what is behind endpoints by URI.
        further: by the URI of an endpoint, resources with more identifiers of its device.
        targets: device ids, with the endpoint or memory chunk, and the URIs of what describes it.
        initiators: endpoints, with the URI of the host.
        unread: what the service failed to show; devices and hosts that depend on it are left out.
    """
    devices: dict[str, contract.Device] = {}
    named: dict[str, Document] = {}
    oddities = []
    of_no_class = {
        uri for fabric in fabrics.values() if fabric.is_between_devices for uri in fabric.endpoints
    }
    for device_id, target, links in targets:
        linked = [behind[uri] for uri in links if uri in behind]
        if any(entities.is_gone(document) for document in (target, *linked)) or not unread.isdisjoint(links):
            continue
        if len(device_id.encode()) > contract.STRING_BYTES or device_id in devices:
            oddities.append(f"the device {target.uri} has an Id that is too long or not unique")
            continue
        if entities.is_cpu(linked):
            oddities.append(f"the endpoint {target.uri} is a host's CPU, so it is no device")
            continue
        describing = (*_describing(behind, links), *further.get(target.uri, ()))
        device = entities.device(device_id, target, describing)
        if target.uri in of_no_class:
            device = replace(device, device_class=contract.DeviceClass.OTHER)
        devices[device_id] = device
        named[device_id] = target
    by_system: dict[str, list[Document]] = {}
    for uri, endpoint in initiators:
        by_system.setdefault(uri, []).append(endpoint)
    hosts: dict[str, contract.Host] = {}
    uris: dict[str, tuple[str, ...]] = {}
    unnamed: set[str] = set()
    for uri, listed in sorted(by_system.items()):
        if uri in unread:
            unnamed |= {endpoint.uri for endpoint in listed}
            continue
        system = behind.get(uri, listed[0])
        host_id = system.id
        if host_id in hosts or len(host_id.encode()) > contract.STRING_BYTES:
            oddities.append(f"the host {uri} has an Id that is too long or not unique")
            unnamed |= {endpoint.uri for endpoint in listed}
            continue
        hosts[host_id] = entities.host(host_id, system, listed)
        uris[host_id] = tuple(endpoint.uri for endpoint in listed)
    return Read(
        fabrics=fabrics,
        devices=devices,
        targets=named,
        hosts=hosts,
        initiators=uris,
        host_ids={uri: host_id for host_id, listed in uris.items() for uri in listed},
        endpoint_ids={
            uri: f"{fabric.id}.{endpoint.id}"
            for fabric in fabrics.values()
            for uri, endpoint in fabric.endpoints.items()
        },
        unnamed=frozenset(unnamed),
        oddities=tuple(oddities),
    )


def _describing(behind: Mapping[str, Document], links: Iterable[str]) -> tuple[Document, ...]:
    """Return the resources that describe a device: those that its endpoint links to, and PCIe functions that came with them."""
    linked = tuple(behind[uri] for uri in links if uri in behind)
    return (*linked, *parts.functions(linked))


def system_uri(initiator: Document) -> str:
    """Return the URI of the initiator's computer system, or its own where it names none."""
    return next((uri for link in entities.links(initiator) if (uri := entities.system(link))), initiator.uri)
