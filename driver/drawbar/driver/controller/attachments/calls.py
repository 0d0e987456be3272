"""The last known state of the calls to the fabrics, per attachment.

It is a cache, not a record. If a state is missing, the controller asks the fabric for it by request id. An id is
`<uid>-a<attempt>` or `<uid>-d<attempt>`, so every process makes the same one. After a restart the controller asks for
each attempt, from the first; the fabric remembers every request.
"""

import datetime
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import msgspec

from drawbar.driver import backoff
from drawbar.driver.api import attachments, meta
from drawbar.driver.catalogue import reasons
from drawbar.driver.controller import outcomes
from drawbar.driver.controller.attachments.plans import part_state, steps
from drawbar.driver.controller.attachments.plans.part_state import CallState
from drawbar.fabric import contract, errors

# The interval of queries for an operation whose end no watch reports.
ASK_AGAIN_SECONDS = 5.0
# The news of a change is late under load, and an older one may come after the answer.
NEWS_SECONDS = 2.0
# The reason if no other applies. The most deleted attachments that are remembered, for the operations that they may
# have left.
GONE_LIMIT = 4096
PAUSE_FIRST_SECONDS = 0.5
# The time after which a recorded refusal is recorded again in other words.
REPORT_SECONDS = 60.0


class _Cached(msgspec.Struct, frozen=True, kw_only=True):
    state: CallState = CallState.UNASKED
    attempt: int = 1
    failure: attachments.Failure | None = None
    # On the caller's monotonic clock, in seconds.
    due: float = 0.0
    # The first sight of its state, on the same clock; a running call keeps it while it has to be asked for again.
    since: float | None = None
    # By the time of day, for people.
    asked_at: str = ""
    # The latest refusal of any attempt; None since a success.
    refused: attachments.Failure | None = None
    # The time of the last write of a refusal to the attachment, on the same clock as `due`.
    reported: float | None = None
    # The number of repeated attaches because the fabric manager no longer showed the connection.
    renewals: int = 0


_UNASKED = _Cached()
Settled = Callable[[str, outcomes.Side, str | None], None]


class Calls:
    """The calls of all attachments; `forget` bounds it.

    Attributes:
        settled: called once for each finished call, with the attachment's UID, the side, and the reason of a failure or
            None.
        blockers: the operations that keep devices busy.
    """

    def __init__(self, settled: Settled = lambda _uid, _side, _reason: None) -> None:
        self.settled = settled
        self._calls: dict[tuple[str, outcomes.Side], _Cached] = {}
        self.blockers = Blockers()

    def view(self, uid: str, side: outcomes.Side, now: float) -> part_state.Call:
        """Return the call in the plan's terms.

        Args:
            uid: the attachment's UID.
            side: attach or detach.
            now: the time on the monotonic clock, in seconds.
        """
        call = self._get(uid, side)
        state = call.state
        if state == CallState.RUNNING and now >= call.due:
            state = CallState.UNASKED
        return part_state.Call(
            state=state,
            retry_after_seconds=max(0.05, call.due - now) if call.due else 1.0,
            failure=call.failure,
            due=now >= call.due,
            age_seconds=now - call.since if call.since is not None else 0.0,
            refused=call.refused,
            is_report_due=call.reported is None or now >= call.reported + REPORT_SECONDS,
            renewals=call.renewals,
        )

    def is_running(self, uid: str, *sides: outcomes.Side) -> bool:
        """Return whether one of these calls, or any if none is given, ran in the fabric's last report."""
        states = (self._get(uid, side).state for side in sides or outcomes.Side)
        return CallState.RUNNING in states

    def is_begun(self, uid: str, side: outcomes.Side) -> bool | None:
        """Return whether the fabric has the current attempt, and did not refuse it, or None if it has to be asked first."""
        call = self._get(uid, side)
        if call.state is CallState.UNASKED and not call.asked_at:
            return None
        return call.state in (CallState.RUNNING, CallState.SUCCEEDED) or (
            call.state is not CallState.FAILED and bool(call.asked_at)
        )

    def request_id(self, uid: str, side: outcomes.Side) -> str:
        """Return the id of the current attempt."""
        return f"{uid}-{side.value}{self._get(uid, side).attempt}"

    def note_call(self, uid: str, side: outcomes.Side, now: datetime.datetime) -> None:
        """Note that the current attempt is sent now."""
        self._change(uid, side, asked_at=meta.timestamp(now))

    def record(self, uid: str, side: outcomes.Side) -> attachments.OperationRecord:
        """Return the current attempt in the form of the attachment's status."""
        call = self._get(uid, side)
        return attachments.OperationRecord(
            request_id=self.request_id(uid, side), attempt=call.attempt, started_at=call.asked_at
        )

    def note_no_call(self, uid: str, side: outcomes.Side) -> None:
        """Note that the fabric has no such call: it was never made, or the fabric has answered so."""
        self._put(uid, side, CallState.UNKNOWN)
        self._change(uid, side, asked_at="")

    def settle(
        self,
        uid: str,
        side: outcomes.Side,
        operation: contract.Operation,
        now: float,
        *,
        watched: bool = False,
    ) -> None:
        """Take in the fabric's report; a watched fabric also reports the effect on the device by its watch."""
        error, state = operation.failure(), self._get(uid, side).state
        if error is not None:
            self.note_failure(uid, side, error, now)
        elif operation.done and state is not CallState.SUCCEEDED:
            self.settled(uid, side, None)
            self._change(uid, side, refused=None, reported=None)
            due = now + NEWS_SECONDS if watched else 0.0
            self._put(uid, side, CallState.SUCCEEDED, due=due, since=now)
        elif not operation.done and state not in (CallState.FAILED, CallState.SUCCEEDED):
            # A finished call stays so: the watch may report its progress after the answer reported its end.
            pause = min(operation.retry_after_seconds or ASK_AGAIN_SECONDS, steps.PAUSE_MAX_SECONDS)
            self._put(uid, side, CallState.RUNNING, due=now + pause, since=now)

    def note_failure(self, uid: str, side: outcomes.Side, error: errors.FabricError, now: float) -> None:
        """Take in that the fabric refused, or the operation failed."""
        call, reported = self._get(uid, side), failure(error)
        if call.state is not CallState.FAILED:
            self.settled(uid, side, reported.reason)
        pause = backoff.longest(call.attempt, PAUSE_FIRST_SECONDS, steps.PAUSE_MAX_SECONDS)
        self._put(uid, side, CallState.FAILED, failure=reported, due=now + pause)
        self._change(uid, side, refused=refusal(error))

    def note_refusal(
        self, uid: str, side: outcomes.Side, error: errors.FabricError, *, is_reached: bool = True
    ) -> None:
        """Note a refusal after which the queue repeats the same attempt, with its back-off.

        Args:
            uid: the attachment's UID.
            side: attach or detach.
            error: the fabric's error.
            is_reached: whether there is a connection to the fabric manager.
        """
        self._change(uid, side, refused=refusal(error, is_reached=is_reached))

    def note_refusal_report(self, uid: str, side: outcomes.Side, now: float) -> None:
        """Note that the latest refusal was written to the attachment."""
        self._change(uid, side, reported=now)

    def note_reattach(self, uid: str) -> None:
        """Note that the device is attached again, since the fabric manager no longer shows its connection."""
        side = outcomes.Side.ATTACH
        self._change(uid, side, renewals=self._get(uid, side).renewals + 1)

    def next_attempt(self, uid: str, side: outcomes.Side) -> None:
        """Begin another attempt under a new id: a failed id stays failed forever."""
        call = self._get(uid, side)
        self._calls[uid, side] = _Cached(
            attempt=call.attempt + 1,
            refused=call.refused,
            reported=call.reported,
            renewals=call.renewals,
        )

    def note_uncertain_call(self, uid: str, side: outcomes.Side) -> None:
        """Note that it is not known whether the last call arrived."""
        self._put(uid, side, CallState.UNASKED)

    def forget(self, uid: str) -> None:
        """Drop the calls of an attachment that is gone."""
        for side in outcomes.Side:
            self._calls.pop((uid, side), None)
        self.blockers.forget(uid)

    def clear(self) -> None:
        """Drop all calls: everything may have changed meanwhile."""
        self._calls.clear()
        self.blockers.clear()

    def _get(self, uid: str, side: outcomes.Side) -> _Cached:
        return self._calls.get((uid, side), _UNASKED)

    def _change(self, uid: str, side: outcomes.Side, **changes: Any) -> None:
        self._calls[uid, side] = msgspec.structs.replace(self._get(uid, side), **changes)

    def _put(
        self,
        uid: str,
        side: outcomes.Side,
        state: CallState,
        *,
        failure: attachments.Failure | None = None,
        due: float = 0.0,
        since: float | None = None,
    ) -> None:
        call = self._get(uid, side)
        if call.since is not None and state in (CallState.RUNNING, CallState.UNASKED):
            since = call.since
        self._change(uid, side, state=state, failure=failure, due=due, since=since)


class Blockers:
    """The operations that keep devices busy, as far as this process has seen."""

    def __init__(self) -> None:
        self._gone: OrderedDict[str, None] = OrderedDict()
        # By attachment, or by the name of a pool that chunks wait for or of a chunk to delete: the blocking operation,
        # and its first sight on the caller's monotonic clock.
        self._since: dict[str, tuple[str, float]] = {}

    def is_unrecorded(self, request_id: str) -> bool:
        """Return whether a request was made for an attachment that is gone."""
        return attachment_uid(request_id) in self._gone

    def seconds(self, waits: str, operation_id: str, now: float) -> float:
        """Return the seconds for which this operation has kept the waiting subject busy."""
        blocker, since = self._since.get(waits, ("", now))
        if blocker != operation_id:
            since = now
        self._since[waits] = (operation_id, since)
        return now - since

    def end(self, waits: str) -> None:
        """Note that no operation keeps the subject busy any more."""
        self._since.pop(waits, None)

    def forget(self, uid: str) -> None:
        """Note that an attachment is gone."""
        self.end(uid)
        self._gone[uid] = None
        if len(self._gone) > GONE_LIMIT:
            self._gone.popitem(last=False)

    def clear(self) -> None:
        """Drop all operations: everything may have changed meanwhile."""
        self._since.clear()


def side(known: Calls, uid: str, request_id: str) -> outcomes.Side | None:
    """Return the side of the attachment's current call with this id, or None."""
    return next((side for side in outcomes.Side if known.request_id(uid, side) == request_id), None)


def attachment_uid(request_id: str) -> str:
    """Return the UID of the attachment of a request."""
    return request_id.rpartition("-")[0]


def failure(error: errors.FabricError) -> attachments.Failure:
    """Return the fabric's error in the form of the attachment's record and the claim's condition."""
    if isinstance(error, errors.Unauthenticated | errors.PermissionDenied):
        # These may be corrected while the claim waits.
        return attachments.Failure(
            reason=reasons.FABRIC_CREDENTIALS_REFUSED, message=error.message, retryable=True
        )
    # Shares of other claims become free a moment after their release.
    retryable = error.retryable or error.reason == errors.Reason.NO_CAPACITY
    return attachments.Failure(
        reason=REASONS.get(error.reason, reasons.FABRIC_ERROR), message=error.message, retryable=retryable
    )


def refusal(error: errors.FabricError, *, is_reached: bool = True) -> attachments.Failure:
    """Return a refusal in the form of the attachment's condition, while the call is repeated."""
    reported = failure(error)
    if not is_reached:
        return msgspec.structs.replace(reported, reason=reasons.FABRIC_UNREACHABLE)
    if reported.reason == reasons.FABRIC_ERROR and isinstance(error, errors.Transient):
        return msgspec.structs.replace(reported, reason=reasons.FABRIC_BUSY)
    return reported


# The fabric's reason and ours.
REASONS = {
    errors.Reason.IN_USE: reasons.DEVICE_IN_USE,
    errors.Reason.NO_FREE_PORT: reasons.NO_FREE_PORT,
    errors.Reason.NO_CAPACITY: reasons.NO_CAPACITY,
    errors.Reason.INCOMPATIBLE: reasons.DEVICE_INCOMPATIBLE,
    errors.Reason.NO_DEVICE: reasons.DEVICE_GONE,
    errors.Reason.OPERATION_PENDING: reasons.OPERATION_PENDING,
    errors.Code.NOT_FOUND.value: reasons.DEVICE_GONE,
    # A request that can never succeed: this device at this host.
    errors.Code.INVALID_ARGUMENT.value: reasons.DEVICE_INCOMPATIBLE,
    errors.Code.DATA_LOSS.value: reasons.DEVICE_LOST,
}
