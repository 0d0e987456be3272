"""Reachability of endpoints in Redfish fabrics: those of one fabric with linked switches (Port 1.18, Switch 1.9); pure.

A device and a host in different fabrics are never connected. Within a fabric, switches without a link between them
form separate parts, if the service shows all links. The other end of a port is known from its type, from the
endpoints behind it, or from the switches that it names. If it is unknown for one port with a possible link, the
fabric is one part.
"""

from collections.abc import Iterable, Mapping

from drawbar.fabric import contract
from drawbar.fabric.redfish import documents, entities
from drawbar.fabric.redfish.documents import Document

# Of `PortType`, in lower case: a port that leads to a host, a device or a manager, or nowhere.
_ENDS = frozenset({"upstreamport", "downstreamport", "managementport", "unconfiguredport"})
# Of `LinkStatus`, likewise.
_DOWN = frozenset({"linkdown", "nolink"})

Groups = Mapping[str, frozenset[str]]
"""The reachability groups of each endpoint, by its URI."""
Ports = Mapping[str, tuple[Document, ...]]
"""The ports of each switch, by its URI."""


def divide(fabric_id: str, endpoints: Mapping[str, Document], ports: Ports) -> Groups:
    """Return the groups of a fabric's endpoints: the fabric, or its part if the fabric has several.

    Args:
        fabric_id: of the fabric; the prefix of each group's id.
        endpoints: by URI.
        ports: of its switches.
    """
    whole = frozenset({fabric_id})
    switches_of = _switches_of(endpoints, ports)
    if len(ports) < 2 or not _shows_all_links(ports, endpoints):
        return dict.fromkeys(endpoints, whole)
    parts = _parts(ports)
    names = {part: f"{fabric_id}/{part.rpartition('/')[2]}" for part in parts.values()}
    everywhere = frozenset(names.values())
    return {
        uri: frozenset(names[parts[switch]] for switch in switches_of.get(uri, ())) or everywhere
        for uri in endpoints
    }


def relate(groups: Groups, targets: Mapping[str, str], initiators: Mapping[str, Iterable[str]]) -> Groups:
    """Return the groups of each device and host by id; none if all of them reach each other.

    Args:
        groups: of all fabrics.
        targets: the endpoint of each device, by device id; a device without one has unknown groups.
        initiators: the endpoints of each host, by host id.
    """
    if len(frozenset[str]().union(*groups.values())) < 2:
        return {}
    related = {
        name: contract.bound_groups(groups.get(uri, frozenset()), most=contract.DEVICE_GROUPS_MAX)
        for name, uri in targets.items()
    }
    return related | {
        name: contract.bound_groups(
            (group for uri in uris for group in groups.get(uri, frozenset())), most=contract.HOST_GROUPS_MAX
        )
        for name, uris in initiators.items()
    }


def _switches_of(endpoints: Mapping[str, Document], ports: Ports) -> dict[str, set[str]]:
    """Return the switches of each endpoint by its URI, named by the endpoint or by the switches' ports."""
    owner = {port.uri: switch for switch, listed in ports.items() for port in listed}
    switches: dict[str, set[str]] = {}
    for uri, endpoint in endpoints.items():
        for connected in entities.ports(endpoint):
            if connected in owner:
                switches.setdefault(uri, set()).add(owner[connected])
    for switch, listed in ports.items():
        for port in listed:
            for uri in port.links("Links", "AssociatedEndpoints"):
                switches.setdefault(uri, set()).add(switch)
    return switches


def _shows_all_links(ports: Ports, endpoints: Mapping[str, Document]) -> bool:
    """Return whether the other end of each port with a possible link is known."""
    taken = {port for endpoint in endpoints.values() for port in entities.ports(endpoint)}
    return all(
        port.uri in taken
        or documents.word(port.body, "PortType") in _ENDS
        or documents.word(port.body, "LinkStatus") in _DOWN
        or port.value("InterfaceEnabled") is False
        or bool(port.links("Links", "AssociatedEndpoints"))
        or bool(_neighbours(port) & ports.keys())
        for listed in ports.values()
        for port in listed
    ) and all(ports.values())


def _neighbours(port: Document) -> set[str]:
    """Return the URIs of the switches that the port names at the other end of its link."""
    linked = (*port.links("Links", "ConnectedSwitchPorts"), *port.links("Links", "ConnectedPorts"))
    switches = {uri.partition("/Ports/")[0] for uri in linked if "/Switches/" in uri}
    return switches | set(port.links("Links", "ConnectedSwitches"))


def _parts(ports: Ports) -> dict[str, str]:
    """Return the first of all linked switches for each switch, by its URI."""
    first = {switch: switch for switch in ports}

    def find(switch: str) -> str:
        while first[switch] != switch:
            switch = first[switch]
        return switch

    for switch, listed in ports.items():
        linked = frozenset[str]().union(*map(_neighbours, listed))
        for neighbour in linked & first.keys():
            lower, upper = sorted((find(switch), find(neighbour)))
            first[upper] = lower
    return {switch: find(switch) for switch in ports}
