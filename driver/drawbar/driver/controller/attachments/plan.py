"""The state machine of one fabric device, decided purely.

Invariants, after every prefix of every plan:

- the fabric is called only for a device that has a DeviceAttachment, whose name is the lock;
- `SayAttached` is planned only when the fabric says that the device is on the host of this attachment;
- `RemoveFinalizer` is planned only when the fabric has confirmed a detach, refuses it because it has no such device any
  more, or shows the device connected for somebody else, or when an administrator has given the fabric up;
- a connection that carries somebody else's mark is never said to be ours, and never ended;
- no claim waits longer than the scheduler does without a condition that says why.

Whatever is observed, the plan holds the next safe steps. A call to the fabric is always the last step of a plan:
what it did is observed, never assumed.

Source: KEP-5007; `docs/architecture.md`.
"""

import dataclasses
import datetime
import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import assert_never

from drawbar.driver.api import attachments, meta
from drawbar.driver.controller import claims as claim_index
from drawbar.driver.controller import marks, outcomes
from drawbar.driver.controller.attachments import actions

# A host of ours that is no node may become one meanwhile.
UNMAPPED_SECONDS = 60.0
# A detach that takes longer is given up and tried again.
DETACH_PATIENCE_SECONDS = 300.0
READ_AGAIN_SECONDS = 1.0
# A device that is still connected so long after its detach succeeded was connected again, or never detached.
RECONNECTED_SECONDS = 60.0

# A claim that lets go of a device and the next one that gets it may overlap for so long.
OVERLAP_SECONDS = 5.0


class CallState(enum.StrEnum):
    """What is known of a call to the fabric."""

    UNASKED = "unasked"
    """Nothing since this process started, or since its answer went stale: the fabric has to be asked."""
    UNKNOWN = "unknown"
    """The fabric does not know it."""
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What is known of the call to the fabric that the attachment's record names.

    Attributes:
        due: the pause after a failed attempt is over; of a call that succeeded, its news should have come.
        retry_after_seconds: until it is, or until it is worth asking a running call again.
        age_seconds: for how long it has been in its state, as far as this process knows.
    """

    state: CallState
    due: bool = True
    retry_after_seconds: float = 1.0
    failure: attachments.Failure | None = None
    age_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Everything the decision rests on.

    Attributes:
        present: the fabric lists the device; None while the fabric never told.
        host_id: where the fabric says it is connected; None when it is free or that is not known.
        owner: whose that connection is.
        node: which node that host is; None where it is none, or the device is free.
        tainted: the device's slice carries the taint of a failed attach.
        node_gone_at: when it counts as certain that nobody will report a release: there has been no Node object for the
            Fabric's grace period, or an administrator says that the machine is off; None while there is a node.
        given_up: an administrator says that the fabric manager never comes back.
        keep: how long a device without a claim stays attached for the next one on its node; None is for ever.
        forbidden: why the Fabric's rules do not allow the device on the wish's node.
        patience: from the allocation that was first seen to giving the attach up, shorter than the scheduler's.
        ready_patience: from there to giving up a device that is attached, and that its node does not report ready.
        binding_timeout: how long a failed allocation may stay until its attach is rolled back.
        idle_at: when the attachment was first seen to be idle.
        rivals: claims that were given the device although the wish's claim has it.
    """

    attachment: attachments.DeviceAttachment | None
    wish: claim_index.Wish | None
    present: bool | None
    host_id: str | None
    attach: Call
    detach: Call
    tainted: bool
    node_gone_at: datetime.datetime | None = None
    given_up: bool = False
    patience: datetime.timedelta
    ready_patience: datetime.timedelta
    binding_timeout: datetime.timedelta
    idle_at: datetime.datetime | None = None
    keep: datetime.timedelta | None = datetime.timedelta()
    forbidden: attachments.Failure | None = None
    rivals: tuple[claim_index.Wish, ...] = ()
    owner: marks.Owner = marks.Owner.UNTOLD
    node: str | None = None

    @property
    def foreign(self) -> bool:
        """Whether somebody else has the device."""
        return self.owner is marks.Owner.OTHERS

    def time_left(self, now: datetime.datetime) -> datetime.timedelta:
        """Until the wish's claim is to be told that it waited in vain."""
        return self.wish.seen_at + self.patience - now if self.wish else datetime.timedelta()

    def connected(self, host_id: str) -> bool:
        """Whether the device is on that host, and not for somebody else."""
        return self.host_id == host_id and not self.foreign


def plan(observed: Observed, now: datetime.datetime) -> tuple[actions.Action, ...]:
    """The next safe steps; empty when there is nothing to do until something changes."""
    wish, attachment = observed.wish, observed.attachment
    if wish is not None and not (attachment and _is_for(attachment, wish)):
        unfit = _refuse_unfit(wish)
        if unfit:
            return unfit
    refused = _refuse_rivals(observed.wish, observed.rivals, now)
    return _combine(refused, _for_the_first(observed, now))


def _for_the_first(observed: Observed, now: datetime.datetime) -> tuple[actions.Action, ...]:
    attachment = observed.attachment
    if attachment is None:
        return _begin(observed, now)
    if attachment.deleting:
        waits = _wait_for_release(observed.wish, attachment, observed.time_left(now))
        return _combine(waits, _let_go(observed, attachment, now))
    if attachment.forced:
        return (actions.Delete(),)
    if attachment.held_by_hand:
        return _hold(observed, attachment, now)
    if not _is_for(attachment, observed.wish):
        return _change_hands(observed, attachment, now)
    if attachments.FINALIZER not in attachment.metadata.finalizers:
        return (actions.Adopt(),)
    return _bring_about(observed, attachment, now)


def _is_for(attachment: attachments.DeviceAttachment, wish: claim_index.Wish | None) -> bool:
    spec = attachment.spec
    return (
        wish is not None
        and spec.claim is not None
        and (spec.claim.uid, spec.allocation_timestamp, spec.node_name)
        == (wish.claim.uid, wish.allocation_timestamp, wish.node)
        and not _is_misdirected(attachment, wish)
    )


def _is_misdirected(attachment: attachments.DeviceAttachment, wish: claim_index.Wish) -> bool:
    """Whether the claim's node is mapped to another host by now; what a pod may be using stays where it is."""
    in_use = attachment.holds(attachments.VISIBLE) or wish.visible_said
    return not in_use and wish.host_id not in (None, attachment.spec.host_id)


def _hold(
    observed: Observed, attachment: attachments.DeviceAttachment, now: datetime.datetime
) -> tuple[actions.Action, ...]:
    """What an operator attached by hand no claim gets; one that was given it is told."""
    if attachments.FINALIZER not in attachment.metadata.finalizers:
        return (actions.Adopt(),)
    if observed.wish is not None and not observed.wish.failed_said:
        message = f"an operator holds the device with DeviceAttachment {attachment.metadata.name}"
        failure = attachments.Failure(reason=outcomes.IN_USE, message=message)
        return (actions.SayFailed(wish=observed.wish, failure=failure),)
    return _bring_about(dataclasses.replace(observed, wish=None), attachment, now)


def _change_hands(
    observed: Observed, attachment: attachments.DeviceAttachment, now: datetime.datetime
) -> tuple[actions.Action, ...]:
    """The claim that the device was attached for is not there any more: the next one's, idle, or away."""
    spec, wish = attachment.spec, observed.wish
    usable = (
        observed.connected(spec.host_id)
        and attachment.holds(attachments.ATTACHED)
        and outcomes.problem(attachment) is None
        and observed.node_gone_at is None
        and _is_vouched_for(attachment)
    )
    if wish is not None and not wish.failed_said:
        same_place = (wish.node, wish.host_id, wish.pool) == (spec.node_name, spec.host_id, spec.pool)
        return (actions.TakeOver(wish=wish),) if usable and same_place else (actions.Delete(),)
    if not usable or observed.keep == datetime.timedelta():
        return (actions.Delete(),)
    if spec.idle_since is None:
        return (actions.KeepIdle(),)
    if observed.keep is None:
        return ()
    left = ((observed.idle_at or now) + observed.keep - now).total_seconds()
    return (actions.LookAgain(seconds=left),) if left > 0 else (actions.Delete(),)


def _is_vouched_for(attachment: attachments.DeviceAttachment) -> bool:
    """Whether the node knows whose traces it has to clean: it says so once the device is ready for a claim."""
    spec, node = attachment.spec, attachment.status.node
    return spec.claim is None or (node is not None and node.claim_uid == spec.claim.uid)


def _begin(observed: Observed, now: datetime.datetime) -> tuple[actions.Action, ...]:
    wish = observed.wish
    if observed.owner is marks.Owner.OURS and not _is_where_said(observed, wish):
        return _restore(observed)
    if wish is None or wish.failed_said:
        return ()
    failure = _impossible(observed, wish, now) or observed.forbidden
    if failure is not None:
        return (actions.SayFailed(wish=wish, failure=failure),)
    if observed.present is None:
        return _until_deadline(observed, wish, now)
    return (actions.Create(wish=wish),)


def _is_where_said(observed: Observed, wish: claim_index.Wish | None) -> bool:
    """Whether the device is where its claim was told that it is: then that claim may be using it, and keeps it."""
    return (
        wish is not None
        and wish.attached_said
        and not wish.failed_said
        and observed.host_id == wish.host_id
        and observed.node == wish.node
    )


def _restore(observed: Observed) -> tuple[actions.Action, ...]:
    """A connection of ours without a record; restored for no claim, it is detached, since nobody knows its last user."""
    if observed.node is None or observed.host_id is None:
        return (actions.LookAgain(seconds=UNMAPPED_SECONDS),)
    return (actions.Restore(node=observed.node, host_id=observed.host_id),)


def _impossible(
    observed: Observed, wish: claim_index.Wish, now: datetime.datetime
) -> attachments.Failure | None:
    """Why there is no use in trying."""
    if observed.present is False:
        return attachments.Failure(
            reason=outcomes.GONE, message="the fabric manager no longer lists the device"
        )
    if observed.present and wish.host_id is None:
        message = f"node {wish.node} is no host of the fabric; map it in the Fabric's spec.hosts"
        return attachments.Failure(reason=outcomes.NO_HOST, message=message)
    if observed.foreign or observed.host_id not in (None, wish.host_id):
        whose = (
            "and not by this cluster" if observed.foreign else "by this cluster, for an earlier allocation"
        )
        message = f"the device is attached to host {observed.host_id}, {whose}"
        return attachments.Failure(reason=outcomes.IN_USE, message=message)
    if now >= wish.seen_at + observed.patience:
        seconds = observed.patience.total_seconds()
        refused = observed.attach.failure
        if refused is not None and refused.reason in (outcomes.CREDENTIALS, outcomes.PENDING):
            return refused
        if observed.attach.state in (CallState.UNASKED, CallState.UNKNOWN):
            # Nothing was ever begun, so neither device nor port is to blame.
            message = f"the fabric manager did not take the request within {seconds:.0f} s of the allocation"
            return attachments.Failure(reason=outcomes.UNREACHABLE, message=message)
        message = f"not attached within {seconds:.0f} s of the allocation; see the Fabric's conditions"
        return attachments.Failure(reason=outcomes.DEADLINE, message=message)
    return None


def _until_deadline(
    observed: Observed, wish: claim_index.Wish, now: datetime.datetime
) -> tuple[actions.Action, ...]:
    remaining = wish.seen_at + observed.patience - now
    return (actions.LookAgain(seconds=max(0.0, remaining.total_seconds())),)


def _bring_about(
    observed: Observed, attachment: attachments.DeviceAttachment, now: datetime.datetime
) -> tuple[actions.Action, ...]:
    wish = observed.wish
    failure = outcomes.problem(attachment)
    if failure is not None and not _is_ready_after_all(wish, failure):
        return _give_up(observed, attachment, failure, now)
    if wish is not None and wish.failed_at is not None:
        return _roll_back(observed, wish, now)
    connected = observed.connected(attachment.spec.host_id)
    settled = observed.attach.state in (CallState.SUCCEEDED, CallState.UNKNOWN)
    if failure is not None:
        return (actions.RecordAttached(),)
    if connected and (settled or attachment.holds(attachments.ATTACHED)):
        return (*_say_attached(attachment, wish), *_until_ready(observed, attachment, now))
    if attachment.holds(attachments.ATTACHED):
        # It was there and is not: it never comes back by itself, and the node says what it sees.
        return _until_ready(observed, attachment, now)
    impossible = _impossible(observed, wish, now) if wish is not None else None
    if impossible is not None:
        return (actions.RecordFailure(failure=impossible),)
    if observed.present is None:
        return _until_deadline(observed, wish, now) if wish is not None else ()
    return _attach(observed, wish, now)


def _is_ready_after_all(wish: claim_index.Wish | None, failure: attachments.Failure) -> bool:
    """Whether the node reported the device on the claim after it was given up, and before the claim says that it failed."""
    return (
        failure.reason == outcomes.NODE_SILENT
        and wish is not None
        and wish.visible_said
        and not wish.failed_said
    )


def _until_ready(
    observed: Observed, attachment: attachments.DeviceAttachment, now: datetime.datetime
) -> tuple[actions.Action, ...]:
    """The node has its own deadline for a device that does not become ready; this one is for a node that is silent."""
    wish = observed.wish
    if wish is None or wish.visible_said or wish.failed_said:
        return ()
    waited = now - wish.seen_at
    if waited < observed.ready_patience:
        return (actions.LookAgain(seconds=(observed.ready_patience - waited).total_seconds()),)
    message = (
        f"node {attachment.spec.node_name} did not report the device as ready within "
        f"{observed.ready_patience.total_seconds():.0f} s of the allocation; look at its node daemon"
    )
    return (actions.RecordFailure(failure=attachments.Failure(reason=outcomes.NODE_SILENT, message=message)),)


def _roll_back(
    observed: Observed, wish: claim_index.Wish, now: datetime.datetime
) -> tuple[actions.Action, ...]:
    """The scheduler takes a failed allocation back, or its pod's deletion does; if nobody does, the device goes back alone.

    Not while a pod may be using the claim: that was ready before it failed.
    """
    if wish.failed_at is None:
        return ()
    waited = now - wish.failed_at
    if waited < observed.binding_timeout:
        return (actions.LookAgain(seconds=(observed.binding_timeout - waited).total_seconds()),)
    return (actions.Delete(abandoned=wish),)


def _say_attached(
    attachment: attachments.DeviceAttachment, wish: claim_index.Wish | None
) -> tuple[actions.Action, ...]:
    """The claim first: the scheduler waits for it."""
    steps: list[actions.Action] = []
    if wish is not None and not wish.attached_said:
        steps.append(actions.SayAttached(wish=wish))
    if not attachment.holds(attachments.ATTACHED):
        steps.append(actions.RecordAttached())
    return tuple(steps)


def _attach(
    observed: Observed, wish: claim_index.Wish | None, now: datetime.datetime
) -> tuple[actions.Action, ...]:
    call = observed.attach
    match call.state:
        case CallState.UNASKED:
            return (actions.Ask(side=outcomes.Side.ATTACH),)
        case CallState.UNKNOWN:
            return (actions.CallFabric(side=outcomes.Side.ATTACH),)
        case CallState.SUCCEEDED if call.due:
            return _read(call)
        case CallState.FAILED if call.failure is not None and not call.failure.retryable:
            return (actions.RecordFailure(failure=call.failure),)
        case CallState.FAILED if call.due:
            return _again(outcomes.Side.ATTACH, call)
        case CallState.RUNNING | CallState.SUCCEEDED | CallState.FAILED:
            seconds = call.retry_after_seconds
            if wish is not None:
                seconds = min(seconds, observed.time_left(now).total_seconds())
            return (actions.LookAgain(seconds=seconds),)
        case _:
            assert_never(call.state)


def _again(side: outcomes.Side, call: Call) -> tuple[actions.Action, ...]:
    """Try again; a device that another operation keeps busy stays so for ever if nobody ends that one."""
    pending = call.failure is not None and call.failure.reason == outcomes.PENDING
    retry = actions.Retry(side=side)
    return (actions.EndBlocker(), retry) if pending else (retry,)


def _give_up(
    observed: Observed,
    attachment: attachments.DeviceAttachment,
    failure: attachments.Failure,
    now: datetime.datetime,
) -> tuple[actions.Action, ...]:
    """actions.Taint first and wait for it, else the scheduler picks the same device again.

    What the node reported is recorded after the taint: from the record the node knows that it may tell the claim.
    """
    wish = observed.wish
    if wish is None:
        return ()
    if observed.present and not observed.tainted and failure.reason not in outcomes.NOT_THE_DEVICE:
        return (actions.Taint(failure=failure),)
    steps: list[actions.Action] = []
    if attachment.status.error is None:
        steps.append(actions.RecordFailure(failure=failure))
    if not wish.failed_said:
        steps.append(actions.SayFailed(wish=wish, failure=failure))
    return tuple(steps) or _roll_back(observed, wish, now)


def _let_go(
    observed: Observed, attachment: attachments.DeviceAttachment, now: datetime.datetime
) -> tuple[actions.Action, ...]:
    """Detaches once the node has let go; a detach that fails is tried until the fabric says that it is free."""
    if attachments.FINALIZER not in attachment.metadata.finalizers:
        return ()
    gone_at = observed.node_gone_at
    if not (attachment.holds(attachments.RELEASED) or attachment.forced):
        if gone_at is None:
            return ()
        if now < gone_at:
            return (actions.LookAgain(seconds=(gone_at - now).total_seconds()),)
    if observed.given_up:
        return (actions.RemoveFinalizer(),)
    return _detach(observed, attachment) if observed.present is not None else ()


def _detach(observed: Observed, attachment: attachments.DeviceAttachment) -> tuple[actions.Action, ...]:
    """An attach that is still under way goes first: it would undo the detach."""
    attach = observed.attach
    if attach.state == CallState.UNASKED and not observed.connected(attachment.spec.host_id):
        return (actions.Ask(side=outcomes.Side.ATTACH),)
    if attach.state == CallState.RUNNING:
        return _cancel(outcomes.Side.ATTACH, attach)
    if observed.foreign:
        return (actions.RemoveFinalizer(),)
    return _detach_call(observed, attachment)


def _cancel(side: outcomes.Side, call: Call) -> tuple[actions.Action, ...]:
    return (actions.Cancel(side=side), actions.LookAgain(seconds=call.retry_after_seconds))


def _read(call: Call) -> tuple[actions.Action, ...]:
    """What was done does not show: a change got lost. Reading a large fabric is dear, so not again at once."""
    return (
        actions.ReadFabric(),
        actions.LookAgain(seconds=max(READ_AGAIN_SECONDS, call.retry_after_seconds)),
    )


def _detach_call(observed: Observed, attachment: attachments.DeviceAttachment) -> tuple[actions.Action, ...]:
    call, there = observed.detach, observed.host_id == attachment.spec.host_id
    gone = observed.present is False and call.failure is not None and call.failure.reason == outcomes.GONE
    if (call.state == CallState.SUCCEEDED and not there) or (call.state == CallState.FAILED and gone):
        return (actions.RemoveFinalizer(),)
    match call.state:
        case CallState.UNASKED:
            return (actions.Ask(side=outcomes.Side.DETACH),)
        case CallState.UNKNOWN:
            return (actions.CallFabric(side=outcomes.Side.DETACH),)
        case CallState.SUCCEEDED if call.age_seconds > RECONNECTED_SECONDS:
            return _again(outcomes.Side.DETACH, call)
        case CallState.SUCCEEDED if call.due:
            return _read(call)
        case CallState.FAILED if call.due:
            return _again(outcomes.Side.DETACH, call)
        case CallState.RUNNING if call.age_seconds > DETACH_PATIENCE_SECONDS:
            return _cancel(outcomes.Side.DETACH, call)
        case CallState.RUNNING | CallState.SUCCEEDED | CallState.FAILED:
            return (actions.LookAgain(seconds=call.retry_after_seconds),)
        case _:
            assert_never(call.state)


def _refuse_rivals(
    first: claim_index.Wish | None, rivals: Iterable[claim_index.Wish], now: datetime.datetime
) -> tuple[actions.Action, ...]:
    """A device that was given to two claims by mistake stays with the first; the others fail."""
    if first is None:
        return ()
    message = f"the device was given to claim {first.claim.namespace}/{first.claim.name} already"
    failure = attachments.Failure(reason=outcomes.IN_USE, message=message)
    steps: list[actions.Action] = []
    for rival in rivals:
        left = OVERLAP_SECONDS - (now - rival.seen_at).total_seconds()
        steps.append(
            actions.SayFailed(wish=rival, failure=failure) if left <= 0 else actions.LookAgain(seconds=left)
        )
    return tuple(steps)


def _refuse_unfit(wish: claim_index.Wish) -> tuple[actions.Action, ...]:
    """A claim whose parameters cannot be obeyed fails, and nothing is attached for it."""
    if wish.unfit is None or wish.failed_said:
        return ()
    return (actions.SayFailed(wish=wish, failure=wish.unfit),)


def _combine(
    waits: tuple[actions.Action, ...], rest: tuple[actions.Action, ...]
) -> tuple[actions.Action, ...]:
    """One after the other; of two moments to look again, the later step has the earlier one."""
    pauses = [one.seconds for one in (*waits, *rest[-1:]) if isinstance(one, actions.LookAgain)]
    if rest and isinstance(rest[-1], actions.LookAgain):
        rest = (*rest[:-1], actions.LookAgain(seconds=min(pauses)))
    others = tuple(one for one in waits if not isinstance(one, actions.LookAgain))
    early = tuple(one for one in waits if isinstance(one, actions.LookAgain))
    return (*others, *early, *rest)


def _wait_for_release(
    wish: claim_index.Wish | None,
    attachment: attachments.DeviceAttachment,
    left: datetime.timedelta,
) -> tuple[actions.Action, ...]:
    """The next claim waits for a device that is being released, and hears what blocks when its time is over.

    Args:
        wish: of the claim that is next; one that was told that it is attached has the device itself.
        attachment: that is being deleted.
        left: until the claim is to be told.
    """
    if wish is None or wish.failed_said or wish.attached_said:
        return ()
    if left > datetime.timedelta():
        return (actions.LookAgain(seconds=left.total_seconds()),)
    released = meta.find(attachment.status.conditions, attachments.RELEASED)
    why = f": {released.message}" if released is not None and released.message else ""
    message = f"the device is still being released from node {attachment.spec.node_name}{why}"
    failure = attachments.Failure(reason=outcomes.DEADLINE, message=message)
    return (actions.SayFailed(wish=wish, failure=failure),)
