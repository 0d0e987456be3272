"""The decision of one scheduling cycle for one pod, and a waiting pod's view of its claims; pure.

A claim with binding conditions is checked as by the real scheduler: claims in the pod's order, devices in the
allocation's order, up to the first unready device. A failure of a later device is not seen. A share's own entry is not
distinguished from another's. A claim without its allocation is waited for until the time is over.

As in the real scheduler, a pod can give back a failed claim only on a node that could serve its other, unallocated
claims. Until then nothing is deallocated.

Source: pkg/scheduler/framework/plugins/dynamicresources of Kubernetes 1.36, as described by the fact pages.
"""

import datetime
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from drawbar.mocks.claims import documents
from drawbar.mocks.kube import meta
from drawbar.mocks.scheduler import allocation, matching, messages, nodes, objects, pools, search, usage

RESERVATIONS_LIMIT = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Place the pod on this node; `allocations` (by claim uid) must still be written."""

    node: str
    allocations: Mapping[str, objects.Allocation] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deallocate:
    """Deallocate this claim, because of which the pod fits nowhere; `reason` is for people."""

    claim: documents.Document
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unschedulable:
    """Wait for a change, because the pod fits nowhere; `reason` is for people."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """Try again although the pod's request is faulty; `reason` is for people."""

    reason: str


Decision = Placement | Deallocate | Unschedulable | Broken


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The input of a cycle in addition to the pod.

    Attributes:
        nodes: all nodes, the preferred ones first.
        supply: the pools in order, DeviceTaintRules applied.
        classes: device classes by name.
        used: the usage by all claims and by allocations in progress.
        new_share_id: returns a new id for each share of a device.
    """

    nodes: Sequence[matching.Node]
    supply: Sequence[pools.PoolSupply]
    classes: Mapping[str, objects.DeviceClass]
    used: usage.Usage
    new_share_id: Callable[[], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """At least this claim is unready."""

    claim: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The pod must stop waiting: a failure condition of the claim is true, with this reason and message."""

    claim: str
    reason: str
    message: str


def decide(
    pod: documents.Document,
    claims: Sequence[documents.Document],
    world: World,
    *,
    now: datetime.datetime,
    timeout: datetime.timedelta,
) -> Decision:
    """Return the decision for the pod.

    Args:
        pod: a pod without a node.
        claims: its claims in its order.
        world: everything else.
        now: the current time.
        timeout: the binding timeout.

    Raises:
        msgspec.ValidationError: the pod or a claim violates the API.
    """
    if not world.nodes:
        return Unschedulable(reason="no nodes available to schedule pods")
    demands = {
        claim.metadata.uid: search.Demand(
            name=claim.full_name,
            devices=msgspec.convert(claim.spec.get("devices") or {}, objects.ClaimDevices),
        )
        for claim in claims
        if documents.allocation(claim) is None
    }
    problem = _problem(pod, claims, demands.values(), world.classes)
    if problem:
        return Unschedulable(reason=messages.describe_unready(len(world.nodes), problem))
    spoilt = [claim for claim in claims if _is_spoilt(claim, now=now, timeout=timeout)]
    try:
        return _held_against_nodes(pod, claims, demands, world, spoilt)
    except search.AllocationError as error:
        return Broken(reason=messages.describe_broken(str(error)))


def readiness(claims: Sequence[documents.Document]) -> Pending | Failed | None:
    """Return the first unready claim, or the reason to stop waiting; None if all are ready."""
    for claim in claims:
        answer = claim_readiness(claim)
        if answer is not None:
            return answer
    return None


def claim_readiness(claim: documents.Document) -> Pending | Failed | None:
    """Return the same for one claim. Only type and status of a condition count, as in the real scheduler."""
    if documents.allocation(claim) is None:
        return Pending(claim=claim.metadata.name)
    states: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for state in claim.status.get("devices") or ():
        # The first entry of a device counts, for any share.
        key = (state.get("driver"), state.get("pool"), state.get("device"))
        states.setdefault(key, state.get("conditions") or [])
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
                reason, message = (true[name].get(key, "") for key in ("reason", "message"))
                return Failed(claim=claim.metadata.name, reason=reason, message=message)
        if any(name not in true for name in wanted):
            return Pending(claim=claim.metadata.name)
    return None


def has_binding_conditions(claim: documents.Document) -> bool:
    """Return true if a pod must wait for a device of the claim."""
    return any(result.get("bindingConditions") for result in documents.results(claim))


def has_timed_out(claim: documents.Document, *, now: datetime.datetime, timeout: datetime.timedelta) -> bool:
    """Return true if an unready claim was allocated longer ago than the binding timeout."""
    since = meta.moment((documents.allocation(claim) or {}).get("allocationTimestamp"))
    return since is not None and now > since + timeout


def _problem(
    pod: documents.Document,
    claims: Sequence[documents.Document],
    demands: Iterable[search.Demand],
    classes: Mapping[str, objects.DeviceClass],
) -> str:
    """Return a reason against all nodes; empty if there is none."""
    for claim in claims:
        full = len(documents.reserved_for(claim)) >= RESERVATIONS_LIMIT
        if full and not documents.is_reserved_for(claim, pod):
            return "resourceclaim in use"
    for demand in demands:
        for request in demand.devices.requests:
            if request.exactly is None and not request.first_available:
                return f"resource claim {demand.name}, request {request.name}: unknown request type"
            asks = (request.exactly,) if request.exactly is not None else request.first_available
            for ask in asks:
                if ask.device_class_name not in classes:
                    name = request.name if request.exactly is not None else f"{request.name}/{ask.name}"
                    return f"request {name}: device class {ask.device_class_name} does not exist"
    return ""


def _held_against_nodes(
    pod: documents.Document,
    claims: Sequence[documents.Document],
    demands: Mapping[str, search.Demand],
    world: World,
    spoilt: Sequence[documents.Document],
) -> Decision:
    refusals: list[str] = []
    unavailable: list[documents.Document] = []
    # Most nodes have the same devices, and a search without a result takes longest, so refusals are cached.
    refused: dict[tuple[bool, ...], allocation.Refusal] = {}
    for node in world.nodes:
        refusal = node.closed or nodes.objection(node, pod)
        if refusal:
            refusals.append(refusal)
            continue
        earlier = refused.get(pools.offer(world.supply, node)) if refused else None
        answer = earlier if earlier is not None else _allocate_demands(demands.values(), node, world)
        if isinstance(answer, allocation.Refusal):
            refused[pools.offer(world.supply, node)] = answer
            refusals.append(answer.reason)
            continue
        unusable = [claim for claim in claims if claim in spoilt or not _is_usable_on(claim, node)]
        if not unusable:
            return Placement(node=node.name, allocations=dict(zip(demands, answer, strict=True)))
        refusals.append("resourceclaim not available on the node")
        unavailable += unusable
    return _decide_without_node(pod, claims, unavailable, refusals)


def _allocate_demands(
    demands: Iterable[search.Demand], node: matching.Node, world: World
) -> tuple[objects.Allocation, ...] | allocation.Refusal:
    return allocation.allocate(
        tuple(demands),
        node=node,
        supply=world.supply,
        classes=world.classes,
        used=world.used,
        new_share_id=world.new_share_id,
    )


def _is_spoilt(claim: documents.Document, *, now: datetime.datetime, timeout: datetime.timedelta) -> bool:
    """Return true if the claim's devices failed, or the wait for them has timed out."""
    if documents.allocation(claim) is None:
        return False
    ready = claim_readiness(claim)
    timed_out = isinstance(ready, Pending) and has_timed_out(claim, now=now, timeout=timeout)
    return isinstance(ready, Failed) or timed_out


def _is_usable_on(claim: documents.Document, node: matching.Node) -> bool:
    selector = (documents.allocation(claim) or {}).get("nodeSelector")
    return selector is None or matching.selects(msgspec.convert(selector, objects.NodeSelector), node)


def _decide_without_node(
    pod: documents.Document,
    claims: Sequence[documents.Document],
    unavailable: Sequence[documents.Document],
    refusals: Sequence[str],
) -> Deallocate | Unschedulable:
    """Decide for a pod without a node: deallocate a blocking claim not used by another pod, if there is one."""
    for claim in unavailable:
        consumers = [
            consumer for consumer in documents.reserved_for(claim) if consumer.get("uid") != pod.metadata.uid
        ]
        if not consumers:
            return Deallocate(claim=claim, reason=messages.describe_refusals(refusals, messages.DEALLOCATED))
    after = messages.STILL_NOT_SCHEDULABLE if claims else messages.NOTHING_TO_DEALLOCATE
    return Unschedulable(reason=messages.describe_refusals(refusals, after))
