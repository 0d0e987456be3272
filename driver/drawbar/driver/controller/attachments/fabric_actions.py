"""The actions on a part at its fabric manager."""

import asyncio
import logging
from collections.abc import Mapping
from typing import assert_never

from drawbar.driver.api import attachments
from drawbar.driver.catalogue import reasons
from drawbar.driver.controller import marks, outcomes
from drawbar.driver.controller.attachments import actions, context, plan
from drawbar.driver.controller.attachments.context import ObservedPart
from drawbar.driver.controller.attachments.plans import attach
from drawbar.driver.controller.offers import memory_chunk
from drawbar.fabric import contract
from drawbar.fabric import errors as fabric_errors

log = logging.getLogger(__name__)

# A part that waits for the fabric is woken when its operation may begin; one that waits for the limit of its namespace is
# not woken when others leave the line. In both cases a deadline may pass meanwhile.
LOOK_SECONDS = 15.0
# The wait for an operation without a record: less than a claim waits for its device.
BLOCKER_SECONDS = 60.0
_ORPHAN_ATTEMPT_SECONDS = 10


class FabricActions:
    """The calls to the fabric for one part.

    Attributes:
        side: the call that the fabric is asked for now.
    """

    def __init__(self, part: ObservedPart) -> None:
        self._part = part
        self._waits = False
        self.side: outcomes.Side | None = None

    async def carry_out(self, action: actions.FabricAction) -> float:
        """Carry out an action at the fabric; return the seconds until its effect is observed."""
        self.side = action.side if isinstance(action, actions.QueryOperation | actions.CallFabric) else None
        match action:
            case actions.QueryOperation(side=side):
                await self._ask(side)
            case actions.CallFabric(side=side):
                if side is outcomes.Side.ATTACH and context.ahead_of(self._part.context, self._part.existing):
                    return attach.QUEUE_LOOK_SECONDS
                if pause := self._pause_seconds(side):
                    # Meanwhile the manager serves others.
                    return self._look_within(min(pause, LOOK_SECONDS), side)
                self._waits = not self._part.opened.manager.queue.take(
                    self._part.key, self._part.existing.spec.host_id, self._part.namespace
                )
                if self._waits:
                    return self._look_within(LOOK_SECONDS, side)
                await self._call(side)
            case actions.Cancel(side=side):
                await self._cancel(side)
            case actions.Retry(side=side):
                self._part.context.calls.next_attempt(self._part.existing.metadata.uid, side)
            case actions.ReleaseMemory():
                await self._delete_slice()
                return plan.ORPHAN_SECONDS
            case actions.EndBlocker():
                await self._end_blocker()
            case actions.ReadFabric():
                await self._part.opened.read()
            case _:
                assert_never(action)
        return 0.0

    def end_operation(self) -> None:
        """Let the next operation begin, unless one of this device runs or waits."""
        uid = self._part.attachment.metadata.uid if self._part.attachment else ""
        if (
            self._part.session is not None
            and not self._waits
            and not self._part.context.calls.is_running(uid)
        ):
            self._part.session.manager.end_operation(self._part.key)

    def _look_within(self, pause: float, side: outcomes.Side) -> float:
        """Return the pause, or the seconds until an attach is given up if they are less."""
        left = self._part.observed.seconds_left(self._part.cluster.clock())
        return pause if left is None or side is not outcomes.Side.ATTACH else max(0.0, min(pause, left))

    def _pause_seconds(self, side: outcomes.Side) -> float:
        """Return the seconds until an attach may begin for this namespace; 0.0 if it may."""
        if side is not outcomes.Side.ATTACH or not self._part.namespace:
            return 0.0
        now = self._part.cluster.clock()
        turn = self._part.opened.find_turn(self._part.namespace, self._part.key, now)
        return (turn - now).total_seconds() if turn is not None else 0.0

    async def _ask(self, side: outcomes.Side) -> None:
        uid, seen = self._part.existing.metadata.uid, self._part.device
        adapter, under_way = self._part.opened.adapter(), self._part.context.calls.is_running(uid, side)
        try:
            operation = await adapter.operation(request_id=self._part.request_id(side))
        except fabric_errors.NotFound:
            # The call was never made, or is finished and forgotten: the device itself shows which.
            await self._part.opened.read()
            self._part.context.calls.note_no_call(uid, side)
            return
        # If the operation may have ended long ago, the device may have changed since, so the fabric is read.
        self._settle(side, operation, seen if under_way else None)

    async def _cancel(self, side: outcomes.Side) -> None:
        """Cancel the operation if the fabric can; otherwise it ends by itself or never, and this is tried again."""
        if not self._part.opened.manager.queue.can.cancel:
            return
        adapter, seen = self._part.opened.adapter(), self._part.device
        operation = await adapter.operation(request_id=self._part.request_id(side))
        if not operation.done:
            operation = await adapter.cancel(operation.id)
            log.info("operation cancelled", extra=self._part.extras() | {"operation": operation.id})
        self._settle(side, operation, seen)

    async def _call(self, side: outcomes.Side) -> None:
        spec, adapter, seen = self._part.existing.spec, self._part.opened.adapter(), self._part.device
        request_id = self._part.request_id(side)
        self._part.context.latency.note_call(self._part.key, side)
        self._part.context.calls.note_call(
            self._part.existing.metadata.uid, side, self._part.cluster.time_of_day()
        )
        try:
            if side is outcomes.Side.ATTACH:
                self._part.opened.attaches.act(
                    self._part.namespace, self._part.key, self._part.cluster.clock()
                )
                operation = await adapter.attach(
                    contract.AttachRequest(
                        request_id=request_id,
                        device_id=spec.device_id,
                        host_id=spec.host_id,
                        mark=self._part.opened.mark,
                    )
                )
            else:
                operation = await adapter.detach(
                    contract.DetachRequest(
                        request_id=request_id,
                        device_id=spec.device_id,
                        host_id=spec.host_id,
                        host_prepared=not self._by_force,
                        force=self._by_force,
                    )
                )
        except (fabric_errors.Refused, fabric_errors.Aborted, fabric_errors.Misconfigured) as error:
            log.warning("the fabric refused: %s", error, extra=self._part.extras())
            self._part.context.calls.note_failure(
                self._part.existing.metadata.uid, side, error, asyncio.get_running_loop().time()
            )
        except fabric_errors.FabricError as error:
            # A call that never arrived need not be asked for: after an outage that would be one reading of the whole
            # fabric per waiting device.
            if error.side_effects_unknown:
                self._part.context.calls.note_uncertain_call(self._part.existing.metadata.uid, side)
            raise
        else:
            self._part.opened.report(self._part.key.device)
            self._settle(side, operation, seen)
            if side is outcomes.Side.ATTACH and not operation.done:
                self._report_wait()

    def _report_wait(self) -> None:
        """Emit an Event about an attach that takes more than a moment."""
        claim = (
            self._part.claim(self._part.observed.demand) if self._part.observed.demand is not None else None
        )
        if claim is not None:
            message = f"being connected to host {self._part.existing.spec.host_id}"
            self._part.emit(claim, warning=False, reason=reasons.DEVICE_ATTACHING, message=message)

    @property
    def _by_force(self) -> bool:
        """Return whether the device is taken from a node that has not released it, and the fabric can force that."""
        released = self._part.existing.holds(attachments.RELEASED)
        return not released and self._part.opened.manager.queue.can.force_detach

    def _settle(
        self, side: outcomes.Side, operation: contract.Operation, seen: contract.Device | None
    ) -> None:
        """Take in an answer; its device counts only if nothing newer was reported since it was `seen`."""
        now, watched = asyncio.get_running_loop().time(), self._part.opened.manager.queue.can.watch
        self._part.context.calls.settle(
            self._part.existing.metadata.uid, side, operation, now, watched=watched
        )
        if not operation.done:
            self._part.opened.manager.queue.occupy(self._part.key, self._part.existing.spec.host_id)
        if (
            operation.succeeded
            and operation.device is not None
            and seen is not None
            and self._part.opened.device(self._part.key.device) == seen
        ):
            self._part.opened.inventory.learn(operation.device)

    async def give_back_chunk(self) -> None:
        """Delete the memory chunk of a detached share; if that fails, the chunk is an orphan once its record is gone."""
        made = (
            self._part.session.inventory.parts.find_device(self._part.key.device)
            if self._part.session is not None
            else None
        )
        if not self._part.part.is_carved or made is None or made.connection is not None:
            return
        try:
            await self._delete(made)
        except fabric_errors.FabricError as error:
            log.info(
                "the slice is not given back yet: %s", error, extra=self._part.extras() | {"device": made.id}
            )

    async def _delete_slice(self) -> None:
        seen = self._part.device
        share = memory_chunk.name_of(seen) if seen is not None else None
        if seen is None or share is None or not await self._part.is_confirmed():
            return
        try:
            await self._delete(seen)
        except fabric_errors.Aborted as error:
            if error.reason != fabric_errors.Reason.OPERATION_PENDING:
                raise
            # Every device has at most one earlier deletion; if it never ended, it would keep the memory.
            pending = await self._overdue_operation({seen.id: self._part.key.attachment})
            if pending is not None and memory_chunk.parse_deleted_share(pending.request_id) == share:
                await self._end(pending)

    async def _delete(self, seen: contract.Device) -> None:
        if seen.slice_of is None:
            return
        # A failed id stays failed forever.
        minute = int(self._part.cluster.time_of_day().timestamp() // _ORPHAN_ATTEMPT_SECONDS)
        request = contract.DeleteSliceRequest(
            request_id=memory_chunk.deletion_request(seen.slice_of, minute), device_id=seen.id
        )
        await self._part.opened.adapter().delete_slice(request)
        extra = {"fabric": self._part.key.fabric, "device": seen.id, "origin": seen.slice_of.origin_id}
        log.info("slice given back", extra=extra)

    async def _end_blocker(self) -> None:
        """Wait for the blocking operation with a deadline; then cancel it if it is ours and the fabric can, else report it."""
        spec, part, opened = self._part.existing.spec, self._part.part, self._part.opened
        waiting = {spec.device_id: self._part.existing.metadata.uid}
        if part.is_carved:
            # The part waits for the operations on its source, as all chunks of the source do; the operation of a
            # recorded chunk is shown as the chunk's own.
            waiting[part.source_id] = f"shares of {spec.fabric}/{part.source}"
        blocker = await self._overdue_operation(waiting)
        if blocker is None:
            return
        ours = (
            self._part.context.calls.blockers.is_unrecorded(blocker.request_id)
            or marks.began(blocker, opened.mark)
            # An operation of the earlier record.
            or memory_chunk.parse_deleted_share(blocker.request_id) == spec.device
        )
        if ours:
            blocker = await self._end(blocker)
        if not blocker.done:
            self._report_blocker(blocker, ours=ours)

    async def _overdue_operation(self, waiting: Mapping[str, str]) -> contract.Operation | None:
        """Return the operation in flight whose wait is over, or None.

        Args:
            waiting: by the id of a device, the subject that waits for an operation on it; the first with an operation
                counts.
        """
        now = asyncio.get_running_loop().time()
        in_flight = {
            operation.device.id: operation
            for operation in await self._part.opened.adapter().operations()
            if not operation.done and operation.device is not None
        }
        for device_id, waits in waiting.items():
            blocker = in_flight.get(device_id)
            if blocker is not None:
                seconds = self._part.context.calls.blockers.seconds(waits, blocker.id, now)
                return blocker if seconds >= BLOCKER_SECONDS else None
        return None

    async def _end(self, blocker: contract.Operation) -> contract.Operation:
        """Cancel an operation if the fabric can; return its new state."""
        if not self._part.opened.manager.queue.can.cancel:
            return blocker
        blocker = await self._part.opened.adapter().cancel(blocker.id)
        log.warning(
            "operation without a record cancelled", extra=self._part.extras() | {"operation": blocker.id}
        )
        return blocker

    def _report_blocker(self, blocker: contract.Operation, *, ours: bool) -> None:
        whose = "of this cluster, without a DeviceAttachment" if ours else "that this cluster did not begin"
        message = (
            f"device {self._part.existing.spec.device_id} is kept busy by {blocker.kind.value} operation {blocker.id} "
            f"(request {blocker.request_id}) {whose}; end it at the fabric manager"
        )
        if self._part.opened.report(self._part.key.device, message):
            self._part.cluster.recorder.attachment_warning(
                self._part.existing, reason=reasons.OPERATION_PENDING, message=message
            )
