"""Which nodes a fabric reaches, as far as the API server tells; pure.

Only the controller knows the fabric's hosts. From here a node shows to be one by the label that the controller gives it
while its host has a free port, by a device that is attached there, or by the Fabric's `spec.hosts`. The rules of the mapping
are those of `controller.hosts`.
"""

from collections.abc import Iterator, Mapping, Sequence

from drawbar.driver.api import fabrics, meta
from drawbar.driver.cli.doctor import findings, objects, observed
from drawbar.driver.cli.doctor.findings import Check, Finding, Severity
from drawbar.driver.cli.doctor.plans import nodes
from drawbar.driver.controller import hosts, names

_MAP = "name it in a Fabric's spec.hosts, or give it what the fabric knows its host by (docs/fabrics.md)"


def plan(cluster: observed.Cluster) -> Iterator[Finding]:
    """Findings on the mapping of every Fabric of this driver, and on nodes that none reaches."""
    known = observed.seen(cluster.nodes)
    ours = [one for one in observed.seen(cluster.fabrics) if one.spec.driver == cluster.where.driver]
    if not known or not ours:
        return
    for fabric in ours:
        yield from _mapped(fabric)
        yield from _told(fabric, known)
        yield from _marks(fabric, known)
    if not all(one.spec.hosts for one in ours):
        yield from _machines(known)
    yield from _strays(cluster, ours, known)


def _mapped(fabric: fabrics.Fabric) -> Iterator[Finding]:
    condition = meta.find(fabric.status.conditions, fabrics.HOSTS_MAPPED)
    if condition is None:
        return
    subject = _subject(fabric)
    if condition.is_true:
        yield findings.ok(Check.HOSTS_MAPPED, subject, condition.message)
        return
    yield Finding(
        check=Check.HOSTS_MAPPED,
        severity=Severity.ERROR,
        subject=subject,
        message=condition.message,
        remedy="map them in spec.hosts; docs/fabrics.md has the other ways",
    )


def _told(fabric: fabrics.Fabric, known: Sequence[objects.Node]) -> Iterator[Finding]:
    here = {node.metadata.name for node in known}
    lost = sorted({entry.node for entry in fabric.spec.hosts} - here)
    if lost:
        yield Finding(
            check=Check.HOSTS_MAPPED,
            severity=Severity.ERROR,
            subject=_subject(fabric),
            message=f"spec.hosts names nodes that do not exist: {findings.listed(lost)}",
            remedy="mend the names (kubectl get nodes has them), or take the entries out",
        )


def _marks(fabric: fabrics.Fabric, known: Sequence[objects.Node]) -> Iterator[Finding]:
    """The label and the annotation that the Fabric says its nodes have."""
    spec = fabric.spec
    ways = (
        ("nodeLabel", spec.node_label, [node.metadata.labels for node in known]),
        ("nodeAnnotation", spec.node_annotation, [node.metadata.annotations for node in known]),
    )
    for field, key, marks in ways:
        if not key:
            continue
        values = [one.get(key, "") for one in marks]
        if not any(values):
            yield Finding(
                check=Check.HOSTS_MAPPED,
                severity=Severity.WARNING,
                subject=_subject(fabric),
                message=f"spec.{field} is {key}, and no node has it",
                remedy="give it to the nodes, with the id, the name or an identifier of their host as its value",
            )
        yield from _twice(
            f"{field} {key}", dict(zip((one.metadata.name for one in known), values, strict=True))
        )


def _machines(known: Sequence[objects.Node]) -> Iterator[Finding]:
    """Machines that would be known by what several have."""
    yield from _twice(
        "system UUID",
        {node.metadata.name: hosts.comparable(node.status.node_info.system_uuid) for node in known},
    )
    yield from _twice(
        f"annotation {hosts.SERIAL_ANNOTATION}",
        {
            node.metadata.name: hosts.comparable(node.metadata.annotations.get(hosts.SERIAL_ANNOTATION, ""))
            for node in known
        },
    )


def _twice(what: str, values: Mapping[str, str]) -> Iterator[Finding]:
    by_value: dict[str, list[str]] = {}
    for node, value in values.items():
        if value:
            by_value.setdefault(value, []).append(node)
    for value, members in sorted(by_value.items()):
        if len(members) > 1:
            yield Finding(
                check=Check.HOSTS_AMBIGUOUS,
                severity=Severity.WARNING,
                subject=f"nodes {findings.listed(sorted(members))}",
                message=f"have the same {what}, {value}: a host that is known by it is mapped to one of them alone, or to none",
                remedy="make it unique (cloned machines often have one UUID), or name the hosts in spec.hosts",
            )


def _strays(
    cluster: observed.Cluster, ours: Sequence[fabrics.Fabric], known: Sequence[objects.Node]
) -> Iterator[Finding]:
    """Nodes with a node daemon that no Fabric seems to reach."""
    told = {entry.node for one in ours for entry in one.spec.hosts}
    attached = {one.spec.node_name for one in observed.seen(cluster.attachments)}
    labels = {names.node_label(one.metadata.name) for one in ours}
    unexplained = nodes.with_daemon(cluster) - told - attached
    strays = [
        node
        for node in known
        if node.metadata.name in unexplained and not labels & node.metadata.labels.keys()
    ]
    if not strays:
        return
    first = strays[0]
    uuid = first.status.node_info.system_uuid or "not told by its kubelet"
    members = [node.metadata.name for node in strays]
    yield Finding(
        check=Check.HOSTS_NODE,
        severity=Severity.WARNING,
        subject=f"node {first.metadata.name}" if len(strays) == 1 else f"{len(strays)} nodes",
        message=(
            f"run the node daemon, and no fabric seems to reach them: {findings.listed(members)}. Either no host is mapped "
            f"to them, or their hosts have no free port (the system UUID of {first.metadata.name} is {uuid})"
        ),
        remedy=_MAP,
    )


def _subject(fabric: fabrics.Fabric) -> str:
    return f"Fabric {fabric.metadata.name}"
