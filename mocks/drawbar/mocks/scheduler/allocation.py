"""The devices for a pod's claims on one node, as API objects. Pure.

Guarantees: all claims of the pod are allocated on the same node, or none is. A used device is never allocated, nor one
twice. A shared device is never overcommitted.

Limits: no list attributes, `skipNodeOperations`, node-allocatable resources, derived attributes and compatibility
groups; no release has them on by default.

Source: the allocator of `k8s.io/dynamic-resource-allocation/structured`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from drawbar.mocks.scheduler import constraints, matching, objects, pools, search, usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The reason against the node; another node may do."""

    reason: str


def allocate(
    demands: Sequence[search.Demand],
    *,
    node: matching.Node,
    supply: Sequence[pools.PoolSupply],
    classes: Mapping[str, objects.DeviceClass],
    used: usage.Usage,
    new_share_id: Callable[[], str],
) -> tuple[objects.Allocation, ...] | Refusal:
    """Return one allocation per demand, or the reason against the node.

    Args:
        demands: the unallocated claims of one pod.
        node: the node for all of them.
        supply: the result of `pools.from_slices`.
        classes: the device classes by name.
        used: the devices and amounts of other claims.
        new_share_id: returns a new id for each share of a device.

    Raises:
        search.AllocationError: no node can do.
    """
    if not demands:
        return ()
    try:
        picks = search.Search(demands, node=node, supply=supply, classes=classes, used=used).run()
    except search.TooManyAttempts:
        return Refusal(reason="timed out trying to allocate devices")
    if picks is None:
        invalid = any(pool.problem and pools.serves(pool, node) for pool in supply)
        return Refusal(
            reason="invalid resource pools were encountered" if invalid else "cannot allocate all claims"
        )
    return tuple(
        _allocation(
            demand, [pick for pick in picks if pick.claim == number], node, classes, new_share_id=new_share_id
        )
        for number, demand in enumerate(demands)
    )


def _allocation(
    demand: search.Demand,
    picks: Sequence[search.Pick],
    node: matching.Node,
    classes: Mapping[str, objects.DeviceClass],
    *,
    new_share_id: Callable[[], str],
) -> objects.Allocation:
    chosen = {pick.request: pick.ask.device_class_name for pick in picks}
    config = [
        objects.AllocatedConfiguration(source="FromClass", requests=(request,), opaque=entry.opaque)
        for request, name in chosen.items()
        for entry in classes[name].spec.config
    ]
    config += [
        objects.AllocatedConfiguration(source="FromClaim", requests=entry.requests, opaque=entry.opaque)
        for entry in demand.devices.config
        if any(constraints.names(entry.requests, request) for request in chosen)
    ]
    return objects.Allocation(
        devices=objects.AllocatedDevices(
            results=tuple(_result(pick, new_share_id) for pick in picks), config=tuple(config)
        ),
        node_selector=_node_selector([pick.candidate for pick in picks], node),
    )


def _result(pick: search.Pick, new_share_id: Callable[[], str]) -> objects.Result:
    driver, pool, device = pick.candidate.id
    return objects.Result(
        request=pick.request,
        driver=driver,
        pool=pool,
        device=device,
        admin_access=pick.ask.admin_access or None,
        tolerations=pick.ask.tolerations,
        binding_conditions=pick.candidate.device.binding_conditions,
        binding_failure_conditions=pick.candidate.device.binding_failure_conditions,
        share_id=None if pick.taken is None else new_share_id(),
        consumed_capacity=dict(pick.taken) if pick.taken else None,
    )


def _node_selector(candidates: Sequence[pools.Candidate], node: matching.Node) -> objects.NodeSelector | None:
    """Return the nodes for the allocated devices: this node only, or the common part of their slices' selectors."""
    expressions: dict[objects.Requirement, None] = {}
    fields: dict[objects.Requirement, None] = {}
    for candidate in candidates:
        if candidate.device.binds_to_node or candidate.slice.node_name:
            only = objects.Requirement(key="metadata.name", operator="In", values=(node.name,))
            return objects.NodeSelector(node_selector_terms=(objects.Term(match_fields=(only,)),))
        if candidate.slice.node_selector is not None:
            for term in candidate.slice.node_selector.node_selector_terms:
                if matching.holds(term, node):
                    expressions |= dict.fromkeys(term.match_expressions)
                    fields |= dict.fromkeys(term.match_fields)
    if not expressions and not fields:
        return None
    term = objects.Term(match_expressions=tuple(expressions), match_fields=tuple(fields))
    return objects.NodeSelector(node_selector_terms=(term,))
