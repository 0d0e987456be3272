"""What one scheduling cycle decides for one pod, and what a waiting pod sees in its claims; pure.

A claim that waits for binding conditions is looked at as the real scheduler does it: claims in the pod's order, devices
in the order of the allocation, and the look ends at the first device that is not ready. A failure behind it is unseen.

Source: pkg/scheduler/framework/plugins/dynamicresources of Kubernetes 1.36, as described by the fact pages.
"""

import datetime
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from drawbar.driver.api import meta
from drawbar.mocks.claims import documents
from drawbar.mocks.scheduler import allocation, matching, objects


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The pod goes to this node; `allocations` (by claim uid) are still to be written."""

    node: str
    allocations: Mapping[str, objects.Allocation] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deallocate:
    """The pod fits nowhere because of this claim, which it may give back."""

    claim: documents.Document


@dataclass(frozen=True, slots=True, kw_only=True)
class Unschedulable:
    """The pod fits nowhere; `reason` is for people."""

    reason: str


Decision = Placement | Deallocate | Unschedulable


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What a cycle looks at besides the pod.

    Attributes:
        nodes: usable nodes, the preferred ones first.
        supply: the pools in order.
        classes: device classes by name.
        taken: devices of all allocated claims and of allocations under way.
    """

    nodes: Sequence[matching.Node]
    supply: Sequence[allocation.PoolSupply]
    classes: Mapping[str, objects.DeviceClass]
    taken: Collection[documents.DeviceID]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """At least this claim is not ready."""

    claim: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The pod must not go on waiting; `message` is what its event says."""

    message: str


def decide(
    pod: documents.Document,
    claims: Sequence[documents.Document],
    world: World,
    *,
    now: datetime.datetime,
    timeout: datetime.timedelta,
) -> Decision:
    """Where the pod goes, or why it does not.

    Args:
        pod: a pod without a node.
        claims: its claims in its order.
        world: everything else.
        now: the current time.
        timeout: the binding timeout.
    """
    if not world.nodes:
        return Unschedulable(reason="no nodes available to schedule pods")
    nodes = [node for node in world.nodes if _admits(node, pod)]
    unusable = [claim for claim in claims if _is_unusable(claim, nodes, now=now, timeout=timeout)]
    if unusable:
        refusals = ["resourceclaim not available on the node"] * len(world.nodes)
        return _without(pod, unusable, refusals)
    open_claims = [claim for claim in claims if documents.allocation(claim) is None]
    demands = [
        allocation.Demand(
            name=claim.full_name,
            devices=msgspec.convert(claim.spec.get("devices") or {}, objects.ClaimDevices),
        )
        for claim in open_claims
    ]
    refusals = ["node(s) didn't match Pod's node affinity/selector"] * (len(world.nodes) - len(nodes))
    elsewhere: list[documents.Document] = []
    for node in nodes:
        unfit = [claim for claim in claims if not _is_usable_on(claim, node)]
        if unfit:
            elsewhere += unfit
            refusals.append("resourceclaim not available on the node")
            continue
        answer = allocation.allocate(
            demands, node=node, supply=world.supply, classes=world.classes, taken=world.taken
        )
        if isinstance(answer, allocation.Refusal):
            refusals.append(answer.reason)
            continue
        uids = (claim.metadata.uid for claim in open_claims)
        return Placement(node=node.name, allocations=dict(zip(uids, answer, strict=True)))
    # A claim that is allocated for one node may be what keeps the pod from another.
    return _without(pod, elsewhere, refusals)


def readiness(claims: Sequence[documents.Document]) -> Pending | Failed | None:
    """What the pod waits for first, or why it must stop waiting; None when all is ready."""
    for claim in claims:
        answer = claim_readiness(claim)
        if answer is not None:
            return answer
    return None


def claim_readiness(claim: documents.Document) -> Pending | Failed | None:
    """The same for one claim. Only type and status of a condition count, as in the real scheduler."""
    states = {
        (state.get("driver"), state.get("pool"), state.get("device")): state.get("conditions") or []
        for state in claim.status.get("devices") or ()
    }
    for result in documents.results(claim):
        wanted = result.get("bindingConditions") or ()
        if not wanted:
            continue
        conditions = states.get((result["driver"], result["pool"], result["device"]))
        if conditions is None:
            return Pending(claim=claim.metadata.name)
        true = {condition["type"]: condition for condition in conditions if condition["status"] == "True"}
        for name in result.get("bindingFailureConditions") or ():
            if name in true:
                return _failure(claim, true[name])
        if any(name not in true for name in wanted):
            return Pending(claim=claim.metadata.name)
    return None


def has_timed_out(claim: documents.Document, *, now: datetime.datetime, timeout: datetime.timedelta) -> bool:
    """Whether the claim was allocated so long ago that nobody waits for it any more."""
    since = (documents.allocation(claim) or {}).get("allocationTimestamp")
    return since is not None and now >= meta.moment(since) + timeout


def _is_unusable(
    claim: documents.Document,
    nodes: Sequence[matching.Node],
    *,
    now: datetime.datetime,
    timeout: datetime.timedelta,
) -> bool:
    if documents.allocation(claim) is None:
        return False
    ready = claim_readiness(claim)
    timed_out = isinstance(ready, Pending) and has_timed_out(claim, now=now, timeout=timeout)
    return isinstance(ready, Failed) or timed_out or not any(_is_usable_on(claim, node) for node in nodes)


def _is_usable_on(claim: documents.Document, node: matching.Node) -> bool:
    selector = (documents.allocation(claim) or {}).get("nodeSelector")
    return selector is None or matching.selects(msgspec.convert(selector, objects.NodeSelector), node)


def _without(
    pod: documents.Document, unusable: Sequence[documents.Document], refusals: Sequence[str]
) -> Deallocate | Unschedulable:
    for claim in unusable:
        others = [one for one in documents.reserved_for(claim) if one.get("uid") != pod.metadata.uid]
        if not others:
            return Deallocate(claim=claim)
    return Unschedulable(reason=_summary(refusals))


def _admits(node: matching.Node, pod: documents.Document) -> bool:
    wanted: dict[str, Any] = pod.spec.get("nodeSelector") or {}
    if any(node.labels.get(key) != value for key, value in wanted.items()):
        return False
    affinity = ((pod.spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    if affinity and not matching.selects(msgspec.convert(affinity, objects.NodeSelector), node):
        return False
    tolerations = [msgspec.convert(one, objects.Toleration) for one in pod.spec.get("tolerations") or ()]
    return all(matching.is_tolerated(taint, tolerations) for taint in node.taints)


def _summary(refusals: Sequence[str]) -> str:
    counted = dict.fromkeys(refusals)
    parts = ", ".join(f"{refusals.count(reason)} {reason}" for reason in counted)
    return f"0/{len(refusals)} nodes are available: {parts}. still not schedulable."


def _failure(claim: documents.Document, condition: Mapping[str, Any]) -> Failed:
    reason, message = condition.get("reason", ""), condition.get("message", "")
    return Failed(
        message=f'device binding failed: claim={claim.metadata.name}, reason={reason}, message="{message}"'
    )
