"""The node's reports to the API server: on the attachment, on the claim, and as Events.

A visible device costs three requests: one to read the claim, and two to write the claim and the attachment. On clusters whose
claims have no conditions it costs one. Every other report costs one request.

Server-side apply removes a manager's former fields that are missing in the new object. So each object contains all fields of the node:
its conditions, its list of cards, and the device's location and health.
"""

import asyncio
import datetime
import logging
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from drawbar.driver.api import attachments, bindings, claims, drivers, meta
from drawbar.driver.catalogue import reasons
from drawbar.driver.kube import claimstatus, client, events, kinds
from drawbar.driver.kube import errors as kube_errors
from drawbar.driver.node.attachments import matching, plan, witnesses
from drawbar.driver.node.health import verdicts
from drawbar.driver.node.inventory import model

log = logging.getLogger(__name__)

MANAGER = "drawbar-node"
# The user of a device whose record was lost.
UNKNOWN_USER = "unknown"
OWN = (attachments.VISIBLE, attachments.RELEASED, attachments.EXCLUSIVE)
READY = "Ready"
IDLE = "Idle"
FAILED = "Failed"
RELEASED = "Released"
# The controller writes the other phases, and the admission policy forbids them to nodes.
OWN_PHASES = frozenset({READY, IDLE, FAILED, RELEASED})


SOURCE_CHARS = 128
FINGERPRINT_CHARS = 512
"""The limit of the DeviceAttachment's schema."""


class RecognisedDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A recognised device.

    Attributes:
        card: the device's card.
        by: the deciding witness; None if it was never recorded.
    """

    card: model.Card
    by: attachments.Recognition | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reporter:
    """The writer of reports. A method raises `kube_errors.KubeError` if its write failed; then observe and plan again.

    Attributes:
        api: the client of the API server.
        recorder: writes Events.
        boot_id: the ID of the running kernel's boot.
        learn: takes the stored object of a write, before the watch delivers it.
        tells_claims: returns whether claims have conditions of their devices (`resource.k8s.io/v1`). Without them, the
            controller allocates a device only after its attachment shows it as visible.
        companion: returns the DeviceAttachment of that name on this node, or None.
    """

    api: client.Client
    recorder: events.Recorder
    boot_id: str
    learn: Callable[[attachments.DeviceAttachment], None]
    tells_claims: Callable[[], bool]
    companion: Callable[[str], attachments.DeviceAttachment | None] = lambda _: None
    # One lock for each composite: if two members become visible at once, the second one sees the first one's report.
    _composites: weakref.WeakValueDictionary[tuple[str, str], asyncio.Lock] = field(
        default_factory=weakref.WeakValueDictionary
    )

    async def visible(
        self, attachment: attachments.DeviceAttachment, recognised: RecognisedDevice, now: datetime.datetime
    ) -> None:
        """Report that the device is present and ready: first on the claim, because the scheduler waits, then on the attachment.

        For a composite, the claim gets the condition with the last member.
        """
        key = attachment.spec.fabric, attachment.spec.allocated
        lock = self._composites.setdefault(key, asyncio.Lock())
        async with lock:
            await self._visible(attachment, recognised, now)

    async def _visible(
        self, attachment: attachments.DeviceAttachment, recognised: RecognisedDevice, now: datetime.datetime
    ) -> None:
        card = recognised.card
        message = f"visible as {card.address}, driver {card.first.driver or 'none'}"
        if recognised.by is not None:
            message = f"{message}, recognised by {recognised.by}"
        is_whole = all(
            attachment.is_used_with(self.companion(name), attachments.VISIBLE)
            for name in attachment.spec.companions
        )
        claim = (
            await self._set_claim_condition(attachment, bindings.VISIBLE, reasons.DEVICE_READY, message, now)
            if is_whole
            else None
        )
        if claim is not None:
            self.recorder.record_normal(attachment.spec.claim, reason=reasons.DEVICE_READY, message=message)
            self.recorder.tell_pods(claim, warning=False, reason=reasons.DEVICE_READY, message=message)
        if claim is not None or not attachment.holds(attachments.VISIBLE):
            self.recorder.attachment_normal(attachment, reason=reasons.DEVICE_READY, message=message)
        fresh = condition(
            attachment,
            attachments.VISIBLE,
            status=True,
            reason=reasons.DEVICE_READY,
            message=message,
            now=now,
        )
        idle = attachment.spec.claim is None and not attachment.held_by_hand
        node = report(attachment, recognised, self.boot_id, used=True)
        phase = IDLE if idle else READY
        await self._apply(attachment, build_apply(attachment, fresh=fresh, node=node, phase=phase))
        log.info("device is visible", extra={"attachment": attachment.metadata.name, "address": card.address})

    def report_hook(
        self, attachment: attachments.DeviceAttachment, request: attachments.Initialisation
    ) -> None:
        """Report in Events that the device's hook runs, or that its bitstream is being loaded."""
        device, within = attachment.spec.device, f"within {request.timeout_seconds} s"
        if request.hook:
            what = f" with bitstream {request.bitstream}" if request.bitstream else ""
            message = f"hook {request.hook}{what} makes {device} ready, {within}"
        else:
            message = f"bitstream {request.bitstream} is loaded into {device}, {within}"
        self.recorder.record_normal(attachment.spec.claim, reason=reasons.INITIALISING, message=message)
        self.recorder.attachment_normal(attachment, reason=reasons.INITIALISING, message=message)
        log.info(message, extra={"attachment": attachment.metadata.name})

    async def report_failure(
        self, attachment: attachments.DeviceAttachment, reason: str, message: str, now: datetime.datetime
    ) -> None:
        """Report that the device will not become ready."""
        fresh = condition(
            attachment, attachments.VISIBLE, status=False, reason=reason, message=message, now=now
        )
        await self._apply(attachment, build_apply(attachment, fresh=fresh, phase=FAILED))
        log.warning(message, extra={"attachment": attachment.metadata.name, "reason": reason})
        self.recorder.record_warning(attachment.spec.claim, reason=reason, message=message)
        self.recorder.attachment_warning(attachment, reason=reason, message=message)

    async def report_to_claim(
        self, attachment: attachments.DeviceAttachment, reason: str, message: str, now: datetime.datetime
    ) -> None:
        """Report the failure on the claim, so that the scheduler may take the allocation back."""
        await self._set_claim_condition(attachment, bindings.NODE_FAILED, reason, message, now)

    async def report_remembered(self, attachment: attachments.DeviceAttachment) -> None:
        """Report that the node remembers its cards, so that the fabric may attach the device."""
        baseline = attachments.Baseline(boot_id=self.boot_id)
        await self._apply(attachment, build_apply(attachment, baseline=baseline))

    async def record_location(
        self, attachment: attachments.DeviceAttachment, recognised: RecognisedDevice
    ) -> None:
        """Record the device's location, and nothing else."""
        node = report(attachment, recognised, self.boot_id, used=True)
        await self._apply(attachment, build_apply(attachment, node=node))

    async def clean(self, attachment: attachments.DeviceAttachment, recognised: RecognisedDevice) -> None:
        """Report that the device has no trace of an earlier use."""
        node = report(attachment, recognised, self.boot_id, used=False)
        await self._apply(attachment, build_apply(attachment, node=node))
        log.info("device was cleaned", extra={"attachment": attachment.metadata.name})

    async def health(self, attachment: attachments.DeviceAttachment, verdict: verdicts.Verdict) -> None:
        """Report the verdict on the device's health."""
        node = plan.update_verdict(attachment, verdict)
        await self._apply(attachment, build_apply(attachment, node=node))

    async def report_obstacle(
        self, attachment: attachments.DeviceAttachment, reason: str, message: str, now: datetime.datetime
    ) -> None:
        """Report the obstacle to the device's release."""
        fresh = condition(
            attachment, attachments.RELEASED, status=False, reason=reason, message=message, now=now
        )
        await self._apply(attachment, build_apply(attachment, fresh=fresh))
        extra = {"attachment": attachment.metadata.name}
        if reason == reasons.CLEANING:
            log.info("a device is being cleaned: %s", message, extra=extra)
            self.recorder.attachment_normal(attachment, reason=reason, message=message)
            return
        log.warning("a device cannot be given back: %s", message, extra=extra)
        self.recorder.record_warning(attachment.spec.claim, reason=reason, message=message)
        self.recorder.attachment_warning(attachment, reason=reason, message=message)

    async def exclusive(
        self,
        attachment: attachments.DeviceAttachment,
        *,
        status: bool,
        reason: str,
        message: str,
        now: datetime.datetime,
    ) -> None:
        """Report whether this driver is the only one to offer the device."""
        fresh = condition(
            attachment, attachments.EXCLUSIVE, status=status, reason=reason, message=message, now=now
        )
        await self._apply(attachment, build_apply(attachment, fresh=fresh))
        extra = {"attachment": attachment.metadata.name}
        if status:
            log.info(message, extra=extra)
            self.recorder.attachment_normal(attachment, reason=reason, message=message)
            return
        log.warning(message, extra=extra)
        self.recorder.record_warning(attachment.spec.claim, reason=reason, message=message)
        self.recorder.attachment_warning(attachment, reason=reason, message=message)

    async def report_release(self, attachment: attachments.DeviceAttachment, now: datetime.datetime) -> None:
        """Report that this node has released the device."""
        message = "no claim uses the device on this node, and the kernel has nothing of it any more"
        fresh = condition(
            attachment, attachments.RELEASED, status=True, reason=reasons.NOT_IN_USE, message=message, now=now
        )
        await self._apply(attachment, build_apply(attachment, fresh=fresh, phase=RELEASED))
        log.info("device released", extra={"attachment": attachment.metadata.name})

    async def _apply(self, attachment: attachments.DeviceAttachment, body: dict[str, Any]) -> None:
        """Apply the body to the attachment's status, unless the attachment is gone."""
        try:
            stored = await self.api.patch(
                kinds.ATTACHMENT,
                attachment.metadata.name,
                body,
                content=client.Patch.APPLY,
                into=attachments.DeviceAttachment,
                subresource="status",
                manager=drivers.manager(MANAGER, attachment.spec.driver),
            )
        except kube_errors.NotFound:
            return
        self.learn(stored)

    async def _set_claim_condition(
        self,
        attachment: attachments.DeviceAttachment,
        name: str,
        reason: str,
        message: str,
        now: datetime.datetime,
    ) -> claims.ResourceClaim | None:
        """Apply a condition to the claim, if the attachment belongs to the claim's present allocation.

        Return the claim if the condition is new, else None.
        """
        spec = attachment.spec
        if spec.claim is None or not self.tells_claims():
            return None
        try:
            claim = await self.api.read(
                kinds.CLAIM, spec.claim.name, namespace=spec.claim.namespace, into=claims.ResourceClaim
            )
        except kube_errors.NotFound:
            return None
        if not bindings.is_current(claim, uid=spec.claim.uid, allocation_timestamp=spec.allocation_timestamp):
            return None
        statement = bindings.Statement(condition=name, status=True, reason=reason, message=message)
        body = bindings.build_apply(
            claim,
            spec.driver,
            own=bindings.NODE_CONDITIONS,
            statements={
                bindings.Key(pool=spec.pool, device=spec.allocated, share_id=spec.share_id): statement
            },
            now=meta.timestamp(now),
        )
        if body is None:
            return None
        manager = drivers.manager(MANAGER, attachment.spec.driver)
        return await claimstatus.apply(self.api, claim, body, manager=manager)


def recognise(
    attachment: attachments.DeviceAttachment, card: model.Card, match: matching.Match
) -> RecognisedDevice:
    """Return the card with its deciding witness: the match's, or the recorded one of the same card."""
    node = attachment.status.node
    former = node.recognised_by if node is not None else None
    shown = witnesses.fingerprint(card)
    deciding = match.deciding if isinstance(match, matching.Found) and match.card == card else None
    if deciding is None:
        is_same = former is not None and former.fingerprint == shown
        return RecognisedDevice(card=card, by=former if is_same else None)
    is_number = deciding.kind not in (matching.SLOT, matching.SOLE_ARRIVAL)
    return RecognisedDevice(
        card=card,
        by=attachments.Recognition(
            kind=deciding.kind,
            fabric_source=_cut(deciding.fabric_source) if is_number else "",
            node_source=_cut(deciding.host_source) if is_number else "",
            fingerprint=shown[:FINGERPRINT_CHARS],
        ),
    )


def _cut(source: str) -> str:
    printable = "".join(character for character in source if character.isprintable())
    return printable[:SOURCE_CHARS]


def report(
    attachment: attachments.DeviceAttachment, recognised: RecognisedDevice, boot_id: str, *, used: bool
) -> attachments.NodeReport:
    """Return the report with the device's location now; its health stays as reported.

    Args:
        attachment: the attachment as known now.
        recognised: the device.
        boot_id: the ID of the running kernel's boot.
        used: whether to record a use, by the attachment's claim or else the former user; False records a clean device.
    """
    recorded, spec, card = attachment.status.node, attachment.spec, recognised.card
    former = recorded or attachments.NodeReport()
    user, hooks = (former.claim_uid, former.allocation_timestamp), (former.drain, former.clean_up)
    if not used:
        user, hooks = ("", ""), (None, None)
    elif spec.claim is not None:
        user = (spec.claim.uid, spec.allocation_timestamp or "")
        hooks = (spec.claim.drain, spec.claim.clean_up)
    elif recorded is None and not attachment.held_by_hand:
        user = (UNKNOWN_USER, "")
    return msgspec.structs.replace(
        former,
        pci_address=card.address,
        arrival=card.arrival,
        kernel_driver=card.first.driver or "",
        boot_id=boot_id,
        slot=card.first.slot or "",
        recognised_by=recognised.by,
        claim_uid=user[0],
        allocation_timestamp=user[1],
        drain=hooks[0],
        clean_up=hooks[1],
    )


def condition(
    attachment: attachments.DeviceAttachment,
    name: str,
    *,
    status: bool,
    reason: str,
    message: str,
    now: datetime.datetime,
) -> meta.Condition:
    """Return a condition of the attachment, with its transition time."""
    return meta.transition(
        attachment.status.conditions,
        name,
        status=status,
        reason=reason,
        message=message,
        now=meta.timestamp(now),
    )


def build_apply(
    attachment: attachments.DeviceAttachment,
    *,
    fresh: meta.Condition | None = None,
    node: attachments.NodeReport | None = None,
    baseline: attachments.Baseline | None = None,
    phase: str | None = None,
) -> dict[str, Any]:
    """Return the object to apply; absent arguments keep their fields."""
    status = attachment.status
    conditions = {condition.type: condition for condition in status.conditions if condition.type in OWN}
    if fresh is not None:
        conditions[fresh.type] = fresh
    content: dict[str, Any] = {
        "conditions": [msgspec.to_builtins(conditions[name]) for name in sorted(conditions)]
    }
    phase = status.phase if phase is None else phase
    if phase in OWN_PHASES:
        content["phase"] = phase
    listed = baseline or status.baseline
    if listed is not None:
        content["baseline"] = msgspec.to_builtins(listed)
    node_report = node or status.node
    if node_report is not None:
        content["node"] = msgspec.to_builtins(node_report)
    return {
        "apiVersion": attachments.API_VERSION,
        "kind": attachments.KIND,
        "metadata": {"name": attachment.metadata.name, "uid": attachment.metadata.uid},
        "status": content,
    }
