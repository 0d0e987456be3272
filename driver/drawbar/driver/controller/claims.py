"""Which claims want which fabric device, kept current from the watch of all claims.

Only results count that carry our binding condition: devices that node daemons publish from their own nodes are
under the same driver and none of the controller's business. The API has no selector for claims, so all are watched
and this index holds only ours.
"""

import datetime
from collections.abc import Callable, Iterator

from drawbar.driver.api import attachments, bindings, claims, configurations, meta, parameters
from drawbar.driver.controller import names
from drawbar.driver.controller.attachments import actions

ClaimKey = tuple[str, str]


def devices(
    claim: claims.ResourceClaim | None, driver: str
) -> dict[names.DeviceKey, claims.AllocationResult]:
    """The fabric devices that a claim has been given."""
    if claim is None:
        return {}
    wanted = bindings.condition_type(driver, bindings.ATTACHED)
    return {
        names.DeviceKey(fabric=names.fabric_of(result.pool), device=result.device): result
        for result in claim.results(driver)
        if wanted in result.binding_conditions
    }


def is_ready(claim: claims.ResourceClaim, driver: str) -> bool:
    """Whether all fabric devices that it has been given are attached and visible."""
    return all(
        meta.is_true(claim.conditions(result), condition)
        for result in devices(claim, driver).values()
        for condition in bindings.binding_conditions(driver)
    )


DevicesOf = Callable[[claims.ResourceClaim | None, str], dict[names.DeviceKey, claims.AllocationResult]]


class Index:
    """Claims by the device that they were given, or by those that another function finds in them."""

    def __init__(self, driver: str, *, devices: DevicesOf = devices) -> None:
        self._driver = driver
        self._devices = devices
        self._claims: dict[names.DeviceKey, dict[ClaimKey, claims.ResourceClaim]] = {}
        self._by_pod: dict[str, dict[ClaimKey, claims.ResourceClaim]] = {}

    def change(
        self, old: claims.ResourceClaim | None, new: claims.ResourceClaim | None
    ) -> tuple[names.DeviceKey, ...]:
        """Takes over a change and gives the devices that it may concern."""
        before, after = self._devices(old, self._driver), self._devices(new, self._driver)
        for key in before.keys() - after.keys():
            assert old is not None
            known = self._claims.get(key, {})
            known.pop((old.metadata.namespace, old.metadata.name), None)
            if not known:
                self._claims.pop(key, None)
        for key in after:
            assert new is not None
            self._claims.setdefault(key, {})[new.metadata.namespace, new.metadata.name] = new
        self._change_pods(old if before else None, new if after else None)
        return tuple(before | after)

    def _change_pods(self, old: claims.ResourceClaim | None, new: claims.ResourceClaim | None) -> None:
        for uid in _pods(old) - _pods(new):
            assert old is not None
            known = self._by_pod.get(uid, {})
            known.pop((old.metadata.namespace, old.metadata.name), None)
            if not known:
                self._by_pod.pop(uid, None)
        for uid in _pods(new):
            assert new is not None
            self._by_pod.setdefault(uid, {})[new.metadata.namespace, new.metadata.name] = new

    def __iter__(self) -> Iterator[claims.ResourceClaim]:
        """Each claim once per device that it was given."""
        return iter([claim for known in self._claims.values() for claim in known.values()])

    def keys(self) -> Iterator[names.DeviceKey]:
        """All devices that some claim was given."""
        return iter(tuple(self._claims))

    def of(self, key: names.DeviceKey) -> tuple[claims.ResourceClaim, ...]:
        """The claims that were given this device, the oldest allocation first."""
        found = self._claims.get(key, {}).values()
        return tuple(sorted(found, key=_age))

    def failed_with(self, claim: claims.ResourceClaim) -> tuple[claims.ResourceClaim, ...]:
        """The claims on which a failure of this one must stand, this one last.

        The scheduler stops at the first claim of a pod that is not ready, so the failure stands on all of those that some
        pod uses together with this one. One that is ready hides nothing, and other pods may be running with it: there a
        failure would stand until the last of them ends, and refuse every further pod.
        """
        mine = (claim.metadata.namespace, claim.metadata.name)
        others = {
            name: other
            for uid in sorted(_pods(claim))
            for name, other in self._by_pod.get(uid, {}).items()
            if name != mine and not is_ready(other, self._driver)
        }
        return (*others.values(), claim)


def wish(
    claim: claims.ResourceClaim, driver: str, key: names.DeviceKey, host_id: str | None
) -> actions.Wish | None:
    """What a claim asks for this device; None if its allocation names no single node."""
    allocation = claim.status.allocation
    result = devices(claim, driver).get(key)
    if allocation is None or result is None or allocation.node is None:
        return None
    where = bindings.Key(pool=result.pool, device=result.device)
    allocated_at = allocation.moment
    if allocated_at is None:
        return None
    said, unfit = configurations.judged(allocation, driver)
    return actions.Wish(
        claim=_reference(claim, driver, where),
        node=allocation.node,
        host_id=host_id,
        pool=result.pool,
        allocation_timestamp=allocation.allocation_timestamp,
        allocated_at=allocated_at,
        attached_said=bindings.said(claim, driver, where, bindings.ATTACHED),
        failed_said=bindings.said(claim, driver, where, bindings.ATTACH_FAILED),
        unfit=unfit,
        patience=_patience(said.get(where, parameters.NOTHING)),
    )


def _patience(said: parameters.DeviceParameters) -> datetime.timedelta | None:
    seconds = said.attach_timeout_seconds
    return None if seconds is None else datetime.timedelta(seconds=seconds)


def _reference(claim: claims.ResourceClaim, driver: str, where: bindings.Key) -> attachments.ClaimReference:
    requests: dict[tuple[str, str], set[str]] = {}
    allocation = claim.status.allocation
    # Only the claim itself tells of admin access, of shares and of parameters.
    plain = (
        not configurations.speaks(allocation, driver)
        and allocation is not None
        and not any(
            result.admin_access or result.share_id
            for result in allocation.devices.results
            if result.driver == driver
        )
    )
    for result in claim.results(driver):
        # A request of a prioritised list is named request/subrequest; the kubelet knows the request.
        requests.setdefault((result.pool, result.device), set()).add(result.request.split("/", 1)[0])
    return attachments.ClaimReference(
        namespace=claim.metadata.namespace,
        name=claim.metadata.name,
        uid=claim.metadata.uid,
        requests=tuple(sorted(requests.get((where.pool, where.device), ()))),
        devices=len(requests) if plain else 0,
    )


def node_of(claim: claims.ResourceClaim) -> str | None:
    """The node that the claim's devices are bound to."""
    return claim.status.allocation.node if claim.status.allocation else None


def _pods(claim: claims.ResourceClaim | None) -> set[str]:
    """Uids of the pods that may use the claim."""
    consumers = claim.status.reserved_for if claim is not None else ()
    return {consumer.uid for consumer in consumers if consumer.resource == "pods"}


def _age(claim: claims.ResourceClaim) -> tuple[str, str]:
    allocation = claim.status.allocation
    return (allocation.allocation_timestamp or "" if allocation else "", claim.metadata.uid)
