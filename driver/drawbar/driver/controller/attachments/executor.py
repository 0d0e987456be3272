"""The reconciler of attachments: it observes a part, plans, and carries out the actions, one side effect at a time.

It stops on any error; the part comes back after a pause and everything is observed again.
"""

import datetime
import functools
import logging
from typing import assert_never

from drawbar.driver.controller import change_kinds, cluster, names
from drawbar.driver.controller.attachments import actions, observation, plan
from drawbar.driver.controller.attachments.context import Context, ObservedPart
from drawbar.driver.controller.attachments.fabric_actions import FabricActions
from drawbar.driver.controller.attachments.reports import Reports
from drawbar.driver.controller.attachments.writes import Writes
from drawbar.driver.kube import errors as kube_errors
from drawbar.driver.kube import kinds, pacing, workers
from drawbar.driver.watching import watch
from drawbar.fabric import errors as fabric_errors

WATCHES = (
    watch("term: devices", change_kinds.TermChange, lambda c: c.devices),
    watch("object can be read: devices", change_kinds.ReadableChange, lambda c: c.devices),
    watch("fabric gone: its devices", change_kinds.FabricChange, lambda c: c.unserved),
    watch("attachment: device", change_kinds.AttachmentChange, lambda c: [c.key]),
    watch("attachment: members of its composite", change_kinds.AttachmentChange, lambda c: c.companions),
    watch("claim: devices", change_kinds.ClaimChange, lambda c: c.devices),
    watch(
        "node lost or found: its devices",
        change_kinds.NodeChange,
        lambda c: c.attached,
        when=lambda c: c.is_lost_or_found,
    ),
    watch("device", change_kinds.DeviceChange, lambda c: [c.key]),
    watch("connection: devices", change_kinds.ConnectionChange, lambda c: c.devices),
    watch("operation", change_kinds.OperationChange, lambda c: c.devices),
)
"""The changes that wake it; each maps to devices."""

log = logging.getLogger(__name__)

# The number of workers for each fabric.
WORKERS = 4
_LASTING = (kube_errors.Denied, kube_errors.Invalid, fabric_errors.Misconfigured)


async def work(context: Context, queue: workers.WorkQueue[names.DeviceKey]) -> None:
    """Reconcile the devices of a queue until cancelled, as one of its workers."""

    async def reconcile_device(key: names.DeviceKey) -> float | None:
        with (
            context.watchdog.watching(f"device {key.attachment}"),
            context.cluster.refusals.attempt((key.fabric,), f"device {key.device}"),
            pacing.writing_for(key.fabric),
        ):
            return await reconcile(context, key)

    await queue.run(
        reconcile_device,
        lambda key: {"attachment": key.attachment},
        retried=(kube_errors.KubeError, fabric_errors.FabricError),
        level=lambda error: logging.WARNING if isinstance(error, _LASTING) else logging.INFO,
        worker="devices",
        contained=context.cluster.contained,
        report=functools.partial(_report_unexpected, context.cluster),
    )


def _report_unexpected(observed: cluster.Cluster, key: names.DeviceKey, failure: str) -> None:
    """Emit an Event on the attachment of a device, and on its claims."""
    attachment = observed.attachments.get(key.attachment)
    if attachment is not None:
        observed.recorder.record_unexpected(kinds.ATTACHMENT, attachment.metadata, failure)
    for claim in observed.allocated.find_claims(key):
        observed.recorder.record_unexpected(kinds.CLAIM, claim.metadata, failure)


async def reconcile(context: Context, key: names.DeviceKey) -> float | None:
    """Reconcile one device once; return the seconds until the next look, if time can change anything, or None.

    A round with a change is followed by another at once (0.0): its effect is observed, not assumed.

    Raises:
        kube.errors.KubeError, fabric.errors.FabricError: something failed; observe again and decide again.
    """
    if context.cluster.members(key) or context.cluster.attachments.is_unreadable(key.attachment):
        # The members of a composite are reconciled one by one.
        return None
    now = context.cluster.clock()
    part, awaits_record = observation.observe(context, key)
    work = _Executor(part)
    work.reports.report_oddities()
    if awaits_record:
        return plan.ORPHAN_SECONDS
    again: float | None = None
    try:
        for action in plan.plan(part.observed, now):
            if isinstance(action, actions.RequeueAfter):
                again = action.seconds
            elif isinstance(action, actions.FabricAction):
                again = await work.fabric.carry_out(action)
            else:
                await work.write(action, context.cluster.time_of_day())
                again = 0.0 if isinstance(action, actions.Taint) else again
    except fabric_errors.FabricError as error:
        await work.reports.report_refusal(work.fabric.side, error)
        raise
    except kube_errors.KubeError:
        # A refusal of the API server may last for long, and other devices wait for the fabric.
        work.fabric.end_operation()
        raise
    work.fabric.end_operation()
    return again


class _Executor:
    """The actions on one part.

    Attributes:
        fabric: the actions at the fabric manager.
    """

    def __init__(self, part: ObservedPart) -> None:
        self._part = part
        self.fabric, self.reports, self._writes = FabricActions(part), Reports(part), Writes(part)

    async def write(  # noqa: C901 - one arm for each action
        self, action: actions.ApiAction, now: datetime.datetime
    ) -> None:
        """Carry out an action at the API server; `now` is the time of day."""
        match action:
            case actions.Create(demand=demand):
                await self._writes.create(demand)
            case actions.Adopt():
                await self._writes.adopt()
            case actions.Restore():
                await self._writes.restore(action, now)
            case actions.TakeOver(demand=demand):
                await self._writes.take_over(demand)
            case actions.KeepIdle():
                await self._writes.keep_idle(now)
            case actions.ReportAttached(demand=demand):
                await self.reports.report_attached(demand, now)
            case actions.RecordAttached() | actions.RecordFailure():
                await self.reports.record_outcome(action, now)
            case actions.RecordQueued() | actions.RecordRefusal() | actions.RecordContradiction():
                await self.reports.record_wait(action, now)
            case actions.Taint():
                # The pool's plan sees the recorded failure; this only waits for its write.
                await self._writes.taint()
            case actions.ReportFailed(demand=demand, failure=failure):
                await self.reports.report_failure(demand, failure, now)
            case actions.Delete(abandoned=abandoned):
                await self._part.cluster.attachments.delete(self._part.existing)
                self.reports.report_release(abandoned)
            case actions.ReportKept():
                self.reports.report_kept()
            case actions.RemoveFinalizer():
                await self.fabric.give_back_chunk()
                await self._writes.remove_finalizer()
            case _:
                assert_never(action)
