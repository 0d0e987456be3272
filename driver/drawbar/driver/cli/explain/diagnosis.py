"""The reason why an object waits or fails, and the next step; pure, total and deterministic.

The cause comes first. Its consequences follow, from the fabric to the pod. No fact is repeated.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from drawbar.driver.api import attachments, claims, core, fabrics, maintenances, meta
from drawbar.driver.catalogue import attachment_conditions, links, taints
from drawbar.driver.cli.doctor import findings
from drawbar.driver.cli.doctor.findings import Check, Finding, Severity
from drawbar.driver.cli.doctor.plans import attachments as attachment_plan
from drawbar.driver.cli.doctor.plans import fabrics as fabric_plan
from drawbar.driver.cli.explain import fabric_state, observed
from drawbar.driver.cli.status import claim_entries, tree, views
from drawbar.driver.cli.status import observed as status
from drawbar.driver.controller import names

EVENTS = 3
"""The most warnings of Events to show, the newest first."""
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
_FACT_CHARS = 12
"""The shortest text that counts as a repeated fact."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
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
    listed = list(dict.fromkeys([*_object(world), *_surroundings(world)]))
    listed += [findings.unread(Check.FABRICS_SERVED, lost) for lost in world.unread]
    wrong = [it for it in listed if it.severity not in (Severity.OK, Severity.NOTE)]
    severities = list(Severity)
    chain = sorted(wrong, key=lambda it: (_depth(it), severities.index(it.severity)))
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


def _depth(finding: Finding) -> int:
    """Return the distance of a finding from the root of the trouble."""
    if finding.severity is Severity.UNCHECKED:
        return len(_ROOTS) + 1
    if finding.check in (Check.FABRICS_CONNECTED, Check.FABRICS_CREDENTIALS):
        return -2
    if finding.check is Check.CLAIMS_ALLOCATED and finding.severity is Severity.ERROR:
        # The request itself, or too few devices, is the cause; no state of a fabric explains more.
        return -1
    return _ROOTS.index(finding.check.topic) if finding.check.topic in _ROOTS else len(_ROOTS)


def _repeats(finding: Finding, earlier: Finding) -> bool:
    """Return whether an earlier finding already told the fact in the last clause."""
    fact = finding.message.rpartition(": ")[2].strip(". ")
    return len(fact) >= _FACT_CHARS and fact in earlier.message


def _object(world: observed.World) -> Iterator[Finding]:
    if world.pod is not None:
        yield from _pod(world.pod)
    for claim in world.claims:
        yield from _claim(world, claim)
    if world.kind == "fabric":
        yield from fabric_state.judge(world)
    if world.kind in ("device", "attachment", "enclosure", "fabric"):
        for device in world.devices:
            yield from _device(world, device, is_alone=len(world.devices) == 1)
    if world.kind == "node":
        yield from _node(world, world.name)


# Pods and claims.


def _pod(pod: observed.Pod) -> Iterator[Finding]:
    subject = f"pod {pod.metadata.name}"
    if not pod.claim_names:
        yield findings.note(
            Check.PODS_PLACED,
            subject,
            "names no ResourceClaims, so Drawbar has no part in it",
            "kubectl describe pod shows what it waits for",
        )
    for name, made in pod.claim_names:
        if not made:
            yield findings.error(
                Check.PODS_PLACED,
                subject,
                f"has no ResourceClaim for {name} yet",
                "kube-controller-manager makes it from the ResourceClaimTemplate: does the template exist, and does that component run?",
            )
    placed = meta.find(pod.status.conditions, "PodScheduled")
    if placed is not None and not placed.is_true:
        yield findings.warning(
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
    if pod.status.phase in ("Running", "Succeeded", "Failed"):
        is_well = pod.status.phase != "Failed"
        ended = (
            "has its devices" if pod.status.phase == "Running" else "has ended, and gives its devices back"
        )
        message = f"is {pod.status.phase}: it {ended}"
        yield (
            findings.ok(Check.PODS_STARTED, subject, message)
            if is_well
            else findings.warning(Check.PODS_STARTED, subject, message, "kubectl logs shows why")
        )


def _claim(world: observed.World, claim: observed.Claim) -> Iterator[Finding]:
    subject = f"claim {claim.metadata.namespace}/{claim.metadata.name}"
    key = (claim.metadata.namespace, claim.metadata.name)
    whole = next(
        (entry for entry in world.cluster.claims if (entry.metadata.namespace, entry.metadata.name) == key),
        None,
    )
    if whole is None or whole.status.allocation is None:
        yield from _diagnose_unallocated(world, claim, subject)
        return
    driver = world.cluster.driver
    results = whole.results(driver)
    if not results:
        yield findings.note(
            Check.CLAIMS_ALLOCATED,
            subject,
            f"has no device of the driver {driver}",
            "ask the driver of its devices",
        )
    is_ready = True
    for result in results:
        for finding in _result(world, whole, result, subject):
            is_ready = is_ready and finding.severity is Severity.OK
            yield finding
    if results and is_ready:
        yield findings.ok(Check.CLAIMS_READY, subject, "its devices are ready")


def _result(
    world: observed.World, claim: claims.ResourceClaim, result: claims.AllocationResult, subject: str
) -> Iterator[Finding]:
    conditions = claim.conditions(result)
    failed = [meta.find(conditions, name) for name in result.binding_failure_conditions]
    for condition in failed:
        if condition is not None and condition.is_true:
            yield findings.error(
                Check.CLAIMS_READY,
                subject,
                f"{result.device} failed ({condition.reason}): {condition.message}",
                f"{attachment_conditions.find_failure(condition.reason).advice}; the scheduler takes the allocation back and tries again",
            )
            return
    missing = [name for name in result.binding_conditions if not meta.is_true(conditions, name)]
    device = next(
        (entry for entry in world.devices if (entry.pool, entry.name) == (result.pool, result.device)), None
    )
    if missing:
        waits_for = device.waits_for if device is not None else "the controller, to begin the attach"
        yield findings.warning(
            Check.CLAIMS_READY,
            subject,
            f"{result.device} is not ready: {missing[0]} is not True yet; it waits for {waits_for or 'its conditions'}",
            f"drawbar status claim/{claim.metadata.name} -n {claim.metadata.namespace} --watch follows it",
        )
    elif (
        not result.binding_conditions
        and device is not None
        and device.attachment == ""
        and "/" in result.pool
    ):
        yield findings.error(
            Check.CLAIMS_READY,
            subject,
            f"{result.device} was allocated without binding conditions, so it is not attached",
            "drawbar doctor names the release or feature gate of the scheduler; then delete the claim",
        )


def _diagnose_unallocated(world: observed.World, claim: observed.Claim, subject: str) -> Iterator[Finding]:
    problems = [
        _judge(choice, world.cluster.driver, subject) for choice in world.choices.get(claim.metadata.name, ())
    ]
    yield from problems
    if not any(problem.severity is Severity.ERROR for problem in problems):
        namespace, name = claim.metadata.namespace, claim.metadata.name
        pods = [
            pod
            for pod in world.cluster.pods
            if pod.metadata.namespace == namespace and name in pod.claim_names
        ]
        if pods and (reason := next((pod.reason for pod in pods if pod.reason), "")):
            yield findings.warning(
                Check.CLAIMS_ALLOCATED,
                subject,
                f"is not allocated, though enough devices are free; the scheduler on pod {pods[0].metadata.name}: {reason}",
                f"drawbar status --all shows which nodes the devices reach; kubectl describe pod {pods[0].metadata.name} -n {namespace}",
            )
        elif pods:
            yield findings.warning(
                Check.CLAIMS_ALLOCATED,
                subject,
                f"is not allocated: {claim_entries.UNTRIED}",
                f"kubectl describe pod {pods[0].metadata.name} -n {namespace}",
            )
        else:
            yield findings.note(
                Check.CLAIMS_ALLOCATED,
                subject,
                f"is not allocated: {claim_entries.UNUSED}",
                "create a pod that names it",
            )


def _judge(choice: observed.Choice, driver: str, subject: str) -> Finding:
    about = f"request {choice.request} (class {choice.class_name})"
    if not choice.has_class:
        return findings.error(
            Check.CLAIMS_ALLOCATED,
            subject,
            f"{about}: there is no DeviceClass {choice.class_name}",
            "kubectl get deviceclasses lists them; a claim cannot be changed, so make a new one or create the class",
        )
    if choice.fault:
        return findings.error(
            Check.CLAIMS_ALLOCATED,
            subject,
            f"{about}: its selectors cannot be evaluated: {choice.fault}",
            "correct the CEL expression; a claim cannot be changed, so make a new one",
        )
    devices = choice.matching
    if not devices:
        return findings.error(
            Check.CLAIMS_ALLOCATED,
            subject,
            f"{about}: none of the devices of {driver} matches",
            "kubectl get resourceslices -o yaml shows the attributes to select by; drawbar doctor looks for missing devices",
        )
    total = len(devices)
    if total < choice.count:
        return findings.error(
            Check.CLAIMS_ALLOCATED,
            subject,
            f"{about} wants {_devices(choice.count)}, and only {total} exist that match: waiting cannot help",
            f"ask for {total} at most, in a new claim, or add devices to the fabric",
        )
    free = [device for device in devices if device.state in (tree.FREE, "Idle") and not _keeps_away(device)]
    if len(free) >= choice.count:
        return findings.note(
            Check.CLAIMS_ALLOCATED,
            subject,
            f"{about}: {_devices(len(free))} {'matches and is' if len(free) == 1 else 'match and are'} free",
            f"{links.url('explain.md')} lists what else the scheduler weighs",
        )
    counted = Counter(
        "tainted" if _keeps_away(device) and device.state == tree.FREE else device.state
        for device in devices
        if device not in free
    )
    states = ", ".join(f"{count} {state}" for state, count in sorted(counted.items()))
    blocked = [device for device in devices if device.state == tree.FREE and _keeps_away(device)]
    return findings.error(
        Check.CLAIMS_ALLOCATED,
        subject,
        f"{about} wants {_devices(choice.count)}; {total} match, and {len(free)} are free ({states}){_blockers(blocked)}",
        _unblock(blocked, choice.count - len(free)),
    )


def describe_missing(choices: Sequence[observed.Choice], driver: str) -> str:
    """Return the reason why a claim's requests cannot be met; empty if enough devices are free."""
    for choice in choices:
        finding = _judge(choice, driver, "")
        if finding.severity is Severity.ERROR:
            return finding.message
    return ""


def _devices(count: int) -> str:
    return f"{count} device" if count == 1 else f"{count} devices"


def _blockers(blocked: Sequence[tree.Device]) -> str:
    """Return the taints that keep claims from free devices, as the end of a sentence."""
    taints = sorted(
        {
            f"{taint.key} by DeviceTaintRule {taint.rule}" if taint.rule else taint.key
            for device in blocked
            for taint in device.taints
            if taint.effect != "None"
        }
    )
    return f"; taints: {findings.join_names(taints)}" if taints else ""


def _unblock(blocked: Sequence[tree.Device], lacking: int) -> str:
    """Return the next step for a claim with too few free devices."""
    rules = sorted({taint.rule for device in blocked for taint in device.taints if taint.rule})
    if rules:
        return (
            f"drawbar taint show {rules[0]} has its reason and end; drawbar taint remove {rules[0]} lifts it"
        )
    if blocked:
        return f"drawbar explain device/{blocked[0].pool}/{blocked[0].name} shows how its taint is lifted"
    return f"it gets {_devices(lacking)} when other claims give them back: drawbar status shows their users"


def _keeps_away(device: tree.Device) -> bool:
    return any(taint.effect != "None" for taint in device.taints)


# Devices and nodes.


def _device(world: observed.World, device: tree.Device, *, is_alone: bool = True) -> Iterator[Finding]:
    subject = f"device {device.pool}/{device.name}"
    if not device.published and not device.composite:
        yield findings.warning(
            Check.DEVICES_OFFERED,
            subject,
            "is in no ResourceSlice, so no claim can get it",
            "see the Fabric's conditions Connected and Published; a device that the fabric manager lists no longer is withdrawn",
        )
    for taint in device.taints:
        prefix, _, name = taint.key.partition("/")
        row = taints.find(name, taint.value) if prefix == world.cluster.driver else None
        advice = (
            row.advice
            if row is not None
            else f"its driver publishes it; {links.url('health.md')} explains taints"
        )
        by = f", set by DeviceTaintRule {taint.rule}" if taint.rule else ""
        if taint.rule:
            advice = f"when the work is done: drawbar taint remove {taint.rule}; drawbar taint show {taint.rule} has reason and end"
        yield Finding(
            check=Check.DEVICES_TAINTED,
            severity=Severity.NOTE if taint.effect == "None" else Severity.WARNING,
            subject=subject,
            message=f"has the taint {taint.key}{'=' if taint.value else ''}{taint.value}:{taint.effect}{by}",
            remedy=advice.replace("device/NAME", f"device/{device.pool}/{device.name}"),
        )
    used = ", ".join(f"{claim.namespace}/{claim.name}" for claim in device.claims)
    since = f" for {views.age(device.since, world.now)}" if device.since else ""
    message = f"is {device.state}{since}" + (f" on node {device.node}" if device.node else "")
    message += f", for claim {used}" if used else ""
    message += f", as a member of {device.composite}" if device.composite else ""
    if device.health == "Unhealthy":
        yield findings.warning(
            Check.DEVICES_OFFERED,
            subject,
            f"its node finds it ill: {device.health_message or 'no reason is reported'}",
            f"{links.url('reference/findings.md')} explains each finding",
        )
    if device.state == "Failed":
        yield findings.warning(
            Check.DEVICES_OFFERED,
            subject,
            f"failed{since}: {device.waits_for or 'no reason is reported'}",
            f"drawbar status device/{device.pool}/{device.name} --watch follows the next try",
        )
    elif device.waits_for:
        yield findings.warning(
            Check.DEVICES_OFFERED,
            subject,
            f"{message}; it waits for {device.waits_for}",
            f"drawbar status device/{device.pool}/{device.name} --watch follows it",
        )
    elif is_alone:
        yield findings.ok(Check.DEVICES_OFFERED, subject, message)


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
            yield from fabric_plan.judge(fabric)
    if world.kind != "node":
        for name in world.nodes:
            yield from (finding for finding in _node(world, name) if finding.severity is not Severity.OK)


def _recognition(attachment: attachments.DeviceAttachment) -> Iterator[Finding]:
    """Yield the witness by which the node recognised the device, if it did."""
    node = attachment.status.node
    if node is not None and node.recognised_by is not None:
        yield findings.ok(
            Check.ATTACHMENTS_VISIBLE,
            f"DeviceAttachment {attachment.metadata.name}",
            f"node {attachment.spec.node_name} recognised it as {node.pci_address}, by {node.recognised_by}",
        )


def _fabrics(world: observed.World, held: list[attachments.DeviceAttachment]) -> tuple[fabrics.Fabric, ...]:
    ours = tuple(fabric for fabric in world.cluster.fabrics if fabric.spec.driver == world.cluster.driver)
    wanted = {device.pool.partition("/")[0] for device in world.devices if "/" in device.pool}
    wanted |= {attachment.spec.fabric for attachment in held}
    if world.kind == "fabric":
        wanted.add(world.name)
    if world.kind == "node" or any(world.choices.values()):
        return ours
    return tuple(fabric for fabric in ours if fabric.metadata.name in wanted)


def _node(world: observed.World, name: str) -> Iterator[Finding]:
    node, subject = world.nodes.get(name), f"node {name}"
    if node is None:
        yield findings.error(
            Check.NODES_READY,
            subject,
            "is gone, and a device is attached there, or is to be",
            "bring the machine back, or wait: policy.nodeGoneSeconds later its devices are detached",
        )
        return
    if not node.ready:
        yield findings.error(
            Check.NODES_READY,
            subject,
            "is not Ready",
            "look at its kubelet; devices stay until the node has released them",
        )
    daemon = world.daemons.get(name)
    if daemon is None:
        if not _is_served(world, node):
            yield findings.error(
                Check.NODES_DAEMON,
                subject,
                "no pod of the node daemon runs there, so no device is offered there and none becomes ready",
                f"kubectl label node {name} drawbar.node-restriction.kubernetes.io/host=true lets the DaemonSet cover it",
            )
    elif not daemon.ready:
        yield findings.error(
            Check.NODES_DAEMON,
            subject,
            f"the pod {daemon.metadata.name} of the node daemon is not ready",
            f"kubectl logs -n {daemon.metadata.namespace} {daemon.metadata.name}; in it, drawbar doctor --node",
        )
    if world.kind == "node":
        yield from _judge_host(world, node)


def _judge_host(world: observed.World, node: core.Node) -> Iterator[Finding]:
    """Yield the findings on the devices that can go to the node."""
    subject = f"node {node.metadata.name}"
    for fabric in _fabrics(world, []):
        yield _judge_access(world, fabric, node)
    yield from _check_reach(world, node, subject)
    closed = sorted(key for key in node.metadata.labels if key.startswith(names.CLOSED_LABEL_PREFIX))
    if closed:
        yield findings.note(
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
        return findings.warning(
            Check.HOSTS_NODE,
            subject,
            f"is in maintenance for the Fabric {fabric.metadata.name} ({reasons}), so no further device goes there",
            f"when the work is done: drawbar maintenance off node/{name}",
        )
    if label not in node.metadata.labels:
        return findings.warning(
            Check.HOSTS_NODE,
            subject,
            f"has no label {label}, so devices of the Fabric {fabric.metadata.name} do not go there",
            f"it is not a host of that fabric ({links.url('fabrics.md')}), its host has no free port, or its node daemon is silent: drawbar fabric hosts {fabric.metadata.name}",
        )
    return findings.ok(
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
            yield findings.warning(
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
        yield findings.note(
            Check.PODS_STARTED if event.regarding.kind == "Pod" else Check.CLAIMS_READY,
            f"Event {event.reason}",
            f"{views.age(event.at, world.now)} ago on {event.regarding.kind} {event.regarding.name}: {event.note}",
            links.url("troubleshooting.md"),
        )
