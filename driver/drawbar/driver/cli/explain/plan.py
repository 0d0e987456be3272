"""Why an object waits or fails, and the next step; pure, total and deterministic. The worst is first."""

from collections import Counter
from collections.abc import Iterator, Mapping

from drawbar.driver.api import attachments, claims, core, fabrics, maintenances, meta
from drawbar.driver.catalogue import attachment_conditions, fabric_conditions, links, taints
from drawbar.driver.cli.doctor import findings
from drawbar.driver.cli.doctor.findings import Check, Finding, Severity
from drawbar.driver.cli.doctor.plans import attachments as attachment_plan
from drawbar.driver.cli.doctor.plans import fabrics as fabric_plan
from drawbar.driver.cli.explain import observed
from drawbar.driver.cli.status import tree, views
from drawbar.driver.controller import names

EVENTS = 3
"""Warnings of Events that are shown, the newest first."""
_CONTAINERS: Mapping[str, str] = {
    "CreateContainerError": "where it names CDI devices: on the node, drawbar doctor --node --host-root /",
    "RunContainerError": "where it names CDI devices: on the node, drawbar doctor --node --host-root /",
    "ImagePullBackOff": "mend the image's name or the credentials for its registry; it is nothing of Drawbar's",
    "ErrImagePull": "mend the image's name or the credentials for its registry; it is nothing of Drawbar's",
    "CrashLoopBackOff": "kubectl logs --previous shows why it ended",
}


def plan(world: observed.World) -> tuple[Finding, ...]:
    """Return the findings on the object and on all that it waits for."""
    listed = [*_object(world), *_surroundings(world), *_events(world)]
    listed += [findings.unread(Check.FABRICS_SERVED, lost) for lost in world.unread]
    severities = list(Severity)
    return tuple(sorted(dict.fromkeys(listed), key=lambda finding: severities.index(finding.severity)))


def _object(world: observed.World) -> Iterator[Finding]:
    if world.pod is not None:
        yield from _pod(world.pod)
    for claim in world.claims:
        yield from _claim(world, claim)
    if world.kind == "device":
        for device in world.devices:
            yield from _device(world, device)
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
            f"has no node yet ({placed.reason}): {placed.message}",
            "the findings on its claims say what is missing; without any, it is something else than devices",
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
                    waiting.reason, "the newest Events below, or kubectl describe pod, say why"
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
        yield from _unallocated(world, claim, subject)
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
            "wait: the findings below name what is wrong, if anything is",
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
            f"{result.device} was given without binding conditions, so nothing attaches it",
            "drawbar doctor names the release or feature gate of the scheduler; then delete the claim",
        )


def _unallocated(world: observed.World, claim: observed.Claim, subject: str) -> Iterator[Finding]:
    yield findings.warning(
        Check.CLAIMS_ALLOCATED,
        subject,
        "is not allocated: the scheduler has not given it devices",
        "it is allocated once a pod uses it and enough devices match, are free and have no taint that it does not tolerate",
    )
    choices = world.choices.get(claim.metadata.name, ())
    for choice in choices:
        yield _choice(world, choice, subject)


def _choice(world: observed.World, choice: observed.Choice, subject: str) -> Finding:
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
            "mend the CEL expression; a claim cannot be changed, so make a new one",
        )
    devices = choice.matching
    free = [device for device in devices if device.state in (tree.FREE, "Idle") and not _keeps_away(device)]
    if not devices:
        return findings.error(
            Check.CLAIMS_ALLOCATED,
            subject,
            f"{about}: none of the devices of {world.cluster.driver} matches",
            "compare the selectors with the attributes in kubectl get resourceslices -o yaml; drawbar doctor looks for missing devices",
        )
    counted = Counter(
        "tainted" if _keeps_away(device) and device.state == tree.FREE else device.state
        for device in devices
        if device not in free
    )
    states = ", ".join(f"{count} {state}" for state, count in sorted(counted.items()))
    if len(free) < choice.count:
        taints = sorted(
            {taint.key for device in devices for taint in device.taints if taint.effect != "None"}
        )
        why = f"; their taints: {findings.listed(taints)}" if taints else ""
        return findings.error(
            Check.CLAIMS_ALLOCATED,
            subject,
            f"{about} wants {choice.count} of {len(devices)} that match, and {len(free)} are free ({states}){why}",
            "wait for one that is in use, or lift what taints the others: drawbar explain device/NAME",
        )
    return findings.note(
        Check.CLAIMS_ALLOCATED,
        subject,
        f"{about}: {len(free)} devices match and are free",
        "if its pod waits all the same, see the scheduler's message: no node may reach them (drawbar explain node/NAME), or the requests exclude each other",
    )


def _keeps_away(device: tree.Device) -> bool:
    return any(taint.effect != "None" for taint in device.taints)


# Devices and nodes.


def _device(world: observed.World, device: tree.Device) -> Iterator[Finding]:
    subject = f"device {device.pool}/{device.name}"
    if not device.published and not device.composite:
        yield findings.warning(
            Check.DEVICES_OFFERED,
            subject,
            "is in no ResourceSlice, so no claim can be given it",
            "see the Fabric's conditions Connected and Published; a device that the fabric manager lists no longer is withdrawn",
        )
    for taint in device.taints:
        prefix, _, name = taint.key.partition("/")
        row = taints.find(name, taint.value) if prefix == world.cluster.driver else None
        yield Finding(
            check=Check.DEVICES_TAINTED,
            severity=Severity.NOTE if taint.effect == "None" else Severity.WARNING,
            subject=subject,
            message=f"has the taint {taint.key}={taint.value}:{taint.effect}",
            remedy=row.advice
            if row is not None
            else f"its key names who set it; {links.url('health.md#findings')} lists the findings of a node",
        )
    used = ", ".join(f"{claim.namespace}/{claim.name}" for claim in device.claims)
    since = f" for {views.age(device.since, world.now)}" if device.since else ""
    message = f"is {device.state}{since}" + (f" on node {device.node}" if device.node else "")
    message += f", for claim {used}" if used else ""
    message += f", as a member of {device.composite}" if device.composite else ""
    if device.waits_for and device.state != "Failed":
        yield findings.warning(
            Check.DEVICES_OFFERED,
            subject,
            f"{message}; it waits for {device.waits_for}",
            "wait: the findings below name what is wrong, if anything is",
        )
    else:
        yield findings.ok(Check.DEVICES_OFFERED, subject, message)


def _surroundings(world: observed.World) -> Iterator[Finding]:
    """What is wrong with the attachments, Fabrics and nodes of the devices."""
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
        yield from attachment_plan.judged(around, attachment, world.cluster.driver)
        yield from _recognition(attachment)
    for fabric in _fabrics(world, held):
        connected = meta.find(fabric.status.conditions, fabrics.CONNECTED)
        if connected is not None:
            yield from fabric_plan.connection(fabric, connected)
        degraded = meta.find(fabric.status.conditions, fabrics.DEGRADED)
        if degraded is not None and degraded.is_true:
            yield findings.warning(
                Check.FABRICS_DEGRADED,
                f"Fabric {fabric.metadata.name}",
                degraded.message,
                fabric_conditions.DEGRADED.find(degraded.reason).advice,
            )
    if world.kind != "node":
        for name in world.nodes:
            yield from (finding for finding in _node(world, name) if finding.severity is not Severity.OK)


def _recognition(attachment: attachments.DeviceAttachment) -> Iterator[Finding]:
    """Return the witness by which the node recognised the device, if it did."""
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
            "look at its kubelet; devices stay until the node lets go of them",
        )
    daemon = world.daemons.get(name)
    if daemon is None:
        yield findings.error(
            Check.NODES_DAEMON,
            subject,
            "no pod of the node daemon is seen there, so no device is offered there and none becomes ready",
            "let the DaemonSet cover the node: kubectl label node NAME drawbar.node-restriction.kubernetes.io/host=true",
        )
    elif not daemon.ready:
        yield findings.error(
            Check.NODES_DAEMON,
            subject,
            f"the pod {daemon.metadata.name} of the node daemon is not ready",
            f"kubectl logs -n {daemon.metadata.namespace} {daemon.metadata.name}; in it, drawbar doctor --node",
        )
    if world.kind != "node":
        return
    for fabric in _fabrics(world, []):
        label = names.node_label(fabric.metadata.name)
        named = maintenances.of_fabric(world.cluster.maintenances, fabric.metadata.name, fabric.spec.driver)
        closing = [item for item in named if name in item.spec.nodes]
        if closing:
            reasons = findings.listed([item.spec.reason or item.metadata.name for item in closing])
            yield findings.warning(
                Check.HOSTS_NODE,
                subject,
                f"is in maintenance for the Fabric {fabric.metadata.name} ({reasons}), so no further device goes there",
                f"when the work is done: drawbar maintenance off node/{name}",
            )
        elif label not in node.metadata.labels:
            yield findings.warning(
                Check.HOSTS_NODE,
                subject,
                f"has no label {label}, so devices of the Fabric {fabric.metadata.name} do not go there",
                "it is no host of that fabric (docs/fabrics.md, which host is which node), its host has no free port, or its node daemon is silent",
            )
        else:
            yield findings.ok(
                Check.HOSTS_NODE,
                subject,
                f"the Fabric {fabric.metadata.name} reaches it and has a free port there",
            )
    yield from _reached(world, node, subject)
    closed = sorted(key for key in node.metadata.labels if key.startswith(names.CLOSED_LABEL_PREFIX))
    if closed:
        yield findings.note(
            Check.HOSTS_NODE,
            subject,
            f"is closed to some devices, by policy.models or since the fabric manager refused them there: {findings.listed(closed)}",
            "it opens when a device of the model is detached, or policy.probationSeconds are over (drawbar status shows refused pairs)",
        )


def _reached(world: observed.World, node: core.Node, subject: str) -> Iterator[Finding]:
    """Return the Fabrics that tell which hosts can have which devices, and of which the node can have none of these."""
    for fabric in _fabrics(world, []):
        name = fabric.metadata.name
        is_host = names.node_label(name) in node.metadata.labels
        reaches_some = any(names.is_reach_label(label, name) for label in node.metadata.labels)
        if fabric.status.reach_groups and is_host and not reaches_some:
            yield findings.warning(
                Check.HOSTS_NODE,
                subject,
                f"is in no reachability group of the devices of the Fabric {name}, so none of these goes there",
                f"drawbar fabric hosts {name} shows the groups of its host; docs/fabrics.md, reachability",
            )


def _events(world: observed.World) -> Iterator[Finding]:
    """The newest warnings, each reason once."""
    newest = {
        (event.reason, event.regarding.name): event
        for event in reversed(world.events)
        if event.type == "Warning"
    }
    latest = sorted(newest.values(), key=lambda event: event.at, reverse=True)
    for event in latest[:EVENTS]:
        yield findings.note(
            Check.PODS_STARTED if event.regarding.kind == "Pod" else Check.CLAIMS_READY,
            f"Event {event.reason}",
            f"{views.age(event.at, world.now)} ago on {event.regarding.kind} {event.regarding.name}: {event.note}",
            "docs/troubleshooting.md lists the Events",
        )
