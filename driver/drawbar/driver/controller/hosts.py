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

- a mapping stays as long as the Node exists, against the claims of other hosts and nodes, unless an administrator decides
  otherwise by 1, 2, 3 or 5;
- so no claim of one host takes away, or changes, the node of another, and no claim maps a second host to a mapped node,
  even while the fabric does not list the first host;
- a host is one node at most, and a node one host;
- each refused claim is a problem, unless an administrator has decided by 1, 2, 3 or 5.

Source: NodeRestriction admission plugin, for the labels that a kubelet may not write.
"""

from collections.abc import Iterable, Mapping

import msgspec

from drawbar.driver.api import core, fabrics
from drawbar.driver.controller import host_claims, host_pairs
from drawbar.fabric import contract

REMEMBERED_MAX = 5000
# A Fabric has room for little more than a megabyte.
REMEMBERED_BYTES = 500_000


class NodeMap(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a mapping.

    Attributes:
        host_of: by node name, the host's id.
        with_room: nodes whose host can take one more device.
        problems: a sentence for each refused claim, and for each mistake in `spec.hosts`.
        remembered: by host id, its node; also for hosts that the fabric does not list now.
    """

    host_of: Mapping[str, str] = msgspec.field(default_factory=dict)
    with_room: frozenset[str] = frozenset()
    problems: tuple[str, ...] = ()
    remembered: Mapping[str, str] = msgspec.field(default_factory=dict)

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
    view, pairs = host_claims.Claims(spec, hosts, nodes), host_pairs.Pairs()
    problems = [*view.mistakes()]
    for groups in (view.find_configured(), view.group_by_id_label(), view.group_by_trusted_name()):
        problems += pairs.match(groups)
    settled = pairs.taken
    pairs.keep(view.find_unmoved(held or {}))
    by_label, before = view.group_by_machine_label(), pairs.taken
    problems += pairs.match(by_label)
    settled |= pairs.taken - before
    problems += pairs.match(view.ids())
    claims = view.claims()
    problems += pairs.match(claims)
    for group in (*by_label, *claims):
        problems += host_pairs.describe_disputes(group, pairs, settled, view.hosts)
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


def shape(node: core.Node) -> tuple[object, ...]:
    """Return the properties of a node that affect the map, or its labels."""
    return node.metadata.labels, node.metadata.annotations, node.status.node_info, node.ready


def differ(old: contract.Host, new: contract.Host) -> bool:
    """Return whether the change of one host can change the map, or the labels; most only fill or free one port of several."""
    return _select_mapping_fields(old) != _select_mapping_fields(new)


def _select_mapping_fields(host: contract.Host) -> tuple[object, ...]:
    return host.name, host.identifiers, _has_room(host), host.reach_groups


def _has_room(host: contract.Host) -> bool:
    """Return whether the host can take one more device; a fabric that reports no ports sets no limit."""
    return not host.ports or any(port.state is contract.PortState.FREE for port in host.ports)
