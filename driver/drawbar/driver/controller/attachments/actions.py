"""What `attachments.plan` can decide to do, and for whom; each action is one side effect."""

import datetime
import enum
from dataclasses import dataclass

from drawbar.driver.api import attachments


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
        seen_at: when this process first saw the allocation; the timestamp is of another machine's clock.
        attached_said: the claim's status already says that the device is attached.
        failed_said: the claim's status already says that it failed.
        visible_said: the claim's status already says that the device is ready on its node.
        failed_at: when this process first saw that it failed; None for one that a pod may be using.
        unfit: why the claim's parameters cannot be obeyed, if that is so.
        patience: from the allocation to giving the attach up, where the DeviceClass says it.
    """

    claim: attachments.ClaimReference
    node: str
    host_id: str | None
    pool: str
    allocation_timestamp: str | None
    seen_at: datetime.datetime
    attached_said: bool
    failed_said: bool
    visible_said: bool = False
    failed_at: datetime.datetime | None = None
    unfit: attachments.Failure | None = None
    patience: datetime.timedelta | None = None


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
class Restore:
    """The record of a connection that this cluster made is gone: write it anew, for no claim.

    Attributes:
        node: which the device is connected to.
        host_id: the fabric's name of it.
    """

    node: str
    host_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeOver:
    """The next claim on the same node gets the device as it is attached; the node cleans it in between."""

    wish: Wish


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepIdle:
    """No claim has the device now; keep it attached for the next one on its node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Ask the fabric what became of the call."""

    side: Side


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFabric:
    """Have the fabric connect or disconnect the device."""

    side: Side


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """Have the fabric give up an operation that nobody waits for any more, if it can."""

    side: Side


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Begin a new attempt of a call that failed."""

    side: Side


@dataclass(frozen=True, slots=True, kw_only=True)
class EndBlocker:
    """Look which operation keeps the device busy; end one of ours that no record names any more, report any other."""


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
    """Ask for the detach.

    Attributes:
        abandoned: the failed allocation that nobody took back, if the device is detached for that.
    """

    abandoned: Wish | None = None


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


Talk = Ask | CallFabric | Cancel | Retry | EndBlocker | ReadFabric
Write = (
    Create
    | Adopt
    | Restore
    | TakeOver
    | KeepIdle
    | SayAttached
    | RecordAttached
    | RecordFailure
    | Taint
    | SayFailed
    | Delete
    | RemoveFinalizer
)
Action = Talk | Write | LookAgain
