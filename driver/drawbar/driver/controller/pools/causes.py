"""Why a device of a fabric should not be allocated now, and the taint that each cause has; decided purely.

| key | effect | cause | lifted |
|---|---|---|---|
| `attach-failed` | NoSchedule | an attach failed, or the node could not use the device | after probation |
| `device-lost` | NoExecute | the device of a claim vanished | the claim let go of it |
| `cleaning` | NoSchedule | its node erases its user's data | it is free |
| `not-cleaned` | NoSchedule | its node cannot take away what its user left on it | it could, or it is detached by force |
| `in-use` | NoSchedule | a host without a claim, an attachment made by hand, or a release that takes long | it is free |
| `fabric-health` | NoSchedule, or None for a warning | the fabric manager reports it | it reports it well, see `pools.health` |
| a finding, such as `link-narrow` | as the node's health policy has it | its node found it | it is gone, or the node let go of the device |
| `node-unhealthy` | NoSchedule | its node reports it unhealthy, without a finding | the node reports it well, or let go of it |
| `fabric-unreachable` | NoSchedule | a free device of a silent fabric manager | the manager answers |
| `maintenance` | NoSchedule | a Maintenance of its Fabric names it | none does any more |
| `wear-limited` | NoSchedule | it was erased as often as a day allows | enough of these erasures are a day old |
| `reserved` | NoSchedule | reserved for immediate allocation while a claim has it | that claim let go of it |
| `not-offered` | NoSchedule | beyond the offer of the Fabric while a claim has it | that claim let go of it |

The description of a taint is one sentence about what is wrong and what lifts it. Its data are a flat object with a few
of the same keys for every taint: `source` (who noticed: fabric, node, controller or operator), `fabric`, `node`, `host`,
`reason`, `message`, `failures`, `probationSeconds`. What is not known is left out, and nothing in it changes while the cause
stays the same, since each change is a write. Where the API server has no fields for them, `slices.encoding` leaves them out.

Source: KEP-5055, DeviceTaint; limits from its validation (1 KiB and 10 KiB). `timeAdded` is kept while a taint stays the
same, since tolerations count from it.
"""

import datetime
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, assert_never

from drawbar.driver.api import attachments, slices
from drawbar.driver.catalogue import reasons
from drawbar.driver.controller import outcomes
from drawbar.driver.slices import encoding

ATTACH_FAILED = "attach-failed"
LOST = "device-lost"
IN_USE = "in-use"
CLEANING = "cleaning"
NOT_CLEANED = "not-cleaned"
FABRIC_HEALTH = "fabric-health"
NODE_UNHEALTHY = "node-unhealthy"
UNREACHABLE = "fabric-unreachable"
MAINTENANCE = "maintenance"
RESERVED = "reserved"
NOT_OFFERED = "not-offered"
WEAR_LIMITED = "wear-limited"
_KEYS = frozenset(
    {
        ATTACH_FAILED,
        LOST,
        IN_USE,
        CLEANING,
        NOT_CLEANED,
        FABRIC_HEALTH,
        NODE_UNHEALTHY,
        UNREACHABLE,
        MAINTENANCE,
        RESERVED,
        NOT_OFFERED,
        WEAR_LIMITED,
    }
)

DESCRIPTION_BYTES = 1024
# Of the fabric manager's or the kernel's words; the Event has all of them.
MESSAGE_BYTES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachFailed:
    """An attach to a node failed, or the node could not use the device.

    Attributes:
        by_node: the node reported it.
        failures: how often in a row; 0 when not known.
    """

    reason: str
    node: str = ""
    message: str = ""
    by_node: bool = False
    failures: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """It vanished from its node, or from the fabric, while a claim has it.

    Attributes:
        listed: the fabric manager still has it.
    """

    node: str = ""
    message: str = ""
    listed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldByHand:
    """An operator attached it."""

    node: str = ""
    host: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotReleased:
    """Its release takes too long.

    Attributes:
        reason: why its node does not let go of it; empty without a report of the node.
    """

    node: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class InUse:
    """A host has it, and no claim of this cluster."""

    host: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricHealth:
    """The fabric manager reports it as ill."""

    health: Literal["critical", "warning"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Its node found something wrong with it; `name` is the key of the taint."""

    name: str
    value: str
    effect: str
    message: str = ""
    node: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unhealthy:
    """Its node reports it unhealthy."""

    node: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Unreachable:
    """It is free, and its fabric manager has been silent for too long."""


@dataclass(frozen=True, slots=True)
class Maintenance:
    """A Maintenance of its Fabric names it, or all."""


@dataclass(frozen=True, slots=True)
class Reserved:
    """It is reserved for immediate allocation, and a claim has it that the scheduler gave it to."""


@dataclass(frozen=True, slots=True)
class NotOffered:
    """It is beyond the offer of its Fabric, and a claim has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WearLimited:
    """It was erased as often as its Fabric allows within a day."""

    erasures: int = 0


Cause = (
    AttachFailed
    | Lost
    | HeldByHand
    | NotReleased
    | InUse
    | FabricHealth
    | Finding
    | Unhealthy
    | Unreachable
    | Maintenance
    | Reserved
    | NotOffered
    | WearLimited
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Probation:
    """How long a failure counts once it is over.

    Attributes:
        since: when this process first saw the taint of the failure, on its steady clock; `timeAdded` is another machine's.
    """

    length: datetime.timedelta
    since: datetime.datetime


def failure(attachment: attachments.DeviceAttachment | None) -> AttachFailed | None:
    """Return the failure that the device is to blame for."""
    problem = outcomes.problem(attachment) if attachment is not None else None
    if attachment is None or problem is None or problem.reason in {"", *outcomes.NOT_THE_DEVICE}:
        return None
    return AttachFailed(
        reason=problem.reason,
        node=attachment.spec.node_name,
        message=problem.message,
        by_node=attachment.holds(attachments.ATTACHED)
        and problem.reason in outcomes.NODE_FAILURES | {reasons.OTHER},
    )


def refusal(attachment: attachments.DeviceAttachment | None) -> attachments.Failure | None:
    """Return the fabric manager's refusal of the device at this host, to which neither is to blame."""
    problem = outcomes.problem(attachment) if attachment is not None else None
    return problem if problem is not None and problem.reason == reasons.DEVICE_INCOMPATIBLE else None


def of_attachment(
    attachment: attachments.DeviceAttachment | None, *, overdue: bool = False
) -> tuple[Cause, ...]:
    """Return what an attachment, if there is one, reports of its device; nothing all through an attach that goes well.

    Args:
        attachment: the device's.
        overdue: its release takes too long, whatever the reason.
    """
    if attachment is None:
        return ()
    node, report = attachment.spec.node_name, attachment.status.node
    failed, blocker = failure(attachment), outcomes.blocker(attachment)
    causes: list[Cause] = [failed] if failed is not None else []
    if attachment.held_by_hand:
        causes.append(HeldByHand(node=node))
    elif (
        failed is not None and failed.reason == reasons.DEVICE_LOST and attachment.holds(attachments.ATTACHED)
    ):
        causes.append(Lost(node=node, message=failed.message))
    if overdue or (attachment.deleting and blocker):
        causes.append(NotReleased(node=node, reason=blocker))
    if report is not None:
        findings = (_finding(finding, node) for finding in report.findings[: attachments.FINDINGS_MAX])
        causes += {finding.name: finding for finding in findings if finding.name}.values()
        if report.unhealthy:
            causes.append(Unhealthy(node=node, message=report.health_message))
    return tuple(causes)


def _finding(reported: attachments.NodeFinding, node: str) -> Finding:
    """Return a node's finding as a taint can hold it; without a name where nothing is left of that."""
    is_effect = reported.effect in encoding.EFFECTS
    return Finding(
        name=slices.label_value(reported.name),
        value=slices.label_value(reported.value),
        effect=reported.effect if is_effect else encoding.NO_SCHEDULE,
        message=reported.message,
        node=node,
    )


def taints(
    driver: str,
    causes: Iterable[Cause],
    old: Sequence[slices.Taint],
    now: datetime.datetime,
    date: datetime.datetime,
    *,
    fabric: str,
    probation: Probation,
    evictions_per_second: int | None = None,
) -> tuple[slices.Taint, ...]:
    """Return the device's taints, worst first.

    Args:
        driver: the DRA driver's name, which is the domain of every key.
        causes: of this device.
        old: the taints it has.
        now: on the steady clock.
        date: the time of day, for new taints.
        fabric: name of the Fabric object.
        probation: of a failure that is over.
        evictions_per_second: how many pods may be evicted because of one taint; None leaves it to Kubernetes.
    """
    causes = tuple(causes)
    wanted = [
        _taint(driver, cause, fabric, probation, evictions_per_second) for cause in _without_covered(causes)
    ]
    failure_taint, end = _known_failure(driver, old), probation_end(driver, causes, old, probation)
    if failure_taint is not None and end is not None and now < end:
        # The taint of the failure stays as it was until it is lifted: the attachment with the details is gone.
        wanted.append(failure_taint)
    return tuple(sorted(encoding.dated(wanted, old, date), key=encoding.rank))


def probation_end(
    driver: str, causes: Iterable[Cause], old: Iterable[slices.Taint], probation: Probation
) -> datetime.datetime | None:
    """Return when the taint of a failure that is over can be lifted; None where there is no such taint."""
    failure_taint = _known_failure(driver, old)
    is_failing = any(isinstance(cause, AttachFailed) for cause in causes)
    if is_failing or failure_taint is None or failure_taint.time_added is None:
        return None
    return probation.since + probation.length


def failures(driver: str, published: slices.ResourceSlice | None) -> dict[str, str]:
    """Return by device name, the time of its failure, for those that a slice marks as failed."""
    if published is None:
        return {}
    spec, key = published.spec, f"{driver}/{ATTACH_FAILED}"
    tainted = [(device.name, taint) for device in spec.devices for taint in device.taints]
    tainted += [(entry.device, entry.taint) for entry in spec.taints]
    return {name: taint.time_added or "" for name, taint in tainted if taint.key == key}


def _known_failure(driver: str, old: Iterable[slices.Taint]) -> slices.Taint | None:
    return next((taint for taint in old if taint.key == f"{driver}/{ATTACH_FAILED}"), None)


def _without_covered(causes: tuple[Cause, ...]) -> list[Cause]:
    """Return the causes that have a taint, where one covers another."""
    in_use = [
        kind for kind in (HeldByHand, NotReleased, InUse) if any(isinstance(cause, kind) for cause in causes)
    ]
    # A device that vanished is tainted for that already, and a node does not report for the other sources.
    not_findings = _KEYS if any(isinstance(cause, Lost) for cause in causes) else _KEYS - {LOST}
    posing = [cause for cause in causes if isinstance(cause, Finding) and cause.name in not_findings]
    has_finding = sum(isinstance(cause, Finding) for cause in causes) > len(posing)
    return [
        cause
        for cause in causes
        if cause not in posing
        and not (isinstance(cause, Unhealthy) and has_finding)
        and not (isinstance(cause, HeldByHand | NotReleased | InUse) and not isinstance(cause, in_use[0]))
    ]


def _taint(  # noqa: C901, PLR0912, PLR0915 - one arm for each cause
    driver: str, cause: Cause, fabric: str, probation: Probation, evictions_per_second: int | None
) -> slices.Taint:
    key, value, effect = IN_USE, "", encoding.NO_SCHEDULE
    text: str
    data: dict[str, str | int]
    match cause:
        case AttachFailed():
            key, value = ATTACH_FAILED, cause.reason
            seconds = round(probation.length.total_seconds())
            where = f" to node {cause.node}" if cause.node else ""
            text = f"Attaching it{where} failed ({cause.reason}); lifted {seconds} s after the failure, once its "
            text += "DeviceAttachment is gone."
            data = {"source": "node" if cause.by_node else "controller", "node": cause.node}
            data |= {"reason": cause.reason, "message": cause.message}
            data |= {"failures": cause.failures, "probationSeconds": seconds}
        case Lost(listed=True):
            key, effect = LOST, encoding.NO_EXECUTE
            text = f"Node {cause.node or 'of its claim'} lost it while a claim has it; lifted when the claim lets go of it."
            data = {"source": "node", "node": cause.node, "message": cause.message}
        case Lost():
            key, effect = LOST, encoding.NO_EXECUTE
            text = "Its fabric manager no longer lists it while a claim has it; lifted when the claim lets go of it."
            data = {"source": "fabric", "node": cause.node}
        case HeldByHand():
            value = "manual"
            text = (
                f"An operator attached it by hand to node {cause.node}; lifted when that DeviceAttachment is "
            )
            text += "deleted and the device is free."
            data = {"source": "operator", "node": cause.node, "host": cause.host}
        case NotReleased(reason=reasons.CLEANING):
            key = CLEANING
            text = f"Node {cause.node} erases what its last user left on it; lifted when that is done and it is free."
            data = {"source": "node", "node": cause.node, "reason": cause.reason}
        case NotReleased(reason=reasons.NOT_CLEANED):
            key = NOT_CLEANED
            text = f"Node {cause.node} cannot take away what its last user left on it, and tries on; the condition Released "
            text += "of its DeviceAttachment has the reason; lifted when that is done and it is free."
            data = {"source": "node", "node": cause.node, "reason": cause.reason}
        case NotReleased():
            value = "releasing"
            text = f"Its release from node {cause.node} takes long"
            if cause.reason:
                text = f"Node {cause.node} does not let go of it ({cause.reason})"
            text += "; lifted when the fabric manager reports it as free."
            data = {
                "source": "node" if cause.reason else "controller",
                "node": cause.node,
                "reason": cause.reason,
            }
        case InUse():
            text = f"Host {cause.host} has it, and no claim of this cluster; lifted when the fabric manager reports that "
            text += "it is free."
            data = {"source": "fabric", "host": cause.host}
        case FabricHealth():
            key, value = FABRIC_HEALTH, cause.health
            effect = encoding.NO_EFFECT if cause.health == "warning" else effect
            text = f"Its fabric manager reports it as {cause.health}; lifted when it reports it well, "
            text += "and after several changes only once that has held for a while."
            data = {"source": "fabric", "fabric": fabric}
        case Finding():
            key, value, effect = cause.name, cause.value, cause.effect
            what = f": {_cut(cause.message, MESSAGE_BYTES)}" if cause.message else ""
            text = f"Node {cause.node} found {cause.name}{what}; lifted when the node finds it no more or has let go of "
            text += "the device."
            data = {"source": "node", "node": cause.node, "reason": cause.name, "message": cause.message}
        case Unhealthy():
            key = NODE_UNHEALTHY
            text = (
                f"Node {cause.node} reports it unhealthy; lifted when it reports it well or has let go of it."
            )
            data = {"source": "node", "node": cause.node, "message": cause.message}
        case Unreachable():
            key = UNREACHABLE
            text = f"The fabric manager of the Fabric {fabric} has been silent for longer than "
            text += "policy.unreachableGraceSeconds; lifted when it answers."
            data = {"source": "controller", "fabric": fabric}
        case Maintenance():
            key = MAINTENANCE
            text = f"A Maintenance of the Fabric {fabric} names it, or all; lifted when none does any more "
            text += "(kubectl get maintenances)."
            data = {"source": "operator", "fabric": fabric}
        case Reserved():
            key = RESERVED
            text = f"policy.immediate of the Fabric {fabric} reserves it for immediate allocation; it is withdrawn when "
            text += "the claim that has it lets go of it."
            data = {"source": "operator", "fabric": fabric}
        case NotOffered():
            key = NOT_OFFERED
            text = f"spec.offer of the Fabric {fabric} leaves it out; it is withdrawn when the claim that has it lets go of it."
            data = {"source": "operator", "fabric": fabric}
        case WearLimited():
            key = WEAR_LIMITED
            text = f"It was erased {cause.erasures} times within a day, as often as policy.erasesPerDevicePerDay of the Fabric "
            text += f"{fabric} allows; lifted when fewer of these erasures are less than a day old."
            data = {"source": "controller", "fabric": fabric}
        case _:
            assert_never(cause)
    return slices.Taint(
        key=f"{driver}/{key}",
        value=slices.label_value(value),
        effect=effect,
        description=_cut(text, DESCRIPTION_BYTES),
        data={
            name: _cut(word, MESSAGE_BYTES) if isinstance(word, str) else word
            for name, word in data.items()
            if word
        },
        evictions_per_second=evictions_per_second if effect == encoding.NO_EXECUTE else None,
    )


def _cut(text: str, most: int) -> str:
    """Return at most so many bytes, without half a character at the end."""
    return text.encode()[:most].decode(errors="ignore")
