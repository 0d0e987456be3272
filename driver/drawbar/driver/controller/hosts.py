"""The map of a fabric's hosts to nodes; pure.

Neither side can be trusted. A kubelet writes its own Node: its status, its annotations and most of its labels. Root of
a machine writes parts of its BMC's reports, such as the HostName, through the vendor's agent, IPMI or the Redfish host
interface. So the reports of both are claims. The first of these that names a node of the cluster decides:

1. the Fabric's `spec.hosts`, by the host's id;
2. `spec.nodeLabel`, if it is a label of `node-restriction.kubernetes.io`: the node whose label has the host's id as its
   value;
3. the host's name, if the Fabric has `spec.trustHostNames`: no machine can write it;
4. the earlier mapping, see `NodeMap.remembered`;
5. the label of 2, with the host's serial number or system UUID as its value;
6. the host's id, if it is the name of a node;
7. claims: the host's name is that of a node; an ordinary `spec.nodeLabel`, or `spec.nodeAnnotation`, of a node names
   the host by id, name or an identifier; or both have one system UUID (the node's `status.nodeInfo.systemUUID`) or one
   serial number (the node's annotation `drawbar.dev/serial`). A node that names hosts in its marks claims none by its
   machine.

Contradicting claims map none of their hosts and nodes. Placeholders are no identifiers. A node with the restricted
label is claimed by nothing else.

Invariants:

- a mapping stays as long as the Node exists, whatever any other host or node claims, unless an administrator decides
  otherwise by 1, 2, 3 or 5;
- so no claim of one host takes away, or changes, the node of another, and no claim maps a second host to a mapped node,
  even while the fabric does not list the first host;
- a host is one node at most, and a node one host;
- each refused claim is a problem, unless an administrator has decided by 1, 2, 3 or 5.

Source: NodeRestriction admission plugin, for the labels that a kubelet may not write.
"""

import enum
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from drawbar.driver.api import core, fabrics
from drawbar.fabric import contract, identifiers

SYSTEM_UUID = "system-uuid"
SERIAL = "serial"
# The kubelet does not report its machine's serial number; the installation of the machines can annotate it.
SERIAL_ANNOTATION = "drawbar.dev/serial"
RESTRICTED_DOMAIN = "node-restriction.kubernetes.io"
# The comparable form of a machine's identifier, by its kind.
COMPARABLE: Mapping[str, Callable[[str], str]] = {
    SYSTEM_UUID: identifiers.system_uuid,
    SERIAL: identifiers.serial,
}
# The most names for a shared identifier in a message.
NAMED_MAX = 8
REMEMBERED_MAX = 5000
# A Fabric has room for little more than a megabyte.
REMEMBERED_BYTES = 500_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMap:
    """The result of a mapping.

    Attributes:
        host_of: by node name, the host's id.
        with_room: nodes whose host can take one more device.
        problems: a sentence for each refused claim, and for each mistake in `spec.hosts`.
        remembered: by host id, its node; also for hosts that the fabric does not list now.
    """

    host_of: Mapping[str, str] = field(default_factory=dict)
    with_room: frozenset[str] = frozenset()
    problems: tuple[str, ...] = ()
    remembered: Mapping[str, str] = field(default_factory=dict)

    def node_of(self, host_id: str) -> str | None:
        """Return the host's node, or None."""
        return next((node for node, host in self.host_of.items() if host == host_id), None)


def node_map(
    spec: fabrics.FabricSpec,
    hosts: Iterable[contract.Host],
    nodes: Iterable[core.Node],
    held: Mapping[str, str] | None = None,
) -> NodeMap:
    """Return the map of a fabric's hosts.

    Args:
        spec: the Fabric's spec.
        hosts: the fabric's hosts.
        nodes: the nodes of the cluster.
        held: by host id, the node of the earlier mapping.
    """
    view, pairs = _View(spec, hosts, nodes), _Pairs()
    problems = [*view.mistakes()]
    for groups in (view.find_configured(), view.labelled_by_id(), view.trusted_names()):
        problems += pairs.match(groups)
    settled = pairs.taken
    pairs.keep(view.find_unmoved(held or {}))
    by_label, before = view.labelled_by_machine(), pairs.taken
    problems += pairs.match(by_label)
    settled |= pairs.taken - before
    problems += pairs.match(view.ids())
    claims = view.claims()
    problems += pairs.match(claims)
    for group in (*by_label, *claims):
        problems += _disputes(group, pairs, settled, view)
    remembered = {host: node for host, node in pairs.node_of.items() if node in view.nodes}
    mapped = {node: host for host, node in remembered.items() if host in view.hosts}
    return NodeMap(
        host_of=mapped,
        with_room=frozenset(node for node, host in mapped.items() if _has_room(view.hosts[host])),
        problems=tuple(dict.fromkeys(problems)),
        remembered=remembered,
    )


def from_status(fabric: fabrics.Fabric) -> dict[str, str]:
    """Return, by host id, the node in the Fabric's status; empty if the status is about another fabric manager."""
    if fabric.status.mapped_endpoint != fabric.spec.endpoint:
        return {}
    return {entry.host: entry.node for entry in fabric.status.mapped_hosts}


def to_status(remembered: Mapping[str, str]) -> tuple[fabrics.HostMapping, ...]:
    """Return the mapping for a Fabric's status, as far as there is room."""
    room, entries = REMEMBERED_BYTES, list[fabrics.HostMapping]()
    for host, node in sorted(remembered.items()):
        size = len(host.encode()) + len(node.encode())
        if size <= room and len(entries) < REMEMBERED_MAX:
            room -= size
            entries.append(fabrics.HostMapping(host=host, node=node))
    return tuple(entries)


# An entry of `_Pairs.taken`.
_HOST, _NODE = "host", "node"


class _Means(enum.Enum):
    """The common property of a host and a node, with the words for a message."""

    CONFIGURED = "spec.hosts"
    LABEL = "the label"
    ANNOTATION = "the annotation"
    NAME = "the name"
    SYSTEM_UUID = "the system UUID"
    SERIAL = "the serial number"
    ID = "the id"


_OF_MACHINE: Mapping[str, _Means] = {SYSTEM_UUID: _Means.SYSTEM_UUID, SERIAL: _Means.SERIAL}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """The hosts and the nodes with one property in common: each of them claims to be the others."""

    means: _Means
    hosts: tuple[str, ...]
    nodes: tuple[str, ...]


class _Pairs:
    """The pairs so far. A contested host or node has no partner and gets none."""

    def __init__(self) -> None:
        self.node_of: dict[str, str] = {}
        self.host_of: dict[str, str] = {}
        self._contested_hosts: set[str] = set()
        self._contested_nodes: set[str] = set()

    @property
    def taken(self) -> frozenset[tuple[str, str]]:
        """Return the hosts and nodes that are paired or contested."""
        hosts = ((_HOST, host) for host in self.node_of.keys() | self._contested_hosts)
        nodes = ((_NODE, node) for node in self.host_of.keys() | self._contested_nodes)
        return frozenset((*hosts, *nodes))

    def keep(self, held: Mapping[str, str]) -> None:
        """Pair hosts and nodes that were paired before, unless one of them is taken."""
        for host, node in sorted(held.items()):
            if self._free_hosts([host]) and self._free_nodes([node]):
                self.node_of[host], self.host_of[node] = node, host

    def match(self, groups: Iterable[_Group]) -> list[str]:
        """Pair each host and node that claim only each other; return a sentence for each contradiction."""
        nodes_of: dict[str, dict[str, _Means]] = {}
        hosts_of: dict[str, dict[str, _Means]] = {}
        problems = []
        contested_hosts, contested_nodes = set[str](), set[str]()
        for group in groups:
            hosts = self._free_hosts(group.hosts)
            nodes = self._free_nodes(group.nodes) if hosts else []
            if len(hosts) > 1 and len(nodes) > 1:
                contested_hosts.update(hosts)
                contested_nodes.update(nodes)
                problems.append(
                    f"hosts {_join_names(hosts)} and nodes {_join_names(nodes)} all have {group.means.value} in common; name them "
                    "in spec.hosts"
                )
                continue
            for host, node in itertools.product(hosts, nodes):
                nodes_of.setdefault(host, {})[node] = group.means
                hosts_of.setdefault(node, {})[host] = group.means
        problems += (
            f"host {host} would be nodes {_join_names(means)} by {_words(means)}; name one of them in spec.hosts"
            for host, means in nodes_of.items()
            if len(means) > 1
        )
        problems += (
            f"hosts {_join_names(means)} would all be node {node} by {_words(means)}; name one of them in spec.hosts"
            for node, means in hosts_of.items()
            if len(means) > 1
        )
        for host, means in nodes_of.items():
            node = next(iter(means))
            is_alone = len(means) == len(hosts_of[node]) == 1
            if is_alone and host not in contested_hosts and node not in contested_nodes:
                self.node_of[host], self.host_of[node] = node, host
        self._contested_hosts |= (contested_hosts | nodes_of.keys()) - self.node_of.keys()
        self._contested_nodes |= (contested_nodes | hosts_of.keys()) - self.host_of.keys()
        return problems

    def _free_hosts(self, hosts: Iterable[str]) -> list[str]:
        return [host for host in hosts if host not in self.node_of and host not in self._contested_hosts]

    def _free_nodes(self, nodes: Iterable[str]) -> list[str]:
        return [node for node in nodes if node not in self.host_of and node not in self._contested_nodes]


class _View:
    """The hosts and the nodes by all their possible identifiers."""

    def __init__(
        self, spec: fabrics.FabricSpec, hosts: Iterable[contract.Host], nodes: Iterable[core.Node]
    ) -> None:
        self._spec = spec
        self._label_is_safe = is_restricted(spec.node_label)
        self.hosts = {host.id: host for host in hosts}
        self.nodes = {node.metadata.name: node for node in nodes}
        # Nodes by the value of the restricted label; nothing else claims them.
        self._reserved = self._marked(spec.node_label, "labels") if self._label_is_safe else {}
        self._named = _index((host.name, host.id) for host in self.hosts.values())
        self._machines = {
            kind: _index((_identity(kind, host), host.id) for host in self.hosts.values())
            for kind in COMPARABLE
        }

    def mistakes(self) -> Iterator[str]:
        """Yield the mistakes in `spec.hosts`."""
        for entry in self._spec.hosts:
            listed, maps = self._by_id(entry.host), f"spec.hosts maps host {entry.host} to node {entry.node}"
            if listed and entry.node not in self.nodes:
                yield f"{maps}, which does not exist"
            elif not listed and entry.host in self._named:
                yield (
                    f"{maps}, and that is the name of host {_join_names(self._named[entry.host])}; put the host's id there, or set "
                    "spec.trustHostNames if no machine can write the names"
                )
            elif not listed and entry.node in self.nodes:
                yield f"{maps}, and the fabric lists no such host"

    def find_configured(self) -> list[_Group]:
        """Return the pairs of `spec.hosts`; if one of the two does not exist, the other still gets no other partner."""
        return [
            _Group(
                means=_Means.CONFIGURED, hosts=self._by_id(entry.host) or (entry.host,), nodes=(entry.node,)
            )
            for entry in self._spec.hosts
        ]

    def labelled_by_id(self) -> list[_Group]:
        """Return the groups of restricted labels with the id of a host, or with a trusted name."""
        return [
            _Group(means=_Means.LABEL, hosts=hosts, nodes=tuple(nodes))
            for value, nodes in self._reserved.items()
            if (hosts := self._by_id(value))
        ]

    def trusted_names(self) -> list[_Group]:
        """Return the hosts with the name of a node, if no machine can write the names."""
        return self._by_name() if self._spec.trust_host_names else []

    def find_unmoved(self, held: Mapping[str, str]) -> dict[str, str]:
        """Return the earlier pairs whose node exists and has no restricted label for another host.

        The label names another host only if this host shows another identifier. A BMC may hide an identifier for a
        moment, and another machine may show it on purpose.
        """
        return {
            host: node for host, node in held.items() if node in self.nodes and not self._is_moved(host, node)
        }

    def _is_moved(self, host_id: str, node: str) -> bool:
        host, value = self.hosts.get(host_id), self._safe_value(node)
        matches = self._by_machine(value)
        return (
            host is not None
            and len(matches) == 1
            and host_id not in matches
            and bool(_identity(_label_kind(value), host))
        )

    def labelled_by_machine(self) -> list[_Group]:
        """Return the groups of restricted labels with a serial number or a system UUID."""
        return [
            _Group(means=_Means.LABEL, hosts=self._by_machine(value), nodes=tuple(nodes))
            for value, nodes in self._reserved.items()
            if not self._by_id(value)
        ]

    def ids(self) -> list[_Group]:
        """Return the hosts whose id is the name of a node."""
        return [
            _Group(means=_Means.ID, hosts=(host,), nodes=(host,))
            for host in self.hosts
            if host in self.nodes and not self._safe_value(host)
        ]

    def claims(self) -> list[_Group]:
        """Return the groups by properties that a machine, or a kubelet, can write."""
        marks = [
            *([] if self._label_is_safe else self._by_mark(self._spec.node_label, "labels", _Means.LABEL)),
            *self._by_mark(self._spec.node_annotation, "annotations", _Means.ANNOTATION),
        ]
        explicit = {node for group in marks for node in group.nodes}
        identities: list[_Group] = []
        for kind, means in _OF_MACHINE.items():
            hosts = self._machines[kind]
            nodes = _index(
                (_node_identifier(kind, node), name)
                for name, node in self._claimable()
                if name not in explicit
            )
            identities += (
                _Group(means=means, hosts=tuple(hosts[value]), nodes=tuple(members))
                for value, members in nodes.items()
                if value in hosts
            )
        return [*self._by_name(), *marks, *identities]

    def _claimable(self) -> Iterator[tuple[str, core.Node]]:
        """Return the nodes without a restricted label."""
        if not self._reserved:
            return iter(self.nodes.items())
        return ((name, node) for name, node in self.nodes.items() if not self._safe_value(name))

    def _by_name(self) -> list[_Group]:
        return [
            _Group(means=_Means.NAME, hosts=tuple(self._named[name]), nodes=(name,))
            for name, _ in self._claimable()
            if name in self._named
        ]

    def _by_mark(self, key: str, kind: str, means: _Means) -> list[_Group]:
        """Return the groups of an ordinary label or annotation."""
        marked = self._marked(key, kind)
        if not marked:
            return []
        names = _index(
            (mark, host.id)
            for host in self.hosts.values()
            for mark in dict.fromkeys((host.id, host.name, *host.identifiers.values()))
        )
        return [
            _Group(means=means, hosts=tuple(names[value]), nodes=tuple(nodes))
            for value, nodes in marked.items()
            if value in names
        ]

    def _marked(self, key: str, kind: str) -> dict[str, list[str]]:
        """Return the nodes by the value of a label or an annotation."""
        if not key:
            return {}
        return _index((getattr(node.metadata, kind).get(key, ""), name) for name, node in self.nodes.items())

    def _safe_value(self, node: str) -> str:
        """Return the value of the node's restricted label; empty without one."""
        return self.nodes[node].metadata.labels.get(self._spec.node_label, "") if self._label_is_safe else ""

    def _by_id(self, value: str) -> tuple[str, ...]:
        """Return the host of that id, or the hosts of that name if names are trusted."""
        if value in self.hosts:
            return (value,)
        return tuple(self._named.get(value, ())) if self._spec.trust_host_names else ()

    def _by_machine(self, value: str) -> tuple[str, ...]:
        """Return the hosts with the identifier in a restricted label."""
        kind = _label_kind(value)
        return tuple(self._machines[kind].get(COMPARABLE[kind](value), ()))


def _disputes(
    group: _Group, pairs: _Pairs, settled: frozenset[tuple[str, str]], view: _View
) -> Iterator[str]:
    """Yield a sentence for each claim to another's partner, for the first few of the group."""
    if len(group.hosts) == len(group.nodes) == 1 and pairs.node_of.get(group.hosts[0]) == group.nodes[0]:
        return
    for host, node in itertools.islice(itertools.product(group.hosts, group.nodes), NAMED_MAX * NAMED_MAX):
        owner, other = pairs.host_of.get(node), pairs.node_of.get(host)
        if other == node or (owner is None and other is None) or {(_HOST, host), (_NODE, node)} & settled:
            continue
        mapped = []
        if owner is not None:
            listed = "" if owner in view.hosts else ", which the fabric does not list now"
            mapped.append(f"node {node} is host {owner}{listed}")
        if other is not None:
            mapped.append(f"host {host} is node {other}")
        yield (
            f"host {host} and node {node} have {group.means.value} in common, but {' and '.join(mapped)}; find out who wrote "
            f"it, or name the host of node {node} in spec.hosts"
        )


def _index(entries: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return the members by their value, without the empty value."""
    members: dict[str, list[str]] = {}
    for value, member in entries:
        if not value:
            continue
        if value in members:
            members[value].append(member)
        else:
            members[value] = [member]
    return members


def _label_kind(value: str) -> str:
    """Return the one kind of identifier in a restricted label, so that a serial number is never taken for a UUID."""
    return SYSTEM_UUID if identifiers.is_uuid(value) else SERIAL


def _identity(kind: str, host: contract.Host) -> str:
    return COMPARABLE[kind](host.identifiers.get(kind, ""))


def _node_identifier(kind: str, node: core.Node) -> str:
    """Return the identifier of a node's machine in the Node."""
    if kind == SYSTEM_UUID:
        return identifiers.system_uuid(node.status.node_info.system_uuid)
    return identifiers.serial(node.metadata.annotations.get(SERIAL_ANNOTATION, ""))


def _join_names(members: Iterable[str]) -> str:
    names = sorted(members)
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + more


def _words(means: Mapping[str, _Means]) -> str:
    return " and ".join(sorted({entry.value for entry in means.values()}))


def is_restricted(label: str) -> bool:
    """Return whether the API server keeps kubelets from writing that label."""
    domain, slash, _ = label.partition("/")
    return bool(slash) and f".{domain}".endswith(f".{RESTRICTED_DOMAIN}")


def shape(node: core.Node) -> tuple[object, ...]:
    """Return the properties of a node that affect the map, or its labels."""
    return node.metadata.labels, node.metadata.annotations, node.status.node_info, node.ready


def differ(old: contract.Host, new: contract.Host) -> bool:
    """Return whether the change of one host can change the map, or the labels; most only fill or free one port of several."""
    return _mapped_by(old) != _mapped_by(new)


def _mapped_by(host: contract.Host) -> tuple[object, ...]:
    return host.name, host.identifiers, _has_room(host), host.reach_groups


def _has_room(host: contract.Host) -> bool:
    """Return whether the host can take one more device; a fabric that reports no ports sets no limit."""
    return not host.ports or any(port.state is contract.PortState.FREE for port in host.ports)
