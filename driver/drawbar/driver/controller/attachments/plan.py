"""The state machine of one fabric device, decided purely.

Invariants, after every prefix of every plan:

- the fabric is called only for a device that has a DeviceAttachment, whose name is the lock;
- `SayAttached` is planned only when the fabric says that the device is on the host of this attachment;
- `RemoveFinalizer` is planned only when the fabric says that it is not.

Whatever is observed, the plan holds the next safe steps. A call to the fabric is always the last step of a plan:
what it did is observed, never assumed.

Source: KEP-5007; `docs/architecture.md`.
"""

import datetime
import enum
from dataclasses import dataclass

from drawbar.driver.api import attachments, meta

GONE = "DeviceGone"
IN_USE = "DeviceInUse"
NO_HOST = "NodeNotOnFabric"
NO_FREE_PORT = "NoFreePort"
DEADLINE = "AttachDeadlineExceeded"

# Reasons for which another device would not have fared better, or the device is marked already.
NOT_THE_DEVICE = frozenset({IN_USE, NO_HOST, NO_FREE_PORT})


class Side(enum.StrEnum):
    """Which of the two calls to the fabric."""

    ATTACH = "a"
    DETACH = "d"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """An allocation that names this device.

    Attributes:
        host_id: the fabric's name of the node; None when the node is not on the fabric.
        pool: the DRA pool that the device was given from.
        attached_said: the claim's status already says that the device is attached.
        failed_said: the claim's status already says that it failed.
    """

    claim: attachments.ClaimReference
    node: str
    host_id: str | None
    pool: str
    allocation_timestamp: str | None
    allocated_at: datetime.datetime
    attached_said: bool
    failed_said: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What is known of the call to the fabric that the attachment's record names.

    Attributes:
        state: `unasked` (not since this process started), `unknown` (the fabric does not know it), `running`,
            `succeeded` or `failed`.
        due: the pause after a failed attempt is over.
        retry_after_seconds: until it is, or until it is worth asking a running call again.
    """

    state: str
    due: bool = True
    retry_after_seconds: float = 1.0
    failure: attachments.Failure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Everything the decision rests on.

    Attributes:
        present: the fabric lists the device; None while the fabric never told.
        host_id: where the fabric says it is connected; None when it is free or that is not known.
        tainted: the device's slice carries the taint of a failed attach.
        node_gone: there is no Node object any more, or an administrator says that the machine is off, so nobody
            will report a release.
        patience: from the allocation to giving up, shorter than the scheduler's.
    """

    attachment: attachments.DeviceAttachment | None
    wish: Wish | None
    present: bool | None
    host_id: str | None
    attach: Call
    detach: Call
    tainted: bool
    node_gone: bool
    patience: datetime.timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    """Store the intent."""

    wish: Wish


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopt:
    """Somebody made the attachment by hand.

    Without the finalizer it could vanish and leave the device attached; without the label its node hears nothing.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Ask the fabric what became of the call."""

    side: Side


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFabric:
    """Have the fabric connect or disconnect the device."""

    side: Side


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Begin a new attempt of a call that failed."""

    side: Side


@dataclass(frozen=True, slots=True, kw_only=True)
class SayAttached:
    """Say it on the claim."""

    wish: Wish


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordAttached:
    """Say it on the attachment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFailure:
    """Say on the attachment why it does not come about."""

    failure: attachments.Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Taint:
    """Keep the scheduler from picking the device again; the next steps wait for that write."""

    failure: attachments.Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class SayFailed:
    """Say it on every device of ours in all claims of the pod."""

    wish: Wish
    failure: attachments.Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """Ask for the detach."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveFinalizer:
    """Let the attachment go: the device is free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFabric:
    """Read the fabric anew: it said one thing and shows another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookAgain:
    """Nothing to do before then, unless something changes."""

    seconds: float


Talk = Ask | CallFabric | Retry | ReadFabric
Write = (
    Create
    | Adopt
    | SayAttached
    | RecordAttached
    | RecordFailure
    | Taint
    | SayFailed
    | Delete
    | RemoveFinalizer
)
Action = Talk | Write | LookAgain


def plan(observed: Observed, now: datetime.datetime) -> tuple[Action, ...]:
    """The next safe steps; empty when there is nothing to do until something changes."""
    attachment = observed.attachment
    if attachment is None:
        return _begin(observed, now)
    if attachment.deleting:
        return _let_go(observed, attachment)
    if attachment.spec.claim is not None and not _is_for(attachment, observed.wish):
        return (Delete(),)
    if attachments.FINALIZER not in attachment.metadata.finalizers:
        return (Adopt(),)
    return _bring_about(observed, attachment, now)


def problem(attachment: attachments.DeviceAttachment) -> attachments.Failure | None:
    """Why the attachment does not come about: the controller's own record, else the node's report."""
    if attachment.status.error is not None:
        return attachment.status.error
    visible = meta.find(attachment.status.conditions, attachments.VISIBLE)
    if visible is not None and visible.status == "False":
        return attachments.Failure(reason=visible.reason, message=visible.message)
    return None


def _is_for(attachment: attachments.DeviceAttachment, wish: Wish | None) -> bool:
    spec = attachment.spec
    return (
        wish is not None
        and spec.claim is not None
        and (spec.claim.uid, spec.allocation_timestamp, spec.node_name)
        == (wish.claim.uid, wish.allocation_timestamp, wish.node)
    )


def _begin(observed: Observed, now: datetime.datetime) -> tuple[Action, ...]:
    wish = observed.wish
    if wish is None or wish.failed_said:
        return ()
    failure = _impossible(observed, wish, now)
    if failure is not None:
        return (SayFailed(wish=wish, failure=failure),)
    if observed.present is None:
        return _until_deadline(observed, wish, now)
    return (Create(wish=wish),)


def _impossible(observed: Observed, wish: Wish, now: datetime.datetime) -> attachments.Failure | None:
    """Why there is no use in trying."""
    if observed.present is False:
        return attachments.Failure(reason=GONE, message="the fabric manager no longer lists the device")
    if observed.present and wish.host_id is None:
        message = f"node {wish.node} is no host of the fabric; map it in the Fabric's spec.hosts"
        return attachments.Failure(reason=NO_HOST, message=message)
    if observed.host_id not in (None, wish.host_id):
        message = f"the device is attached to host {observed.host_id}, and not by this cluster"
        return attachments.Failure(reason=IN_USE, message=message)
    if now >= wish.allocated_at + observed.patience:
        seconds = observed.patience.total_seconds()
        message = f"not attached within {seconds:.0f} s of the allocation; see the Fabric's conditions"
        return attachments.Failure(reason=DEADLINE, message=message)
    return None


def _until_deadline(observed: Observed, wish: Wish, now: datetime.datetime) -> tuple[Action, ...]:
    remaining = wish.allocated_at + observed.patience - now
    return (LookAgain(seconds=max(0.0, remaining.total_seconds())),)


def _bring_about(
    observed: Observed, attachment: attachments.DeviceAttachment, now: datetime.datetime
) -> tuple[Action, ...]:
    wish = observed.wish
    failure = problem(attachment)
    if failure is not None:
        return _give_up(observed, attachment, failure)
    connected = observed.host_id == attachment.spec.host_id
    settled = observed.attach.state in ("succeeded", "unknown")
    if connected and (settled or attachment.holds(attachments.ATTACHED)):
        return _say_attached(attachment, wish)
    if attachment.holds(attachments.ATTACHED):
        # It was there and is not: it never comes back by itself, and the node says what it sees.
        return ()
    impossible = _impossible(observed, wish, now) if wish is not None else None
    if impossible is not None:
        return (RecordFailure(failure=impossible),)
    if observed.present is None:
        return _until_deadline(observed, wish, now) if wish is not None else ()
    return _attach(observed, wish, now)


def _say_attached(attachment: attachments.DeviceAttachment, wish: Wish | None) -> tuple[Action, ...]:
    """The claim first: the scheduler waits for it."""
    steps: list[Action] = []
    if wish is not None and not wish.attached_said:
        steps.append(SayAttached(wish=wish))
    if not attachment.holds(attachments.ATTACHED):
        steps.append(RecordAttached())
    return tuple(steps)


def _attach(observed: Observed, wish: Wish | None, now: datetime.datetime) -> tuple[Action, ...]:
    call = observed.attach
    match call.state:
        case "unasked":
            return (Ask(side=Side.ATTACH),)
        case "unknown":
            return (CallFabric(side=Side.ATTACH),)
        case "succeeded":
            return (ReadFabric(), LookAgain(seconds=call.retry_after_seconds))
        case "failed" if call.failure is not None and not call.failure.retryable:
            return (RecordFailure(failure=call.failure),)
        case "failed" if call.due:
            return (Retry(side=Side.ATTACH),)
        case _:
            seconds = call.retry_after_seconds
            if wish is not None:
                seconds = min(seconds, (wish.allocated_at + observed.patience - now).total_seconds())
            return (LookAgain(seconds=seconds),)


def _give_up(
    observed: Observed, attachment: attachments.DeviceAttachment, failure: attachments.Failure
) -> tuple[Action, ...]:
    """Taint first and wait for it, else the scheduler picks the same device again.

    What the node reported is recorded after the taint: from the record the node knows that it may tell the claim.
    """
    wish = observed.wish
    if wish is None:
        return ()
    if observed.present and not observed.tainted and failure.reason not in NOT_THE_DEVICE:
        return (Taint(failure=failure),)
    steps: list[Action] = []
    if attachment.status.error is None:
        steps.append(RecordFailure(failure=failure))
    if not wish.failed_said:
        steps.append(SayFailed(wish=wish, failure=failure))
    return tuple(steps)


def _let_go(observed: Observed, attachment: attachments.DeviceAttachment) -> tuple[Action, ...]:
    """Detaches once the node has let go; a detach that fails is tried until the fabric says that it is free."""
    released = attachment.holds(attachments.RELEASED) or observed.node_gone
    held = attachments.FINALIZER in attachment.metadata.finalizers
    if not released or not held or observed.present is None:
        return ()
    return _detach(observed, attachment) if observed.present else (RemoveFinalizer(),)


def _detach(observed: Observed, attachment: attachments.DeviceAttachment) -> tuple[Action, ...]:
    call = observed.detach
    match call.state:
        case "unasked":
            return (Ask(side=Side.DETACH),)
        case "unknown":
            return (CallFabric(side=Side.DETACH),)
        case "succeeded":
            if observed.host_id == attachment.spec.host_id:
                return (ReadFabric(), LookAgain(seconds=call.retry_after_seconds))
            return (RemoveFinalizer(),)
        case "failed" if call.due:
            return (Retry(side=Side.DETACH),)
        case _:
            return (LookAgain(seconds=call.retry_after_seconds),)
