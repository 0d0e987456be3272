"""The nodes' ability to use attached devices: kubelet, container runtime, node daemon; pure.

Nodes with the same trouble share one finding, so that the report of a large cluster stays readable.
"""

import re
from collections.abc import Collection, Iterator, Sequence

from drawbar.driver.api import attachments, core, fabrics, meta
from drawbar.driver.catalogue import links
from drawbar.driver.cli.doctor import findings, observed
from drawbar.driver.cli.doctor.findings import Check, Finding, Severity, Unread
from drawbar.driver.controller import daemons, names

KUBELET_OLDEST, KUBELET_TRIED = 32, 34
"""The first kubelet that reads the claims of later API servers, and the first one tested."""
CLASSIC_OLDEST = 27
"""The first kubelet for devices that our controller allocates."""
UNREADY_MAX = 20
"""The most pods that are named one by one."""
_RUNTIME = re.compile(r"([\w.-]+)://v?([0-9]{1,9})\.([0-9]{1,9})")
VERIFY = "on the node, drawbar doctor --node --host-root / reads the runtime's configuration"
IN_FORCE = "containerd config dump | grep cdi, or crio status config | grep cdi, shows the settings in force"
"""How to verify the settings of a runtime: with its files unread, and without files."""
GONE = "is gone, but a device is attached there, or is to be"
GONE_REMEDY = "bring the machine back, or wait: policy.nodeGoneSeconds later its devices are detached"


def plan(cluster: observed.Cluster) -> Iterator[Finding]:
    """Yield the findings on all nodes."""
    if isinstance(cluster.nodes, Unread):
        yield findings.make_unread(Check.NODES_KUBELET, cluster.nodes)
        return
    listed, running = cluster.nodes, list_nodes_with_daemon(cluster)
    # Without a daemon, neither kubelet nor runtime matters to Drawbar.
    concerned = [node for node in listed if not running or node.metadata.name in running]
    yield from _kubelets(cluster, concerned)
    yield from runtimes(concerned)
    yield from _ready(cluster, listed)
    yield from _daemons(cluster, listed, running)


def list_nodes_with_daemon(cluster: observed.Cluster) -> frozenset[str]:
    """Return the nodes with a node daemon: with its pod, or with a pool that only it publishes."""
    pods = {pod.spec.node_name for pod in _pods(cluster)}
    published = {entry.spec.node_name or "" for entry in observed.get_objects(cluster.published)}
    return frozenset((pods | published) - {""})


def _pods(cluster: observed.Cluster) -> list[core.Pod]:
    account = cluster.where.node
    return [
        pod
        for pod in observed.get_objects(cluster.pods)
        if pod.spec.service_account_name == account and pod.status.phase not in ("Succeeded", "Failed")
    ]


def _kubelets(cluster: observed.Cluster, nodes: Sequence[core.Node]) -> Iterator[Finding]:
    versions: dict[str, list[str]] = {}
    for node in nodes:
        versions.setdefault(node.status.node_info.kubelet_version, []).append(node.metadata.name)
    for version, members in sorted(versions.items()):
        yield _kubelet(cluster, version, members)


def _kubelet(cluster: observed.Cluster, version: str, members: Sequence[str]) -> Finding:
    subject, check, minor = _nodes(members), Check.NODES_KUBELET, observed.minor(version)
    kubelet = f"kubelet {version or 'of an unknown version'}"
    upgrade = "upgrade the kubelet, after draining the node"
    if cluster.classic and minor is not None and CLASSIC_OLDEST <= minor < KUBELET_OLDEST:
        return findings.make_ok(check, subject, kubelet)
    if minor is not None and minor < KUBELET_OLDEST:
        message = f"{kubelet} cannot read the claims of this cluster: no pod with a device starts there"
        return findings.make_error(check, subject, message, upgrade)
    if minor is None or minor < KUBELET_TRIED:
        message = f"{kubelet}: none older than 1.{KUBELET_TRIED} was tried"
        return findings.make_warning(check, subject, message, upgrade)
    if cluster.minor is not None and minor > cluster.minor:
        message = (
            f"{kubelet} is newer than the API server ({cluster.version}), which Kubernetes does not support"
        )
        remedy = "upgrade the control plane first"
        return findings.make_warning(check, subject, message, remedy)
    return findings.make_ok(check, subject, kubelet)


def runtimes(nodes: Sequence[core.Node], verify: str = VERIFY) -> Iterator[Finding]:
    """Yield the findings on container runtimes without CDI, judged by their versions.

    Args:
        nodes: the nodes.
        verify: how to verify a runtime's configuration, as the end of a remedy.

    Source: containerd 1.7 (`enable_cdi`, off by default) and 2.0 (on); CRI-O 1.23 and later (always on).
    """
    by_version: dict[str, list[str]] = {}
    for node in nodes:
        by_version.setdefault(node.status.node_info.container_runtime_version, []).append(node.metadata.name)
    for version, members in sorted(by_version.items()):
        severity, message, remedy = _runtime(version, verify)
        yield Finding(
            check=Check.NODES_RUNTIME,
            severity=severity,
            subject=_nodes(members),
            message=message,
            remedy=remedy,
        )


def _runtime(version: str, verify: str) -> tuple[Severity, str, str]:
    parsed = _RUNTIME.match(version)
    name = parsed[1] if parsed else ""
    release = (int(parsed[2]), int(parsed[3])) if parsed else (0, 0)
    if name == "containerd" and release < (1, 7):
        message = f"{version} knows no CDI devices: containers do not get theirs"
        return Severity.ERROR, message, "upgrade containerd, best to 2.0 or later"
    if name == "containerd" and release < (2, 0):
        message = (
            f"{version} has CDI off unless its configuration turns it on, which cannot be seen from here"
        )
        return Severity.WARNING, message, f"set enable_cdi = true in its config.toml, or use 2.0; {verify}"
    if name == "cri-o" and release < (1, 23):
        message = f"{version} knows no CDI devices: containers do not get theirs"
        return Severity.ERROR, message, "upgrade CRI-O"
    if name in ("containerd", "cri-o"):
        return Severity.OK, f"{version} has CDI on by default", ""
    message = f"the container runtime's version, {version or 'which is empty'}, does not show whether containers get their devices (CDI)"
    return Severity.NOTE, message, f"see the runtime's documentation; {verify}"


def _ready(cluster: observed.Cluster, nodes: Sequence[core.Node]) -> Iterator[Finding]:
    """Yield the findings on nodes that are not ready or gone; these matter if a device is attached."""
    attached = observed.get_objects(cluster.attachments)
    holding = {attachment.spec.node_name for attachment in attached}
    staying = {attachment.spec.node_name for attachment in attached if not attachment.deleting}
    if gone := sorted(staying - {node.metadata.name for node in nodes}):
        yield findings.make_warning(Check.NODES_READY, _nodes(gone), GONE, GONE_REMEDY)
    ill = [
        node.metadata.name for node in nodes if node.metadata.name in holding and not node.is_reported_ready
    ]
    if ill:
        yield findings.make_warning(
            Check.NODES_READY,
            _nodes(ill),
            "not Ready; its attached devices stay until the node has released them",
            (
                "bring the node back; if it is off for good, delete the Node or give it the taint "
                f"{core.OUT_OF_SERVICE}, and its devices are detached"
            ),
        )


def _daemons(
    cluster: observed.Cluster, nodes: Sequence[core.Node], running: Collection[str]
) -> Iterator[Finding]:
    pods = _pods(cluster)
    for pod in pods[:UNREADY_MAX]:
        if not pod.ready:
            yield _unready(cluster, pod)
    for lost in (cluster.pods, cluster.published):
        if isinstance(lost, Unread):
            yield findings.make_unread(Check.NODES_DAEMON, lost)
    silent = _silent(cluster, nodes)
    without = sorted((_find_fabric_nodes(cluster, nodes) | silent) - set(running)) if running else []
    unseen = sorted(silent & {pod.spec.node_name for pod in pods if pod.ready})
    if unseen:
        yield findings.make_error(
            Check.NODES_DAEMON,
            _nodes(unseen),
            (
                "the node daemon is Ready there, and a Fabric's condition Degraded reports that the controller sees none: nothing "
                "is offered there"
            ),
            (
                "ask again in a minute; if it stays so, set nodeDaemonSelector of the controller to labels that the pods of "
                f"the DaemonSet have ({links.url('controller.md')})"
            ),
        )
    if without:
        yield Finding(
            check=Check.NODES_DAEMON,
            # Without the pods, a daemon that publishes nothing cannot be seen.
            severity=Severity.ERROR if pods else Severity.WARNING,
            subject=_nodes(without),
            message="a fabric reaches it, and no node daemon is seen there: nothing is offered there, and no pod with a device starts",
            remedy=f"let the DaemonSet's node selector cover the node: kubectl label node {without[0]} drawbar.node-restriction.kubernetes.io/host=true",
        )
    elif running and not unseen:
        yield findings.make_ok(Check.NODES_DAEMON, _nodes(sorted(running)), "the node daemon is there")
    elif not running and (reporting := _find_reporting_nodes(cluster, nodes)):
        # So it is in a cluster of doubles, without pods of the daemons.
        yield findings.make_ok(
            Check.NODES_DAEMON, _nodes(reporting), "a node daemon reports from there, outside of a pod"
        )
    elif not running:
        yield findings.make_warning(
            Check.NODES_DAEMON,
            "node daemons",
            (
                f"there is no pod of ServiceAccount {cluster.where.namespace}/{cluster.where.node}, and no pool of a node: "
                "as far as can be seen, no node daemon runs"
            ),
            "install the DaemonSet, or name its namespace and account by --daemons and --node-account",
        )


def _find_reporting_nodes(cluster: observed.Cluster, nodes: Sequence[core.Node]) -> list[str]:
    """Return the nodes with a daemon outside of a pod: a Fabric labels them, or a device was seen there."""
    if observed.get_objects(cluster.pods):
        return []
    ours = [
        fabric
        for fabric in observed.get_objects(cluster.fabrics)
        if fabric.spec.driver == cluster.where.driver
    ]
    labels = {names.node_label(fabric.metadata.name) for fabric in ours}
    labelled = {node.metadata.name for node in nodes if labels & node.metadata.labels.keys()}
    seen = {
        attachment.spec.node_name
        for attachment in observed.get_objects(cluster.attachments)
        if meta.find(attachment.status.conditions, attachments.VISIBLE) is not None
    }
    return sorted(labelled | seen)


def _find_fabric_nodes(cluster: observed.Cluster, nodes: Sequence[core.Node]) -> set[str]:
    """Return the nodes that fabric devices may go to, have gone to, or would go to with a daemon."""
    ours = _ours(cluster)
    # A node without a daemon loses its fabric's label, so the other signs of a host count too.
    labels = {names.node_label(fabric.metadata.name) for fabric in ours} | {
        fabric.spec.node_label for fabric in ours
    }
    notes = {fabric.spec.node_annotation for fabric in ours}
    used = {attachment.spec.node_name for attachment in observed.get_objects(cluster.attachments)}
    used |= {entry.node for fabric in ours for entry in fabric.spec.hosts}
    return {
        node.metadata.name
        for node in nodes
        if node.metadata.name in used
        or labels & node.metadata.labels.keys()
        or notes & node.metadata.annotations.keys()
    }


def _silent(cluster: observed.Cluster, nodes: Sequence[core.Node]) -> set[str]:
    """Return the nodes without a live daemon, as named in the Fabrics' condition Degraded."""
    degraded = (meta.find(fabric.status.conditions, fabrics.DEGRADED) for fabric in _ours(cluster))
    labelled = {
        name
        for condition in degraded
        if condition is not None and condition.is_true
        for name in daemons.find_named_nodes(condition.message)
    }
    return labelled & {node.metadata.name for node in nodes}


def _ours(cluster: observed.Cluster) -> list[fabrics.Fabric]:
    return [
        fabric
        for fabric in observed.get_objects(cluster.fabrics)
        if fabric.spec.driver == cluster.where.driver
    ]


def _unready(cluster: observed.Cluster, pod: core.Pod) -> Finding:
    condition = meta.find(pod.status.conditions, "Ready")
    why = (condition.message or condition.reason) if condition is not None else pod.status.phase
    name = f"{cluster.where.namespace}/{pod.metadata.name}"
    return findings.make_error(
        Check.NODES_DAEMON,
        f"node {pod.spec.node_name or '(none yet)'}",
        f"the pod {name} of the node daemon is not ready: {why or 'the kubelet does not say why'}",
        f"kubectl logs -n {cluster.where.namespace} {pod.metadata.name}; in it, drawbar doctor --node",
    )


def _nodes(members: Sequence[str]) -> str:
    return (
        f"node {members[0]}" if len(members) == 1 else f"{len(members)} nodes: {findings.join_names(members)}"
    )
