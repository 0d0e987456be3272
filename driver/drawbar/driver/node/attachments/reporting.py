"""Writes the node's reports to the API server: on the attachment, on the claim, and as Events.

Writes: a device that becomes visible costs three requests (the claim is read, the claim and the attachment are
written), everything else one. Where claims have no conditions it costs one, too.

Server-side apply takes back whatever its manager said before and leaves out now, so each object carries all that the
node says: both its conditions, its list of cards, where the device is, and how it is.
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
# Of a device whose record was lost, and with it whose it was.
UNKNOWN_USER = "unknown"
OWN = (attachments.VISIBLE, attachments.RELEASED, attachments.EXCLUSIVE)
READY = "Ready"
IDLE = "Idle"
FAILED = "Failed"
RELEASED = "Released"
# The other phases are the controller's, and the admission policy lets no node write them.
OWN_PHASES = frozenset({READY, IDLE, FAILED, RELEASED})


SOURCE_CHARS = 128
FINGERPRINT_CHARS = 512
"""As many as the DeviceAttachment takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recognised:
    """A device and the witness by which it was recognised; None if that was never recorded."""

    card: model.Card
    by: attachments.Recognition | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reporter:
    """Every method raises `kube_errors.KubeError`: the write failed, so observe again and decide again.

    Attributes:
        learn: takes what a write returned, before the watch delivers it.
        companion: returns the DeviceAttachment of that name on this node, or None.
        tells_claims: whether claims have conditions of their devices (`resource.k8s.io/v1`). Where they have none, the
            controller allocates a device only after its attachment shows it as visible.
    """

    api: client.Client
    recorder: events.Recorder
    boot_id: str
    learn: Callable[[attachments.DeviceAttachment], None]
    tells_claims: Callable[[], bool]
    companion: Callable[[str], attachments.DeviceAttachment | None] = lambda _: None
    # By composite: of two members that become visible at once, the second one sees the first one's report.
    _composites: weakref.WeakValueDictionary[tuple[str, str], asyncio.Lock] = field(
        default_factory=weakref.WeakValueDictionary
    )

    async def visible(
        self, attachment: attachments.DeviceAttachment, recognised: Recognised, now: datetime.datetime
    ) -> None:
        """The device is here and ready. The claim first: the scheduler waits for it.

        About a composite the claim gets the condition with its last member.
        """
        key = attachment.spec.fabric, attachment.spec.allocated
        lock = self._composites.setdefault(key, asyncio.Lock())
        async with lock:
            await self._visible(attachment, recognised, now)

    async def _visible(
        self, attachment: attachments.DeviceAttachment, recognised: Recognised, now: datetime.datetime
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
            self.recorder.normal(attachment.spec.claim, reason=reasons.DEVICE_READY, message=message)
            self.recorder.tell_pods(claim, warning=False, reason=reasons.DEVICE_READY, message=message)
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
        await self._apply(attachment, applied(attachment, fresh=fresh, node=node, phase=phase))
        log.info("device is visible", extra={"attachment": attachment.metadata.name, "address": card.address})

    def hook_begun(self, attachment: attachments.DeviceAttachment, asked: attachments.Initialisation) -> None:
        """The device's hook runs, or its bitstream is being loaded."""
        device, within = attachment.spec.device, f"within {asked.timeout_seconds} s"
        if asked.hook:
            what = f" with bitstream {asked.bitstream}" if asked.bitstream else ""
            message = f"hook {asked.hook}{what} makes {device} ready, {within}"
        else:
            message = f"bitstream {asked.bitstream} is loaded into {device}, {within}"
        self.recorder.normal(attachment.spec.claim, reason=reasons.INITIALISING, message=message)
        if not attachment.spec.is_local:
            self.recorder.attachment_normal(attachment, reason=reasons.INITIALISING, message=message)
        log.info(message, extra={"attachment": attachment.metadata.name})

    async def failed(
        self, attachment: attachments.DeviceAttachment, reason: str, message: str, now: datetime.datetime
    ) -> None:
        """The device will not become ready."""
        fresh = condition(
            attachment, attachments.VISIBLE, status=False, reason=reason, message=message, now=now
        )
        await self._apply(attachment, applied(attachment, fresh=fresh, phase=FAILED))
        log.warning(message, extra={"attachment": attachment.metadata.name, "reason": reason})
        self.recorder.warning(attachment.spec.claim, reason=reason, message=message)

    async def report_to_claim(
        self, attachment: attachments.DeviceAttachment, reason: str, message: str, now: datetime.datetime
    ) -> None:
        """The scheduler may take the allocation back."""
        await self._set_claim_condition(attachment, bindings.NODE_FAILED, reason, message, now)

    async def listed(self, attachment: attachments.DeviceAttachment) -> None:
        """The node remembers its cards, so the fabric may attach the device."""
        baseline = attachments.Baseline(boot_id=self.boot_id)
        await self._apply(attachment, applied(attachment, baseline=baseline))

    async def place(self, attachment: attachments.DeviceAttachment, recognised: Recognised) -> None:
        """Record where the device is, and nothing else."""
        node = report(attachment, recognised, self.boot_id, used=True)
        await self._apply(attachment, applied(attachment, node=node))

    async def clean(self, attachment: attachments.DeviceAttachment, recognised: Recognised) -> None:
        """No trace of an earlier use is on the device."""
        node = report(attachment, recognised, self.boot_id, used=False)
        await self._apply(attachment, applied(attachment, node=node))
        log.info("device was cleaned", extra={"attachment": attachment.metadata.name})

    async def health(self, attachment: attachments.DeviceAttachment, verdict: verdicts.Verdict) -> None:
        """What was judged of the device."""
        node = plan.judged(attachment, verdict)
        await self._apply(attachment, applied(attachment, node=node))

    async def blocked(
        self, attachment: attachments.DeviceAttachment, reason: str, message: str, now: datetime.datetime
    ) -> None:
        """The device cannot be given back now."""
        fresh = condition(
            attachment, attachments.RELEASED, status=False, reason=reason, message=message, now=now
        )
        await self._apply(attachment, applied(attachment, fresh=fresh))
        extra = {"attachment": attachment.metadata.name}
        if reason == reasons.CLEANING:
            log.info("a device is being cleaned: %s", message, extra=extra)
            self.recorder.attachment_normal(attachment, reason=reason, message=message)
            return
        log.warning("a device cannot be given back: %s", message, extra=extra)
        self.recorder.warning(attachment.spec.claim, reason=reason, message=message)
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
        """Report whether this driver alone offers the device."""
        fresh = condition(
            attachment, attachments.EXCLUSIVE, status=status, reason=reason, message=message, now=now
        )
        await self._apply(attachment, applied(attachment, fresh=fresh))
        extra = {"attachment": attachment.metadata.name}
        if status:
            log.info(message, extra=extra)
            self.recorder.attachment_normal(attachment, reason=reason, message=message)
            return
        log.warning(message, extra=extra)
        self.recorder.warning(attachment.spec.claim, reason=reason, message=message)
        self.recorder.attachment_warning(attachment, reason=reason, message=message)

    async def released(self, attachment: attachments.DeviceAttachment, now: datetime.datetime) -> None:
        """This node has released the device."""
        message = "no claim uses the device on this node, and the kernel has nothing of it any more"
        fresh = condition(
            attachment, attachments.RELEASED, status=True, reason=reasons.NOT_IN_USE, message=message, now=now
        )
        await self._apply(attachment, applied(attachment, fresh=fresh, phase=RELEASED))
        log.info("device released", extra={"attachment": attachment.metadata.name})

    async def _apply(self, attachment: attachments.DeviceAttachment, body: dict[str, Any]) -> None:
        """Apply to the attachment's status, unless the attachment is gone."""
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
        """Applies a condition to the claim, if its allocation is still the one of this attachment.

        Returns the claim if it did not have the condition before.
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
        body = bindings.applied(
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
) -> Recognised:
    """Return the card with its deciding witness: the match's, else the one of before if it is the same card."""
    node = attachment.status.node
    former = node.recognised_by if node is not None else None
    shown = witnesses.fingerprint(card)
    deciding = match.deciding if isinstance(match, matching.Found) and match.card == card else None
    if deciding is None:
        is_same = former is not None and former.fingerprint == shown
        return Recognised(card=card, by=former if is_same else None)
    is_number = deciding.kind not in (matching.SLOT, matching.SOLE_ARRIVAL)
    return Recognised(
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
    attachment: attachments.DeviceAttachment, recognised: Recognised, boot_id: str, *, used: bool
) -> attachments.NodeReport:
    """Where the device is now, with what was said of its health.

    Args:
        attachment: as it is known.
        recognised: the device.
        boot_id: of the running kernel.
        used: the claim that it is attached for gets it or keeps it, and without one what is recorded of its last use
            stays; else it has no traces of a use.
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
    """A condition of the attachment as this node sees it."""
    return meta.transition(
        attachment.status.conditions,
        name,
        status=status,
        reason=reason,
        message=message,
        now=meta.timestamp(now),
    )


def applied(
    attachment: attachments.DeviceAttachment,
    *,
    fresh: meta.Condition | None = None,
    node: attachments.NodeReport | None = None,
    baseline: attachments.Baseline | None = None,
    phase: str | None = None,
) -> dict[str, Any]:
    """Return the object to apply; what is not given stays as it is."""
    status = attachment.status
    conditions = {condition.type: condition for condition in status.conditions if condition.type in OWN}
    if fresh is not None:
        conditions[fresh.type] = fresh
    said: dict[str, Any] = {
        "conditions": [msgspec.to_builtins(conditions[name]) for name in sorted(conditions)]
    }
    phase = status.phase if phase is None else phase
    if phase in OWN_PHASES:
        said["phase"] = phase
    listed = baseline or status.baseline
    if listed is not None:
        said["baseline"] = msgspec.to_builtins(listed)
    place = node or status.node
    if place is not None:
        said["node"] = msgspec.to_builtins(place)
    return {
        "apiVersion": attachments.API_VERSION,
        "kind": attachments.KIND,
        "metadata": {"name": attachment.metadata.name, "uid": attachment.metadata.uid},
        "status": said,
    }
