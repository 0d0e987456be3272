"""The pairs of hosts and nodes, out of groups that claim each other.

A contested host or node has no partner and gets none. Each contradiction is a sentence.
"""

import enum
import itertools
from collections.abc import Container, Iterable, Iterator, Mapping

import msgspec

from drawbar.driver import wording

# The most names for a shared identifier in a message.
NAMED_MAX = 8
# An entry of `Pairs.taken`.
_HOST, _NODE = "host", "node"


class Means(enum.Enum):
    """The common property of a host and a node, with the words for a message."""

    CONFIGURED = "spec.hosts"
    LABEL = "the label"
    ANNOTATION = "the annotation"
    NAME = "the name"
    SYSTEM_UUID = "the system UUID"
    SERIAL = "the serial number"
    ID = "the id"


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """The hosts and the nodes with one property in common: each of them claims to be the others."""

    means: Means
    hosts: tuple[str, ...]
    nodes: tuple[str, ...]


class Pairs:
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

    def match(self, groups: Iterable[Group]) -> list[str]:
        """Pair each host and node that claim only each other; return a sentence for each contradiction."""
        nodes_of: dict[str, dict[str, Means]] = {}
        hosts_of: dict[str, dict[str, Means]] = {}
        problems = []
        contested_hosts, contested_nodes = set[str](), set[str]()
        for group in groups:
            hosts = self._free_hosts(group.hosts)
            nodes = self._free_nodes(group.nodes) if hosts else []
            if len(hosts) > 1 and len(nodes) > 1:
                contested_hosts.update(hosts)
                contested_nodes.update(nodes)
                problems.append(
                    f"hosts {join_names(hosts)} and nodes {join_names(nodes)} all have {group.means.value} in common; name them "
                    "in spec.hosts"
                )
                continue
            for host, node in itertools.product(hosts, nodes):
                nodes_of.setdefault(host, {})[node] = group.means
                hosts_of.setdefault(node, {})[host] = group.means
        problems += (
            f"host {host} would be nodes {join_names(means)} by {_words(means)}; name one of them in spec.hosts"
            for host, means in nodes_of.items()
            if len(means) > 1
        )
        problems += (
            f"hosts {join_names(means)} would all be node {node} by {_words(means)}; name one of them in spec.hosts"
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


def describe_disputes(
    group: Group, pairs: Pairs, settled: frozenset[tuple[str, str]], listed: Container[str]
) -> Iterator[str]:
    """Yield a sentence for each claim to another's partner, for the first few of the group; `listed` are the fabric's hosts."""
    if len(group.hosts) == len(group.nodes) == 1 and pairs.node_of.get(group.hosts[0]) == group.nodes[0]:
        return
    for host, node in itertools.islice(itertools.product(group.hosts, group.nodes), NAMED_MAX * NAMED_MAX):
        owner, other = pairs.host_of.get(node), pairs.node_of.get(host)
        if other == node or (owner is None and other is None) or {(_HOST, host), (_NODE, node)} & settled:
            continue
        mapped = []
        if owner is not None:
            now = "" if owner in listed else ", which the fabric does not list now"
            mapped.append(f"node {node} is host {owner}{now}")
        if other is not None:
            mapped.append(f"host {host} is node {other}")
        yield (
            f"host {host} and node {node} have {group.means.value} in common, but {' and '.join(mapped)}; find out who wrote "
            f"it, or name the host of node {node} in spec.hosts"
        )


def join_names(members: Iterable[str]) -> str:
    """Return the first few names, sorted, and the number of the others."""
    return wording.join_some(sorted(members), NAMED_MAX)


def _words(means: Mapping[str, Means]) -> str:
    return " and ".join(sorted({entry.value for entry in means.values()}))
