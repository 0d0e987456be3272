"""The hosts and the nodes by all identifiers that they show, and the groups with one in common."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from drawbar.driver.api import core, fabrics
from drawbar.driver.controller import host_pairs
from drawbar.driver.controller.host_pairs import Group, Means
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
_OF_MACHINE: Mapping[str, Means] = {SYSTEM_UUID: Means.SYSTEM_UUID, SERIAL: Means.SERIAL}


class Claims:
    """The hosts and the nodes by all their possible identifiers."""

    def __init__(
        self, spec: fabrics.FabricSpec, hosts: Iterable[contract.Host], nodes: Iterable[core.Node]
    ) -> None:
        self._spec = spec
        self._label_is_safe = is_restricted(spec.node_label)
        self.hosts = {host.id: host for host in hosts}
        self.nodes = {node.metadata.name: node for node in nodes}
        # Nodes by the value of the restricted label; nothing else claims them.
        self._reserved = self._find_marked(spec.node_label, "labels") if self._label_is_safe else {}
        self._named = _index((host.name, host.id) for host in self.hosts.values())
        self._machines = {
            kind: _index((_identity(kind, host), host.id) for host in self.hosts.values())
            for kind in COMPARABLE
        }

    def mistakes(self) -> Iterator[str]:
        """Yield the mistakes in `spec.hosts`."""
        for entry in self._spec.hosts:
            listed, maps = (
                self._find_by_id(entry.host),
                f"spec.hosts maps host {entry.host} to node {entry.node}",
            )
            if listed and entry.node not in self.nodes:
                yield f"{maps}, which does not exist"
            elif not listed and entry.host in self._named:
                yield (
                    f"{maps}, and that is the name of host {host_pairs.join_names(self._named[entry.host])}; put the host's id there, or set "
                    "spec.trustHostNames if no machine can write the names"
                )
            elif not listed and entry.node in self.nodes:
                yield f"{maps}, and the fabric lists no such host"

    def find_configured(self) -> list[Group]:
        """Return the pairs of `spec.hosts`; if one of the two does not exist, the other still gets no other partner."""
        return [
            Group(
                means=Means.CONFIGURED,
                hosts=self._find_by_id(entry.host) or (entry.host,),
                nodes=(entry.node,),
            )
            for entry in self._spec.hosts
        ]

    def group_by_id_label(self) -> list[Group]:
        """Return the groups of restricted labels with the id of a host, or with a trusted name."""
        return [
            Group(means=Means.LABEL, hosts=hosts, nodes=tuple(nodes))
            for value, nodes in self._reserved.items()
            if (hosts := self._find_by_id(value))
        ]

    def group_by_trusted_name(self) -> list[Group]:
        """Return the hosts with the name of a node, if no machine can write the names."""
        return self._group_by_name() if self._spec.trust_host_names else []

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
        matches = self._find_by_machine(value)
        return (
            host is not None
            and len(matches) == 1
            and host_id not in matches
            and bool(_identity(_label_kind(value), host))
        )

    def group_by_machine_label(self) -> list[Group]:
        """Return the groups of restricted labels with a serial number or a system UUID."""
        return [
            Group(means=Means.LABEL, hosts=self._find_by_machine(value), nodes=tuple(nodes))
            for value, nodes in self._reserved.items()
            if not self._find_by_id(value)
        ]

    def ids(self) -> list[Group]:
        """Return the hosts whose id is the name of a node."""
        return [
            Group(means=Means.ID, hosts=(host,), nodes=(host,))
            for host in self.hosts
            if host in self.nodes and not self._safe_value(host)
        ]

    def claims(self) -> list[Group]:
        """Return the groups by properties that a machine, or a kubelet, can write."""
        marks = [
            *(
                []
                if self._label_is_safe
                else self._group_by_mark(self._spec.node_label, "labels", Means.LABEL)
            ),
            *self._group_by_mark(self._spec.node_annotation, "annotations", Means.ANNOTATION),
        ]
        explicit = {node for group in marks for node in group.nodes}
        identities: list[Group] = []
        for kind, means in _OF_MACHINE.items():
            hosts = self._machines[kind]
            nodes = _index(
                (_node_identifier(kind, node), name)
                for name, node in self._claimable()
                if name not in explicit
            )
            identities += (
                Group(means=means, hosts=tuple(hosts[value]), nodes=tuple(members))
                for value, members in nodes.items()
                if value in hosts
            )
        return [*self._group_by_name(), *marks, *identities]

    def _claimable(self) -> Iterator[tuple[str, core.Node]]:
        """Return the nodes without a restricted label."""
        if not self._reserved:
            return iter(self.nodes.items())
        return ((name, node) for name, node in self.nodes.items() if not self._safe_value(name))

    def _group_by_name(self) -> list[Group]:
        return [
            Group(means=Means.NAME, hosts=tuple(self._named[name]), nodes=(name,))
            for name, _ in self._claimable()
            if name in self._named
        ]

    def _group_by_mark(self, key: str, kind: str, means: Means) -> list[Group]:
        """Return the groups of an ordinary label or annotation."""
        marked = self._find_marked(key, kind)
        if not marked:
            return []
        names = _index(
            (mark, host.id)
            for host in self.hosts.values()
            for mark in dict.fromkeys((host.id, host.name, *host.identifiers.values()))
        )
        return [
            Group(means=means, hosts=tuple(names[value]), nodes=tuple(nodes))
            for value, nodes in marked.items()
            if value in names
        ]

    def _find_marked(self, key: str, kind: str) -> dict[str, list[str]]:
        """Return the nodes by the value of a label or an annotation."""
        if not key:
            return {}
        return _index((getattr(node.metadata, kind).get(key, ""), name) for name, node in self.nodes.items())

    def _safe_value(self, node: str) -> str:
        """Return the value of the node's restricted label; empty without one."""
        return self.nodes[node].metadata.labels.get(self._spec.node_label, "") if self._label_is_safe else ""

    def _find_by_id(self, value: str) -> tuple[str, ...]:
        """Return the host of that id, or the hosts of that name if names are trusted."""
        if value in self.hosts:
            return (value,)
        return tuple(self._named.get(value, ())) if self._spec.trust_host_names else ()

    def _find_by_machine(self, value: str) -> tuple[str, ...]:
        """Return the hosts with the identifier in a restricted label."""
        kind = _label_kind(value)
        return tuple(self._machines[kind].get(COMPARABLE[kind](value), ()))


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


def is_restricted(label: str) -> bool:
    """Return whether the API server keeps kubelets from writing that label."""
    domain, slash, _ = label.partition("/")
    return bool(slash) and f".{domain}".endswith(f".{RESTRICTED_DOMAIN}")
