"""The actions that `attachments.plan` decides on; each is one side effect."""

from dataclasses import dataclass

from drawbar.driver.api import attachments
from drawbar.driver.controller import claims, outcomes


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    """Store the intent."""

    demand: claims.Demand


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopt:
    """Add finalizer and label to an attachment that was made or changed by hand, and remove owners of a claim's attachment.

    Without the finalizer it could vanish and leave the device attached; without the label its node does not receive it; with
    an owner it would be deleted under its claim.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Restore:
    """ApiAction the lost record of a connection that this cluster made, for no claim.

    Attributes:
        node: which the device is connected to.
        host_id: the fabric's name of it.
    """

    node: str
    host_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeOver:
    """Give the device as it is attached to the next claim on the same node; the node cleans it in between."""

    demand: claims.Demand


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepIdle:
    """Keep the device attached without a claim, for the next one on its node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryOperation:
    """Query the state of the call at the fabric."""

    side: outcomes.Side


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFabric:
    """Have the fabric connect or disconnect the device."""

    side: outcomes.Side


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """Have the fabric cancel an operation that no claim waits for any more, if it can."""

    side: outcomes.Side


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Begin a new attempt of a call that failed."""

    side: outcomes.Side


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseMemory:
    """Give the memory of a slice that no attachment has back to the device that it was carved from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndBlocker:
    """Find the operation that keeps the device busy; cancel one of ours that no record names, report any other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportAttached:
    """ApiAction `attached` to the claim's status."""

    demand: claims.Demand


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordAttached:
    """ApiAction `Attached` to the attachment's status."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFailure:
    """ApiAction the failure to the attachment's status."""

    failure: attachments.Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordQueued:
    """ApiAction to the attachment's status that another one of its node goes first.

    Attributes:
        ahead: the name of that DeviceAttachment.
    """

    ahead: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRefusal:
    """ApiAction to the attachment's status that the fabric refused a call which is made again.

    Attributes:
        words: the fabric's.
        message: the same, and when the call is made again.
    """

    side: outcomes.Side
    reason: str
    words: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordContradiction:
    """ApiAction to the attachment's status that the fabric manager no longer shows its connection.

    Attributes:
        is_attached: `Attached` stays True, for the device's node has seen it.
        renews: the device is attached anew.
        record: since when the manager shows what; None unless the node has seen the device.
    """

    reason: str
    message: str
    is_attached: bool
    renews: bool = False
    record: attachments.ContradictionRecord | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Taint:
    """Publish the device's taint, so that the scheduler does not pick it again; the next steps wait for that write."""

    failure: attachments.Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFailed:
    """ApiAction the failure to every device of ours in all claims of the pod."""

    demand: claims.Demand
    failure: attachments.Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """QueryOperation for the detach.

    Attributes:
        abandoned: the failed allocation that was not taken back, if the device is detached for that.
    """

    abandoned: claims.Demand | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveFinalizer:
    """Remove our finalizer from the attachment: the device is free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportKept:
    """Report that finalizers of others keep the attachment of a device that is free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFabric:
    """List the fabric anew: an operation succeeded, and the device does not show it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequeueAfter:
    """Reconcile again after so many seconds, unless something changes before."""

    seconds: float


FabricAction = QueryOperation | CallFabric | Cancel | Retry | ReleaseMemory | EndBlocker | ReadFabric
ApiAction = (
    Create
    | Adopt
    | Restore
    | TakeOver
    | KeepIdle
    | ReportAttached
    | RecordAttached
    | RecordFailure
    | RecordQueued
    | RecordRefusal
    | RecordContradiction
    | Taint
    | ReportFailed
    | Delete
    | RemoveFinalizer
    | ReportKept
)
Action = FabricAction | ApiAction | RequeueAfter
