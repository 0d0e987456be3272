"""Carries out what `attachments.plan` decided, one side effect per action.

On any error it stops; the key comes back after a pause and everything is observed again.
"""

import datetime
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, assert_never

import msgspec

from drawbar.driver.api import attachments, bindings, claims, meta
from drawbar.driver.kube import client, events, kinds
from drawbar.driver.kube import errors as kube_errors
from drawbar.driver.node import devices
from drawbar.driver.node.attachments import plan

log = logging.getLogger(__name__)

MANAGER = "drawbar-node"
Clock = Callable[[], datetime.datetime]


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What the executor works with.

    Attributes:
        told: by name the uid of attachments whose failure the claim knows; `forget` bounds it.
    """

    api: client.Client
    arrivals: devices.Devices
    recorder: events.Recorder
    boot_id: str
    since: datetime.datetime
    patience: datetime.timedelta
    clock: Clock
    holder: Callable[[str, str], str | None]
    told: dict[str, str] = field(default_factory=dict)

    def forget(self, name: str) -> None:
        """The attachment is gone."""
        self.told.pop(name, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Said:
    """A condition of the attachment as this node sees it."""

    condition: str
    status: bool
    reason: str
    message: str


async def reconcile(context: Context, attachment: attachments.DeviceAttachment) -> float | None:
    """One round for one attachment; gives the seconds after which to look again, if time alone can change it.

    Raises:
        kube_errors.KubeError: a write failed; observe again and decide again.
    """
    now = context.clock()
    again: float | None = None
    for action in plan.plan(_observe(context, attachment), now):
        match action:
            case plan.ReportVisible(arrival=arrival):
                await _report_visible(context, attachment, arrival, now)
            case plan.ReportFailed(reason=reason, message=message):
                await _report_failed(context, attachment, reason, message, now)
            case plan.TellClaim(reason=reason, message=message):
                await _tell_claim(context, attachment, reason, message, now)
            case plan.ReportReleased():
                await _report_released(context, attachment, now)
            case plan.LookAgain(at=moment):
                again = (moment - now).total_seconds()
            case _:
                assert_never(action)
    return again


def _observe(context: Context, attachment: attachments.DeviceAttachment) -> plan.Observed:
    identity = attachment.spec.identity
    function = context.arrivals.find(identity)
    arrival = None
    if function is not None:
        arrival = plan.Arrival(
            address=function.address,
            driver=function.driver or "",
            initialised=devices.is_initialised(function, identity.device_class),
        )
    return plan.Observed(
        attachment=attachment,
        arrival=arrival,
        held_by=context.holder(attachment.spec.pool, attachment.spec.device),
        boot_id=context.boot_id,
        since=context.since,
        patience=context.patience,
        told=context.told.get(attachment.metadata.name) == attachment.metadata.uid,
    )


async def _report_visible(
    context: Context, attachment: attachments.DeviceAttachment, arrival: plan.Arrival, now: datetime.datetime
) -> None:
    message = f"visible as {arrival.address}, driver {arrival.driver or 'none'}"
    statement = bindings.Statement(
        condition=bindings.VISIBLE, status=True, reason="DeviceReady", message=message
    )
    await _say_on_claim(context, attachment, statement, now)
    await _say_on_attachment(
        context,
        attachment,
        _Said(condition=attachments.VISIBLE, status=True, reason="DeviceReady", message=message),
        now,
        phase="Ready",
        arrival=arrival,
    )
    log.info("device is visible", extra={"attachment": attachment.metadata.name, "address": arrival.address})


async def _report_failed(
    context: Context,
    attachment: attachments.DeviceAttachment,
    reason: str,
    message: str,
    now: datetime.datetime,
) -> None:
    await _say_on_attachment(
        context,
        attachment,
        _Said(condition=attachments.VISIBLE, status=False, reason=reason, message=message),
        now,
        phase="Failed",
    )
    log.warning(message, extra={"attachment": attachment.metadata.name, "reason": reason})
    context.recorder.warning(attachment.spec.claim, reason=reason, message=message)


async def _tell_claim(
    context: Context,
    attachment: attachments.DeviceAttachment,
    reason: str,
    message: str,
    now: datetime.datetime,
) -> None:
    statement = bindings.Statement(
        condition=bindings.NODE_FAILED, status=True, reason=reason, message=message
    )
    await _say_on_claim(context, attachment, statement, now)
    context.told[attachment.metadata.name] = attachment.metadata.uid


async def _report_released(
    context: Context, attachment: attachments.DeviceAttachment, now: datetime.datetime
) -> None:
    message = "no claim uses the device on this node"
    await _say_on_attachment(
        context,
        attachment,
        _Said(condition=attachments.RELEASED, status=True, reason="NotInUse", message=message),
        now,
        phase="Released",
    )
    log.info("device released", extra={"attachment": attachment.metadata.name})


async def _say_on_claim(
    context: Context,
    attachment: attachments.DeviceAttachment,
    statement: bindings.Statement,
    now: datetime.datetime,
) -> None:
    """Applies a condition to the claim, if its allocation is still the one of this attachment."""
    spec = attachment.spec
    if spec.claim is None:
        return
    try:
        claim = await context.api.read(
            kinds.CLAIM, spec.claim.name, namespace=spec.claim.namespace, into=claims.ResourceClaim
        )
    except kube_errors.NotFound:
        return
    if not bindings.is_current(claim, uid=spec.claim.uid, allocation_timestamp=spec.allocation_timestamp):
        return
    body = bindings.applied(
        claim,
        spec.driver,
        own=bindings.NODE_CONDITIONS,
        statements={bindings.Key(pool=spec.pool, device=spec.device): statement},
        now=meta.timestamp(now),
    )
    if body is not None:
        await context.api.patch(
            kinds.CLAIM,
            spec.claim.name,
            body,
            content=client.Patch.APPLY,
            into=claims.ResourceClaim,
            namespace=spec.claim.namespace,
            subresource="status",
            manager=MANAGER,
        )


async def _say_on_attachment(
    context: Context,
    attachment: attachments.DeviceAttachment,
    said: _Said,
    now: datetime.datetime,
    *,
    phase: str,
    arrival: plan.Arrival | None = None,
) -> None:
    """Applies a condition, and where the device is, to the attachment. One that is gone needs no word."""
    condition = meta.transition(
        attachment.status.conditions,
        said.condition,
        status=said.status,
        reason=said.reason,
        message=said.message,
        now=meta.timestamp(now),
    )
    status: dict[str, Any] = {"phase": phase, "conditions": [msgspec.to_builtins(condition)]}
    if arrival is not None:
        status["node"] = {
            "pciAddress": arrival.address,
            "kernelDriver": arrival.driver,
            "bootID": context.boot_id,
        }
    body = {
        "apiVersion": attachments.API_VERSION,
        "kind": attachments.KIND,
        "metadata": {"name": attachment.metadata.name, "uid": attachment.metadata.uid},
        "status": status,
    }
    try:
        await context.api.patch(
            kinds.ATTACHMENT,
            attachment.metadata.name,
            body,
            content=client.Patch.APPLY,
            into=attachments.DeviceAttachment,
            subresource="status",
            manager=MANAGER,
        )
    except kube_errors.NotFound:
        return
