"""Connections of memory chunks: a host's endpoint, and a chunk behind another endpoint (Connection 1.1 to 1.4).

A Connection corresponds to a zone for each pair in `zones`: made by POST, and ended by DELETE under the ETag of its
reading. A chunk of a domain that allows chunks is a slice (`carving`). Any other endpoint with chunks is one device.
A Connection without an initiator, the form of `appliance`, is not made; its device is listed neither as free nor as
attached.
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import replace
from types import MappingProxyType

from drawbar.fabric import contract, errors
from drawbar.fabric.redfish import calls, carving, documents, ends, entities, profiles, views, zones
from drawbar.fabric.redfish.documents import Document
from drawbar.fabric.redfish.reading import Reader


class Connections(zones.Zones):
    """The method `connections`; see `methods.Method`."""

    collection = "Connections"

    def __init__(self, profile: profiles.Profile, *, fabrics: frozenset[str] = frozenset()) -> None:
        super().__init__(profile, fabrics=fabrics)
        self._domains: Mapping[str, carving.Domain] = MappingProxyType({})
        # By device id: the chunks that are slices.
        self._chunks: Mapping[str, Document] = MappingProxyType({})
        # Their URIs.
        self._slices: Set[str] = frozenset()
        # The endpoint's URI of each chunk that is a slice, by the chunk's URI.
        self._endpoints_of_slices: Mapping[str, str] = MappingProxyType({})
        # By the URI of a chunk that is none: those of the endpoints that are devices with it.
        self._devices_of_chunks: Mapping[str, list[str]] = MappingProxyType({})
        # The URIs of all these chunks by key; see `documents.index_spellings`.
        self._spelled_chunks: Mapping[str, str] = MappingProxyType({})

    @property
    def carves(self) -> bool:
        """Return whether slices can be made of some memory."""
        return bool(self._domains)

    async def read(self, reader: Reader) -> None:
        """Read all resources; see `methods.Method`."""
        # A slice that cannot show its request could be made twice.
        if self._profile.note_property:
            domains = await carving.read(reader)
            self._domains = {domain.device_id: domain for domain in domains}
            self._chunks = {
                device_id: chunk for domain in domains for device_id, chunk in domain.chunks.items()
            }
            self._slices = {chunk.uri for chunk in self._chunks.values()}
        await super().read(reader)

    def device_ids(self, uris: Set[str]) -> frozenset[str]:
        """Return the ids of the devices of these resources; see `methods.Method`; the collection of a pool's chunks stands for the pool."""
        carved = {device_id for device_id, domain in self._domains.items() if domain.chunks_uri in uris}
        return super().device_ids(uris) | carved

    def create_slice(self, request: contract.CreateSliceRequest) -> calls.Call | None:
        """Return the request that makes a slice, or None if it exists.

        Raises:
            FabricError: it cannot be made as things are.
        """
        domain = self._domains.get(request.device_id)
        if domain is None:
            raise calls.build_gone_error("device", request.device_id)
        return carving.create(domain, request, self._profile.note_property)

    def delete_slice(self, request: contract.DeleteSliceRequest) -> calls.Call | None:
        """Return the request that deletes a slice, or None if it is gone.

        Raises:
            FabricError: it is connected.
        """
        chunk = self._chunks.get(request.device_id)
        if chunk is None:
            return None
        if any(chunk.uri in zone.endpoints for zone in self._read.zones):
            raise errors.Aborted(f"slice {request.device_id} was attached meanwhile; read the fabric again")
        return calls.Call(method="DELETE", uri=chunk.uri, etag=chunk.etag)

    async def _ends(self, reader: Reader, usable: Mapping[str, ends.Fabric]) -> ends.Read:
        chunks = self._chunks
        of_devices = {
            uri: endpoint
            for fabric in usable.values()
            for uri, endpoint in fabric.endpoints.items()
            if entities.is_target(endpoint)
        }
        found = (
            (chunk.uri, carving.find_endpoint(domain, chunk, of_devices))
            for domain in self._domains.values()
            for chunk in domain.chunks.values()
        )
        self._endpoints_of_slices = {chunk: uri for chunk, uri in found if uri is not None}
        devices_of_chunks: dict[str, list[str]] = {}
        for fabric in usable.values():
            for uri, endpoint in fabric.endpoints.items():
                if self._is_device(endpoint):
                    for chunk_uri in entities.chunks(endpoint):
                        devices_of_chunks.setdefault(chunk_uri, []).append(uri)
        self._devices_of_chunks = devices_of_chunks
        self._spelled_chunks = documents.index_spellings({*devices_of_chunks, *self._slices})
        read = await super()._ends(reader, usable)
        devices, targets, oddities = dict(read.devices), dict(read.targets), list(read.oddities)
        carved = {**chunks, **{device_id: domain.document for device_id, domain in self._domains.items()}}
        for domain in self._domains.values():
            for device in carving.devices(domain, self._profile.note_property):
                document = carved[device.id]
                if len(device.id.encode()) > contract.STRING_BYTES or device.id in devices:
                    oddities.append(views.explain_unusable_id(f"the memory {document.uri}", device.id))
                    continue
                made = device.slice_of
                # One that was made by a request is listed for its deletion.
                if made and not made.request_id and document.uri not in self._endpoints_of_slices:
                    oddities.append(f"the memory {document.uri} has no endpoint, so no host can have it")
                    continue
                devices[device.id], targets[device.id] = device, document
        return replace(read, devices=devices, targets=targets, oddities=tuple(oddities))

    def _endpoint(self, target: str) -> str:
        """Return the URI of the endpoint by which the target is connected."""
        return self._endpoints_of_slices.get(target, target)

    def _reaches(self, fabric: ends.Fabric, target: str) -> bool:
        if self._has_no_endpoint(target):
            # A Connection without a target endpoint, in the only fabric.
            return len(self._read.fabrics) == 1
        return self._endpoint(target) in fabric.endpoints

    def _has_no_endpoint(self, target: str) -> bool:
        return target in self._slices and target not in self._endpoints_of_slices

    def _build_unreached(self, host_id: str, target: str) -> errors.FabricError:
        if not self._has_no_endpoint(target):
            return super()._build_unreached(host_id, target)
        return errors.FailedPrecondition(
            f"chunk {target} has no endpoint, and the service has several fabrics; name that of the chunk in the parameter `fabrics`",
            reason=errors.Reason.INCOMPATIBLE,
        )

    def _is_device(self, endpoint: Document) -> bool:
        chunks = entities.chunks(endpoint)
        return bool(chunks) and self._slices.isdisjoint(chunks)

    def _hides(self, zone: ends.Zone) -> bool:
        # Also those without an initiator, and of initiators that only a group of endpoints names.
        return self._read.host_ids.keys().isdisjoint(zone.endpoints)

    def _body(self, name: str, initiator: str, target: Document) -> dict[str, object]:
        chunks = (target.uri,) if target.uri in self._slices else entities.chunks(target)
        links = {"InitiatorEndpoints": documents.references((initiator,))}
        if not self._has_no_endpoint(target.uri):
            links["TargetEndpoints"] = documents.references((self._endpoint(target.uri),))
        return {
            documents.TYPE: "#Connection.v1_3_0.Connection",
            "Name": name,
            "ConnectionType": "Memory",
            "MemoryChunkInfo": [
                {"AccessCapabilities": ["Read", "Write"], "MemoryChunk": {documents.ID: chunk}}
                for chunk in chunks
            ],
            "Links": links,
        }

    def _hint(self, target: Document) -> str:
        return f"chunk {target.uri} has no endpoint" if self._has_no_endpoint(target.uri) else ""

    def _build_removal(
        self, zone: ends.Zone, _target: str, _rest: tuple[str, ...], _host_id: str
    ) -> calls.Call:
        raise errors.FailedPrecondition(
            f"the connection {zone.document.uri} has other memory or hosts too; end it with the client that made it"
        )

    def _endpoints(self, document: Document, fabric: ends.Fabric) -> tuple[str, ...] | None:
        if document.text("ConnectionType").casefold() == "storage":
            return None
        listed = (
            documents.link(documents.value(information, "MemoryChunk"))
            for information in document.objects("MemoryChunkInfo")
        )
        plain = {documents.plain(uri) for uri in listed if uri}
        chunks = {self._spelled_chunks.get(documents.build_key(uri), uri) for uri in plain}
        # The endpoint of a slice may be that of others too.
        shared = {self._endpoint(uri) for uri in chunks & self._endpoints_of_slices.keys()}
        shown = document.links(*document.find_links_path("TargetEndpoints"))
        targets = (uri for uri in shown if uri not in shared)
        initiators = document.links(*document.find_links_path("InitiatorEndpoints"))
        return tuple(dict.fromkeys((*initiators, *targets, *self._targets(chunks, fabric))))

    def _targets(self, chunks: Set[str], fabric: ends.Fabric) -> Iterable[str]:
        """Return the URIs of the devices with these chunks: a service may show only the chunks."""
        devices = (
            uri
            for chunk in sorted(chunks)
            for uri in self._devices_of_chunks.get(chunk, ())
            if uri in fabric.endpoints
        )
        return (*devices, *sorted(chunks & self._slices))
