"""Claims by their fabric devices, kept current from the watch of all claims.

Only results with our binding condition count. The node daemons publish their nodes' own devices under the same driver
name, and the controller does not attach those. The API has no selector for claims, so all are watched; this index holds
only ours.
"""

import datetime
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TypeVar

import msgspec

from drawbar.driver import sightings
from drawbar.driver.api import attachments, bindings, claims, configurations, meta, parameters, references
from drawbar.driver.catalogue import reasons
from drawbar.driver.controller import names
from drawbar.driver.controller.offers import memory_chunk
from drawbar.fabric import contract

# Nothing distinguishes this allocation from the claim's next one. The scheduler adds a timestamp when it reserves the
# claim for a pod, but the API server refuses it (`status.allocation: field is immutable`, 1.36).
NO_TIMESTAMP = attachments.Failure(
    reason=reasons.NO_ALLOCATION_TIMESTAMP,
    message=(
        "the claim was allocated without status.allocation.allocationTimestamp, so no scheduler can bind a pod to it; "
        "its allocator must set the timestamp, or leave the claim to the scheduler"
    ),
)
ClaimKey = tuple[str, str]
K = TypeVar("K")
Clock = Callable[[], datetime.datetime]


class FirstSeen(msgspec.Struct, frozen=True, kw_only=True):
    """The times when this process first saw the claim's allocation and its failure.

    `failed` is None if it did not fail, or if a pod may be using the claim because it had been ready.
    """

    allocated: datetime.datetime
    failed: datetime.datetime | None = None


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """An allocation that names this device.

    Attributes:
        host_id: the fabric's id of the node's host; None if the node is not on the fabric.
        pool: the device's DRA pool at the allocation.
        allocation_timestamp: the allocation's own time, by another machine's clock.
        seen_at: the time when this process first saw the allocation.
        attach_reported: whether the claim's status already has the device attached.
        failure_reported: whether the claim's status already has the failure.
        visible_reported: whether the claim's status already has the device ready on its node.
        failed_at: the time when this process first saw the failure; None if a pod may be using the claim.
        failure: the reason why the claim's parameters are invalid, if they are.
        patience: the time from the allocation to the end of the attach; None if the DeviceClass sets none.
        share: the share, if the claim has a share of a device.
    """

    claim: attachments.ClaimReference
    node: str
    host_id: str | None
    pool: str
    allocation_timestamp: str | None
    seen_at: datetime.datetime
    attach_reported: bool
    failure_reported: bool
    visible_reported: bool = False
    failed_at: datetime.datetime | None = None
    failure: attachments.Failure | None = None
    patience: datetime.timedelta | None = None
    share: attachments.Share | None = None


def devices(
    claim: claims.ResourceClaim | None, driver: str
) -> dict[names.DeviceKey, claims.AllocationResult]:
    """Return the claim's fabric devices."""
    attached = bindings.condition_type(driver, bindings.ATTACHED)
    return _devices(claim, driver, lambda result: attached in result.binding_conditions)


def list_observed_devices(
    claim: claims.ResourceClaim | None, driver: str
) -> dict[names.DeviceKey, claims.AllocationResult]:
    """Return the fabric devices that the claim has admin access to."""
    if claim is None or claim.status.allocation is None:
        return {}
    wanted = bindings.condition_type(driver, bindings.ATTACHED)
    return {
        names.DeviceKey(fabric=names.fabric_of(result.pool), device=result.device): result
        for result in claim.status.allocation.devices.results
        if result.driver == driver and result.admin_access and wanted in result.binding_conditions
    }


def remove_conditions(
    claim: claims.ResourceClaim | None, driver: str
) -> dict[names.DeviceKey, claims.AllocationResult]:
    """Return the claim's devices without binding conditions, except those of its node's own pool."""
    allocation = claim.status.allocation if claim is not None else None
    if allocation is None:
        return {}
    node = allocation.node
    return _devices(
        claim,
        driver,
        lambda result: not result.binding_conditions and names.fabric_of(result.pool) != node,
    )


def key_of(result: claims.AllocationResult) -> names.DeviceKey:
    """Return the device of a result; a share of a device is a device of its own."""
    device = result.device if result.share_id is None else names.share(result.share_id)
    return names.DeviceKey(fabric=names.fabric_of(result.pool), device=device)


def _devices(
    claim: claims.ResourceClaim | None, driver: str, counts: Callable[[claims.AllocationResult], bool]
) -> dict[names.DeviceKey, claims.AllocationResult]:
    if claim is None or claim.status.allocation is None:
        return {}
    return {key_of(result): result for result in claim.results(driver) if counts(result)}


def is_ready(claim: claims.ResourceClaim, driver: str) -> bool:
    """Return whether all of the claim's fabric devices are attached and visible."""
    return all(
        meta.is_true(claim.conditions(result), condition)
        for result in devices(claim, driver).values()
        for condition in bindings.binding_conditions(driver)
    )


def has_failed(claim: claims.ResourceClaim, driver: str) -> bool:
    """Return whether the claim's status shows a failed attach of one of its fabric devices."""
    failed = bindings.condition_type(driver, bindings.ATTACH_FAILED)
    return bool(claim.status.devices) and any(
        meta.is_true(claim.conditions(result), failed) for result in devices(claim, driver).values()
    )


ResultByDevice = dict[names.DeviceKey, claims.AllocationResult]
DevicesOf = Callable[[claims.ResourceClaim | None, str], ResultByDevice]


class Index:
    """Claims by their devices, or by the devices that another function finds in them."""

    def __init__(self, driver: str, clock: Clock, *, devices: DevicesOf = devices) -> None:
        self._driver = driver
        self._clock = clock
        self._devices = devices
        self._allocated: sightings.Sightings[ClaimKey] = sightings.Sightings()
        self._failed: sightings.Sightings[ClaimKey] = sightings.Sightings()
        self._claims: dict[names.DeviceKey, dict[ClaimKey, claims.ResourceClaim]] = {}
        self._by_pod: dict[str, dict[ClaimKey, claims.ResourceClaim]] = {}
        # By fabric and device.
        self._pools: dict[str, dict[str, str]] = {}

    def change(
        self, old: claims.ResourceClaim | None, new: claims.ResourceClaim | None
    ) -> tuple[ResultByDevice, ResultByDevice]:
        """Take in a change; return the claim's devices before and after it."""
        before, after = self._devices(old, self._driver), self._devices(new, self._driver)
        old, new = old if before else None, new if after else None
        _move(self._claims, old, new, before, after)
        _move(self._by_pod, old, new, _pods(old), _pods(new))
        self._see(old, new)
        for key in before | after:
            if key not in before or key not in after or before[key].pool != after[key].pool:
                self._note_pool(key)
        return before, after

    def _note_pool(self, key: names.DeviceKey) -> None:
        found, pools = self.find_claims(key), self._pools.setdefault(key.fabric, {})
        if found:
            pools[key.device] = self._devices(found[0], self._driver)[key].pool
        else:
            pools.pop(key.device, None)
            if not pools:
                del self._pools[key.fabric]

    def _see(self, old: claims.ResourceClaim | None, new: claims.ResourceClaim | None) -> None:
        claim = new or old
        if claim is None:
            return
        key, now = (claim.metadata.namespace, claim.metadata.name), self._clock()
        allocation = new.status.allocation if new is not None else None
        state = (
            (claim.metadata.uid, allocation.allocation_timestamp, allocation.node)
            if allocation is not None
            else None
        )
        self._allocated.see(key, state, now)
        failed = (
            new is not None
            and has_failed(new, self._driver)
            and (self._failed.has(key, state) or not is_ready(new, self._driver))
        )
        self._failed.see(key, state if failed else None, now)

    def find_first_seen(self, claim: claims.ResourceClaim) -> FirstSeen:
        """Return when the claim's allocation and its failure were first seen; for a claim outside the index, now."""
        key = claim.metadata.namespace, claim.metadata.name
        return FirstSeen(
            allocated=self._allocated.since(key) or self._clock(),
            failed=self._failed.since(key),
        )

    def __iter__(self) -> Iterator[claims.ResourceClaim]:
        """Return an iterator over the claims, each once per device."""
        return iter([claim for by_key in self._claims.values() for claim in by_key.values()])

    def devices(self) -> Iterator[names.DeviceKey]:
        """Return all devices with a claim."""
        return iter(tuple(self._claims))

    def pools(self, fabric: str) -> Mapping[str, str]:
        """Return, by name of the fabric's devices with a claim, the pool in the oldest allocation."""
        return self._pools.get(fabric, {})

    def find_claims(self, key: names.DeviceKey) -> tuple[claims.ResourceClaim, ...]:
        """Return the claims with this device, the oldest allocation first."""
        return tuple(sorted(self._claims.get(key, {}).values(), key=_age))

    def find_affected_claims(self, claim: claims.ResourceClaim) -> tuple[claims.ResourceClaim, ...]:
        """Return the claims that must show a failure of this one, this one last.

        The scheduler stops at the first claim of a pod that is not ready. So all claims that some pod uses together
        with this one show the failure, unless they are ready. A ready claim hides nothing, and other pods may be
        running with it. There a failure would last until the last of them ends, and refuse every further pod.
        """
        mine = (claim.metadata.namespace, claim.metadata.name)
        waiting = {
            name: other
            for uid in sorted(_pods(claim))
            for name, other in self._by_pod.get(uid, {}).items()
            if name != mine and not is_ready(other, self._driver)
        }
        return (*waiting.values(), claim)


def demand(
    claim: claims.ResourceClaim,
    driver: str,
    key: names.DeviceKey,
    host_id: str | None,
    seen: FirstSeen,
    *,
    origin: Callable[[str], contract.Device | None] = lambda _name: None,
) -> Demand | None:
    """Return a claim's demand for this device, or None if its allocation names no single node.

    Args:
        claim: the claim with the device.
        driver: the DRA driver's name.
        key: the device's key.
        host_id: the fabric's id of the node's host; None if the node is not on the fabric.
        seen: the times when the allocation and its failure were first seen.
        origin: returns the device of which this may be a share.
    """
    allocation = claim.status.allocation
    result = devices(claim, driver).get(key)
    if allocation is None or result is None or allocation.node is None:
        return None
    where = bindings.Key.from_result(result)
    asked, failure = configurations.try_by_device(allocation, driver)
    device_parameters = asked.get(where, parameters.NOTHING)
    seconds = device_parameters.attach_timeout_seconds
    share = None
    if result.share_id is not None:
        try:
            share = memory_chunk.read_share(result, result.share_id, origin(result.device))
        except memory_chunk.CannotCarve as error:
            failure = attachments.Failure(reason=reasons.INVALID_PARAMETERS, message=str(error))
    if allocation.allocation_timestamp is None:
        failure = NO_TIMESTAMP
    return Demand(
        claim=references.make_reference(claim, driver, where, device_parameters),
        node=allocation.node,
        host_id=host_id,
        pool=result.pool,
        allocation_timestamp=allocation.allocation_timestamp,
        seen_at=seen.allocated,
        attach_reported=bindings.is_true(claim, driver, where, bindings.ATTACHED),
        failure_reported=bindings.is_true(claim, driver, where, bindings.ATTACH_FAILED),
        visible_reported=bindings.is_true(claim, driver, where, bindings.VISIBLE),
        failed_at=seen.failed,
        failure=failure,
        patience=None if seconds is None else datetime.timedelta(seconds=seconds),
        share=share,
    )


def _move(
    index: dict[K, dict[ClaimKey, claims.ResourceClaim]],
    old: claims.ResourceClaim | None,
    new: claims.ResourceClaim | None,
    before: Iterable[K],
    after: Collection[K],
) -> None:
    """Move a claim from its earlier entries to its present ones."""
    if old is not None:
        for key in before:
            index[key].pop((old.metadata.namespace, old.metadata.name), None)
            if not index[key] and key not in after:
                del index[key]
    if new is not None:
        for key in after:
            index.setdefault(key, {})[new.metadata.namespace, new.metadata.name] = new


def _pods(claim: claims.ResourceClaim | None) -> set[str]:
    """Return the UIDs of the pods that may use the claim."""
    consumers = claim.status.reserved_for if claim is not None else ()
    return {consumer.uid for consumer in consumers if consumer.resource == "pods"}


def _age(claim: claims.ResourceClaim) -> tuple[str, str]:
    allocation = claim.status.allocation
    return (allocation.allocation_timestamp or "" if allocation else "", claim.metadata.uid)
