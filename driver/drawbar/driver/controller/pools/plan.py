"""What should be published of a fabric and how to get there, decided purely.

Invariants:

- one slice per pool and at most 64 devices in it (any taint halves the API's limit of 128), so a taint is one write
  in place and no pool is ever incomplete;
- a device never changes its pool while it is published, wherever others come and go;
- a device that hangs on a host without an attachment of ours carries a taint: somebody else uses it;
- only slices that carry this fabric's label are ever touched.

Source: `resource.k8s.io/v1` ResourceSlice; KEP-5055 for `timeAdded`, which is kept while a taint stays the same.
"""

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field

from drawbar.driver.api import claims, meta, slices
from drawbar.driver.controller import names
from drawbar.driver.controller.pools import devices
from drawbar.fabric import contract

DEVICES_MAX = 64
FABRIC_LABEL = "drawbar.dev/fabric"
ATTACH_FAILED = "attach-failed"
IN_USE = "in-use"
NO_SCHEDULE = "NoSchedule"


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Everything the decision rests on.

    Attributes:
        devices: what the fabric has; None while it never told, and then nothing is changed.
        attached_by_us: names of devices that a claim's attachment covers.
        failing: by device name the reason of a failed attach that is not over.
        published: the slices of this fabric as they are.
        keeps_conditions: whether this API server keeps binding conditions; without them a pod would be bound
            before its device is there, so nothing is published.
    """

    driver: str
    fabric: str
    devices: tuple[contract.Device, ...] | None
    attached_by_us: frozenset[str]
    failing: Mapping[str, str] = field(default_factory=dict)
    published: tuple[slices.ResourceSlice, ...] = ()
    keeps_conditions: bool
    probation: datetime.timedelta


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


@dataclass(frozen=True, slots=True, kw_only=True)
class LookAgain:
    """A taint can be lifted then."""

    at: datetime.datetime


Action = Create | Replace | Delete | LookAgain


def plan(observed: Observed, now: datetime.datetime) -> tuple[Action, ...]:
    """The writes that publish what should be; no write where it is published already.

    What is obsolete goes first: the same device in two pools could be given out twice.
    """
    if observed.devices is None:
        return ()
    actual = {found.spec.pool.name: found for found in observed.published}
    # Two slices of one pool make it invalid: ours has the name that the pool gives it.
    surplus = [found for found in observed.published if actual[found.spec.pool.name] is not found]
    desired = _desired(observed, actual, now) if observed.keeps_conditions else {}
    removals: list[Action] = [Delete(slice=found) for found in surplus]
    removals += [Delete(slice=actual[name]) for name in sorted(actual.keys() - desired.keys())]
    changes: list[Create | Replace] = []
    for name, devices_ in sorted(desired.items()):
        known = actual.get(name)
        fresh = _slice(observed, name, devices_, known)
        if known is None:
            changes.append(Create(slice=fresh))
        elif known.spec != fresh.spec:
            changes.append(Replace(slice=fresh))
    changes.sort(key=lambda change: not _drops_devices(change, actual))
    return (*removals, *changes, *_next_look(observed, desired, now))


def _drops_devices(change: Create | Replace, actual: Mapping[str, slices.ResourceSlice]) -> bool:
    known = actual.get(change.slice.spec.pool.name)
    kept = {device.name for device in change.slice.spec.devices}
    return known is not None and any(device.name not in kept for device in known.spec.devices)


def _desired(
    observed: Observed, actual: Mapping[str, slices.ResourceSlice], now: datetime.datetime
) -> dict[str, list[slices.Device]]:
    known = {device.name: device for found in actual.values() for device in found.spec.devices}
    desired: dict[str, list[slices.Device]] = {}
    homes = pools(observed.fabric, observed.devices or (), observed.published)
    for device in sorted(observed.devices or (), key=lambda one: one.id):
        name = names.label(device.id)
        old = known[name].taints if name in known else ()
        taints = _taints(observed, device, name, old, now)
        fresh = devices.published(observed.driver, observed.fabric, device, taints)
        desired.setdefault(homes[name], []).append(fresh)
    return desired


def pools(
    fabric: str, found: tuple[contract.Device, ...], published: tuple[slices.ResourceSlice, ...]
) -> dict[str, str]:
    """The pool of each device by its name: where it is published, else the first of its enclosure with room."""
    enclosures = {names.label(device.id): device.enclosure for device in found}
    homes: dict[str, str] = {}
    filled: dict[str, int] = {}
    for one in published:
        for device in one.spec.devices:
            enclosure = enclosures.get(device.name)
            if enclosure is None or not _belongs(one.spec.pool.name, names.pool(fabric, enclosure)):
                continue
            homes[device.name] = one.spec.pool.name
            filled[one.spec.pool.name] = filled.get(one.spec.pool.name, 0) + 1
    for name in sorted(enclosures.keys() - homes.keys()):
        partition = 0
        while filled.get(pool := names.pool(fabric, enclosures[name], partition), 0) >= DEVICES_MAX:
            partition += 1
        homes[name] = pool
        filled[pool] = filled.get(pool, 0) + 1
    return homes


def _belongs(pool: str, first: str) -> bool:
    return pool == first or (pool.startswith(f"{first}/") and pool[len(first) + 1 :].isdigit())


def _taints(
    observed: Observed,
    device: contract.Device,
    name: str,
    old: tuple[slices.Taint, ...],
    now: datetime.datetime,
) -> tuple[slices.Taint, ...]:
    wanted: list[slices.Taint] = []
    failed = f"{observed.driver}/{ATTACH_FAILED}"
    known = next((taint for taint in old if taint.key == failed), None)
    if name in observed.failing:
        wanted.append(slices.Taint(key=failed, value=observed.failing[name], effect=NO_SCHEDULE))
    elif known is not None and now < _probation_ends(observed, known, now):
        wanted.append(known)
    if device.connection is not None and name not in observed.attached_by_us:
        wanted.append(slices.Taint(key=f"{observed.driver}/{IN_USE}", effect=NO_SCHEDULE))
    since = {taint.identity: taint.time_added for taint in old}
    return tuple(
        slices.Taint(
            key=taint.key,
            value=taint.value,
            effect=taint.effect,
            time_added=taint.time_added or since.get(taint.identity) or meta.timestamp(now),
        )
        for taint in wanted
    )


def _probation_ends(observed: Observed, taint: slices.Taint, now: datetime.datetime) -> datetime.datetime:
    return (meta.moment(taint.time_added) if taint.time_added else now) + observed.probation


def _next_look(
    observed: Observed, desired: Mapping[str, list[slices.Device]], now: datetime.datetime
) -> tuple[LookAgain, ...]:
    ends = [
        _probation_ends(observed, taint, now)
        for devices_ in desired.values()
        for device in devices_
        for taint in device.taints
        if taint.key == f"{observed.driver}/{ATTACH_FAILED}" and device.name not in observed.failing
    ]
    return (LookAgain(at=min(ends)),) if ends else ()


def _slice(
    observed: Observed, pool: str, found: list[slices.Device], known: slices.ResourceSlice | None
) -> slices.ResourceSlice:
    requirement = claims.FieldRequirement(
        key=names.node_label(observed.fabric), operator="In", values=("true",)
    )
    spec = slices.SliceSpec(
        driver=observed.driver,
        pool=slices.Pool(
            name=pool, generation=known.spec.pool.generation if known else 1, resource_slice_count=1
        ),
        node_selector=claims.NodeSelector(
            node_selector_terms=(claims.NodeSelectorTerm(match_expressions=(requirement,)),)
        ),
        devices=tuple(found),
    )
    if known is not None:
        return slices.ResourceSlice(metadata=known.metadata, spec=spec)
    metadata = meta.ObjectMeta(
        name=names.resource_slice(observed.driver, pool), labels={FABRIC_LABEL: observed.fabric}
    )
    return slices.ResourceSlice(metadata=metadata, spec=spec)
