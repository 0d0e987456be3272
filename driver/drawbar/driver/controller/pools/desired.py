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
from dataclasses import dataclass, field, replace

import msgspec

from drawbar.driver.api import attachments, claims, drivers, fabrics, maintenances, meta, slices
from drawbar.driver.controller import names, policies, reach
from drawbar.driver.controller.offers import group, table
from drawbar.driver.controller.offers.offer import Arrangement, Part, Stock
from drawbar.driver.controller.pools import causes, devices
from drawbar.driver.slices import encoding
from drawbar.driver.slices import plan as slice_plan
from drawbar.fabric import contract

FABRIC_LABEL = "drawbar.dev/fabric"


def fabric_of(published: slices.ResourceSlice | None) -> str | None:
    """Return the Fabric of our driver's slice, or None for a node's own pool."""
    if published is None or published.spec.node_name is not None:
        return None
    return names.fabric_of(published.spec.pool.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The fabric manager's reports, and their history.

    Attributes:
        fabric: the Fabric object.
        devices: the last listing; None before the first one, and then devices neither come nor go.
        silent_seconds: the seconds since the manager was last reached.
        probations: by device name, the time for which its failure counts, if it is not the usual one.
        failures: by device name, the number of failures in a row.
        claimed: by device name, the pool in a claim's allocation.
        missing: the names of unlisted devices that keep their earlier state.
        made: by the id of each pool of memory, the bytes in memory chunks of ours.
        chooses: whether the fabric chooses the device itself, so that its devices are places.
        worn: by the name of a device that was erased too often within a day, the end of its rest; on the steady clock.
        maintenance: the devices and nodes in maintenance.
        not_offered: the names of listed devices outside of the Fabric's offer; in `devices` only while a claim has
            them.
        refused: the pairs of a device and a host that the manager refused as incompatible, and is not asked about now.
        refused_until: the time when the first of these pairs may be tried again; on the steady clock.
    """

    fabric: fabrics.Fabric
    devices: tuple[contract.Device, ...] | None
    silent_seconds: float = 0.0
    probations: Mapping[str, datetime.timedelta] = field(default_factory=dict)
    failures: Mapping[str, int] = field(default_factory=dict)
    claimed: Mapping[str, str] = field(default_factory=dict)
    missing: frozenset[str] = frozenset()
    made: Mapping[str, int] = field(default_factory=dict)
    chooses: bool = False
    worn: Mapping[str, datetime.datetime] = field(default_factory=dict)
    maintenance: maintenances.Scope = field(default_factory=maintenances.Scope)
    not_offered: frozenset[str] = frozenset()
    refused: Collection[reach.Pair] = ()
    refused_until: datetime.datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricState:
    """A fabric's devices, attachments and slices at one moment.

    Attributes:
        attached_by_us: the node of each attached device, by all names that its attachment covers.
        composites: by name, the members of the composites with attachments; their names are in `attached_by_us` too.
        given: by device name, the pool that it was given out of, from its attachment.
        reported: by device name, the causes in its attachment's report.
        date: the time of day, for new taints.
        failed_since: by device name, the time when this process first saw its failure's taint, on the steady clock.
        published: the present slices of this fabric.
        kept: the fields of slices that the API server keeps. If it drops binding conditions, a pod would be bound
            before its device is there, so nothing is published.
    """

    driver: str
    facts: Facts
    date: datetime.datetime
    attached_by_us: Mapping[str, str] = field(default_factory=dict)
    composites: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    given: Mapping[str, str] = field(default_factory=dict)
    reported: Mapping[str, tuple[causes.Cause, ...]] = field(default_factory=dict)
    failed_since: Mapping[str, datetime.datetime] = field(default_factory=dict)
    published: tuple[slices.ResourceSlice, ...] = ()
    kept: encoding.Kept

    @property
    def fabric(self) -> str:
        """Return the name of the Fabric object."""
        return self.facts.fabric.metadata.name

    @property
    def policy(self) -> fabrics.Policy:
        """Return the Fabric's policy."""
        return self.facts.fabric.spec.policy

    @property
    def devices(self) -> tuple[contract.Device, ...] | None:
        """Return the devices to publish: none of a Fabric that is being deleted, None before the first listing."""
        return () if self.facts.fabric.deleting else self.facts.devices


@dataclass(frozen=True, slots=True, kw_only=True)
class LookAgain:
    """The time when a taint can be lifted."""

    at: datetime.datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """The devices without room for all their taints."""

    devices: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Withheld:
    """The pools beyond the Fabric's limit of slices.

    Attributes:
        pools: the names of the unpublished pools.
        devices: the number of devices in them.
    """

    pools: tuple[str, ...]
    devices: int


Action = slice_plan.Write | LookAgain | LeftOut | Withheld


def plan(observed: FabricState, now: datetime.datetime) -> tuple[Action, ...]:
    """Return the writes that publish the devices; `now` is on the steady clock."""
    candidates = _candidates(observed) if observed.kept.conditions else ()
    candidates, withheld = _within_limit(candidates, observed)
    pools = _pools(candidates, observed, now)
    left_out = sorted(name for pool in pools for name in pool.content.left_out)
    reported = (LeftOut(devices=tuple(left_out)),) if left_out else ()
    beyond = (Withheld(pools=tuple(sorted(withheld)), devices=withheld.total()),) if withheld else ()
    return (
        *slice_plan.writes(pools, observed.published),
        *reported,
        *beyond,
        *_next_look(candidates, observed, now),
    )


def withdrawal(
    driver: str, fabric: str, published: tuple[slices.ResourceSlice, ...], date: datetime.datetime
) -> FabricState:
    """Return the state of a fabric that no longer exists: its slices are left over.

    Only slices made by the controller count: others may have published a pool of the same name.
    """
    published = tuple(each for each in published if each.metadata.labels.get(FABRIC_LABEL) == fabric)
    gone = fabrics.Fabric(
        metadata=meta.ObjectMeta(name=fabric), spec=fabrics.FabricSpec(adapter="", endpoint="")
    )
    kept = encoding.Kept(dropped=(), form=encoding.Encoding.PER_DEVICE)
    return FabricState(
        driver=driver, facts=Facts(fabric=gone, devices=()), date=date, published=published, kept=kept
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    """A device to publish, without taints yet, and the causes not to allocate it now."""

    pool: str
    device: slices.Device
    causes: tuple[causes.Cause, ...]


def _within_limit(
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
        if home is not None and filled[home] < slice_plan.DEVICES_MAX:
            filled[home] += 1
            within.append(replace(candidate, pool=home))
        else:
            withheld[candidate.pool] += 1
    return tuple(within), withheld


def _pools(
    candidates: tuple[_Candidate, ...], observed: FabricState, now: datetime.datetime
) -> tuple[slice_plan.Pool, ...]:
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
            probation=_probation(observed, candidate.device.name, now),
            evictions_per_second=observed.policy.evictions_per_second,
        )
        desired.setdefault(candidate.pool, []).append(msgspec.structs.replace(candidate.device, taints=fresh))
    return tuple(
        slice_plan.Pool(
            name=pool,
            slice_name=names.resource_slice(observed.driver, pool),
            driver=observed.driver,
            content=encoding.encode(kept.form, wanted, kept.details, informs=kept.informs),
            node_selector=_selector(observed, pool),
            labels={FABRIC_LABEL: observed.fabric},
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
        claims.FieldRequirement(key=label, operator="DoesNotExist") for label in names.closed_labels_of(pool)
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
            _Candidate(pool=pool, device=device, causes=_causes(observed, device.name, None))
            for pool, device in published
        )
    arranged = _arrange(observed, frozenset(device.name for _, device in published))
    by_name = {names.label(device.id): device for device in observed.devices}
    kept = _kept_names(observed, arranged)
    places = _homes(observed, arranged, kept)
    members_of = {**arranged.unlisted, **arranged.members}
    kept_whole = {device.name for _, device in published} & observed.attached_by_us.keys()
    withheld = find_reserved(observed.policy.immediate, observed.devices) - kept_whole
    candidates = {
        name: _Candidate(
            pool=places[name],
            device=devices.build_offer(observed.driver, observed.fabric, offer),
            causes=_all_causes(observed, name, offer.device, members_of, by_name),
        )
        for name, offer in sorted(arranged.offers.items(), key=lambda item: item[1].device.id)
        if name not in withheld
    }
    for pool, device in published:
        if device.name in kept and device.name not in candidates:
            candidates[device.name] = _Candidate(
                pool=pool,
                device=device,
                causes=_all_causes(observed, device.name, None, members_of, by_name),
            )
    return tuple(candidates.values())


def _arrange(observed: FabricState, published: Collection[str]) -> Arrangement:
    """Return the offers of the fabric; `published` are the names of all devices in its slices."""
    return table.arrange(
        Stock(
            spec=None if observed.facts.fabric.deleting else observed.facts.fabric.spec,
            devices=observed.devices or (),
            held=observed.composites,
            given=observed.attached_by_us.keys() | observed.facts.claimed.keys(),
            published=group.find_published_members(observed.published),
            missing=observed.facts.missing,
            chooses=observed.facts.chooses,
            maintenance=observed.facts.maintenance,
            kept_whole=observed.attached_by_us.keys() & published,
            made=observed.facts.made if observed.kept.shares else {},
        )
    )


def _kept_names(observed: FabricState, arranged: Arrangement) -> frozenset[str]:
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
        claimed=observed.facts.claimed,
        given=observed.given,
        refusing=reach.refusing_hosts(observed.facts.refused, arranged.members),
        pools_max=observed.policy.limits.slices,
    )
    offered = {name: offer.device for name, offer in arranged.offers.items()}
    return devices.homes(observed.fabric, offered, observed.published, rules)


def _all_causes(
    observed: FabricState,
    name: str,
    device: contract.Device | None,
    members_of: Mapping[str, tuple[str, ...]],
    by_name: Mapping[str, contract.Device],
) -> tuple[causes.Cause, ...]:
    """Return the causes of a device; those of a composite include each of its members', each once."""
    members = members_of.get(name, ())
    own = _causes(observed, name, device) if device is not None or not members else ()
    of_members = (cause for member in members for cause in _causes(observed, member, by_name.get(member)))
    return tuple(dict.fromkeys((*own, *of_members)))


def _causes(observed: FabricState, name: str, device: contract.Device | None) -> tuple[causes.Cause, ...]:
    """Return why a device should not be allocated: the reports of its attachment, the fabric manager and administrators."""
    ours = name in observed.attached_by_us
    host = device.connection.host_id if device is not None and device.connection is not None else ""
    connected = device is not None and device.connection is not None
    listed = device is not None or observed.devices is None
    result = [
        replace(cause, host=host)
        if isinstance(cause, causes.HeldByHand)
        else replace(cause, listed=listed)
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


def _probation(observed: FabricState, name: str, now: datetime.datetime) -> causes.Probation:
    usual = datetime.timedelta(seconds=observed.policy.probation_seconds)
    return causes.Probation(
        length=observed.facts.probations.get(name, usual), since=observed.failed_since.get(name, now)
    )


def _next_look(
    candidates: tuple[_Candidate, ...], observed: FabricState, now: datetime.datetime
) -> tuple[LookAgain, ...]:
    tainted = encoding.decode(observed.published)
    ends = [
        causes.probation_end(
            observed.driver,
            candidate.causes,
            tainted.get(candidate.device.name, ()),
            _probation(observed, candidate.device.name, now),
        )
        for candidate in candidates
    ]
    ends += [*observed.facts.worn.values(), observed.facts.refused_until]
    future = [end for end in ends if end is not None and end > now]
    return (LookAgain(at=min(future)),) if future else ()


def find_claim_pools(attached: Iterable[attachments.DeviceAttachment]) -> dict[str, str]:
    """Return, by device name, the pool that its claim names; a device attached by hand has none."""
    return {
        attachment.spec.allocated: attachment.spec.pool
        for attachment in attached
        if not attachment.held_by_hand
    }


def find_reserved(reservation: fabrics.Reservation, listed: Iterable[contract.Device]) -> frozenset[str]:
    """Return the names of the devices that are reserved for immediate allocation."""
    return frozenset(
        names.label(device.id) for device in listed if reservation.holds(device.id, device.model)
    )


def observe(
    driver: str,
    facts: Facts,
    attached: Iterable[attachments.DeviceAttachment],
    published: tuple[slices.ResourceSlice, ...],
    kept: encoding.Kept,
    *,
    date: datetime.datetime,
    overdue: Collection[str] = (),
) -> FabricState:
    """Return the observed state for the plan.

    Args:
        driver: the DRA driver's name.
        facts: the fabric manager's reports.
        attached: the attachments of this fabric.
        published: its present slices.
        kept: the fields of slices that the API server keeps.
        date: the time of day.
        overdue: the names of devices whose release takes too long, for any reason.
    """
    by_device = {attachment.spec.device: attachment for attachment in attached}
    reported = {
        name: _count_failures(
            causes.of_attachment(attachment, overdue=name in overdue), facts.failures.get(name, 0)
        )
        for name, attachment in by_device.items()
        if not Part.from_attachment(attachment).is_carved
    }
    for attachment in by_device.values():
        failed, part = causes.failure(attachment), Part.from_attachment(attachment)
        if part.is_carved and failed is not None:
            whole = part.source
            reported[whole] = _count_failures((failed,), facts.failures.get(whole, 0))
    ours = [attachment for attachment in by_device.values() if not attachment.held_by_hand]
    return FabricState(
        driver=driver,
        facts=facts,
        date=date,
        attached_by_us={
            name: attachment.spec.node_name
            for attachment in ours
            for name in (attachment.spec.device, attachment.spec.allocated)
        },
        composites=group.find_held_members(ours),
        given=find_claim_pools(by_device.values()),
        reported={name: (causes.NotReleased(),) for name in overdue} | reported,
        published=published,
        kept=kept,
    )


def _count_failures(reported: tuple[causes.Cause, ...], failures: int) -> tuple[causes.Cause, ...]:
    return tuple(
        replace(cause, failures=failures) if isinstance(cause, causes.AttachFailed) else cause
        for cause in reported
    )
