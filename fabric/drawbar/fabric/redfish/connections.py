"""Connections of memory chunks that exist: a host's endpoint, and a chunk behind another endpoint (Connection 1.1 to 1.4).

A Connection is what a zone for each pair is in `zones`: made by POST, and ended by DELETE under the ETag that it was read
with. Chunks are neither made nor deleted. A Connection without an initiator, which is the form of `appliance`, is not
made; its device is neither listed as free nor as attached.
"""

from collections.abc import Iterable, Set

from drawbar.fabric import errors
from drawbar.fabric.redfish import documents, entities, methods, zones
from drawbar.fabric.redfish.documents import Document


class Connections(zones.Zones):
    """The method `connections`; see `methods.Method`."""

    collection = "Connections"

    def _is_device(self, endpoint: Document) -> bool:
        return bool(entities.chunks(endpoint))

    def _hides(self, zone: zones.Zone) -> bool:
        # Also those without an initiator, and of initiators that only a group of endpoints names.
        return super()._hides(zone) or self._read.host_ids.keys().isdisjoint(zone.endpoints)

    def _body(self, name: str, initiator: str, target: Document) -> dict[str, object]:
        return {
            "Name": name,
            "ConnectionType": "Memory",
            "MemoryChunkInfo": [
                {"AccessCapabilities": ["Read", "Write"], "MemoryChunk": {documents.ID: chunk}}
                for chunk in entities.chunks(target)
            ],
            "Links": {
                "InitiatorEndpoints": documents.references((initiator,)),
                "TargetEndpoints": documents.references((target.uri,)),
            },
        }

    def _without(self, zone: zones.Zone, _target: str, _rest: tuple[str, ...]) -> methods.Call:
        raise errors.FailedPrecondition(
            f"the connection {zone.document.uri} has other memory or hosts too; end it with the client that made it"
        )

    def _endpoints(self, document: Document, fabric: zones.Fabric) -> tuple[str, ...] | None:
        if document.text("ConnectionType") not in {"", "Memory"}:
            return None
        chunks = {
            documents.link(information.get("MemoryChunk"))
            for information in document.objects("MemoryChunkInfo")
        }
        initiators = document.links("Links", "InitiatorEndpoints")
        targets = document.links("Links", "TargetEndpoints")
        memory = self._targets({chunk for chunk in chunks if chunk is not None}, fabric)
        return tuple(dict.fromkeys((*initiators, *targets, *memory)))

    def _targets(self, chunks: Set[str], fabric: zones.Fabric) -> Iterable[str]:
        """Return the URIs of the devices that have these chunks: a service may show the chunks alone."""
        return (
            uri
            for uri, endpoint in fabric.endpoints.items()
            if not chunks.isdisjoint(entities.chunks(endpoint))
        )
