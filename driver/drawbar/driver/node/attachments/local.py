"""The work that makes the node's own devices ready for their claims.

Each demand becomes a DeviceAttachment in memory (`local.demands`). The plan and the executor of fabric devices do the rest:
drivers, virtual functions, minimum versions, hooks and bitstreams. The reports differ: lasting facts go into the device's mark
on disk, and binding conditions go onto the claim as usual.

There are two sources of demands. If devices have binding conditions, all claims are watched, because the kubelet does not know
an unbound pod. In any case Prepare hands over each claim that it has read. So a device without binding conditions is made
ready, too, while its pod waits on the node.

If the device or this node caused a failure, it first becomes a taint. The claim gets the failure once the taint is published, so
that the scheduler does not pick the device again. A failure of the claim's own bitstream taints no device.

Only the instance that acts on the node's devices works on them. Every instance answers from the marks.
"""

import asyncio
import dataclasses
import datetime
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from drawbar.driver import containment
from drawbar.driver.api import attachments, bindings, claims, meta, slices
from drawbar.driver.catalogue import reasons, taints
from drawbar.driver.kube import errors as kube_errors
from drawbar.driver.kube import workers
from drawbar.driver.node import errors
from drawbar.driver.node.attachments import context, executor, probation, reporting
from drawbar.driver.node.inventory import model
from drawbar.driver.node.local import demands, residents
from drawbar.driver.node.preparation import cleaning

log = logging.getLogger(__name__)

WORKERS = 2
LOOK_SECONDS = 1.0
"""The pause between two looks at a device that has to be cleaned first."""
TAINTED_LOOK_SECONDS = 0.05
TAINTED_MAX_SECONDS = 10.0
"""The longest wait for the publication of a device's taint before the claim gets the failure."""
AGAIN_SECONDS = 60.0
"""The time after a failure at which a Prepare starts a new attempt, if only the kubelet waits for the device."""


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """The surroundings of the work on local devices.

    Attributes:
        driver: the name of the DRA driver.
        context: the surroundings of the work on fabric devices.
        marks: the marks of the devices to clean.
        card: returns a device as it is now, by pool and name; None while it is absent.
        published: returns this node's slices.
        changed: called after the state of a device changed.
        probations: the failures that still count.
    """

    node_name: str
    driver: str
    context: context.Context
    marks: cleaning.Marks
    cleaner: cleaning.Cleaner
    card: Callable[[str, str], model.Card | None]
    published: Callable[[], Iterable[slices.ResourceSlice]]
    changed: Callable[[], None]
    probations: probation.Probations

    def attachment(self, demand: demands.Demand, mark: demands.Mark | None) -> attachments.DeviceAttachment:
        """Return the demand as an attachment, with the status of the mark."""
        card = self.card(demand.pool, demand.device)
        serial = (residents.serial(card) or "") if card is not None else ""
        return demands.attachment(demand, mark, self.context.boot_id, serial=serial)


@dataclass(slots=True, kw_only=True)
class _Work:
    """The work on one device for one claim.

    Attributes:
        demand: the claim's demand.
        value: the demand with the state of the device; None before its mark was read.
        refused_since: the time since which a cleaning has to come first; None without one.
        failed_at: the time of the failure; None without one.
    """

    demand: demands.Demand
    value: attachments.DeviceAttachment | None = None
    refused_since: datetime.datetime | None = None
    failed_at: datetime.datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Reporter(reporting.Reporter):
    """A reporter with the usual reports on claims, and with attachments in memory.

    Attributes:
        keep: takes an attachment with its new status.
        is_awaited: returns whether the scheduler waits for the device's conditions.
    """

    keep: Callable[[attachments.DeviceAttachment], Awaitable[None]]
    is_awaited: Callable[[attachments.DeviceAttachment], bool]

    async def report_to_claim(
        self, attachment: attachments.DeviceAttachment, reason: str, message: str, now: datetime.datetime
    ) -> None:
        """Report the failure on the claim and on its pods, so that the scheduler may take the allocation back."""
        claim = await self._set_claim_condition(attachment, bindings.NODE_FAILED, reason, message, now)
        if claim is not None:
            self.recorder.tell_pods(claim, warning=True, reason=reason, message=message)

    async def _apply(self, attachment: attachments.DeviceAttachment, body: dict[str, Any]) -> None:
        written = msgspec.convert(body["status"], attachments.AttachmentStatus)
        kept = (held for held in attachment.status.conditions if held.type not in reporting.OWN)
        status = msgspec.structs.replace(
            attachment.status, phase=written.phase, node=written.node, conditions=(*kept, *written.conditions)
        )
        await self.keep(msgspec.structs.replace(attachment, status=status))

    async def _set_claim_condition(
        self,
        attachment: attachments.DeviceAttachment,
        name: str,
        reason: str,
        message: str,
        now: datetime.datetime,
    ) -> claims.ResourceClaim | None:
        if not self.is_awaited(attachment):
            return None
        return await super()._set_claim_condition(attachment, name, reason, message, now)


class LocalDevices:
    """The demands for this node's own devices, and the work on them, at most one for each published device."""

    def __init__(self, around: Surroundings, contained: containment.Containment | None = None) -> None:
        self._around = around
        self._contained = contained
        self._is_acting = False
        self._works: dict[str, _Work] = {}
        self._probations = around.probations
        self._queue: workers.WorkQueue[str] = workers.WorkQueue()
        reporter = Reporter(
            api=around.context.reporter.api,
            recorder=around.context.reporter.recorder,
            boot_id=around.context.boot_id,
            learn=lambda _: None,
            tells_claims=around.context.reporter.tells_claims,
            keep=self._keep,
            is_awaited=self._is_awaited,
        )
        self._context = dataclasses.replace(
            around.context,
            reporter=reporter,
            node_verdicts=None,
            sharing=context.build_unshared,
            companion=lambda _: None,
            local=around.card,
            memories={},
        )

    def claim_changed(self, old: claims.ResourceClaim | None, new: claims.ResourceClaim | None) -> None:
        """Take over the present demands of a claim for this node's devices."""
        claim = new or old
        if claim is None:
            return
        asked = {demand.device: demand for demand in self._demands(new)}
        for device, work in tuple(self._works.items()):
            if work.demand.claim.uid == claim.metadata.uid and device not in asked:
                self._end(device)
                self._around.cleaner.start_cleaning(work.demand.pool, device)
        for demand in asked.values():
            self._ask(demand)

    def take_claim(self, claim: claims.ResourceClaim) -> None:
        """Take over the demands of a claim in preparation; after an older failure, begin a new attempt."""
        if not self._is_acting:
            # The kubelet asks again, when this instance may be the one that acts.
            return
        now = self._context.clock()
        for demand in self._demands(claim):
            work = self._works.get(demand.device)
            is_old = (
                work is not None
                and work.failed_at is not None
                and (now - work.failed_at).total_seconds() > AGAIN_SECONDS
            )
            if is_old and not demand.is_awaited:
                self._end(demand.device)
                # This forgets the hook's result, too.
                self._context.forget(demands.NAME_PREFIX + demand.device)
            self._ask(demand)

    def end_claim(self, mark: demands.Mark) -> None:
        """End the work for a mark's claim, because its allocation has ended; the watch ends awaited demands."""
        work = self._works.get(mark.device)
        if work is not None and not work.demand.is_awaited and mark.is_of(*work.demand.user):
            self._end(mark.device)

    def requeue_all(self) -> None:
        """Look at all devices again, because the hardware changed or a device was cleaned."""
        for device in self._works:
            self._queue.add(device)

    def is_followed(self, claim: claims.ResourceClaim) -> bool:
        """Return whether a claim has demands for this node's devices."""
        return bool(self._demands(claim))

    def attachment(
        self, pool: str, device: str, uid: str, allocation_timestamp: str | None
    ) -> attachments.DeviceAttachment:
        """Return the state of the device for that claim, as an attachment. It reads a file.

        Args:
            pool: the device's pool.
            device: the device's name.
            uid: the claim's UID.
            allocation_timestamp: the time of the claim's allocation; None if unknown.
        """
        work = self._works.get(device)
        value = work.value if work is not None else None
        if value is not None and value.user[0] == uid and allocation_timestamp in (None, value.user[1]):
            return value
        mark = self._around.marks.get(device)
        recorded = mark.allocation_timestamp if mark is not None and mark.uid == uid else ""
        demand = demands.Demand(
            pool=pool,
            device=device,
            node_name=self._around.node_name,
            driver=self._around.driver,
            claim=attachments.ClaimReference(namespace="", name="", uid=uid),
            allocation_timestamp=recorded if allocation_timestamp is None else allocation_timestamp,
        )
        return self._around.attachment(demand, mark)

    def pending_step(self, attachment: attachments.DeviceAttachment) -> str:
        """Return the pending step before the device is ready, in a clause; empty if this daemon does not work on it."""
        return self._context.pending_step(attachment)

    async def run(self) -> None:
        """Make devices ready until cancelled."""
        self._is_acting = True
        async with asyncio.TaskGroup() as tasks:
            for _ in range(WORKERS):
                tasks.create_task(self._work(), name="local devices")

    async def _work(self) -> None:
        await self._queue.run(
            self._reconcile,
            lambda device: {"device": device},
            retried=(kube_errors.KubeError, errors.NodeError),
            level=lambda _: logging.WARNING,
            worker="local-devices",
            contained=self._contained,
        )

    def _demands(self, claim: claims.ResourceClaim | None) -> tuple[demands.Demand, ...]:
        return demands.list_demands(claim, self._around.driver, self._around.node_name)

    def _ask(self, demand: demands.Demand) -> None:
        before = self._works.get(demand.device)
        if before is None or before.demand.user != demand.user:
            self._works[demand.device] = _Work(demand=demand)
        self._queue.add(demand.device)

    def _end(self, device: str) -> None:
        self._works.pop(device, None)
        self._queue.add(device)

    async def _reconcile(self, device: str) -> float | None:
        work = self._works.get(device)
        if work is None:
            self._context.forget(demands.NAME_PREFIX + device)
            return self._probations.remaining_seconds(device)
        value = await self._begin(work)
        if value is None:
            return LOOK_SECONDS
        if demands.is_failed(value) and value.status.error is None:
            if work.demand.is_awaited and self._is_kept_away(work):
                visible = meta.find(value.status.conditions, attachments.VISIBLE)
                assert visible is not None  # a failed device has this condition
                failure = attachments.Failure(reason=visible.reason, message=visible.message)
                status = msgspec.structs.replace(value.status, error=failure)
                value = work.value = msgspec.structs.replace(value, status=status)
            else:
                return (
                    TAINTED_LOOK_SECONDS
                    if work.demand.is_awaited
                    else self._probations.remaining_seconds(device)
                )
        again = await executor.reconcile(self._context, value)
        is_news = self._works.get(device) is not work or work.value is not value
        return 0.0 if is_news else _earliest(again, self._probations.remaining_seconds(device))

    async def _begin(self, work: _Work) -> attachments.DeviceAttachment | None:
        """Return the state of the device for its claim; None while another claim holds it or it has to be cleaned.

        The mark is written first, so that a device with unfinished work is cleaned.
        """
        demand, around = work.demand, self._around
        refusal = around.cleaner.refusal(demand.pool, demand.device, *demand.user)
        if refusal is not None:
            return await self._fail_if_unclean(work)
        if self._context.holder(demand.pool, demand.device) not in (None, demand.claim.uid):
            return None
        work.refused_since = None
        if work.value is not None:
            return work.value
        mark = await asyncio.to_thread(around.marks.get, demand.device)
        value = self._around.attachment(demand, mark)
        if demand.failure is not None:
            work.value = value
            await self._context.reporter.report_failure(
                value, demand.failure.reason, demand.failure.message, self._context.time_of_day()
            )
            return work.value
        if demand.needs_work and mark is None:
            await asyncio.to_thread(around.marks.put, [demands.build_mark(demand)])
            # The claim may go before its device is ready.
            around.cleaner.start_cleaning(demand.pool, demand.device)
        work.value = value
        return value

    async def _fail_if_unclean(self, work: _Work) -> attachments.DeviceAttachment | None:
        """Report a failure if the cleaning of the device is blocked for too long; return the failed device, else None.

        A cleaning without an obstacle may take any time.
        """
        context, demand = self._context, work.demand
        now = context.clock()
        if work.refused_since is None:
            work.refused_since = now
        why = self._around.cleaner.failure(demand.device)
        if not why or not demand.is_awaited or now < work.refused_since + context.patience:
            return work.value if work.value is not None and demands.is_failed(work.value) else None
        if work.value is None:
            work.value = self._around.attachment(demand, None)
        if not demands.is_failed(work.value):
            message = f"{demand.device} cannot be handed on, for its last user's data are left: {why}"
            await context.reporter.report_failure(
                work.value, reasons.NOT_CLEANED, message, context.time_of_day()
            )
        return work.value

    async def _keep(self, value: attachments.DeviceAttachment) -> None:
        """Take over the reported state of a device, and write lasting facts into its mark."""
        device = value.spec.device
        work = self._works.get(device)
        if work is None or work.demand.user != value.user:
            return
        visible = meta.find(value.status.conditions, attachments.VISIBLE)
        node = value.status.node
        if visible is not None and visible.is_true and node is not None:
            if work.demand.needs_work:
                mark = msgspec.structs.replace(
                    demands.build_mark(work.demand),
                    boot_id=node.boot_id,
                    pci_address=node.pci_address,
                    arrival=node.arrival,
                )
                await asyncio.to_thread(self._around.marks.put, [mark])
            self._probations.end(device)
            work.failed_at = None
        elif visible is not None and work.failed_at is None:
            work.failed_at = self._context.clock()
            self._probations.begin(work.demand, visible.reason, visible.message)
        work.value = value
        self._around.changed()

    def _is_awaited(self, value: attachments.DeviceAttachment) -> bool:
        """Return whether the scheduler waits for the device's conditions."""
        work = self._works.get(value.spec.device)
        return work is not None and work.demand.is_awaited and work.demand.user == value.user

    def _is_kept_away(self, work: _Work) -> bool:
        """Return whether the claim may get the failure: the taint is published, not needed, or too late to wait for."""
        device, now = work.demand.device, self._context.clock()
        if self._probations.taint(device) is None:
            return True
        if work.failed_at is not None and (now - work.failed_at).total_seconds() > TAINTED_MAX_SECONDS:
            return True
        key = f"{self._around.driver}/{taints.ATTACH_FAILED.key}"
        published = (listed for each in self._around.published() for listed in each.spec.devices)
        return all(
            any(taint.key == key for taint in listed.taints) for listed in published if listed.name == device
        )


def _earliest(*pauses: float | None) -> float | None:
    return min((seconds for seconds in pauses if seconds is not None), default=None)
