"""Connections of memory chunks with the ports of a memory appliance, in the form of Seagate's backend `cfm`.

The endpoints of such a service are the appliance's own ports, each cabled to a host. A Connection has no initiator:
it names a chunk and, as its target, the endpoint of the port. So an endpoint is a host here, unless its initiator is
a computer system, and a device is a memory chunk of a domain. A port carries one Connection. A request has only these
two properties and the type; no text of a client is kept.

The manager above such appliances (`cfm-service`) shows the same resources. It requires the type CXL and a name from
the client, and then chooses another name itself.
"""

from collections.abc import Iterable, Mapping, Set

from drawbar.fabric.redfish import connections, documents, ends, entities, parts, profiles, wiring
from drawbar.fabric.redfish.documents import Document
from drawbar.fabric.redfish.reading import Reader


class Appliance(connections.Connections):
    """The method `appliance`; see `methods.Method`."""

    def __init__(self, profile: profiles.Profile, *, fabrics: frozenset[str] = frozenset()) -> None:
        super().__init__(profile, fabrics=fabrics)
        self._is_manager = False

    async def _ends(self, reader: Reader, usable: Mapping[str, ends.Fabric]) -> ends.Read:
        self._is_manager = is_manager(reader.root)
        ports = [
            (_host_uri(endpoint), endpoint)
            for fabric in usable.values()
            for endpoint in sorted(fabric.endpoints.values(), key=lambda endpoint: endpoint.uri)
            if not entities.is_part_of_fabric(endpoint) and not entities.is_gone(endpoint)
        ]
        systems = {uri for uri, endpoint in ports if uri != endpoint.uri}
        chunks = await _chunks(reader, systems)
        described = {uri for _, chunk in chunks for uri in chunk.links("Links", "CXLLogicalDevices")}
        behind = await parts.read(reader, described | systems)
        return ends.from_ends(
            usable,
            {**behind, **{chunk.uri: chunk for _, chunk in chunks}},
            targets=[
                (device_id, chunk, (chunk.uri, *chunk.links("Links", "CXLLogicalDevices")))
                for device_id, chunk in chunks
            ],
            initiators=ports,
            unread=reader.unread.keys(),
        )

    def _body(self, name: str, initiator: str, target: Document) -> dict[str, object]:
        body: dict[str, object] = {
            "ConnectionType": "Memory",
            "MemoryChunkInfo": [{"MemoryChunk": {documents.ID: target.uri}}],
            "Links": {"TargetEndpoints": documents.references((initiator,))},
        }
        if self._is_manager:
            fabric = next(fabric for fabric in self._read.fabrics.values() if initiator in fabric.endpoints)
            own = f"{target.id}-{fabric.endpoints[initiator].id}"
            body |= {
                documents.ID: f"{self._read.collections[fabric.id]}/{own}",
                documents.TYPE: "#Connection.v1_3_0.Connection",
                "Id": own,
                "Name": name,
                "ConnectionType": "CXL",
            }
        return body

    def _reaches(self, _fabric: ends.Fabric, _target: str) -> bool:
        return True

    def _groups(self, read: ends.Read) -> wiring.Groups:
        """Return the blade of each port and chunk by URI; none if a blade is unknown.

        Memory has no endpoint of its own. The manager of several blades uses the same names for a domain and a switch
        of each blade. A chunk with the port of another blade would make it connect the other blade's chunk of that
        name.
        """
        ports = {
            uri: frozenset(
                f"{fabric.id}/{port.partition('/Switches/')[2].partition('/')[0]}"
                for port in entities.ports(endpoint)
            )
            for fabric in read.fabrics.values()
            for uri, endpoint in fabric.endpoints.items()
        }
        chunks = {target.uri: frozenset({_blade(target.uri)}) for target in read.targets.values()}
        blades = frozenset[str]().union(*ports.values())
        is_known = all(ports.values()) and all(blade <= blades for blade in chunks.values())
        return {**ports, **chunks} if is_known else {}

    def _targets(self, chunks: Set[str], _fabric: ends.Fabric) -> Iterable[str]:
        return sorted(chunks)


def is_manager(root: Document) -> bool:
    """Return whether the service root belongs to the manager of appliances, not to an appliance."""
    return root.text("Product").lower().startswith(profiles.PROFILES["cma"].products)


def _blade(chunk_uri: str) -> str:
    """Return system and domain of a chunk."""
    owner, _, domain = chunk_uri.partition("/MemoryDomains/")
    return f"{owner.rpartition('/')[2]}/{domain.partition('/')[0]}"


def _host_uri(endpoint: Document) -> str:
    """Return the URI of the endpoint's initiator, if that is a computer system, or else the endpoint's own."""
    return ends.system_uri(endpoint) if entities.is_initiator(endpoint) else endpoint.uri


async def _chunks(reader: Reader, hosts: Set[str]) -> list[tuple[str, Document]]:
    """Return the memory chunks of all systems and chassis except hosts, each once, with the ids of the devices."""
    listed: dict[str, tuple[str, Document]] = {}
    for name in ("Systems", "Chassis"):
        uri = reader.root.link(name)
        for owner in await reader.available_members(uri) if uri is not None else ():
            domains = owner.link("MemoryDomains") if owner.uri not in hosts else None
            for domain in await reader.available_members(domains) if domains is not None else ():
                collection = domain.link("MemoryChunks")
                for chunk in await reader.available_members(collection) if collection is not None else ():
                    device_id = f"{owner.id}.{domain.id}.{chunk.id}"
                    listed.setdefault(chunk.uri, (device_id, chunk))
    return list(listed.values())
