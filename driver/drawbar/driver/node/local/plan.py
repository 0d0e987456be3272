"""What should be published of a node's own devices and how to get there, decided purely.

Invariants:

- one slice per pool and at most 64 devices in it (any taint halves the API's limit of 128), so a taint is one write in
  place, no generation changes, and no pool is ever incomplete;
- a device never changes its pool while it is published or remembered, wherever others come and go: a claim names both;
- a taint keeps its `timeAdded` while it stays the same, also across a wipe by the kubelet: tolerations count from it;
- where the API server does not keep taints, a device that others should be kept from is not published at all;
- slices of pools that are not this node's are never touched.

Source: `resource.k8s.io/v1` ResourceSlice; KEP-5055 for taints.
"""

import datetime
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from drawbar.driver.api import meta, nodepools, slices
from drawbar.driver.node.health import verdicts
from drawbar.driver.node.local import naming

DEVICES_MAX = 64
TAINTS_MAX = 16  # of one device
SHARING = "allowMultipleAllocations"
KEEPS_AWAY = frozenset({verdicts.Effect.NO_SCHEDULE.value, verdicts.Effect.NO_EXECUTE.value})


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A device as it should be published.

    Attributes:
        device: without taints.
        taints: what its health asks for, worst first; None while that is not known, and what is published stands.
        pool: where it must be, if a claim holds it there.
        has_health: whether it can be ill, so that its health is watched.
    """

    device: slices.Device
    taints: tuple[verdicts.Taint, ...] | None = ()
    pool: str = ""
    has_health: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Everything the decision rests on.

    Attributes:
        owner: the Node object, which the slices go with.
        offers: names are unique.
        published: the slices of this driver and node, of whatever pool.
        remembered: what was published before, as far as it is known: slices that were wiped since.
        keeps_taints: whether this API server keeps taints of devices.
        informs: whether it takes taints of effect None; one that does not know that effect refuses the whole slice.
    """

    driver: str
    node_name: str
    owner: meta.OwnerReference
    offers: tuple[Offer, ...] = ()
    published: tuple[slices.ResourceSlice, ...] = ()
    remembered: tuple[slices.ResourceSlice, ...] = field(default=())
    keeps_taints: bool = True
    informs: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    """Publish a new pool."""

    slice: slices.ResourceSlice


@dataclass(frozen=True, slots=True, kw_only=True)
class Replace:
    """Publish a pool anew, in place."""

    slice: slices.ResourceSlice


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """Withdraw a pool."""

    slice: slices.ResourceSlice


Action = Create | Replace | Delete


def plan(observed: Observed, now: datetime.datetime) -> tuple[Action, ...]:
    """The writes that publish what should be; no write where it is published already.

    What is obsolete goes first: the same device in two pools could be given out twice.
    """
    ours = [
        found for found in observed.published if nodepools.is_pool(found.spec.pool.name, observed.node_name)
    ]
    actual = _actual(observed, ours)
    desired = _desired(observed, tuple(actual.values()), now)
    removals = [
        Delete(slice=found)
        for found in ours
        if found.spec.pool.name not in desired or found is not actual[found.spec.pool.name]
    ]
    changes: list[Create | Replace] = []
    for pool, devices in sorted(desired.items()):
        known = actual.get(pool)
        fresh = _slice(observed, pool, devices, known)
        if known is None:
            changes.append(Create(slice=fresh))
        elif known != fresh:
            changes.append(Replace(slice=fresh))
    changes.sort(key=lambda change: not _drops_devices(change, actual))
    return (*removals, *changes)


def keys(observed: Observed) -> frozenset[verdicts.Key]:
    """Every offer that has a health by the name and pool that it has or would have, published or not."""
    watched = {offer.device.name for offer in observed.offers if offer.has_health}
    return frozenset(
        verdicts.Key(pool=pool, device=name)
        for name, pool in homes(observed, observed.published).items()
        if name in watched
    )


def homes(observed: Observed, published: Iterable[slices.ResourceSlice]) -> dict[str, str]:
    """The pool of each offer by its name: where a claim has it, where it is or was published, else the first with room."""
    known = {
        device.name: found.spec.pool.name
        for found in (*observed.remembered, *published)
        if nodepools.is_pool(found.spec.pool.name, observed.node_name)
        for device in found.spec.devices
    }
    chosen: dict[str, str] = {}
    filled: dict[str, int] = {}

    def settle(name: str, pool: str) -> None:
        chosen[name] = pool
        filled[pool] = filled.get(pool, 0) + 1

    ordered = sorted(observed.offers, key=lambda offer: (not offer.pool, offer.device.name))
    for offer in ordered:
        pool = offer.pool or known.get(offer.device.name, "")
        if pool and (offer.pool or filled.get(pool, 0) < DEVICES_MAX):
            settle(offer.device.name, pool)
    for offer in ordered:
        number = 0
        while filled.get(nodepools.pool(observed.node_name, number), 0) >= DEVICES_MAX:
            number += 1
        if offer.device.name not in chosen:
            settle(offer.device.name, nodepools.pool(observed.node_name, number))
    return chosen


def informs(wanted: slices.ResourceSlice) -> bool:
    """Whether a taint of effect None is in it."""
    return any(taint.effect not in KEEPS_AWAY for one in wanted.spec.devices for taint in one.taints)


def missing(wanted: slices.ResourceSlice, stored: slices.ResourceSlice) -> tuple[str, ...]:
    """The fields that were sent and did not come back."""
    kept = {device.name: device for device in stored.spec.devices}
    lost = set()
    for device in wanted.spec.devices:
        found = kept.get(device.name)
        if found is None:
            lost.add("devices")
            continue
        if device.taints and not found.taints:
            lost.add("taints")
        if found.attributes != device.attributes:
            lost.add("attributes")
        if found.capacity != device.capacity:
            lost.add("capacity")
        if device.allow_multiple_allocations and not found.allow_multiple_allocations:
            lost.add(SHARING)
    return tuple(sorted(lost))


def _actual(observed: Observed, ours: list[slices.ResourceSlice]) -> Mapping[str, slices.ResourceSlice]:
    """Each pool's slice; of several, which make the pool invalid, the one of the name that the pool gives it."""
    found: dict[str, slices.ResourceSlice] = {}
    for one in sorted(ours, key=lambda one: one.metadata.name):
        pool = one.spec.pool.name
        if pool not in found or one.metadata.name == naming.resource_slice(observed.driver, pool):
            found[pool] = one
    return found


def _desired(
    observed: Observed, published: tuple[slices.ResourceSlice, ...], now: datetime.datetime
) -> dict[str, list[slices.Device]]:
    before = {
        device.name: device.taints
        for found in (*observed.remembered, *published)
        for device in found.spec.devices
    }
    places = homes(observed, published)
    desired: dict[str, list[slices.Device]] = {}
    for offer in sorted(observed.offers, key=lambda offer: offer.device.name):
        name = offer.device.name
        taints = _taints(observed, offer, before.get(name, ()), now)
        if not observed.keeps_taints and any(taint.effect in KEEPS_AWAY for taint in taints):
            continue
        taints = tuple(taint for taint in taints if _is_taken(observed, taint))
        desired.setdefault(places[name], []).append(msgspec.structs.replace(offer.device, taints=taints))
    return desired


def _is_taken(observed: Observed, taint: slices.Taint) -> bool:
    return observed.keeps_taints and (observed.informs or taint.effect in KEEPS_AWAY)


def _taints(
    observed: Observed, offer: Offer, before: tuple[slices.Taint, ...], now: datetime.datetime
) -> tuple[slices.Taint, ...]:
    if offer.taints is None:
        return before
    since = {taint.identity: taint.time_added for taint in before}
    found = []
    for one in offer.taints[:TAINTS_MAX]:
        taint = slices.Taint(key=f"{observed.driver}/{one.key}", value=one.value, effect=one.effect.value)
        added = since.get(taint.identity) or meta.timestamp(now)
        found.append(msgspec.structs.replace(taint, time_added=added))
    return tuple(found)


def _slice(
    observed: Observed, pool: str, devices: list[slices.Device], known: slices.ResourceSlice | None
) -> slices.ResourceSlice:
    spec = slices.SliceSpec(
        driver=observed.driver,
        pool=slices.Pool(
            name=pool, generation=known.spec.pool.generation if known else 1, resource_slice_count=1
        ),
        node_name=observed.node_name,
        devices=tuple(devices),
    )
    owners = (observed.owner,)
    if known is not None:
        return slices.ResourceSlice(
            metadata=msgspec.structs.replace(known.metadata, owner_references=owners), spec=spec
        )
    name = naming.resource_slice(observed.driver, pool)
    return slices.ResourceSlice(metadata=meta.ObjectMeta(name=name, owner_references=owners), spec=spec)


def _drops_devices(change: Create | Replace, actual: Mapping[str, slices.ResourceSlice]) -> bool:
    known = actual.get(change.slice.spec.pool.name)
    kept = {device.name for device in change.slice.spec.devices}
    return known is not None and any(device.name not in kept for device in known.spec.devices)
