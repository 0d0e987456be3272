"""Connections by zones of endpoints: devices and hosts of one zone see each other (Zone 1.6, Endpoint 1.8).

A device belongs to the host with an initiator in its zone. In the style `pair` a zone is one connection, made by POST
and ended by DELETE. In the style `port` a zone is a host port with all its devices. Its array of endpoints is
changed, always from an array and an ETag of the same reading, so that another client's change is not lost.
"""

from collections.abc import Mapping, Set
from dataclasses import replace

from drawbar.fabric import contract, errors, notes
from drawbar.fabric.redfish import (
    calls,
    documents,
    ends,
    entities,
    fabrics,
    parts,
    profiles,
    restoring,
    views,
    wiring,
)
from drawbar.fabric.redfish.documents import TYPE, Document
from drawbar.fabric.redfish.reading import Reader

# Of `ZoneType`, in lower case: the zones without endpoints of their own.
_OTHER_TYPES = frozenset({"default", "zoneofresourceblocks", "zoneofzones"})


class Zones:
    """The method `zones`; see `methods.Method`.

    Attributes:
        collection: the property of a fabric that links to its zones or connections.
    """

    collection = "Zones"

    def __init__(self, profile: profiles.Profile, *, fabrics: frozenset[str] = frozenset()) -> None:
        # Only the fabrics of these ids are used; all where none is named.
        self._profile = profile
        self._wanted = fabrics
        self._read = ends.Read()

    async def read(self, reader: Reader) -> None:
        """Read all resources; see `methods.Method`."""
        listed = await fabrics.read_documents(reader)
        if listed is None:
            self._read = await fabrics.read_hosts_alone(reader, self._wanted)
            return
        wanted = fabrics.Wanted(collection=self.collection, ids=self._wanted)
        usable, oddities = await fabrics.read(reader, listed, wanted)
        read = await self._ends(reader, usable)
        unread = dict(reader.unread)
        oddities += [sentence for fabric in usable.values() for sentence in fabric.oddities]
        dangling = fabrics.describe_dangling(reader, usable)
        read = replace(read, oddities=(*oddities, *read.oddities, *dangling), unread=unread)
        self._read = ends.group(await self._update_zones(reader, read), self._groups(read), self._endpoint)

    async def read_connections(self, reader: Reader) -> None:
        """Read the connections again; see `methods.Method`."""
        if not self._read.fabrics:
            await self.read(reader)
            return
        self._read = await self._update_zones(reader, self._read)

    def view(self) -> views.View:
        """Return the devices and hosts of the last reading; see `methods.Method`."""
        read = self._read
        doubtful = [read.fabrics[fabric_id] for fabric_id in read.doubtful]

        def is_in_doubt(target: str) -> bool:
            return any(self._reaches(fabric, target) for fabric in doubtful)

        return ends.view(read, ports=self._profile.ports, hides=self._hides, is_in_doubt=is_in_doubt)

    def device_ids(self, uris: Set[str]) -> frozenset[str]:
        """Return the ids of the devices of these resources; see `methods.Method`."""
        return ends.find_device_ids(self._read, uris)

    def attach(self, request: contract.AttachRequest, device_id: str, port_id: str) -> calls.Call:
        """Return the request of an attach; see `methods.Method`."""
        target = self._read.targets.get(device_id)
        if target is None:
            raise calls.build_gone_error("device", device_id)
        if request.host_id not in self._read.initiators:
            raise calls.build_gone_error("host", request.host_id)
        initiator = ends.find_initiator(
            self._read,
            request.host_id,
            port_id.rpartition("/")[0],
            lambda fabric: self._reaches(fabric, target.uri),
        )
        if initiator is None:
            raise self._build_unreached(request.host_id, target.uri)
        note = notes.Note.from_request(request)
        own = [zone for zone in self._read.zones if initiator in zone.endpoints]
        if self._profile.zone_style is profiles.ZoneStyle.PORT and own:
            zone = next((zone for zone in own if not self._find_others(zone, request.host_id)), own[0])
            self._check_alone(zone, request.host_id)
            return self._build_change(zone, target.uri, (*zone.endpoints, target.uri), "#Zone.AddEndpoint")
        fabric = next(fabric for fabric in self._read.fabrics.values() if initiator in fabric.endpoints)
        body = self._body(f"{device_id} at {request.host_id}", initiator, target)
        if self._profile.note_property:
            body[self._profile.note_property] = note.text(prefix=notes.PREFIX)
        return calls.Call(
            method="POST", uri=self._read.collections[fabric.id], body=body, hint=self._hint(target)
        )

    def detach(self, request: contract.DetachRequest, device_id: str) -> calls.Call | None:
        """Return the request of a detach, or None if there is nothing to do; see `methods.Method`."""
        target = self._read.targets.get(device_id)
        membership = ends.find_memberships(self._read).get(target.uri) if target is not None else None
        if (
            target is None
            or membership is None
            or self._read.host_ids[membership.initiator] != request.host_id
        ):
            return None
        zone = membership.zone
        rest = tuple(uri for uri in zone.endpoints if uri != target.uri)
        is_pair = all(self._read.host_ids.get(uri) == request.host_id for uri in rest)
        if is_pair and self._profile.zone_style is profiles.ZoneStyle.PAIR:
            return calls.Call(method="DELETE", uri=zone.document.uri, etag=zone.document.etag)
        return self._build_removal(zone, target.uri, rest, request.host_id)

    def _find_others(self, zone: ends.Zone, host_id: str) -> tuple[str, ...]:
        """Return the hosts in a zone besides this one; the endpoint of a host that cannot be named."""
        read = self._read
        endpoints = read.fabrics[zone.fabric].endpoints
        names = (
            read.host_ids.get(uri, uri)
            for uri in zone.endpoints
            if uri in read.host_ids or (uri in endpoints and entities.is_initiator(endpoints[uri]))
        )
        return tuple(dict.fromkeys(name for name in names if name != host_id))

    def _check_alone(self, zone: ends.Zone, host_id: str) -> None:
        """Refuse to change a zone with other hosts, which would get or lose the device too.

        Raises:
            FailedPrecondition: it has some.
        """
        if others := self._find_others(zone, host_id):
            raise errors.FailedPrecondition(
                f"{zone.document.uri} connects the host {host_id} and {views.name_some(others)}, and a change would be one for all "
                f"of them; give each host one of its own at the service",
                reason=errors.Reason.INCOMPATIBLE,
                host_id=host_id,
            )

    async def _ends(self, reader: Reader, usable: Mapping[str, ends.Fabric]) -> ends.Read:
        """Return devices and hosts, without zones."""
        endpoints = [
            (fabric, endpoint)
            for fabric in usable.values()
            for endpoint in sorted(fabric.endpoints.values(), key=lambda endpoint: endpoint.uri)
        ]
        behind = await fabrics.read_parts(reader, [endpoint for _, endpoint in endpoints])
        targets = [
            (f"{fabric.id}.{endpoint.id}", endpoint, entities.links(endpoint))
            for fabric, endpoint in endpoints
            if entities.is_target(endpoint) and self._is_device(endpoint)
        ]
        read = ends.from_ends(
            usable,
            behind,
            further=await parts.read_identifying(
                reader, ((endpoint, ends.describe(behind, links)) for _, endpoint, links in targets)
            ),
            targets=targets,
            initiators=[
                (ends.system_uri(endpoint), endpoint)
                for _, endpoint in endpoints
                if entities.is_initiator(endpoint)
            ],
            unread=reader.unread.keys(),
        )
        nameless = ends.describe_nameless(endpoint for _, endpoint in endpoints)
        return replace(read, oddities=(*read.oddities, *nameless))

    def _groups(self, read: ends.Read) -> wiring.Groups:
        """Return the reachability groups of each endpoint, by its URI."""
        return {
            uri: find_origin
            for fabric in read.fabrics.values()
            for uri, find_origin in wiring.divide(fabric.id, fabric.endpoints, fabric.ports).items()
        }

    def _endpoint(self, target: str) -> str:
        """Return the URI of the endpoint by which the target is connected."""
        return target

    def _is_device(self, _endpoint: Document) -> bool:
        """Return whether the target endpoint is a device that this method connects."""
        return True

    def _hides(self, zone: ends.Zone) -> bool:
        """Return whether the devices of the zone are at a host that cannot be named."""
        read = self._read
        return zone.document.uri in read.unlisted or not read.unnamed.isdisjoint(zone.endpoints)

    def _body(self, name: str, initiator: str, target: Document) -> dict[str, object]:
        """Return the properties of the resource that connects the two, without a note."""
        return {
            TYPE: "#Zone.v1_6_0.Zone",
            "Name": name,
            "ZoneType": "ZoneOfEndpoints",
            "Links": {"Endpoints": documents.references((initiator, target.uri))},
        }

    def _build_removal(self, zone: ends.Zone, target: str, rest: tuple[str, ...], host_id: str) -> calls.Call:
        """Return the request that takes the target out of a zone which has to stay.

        Raises:
            FailedPrecondition: the zone has other hosts.
        """
        self._check_alone(zone, host_id)
        return self._build_change(zone, target, rest, "#Zone.RemoveEndpoint")

    def _endpoints(self, document: Document, _fabric: ends.Fabric) -> tuple[str, ...] | None:
        """Return the URIs of the endpoints that the resource connects; None for one of another kind."""
        if document.text("ZoneType").casefold() in _OTHER_TYPES:
            return None
        return document.links(*document.find_links_path("Endpoints"))

    def _build_change(
        self, zone: ends.Zone, target: str, endpoints: tuple[str, ...], action: str
    ) -> calls.Call:
        """Return the change of a zone's endpoints: by an action where it offers one, else of the whole array."""
        document = zone.document
        offered = document.action(action)
        if offered is not None:
            named: dict[str, object] = {"Endpoint": {documents.ID: target}}
            named_by = calls.Action(resource_uri=document.uri, etag_parameter="ZoneETag")
            return calls.Call(
                method="POST", uri=offered, body=named, etag=document.etag, is_shared=True, action=named_by
            )
        movable = {each.uri for each in self._read.targets.values()}
        change = restoring.Change(
            name="Endpoints",
            before=zone.endpoints,
            wanted=endpoints,
            own=frozenset(zone.endpoints) - movable,
            etag=document.etag,
            zone_body=self._profile.zone_body
            if document.find_links_path("Endpoints")[1:]
            else profiles.ZoneBody.ENDPOINTS,
        )
        return calls.set_array(document, change, self._read.unread_zones)

    async def _update_zones(self, reader: Reader, read: ends.Read) -> ends.Read:
        """Return the reading with the current zones."""
        listed: list[ends.Zone] = []
        unread: dict[str, str] = {}
        collections: dict[str, str] = {}
        doubtful: set[str] = set()
        failures: list[errors.FabricError] = []
        for fabric in read.fabrics.values():
            with reader.noticing() as find_unread:
                try:
                    collections[fabric.id], documents_read = await fabrics.read_zones(reader, fabric)
                except errors.FabricError as error:
                    reader.note_unread(fabric.zones_uris[0], error)
                    failures.append(error)
                    collections[fabric.id], documents_read = fabric.zones_uris[0], ()
            connecting = [(document, self._endpoints(document, fabric)) for document in documents_read]
            listed += ends.build_zones(fabric, connecting, self._profile.note_property)
            if sick := find_unread():
                doubtful.add(fabric.id)
                unread |= {uri: reader.unread[uri] for uri in sick}
        if failures and len(failures) == len(read.fabrics):
            raise failures[0]
        read = replace(
            read,
            zones=tuple(sorted(listed, key=lambda zone: zone.document.uri)),
            unread_zones=unread,
            collections=collections,
            doubtful=frozenset(doubtful),
        )
        unknown = ends.describe_unknown(read)
        return replace(
            read,
            unlisted={
                **ends.describe_unlisted(read),
                **{collections[fabric_id]: sentence for fabric_id, sentence in unknown.items()},
            },
            doubtful=read.doubtful | unknown.keys(),
        )

    def _reaches(self, fabric: ends.Fabric, target: str) -> bool:
        """Return whether the fabric connects the target."""
        return target in fabric.endpoints

    def _build_unreached(self, host_id: str, _target: str) -> errors.FabricError:
        """Return the error of a host without an initiator in a fabric of the target."""
        return errors.FailedPrecondition(
            f"host {host_id} is not in the fabric of the device", reason=errors.Reason.INCOMPATIBLE
        )

    def _hint(self, _target: Document) -> str:
        """Return the probable reason if the service refuses to connect the target; empty if unknown."""
        return ""
