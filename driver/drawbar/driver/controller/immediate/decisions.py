"""The devices for a claim with immediate allocation, and the end of its allocation; pure.

Invariants:

- only free devices that are reserved for immediate allocation are given; the scheduler never sees them, so it and this
  plan cannot give one device to two claims;
- all devices of a claim are given on one node, or none;
- an allocation is cleared only if it failed, or its node is gone, and only while no pod has the claim; the scheduler's
  own allocations are never touched.

Source: KEP-3063, "Immediate allocation"; `resource.k8s.io/v1` AllocationResult; KEP-5007 for the binding conditions.
"""

import datetime
import itertools
from collections.abc import Mapping

import msgspec

from drawbar.driver.api import bindings, claims, configurations, demands, meta, parameters
from drawbar.driver.catalogue import reasons
from drawbar.driver.controller import names
from drawbar.driver.controller.allocation import matching

# The most combinations to try; alternatives of several requests multiply.
COMBINATIONS_MAX = 64


class OpenClaim(msgspec.Struct, frozen=True, kw_only=True):
    """A claim without an allocation, with the devices and nodes that it can be given.

    Attributes:
        claim: the claim; not allocated.
        classes: the existing DeviceClasses that it names.
        inventory: the reserved devices and their reachable nodes.
        nodes: the candidates, the best first.
        avoided: devices that failed this claim before; others are tried first.
    """

    driver: str
    claim: demands.Claim
    classes: Mapping[str, demands.DeviceClass]
    inventory: matching.Inventory
    nodes: tuple[str, ...]
    avoided: frozenset[names.DeviceKey] = frozenset()


class Allocate(msgspec.Struct, frozen=True, kw_only=True):
    """Write this allocation."""

    allocation: claims.Allocation
    node: str
    devices: tuple[names.DeviceKey, ...]


class TakeBack(msgspec.Struct, frozen=True, kw_only=True):
    """Clear the claim's failed allocation."""

    reason: str
    message: str
    node: str
    devices: tuple[names.DeviceKey, ...]


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing can be given until something changes."""

    reason: str
    message: str


Action = Allocate | TakeBack | Wait

_Ways = tuple[tuple[str, demands.Way], ...]


def plan(observed: OpenClaim, judge: matching.Judge, now: datetime.datetime) -> Allocate | Wait:
    """Return the allocation for a claim without one, or why none is possible now."""
    wanted = observed.claim.spec.devices
    problem = find_unsupported(wanted)
    if problem is not None:
        return problem
    missing = sorted(class_names(wanted) - observed.classes.keys())
    if missing:
        return Wait(
            reason=reasons.DEVICE_CLASS_MISSING, message=f"there is no DeviceClass {', '.join(missing)}"
        )
    everything = observed.inventory
    left = {key: device for key, device in everything.devices.items() if key not in observed.avoided}
    fresh = msgspec.structs.replace(everything, devices=left)
    for inventory in (fresh, everything) if observed.avoided else (everything,):
        stock = matching.Stock(inventory, judge)
        # The first alternatives come first.
        combinations = itertools.product(*(request.ways() for request in wanted.requests))
        for ways in itertools.islice(combinations, COMBINATIONS_MAX):
            search = matching.Search(stock, _requests(ways, observed.classes))
            for node in observed.nodes:
                matched = search.match_on(node)
                if matched is not None:
                    return _allocate(observed, ways, matched, node, now)
    return Wait(reason=reasons.NO_RESERVED_DEVICE, message=_why_not(observed))


def review(claim: claims.ResourceClaim, driver: str, *, node_gone: bool) -> TakeBack | None:
    """Return how to clear a failed allocation of ours, or None if there is nothing to clear."""
    allocation = claim.status.allocation
    if allocation is None or claims.SCHEDULED in claim.metadata.finalizers or claim.status.reserved_for:
        return None
    results = claim.results(driver)
    if not results or len(results) != len(allocation.devices.results):
        return None
    node = allocation.node or ""
    failures = {
        bindings.condition_type(driver, kind) for kind in (bindings.ATTACH_FAILED, bindings.NODE_FAILED)
    }
    failed = (
        (
            reasons.IMMEDIATE_ALLOCATION_FAILED,
            f"{result.pool}/{result.device} on node {node}: {condition.message}",
        )
        for result in results
        for condition in claim.conditions(result)
        if condition.type in failures and condition.is_true
    )
    gone = (reasons.NODE_GONE, f"node {node} is gone, and no pod uses the claim") if node_gone else None
    problem = next(failed, gone)
    if problem is None:
        return None
    devices = tuple(
        names.DeviceKey(fabric=names.fabric_of(result.pool), device=result.device) for result in results
    )
    return TakeBack(reason=problem[0], message=problem[1], node=node, devices=devices)


def find_unsupported(demand: demands.Devices) -> Wait | None:
    """Return the wait for a feature that only the scheduler supports, or None without one."""
    problem = "it asks for no device" if not demand.requests else ""
    if demand.constraints:
        problem = "it has constraints"
    for request in demand.requests:
        for name, way in request.ways():
            if way.allocation_mode != "ExactCount":
                problem = f"request {name} has the allocationMode {way.allocation_mode}"
            elif way.admin_access:
                problem = f"request {name} asks for admin access"
            elif way.capacity:
                problem = f"request {name} asks for a capacity"
    if not problem:
        return None
    return Wait(
        reason=reasons.IMMEDIATE_ALLOCATION_UNSUPPORTED,
        message=f"the claim cannot be allocated at once: {problem}",
    )


def class_names(demand: demands.Devices) -> frozenset[str]:
    """Return the DeviceClasses that the claim names."""
    return frozenset(way.device_class_name for request in demand.requests for _, way in request.ways())


def _requests(ways: _Ways, classes: Mapping[str, demands.DeviceClass]) -> tuple[matching.Request, ...]:
    return tuple(
        matching.Request(
            name=name,
            count=way.count,
            selectors=demands.expressions((*classes[way.device_class_name].spec.selectors, *way.selectors)),
        )
        for name, way in ways
    )


def _allocate(
    observed: OpenClaim, ways: _Ways, matched: matching.DevicesByRequest, node: str, now: datetime.datetime
) -> Allocate | Wait:
    results = tuple(
        claims.AllocationResult(
            request=name,
            driver=observed.driver,
            pool=observed.inventory.devices[key].pool,
            device=key.device,
            binding_conditions=bindings.binding_conditions(observed.driver),
            binding_failure_conditions=bindings.failure_conditions(observed.driver),
        )
        for (name, _), keys in zip(ways, matched, strict=True)
        for key in keys
    )
    allocation = claims.Allocation(
        devices=claims.DeviceAllocation(results=results, config=_configuration(observed, ways)),
        node_selector=claims.one_node(node),
        allocation_timestamp=meta.timestamp(now),
    )
    _, failure = configurations.try_by_device(allocation, observed.driver)
    if failure is not None:
        return Wait(reason=failure.reason, message=f"the claim is not allocated at once: {failure.message}")
    return Allocate(allocation=allocation, node=node, devices=tuple(key for keys in matched for key in keys))


def _configuration(observed: OpenClaim, ways: _Ways) -> tuple[claims.AllocatedConfiguration, ...]:
    """Return the classes' parameters, each for the request that named the class, and then the claim's own."""
    of_classes = [
        msgspec.structs.replace(entry, source=parameters.Source.CLASS, requests=(name,))
        for name, way in ways
        for entry in observed.classes[way.device_class_name].spec.config
    ]
    chosen = {name for name, _ in ways}
    chosen |= {name.partition("/")[0] for name in chosen}
    own = [
        msgspec.structs.replace(entry, source=parameters.Source.CLAIM)
        for entry in observed.claim.spec.devices.config
        if not entry.requests or chosen & set(entry.requests)
    ]
    return (*of_classes, *own)


def _why_not(observed: OpenClaim) -> str:
    demand = observed.claim.metadata.annotations.get(claims.NODE_ANNOTATION)
    if not observed.nodes:
        where = f"node {demand} is not" if demand else "no node is"
        return f"{where} reached by a Fabric with reserved devices and a free port"
    free = sum(device.free for device in observed.inventory.devices.values())
    where = f" for node {demand}" if demand else ""
    return (
        f"none of the {free} free devices that are reserved for immediate allocation (policy.immediate of a Fabric) fits"
        f"{where}; waiting"
    )
