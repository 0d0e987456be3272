"""The claims of the tree, and the reason why each waits; pure."""

from collections import defaultdict
from collections.abc import Iterable

import msgspec

from drawbar.driver.api import claims, meta
from drawbar.driver.cli.doctor.findings import Severity
from drawbar.driver.cli.status import observed, tree

_WARNING, _NOTE = Severity.WARNING.value, Severity.NOTE.value
UNUSED = "no pod uses the claim yet; the scheduler allocates it for its first pod"
UNTRIED = "the scheduler has not tried to place its pod yet"


def list_pending(
    listed: Iterable[claims.ResourceClaim],
    pods: Iterable[observed.UnscheduledPod],
    driver: str,
    *,
    are_pods_known: bool,
) -> tuple[tree.Claim, ...]:
    """Return the claims without a device, each with the reason; those that no pod uses come last.

    Args:
        listed: the claims; allocated and deleted ones are left out.
        pods: the pods without a node.
        driver: the DRA driver's name.
        are_pods_known: whether the pods could be read; only then does a claim without a pod have none.
    """
    users: dict[tuple[str, str], list[observed.UnscheduledPod]] = defaultdict(list)
    for pod in sorted(pods, key=lambda pod: (pod.metadata.namespace, pod.metadata.name)):
        for name in pod.claim_names:
            users[pod.metadata.namespace, name].append(pod)
    result = []
    for claim in listed:
        if claim.status.allocation is not None or claim.metadata.deletion_timestamp:
            continue
        own = users.get((claim.metadata.namespace, claim.metadata.name), [])
        shown = describe_claim(claim, driver)
        if are_pods_known:
            reason = next((pod.reason for pod in own if pod.reason), UNTRIED if own else UNUSED)
            shown = msgspec.structs.replace(
                shown,
                pods=tuple(pod.metadata.name for pod in own),
                waits_for=reason,
                severity=_WARNING if own else _NOTE,
            )
        result.append(shown)
    return tuple(
        sorted(result, key=lambda claim: (claim.severity == _NOTE, claim.since, claim.namespace, claim.name))
    )


def list_claims(cluster: observed.Cluster) -> tuple[tree.Claim, ...]:
    """Return the requested claims, and the other claims without a device."""
    waiting = list_pending(
        cluster.claims, cluster.pods, cluster.driver, are_pods_known="pods" not in cluster.unlisted
    )
    pending = {(claim.namespace, claim.name): claim for claim in waiting}
    wanted = [describe_claim(claim, cluster.driver) for claim in cluster.wanted]
    named = {(claim.namespace, claim.name) for claim in wanted}
    return (
        *(pending.get((claim.namespace, claim.name), claim) for claim in wanted),
        *(claim for key, claim in pending.items() if key not in named),
    )


def allocated_at(claim: claims.ResourceClaim) -> str:
    """Return the time of the claim's allocation, else of its creation; RFC 3339."""
    allocation = claim.status.allocation
    stamp = allocation.allocation_timestamp if allocation is not None else None
    return stamp or claim.metadata.creation_timestamp or ""


def describe_claim(claim: claims.ResourceClaim, driver: str) -> tree.Claim:
    """Return a claim; a claim without a device waits for the scheduler."""
    status = claim.status
    allocation = status.allocation
    state = "Pending" if allocation is None else "Reserved" if status.reserved_for else "Allocated"
    return tree.Claim(
        namespace=claim.metadata.namespace,
        name=claim.metadata.name,
        state=state,
        since=allocated_at(claim),
        node=(allocation.node or "") if allocation is not None else "",
        pods=tuple(consumer.name for consumer in status.reserved_for if consumer.resource == "pods"),
        waits_for="the scheduler, to allocate it" if allocation is None else _find_missing(claim, driver),
        severity=_WARNING if allocation is None else "",
    )


def _find_missing(claim: claims.ResourceClaim, driver: str) -> str:
    """Return the failed or missing condition of the claim's devices; empty if none is missing."""
    for result in claim.results(driver):
        conditions = claim.conditions(result)
        for condition_type in result.binding_failure_conditions:
            failed = meta.find(conditions, condition_type)
            if failed is not None and failed.is_true:
                return f"{condition_type} of {result.device}: {failed.message}"
        for condition_type in result.binding_conditions:
            if not meta.is_true(conditions, condition_type):
                return f"{condition_type} of {result.device}"
    return ""
