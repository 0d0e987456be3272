"""What should be published of a fabric and how to get there, decided purely.

Invariants:

- one slice of devices per pool and at most 64 devices in it (any taint halves the API's limit of 128), so a taint is
  one write in place and no pool is ever incomplete; where the API server has taints in slices of their own, a pool has
  one more slice, which is always there;
- a device never changes its pool while it is published or a claim has it, wherever others come and go;
- a device that hangs on a host without an attachment of ours carries a taint: somebody else uses it;
- a claim's device that vanished stays published, tainted, until the claim lets go of it;
- a device that is reserved for immediate allocation is not published, but for one that the scheduler had given to a claim
  before: that stays, tainted, until the claim lets go of it;
- only slices that carry this fabric's label are ever touched.

Source: `resource.k8s.io/v1` ResourceSlice; KEP-5055 for `timeAdded`, which is kept while a taint stays the same.
"""

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import msgspec

from drawbar.driver.api import attachments, claims, drivers, slices
from drawbar.driver.controller import names
from drawbar.driver.controller.pools import devices, explanations, homes, taints
from drawbar.driver.slices import encoding
from drawbar.driver.slices import plan as slice_plan
from drawbar.fabric import contract

FABRIC_LABEL = "drawbar.dev/fabric"


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Everything the decision rests on.

    Attributes:
        devices: what the fabric has; None while it never told, and then devices neither come nor go.
        attached_by_us: names of devices that a claim's attachment covers.
        claimed: by their name the pools that the allocations of claims name.
        given: by their name the pools out of which they were given, as their attachments have it.
        held: names of devices that an operator attached by hand.
        failing: by device name the reason of a failed attach that is not over.
        failed_since: by device name when this process first saw the taint of its failure.
        lost: names of devices that a claim has and that are not there any more.
        unhealthy: names of devices that their node calls unhealthy.
        findings: by device name what its node found wrong with it.
        stuck: names of devices that their node does not let go of.
        missing: names of devices that are not listed and not lost either.
        maintenance: ids of devices that an administrator wants left alone; `*` is all.
        reserved: names of devices that are not for the scheduler to give.
        restricted: models that not every node may have.
        unreachable: the fabric manager has been silent for too long.
        published: the slices of this fabric as they are.
        keeps_conditions: whether this API server keeps binding conditions; without them a pod would be bound
            before its device is there, so nothing is published.
        going: the Fabric is being deleted, so nothing more is given out.
        probation: how long a failure counts once it is over.
        probations: by device name, where it is another time than that.
        form: in which form this API server takes taints.
        details: what a taint may say of itself there, of `encoding.DETAILS`.
        informs: whether it takes taints of effect None.
        evictions_per_second: how many pods may be evicted because of one taint.
        evidence: by device name what is known beside all that.
    """

    driver: str
    fabric: str
    devices: tuple[contract.Device, ...] | None
    attached_by_us: frozenset[str]
    claimed: Mapping[str, str] = field(default_factory=dict)
    given: Mapping[str, str] = field(default_factory=dict)
    held: frozenset[str] = frozenset()
    failing: Mapping[str, str] = field(default_factory=dict)
    failed_since: Mapping[str, datetime.datetime] = field(default_factory=dict)
    lost: frozenset[str] = frozenset()
    unhealthy: frozenset[str] = frozenset()
    findings: Mapping[str, tuple[attachments.NodeFinding, ...]] = field(default_factory=dict)
    stuck: frozenset[str] = frozenset()
    missing: frozenset[str] = frozenset()
    maintenance: frozenset[str] = frozenset()
    reserved: frozenset[str] = frozenset()
    restricted: frozenset[str] = frozenset()
    unreachable: bool = False
    published: tuple[slices.ResourceSlice, ...] = ()
    keeps_conditions: bool
    going: bool = False
    probation: datetime.timedelta
    probations: Mapping[str, datetime.timedelta] = field(default_factory=dict)
    form: encoding.Encoding = encoding.Encoding.PER_DEVICE
    details: frozenset[str] = frozenset()
    informs: bool = True
    evictions_per_second: int | None = None
    evidence: Mapping[str, explanations.Evidence] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LookAgain:
    """A taint can be lifted then."""

    at: datetime.datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """There was no room for all taints of these devices."""

    devices: tuple[str, ...]


Action = slice_plan.Write | LookAgain | LeftOut


def plan(observed: Observed, now: datetime.datetime) -> tuple[Action, ...]:
    """Return the writes that publish what should be."""
    candidates = _candidates(observed) if observed.keeps_conditions else ()
    pools = _pools(candidates, observed, now)
    left_out = sorted(name for pool in pools for name in pool.content.left_out)
    reported = (LeftOut(devices=tuple(left_out)),) if left_out else ()
    return (
        *slice_plan.writes(pools, observed.published),
        *reported,
        *_next_look(candidates, observed, now),
    )


def withdrawal(driver: str, fabric: str, published: tuple[slices.ResourceSlice, ...]) -> Observed:
    """What is observed of a fabric that is no more: its slices are left over."""
    return Observed(
        driver=driver,
        fabric=fabric,
        devices=(),
        attached_by_us=frozenset(),
        published=published,
        keeps_conditions=False,
        probation=datetime.timedelta(),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    """A device to publish, with what is known of it; `device` has no taints yet."""

    pool: str
    device: slices.Device
    standing: taints.Standing


def _pools(
    candidates: tuple[_Candidate, ...], observed: Observed, now: datetime.datetime
) -> tuple[slice_plan.Pool, ...]:
    """Each pool as it should be."""
    tainted = encoding.decode(observed.published)
    desired: dict[str, list[slices.Device]] = {}
    for one in candidates:
        fresh = taints.of(observed.driver, one.standing, tainted.get(one.device.name, ()), now)
        desired.setdefault(one.pool, []).append(msgspec.structs.replace(one.device, taints=fresh))
    return tuple(
        slice_plan.Pool(
            name=pool,
            slice_name=names.resource_slice(observed.driver, pool),
            driver=observed.driver,
            content=encoding.encode(observed.form, devices, observed.details, informs=observed.informs),
            node_selector=_selector(observed, pool),
            labels={FABRIC_LABEL: observed.fabric},
        )
        for pool, devices in desired.items()
    )


def _selector(observed: Observed, pool: str) -> claims.NodeSelector:
    """The nodes that the fabric reaches, without those that may have no more of the pool's model."""
    reached = (drivers.label_value(observed.driver),)
    requirements = [
        claims.FieldRequirement(key=names.node_label(observed.fabric), operator="In", values=reached)
    ]
    closed = names.closed_label_of(pool)
    if closed is not None:
        requirements.append(claims.FieldRequirement(key=closed, operator="DoesNotExist"))
    return claims.NodeSelector(
        node_selector_terms=(claims.NodeSelectorTerm(match_expressions=tuple(requirements)),)
    )


def _candidates(observed: Observed) -> tuple[_Candidate, ...]:
    published = [
        (one.spec.pool.name, msgspec.structs.replace(device, taints=()))
        for one in observed.published
        for device in one.spec.devices
    ]
    if observed.devices is None:
        return tuple(
            _Candidate(pool=pool, device=device, standing=_standing(observed, device, None))
            for pool, device in published
        )
    listed = {names.label(told.id) for told in observed.devices}
    # Withdrawn under its claim it could not be tainted, and nothing would end its pods; and what one doubtful listing lacks
    # is there in the next.
    stays = not observed.going and observed.form is not encoding.Encoding.WITHDRAWN
    kept = (observed.attached_by_us | observed.missing) - listed if stays else frozenset()
    rules = homes.Rules(
        restricted=observed.restricted,
        held=observed.attached_by_us,
        unlisted=kept,
        claimed=observed.claimed,
        given=observed.given,
    )
    places = homes.pools(observed.fabric, observed.devices, observed.published, rules)
    found: dict[str, _Candidate] = {}
    given = {device.name for _, device in published} & observed.attached_by_us
    for told in sorted(observed.devices, key=lambda one: one.id):
        device = devices.published(observed.driver, observed.fabric, told, ())
        if device.name in observed.reserved - given:
            continue
        found[device.name] = _Candidate(
            pool=places[device.name], device=device, standing=_standing(observed, device, told)
        )
    for pool, device in published:
        if device.name in kept and device.name not in found:
            found[device.name] = _Candidate(
                pool=pool, device=device, standing=_standing(observed, device, None)
            )
    return tuple(found.values())


def _standing(observed: Observed, device: slices.Device, told: contract.Device | None) -> taints.Standing:
    name = device.name
    connected = told is not None and told.connection is not None
    ours = name in observed.attached_by_us
    evidence = observed.evidence.get(name, explanations.NOTHING)
    host = told.connection.host_id if told is not None and told.connection is not None else ""
    return taints.Standing(
        probation=observed.probations.get(name, observed.probation),
        failing=observed.failing.get(name, ""),
        failed_since=observed.failed_since.get(name),
        lost=name in observed.lost
        or (observed.devices is not None and told is None and name not in observed.missing),
        foreign=connected and not ours,
        held=name in observed.held,
        stuck=name in observed.stuck,
        health=told.health if told is not None else contract.Health.UNKNOWN,
        unhealthy=name in observed.unhealthy,
        findings=observed.findings.get(name, ()),
        unreachable=observed.unreachable and not ours and not connected,
        maintenance=bool({name, told.id if told is not None else name, "*"} & observed.maintenance),
        reserved=name in observed.reserved,
        listed=told is not None or observed.devices is None,
        evictions_per_second=observed.evictions_per_second,
        evidence=replace(evidence, fabric=observed.fabric, host=host),
    )


def _next_look(
    candidates: tuple[_Candidate, ...], observed: Observed, now: datetime.datetime
) -> tuple[LookAgain, ...]:
    tainted = encoding.decode(observed.published)
    ends = [
        taints.probation_end(observed.driver, one.standing, tainted.get(one.device.name, ()))
        for one in candidates
    ]
    future = [end for end in ends if end is not None and end > now]
    return (LookAgain(at=min(future)),) if future else ()
