"""The reason why an object waits or fails, and the next step; pure, total and deterministic.

The cause comes first. Its consequences follow, from the fabric to the pod. No fact is repeated.
"""

from collections.abc import Iterator, Mapping

import msgspec

from drawbar.driver.api import attachments, core, fabrics, maintenances, meta
from drawbar.driver.catalogue import links
from drawbar.driver.cli.doctor import findings
from drawbar.driver.cli.doctor.findings import Check, Finding, Severity
from drawbar.driver.cli.doctor.plans import attachments as attachment_plan
from drawbar.driver.cli.doctor.plans import fabrics as fabric_plan
from drawbar.driver.cli.doctor.plans import nodes as node_plan
from drawbar.driver.cli.explain import claim_findings, fabric_state, observed
from drawbar.driver.cli.status import categories, faults, tree, views
from drawbar.driver.cli.status import observed as status
from drawbar.driver.controller import names

EVENTS = 3
"""The most warnings of Events to show, the newest first."""
DELETION_SECONDS = 30.0
"""The usual time from the end of a pod's grace period until the kubelet has given its devices back."""
_CONTAINERS: Mapping[str, str] = {
    "CreateContainerError": "if it names CDI devices: on the node, drawbar doctor --node --host-root /",
    "RunContainerError": "if it names CDI devices: on the node, drawbar doctor --node --host-root /",
    "ImagePullBackOff": "correct the image's name or the credentials for its registry; this is unrelated to Drawbar",
    "ErrImagePull": "correct the image's name or the credentials for its registry; this is unrelated to Drawbar",
    "CrashLoopBackOff": "kubectl logs --previous shows why it ended",
}
_ROOTS = (
    Check.SERVER_VERSION.topic,
    "fabrics",
    "hosts",
    "nodes",
    "attachments",
    "devices",
    "claims",
    "pods",
)
"""The topics in the order of cause and effect."""
_WITHHOLDING = frozenset(
    {
        Check.FABRICS_CONNECTED,
        Check.FABRICS_CREDENTIALS,
        Check.FABRICS_PUBLISHED,
        Check.FABRICS_WRITABLE,
        Check.FEATURES_BINDING_CONDITIONS,
    }
)
"""The checks of a Fabric that offers fewer devices than it has."""
_FACT_CHARS = 12
"""The shortest text that counts as a repeated fact."""


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The explanation of an object that waits or fails.

    Attributes:
        cause: the one finding that causes the others; None if nothing is wrong.
        consequences: the other findings with trouble, from the cause to the object; each fact once.
        rest: the findings without trouble, and notes.
    """

    cause: Finding | None
    consequences: tuple[Finding, ...]
    rest: tuple[Finding, ...]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Return all findings, the cause first."""
        return (*((self.cause,) if self.cause is not None else ()), *self.consequences, *self.rest)


def explain(world: observed.World) -> Explanation:
    """Return the explanation of the object."""
    state = tuple(fabric_state.judge(world)) if world.kind == "fabric" else ()
    listed = list(dict.fromkeys([*state, *_object(world), *_surroundings(world)]))
    listed += [findings.make_unread(Check.FABRICS_SERVED, lost) for lost in world.unread]
    listed += [_unread(sentence) for sentence in world.cluster.unread]
    wrong = [it for it in listed if it.severity not in (Severity.OK, Severity.NOTE)]
    severities = list(Severity)
    # A Fabric's own findings are in order already.
    chain = sorted(
        wrong,
        key=lambda it: (-len(_ROOTS), 0) if it in state else (_depth(it), severities.index(it.severity)),
    )
    told: list[Finding] = []
    for finding in chain:
        if not any(_repeats(finding, earlier) for earlier in told):
            told.append(finding)
    rest = [it for it in listed if it.severity in (Severity.OK, Severity.NOTE)]
    if told:
        rest += [event for event in _events(world) if not any(_repeats(event, it) for it in told)]
    return Explanation(
        cause=told[0] if told else None,
        consequences=tuple(told[1:]),
        rest=tuple(sorted(rest, key=lambda it: severities.index(it.severity))),
    )


def _unread(sentence: str) -> Finding:
    return Finding(
        check=Check.FABRICS_SERVED, severity=Severity.UNCHECKED, subject="the cluster", message=sentence
    )


def _depth(finding: Finding) -> int:
    """Return the distance of a finding from the root of the trouble."""
    if finding.severity is Severity.UNCHECKED:
        return len(_ROOTS) + 1
    if finding.check in _WITHHOLDING:
        return -2
    if finding.check is Check.CLAIMS_ALLOCATED and finding.severity is Severity.ERROR:
        # The request itself, or too few devices, is the cause; no state of a fabric explains more.
        return -1
    return _ROOTS.index(finding.check.topic) if finding.check.topic in _ROOTS else len(_ROOTS)


def _repeats(finding: Finding, earlier: Finding) -> bool:
    """Return whether an earlier finding already told the fact in the last clause of each sentence."""
    facts = [sentence.rpartition(": ")[2].strip(". ") for sentence in finding.message.split("; ")]
    return all(len(fact) >= _FACT_CHARS and fact in earlier.message for fact in facts)


def _object(world: observed.World) -> Iterator[Finding]:
    if world.pod is not None:
        yield from _judge_pod_claims(world, world.pod)
        yield from _pod(world.pod)
        yield from _judge_phase(world, world.pod)
    for claim in world.claims:
        yield from claim_findings.judge(world, claim)
    if world.kind in ("device", "attachment", "enclosure", "fabric"):
        for device in world.devices:
            yield from _device(world, device, is_alone=len(world.devices) == 1)
    else:
        for device in world.devices:
            yield from faults.list_faults(device)
    if world.kind == "node":
        yield from _node(world, world.name)


# Pods.


def _judge_pod_claims(world: observed.World, pod: observed.Pod) -> Iterator[Finding]:
    """Yield the findings on ResourceClaims that do not exist."""
    subject, namespace = f"pod {pod.metadata.name}", pod.metadata.namespace
    claims = observed.list_claims(pod)
    if not claims:
        yield findings.make_note(
            Check.PODS_PLACED,
            subject,
            "names no ResourceClaims, so Drawbar has no part in it",
            f"kubectl describe pod {pod.metadata.name} -n {namespace} shows its state",
        )
    existing = {claim.metadata.name for claim in world.claims}
    for claim in claims:
        made = claim.resource_claim_name
        if not made:
            template = claim.resource_claim_template_name
            yield findings.make_error(
                Check.PODS_PLACED,
                subject,
                f"has no ResourceClaim for {claim.name} yet; kube-controller-manager makes it from the ResourceClaimTemplate {template}",
                f"kubectl get resourceclaimtemplate {template} -n {namespace}; if it exists, look at kube-controller-manager",
            )
        elif made not in existing and not world.unread:
            yield findings.make_error(
                Check.PODS_PLACED,
                subject,
                f"names the ResourceClaim {made}, which does not exist in namespace {namespace}",
                f"kubectl get resourceclaims -n {namespace} lists them; create {made}, or correct the pod",
            )


def _pod(pod: observed.Pod) -> Iterator[Finding]:
    subject = f"pod {pod.metadata.name}"
    placed = meta.find(pod.status.conditions, "PodScheduled")
    if placed is not None and not placed.is_true:
        yield findings.make_warning(
            Check.PODS_PLACED,
            subject,
            f"has no node yet ({placed.reason}): {status.cut_preemption(placed.message)}",
            f"kubectl describe pod {pod.metadata.name} -n {pod.metadata.namespace} shows the scheduler's other reasons",
        )
    for container in pod.status.container_statuses:
        waiting = container.state.waiting
        if waiting is not None and pod.spec.node_name:
            is_starting = waiting.reason in ("ContainerCreating", "PodInitializing")
            message = (
                f"container {container.name} does not run on node {pod.spec.node_name} ({waiting.reason})"
            )
            yield Finding(
                check=Check.PODS_STARTED,
                severity=Severity.WARNING if is_starting else Severity.ERROR,
                subject=subject,
                message=f"{message}: {waiting.message}" if waiting.message else message,
                remedy=_CONTAINERS.get(
                    waiting.reason,
                    f"kubectl describe pod {pod.metadata.name} -n {pod.metadata.namespace} shows the newest Events",
                ),
            )


def _judge_phase(world: observed.World, pod: observed.Pod) -> Iterator[Finding]:
    """Yield the finding on a pod that runs, has ended, or is being deleted."""
    subject = f"pod {pod.metadata.name}"
    named = f"{pod.metadata.name} -n {pod.metadata.namespace}"
    if (end := meta.moment(pod.metadata.deletion_timestamp)) is not None:
        is_late = (world.now - end).total_seconds() > DELETION_SECONDS and bool(pod.spec.node_name)
        since = views.age(pod.metadata.deletion_timestamp or "", world.now)
        yield (
            findings.make_warning(
                Check.PODS_STARTED,
                subject,
                f"is being deleted, and its grace period ended {since} ago: the kubelet of node {pod.spec.node_name} has not ended its containers or given its devices back",
                f"kubectl describe pod {named} shows the kubelet's errors; drawbar explain node/{pod.spec.node_name}; on the node, drawbar doctor --node",
            )
            if is_late
            else findings.make_note(
                Check.PODS_STARTED, subject, "is being deleted", f"kubectl describe pod {named} follows it"
            )
        )
    elif pod.spec.resource_claims and pod.status.phase in ("Running", "Succeeded", "Failed"):
        is_well = pod.status.phase != "Failed"
        ended = (
            "has its devices" if pod.status.phase == "Running" else "has ended, and gives its devices back"
        )
        message = f"is {pod.status.phase}: it {ended}"
        yield (
            findings.make_ok(Check.PODS_STARTED, subject, message)
            if is_well
            else findings.make_warning(
                Check.PODS_STARTED,
                subject,
                message,
                f"kubectl logs {named} shows why",
            )
        )


# Devices and nodes.


def _device(world: observed.World, device: tree.Device, *, is_alone: bool = True) -> Iterator[Finding]:
    subject = f"device {device.pool}/{device.name}"
    if not device.published and not device.composite:
        yield findings.make_warning(
            Check.DEVICES_OFFERED,
            subject,
            "is in no ResourceSlice, so no claim can get it",
            "see the Fabric's conditions Connected and Published; a device that the fabric manager lists no longer is withdrawn",
        )
    yield from (faults.judge_taint(device, taint) for taint in device.taints)
    used = ", ".join(f"{claim.namespace}/{claim.name}" for claim in device.claims)
    since = f" for {views.age(device.since, world.now)}" if device.since else ""
    message = f"is {device.state}{since}" + (f" on node {device.node}" if device.node else "")
    message += f", for claim {used}" if used else ""
    message += f", as a member of {device.composite}" if device.composite else ""
    if device.health == "Unhealthy":
        yield findings.make_warning(
            Check.DEVICES_OFFERED,
            subject,
            f"its node reports it as unhealthy: {device.health_message or 'no reason is reported'}",
            f"{links.url('reference/findings.md')} explains each finding",
        )
    if device.state == "Failed":
        yield findings.make_warning(
            Check.DEVICES_OFFERED,
            subject,
            f"failed{since}: {device.waits_for or 'no reason is reported'}",
            f"drawbar status device/{device.pool}/{device.name} --watch follows the next try",
        )
    elif device.waits_for:
        yield findings.make_warning(
            Check.DEVICES_OFFERED,
            subject,
            f"{message}; it waits for {device.waits_for}",
            faults.LEADER
            if device.waits_for == tree.BEGIN
            else f"drawbar status device/{device.pool}/{device.name} --watch follows it",
        )
    elif is_alone and categories.judge(device) != categories.BLOCKED:
        yield findings.make_ok(Check.DEVICES_OFFERED, subject, message)


def _surroundings(world: observed.World) -> Iterator[Finding]:
    """Yield the findings on the attachments, Fabrics and nodes of the devices."""
    names_of = {device.attachment for device in world.devices if device.attachment}
    held = [entry for entry in world.cluster.attachments if entry.metadata.name in names_of]
    if world.kind == "node":
        held = [entry for entry in world.cluster.attachments if entry.spec.node_name == world.name]
    around = attachment_plan.World(
        now=world.now,
        fabrics={fabric.metadata.name: fabric for fabric in world.cluster.fabrics} or None,
        nodes=None,
    )
    for attachment in held:
        yield from attachment_plan.judge_attachment(around, attachment, world.cluster.driver)
        yield from _recognition(attachment)
    for fabric in _fabrics(world, held):
        if world.kind != "fabric":
            yield from (trouble.finding for trouble in fabric_plan.judge_all(fabric))
    if world.kind != "node":
        for name in world.nodes:
            yield from (finding for finding in _node(world, name) if finding.severity is not Severity.OK)


def _recognition(attachment: attachments.DeviceAttachment) -> Iterator[Finding]:
    """Yield the witness by which the node recognised the device, if it did."""
    node = attachment.status.node
    if node is not None and node.recognised_by is not None:
        yield findings.make_ok(
            Check.ATTACHMENTS_VISIBLE,
            f"DeviceAttachment {attachment.metadata.name}",
            f"node {attachment.spec.node_name} recognised it as {node.pci_address}, by {node.recognised_by}",
        )


def _fabrics(world: observed.World, held: list[attachments.DeviceAttachment]) -> tuple[fabrics.Fabric, ...]:
    ours = tuple(fabric for fabric in world.cluster.fabrics if fabric.spec.driver == world.cluster.driver)
    wanted = {device.pool.partition("/")[0] for device in world.devices if "/" in device.pool}
    wanted |= {attachment.spec.fabric for attachment in held}
    if world.kind == "node":
        return ours
    choices = [choice for listed in world.choices.values() for choice in listed]
    wanted |= {device.pool.partition("/")[0] for choice in choices for device in choice.matching}
    if any(choice.rank() <= observed.Rank.NONE_MATCH for choice in choices):
        # A Fabric without a published device could have the right one.
        publishing = {entry.spec.pool.name.partition("/")[0] for entry in world.cluster.slices}
        wanted |= {fabric.metadata.name for fabric in ours} - publishing
    return tuple(fabric for fabric in ours if fabric.metadata.name in wanted)


def _node(world: observed.World, name: str) -> Iterator[Finding]:
    node, subject = world.nodes.get(name), f"node {name}"
    if node is None:
        yield findings.make_error(
            Check.NODES_READY,
            subject,
            node_plan.GONE,
            node_plan.GONE_REMEDY,
        )
        return
    if not node.ready:
        yield findings.make_error(
            Check.NODES_READY,
            subject,
            "is not Ready",
            f"kubectl describe node {name}; look at its kubelet; devices stay until the node has released them",
        )
    if node.spec.unschedulable:
        yield findings.make_note(
            Check.NODES_READY, subject, "is cordoned, so no new pod goes there", f"kubectl uncordon {name}"
        )
    daemon = world.daemons.get(name)
    if daemon is None:
        if not _is_served(world, node):
            yield findings.make_error(
                Check.NODES_DAEMON,
                subject,
                "no pod of the node daemon runs there, so no device is offered there and none becomes ready",
                f"kubectl label node {name} drawbar.node-restriction.kubernetes.io/host=true lets the DaemonSet cover it",
            )
    elif not daemon.ready:
        yield findings.make_error(
            Check.NODES_DAEMON,
            subject,
            f"the pod {daemon.metadata.name} of the node daemon is not ready",
            f"kubectl logs -n {daemon.metadata.namespace} {daemon.metadata.name}; in it, drawbar doctor --node",
        )
    if world.kind == "node" and node.ready:
        yield from _judge_host(world, node)


def _judge_host(world: observed.World, node: core.Node) -> Iterator[Finding]:
    """Yield the findings on the devices that can go to the node."""
    subject = f"node {node.metadata.name}"
    for fabric in _fabrics(world, []):
        yield _judge_access(world, fabric, node)
    yield from _check_reach(world, node, subject)
    closed = sorted(key for key in node.metadata.labels if key.startswith(names.CLOSED_LABEL_PREFIX))
    if closed:
        yield findings.make_note(
            Check.HOSTS_NODE,
            subject,
            f"is closed to some devices, by policy.models or since the fabric manager refused them there: {findings.join_names(closed)}",
            "it opens when a device of the model is detached, or policy.probationSeconds are over (drawbar status shows refused pairs)",
        )


def _judge_access(world: observed.World, fabric: fabrics.Fabric, node: core.Node) -> Finding:
    """Return whether devices of the Fabric can go to the node, with the reason if they cannot."""
    name, subject = node.metadata.name, f"node {node.metadata.name}"
    label = names.node_label(fabric.metadata.name)
    listed = maintenances.select_by_fabric(
        world.cluster.maintenances, fabric.metadata.name, fabric.spec.driver
    )
    closing = [item for item in listed if name in item.spec.nodes]
    if closing:
        reasons = findings.join_names([item.spec.reason or item.metadata.name for item in closing])
        return findings.make_warning(
            Check.HOSTS_NODE,
            subject,
            f"is in maintenance for the Fabric {fabric.metadata.name} ({reasons}), so no further device goes there",
            f"when the work is done: drawbar maintenance off node/{name}",
        )
    if label not in node.metadata.labels:
        return findings.make_warning(
            Check.HOSTS_NODE,
            subject,
            f"has no label {label}, so devices of the Fabric {fabric.metadata.name} do not go there",
            f"it is not a host of that fabric ({links.url('fabrics.md')}), its host has no free port, or its node daemon is silent: drawbar fabric hosts {fabric.metadata.name}",
        )
    return findings.make_ok(
        Check.HOSTS_NODE, subject, f"the Fabric {fabric.metadata.name} reaches it and has a free port there"
    )


def _is_served(world: observed.World, node: core.Node) -> bool:
    """Return whether a node daemon outside of a pod serves the node."""
    if world.has_daemons:
        return False
    name = node.metadata.name
    reports = any(
        attachment.spec.node_name == name and meta.find(attachment.status.conditions, attachments.VISIBLE)
        for attachment in world.cluster.attachments
    )
    publishes = any(entry.spec.node_name == name for entry in world.cluster.slices)
    is_host = any(
        names.node_label(fabric.metadata.name) in node.metadata.labels for fabric in world.cluster.fabrics
    )
    return reports or publishes or is_host


def _check_reach(world: observed.World, node: core.Node, subject: str) -> Iterator[Finding]:
    """Yield a warning for each of these Fabrics with reachability groups, if the node is its host but in no group."""
    for fabric in _fabrics(world, []):
        name = fabric.metadata.name
        is_host = names.node_label(name) in node.metadata.labels
        reaches_some = any(names.is_reach_label(label, name) for label in node.metadata.labels)
        if fabric.status.reach_groups and is_host and not reaches_some:
            yield findings.make_warning(
                Check.HOSTS_NODE,
                subject,
                f"is in no reachability group of the devices of the Fabric {name}, so none of these goes there",
                f"drawbar fabric hosts {name} shows the groups of its host",
            )


def _events(world: observed.World) -> Iterator[Finding]:
    """Yield the newest warning of each reason and note; a claim, its pods and DeviceAttachment have the same."""
    newest = {
        (event.reason, event.note): event for event in reversed(world.events) if event.type == "Warning"
    }
    latest = sorted(newest.values(), key=lambda event: event.at, reverse=True)
    for event in latest[:EVENTS]:
        yield findings.make_note(
            Check.PODS_STARTED if event.regarding.kind == "Pod" else Check.CLAIMS_READY,
            f"Event {event.reason}",
            f"{views.age(event.at, world.now)} ago on {event.regarding.kind} {event.regarding.name}: {event.note}",
            links.url("troubleshooting.md"),
        )
