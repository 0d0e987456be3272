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
from dataclasses import dataclass

from drawbar.driver.api import attachments

GONE = "DeviceGone"
IN_USE = "DeviceInUse"
NO_HOST = "NodeNotOnFabric"
DEADLINE = "AttachDeadlineExceeded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """An allocation that names this device.

    Attributes:
        host_id: the fabric's name of the node; None when the node is not on the fabric.
        attached_said: the claim's status already says that the device is attached.
        failed_said: the claim's status already says that it failed.
    """

    claim: attachments.ClaimReference
    node: str
    host_id: str | None
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
    """

    state: str
    retry_after_seconds: float = 1.0
    failure: attachments.Failure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Everything the decision rests on.

    Attributes:
        present: the fabric lists the device.
        host_id: where the fabric says it is connected; None when it is free.
        tainted: the device's slice carries the taint of a failed attach.
        node_gone: there is no Node object any more, so nobody will report a release.
        patience: from the allocation to giving up, shorter than the scheduler's.
    """

    attachment: attachments.DeviceAttachment | None
    wish: Wish | None
    present: bool
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
class AskAttach:
    """Ask the fabric what became of the attach call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskDetach:
    """Ask the fabric what became of the detach call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallAttach:
    """Have the fabric connect the device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallDetach:
    """Have the fabric disconnect the device."""


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
    """Say it on every device of ours in the claim."""

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


Action = (
    Create
    | AskAttach
    | AskDetach
    | CallAttach
    | CallDetach
    | SayAttached
    | RecordAttached
    | RecordFailure
    | Taint
    | SayFailed
    | Delete
    | RemoveFinalizer
    | ReadFabric
    | LookAgain
)


def plan(observed: Observed, now: datetime.datetime) -> tuple[Action, ...]:
    """The next safe steps; empty when there is nothing to do until something changes."""
    attachment = observed.attachment
    if attachment is None:
        return _begin(observed, now)
    if attachment.deleting:
        return _let_go(observed, attachment)
    if attachment.spec.claim is not None and not _is_for(attachment, observed.wish):
        return (Delete(),)
    return _bring_about(observed, attachment, now)


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
    if failure is None:
        return (Create(wish=wish),)
    return (SayFailed(wish=wish, failure=failure),)


def _impossible(observed: Observed, wish: Wish, now: datetime.datetime) -> attachments.Failure | None:
    """Why there is no use in trying."""
    if not observed.present:
        return attachments.Failure(reason=GONE, message="the fabric manager no longer lists the device")
    if wish.host_id is None:
        message = f"node {wish.node} is no host of the fabric; map it in the Fabric's spec.hosts"
        return attachments.Failure(reason=NO_HOST, message=message)
    if observed.host_id not in (None, wish.host_id):
        message = f"the device is attached to host {observed.host_id}, and not by this cluster"
        return attachments.Failure(reason=IN_USE, message=message)
    if now >= wish.allocated_at + observed.patience:
        seconds = observed.patience.total_seconds()
        message = f"not attached within {seconds:.0f} s of the allocation"
        return attachments.Failure(reason=DEADLINE, message=message)
    return None


def _bring_about(
    observed: Observed, attachment: attachments.DeviceAttachment, now: datetime.datetime
) -> tuple[Action, ...]:
    wish = observed.wish
    if attachment.status.error is not None:
        return _give_up(observed, wish, attachment.status.error)
    connected = observed.host_id == attachment.spec.host_id
    if connected or (attachment.holds(attachments.ATTACHED) and observed.attach.state == "succeeded"):
        steps: list[Action] = []
        if wish is not None and not wish.attached_said:
            steps.append(SayAttached(wish=wish))
        if not attachment.holds(attachments.ATTACHED):
            steps.append(RecordAttached())
        return tuple(steps)
    impossible = _impossible(observed, wish, now) if wish is not None else None
    if impossible is not None:
        return (RecordFailure(failure=impossible),)
    return _call_attach(observed)


def _call_attach(observed: Observed) -> tuple[Action, ...]:
    call = observed.attach
    match call.state:
        case "unasked":
            return (AskAttach(),)
        case "unknown":
            return (CallAttach(),)
        case "failed" if call.failure is not None:
            return (RecordFailure(failure=call.failure),)
        case "succeeded":
            return (ReadFabric(), LookAgain(seconds=call.retry_after_seconds))
        case _:
            return (LookAgain(seconds=call.retry_after_seconds),)


def _give_up(observed: Observed, wish: Wish | None, failure: attachments.Failure) -> tuple[Action, ...]:
    """Taint first and wait for it, else the scheduler picks the same device again."""
    if wish is None:
        return ()
    if not observed.tainted and observed.present:
        return (Taint(failure=failure),)
    if not wish.failed_said:
        return (SayFailed(wish=wish, failure=failure),)
    return ()


def _let_go(observed: Observed, attachment: attachments.DeviceAttachment) -> tuple[Action, ...]:
    if not attachment.holds(attachments.RELEASED) and not observed.node_gone:
        return ()
    if not observed.present:
        return (RemoveFinalizer(),)
    match observed.detach.state:
        case "unasked":
            return (AskDetach(),)
        case "unknown":
            return (CallDetach(),)
        case "succeeded":
            if observed.host_id == attachment.spec.host_id:
                return (ReadFabric(), LookAgain(seconds=observed.detach.retry_after_seconds))
            return (RemoveFinalizer(),)
        case _:
            return (LookAgain(seconds=observed.detach.retry_after_seconds),)
