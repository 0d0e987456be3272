"""The causes why a fabric's device should not be allocated now, and the taint of each; decided purely.

`catalogue.taints` lists the taints.

The description of a taint is one sentence about the trouble and its end. Its data are a flat object with a few common
keys: `source` (the observer: fabric, node, controller or operator), `fabric`, `node`, `host`, `reason`, `message`,
`failures`, `probationSeconds`. Unknown values are left out. Nothing in it changes while the cause stays the same, since
each change is a write. If the API server has no fields for them, `slices.encoding` leaves them out.

Source: KEP-5055, DeviceTaint; limits from its validation (1 KiB and 10 KiB). `timeAdded` is kept while a taint stays
the same, since tolerations count from it.
"""

import datetime
from collections.abc import Iterable, Sequence
from typing import Literal, assert_never

import msgspec

from drawbar.driver.api import attachments, slices
from drawbar.driver.catalogue import reasons, taints
from drawbar.driver.controller import outcomes
from drawbar.driver.slices import encoding

DESCRIPTION_BYTES = 1024
# The limit for the words of the fabric manager or the kernel; the Event has all of them.
MESSAGE_BYTES = 256


class AttachFailed(msgspec.Struct, frozen=True, kw_only=True):
    """A failed attach to a node, or a node's failure to use the device.

    Attributes:
        by_node: whether the node reported it.
        failures: the number of failures in a row; 0 if not known.
    """

    reason: str
    node: str = ""
    message: str = ""
    by_node: bool = False
    failures: int = 0


class Lost(msgspec.Struct, frozen=True, kw_only=True):
    """A device that vanished from its node, or from the fabric, while a claim has it.

    Attributes:
        listed: whether the fabric manager still lists it.
    """

    node: str = ""
    message: str = ""
    listed: bool = True


class HeldByHand(msgspec.Struct, frozen=True, kw_only=True):
    """A device that an operator attached."""

    node: str = ""
    host: str = ""


class NotReleased(msgspec.Struct, frozen=True, kw_only=True):
    """A release that takes too long.

    Attributes:
        reason: the reason why its node does not release it; empty without a report of the node.
    """

    node: str = ""
    reason: str = ""


class InUse(msgspec.Struct, frozen=True, kw_only=True):
    """A device with a host, and without a claim of this cluster."""

    host: str = ""


class FabricHealth(msgspec.Struct, frozen=True, kw_only=True):
    """A device that the fabric manager reports as unhealthy."""

    health: Literal["critical", "warning"]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A node's finding about the device; `name` is the key of the taint."""

    name: str
    value: str
    effect: str
    message: str = ""
    node: str = ""


class Unhealthy(msgspec.Struct, frozen=True, kw_only=True):
    """A device that its node reports as unhealthy."""

    node: str = ""
    message: str = ""


class Unreachable(msgspec.Struct, frozen=True):
    """A free device whose fabric manager has been silent for too long."""


class Maintenance(msgspec.Struct, frozen=True):
    """A device in maintenance: a Maintenance of its Fabric names it, or all devices."""


class Reserved(msgspec.Struct, frozen=True):
    """A device that is reserved for immediate allocation, with a claim from the scheduler."""


class NotOffered(msgspec.Struct, frozen=True):
    """A device outside of its Fabric's offer, with a claim."""


class WearLimited(msgspec.Struct, frozen=True, kw_only=True):
    """A device that was erased as often as its Fabric allows within a day."""

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


class Probation(msgspec.Struct, frozen=True, kw_only=True):
    """The time for which a failure counts after its end.

    Attributes:
        length: the duration.
        since: the time when this process first saw the failure's taint, on its steady clock; `timeAdded` is another
            machine's.
    """

    length: datetime.timedelta
    since: datetime.datetime


def failure(attachment: attachments.DeviceAttachment | None) -> AttachFailed | None:
    """Return the failure that the device is to blame for, or None."""
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
    """Return the fabric manager's refusal of the device at this host, which neither is to blame for, or None."""
    problem = outcomes.problem(attachment) if attachment is not None else None
    return problem if problem is not None and problem.reason == reasons.DEVICE_INCOMPATIBLE else None


def find_attachment_causes(
    attachment: attachments.DeviceAttachment | None, *, overdue: bool = False
) -> tuple[Cause, ...]:
    """Return the causes in an attachment's report of its device; empty during an attach without trouble.

    Args:
        attachment: the device's attachment, or None.
        overdue: whether its release takes too long, for any reason.
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
        findings = (_read_finding(finding, node) for finding in report.findings[: attachments.FINDINGS_MAX])
        causes += {finding.name: finding for finding in findings if finding.name}.values()
        if report.unhealthy:
            causes.append(Unhealthy(node=node, message=report.health_message))
    return tuple(causes)


def _read_finding(reported: attachments.NodeFinding, node: str) -> Finding:
    """Return a node's finding in a taint's terms; without a name if nothing valid is left of it."""
    is_effect = reported.effect in encoding.EFFECTS
    return Finding(
        name=slices.label_value(reported.name),
        value=slices.label_value(reported.value),
        effect=reported.effect if is_effect else encoding.NO_SCHEDULE,
        message=reported.message,
        node=node,
    )


def make_taints(
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
        causes: the device's causes.
        old: the device's present taints.
        now: the time on the steady clock.
        date: the time of day, for new taints.
        fabric: the name of the Fabric object.
        probation: the time for which a failure counts after its end.
        evictions_per_second: the most pods per second that may be evicted for one taint; None leaves it to Kubernetes.
    """
    causes = tuple(causes)
    wanted = [
        _taint(driver, cause, fabric, probation, evictions_per_second) for cause in _drop_covered(causes)
    ]
    failure_taint, end = _find_known_failure(driver, old), probation_end(driver, causes, old, probation)
    if failure_taint is not None and end is not None and now < end:
        # The failure's taint stays as it was until it is lifted: the attachment with the details is gone.
        wanted.append(failure_taint)
    return tuple(sorted(encoding.date_taints(wanted, old, date), key=encoding.rank))


def probation_end(
    driver: str, causes: Iterable[Cause], old: Iterable[slices.Taint], probation: Probation
) -> datetime.datetime | None:
    """Return when the taint of a past failure can be lifted, or None if there is no such taint."""
    failure_taint = _find_known_failure(driver, old)
    is_failing = any(isinstance(cause, AttachFailed) for cause in causes)
    if is_failing or failure_taint is None or failure_taint.time_added is None:
        return None
    return probation.since + probation.length


def failures(driver: str, published: slices.ResourceSlice | None) -> dict[str, str]:
    """Return, by device name, the time of its failure, for devices that a slice marks as failed."""
    if published is None:
        return {}
    spec, key = published.spec, f"{driver}/{taints.ATTACH_FAILED.key}"
    tainted = [(device.name, taint) for device in spec.devices for taint in device.taints]
    tainted += [(entry.device, entry.taint) for entry in spec.taints]
    return {name: taint.time_added or "" for name, taint in tainted if taint.key == key}


def _find_known_failure(driver: str, old: Iterable[slices.Taint]) -> slices.Taint | None:
    return next((taint for taint in old if taint.key == f"{driver}/{taints.ATTACH_FAILED.key}"), None)


def _drop_covered(causes: tuple[Cause, ...]) -> list[Cause]:
    """Return the causes that get a taint, without those that another one covers."""
    in_use = [
        kind for kind in (HeldByHand, NotReleased, InUse) if any(isinstance(cause, kind) for cause in causes)
    ]
    # A vanished device has a taint for that already, and a node does not report for the other sources.
    not_findings = (
        taints.KEYS if any(isinstance(cause, Lost) for cause in causes) else taints.KEYS - {taints.LOST.key}
    )
    posing = [cause for cause in causes if isinstance(cause, Finding) and cause.name in not_findings]
    has_finding = sum(isinstance(cause, Finding) for cause in causes) > len(posing)
    return [
        cause
        for cause in causes
        if cause not in posing
        and not (isinstance(cause, Unhealthy) and has_finding)
        and not (isinstance(cause, HeldByHand | NotReleased | InUse) and not isinstance(cause, in_use[0]))
    ]


def _row(cause: Cause) -> taints.Taint:  # noqa: C901, PLR0911, PLR0912 - one arm for each cause
    """Return the catalogue's row of a cause; the row of a finding has the names of the node's health policy."""
    match cause:
        case AttachFailed():
            return taints.ATTACH_FAILED
        case Lost():
            return taints.LOST if cause.listed else taints.LOST_BY_FABRIC
        case HeldByHand():
            return taints.HELD_BY_HAND
        case NotReleased(reason=reasons.CLEANING):
            return taints.CLEANING
        case NotReleased(reason=reasons.NOT_CLEANED):
            return taints.NOT_CLEANED
        case NotReleased():
            return taints.RELEASE_BLOCKED if cause.reason else taints.RELEASING
        case InUse():
            return taints.IN_USE
        case FabricHealth():
            return taints.FABRIC_CRITICAL if cause.health == "critical" else taints.FABRIC_WARNING
        case Finding():
            return msgspec.structs.replace(taints.FINDING, key=cause.name, effect=cause.effect)
        case Unhealthy():
            return taints.NODE_UNHEALTHY
        case Unreachable():
            return taints.FABRIC_UNREACHABLE
        case Maintenance():
            return taints.MAINTENANCE
        case Reserved():
            return taints.RESERVED
        case NotOffered():
            return taints.NOT_OFFERED
        case WearLimited():
            return taints.WEAR_LIMITED
        case _:
            assert_never(cause)


def _taint(
    driver: str, cause: Cause, fabric: str, probation: Probation, evictions_per_second: int | None
) -> slices.Taint:
    row = _row(cause)
    facts: dict[str, str | int] = msgspec.structs.asdict(cause)
    facts |= {"fabric": fabric, "probationSeconds": round(probation.length.total_seconds())}
    data: dict[str, str | int] = {"source": "node" if facts.get("by_node") else row.source}
    data |= {name: facts["name" if name == "reason" and "name" in facts else name] for name in row.data}
    message = _cut(str(facts.get("message", "")), MESSAGE_BYTES)
    words = facts | {
        "where": f" to node {facts.get('node')}" if facts.get("node") else "",
        "what": f": {message}" if message else "",
        "node": facts.get("node") or "of its claim",
    }
    return slices.Taint(
        key=f"{driver}/{row.key}",
        value=slices.label_value(row.value.format_map(words)),
        effect=row.effect,
        description=_cut(row.description.format_map(words), DESCRIPTION_BYTES),
        data={
            name: _cut(word, MESSAGE_BYTES) if isinstance(word, str) else word
            for name, word in data.items()
            if word
        },
        evictions_per_second=evictions_per_second if row.effect == encoding.NO_EXECUTE else None,
    )


def _cut(text: str, most: int) -> str:
    """Return the text cut to so many bytes, without half a character at the end."""
    return text.encode()[:most].decode(errors="ignore")
