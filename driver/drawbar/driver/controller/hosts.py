"""Which host of a fabric is which node, decided purely.

A host that the Fabric's `spec.hosts` names (by id or by name) is that node; any other is the node of its own name.
Two hosts that would be one node are ambiguous: neither is mapped, since a device would go to the wrong machine.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from drawbar.driver.api import fabrics
from drawbar.fabric import contract


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMap:
    """The outcome.

    Attributes:
        host_of: by node name, the host's id.
        with_room: nodes whose host can take one more device.
        problems: a sentence for each host that could not be mapped for a reason somebody should know.
    """

    host_of: Mapping[str, str] = field(default_factory=dict)
    with_room: frozenset[str] = frozenset()
    problems: tuple[str, ...] = ()


def node_map(spec: fabrics.FabricSpec, hosts: Iterable[contract.Host], nodes: Collection[str]) -> NodeMap:
    """Maps all hosts of a fabric."""
    told = {entry.host: entry.node for entry in spec.hosts}
    found: dict[str, list[contract.Host]] = {}
    problems = []
    for host in hosts:
        node = told.get(host.id) or told.get(host.name) or host.name
        if node in nodes:
            found.setdefault(node, []).append(host)
        elif host.id in told or host.name in told:
            problems.append(f"spec.hosts maps host {host.id} to node {node}, which does not exist")
    for node, claimants in found.items():
        if len(claimants) > 1:
            ids = ", ".join(sorted(host.id for host in claimants))
            problems.append(f"hosts {ids} would all be node {node}; name one of them in spec.hosts")
    single = {node: claimants[0] for node, claimants in found.items() if len(claimants) == 1}
    return NodeMap(
        host_of={node: host.id for node, host in single.items()},
        with_room=frozenset(node for node, host in single.items() if _has_room(host)),
        problems=tuple(problems),
    )


def differ(old: contract.Host, new: contract.Host) -> bool:
    """Whether the change of one host can change the map: most only fill or free one port of several."""
    return (old.name, old.identifiers, _has_room(old)) != (new.name, new.identifiers, _has_room(new))


def _has_room(host: contract.Host) -> bool:
    """A fabric that tells no ports has no limit that we know of."""
    return not host.ports or any(port.state is contract.PortState.FREE for port in host.ports)
