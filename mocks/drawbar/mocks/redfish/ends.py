"""The endpoints of a fabric, their zones, and the connections of memory chunks."""

from collections.abc import Mapping
from typing import Any

from drawbar.mocks.redfish import paths
from drawbar.mocks.redfish.configuration import Configuration
from drawbar.mocks.redfish.tree import Body, Tree, reference


def zone(
    name: str, endpoints: list[str], configuration: Configuration, properties: Mapping[str, Any] | None = None
) -> Body:
    """Return a zone of endpoints, with the properties of the client."""
    uri = f"{paths.ZONES}/{name}"
    body: Body = {
        "@odata.type": "#Zone.v1_6_3.Zone",
        "Id": name,
        "Name": f"Zone {name}",
        "ZoneType": "ZoneOfEndpoints",
        "Status": dict(paths.OK),
        "Links": {
            "Endpoints": [reference(endpoint_uri) for endpoint_uri in endpoints],
            "Endpoints@odata.count": len(endpoints),
        },
    }
    if configuration.actions:
        body["Actions"] = {
            f"#Zone.{action}": {"target": f"{uri}/Actions/Zone.{action}"}
            for action in ("AddEndpoint", "RemoveEndpoint")
        }
    return body | dict(properties or {})


def connection(
    name: str, initiators: list[str], targets: list[str], chunks: list[str], properties: Mapping[str, Any]
) -> Body:
    """Return a connection of memory chunks, with the properties of the client."""
    links = {"InitiatorEndpoints": initiators, "TargetEndpoints": targets}
    body: Body = {
        "@odata.type": "#Connection.v1_4_0.Connection",
        "Id": name,
        "Name": f"Connection {name}",
        "ConnectionType": "Memory",
        "Status": dict(paths.OK),
        "MemoryChunkInfo": [
            {"AccessCapabilities": ["Read", "Write"], "MemoryChunk": reference(chunk)} for chunk in chunks
        ],
        "Links": {
            key: value
            for kind, uris in links.items()
            if uris
            for key, value in (
                (kind, [reference(uri) for uri in uris]),
                (f"{kind}@odata.count", len(uris)),
            )
        },
    }
    return body | dict(properties)


def show_connection(tree: Tree, uri: str, *, is_made: bool) -> None:
    """Show an appliance's connection at its ports and chunks, or take it back before its end."""
    body = tree[uri]
    ports = [entry["@odata.id"] for entry in body["Links"].get("TargetEndpoints", ())]
    chunks = [information["MemoryChunk"]["@odata.id"] for information in body["MemoryChunkInfo"]]
    shown = [(port, "Connections", uri) for port in ports]
    shown += [(chunk, "Endpoints", port) for chunk in chunks for port in ports]
    for owner, name, target in shown:
        links = tree[owner]["Links"]
        listed = [entry for entry in links[name] if entry["@odata.id"] != target]
        listed += [reference(target)] if is_made else []
        tree.update(owner, Links=links | {name: listed, f"{name}@odata.count": len(listed)})


def ends(body: Mapping[str, Any]) -> list[str]:
    """Return the URIs of the endpoints in a zone or connection, and of the memory chunks of one without an initiator."""
    links = body["Links"]
    names = ("Endpoints", "InitiatorEndpoints", "TargetEndpoints")
    listed = [entry["@odata.id"] for name in names for entry in links.get(name, ())]
    if "MemoryChunkInfo" in body and "InitiatorEndpoints" not in links:
        listed += [information["MemoryChunk"]["@odata.id"] for information in body["MemoryChunkInfo"]]
    return listed


def put_endpoint(tree: Tree, name: str, text: str, entities: list[Body]) -> None:
    """Add the endpoint of a host, a device or a memory chunk, in no zone or connection."""
    tree.put(
        paths.endpoint(name),
        {
            "@odata.type": "#Endpoint.v1_8_2.Endpoint",
            "Id": name,
            "Name": text,
            "EndpointProtocol": "PCIe",
            "ConnectedEntities": entities,
            "Status": dict(paths.OK),
            "Links": {},
        },
    )
