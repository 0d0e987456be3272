"""The attachments that hang, and the reasons; pure.

Times are compared by the API server's clock. The Fabric, or the node daemon's default, sets how long each step may
take.
"""

import datetime
from collections.abc import Iterator, Mapping

import msgspec

from drawbar.driver.api import attachments, fabrics, meta
from drawbar.driver.catalogue import attachment_conditions, links
from drawbar.driver.cli.doctor import findings, observed
from drawbar.driver.cli.doctor.findings import Check, Finding, Severity, Unread
from drawbar.driver.controller import outcomes

MARGIN_SECONDS = 30.0
"""The time from a deadline until its consequences are written."""
VISIBLE_SECONDS = 60.0
"""The node daemon's default `visibleTimeoutSeconds`."""
DETACH_SECONDS = 60.0
"""Once no pod has the device, the kernel, the kubelet and the fabric take only seconds."""
NAMED_MAX = 50
"""The most attachments with a finding of their own, enough in an outage."""
_FORCE = f"kubectl annotate deviceattachment NAME {attachments.FORCE_ANNOTATION}=true"


class World(msgspec.Struct, frozen=True, kw_only=True):
    """The surroundings of an attachment; `nodes` is None if they could not be read."""

    now: datetime.datetime
    fabrics: Mapping[str, fabrics.Fabric] | None
    nodes: frozenset[str] | None


def plan(cluster: observed.Cluster) -> Iterator[Finding]:
    """Yield the findings on attachments; only the first of them have one each."""
    all_attachments = cluster.attachments
    if isinstance(all_attachments, Unread):
        yield findings.make_unread(Check.ATTACHMENTS_ATTACH, all_attachments)
        return
    world = World(
        now=cluster.now,
        fabrics=None
        if isinstance(cluster.fabrics, Unread)
        else {fabric.metadata.name: fabric for fabric in cluster.fabrics},
        nodes=None
        if isinstance(cluster.nodes, Unread)
        else frozenset(node.metadata.name for node in cluster.nodes),
    )
    ours = [attachment for attachment in all_attachments if attachment.spec.driver == cluster.where.driver]
    problems = [
        finding
        for attachment in all_attachments
        for finding in judge_attachment(world, attachment, cluster.where.driver)
    ]
    yield from problems[:NAMED_MAX]
    if len(problems) > NAMED_MAX:
        yield Finding(
            check=Check.ATTACHMENTS_ATTACH,
            severity=min((problem.severity for problem in problems), key=list(Severity).index),
            subject=f"{len(problems) - NAMED_MAX} more DeviceAttachments",
            message="have something wrong as well",
            remedy="kubectl get deviceattachments shows phase and error of each",
        )
    if not problems:
        yield findings.make_ok(Check.ATTACHMENTS_ATTACH, f"{len(ours)} DeviceAttachments", "none hangs")


def judge_attachment(
    world: World, attachment: attachments.DeviceAttachment, driver: str
) -> Iterator[Finding]:
    """Yield the findings on one attachment."""
    fabric = world.fabrics.get(attachment.spec.fabric) if world.fabrics is not None else None
    if world.fabrics is not None and fabric is None:
        message = (
            f"its Fabric {attachment.spec.fabric} does not exist, so no controller can detach the device"
        )
        remedy = "create the Fabric again, as it was, and then delete the DeviceAttachment"
        yield findings.make_error(Check.ATTACHMENTS_ORPHANED, _subject(attachment), message, remedy)
    elif fabric is not None and fabric.spec.driver != attachment.spec.driver:
        message = f"names the driver {attachment.spec.driver}, and its Fabric {fabric.spec.driver}: no controller serves it"
        yield findings.make_error(
            Check.ATTACHMENTS_ORPHANED, _subject(attachment), message, "delete it: it blocks its device"
        )
    elif attachment.spec.driver == driver:
        yield from (
            _check_departure(world, attachment)
            if attachment.deleting
            else _check_arrival(world, attachment, fabric)
        )


def _check_departure(world: World, attachment: attachments.DeviceAttachment) -> Iterator[Finding]:
    refused = meta.find(attachment.status.conditions, attachments.DETACHED)
    if refused is not None and not refused.is_true:
        yield findings.make_warning(
            Check.ATTACHMENTS_DETACH,
            _subject(attachment),
            f"is not detached yet ({refused.reason}): {refused.message}",
            attachment_conditions.find_attached(refused.reason).advise(
                deviceattachment=attachment.metadata.name
            ),
        )
    if not _is_overdue(world, attachment, None):
        return
    seconds = _age(world, attachment.metadata.deletion_timestamp)
    released, severity = meta.find(attachment.status.conditions, attachments.RELEASED), Severity.ERROR
    since, node = f"is to be detached since {seconds:.0f} s", attachment.spec.node_name
    if released is not None and released.is_true:
        message = f"{since}; node {node} has released it, and the fabric has not detached it"
        remedy = f"drawbar explain fabric/{attachment.spec.fabric} shows whether it is connected; read the controller's log"
    elif world.nodes is not None and node not in world.nodes:
        message = f"{since}; node {node} is gone, and the fabric has not taken it back"
        remedy = f"drawbar explain fabric/{attachment.spec.fabric} shows whether it is connected; read the controller's log"
    elif released is not None:
        message = f"{since}; node {node} does not release it ({released.reason}): {released.message}"
        row = attachment_conditions.RELEASED.find(released.reason)
        severity, remedy = Severity(row.severity.value), row.advise(deviceattachment=attachment.metadata.name)
    else:
        message = f"{since}, and the node daemon of {node} is silent"
        remedy = f"drawbar explain node/{node} shows whether it runs; if the node is off for good: {_FORCE.replace('NAME', attachment.metadata.name)}"
    yield Finding(
        check=Check.ATTACHMENTS_DETACH,
        severity=severity,
        subject=_subject(attachment),
        message=message,
        remedy=remedy,
    )


def _check_arrival(
    world: World, attachment: attachments.DeviceAttachment, fabric: fabrics.Fabric | None
) -> Iterator[Finding]:
    status, node = attachment.status, attachment.spec.node_name
    if status.error is not None:
        row = attachment_conditions.find_failure(status.error.reason)
        yield findings.make_warning(
            Check.ATTACHMENTS_FAILED,
            _subject(attachment),
            f"has failed ({status.error.reason}): {status.error.message}",
            f"{row.advise(deviceattachment=attachment.metadata.name)}; it goes when the scheduler has taken the allocation back",
        )
    elif not attachment.holds(attachments.ATTACHED):
        yield from _check_attach(world, attachment, fabric)
    elif (contradiction := outcomes.contradiction(attachment)) is not None:
        yield findings.make_warning(
            Check.ATTACHMENTS_ATTACH,
            _subject(attachment),
            f"is attached by its record, and {contradiction.message}",
            attachment_conditions.ATTACHED.find(contradiction.reason).advise(
                deviceattachment=attachment.metadata.name
            ),
        )
    elif not attachment.holds(attachments.VISIBLE):
        attached = meta.find(status.conditions, attachments.ATTACHED)
        seconds = _age(world, attached.last_transition_time if attached else None)
        if _is_overdue(world, attachment, fabric):
            yield _invisible(attachment, seconds)
    elif status.node is not None and status.node.unhealthy:
        yield findings.make_warning(
            Check.ATTACHMENTS_HEALTH,
            _subject(attachment),
            f"node {node} reports the device as unhealthy: {status.node.health_message}",
            f"{links.url('reference/findings.md')} explains each finding; new pods are kept away from the device until it is well",
        )


def _check_attach(
    world: World, attachment: attachments.DeviceAttachment, fabric: fabrics.Fabric | None
) -> Iterator[Finding]:
    condition = meta.find(attachment.status.conditions, attachments.ATTACHED)
    if condition is not None and not condition.is_true:
        yield findings.make_warning(
            Check.ATTACHMENTS_ATTACH,
            _subject(attachment),
            f"is not attached yet ({condition.reason}): {condition.message}",
            attachment_conditions.find_attached(condition.reason).advise(
                deviceattachment=attachment.metadata.name
            ),
        )
    if _is_overdue(world, attachment, fabric):
        seconds = _age(world, attachment.metadata.creation_timestamp)
        yield findings.make_error(
            Check.ATTACHMENTS_ATTACH,
            _subject(attachment),
            f"has been attaching to node {attachment.spec.node_name} for {seconds:.0f} s, longer than attachTimeoutSeconds allows",
            f"drawbar doctor shows whether a controller leads, drawbar explain fabric/{attachment.spec.fabric} whether the Fabric is connected",
        )


def find_deadline(
    attachment: attachments.DeviceAttachment, fabric: fabrics.Fabric | None
) -> datetime.datetime | None:
    """Return when the present step of an attachment is overdue; None if it has no such step."""
    status = attachment.status
    if attachment.deleting:
        since, seconds = attachment.metadata.deletion_timestamp, DETACH_SECONDS
    elif status.error is not None or attachment.holds(attachments.VISIBLE):
        return None
    elif not attachment.holds(attachments.ATTACHED):
        policy = fabric.spec.policy if fabric is not None else fabrics.Policy()
        since = attachment.metadata.creation_timestamp
        seconds = policy.attach_timeout_seconds + MARGIN_SECONDS
    else:
        attached = meta.find(status.conditions, attachments.ATTACHED)
        since = attached.last_transition_time if attached is not None else None
        seconds = VISIBLE_SECONDS + MARGIN_SECONDS
    begun = meta.moment(since)
    return begun + datetime.timedelta(seconds=seconds) if begun is not None else None


def _is_overdue(
    world: World, attachment: attachments.DeviceAttachment, fabric: fabrics.Fabric | None
) -> bool:
    deadline = find_deadline(attachment, fabric)
    return deadline is not None and world.now > deadline


def _invisible(attachment: attachments.DeviceAttachment, seconds: float) -> Finding:
    visible, node = meta.find(attachment.status.conditions, attachments.VISIBLE), attachment.spec.node_name
    state = f"has been attached for {seconds:.0f} s and is not ready on node {node}"
    if visible is None:
        return findings.make_error(
            Check.ATTACHMENTS_VISIBLE,
            _subject(attachment),
            f"{state}, whose node daemon is silent",
            f"drawbar explain node/{node} shows whether it runs; on the node, drawbar doctor --node",
        )
    return findings.make_error(
        Check.ATTACHMENTS_VISIBLE,
        _subject(attachment),
        f"{state} ({visible.reason}): {visible.message}",
        attachment_conditions.NODE_FAILURES.find(visible.reason).advise(
            deviceattachment=attachment.metadata.name
        ),
    )


def _age(world: World, moment: str | None) -> float:
    since = meta.moment(moment)
    return (world.now - since).total_seconds() if since is not None else 0.0


def _subject(attachment: attachments.DeviceAttachment) -> str:
    return f"DeviceAttachment {attachment.metadata.name}"
