"""Why a device should not be given out, from every source, decided purely.

Each source has a key of its own and a rule that lifts its taint:

| key | effect | since | lifted |
|---|---|---|---|
| `attach-failed` | NoSchedule | an attach failed, or the node could not use the device | after probation |
| `device-lost` | NoExecute | a claim's device vanished | its claim let go of it |
| `in-use` | NoSchedule | somebody else's attachment, one made by hand, or a node that does not let go | it is free |
| `fabric-health` | NoSchedule, or None for a warning | the fabric manager reports it | it reports it well |
| a finding, such as `link-narrow` | as the node's health policy has it | its node found it | it is gone, or the node let go of the device |
| `node-unhealthy` | NoSchedule | its node reports it unhealthy, without a finding | the node reports it well, or let go of it |
| `fabric-unreachable` | NoSchedule | a free device of a silent fabric manager | the manager answers |
| `maintenance` | NoSchedule | the Fabric's `spec.maintenance` names it | it no longer does |
| `reserved` | NoSchedule | reserved for immediate allocation while a claim has it | that claim let go of it |

What a taint says of its cause is in `pools.explanations`; where the API server has no fields for it, `slices.encoding`
leaves it out.

Source: KEP-5055; `timeAdded` is kept while a taint stays the same, since tolerations count from it.
"""

import datetime
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from drawbar.driver.api import attachments, meta, slices
from drawbar.driver.controller.pools import explanations
from drawbar.driver.slices import encoding
from drawbar.fabric import contract

ATTACH_FAILED = "attach-failed"
LOST = "device-lost"
IN_USE = "in-use"
FABRIC_HEALTH = "fabric-health"
NODE_UNHEALTHY = "node-unhealthy"
UNREACHABLE = "fabric-unreachable"
MAINTENANCE = "maintenance"
RESERVED = "reserved"
_KEYS = frozenset(
    {ATTACH_FAILED, LOST, IN_USE, FABRIC_HEALTH, NODE_UNHEALTHY, UNREACHABLE, MAINTENANCE, RESERVED}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What is known of one device that may keep it from being given out.

    Attributes:
        failing: the reason of a failed attach that is not over; empty when there is none.
        probation: how long a failure counts once it is over.
        failed_since: when this process first saw the taint of the failure, since `timeAdded` is of whoever wrote it.
        lost: a claim has the device, and it is not there any more.
        foreign: it is attached, and by none of this cluster's claims.
        held: an operator attached it by hand.
        stuck: its node was asked to let go of it and does not.
        health: the fabric manager's opinion.
        unhealthy: its node says that it is.
        findings: what its node found wrong with it.
        unreachable: it is free, and its manager has been silent for too long.
        maintenance: an administrator wants it left alone.
        reserved: an administrator keeps it for claims that are allocated at once, and a claim of others has it.
        listed: the fabric manager has it.
        evictions_per_second: how many pods may be evicted because of one taint; None for no word about it.
        evidence: what else is known.
    """

    probation: datetime.timedelta
    failing: str = ""
    failed_since: datetime.datetime | None = None
    lost: bool = False
    foreign: bool = False
    held: bool = False
    stuck: bool = False
    health: contract.Health = contract.Health.UNKNOWN
    unhealthy: bool = False
    findings: tuple[attachments.NodeFinding, ...] = ()
    unreachable: bool = False
    maintenance: bool = False
    reserved: bool = False
    listed: bool = True
    evictions_per_second: int | None = None
    evidence: explanations.Evidence = explanations.NOTHING


def of(
    driver: str, standing: Standing, old: Sequence[slices.Taint], now: datetime.datetime
) -> tuple[slices.Taint, ...]:
    """The device's taints, worst first.

    Args:
        driver: the DRA driver's name, which is the domain of every key.
        standing: what is known.
        old: the taints it has.
        now: for what is new.
    """
    wanted = [*_failed(driver, standing, old, now), *_by_state(driver, standing)]
    return tuple(sorted(encoding.dated(wanted, old, now), key=encoding.rank))


def probation_end(driver: str, standing: Standing, old: Iterable[slices.Taint]) -> datetime.datetime | None:
    """When the taint of a failure that is over can be lifted; None where there is no such taint."""
    known = _known_failure(driver, old)
    if standing.failing or known is None or known.time_added is None:
        return None
    return (standing.failed_since or meta.moment(known.time_added)) + standing.probation


def _failed(
    driver: str, standing: Standing, old: Sequence[slices.Taint], now: datetime.datetime
) -> list[slices.Taint]:
    if standing.failing:
        said = explanations.attach_failed(standing.failing, standing.evidence, standing.probation)
        return [
            _taint(driver, standing, ATTACH_FAILED, standing.failing, effect=encoding.NO_SCHEDULE, said=said)
        ]
    known, end = _known_failure(driver, old), probation_end(driver, standing, old)
    # What was said while it failed stands until it is lifted: the attachment that knew more is gone.
    return [known] if known is not None and end is not None and now < end else []


def failures(driver: str, published: slices.ResourceSlice | None) -> dict[str, str]:
    """Return by device name, of those that a slice says to have failed, what its taint says of when."""
    if published is None:
        return {}
    spec, key = published.spec, f"{driver}/{ATTACH_FAILED}"
    found = [(device.name, taint) for device in spec.devices for taint in device.taints]
    found += [(entry.device, entry.taint) for entry in spec.taints]
    return {name: taint.time_added or "" for name, taint in found if taint.key == key}


def _known_failure(driver: str, old: Iterable[slices.Taint]) -> slices.Taint | None:
    return next((taint for taint in old if taint.key == f"{driver}/{ATTACH_FAILED}"), None)


def _by_state(driver: str, standing: Standing) -> list[slices.Taint]:
    """The taints that stand exactly as long as their cause."""
    evidence = standing.evidence
    found: list[tuple[str, str, str, explanations.Explanation]] = []
    if standing.lost:
        found.append((LOST, "", encoding.NO_EXECUTE, explanations.lost(evidence, listed=standing.listed)))
    if standing.held:
        found.append((IN_USE, "manual", encoding.NO_SCHEDULE, explanations.held(evidence)))
    elif standing.stuck:
        found.append((IN_USE, "releasing", encoding.NO_SCHEDULE, explanations.stuck(evidence)))
    elif standing.foreign:
        found.append((IN_USE, "", encoding.NO_SCHEDULE, explanations.foreign(evidence)))
    if standing.health is contract.Health.CRITICAL:
        found.append(
            (FABRIC_HEALTH, "critical", encoding.NO_SCHEDULE, explanations.ill("critical", evidence))
        )
    elif standing.health is contract.Health.WARNING:
        found.append((FABRIC_HEALTH, "warning", encoding.NO_EFFECT, explanations.ill("warning", evidence)))
    # What vanished is tainted for that already, and no node speaks for the other sources.
    findings = [
        one for one in standing.findings if one.name not in (_KEYS if standing.lost else _KEYS - {LOST})
    ]
    for one in findings:
        said = explanations.finding(one.name, one.message, evidence)
        found.append((one.name, one.value, one.effect, said))
    if standing.unhealthy and not findings:
        found.append((NODE_UNHEALTHY, "", encoding.NO_SCHEDULE, explanations.unhealthy(evidence)))
    if standing.unreachable:
        found.append((UNREACHABLE, "", encoding.NO_SCHEDULE, explanations.unreachable(evidence)))
    if standing.maintenance:
        found.append((MAINTENANCE, "", encoding.NO_SCHEDULE, explanations.maintenance(evidence)))
    if standing.reserved:
        found.append((RESERVED, "", encoding.NO_SCHEDULE, explanations.reserved(evidence)))
    return [
        _taint(driver, standing, key, value, effect=effect, said=said) for key, value, effect, said in found
    ]


def _taint(
    driver: str, standing: Standing, key: str, value: str, *, effect: str, said: explanations.Explanation
) -> slices.Taint:
    return slices.Taint(
        key=f"{driver}/{key}",
        value=value,
        effect=effect,
        description=said.description,
        data=dict(said.data),
        evictions_per_second=standing.evictions_per_second if effect == encoding.NO_EXECUTE else None,
    )
