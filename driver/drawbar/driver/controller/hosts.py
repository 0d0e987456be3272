"""Which host of a fabric is which node, decided purely.

Asked in this order, and the first that names a node of the cluster decides:

1. the Fabric's `spec.hosts`, by the host's id or name;
2. `spec.nodeLabel` and `spec.nodeAnnotation`: a node whose label or annotation has the host's id, its name or one of its
   identifiers (a serial number, say) as its value;
3. what the machine itself is known by: the host's identifier `system-uuid`, which is the node's
   `status.nodeInfo.systemUUID`, and its identifier `serial`, which is the node's annotation `drawbar.dev/serial`;
   nodes that differ about it are two nodes that would be one host;
4. the host's name.

Two hosts that would be one node, or two nodes that would be one host, are ambiguous: none of them is mapped, since a
device would go to the wrong machine.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from drawbar.driver.api import fabrics, nodes
from drawbar.fabric import contract

SYSTEM_UUID = "system-uuid"
SERIAL = "serial"
# The kubelet tells no serial number of its machine; whoever installs the machines can.
SERIAL_ANNOTATION = "drawbar.dev/serial"


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

    def node_of(self, host_id: str) -> str | None:
        """Which node the host is, if any."""
        return next((node for node, host in self.host_of.items() if host == host_id), None)


def node_map(
    spec: fabrics.FabricSpec, hosts: Iterable[contract.Host], known: Iterable[nodes.Node]
) -> NodeMap:
    """Maps all hosts of a fabric."""
    cluster = _Cluster(spec, known)
    found: dict[str, list[contract.Host]] = {}
    problems = []
    for host in hosts:
        claimants = cluster.nodes_of(host)
        if isinstance(claimants, str):
            problems.append(claimants)
        elif len(claimants) > 1:
            listed = ", ".join(sorted(claimants))
            problems.append(f"host {host.id} would be nodes {listed}; name one of them in spec.hosts")
        for node in claimants if not isinstance(claimants, str) and len(claimants) == 1 else ():
            found.setdefault(node, []).append(host)
    for node, rivals in found.items():
        if len(rivals) > 1:
            ids = ", ".join(sorted(host.id for host in rivals))
            problems.append(f"hosts {ids} would all be node {node}; name one of them in spec.hosts")
    single = {node: rivals[0] for node, rivals in found.items() if len(rivals) == 1}
    return NodeMap(
        host_of={node: host.id for node, host in single.items()},
        with_room=frozenset(node for node, host in single.items() if _has_room(host)),
        problems=tuple(problems),
    )


class _Cluster:
    """The nodes by everything that a host may be known by."""

    def __init__(self, spec: fabrics.FabricSpec, known: Iterable[nodes.Node]) -> None:
        self._told = {entry.host: entry.node for entry in spec.hosts}
        self._names: set[str] = set()
        self._marks: dict[str, set[str]] = {}
        self._machines: dict[tuple[str, str], set[str]] = {}
        for node in known:
            name, metadata = node.metadata.name, node.metadata
            self._names.add(name)
            for mark in (
                metadata.labels.get(spec.node_label),
                metadata.annotations.get(spec.node_annotation),
            ):
                if mark:
                    self._marks.setdefault(mark, set()).add(name)
            self._is_machine(SYSTEM_UUID, node.status.node_info.system_uuid, name)
            self._is_machine(SERIAL, metadata.annotations.get(SERIAL_ANNOTATION, ""), name)

    def _is_machine(self, kind: str, value: str, node: str) -> None:
        if known := comparable(value):
            self._machines.setdefault((kind, known), set()).add(node)

    def nodes_of(self, host: contract.Host) -> set[str] | str:
        """The nodes that the host may be, by the first way that names any; a sentence if `spec.hosts` is wrong."""
        told = self._told.get(host.id) or self._told.get(host.name)
        if told is not None:
            return {told} if told in self._names else _no_such_node(host, told)
        return next((found for found in self._ways(host) if found), set())

    def _ways(self, host: contract.Host) -> Iterator[set[str]]:
        marks = (host.id, host.name, *host.identifiers.values())
        yield {node for mark in marks for node in self._marks.get(mark, ())}
        known_by = [(kind, comparable(host.identifiers.get(kind, ""))) for kind in (SYSTEM_UUID, SERIAL)]
        yield {node for one in known_by for node in self._machines.get(one, ())}
        yield {host.name} & self._names


def comparable(identifier: str) -> str:
    """What two machines know to be one by: firmware writes it in capitals or not, with blanks around it or not."""
    return identifier.strip().casefold()


def _no_such_node(host: contract.Host, node: str) -> str:
    return f"spec.hosts maps host {host.id} to node {node}, which does not exist"


def shape(node: nodes.Node) -> tuple[object, ...]:
    """What of a node the map, or its labels, depend on."""
    return node.metadata.labels, node.metadata.annotations, node.status.node_info


def differ(old: contract.Host, new: contract.Host) -> bool:
    """Whether the change of one host can change the map: most only fill or free one port of several."""
    return (old.name, old.identifiers, _has_room(old)) != (new.name, new.identifiers, _has_room(new))


def _has_room(host: contract.Host) -> bool:
    """A fabric that tells no ports has no limit that we know of."""
    return not host.ports or any(port.state is contract.PortState.FREE for port in host.ports)
