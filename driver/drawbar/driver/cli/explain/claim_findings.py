"""The findings on a claim: why it has no device, or why its devices are not ready; pure."""

from collections import Counter
from collections.abc import Iterator, Sequence

from drawbar.driver.api import claims, meta, nodepools
from drawbar.driver.catalogue import attachment_conditions, links
from drawbar.driver.cli.doctor import findings
from drawbar.driver.cli.doctor.findings import Check, Finding, Severity
from drawbar.driver.cli.explain import observed
from drawbar.driver.cli.status import claim_entries, faults, tree


def judge(world: observed.World, claim: observed.Claim) -> Iterator[Finding]:
    """Yield the findings on a claim."""
    subject = f"claim {claim.metadata.namespace}/{claim.metadata.name}"
    key = (claim.metadata.namespace, claim.metadata.name)
    whole = next(
        (entry for entry in world.cluster.claims if (entry.metadata.namespace, entry.metadata.name) == key),
        None,
    )
    if claim.metadata.deletion_timestamp:
        yield _describe_deletion(whole, claim, subject)
        return
    if whole is None or whole.status.allocation is None:
        yield from _diagnose_unallocated(world, claim, subject)
        return
    driver = world.cluster.driver
    results = whole.results(driver)
    if not results:
        others = ", ".join(sorted({result.driver for result in whole.status.allocation.devices.results}))
        yield findings.make_note(
            Check.CLAIMS_ALLOCATED,
            subject,
            f"has no device of the driver {driver}" + (f", but of {others}" if others else ""),
            "ask the driver of its devices",
        )
    listed = [finding for result in results for finding in _judge_result(world, whole, result, subject)]
    yield from listed
    if not results or listed:
        return
    if all(
        result.binding_conditions or not _is_of_node(result, _find_device(world, result))
        for result in results
    ):
        yield findings.make_ok(Check.CLAIMS_READY, subject, "its devices are ready")
    else:
        # Nobody reports the readiness of such a node's own device; the kubelet's Events have its failure.
        yield findings.make_ok(
            Check.CLAIMS_ALLOCATED,
            subject,
            "has its devices, and the node makes them ready as the pod starts",
        )


def _find_device(world: observed.World, result: claims.AllocationResult) -> tree.Device | None:
    return next(
        (entry for entry in world.devices if (entry.pool, entry.name) == (result.pool, result.device)), None
    )


def _is_of_node(result: claims.AllocationResult, device: tree.Device | None) -> bool:
    """Return whether the allocated device is a node's own."""
    return nodepools.is_pool(result.pool, device.node if device is not None else result.pool)


def _describe_deletion(whole: claims.ResourceClaim | None, claim: observed.Claim, subject: str) -> Finding:
    users = whole.status.reserved_for if whole is not None else ()
    name, namespace = claim.metadata.name, claim.metadata.namespace
    if not users:
        finalizers = f"kubectl get resourceclaim {name} -n {namespace} -o jsonpath={{.metadata.finalizers}}"
        return findings.make_note(
            Check.CLAIMS_ALLOCATED, subject, "is being deleted", f"{finalizers} shows the reason"
        )
    named = findings.join_names([f"{consumer.resource}/{consumer.name}" for consumer in users])
    return findings.make_warning(
        Check.CLAIMS_ALLOCATED,
        subject,
        f"is being deleted, and goes once its users have ended: {named}",
        f"kubectl delete {users[0].resource} {users[0].name} -n {namespace}",
    )


def _judge_result(
    world: observed.World, claim: claims.ResourceClaim, result: claims.AllocationResult, subject: str
) -> Iterator[Finding]:
    """Yield the finding on an allocated device that failed or is not ready."""
    conditions = claim.conditions(result)
    device = _find_device(world, result)
    failed = [meta.find(conditions, name) for name in result.binding_failure_conditions]
    for condition in failed:
        if condition is not None and condition.is_true:
            row = attachment_conditions.find_failure(condition.reason)
            advice = row.advise(deviceattachment=device.attachment if device is not None else "")
            yield findings.make_error(
                Check.CLAIMS_READY,
                subject,
                f"{result.device} failed ({condition.reason}): {condition.message}",
                f"{advice}; the scheduler takes the allocation back and tries again",
            )
            return
    missing = [name for name in result.binding_conditions if not meta.is_true(conditions, name)]
    if missing:
        waits_for = device.waits_for if device is not None else tree.BEGIN
        yield findings.make_warning(
            Check.CLAIMS_READY,
            subject,
            f"{result.device} is not ready: {missing[0]} is not True yet; it waits for {waits_for or 'its conditions'}",
            faults.LEADER
            if waits_for == tree.BEGIN
            else f"drawbar status claim/{claim.metadata.name} -n {claim.metadata.namespace} --watch follows it",
        )
    elif (
        not result.binding_conditions
        and device is not None
        and device.attachment == ""
        and not _is_of_node(result, device)
    ):
        yield findings.make_error(
            Check.CLAIMS_READY,
            subject,
            f"{result.device} was allocated without binding conditions, so it is not attached",
            f"drawbar doctor names the release or feature gate of the scheduler; then {_free(claim)}",
        )


def _free(claim: claims.ResourceClaim) -> str:
    """Return the command to have the claim allocated again."""
    name, namespace = claim.metadata.name, claim.metadata.namespace
    users = [consumer.name for consumer in claim.status.reserved_for if consumer.resource == "pods"]
    if users:
        return f"kubectl delete pod {' '.join(users)} -n {namespace}, and create it again"
    return f"kubectl delete resourceclaim {name} -n {namespace}, and create it again"


def _diagnose_unallocated(world: observed.World, claim: observed.Claim, subject: str) -> Iterator[Finding]:
    problems = judge_requests(world.choices.get(claim.metadata.name, ()), world.cluster.driver, subject)
    yield from problems
    if any(problem.severity is Severity.ERROR for problem in problems):
        return
    namespace, name = claim.metadata.namespace, claim.metadata.name
    pods = [
        pod for pod in world.cluster.pods if pod.metadata.namespace == namespace and name in pod.claim_names
    ]
    if pods and (reason := next((pod.reason for pod in pods if pod.reason), "")):
        yield findings.make_warning(
            Check.CLAIMS_ALLOCATED,
            subject,
            f"is not allocated, though enough devices are free; the scheduler on pod {pods[0].metadata.name}: {reason}",
            f"drawbar status --all shows which nodes the devices reach; kubectl describe pod {pods[0].metadata.name} -n {namespace}",
        )
    elif pods:
        yield findings.make_warning(
            Check.CLAIMS_ALLOCATED,
            subject,
            f"is not allocated: {claim_entries.UNTRIED}",
            f"kubectl describe pod {pods[0].metadata.name} -n {namespace}",
        )
    else:
        yield findings.make_note(
            Check.CLAIMS_ALLOCATED,
            subject,
            f"is not allocated: {claim_entries.UNUSED}",
            "create a pod that names it",
        )


def judge_requests(choices: Sequence[observed.Choice], driver: str, subject: str) -> tuple[Finding, ...]:
    """Return a finding for each request: that of the first alternative that can be met, else of the one nearest to it."""
    by_request: dict[str, list[observed.Choice]] = {}
    for choice in choices:
        by_request.setdefault(choice.request, []).append(choice)
    return tuple(
        _judge_choice(min(alternatives, key=observed.Choice.rank), driver, subject)
        for alternatives in by_request.values()
    )


def describe_missing(choices: Sequence[observed.Choice], driver: str) -> str:
    """Return the reason why a claim's requests cannot be met; empty if enough devices are free."""
    return next(
        (
            finding.message
            for finding in judge_requests(choices, driver, "")
            if finding.severity is Severity.ERROR
        ),
        "",
    )


def _judge_choice(choice: observed.Choice, driver: str, subject: str) -> Finding:
    about = f"request {choice.request} (class {choice.class_name})"
    message, remedy = _describe_fault(choice, driver)
    if not message:
        free = len(choice.free)
        return findings.make_note(
            Check.CLAIMS_ALLOCATED,
            subject,
            f"{about}: {_devices(free)} {'matches and is' if free == 1 else 'match and are'} free",
            f"{links.url('explain.md')} lists the scheduler's other conditions",
        )
    return findings.make_error(Check.CLAIMS_ALLOCATED, subject, f"{about}{message}", remedy)


def _describe_fault(choice: observed.Choice, driver: str) -> tuple[str, str]:
    """Return the reason why an alternative cannot be met, and the next step; empty if it can be."""
    total = len(choice.matching)
    match choice.rank():
        case observed.Rank.NO_CLASS:
            return (
                f": there is no DeviceClass {choice.class_name}",
                "kubectl get deviceclasses lists them; a claim cannot be changed, so make a new one or create the class",
            )
        case observed.Rank.FAULT if choice.is_class_at_fault:
            return (
                f": the class's selectors cannot be evaluated: {choice.fault}",
                f"kubectl edit deviceclass {choice.class_name}, and correct the CEL expression",
            )
        case observed.Rank.FAULT:
            return (
                f": its selectors cannot be evaluated: {choice.fault}",
                "correct the CEL expression; a claim cannot be changed, so make a new one",
            )
        case observed.Rank.NONE_MATCH:
            return (
                f": none of the devices of {driver} matches",
                f"kubectl get resourceslices -o yaml shows the attributes to select by; drawbar doctor looks for missing devices; if {choice.class_name} is of another driver, ask that driver",
            )
        case observed.Rank.TOO_FEW:
            return (
                f" wants {_devices(choice.count)}, and only {total} {'exists that matches' if total == 1 else 'exist that match'}: waiting cannot help",
                f"ask for {total} at most, in a new claim, or add devices to the fabric",
            )
        case observed.Rank.IN_USE:
            return _describe_use(choice)
    return "", ""


def _describe_use(choice: observed.Choice) -> tuple[str, str]:
    """Return why too few of the matching devices are free, and the next step."""
    free = choice.free
    taken = [device for device in choice.matching if device not in free]
    blocked = [device for device in taken if device.state == tree.FREE]
    counted = Counter("tainted" if device in blocked else device.state for device in taken)
    states = ", ".join(f"{count} {state}" for state, count in sorted(counted.items()))
    message = (
        f" wants {_devices(choice.count)}; {len(choice.matching)} match, and {len(free)} are free ({states})"
    )
    return message + describe_taints(blocked), lift(blocked) or (
        f"it gets {_devices(choice.count - len(free))} when other claims end: drawbar status shows their users"
    )


def _devices(count: int) -> str:
    return f"{count} device" if count == 1 else f"{count} devices"


def describe_taints(blocked: Sequence[tree.Device]) -> str:
    """Return the taints that keep claims from free devices, as the end of a sentence."""
    taints = sorted(
        {
            f"{taint.label} by DeviceTaintRule {taint.rule}" if taint.rule else taint.label
            for device in blocked
            for taint in device.taints
            if taint.effect != "None"
        }
    )
    return f"; taints: {findings.join_names(taints)}" if taints else ""


def lift(blocked: Sequence[tree.Device]) -> str:
    """Return the command that lifts the taint of free devices, or explains it; empty without such devices."""
    rules = sorted({taint.rule for device in blocked for taint in device.taints if taint.rule})
    if rules:
        return (
            f"drawbar taint show {rules[0]} has its reason and end; drawbar taint remove {rules[0]} lifts it"
        )
    if blocked:
        return f"drawbar explain device/{blocked[0].pool}/{blocked[0].name} shows how its taint is lifted"
    return ""
