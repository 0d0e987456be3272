"""Which host of a fabric is which node; pure.

A kubelet writes its own Node: its status, its annotations and most of its labels. So what it cannot write decides first,
and the first of these that names a node of the cluster:

1. the Fabric's `spec.hosts`, by the host's id or name;
2. `spec.nodeLabel`, if it is a label of `node-restriction.kubernetes.io`: a node whose label has the host's id, its name or
   one of its identifiers (a serial number, say) as its value;
3. the host's name, since a kubelet's credentials are for the Node of one name.

The other hosts belong to the nodes that claim them. A node whose `spec.nodeLabel` or `spec.nodeAnnotation` names hosts
claims these; another claims the host that its machine is known by: the host's identifier `system-uuid` is the node's
`status.nodeInfo.systemUUID`, or its identifier `serial` is the node's annotation `drawbar.dev/serial`.

Of several nodes that claim one host, it stays with the one that it was mapped to before, then goes to those that claim no
other host, then to the node that was created first: a node that copies another's identity never unmaps it. Two hosts that
would be one node, and two nodes between which nothing decides, are ambiguous: none of them is mapped, since a device would
go to the wrong machine. Every claim to what is another's is a problem.

Source: NodeRestriction admission plugin, for the labels that a kubelet may not write.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from drawbar.driver.api import core, fabrics
from drawbar.fabric import contract

SYSTEM_UUID = "system-uuid"
SERIAL = "serial"
# The kubelet reports no serial number of its machine; the installation of the machines can annotate it.
SERIAL_ANNOTATION = "drawbar.dev/serial"
RESTRICTED_DOMAIN = "node-restriction.kubernetes.io"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMap:
    """The outcome.

    Attributes:
        host_of: by node name, the host's id.
        with_room: nodes whose host can take one more device.
        problems: a sentence for each host that could not be mapped for a reason that an administrator can remove.
    """

    host_of: Mapping[str, str] = field(default_factory=dict)
    with_room: frozenset[str] = frozenset()
    problems: tuple[str, ...] = ()

    def node_of(self, host_id: str) -> str | None:
        """Return which node the host is, if any."""
        return next((node for node, host in self.host_of.items() if host == host_id), None)


def node_map(
    spec: fabrics.FabricSpec,
    hosts: Iterable[contract.Host],
    nodes: Iterable[core.Node],
    held: Mapping[str, str] | None = None,
) -> NodeMap:
    """Map all hosts of a fabric.

    Args:
        spec: of the Fabric.
        hosts: of the fabric.
        nodes: the nodes of the cluster.
        held: by host id, the node that the host was mapped to before.
    """
    cluster, listed = _Cluster(spec, nodes), tuple(hosts)
    problems: list[str] = []
    trusted = {host.id: cluster.trusted(host) for host in listed}
    fixed = {node for trusted_nodes in trusted.values() for node in trusted_nodes}
    claims = _claims(cluster, listed)
    mapped: dict[str, list[contract.Host]] = {}
    for host in listed:
        problems += cluster.problems(host)
        candidates, claimants = trusted[host.id], claims[host.id]
        if not candidates and not cluster.is_settled(host):
            candidates = _preferred(claimants - fixed, claims, (held or {}).get(host.id), cluster)
        if len(candidates) > 1:
            names = ", ".join(sorted(candidates))
            problems.append(f"host {host.id} would be nodes {names}; name one of them in spec.hosts")
            continue
        for node in candidates:
            mapped.setdefault(node, []).append(host)
        if not cluster.is_settled(host):
            owner = f", which is node {next(iter(candidates))}" if candidates else ""
            problems += [
                f"node {node} claims to be host {host.id}{owner}; look who changed that Node, or name the node in "
                "spec.hosts"
                for node in sorted(claimants - candidates)
            ]
    for node, rivals in mapped.items():
        if len(rivals) > 1:
            ids = ", ".join(sorted(host.id for host in rivals))
            problems.append(f"hosts {ids} would all be node {node}; name one of them in spec.hosts")
    single = {node: rivals[0] for node, rivals in mapped.items() if len(rivals) == 1}
    return NodeMap(
        host_of={node: host.id for node, host in single.items()},
        with_room=frozenset(node for node, host in single.items() if _has_room(host)),
        problems=tuple(problems),
    )


def _claims(cluster: "_Cluster", hosts: Iterable[contract.Host]) -> dict[str, set[str]]:
    """Return by host id the nodes that claim it, each by the most explicit way in which it claims any host."""
    listed = tuple(hosts)
    marked = {host.id: cluster.marked(host) for host in listed}
    explicit = {node for marked_nodes in marked.values() for node in marked_nodes}
    return {host.id: marked[host.id] | (cluster.machines(host) - explicit) for host in listed}


def _preferred(
    claimants: set[str], claims: Mapping[str, set[str]], before: str | None, cluster: "_Cluster"
) -> set[str]:
    """Return the one of several claimants that the host is mapped to; several where nothing decides."""
    if before in claimants:
        return {before}
    modest = {node for node in claimants if sum(node in claimed for claimed in claims.values()) == 1}
    candidates = modest or claimants
    if len(candidates) < 2 or not all(cluster.created(node) for node in candidates):
        return candidates
    first = min(cluster.created(node) for node in candidates)
    return {node for node in candidates if cluster.created(node) == first}


class _Cluster:
    """The nodes by everything that a host may be known by."""

    def __init__(self, spec: fabrics.FabricSpec, nodes: Iterable[core.Node]) -> None:
        self._configured = {entry.host: entry.node for entry in spec.hosts}
        self._label_is_safe = is_restricted(spec.node_label)
        self._created: dict[str, str] = {}
        self._labelled: dict[str, set[str]] = {}
        self._marked: dict[str, set[str]] = {}
        self._machines: dict[tuple[str, str], set[str]] = {}
        for node in nodes:
            name, metadata = node.metadata.name, node.metadata
            self._created[name] = metadata.creation_timestamp or ""
            label, note = metadata.labels.get(spec.node_label), metadata.annotations.get(spec.node_annotation)
            if label:
                self._labelled.setdefault(label, set()).add(name)
            for mark in (note, None if self._label_is_safe else label):
                if mark:
                    self._marked.setdefault(mark, set()).add(name)
            self._is_machine(SYSTEM_UUID, node.status.node_info.system_uuid, name)
            self._is_machine(SERIAL, metadata.annotations.get(SERIAL_ANNOTATION, ""), name)

    def _is_machine(self, kind: str, value: str, node: str) -> None:
        if identity := comparable(value):
            self._machines.setdefault((kind, identity), set()).add(node)

    def created(self, node: str) -> str:
        """Return when the Node was created, as an RFC 3339 time of one form; empty where that is not known."""
        return self._created[node]

    def problems(self, host: contract.Host) -> Iterator[str]:
        """Return what is wrong with `spec.hosts` as to that host."""
        node = self._configured_node(host)
        if node is not None and node not in self._created:
            yield f"spec.hosts maps host {host.id} to node {node}, which does not exist"

    def is_settled(self, host: contract.Host) -> bool:
        """Return whether an administrator has named the node, so that other claims do not matter."""
        return self._configured_node(host) is not None or bool(self._safely_labelled(host))

    def trusted(self, host: contract.Host) -> set[str]:
        """Return the nodes that the host is by what no kubelet can write of its own Node."""
        configured = self._configured_node(host)
        if configured is not None:
            return {configured} & self._created.keys()
        return self._safely_labelled(host) or {host.name} & self._created.keys()

    def marked(self, host: contract.Host) -> set[str]:
        """Return the nodes whose ordinary label or annotation names the host."""
        return {node for mark in _names(host) for node in self._marked.get(mark, ())}

    def machines(self, host: contract.Host) -> set[str]:
        """Return the nodes whose machine the host is, by the Node's status or annotation."""
        identities = [(kind, comparable(host.identifiers.get(kind, ""))) for kind in (SYSTEM_UUID, SERIAL)]
        return {node for identity in identities for node in self._machines.get(identity, ())}

    def _configured_node(self, host: contract.Host) -> str | None:
        return self._configured.get(host.id) or self._configured.get(host.name)

    def _safely_labelled(self, host: contract.Host) -> set[str]:
        if not self._label_is_safe:
            return set()
        return {node for mark in _names(host) for node in self._labelled.get(mark, ())}


def is_restricted(label: str) -> bool:
    """Return whether the API server keeps kubelets from writing that label."""
    domain, slash, _ = label.partition("/")
    return bool(slash) and f".{domain}".endswith(f".{RESTRICTED_DOMAIN}")


def _names(host: contract.Host) -> tuple[str, ...]:
    return (host.id, host.name, *host.identifiers.values())


def comparable(identifier: str) -> str:
    """Return the identifier as it is compared: firmware may write it in capitals and with blanks around it."""
    return identifier.strip().casefold()


def shape(node: core.Node) -> tuple[object, ...]:
    """Return what of a node the map, or its labels, depend on."""
    return node.metadata.labels, node.metadata.annotations, node.status.node_info, node.ready


def differ(old: contract.Host, new: contract.Host) -> bool:
    """Return whether the change of one host can change the map: most only fill or free one port of several."""
    return (old.name, old.identifiers, _has_room(old)) != (new.name, new.identifiers, _has_room(new))


def _has_room(host: contract.Host) -> bool:
    """Return whether the host can take one more device; a fabric that reports no ports sets no limit."""
    return not host.ports or any(port.state is contract.PortState.FREE for port in host.ports)
