"""The writes to publish a node's own devices. Pure.

Invariants, in addition to those of `slices.pool_writes`:

- Each pool has one slice. A taint is therefore one write in place, no generation changes, and no pool is ever incomplete.
- A device never changes its pool while it is published or remembered, because a claim names both.
- An unchanged taint keeps its `timeAdded`, also after the kubelet has deleted the slices, because tolerations count from
  it.
- A pool without devices is published only while devices are left to other components; its annotation names them.
- If the API server does not keep taints, a device with a repelling taint is not published.
- Slices of pools of other nodes are never changed.

Source: `resource.k8s.io/v1` ResourceSlice; KEP-5055 for taints.
"""

import datetime
from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from drawbar.driver.api import leftout, meta, nodepools, slices
from drawbar.driver.node.health import verdicts
from drawbar.driver.node.local import residents
from drawbar.driver.slices import encoding, pool_writes


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """A device to publish.

    Attributes:
        device: the device, without taints.
        taints: its taints for its health, worst first; None while unknown, to keep the published ones.
        pool: the pool named by a claim that uses it; empty for any.
        has_health: whether its health is watched.
    """

    device: slices.Device
    taints: tuple[verdicts.Taint, ...] | None = ()
    pool: str = ""
    has_health: bool = True


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """The input of the plan.

    Attributes:
        owner: the Node object, with which the slices are deleted.
        offers: the devices to publish, with unique names.
        published: the slices of this driver and node, in any pool.
        remembered: the formerly published slices, as far as known, including deleted ones.
        keeps_taints: whether this API server keeps taints of devices.
        informs: whether it accepts taints of effect None; without this effect it refuses the whole slice.
        left_out: the devices left to other components, for the annotation of the node's first slice.
        keeps_conditions: whether it keeps binding conditions of devices; without them a pod waits for its device on the node.
    """

    driver: str
    node_name: str
    owner: meta.OwnerReference
    offers: tuple[Offer, ...] = ()
    published: tuple[slices.ResourceSlice, ...] = ()
    remembered: tuple[slices.ResourceSlice, ...] = msgspec.field(default=())
    keeps_taints: bool = True
    informs: bool = True
    left_out: tuple[leftout.LeftOut, ...] = ()
    keeps_conditions: bool = True


def plan(observed: Observed, now: datetime.datetime) -> tuple[pool_writes.Write, ...]:
    """Return the writes to reach the desired slices."""
    ours = [each for each in observed.published if nodepools.is_pool(each.spec.pool.name, observed.node_name)]
    actual = _actual(observed, ours)
    form = encoding.Encoding.PER_DEVICE if observed.keeps_taints else encoding.Encoding.WITHDRAWN
    pools = []
    first, note = nodepools.pool(observed.node_name), leftout.encode(observed.left_out)
    desired = _build_pools(observed, tuple(actual.values()), now)
    if note:
        # The first pool carries the note, even without devices.
        desired.setdefault(first, [])
    for pool, devices in desired.items():
        content = encoding.encode(form, devices, informs=observed.informs)
        if content.devices or (note and pool == first):
            published_slice = actual.get(pool)
            pools.append(
                pool_writes.Pool(
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
    return pool_writes.writes(pools, ours)


def keys(observed: Observed) -> frozenset[verdicts.Key]:
    """Return every offer with a health by its name and pool, published or not."""
    watched = {offer.device.name for offer in observed.offers if offer.has_health}
    return frozenset(
        verdicts.Key(pool=pool, device=name)
        for name, pool in homes(observed, observed.published).items()
        if name in watched
    )


def homes(observed: Observed, published: Iterable[slices.ResourceSlice]) -> dict[str, str]:
    """Return the pool of each offer by its name.

    It is the pool named by a claim, else the present or former pool, else the first one with room.
    """
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
        if pool is not None and filled[pool] < pool_writes.DEVICES_MAX:
            chosen[name] = pool
            filled[pool] += 1
    first = {offer.device.name: nodepools.pool(observed.node_name) for offer in observed.offers}
    return pool_writes.assign_pools(chosen, first, filled)


def _actual(observed: Observed, ours: list[slices.ResourceSlice]) -> Mapping[str, slices.ResourceSlice]:
    """Return each pool's slice; of several, which make the pool invalid, the one with the pool's proper name."""
    by_pool: dict[str, slices.ResourceSlice] = {}
    for listed in sorted(ours, key=lambda listed: listed.metadata.name):
        pool = listed.spec.pool.name
        if pool not in by_pool or listed.metadata.name == residents.resource_slice(observed.driver, pool):
            by_pool[pool] = listed
    return by_pool


def _build_pools(
    observed: Observed, published: tuple[slices.ResourceSlice, ...], now: datetime.datetime
) -> dict[str, list[slices.Device]]:
    before = {
        device.name: device.taints
        for listed in (*observed.remembered, *published)
        for device in listed.spec.devices
    }
    pools = homes(observed, published)
    desired: dict[str, list[slices.Device]] = {}
    for offer in sorted(observed.offers, key=lambda offer: offer.device.name):
        name = offer.device.name
        taints = _taints(observed.driver, offer, before.get(name, ()), now)
        device = offer.device if observed.keeps_conditions else _remove_conditions(offer.device)
        desired.setdefault(pools[name], []).append(msgspec.structs.replace(device, taints=taints))
    return desired


def _remove_conditions(device: slices.Device) -> slices.Device:
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
    return encoding.date_taints(wanted, before, now)
