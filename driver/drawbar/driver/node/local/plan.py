"""The writes that publish a node's own devices; pure.

Invariants, beside those of `slices.plan`:

- one slice per pool, so a taint is one write in place, no generation changes, and no pool is ever incomplete;
- a device never changes its pool while it is published or remembered, wherever others come and go: a claim names both;
- a taint keeps its `timeAdded` while it stays the same, also across a wipe by the kubelet: tolerations count from it;
- a pool without a device is published only while devices are left to other components, which its annotation names;
- where the API server does not keep taints, a device that others should be kept from is not published at all;
- slices of pools that are not this node's are never touched.

Source: `resource.k8s.io/v1` ResourceSlice; KEP-5055 for taints.
"""

import datetime
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from drawbar.driver.api import leftout, meta, nodepools, slices
from drawbar.driver.node.health import verdicts
from drawbar.driver.node.local import residents
from drawbar.driver.slices import encoding
from drawbar.driver.slices import plan as slice_plan


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
    """The input of the plan.

    Attributes:
        owner: the Node object, which the slices go with.
        offers: names are unique.
        published: the slices of this driver and node, of whatever pool.
        remembered: what was published before, as far as it is known: slices that were wiped since.
        keeps_taints: whether this API server keeps taints of devices.
        informs: whether it takes taints of effect None; one without that effect refuses the whole slice.
        left_out: the devices that are left to other components, for the annotation of the node's first slice.
        keeps_conditions: whether it keeps binding conditions of devices. Without them a pod waits on its node until its device is
            ready.
    """

    driver: str
    node_name: str
    owner: meta.OwnerReference
    offers: tuple[Offer, ...] = ()
    published: tuple[slices.ResourceSlice, ...] = ()
    remembered: tuple[slices.ResourceSlice, ...] = field(default=())
    keeps_taints: bool = True
    informs: bool = True
    left_out: tuple[leftout.LeftOut, ...] = ()
    keeps_conditions: bool = True


def plan(observed: Observed, now: datetime.datetime) -> tuple[slice_plan.Write, ...]:
    """Return the writes that publish what should be."""
    ours = [each for each in observed.published if nodepools.is_pool(each.spec.pool.name, observed.node_name)]
    actual = _actual(observed, ours)
    form = encoding.Encoding.PER_DEVICE if observed.keeps_taints else encoding.Encoding.WITHDRAWN
    pools = []
    first, note = nodepools.pool(observed.node_name), leftout.encode(observed.left_out)
    desired = _desired(observed, tuple(actual.values()), now)
    if note:
        # Also without a device of its own, the pool shows what is left to others.
        desired.setdefault(first, [])
    for pool, devices in desired.items():
        content = encoding.encode(form, devices, informs=observed.informs)
        if content.devices or (note and pool == first):
            published_slice = actual.get(pool)
            pools.append(
                slice_plan.Pool(
                    name=pool,
                    slice_name=published_slice.metadata.name
                    if published_slice
                    else residents.resource_slice(observed.driver, pool),
                    driver=observed.driver,
                    content=content,
                    node_name=observed.node_name,
                    owners=(observed.owner,),
                    annotations={leftout.ANNOTATION: note if pool == first else ""},
                )
            )
    return slice_plan.writes(pools, ours)


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
    pools = {
        device.name: listed.spec.pool.name
        for listed in (*observed.remembered, *published)
        if nodepools.is_pool(listed.spec.pool.name, observed.node_name)
        for device in listed.spec.devices
    }
    chosen = {offer.device.name: offer.pool for offer in observed.offers if offer.pool}
    filled = Counter(chosen.values())
    for name in sorted(offer.device.name for offer in observed.offers if not offer.pool):
        pool = pools.get(name)
        if pool is not None and filled[pool] < slice_plan.DEVICES_MAX:
            chosen[name] = pool
            filled[pool] += 1
    first = {offer.device.name: nodepools.pool(observed.node_name) for offer in observed.offers}
    return slice_plan.place(chosen, first, filled)


def _actual(observed: Observed, ours: list[slices.ResourceSlice]) -> Mapping[str, slices.ResourceSlice]:
    """Each pool's slice; of several, which make the pool invalid, the one of the name that the pool gives it."""
    by_pool: dict[str, slices.ResourceSlice] = {}
    for listed in sorted(ours, key=lambda listed: listed.metadata.name):
        pool = listed.spec.pool.name
        if pool not in by_pool or listed.metadata.name == residents.resource_slice(observed.driver, pool):
            by_pool[pool] = listed
    return by_pool


def _desired(
    observed: Observed, published: tuple[slices.ResourceSlice, ...], now: datetime.datetime
) -> dict[str, list[slices.Device]]:
    before = {
        device.name: device.taints
        for listed in (*observed.remembered, *published)
        for device in listed.spec.devices
    }
    places = homes(observed, published)
    desired: dict[str, list[slices.Device]] = {}
    for offer in sorted(observed.offers, key=lambda offer: offer.device.name):
        name = offer.device.name
        taints = _taints(observed.driver, offer, before.get(name, ()), now)
        device = offer.device if observed.keeps_conditions else _without_conditions(offer.device)
        desired.setdefault(places[name], []).append(msgspec.structs.replace(device, taints=taints))
    return desired


def _without_conditions(device: slices.Device) -> slices.Device:
    return msgspec.structs.replace(
        device, binds_to_node=None, binding_conditions=(), binding_failure_conditions=()
    )


def _taints(
    driver: str, offer: Offer, before: tuple[slices.Taint, ...], now: datetime.datetime
) -> tuple[slices.Taint, ...]:
    if offer.taints is None:
        return before
    wanted = (
        slices.Taint(key=f"{driver}/{taint.key}", value=taint.value, effect=taint.effect.value)
        for taint in offer.taints
    )
    return encoding.dated(wanted, before, now)
