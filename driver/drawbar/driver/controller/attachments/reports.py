"""Reports about a part: on claims, on its DeviceAttachment, on its Fabric, and as Events."""

import asyncio
import datetime
import logging
from typing import assert_never

from drawbar.driver.api import attachments
from drawbar.driver.catalogue import reasons
from drawbar.driver.controller import claims as claim_index
from drawbar.driver.controller import outcomes
from drawbar.driver.controller.attachments import actions, statements
from drawbar.driver.controller.attachments.context import ObservedPart
from drawbar.driver.controller.attachments.plans import attach, steps
from drawbar.driver.kube import errors as kube_errors
from drawbar.fabric import errors as fabric_errors

log = logging.getLogger(__name__)


class Reports:
    """The writer of conditions and Events about a part."""

    def __init__(self, part: ObservedPart) -> None:
        self._part = part

    async def report_refusal(self, side: outcomes.Side | None, error: fabric_errors.FabricError) -> None:
        """Record the failure of a call that the queue repeats; if the API server refuses that, it is logged."""
        attachment = self._part.attachment
        if side is None or attachment is None or self._part.session is None:
            return
        known, uid = self._part.context.calls, attachment.metadata.uid
        known.note_refusal(uid, side, error, is_reached=self._part.session.connection.connected)
        call = known.view(uid, side, asyncio.get_running_loop().time())
        for action in steps.record_refusal(attachment, side, call):
            if isinstance(action, actions.RecordRefusal):
                try:
                    await self._record_refusal(action, self._part.cluster.time_of_day())
                except kube_errors.KubeError as failed:
                    log.info("the refusal is not recorded: %s", failed, extra=self._part.extras())

    async def record_wait(
        self,
        action: actions.RecordQueued | actions.RecordRefusal | actions.RecordContradiction,
        now: datetime.datetime,
    ) -> None:
        """Record why the part waits."""
        match action:
            case actions.RecordQueued(ahead=ahead):
                message = attach.describe_queue(self._part.existing, ahead)
                await self._part.record(statements.build_queued(self._part.existing, message, now))
            case actions.RecordRefusal():
                await self._record_refusal(action, now)
            case actions.RecordContradiction():
                await self._record_contradiction(action, now)
            case _:
                assert_never(action)

    async def _record_refusal(self, action: actions.RecordRefusal, now: datetime.datetime) -> None:
        await self._part.record(statements.build_refused(self._part.existing, action, now))
        moment = asyncio.get_running_loop().time()
        self._part.context.calls.note_refusal_report(self._part.existing.metadata.uid, action.side, moment)

    async def _record_contradiction(
        self, action: actions.RecordContradiction, now: datetime.datetime
    ) -> None:
        existing = self._part.existing
        contradiction = outcomes.contradiction(existing)
        await self._part.record(statements.build_contradicted(existing, action, now))
        if action.renews:
            self._part.context.calls.note_reattach(existing.metadata.uid)
        if action.renews or contradiction is None or contradiction.reason != action.reason:
            log.warning("%s", action.message, extra=self._part.extras())
            self._part.cluster.recorder.attachment_warning(
                existing, reason=action.reason, message=action.message
            )

    def report_oddities(self) -> None:
        """Report an attachment that is ignored since it has no Fabric; withdraw the report of one that is gone."""
        if self._part.session is not None and self._part.attachment is None:
            self._part.session.report(self._kept_subject)
        if self._part.session is not None or self._part.attachment is None:
            self._part.context.ignored.pop(self._part.key, None)
            return
        metadata = self._part.attachment.metadata
        if self._part.context.ignored.get(self._part.key) == metadata.uid:
            return
        self._part.context.ignored[self._part.key] = metadata.uid
        message = (
            f"there is no Fabric {self._part.key.fabric} of driver {self._part.cluster.driver}, so the device is neither attached nor "
            f"detached: make that Fabric, or run kubectl delete deviceattachment {metadata.name}; one that stays after that "
            f"goes with kubectl patch deviceattachment {metadata.name} --type=merge -p "
            '\'{"metadata":{"finalizers":null}}\', once nothing is connected at the fabric manager'
        )
        log.warning("%s", message, extra=self._part.extras())
        self._part.cluster.recorder.attachment_warning(
            self._part.attachment, reason=reasons.FABRIC_MISSING, message=message
        )

    @property
    def _kept_subject(self) -> str:
        """Return the subject of the trouble that foreign finalizers keep the attachment."""
        return f"finalizers of {self._part.key.attachment}"

    def report_kept(self) -> None:
        """Report that foreign finalizers keep the attachment."""
        foreign = ", ".join(self._part.existing.metadata.finalizers)
        name = self._part.existing.metadata.name
        message = (
            f"the device of DeviceAttachment {name} is detached, and finalizers that are not Drawbar's keep the object "
            f"({foreign}), so no claim gets the device: have their owner finish, or run kubectl patch deviceattachment {name} "
            '--type=merge -p \'{"metadata":{"finalizers":null}}\''
        )
        if self._part.session is not None and self._part.session.report(self._kept_subject, message):
            log.warning("%s", message, extra=self._part.extras())
            self._part.cluster.recorder.attachment_warning(
                self._part.existing, reason=reasons.FOREIGN_FINALIZER, message=message
            )

    async def report_attached(self, demand: claim_index.Demand, now: datetime.datetime) -> None:
        """Report on the claim that the part is attached."""
        claim = self._part.claim(demand)
        if claim is None:
            return
        body = statements.build_claim_attached(
            claim,
            self._part.cluster.driver,
            self._part.realisation.offer,
            self._part.where(),
            now,
            contents=self._part.contents(claim),
        )
        if body is not None:
            await self._part.cluster.apply_to_claim(claim, body)
            self._part.context.latency.note_claim_report(self._part.key)
            self._part.emit(claim, warning=False, reason=reasons.DEVICE_ATTACHED, message=self._part.where())

    async def report_failure(
        self, demand: claim_index.Demand, failure: attachments.Failure, now: datetime.datetime
    ) -> None:
        """Write the failure on all affected claims; the demand's own claim is last, and its condition confirms the others."""
        own = self._part.claim(demand)
        if own is None or (self._part.attachment is None and await self._part.is_outdated(failure)):
            return
        refused: list[kube_errors.KubeError] = []
        for claim in self._part.cluster.allocated.find_affected_claims(own):
            contents = self._part.contents(claim)
            body = statements.build_claim_failed(
                claim, self._part.cluster.driver, failure, now, contents=contents
            )
            if body is None:
                continue
            try:
                await self._part.cluster.apply_to_claim(claim, body)
            except (kube_errors.Denied, kube_errors.Invalid) as error:
                # The pod of an unwritable claim waits until the scheduler gives up; the others need not.
                refused.append(error)
        log.warning(
            "attach failed: %s", failure.message, extra=self._part.extras() | {"reason": failure.reason}
        )
        self._part.context.latency.note_failure(self._part.key, failure.reason)
        self._part.emit(own, warning=True, reason=failure.reason, message=failure.message)
        if refused:
            raise refused[0]

    def report_release(self, abandoned: claim_index.Demand | None) -> None:
        """Emit an Event: the scheduler counts the device of an abandoned allocation as given until the allocation is gone."""
        log.info("release asked for", extra=self._part.extras())
        claim = self._part.claim(abandoned) if abandoned is not None else None
        if claim is not None:
            message = (
                "the attach failed and the allocation was not taken back, so it is rolled back; the device is offered again "
                "when the allocation is gone: delete the claim, or the pod that it was made for"
            )
            self._part.emit(claim, warning=True, reason=reasons.ATTACH_ROLLED_BACK, message=message)

    async def record_outcome(
        self, outcome: actions.RecordAttached | actions.RecordFailure, now: datetime.datetime
    ) -> None:
        """Record that the part is attached, or why it is not."""
        operation = self._part.context.calls.record(self._part.existing.metadata.uid, outcomes.Side.ATTACH)
        if isinstance(outcome, actions.RecordFailure):
            if await self._part.is_outdated(outcome.failure):
                return
            await self._part.record(
                statements.build_failed(self._part.existing, operation, outcome.failure, now)
            )
            return
        connection = self._part.device.connection if self._part.device else None
        placed_device = self._part.opened.inventory.parts.find_device(self._part.key.device)
        body = statements.build_attached(
            self._part.existing, operation, connection, self._part.where(), now, placed_device=placed_device
        )
        await self._part.record(body)
        log.info("device attached", extra=self._part.extras())
