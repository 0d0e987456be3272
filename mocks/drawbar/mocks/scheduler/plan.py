"""What one scheduling cycle decides for one pod, and what a waiting pod sees in its claims; pure.

A claim that waits for binding conditions is looked at as the real scheduler does it: claims in the pod's order, devices
in the order of the allocation, and the look ends at the first device that is not ready. A failure behind it is unseen;
a share's own entry is not told from another's; a claim that lost its allocation is waited for until the time is over.

Nor is it softened here that a pod gets rid of a failed claim only on a node where its other, unallocated claims could
be served: while they cannot, nothing is deallocated.

Source: pkg/scheduler/framework/plugins/dynamicresources of Kubernetes 1.36, as described by the fact pages.
"""

import datetime
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from drawbar.driver.api import meta
from drawbar.mocks.claims import documents
from drawbar.mocks.scheduler import allocation, matching, messages, nodes, objects, pools, search, usage

RESERVATIONS_LIMIT = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The pod goes to this node; `allocations` (by claim uid) are still to be written."""

    node: str
    allocations: Mapping[str, objects.Allocation] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deallocate:
    """The pod fits nowhere because of this claim, which it may give back; `reason` is for people."""

    claim: documents.Document
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unschedulable:
    """The pod fits nowhere until something changes; `reason` is for people."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """What the pod asks for is at fault; it is tried again all the same. `reason` is for people."""

    reason: str


Decision = Placement | Deallocate | Unschedulable | Broken


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What a cycle looks at besides the pod.

    Attributes:
        nodes: all nodes, the preferred ones first.
        supply: the pools in order, DeviceTaintRules applied.
        classes: device classes by name.
        used: what all claims and the allocations under way have.
        new_share_id: a fresh id for each share of a device.
    """

    nodes: Sequence[matching.Node]
    supply: Sequence[pools.PoolSupply]
    classes: Mapping[str, objects.DeviceClass]
    used: usage.Usage
    new_share_id: Callable[[], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """At least this claim is not ready."""

    claim: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The pod must not go on waiting: a failure condition of the claim is true, with this reason and message."""

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
    """Where the pod goes, or why it does not.

    Args:
        pod: a pod without a node.
        claims: its claims in its order.
        world: everything else.
        now: the current time.
        timeout: the binding timeout.

    Raises:
        msgspec.ValidationError: the pod or a claim is not what the API allows.
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
        return Unschedulable(reason=messages.unready(len(world.nodes), problem))
    spoilt = [claim for claim in claims if _is_spoilt(claim, now=now, timeout=timeout)]
    try:
        return _held_against_nodes(pod, claims, demands, world, spoilt)
    except search.AllocationError as error:
        return Broken(reason=messages.broken(str(error)))


def readiness(claims: Sequence[documents.Document]) -> Pending | Failed | None:
    """What the pod waits for first, or why it must stop waiting; None when all is ready."""
    for claim in claims:
        answer = claim_readiness(claim)
        if answer is not None:
            return answer
    return None


def claim_readiness(claim: documents.Document) -> Pending | Failed | None:
    """The same for one claim. Only type and status of a condition count, as in the real scheduler."""
    if documents.allocation(claim) is None:
        return Pending(claim=claim.metadata.name)
    states: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for state in claim.status.get("devices") or ():
        # The first entry of a device counts, whatever its share.
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
    """Whether a pod must wait for a device of the claim."""
    return any(result.get("bindingConditions") for result in documents.results(claim))


def has_timed_out(claim: documents.Document, *, now: datetime.datetime, timeout: datetime.timedelta) -> bool:
    """Whether a claim that is not ready was allocated so long ago that its binding has timed out."""
    since = meta.moment((documents.allocation(claim) or {}).get("allocationTimestamp"))
    return since is not None and now > since + timeout


def _problem(
    pod: documents.Document,
    claims: Sequence[documents.Document],
    demands: Iterable[search.Demand],
    classes: Mapping[str, objects.DeviceClass],
) -> str:
    """Why no node need be looked at; empty when there is no such reason."""
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
    # Most nodes of a cluster are offered the same, and a search that found nothing is the longest one.
    refused: dict[tuple[bool, ...], allocation.Refusal] = {}
    for node in world.nodes:
        refusal = node.closed or nodes.objection(node, pod)
        if refusal:
            refusals.append(refusal)
            continue
        earlier = refused.get(pools.offer(world.supply, node)) if refused else None
        answer = earlier if earlier is not None else _allocated(demands.values(), node, world)
        if isinstance(answer, allocation.Refusal):
            refused[pools.offer(world.supply, node)] = answer
            refusals.append(answer.reason)
            continue
        unfit = [claim for claim in claims if claim in spoilt or not _is_usable_on(claim, node)]
        if not unfit:
            return Placement(node=node.name, allocations=dict(zip(demands, answer, strict=True)))
        refusals.append("resourceclaim not available on the node")
        unavailable += unfit
    return _without(pod, claims, unavailable, refusals)


def _allocated(
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
    """Whether its devices failed, or the wait for them has timed out."""
    if documents.allocation(claim) is None:
        return False
    ready = claim_readiness(claim)
    timed_out = isinstance(ready, Pending) and has_timed_out(claim, now=now, timeout=timeout)
    return isinstance(ready, Failed) or timed_out


def _is_usable_on(claim: documents.Document, node: matching.Node) -> bool:
    selector = (documents.allocation(claim) or {}).get("nodeSelector")
    return selector is None or matching.selects(msgspec.convert(selector, objects.NodeSelector), node)


def _without(
    pod: documents.Document,
    claims: Sequence[documents.Document],
    unavailable: Sequence[documents.Document],
    refusals: Sequence[str],
) -> Deallocate | Unschedulable:
    """One claim of those that keep the pod from a node goes back, if no other pod has it."""
    for claim in unavailable:
        consumers = [
            consumer for consumer in documents.reserved_for(claim) if consumer.get("uid") != pod.metadata.uid
        ]
        if not consumers:
            return Deallocate(claim=claim, reason=messages.unfit(refusals, messages.DEALLOCATED))
    after = messages.STILL_NOT_SCHEDULABLE if claims else messages.NOTHING_TO_DEALLOCATE
    return Unschedulable(reason=messages.unfit(refusals, after))
