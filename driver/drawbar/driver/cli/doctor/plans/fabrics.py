"""The state of the Fabrics, from the controller's conditions, and the nodes of each; pure.

Only the controller has the fabric's own list of hosts. Three things show that a node is a host: the controller's label
for a free port, an attached device, or the Fabric's `spec.hosts`. The rules of the mapping are those of
`controller.hosts`. The reasons are those of `catalogue.fabric_conditions`.
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from drawbar.driver.api import core, fabrics, maintenances, meta
from drawbar.driver.catalogue import fabric_conditions, links, reasons, tables
from drawbar.driver.cli.doctor import findings, observed
from drawbar.driver.cli.doctor.findings import Check, Finding, Severity, Unread
from drawbar.driver.cli.doctor.plans import nodes
from drawbar.driver.controller import host_claims, names
from drawbar.fabric import identifiers

YOUNG_SECONDS = 30.0
"""The time that a new Fabric may be without conditions of the controller."""


def plan(cluster: observed.Cluster) -> Iterator[Finding]:
    """Yield the findings on this driver's Fabrics."""
    listed = cluster.fabrics
    if isinstance(listed, Unread):
        yield findings.make_unread(Check.FABRICS_SERVED, listed)
        return
    ours = [fabric for fabric in listed if fabric.spec.driver == cluster.where.driver]
    foreign = [fabric.metadata.name for fabric in listed if fabric.spec.driver != cluster.where.driver]
    if foreign:
        yield findings.make_note(
            Check.FABRICS_SERVED,
            f"Fabric {findings.join_names(foreign)}",
            f"is of another driver than {cluster.where.driver}, so it is not checked here",
            "drawbar doctor --driver-name with the name in its spec.driver",
        )
    if not listed:
        yield findings.make_note(
            Check.FABRICS_SERVED,
            "Fabrics",
            "there is no Fabric yet, so only the nodes' own devices are offered",
            f"kubectl apply a Fabric: {links.url('fabrics.md')} has an example",
        )
    for fabric in ours:
        yield from _fabric(cluster, fabric)
    yield from _maintenances(cluster)


def _maintenances(cluster: observed.Cluster) -> Iterator[Finding]:
    """Yield a finding for each Maintenance of this driver that is not completely in effect."""
    if isinstance(cluster.maintenances, Unread):
        yield findings.make_unread(Check.FABRICS_MAINTENANCE, cluster.maintenances)
        return
    for item in cluster.maintenances:
        applied = meta.find(item.status.conditions, maintenances.APPLIED)
        if item.spec.driver != cluster.where.driver or (
            applied is not None and applied.reason == reasons.APPLIED
        ):
            continue
        yield findings.make_warning(
            Check.FABRICS_MAINTENANCE,
            f"Maintenance {item.metadata.name}",
            f"is not fully in effect: {applied.message if applied is not None else 'no controller has judged it'}",
            f"correct its spec, or delete it: kubectl delete maintenance {item.metadata.name}",
        )


def _fabric(cluster: observed.Cluster, fabric: fabrics.Fabric) -> Iterator[Finding]:
    connected = meta.find(fabric.status.conditions, fabrics.CONNECTED)
    if connected is None or connected.reason == reasons.PENDING:
        yield _silent(cluster, fabric)
        return
    troubles = [*judge(fabric), *_certificate(fabric, connected)]
    if not any(trouble.severity is not Severity.NOTE for trouble in troubles):
        status = fabric.status
        what = f"is connected: {status.devices} devices, {status.attached} of them attached, {status.hosts} hosts"
        yield findings.make_ok(Check.FABRICS_CONNECTED, _subject(fabric), what)
    yield from troubles


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """A bad condition of a Fabric, and the finding on it."""

    condition: meta.Condition
    finding: Finding


class _Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """The finding on a condition that is bad.

    Attributes:
        table: the reasons of the condition.
        message: a format of the condition's reason and message.
        severity: None for that of the reason.
    """

    check: Check
    table: tables.Table
    message: str = "{message}"
    severity: Severity | None = None

    def judge(self, fabric: fabrics.Fabric, condition: meta.Condition) -> Finding:
        """Return the finding on a bad condition."""
        row = self.table.find(condition.reason)
        return Finding(
            check=Check.FABRICS_CREDENTIALS if row in fabric_conditions.CREDENTIALS.rows else self.check,
            severity=self.severity or Severity(row.severity),
            subject=_subject(fabric),
            message=self.message.format(reason=condition.reason, message=condition.message),
            remedy=row.advise(fabric=fabric.metadata.name),
        )


# The cause of others is first.
_JUDGEMENTS = {
    fabrics.CONNECTED: _Judgement(
        check=Check.FABRICS_CONNECTED,
        table=fabric_conditions.CONNECTED,
        message="is not connected ({reason}): {message}",
    ),
    fabrics.PUBLISHED: _Judgement(
        check=Check.FABRICS_PUBLISHED,
        table=fabric_conditions.PUBLISHED,
        message="its devices are not offered ({reason}): {message}",
    ),
    fabrics.WRITABLE: _Judgement(
        check=Check.FABRICS_WRITABLE,
        table=fabric_conditions.WRITABLE,
        message="the API server refuses the controller's writes for it: {message}",
        severity=Severity.ERROR,
    ),
    fabrics.DEGRADED: _Judgement(
        check=Check.FABRICS_DEGRADED, table=fabric_conditions.DEGRADED, severity=Severity.WARNING
    ),
    fabrics.HOSTS_MAPPED: _Judgement(
        check=Check.HOSTS_MAPPED, table=fabric_conditions.HOSTS_MAPPED, severity=Severity.ERROR
    ),
    fabrics.FEATURES_DROPPED: _Judgement(
        check=Check.FEATURES_BINDING_CONDITIONS,
        table=fabric_conditions.FEATURES_DROPPED,
        severity=Severity.WARNING,
    ),
    fabrics.READY: _Judgement(check=Check.FABRICS_READY, table=fabric_conditions.READY),
}


def judge_all(fabric: fabrics.Fabric) -> Iterator[Trouble]:
    """Yield each bad condition of a Fabric with its finding, the cause of others first.

    A connection that no controller has judged yet is no trouble. `Ready` sums up the others, so it is a trouble only if all
    others are good.
    """
    conditions = {condition.type: condition for condition in fabric.status.conditions}
    is_good = True
    for kind, judgement in _JUDGEMENTS.items():
        condition = conditions.get(kind)
        if condition is None or condition.is_true != (kind in fabrics.BAD_IF_TRUE):
            continue
        if condition.reason != reasons.PENDING and (kind != fabrics.READY or is_good):
            is_good = False
            yield Trouble(condition=condition, finding=judgement.judge(fabric, condition))


def judge(fabric: fabrics.Fabric) -> Iterator[Finding]:
    """Yield the findings of `judge_all`, except those on hosts and features."""
    topic = Check.FABRICS_CONNECTED.topic
    yield from (trouble.finding for trouble in judge_all(fabric) if trouble.finding.check.topic == topic)


def _silent(cluster: observed.Cluster, fabric: fabrics.Fabric) -> Finding:
    created = meta.moment(fabric.metadata.creation_timestamp)
    age = (cluster.now - created).total_seconds() if created is not None else YOUNG_SECONDS
    return Finding(
        check=Check.FABRICS_SERVED,
        severity=Severity.ERROR if age >= YOUNG_SECONDS else Severity.NOTE,
        subject=_subject(fabric),
        message=f"no controller has reported on it for {age:.0f} s",
        remedy=f"does a controller with driverName {fabric.spec.driver} run and lead?",
    )


def _certificate(fabric: fabrics.Fabric, connected: meta.Condition) -> Iterator[Finding]:
    if connected.is_true and not fabric.spec.tls.verify:
        yield findings.make_warning(
            Check.FABRICS_CONNECTED,
            _subject(fabric),
            "the fabric manager's certificate is not checked (spec.tls.verify is false): anyone on the network may answer in its place",
            "put its authority into ca.crt of the Secret, and take spec.tls.verify out",
        )


def _subject(fabric: fabrics.Fabric) -> str:
    return f"Fabric {fabric.metadata.name}"


_MAP = f"name it in a Fabric's spec.hosts, or give it an identifier of its host ({links.url('fabrics.md')})"


def plan_hosts(cluster: observed.Cluster) -> Iterator[Finding]:
    """Yield the findings on the mapping of this driver's Fabrics, and on nodes without a Fabric."""
    nodes = observed.get_objects(cluster.nodes)
    ours = [
        fabric
        for fabric in observed.get_objects(cluster.fabrics)
        if fabric.spec.driver == cluster.where.driver
    ]
    if not nodes or not ours:
        return
    for fabric in ours:
        yield from _check_mapping(fabric)
        yield from _judge_marks(fabric, nodes)
        yield from _marks(fabric, nodes)
    if not all(fabric.spec.hosts for fabric in ours):
        yield from _machines(nodes)
    yield from _strays(cluster, ours, nodes)


def _check_mapping(fabric: fabrics.Fabric) -> Iterator[Finding]:
    condition = meta.find(fabric.status.conditions, fabrics.HOSTS_MAPPED)
    if condition is not None and condition.is_true:
        yield findings.make_ok(Check.HOSTS_MAPPED, _subject(fabric), condition.message)
    elif condition is not None:
        yield _JUDGEMENTS[fabrics.HOSTS_MAPPED].judge(fabric, condition)


def _judge_marks(fabric: fabrics.Fabric, nodes: Sequence[core.Node]) -> Iterator[Finding]:
    here = {node.metadata.name for node in nodes}
    lost = sorted({entry.node for entry in fabric.spec.hosts} - here)
    if lost:
        yield findings.make_error(
            Check.HOSTS_MAPPED,
            _subject(fabric),
            f"spec.hosts names nodes that do not exist: {findings.join_names(lost)}",
            "correct the names (kubectl get nodes has them), or take the entries out",
        )


def _marks(fabric: fabrics.Fabric, nodes: Sequence[core.Node]) -> Iterator[Finding]:
    """Yield the findings on the label and the annotation that the Fabric expects on its nodes."""
    spec = fabric.spec
    ways = (
        ("nodeLabel", spec.node_label, [node.metadata.labels for node in nodes]),
        ("nodeAnnotation", spec.node_annotation, [node.metadata.annotations for node in nodes]),
    )
    for field, key, marks in ways:
        if not key:
            continue
        values = [node_marks.get(key, "") for node_marks in marks]
        if not any(values):
            yield findings.make_warning(
                Check.HOSTS_MAPPED,
                _subject(fabric),
                f"spec.{field} is {key}, and no node has it",
                "give it to the nodes, with the id, the name or an identifier of their host as its value",
            )
        yield from _find_duplicates(
            f"{field} {key}", dict(zip((node.metadata.name for node in nodes), values, strict=True))
        )


def _machines(nodes: Sequence[core.Node]) -> Iterator[Finding]:
    """Yield a finding for each machine identifier that several nodes have."""
    yield from _find_duplicates(
        "system UUID",
        {node.metadata.name: identifiers.system_uuid(node.status.node_info.system_uuid) for node in nodes},
    )
    yield from _find_duplicates(
        f"annotation {host_claims.SERIAL_ANNOTATION}",
        {
            node.metadata.name: identifiers.serial(
                node.metadata.annotations.get(host_claims.SERIAL_ANNOTATION, "")
            )
            for node in nodes
        },
    )


def _find_duplicates(what: str, values: Mapping[str, str]) -> Iterator[Finding]:
    by_value: dict[str, list[str]] = {}
    for node, value in values.items():
        if value:
            by_value.setdefault(value, []).append(node)
    for value, members in sorted(by_value.items()):
        if len(members) > 1:
            yield findings.make_warning(
                Check.HOSTS_AMBIGUOUS,
                f"nodes {findings.join_names(sorted(members))}",
                f"have the same {what}, {value}: a host with it is mapped to one of them or to none",
                "make it unique (cloned machines often have one UUID), or name the hosts in spec.hosts",
            )


def _strays(
    cluster: observed.Cluster, ours: Sequence[fabrics.Fabric], listed: Sequence[core.Node]
) -> Iterator[Finding]:
    """Yield the finding on nodes with a node daemon but, apparently, without a Fabric."""
    named = {entry.node for fabric in ours for entry in fabric.spec.hosts}
    attached = {attachment.spec.node_name for attachment in observed.get_objects(cluster.attachments)}
    labels = {names.node_label(fabric.metadata.name) for fabric in ours}
    unexplained = nodes.list_nodes_with_daemon(cluster) - named - attached
    strays = [
        node
        for node in listed
        if node.metadata.name in unexplained and not labels & node.metadata.labels.keys()
    ]
    if not strays:
        return
    first = strays[0]
    uuid = first.status.node_info.system_uuid or "not told by its kubelet"
    members = [node.metadata.name for node in strays]
    yield findings.make_warning(
        Check.HOSTS_NODE,
        f"node {first.metadata.name}" if len(strays) == 1 else f"{len(strays)} nodes",
        (
            f"run the node daemon, but no fabric seems to reach them: {findings.join_names(members)}. Either no host is mapped "
            f"to them, or their hosts have no free port (the system UUID of {first.metadata.name} is {uuid})"
        ),
        _MAP,
    )
