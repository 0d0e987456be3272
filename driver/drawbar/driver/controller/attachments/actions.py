"""The actions of `attachments.plan`; each is one side effect."""

import msgspec

from drawbar.driver.api import attachments
from drawbar.driver.controller import claims, outcomes


class Create(msgspec.Struct, frozen=True, kw_only=True):
    """Create the DeviceAttachment, before the fabric is called."""

    demand: claims.Demand


class Adopt(msgspec.Struct, frozen=True, kw_only=True):
    """Correct a manual attachment or change: add finalizer and label, and remove owners from a claim's attachment.

    Without the finalizer it could vanish and leave the device attached. Without the label its node does not receive it.
    With an owner it would be deleted under its claim.
    """


class Restore(msgspec.Struct, frozen=True, kw_only=True):
    """Create the lost record of a connection that this cluster made, for no claim.

    Attributes:
        node: the node that the device is connected to.
        host_id: the fabric's id of the node's host.
    """

    node: str
    host_id: str


class TakeOver(msgspec.Struct, frozen=True, kw_only=True):
    """Give the attached device to the next claim on the same node; the node cleans it in between."""

    demand: claims.Demand


class KeepIdle(msgspec.Struct, frozen=True, kw_only=True):
    """Keep the device attached without a claim, for the next one on its node."""


class QueryOperation(msgspec.Struct, frozen=True, kw_only=True):
    """Ask the fabric for the state of the call."""

    side: outcomes.Side


class CallFabric(msgspec.Struct, frozen=True, kw_only=True):
    """Have the fabric connect or disconnect the device."""

    side: outcomes.Side


class Cancel(msgspec.Struct, frozen=True, kw_only=True):
    """Have the fabric cancel an operation that no claim waits for any more, if it can."""

    side: outcomes.Side


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """Begin a new attempt of a call that failed."""

    side: outcomes.Side


class ReleaseMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Return the memory of a chunk without an attachment to the device that it was carved from."""


class EndBlocker(msgspec.Struct, frozen=True, kw_only=True):
    """Find the operation that keeps the device busy; cancel it if it is ours and no record names it, else report it."""


class ReportAttached(msgspec.Struct, frozen=True, kw_only=True):
    """Write to the claim's status that the device is attached."""

    demand: claims.Demand


class RecordAttached(msgspec.Struct, frozen=True, kw_only=True):
    """Write the condition `Attached` to the attachment's status."""


class RecordFailure(msgspec.Struct, frozen=True, kw_only=True):
    """Write the failure to the attachment's status."""

    failure: attachments.Failure


class RecordQueued(msgspec.Struct, frozen=True, kw_only=True):
    """Write to the attachment's status that another attachment of its node goes first.

    Attributes:
        ahead: the name of that DeviceAttachment.
    """

    ahead: str


class RecordRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """Write to the attachment's status that the fabric refused a call, which is repeated.

    Attributes:
        message: the same, and the time of the next call.
    """

    side: outcomes.Side
    reason: str
    words: str
    message: str


class RecordContradiction(msgspec.Struct, frozen=True, kw_only=True):
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


class Taint(msgspec.Struct, frozen=True, kw_only=True):
    """Publish the device's taint, so that the scheduler does not select it again; the next steps wait for that write."""


class ReportFailed(msgspec.Struct, frozen=True, kw_only=True):
    """Write the failure to all our devices in all claims of the pod."""

    demand: claims.Demand
    failure: attachments.Failure


class Delete(msgspec.Struct, frozen=True, kw_only=True):
    """Delete the attachment, which begins the detach.

    Attributes:
        abandoned: the failed allocation that was not taken back, if the device is detached for that.
    """

    abandoned: claims.Demand | None = None


class RemoveFinalizer(msgspec.Struct, frozen=True, kw_only=True):
    """Remove our finalizer from the attachment: the device is free."""


class ReportKept(msgspec.Struct, frozen=True, kw_only=True):
    """Report that foreign finalizers keep the attachment of a free device."""


class ReadFabric(msgspec.Struct, frozen=True, kw_only=True):
    """List the fabric again: an operation succeeded, and the device does not show it."""


class RequeueAfter(msgspec.Struct, frozen=True, kw_only=True):
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
