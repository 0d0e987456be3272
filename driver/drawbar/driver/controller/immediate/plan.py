"""What a claim that asks for immediate allocation gets, and when that is taken back; decided purely.

Invariants:

- only devices that are reserved for immediate allocation and free are given, so the scheduler, which is never shown
  them, and this plan cannot give one device to two claims;
- all that a claim asks for is given on one node, or nothing;
- an allocation is taken back only where it failed, or its node is gone, and only while no pod has the claim; the
  scheduler's own allocations are never touched.

The kind of match is that of classic allocation (`controller.allocation.matching`): exact, with the ports and rules of the
fabrics.

Source: KEP-3063, "Immediate allocation"; `resource.k8s.io/v1` AllocationResult; KEP-5007 for the binding conditions.
"""

import dataclasses
import datetime
import itertools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import msgspec

from drawbar.driver.api import bindings, claims, configurations, demands, meta, parameters
from drawbar.driver.controller import names
from drawbar.driver.controller.allocation import matching

UNSUPPORTED = "ImmediateAllocationUnsupported"
NOTHING_RESERVED = "NoReservedDevice"
NO_CLASS = "DeviceClassMissing"
FAILED = "ImmediateAllocationFailed"
NODE_GONE = "NodeGone"

# Alternatives of several requests multiply; so many combinations are tried.
COMBINATIONS_MAX = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Everything the decision rests on.

    Attributes:
        claim: not allocated.
        classes: the DeviceClasses that it names, as far as there are such.
        inventory: the reserved devices and the nodes that they can go to.
        nodes: those that come into question, the best first.
        avoided: devices that failed this claim before; others are tried first.
    """

    driver: str
    claim: demands.Claim
    classes: Mapping[str, demands.DeviceClass]
    inventory: matching.Inventory
    nodes: tuple[str, ...]
    avoided: frozenset[names.DeviceKey] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocate:
    """Write this allocation."""

    allocation: claims.Allocation
    node: str
    devices: tuple[names.DeviceKey, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeBack:
    """Clear the claim's allocation: it came to nothing."""

    reason: str
    message: str
    node: str
    devices: tuple[names.DeviceKey, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Nothing can be given until something changes."""

    reason: str
    message: str


Action = Allocate | TakeBack | Wait

_Ways = tuple[tuple[str, demands.Way], ...]


def plan(observed: Observed, judge: matching.Judge, now: datetime.datetime) -> Allocate | Wait:
    """The allocation of a claim that has none, or why there can be none now."""
    wanted = observed.claim.spec.devices
    problem = unsupported(wanted) or _without_class(wanted, observed.classes)
    if problem is not None:
        return problem
    fresh = _without(observed.inventory, observed.avoided) if observed.avoided else None
    for inventory in (one for one in (fresh, observed.inventory) if one is not None):
        left = matching.Stock(inventory, judge)
        for ways in _combinations(wanted):
            search = matching.Search(left, _asked(ways, observed.classes))
            for node in observed.nodes:
                given = search.on(node)
                if given is not None:
                    found = _allocate(observed, ways, given, node, now)
                    return _misled(found.allocation, observed.driver) or found
    return Wait(reason=NOTHING_RESERVED, message=_why_not(observed))


def review(claim: claims.ResourceClaim, driver: str, *, node_gone: bool) -> TakeBack | None:
    """Whether an allocation of ours is to be taken back."""
    allocation = claim.status.allocation
    if allocation is None or claims.SCHEDULED in claim.metadata.finalizers or claim.status.reserved_for:
        return None
    results = claim.results(driver)
    devices = tuple(names.DeviceKey(fabric=names.fabric_of(one.pool), device=one.device) for one in results)
    node = allocation.node or ""
    if not results or len(results) != len(allocation.devices.results):
        return None
    failures = {
        bindings.condition_type(driver, one) for one in (bindings.ATTACH_FAILED, bindings.NODE_FAILED)
    }
    for result in results:
        for condition in claim.conditions(result):
            if condition.type in failures and condition.is_true:
                message = f"{result.pool}/{result.device} on node {node}: {condition.message}"
                return TakeBack(reason=FAILED, message=message, node=node, devices=devices)
    if node_gone:
        message = f"node {node} is gone, and no pod uses the claim"
        return TakeBack(reason=NODE_GONE, message=message, node=node, devices=devices)
    return None


def unsupported(wanted: demands.Devices) -> Wait | None:
    """What only the scheduler can do; None where there is nothing of that."""
    found = "it asks for no device" if not wanted.requests else ""
    if wanted.constraints:
        found = "it has constraints"
    for request in wanted.requests:
        for name, way in request.ways():
            if way.allocation_mode != "ExactCount":
                found = f"request {name} has the allocationMode {way.allocation_mode}"
            elif way.admin_access:
                found = f"request {name} asks for admin access"
            elif way.capacity:
                found = f"request {name} asks for a capacity"
    if not found:
        return None
    return Wait(reason=UNSUPPORTED, message=f"the claim cannot be allocated at once: {found}")


def class_names(wanted: demands.Devices) -> frozenset[str]:
    """The DeviceClasses that must be known."""
    return frozenset(way.device_class_name for request in wanted.requests for _, way in request.ways())


def _without_class(wanted: demands.Devices, known: Collection[str]) -> Wait | None:
    missing = sorted(class_names(wanted) - set(known))
    if not missing:
        return None
    return Wait(reason=NO_CLASS, message=f"there is no DeviceClass {', '.join(missing)}")


def _combinations(wanted: demands.Devices) -> Iterator[_Ways]:
    """Ways to meet all requests, the first alternatives first."""
    return itertools.islice(
        itertools.product(*(request.ways() for request in wanted.requests)), COMBINATIONS_MAX
    )


def _asked(ways: _Ways, classes: Mapping[str, demands.DeviceClass]) -> tuple[matching.Request, ...]:
    return tuple(
        matching.Request(
            name=name,
            count=way.count,
            selectors=demands.expressions((*classes[way.device_class_name].spec.selectors, *way.selectors)),
        )
        for name, way in ways
    )


def _without(inventory: matching.Inventory, avoided: frozenset[names.DeviceKey]) -> matching.Inventory:
    left = {key: device for key, device in inventory.devices.items() if key not in avoided}
    return dataclasses.replace(inventory, devices=left)


def _allocate(
    observed: Observed, ways: _Ways, given: matching.Given, node: str, now: datetime.datetime
) -> Allocate:
    results = tuple(
        claims.AllocationResult(
            request=name,
            driver=observed.driver,
            pool=observed.inventory.devices[key].pool,
            device=key.device,
            binding_conditions=bindings.binding_conditions(observed.driver),
            binding_failure_conditions=bindings.failure_conditions(observed.driver),
        )
        for (name, _), keys in zip(ways, given, strict=True)
        for key in keys
    )
    allocation = claims.Allocation(
        devices=claims.DeviceAllocation(results=results, config=_configuration(observed, ways)),
        node_selector=claims.one_node(node),
        allocation_timestamp=meta.timestamp(now),
    )
    return Allocate(allocation=allocation, node=node, devices=tuple(key for keys in given for key in keys))


def _misled(allocation: claims.Allocation, driver: str) -> Wait | None:
    """Why its devices would never be of use; None where nothing is wrong with its opaque parameters."""
    _, unfit = configurations.judged(allocation, driver)
    if unfit is None:
        return None
    return Wait(reason=unfit.reason, message=f"the claim is not allocated at once: {unfit.message}")


def _configuration(observed: Observed, ways: _Ways) -> tuple[claims.AllocatedConfiguration, ...]:
    """The classes' parameters, each for the request that named the class, and then the claim's own."""
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


def _why_not(observed: Observed) -> str:
    wish = observed.claim.metadata.annotations.get(claims.NODE_ANNOTATION)
    if not observed.nodes:
        where = f"node {wish} is not" if wish else "no node is"
        return f"{where} reached by a Fabric with reserved devices and a free port"
    free = sum(one.free for one in observed.inventory.devices.values())
    where = f" for node {wish}" if wish else ""
    return (
        f"none of the {free} free devices that are reserved for immediate allocation (policy.immediate of a Fabric) fits"
        f"{where}; waiting"
    )
