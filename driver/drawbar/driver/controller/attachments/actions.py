"""What `attachments.plan` can decide to do, and for whom; each action is one side effect."""

from dataclasses import dataclass

from drawbar.driver.api import attachments
from drawbar.driver.controller import claims, outcomes


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    """Store the intent."""

    wish: claims.Wish


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

    wish: claims.Wish


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepIdle:
    """No claim has the device now; keep it attached for the next one on its node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Ask the fabric what became of the call."""

    side: outcomes.Side


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFabric:
    """Have the fabric connect or disconnect the device."""

    side: outcomes.Side


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """Have the fabric give up an operation that nobody waits for any more, if it can."""

    side: outcomes.Side


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Begin a new attempt of a call that failed."""

    side: outcomes.Side


@dataclass(frozen=True, slots=True, kw_only=True)
class EndBlocker:
    """Look which operation keeps the device busy; end one of ours that no record names any more, report any other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SayAttached:
    """Say it on the claim."""

    wish: claims.Wish


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

    wish: claims.Wish
    failure: attachments.Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """Ask for the detach.

    Attributes:
        abandoned: the failed allocation that nobody took back, if the device is detached for that.
    """

    abandoned: claims.Wish | None = None


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
