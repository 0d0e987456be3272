"""Which endpoints of Redfish fabrics reach each other: those of one fabric whose switches are linked (Port 1.18, Switch 1.9).

A device and a host in different fabrics are never connected. Within a fabric, switches without a link between them make
parts of their own, if the service shows all links: where a port leads is known from its type, from the endpoints behind it,
or from the switches that it names. Where that is not known of a single port that may have a link, the fabric is one part.
"""

from collections.abc import Iterable, Mapping

from drawbar.fabric import budget, contract, errors
from drawbar.fabric.redfish import entities
from drawbar.fabric.redfish.documents import Document
from drawbar.fabric.redfish.reading import Reader

# Of `PortType`: a port that leads to a host, a device or a manager, or nowhere.
_ENDS = frozenset({"UpstreamPort", "DownstreamPort", "ManagementPort", "UnconfiguredPort"})
_DOWN = frozenset({"LinkDown", "NoLink"})

Groups = Mapping[str, frozenset[str]]
"""By the URI of an endpoint the reachability groups that it is in."""
Ports = Mapping[str, tuple[Document, ...]]
"""By the URI of a switch its ports."""


async def read(reader: Reader, switches_uri: str | None) -> Ports:
    """Read the ports of a fabric's switches; none of a fabric with less than two, or whose switches cannot be read.

    Raises:
        FabricError: the service lists more than it may.
    """
    if switches_uri is None:
        return {}
    try:
        with reader.noticing() as find_unread:
            switches = await reader.members(switches_uri, by_turns=True)
            ports = {
                switch.uri: await reader.members(uri, by_turns=True)
                if (uri := switch.link("Ports")) is not None
                else ()
                for switch in switches
                if len(switches) > 1
            }
    except errors.FabricError as error:
        # What connects everything is no reason to lose sight of it.
        if budget.is_exceeded(error):
            raise
        return {}
    unread = find_unread()
    reader.forget_unread(unread)
    return {} if unread else ports


def divide(fabric_id: str, endpoints: Mapping[str, Document], ports: Ports) -> Groups:
    """Return the groups of a fabric's endpoints: the fabric, or where it has several parts the part of each.

    Args:
        fabric_id: of the fabric, which begins the id of each group.
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
    """Return by the id of each device and host its groups; none if all of them reach each other.

    Args:
        groups: of all fabrics.
        targets: by device id its endpoint; one without is not known.
        initiators: by host id its endpoints.
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
    """Return by the URI of an endpoint its switches, as the endpoint or the ports of the switches name them."""
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
    """Return whether it is known of each port that may have a link where that leads."""
    taken = {port for endpoint in endpoints.values() for port in entities.ports(endpoint)}
    return all(
        port.uri in taken
        or port.text("PortType") in _ENDS
        or port.text("LinkStatus") in _DOWN
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
    """Return by the URI of a switch the first of all switches that are linked with it."""
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
