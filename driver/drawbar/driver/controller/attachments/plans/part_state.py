"""The state of one part: the whole input of its plans."""

import datetime
import enum

import msgspec

from drawbar.driver.api import attachments
from drawbar.driver.controller import claims as claim_index
from drawbar.driver.controller import marks
from drawbar.driver.controller.attachments import contradictions


class CallState(enum.StrEnum):
    """The last known state of a call to the fabric."""

    UNASKED = "unasked"
    """Not known since this process started, or since the answer went stale: the fabric has to be asked."""
    UNKNOWN = "unknown"
    """The fabric has no such call."""
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


UNBEGUN = (CallState.UNASKED, CallState.UNKNOWN)


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """The call to the fabric that the attachment's record names.

    Attributes:
        due: whether the pause after a failed attempt is over; for a call that succeeded, whether its news is overdue.
        retry_after_seconds: the seconds until it is due, or until a running call is worth asking for again.
        age_seconds: the seconds in its state, as far as this process has seen; for a call that has to be asked for, the
            seconds since it was first seen to run, or 0.0.
        refused: the latest refusal of any attempt, or a call that failed on its way; None since a success.
        is_report_due: whether a recorded refusal may be recorded again, if its words differ.
        renewals: the number of repeated attaches by this process because the fabric manager did not show the
            connection.
    """

    state: CallState
    due: bool = True
    retry_after_seconds: float = 1.0
    failure: attachments.Failure | None = None
    age_seconds: float = 0.0
    refused: attachments.Failure | None = None
    is_report_due: bool = True
    renewals: int = 0


class PartState(msgspec.Struct, frozen=True, kw_only=True):
    """The whole input of a decision.

    Attributes:
        present: whether the fabric lists the device; None while not known.
        host_id: the host of the device's connection; None if it is free or not known.
        owner: the owner of that connection.
        node: the host's node; None if it has none, or the device is free.
        tainted: whether the device's slice has the taint of a failed attach.
        node_gone_at: the time from which no release will be reported: there has been no Node object for the Fabric's
            grace period, or an administrator has marked the machine as off; None while there is a node.
        given_up: whether an administrator has declared that the fabric manager never comes back.
        keep: how long a device without a claim stays attached for the next one on its node; None is forever.
        forbidden: the reason not to attach the device to the demand's node: the Fabric's rules, or a remembered
            refusal.
        attaches_at: the earliest begin of the attach for the demand, since its claim failed before; None for at once.
        patience: the time from the first sight of the allocation to giving the attach up, shorter than the scheduler's.
        ready_patience: the time from there to giving up an attached device that its node does not report ready.
        binding_timeout: how long a failed allocation may stay until its attach is rolled back.
        idle_at: the time when the attachment was first seen to be idle.
        competing_demands: other claims that were given the device of the demand's claim.
        is_whole: whether all other members of the device's composite are attached; always true for a single device.
        misfit: the reason why an operator's attachment does not fit the Fabric; None if it does.
        orphaned_at: for a memory chunk of ours without an attachment, the time when this process first saw it; else
            None.
        is_claim_unreadable: whether the attachment's claim exists and cannot be read.
        ahead: another attachment of the node whose card could be taken for this device, until it is recognised; empty
            for none.
        is_acknowledged: whether the node has listed its cards, if the device is recognised by its arrival.
        listed_since: the begin of the wait for the node to list its cards.
        queue: the reason why the fabric begins no attach for the demand now, as a clause; empty without one.
        contradiction: the fabric manager's contradiction to the connection of an attached device; None without one.
    """

    attachment: attachments.DeviceAttachment | None
    demand: claim_index.Demand | None
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
    attaches_at: datetime.datetime | None = None
    competing_demands: tuple[claim_index.Demand, ...] = ()
    owner: marks.Owner = marks.Owner.UNTOLD
    node: str | None = None
    is_whole: bool = True
    orphaned_at: datetime.datetime | None = None
    is_claim_unreadable: bool = False
    misfit: attachments.Failure | None = None
    ahead: str = ""
    is_acknowledged: bool = True
    listed_since: datetime.datetime | None = None
    queue: str = ""
    contradiction: contradictions.Contradiction | None = None

    @property
    def foreign(self) -> bool:
        """Return whether another owner has connected the device."""
        return self.owner is marks.Owner.OTHERS

    def seconds_left(self, now: datetime.datetime) -> float | None:
        """Return the seconds until the attach for the demand is given up, or None without a demand."""
        return (
            (self.demand.seen_at + self.patience - now).total_seconds() if self.demand is not None else None
        )

    def pause_seconds(self, now: datetime.datetime) -> float:
        """Return the seconds until the attach for the demand may begin; 0.0 if it may."""
        return max(0.0, (self.attaches_at - now).total_seconds()) if self.attaches_at is not None else 0.0

    def is_connected(self, host_id: str) -> bool:
        """Return whether the device is on that host, and not by another owner."""
        return self.host_id == host_id and not self.foreign
