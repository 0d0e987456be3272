"""The actions of `attachments.plan`; each is one side effect."""

from dataclasses import dataclass

from drawbar.driver.api import attachments
from drawbar.driver.controller import claims, outcomes


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    """Create the DeviceAttachment, before the fabric is called."""

    demand: claims.Demand


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopt:
    """Correct a manual attachment or change: add finalizer and label, and remove owners from a claim's attachment.

    Without the finalizer it could vanish and leave the device attached. Without the label its node does not receive it.
    With an owner it would be deleted under its claim.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Restore:
    """Create the lost record of a connection that this cluster made, for no claim.

    Attributes:
        node: the node that the device is connected to.
        host_id: the fabric's id of the node's host.
    """

    node: str
    host_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeOver:
    """Give the attached device to the next claim on the same node; the node cleans it in between."""

    demand: claims.Demand


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepIdle:
    """Keep the device attached without a claim, for the next one on its node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryOperation:
    """Ask the fabric for the state of the call."""

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
    """Return the memory of a chunk without an attachment to the device that it was carved from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndBlocker:
    """Find the operation that keeps the device busy; cancel it if it is ours and no record names it, else report it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportAttached:
    """Write to the claim's status that the device is attached."""

    demand: claims.Demand


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordAttached:
    """Write the condition `Attached` to the attachment's status."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFailure:
    """Write the failure to the attachment's status."""

    failure: attachments.Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordQueued:
    """Write to the attachment's status that another attachment of its node goes first.

    Attributes:
        ahead: the name of that DeviceAttachment.
    """

    ahead: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRefusal:
    """Write to the attachment's status that the fabric refused a call, which is repeated.

    Attributes:
        words: the fabric's words.
        message: the same, and the time of the next call.
    """

    side: outcomes.Side
    reason: str
    words: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordContradiction:
    """Write to the attachment's status that the fabric manager no longer shows its connection.

    Attributes:
        is_attached: whether `Attached` stays True, since the device's node has seen it.
        renews: whether the device is attached again.
        record: the manager's listing and its begin; None unless the node has seen the device.
    """

    reason: str
    message: str
    is_attached: bool
    renews: bool = False
    record: attachments.ContradictionRecord | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Taint:
    """Publish the device's taint, so that the scheduler does not select it again; the next steps wait for that write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFailed:
    """Write the failure to all our devices in all claims of the pod."""

    demand: claims.Demand
    failure: attachments.Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """Delete the attachment, which begins the detach.

    Attributes:
        abandoned: the failed allocation that was not taken back, if the device is detached for that.
    """

    abandoned: claims.Demand | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveFinalizer:
    """Remove our finalizer from the attachment: the device is free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportKept:
    """Report that foreign finalizers keep the attachment of a free device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFabric:
    """List the fabric again: an operation succeeded, and the device does not show it."""


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
