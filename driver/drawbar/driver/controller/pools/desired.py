"""The wanted pools of a fabric, and the writes to get there; decided purely.

Invariants:

- a pool has one slice of devices with at most 64 devices in it (any taint halves the API's limit of 128), so a taint is
  one write in place and no pool is ever incomplete; if the API server has taints in slices of their own, a pool has one
  more slice, which is always there;
- a device never changes its pool while it is published or a claim has it, wherever others come and go;
- a pool selects exactly the nodes that reach its devices, by their groups, except those whose hosts refused each of
  them; see `controller.reach`;
- a connected device without an attachment of ours has a taint: another owner uses it;
- a claim's vanished device stays published, tainted, until the claim releases it;
- a device outside of the Fabric's offer is not published, unless a claim has it: then it stays, tainted, until the
  claim releases it;
- a device that is reserved for immediate allocation is not published, unless the scheduler had given it to a claim
  before: then it stays, tainted, until the claim releases it;
- there are never more pools than the Fabric's limit of slices, unless more are published already;
- the members of a composite are published as one device, which has the taints of all of them, and never one by one,
  unless a claim got one of them before;
- only slices without a node are ever touched, of pools that begin with the fabric's name: a node's slice is never the
  fabric's, even with the fabric's label, and a label that was removed is added again.

Source: `resource.k8s.io/v1` ResourceSlice; KEP-5055 for `timeAdded`, which is kept while a taint stays the same.
"""

import datetime
from collections import Counter
from collections.abc import Collection, Iterable, Mapping

import msgspec

from drawbar.driver.api import claims, drivers, fabrics, slices
from drawbar.driver.controller import names, policies, reach
from drawbar.driver.controller.offers import group, table
from drawbar.driver.controller.offers.offer import Arrangement, Stock
from drawbar.driver.controller.pools import causes, devices, fabric_state
from drawbar.driver.controller.pools.fabric_state import FabricState
from drawbar.driver.slices import encoding, pool_writes
from drawbar.fabric import contract


class LookAgain(msgspec.Struct, frozen=True, kw_only=True):
    """The time when a taint can be lifted."""

    at: datetime.datetime


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """The devices without room for all their taints."""

    devices: tuple[str, ...]


class Withheld(msgspec.Struct, frozen=True, kw_only=True):
    """The pools beyond the Fabric's limit of slices.

    Attributes:
        pools: the names of the unpublished pools.
        devices: the number of devices in them.
    """

    pools: tuple[str, ...]
    devices: int


Action = pool_writes.Write | LookAgain | LeftOut | Withheld


def plan(observed: FabricState, now: datetime.datetime) -> tuple[Action, ...]:
    """Return the writes that publish the devices; `now` is on the steady clock."""
    candidates = _candidates(observed) if observed.kept.conditions else ()
    candidates, withheld = _fit_limit(candidates, observed)
    pools = _pools(candidates, observed, now)
    left_out = sorted(name for pool in pools for name in pool.content.left_out)
    reported = (LeftOut(devices=tuple(left_out)),) if left_out else ()
    beyond = (Withheld(pools=tuple(sorted(withheld)), devices=withheld.total()),) if withheld else ()
    return (
        *pool_writes.writes(pools, observed.published),
        *reported,
        *beyond,
        *_next_look(candidates, observed, now),
    )


class _Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A device to publish, without taints yet, and the causes not to allocate it now."""

    pool: str
    device: slices.Device
    causes: tuple[causes.Cause, ...]


def _fit_limit(
    candidates: tuple[_Candidate, ...], observed: FabricState
) -> tuple[tuple[_Candidate, ...], Counter[str]]:
    """Return the candidates that fit into the limit of slices, and the number of devices in each other pool.

    Published pools go first, even those about to be withdrawn: a new slice waits until they are gone. A device that
    moves into a pool beyond the limit stays in its present one.
    """
    homes = {
        device.name: published_slice.spec.pool.name
        for published_slice in observed.published
        for device in published_slice.spec.devices
    }
    published = {published_slice.spec.pool.name for published_slice in observed.published}
    waiting = sorted(
        {candidate.pool for candidate in candidates} - published,
        key=lambda pool: (bool(names.refusal_of(pool)), pool),
    )
    beyond = frozenset(waiting[max(observed.policy.limits.slices - len(published), 0) :])
    within = [candidate for candidate in candidates if candidate.pool not in beyond]
    filled, withheld = Counter(candidate.pool for candidate in within), Counter[str]()
    for candidate in candidates:
        if candidate.pool not in beyond:
            continue
        home = homes.get(candidate.device.name)
        if home is not None and filled[home] < pool_writes.DEVICES_MAX:
            filled[home] += 1
            within.append(msgspec.structs.replace(candidate, pool=home))
        else:
            withheld[candidate.pool] += 1
    return tuple(within), withheld


def _pools(
    candidates: tuple[_Candidate, ...], observed: FabricState, now: datetime.datetime
) -> tuple[pool_writes.Pool, ...]:
    """Return each wanted pool."""
    kept = observed.kept
    tainted = encoding.decode(observed.published)
    desired: dict[str, list[slices.Device]] = {}
    for candidate in candidates:
        fresh = causes.make_taints(
            observed.driver,
            candidate.causes,
            tainted.get(candidate.device.name, ()),
            now,
            observed.date,
            fabric=observed.fabric,
            probation=find_probation(observed, candidate.device.name, now),
            evictions_per_second=observed.policy.evictions_per_second,
        )
        desired.setdefault(candidate.pool, []).append(msgspec.structs.replace(candidate.device, taints=fresh))
    return tuple(
        pool_writes.Pool(
            name=pool,
            slice_name=names.resource_slice(observed.driver, pool),
            driver=observed.driver,
            content=encoding.encode(kept.form, wanted, kept.details, informs=kept.informs),
            node_selector=_selector(observed, pool),
            labels={fabric_state.FABRIC_LABEL: observed.fabric},
        )
        for pool, wanted in desired.items()
    )


def _selector(observed: FabricState, pool: str) -> claims.NodeSelector:
    """Return the nodes that reach the pool's devices, without those that may have no more of them."""
    reached = (drivers.label_value(observed.driver),)
    requirements = [
        claims.FieldRequirement(key=names.node_label(observed.fabric), operator="In", values=reached)
    ]
    if key := names.reach_of(pool):
        label = names.reach_label(observed.fabric, key)
        requirements.append(claims.FieldRequirement(key=label, operator="In", values=reached))
    requirements += [
        claims.FieldRequirement(key=label, operator="DoesNotExist")
        for label in names.list_closed_labels(pool)
    ]
    return claims.NodeSelector(
        node_selector_terms=(claims.NodeSelectorTerm(match_expressions=tuple(requirements)),)
    )


def _candidates(observed: FabricState) -> tuple[_Candidate, ...]:
    published = [
        (published_slice.spec.pool.name, msgspec.structs.replace(device, taints=()))
        for published_slice in observed.published
        for device in published_slice.spec.devices
    ]
    if observed.devices is None:
        return tuple(
            _Candidate(pool=pool, device=device, causes=find_causes(observed, device.name, None))
            for pool, device in published
        )
    kept_whole = {device.name for _, device in published} & observed.attached_by_us.keys()
    arranged = _arrange(observed, kept_whole)
    by_name = {names.label(device.id): device for device in observed.devices}
    kept = _find_kept_names(observed, arranged)
    pools = _homes(observed, arranged, kept)
    members_of = {**arranged.unlisted, **arranged.members}
    withheld = find_reserved(observed.policy.immediate, observed.devices) - kept_whole
    candidates = {
        name: _Candidate(
            pool=pools[name],
            device=devices.build_offer(observed.driver, observed.fabric, offer),
            causes=find_all_causes(observed, name, offer.device, members_of, by_name),
        )
        for name, offer in sorted(arranged.offers.items(), key=lambda item: item[1].device.id)
        if name not in withheld
    }
    for pool, device in published:
        if device.name in kept and device.name not in candidates:
            candidates[device.name] = _Candidate(
                pool=pool,
                device=device,
                causes=find_all_causes(observed, device.name, None, members_of, by_name),
            )
    return tuple(candidates.values())


def _arrange(observed: FabricState, kept_whole: Collection[str]) -> Arrangement:
    """Return the offers of the fabric; `kept_whole` are the attached devices in its slices."""
    return table.arrange(
        Stock(
            spec=None if observed.facts.fabric.deleting else observed.facts.fabric.spec,
            devices=observed.devices or (),
            held=observed.composites,
            in_use=observed.attached_by_us.keys() | observed.facts.allocated_pools.keys(),
            published=group.find_published_members(observed.published),
            missing=observed.facts.missing,
            chooses=observed.facts.chooses,
            maintenance=observed.facts.maintenance,
            kept_whole=kept_whole,
            made=observed.facts.made if observed.kept.shares else {},
        )
    )


def _find_kept_names(observed: FabricState, arranged: Arrangement) -> frozenset[str]:
    """Return the names of unlisted devices that stay published.

    If a claim's device were withdrawn, it could not be tainted, and nothing would end its pods. A device that one
    doubtful listing omits is in the next one.
    """
    if observed.facts.fabric.deleting or observed.kept.form is encoding.Encoding.WITHDRAWN:
        return frozenset()
    names_kept = observed.attached_by_us.keys() | observed.facts.missing | arranged.unlisted.keys()
    return frozenset(names_kept - arranged.offers.keys() - arranged.withheld)


def _homes(observed: FabricState, arranged: Arrangement, kept: frozenset[str]) -> dict[str, str]:
    """Return the pool of each offer by its name."""
    rules = devices.Rules(
        restricted=policies.find_restricted_models(observed.policy.models),
        held=observed.attached_by_us,
        unlisted=kept,
        allocated_pools=observed.facts.allocated_pools,
        attached_pools=observed.attached_pools,
        refusing=reach.refusing_hosts(observed.facts.refused, arranged.members),
        pools_max=observed.policy.limits.slices,
    )
    offered = {name: offer.device for name, offer in arranged.offers.items()}
    return devices.homes(observed.fabric, offered, observed.published, rules)


def _next_look(
    candidates: tuple[_Candidate, ...], observed: FabricState, now: datetime.datetime
) -> tuple[LookAgain, ...]:
    tainted = encoding.decode(observed.published)
    ends = [
        causes.probation_end(
            observed.driver,
            candidate.causes,
            tainted.get(candidate.device.name, ()),
            find_probation(observed, candidate.device.name, now),
        )
        for candidate in candidates
    ]
    ends += [*observed.facts.worn.values(), observed.facts.refused_until]
    future = [end for end in ends if end is not None and end > now]
    return (LookAgain(at=min(future)),) if future else ()


def find_reserved(reservation: fabrics.Reservation, listed: Iterable[contract.Device]) -> frozenset[str]:
    """Return the names of the devices that are reserved for immediate allocation."""
    return frozenset(
        names.label(device.id) for device in listed if reservation.holds(device.id, device.model)
    )


def find_all_causes(
    observed: FabricState,
    name: str,
    device: contract.Device | None,
    members_of: Mapping[str, tuple[str, ...]],
    by_name: Mapping[str, contract.Device],
) -> tuple[causes.Cause, ...]:
    """Return the causes of a device; those of a composite include each of its members', each once."""
    members = members_of.get(name, ())
    own = find_causes(observed, name, device) if device is not None or not members else ()
    of_members = (cause for member in members for cause in find_causes(observed, member, by_name.get(member)))
    return tuple(dict.fromkeys((*own, *of_members)))


def find_causes(observed: FabricState, name: str, device: contract.Device | None) -> tuple[causes.Cause, ...]:
    """Return why a device should not be allocated: the reports of its attachment, the fabric manager and administrators."""
    ours = name in observed.attached_by_us
    host = device.connection.host_id if device is not None and device.connection is not None else ""
    connected = device is not None and device.connection is not None
    listed = device is not None or observed.devices is None
    result = [
        msgspec.structs.replace(cause, host=host)
        if isinstance(cause, causes.HeldByHand)
        else msgspec.structs.replace(cause, listed=listed)
        if isinstance(cause, causes.Lost)
        else cause
        for cause in observed.reported.get(name, ())
    ]
    is_lost = any(isinstance(cause, causes.Lost) for cause in result)
    if not listed and not is_lost and name not in observed.facts.missing:
        result.append(causes.Lost(node=observed.attached_by_us.get(name, ""), listed=False))
    if connected and not ours:
        result.append(causes.InUse(host=host))
    if device is not None and device.health is contract.Health.CRITICAL:
        result.append(causes.FabricHealth(health="critical"))
    elif device is not None and device.health is contract.Health.WARNING:
        result.append(causes.FabricHealth(health="warning"))
    silent = 0 < observed.facts.silent_seconds >= observed.policy.unreachable_grace_seconds
    if silent and not ours and not connected:
        result.append(causes.Unreachable())
    if observed.facts.maintenance.has_device(name, device.id if device is not None else name):
        result.append(causes.Maintenance())
    if device is not None and observed.policy.immediate.holds(device.id, device.model):
        result.append(causes.Reserved())
    if name in observed.facts.not_offered:
        result.append(causes.NotOffered())
    if name in observed.facts.worn and name not in observed.attached_by_us:
        result.append(causes.WearLimited(erasures=observed.policy.erases_per_device_per_day))
    return tuple(result)


def find_probation(observed: FabricState, name: str, now: datetime.datetime) -> causes.Probation:
    """Return the time for which a device's failure counts."""
    usual = datetime.timedelta(seconds=observed.policy.probation_seconds)
    return causes.Probation(
        length=observed.facts.probations.get(name, usual), since=observed.failed_since.get(name, now)
    )
